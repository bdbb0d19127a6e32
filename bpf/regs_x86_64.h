/*
 * regs - registers, segments and the thread pointer of x86-64. Included by BPF programs only.
 *
 * The layout of pt_regs is the kernel's user interface (asm/ptrace.h). Every slot is read as 64 bits:
 * newer kernels declare cs and ss as 16 bits, with other things in the rest of the slot.
 */
#ifndef BPF_REGS_X86_64_H
#define BPF_REGS_X86_64_H

#include "bpf/abi.h"
#include "bpf/task.h"

#define REGS_COUNT ABI_X86_NREGS
#define REGS_SP ABI_X86_RSP
#define REGS_PC ABI_X86_RIP

#define REGS_GO_G r14 /* since Go 1.17, but for assembly */
#define REGS_NR_SIGRETURN 15 /* rt_sigreturn(2) of 64-bit code */

#define REGS_USER_PAGE_SHIFT 12
#define REGS_USER_END (1ull << 56) /* of five-level page tables, the larger */

/* Only for kernels without bpf_task_pt_regs(): 16 KiB stacks (no KASAN), no padding above pt_regs. */
#define REGS_KERNEL_STACK_SIZE (16 * 1024)

struct regs_frame {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};

/* The context of a perf_event program: struct bpf_perf_event_data. */
struct regs_context {
	struct regs_frame regs;
	__u64 sample_period;
	__u64 addr;
};

/* A macro, because the verifier only allows plain loads from a context. */
#define REGS_COPY(dst, src)                                                                    \
	do {                                                                                   \
		(dst)[ABI_X86_RAX] = (src)->ax, (dst)[ABI_X86_RDX] = (src)->dx;                \
		(dst)[ABI_X86_RCX] = (src)->cx, (dst)[ABI_X86_RBX] = (src)->bx;                \
		(dst)[ABI_X86_RSI] = (src)->si, (dst)[ABI_X86_RDI] = (src)->di;                \
		(dst)[ABI_X86_RBP] = (src)->bp, (dst)[ABI_X86_RSP] = (src)->sp;                \
		(dst)[ABI_X86_R8] = (src)->r8, (dst)[ABI_X86_R9] = (src)->r9;                  \
		(dst)[ABI_X86_R10] = (src)->r10, (dst)[ABI_X86_R11] = (src)->r11;              \
		(dst)[ABI_X86_R12] = (src)->r12, (dst)[ABI_X86_R13] = (src)->r13;              \
		(dst)[ABI_X86_R14] = (src)->r14, (dst)[ABI_X86_R15] = (src)->r15;              \
		(dst)[ABI_X86_RIP] = (src)->ip;                                                \
	} while (0)

static __always_inline bool regs_user_mode(__u64 cs)
{
	return cs & 3;
}

/* __USER32_CS; a Xen PV guest has 0xe023. 64-bit code has 0x33 or 0xe033. */
static __always_inline bool regs_compat32(__u64 cs)
{
	return (cs & 0xff) == 0x23;
}

/*
 * A signal's frame on an alternate stack, from its end downwards: the XSAVE area, aligned to 64, whose
 * size the agent knows; then struct rt_sigframe (arch/x86/kernel/signal.c, since 2.6.29): return address,
 * ucontext, siginfo, 440 bytes in all, 8 below a multiple of 16. The registers in it end with a pointer
 * to the XSAVE area, which shows that it was found.
 */
#define REGS_SIGFRAME_BYTES 440
#define REGS_SIGFRAME_SP 168 /* 8 + offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP]) */

struct regs_sigframe {
	__u64 sp, ip, flags, segments, err, trapno, oldmask, cr2, fpstate;
};

/* The sp that was interrupted by the first handler on the alternate stack with this end; 0 unknown. */
static __always_inline __u64 regs_interrupted_sp(__u64 end)
{
	struct regs_sigframe f;
	__u64 area, frame;

#pragma unroll
	for (int i = 0; i < ABI_XSAVE_SIZES; i++) {
		if (!xsave_bytes[i])
			continue;
		area = (end - xsave_bytes[i]) & ~63ull;
		frame = ((area - REGS_SIGFRAME_BYTES) & ~15ull) - 8;
		if (!bpf_probe_read_user(&f, sizeof(f), (void *)(frame + REGS_SIGFRAME_SP)) &&
		    f.fpstate == area)
			return f.sp;
	}
	return 0;
}

static __always_inline __u64 regs_thread_pointer(struct task_struct *task)
{
	return FIELD(task, thread.fsbase);
}

#endif
