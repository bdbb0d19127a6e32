#include "agent/pipeline_state.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* Where records are lost again and again, /proc is not read without end. */
#define RESCAN_INTERVAL_NS (10 * NSEC_PER_SEC)
/*
 * A file that could not be opened: its process was gone, or its file system did not answer. The next
 * process that maps it is asked almost at once; a file that fails again and again more and more rarely.
 */
#define FILE_RETRY_MIN_NS (20 * NSEC_PER_MSEC)
#define FILE_RETRY_MAX_NS (60 * NSEC_PER_SEC)

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

static void fail_file(struct pipeline *p, struct file *file)
{
	uint64_t wait_ns = FILE_RETRY_MIN_NS << MIN(file->nfailures, 20u);

	files_failed(p->files, file);
	file->retry_at_ns = p->now_ns + MIN(wait_ns, FILE_RETRY_MAX_NS);
	file->nfailures++;
}

static int ask_open(struct pipeline *p, struct file *file, const struct event_map *m)
{
	const struct proc *proc = procs_find(p->procs, m->pid);
	struct reader_open r = { .file_id = file->id, .start = m->start, .end = m->end, .offset = m->offset,
				 .key = file->key, .npids = 1, .pids = { m->pid }, .path = file->path };

	if (proc && proc->ppid > 1)
		r.pids[r.npids++] = proc->ppid;
	if (p->start.files_max && !files_room(p->files, p->start.files_max)) {
		file->state = FILE_OPENING;
		fail_file(p, file);
		p->stats.files_refused++;
		return 0;
	}
	file->state = FILE_OPENING;
	return p->conf.ops->open(p->conf.arg, &r);
}

/* Whether the samples of a process can count; a process that we do not know yet may be a target's child. */
static bool may_count(const struct pipeline *p, uint32_t pid)
{
	const struct proc *proc = procs_find(p->procs, pid);

	return !p->start.ntargets || !proc || proc->target_at_exec || procs_target(p->procs, proc);
}

static bool forgive_failure(const struct pipeline *p, struct file *file)
{
	if (file->state != FILE_FAILED || p->now_ns < file->retry_at_ns)
		return false;
	file->rows = rows_free(file->rows);
	file->state = FILE_NEW;
	return true;
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
	if (m->start)
		forgive_failure(p, file);
	return file->state == FILE_NEW && may_count(p, m->pid) ? ask_open(p, file, m) : 0;
}

/* A file that nobody who counted had mapped when it was first met. */
int pipeline_open_wanted(struct pipeline *p, const struct maps *maps, uint32_t pid, struct file *file)
{
	for (size_t i = 0; i < maps_count(maps); i++) {
		const struct map *map = maps_at(maps, i);
		struct event_map m = { .pid = pid, .start = map->start, .end = map->end, .offset = map->offset };

		if (map->file == file)
			return ask_open(p, file, &m);
	}
	return 0;
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
	if (p->start.ntargets)
		pipeline_filter(p, proc);
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

static void count_due(void *arg, struct file *file)
{
	struct pipeline *p = arg;

	p->nfailed_due += file->state == FILE_FAILED && p->now_ns >= file->retry_at_ns;
}

static int retry_files_of(void *arg, struct proc *proc)
{
	struct pipeline *p = arg;
	int err = 0;

	for (size_t i = 0; i < maps_count(proc->maps) && p->nfailed_due && !err; i++) {
		struct file *file = maps_at(proc->maps, i)->file;

		if (!file || !may_count(p, proc->pid) || !forgive_failure(p, file))
			continue;
		p->nfailed_due--;
		err = pipeline_open_wanted(p, proc->maps, proc->pid, file);
	}
	return err;
}

int pipeline_retry_files(struct pipeline *p)
{
	p->nfailed_due = 0;
	files_each(p->files, count_due, p);
	return p->nfailed_due ? procs_each(p->procs, retry_files_of, p) : 0;
}

int pipeline_take_process(struct pipeline *p, const struct event *e)
{
	if (e->process.pid)
		return on_scanned_process(p, e);
	/* The end of a scan: whom it did not meet is gone. */
	if (p->rescanning)
		procs_sweep_unscanned(p->procs, p->scan_started_ns);
	p->rescanning = false;
	return 0;
}

int pipeline_take_opened(struct pipeline *p, const struct event *e)
{
	CLEANUP_FD int fd = e->opened.fd;
	struct file *file = files_find(p->files, e->opened.file_id);
	struct file *jit = files_find(p->jits, e->opened.file_id);

	if (jit) {
		pipeline_take_jit(p, jit, &e->opened, TAKE_FD(fd));
		return 0;
	}
	if (!file || file->state != FILE_OPENING)
		return 0;
	if (e->opened.ok) {
		files_opened(p->files, file, &e->opened.identity, TAKE_FD(fd));
	} else {
		fail_file(p, file);
	}
	return file->state == FILE_ALIAS || file->state == FILE_FAILED ? 1 : 0;
}

/* ---- side-band ---- */

static int on_thread_exit(struct pipeline *p, const struct event *e)
{
	struct proc *proc;

	learn_forget(p->learn, e->exit.tid);
	procs_thread_exit(p->procs, e->exit.pid, e->exit.tid == e->exit.pid, e->time_ns);
	proc = procs_find(p->procs, e->exit.pid);
	if (proc && proc->exited_ns)
		pipeline_filter(p, proc);
	return 0;
}

int pipeline_apply_sideband(void *arg, const struct event *e)
{
	struct pipeline *p = arg;

	switch (e->type) {
	case EVENT_MAP:
		return on_map(p, e);
	case EVENT_COMM:
		return e->comm.exec ? procs_exec(p->procs, e->comm.pid, e->time_ns) : 0;
	case EVENT_FORK:
		learn_forget(p->learn, e->fork.tid);
		if (e->fork.pid != e->fork.ppid)
			return procs_fork(p->procs, e->fork.pid, e->fork.ppid, e->time_ns);
		procs_thread_start(p->procs, e->fork.pid);
		return 0;
	case EVENT_EXIT:
		return on_thread_exit(p, e);
	default:
		return 0;
	}
}

/* Lost records make doubtful what we know. */
int pipeline_rescan_if_due(struct pipeline *p)
{
	if (!p->doubtful || p->rescanning ||
	    (p->scan_started_ns && p->now_ns - p->scan_started_ns < RESCAN_INTERVAL_NS))
		return 0;
	p->doubtful = false;
	p->rescanning = true;
	p->scan_started_ns = p->now_ns;
	return p->conf.ops->rescan(p->conf.arg);
}

int pipeline_take_lost(struct pipeline *p, const struct event_lost *lost)
{
	p->stats.sideband_lost += lost->count;
	p->doubtful = true;
	return pipeline_rescan_if_due(p);
}

/* The file that a mapping names is opened at once; the mapping itself waits for its turn. */
int pipeline_take_sideband(struct pipeline *p, const struct event *e)
{
	struct file *file;
	int err = 0;

	if (e->type == EVENT_MAP)
		err = meet_file(p, &e->map, kind_of(&e->map), &file);
	return err ? err : queue_add_event(p->queue, e);
}
