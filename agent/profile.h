/*
 * profile - where a command's profile goes: the output file, the exporter that writes it, and the
 * summary. What `record` and `replay` share.
 *
 * The file is opened at once, with the rights of whoever called, but not emptied before there is a
 * profile to put into it.
 *
 * May touch: the output, the exporter. Never: what is sampled.
 */
#ifndef AGENT_PROFILE_H
#define AGENT_PROFILE_H

#include "agent/engine.h"
#include "agent/expclient.h"
#include "agent/summary.h"

struct profile {
	const char *path;
	int fd;
	struct loop *loop;
	struct expclient *exporter;
	bool have_batch, have_done;
	struct export_done done;
	char *hottest;		/* text for the end of the summary */
	size_t hottest_bytes;
};
#define PROFILE_INIT { .fd = -1 }

MUST_USE int profile_open(struct profile *p, const char *path); /* says its errors */
MUST_USE int profile_start(struct profile *p, struct loop *loop, const struct engine_programs *programs);
/* An engine_batch_fn: hands the batch to the exporter. */
int profile_take_batch(void *arg, const struct export_batch *b);
/* Waits for the exporter, then prints the summary on stderr. 0, or 1 after an error that was said. */
MUST_USE int profile_finish(struct profile *p, const struct pipeline_stats *stats,
			    struct summary_run run);
void profile_fini(struct profile *p);

#endif
