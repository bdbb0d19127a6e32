/*
 * daemon - `flamed`: profiles this host in windows, for ever.
 *
 * SIGTERM and SIGINT end it within 5 s, with what it has delivered; a second one ends it at once.
 * SIGHUP reloads the settings. Its last lines are those of report_log(): `profiling ended ...`.
 *
 * May touch: its modules. Never: go on after an error in silence.
 */
#ifndef AGENT_DAEMON_H
#define AGENT_DAEMON_H

#include "config/config.h"

struct daemon_options {
	struct config *config;	/* taken */
	const char *path;	/* of its file; NULL: the default one */
	const char *version;
};

/* The exit status: 0, or 1 after an error that was said. */
MUST_USE int daemon_run(const struct daemon_options *o);

#endif
