/*
 * symclient - asks the symbolizer.
 *
 * A file whose parsing ended the symbolizer twice is quarantined: it is answered for with
 * MSG_FILE_QUARANTINED from then on. Being killed from outside is not the file's fault, unless it
 * happens again and again: a file can make the kernel's OOM killer do it.
 *
 * May touch: the symbolizer process. Never: the files that are asked about.
 */
#ifndef AGENT_SYMCLIENT_H
#define AGENT_SYMCLIENT_H

#include "agent/event.h"
#include "base/ipc.h"
#include "base/loop.h"

struct symclient;

/* Answers arrive as EVENT_ROWS and EVENT_NAMES. */
MUST_USE int symclient_new(struct symclient **ret, struct loop *loop, const struct ipc_program *program,
			   event_fn *fn, void *arg);
struct symclient *symclient_free(struct symclient *c);
DEFINE_CLEANUP(struct symclient *, symclient_free);

/* type: MSG_ROWS or MSG_NAMES. fd is borrowed. */
MUST_USE int symclient_ask(struct symclient *c, enum msg_type type, const struct msg_request *r, int fd);

/* Answers of the two that follow; each returns 0 or a negative code, which is passed up. */
typedef int symclient_link_fn(void *arg, const struct msg_link *l);
typedef int symclient_debugged_fn(void *arg, const struct msg_debugged *d);
void symclient_on_debug(struct symclient *c, symclient_link_fn *link, symclient_debugged_fn *debugged, void *arg);
/* What the file says of its debug file; fd is borrowed. */
MUST_USE int symclient_link(struct symclient *c, uint64_t file_id, int fd);
/* Shows it the debug file for the requests that follow; fd is borrowed. */
MUST_USE int symclient_debug(struct symclient *c, const struct msg_debug *d, int fd);

size_t symclient_pending(const struct symclient *c);
uint64_t symclient_restarts(const struct symclient *c);
uint64_t symclient_quarantined(const struct symclient *c);
pid_t symclient_pid(const struct symclient *c);	/* -1 while there is none */

#endif
