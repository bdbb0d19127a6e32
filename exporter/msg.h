/*
 * msg - what the agent and the exporter tell each other.
 *
 * Channel: base/ipc.h. After its greeting the exporter waits: the agent tells it what it works with
 * (EXPORT_OUTPUT or EXPORT_CONFIG, then EXPORT_FILE...) and ends with EXPORT_START, upon which the
 * exporter enters its sandbox. Then the agent asks (EXPORT_SUBJECT, EXPORT_BATCH) and is answered in
 * order; all else either side tells unasked.
 *
 * A batch is one window of one kind of profile: tables that refer to each other by index, as in
 * pprof, but still split by subject (a process), because what is pushed is the exporter's work. The
 * exporter splits a batch into parts; each (part, sink) has an id that is the same whenever the part
 * holds the same samples of the batch, and gets one fate. The agent keeps the batch until EXPORT_DONE, and after a crash
 * of the exporter sends it again, with the ids of what is settled: that is not sent a second time.
 */
#ifndef EXPORTER_MSG_H
#define EXPORTER_MSG_H

#include "base/buf.h"

enum export_type {
	/* Told by the agent. */
	EXPORT_OUTPUT = 1,	/* a descriptor that each batch's profile is written to (`record`); no payload */
	EXPORT_CONFIG = 2,	/* struct export_config; also later: the settings were reloaded */
	EXPORT_FILE = 3,	/* struct export_file, and its descriptor when error is 0 */
	EXPORT_START = 4,	/* no payload */
	EXPORT_STATUS = 5,	/* struct export_status, every second */
	EXPORT_FLUSH = 6,	/* the agent is about to end: send at once what waits; no payload */
	EXPORT_TAP_REFUSED = 7,	/* struct export_tap_refused: no batch of this tap will come */
	/* Asked by the agent, answered in order. */
	EXPORT_SUBJECT = 16,	/* struct export_facts -> EXPORT_LABELS */
	EXPORT_BATCH = 17,	/* struct export_batch, struct export_settled -> EXPORT_TAKEN */
	/* Answers. */
	EXPORT_LABELS = 32,	/* struct export_labels */
	EXPORT_TAKEN = 33,	/* struct export_taken */
	/* Told by the exporter. */
	EXPORT_FATE = 48,	/* struct export_fate */
	EXPORT_DONE = 49,	/* struct export_done: every sample of the batch has its fates */
	EXPORT_TAP = 50,	/* struct export_tap: somebody wants a profile of the next seconds */
};

enum {
	EXPORT_STRINGS_MAX = 16 * 1024 * 1024,
	EXPORT_FRAMES_MAX = 16384,	/* of one stack */
	EXPORT_LINES_MAX = 256,		/* of one location */
	/* Beyond these a batch is REFUSED. */
	EXPORT_TABLE_MAX = 1024 * 1024,	/* entries of each table other than frames */
	EXPORT_TOTAL_MAX = 16 * 1024 * 1024,	/* frames of all stacks; lines of all locations */
	EXPORT_PAIRS_MAX = 32,		/* labels of one subject */
	EXPORT_LABEL_MAX = 2048,	/* bytes of a label's value, as Pyroscope allows */
	EXPORT_CGROUPS_MAX = 4096,	/* bytes of /proc/PID/cgroup that are told */
	EXPORT_PATH_MAX = 8192,
	EXPORT_SINK_MAX = 256,		/* bytes of a sink's name */
	EXPORT_TAPS_MAX = 16,
};

/* ---- settings and files ---- */

struct export_config {
	const uint8_t *settings;	/* config_encode() */
	size_t settings_len;
	const char *hostname;		/* the label's value */
	const char *hash;		/* hex, of the settings */
	const char *version;
	const char *token;		/* of the page; "" no page */
};

/* What a descriptor is for. Of an endpoint: `index` is its place in the list. */
enum export_role {
	EXPORT_ROLE_PASSWORD, EXPORT_ROLE_BEARER_TOKEN, EXPORT_ROLE_CA, EXPORT_ROLE_CERT, EXPORT_ROLE_KEY,
	EXPORT_ROLE_PAGE_PASSWORD,
	EXPORT_ROLE_OUTPUT_DIRECTORY,
	EXPORT_ROLE_CONTROL,		/* a listening unix socket */
	EXPORT_ROLE_COUNT,
};

struct export_file {
	enum export_role role;
	uint32_t index;
	uint32_t error;		/* errno: why there is no descriptor; the agent has said so */
	uint32_t generation;	/* how many EXPORT_CONFIG came before it, from 1: of others it is ignored */
};

/* ---- subjects ---- */

