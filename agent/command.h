/*
 * command - the program that `record -- COMMAND` runs, with the rights of whoever called us.
 *
 * A small supervisor is forked before the agent leaves root; it runs the command, waits for it and
 * tells how it ended, and can end it, which the agent no longer could.
 *
 * May touch: fork, exec, signals of its own command. Never: anything of the agent's later state.
 */
#ifndef AGENT_COMMAND_H
#define AGENT_COMMAND_H

#include "base/def.h"

struct command {
	pid_t supervisor;
	pid_t pid;	/* of the command: what is sampled */
	int control;	/* we write what to do */
	int report;	/* the supervisor writes how it went; readable when there is news */
};
#define COMMAND_INIT { .supervisor = -1, .pid = -1, .control = -1, .report = -1 }

/* Forks; the command waits before its exec until command_go(). */
MUST_USE int command_prepare(struct command *c, char *const argv[]);
/* -errno of the exec when it failed. Blocks until the exec is done. */
MUST_USE int command_go(struct command *c);
/* SIGTERM (and SIGCONT, for one that is stopped) to it, or SIGKILL. */
void command_terminate(struct command *c, bool kill);
/*
 * 1: it has ended, *ret_status is the exit status to pass on (128 + N after signal N).
 * 0: it runs.
 */
int command_ended(struct command *c, int *ret_status);
void command_fini(struct command *c); /* closes; what still runs is left alone */

#endif
