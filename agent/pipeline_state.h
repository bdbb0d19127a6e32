/*
 * pipeline_state - what the parts of the pipeline share, and what they do for each other.
 *
 * pipeline.c dispatches events and turns; pipeline_world.c keeps processes, mappings and files;
 * pipeline_samples.c unwinds samples and asks for the rows that they miss; pipeline_labels.c announces
 * subjects and takes the answers; pipeline_learn.c teaches BPF what it has to copy; pipeline_windows.c
 * names and hands on windows and taps.
 *
 * For these six files only.
 */
#ifndef AGENT_PIPELINE_STATE_H
#define AGENT_PIPELINE_STATE_H

#include "agent/aggregate.h"
#include "agent/asks.h"
#include "agent/learn.h"
#include "agent/pending.h"
#include "agent/pipeline.h"
#include "agent/procs.h"
#include "agent/queue.h"
#include "agent/sample.h"
#include "agent/window.h"
#include "base/clock.h"

/* A sample that has waited this long for rows is unwound with what is there. */
#define PARKED_MAX_NS (10 * NSEC_PER_SEC)

/* Words of a cold stack that are asked along with the first missing row. */
enum { GUESSES_MAX = 48 };
enum { CLOSING_MAX = 4 };

/* A second aggregate: samples with start_ns <= time < start_ns + duration_ns. */
struct tap {
	uint64_t id, start_ns, duration_ns, wall_start_ns;
	size_t budget;			/* of its stacks, in bytes */
	struct aggregate *stacks;
};

/* A window or tap that is being named. */
struct closing {
	struct window *window;
	uint64_t ended_ns;
	uint64_t tap;			/* its id; 0: a window */
	size_t budget;			/* of a tap */
};

struct pipeline {
	struct pipeline_conf conf;
	struct event_start start;
	struct files *files;
	struct files *jits;			/* perf maps, one for each subject that runs code without a file */
	struct procs *procs;
	struct queue *queue;
	struct asks *asks;
	struct aggregate *open;
	struct tap taps[EXPORT_TAPS_MAX];
	uint32_t ntaps;
	/* Oldest first; one more for the last window. Taps count until they are handed on. */
	struct closing closing[CLOSING_MAX + 1 + EXPORT_TAPS_MAX];
	uint32_t nclosing;
	struct learn *learn;
	struct look *looks;			/* pipeline_learn.c's */
	uint64_t ngo_files;			/* of Go's, met so far */
	uint32_t nlooks, nlooks_second;
	uint64_t last_look, looks_second_ns, looks_paused_ns;
	struct pending *pending;
	uint32_t relabeling;			/* number of the present one, from 1 */
	struct event_window put_off;		/* what the next window is to begin with; duration 0: nothing */
	struct unwind_result *unwound;		/* scratch: large */
	struct sample_view *view;
	struct unwind_want guesses[GUESSES_MAX];
	struct msg_request request;
	uint64_t next_request, next_batch;
	uint64_t now_ns;			/* of the last turn */
	uint64_t swept_ns;
	uint64_t last_ended_ns;			/* when the last window ended; 0: it has not */
	uint64_t scan_started_ns;		/* of a scan that replaces what lost records made doubtful */
	uint32_t nfailed_due;			/* files that are to be asked for again now */
	bool rescanning;
	bool doubtful;				/* records were lost since that scan began */
	bool inside;				/* an event is being handled */
	bool hurried;				/* nothing is waited for any more */
	struct pipeline_stats stats;
};

/* ---- pipeline_world.c ---- */

MUST_USE int pipeline_take_process(struct pipeline *p, const struct event *e);
/* 1: the file failed, or is another's alias: whoever waits for it is to try again. */
MUST_USE int pipeline_take_opened(struct pipeline *p, const struct event *e);
MUST_USE int pipeline_take_sideband(struct pipeline *p, const struct event *e);	/* queues it */
MUST_USE int pipeline_apply_sideband(void *arg, const struct event *e);		/* its turn has come */
MUST_USE int pipeline_take_lost(struct pipeline *p, const struct event_lost *lost);
MUST_USE int pipeline_rescan_if_due(struct pipeline *p);
/* Files that could not be opened are asked for again through whoever maps them now. */
MUST_USE int pipeline_retry_files(struct pipeline *p);
MUST_USE int pipeline_open_wanted(struct pipeline *p, const struct maps *maps, uint32_t pid, struct file *file);

