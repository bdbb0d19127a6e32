/*
 * push_request - a profile as a request to an endpoint. Part of push.
 *
 * May touch: the heap. Never: the network, files.
 */
#ifndef EXPORTER_PUSH_REQUEST_H
#define EXPORTER_PUSH_REQUEST_H

#include "exporter/push_reply.h"
#include "exporter/push_settings.h"

/* A request that is ready for http_start(). */
struct push_request {
	CURL *easy;
	struct curl_slist *headers;
	uint8_t *body;
	size_t len;
};

/* profile NULL: the empty message of the start-up probe. -ENOMEM. */
MUST_USE int push_request_init(struct push_request *r, const struct push_settings *s,
			       enum push_transport t, const struct profile *profile, uint64_t id);
void push_request_fini(struct push_request *r);

#endif