enum { EXPORT_SUBJECT_KERNEL = 1 };	/* a kernel thread */

/* What the agent knows of a subject: a process between two execs. */
struct export_facts {
	uint64_t id;
	uint64_t cgroup_id;
	uint32_t pid;
	uint32_t flags;
	const char *executable;	/* path as mapped, "" unknown; need not be UTF-8 */
	const char *comm;
	const char *cgroups;	/* as /proc/PID/cgroup, lines of `N:controllers:path`; "" unknown */
};

struct export_label {
	const char *name, *value;	/* UTF-8 */
	const char *source;	/* for people: where the value is from */
};

struct export_labels {
	uint64_t id;		/* of the subject */
	uint32_t keep_one_in;	/* 1: sample it; 0: skip it; N: keep one sample in N */
	uint32_t nlabels;
	struct export_label *labels;	/* sorted by name, unique; service_name is always there */
};

/* ---- a batch ---- */

struct export_string {
	const char *text;	/* not NUL-terminated; may be no UTF-8: a workload chose it */
	uint32_t len;
};

/* All `uint32_t` that name something are indexes; strings[0] is "". */
struct export_mapping {
	uint64_t start, limit, offset;	/* ELF virtual addresses; file offset */
	uint32_t filename;
	uint32_t build_id;	/* lower-case hex */
};

struct export_function {
	uint32_t name, system_name, filename;
	uint32_t start_line;
};

struct export_line {
	uint32_t function;
	uint32_t line;
};

struct export_location {
	uint32_t mapping;
	uint32_t first_line;
	uint32_t nlines;	/* at least 1: what has no name has a function module+0xoffset; innermost first */
	uint64_t address;	/* never a run-time address */
};

struct export_pair {
	uint32_t name, value;
};

struct export_subject {
	uint64_t id;
	uint32_t pid;
	uint32_t flags;
	uint64_t cgroup_id;
	uint32_t executable;	/* path as mapped, "" unknown */
	uint32_t first_pair, npairs;	/* the labels that the exporter gave it; 0: it was not asked, or not in time */
};

struct export_sample {
	uint32_t subject;
	uint32_t tid;
	uint32_t comm;
	uint32_t first_frame;	/* in frames: location indexes, leaf first */
	uint32_t nframes;	/* a range of frames may be shared by several samples */
	uint64_t count;		/* this and the next at most INT64_MAX */
	uint64_t nanoseconds;
};

struct export_batch {
	uint64_t id;
	uint64_t tap;		/* 0: a window; else the answer to this EXPORT_TAP, which no sink gets */
	uint64_t wall_start_ns;
	uint64_t duration_ns;
	uint64_t period_ns;	/* 1e9 / hz, the nominal one */
	uint32_t nstrings, nmappings, nfunctions, nlines, nlocations, npairs, nsubjects, nsamples, nframes;
	struct export_string *strings;
	struct export_mapping *mappings;
	struct export_function *functions;
	struct export_line *lines;
	struct export_location *locations;
	struct export_pair *pairs;	/* a range may be shared by several subjects */
	struct export_subject *subjects;
	struct export_sample *samples;
	uint32_t *frames;
};

/* Sum of counts; UINT64_MAX where that is too many. */
uint64_t export_batch_count(const struct export_batch *b);
static inline bool export_sample_has_value(const struct export_sample *s)
{
	return s->count || s->nanoseconds;
}

void export_batch_fini(struct export_batch *b); /* frees the arrays; string texts are borrowed */
void export_batch_encode(struct bufw *w, const struct export_batch *b);
/* String texts are borrowed from the buffer. Checks every index and count. Leaves what follows unread. */
MUST_USE int export_batch_decode(struct bufr *in, struct export_batch *ret);

/* Follows the batch in EXPORT_BATCH: ids of (part, sink) that are not to be sent again. */
struct export_settled {
	uint32_t n;		/* at most EXPORT_TABLE_MAX */
	uint64_t *ids;
};

struct export_taken {
	uint64_t id;
	uint64_t nsamples;	/* sum of counts; what each sink has to account for */
};

/* ---- fates ---- */

/*
 * What became of the samples of a part at a sink. SENDING is told before the first byte of an attempt
 * leaves, WAITING when it certainly did not arrive and is to be tried again; all others are final.
 */
