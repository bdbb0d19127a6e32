/*
 * push - one endpoint: a bounded queue of profiles, and their way to a Pyroscope-compatible server.
 *
 * Protocols: Push (Connect, one series per request) and /ingest (multipart, one profile per request);
 * `auto` begins with Push and goes over to /ingest when the server has twice been seen to have no Push
 * (404, 405, 415, 501, a 400 that is no Connect error, a 200 that is no acknowledgement); each hour it asks
 * again. Facts: docs/pyroscope.md.
 *
 * Sends are spread over `spread_ns` after push_add(). What may pass on another try (no connection,
 * 408, 409, 429, 5xx but 501; on /ingest a 422 that hides one of these) waits with exponential backoff
 * and full jitter, from 500 ms to 1 min, and is tried until it is too old (1 h, less a minute) or the
 * queue is full: then the oldest goes first. What cannot pass (400, 413, ...) is dropped and logged with status, the server's
 * message, and what to do. 401 and 403 hold the queue and are tried again once a minute: the settings are wrong, not
 * the profile. A redirect is not followed. The same failure is logged once a minute at most, and
 * recovery once.
 *
 * May touch: the network, through exporter/http.h. Never: files; a secret in a log line.
 */
#ifndef EXPORTER_PUSH_H
#define EXPORTER_PUSH_H

#include "base/loop.h"
#include "exporter/sink.h"

struct http; /* exporter/http.h: libcurl in our loop */
struct push;

struct push_conf {
	const char *name; /* the sink's; copied, as all that is pointed to */
	const struct config_endpoint *endpoint;
	uint64_t queue_max_bytes;
	uint64_t spread_ns;
	const char *version; /* for User-Agent: flamed/VERSION */
	/* For tests, 0: as above. */
	uint64_t backoff_first_ns, backoff_max_ns, hold_ns, age_max_ns, push_again_ns;
};

MUST_USE int push_new(struct push **ret, struct loop *loop, struct http *http,
		      const struct push_conf *conf, sink_fate_fn *fn, void *arg);
struct push *push_free(struct push *p); /* whatever is left has no fate */
DEFINE_CLEANUP(struct push *, push_free);

/* Other settings of the same endpoint: what waits stays, and so do secrets that come from the same files. */
MUST_USE int push_configure(struct push *p, const struct push_conf *conf);

const char *push_name(const struct push *p);
const char *push_url(const struct push *p); /* as the settings have it; may hold what is secret */
/*
 * The content of a file that the settings name (EXPORT_ROLE_PASSWORD ... KEY); data NULL: it cannot
 * be read, and nothing is sent until it can. Used as it is. Copied. -ENOMEM.
 */
MUST_USE int push_secret(struct push *p, enum export_role role, const void *data, size_t len);
/* 0, and the profile gets its fate through fn, perhaps at once. -ENOMEM: it does not. */
MUST_USE int push_add(struct push *p, struct profile *profile);
void push_flush(struct push *p); /* no spreading any more; one try now for what waits */
size_t push_nqueued(const struct push *p);
/* All that waits gets this fate. */
void push_abandon(struct push *p, enum export_fate_kind kind);
bool push_is_unresolved(
	const struct push *p); /* its server's name could not be resolved the last time */
void push_stats(const struct push *p, struct sink_stats *ret);

#endif
