/*
 * push_state - what the files of push share: an endpoint and its queue. For no one else.
 *
 * push.c: settings, life, what is asked of it; push_queue.c: what waits; push_send.c: requests and what
 * becomes of them; push_tell.c: what the log and the status say.
 */
#ifndef EXPORTER_PUSH_STATE_H
#define EXPORTER_PUSH_STATE_H

#include "base/log.h"
#include "exporter/push.h"
#include "exporter/push_request.h"

enum { PUSH_KINDS_MAX = 8 }; /* different failures whose log lines are limited each on its own */

struct push_item {
	struct push_item *next, **at; /* where the one before, or the queue, points here */
	struct push *push;
	struct profile *profile; /* NULL: the start-up probe, which is not in the queue */
	struct push_request request;
	enum push_transport transport; /* of the request, */
	uint32_t generation;	       /* and the settings that it was made with */
	bool is_sending;
	bool is_told; /* that it is sent */
	bool is_in_doubt; /* an attempt may have arrived: no later one can say that none did */
	uint32_t ntries;
	uint64_t started_ns, due_ns;
};

/* A failure that was logged. */
struct push_kind {
	int kind; /* of struct push_reply; 0 free */
	struct log_limit limit;
};

struct push {
	struct loop *loop;
	struct http *http;
	char *name;
	struct push_settings *settings;
	uint64_t queue_max_bytes, spread_ns;
	uint64_t backoff_first_ns, backoff_max_ns, hold_ns, age_max_ns, push_again_ns;
	sink_fate_fn *fn;
	void *arg;

	struct loop_source *timer;
	struct push_item *first, **last; /* oldest first */
	size_t nitems, nsending;
	uint64_t nbytes;
	struct push_item probe;
	bool wants_probe;

	uint32_t generation; /* of settings and secrets */
	enum push_transport transport;
	uint64_t absent_ns;   /* when the server was first seen to have no Push; 0 not, or it has */
	uint64_t ask_push_ns; /* when it is asked again */
	bool is_missing, is_missing_told, is_failure_told;
	bool is_flushing;
	uint32_t nfailures; /* in a row */
	uint64_t failing_since_ns;
	uint64_t not_before_ns; /* for all: the endpoint's backoff */
	bool is_unresolved;
	uint64_t random;
	struct push_kind kinds[PUSH_KINDS_MAX];
	struct sink_stats stats;
};

/* Of [0, below): so that a fleet does not act in step. */
uint64_t push_random_below(struct push *p, uint64_t below);

/* ---- push_queue.c ---- */

void push_append(struct push *p, struct push_item *i); /* takes it, and a reference to its profile */
void push_stop_sending(struct push_item *i);
void push_item_free(struct push_item *i);
void push_settle(struct push_item *i, enum export_fate_kind kind); /* frees it */
void push_make_room(struct push *p); /* the oldest go, but not what is under way */
void push_drop_old(struct push *p);

/* ---- push_send.c ---- */

void push_schedule(struct push *p); /* sends what is due, and sets the timer for what is not */

/* ---- push_tell.c ---- */

void push_tell_failure(struct push *p, struct push_reply *r, bool is_probe);
void push_tell_recovery(struct push *p);
bool push_is_ready(struct push *p); /* has the credentials that it needs; says so when not */

#endif
