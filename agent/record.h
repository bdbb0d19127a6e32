/*
 * record - `flamed record`: one profile of the host, of processes, or of a command.
 *
 * May touch: the output and log files it was told to write. Never: go on after an error in silence.
 */
#ifndef AGENT_RECORD_H
#define AGENT_RECORD_H

#include "config/config.h"

enum { RECORD_PIDS_MAX = 256 };

struct record_options {
	uint64_t duration_ns;		/* 0: until Ctrl-C, or until what is sampled has ended */
	const char *output;		/* "-": standard output */
	const char *events;		/* NULL: no log */
	uint32_t npids;
	uint32_t pids[RECORD_PIDS_MAX];
	char **command;			/* NULL-terminated, or NULL */
};

/* The exit status: 0, 1 after an error that was said, or the command's. */
MUST_USE int record_run(const struct record_options *o, const struct config *config);
/* `flamed replay FILE -o OUT`: the profile that the log's recording made. */
MUST_USE int replay_run(const char *log, const char *output);

#endif
