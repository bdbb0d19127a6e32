/*
 * channel - what the agent says to the exporter, each message brought to the module that it is for,
 * and what they say in return.
 *
 * With EXPORT_OUTPUT alone (`record`) each batch becomes one profile in that descriptor. With
 * EXPORT_CONFIG there are sinks (exporter/delivery.h) and the web server (exporter/web.h).
 *
 * The channel blocks on our side: the agent always reads, so that nothing is lost or overtaken. An
 * exporter that cannot tell its agent something ends, and what it had is handed to its successor.
 *
 * May touch: IPC_FD. Never: open anything.
 */
#ifndef EXPORTER_CHANNEL_H
#define EXPORTER_CHANNEL_H

#include "base/loop.h"

struct channel;

MUST_USE int channel_new(struct channel **ret, struct loop *loop);
struct channel *channel_free(struct channel *c);
DEFINE_CLEANUP(struct channel *, channel_free);

/* Waits for one message and does what it says. LOOP_STOP when the agent has closed the channel. */
MUST_USE int channel_receive(struct channel *c);

bool channel_is_started(const struct channel *c); /* EXPORT_START has come: now the sandbox */
bool channel_has_network(const struct channel *c);
int channel_output_dir(const struct channel *c);	   /* -1 none; borrowed */
void channel_set_landlock(struct channel *c, int version); /* for the status */
/* There is an endpoint, and a new exporter could do what this one cannot without losing anything. */
bool channel_may_restart(const struct channel *c);

#endif
