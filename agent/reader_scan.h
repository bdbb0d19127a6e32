/*
 * reader_scan - what /proc says of every process: names, parent, executable mappings.
 *
 * Part of the reader process. Processes that vanish meanwhile are left out.
 *
 * May touch: /proc. Never: the files that it names.
 */
#ifndef AGENT_READER_SCAN_H
#define AGENT_READER_SCAN_H

#include "agent/reader.h"

enum { READER_SCAN_MAPS_BYTES = 16 * 1024 * 1024 };	/* of one process */

typedef int reader_scan_fn(void *arg, const struct event_process *p);

/* Calls fn for each process, in ascending order of pids; borrowed. Stops at fn's error. */
MUST_USE int reader_scan_run(const struct reader_scan *s, reader_scan_fn *fn, void *arg);

#endif
