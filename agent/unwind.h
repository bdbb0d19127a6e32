/*
 * unwind - from registers and copied stack windows to the frames of the user stack.
 *
 * A pure function of its input, the maps and the rows: it reads no memory but what it was given.
 * Every value from the target is hostile: no comparison may wrap, no chain may be endless.
 *
 * Order at each frame: CFI row; else the frame pointer, if what it leads to is plausible; else stop.
 * Return addresses are looked up one byte before; interrupted pcs (leaf, below a signal frame) as they
 * are, but in rt_sigreturn(2), which a thread is in the trampoline of. Each return address must lie in an
 * executable mapping and, where it lies in a file, follow a call instruction, or else be a root: 0 (by a
 * row, not by a frame pointer), or a place that no code runs into and no call returns to
 * (MSG_RES_FUNCTION_START), which gets no frame. Where nothing is known of the code's bytes (JIT code, a
 * file that could not be read) there is no such check.
 *
 * in_exec and exiting come without frames, new_thread with its leaf, which is its root.
 *
 * Source: DWARF 5 section 6.4; System V x86-64 psABI 3.2 and 3.4.1. The architecture's part is
 * unwind_x86_64.c behind unwind_arch.h.
 */
#ifndef AGENT_UNWIND_H
#define AGENT_UNWIND_H

#include "agent/maps.h"
#include "agent/rows.h"
#include "bpf/abi.h"

/* Windows: those of a sample, and as many again that come late (pipeline_learn.c); bits of `used`. */
enum { UNWIND_FRAMES_MAX = 8192, UNWIND_WINDOWS_MAX = 64 };

/* How a stack ended. One list: enum, metric text, synthetic root frame ("" = none). */
#define UNWIND_OUTCOMES(X)						\
	X(COMPLETE, "complete", "")					\
	X(TRUNCATED, "truncated", "[truncated]")			\
	X(NO_CFI, "no_cfi", "[unwind: no CFI]")				\
	X(NO_MAPPING, "no_mapping", "[unwind: no mapping]")		\
	X(BAD_FRAME, "bad_frame", "[unwind: bad frame]")		\
	X(TOO_DEEP, "too_deep", "[unwind: too deep]")			\
	X(COMPAT32, "compat32", "[unwind: 32-bit]")			\
	X(ROWS_LATE, "rows_late", "[unwind: late]")			\
	X(NO_STACK, "no_stack", "[no user stack]")			\
	X(KERNEL_THREAD, "kernel_thread", "")				\
	X(IN_EXEC, "in_exec", "")					\
	X(NEW_THREAD, "new_thread", "")					\
	X(EXITING, "exiting", "")

enum unwind_outcome {
#define X(id, text, root) UNWIND_##id,
	UNWIND_OUTCOMES(X)
#undef X
	UNWIND_OUTCOME_COUNT,
};

const char *unwind_outcome_text(enum unwind_outcome o);
const char *unwind_outcome_root(enum unwind_outcome o); /* "" for none */
/* Whether stacks of this outcome count in completeness = complete / all that count. */
bool unwind_outcome_counts(enum unwind_outcome o);

struct unwind_window {
	uint64_t address;
	const uint8_t *data;
	uint32_t len;
	uint64_t holes;		/* as struct abi_section */
};

struct unwind_input {
	uint64_t regs[ABI_REGS_MAX];	/* DWARF order */
	uint32_t nregs;			/* 0: none */
	uint32_t flags;			/* ABI_F_* */
	uint64_t goroutine_sp;		/* MSG_REG_GOROUTINE_SP; 0: no goroutine waits */
	uint64_t goroutine_pc;
	uint32_t nfollowed;		/* 0: none */
	const uint64_t *followed;	/* ABI_SEC_USTACK: return addresses by frame pointers, the leaf's pc first */
	uint32_t nwindows;
	struct unwind_window windows[UNWIND_WINDOWS_MAX];
};

/* A frame: file and place in it, or an address in a mapping without file. */
struct unwind_frame {
	struct file *file;	/* resolved; borrowed from the maps; NULL: memory without a file */
	/*
	 * File offset or run-time address. Of callers: return address - 1, so that it lies in the
	 * call; of a signal trampoline, which nobody called, the address it was entered at.
	 */
	uint64_t offset;
	uint8_t map_kind;	/* enum map_kind */
};

struct unwind_want {
	struct file *file;
	uint64_t offset;
	bool is_return;
};

struct unwind_result {
	enum unwind_outcome outcome;
	uint32_t nframes;
	struct unwind_frame frames[UNWIND_FRAMES_MAX]; /* leaf first */
	struct unwind_want want;	/* when unwind_run() returned UNWIND_WANT */
	uint64_t root_cfa;		/* of a complete stack, 0 unknown */
	uint64_t missing;		/* of a truncated one: an address that no window held */
	uint64_t used;			/* the windows that were read, a bit each */
};

enum { UNWIND_DONE = 0, UNWIND_WANT = 1 };

/*
 * UNWIND_DONE, or UNWIND_WANT: rows of ret->want are unknown; ask, park the sample, and call again.
 * With `settle`, unknown rows end the stack with ROWS_LATE instead. `ret` is scratch that the caller
 * keeps (it is large); its frames up to nframes are valid in both cases.
 */
int unwind_run(const struct unwind_input *in, const struct maps *maps, bool settle,
	       struct unwind_result *ret);

/*
 * Words of the windows that may be return addresses into files whose rows are unknown, as hints
 * for what to ask along with a want. Never used as frames. Returns their number, at most max.
 */
uint32_t unwind_guess(const struct unwind_input *in, const struct maps *maps, struct unwind_want *ret,
		      uint32_t max);

#endif
