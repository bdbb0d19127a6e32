#include "agent/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/pipeline_state.h"
#include "base/clock.h"

/* Samples of the last millisecond wait: records of other CPUs may still be on their way. */
#define TURN_MARGIN_NS NSEC_PER_MSEC
#define SWEEP_INTERVAL_NS NSEC_PER_SEC
/* Two windows: a program that starts again and again is parsed once. */
#define FILE_KEEP_NS (30 * NSEC_PER_SEC)

const char *pipeline_drop_text(enum pipeline_drop d)
{
	static const char *const texts[] = {
#define X(id, text) [PIPELINE_DROP_##id] = text,
		PIPELINE_DROPS(X)
#undef X
	};

	return texts[d];
}

int pipeline_new(struct pipeline **ret, const struct pipeline_conf *conf)
{
	CLEANUP(pipeline_freep) struct pipeline *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->conf = *conf;
	p->conf.parked_max_bytes = conf->parked_max_bytes ? conf->parked_max_bytes : 8u << 20;
	p->conf.aggregate_max_bytes = conf->aggregate_max_bytes ? conf->aggregate_max_bytes : 16u << 20;
	p->conf.rows_max_bytes = conf->rows_max_bytes ? conf->rows_max_bytes : 12u << 20;
	p->conf.queue_max_bytes = conf->queue_max_bytes ? conf->queue_max_bytes : 64u << 20;
	p->next_request = 1;
	p->next_batch = 1;
	p->unwound = malloc(sizeof(*p->unwound));
	p->view = calloc(1, sizeof(*p->view));
	if (!p->unwound || !p->view)
		return -ENOMEM;
	if ((err = files_new(&p->files)) || (err = procs_new(&p->procs)) || (err = queue_new(&p->queue)) ||
	    (err = asks_new(&p->asks, p->conf.parked_max_bytes)) ||
	    (err = aggregate_new(&p->open, p->conf.aggregate_max_bytes)))
		return err;
	*ret = TAKE(p);
	return 0;
}

struct pipeline *pipeline_free(struct pipeline *p)
{
	if (!p)
		return NULL;
	for (uint32_t i = 0; i < p->nclosing; i++)
		window_free(p->closing[i]);
	aggregate_free(p->open);
	asks_free(p->asks);
	queue_free(p->queue);
	procs_free(p->procs);
	files_free(p->files);
	free(p->unwound);
	free(p->view);
	free(p);
	return NULL;
}

static int finish_windows(struct pipeline *p)
{
	while (p->nclosing && window_ready(p->closing[0])) {
		const struct export_batch *batch;
		int err = window_build(p->closing[0], &batch);

		if (!err)
			err = p->conf.ops->batch(p->conf.arg, batch);
		if (err)
			return err;
		window_free(p->closing[0]);
		p->nclosing--;
		memmove(p->closing, p->closing + 1, p->nclosing * sizeof(*p->closing));
	}
	return 0;
}

static int on_names(struct pipeline *p, const struct event_answer *a)
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
	for (uint32_t i = 0; i < p->nclosing && r == 0; i++)
		r = window_names(p->closing[i], a->request, &names);
	msg_names_fini(&names);
	return r < 0 ? r : finish_windows(p);
}

static int on_kernel(struct pipeline *p, const struct event_kernel *k)
{
	int r = 0;

	for (uint32_t i = 0; i < p->nclosing && r == 0; i++)
		r = window_kernel(p->closing[i], k);
	return r < 0 ? r : finish_windows(p);
}

/* ---- turns and windows ---- */

static const struct queue_ops queue_ops = { .event = pipeline_apply_sideband,
					     .sample = pipeline_unwind_sample };

static int sweep(struct pipeline *p)
{
	p->swept_ns = p->now_ns;
	files_sweep(p->files, p->now_ns, FILE_KEEP_NS);
	procs_sweep_exited(p->procs, p->now_ns);
	p->stats.rows_evicted += files_limit_rows(p->files, p->conf.rows_max_bytes);
	return pipeline_retry_files(p);
}

static int on_turn(struct pipeline *p, uint64_t time_ns)
{
	uint64_t until = time_ns == UINT64_MAX ? time_ns : time_ns - MIN(time_ns, TURN_MARGIN_NS);
	int err;

	if (time_ns != UINT64_MAX)
		p->now_ns = time_ns;
	if ((err = queue_run(p->queue, until, &queue_ops, p)) ||
	    (err = pipeline_settle_overdue(p, p->now_ns - MIN(p->now_ns, PARKED_MAX_NS))))
		return err;
	if (p->now_ns - p->swept_ns >= SWEEP_INTERVAL_NS && (err = sweep(p)))
		return err;
	return pipeline_rescan_if_due(p);
}

