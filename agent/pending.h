/*
 * pending - subjects that are to be announced, or wait for the answer.
 *
 * At most PENDING_MAX, and PENDING_BYTES_MAX with what they keep alive. One subject may stand in it several times: it was announced again before its
 * first answer. Answers come in the order of the announcements.
 *
 * May touch: references to subjects. Never: announce by itself.
 */
#ifndef AGENT_PENDING_H
#define AGENT_PENDING_H

#include "agent/procs.h"
#include "bpf/abi.h"

enum { PENDING_MAX = 65536, PENDING_BYTES_MAX = 16 * 1024 * 1024 };

struct announcement {
	struct announcement *bucket_next;	/* newest first */
	struct announcement *queue_next;	/* of those that are not made yet, oldest first */
	struct subject *subject;		/* a reference */
	uint32_t number;			/* of the relabeling */
	bool made;
	size_t bytes;				/* with its subject, which may outlive its process for it */
	char comm[ABI_COMM_LEN + 1];
	uint64_t since_ns;
};

void announcement_free(struct announcement *a);
DEFINE_CLEANUP(struct announcement *, announcement_free);

struct pending;

MUST_USE int pending_new(struct pending **ret);
struct pending *pending_free(struct pending *p);
DEFINE_CLEANUP(struct pending *, pending_free);

/* comm has ABI_COMM_LEN bytes. -ENOSPC: the table is full; -ENOMEM. */
MUST_USE int pending_add(struct pending *p, struct subject *s, uint32_t number, const char *comm,
			 uint64_t now_ns);
/*
 * Calls fn for each announcement that is not made yet, oldest first. fn returns 0 when it is made,
 * PENDING_LATER when it is not to be made yet, or an error, which ends it and is returned.
 */
enum { PENDING_LATER = 1 };
MUST_USE int pending_make(struct pending *p, int (*fn)(void *arg, const struct announcement *a), void *arg);
/* The oldest announcement of this subject, or NULL; the caller's. */
struct announcement *pending_take(struct pending *p, uint64_t subject_id);
/* Gives up what has waited since before before_ns; `announced` of those subjects is 0 again. How many. */
uint64_t pending_give_up(struct pending *p, uint64_t before_ns);
size_t pending_count(const struct pending *p);
size_t pending_bytes(const struct pending *p);

#endif