/* ---- pipeline_samples.c ---- */

void pipeline_count_drop(struct pipeline *p, enum pipeline_drop why);
MUST_USE int pipeline_unwind_sample(void *arg, struct sample *sample);	/* takes it */
/* Tries parked samples (a list of ours) again; those that want more rows are parked again. */
MUST_USE int pipeline_retry(struct pipeline *p, struct parked *list, bool settle);
MUST_USE int pipeline_settle_overdue(struct pipeline *p, uint64_t before_ns);
MUST_USE int pipeline_ask_rows(struct pipeline *p);
MUST_USE int pipeline_take_rows(struct pipeline *p, const struct event_answer *a);

/* p->unwound->want is wished for, and its file is to be opened. pid: a process with these maps. */
MUST_USE int pipeline_want_rows(struct pipeline *p, const struct maps *maps, uint32_t pid);
/* What waits for rows of this file tries again. */
MUST_USE int pipeline_retry_file(struct pipeline *p, const struct file *file);

/* ---- pipeline_learn.c ---- */

/* Of the sample that was just unwound (p->view, p->unwound); takes it when it wants to keep it. */
MUST_USE int pipeline_learn(struct pipeline *p, struct sample **s, struct maps *maps);
MUST_USE int pipeline_take_memory(struct pipeline *p, const struct event_memory *m);
MUST_USE int pipeline_retry_looks(struct pipeline *p, const struct file *file);
void pipeline_sweep_learned(struct pipeline *p);

/* ---- pipeline_go.c ---- */

/* The file's first rows came. */
void pipeline_note_go(struct pipeline *p, struct file *file, const struct msg_rows *rows);
/* p->unwound is of this process: if it is Go's, BPF is told where it has g. */
void pipeline_tell_go(struct pipeline *p, uint32_t pid, const struct maps *maps);
void pipeline_forget_go(struct pipeline *p, struct proc *proc);
void pipeline_looks_free(struct pipeline *p);
size_t pipeline_looks_bytes(const struct pipeline *p);	/* with what is learned */

/* ---- pipeline_jit.c ---- */

/* Ids of p->jits; files have others, so that recordings keep theirs whatever a JIT does. */
#define PIPELINE_JIT_IDS (1ull << 62)
/* p->unwound is of this subject: if it has code without a file, what names it is asked for. */
MUST_USE int pipeline_note_jit(struct pipeline *p, struct subject *s, const struct maps *maps);
void pipeline_take_jit(struct pipeline *p, struct file *file, const struct event_opened *o, int fd);

/* ---- pipeline_labels.c ---- */

/* A sample of this subject is there: it is to be announced, unless it was. comm: ABI_COMM_LEN bytes. */
void pipeline_note_subject(struct pipeline *p, struct subject *s, const char *comm);
MUST_USE int pipeline_announce(struct pipeline *p);	/* those that were noted */
void pipeline_sweep_labels(struct pipeline *p);
MUST_USE int pipeline_take_labels(struct pipeline *p, const struct event_labels *l);
MUST_USE int pipeline_relabel(struct pipeline *p);
/* BPF is to agree with what we know of it, once we know it. */
void pipeline_filter(struct pipeline *p, struct proc *proc);
void pipeline_process_ends(void *arg, struct proc *proc);	/* for procs_on_end() */

/* ---- pipeline_windows.c ---- */

MUST_USE int pipeline_finish_windows(struct pipeline *p);	/* hands on what is named and labelled */
MUST_USE int pipeline_take_names(struct pipeline *p, const struct event_answer *a);
MUST_USE int pipeline_take_kernel(struct pipeline *p, const struct event_kernel *k);
MUST_USE int pipeline_end_window(struct pipeline *p, const struct event_window *ended, uint64_t time_ns);
void pipeline_begin_tap(struct pipeline *p, const struct event_tap *tap, uint64_t time_ns);
void pipeline_feed_taps(struct pipeline *p, const struct aggregate_sample *s, uint64_t time_ns);
/* Closes those that are over; all samples up to until_ns are unwound, parked, or miss a part. */
MUST_USE int pipeline_end_taps(struct pipeline *p, uint64_t until_ns);
MUST_USE int pipeline_cut_taps(struct pipeline *p, uint64_t now_ns);

#endif
