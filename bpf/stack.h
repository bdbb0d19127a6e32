/*
 * stack - which bytes of user memory are a thread's stack. Included by BPF programs only.
 *
 * A stack's top is found almost for free, in this order:
 *  - sp inside the thread's sigaltstack: its end;
 *  - sp inside the main stack: mm->start_stack, which points at argc. It is inside when it is not
 *    farther below than all growing-down memory of the process (mm->stack_vm) is large, so that
 *    coroutine and thread stacks far below are not mistaken for it;
 *  - Go: the runtime keeps g at -8 from the thread pointer, and g.stack.{lo,hi} at its start;
 *  - the thread pointer, when above sp: glibc and musl put a thread's control block above its stack.
 *    It is a guess: a coroutine has a stack of its own somewhere below.
 */
#ifndef BPF_STACK_H
#define BPF_STACK_H

#define STACK_ARGC_BYTES 64		 /* _start's frame reads argc and a little above it */
#define STACK_NEAR (64 * 1024)		 /* a guessed top this near is taken at its word, */
#define STACK_UNSURE_MAX (32 * 1024)	 /* and farther off only this much is copied from the leaf */
#define STACK_UNKNOWN_MAX (16 * 1024)	 /* without any idea of the top */
#define STACK_THREAD_MAX (64ull << 20)	 /* a thread pointer farther off belongs to something else */
#define STACK_GO_MAX (1ull << 30)	 /* Go's own limit */
#define STACK_GOROUTINE_MAX (32 * 1024)

struct window {
	__u64 address;
	__u64 len; /* a multiple of 8 */
};

/* What to copy. */
struct stack_plan {
	struct window leaf;
	struct window extra; /* len 0: none */
	__u32 extra_id;	     /* enum abi_window_id */
	__u32 flags;	     /* ABI_F_* that follow */
};

struct stack_top {
	__u64 address; /* 0: unknown */
	bool sure;
	bool thread; /* guessed, but this is no process leader, so it has a stack below its TLS */
};

/* runtime.g: stack.lo, stack.hi, stackguard0, stackguard1, _panic, _defer, m, sched.sp. Go 1.4 to 1.26. */
struct stack_go_g {
	__u64 lo, hi, guard0, guard1, panic, defer, m, sched_sp;
};

#define STACK_GO_M_G0 0
#define STACK_GO_M_CURG 0xb8 /* or 8 bytes on */

static __always_inline bool stack_user_read(void *dst, __u32 len, __u64 address)
{
	return !bpf_probe_read_user(dst, len, (void *)address);
}

static __always_inline bool stack_go_read_g(struct stack_go_g *ret, __u64 address)
{
	if (address < 4096 || address >= REGS_USER_END || address & 7)
		return false;
	return stack_user_read(ret, sizeof(*ret), address) && ret->lo < ret->hi &&
	       ret->hi - ret->lo <= STACK_GO_MAX;
}

/* While a thread is on g0, the goroutine that it serves waits at sched.sp of its own stack. */
static __always_inline void stack_go_goroutine(struct window *ret, __u64 g0_address, __u64 m)
{
	__u64 m_g0 = 0, curg[2] = {};
	struct stack_go_g g;

	if (!stack_user_read(&m_g0, sizeof(m_g0), m + STACK_GO_M_G0) || m_g0 != g0_address ||
	    !stack_user_read(curg, sizeof(curg), m + STACK_GO_M_CURG))
		return;
	ret->address = 1; /* on g0, even when no goroutine is found */
	if (!stack_go_read_g(&g, curg[0]) || g.m != m) {
		if (!stack_go_read_g(&g, curg[1]) || g.m != m)
			return;
	}
	if (g.sched_sp < g.lo || g.sched_sp >= g.hi || g.sched_sp < ABI_RED_ZONE)
		return;
	ret->address = (g.sched_sp - ABI_RED_ZONE) & ~7ull;
	ret->len = (g.hi - ret->address) & ~7ull;
	if (ret->len > STACK_GOROUTINE_MAX)
		ret->len = STACK_GOROUTINE_MAX;
}

static __always_inline bool stack_try_go(struct stack_plan *p, struct stack_top *top, __u64 tp,
					 __u64 sp)
{
	__u64 address = 0;
	struct stack_go_g g;

	if (tp < 4096 || tp >= REGS_USER_END ||
	    !stack_user_read(&address, sizeof(address), tp - sizeof(address)) ||
	    !stack_go_read_g(&g, address) || sp < g.lo || sp >= g.hi)
		return false;
	top->address = g.hi & ~7ull;
	top->sure = true;
	stack_go_goroutine(&p->extra, address, g.m);
	if (p->extra.address)
		p->flags |= ABI_F_ON_G0;
	if (p->extra.len)
		p->extra_id = ABI_WIN_GOROUTINE;
	return true;
}

static __always_inline void stack_find_top(struct stack_plan *p, struct stack_top *top,
					   struct task_struct *task, struct mm_struct *mm, __u64 sp,
					   bool leader)
{
	__u64 alt = BPF_CORE_READ(task, sas_ss_sp), alt_size = BPF_CORE_READ(task, sas_ss_size);
	__u64 start = BPF_CORE_READ(mm, start_stack);
	__u64 tp = regs_thread_pointer(task);
	bool main;

	if (alt_size && sp - alt < alt_size) {
		top->address = (alt + alt_size) & ~7ull;
		top->sure = true;
		p->flags |= ABI_F_ON_ALTSTACK;
		return;
	}
	main = sp < start && start - sp <= BPF_CORE_READ(mm, stack_vm) << REGS_USER_PAGE_SHIFT;
	if (stack_try_go(p, top, tp, sp) && !main)
		return;
	if (main) {
		top->address = (start & ~7ull) + STACK_ARGC_BYTES;
		top->sure = true;
	} else if (tp > sp && tp - sp <= STACK_THREAD_MAX) {
		top->address = tp & ~7ull;
		top->thread = !leader;
	}
}

/*
 * The leaf window, and one more when that does not reach the top: the goroutine's, or else the stack's
 * root side. The root side of a guessed top is only worth its cost in a thread.
 */
static __always_inline void stack_plan(struct stack_plan *p, struct task_struct *task,
				       struct mm_struct *mm, __u64 sp, bool leader)
{
	struct stack_top top = {};
	__u64 max = stack_max, want, rest;

	stack_find_top(p, &top, task, mm, sp, leader);
	p->leaf.address = (sp - ABI_RED_ZONE) & ~7ull;
	if (!top.address || top.address <= p->leaf.address) {
		p->leaf.len = max < STACK_UNKNOWN_MAX ? max : STACK_UNKNOWN_MAX;
		return;
	}
	p->flags |= ABI_F_TOP_KNOWN;
	want = top.address - p->leaf.address;
	if (!top.sure && want > STACK_NEAR && max > STACK_UNSURE_MAX)
		max = STACK_UNSURE_MAX;
	if (want <= max) {
		p->leaf.len = want;
		return;
	}
	p->leaf.len = max;
	rest = want - max;
	if (p->extra.len || (!top.sure && !top.thread)) {
		p->flags |= ABI_F_CUT;
		return;
	}
	p->extra_id = ABI_WIN_ROOT;
	p->extra.len = rest;
	if (rest > stack_max) {
		p->extra.len = stack_max;
		p->flags |= ABI_F_CUT;
	}
	p->extra.address = top.address - p->extra.len;
}

#endif
