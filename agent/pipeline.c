#include "agent/pipeline.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/aggregate.h"
#include "agent/asks.h"
#include "agent/procs.h"
#include "agent/queue.h"
#include "agent/sample.h"
#include "agent/window.h"
#include "base/clock.h"

/* Samples of the last millisecond wait: records of other CPUs may still be on their way. */
#define TURN_MARGIN_NS NSEC_PER_MSEC
/* A sample that has waited this long for rows is unwound with what is there. */
#define PARKED_MAX_NS (10 * NSEC_PER_SEC)
#define SWEEP_INTERVAL_NS NSEC_PER_SEC
/* Where records are lost again and again, /proc is not read without end. */
#define RESCAN_INTERVAL_NS (10 * NSEC_PER_SEC)
/* Two windows: a program that starts again and again is parsed once. */
#define FILE_KEEP_NS (30 * NSEC_PER_SEC)
#define FILE_RETRY_NS NSEC_PER_SEC
/* Words of a cold stack that are asked along with the first missing row. */
enum { GUESSES_MAX = 48 };
enum { CLOSING_MAX = 4 };

struct pipeline {
	struct pipeline_conf conf;
	struct event_start start;
	struct files *files;
	struct procs *procs;
	struct queue *queue;
	struct asks *asks;
	struct aggregate *open;
	struct window *closing[CLOSING_MAX + 1];	/* being named, oldest first; one more for the last */
	uint32_t nclosing;
	struct event_window put_off;		/* what the next window is to begin with; duration 0: nothing */
	struct unwind_result *unwound;		/* scratch: large */
	struct sample_view *view;
	struct unwind_want guesses[GUESSES_MAX];
	struct msg_request request;
	uint64_t next_request, next_batch;
	uint64_t now_ns;			/* of the last turn */
	uint64_t swept_ns;
	uint64_t scan_started_ns;		/* of a scan that replaces what lost records made doubtful */
	bool rescanning;
	bool doubtful;				/* records were lost since that scan began */
	bool inside;				/* an event is being handled */
	struct pipeline_stats stats;
};

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

/* ---- files and mappings ---- */

static bool starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Source: the names that the kernel gives to mappings that are no file on disk. */
static enum map_kind kind_of(const struct event_map *m)
{
	static const char *const no_files[] = { "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]", "/i915",
						"/drm mm object" };

	if (strcmp(m->path, "[vdso]") == 0)
		return MAP_VDSO;
	if (m->path[0] != '/' || m->path[1] == '/' || !m->key.inode)
		return MAP_ANON;
	/* Devices only: places in a file are below 2^63. */
	if (m->end <= m->start || m->offset >= INT64_MAX - MIN(m->end - m->start, (uint64_t)INT64_MAX))
		return MAP_ANON;
	for (size_t i = 0; i < ARRAY_SIZE(no_files); i++) {
		if (starts_with(m->path, no_files[i]))
			return MAP_ANON;
	}
	return MAP_FILE;
}

static int ask_open(struct pipeline *p, struct file *file, const struct event_map *m)
{
	const struct proc *proc = procs_find(p->procs, m->pid);
	struct reader_open r = { .file_id = file->id, .start = m->start, .end = m->end, .offset = m->offset,
				 .key = file->key, .npids = 1, .pids = { m->pid }, .path = file->path };

	if (proc && proc->ppid > 1)
		r.pids[r.npids++] = proc->ppid;
	file->state = FILE_OPENING;
	return p->conf.ops->open(p->conf.arg, &r);
}

/* Whether the samples of a process can count; a process that we do not know yet may be a target's child. */
static bool may_count(const struct pipeline *p, uint32_t pid)
{
	const struct proc *proc = procs_find(p->procs, pid);

	return !p->start.ntargets || !proc || proc->target_at_exec || procs_target(p->procs, proc);
}

/*
 * The file of a mapping, and its opening as soon as anybody maps it: its process may be gone soon.
 * NULL: it has none, or the table of files is full.
 */
