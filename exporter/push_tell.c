#include "exporter/push_state.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* One line a minute for each kind of failure; the rarest place is given to a new one. */
static struct log_limit *limit_of(struct push *p, int kind)
{
	struct push_kind *k = &p->kinds[0];

	for (size_t i = 0; i < PUSH_KINDS_MAX; i++) {
		if (p->kinds[i].kind == kind)
			return &p->kinds[i].limit;
		if (p->kinds[i].limit.start_ns < k->limit.start_ns)
			k = &p->kinds[i];
	}
	*k = (struct push_kind){ kind, { .interval_ns = 60 * NSEC_PER_SEC, .burst = 1 } };
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

void push_tell_failure(struct push *p, struct push_reply *r, bool is_probe)
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

void push_tell_recovery(struct push *p)
{
	uint64_t ns = clock_mono_ns() - p->failing_since_ns;

	log_info("an endpoint takes profiles again endpoint=%s after_s=%llu waiting=%zu",
		 LOG_STR(p->name), (unsigned long long)(ns / NSEC_PER_SEC), p->nitems);
	p->is_failure_told = false;
}

bool push_is_ready(struct push *p)
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
