/*
 * perfring - one perf event and the ring that the kernel writes its records into.
 *
 * perfring_look() takes a snapshot of what is there; peek and next walk it. The kernel never
 * overwrites what has not been given back by perfring_next(), so a record that does not wrap is
 * borrowed in place.
 *
 * Source: struct perf_event_mmap_page in linux/perf_event.h.
 *
 * May touch: perf_event_open(2), its mapping. Never: what a record means.
 */
#ifndef AGENT_PERFRING_H
#define AGENT_PERFRING_H

#include "base/def.h"

#include <linux/perf_event.h>

enum { PERFRING_RECORD_MAX = 65536 };	/* perf_event_header.size is a u16 */

struct perfring {
	int fd;			/* -1: closed */
	struct perf_event_mmap_page *page;
	uint8_t *data;
	uint64_t size;		/* of data, a power of two */
	uint64_t head, tail;	/* snapshot; what is given back */
};
#define PERFRING_INIT { .fd = -1 }

/* `bytes`: a power of two of pages. Errors of perf_event_open(2) and mmap(2). */
MUST_USE int perfring_open(struct perfring *ret, const struct perf_event_attr *attr, pid_t pid, int cpu,
			   size_t bytes);
void perfring_close(struct perfring *r);
static inline size_t perfring_bytes(const struct perfring *r)
{
	return r->fd < 0 ? 0 : (size_t)(r->size + (uint64_t)sysconf(_SC_PAGESIZE));
}

/* Whether the kernel has written anything that is not given back. */
bool perfring_look(struct perfring *r);
/* The next record's header: 1; 0 none in the snapshot; -EBADMSG: the ring makes no sense. */
MUST_USE int perfring_peek(const struct perfring *r, struct perf_event_header *ret);
/* A u64 at `off` of the peeked record, wherever the ring wraps. */
uint64_t perfring_u64(const struct perfring *r, size_t off);
/* The peeked record of `size` bytes, in place or copied to `bounce`. */
const void *perfring_record(const struct perfring *r, size_t size, uint8_t bounce[PERFRING_RECORD_MAX]);
void perfring_next(struct perfring *r, size_t size);
/* Gives back all that is there. */
void perfring_discard(struct perfring *r);

#endif