static int meet_file(struct pipeline *p, const struct event_map *m, enum map_kind kind, struct file **ret)
{
	static const struct file_key vdso_key;
	struct file *file;
	int err;

	*ret = NULL;
	if (kind == MAP_ANON)
		return 0;
	err = files_get(p->files, kind == MAP_VDSO ? &vdso_key : &m->key, m->path, &file);
	if (err)
		return err == -E2BIG ? 0 : err;
	*ret = file;
	if (file->state == FILE_FAILED && m->start && p->now_ns >= file->retry_at_ns) {
		file->rows = rows_free(file->rows);
		file->state = FILE_NEW;
	}
	return file->state == FILE_NEW && may_count(p, m->pid) ? ask_open(p, file, m) : 0;
}

static int add_map(struct pipeline *p, struct maps **maps, const struct event_map *m, struct file **ret_file)
{
	struct map map = { .start = m->start, .end = m->end, .offset = m->offset, .kind = kind_of(m) };
	int err = meet_file(p, m, map.kind, &map.file);

	if (err)
		return err;
	*ret_file = map.file;
	if (!map.file)
		map.kind = MAP_ANON;
	err = maps_add(maps, &map);
	/* A range that no kernel reports, or more mappings than we keep: the rest stays true. */
	return err == -EINVAL || err == -E2BIG ? 0 : err;
}

static int on_map(struct pipeline *p, const struct event *e)
{
	struct proc *proc;
	struct file *file;
	int err;

	if ((err = procs_get(p->procs, e->map.pid, e->time_ns, &proc)) ||
	    (err = add_map(p, &proc->maps, &e->map, &file)))
		return err;
	/* The first file that is mapped after an exec is the executable; of others the scan knows it. */
	if (file && proc->known_whole && !proc->subject->executable[0] && kind_of(&e->map) == MAP_FILE)
		return procs_set_executable(proc, e->map.path);
	return 0;
}

/* What /proc says of a process's mappings, in place of what we knew or below it. */
static int take_scanned_maps(struct pipeline *p, struct proc *proc, const struct event_process *from)
{
	CLEANUP(maps_unrefp) struct maps *maps = NULL;
	struct file *file;
	int err;

	err = maps_new(&maps);
	for (uint32_t i = 0; i < from->nmaps && !err; i++)
		err = add_map(p, &maps, &from->maps[i], &file);
	/* What the side-band said before the scan came to this process is newer than the scan, unless
	 * records were lost. */
	for (size_t i = 0; !p->rescanning && i < maps_count(proc->maps) && !err; i++) {
		err = maps_add(&maps, maps_at(proc->maps, i));
		err = err == -E2BIG ? 0 : err;
	}
	if (err)
		return err;
	maps_unref(proc->maps);
	proc->maps = TAKE(maps);
	return 0;
}

static int on_scanned_process(struct pipeline *p, const struct event *e)
{
	const struct event_process *from = &e->process;
	struct proc *proc;
	int err;

	err = procs_get(p->procs, from->pid, e->time_ns, &proc);
	if (err)
		return err;
	proc->scan_ns = e->time_ns;
	proc->ppid = from->ppid;
	if (proc->known_whole && !p->rescanning)
		return 0;
	/* Without any mapping it is a kernel thread, about to end, or one that must not be looked at. */
	if (from->nmaps && (err = take_scanned_maps(p, proc, from)))
		return err;
	proc->known_whole = true;
	proc->target = procs_target(p->procs, proc);
	if (p->rescanning && from->nmaps)
		procs_doubt(proc);
	if (from->executable[0] && strcmp(from->executable, proc->subject->executable) != 0) {
		/* Another one than we knew of: an exec was lost. */
		if (proc->subject->executable[0])
			err = procs_exec_unseen(p->procs, proc);
		if (!err)
			err = procs_set_executable(proc, from->executable);
	}
	if (from->kernel_thread)
		procs_set_kernel_thread(proc);
	return err;
}

static int on_process(struct pipeline *p, const struct event *e)
{
	if (e->process.pid)
		return on_scanned_process(p, e);
	/* The end of a scan: whom it did not meet is gone. */
	if (p->rescanning)
		procs_sweep_unscanned(p->procs, p->scan_started_ns);
	p->rescanning = false;
	return 0;
}

