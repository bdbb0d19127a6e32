#include "agent/unwind_arch.h"

/*
 * psABI 3.2.2: a frame that keeps a frame pointer has the caller's at (rbp) and the return address
 * at 8(rbp). In code without rows rbp may be anything, so it must point upwards, into what was
 * copied, and be aligned as push leaves it.
 */
enum unwind_step unwind_arch_frame_pointer(struct unwind_cursor *c)
{
	const uint64_t kept = UNWIND_BIT(ABI_X86_RBP) | UNWIND_BIT(ABI_X86_RSP) |
			      UNWIND_BIT(ABI_X86_RIP);
	uint64_t rbp = c->regs[ABI_X86_RBP], rsp = c->regs[ABI_X86_RSP], saved, ra;
	uint32_t missing = ABI_F_CUT | ABI_F_PART_LOST;
	enum unwind_step step;

	if (c->lost & UNWIND_BIT(ABI_X86_RBP))
		return UNWIND_STEP_TRUNCATED;
	/* A frame pointer below sp is, by the subtraction, far above it. */
	if (~c->valid & kept || rbp % 8 != 0 || rbp - rsp >= UNWIND_REACH ||
	    rbp > UNWIND_USER_MAX - 16)
		return UNWIND_STEP_NO_CFI;
	step = unwind_read(c, rbp, 8, false, &saved);
	if (step == UNWIND_STEP_OK)
		step = unwind_read(c, rbp + 8, 8, false, &ra);
	/* A guess that leads out of a stack that was copied to its top was a wrong guess. */
	if (step != UNWIND_STEP_OK)
		return step == UNWIND_STEP_TRUNCATED && (c->in->flags & missing ||
							 !(c->in->flags & ABI_F_TOP_KNOWN)) ?
			       UNWIND_STEP_TRUNCATED :
			       UNWIND_STEP_NO_CFI;
	/* Zeros lie everywhere: at the end of a guess they prove no end of a stack. */
	if (ra == 0)
		return UNWIND_STEP_NO_CFI;
	c->floor = rbp + 16;
	c->regs[ABI_X86_RBP] = saved;
	c->regs[ABI_X86_RSP] = rbp + 16;
	c->regs[ABI_X86_RIP] = ra;
	/* What code without rows did to the other callee-saved registers is not known. */
	c->valid = kept;
	c->lost = c->skipped = 0;
	c->is_return = true;
	c->backward = false;
	return UNWIND_STEP_OK;
}

/*
 * The `syscall` instruction leaves its own end in rcx; a clone's child finds 0 in rax. Other system
 * calls return 0 too, but to a caller, whose frame the child of a new stack does not have.
 */
bool unwind_arch_new_thread(struct unwind_cursor *c)
{
	uint64_t rsp = c->regs[ABI_X86_RSP];

	if (c->is_return || c->regs[ABI_X86_RAX] != 0 ||
	    c->regs[ABI_X86_RCX] != c->regs[ABI_X86_RIP] ||
	    (c->in->flags & (ABI_F_TOP_KNOWN | ABI_F_CUT)) != ABI_F_TOP_KNOWN)
		return false;
	/* Nothing but what clone's caller put there lies between sp and the stack's top. */
	return unwind_bytes(c, rsp - 1, 1) && !unwind_bytes(c, rsp + 64, 1);
}

bool unwind_arch_is_child(const struct unwind_cursor *c)
{
	return !c->is_return && c->valid & UNWIND_BIT(ABI_X86_RAX) && c->regs[ABI_X86_RAX] == 0;
}

/* struct rt_sigframe, of which the trampoline's sp is at the second word: gregs[REG_CSGSFS] begins with cs. */
bool unwind_arch_on_signal_frame(struct unwind_cursor *c)
{
	enum { CS_OFF = 184, USER32 = 0x23, USER64 = 0x33, XEN = 0xe000 };
	const uint8_t *p = unwind_bytes(c, c->regs[ABI_X86_RSP] + CS_OFF, 2);
	uint64_t cs = p ? unwind_load(p, 2) & ~(uint64_t)XEN : USER64;

	return cs == USER32 || cs == USER64;
}
