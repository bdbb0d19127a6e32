/*
 * sink - where profiles go: an endpoint (exporter/push.h) or a directory (exporter/directory.h).
 *
 * A sink takes references to profiles and tells one final fate for each. Before the first byte leaves it
 * tells SENDING, and WAITING when that attempt certainly did not arrive.
 */
#ifndef EXPORTER_SINK_H
#define EXPORTER_SINK_H

#include "exporter/profiles.h"

typedef void sink_fate_fn(void *arg, const char *sink, const struct profile *p, enum export_fate_kind kind);

struct sink_stats {
	const char *name;		/* as in metrics: the endpoint's name, else URL without userinfo and query */
	const char *kind;		/* "push", "ingest", "auto", "directory" */
	const char *state;		/* "ok", "waiting", "failing", "no credentials", ... */
	char last_error[512];		/* what the server said last, "" nothing; no secrets */
	uint64_t last_error_wall_ns, last_ok_wall_ns;
	uint64_t nqueued, queued_bytes;	/* profiles */
	uint64_t queue_max_bytes;
	uint64_t nsent, nretries, bytes_sent;
};

#endif