static int on_opened(struct pipeline *p, const struct event *e)
{
	CLEANUP_FD int fd = e->opened.fd;
	struct file *file = files_find(p->files, e->opened.file_id);

	if (!file || file->state != FILE_OPENING)
		return 0;
	if (e->opened.ok) {
		files_opened(p->files, file, &e->opened.identity, TAKE_FD(fd));
	} else {
		files_failed(p->files, file);
		file->retry_at_ns = p->now_ns + FILE_RETRY_NS;
	}
	return file->state == FILE_ALIAS || file->state == FILE_FAILED ? 1 : 0;
}

/* ---- side-band ---- */

static int apply_event(void *arg, const struct event *e)
{
	struct pipeline *p = arg;

	switch (e->type) {
	case EVENT_MAP:
		return on_map(p, e);
	case EVENT_COMM:
		return e->comm.exec ? procs_exec(p->procs, e->comm.pid, e->time_ns) : 0;
	case EVENT_FORK:
		if (e->fork.pid != e->fork.ppid)
			return procs_fork(p->procs, e->fork.pid, e->fork.ppid, e->time_ns);
		procs_thread_start(p->procs, e->fork.pid);
		return 0;
	case EVENT_EXIT:
		procs_thread_exit(p->procs, e->exit.pid, e->exit.tid == e->exit.pid, e->time_ns);
		return 0;
	default:
		return 0;
	}
}

/* Lost records make doubtful what we know. */
static int rescan_if_due(struct pipeline *p)
{
	if (!p->doubtful || p->rescanning ||
	    (p->scan_started_ns && p->now_ns - p->scan_started_ns < RESCAN_INTERVAL_NS))
		return 0;
	p->doubtful = false;
	p->rescanning = true;
	p->scan_started_ns = p->now_ns;
	return p->conf.ops->rescan(p->conf.arg);
}

static int on_lost(struct pipeline *p, const struct event_lost *lost)
{
	p->stats.sideband_lost += lost->count;
	p->doubtful = true;
	return rescan_if_due(p);
}

/* ---- samples ---- */

static void count_drop(struct pipeline *p, enum pipeline_drop why)
{
	p->stats.dropped[why]++;
}

