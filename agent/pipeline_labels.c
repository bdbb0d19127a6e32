#include "agent/pipeline_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* An answer that has not come by now does not come: the subject is announced again. */
#define ANSWER_WAIT_NS (60 * NSEC_PER_SEC)
/* Between an exec and its first mapping a process has no executable, whose name is a label. */
#define NAMELESS_WAIT_NS (200 * NSEC_PER_MSEC)

/* ---- announcing ---- */

void pipeline_note_subject(struct pipeline *p, struct subject *s, const char *comm)
{
	if (!p->start.labels_wait_ns || s->announced == p->relabeling)
		return;
	/* Without room or memory it is for its next sample to do. */
	if (pending_add(p->pending, s, p->relabeling, comm, p->now_ns))
		p->stats.announce_full++;
	else
		s->announced = p->relabeling;
}

static int announce(void *arg, const struct announcement *a)
{
	struct pipeline *p = arg;
	const struct subject *s = a->subject;
	struct pipeline_subject out = { .id = s->id, .cgroup_id = s->cgroup_id, .pid = s->pid,
					.kernel_thread = s->kernel_thread, .executable = s->executable,
					.comm = a->comm };

	if (!s->executable[0] && !s->kernel_thread && !p->last_ended_ns &&
	    p->now_ns - MIN(p->now_ns, a->since_ns) < NAMELESS_WAIT_NS)
		return PENDING_LATER;
	return p->conf.ops->announce ? p->conf.ops->announce(p->conf.arg, &out) : 0;
}

int pipeline_announce(struct pipeline *p)
{
	int err = pending_make(p->pending, announce, p);

	return err == -ENOBUFS ? 0 : err; /* in the next turn */
}

void pipeline_sweep_labels(struct pipeline *p)
{
	p->stats.announce_unanswered += pending_give_up(p->pending, p->now_ns - MIN(p->now_ns, ANSWER_WAIT_NS));
}

/* ---- what BPF is to keep ---- */

static void tell_filter(struct pipeline *p, struct proc *proc, uint32_t keep_one_in)
{
	if (proc->filter == keep_one_in)
		return;
	if (!p->conf.ops->filter || p->conf.ops->filter(p->conf.arg, proc->pid, keep_one_in))
		proc->filter = keep_one_in;
}

/* A later process may have the pid of one that has ended. */
static bool has_ended(const struct proc *proc)
{
	return proc->exited_ns && proc->threads_known;
}

/*
 * Of a run with targets, those and their children are kept. By an answer of before the present relabeling
 * nobody is filtered: without samples it would not be announced again, should the new answer be lost.
 */
void pipeline_filter(struct pipeline *p, struct proc *proc)
{
	if (has_ended(proc))
		tell_filter(p, proc, 1);
	else if (p->start.ntargets)
		tell_filter(p, proc, proc->target_at_exec || procs_target(p->procs, proc));
	else if (proc->subject->labelled == p->relabeling)
		tell_filter(p, proc, proc->subject->keep_one_in);
}

void pipeline_process_ends(void *arg, struct proc *proc)
{
	struct pipeline *p = arg;

	tell_filter(p, proc, 1);
	pipeline_forget_go(p, proc);
	learn_forget(p->learn, proc->pid); /* what calls exec is then its first thread */
}

/* ---- answers ---- */

/* As struct subject has them. */
static int pack(const struct event_labels *l, char **ret_text, size_t *ret_len)
{
	size_t len = 0, at = 0;
	char *text;

	for (uint32_t i = 0; i < l->nlabels; i++)
		len += strlen(l->labels[i].name) + strlen(l->labels[i].value) + 2;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->nlabels; i++) {
		at += (size_t)(stpcpy(text + at, l->labels[i].name) + 1 - (text + at));
		at += (size_t)(stpcpy(text + at, l->labels[i].value) + 1 - (text + at));
	}
	assert(at == len);
	*ret_text = text;
	*ret_len = len;
	return 0;
}

static int set_labels(struct subject *s, const struct event_labels *l)
{
	CLEANUP_FREE char *text = NULL;
	size_t len;
	int err;

	assert(l->nlabels <= EXPORT_PAIRS_MAX);
	err = pack(l, &text, &len);
	return err ? err : subject_set_labels(s, l->nlabels, text, len);
}

int pipeline_take_labels(struct pipeline *p, const struct event_labels *l)
{
	CLEANUP(announcement_freep) struct announcement *a = pending_take(p->pending, l->subject_id);
	struct subject *s;
	struct proc *proc;
	int err;

	if (!a)
		return 0;
	s = a->subject;
	err = set_labels(s, l);
	if (err) {
		s->announced = 0; /* without memory it is for its next sample to ask again */
		return err == -ENOMEM ? 0 : err;
	}
	s->labelled = a->number;
	s->keep_one_in = l->keep_one_in;
	/* Where the process has another subject by now, BPF is as that one wants it. */
	proc = procs_find(p->procs, s->pid);
	if (proc)
		pipeline_filter(p, proc);
	return pipeline_finish_windows(p);
}

static int lift_filter(void *arg, struct proc *proc)
{
	tell_filter(arg, proc, 1);
	return 0;
}

/* Who is skipped must be sampled to be announced; the answer makes the filter again. */
int pipeline_relabel(struct pipeline *p)
{
	if (++p->relabeling == 0)
		p->relabeling = 1;
	return procs_each(p->procs, lift_filter, p);
}
