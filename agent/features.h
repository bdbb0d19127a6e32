/*
 * features - what the kernel offers of what flamed uses, or could use: the one table.
 *
 * Each is probed; the version that brought it is only told. A feature that is required has no
 * fallback; the others have the one that the table names.
 *
 * May touch: bpf(2), perf_event_open(2) on itself, /sys/kernel/btf, its soft RLIMIT_MEMLOCK for a
 * moment. Never: load the program.
 */
#ifndef AGENT_FEATURES_H
#define AGENT_FEATURES_H

#include <stdio.h>

#include "base/def.h"

/* What can be seen before anything is loaded: type information, and a ring that a tick may write to. */
MUST_USE int features_check(const char **ret_why);
/* By its type information (libbpf's struct btf): whether this kernel's ring buffer takes a lock that sleeps. */
struct btf;
bool features_ring_sleeps(const struct btf *btf);
/* Why the program, with maps of so many bytes, could not be loaded: one line, static. */
const char *features_why_not_loaded(int err, size_t map_bytes);
/* FEATURE HERE SINCE WITHOUT IT: a line each, two or more blanks between the columns; "?": may not be probed. */
void features_print(FILE *f);

#endif
