/*
 * expclient - hands batches to the exporter and keeps each until its fate is known.
 *
 * A batch is kept (at most EXPCLIENT_HELD_MAX, EXPCLIENT_HELD_BYTES in all; the oldest are let go)
 * until the exporter says DONE, and sent again to its successor when it dies, with the ids of what
 * is settled. What it was sending when it died is IN_DOUBT: it may have arrived, and is not sent again.
 * What it still had of a batch that was let go is EXPORTER_LOST: an exporter that ends during an outage takes
 * with it all that it had queued beyond what is kept here. A batch that three exporters died of
 * is POISONED. So for each sink: samples handed over = sum of final fates + pending.
 *
 * May touch: the exporter process. Never: the output.
 */
#ifndef AGENT_EXPCLIENT_H
#define AGENT_EXPCLIENT_H

#include "agent/ledger.h"
#include "base/ipc.h"
#include "base/loop.h"

enum {
	EXPCLIENT_HELD_MAX = 4,
	EXPCLIENT_HELD_BYTES = 8 * 1024 * 1024,
};

struct expclient;

struct expclient_ops {
	/* A batch is over: written, refused, or all of it has its fates. */
	int (*done)(void *arg, const struct export_done *done);
	int (*labels)(void *arg, const struct export_labels *l);	/* optional, as the rest */
	int (*tap)(void *arg, const struct export_tap *tap);
	/* A new exporter is up: expclient_tell() what it works with, then EXPORT_START follows. */
	int (*started)(void *arg);
};

/* output_fd (borrowed) is where `record`'s profile goes; -1: the exporter has sinks. */
MUST_USE int expclient_new(struct expclient **ret, struct loop *loop, const struct ipc_program *program,
			   int output_fd, const struct expclient_ops *ops, void *arg);
struct expclient *expclient_free(struct expclient *c);
DEFINE_CLEANUP(struct expclient *, expclient_free);

/* The sinks that batches from now on have to account to. Names are copied. */
MUST_USE int expclient_sinks(struct expclient *c, const char *const *names, size_t n);
/* After an error the batch has its fates already (EXPORTER_LOST), and the client can go on. */
MUST_USE int expclient_send(struct expclient *c, const struct export_batch *b);
/* -ENOBUFS: thousands wait already; ask again later. */
MUST_USE int expclient_subject(struct expclient *c, const struct export_facts *f);
/* CONFIG, FILE, STATUS, FLUSH. -EAGAIN, -EPIPE as child_tell(). */
MUST_USE int expclient_tell(struct expclient *c, enum export_type type, const void *data, size_t len, int fd);

size_t expclient_nsinks(const struct expclient *c);	/* those of before a reload included */
const struct ledger_sink *expclient_sink(const struct expclient *c, size_t i);
size_t expclient_nheld(const struct expclient *c);	/* batches that are not done, let go or not */
/* The agent ends: what has no fate yet is SHUTDOWN, or IN_DOUBT. Returns how many samples, of all sinks. */
uint64_t expclient_abandon(struct expclient *c);
/* So many samples are in no batch: this is their fate at each sink. */
void expclient_account(struct expclient *c, enum export_fate_kind kind, uint64_t nsamples);
uint64_t expclient_restarts(const struct expclient *c);
pid_t expclient_pid(const struct expclient *c);	/* -1 while there is none */

#endif
