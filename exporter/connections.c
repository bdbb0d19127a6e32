#include "exporter/connections.h"

#include <netinet/in.h>
#include <string.h>

const char *connection_end_text(enum connection_end e)
{
	static const char *const texts[] = {
#define X(id, text) [CONNECTION_END_##id] = text,
		CONNECTION_ENDS(X)
#undef X
	};

	return texts[e];
}

static void end(struct connections *cs, struct connection *c, enum connection_end why)
{
	(void)shutdown(c->fd, SHUT_RDWR); /* it fails when the client was faster */
	c->phase = CONNECTION_ENDED;
	c->answer_bytes = 0;
	cs->nended[why]++;
}

/* What is counted as one client; false: this host itself, or a unix socket. */
static bool key_of(const struct sockaddr_storage *from, uint8_t *ret)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;

	memset(ret, 0, 16);
	if (from->ss_family == AF_INET) {
		memcpy(ret + 12, &v4->sin_addr, 4);
		return ret[12] != 127;
	}
	if (from->ss_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr))
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(ret + 12, v6->sin6_addr.s6_addr + 12, 4);
		return ret[12] != 127;
	}
	memcpy(ret, &v6->sin6_addr, 8);
	return true;
}

static bool is_live(const struct connection *c)
{
	return c->phase != CONNECTION_FREE && c->phase != CONNECTION_ENDED;
}

static bool is_from(const struct connection *c, const uint8_t *from)
{
	return !from || (c->is_limited && !memcmp(c->from, from, sizeof(c->from)));
}

/* 0: not to be ended. */
static int expendability(const struct connection *c)
{
	switch (c->phase) {
	case CONNECTION_NEW:
		return 2;
	case CONNECTION_ANSWERING:
		return 1;
	default:
		return 0;
	}
}

/* Who is next to go, of an address, or NULL: of any. NULL: nobody. */
static struct connection *next_to_go(struct connections *cs, const uint8_t *from)
{
	struct connection *next = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(cs->slots); i++) {
		struct connection *c = &cs->slots[i];
		int more = expendability(c) - (next ? expendability(next) : 0);

		if (expendability(c) && is_from(c, from) &&
		    (more > 0 || (!more && c->since_ns < next->since_ns)))
			next = c;
	}
	return next;
}

static size_t count(const struct connections *cs, const uint8_t *from)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(cs->slots); i++)
		n += is_live(&cs->slots[i]) && is_from(&cs->slots[i], from);
	return n;
}

static struct connection *free_slot(struct connections *cs)
{
	for (size_t i = 0; i < ARRAY_SIZE(cs->slots); i++) {
		if (cs->slots[i].phase == CONNECTION_FREE)
			return &cs->slots[i];
	}
	return NULL;
}

bool connections_make_room(struct connections *cs, uint64_t now_ns, uint64_t *ret_when_ns)
{
	struct connection *next;

	*ret_when_ns = now_ns + CONNECTION_GRACE_NS;
	if (!free_slot(cs))
		return false;
	if (count(cs, NULL) < CONNECTIONS_MAX)
		return true;
	next = next_to_go(cs, NULL);
	if (!next)
		return false;
	if (now_ns - next->since_ns < CONNECTION_GRACE_NS) {
		*ret_when_ns = next->since_ns + CONNECTION_GRACE_NS;
		return false;
	}
	end(cs, next, CONNECTION_END_CROWDED);
	return true;
}

struct connection *connections_add(struct connections *cs, int fd, const struct sockaddr_storage *from,
				   uint64_t now_ns)
{
	struct connection c = { .fd = fd, .phase = CONNECTION_NEW, .since_ns = now_ns };
	struct connection *slot = free_slot(cs), *own;

	c.is_limited = key_of(from, c.from);
	if (c.is_limited && slot && count(cs, c.from) >= CONNECTIONS_ADDRESS_MAX) {
		own = next_to_go(cs, c.from);
		if (!own)
			return NULL;
		end(cs, own, CONNECTION_END_CROWDED);
	}
	if (slot)
		*slot = c;
	return slot;
}

void connections_del(struct connection *c)
{
	*c = (struct connection){};
}

void connection_enter(struct connection *c, enum connection_phase phase, uint64_t now_ns)
{
	if (!is_live(c))
		return;
	c->phase = phase;
	c->since_ns = now_ns;
	if (phase != CONNECTION_ANSWERING)
		c->answer_bytes = 0;
}

uint64_t connections_sweep(struct connections *cs, uint64_t now_ns)
{
	static const struct {
		uint64_t limit_ns;
		enum connection_end why;
	} limits[] = {
		[CONNECTION_NEW] = { CONNECTION_REQUEST_NS, CONNECTION_END_SLOW_REQUEST },
		[CONNECTION_ANSWERING] = { CONNECTION_ANSWER_NS, CONNECTION_END_SLOW_READER },
		[CONNECTION_ENDED] = {},
	};
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(cs->slots); i++) {
		struct connection *c = &cs->slots[i];
		uint64_t limit = limits[c->phase].limit_ns;

		if (!limit)
			continue;
		if (now_ns - c->since_ns < limit)
			next = MIN(next, c->since_ns + limit);
		else
			end(cs, c, limits[c->phase].why);
	}
	return next;
}

/* The one that has been reading longest, if for too long; NULL none. */
static struct connection *slowest_reader(struct connections *cs, uint64_t now_ns)
{
	struct connection *slowest = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(cs->slots); i++) {
		struct connection *c = &cs->slots[i];

		if (c->answer_bytes && now_ns - c->since_ns > CONNECTION_REQUEST_NS &&
		    (!slowest || c->since_ns < slowest->since_ns))
			slowest = c;
	}
	return slowest;
}

static size_t held(const struct connections *cs)
{
	size_t bytes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(cs->slots); i++)
		bytes += cs->slots[i].answer_bytes;
	return bytes;
}

bool connections_hold(struct connections *cs, struct connection *c, size_t bytes, uint64_t now_ns)
{
	size_t before;

	c->answer_bytes = 0;
	while ((before = held(cs)) > 0 &&
	       (bytes > CONNECTIONS_ANSWER_BYTES || before > CONNECTIONS_ANSWER_BYTES - bytes)) {
		struct connection *slowest = slowest_reader(cs, now_ns);

		if (!slowest)
			return false;
		end(cs, slowest, CONNECTION_END_SLOW_READER);
	}
	c->answer_bytes = bytes;
	return true;
}
