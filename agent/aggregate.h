/*
 * aggregate - the stacks of one window, each once, with how often it was seen.
 *
 * Frames are interned: a stack is a run of frame indexes, leaf first. Everything lives in a few
 * growing arrays and is dropped whole with the window. At most `max_bytes`, and no more than fits
 * into one message to the exporter (exporter/msg.h, IPC_PAYLOAD_MAX); stacks that are known are
 * counted on when it is full.
 *
 * May touch: references to files and subjects. Never: names.
 */
#ifndef AGENT_AGGREGATE_H
#define AGENT_AGGREGATE_H

#include "agent/files.h"
#include "agent/procs.h"
#include "agent/unwind.h"
#include "bpf/abi.h"

enum {
	AGGREGATE_FRAMES_MAX = 512 * 1024,	/* distinct ones; a location each */
	AGGREGATE_STACK_WIRE = 72,		/* bytes of a sample and of a subject of its own */
	AGGREGATE_WIRE_MAX = 32 * 1024 * 1024,	/* of all stacks, with 4 bytes for each frame */
};

enum frame_kind {
	FRAME_FILE,	/* `file`, `value` is the file offset */
	FRAME_JIT,	/* memory without a file; `value` is the run-time address when `file` names it, else the
			   offset in its page, which is all that leaves */
	FRAME_KERNEL,	/* `value` is the kernel's run-time address, of callers one less; named before it leaves */
	FRAME_OUTCOME,	/* synthetic root; `value` is enum unwind_outcome */
};

struct frame {
	enum frame_kind kind;
	uint64_t value;
	struct file *file;	/* a reference, or NULL */
};

struct stack {
	struct subject *subject;	/* a reference */
	uint32_t tid;
	char comm[ABI_COMM_LEN];	/* NUL-padded, may lack a final NUL */
	uint32_t first_frame, nframes;	/* in aggregate_frame_index() */
	uint64_t count;
	uint64_t nanoseconds;
	uint64_t hash;
};

struct aggregate;

MUST_USE int aggregate_new(struct aggregate **ret, size_t max_bytes);
struct aggregate *aggregate_free(struct aggregate *a);
DEFINE_CLEANUP(struct aggregate *, aggregate_free);

struct aggregate_sample {
	struct subject *subject;
	uint32_t tid;
	const char *comm;	/* ABI_COMM_LEN bytes */
	uint64_t period_ns;
	const uint64_t *kernel;	/* addresses, leaf first */
	uint32_t nkernel;
	const struct unwind_frame *user;
	uint32_t nuser;
	enum unwind_outcome outcome;
	struct file *jit;	/* what names frames without a file, or NULL */
};

/* 0, -ENOMEM, or -ENOSPC when the window is full. */
MUST_USE int aggregate_add(struct aggregate *a, const struct aggregate_sample *s);

size_t aggregate_nstacks(const struct aggregate *a);
const struct stack *aggregate_stack(const struct aggregate *a, size_t i);
size_t aggregate_nframes(const struct aggregate *a); /* distinct */
const struct frame *aggregate_frame(const struct aggregate *a, size_t i);
const uint32_t *aggregate_frame_index(const struct aggregate *a, const struct stack *s);
uint64_t aggregate_samples(const struct aggregate *a);
size_t aggregate_bytes(const struct aggregate *a);

#endif
