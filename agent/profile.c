#include "agent/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"

#define WRITE_WAIT_NS (120 * NSEC_PER_SEC)
enum { HOTTEST = 20 };

int profile_open(struct profile *p, const char *path)
{
	int err;

	p->path = path;
	if (strcmp(path, "-") == 0)
		p->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	else
		p->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
	if (p->fd >= 0)
		return 0;
	err = -errno;
	log_error("cannot write the profile, name another place with --output file=%s error='%s'", LOG_STR(path),
		  strerror(-err));
	return err;
}

static int on_done(void *arg, const struct export_done *done)
{
	struct profile *p = arg;

	p->done = *done;
	p->have_done = true;
	return 0;
}

static const struct expclient_ops ops = { .done = on_done };

int profile_start(struct profile *p, struct loop *loop, const struct engine_programs *programs)
{
	struct ipc_program exporter = { .name = "flamed-exporter", .exe_fd = programs->exporter };
	int err = expclient_new(&p->exporter, loop, &exporter, p->fd, &ops, p);

	p->loop = loop;
	if (err)
		log_error("cannot start flamed-exporter error='%s'", strerror(-err));
	return err;
}

int profile_take_batch(void *arg, const struct export_batch *b)
{
	struct profile *p = arg;
	FILE *text;

	free(TAKE(p->hottest));
	text = open_memstream(&p->hottest, &p->hottest_bytes);
	if (text) {
		summary_print_hottest(text, b, HOTTEST);
		fclose(text);
	}
	p->have_batch = true;
	return expclient_send(p->exporter, b);
}

static int wait_written(struct profile *p)
{
	uint64_t end_ns = clock_mono_ns() + WRITE_WAIT_NS;

	while (!p->have_done && clock_mono_ns() < end_ns) {
		int r = loop_once(p->loop, 100 * NSEC_PER_MSEC);

		if (r < 0)
			return r;
	}
	return p->have_done ? 0 : -ETIMEDOUT;
}

int profile_finish(struct profile *p, const struct pipeline_stats *stats, struct summary_run run)
{
	int err = wait_written(p);

	run.exporter = expclient_restarts(p->exporter);
	summary_print_counts(stderr, stats, &run);
	if (p->hottest)
		fputs(p->hottest, stderr);
	if (!err && p->done.result == EXPORT_WRITTEN) {
		fprintf(stderr, "\nwrote %s (%llu bytes); open it with 'go tool pprof -http=:' or speedscope.app\n",
			strcmp(p->path, "-") == 0 ? "standard output" : p->path, (unsigned long long)p->done.bytes);
		return 0;
	}
	if (!err)
		err = -(int)p->done.error;
	log_error("the profile was not written file=%s why=%s%s%s%s", LOG_STR(p->path),
		  p->have_done ? export_result_text(p->done.result) : "no_answer",
		  err ? " error='" : "", err ? strerror(-err) : "", err ? "'" : "");
	return 1;
}

void profile_fini(struct profile *p)
{
	expclient_free(p->exporter);
	closep(&p->fd);
	free(p->hottest);
	*p = (struct profile)PROFILE_INIT;
}
