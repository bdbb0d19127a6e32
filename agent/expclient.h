/*
 * expclient - hands batches to the exporter and keeps each until its fate is known.
 *
 * May touch: the exporter process. Never: the output.
 */
#ifndef AGENT_EXPCLIENT_H
#define AGENT_EXPCLIENT_H

#include "base/ipc.h"
#include "base/loop.h"
#include "exporter/msg.h"

struct expclient;

typedef int expclient_fn(void *arg, const struct export_done *done);

/* output_fd (borrowed) is where the exporter writes profiles to. */
MUST_USE int expclient_new(struct expclient **ret, struct loop *loop, const struct ipc_program *program,
			   int output_fd, expclient_fn *fn, void *arg);
struct expclient *expclient_free(struct expclient *c);
DEFINE_CLEANUP(struct expclient *, expclient_free);

MUST_USE int expclient_send(struct expclient *c, const struct export_batch *b);
uint64_t expclient_restarts(const struct expclient *c);

#endif