#define EXPORT_FATES(X)					\
	X(SENDING, "sending")				\
	X(WAITING, "waiting")				\
	X(DELIVERED, "delivered")			\
	X(QUEUE_FULL, "queue_full")			\
	X(TOO_OLD, "too_old")				\
	X(REJECTED, "rejected")				\
	X(WRITE_FAILED, "write_failed")			\
	X(IN_DOUBT, "in_doubt")		/* the exporter died while it was sent */ \
	X(POISONED, "poisoned")		/* the exporter dies of it */ \
	X(EXPORTER_LOST, "exporter_lost") /* the exporter died, and the agent had let go of the batch */ \
	X(ENDPOINT_REMOVED, "endpoint_removed")		\
	X(EXCLUDED, "excluded")		/* in no batch: not to be sampled, as was known too late */ \
	X(SHUTDOWN, "shutdown")

enum export_fate_kind {
#define X(id, text) EXPORT_FATE_##id,
	EXPORT_FATES(X)
#undef X
	EXPORT_FATE_COUNT,
};
const char *export_fate_text(enum export_fate_kind k);
static inline bool export_fate_is_final(enum export_fate_kind k)
{
	return k != EXPORT_FATE_SENDING && k != EXPORT_FATE_WAITING;
}

struct export_fate {
	uint64_t batch;
	uint64_t part;		/* id of (part, sink) */
	enum export_fate_kind kind;
	uint64_t nsamples;	/* sum of counts */
	const char *sink;	/* its name */
};

/* Of a batch that went to a descriptor (`record`), or of one as a whole. */
#define EXPORT_RESULTS(X)			\
	X(WRITTEN, "written")			\
	X(WRITE_FAILED, "write_failed")		\
	X(REFUSED, "refused")

enum export_result {
#define X(id, text) EXPORT_##id,
	EXPORT_RESULTS(X)
#undef X
	EXPORT_RESULT_COUNT,
};
const char *export_result_text(enum export_result r);

struct export_done {
	uint64_t id;
	enum export_result result;	/* WRITTEN also for a batch whose parts have their fates */
	uint32_t error;		/* errno of a failed write, or 0 */
	uint64_t nsamples;	/* sum of counts in the profile */
	uint64_t bytes;		/* of the compressed profiles */
};

struct export_tap {
	uint64_t id;		/* not 0; no other tap's, also after a restart */
	uint64_t duration_ns;
};

/* Why a tap was refused. */
#define EXPORT_REFUSALS(X)			\
	X(TOO_MANY, "too_many")			\
	X(NO_MEMORY, "agent_memory")		\
	X(INVALID, "invalid")			\
	X(NOT_SAMPLING, "not_sampling")

enum export_refusal {
#define X(id, text) EXPORT_REFUSAL_##id,
	EXPORT_REFUSALS(X)
#undef X
	EXPORT_REFUSAL_COUNT,
};
const char *export_refusal_text(enum export_refusal r);

struct export_tap_refused {
	uint64_t id;
	enum export_refusal why;
};

/* ---- status: what the API and /metrics say of the agent ---- */

/* id, name, type, label (or ""), help. One list is the message, the metric and the help. */
/* clang-format off */
#define EXPORT_METRICS(X)												\
	X(SEEN, "flamed_samples_seen_total", COUNTER, "", "Ticks on busy CPUs.")					\
	X(SAMPLES, "flamed_samples_total", COUNTER, "", "Samples counted in a window.")					\
	X(DROPPED, "flamed_samples_dropped_total", COUNTER, "reason", "Samples that are in no window.")			\
	X(OUTCOMES, "flamed_stacks_total", COUNTER, "outcome", "Stacks by how their unwinding ended.")			\
	X(SINK_SAMPLES, "flamed_sink_samples_total", COUNTER, "result", "Samples by what became of them at a sink.")	\
	X(SINK_PENDING, "flamed_sink_samples_pending", GAUGE, "", "Samples that a sink still has to account for.")	\
	X(WINDOWS, "flamed_windows_total", COUNTER, "end", "Windows by why they ended.")				\
	X(BATCHES_HELD, "flamed_batches_held", GAUGE, "", "Windows that are not delivered yet.")			\
	X(LABELS_LATE, "flamed_labels_late_total", COUNTER, "", "Processes whose window did not wait for labels.")	\
	X(NAMES_LATE, "flamed_names_late_total", COUNTER, "", "Addresses whose window did not wait for names.")		\
	X(NAMES_CUT, "flamed_names_cut_total", COUNTER, "", "Addresses named by less than their files tell: those were too large.") \
	X(EXCLUDED, "flamed_samples_excluded_total", COUNTER, "", "Samples left out of windows: not to be sampled.")	\
	X(ANNOUNCE_LOST, "flamed_announcements_lost_total", COUNTER, "reason", "Processes to be told again for labels.") \
	X(TAPS, "flamed_taps_total", COUNTER, "", "Profiles taken on demand.")						\
	X(TAPS_REFUSED, "flamed_taps_refused_total", COUNTER, "reason", "Profiles on demand that were refused.")	\
	X(TAPS_FULL, "flamed_tap_samples_dropped_total", COUNTER, "", "Samples missing in a profile on demand: it was full.") \
	X(RESTARTS, "flamed_child_restarts_total", COUNTER, "child", "Child processes that were replaced.")		\
	X(QUARANTINED, "flamed_files_quarantined", GAUGE, "", "Files that the symbolizer died of twice.")		\
	X(SIDEBAND_LOST, "flamed_sideband_lost_total", COUNTER, "", "Process events that the kernel dropped.")		\
	X(ROWS_EVICTED, "flamed_rows_evicted_total", COUNTER, "", "Files whose unwind rows were dropped for memory.")	\
	X(FILES_REFUSED, "flamed_files_refused_total", COUNTER, "", "Files not opened because too many were.")		\
	X(MEMORY, "flamed_memory_bytes", GAUGE, "process", "Anonymous and shared resident memory.")			\
	X(MAPS, "flamed_bpf_maps_bytes", GAUGE, "", "BPF maps and rings.")						\
	X(CPU, "flamed_cpu_nanoseconds_total", COUNTER, "process", "CPU time of flamed's own processes.")		\
	X(RELOAD_OK, "flamed_config_last_reload_successful", GAUGE, "", "Whether the last reload worked.")		\
	X(RELOAD_TIME, "flamed_config_last_reload_success_timestamp_seconds", GAUGE, "", "When the settings were read.")

