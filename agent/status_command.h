/*
 * status_command - `flamed status`: becomes flamed-exporter, which asks the daemon's control socket.
 *
 * The agent links no HTTP. May touch: the exporter's program.
 */
#ifndef AGENT_STATUS_COMMAND_H
#define AGENT_STATUS_COMMAND_H

#include "base/def.h"

struct status_options {
	const char *socket;	/* NULL: that of the configuration */
	const char *config;	/* NULL: the default one */
	bool is_json;
};

/* An exit status; only when it could not. */
MUST_USE int status_command_run(const struct status_options *o);

#endif
