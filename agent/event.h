/*
 * event - everything that the pipeline is told, and the log that keeps it.
 *
 * The pipeline is a pure function of the sequence of these events: `flamed record --events` writes
 * them, `flamed replay` reads them back. Payloads are borrowed for the call. Times are
 * CLOCK_MONOTONIC ns.
 *
 * May touch: the descriptor of the log. Never: anything live.
 */
#ifndef AGENT_EVENT_H
#define AGENT_EVENT_H

#include "agent/files.h"
#include "base/buf.h"
#include "bpf/abi.h"
#include "symbolizer/msg.h"

enum event_type {
	EVENT_START = 1,	/* what the run was asked for */
	EVENT_PROCESS,		/* /proc scan: a process and its mappings */
	EVENT_MAP,		/* side-band: an executable mapping */
	EVENT_COMM,		/* side-band: new name; exec when `exec` */
	EVENT_FORK,		/* side-band: a process (pid != ppid) or a thread */
	EVENT_EXIT,		/* side-band: a thread, or the process when tid == pid */
	EVENT_LOST,		/* side-band: the kernel dropped records */
	EVENT_SAMPLE,		/* one ring buffer record */
	EVENT_TURN,		/* all side-band records up to time_ns have been handed in */
	EVENT_OPENED,		/* the reader's answer for a file */
	EVENT_ROWS,		/* the symbolizer's answer */
	EVENT_NAMES,
	EVENT_KERNEL,		/* names of kernel addresses */
	EVENT_COUNTERS,		/* of BPF, absolute */
	EVENT_WINDOW,		/* the window ends: name it and hand it on */
	EVENT_LABELS,		/* the exporter's answer for a subject */
	EVENT_RELABEL,		/* the settings changed: every subject is to be announced again */
	EVENT_TAP,		/* a second aggregate begins: it gets every sample from now on, for so long */
	EVENT_MEMORY,		/* the reader's answer for pages of a thread */
	EVENT_TYPE_COUNT,
};

enum { EVENT_TARGETS_MAX = 256, EVENT_PAGES_MAX = 8, EVENT_PAGE_BYTES = 4096 };

struct event_start {
	uint64_t wall_ns;	/* of time_ns */
	uint32_t hz;
	uint32_t ncpus;
	uint32_t ntargets;	/* 0: the whole host */
	uint32_t targets[EVENT_TARGETS_MAX];	/* these processes and their later children */
	bool after_exec;	/* the targets count from their next exec on (record -- COMMAND) */
	uint64_t files_max;	/* descriptors of mapped files that may be held at once; 0: no limit */
	/* How long a window waits for its names and labels; 0: without end, and subjects are not announced. */
	uint64_t labels_wait_ns;
};

struct event_map {
	uint32_t pid, tid;
	uint64_t start, end, offset;
	struct file_key key;
	const char *path;	/* "//anon", "[vdso]", "/memfd:x (deleted)" ... as the kernel says */
};

struct event_process {
	uint32_t pid, ppid;
	bool kernel_thread;
	const char *comm;
	const char *executable;	/* "" unknown */
	uint32_t nmaps;
	const struct event_map *maps;
};

struct event_comm { uint32_t pid, tid; bool exec; const char *comm; };
struct event_fork { uint32_t pid, tid, ppid, ptid; };
struct event_exit { uint32_t pid, tid; };
struct event_lost { uint32_t cpu; uint64_t count; };
struct event_sample { const struct abi_record *record; size_t len; };
struct event_opened {
	uint64_t file_id;
	bool ok;
	struct file_identity identity;
	int fd;			/* -1 in a replay; ownership passes to the pipeline */
};
/* As it was when it was read: later than the sample that it was asked for. */
struct event_memory {
	uint64_t id;		/* of the question */
	bool late;		/* the reader hung on it */
	uint32_t npages;	/* as asked; 0: none could be read */
	uint32_t present;	/* a bit for each that could; the bytes of the others are 0 */
	const uint8_t *pages;	/* npages * EVENT_PAGE_BYTES */
};
struct event_answer {	/* ROWS, NAMES: the message as it came */
	const struct msg_request *request;
	const uint8_t *data;
	size_t len;
};

