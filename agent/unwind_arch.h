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
	UNWIND_NREGS = ABI_X86_NREGS,
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
	uint64_t regs[ABI_REGS_MAX + 1];    /* the last takes what is not wanted, see rows.h */
	uint64_t valid;			    /* bit per register: its value is known */
	uint64_t lost;	  /* ... it would be, had its place on the stack been copied */
	uint64_t base;	  /* the stack that we are on lies above */
	uint64_t floor;	  /* the caller's stack pointer must lie above */
	uint64_t missing; /* the address that a TRUNCATED step wanted */
	bool is_return;	  /* the pc is a return address, not interrupted */
	bool backward;	  /* the last step did not go up: another stack, or a circle */
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

/* One frame by its rules, and by the slots of a plain row that are not all in one window. */
MUST_USE enum unwind_step unwind_rules_step(struct unwind_cursor *c, const struct row *row);
MUST_USE enum unwind_step unwind_scattered_step(struct unwind_cursor *c, const struct row_plain *p,
						uint64_t cfa);
/* Why a rule cannot use a register that is not valid. */
enum unwind_step unwind_invalid(const struct unwind_cursor *c, uint8_t reg);

/*
 * One frame by the frame pointer, for code that has no row. NO_CFI where it does not point to a
 * saved frame pointer and a return address; whether that address is one, the caller checks.
 */
MUST_USE enum unwind_step unwind_arch_frame_pointer(struct unwind_cursor *c);
/* Whether this leaf without row is a thread's first instruction after its clone system call. */
bool unwind_arch_new_thread(struct unwind_cursor *c);

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
 * One frame by a plain row. Loads ROW_SAVED_MAX words always: a loop of unknown length costs more.
 * A register without a rule stays what it is, also one that a function may clobber: hand-written
 * callers that know their callee keep their CFA in one (OpenSSL's AES-GCM in rax), and gcc's and
 * gdb's unwinders have it so. Compilers never name such a register behind a call.
 */
static inline enum unwind_step unwind_plain_step(struct unwind_cursor *c, const struct row_plain *p)
{
	uint64_t cfa = c->regs[p->cfa_reg] + (uint64_t)(int64_t)p->cfa_off, ra;
	uint64_t len = 8ull * p->nslots, valid = c->valid;
	const struct unwind_window *w = c->window;
	const uint8_t *slots;

	if (!(valid >> p->cfa_reg & 1))
		return unwind_invalid(c, p->cfa_reg);
	if (!unwind_is_user(cfa))
		return UNWIND_STEP_BAD;
	if (w->holes != 0 || !unwind_in_window(w, cfa - len, len))
		return unwind_scattered_step(c, p, cfa);
	slots = w->data + (cfa - len - w->address);
	ra = unwind_load(slots + 8ull * p->ra_slot, 8);
	if (ra == 0) {
		c->floor = cfa;
		return UNWIND_STEP_END;
	}
	if (unwind_advance(c, cfa, p->cfa_reg != UNWIND_SP, false) != UNWIND_STEP_OK)
		return UNWIND_STEP_BAD;
#pragma GCC unroll 6
	for (uint32_t i = 0; i < ROW_SAVED_MAX; i++)
		c->regs[p->reg[i]] = unwind_load(slots + 8ull * p->slot[i], 8);
	c->regs[UNWIND_SP] = cfa;
	c->regs[UNWIND_PC] = ra;
	c->valid = valid | p->saved | UNWIND_BIT(UNWIND_SP) | UNWIND_BIT(UNWIND_PC);
	c->lost &= ~(uint64_t)p->saved;
	return UNWIND_STEP_OK;
}

#endif
