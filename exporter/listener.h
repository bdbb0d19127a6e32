/*
 * listener - one address that HTTP is served on: its socket, and libmicrohttpd driven by our loop.
 *
 * An address that cannot be had is one error line, and is tried again every minute. Bounds: 16 KiB of
 * request each, and exporter/connections.h.
 *
 * May touch: its sockets. Never: what is served.
 */
#ifndef EXPORTER_LISTENER_H
#define EXPORTER_LISTENER_H

#include <microhttpd.h>

#include "base/loop.h"
#include "exporter/connections.h"

struct listener;

struct listener_ops {
	/*
	 * A request, its headers only; again with the same *state when its connection was suspended and
	 * resumed. MHD_NO closes the connection.
	 */
	enum MHD_Result (*request)(void *arg, struct listener *l, struct MHD_Connection *c,
				   const char *method, const char *path, void **state);
	/* A request with a *state is over, however it ended. */
	void (*done)(void *arg, void *state);
	/* It listens, perhaps after having been in vain for some time. */
	void (*opened)(void *arg, struct listener *l);
	/* The listener is about to close: no connection may stay suspended. */
	void (*closing)(void *arg, struct listener *l);
};

/* The name is for metrics and log lines; it and ops are borrowed for ever. */
MUST_USE int listener_new(struct listener **ret, struct loop *loop, const char *name,
			  const struct listener_ops *ops, void *arg);
struct listener *listener_free(struct listener *l);
DEFINE_CLEANUP(struct listener *, listener_free);

/*
 * `HOST:PORT`, HOST an address, `localhost`, or empty for all; NULL: none. What is open already at this
 * address stays. An address that cannot be had is no error here; -ENOMEM.
 */
MUST_USE int listener_move(struct listener *l, const char *address);
/* A listening socket that is there already; takes it. */
MUST_USE int listener_take(struct listener *l, int fd);

/* Before an answer of some size: whether there is room for it (connections_hold()). */
MUST_USE bool listener_hold(struct listener *l, struct MHD_Connection *c, size_t bytes);

/* A connection was resumed: libmicrohttpd is to look at it in the next turn. */
void listener_wake(struct listener *l);

const char *listener_name(const struct listener *l);
bool listener_is_wanted(const struct listener *l);
bool listener_is_up(const struct listener *l);
bool listener_is_loopback(const struct listener *l); /* only this host reaches it, by IP */
const char *listener_address(const struct listener *l); /* with the port that it got; a path */
const char *listener_error(const struct listener *l);	/* "" none */

uint64_t listener_nended(const struct listener *l, enum connection_end why);

#endif
