#include "exporter/push.h"

#include "base/clock.h"
#include "base/log.h"
#include "exporter/push_request.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
	IN_FLIGHT_MAX = 4,
	FLUSH_IN_FLIGHT_MAX = 8,
	KINDS_MAX = 8,	   /* different failures whose log lines are limited each on its own */
	ITEM_BYTES = 1024, /* what a profile costs beside its bytes: labels, struct */
	TRIES_MAX = 16,	   /* of which the backoff takes notice */
};
#define BACKOFF_FIRST_NS   (500 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS	   (60 * NSEC_PER_SEC)
#define HOLD_NS		   (60 * NSEC_PER_SEC)
#define RETRY_AFTER_MAX_NS (300 * NSEC_PER_SEC)
#define PUSH_AGAIN_NS	   (3600 * NSEC_PER_SEC) /* a server may have got it */
#define AGE_MAX_NS	   (59 * 60 * NSEC_PER_SEC) /* servers take an hour */

struct item {
	struct item *next, **at; /* where the one before, or the queue, points here */
	struct push *push;
	struct profile *profile; /* NULL: the start-up probe, which is not in the queue */
	struct push_request request;
	enum push_transport transport; /* of the request, */
	uint32_t generation;	       /* and the settings that it was made with */
	bool is_sending;
	bool is_told; /* that it is sent */
	bool is_in_doubt; /* an attempt may have arrived: no later one can say that none did */
	uint32_t ntries;
	uint64_t started_ns, due_ns;
};

/* A failure that was logged. */
struct kind {
	int kind; /* of struct push_reply; 0 free */
	struct log_limit limit;
};

struct push {
	struct loop *loop;
	struct http *http;
	char *name;
	struct push_settings *settings;
	uint64_t queue_max_bytes, spread_ns;
	uint64_t backoff_first_ns, backoff_max_ns, hold_ns, age_max_ns, push_again_ns;
	sink_fate_fn *fn;
	void *arg;

	struct loop_source *timer;
	struct item *first, **last; /* oldest first */
	size_t nitems, nsending;
	uint64_t nbytes;
	struct item probe;
	bool wants_probe;

	uint32_t generation; /* of settings and secrets */
	enum push_transport transport;
	uint64_t absent_ns;   /* when the server was first seen to have no Push; 0 not, or it has */
	uint64_t ask_push_ns; /* when it is asked again */
	bool is_missing, is_missing_told, is_failure_told;
	bool is_flushing;
	uint32_t nfailures; /* in a row */
	uint64_t failing_since_ns;
	uint64_t not_before_ns; /* for all: the endpoint's backoff */
	bool is_unresolved;
	uint64_t random;
	struct kind kinds[KINDS_MAX];
	struct sink_stats stats;
};

/* ---- time ------------------------------------------------------------------------------------ */

/* Of [0, below): splitmix64. What it is for is that a fleet does not act in step. */
static uint64_t random_below(struct push *p, uint64_t below)
{
	uint64_t x = p->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return below ? x % below : 0;
}

/* Full jitter: of nothing to twice as much each time. */
static uint64_t backoff_ns(struct push *p, uint32_t ntries)
{
	uint64_t most = p->backoff_first_ns << MIN(ntries, (uint32_t)TRIES_MAX);

	return random_below(p, MIN(most, p->backoff_max_ns) + 1);
}