static int aggregate_unwound(struct pipeline *p, struct subject *subject, const struct sample_view *v)
{
	struct aggregate_sample s = {
		.subject = subject, .tid = v->tid, .comm = v->comm, .period_ns = v->period_ns,
		.kernel = v->kernel, .nkernel = v->nkernel, .user = p->unwound->frames,
		.nuser = p->unwound->nframes, .outcome = p->unwound->outcome,
	};
	int err = aggregate_add(p->open, &s);

	if (err == -ENOSPC) {
		count_drop(p, PIPELINE_DROP_AGGREGATE_FULL);
		return 0;
	}
	if (err == -ENOMEM) {
		count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	if (err)
		return err;
	p->stats.samples++;
	p->stats.outcomes[p->unwound->outcome]++;
	p->stats.frames += v->nkernel + p->unwound->nframes;
	return 0;
}

/* A file that nobody who counted had mapped when it was first met. */
static int open_wanted(struct pipeline *p, const struct maps *maps, uint32_t pid, struct file *file)
{
	for (size_t i = 0; i < maps_count(maps); i++) {
		const struct map *map = maps_at(maps, i);
		struct event_map m = { .pid = pid, .start = map->start, .end = map->end, .offset = map->offset };

		if (map->file == file)
			return ask_open(p, file, &m);
	}
	return 0;
}

/*
 * Unwinds with what is known. 0: aggregated. 1: rows of p->unwound->want are missing, and they have
 * been wished for.
 */
static int try_sample(struct pipeline *p, const struct sample *s, const struct maps *maps,
		      struct subject *subject, bool settle, bool guess)
{
	struct sample_view *v = p->view;
	uint32_t nguesses = 0;
	int err;

	sample_view(s, v);
	if (unwind_run(&v->user, maps, settle, p->unwound) != UNWIND_WANT)
		return aggregate_unwound(p, subject, v);
	err = asks_want(p->asks, &p->unwound->want);
	if (!err && p->unwound->want.file->state == FILE_NEW)
		err = open_wanted(p, maps, subject->pid, p->unwound->want.file);
	if (err)
		return err;
	if (guess)
		nguesses = unwind_guess(&v->user, maps, p->guesses, GUESSES_MAX);
	for (uint32_t i = 0; i < nguesses && !err; i++)
		err = asks_want(p->asks, &p->guesses[i]);
	return err ? err : 1;
}

static int park(struct pipeline *p, struct sample **s, struct maps *maps, struct subject *subject)
{
	struct parked *parked = calloc(1, sizeof(*parked));

	if (!parked)
		return -ENOMEM;
	parked->sample = TAKE(*s);
	parked->maps = maps_ref(maps);
	parked->subject = subject_ref(subject);
	parked->file = file_ref(p->unwound->want.file);
	parked->since_ns = p->now_ns;
	asks_park(p->asks, parked);
	p->stats.parked++;
	return 0;
}

static int handle_sample(void *arg, struct sample *sample)
{
	CLEANUP(sample_freep) struct sample *s = sample;
	struct pipeline *p = arg;
	const struct abi_record *head = s->parts[0];
	struct proc *proc;
	int r;

	r = procs_get(p->procs, head->pid, s->time_ns, &proc);
	if (r == -ENOMEM) {
		count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	if (r)
		return r;
	if (p->start.ntargets && !proc->target)
		proc->target = procs_target(p->procs, proc);
	if (p->start.ntargets && !proc->target) {
		count_drop(p, PIPELINE_DROP_FILTERED);
		return 0;
	}
	/* One that was born after the scan. Workers of a process have its pid, kernel threads their own. */
	if (head->flags & ABI_F_KERNEL_THREAD && head->pid == head->tid)
		procs_set_kernel_thread(proc);
	if (!proc->subject->cgroup_id)
		proc->subject->cgroup_id = head->cgroup_id;
	r = try_sample(p, s, proc->maps, proc->subject, false, true);
	if (r == 1)
		r = park(p, &s, proc->maps, proc->subject);
	if (r == -ENOMEM) {
		count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	return r;
}

/* Tries parked samples (a list of ours) again; those that want more rows are parked again. */
static int retry(struct pipeline *p, struct parked *list, bool settle)
{
	int err = 0;

	for (struct parked *next; list; list = next) {
		bool late = settle || p->now_ns - MIN(p->now_ns, list->since_ns) > PARKED_MAX_NS;
		int r = err ? err : try_sample(p, list->sample, list->maps, list->subject, late, false);

		next = list->next;
		if (r == 1) {
			file_unref(list->file);
			list->file = file_ref(p->unwound->want.file);
			asks_park(p->asks, list);
			continue;
		}
		if (r == -ENOMEM) {
			count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
			r = 0;
		}
		parked_free(list);
		err = err ? err : r;
	}
	return err;
}

static int settle_overdue(struct pipeline *p, uint64_t before_ns)
{
	struct parked *late;
	int err = 0;

	while (!err && (late = asks_overdue(p->asks, before_ns)))
		err = retry(p, late, true);
	return err;
}

/* ---- questions and answers ---- */

static int ask_rows(struct pipeline *p)
{
	struct file *file;
	int err = 0;

	while (!err && asks_next(p->asks, &p->request, &file)) {
		if (file->state == FILE_OPEN) {
			p->request.id = p->next_request++;
			err = p->conf.ops->rows(p->conf.arg, &p->request, file->fd);
			continue;
		}
		/* Failed, or found to be another file: whoever waits finds out by trying again. */
		file_ref(file);
		asks_forget(p->asks, file);
		err = retry(p, asks_take(p->asks, file), false);
		file_unref(file);
	}
	return err;
}

static int on_rows(struct pipeline *p, const struct event_answer *a)
{
	struct file *file = files_find(p->files, a->request->file_id);
	struct msg_rows rows = { 0 };
	struct bufr in;
	int err;

	if (!file)
		return 0;
	bufr_init(&in, a->data, a->len);
	err = msg_rows_decode(&in, &rows);
	if (err == -EBADMSG || (!err && (rows.id != a->request->id || rows.file_id != file->id ||
					 (rows.result == MSG_FILE_OK && rows.nresults != a->request->naddrs)))) {
		/* The symbolizer parses strangers' files: what it says may be nonsense. */
		msg_rows_fini(&rows);
		rows = (struct msg_rows){ .file_id = file->id, .result = MSG_FILE_UNREADABLE };
		err = 0;
	}
	if (!err && !file->rows)
		err = rows_new(&file->rows);
	if (!err)
		err = rows_put(file->rows, a->request->addrs, a->request->naddrs, &rows);
	msg_rows_fini(&rows);
	if (err)
		return err;
	asks_answered(p->asks, file);
	return retry(p, asks_take(p->asks, file), false);
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

static const struct queue_ops queue_ops = { .event = apply_event, .sample = handle_sample };

static void sweep(struct pipeline *p)
{
	p->swept_ns = p->now_ns;
	files_sweep(p->files, p->now_ns, FILE_KEEP_NS);
	procs_sweep_exited(p->procs, p->now_ns);
	p->stats.rows_evicted += files_limit_rows(p->files, p->conf.rows_max_bytes);
}

static int on_turn(struct pipeline *p, uint64_t time_ns)
{
	uint64_t until = time_ns == UINT64_MAX ? time_ns : time_ns - MIN(time_ns, TURN_MARGIN_NS);
	int err;

	if (time_ns != UINT64_MAX)
		p->now_ns = time_ns;
	if ((err = queue_run(p->queue, until, &queue_ops, p)) ||
	    (err = settle_overdue(p, p->now_ns - MIN(p->now_ns, PARKED_MAX_NS))))
		return err;
	if (p->now_ns - p->swept_ns >= SWEEP_INTERVAL_NS)
		sweep(p);
	return rescan_if_due(p);
}

static int on_window(struct pipeline *p, const struct event_window *ended)
{
	uint64_t period_ns = NSEC_PER_SEC / MAX(p->start.hz, 1u);
	CLEANUP(aggregate_freep) struct aggregate *next = NULL;
	struct event_window when = *ended;
	struct window *w;
	int err;

	if (when.last && ((err = on_turn(p, UINT64_MAX)) || (err = settle_overdue(p, UINT64_MAX))))
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

/* The file that a mapping names is opened at once; the mapping itself waits for its turn. */
static int on_sideband(struct pipeline *p, const struct event *e)
{
	struct file *file;
	int err = 0;

	if (e->type == EVENT_MAP)
		err = meet_file(p, &e->map, kind_of(&e->map), &file);
	return err ? err : queue_add_event(p->queue, e);
}

static int on_record(struct pipeline *p, const struct event_sample *s)
{
	int r;

	p->stats.records++;
	if (queue_bytes(p->queue) > p->conf.queue_max_bytes) {
		if (s->len >= sizeof(*s->record) && s->record->part == 0)
			count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	r = queue_add_record(p->queue, s->record, s->len);
	if (r == -ENOMEM && s->record->part == 0) {
		count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
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
		return on_process(p, e);
	case EVENT_MAP:
	case EVENT_COMM:
	case EVENT_FORK:
	case EVENT_EXIT:
		return on_sideband(p, e);
	case EVENT_LOST:
		return on_lost(p, &e->lost);
	case EVENT_SAMPLE:
		return on_record(p, &e->sample);
	case EVENT_TURN:
		return on_turn(p, e->time_ns);
	case EVENT_OPENED: {
		struct file *file = files_find(p->files, e->opened.file_id);

		r = on_opened(p, e);
		if (r != 1)
			return r;
		/* Failed, or another file's alias: whoever waits for it tries again. */
		asks_forget(p->asks, file);
		return retry(p, asks_take(p->asks, file), false);
	}
	case EVENT_ROWS:
		return on_rows(p, &e->answer);
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
		err = ask_rows(p);
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
