/*
 * readerclient - the agent's side of the reader: asks, keeps deadlines, restarts.
 *
 * Each request has a deadline. When the reader does not answer in time it is killed (or left behind
 * when it cannot be: it hangs in the kernel on somebody's file system) and started anew; the request
 * that was being served is answered as failed with -ETIMEDOUT, the others are asked again. A scan
 * goes on behind the process that it hung on, of which then only the name is told.
 *
 * May touch: the reader process. Never: what the reader reads.
 */
#ifndef AGENT_READERCLIENT_H
#define AGENT_READERCLIENT_H

#include "agent/reader.h"
#include "base/ipc.h"
#include "base/loop.h"

struct readerclient;

struct readerclient_conf {
	struct ipc_program program;
	uint64_t deadline_ns;	/* of one request; 0: 2 s */
};

/* Called with EVENT_PROCESS and EVENT_OPENED; time_ns is when the answer arrived. */
MUST_USE int readerclient_new(struct readerclient **ret, struct loop *loop,
			      const struct readerclient_conf *conf, event_fn *fn, void *arg);
struct readerclient *readerclient_free(struct readerclient *c); /* kills the reader */
DEFINE_CLEANUP(struct readerclient *, readerclient_free);

MUST_USE int readerclient_scan(struct readerclient *c); /* start-up: all processes */
bool readerclient_scanning(const struct readerclient *c);
/* -ENOBUFS: thousands wait already; ask again later. */
MUST_USE int readerclient_open(struct readerclient *c, const struct reader_open *r);
size_t readerclient_pending(const struct readerclient *c);
uint64_t readerclient_restarts(const struct readerclient *c);
uint64_t readerclient_timeouts(const struct readerclient *c);
pid_t readerclient_pid(const struct readerclient *c);

#endif
