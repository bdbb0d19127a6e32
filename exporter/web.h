/*
 * web - everything that the exporter serves over HTTP: page, API, /metrics, /debug/pprof.
 *
 * Listeners, each with its own rights (libmicrohttpd, driven by our loop):
 *   page     page.listen: /TOKEN/ (the page), /TOKEN/api/v1/..., /debug/pprof/profile; token in the path, as `token=`,
 *            as bearer token, or page.basic_auth; without one of these: 401, and nothing is shown
 *   control  a unix socket that the agent made: the API, without a token
 *   metrics  metrics.listen: /metrics, /healthz, /readyz; no profile data
 * A port that is taken is one error line and the metric flamed_listener_up 0; it is tried again every
 * minute. Recent windows are kept compressed, page.max_bytes at most, the oldest dropped first.
 *
 * May touch: its listeners. Never: files; labels or delivery other than to show them.
 */
#ifndef EXPORTER_WEB_H
#define EXPORTER_WEB_H

#include "base/loop.h"
#include "config/config.h"
#include "exporter/msg.h"
#include "exporter/names.h"
#include "exporter/sink.h"

struct web;

struct web_ops {
	/* Wants a batch of this tap: web_take_tap() brings it. */
	int (*tap)(void *arg, const struct export_tap *tap);
	/* The sinks as they are: fills at most max, returns how many there are. */
	size_t (*sinks)(void *arg, struct sink_stats *ret, size_t max);
	void (*names)(void *arg, struct names_stats *ret);	/* NULL: nobody bounds them */
};

MUST_USE int web_new(struct web **ret, struct loop *loop, const struct web_ops *ops, void *arg);
struct web *web_free(struct web *w);
DEFINE_CLEANUP(struct web *, web_free);

/* Opens, closes and moves the TCP listeners as the settings want it. Settings are borrowed until the next call. */
MUST_USE int web_configure(struct web *w, const struct config *c, const struct export_config *more);
MUST_USE int web_control(struct web *w, int listen_fd);	/* takes it */
/* What a file holds: the ends of lines at its end are no part of it. */
MUST_USE int web_page_password(struct web *w, const char *text, size_t len);
/* A window: its decoded tables, and the bytes they came as. Copied. */
MUST_USE int web_window(struct web *w, const struct export_batch *b, const void *wire, size_t len);
void web_take_tap(struct web *w, const struct export_batch *b);
void web_tap_refused(struct web *w, const struct export_tap_refused *r);
MUST_USE int web_status(struct web *w, const struct export_status *s);	/* copied */
/* The version of Landlock that holds this process, 0 none: for the status. */
void web_set_landlock(struct web *w, int version);

#endif