static bool is_too_old(const struct push *p, const struct item *i, uint64_t wall_ns)
{
	return wall_ns > i->profile->wall_start_ns &&
	       wall_ns - i->profile->wall_start_ns > p->age_max_ns;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static uint64_t item_bytes(const struct item *i)
{
	return i->profile->len + ITEM_BYTES;
}

static void stop_sending(struct item *i)
{
	struct push *p = i->push;

	if (!i->is_sending)
		return;
	http_cancel(p->http, i->request.easy);
	push_request_fini(&i->request);
	i->is_sending = false;
	p->nsending--;
}

static void item_free(struct item *i)
{
	struct push *p = i->push;

	stop_sending(i);
	*i->at = i->next;
	if (i->next)
		i->next->at = i->at;
	else
		p->last = i->at;
	p->nitems--;
	p->nbytes -= item_bytes(i);
	profile_unref(i->profile);
	free(i);
}

static void settle(struct item *i, enum export_fate_kind kind)
{
	struct push *p = i->push;
	struct profile *profile = profile_ref(i->profile);

	item_free(i);
	p->fn(p->arg, p->name, profile, kind);
	profile_unref(profile);
}

/* The oldest go, but not what is under way. */
static void make_room(struct push *p)
{
	struct item *i = p->first, *next;

	for (; i && p->nbytes > p->queue_max_bytes; i = next) {
		next = i->next;
		if (!i->is_sending)
			settle(i, EXPORT_FATE_QUEUE_FULL);
	}
}

static void drop_old(struct push *p)
{
	uint64_t wall_ns = clock_wall_ns();
	struct item *i = p->first, *next;

	for (; i; i = next) {
		next = i->next;
		if (!i->is_sending && is_too_old(p, i, wall_ns))
			settle(i, EXPORT_FATE_TOO_OLD);
	}
}

/* ---- words ----------------------------------------------------------------------------------- */

/* One line a minute for each kind of failure; the rarest place is given to a new one. */
static struct log_limit *limit_of(struct push *p, int kind)
{
	struct kind *k = &p->kinds[0];

	for (size_t i = 0; i < KINDS_MAX; i++) {
		if (p->kinds[i].kind == kind)
			return &p->kinds[i].limit;
		if (p->kinds[i].limit.start_ns < k->limit.start_ns)
			k = &p->kinds[i];
	}
	*k = (struct kind){ kind, { .interval_ns = 60 * NSEC_PER_SEC, .burst = 1 } };
	return &k->limit;
}

static const char *what_happened(const struct push_reply *r, bool is_probe)
{
	if (is_probe && r->verdict == PUSH_RETRY)
		return "the server does not answer as it should, profiles wait";
	switch (r->verdict) {
	case PUSH_REFUSED:
		return "the server refuses a profile";
	case PUSH_HOLD:
		return "the server takes no profiles, which wait";
	default:
		return "a profile could not be delivered, and waits";
	}
}

static void tell_failure(struct push *p, struct push_reply *r, bool is_probe)
{
	enum log_level level = r->verdict == PUSH_RETRY ? LOG_WARNING : LOG_ERROR;
	struct log_limit *limit = limit_of(p, r->kind);
	uint64_t nsuppressed = limit->nsuppressed;
	struct sink_stats *s = &p->stats;

	push_settings_redact(p->settings, r->message);
	s->state = r->state;
	s->last_error_wall_ns = clock_wall_ns();
	if (r->kind > 0) {
		snprintf(s->last_error, sizeof(s->last_error), "%d %s", r->kind, r->message);
		log_limited(limit, level, "%s endpoint=%s status=%d server=%s hint='%s'",
			    what_happened(r, is_probe), LOG_STR(p->name), r->kind, LOG_STR(r->message),
			    r->hint);
	} else {
		snprintf(s->last_error, sizeof(s->last_error), "%s", r->message);
		log_limited(limit, level, "%s endpoint=%s error=%s hint='%s'",
			    what_happened(r, is_probe), LOG_STR(p->name), LOG_STR(r->message), r->hint);
	}
	/* Only then is there a recovery to tell: one line of each a minute. */
	p->is_failure_told |= r->verdict != PUSH_REFUSED && limit->nsuppressed <= nsuppressed;
}

static void tell_recovery(struct push *p)
{
	uint64_t ns = clock_mono_ns() - p->failing_since_ns;

	log_info("an endpoint takes profiles again endpoint=%s after_s=%llu waiting=%zu",
		 LOG_STR(p->name), (unsigned long long)(ns / NSEC_PER_SEC), p->nitems);
	p->is_failure_told = false;
}

static bool is_ready(struct push *p)
{
	bool is_news;
	const char *why = push_settings_missing(p->settings, &is_news);

	if (!why) {
		if (p->is_missing)
			p->stats.state = "waiting";
		p->is_missing = p->is_missing_told = false;
		return true;
	}
	p->is_missing = true;
	p->stats.state = is_news ? "no credentials" : "waiting for a file";
	if (is_news && !p->is_missing_told) {
		snprintf(p->stats.last_error, sizeof(p->stats.last_error), "%s", why);
		p->stats.last_error_wall_ns = clock_wall_ns();
		log_error("nothing is sent: %s endpoint=%s hint='a server would answer 401'", why,
			  LOG_STR(p->name));
		p->is_missing_told = true;
	}
	return false;
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void schedule(struct push *p);

static void end_of_failures(struct push *p)
{
	if (p->nfailures && p->is_failure_told)
		tell_recovery(p);
	p->nfailures = 0;
	p->not_before_ns = 0;
}

static void count_failure(struct push *p)
{
	if (!p->nfailures)
		p->failing_since_ns = clock_mono_ns();
	p->nfailures += p->nfailures < UINT32_MAX;
}

static void on_retry(struct push *p, struct item *i, uint64_t retry_after_ns)
{
	uint64_t now = clock_mono_ns();
	uint64_t asked = MIN(retry_after_ns, RETRY_AFTER_MAX_NS);

	p->not_before_ns = now + MAX(backoff_ns(p, p->nfailures), asked);
	count_failure(p);
	if (!i->profile)
		return; /* the probe: profiles will see for themselves */
	i->due_ns = now + MAX(backoff_ns(p, i->ntries), asked);
	i->ntries++;
	p->stats.nretries++;
}

static void on_hold(struct push *p, struct item *i)
{
	/* Not in step either. */
	p->not_before_ns = clock_mono_ns() + p->hold_ns - random_below(p, p->hold_ns / 8 + 1);
	count_failure(p);
	i->due_ns = 0;
	/* What was wrong may have been in between: begin from the beginning. */
	if (p->settings->protocol == CONFIG_AUTO)
		p->transport = PUSH_CONNECT;
	p->absent_ns = p->ask_push_ns = 0;
}

/*
 * One such answer may be that of a proxy whose server is away for a moment: another request, made
 * after it, has to say the same.
 */
static void on_absent(struct push *p, struct item *i, struct push_reply *r)
{
	uint64_t now = clock_mono_ns();

	if (p->settings->protocol == CONFIG_PUSH) {
		r->verdict = PUSH_HOLD;
		tell_failure(p, r, !i->profile);
		on_hold(p, i);
		return;
	}
	i->due_ns = 0;
	if (p->transport == PUSH_INGEST)
		return; /* it is known, or was no news */
	if (p->absent_ns && i->started_ns >= p->absent_ns) {
		log_info("there is no Push at this address, /ingest is used endpoint=%s status=%d",
			 LOG_STR(p->name), r->kind);
		p->transport = PUSH_INGEST;
		p->absent_ns = 0;
		p->ask_push_ns = now + p->push_again_ns;
		return;
	}
	if (!p->absent_ns) {
		p->absent_ns = now;
		p->not_before_ns = now + p->backoff_first_ns;
		p->wants_probe = true;
	}
}

static void on_passed(struct push *p, struct item *i, size_t nbytes)
{
	end_of_failures(p);
	p->stats.state = "ok";
	p->stats.last_ok_wall_ns = clock_wall_ns();
	if (i->transport == PUSH_CONNECT) {
		p->absent_ns = 0;
		if (p->transport == PUSH_INGEST)
			log_info("the server has Push by now, which is used endpoint=%s",
				 LOG_STR(p->name));
		p->transport = PUSH_CONNECT;
	}
	if (!i->profile)
		return;
	p->stats.nsent++;
	p->stats.bytes_sent += nbytes;
	settle(i, EXPORT_FATE_DELIVERED);
}

static struct push_asked asked_of(const struct item *i)
{
	const struct push_settings *s = i->push->settings;

	return (struct push_asked){
		.transport = i->transport,
		.is_probe = !i->profile,
		.url = s->url,
		.username = s->username,
		.has_auth = s->has_basic || s->has_bearer,
		.has_tenant = *s->tenant != '\0',
	};
}

/* What waits from now on would otherwise be in doubt if we died. */
static void tell_waiting(struct item *i)
{
	struct push *p = i->push;

	if (i->is_in_doubt)
		return;
	if (i->profile && i->is_told)
		p->fn(p->arg, p->name, i->profile, EXPORT_FATE_WAITING);
	i->is_told = false;
}

static void on_reply(void *arg, const struct http_result *result)
{
	struct item *i = arg;
	struct push *p = i->push;
	struct push_asked asked = asked_of(i);
	size_t nbytes = i->request.len;
	struct push_reply r;

	push_reply_read(&asked, result, &r);
	/* The handle is ours again. */
	push_request_fini(&i->request);
	i->is_sending = false;
	p->nsending--;
	p->is_unresolved = result->is_unresolved;
	if (r.verdict != PUSH_PASSED && r.verdict != PUSH_REFUSED) {
		i->is_in_doubt |= !r.did_not_arrive;
		tell_waiting(i);
	}

	switch (r.verdict) {
	case PUSH_PASSED:
		on_passed(p, i, nbytes);
		break;
	case PUSH_REFUSED:
		end_of_failures(p); /* it is not the endpoint that fails */
		tell_failure(p, &r, false);
		settle(i, EXPORT_FATE_REJECTED);
		break;
	case PUSH_RETRY:
		tell_failure(p, &r, !i->profile);
		on_retry(p, i, result->retry_after_ns);
		break;
	case PUSH_HOLD:
		if (i->generation != p->generation)
			break; /* that was about other settings: at once with these */
		tell_failure(p, &r, !i->profile);
		on_hold(p, i);
		break;
	case PUSH_ABSENT:
		on_absent(p, i, &r);
		break;
	}
	schedule(p);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void start(struct item *i)
{
	struct push *p = i->push;
	uint64_t id = i->profile ? profile_part_at(i->profile, p->name) : 0;

	i->transport = i->profile ? p->transport : PUSH_CONNECT;
	i->generation = p->generation;
	i->started_ns = clock_mono_ns();
	if (push_request_init(&i->request, p->settings, i->transport, i->profile, id)) {
		on_retry(p, i, 0);
		return;
	}
	if (i->profile && !i->is_told) /* else it is in doubt since an earlier attempt */
		p->fn(p->arg, p->name, i->profile, EXPORT_FATE_SENDING);
	i->is_told = true;
	if (http_start(p->http, i->request.easy, on_reply, i)) {
		push_request_fini(&i->request);
		on_retry(p, i, 0);
		return;
	}
	i->is_sending = true;
	p->nsending++;
}

/* While it fails, one at a time finds out whether it still does. */
static size_t in_flight_max(const struct push *p)
{
	if (p->is_flushing)
		return FLUSH_IN_FLIGHT_MAX;
	return p->nfailures ? 1 : IN_FLIGHT_MAX;
}

/* Starts what is due, and says when it is to be asked again: 0 when an event will tell. */
static uint64_t send_due(struct push *p)
{
	uint64_t now = clock_mono_ns(), next = 0;
	struct item *i, *following;

	if (p->not_before_ns > now)
		return p->not_before_ns;
	if (p->ask_push_ns && p->ask_push_ns <= now && !p->is_flushing) {
		p->wants_probe = true;
		p->ask_push_ns = now + p->push_again_ns;
	}
	if (p->wants_probe && !p->probe.is_sending) {
		p->wants_probe = false;
		start(&p->probe);
	}
	/* First it is to be known how to send. */
	if (p->probe.is_sending && !p->is_flushing)
		return 0;
	for (i = p->first; i; i = following) {
		following = i->next;
		if (i->is_sending)
			continue;
		if (p->nsending >= in_flight_max(p))
			return 0;
		if (p->not_before_ns > now)
			return p->not_before_ns;
		if (i->due_ns <= now)
			start(i);
		else
			next = next ? MIN(next, i->due_ns) : i->due_ns;
	}
	return next;
}

static void schedule(struct push *p)
{
	uint64_t now = clock_mono_ns(), next = 0;
	int err;

	drop_old(p);
	if (is_ready(p))
		next = send_due(p);
	/* Also what only waits grows old. */
	if (p->nitems && (!next || next > now + 60 * NSEC_PER_SEC))
		next = now + 60 * NSEC_PER_SEC;
	err = loop_timer_at(p->timer, next);
	assert(!err); /* it is a timer */
}

static int on_timer(void *arg)
{
	schedule(arg);
	return 0;
}

int push_add(struct push *p, struct profile *profile)
{
	struct item *i = calloc(1, sizeof(*i));

	if (!i)
		return -ENOMEM;
	*i = (struct item){
		.push = p,
		.profile = profile_ref(profile),
		.due_ns = p->is_flushing ? 0 : clock_mono_ns() + random_below(p, p->spread_ns),
	};
	i->at = p->last;
	*p->last = i;
	p->last = &i->next;
	p->nitems++;
	p->nbytes += item_bytes(i);
	make_room(p);
	schedule(p);
	return 0;
}

void push_flush(struct push *p)
{
	p->is_flushing = true;
	p->not_before_ns = 0;
	for (struct item *i = p->first; i; i = i->next)
		i->due_ns = 0;
	schedule(p);
}

void push_abandon(struct push *p, enum export_fate_kind kind)
{
	struct item *i;

	while ((i = p->first))
		settle(i, kind);
}

/* ---- settings -------------------------------------------------------------------------------- */

int push_configure(struct push *p, const struct push_conf *conf)
{
	CLEANUP(push_settings_freep) struct push_settings *s = NULL;
	int err = push_settings_new(&s, conf->endpoint, conf->version);

	if (err)
		return err;
	if (p->settings)
		push_settings_inherit(s, p->settings);
	push_settings_free(p->settings);
	p->settings = TAKE(s);
	p->generation++;
	stop_sending(&p->probe);
	p->queue_max_bytes = conf->queue_max_bytes;
	p->spread_ns = conf->spread_ns;
	p->backoff_first_ns = conf->backoff_first_ns ? conf->backoff_first_ns : BACKOFF_FIRST_NS;
	p->backoff_max_ns = conf->backoff_max_ns ? conf->backoff_max_ns : BACKOFF_MAX_NS;
	p->hold_ns = conf->hold_ns ? conf->hold_ns : HOLD_NS;
	p->age_max_ns = conf->age_max_ns ? conf->age_max_ns : AGE_MAX_NS;
	p->push_again_ns = conf->push_again_ns ? conf->push_again_ns : PUSH_AGAIN_NS;
	p->transport = p->settings->protocol == CONFIG_INGEST ? PUSH_INGEST : PUSH_CONNECT;
	p->wants_probe = p->settings->protocol != CONFIG_INGEST;
	p->absent_ns = p->ask_push_ns = 0;
	p->not_before_ns = 0; /* whoever changed the settings wants to see what they do */
	p->is_missing_told = false;
	make_room(p);
	schedule(p);
	return 0;
}

int push_new(struct push **ret, struct loop *loop, struct http *http, const struct push_conf *conf,
	     sink_fate_fn *fn, void *arg)
{
	CLEANUP(push_freep) struct push *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct push){ .loop = loop, .http = http, .fn = fn, .arg = arg };
	p->last = &p->first;
	p->probe.push = p;
	p->stats.state = "waiting";
	/* Without entropy, as at boot, it is merely more in step. */
	if (getrandom(&p->random, sizeof(p->random), GRND_NONBLOCK) != (ssize_t)sizeof(p->random))
		p->random = clock_mono_ns();
	p->name = strdup(conf->name);
	if (!p->name)
		return -ENOMEM;
	err = loop_add_timer(loop, &p->timer, 0, on_timer, p);
	if (!err)
		err = push_configure(p, conf);
	if (err)
		return err;
	*ret = TAKE(p);
	return 0;
}

struct push *push_free(struct push *p)
{
	struct item *i;

	if (!p)
		return NULL;
	while ((i = p->first))
		item_free(i);
	stop_sending(&p->probe);
	loop_del(p->timer);
	push_settings_free(p->settings);
	free(p->name);
	free(p);
	return NULL;
}

int push_secret(struct push *p, enum export_role role, const void *data, size_t len)
{
	int err = push_settings_secret(p->settings, role, data, len);

	if (err)
		return err;
	/* A new one deserves a try at once. */
	p->generation++;
	p->not_before_ns = 0;
	p->is_missing_told = false;
	schedule(p);
	return 0;
}

const char *push_name(const struct push *p)
{
	return p->name;
}

const char *push_url(const struct push *p)
{
	return p->settings->url;
}

size_t push_nqueued(const struct push *p)
{
	return p->nitems;
}

bool push_is_unresolved(const struct push *p)
{
	return p->is_unresolved;
}

void push_stats(const struct push *p, struct sink_stats *ret)
{
	*ret = p->stats;
	ret->name = p->name;
	ret->kind = p->transport == PUSH_INGEST		 ? "ingest" :
		    p->settings->protocol == CONFIG_AUTO ? "auto" :
							   "push";
	ret->nqueued = p->nitems;
	ret->queued_bytes = p->nbytes;
	ret->queue_max_bytes = p->queue_max_bytes;
}
