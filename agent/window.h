/*
 * window - a closed window on its way to a batch: its addresses are named, then its tables built.
 *
 * window_ask() asks for every name at once; each answer turns frames into locations; when the last
 * one is there, window_build() makes the batch. No run-time address enters it.
 *
 * May touch: the heap. Never: files.
 */
#ifndef AGENT_WINDOW_H
#define AGENT_WINDOW_H

#include "agent/aggregate.h"
#include "agent/event.h"
#include "agent/pipeline.h"

struct window;

/* Takes the aggregate. `id` is not 0, and no other window's. */
MUST_USE int window_new(struct window **ret, struct aggregate **stacks, const struct event_window *when,
			uint64_t period_ns, uint64_t id);
struct window *window_free(struct window *w);
DEFINE_CLEANUP(struct window *, window_free);

/* Request ids count on from *next_request. */
MUST_USE int window_ask(struct window *w, const struct pipeline_ops *ops, void *arg, uint64_t *next_request);
/* 1: the answer was this window's; 0: not; or an error. */
MUST_USE int window_names(struct window *w, const struct msg_request *r, const struct msg_names *n);
MUST_USE int window_kernel(struct window *w, const struct event_kernel *k);
bool window_ready(const struct window *w);
/* Valid while the window is. */
MUST_USE int window_build(struct window *w, const struct export_batch **ret);

#endif
