#include "exporter/ondemand.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/listener.h"
#include "exporter/pprof.h"
#include "exporter/reply.h"
#include "exporter/services.h"

#define GRACE_NS (20 * NSEC_PER_SEC) /* after its end: a window's names may take that long */
#define LOOK_NS	 (250 * NSEC_PER_MSEC)

enum tap_state {
	WAITING,
	READY,
	REFUSED,
	TOO_LATE,
	FAILED,
	GONE,	   /* its client: to be closed without an answer */
	ABANDONED, /* and is; the agent goes on */
};

struct tap {
	struct tap *next;
	uint64_t id;
	struct listener *listener;
	struct MHD_Connection *connection; /* suspended while WAITING; NULL: ABANDONED */
	enum tap_state state;
	bool is_over; /* for the agent: it has no place there any more */
	enum export_refusal why;
	uint64_t deadline_ns;
	char *service; /* "" all */
	struct bufw profile;
};

struct ondemand {
	ondemand_tap_fn *fn;
	void *arg;
	struct loop_source *look;
	struct tap *first;
	uint32_t ntaps; /* that have a place at the agent, as far as we know */
	uint64_t next_id;
};

static struct tap *tap_free(struct tap *t)
{
	if (!t)
		return NULL;
	bufw_fini(&t->profile);
	free(t->service);
	free(t);
	return NULL;
}
DEFINE_CLEANUP(struct tap *, tap_free);

/* ---- waiting -------------------------------------------------------------------------------- */

static void resume(struct tap *t, enum tap_state state)
{
	t->state = state;
	MHD_resume_connection(t->connection);
	listener_wake(t->listener);
}

/* libmicrohttpd does not look at a suspended connection. */
static bool is_gone(const struct tap *t)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(t->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct pollfd p = { .fd = info ? info->connect_fd : -1, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static void free_place(struct ondemand *o, struct tap *t)
{
	o->ntaps -= !t->is_over;
	t->is_over = true;
}

/* Out of the list, where nobody needs it any more. */
static void drop(struct ondemand *o, struct tap *t)
{
	struct tap **at = &o->first;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	free_place(o, t);
	tap_free(t);
}

static int on_look(void *arg)
{
	struct ondemand *o = arg;
	uint64_t now = clock_mono_ns();
	struct tap *next;

	for (struct tap *t = o->first; t; t = next) {
		next = t->next;
		if (now >= t->deadline_ns)
			free_place(o, t);
		if (t->state == WAITING && is_gone(t))
			resume(t, GONE);
		else if (t->state == WAITING && t->is_over)
			resume(t, TOO_LATE);
		else if (t->state == ABANDONED && t->is_over)
			drop(o, t);
	}
	return o->ntaps ? loop_timer_at(o->look, now + LOOK_NS) : 0;
}

int ondemand_new(struct ondemand **ret, struct loop *loop, ondemand_tap_fn *fn, void *arg)
{
	CLEANUP(ondemand_freep) struct ondemand *o = calloc(1, sizeof(*o));
	int err;

	if (!o)
		return -ENOMEM;
	o->fn = fn;
	o->arg = arg;
	/* No other exporter's ids, before this one or after it. */
	if (getrandom(&o->next_id, sizeof(o->next_id), 0) != (ssize_t)sizeof(o->next_id))
		return -EIO;
	err = loop_add_timer(loop, &o->look, 0, on_look, o);
	if (err)
		return err;
	*ret = TAKE(o);
	return 0;
}

struct ondemand *ondemand_free(struct ondemand *o)
{
	struct tap *next;

	if (!o)
		return NULL;
	for (struct tap *t = o->first; t; t = next) {
		next = t->next;
		tap_free(t);
	}
	loop_del(o->look);
	free(o);
	return NULL;
}

/* ---- requests ------------------------------------------------------------------------------- */

static bool parse_seconds(const char *text, uint32_t *ret)
{
	uint32_t n = 0;

	if (!text) {
		*ret = ONDEMAND_DEFAULT_S;
		return true;
	}
	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '9' || c - text > 2)
			return false;
		n = n * 10 + (uint32_t)(*c - '0');
	}
	*ret = n;
	return n >= 1 && n <= ONDEMAND_MAX_S;
}

static int start(struct ondemand *o, struct listener *l, struct MHD_Connection *c, uint32_t seconds,
		 void **state)
{
	const char *service = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "service");
	CLEANUP(tap_freep) struct tap *t = calloc(1, sizeof(*t));
	struct export_tap ask = { .duration_ns = seconds * NSEC_PER_SEC };
	uint64_t now = clock_mono_ns();
	int err;

	if (!t)
		return -ENOMEM;
	t->service = strdup(service ? service : "");
	if (!t->service)
		return -ENOMEM;
	o->next_id += !(o->next_id + 1) ? 2 : 1; /* not 0 */
	t->id = ask.id = o->next_id;
	t->listener = l;
	t->connection = c;
	t->deadline_ns = now + ask.duration_ns + GRACE_NS;
	err = o->fn(o->arg, &ask);
	if (!err)
		err = loop_timer_at(o->look, now + LOOK_NS);
	if (err)
		return err;
	MHD_suspend_connection(c);
	t->next = o->first;
	o->first = t;
	o->ntaps++;
	*state = TAKE(t);
	return 0;
}

