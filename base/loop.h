/*
 * loop - one epoll loop per process, whose order is the order of loop_add().
 *
 * Each turn waits once, then calls the callbacks of the ready descriptors in the order in which
 * they were added, then the timers that are due. A callback returns 0 to go on, a negative code to
 * end the loop with it, or LOOP_STOP to end it with 0. Callbacks may add and delete, themselves
 * included. A source is deleted before its descriptor is closed.
 *
 * May touch: epoll, signalfd. Never: the descriptors it was given, other than to wait.
 */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include "base/def.h"

struct loop;
struct loop_source; /* borrowed by the caller, owned by the loop */

enum { LOOP_STOP = 1 };
enum { LOOP_IN = 1, LOOP_OUT = 2 };

typedef int loop_fd_fn(void *arg, unsigned int events);
typedef int loop_timer_fn(void *arg);
typedef int loop_signal_fn(void *arg, int signo);

MUST_USE int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l);
DEFINE_CLEANUP(struct loop *, loop_free);

/* `ret` may be NULL where the source is never changed. */
MUST_USE int loop_add(struct loop *l, struct loop_source **ret, int fd, unsigned int events,
		      loop_fd_fn *fn, void *arg);
MUST_USE int loop_modify(struct loop_source *s, unsigned int events); /* 0 = not watched now */
/* First call after `interval_ns`, then every `interval_ns`; 0 = disarmed until loop_timer_at(). */
MUST_USE int loop_add_timer(struct loop *l, struct loop_source **ret, uint64_t interval_ns,
			    loop_timer_fn *fn, void *arg);
/* Once, at this CLOCK_MONOTONIC time; 0 disarms. */
MUST_USE int loop_timer_at(struct loop_source *s, uint64_t when_ns);
/* Blocks `signo` in the process and hands it to fn. */
MUST_USE int loop_add_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg);
void loop_del(struct loop_source *s); /* NULL is fine */

MUST_USE int loop_run(struct loop *l);
/* One turn: waits at most timeout_ns (UINT64_MAX = for ever). LOOP_STOP, 0, or an error. */
MUST_USE int loop_once(struct loop *l, uint64_t timeout_ns);

#endif
