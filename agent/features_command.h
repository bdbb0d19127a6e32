/*
 * features_command - `flamed features`: what this kernel has of what flamed uses, and whether flamed
 * can run here.
 *
 * With the daemon's rights, and up to what the daemon does before its first sample: the program is
 * loaded, the perf events are opened, and all is closed again.
 *
 * May touch: its modules, standard output.
 */
#ifndef AGENT_FEATURES_COMMAND_H
#define AGENT_FEATURES_COMMAND_H

#include "base/def.h"

/* The exit status: 0, or 69 (EX_UNAVAILABLE) when the last line says why flamed cannot run here. */
MUST_USE int features_command_run(void);

#endif
