#include "agent/status_command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/engine.h"
#include "agent/settings.h"
#include "base/log.h"

/* Who may ask the daemon need not be one who may read its secrets. */
static int find_socket(const struct status_options *o, char *ret, size_t size)
{
	CLEANUP(config_freep) struct config *config = NULL;
	CLEANUP_FREE char *why = NULL;
	const char *directory = "/run/flamed";
	int err = settings_load(&config, o->config, &why);

	if (err && o->config) {
		log_error("%s", why ? why : strerror(-err));
		return err;
	}
	if (!err)
		directory = config->runtime_directory;
	snprintf(ret, size, "%s/flamed.sock", directory);
	return 0;
}

int status_command_run(const struct status_options *o)
{
	CLEANUP(engine_programs_close) struct engine_programs programs = ENGINE_PROGRAMS_INIT;
	char path[PATH_MAX + 16], name[] = "flamed-exporter", command[] = "status", json[] = "--json";
	char *argv[] = { name, command, path, o->is_json ? json : NULL, NULL };
	CLEANUP_FREE char *why = NULL;
	int err = engine_programs_open(&programs, &why);

	if (err) {
		log_error("%s", why ? why : strerror(-err));
		return EXIT_FAILURE;
	}
	if (o->socket)
		snprintf(path, sizeof(path), "%s", o->socket);
	else if (find_socket(o, path, sizeof(path)))
		return EXIT_FAILURE;
	execveat(programs.exporter, "", argv, environ, AT_EMPTY_PATH);
	log_error("cannot run flamed-exporter error='%s'", strerror(errno));
	return EXIT_FAILURE;
}
