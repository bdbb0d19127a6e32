/*
 * sandbox_filter - the system calls that are left. Part of the sandbox.
 *
 * May touch: seccomp(2).
 */
#ifndef EXPORTER_SANDBOX_FILTER_H
#define EXPORTER_SANDBOX_FILTER_H

#include "exporter/sandbox.h"

/* Needs no_new_privs. */
MUST_USE int sandbox_filter(const struct sandbox_conf *conf);

#endif
