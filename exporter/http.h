/*
 * http - libcurl's multi interface in our loop: requests that call back when they are over.
 *
 * Connections are kept alive; no redirect, no proxy from the environment, no cookies, HTTP(S) only.
 *
 * May touch: the network, what libcurl reads of /etc (resolver, certificates). Never: what is sent.
 */
#ifndef EXPORTER_HTTP_H
#define EXPORTER_HTTP_H

#include "base/loop.h"

#include <curl/curl.h>

struct http;

MUST_USE int http_new(struct http **ret, struct loop *loop);
struct http *http_free(struct http *h);	/* requests under way are forgotten */
DEFINE_CLEANUP(struct http *, http_free);

enum { HTTP_REPLY_MAX = 64 * 1024 };	/* bytes of a reply that are kept; more are read and dropped */

struct http_result {
	CURLcode code;		/* CURLE_OK: there is a status */
	bool is_unresolved;	/* the name of the host is not known, or nobody says */
	bool was_sent;		/* some of the request may have left, on this or an earlier connection */
	long status;
	const char *content_type;	/* "" none */
	const char *error;	/* curl's words where code is not CURLE_OK */
	const char *body;	/* NUL-terminated */
	size_t body_len;	/* HTTP_REPLY_MAX: there was more, or as much */
	const char *location;	/* of a redirect, "" none */
	uint64_t retry_after_ns;	/* 0: not said */
};
typedef void http_fn(void *arg, const struct http_result *r);

/*
 * Starts an easy handle that the caller has set up (URL, body, auth); the options that this module is
 * about are set here. fn is called once, from the loop, unless http_cancel() came first; then the handle is the
 * caller's again.
 */
MUST_USE int http_start(struct http *h, CURL *easy, http_fn *fn, void *arg);
void http_cancel(struct http *h, CURL *easy);

#endif
