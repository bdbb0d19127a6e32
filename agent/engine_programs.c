/* The files of the programs that the engine starts; beside engine.c for length alone. */
#include "agent/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int open_program(const char *dir, const char *name, int *ret)
{
	static const char *const places[] = { "", "/../libexec/flamed" };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[PATH_MAX * 2];

		snprintf(path, sizeof(path), "%s%s/%s", dir, places[i], name);
		*ret = open(path, O_PATH | O_CLOEXEC);
		if (*ret >= 0)
			return 0;
	}
	return -errno;
}

int engine_programs_open(struct engine_programs *p, char **ret_why)
{
	static const char *const names[] = { "flamed-symbolizer", "flamed-exporter" };
	int *const fds[] = { &p->symbolizer, &p->exporter };
	char dir[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	p->self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	if (n < 0 || p->self < 0) {
		int err = -errno;

		if (asprintf(ret_why, "cannot look at /proc/self/exe: %s; is /proc mounted (mount -t proc proc /proc)?",
			     strerror(-err)) < 0)
			*ret_why = NULL;
		return err;
	}
	dir[n] = 0;
	*strrchr(dir, '/') = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		int err = open_program(dir, names[i], fds[i]);

		if (!err)
			continue;
		if (asprintf(ret_why, "cannot open %s: %s; it belongs beside flamed (%s) or in ../libexec/flamed",
			     names[i], strerror(-err), dir) < 0)
			*ret_why = NULL;
		return err;
	}
	return 0;
}

void engine_programs_close(struct engine_programs *p)
{
	closep(&p->self);
	closep(&p->symbolizer);
	closep(&p->exporter);
	*p = (struct engine_programs)ENGINE_PROGRAMS_INIT;
}
