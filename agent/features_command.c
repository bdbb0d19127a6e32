#include "agent/features_command.h"

#include <string.h>
#include <sysexits.h>

#include "agent/engine.h"
#include "agent/features.h"
#include "agent/limits.h"
#include "agent/rights.h"
#include "agent/sampler.h"
#include "agent/sideband.h"
#include "base/log.h"

static int take_record(void *arg UNUSED, const struct abi_record *r UNUSED, size_t len UNUSED)
{
	return 0;
}

static int take_event(void *arg UNUSED, const struct event *e UNUSED)
{
	return 0;
}

static int try_engine(const char **ret_why)
{
	const struct sampler_conf sampler_conf = { .hz = 100, .stack_max_bytes = ABI_WINDOW_MAX, .cpus = "" };
	const struct sideband_conf sideband_conf = { .wake_on_exec = true };
	CLEANUP(sampler_freep) struct sampler *sampler = NULL;
	CLEANUP(sideband_freep) struct sideband *sideband = NULL;
	int err = sampler_new(&sampler, &sampler_conf, take_record, NULL, ret_why);

	return err ? err : sideband_new(&sideband, &sideband_conf, take_event, NULL, ret_why);
}

static int become_the_daemon(const char **ret_why)
{
	CLEANUP(engine_programs_close) struct engine_programs programs = ENGINE_PROGRAMS_INIT;
	static char *program_why; /* told until we end */
	uint64_t missing = 0;
	int err = engine_programs_open(&programs, &program_why);

	if (err) {
		*ret_why = program_why;
		return err;
	}
	if ((err = limits_settle(ret_why)) || (err = rights_leave_root(&missing, ret_why)))
		return err;
	if (missing)
		log_warning("some files of other users cannot be read, their frames stay module+offset missing=%s",
			    rights_text(missing));
	return 0;
}

int features_command_run(void)
{
	const char *why = NULL;
	int err = become_the_daemon(&why);

	features_print(stdout);
	if (!err)
		err = try_engine(&why);
	if (!err) {
		puts("\nflamed can run here");
		return EX_OK;
	}
	printf("\nflamed cannot run here: %s\n", why ? why : strerror(-err));
	return EX_UNAVAILABLE;
}
