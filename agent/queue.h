/*
 * queue - side-band events and samples that wait for their turn.
 *
 * Both are copied in as they arrive; queue_run() hands out all that is due in the order of time, so
 * that no sample is unwound before the exec, mapping or fork that came before it. A sample is handed
 * out when its last part is there, or when it has waited QUEUE_PART_WAIT_NS for one.
 *
 * May touch: the heap. Never: what an event means.
 */
#ifndef AGENT_QUEUE_H
#define AGENT_QUEUE_H

#include "agent/event.h"

#define QUEUE_PART_WAIT_NS 300000000ull

/* One sample in its parts; heap, its owner frees it. */
struct sample {
	uint64_t time_ns;
	uint32_t cpu;
	uint64_t seq;
	uint32_t nparts;
	struct abi_record *parts[ABI_PARTS_MAX];
	size_t bytes;
};

void sample_free(struct sample *s);
static inline void sample_freep(struct sample **s)
{
	if (*s)
		sample_free(*s);
}

struct queue;

MUST_USE int queue_new(struct queue **ret);
struct queue *queue_free(struct queue *q);
DEFINE_CLEANUP(struct queue *, queue_free);

MUST_USE int queue_add_event(struct queue *q, const struct event *e);	/* MAP, COMM, FORK, EXIT */
/* 0; 1 when the record belongs to no sample (malformed); -ENOMEM. */
MUST_USE int queue_add_record(struct queue *q, const struct abi_record *r, size_t len);

struct queue_ops {
	int (*event)(void *arg, const struct event *e);
	int (*sample)(void *arg, struct sample *s); /* takes the sample */
};
/* Hands out what has time <= until_ns (UINT64_MAX: all, complete or not). Stops at an error. */
MUST_USE int queue_run(struct queue *q, uint64_t until_ns, const struct queue_ops *ops, void *arg);
uint64_t queue_oldest_ns(const struct queue *q); /* time of the oldest sample; UINT64_MAX: none waits */
size_t queue_bytes(const struct queue *q);

#endif
