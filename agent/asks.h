/*
 * asks - which unwind rows are wanted, which are asked for, and which samples wait for them.
 *
 * One request per file is under way at a time; what is wanted meanwhile goes into the next. Samples
 * wait in order of arrival, at most `max_bytes` of them; the oldest gives way.
 *
 * May touch: references to files, maps, subjects. Never: ask by itself.
 */
#ifndef AGENT_ASKS_H
#define AGENT_ASKS_H

#include "agent/procs.h"
#include "agent/queue.h"
#include "agent/unwind.h"

/* A sample that waits, with the maps of its time. */
struct parked {
	struct parked *next;
	struct sample *sample;
	struct maps *maps;
	struct subject *subject;
	struct file *file;	/* whose rows it waits for */
	uint64_t since_ns;
};

void parked_free(struct parked *p);

struct asks;

MUST_USE int asks_new(struct asks **ret, size_t max_bytes);
struct asks *asks_free(struct asks *a);
DEFINE_CLEANUP(struct asks *, asks_free);

/* Notes the wish; known or asked ones are noted once. */
MUST_USE int asks_want(struct asks *a, const struct unwind_want *want);
/* Parks; takes p. */
void asks_park(struct asks *a, struct parked *p);
/* The oldest parked sample when there are more bytes than the limit, or it has waited since before
 * `before_ns`; NULL otherwise. The caller's. */
struct parked *asks_overdue(struct asks *a, uint64_t before_ns);
/* All samples that wait for this file, as a list in order; the caller's. */
struct parked *asks_take(struct asks *a, const struct file *file);

/* The next request that can go out: fills *ret and its file (borrowed); false when there is none. */
bool asks_next(struct asks *a, struct msg_request *ret, struct file **ret_file);
/* The request of this file is answered. */
void asks_answered(struct asks *a, const struct file *file);
/* Nothing is wanted of this file any more (it turned out to be another one). */
void asks_forget(struct asks *a, const struct file *file);

uint64_t asks_oldest_ns(const struct asks *a); /* time of the oldest parked sample; UINT64_MAX: none */
size_t asks_nparked(const struct asks *a);
size_t asks_bytes(const struct asks *a);

#endif
