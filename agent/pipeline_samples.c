#include "agent/pipeline_state.h"

#include <errno.h>
#include <string.h>

void pipeline_count_drop(struct pipeline *p, enum pipeline_drop why)
{
	p->stats.dropped[why]++;
}

static int aggregate_unwound(struct pipeline *p, struct subject *subject, const struct sample_view *v,
			     uint64_t time_ns)
{
	struct aggregate_sample s = {
		.subject = subject, .tid = v->tid, .comm = v->comm, .period_ns = v->period_ns,
		.kernel = v->kernel, .nkernel = v->nkernel, .user = p->unwound->frames,
		.nuser = p->unwound->nframes, .outcome = p->unwound->outcome, .jit = subject->jit,
	};
	int err;

	pipeline_feed_taps(p, &s, time_ns);
	err = aggregate_add(p->open, &s);
	if (err == -ENOSPC) {
		pipeline_count_drop(p, PIPELINE_DROP_AGGREGATE_FULL);
		return 0;
	}
	if (err == -ENOMEM) {
		pipeline_count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	if (err)
		return err;
	p->stats.samples++;
	p->stats.outcomes[p->unwound->outcome]++;
	p->stats.frames += v->nkernel + p->unwound->nframes;
	for (uint32_t i = 0; i < v->user.nwindows; i++)
		p->stats.stack_bytes += v->user.windows[i].len;
	return 0;
}

int pipeline_want_rows(struct pipeline *p, const struct maps *maps, uint32_t pid)
{
	int err = asks_want(p->asks, &p->unwound->want);

	if (!err && p->unwound->want.file->state == FILE_NEW)
		err = pipeline_open_wanted(p, maps, pid, p->unwound->want.file);
	return err;
}

/*
 * Unwinds with what is known. 0: aggregated, and *s may have been taken. 1: rows of p->unwound->want
 * are missing, and they have been wished for.
 */
static int try_sample(struct pipeline *p, struct sample **s, struct maps *maps, struct subject *subject,
		      bool settle, bool guess)
{
	struct sample_view *v = p->view;
	uint32_t nguesses = 0;
	int err;

	sample_view(*s, v);
	if (unwind_run(&v->user, maps, settle, p->unwound) != UNWIND_WANT) {
		err = pipeline_note_jit(p, subject, maps);
		if (!err)
			err = aggregate_unwound(p, subject, v, (*s)->time_ns);
		if (p->ngo_files)
			pipeline_tell_go(p, v->pid, maps);
		return err ? err : pipeline_learn(p, s, maps);
	}
	err = pipeline_want_rows(p, maps, subject->pid);
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

/* A process can be moved to another control group, and is another's then; single threads of it may be elsewhere. */
static void note_cgroup(struct subject *s, const struct abi_record *head)
{
	if (!head->cgroup_id || head->cgroup_id == s->cgroup_id || (s->cgroup_id && head->pid != head->tid))
		return;
	if (s->cgroup_id)
		subject_relabel(s);
	s->cgroup_id = head->cgroup_id;
}

int pipeline_unwind_sample(void *arg, struct sample *sample)
{
	CLEANUP(sample_freep) struct sample *s = sample;
	struct pipeline *p = arg;
	const struct abi_record *head = s->parts[0];
	struct proc *proc;
	int r;

	r = procs_get(p->procs, head->pid, s->time_ns, &proc);
	if (r == -ENOMEM) {
		pipeline_count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	if (r)
		return r;
	if (p->start.ntargets && !proc->target)
		proc->target = procs_target(p->procs, proc);
	if (p->start.ntargets && !proc->target) {
		pipeline_filter(p, proc);
		pipeline_count_drop(p, PIPELINE_DROP_FILTERED);
		return 0;
	}
	/* One that was born after the scan. Workers of a process have its pid, kernel threads their own. */
	if (head->flags & ABI_F_KERNEL_THREAD && head->pid == head->tid)
		procs_set_kernel_thread(proc);
	note_cgroup(proc->subject, head);
	pipeline_note_subject(p, proc->subject, head->comm);
	pipeline_filter(p, proc); /* there may be room for it by now */
	/* It was on its way when it was said, or BPF has no room for the process. */
	if (!proc->subject->keep_one_in) {
		pipeline_count_drop(p, PIPELINE_DROP_FILTERED);
		return 0;
	}
	r = try_sample(p, &s, proc->maps, proc->subject, false, true);
	if (r == 1)
		r = park(p, &s, proc->maps, proc->subject);
	if (r == -ENOMEM) {
		pipeline_count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
		return 0;
	}
	return r;
}

/* Tries parked samples (a list of ours) again; those that want more rows are parked again. */
int pipeline_retry(struct pipeline *p, struct parked *list, bool settle)
{
	int err = 0;

	for (struct parked *next; list; list = next) {
		bool late = settle || p->now_ns - MIN(p->now_ns, list->since_ns) > PARKED_MAX_NS;
		int r = err ? err : try_sample(p, &list->sample, list->maps, list->subject, late, false);

		next = list->next;
		if (r == 1) {
			file_unref(list->file);
			list->file = file_ref(p->unwound->want.file);
			asks_park(p->asks, list);
			continue;
		}
		if (r == -ENOMEM) {
			pipeline_count_drop(p, PIPELINE_DROP_AGENT_MEMORY);
			r = 0;
		}
		parked_free(list);
		err = err ? err : r;
	}
	return err;
}

int pipeline_retry_file(struct pipeline *p, const struct file *file)
{
	int err = pipeline_retry(p, asks_take(p->asks, file), false);

	return err ? err : pipeline_retry_looks(p, file);
}

int pipeline_settle_overdue(struct pipeline *p, uint64_t before_ns)
{
	struct parked *late;
	int err = 0;

	while (!err && (late = asks_overdue(p->asks, before_ns)))
		err = pipeline_retry(p, late, true);
	return err;
}

/* ---- questions and answers ---- */

/* Each new return address is asked about, but mostly in functions whose rows are here. */
static void note_known_rows(struct msg_request *r, const struct rows *rows)
{
	for (uint32_t i = 0; rows && i < r->naddrs; i++) {
		if (rows_cover(rows, r->addrs[i].offset, r->addrs[i].flags & MSG_ADDR_RETURN))
			r->addrs[i].flags |= MSG_ADDR_HAVE_ROW;
	}
}

int pipeline_ask_rows(struct pipeline *p)
{
	struct file *file;
	int err = 0;

	while (!err && asks_next(p->asks, &p->request, &file)) {
		if (file->state == FILE_OPEN) {
			note_known_rows(&p->request, file->rows);
			p->request.flags = file->go_known ? 0 : MSG_REQUEST_GO;
			p->request.id = p->next_request++;
			err = p->conf.ops->rows(p->conf.arg, &p->request, file->fd);
			continue;
		}
		/* Failed, or found to be another file: whoever waits finds out by trying again. */
		file_ref(file);
		asks_forget(p->asks, file);
		err = pipeline_retry_file(p, file);
		file_unref(file);
	}
	return err;
}

int pipeline_take_rows(struct pipeline *p, const struct event_answer *a)
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
	if (!err && a->request->flags & MSG_REQUEST_GO)
		pipeline_note_go(p, file, &rows);
	if (!err)
		err = rows_put(file->rows, a->request->addrs, a->request->naddrs, &rows);
	msg_rows_fini(&rows);
	if (err)
		return err;
	asks_answered(p->asks, file);
	return pipeline_retry_file(p, file);
}
