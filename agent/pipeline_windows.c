#include "agent/pipeline_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* When we are about to end, or somebody waits for a tap, labels are not waited for any longer than this. */
#define LABELS_WAIT_SHORT_NS NSEC_PER_SEC
/* After its end a tap waits so long for samples that are still on their way. */
#define TAP_SETTLE_NS (2 * NSEC_PER_SEC)
#define TAP_MAX_NS (600 * NSEC_PER_SEC)

/* Bytes of all taps together, and of each at least. */
enum { TAPS_BYTES = 16 * 1024 * 1024, TAP_BYTES_MIN = 512 * 1024 };

/* ---- named and labelled ---- */

static uint64_t passed_ns(const struct pipeline *p, uint64_t since_ns)
{
	return p->now_ns - MIN(p->now_ns, since_ns);
}

static bool waited_for_labels(const struct pipeline *p, const struct closing *c)
{
	uint64_t long_ns = p->start.labels_wait_ns, short_ns = MIN(long_ns, LABELS_WAIT_SHORT_NS);

	if (p->last_ended_ns && passed_ns(p, p->last_ended_ns) >= short_ns)
		return true;
	return passed_ns(p, c->ended_ns) >= (c->tap ? short_ns : long_ns);
}

static bool ready(const struct pipeline *p, const struct closing *c)
{
	if (p->hurried)
		return true;
	if (!p->start.labels_wait_ns)
		return window_named(c->window);
	if (!window_named(c->window))
		return passed_ns(p, c->ended_ns) >= p->start.labels_wait_ns;
	return window_labelled(c->window) || waited_for_labels(p, c);
}

static int hand_on(struct pipeline *p, struct closing *c)
{
	const struct export_batch *batch;
	uint32_t nunnamed = 0;
	int err = window_give_up_names(c->window, &nunnamed);

	if (!err)
		err = window_build(c->window, &batch);
	if (err)
		return err;
	p->stats.excluded += c->tap ? 0 : window_nexcluded(c->window);
	err = p->conf.ops->batch(p->conf.arg, batch);
	if (err)
		return err;
	if (!c->tap) {
		p->stats.windows++;
		p->stats.names_late += nunnamed;
		p->stats.labels_late += p->start.labels_wait_ns ? window_nunlabelled(c->window) : 0;
	}
	c->window = window_free(c->window);
	return 0;
}

int pipeline_finish_windows(struct pipeline *p)
{
	bool blocked = false; /* windows keep their order, taps have none */
	uint32_t kept = 0;
	int err = 0;

	for (uint32_t i = 0; i < p->nclosing; i++) {
		struct closing *c = &p->closing[i];

		if (!err && (c->tap || !blocked) && ready(p, c))
			err = hand_on(p, c);
		if (!c->window)
			continue;
		blocked |= !c->tap;
		p->closing[kept++] = *c;
	}
	p->nclosing = kept;
	return err;
}

int pipeline_take_names(struct pipeline *p, const struct event_answer *a)
{
	struct msg_names names = { 0 };
	struct bufr in;
	int r;

	bufr_init(&in, a->data, a->len);
	r = msg_names_decode(&in, &names);
	if (r == -EBADMSG || (!r && (names.id != a->request->id || names.file_id != a->request->file_id))) {
		msg_names_fini(&names);
		names = (struct msg_names){ .result = MSG_FILE_UNREADABLE };
		r = 0;
	}
	for (uint32_t i = 0; i < p->nclosing && r == 0; i++) {
		r = window_names(p->closing[i].window, a->request, &names);
		if (r > 0 && !p->closing[i].tap)
			p->stats.names_cut += names.ncut;
	}
	msg_names_fini(&names);
	return r < 0 ? r : pipeline_finish_windows(p);
}

/* Kernel questions have no ids: their answers come in order, which is that of `closing`. */
int pipeline_take_kernel(struct pipeline *p, const struct event_kernel *k)
{
	int r = 0;

	for (uint32_t i = 0; i < p->nclosing && r == 0; i++)
		r = window_kernel(p->closing[i].window, k);
	return r < 0 ? r : pipeline_finish_windows(p);
}

/* ---- closing ---- */

static uint32_t nclosing_windows(const struct pipeline *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->nclosing; i++)
		n += !p->closing[i].tap;
	return n;
}

/* Takes the stacks. */
static int close_stacks(struct pipeline *p, struct aggregate **stacks, struct window_head head,
			struct closing c)
{
	int err;

	assert(p->nclosing < ARRAY_SIZE(p->closing));
	head.id = p->next_batch++;
	head.tap = c.tap;
	head.period_ns = NSEC_PER_SEC / MAX(p->start.hz, 1u);
	err = window_new(&c.window, stacks, &head);
	if (err)
		return err;
	p->closing[p->nclosing++] = c;
	return window_ask(c.window, p->conf.ops, p->conf.arg, &p->next_request);
}

