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

/* Called with EVENT_PROCESS, EVENT_OPENED and EVENT_MEMORY; time_ns is when the answer arrived. */
MUST_USE int readerclient_new(struct readerclient **ret, struct loop *loop,
			      const struct readerclient_conf *conf, event_fn *fn, void *arg);
struct readerclient *readerclient_free(struct readerclient *c); /* kills the reader */
DEFINE_CLEANUP(struct readerclient *, readerclient_free);

MUST_USE int readerclient_scan(struct readerclient *c); /* start-up: all processes */
bool readerclient_scanning(const struct readerclient *c);
/* -ENOBUFS: thousands wait already; ask again later. */
MUST_USE int readerclient_open(struct readerclient *c, const struct reader_open *r);
/* -ENOBUFS as above. */
MUST_USE int readerclient_peek(struct readerclient *c, const struct reader_peek *p);
/*
 * text is NUL-terminated and borrowed, "" when there is nothing to read; is_of_cgroup as in struct
 * reader_text.
 */
typedef int readerclient_text_fn(void *arg, const char *text, bool is_of_cgroup);
/* fn is called once, from the loop; not when this fails (-ENOBUFS as above) or the client is freed. */
MUST_USE int readerclient_cgroups(struct readerclient *c, const struct reader_cgroups *r,
				  readerclient_text_fn *fn, void *arg);
/*
 * o->error is 0, and the descriptor (of a copy, for the settings) is the callee's; or an errno, and fd -1: ETIMEDOUT when the
 * reader hung on it, EIO when readers ended on it.
 */
typedef int readerclient_file_fn(void *arg, const struct reader_opened *o, int fd);
/* fn as above. The path begins with '/'. Bounded by the settings, so there is always room. */
MUST_USE int readerclient_config(struct readerclient *c, const char *path, readerclient_file_fn *fn, void *arg);
/* A file by path in the root of a process, or of the host (pid 0). fn as above; -ENOBUFS as above. */
MUST_USE int readerclient_debug(struct readerclient *c, uint32_t pid, const char *path, readerclient_file_fn *fn,
				void *arg);
size_t readerclient_pending(const struct readerclient *c);
uint64_t readerclient_restarts(const struct readerclient *c);
uint64_t readerclient_timeouts(const struct readerclient *c);
pid_t readerclient_pid(const struct readerclient *c);

#endif
