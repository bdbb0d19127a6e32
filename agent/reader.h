/*
 * reader - the process that may touch what belongs to strangers, and may block on it.
 *
 * It runs as `flamed` with argv[1] "reader", keeps SYS_PTRACE, DAC_READ_SEARCH and CHECKPOINT_RESTORE
 * (and PERFMON until its own mmap event is open), opens and reads, and never parses what a stranger
 * wrote: /proc/PID/maps is the kernel's text. Requests are answered in order; deadlines are the
 * client's (readerclient.h).
 *
 * A file on a FUSE file system, and each that the settings name, is handed over as a copy in a sealed
 * memfd: reading the original of a server that is gone, and closing it on FUSE, can hang its holder for
 * ever, and no other process of ours may hang.
 *
 * May touch: /proc, files of every process. Never: the network, what is in a file.
 */
#ifndef AGENT_READER_H
#define AGENT_READER_H

#include "agent/event.h"

enum reader_type {
	READER_SCAN = 1,	/* -> PROCESS..., SCANNED */
	READER_PROCESS = 2,
	READER_SCANNED = 3,
	READER_OPEN = 4,	/* -> OPENED, with the descriptor when it succeeded */
	READER_OPENED = 5,
	READER_CGROUPS = 6,	/* struct reader_cgroups -> TEXT */
	READER_TEXT = 7,	/* struct reader_text */
	/*
	 * A path from the root -> OPENED (file_id 0): a file that the settings name, as a copy.
	 * EINVAL for what is no regular file or no such path, EFBIG over READER_CONFIG_MAX bytes.
	 */
	READER_CONFIG = 8,
	READER_PEEK = 9,	/* struct reader_peek -> MEMORY */
	READER_MEMORY = 10,	/* struct event_memory */
	/*
	 * struct reader_debug -> OPENED (file_id 0), with the descriptor of a regular file: links, also absolute
	 * ones, stay inside the root.
	 */
	READER_DEBUG = 11,
};

enum {
	READER_PIDS_MAX = 8,
	READER_TEXT_MAX = 4096,
	READER_CONFIG_MAX = 1024 * 1024,
	READER_COPY_MAX = 64 * 1024 * 1024,	/* bytes of a file that is copied; larger: EFBIG */
};

/*
 * All processes with a pid above after_pid, in ascending order, so that a scan that was cut short
 * goes on where it was. Of the first of them only what cannot block is read when `careful`: it is
 * the one that the reader before hung on. A process with more than EVENT_MAPS_MAX mappings, or
 * 16 MiB of them, is told with those that fit.
 */
struct reader_scan {
	uint32_t after_pid;
	bool careful;
};

/*
 * Opens the file of a mapping: through /proc/PID/map_files, else by path under the roots of pids[]
 * in order, else under /proc/1/root. A candidate found by path must agree: the kernel reports the
 * same device, inode and generation for a one-page mapping that the reader makes of it (key from
 * the side-band), or the same device and inode in the reader's own /proc/self/maps (key from /proc).
 *
 * With the path READER_PERF_MAP: the map that a JIT wrote of its code, /tmp/perf-N.map below the root of
 * the first of pids[] that has one, N being its number in its innermost pid namespace. A regular file of
 * that process's user or root's, written to since the process began.
 */
#define READER_PERF_MAP "[jit]"
struct reader_open {
	uint64_t file_id;
	uint64_t start, end;	/* the mapping in pids[0]; 0, 0 when unknown */
	uint64_t offset;
	struct file_key key;
	uint32_t npids;
	uint32_t pids[READER_PIDS_MAX];	/* the process, its parent, others of its kind */
	const char *path;
};

/* A path in the root of a process, or of the host. */
struct reader_debug {
	uint32_t pid;		/* 0: the host */
	const char *path;
};

/*
 * Pages of a live thread's memory, as they are now. That can hang as a file can (userfaultfd), and brings
 * pages in that were never touched or are swapped out.
 */
struct reader_peek {
	uint64_t id;
	uint32_t tid;
	uint32_t npages;
	uint64_t pages[EVENT_PAGES_MAX];	/* addresses, multiples of EVENT_PAGE_BYTES */
};

/*
 * The lines of /proc/PID/cgroup. When the process is gone, or so nearly that it is in no control group
 * any more, the one line `0::PATH` of the control group with this id, when that still exists (a handle
 * of type FILEID_KERNFS, Linux 5.5, on the mount of its hierarchy; else none).
 */
struct reader_cgroups {
	uint32_t pid;
	uint64_t cgroup_id;	/* as in struct abi_record; 0 unknown */
};

struct reader_text {
	/* All that are sampled in this control group have this text: there is no hierarchy but v2. */
	bool is_of_cgroup;
	size_t len;		/* at most READER_TEXT_MAX; 0: there is nothing to read */
	const char *text;	/* whole lines as the kernel wrote them, the last ones when not all fit */
};

struct reader_opened {
	uint64_t file_id;
	int error;		/* 0, or the errno that says best why not */
	struct file_identity identity;	/* of the file, also where the descriptor is of a copy */
	uint32_t mode;			/* as st_mode */
};

void reader_scan_encode(struct bufw *w, const struct reader_scan *s);
MUST_USE int reader_scan_decode(struct bufr *in, struct reader_scan *ret);
void reader_open_encode(struct bufw *w, const struct reader_open *r);
MUST_USE int reader_open_decode(struct bufr *in, struct reader_open *ret); /* ret->path is heap: free it */
void reader_cgroups_encode(struct bufw *w, const struct reader_cgroups *c);
MUST_USE int reader_cgroups_decode(struct bufr *in, struct reader_cgroups *ret);
void reader_debug_encode(struct bufw *w, const struct reader_debug *d);
MUST_USE int reader_debug_decode(struct bufr *in, struct reader_debug *ret); /* ret->path is heap: free it */
void reader_peek_encode(struct bufw *w, const struct reader_peek *p);
MUST_USE int reader_peek_decode(struct bufr *in, struct reader_peek *ret);
void reader_text_encode(struct bufw *w, const struct reader_text *t);
MUST_USE int reader_text_decode(struct bufr *in, struct reader_text *ret); /* text is borrowed */
void reader_opened_encode(struct bufw *w, const struct reader_opened *r);
MUST_USE int reader_opened_decode(struct bufr *in, struct reader_opened *ret);
/* EVENT_PROCESS as bytes; shared with the event log. Decoded strings and maps live in `ret_mem`: free it. */
void event_process_encode(struct bufw *w, const struct event_process *p);
MUST_USE int event_process_decode(struct bufr *in, struct event_process *ret, void **ret_mem);

/* EVENT_MEMORY as bytes, likewise; the pages are borrowed. */
void event_memory_encode(struct bufw *w, const struct event_memory *m);
MUST_USE int event_memory_decode(struct bufr *in, struct event_memory *ret);

/* The reader's main; its exit status. */
MUST_USE int reader_main(void);

#endif
