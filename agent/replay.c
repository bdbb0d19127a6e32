#include "agent/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "agent/event.h"
#include "agent/profile.h"
#include "agent/rights.h"
#include "base/log.h"

/* The log holds the answers: questions go nowhere. */
static int no_open(void *arg UNUSED, const struct reader_open *r UNUSED)
{
	return 0;
}

static int no_request(void *arg UNUSED, const struct msg_request *r UNUSED, int fd UNUSED)
{
	return 0;
}

static int no_kernel(void *arg UNUSED, const uint64_t *addresses UNUSED, uint32_t n UNUSED)
{
	return 0;
}

static int no_rescan(void *arg UNUSED)
{
	return 0;
}

static int feed(void *arg, const struct event *e)
{
	return pipeline_event(arg, e);
}

static int replay(const char *log, int log_fd, struct profile *out)
{
	static const struct pipeline_ops ops = { .open = no_open, .rows = no_request, .names = no_request,
						 .kernel = no_kernel, .rescan = no_rescan,
						 .batch = profile_take_batch };
	struct pipeline_conf conf = { .ops = &ops, .arg = out, .aggregate_max_bytes = 256u << 20 };
	CLEANUP(pipeline_freep) struct pipeline *p = NULL;
	int err;

	err = pipeline_new(&p, &conf);
	if (!err)
		err = event_log_read(log_fd, feed, p);
	if (err == EVENT_LOG_TRUNCATED) {
		log_warning("the event log ends in the middle of an event: the recording was cut off file=%s",
			    LOG_STR(log));
		err = 0;
	}
	if (err == -EBADMSG) {
		log_error("the event log is damaged or of another version file=%s", LOG_STR(log));
		return 1;
	}
	if (err) {
		log_error("cannot replay file=%s error='%s'", LOG_STR(log), strerror(-err));
		return 1;
	}
	if (!out->have_batch) {
		log_error("the event log ends before its window: the recording was cut off file=%s", LOG_STR(log));
		return 1;
	}
	return profile_finish(out, pipeline_stats(p), (struct summary_run){ 0 });
}

int replay_run(const char *log, const char *output)
{
	CLEANUP(engine_programs_close) struct engine_programs programs = ENGINE_PROGRAMS_INIT;
	CLEANUP(loop_freep) struct loop *loop = NULL;
	CLEANUP(profile_fini) struct profile out = PROFILE_INIT; /* before the loop it is in */
	CLEANUP_FREE char *why = NULL;
	CLEANUP_FD int fd = open(log, O_RDONLY | O_CLOEXEC);
	int err;

	if (fd < 0) {
		log_error("cannot read the event log file=%s error='%s'", LOG_STR(log), strerror(errno));
		return 1;
	}
	err = engine_programs_open(&programs, &why);
	if (err) {
		log_error("%s", why ? why : strerror(-err));
		return 1;
	}
	if (profile_open(&out, output) || loop_new(&loop) || profile_start(&out, loop, &programs))
		return 1;
	return replay(log, fd, &out);
}
