/*
 * unwind_arch - between unwind.c, the DWARF machine (unwind_cfi.c) and the architecture's part.
 *
 * A cursor is one frame's registers. A step turns it into the caller's, or leaves it as it was and
 * says why not. Reads see the copied windows only.
 *
 * May touch: the cursor. Never: maps, rows, the result.
 */
#ifndef AGENT_UNWIND_ARCH_H
#define AGENT_UNWIND_ARCH_H

#include "agent/rows.h"
#include "agent/unwind.h"

#if defined(__x86_64__)
enum {
	UNWIND_PC = ABI_X86_RIP,
	UNWIND_SP = ABI_X86_RSP,
	UNWIND_FP = ABI_X86_RBP,
	UNWIND_NREGS = ABI_X86_NREGS,
	UNWIND_SYSCALL_LEN = 2,	/* bytes of the instruction that calls the kernel */
};
#define UNWIND_BIT(reg) (1ull << (reg))
#else
#error "no unwinder for this architecture"
#endif

/* User space as far as a stack or a pc may lie in it: above mmap_min_addr, below the 47-bit end. */
#define UNWIND_USER_MIN 0x10000ull
#define UNWIND_USER_MAX 0x7ffffffff000ull

/* How far above where we stand an address may be of the same stack; the usual limit is 8 MiB. */
#define UNWIND_REACH (256ull << 20)

enum unwind_step {
	UNWIND_STEP_OK,
	UNWIND_STEP_END,       /* the frame is the outermost one; `floor` is its CFA */
	UNWIND_STEP_TRUNCATED, /* it needs stack that was not copied */
	UNWIND_STEP_BAD,       /* it makes no sense */
	UNWIND_STEP_NO_CFI,    /* no rule for it holds */
};

struct unwind_cursor {
	const struct unwind_input *in;
	const struct unwind_window *window; /* that answered last */
	uint64_t regs[ABI_REGS_MAX];
	uint64_t valid;	  /* bit per register: its value is known */
	uint64_t lost;	  /* ... it would be, had its place on the stack been copied */
	uint64_t skipped; /* ... it would be, had the inner loop not skipped it */
	bool wants_skipped; /* one of those was asked for: all of this is void, walk again with ... */
	bool skips_none;
	uint64_t base;	  /* the stack that we are on lies above */
	uint64_t floor;	  /* the caller's stack pointer must lie above */
	uint64_t missing; /* the address that a TRUNCATED step wanted */
	uint64_t used;	  /* as struct unwind_result */
	bool is_return;	  /* the pc is a return address, not interrupted */
	bool backward;	  /* the last step did not go up: another stack, or a circle */
	bool goroutine_gone; /* the walk has been led to the one that waits; none does farther up */
};

/*
 * `size` bytes (1 to 8) at `addr`, zero-extended. What is in no window, or in a hole of one, is
 * TRUNCATED when it may be stack that was not copied: a user address at most UNWIND_REACH above the
 * stack's base, or any one at all if the sampler said that something is missing (ABI_F_CUT,
 * ABI_F_PART_LOST) or if `elsewhere`: it may belong to another stack. All else is BAD.
 */
MUST_USE enum unwind_step unwind_read(struct unwind_cursor *c, uint64_t addr, uint32_t size,
				      bool elsewhere, uint64_t *ret);
/* The window that holds all of these bytes, none in a hole; NULL when there is none. */
const uint8_t *unwind_bytes(struct unwind_cursor *c, uint64_t addr, uint64_t len);

/*
 * One frame by its rules. A register without a rule stays what it is, also one that a function may
 * clobber: hand-written callers that know their callee keep their CFA in one (OpenSSL's AES-GCM in
 * rax), and gcc's and gdb's unwinders have it so. Compilers never name such a register behind a call.
 */
MUST_USE enum unwind_step unwind_rules_step(struct unwind_cursor *c, const struct row *row);

/*
 * One frame by the frame pointer, for code that has no row. NO_CFI where it does not point to a
 * saved frame pointer and a return address; whether that address is one, the caller checks.
 */
MUST_USE enum unwind_step unwind_arch_frame_pointer(struct unwind_cursor *c);
/* Whether this leaf without row is a thread's first instruction after its clone system call. */
bool unwind_arch_new_thread(struct unwind_cursor *c);

/*
 * Whether what the kernel keeps of what a signal interrupted can be at this stack pointer, with which the handler's
 * trampoline begins. True where it was not copied.
 */
bool unwind_arch_on_signal_frame(struct unwind_cursor *c);

