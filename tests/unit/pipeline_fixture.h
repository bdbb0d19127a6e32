/*
 * pipeline_fixture - a world around a pipeline: processes that map files, samples with chosen call
 * chains, a reader and a symbolizer that answer when the test says so, and the batches that come out.
 *
 * Files of one base name are one file (identity), those whose base name begins with "fail" cannot be
 * opened. Code is simple: each function keeps nothing on the stack but its return address. The
 * function at offset 0x123 of /bin/a is named a:123 (callers: of the call, one byte before).
 */
#ifndef TESTS_UNIT_PIPELINE_FIXTURE_H
#define TESTS_UNIT_PIPELINE_FIXTURE_H

#include "agent/pipeline.h"

enum { WORLD_BATCHES_MAX = 32, WORLD_FILES_MAX = 8192 };

struct world_open {
	struct world_open *next;
	uint64_t file_id;
};

struct world_request {
	struct world_request *next;
	bool is_names;
	struct msg_request request;
};

struct world_kernel {
	struct world_kernel *next;
	uint32_t n;
	uint64_t addresses[];
};

struct world_announced {
	struct world_announced *next;
	uint64_t id, cgroup_id;
	uint32_t pid;
	bool kernel_thread;
	char executable[64], comm[32];
};

struct world {
	struct pipeline *p;
	struct event_log *log;		/* everything that the pipeline was told */
	int log_fd;
	struct world_open *opens;
	struct world_request *requests;
	struct world_kernel *kernels;
	struct world_announced *announced;	/* and not labelled yet */
	uint32_t nannounced;
	int announce_err;		/* what the next announcements return */
	char filters[4096];		/* calls: "pid:n pid:n " */
	bool filters_full;		/* BPF has no room for another one */
	char *paths[WORLD_FILES_MAX];	/* by file id */
	uint32_t nopens, nrows_asked, nnames_asked, nrescans;
	uint64_t naddrs_asked;
	uint32_t nbatches;
	struct bufw batches[WORLD_BATCHES_MAX];	/* encoded */
	uint64_t nbatch_samples;	/* sum of all counts, without taps */
	uint64_t nsent;			/* first parts handed in */
	uint64_t seq;
	uint64_t last_refused;		/* the tap */
	uint32_t nlearned;		/* times that something was, of the thread and what it was */
	uint32_t learned_tid;
	struct abi_learned learned;
	char gos[256];			/* calls: "pid:place:flags pid: " */
	uint32_t nperf_maps;		/* times that one was asked for; the test answers */
	struct reader_open perf_map;	/* the last */
	uint32_t npeeks;
	struct reader_peek peek;	/* the last */
	uint32_t nrefused[EXPORT_REFUSAL_COUNT];	/* taps, as told */
	uint64_t moved;			/* added to the control group id of each sample, which is 1000 + pid */
};

/* The conf's ops and arg are filled in. */
void world_init(struct world *w, const struct pipeline_conf *conf);
void world_fini(struct world *w);

void world_event(struct world *w, const struct event *e);
void world_start(struct world *w, uint64_t time_ns, const uint32_t *targets, uint32_t ntargets, bool after_exec);
void world_map(struct world *w, uint64_t time_ns, uint32_t pid, uint64_t start, const char *path);
void world_exec(struct world *w, uint64_t time_ns, uint32_t pid);
void world_fork(struct world *w, uint64_t time_ns, uint32_t pid, uint32_t ppid);
void world_exit(struct world *w, uint64_t time_ns, uint32_t pid);
void world_lost(struct world *w, uint64_t time_ns);
/* One process of a scan, with at most one mapping at `start` (path NULL: none); pid 0: its end. */
void world_scanned(struct world *w, uint64_t time_ns, uint32_t pid, uint32_t ppid, uint64_t start,
		   const char *path);
/* A sample whose registers and stack say pcs[0] was called from pcs[1] - 1, and so on. */
void world_sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *pcs, uint32_t n);
/* The same, but what lies above the last of them was not copied: its address is WORLD_STACK + 8 * (n - 1). */
#define WORLD_STACK 0x7ffc00001000ull
void world_cut_sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *pcs, uint32_t n);
void world_kernel_sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *addresses, uint32_t n);
void world_turn(struct world *w, uint64_t time_ns);
void world_window(struct world *w, uint64_t time_ns, bool last);

/* Each answers everything that was asked of this kind, and what is asked because of that. */
void world_open_all(struct world *w, uint64_t time_ns);
void world_answer_rows(struct world *w, uint64_t time_ns);
void world_answer_names(struct world *w, uint64_t time_ns);
/* One of the questions, by number; nonsense when `garbage`. False when there is none. */
bool world_answer_one(struct world *w, uint64_t time_ns, uint32_t which, const void *garbage, size_t len);

/*
 * Starts, with subjects announced. Answers the oldest announcement with service_name=NAME of the
 * executable and exe_pid=PID; false when there is none.
 */
void world_start_labels(struct world *w, uint64_t time_ns, uint64_t labels_wait_ns);
bool world_label_one(struct world *w, uint64_t time_ns, uint32_t keep_one_in);
void world_label_all(struct world *w, uint64_t time_ns, uint32_t keep_one_in);
void world_labels(struct world *w, uint64_t time_ns, uint64_t id, uint32_t keep_one_in,
		  const struct event_label *labels, uint32_t n);
void world_relabel(struct world *w, uint64_t time_ns);
void world_tap(struct world *w, uint64_t time_ns, uint64_t id, uint64_t duration_ns);

/* The answer to the last peek: as many pages as it asked for, at most EVENT_PAGES_MAX; the words of each are these; NULL: it is not there. */
void world_memory(struct world *w, uint64_t time_ns, const uint64_t *const *pages, bool late);

/* Opens, rows, names, until nothing is asked any more. */
void world_settle(struct world *w, uint64_t time_ns);

/* Feeds the log to another pipeline, which asks nobody; its batches go to `ret`. */
void world_replay(struct world *w, struct world *ret, const struct pipeline_conf *conf);

/* The batch's subjects as text, a line each, in order: "pid name=value name=value". Free it. */
char *world_subjects(const struct world *w, uint32_t batch);
/* The batch, decoded: for export_batch_fini(). */
struct export_batch world_batch(const struct world *w, uint32_t batch);
/* The batch's stacks as text, a line each: "pid executable count: a:10 a:20". Free it. */
char *world_text(const struct world *w, uint32_t batch);

#endif
