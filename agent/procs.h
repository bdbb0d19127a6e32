/*
 * procs - every process the side-band or the /proc scan told of: its mappings, its executable.
 *
 * A struct proc is one process; a struct subject is one process between two execs: what samples are
 * counted under. Both are referred to by parked samples and windows after the process is gone.
 *
 * May touch: struct maps and struct file references. Never: /proc.
 */
#ifndef AGENT_PROCS_H
#define AGENT_PROCS_H

#include "agent/maps.h"

struct subject {
	uint32_t refs;
	uint32_t pid;
	bool kernel_thread;
	uint64_t id;		/* from 1, in order of appearance */
	uint64_t cgroup_id;	/* of its first sample; 0 before */
	char *executable;	/* path as mapped, "" unknown */
	uint64_t batch_id;	/* window.c's: the last batch that it is in, and its place there */
	uint32_t batch_index;
	uint32_t announced;	/* pipeline's: the number of the relabeling it was announced in; 0 never */
	uint32_t labelled;	/* the number of the one that its labels are of; 0 none yet */
	uint32_t keep_one_in;	/* 1 all */
	uint32_t image_pid;	/* of a fork without exec: the process whose code it runs; 0 its own */
	struct file *jit;	/* what names its code without a file; a reference, NULL: not asked for yet */
	uint32_t nlabels;
	char *labels;		/* nlabels times name NUL value NUL */
	size_t labels_len;
};

/* What its labels were made of has changed: if it has an answer, it is announced again. */
static inline void subject_relabel(struct subject *s)
{
	if (s->labelled == s->announced)
		s->announced = 0;
}
struct subject *subject_ref(struct subject *s);
void subject_unref(struct subject *s);
/* In place of those it had; `text` as struct subject has it, copied. */
MUST_USE int subject_set_labels(struct subject *s, uint32_t nlabels, const char *text, size_t len);

struct proc {
	uint32_t refs;
	uint32_t pid, ppid;
	bool known_whole;	/* maps come from an exec, a scan, or a fork of such */
	bool target;		/* counts; see procs_target() */
	bool target_at_exec;	/* counts from its next exec on */
	bool born;		/* we saw its fork */
	uint64_t since_ns;	/* when we learned of it */
	uint64_t scan_ns;	/* when a scan last met it; 0 never */
	uint64_t exited_ns;	/* when its last thread exited, or its leader; 0 alive */
	uint32_t nthreads;	/* when threads_known */
	bool threads_known;	/* we saw it begin */
	bool go_told;		/* pipeline's: BPF knows where it has Go's g */
	uint32_t filter;	/* pipeline's: keep one sample in so many, as BPF was told */
	struct maps *maps;
	struct subject *subject;
	struct proc *next;
};

struct proc *proc_ref(struct proc *p);
void proc_unref(struct proc *p);

struct procs;

MUST_USE int procs_new(struct procs **ret);
struct procs *procs_free(struct procs *ps);
DEFINE_CLEANUP(struct procs *, procs_free);

struct proc *procs_find(const struct procs *ps, uint32_t pid); /* borrowed, or NULL */
/* The process, new when unknown. */
MUST_USE int procs_get(struct procs *ps, uint32_t pid, uint64_t now_ns, struct proc **ret);
/* A child has its parent's mappings and executable. A later birth under the same pid replaces. */
MUST_USE int procs_fork(struct procs *ps, uint32_t pid, uint32_t ppid, uint64_t now_ns);
/* Mappings are gone, a new subject begins; its executable is the next mapping with a file. */
MUST_USE int procs_exec(struct procs *ps, uint32_t pid, uint64_t now_ns);
void procs_exit(struct procs *ps, uint32_t pid);
/*
 * A thread began or ended. After its last thread a process is kept for a second: a thread can be
 * sampled until the very end of its exit. One whose threads we did not see begin (it is older than
 * we are) may outlive its leader and is kept for a minute. procs_sweep_exited() ends both.
 */
void procs_thread_start(struct procs *ps, uint32_t pid);
void procs_thread_exit(struct procs *ps, uint32_t pid, bool leader, uint64_t now_ns);
void procs_sweep_exited(struct procs *ps, uint64_t now_ns);
/* An exec that was lost: a new subject begins, the mappings are the caller's to set. */
MUST_USE int procs_exec_unseen(struct procs *ps, struct proc *p);
/* Forks and exits were lost, and it lives: how many threads it has is not known any more. */
void procs_doubt(struct proc *p);
/* Calls fn for a process that is about to be forgotten, or to get another subject. */
void procs_on_end(struct procs *ps, void (*fn)(void *arg, struct proc *p), void *arg);
/* After lost records: forgets whom no scan has met since, and who is no newer than that. */
void procs_sweep_unscanned(struct procs *ps, uint64_t since_ns);
MUST_USE int procs_set_executable(struct proc *p, const char *path);
void procs_set_kernel_thread(struct proc *p);
/* Whether the process or one of its ancestors is a target. */
bool procs_target(const struct procs *ps, const struct proc *p);
/* Calls fn for each process until it returns an error; no order. */
MUST_USE int procs_each(struct procs *ps, int (*fn)(void *arg, struct proc *p), void *arg);
size_t procs_count(const struct procs *ps);
size_t procs_bytes(const struct procs *ps); /* maps that are shared count once per holder */

#endif
