#include "exporter/push_state.h"

#include "base/clock.h"
#include "exporter/http.h"

#include <assert.h>

enum {
	IN_FLIGHT_MAX = 4,
	FLUSH_IN_FLIGHT_MAX = 8,
	TRIES_MAX = 16, /* of which the backoff takes notice */
};
#define RETRY_AFTER_MAX_NS (300 * NSEC_PER_SEC)

/* Full jitter: of nothing to twice as much each time. */
static uint64_t backoff_ns(struct push *p, uint32_t ntries)
{
	uint64_t most = p->backoff_first_ns << MIN(ntries, (uint32_t)TRIES_MAX);

	return push_random_below(p, MIN(most, p->backoff_max_ns) + 1);
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void end_of_failures(struct push *p)
{
	if (p->nfailures && p->is_failure_told)
		push_tell_recovery(p);
	p->nfailures = 0;
	p->not_before_ns = 0;
}

static void count_failure(struct push *p)
{
	if (!p->nfailures)
		p->failing_since_ns = clock_mono_ns();
	p->nfailures += p->nfailures < UINT32_MAX;
}

static void on_retry(struct push *p, struct push_item *i, uint64_t retry_after_ns)
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

static void on_hold(struct push *p, struct push_item *i)
{
	/* Not in step either. */
	p->not_before_ns = clock_mono_ns() + p->hold_ns - push_random_below(p, p->hold_ns / 8 + 1);
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
static void on_absent(struct push *p, struct push_item *i, struct push_reply *r)
{
	uint64_t now = clock_mono_ns();

	if (p->settings->protocol == CONFIG_PUSH) {
		r->verdict = PUSH_HOLD;
		push_tell_failure(p, r, !i->profile);
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

static void on_passed(struct push *p, struct push_item *i, size_t nbytes)
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
	push_settle(i, EXPORT_FATE_DELIVERED);
}

static struct push_asked asked_of(const struct push_item *i)
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
static void tell_waiting(struct push_item *i)
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
	struct push_item *i = arg;
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
		push_tell_failure(p, &r, false);
		push_settle(i, EXPORT_FATE_REJECTED);
		break;
	case PUSH_RETRY:
		push_tell_failure(p, &r, !i->profile);
		on_retry(p, i, result->retry_after_ns);
		break;
	case PUSH_HOLD:
		if (i->generation != p->generation)
			break; /* that was about other settings: at once with these */
		push_tell_failure(p, &r, !i->profile);
		on_hold(p, i);
		break;
	case PUSH_ABSENT:
		on_absent(p, i, &r);
		break;
	}
	push_schedule(p);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void start(struct push_item *i)
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
	struct push_item *i, *following;

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

void push_schedule(struct push *p)
{
	uint64_t now = clock_mono_ns(), next = 0;
	int err;

	push_drop_old(p);
	if (push_is_ready(p))
		next = send_due(p);
	/* Also what only waits grows old. */
	if (p->nitems && (!next || next > now + 60 * NSEC_PER_SEC))
		next = now + 60 * NSEC_PER_SEC;
	err = loop_timer_at(p->timer, next);
	assert(!err); /* it is a timer */
}