/* Kernel code that came or went: a BPF program, a trampoline. No event: kallsyms.h keeps it. */
struct event_code {
	uint64_t address;
	uint32_t bytes;
	bool is_bpf, gone;
	const char *name;
};

struct event_kernel_symbol {
	uint64_t address;	/* as asked */
	uint64_t relative;	/* to _text or to the module's start; never a run-time address */
	const char *name;	/* "" unknown */
	const char *module;	/* "[kernel]", or the module's name in brackets */
};
struct event_kernel { uint32_t nsymbols; const struct event_kernel_symbol *symbols; };
struct event_counters { uint32_t n; const uint64_t *values; };
/* A second one that is the last ends nothing: what waits for names or labels is handed on without. */
struct event_window { uint64_t wall_start_ns, duration_ns; bool last; };
struct event_label { const char *name, *value; };
struct event_labels {
	uint64_t subject_id;
	uint32_t keep_one_in;	/* 1: sample it; 0: skip it; N: keep one sample in N */
	uint32_t nlabels;
	const struct event_label *labels;
};
/* wall_start_ns is that of time_ns. Its batch is handed on when the last sample of its time is done. */
struct event_tap { uint64_t id, wall_start_ns, duration_ns; };

struct event {
	enum event_type type;
	uint64_t time_ns;
	union {
		struct event_start start;
		struct event_process process;
		struct event_map map;
		struct event_comm comm;
		struct event_fork fork;
		struct event_exit exit;
		struct event_lost lost;
		struct event_sample sample;
		struct event_opened opened;
		struct event_memory memory;
		struct event_answer answer;
		struct event_kernel kernel;
		struct event_counters counters;
		struct event_window window;
		struct event_labels labels;
		struct event_tap tap;
	};
};

/* ---- bytes ---- */

enum {
	EVENT_PATH_MAX = 8192,		/* bytes of a path; the kernel's own limit is a page */
	EVENT_COMM_MAX = 64,		/* kernel workers have names longer than a task's 15 */
	EVENT_NAME_MAX = 4096,		/* of a kernel symbol or module */
	EVENT_MAPS_MAX = 65536,		/* mappings of one process */
	EVENT_COUNTERS_MAX = 256,
	EVENT_SYMBOLS_MAX = 1 << 20,
	EVENT_BYTES_MAX = 80 * 1024 * 1024,	/* an answer of IPC_PAYLOAD_MAX and its request fit */
};

/* Type and time are not part of the payload. A descriptor is not encoded. */
void event_encode(struct bufw *w, const struct event *e);
/*
 * Strings, arrays and the request of `ret` live in *ret_mem (free it; may be NULL); a sample, pages and an
 * answer's bytes are borrowed from `data`, which must be aligned to 8. -EBADMSG, -ENOMEM.
 */
MUST_USE int event_decode(enum event_type type, uint64_t time_ns, const void *data, size_t len,
			  struct event *ret, void **ret_mem);

/* ---- the log ---- */

struct event_log;	/* writer */

/* Takes the descriptor. */
MUST_USE int event_log_new(struct event_log **ret, int fd);
/* Buffered. -EINVAL: an event that no log may hold (nothing was written). Other errors stick. */
MUST_USE int event_log_write(struct event_log *log, const struct event *e);
MUST_USE int event_log_close(struct event_log **log); /* flushes; the first error of the log's life */
struct event_log *event_log_free(struct event_log *log);
DEFINE_CLEANUP(struct event_log *, event_log_free);

typedef int event_fn(void *arg, const struct event *e);
/*
 * Decodes every event of a log in order. -EBADMSG: not a log of this version, or damaged.
 * EVENT_LOG_TRUNCATED: the log ends in the middle of an event, as that of a killed recording does;
 * all before it was delivered. What fn returns other than 0 ends the reading and is returned.
 */
enum { EVENT_LOG_TRUNCATED = 1 };
MUST_USE int event_log_read(int fd, event_fn *fn, void *arg);

#endif
