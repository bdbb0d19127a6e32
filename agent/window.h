/*
 * window - a closed window on its way to a batch: its addresses are named, then its tables built.
 *
 * window_ask() asks for every name at once; each answer turns frames into locations; when the last
 * one is there, window_build() makes the batch. No run-time address enters it. A tap (EVENT_TAP) goes
 * the same way.
 *
 * May touch: the heap. Never: files.
 */
#ifndef AGENT_WINDOW_H
#define AGENT_WINDOW_H

#include "agent/aggregate.h"
#include "agent/event.h"
#include "agent/pipeline.h"

struct window;

struct window_head {
	uint64_t id;	/* not 0, and no other window's or tap's */
	uint64_t tap;	/* 0: a window */
	uint64_t wall_start_ns, duration_ns, period_ns;
};

/* Takes the aggregate. */
MUST_USE int window_new(struct window **ret, struct aggregate **stacks, const struct window_head *head);
struct window *window_free(struct window *w);
DEFINE_CLEANUP(struct window *, window_free);

/* Request ids count on from *next_request. */
MUST_USE int window_ask(struct window *w, const struct pipeline_ops *ops, void *arg, uint64_t *next_request);
/* 1: the answer was this window's; 0: not; or an error. */
MUST_USE int window_names(struct window *w, const struct msg_request *r, const struct msg_names *n);
MUST_USE int window_kernel(struct window *w, const struct event_kernel *k);
bool window_named(const struct window *w);
/* Whether all its subjects have labels. Costs O(stacks) over the window's life. */
bool window_labelled(struct window *w);
/* What is not named yet is module+offset. *ret_n: how many addresses. */
MUST_USE int window_give_up_names(struct window *w, uint32_t *ret_n);
/*
 * The batch, with the labels that are there now; valid while the window is. Samples of subjects that
 * are not to be sampled, as is known by now, are left out.
 */
MUST_USE int window_build(struct window *w, const struct export_batch **ret);
uint64_t window_nexcluded(const struct window *w); /* samples that were left out */
uint32_t window_nunlabelled(const struct window *w); /* subjects that were built without labels */
size_t window_bytes(const struct window *w);

#endif