static int on_window(struct pipeline *p, const struct event_window *ended)
{
	uint64_t period_ns = NSEC_PER_SEC / MAX(p->start.hz, 1u);
	CLEANUP(aggregate_freep) struct aggregate *next = NULL;
	struct event_window when = *ended;
	struct window *w;
	int err;

	if (when.last && ((err = on_turn(p, UINT64_MAX)) || (err = pipeline_settle_overdue(p, UINT64_MAX))))
		return err;
	if (p->put_off.duration_ns) {
		when.wall_start_ns = p->put_off.wall_start_ns;
		when.duration_ns += p->put_off.duration_ns;
	}
	if (p->nclosing >= CLOSING_MAX + (when.last ? 1u : 0u)) {
		p->put_off = when; /* the symbolizer is far behind: this window goes on and nothing is lost */
		return 0;
	}
	p->put_off.duration_ns = 0;
	if ((err = aggregate_new(&next, p->conf.aggregate_max_bytes)) ||
	    (err = window_new(&w, &p->open, &when, period_ns, p->next_batch++)))
		return err;
	p->open = TAKE(next);
	p->closing[p->nclosing++] = w;
	err = window_ask(w, p->conf.ops, p->conf.arg, &p->next_request);
	return err ? err : finish_windows(p);
}

static int on_record(struct pipeline *p, const struct event_sample *s)
{
	int r;

	p->stats.records++;
	if (queue_bytes(p->queue) > p->conf.queue_max_bytes) {
		if (s->len >= sizeof(*s->record) && s->record->part == 0)
			pipeline_count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	r = queue_add_record(p->queue, s->record, s->len);
	if (r == -ENOMEM && s->record->part == 0) {
		pipeline_count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	p->stats.malformed += r == 1;
	return r < 0 && r != -ENOMEM ? r : 0;
}

static int on_start(struct pipeline *p, const struct event *e)
{
	p->start = e->start;
	p->now_ns = p->swept_ns = e->time_ns;
	for (uint32_t i = 0; i < p->start.ntargets; i++) {
		struct proc *proc;
		int err = procs_get(p->procs, p->start.targets[i], e->time_ns, &proc);

		if (err)
			return err;
		proc->target = !p->start.after_exec;
		proc->target_at_exec = p->start.after_exec;
	}
	return 0;
}

static void on_counters(struct pipeline *p, const struct event_counters *c)
{
	for (uint32_t i = 0; i < MIN(c->n, (uint32_t)ABI_CNT_COUNT); i++)
		p->stats.counters[i] = c->values[i];
}

static int handle(struct pipeline *p, const struct event *e)
{
	int r;

	switch (e->type) {
	case EVENT_START:
		return on_start(p, e);
	case EVENT_PROCESS:
		return pipeline_take_process(p, e);
	case EVENT_MAP:
	case EVENT_COMM:
	case EVENT_FORK:
	case EVENT_EXIT:
		return pipeline_take_sideband(p, e);
	case EVENT_LOST:
		return pipeline_take_lost(p, &e->lost);
	case EVENT_SAMPLE:
		return on_record(p, &e->sample);
	case EVENT_TURN:
		return on_turn(p, e->time_ns);
	case EVENT_OPENED: {
		struct file *file = files_find(p->files, e->opened.file_id);

		r = pipeline_take_opened(p, e);
		if (r != 1)
			return r;
		/* Failed, or another file's alias: whoever waits for it tries again. */
		asks_forget(p->asks, file);
		return pipeline_retry(p, asks_take(p->asks, file), false);
	}
	case EVENT_ROWS:
		return pipeline_take_rows(p, &e->answer);
	case EVENT_NAMES:
		return on_names(p, &e->answer);
	case EVENT_KERNEL:
		return on_kernel(p, &e->kernel);
	case EVENT_COUNTERS:
		on_counters(p, &e->counters);
		return 0;
	case EVENT_WINDOW:
		return on_window(p, &e->window);
	case EVENT_TYPE_COUNT:
		break;
	}
	return -EINVAL;
}

/* Only these make wishes for rows, or files that can be asked. */
static bool may_ask_rows(enum event_type type)
{
	return type == EVENT_TURN || type == EVENT_OPENED || type == EVENT_ROWS || type == EVENT_WINDOW;
}

int pipeline_event(struct pipeline *p, const struct event *e)
{
	int err;

	assert(!p->inside); /* an answer came inside its question */
	p->inside = true;
	err = handle(p, e);
	if (!err && may_ask_rows(e->type))
		err = pipeline_ask_rows(p);
	p->inside = false;
	return err;
}

bool pipeline_idle(const struct pipeline *p)
{
	return asks_nparked(p->asks) == 0 && !p->nclosing;
}

const struct pipeline_stats *pipeline_stats(const struct pipeline *p)
{
	return &p->stats;
}

size_t pipeline_bytes(const struct pipeline *p)
{
	return files_bytes(p->files) + procs_bytes(p->procs) + queue_bytes(p->queue) + asks_bytes(p->asks) +
	       aggregate_bytes(p->open) + sizeof(*p->unwound) + sizeof(*p->view) + sizeof(*p);
}