int pipeline_end_window(struct pipeline *p, const struct event_window *ended, uint64_t time_ns)
{
	CLEANUP(aggregate_freep) struct aggregate *next = NULL, *stacks = NULL;
	struct event_window when = *ended;
	int err;

	if (p->put_off.duration_ns) {
		when.wall_start_ns = p->put_off.wall_start_ns;
		when.duration_ns = MIN(when.duration_ns + p->put_off.duration_ns, (uint64_t)INT64_MAX);
	}
	if (nclosing_windows(p) >= CLOSING_MAX + (when.last ? 1u : 0u)) {
		p->put_off = when; /* the symbolizer is far behind: this window goes on and nothing is lost */
		return 0;
	}
	p->put_off.duration_ns = 0;
	err = aggregate_new(&next, p->conf.aggregate_max_bytes);
	if (err)
		return err;
	stacks = TAKE(p->open);
	p->open = TAKE(next);
	err = close_stacks(p, &stacks, (struct window_head){ .wall_start_ns = when.wall_start_ns,
							     .duration_ns = when.duration_ns },
			   (struct closing){ .ended_ns = time_ns });
	return err ? err : pipeline_finish_windows(p);
}

/* ---- taps ---- */

/* Half of what is left when each of those that may follow has its least. */
static size_t tap_budget(const struct pipeline *p, uint32_t ntaps)
{
	size_t left = TAPS_BYTES - (EXPORT_TAPS_MAX - ntaps) * (size_t)TAP_BYTES_MIN;

	for (uint32_t i = 0; i < p->ntaps; i++)
		left -= p->taps[i].budget;
	for (uint32_t i = 0; i < p->nclosing; i++)
		left -= p->closing[i].budget;
	return TAP_BYTES_MIN + left / 2;
}

static bool tap_is_known(const struct pipeline *p, uint64_t id)
{
	for (uint32_t i = 0; i < p->ntaps; i++) {
		if (p->taps[i].id == id)
			return true;
	}
	for (uint32_t i = 0; i < p->nclosing; i++) {
		if (p->closing[i].tap == id)
			return true;
	}
	return false;
}

static void refuse_tap(struct pipeline *p, uint64_t id, enum export_refusal why)
{
	p->stats.taps_refused[why]++;
	if (p->conf.ops->refused)
		p->conf.ops->refused(p->conf.arg, &(struct export_tap_refused){ .id = id, .why = why });
}

void pipeline_begin_tap(struct pipeline *p, const struct event_tap *tap, uint64_t time_ns)
{
	uint32_t ntaps = p->ntaps + p->nclosing - nclosing_windows(p);
	struct tap t = { .id = tap->id, .start_ns = time_ns, .duration_ns = tap->duration_ns,
			 .wall_start_ns = tap->wall_start_ns };

	if (tap_is_known(p, tap->id))
		return; /* its batch will come */
	if (!tap->id || !tap->duration_ns || tap->duration_ns > TAP_MAX_NS || tap->duration_ns > UINT64_MAX - time_ns)
		return refuse_tap(p, tap->id, EXPORT_REFUSAL_INVALID);
	if (ntaps >= EXPORT_TAPS_MAX)
		return refuse_tap(p, tap->id, EXPORT_REFUSAL_TOO_MANY);
	t.budget = tap_budget(p, ntaps);
	if (aggregate_new(&t.stacks, t.budget))
		return refuse_tap(p, tap->id, EXPORT_REFUSAL_NO_MEMORY);
	p->taps[p->ntaps++] = t;
	p->stats.taps++;
}

void pipeline_feed_taps(struct pipeline *p, const struct aggregate_sample *s, uint64_t time_ns)
{
	for (uint32_t i = 0; i < p->ntaps; i++) {
		struct tap *t = &p->taps[i];

		if (time_ns < t->start_ns || time_ns - t->start_ns >= t->duration_ns)
			continue;
		p->stats.taps_full += aggregate_add(t->stacks, s) != 0;
	}
}

/* Takes what the tap holds. */
static int close_tap(struct pipeline *p, struct tap *t, uint64_t end_ns)
{
	CLEANUP(aggregate_freep) struct aggregate *stacks = TAKE(t->stacks);
	struct closing c = { .ended_ns = end_ns, .tap = t->id, .budget = t->budget };

	return close_stacks(p, &stacks, (struct window_head){ .wall_start_ns = t->wall_start_ns,
							      .duration_ns = end_ns - t->start_ns }, c);
}

int pipeline_end_taps(struct pipeline *p, uint64_t until_ns)
{
	uint32_t kept = 0;
	int err = 0;

	for (uint32_t i = 0; i < p->ntaps; i++) {
		struct tap t = p->taps[i];
		uint64_t end_ns = t.start_ns + t.duration_ns;
		bool over = until_ns >= end_ns;

		if (over && passed_ns(p, end_ns) < TAP_SETTLE_NS)
			over = MIN(queue_oldest_ns(p->queue), asks_oldest_ns(p->asks)) >= end_ns;
		if (over && !err)
			err = close_tap(p, &t, end_ns);
		else
			p->taps[kept++] = t;
	}
	p->ntaps = kept;
	return err;
}

/* Nothing is sampled any more: each is handed on with the time that it really had. */
int pipeline_cut_taps(struct pipeline *p, uint64_t now_ns)
{
	int err = 0;

	for (uint32_t i = 0; i < p->ntaps; i++) {
		struct tap *t = &p->taps[i];
		uint64_t passed = now_ns - MIN(now_ns, t->start_ns);

		if (passed && !err)
			err = close_tap(p, t, t->start_ns + MIN(passed, t->duration_ns));
		t->stacks = aggregate_free(t->stacks);
	}
	p->ntaps = 0;
	return err;
}