/* Whether a clone system call that returns to this leaf made the thread. */
bool unwind_arch_is_child(const struct unwind_cursor *c);

/* ---- what the inner loop inlines ---- */

/* Offsets into a window are taken by a subtraction that may wrap: then they are past any length. */
static inline bool unwind_in_window(const struct unwind_window *w, uint64_t addr, uint64_t len)
{
	return len <= w->len && addr - w->address <= w->len - len;
}

static inline bool unwind_is_user(uint64_t addr)
{
	return addr >= UNWIND_USER_MIN && addr <= UNWIND_USER_MAX;
}

static inline uint64_t unwind_load(const uint8_t *p, uint32_t size)
{
	uint64_t v = 0;

	__builtin_memcpy(&v, p, size); /* little endian */
	return v;
}

/*
 * A caller's stack pointer lies above its callee's. Only a signal frame, and a row whose CFA or
 * stack pointer does not come from the callee's, can lead to another stack, where it may be below.
 */
static inline enum unwind_step unwind_advance(struct unwind_cursor *c, uint64_t sp, bool may_switch,
					      bool is_signal)
{
	if (!may_switch && sp <= c->floor)
		return UNWIND_STEP_BAD;
	c->backward = sp <= c->floor;
	if (may_switch && sp - c->base >= UNWIND_REACH)
		c->base = sp;
	/* What a signal interrupted may use its red zone. */
	c->floor = is_signal ? sp - ABI_RED_ZONE : sp;
	if (is_signal && c->floor < c->base)
		c->base = c->floor;
	c->is_return = !is_signal;
	return UNWIND_STEP_OK;
}

/*
 * What the inner loop has in local variables. Of the registers it follows those three that nearly all
 * rows are content with; the others that a frame had saved are skipped.
 */
struct unwind_hot {
	uint64_t sp, fp, pc, floor;
	const uint8_t *data;   /* the cursor's window, where it is as usual: without holes, in user */
	uint64_t address, len; /* space, within reach of the base; else len is 0 */
	uint32_t saved;	       /* bit per register that a frame had saved */
};

static inline struct unwind_hot unwind_hot_begin(const struct unwind_cursor *c)
{
	const uint64_t needed = UNWIND_BIT(UNWIND_SP) | UNWIND_BIT(UNWIND_FP);
	const struct unwind_window *w = c->window;
	uint64_t end = w->address + w->len;
	bool usual = !c->skips_none && (c->valid & needed) == needed && w->holes == 0 &&
		     unwind_is_user(w->address) && unwind_is_user(end) &&
		     end - c->base < UNWIND_REACH;

	return (struct unwind_hot){ .sp = c->regs[UNWIND_SP],
				    .fp = c->regs[UNWIND_FP],
				    .floor = c->floor,
				    .data = w->data,
				    .address = w->address,
				    .len = usual ? w->len : 0 };
}

static inline void unwind_hot_end(const struct unwind_hot *h, struct unwind_cursor *c)
{
	uint64_t skipped = h->saved & ~UNWIND_BIT(UNWIND_FP);

	if (h->floor == c->floor)
		return; /* no step was made: each raises it */
	c->regs[UNWIND_SP] = h->sp;
	c->regs[UNWIND_FP] = h->fp;
	c->regs[UNWIND_PC] = h->pc;
	c->floor = h->floor;
	c->valid = (c->valid & ~skipped) | UNWIND_BIT(UNWIND_PC);
	c->lost &= ~skipped;
	c->skipped |= skipped;
	c->is_return = true;
	c->backward = false;
}

/* One frame by a plain row, where nothing is unusual; false, and nothing done, elsewhere. */
static inline bool unwind_hot_step(struct unwind_hot *h, const struct row_plain *p)
{
	uint64_t cfa = (p->cfa_is_fp ? h->fp : h->sp) + (uint64_t)(int64_t)p->cfa_off;
	uint64_t top = cfa - h->address, len = 8ull * p->nslots, ra, fp;
	const uint8_t *slots;

	if (top > h->len || top < len || cfa <= h->floor)
		return false;
	slots = h->data + (top - len);
	ra = unwind_load(slots + 8ull * p->ra_slot, 8);
	if (ra == 0)
		return false;
	fp = unwind_load(slots + 8ull * p->fp_slot, 8);
	h->fp = p->saved & UNWIND_BIT(UNWIND_FP) ? fp : h->fp;
	h->saved |= p->saved;
	h->sp = h->floor = cfa;
	h->pc = ra;
	return true;
}

#endif
