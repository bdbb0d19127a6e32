/*
 * msg - what the agent hands the exporter, and what it answers.
 *
 * Channel: base/ipc.h. The agent sends a batch as one message and keeps it until the exporter
 * answers DONE for its id: delivered, spooled, or dropped with reasons. After a restart of the
 * exporter the unanswered batches are sent again; ids make that idempotent.
 *
 * A batch is one window of one kind of profile: tables that refer to each other by index, as in
 * pprof, but still split by subject (a process), because labels are the exporter's work.
 */
#ifndef EXPORTER_MSG_H
#define EXPORTER_MSG_H

#include "base/buf.h"

enum export_type {
	EXPORT_OUTPUT = 1,	/* agent: a descriptor to write `record`'s profile to; no payload */
	EXPORT_BATCH = 2,	/* agent: struct export_batch */
	EXPORT_DONE = 3,	/* exporter: struct export_done */
};

enum {
	EXPORT_STRINGS_MAX = 16 * 1024 * 1024,
	EXPORT_FRAMES_MAX = 16384,	/* of one stack */
	EXPORT_LINES_MAX = 256,		/* of one location */
	/* Beyond these a batch is REFUSED. */
	EXPORT_TABLE_MAX = 1024 * 1024,	/* entries of each table other than frames */
	EXPORT_TOTAL_MAX = 16 * 1024 * 1024,	/* frames of all stacks; lines of all locations */
};

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

enum { EXPORT_SUBJECT_KERNEL = 1 };	/* a kernel thread */
struct export_subject {
	uint32_t pid;
	uint32_t flags;
	uint64_t cgroup_id;
	uint32_t executable;	/* path as mapped, "" unknown */
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
	uint64_t wall_start_ns;
	uint64_t duration_ns;
	uint64_t period_ns;	/* 1e9 / hz, the nominal one */
	uint32_t nstrings, nmappings, nfunctions, nlines, nlocations, nsubjects, nsamples, nframes;
	struct export_string *strings;
	struct export_mapping *mappings;
	struct export_function *functions;
	struct export_line *lines;
	struct export_location *locations;
	struct export_subject *subjects;
	struct export_sample *samples;
	uint32_t *frames;
};

void export_batch_fini(struct export_batch *b); /* frees the arrays; string texts are borrowed */
void export_batch_encode(struct bufw *w, const struct export_batch *b);
/* String texts are borrowed from the buffer. Checks every index and count. */
MUST_USE int export_batch_decode(struct bufr *in, struct export_batch *ret);

/* What became of a batch's samples. */
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
	enum export_result result;
	uint32_t error;		/* errno of a failed write, or 0 */
	uint64_t nsamples;	/* sum of counts in the profile */
	uint64_t bytes;		/* of the compressed profile */
};

void export_done_encode(struct bufw *w, const struct export_done *d);
MUST_USE int export_done_decode(struct bufr *in, struct export_done *ret);

#endif