static const char *const refusals[EXPORT_REFUSAL_COUNT] = {
	[EXPORT_REFUSAL_TOO_MANY] = "it is taking 16 already",
	[EXPORT_REFUSAL_NO_MEMORY] = "it is short of memory",
	[EXPORT_REFUSAL_INVALID] = "it does not know how",
	[EXPORT_REFUSAL_NOT_SAMPLING] = "it is starting or ending",
};

static enum MHD_Result answer(struct tap *t, struct MHD_Connection *c)
{
	struct reply r = {
		.status = MHD_HTTP_OK,
		.type = "application/octet-stream",
		.data = t->profile.data,
		.len = t->profile.len,
		.header = "Content-Disposition",
		.value = "attachment; filename=\"profile.pb.gz\"",
	};

	char text[128];

	switch (t->state) {
	case READY:
		return reply_send(c, &r);
	case REFUSED:
		snprintf(text, sizeof(text), "the agent takes no profile now: %s; try again later\n",
			 refusals[t->why]);
		return reply_busy(c, "30", text);
	case TOO_LATE:
		return reply_busy(c, "30", "no profile was made in time\n");
	case FAILED:
		return reply_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	default:
		return MHD_NO;
	}
}

enum MHD_Result ondemand_request(struct ondemand *o, struct listener *l, struct MHD_Connection *c,
				 void **state)
{
	const char *seconds_text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "seconds");
	uint32_t seconds;
	int err;

	if (*state)
		return answer(*state, c);
	if (!parse_seconds(seconds_text, &seconds))
		return reply_text(c, MHD_HTTP_BAD_REQUEST, "seconds must be 1 to 120\n");
	if (o->ntaps >= EXPORT_TAPS_MAX)
		return reply_busy(c, "30", "16 profiles are being taken already, some perhaps for clients that "
				 "have left; try again later\n");
	err = start(o, l, c, seconds, state);
	if (err) {
		static struct log_limit limit = LOG_LIMIT_INIT;

		log_limited(&limit, LOG_ERROR, "no profile can be asked for error='%s'", strerror(-err));
		return reply_busy(c, "30", "the agent cannot be asked now\n");
	}
	return MHD_YES;
}

void ondemand_done(struct ondemand *o, void *state)
{
	struct tap *t = state;

	if (t->is_over)
		return drop(o, t);
	t->state = ABANDONED;
	t->connection = NULL;
}

void ondemand_closing(struct ondemand *o, struct listener *l)
{
	for (struct tap *t = o->first; t; t = t->next) {
		if (t->state == WAITING && t->listener == l)
			resume(t, GONE);
	}
}

/* ---- batches -------------------------------------------------------------------------------- */

/* A copy of the batch that has only the samples of one service: pprof leaves out what they do not need. */
static int encode_service(const struct tap *t, const struct export_batch *b, struct bufw *out)
{
	CLEANUP(services_names_fini) struct services_names names = {};
	CLEANUP_FREE struct export_sample *samples =
		reallocarray(NULL, MAX(b->nsamples, 1u), sizeof(*samples));
	struct export_batch part = *b;
	struct pprof_totals totals;
	int err = samples ? services_names_init(&names, b) : -ENOMEM;

	if (err)
		return err;
	part.samples = samples;
	part.nsamples = 0;
	for (uint32_t i = 0; i < b->nsamples; i++) {
		if (services_names_are(&names, b->samples[i].subject, t->service))
			samples[part.nsamples++] = b->samples[i];
	}
	return pprof_encode(out, &part, &totals);
}

static int encode(const struct tap *t, const struct export_batch *b, struct bufw *out)
{
	struct pprof_totals totals;

	return *t->service ? encode_service(t, b, out) : pprof_encode(out, b, &totals);
}

static struct tap *find_placed(struct ondemand *o, uint64_t id)
{
	struct tap *t = o->first;

	while (t && (t->id != id || t->is_over))
		t = t->next;
	return t;
}

void ondemand_take(struct ondemand *o, const struct export_batch *b)
{
	struct tap *t = find_placed(o, b->tap);

	if (!t)
		return;
	free_place(o, t);
	if (t->state == WAITING) /* short of memory: its client learns of it */
		resume(t, encode(t, b, &t->profile) ? FAILED : READY);
	else if (t->state == ABANDONED)
		drop(o, t);
}

void ondemand_refused(struct ondemand *o, const struct export_tap_refused *r)
{
	struct tap *t = find_placed(o, r->id);

	if (!t)
		return;
	free_place(o, t);
	t->why = r->why;
	if (t->state == WAITING)
		resume(t, REFUSED);
	else if (t->state == ABANDONED)
		drop(o, t);
}
