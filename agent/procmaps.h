/*
 * procmaps - the text of /proc/PID/maps.
 *
 * The kernel's text, but the paths in it are strangers': any bytes, a newline written as \012.
 * A mapping without a name is "//anon", as the side-band calls it.
 *
 * Source: proc(5); show_map_vma() in the kernel's fs/proc/task_mmu.c.
 *
 * May touch: what it is given. Never: /proc.
 */
#ifndef AGENT_PROCMAPS_H
#define AGENT_PROCMAPS_H

#include "agent/event.h"

/*
 * One line of `len` bytes without its newline. True when it is an executable mapping (or any, with
 * `any`); ret->path is then in `path`, pid and tid are 0. False for others and for nonsense.
 */
bool procmaps_line(const char *line, size_t len, bool any, struct event_map *ret,
		   char path[EVENT_PATH_MAX + 1]);

/* Lines from pieces of text; one that is longer than any of the kernel's is skipped. */
struct procmaps {
	size_t len;
	bool skip;	/* the rest of a line that is too long */
	char line[EVENT_PATH_MAX + 256];
	char path[EVENT_PATH_MAX + 1];
};

/* Calls fn for each mapping of the whole lines so far; its path is borrowed. Stops at fn's error. */
typedef int procmaps_fn(void *arg, const struct event_map *map);
MUST_USE int procmaps_feed(struct procmaps *p, const char *text, size_t len, bool any, procmaps_fn *fn,
			   void *arg);

#endif
