/*
 * recent - the last windows as the bytes they came as, compressed, within a byte limit.
 *
 * What is served is made of them when somebody asks: nothing else is kept of a window.
 *
 * May touch: the heap. Never: what a window means.
 */
#ifndef EXPORTER_RECENT_H
#define EXPORTER_RECENT_H

#include "exporter/msg.h"

struct recent;

struct recent_window {
	uint64_t wall_start_ns, duration_ns, period_ns;
	uint64_t nsamples;	/* sum of counts */
	size_t len;		/* compressed */
	size_t raw_len;
};

struct recent_totals {
	size_t nwindows, bytes;	   /* compressed */
	uint64_t from_ns, to_ns;   /* wall clock: the start of the oldest, the end of the newest */
	uint64_t nevicted, nrefused; /* for the limit: the oldest; a window that alone is over it */
};

MUST_USE int recent_new(struct recent **ret);
struct recent *recent_free(struct recent *r);
DEFINE_CLEANUP(struct recent *, recent_free);

/* At most these windows and bytes; what is over goes at once, the oldest first. */
void recent_limit(struct recent *r, size_t max_windows, size_t max_bytes);
/* A window and its bytes, which are copied. The same id again replaces it. -ENOMEM. */
MUST_USE int recent_add(struct recent *r, const struct export_batch *b, const void *wire, size_t len);

/* 0, or what fn returned other than 0. */
typedef int recent_fn(void *arg, const struct recent_window *w, const struct export_batch *b);
/* Decodes, one after the other and oldest first, the windows whose middle is in [from_ns, to_ns). */
MUST_USE int recent_each(const struct recent *r, uint64_t from_ns, uint64_t to_ns, recent_fn *fn, void *arg);
void recent_totals(const struct recent *r, struct recent_totals *ret);

#endif
