/*
 * pipeline_state - what the parts of the pipeline share, and what they do for each other.
 *
 * pipeline.c dispatches events, turns and windows; pipeline_world.c keeps processes, mappings and
 * files; pipeline_samples.c unwinds samples and asks for the rows that they miss.
 *
 * For these three files only.
 */
#ifndef AGENT_PIPELINE_STATE_H
#define AGENT_PIPELINE_STATE_H

#include "agent/aggregate.h"
#include "agent/asks.h"
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
	uint32_t nfailed_due;			/* files that are to be asked for again now */
	bool rescanning;
	bool doubtful;				/* records were lost since that scan began */
	bool inside;				/* an event is being handled */
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

#endif
