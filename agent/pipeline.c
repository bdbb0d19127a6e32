#include "agent/pipeline.h"

#include <assert.h>
#include <errno.h>

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

static void tell_learned(void *arg, uint32_t tid, const struct abi_learned *l)
{
	struct pipeline *p = arg;

	if (p->conf.ops->learn)
		p->conf.ops->learn(p->conf.arg, tid, l);
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
	p->relabeling = 1;
	p->unwound = malloc(sizeof(*p->unwound));
	p->view = calloc(1, sizeof(*p->view));
	if (!p->unwound || !p->view)
		return -ENOMEM;
	if ((err = files_new(&p->files)) || (err = files_new_from(&p->jits, PIPELINE_JIT_IDS)) || (err = procs_new(&p->procs)) || (err = queue_new(&p->queue)) ||
	    (err = asks_new(&p->asks, p->conf.parked_max_bytes)) ||
	    (err = learn_new(&p->learn, tell_learned, p)) || (err = pending_new(&p->pending)) || (err = aggregate_new(&p->open, p->conf.aggregate_max_bytes)))
		return err;
	procs_on_end(p->procs, pipeline_process_ends, p);
	*ret = TAKE(p);
	return 0;
}

struct pipeline *pipeline_free(struct pipeline *p)
{
	if (!p)
		return NULL;
	for (uint32_t i = 0; i < p->nclosing; i++)
		window_free(p->closing[i].window);
	for (uint32_t i = 0; i < p->ntaps; i++)
		aggregate_free(p->taps[i].stacks);
	aggregate_free(p->open);
	pipeline_looks_free(p);
	learn_free(p->learn);
	pending_free(p->pending);
	asks_free(p->asks);
	queue_free(p->queue);
	procs_free(p->procs);
	files_free(p->jits);
	files_free(p->files);
	free(p->unwound);
	free(p->view);
	free(p);
	return NULL;
}

/* ---- turns and windows ---- */

static const struct queue_ops queue_ops = { .event = pipeline_apply_sideband,
					     .sample = pipeline_unwind_sample };

static int sweep(struct pipeline *p)
{
	p->swept_ns = p->now_ns;
	files_sweep(p->files, p->now_ns, FILE_KEEP_NS);
	files_sweep(p->jits, p->now_ns, 0);
	procs_sweep_exited(p->procs, p->now_ns);
	pipeline_sweep_labels(p);
	pipeline_sweep_learned(p);
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
	if ((err = pipeline_announce(p)) || (time_ns != UINT64_MAX && (err = pipeline_end_taps(p, until))) ||
	    (err = pipeline_finish_windows(p)))
		return err;
	return pipeline_rescan_if_due(p);
}

static int on_window(struct pipeline *p, const struct event *e)
{
	int err;

	if (e->window.last && p->last_ended_ns) {
		p->hurried = true;
		return pipeline_finish_windows(p);
	}
	if (e->window.last) {
		p->last_ended_ns = MAX(e->time_ns, (uint64_t)1);
		if ((err = on_turn(p, UINT64_MAX)) || (err = pipeline_settle_overdue(p, UINT64_MAX)) ||
		    (err = pipeline_cut_taps(p, e->time_ns)))
			return err;
	}
	return pipeline_end_window(p, &e->window, e->time_ns);
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
		return pipeline_retry_file(p, file);
	}
	case EVENT_ROWS:
		return pipeline_take_rows(p, &e->answer);
	case EVENT_NAMES:
		return pipeline_take_names(p, &e->answer);
	case EVENT_KERNEL:
		return pipeline_take_kernel(p, &e->kernel);
	case EVENT_COUNTERS:
		on_counters(p, &e->counters);
		return 0;
	case EVENT_WINDOW:
		return on_window(p, e);
	case EVENT_LABELS:
		return pipeline_take_labels(p, &e->labels);
	case EVENT_RELABEL:
		return pipeline_relabel(p);
	case EVENT_TAP:
		pipeline_begin_tap(p, &e->tap, e->time_ns);
		return 0;
	case EVENT_MEMORY:
		return pipeline_take_memory(p, &e->memory);
	case EVENT_TYPE_COUNT:
		break;
	}
	return -EINVAL;
}

/* Only these make wishes for rows, or files that can be asked. */
static bool may_ask_rows(enum event_type type)
{
	return type == EVENT_TURN || type == EVENT_OPENED || type == EVENT_ROWS || type == EVENT_WINDOW ||
	       type == EVENT_MEMORY;
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
	for (uint32_t i = 0; i < p->nclosing; i++) {
		if (!window_named(p->closing[i].window))
			return false;
	}
	return asks_nparked(p->asks) == 0;
}

const struct pipeline_stats *pipeline_stats(const struct pipeline *p)
{
	return &p->stats;
}

size_t pipeline_bytes(const struct pipeline *p)
{
	size_t bytes = files_bytes(p->files) + files_bytes(p->jits) + files_rows_bytes(p->files) + procs_bytes(p->procs) +
		       queue_bytes(p->queue) + asks_bytes(p->asks) + pending_bytes(p->pending) +
		       pipeline_looks_bytes(p) +
		       aggregate_bytes(p->open) + sizeof(*p->unwound) + sizeof(*p->view) + sizeof(*p);

	for (uint32_t i = 0; i < p->ntaps; i++)
		bytes += aggregate_bytes(p->taps[i].stacks);
	for (uint32_t i = 0; i < p->nclosing; i++)
		bytes += window_bytes(p->closing[i].window);
	return bytes;
}
