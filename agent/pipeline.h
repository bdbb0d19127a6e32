/*
 * pipeline - from events to the stacks of a window, and from a window to a batch.
 *
 * A pure function of the events it is given: it reads no clock and no file, and what it wants to
 * know it asks through `ops`; the answers come back as events. In a replay the questions go nowhere,
 * because the log holds the answers.
 *
 * May touch: what it owns. Never: the sampler, the side-band, the children, /proc.
 */
#ifndef AGENT_PIPELINE_H
#define AGENT_PIPELINE_H

#include "agent/event.h"
#include "agent/reader.h"
#include "agent/unwind.h"
#include "exporter/msg.h"

struct pipeline_subject {
	uint64_t id, cgroup_id;
	uint32_t pid;
	bool kernel_thread;
	const char *executable;	/* "" unknown */
	const char *comm;	/* of the sample; NUL-terminated */
};

/* Questions. Their answers are events of their own, never handed in before the question returns. */
struct pipeline_ops {
	int (*open)(void *arg, const struct reader_open *r);		/* -> EVENT_OPENED */
	int (*rows)(void *arg, const struct msg_request *r, int fd);	/* -> EVENT_ROWS */
	int (*names)(void *arg, const struct msg_request *r, int fd);	/* -> EVENT_NAMES */
	int (*kernel)(void *arg, const uint64_t *addresses, uint32_t n);	/* -> EVENT_KERNEL */
	/* Side-band records were lost -> EVENT_PROCESS..., and one of pid 0 when that was all. */
	int (*rescan)(void *arg);
	int (*batch)(void *arg, const struct export_batch *b);	/* a window or tap is named and ready */
	/* Optional: no batch of this tap will come. */
	void (*refused)(void *arg, const struct export_tap_refused *r);
	/* A subject is sampled for the first time, or since EVENT_RELABEL -> EVENT_LABELS. */
	int (*announce)(void *arg, const struct pipeline_subject *s);
	/*
	 * From now on BPF is to keep one sample in N of this process; 1: all, 0: none. False: it has no room for
	 * that, and is told again. Optional.
	 */
	bool (*filter)(void *arg, uint32_t pid, uint32_t keep_one_in);
	/* What BPF is to copy of this thread from now on (sampler_learn()). Optional. */
	void (*learn)(void *arg, uint32_t tid, const struct abi_learned *l);
	/* Where the threads of this process have Go's g (sampler_go()); NULL: it ends. Optional. */
	void (*go)(void *arg, uint32_t pid, const struct abi_go *go);
	/* Pages of a thread as they are now -> EVENT_MEMORY. Optional. */
	int (*peek)(void *arg, const struct reader_peek *r);
};

/* Why a sample that BPF delivered is in no window. */
#define PIPELINE_DROPS(X)			\
	X(FILTERED, "filtered")			\
	X(AGENT_MEMORY, "agent_memory")		\
	X(AGGREGATE_FULL, "aggregate_full")	\
	X(SHUTDOWN, "shutdown")

enum pipeline_drop {
#define X(id, text) PIPELINE_DROP_##id,
	PIPELINE_DROPS(X)
#undef X
	PIPELINE_DROP_COUNT,
};
const char *pipeline_drop_text(enum pipeline_drop d);

struct pipeline_stats {
	uint64_t records;	/* ring records handed in */
	uint64_t malformed;	/* of these, no sample of ours; must be 0 */
	uint64_t samples;	/* aggregated */
	uint64_t dropped[PIPELINE_DROP_COUNT];
	uint64_t outcomes[UNWIND_OUTCOME_COUNT];	/* of aggregated samples */
	uint64_t frames;
	uint64_t stack_bytes;	/* of user memory, in all windows of aggregated samples */
	uint64_t sideband_lost;
	uint64_t parked;	/* samples that waited for rows */
	uint64_t files_refused;	/* times that a file was not opened: too many were */
	uint64_t rows_evicted;	/* files whose rows were dropped for memory */
	uint64_t windows;	/* handed on */
	uint64_t excluded;	/* aggregated, and left out of their window: they were not to be sampled */
	uint64_t names_late;	/* addresses whose window did not wait any longer for their names */
	uint64_t names_cut;	/* addresses that have fewer lines than their files tell: those were too large */
	uint64_t labels_late;	/* subjects whose window did not wait any longer for their labels */
	uint64_t announce_full;	/* times that a subject could not be announced: too many wait */
	uint64_t announce_unanswered;	/* announcements that were given up */
	uint64_t taps;		/* begun */
	uint64_t taps_refused[EXPORT_REFUSAL_COUNT];
	uint64_t taps_full;	/* samples that are not in a tap because it was full */
	uint64_t counters[ABI_CNT_COUNT];	/* of BPF, as last reported */
};

struct pipeline_conf {
	const struct pipeline_ops *ops;
	void *arg;
	size_t parked_max_bytes;	/* 0: 8 MiB */
	size_t aggregate_max_bytes;	/* 0: 16 MiB */
	size_t rows_max_bytes;		/* 0: 12 MiB */
	size_t queue_max_bytes;		/* 0: 64 MiB */
};

struct pipeline;

MUST_USE int pipeline_new(struct pipeline **ret, const struct pipeline_conf *conf);
struct pipeline *pipeline_free(struct pipeline *p);
DEFINE_CLEANUP(struct pipeline *, pipeline_free);

/* Takes event.opened.fd. Errors are ours (-ENOMEM), never the event's. */
MUST_USE int pipeline_event(struct pipeline *p, const struct event *e);

/* No sample waits for rows, no window or tap for names. Windows may still wait for labels. */
bool pipeline_idle(const struct pipeline *p);
const struct pipeline_stats *pipeline_stats(const struct pipeline *p);
size_t pipeline_bytes(const struct pipeline *p); /* of all it keeps */

#endif
