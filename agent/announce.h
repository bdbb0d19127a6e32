/*
 * announce - gathers what is to be known of a new subject, and tells it.
 *
 * The text of the control groups comes from the reader, or from a small cache where every process of
 * a control group has the same: a busy host starts hundreds of processes a second in a few of them.
 *
 * May touch: the reader, through its client. Never: labels.
 */
#ifndef AGENT_ANNOUNCE_H
#define AGENT_ANNOUNCE_H

#include "agent/pipeline.h"
#include "agent/readerclient.h"

enum {
	ANNOUNCE_PENDING_MAX = 16384,
	ANNOUNCE_PENDING_BYTES = 4 * 1024 * 1024,
	ANNOUNCE_BYTES_MAX = 8 * 1024 * 1024,	/* of them with the texts that could not be told yet */
	ANNOUNCE_CACHE_MAX = 1024,
	ANNOUNCE_CACHE_BYTES = 1024 * 1024,
};

/* -ENOBUFS: no room now; it is told again in a later turn. */
typedef int announce_fn(void *arg, const struct export_facts *f);
/* readerclient_cgroups(), but in tests. */
typedef int announce_ask_fn(struct readerclient *c, const struct reader_cgroups *r,
			    readerclient_text_fn *fn, void *arg);

struct announce;

MUST_USE int announce_new(struct announce **ret, announce_ask_fn *ask, struct readerclient *reader, announce_fn *fn,
			  void *arg);
/* Not before the reader's client, whose answers come here. */
struct announce *announce_free(struct announce *a);
DEFINE_CLEANUP(struct announce *, announce_free);

/*
 * -ENOBUFS: too many wait; announce it again later. fn may be called inside. What waits and finds no room or
 * memory for its text is forgotten: whom no answer reaches announces again.
 */
MUST_USE int announce_subject(struct announce *a, const struct pipeline_subject *s, uint64_t now_ns);
/* Tells again what fn had no room for. */
MUST_USE int announce_turn(struct announce *a);

size_t announce_pending(const struct announce *a);
size_t announce_bytes(const struct announce *a);

#endif
