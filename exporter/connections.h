/*
 * connections - who is connected to one listener: how long each may take, and who goes when there are
 * too many.
 *
 * A connection brings one request. Its headers have CONNECTION_REQUEST_NS from the connection's begin (a
 * body is never waited for), its answer CONNECTION_ANSWER_NS to be read. When there is no room, who came
 * first goes: of those that have asked for nothing, then of those that do not read. A client that asks
 * at once is so answered however many others are slow: those before it in the queue have
 * CONNECTION_GRACE_NS for each CONNECTIONS_MAX of them. Ended means shut down: the server then sees the
 * end, closes, and calls connections_del().
 *
 * May touch: shutdown(2) of what it was given. Never: read, write or close it.
 */
#ifndef EXPORTER_CONNECTIONS_H
#define EXPORTER_CONNECTIONS_H

#include <sys/socket.h>

#include "base/clock.h"
#include "base/def.h"

enum {
	CONNECTIONS_MAX = 128,
	CONNECTIONS_ADDRESS_MAX = 32, /* of one address (IPv6: /64) that is not this host's */
	CONNECTIONS_SLOTS = 2 * CONNECTIONS_MAX, /* with those that are ended and not closed yet */
	CONNECTIONS_ANSWER_BYTES = 8 * 1024 * 1024, /* of all answers that are not read yet */
};
#define CONNECTION_GRACE_NS   (50 * NSEC_PER_MSEC) /* in each phase: nobody has to go sooner for others */
#define CONNECTION_REQUEST_NS (5 * NSEC_PER_SEC)
#define CONNECTION_ANSWER_NS  (60 * NSEC_PER_SEC)

/* Why we ended a connection: text and metric. */
#define CONNECTION_ENDS(X)                                                        \
	X(SLOW_REQUEST, "slow_request") /* its headers did not come in time */    \
	X(SLOW_READER, "slow_reader")	/* it did not read its answer in time */  \
	X(CROWDED, "crowded")		/* others needed its place */

enum connection_end {
#define X(id, text) CONNECTION_END_##id,
	CONNECTION_ENDS(X)
#undef X
	CONNECTION_END_COUNT,
};
const char *connection_end_text(enum connection_end e);

enum connection_phase {
	CONNECTION_FREE,
	CONNECTION_NEW,	      /* no request yet */
	CONNECTION_WAITING,   /* suspended: its answer is being made, and has its own deadline */
	CONNECTION_ANSWERING, /* its answer is being sent */
	CONNECTION_ENDED,
};

struct connection {
	int fd;
	enum connection_phase phase;
	uint64_t since_ns;
	size_t answer_bytes;
	bool is_limited;
	uint8_t from[16];
};

struct connections {
	struct connection slots[CONNECTIONS_SLOTS]; /* zero: free */
	uint64_t nended[CONNECTION_END_COUNT];
};

/* Whether one more can be added, having made room if need be. If not, *ret_when_ns is when to ask again. */
MUST_USE bool connections_make_room(struct connections *cs, uint64_t now_ns, uint64_t *ret_when_ns);
/* Where there is room. NULL: not for this address; fd is the caller's to close. */
struct connection *connections_add(struct connections *cs, int fd, const struct sockaddr_storage *from,
				   uint64_t now_ns);
void connections_del(struct connection *c);
void connection_enter(struct connection *c, enum connection_phase phase, uint64_t now_ns);
/* Ends those whose time is over. When the next one's is, on CLOCK_MONOTONIC; UINT64_MAX: none's. */
uint64_t connections_sweep(struct connections *cs, uint64_t now_ns);
/*
 * Whether an answer of so many bytes may be held for c until it is read; who has been reading for more
 * than CONNECTION_REQUEST_NS goes for it. One alone may be of any size.
 */
bool connections_hold(struct connections *cs, struct connection *c, size_t bytes, uint64_t now_ns);

#endif
