/*
 * engine - the pipeline with everything live around it: sampler, side-band, reader, symbolizer.
 *
 * One turn every 100 ms, or when a ring is a quarter full, or when something calls exec: read the
 * clock, drain the side-band, then the samples, then tell the pipeline that they are due. Every
 * event goes to the log first, where there is one, so a replay sees what the pipeline saw.
 *
 * May touch: its modules. Never: policy of a command; labels, output.
 */
#ifndef AGENT_ENGINE_H
#define AGENT_ENGINE_H

#include "agent/pipeline.h"
#include "agent/readerclient.h"
#include "base/ipc.h"
#include "base/loop.h"
#include "config/config.h"

/* Descriptors of the programs that the engine starts and restarts; opened before rights are dropped. */
struct engine_programs {
	int self, symbolizer, exporter;
};
#define ENGINE_PROGRAMS_INIT { .self = -1, .symbolizer = -1, .exporter = -1 }
/* Beside the running program, or in ../libexec/flamed. *ret_why names what is missing (heap). */
MUST_USE int engine_programs_open(struct engine_programs *p, char **ret_why);
void engine_programs_close(struct engine_programs *p);

/* Descriptors that the agent needs on so many CPUs, beside those of mapped files. */
uint64_t engine_files_needed(uint32_t ncpus);

typedef int engine_batch_fn(void *arg, const struct export_batch *b);
/*
 * A subject to be labelled, with what was read about it: engine_labels() is to follow, later, not inside.
 * -ENOBUFS: no room now; it is told again.
 */
typedef int engine_subject_fn(void *arg, const struct export_facts *f);

typedef void engine_refused_fn(void *arg, const struct export_tap_refused *r);

struct engine_conf {
	uint32_t hz;
	uint32_t stack_max_bytes;
	const char *cpus;
	enum config_demangle demangle;
	size_t aggregate_max_bytes;
	const struct engine_programs *programs;
	uint64_t missing_caps;		/* that rights_leave_root() did not find */
	struct event_log *log;		/* borrowed, may be NULL */
	const struct event_start *start;	/* targets; the rest is filled in */
	engine_batch_fn *batch;
	engine_subject_fn *subject;	/* NULL: subjects are not announced */
	engine_refused_fn *refused;	/* a tap was; NULL: nobody wants to know */
	uint64_t labels_wait_ns;	/* at most, of a window for its names and labels; with `subject` */
	uint64_t settle_wait_ns;	/* how long engine_stop() may take; 0: 15 s */
	void *arg;
};

struct engine;

/* *ret_why: one line what is missing and what to do, where the code alone does not say it. */
MUST_USE int engine_new(struct engine **ret, struct loop *loop, const struct engine_conf *conf,
			const char **ret_why);
struct engine *engine_free(struct engine *e);
DEFINE_CLEANUP(struct engine *, engine_free);

/* Learns the processes that run (bounded wait), then samples. LOOP_STOP: called off by the loop. */
MUST_USE int engine_start(struct engine *e, const char **ret_why);
/* Stops sampling, and works off every sample taken (bounded wait for rows: settle_wait_ns). */
MUST_USE int engine_stop(struct engine *e);
/* Ends the window; its batch comes through the callback when it is named. */
MUST_USE int engine_end_window(struct engine *e, uint64_t wall_start_ns, uint64_t duration_ns, bool last);
/* After the last window: what still waits for names or labels is handed on without. */
MUST_USE int engine_hand_on(struct engine *e);
/* The exporter's answer to a subject; what it says of sampling goes to BPF. Not inside engine_subject_fn. */
MUST_USE int engine_labels(struct engine *e, const struct export_labels *l);
/* The settings changed: all subjects are announced again when they are sampled next. */
MUST_USE int engine_relabel(struct engine *e);
/* A second aggregate for so long; its batch has this tap's id. */
MUST_USE int engine_tap(struct engine *e, const struct export_tap *tap);
/* A file that the settings name, by its path from the root, opened by the reader. */
MUST_USE int engine_open_config(struct engine *e, const char *path, readerclient_file_fn *fn, void *arg);
/* Called every 100 ms, after the turn: the daemon's clock. Also while engine_start() and engine_stop() wait. */
typedef int engine_turn_fn(void *arg);
void engine_on_turn(struct engine *e, engine_turn_fn *fn, void *arg);
/* Reads the counters of BPF into the pipeline's stats. */
MUST_USE int engine_update_counters(struct engine *e);

const struct pipeline_stats *engine_stats(const struct engine *e);
/* Bytes: of the pipeline's caches and queues; of BPF maps and rings, side-band rings included. */
size_t engine_bytes(const struct engine *e);
size_t engine_map_bytes(const struct engine *e);
uint32_t engine_ncpus(const struct engine *e);
uint64_t engine_quarantined(const struct engine *e);
struct engine_pids {
	pid_t symbolizer, reader;	/* -1 while there is none */
};
struct engine_pids engine_pids(const struct engine *e);
struct engine_restarts {
	uint64_t symbolizer, reader;
};
/* The kernel's account of the BPF program, 0 unless kernel.bpf_stats_enabled. 0 or -errno. */
MUST_USE int engine_bpf_cost(const struct engine *e, uint64_t *ret_ns, uint64_t *ret_runs);
struct engine_restarts engine_restarts(const struct engine *e);

#endif
