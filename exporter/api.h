/*
 * api - the JSON answers of /api/v1: status, services, query (docs/api.md).
 *
 * A function of what is shown to it and of a request's parameters; texts that workloads chose are
 * valid UTF-8 JSON strings. Values of a query are nanoseconds.
 *
 * May touch: the heap, the clock. Never: HTTP; a secret.
 */
#ifndef EXPORTER_API_H
#define EXPORTER_API_H

#include <jansson.h>

#include "exporter/connections.h"
#include "exporter/msg.h"
#include "exporter/names.h"
#include "exporter/recent.h"
#include "exporter/sink.h"

enum { API_NODES_DEFAULT = 16384, API_NODES_MAX = 131072, API_TOP_MAX = 500, API_DEFAULT_S = 300 };

struct api_listener {
	const char *name, *address, *error; /* error: "" none */
	bool is_up;
	uint64_t nended[CONNECTION_END_COUNT];
};

/* What there is to be told; all borrowed. */
struct api_view {
	const struct recent *recent;
	const char *hostname, *version, *hash; /* "" not told yet */
	const struct export_status *status; /* NULL: not told yet */
	const struct sink_stats *sinks;
	size_t nsinks;
	const struct names_stats *names; /* NULL: nobody bounds them */
	const struct api_listener *listeners;
	size_t nlisteners;
	int landlock; /* version, 0 none */
};

/* A request's parameters; NULL: not given. */
struct api_params {
	const char *from, *to, *service, *nodes;
};

/*
 * Appends the answer to /api/v1/NAME, and gives its HTTP status: 200, 400 or 404 with {"error": ...}; 500,
 * out of memory: there is none.
 */
MUST_USE unsigned int api_answer(const struct api_view *v, const char *name, const struct api_params *p,
				 struct bufw *ret);

struct api_range {
	uint64_t from_ns, to_ns;
};

/* exporter/api_query.c. -ENOMEM: what was appended is of no use. */
MUST_USE int api_query(const struct api_view *v, const struct api_range *r, const char *service,
		       uint32_t max_nodes, struct bufw *ret);

/* exporter/api_status.c. NULL: out of memory. */
json_t *api_status(const struct api_view *v);

#endif