enum export_metric_id {
#define X(id, name, type, label, help) EXPORT_METRIC_##id,
	EXPORT_METRICS(X)
#undef X
	EXPORT_METRIC_COUNT,
};
/* clang-format on */

struct export_metric {
	enum export_metric_id id;
	const char *endpoint;	/* a sink's name where the metric is about one, else "" */
	const char *label;	/* the value of its label, "" none */
	uint64_t value;
};

/* What the kernel says of one of our own processes. */
struct export_process {
	const char *name;
	uint32_t pid, uid;
	uint64_t caps_effective, caps_permitted;	/* bit per capability */
	bool seccomp, no_new_privs;
};

enum { EXPORT_METRICS_MAX = 4096, EXPORT_PROCESSES_MAX = 16 };

struct export_status {
	uint64_t start_wall_ns;	/* of the agent */
	uint32_t hz, ncpus;
	uint64_t window_ns;
	const char *config_path;	/* "" none */
	const char *missing_rights;	/* `cap_x: what is lost; ...` of what the agent was not given; "" all there */
	uint32_t nprocesses, nmetrics;
	struct export_process *processes;
	struct export_metric *metrics;
};

/*
 * Bytes. Texts and arrays of what is decoded live in *ret_mem (free it; may be NULL), those of
 * `settings` are borrowed. Texts end at their first NUL. -EBADMSG, -ENOMEM.
 */
void export_config_encode(struct bufw *w, const struct export_config *c);
MUST_USE int export_config_decode(struct bufr *in, struct export_config *ret, void **ret_mem);
void export_file_encode(struct bufw *w, const struct export_file *f);
MUST_USE int export_file_decode(struct bufr *in, struct export_file *ret);
void export_facts_encode(struct bufw *w, const struct export_facts *f);
MUST_USE int export_facts_decode(struct bufr *in, struct export_facts *ret, void **ret_mem);
void export_labels_encode(struct bufw *w, const struct export_labels *l);
MUST_USE int export_labels_decode(struct bufr *in, struct export_labels *ret, void **ret_mem);
void export_settled_encode(struct bufw *w, const struct export_settled *s);
MUST_USE int export_settled_decode(struct bufr *in, struct export_settled *ret); /* ret->ids is heap */
void export_taken_encode(struct bufw *w, const struct export_taken *t);
MUST_USE int export_taken_decode(struct bufr *in, struct export_taken *ret);
void export_fate_encode(struct bufw *w, const struct export_fate *f);
MUST_USE int export_fate_decode(struct bufr *in, struct export_fate *ret, void **ret_mem);
void export_done_encode(struct bufw *w, const struct export_done *d);
MUST_USE int export_done_decode(struct bufr *in, struct export_done *ret);
void export_tap_encode(struct bufw *w, const struct export_tap *t);
MUST_USE int export_tap_decode(struct bufr *in, struct export_tap *ret);
void export_tap_refused_encode(struct bufw *w, const struct export_tap_refused *r);
MUST_USE int export_tap_refused_decode(struct bufr *in, struct export_tap_refused *ret);
void export_status_encode(struct bufw *w, const struct export_status *s);
MUST_USE int export_status_decode(struct bufr *in, struct export_status *ret, void **ret_mem);

#endif
