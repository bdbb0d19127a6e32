/*
 * delivery - batches in progress: split into profiles, given to each sink, told when they are over.
 *
 * For each batch: `taken` once it is split, a fate for each (part, sink) that was not settled before,
 * `done` when all have their final ones. Sinks are those of config_sink_names().
 *
 * May touch: its sinks (exporter/push.h, exporter/directory.h), what it was given to tell with.
 */
#ifndef EXPORTER_DELIVERY_H
#define EXPORTER_DELIVERY_H

#include "base/loop.h"
#include "config/config.h"
#include "exporter/msg.h"
#include "exporter/sink.h"

struct http;
struct delivery;

/* Told in this order; they cannot fail: an exporter without its agent ends. */
struct delivery_ops {
	void (*taken)(void *arg, const struct export_taken *t);
	void (*fate)(void *arg, const struct export_fate *f);
	void (*done)(void *arg, const struct export_done *d);
};

MUST_USE int delivery_new(struct delivery **ret, struct loop *loop, struct http *http,
			  const struct delivery_ops *ops, void *arg);
struct delivery *delivery_free(struct delivery *d);
DEFINE_CLEANUP(struct delivery *, delivery_free);

/*
 * The settings, at first and when they change; both borrowed until the next call. An endpoint of the
 * same name and URL keeps what waits; what waits for another is ENDPOINT_REMOVED. The output directory
 * stays what it was at first, until the settings have none: then it is over for good.
 */
MUST_USE int delivery_configure(struct delivery *d, const struct config *c,
				const struct export_config *more);
/* What a file of an endpoint holds, as push_secret(). An index that no endpoint has is -EBADMSG. */
MUST_USE int delivery_secret(struct delivery *d, const struct export_file *f, const void *data,
			     size_t len);
/* Takes dir_fd, the output directory of the settings; -1: it could not be opened. Once, after delivery_configure(). */
MUST_USE int delivery_directory(struct delivery *d, int dir_fd);

/*
 * A window. What was settled before is not given to a sink again; where that is no part of how it is split now,
 * nothing is, and `done` follows: the agent counts what is left. -ENOMEM: nothing was taken and told, the
 * caller ends (the agent tries another exporter). -EBADMSG: that one is in progress.
 */
MUST_USE int delivery_batch(struct delivery *d, const struct export_batch *b,
			    const struct export_settled *s);
void delivery_flush(struct delivery *d);

size_t delivery_nbatches(const struct delivery *d);    /* in progress */
bool delivery_is_unresolved(const struct delivery *d); /* an endpoint's name could not be resolved */
size_t delivery_sinks(const struct delivery *d, struct sink_stats *ret, size_t max);

#endif
