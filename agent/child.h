/*
 * child - one of the agent's child processes: its life, and what it was asked.
 *
 * Requests are sent in order and answered in order, so the oldest unanswered one is the one being
 * served. When the child dies, or is late with that one, it is replaced (with backoff) and asked
 * again what it had not answered; the owner decides whether the request that was being served is
 * worth another try. Nothing that was asked is lost; what cannot be sent for want of memory or
 * descriptors waits.
 *
 * May touch: the child, its channel, what /proc says of its scheduling. Never: interpret a payload.
 */
#ifndef AGENT_CHILD_H
#define AGENT_CHILD_H

#include "base/ipc.h"
#include "base/loop.h"

enum child_trouble {
	CHILD_KILLED,	/* SIGKILL, or stopped, from elsewhere: not the request's fault */
	CHILD_CRASHED,	/* any other end */
	CHILD_LATE,	/* over the deadline; it was killed, or left behind */
};

enum { CHILD_PATIENCE = 6 };

enum child_answer { CHILD_ANSWERED, CHILD_MORE };

struct child_ops {
	/*
	 * A message for the oldest request, whose tag this is. CHILD_ANSWERED: the request is over,
	 * the tag is the owner's again; CHILD_MORE: further messages follow; negative: the message
	 * is nonsense, which counts as a crash.
	 */
	int (*answer)(void *arg, void *tag, struct ipc_msg *msg);
	/*
	 * A message whose type is unasked_from or more: no answer. -EBADMSG: it is nonsense, which
	 * counts as a crash; another negative code ends the loop, as it does from `answer`. Optional.
	 */
	int (*unasked)(void *arg, struct ipc_msg *msg);
	/* The request being served came to grief. True: ask again; false: forget it (tag is the owner's). */
	bool (*trouble)(void *arg, void *tag, enum child_trouble why);
	/*
	 * Before a request is sent, again perhaps. True: it needs no answer any more, the tag is the
	 * owner's. Optional.
	 */
	bool (*obsolete)(void *arg, void *tag);
	/* The child is gone, whatever it was doing; before `trouble`. Not from child_free(). Optional. */
	void (*ended)(void *arg, enum child_trouble why);
	/* A new child is up, before anything else is sent: child_tell() may be called. Optional. */
	void (*started)(void *arg);
	void (*free_tag)(void *tag);	/* of requests that are left when the child is freed */
};

struct child_conf {
	struct ipc_program program;
	const struct child_ops *ops;
	void *arg;
	uint64_t deadline_ns;	/* of one request, from when it became the oldest */
	/*
	 * With a CPU time here, a child that has used less of it for the request by then because it waits for a CPU
	 * is waited for longer: CHILD_PATIENCE deadlines at most. One that is stopped, sleeps or is blocked is late
	 * at the first, as is every one with 0 here.
	 */
	uint64_t cpu_ns;
	uint32_t window;	/* requests under way at once */
	uint32_t unasked_from;	/* message types from here on are unasked; 0: none are */
};

struct child;

/* Starts the child. */
MUST_USE int child_new(struct child **ret, struct loop *loop, const struct child_conf *conf);
struct child *child_free(struct child *c); /* kills it */
DEFINE_CLEANUP(struct child *, child_free);

/*
 * Copies data and duplicates fd (-1: none). On success the tag is the child's until it is answered;
 * after an error it is the caller's, and nothing was asked. -EMSGSIZE: over IPC_PAYLOAD_MAX.
 */
MUST_USE int child_ask(struct child *c, uint32_t type, const void *data, size_t len, int fd, void *tag);
/*
 * Sent at once, expects no answer: from ops->started before the queue, later between requests. fd is
 * borrowed. -EAGAIN: the socket is full, the child is busy, or memory or descriptors are short; -EPIPE:
 * there is none now.
 */
MUST_USE int child_tell(struct child *c, uint32_t type, const void *data, size_t len, int fd);

/* Ends the present child; it is replaced, and asked again, as after a kill from elsewhere. */
void child_kill(struct child *c);

size_t child_pending(const struct child *c);
pid_t child_pid(const struct child *c);		/* -1 while there is none */
uint64_t child_restarts(const struct child *c);
uint64_t child_late(const struct child *c);	/* of these because of the deadline */

#endif
