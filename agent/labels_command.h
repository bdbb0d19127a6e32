/*
 * labels_command - `flamed labels PID`: what a process would be filed under, and why.
 *
 * By the way that every process goes: an exporter of its own is asked, with the settings. No daemon
 * is needed.
 *
 * May touch: /proc of that process, an exporter. Never: push, listen.
 */
#ifndef AGENT_LABELS_COMMAND_H
#define AGENT_LABELS_COMMAND_H

#include "config/config.h"

/* The exit status: 0, or 1 after an error that was said. */
MUST_USE int labels_command_run(uint32_t pid, const struct config *config, const char *version);

#endif
