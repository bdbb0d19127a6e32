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
#define STACK_WINDOWS_MAX 3

struct window {
	__u64 address;
	__u64 len; /* a multiple of 8 */
	__u64 id;  /* enum abi_window_id */
};

/* What to copy. */
struct stack_plan {
	__u64 nwindows;
	struct window windows[STACK_WINDOWS_MAX]; /* the leaf's is the first */
	__u32 flags;				  /* ABI_F_* that follow */
};

struct stack_top {
	__u64 address; /* 0: unknown */
	bool sure;
	bool thread; /* guessed, but this is no process leader, so it has a stack below its TLS */
	__u64 g, m;  /* of Go, when sp is inside the stack of g */
};

/* runtime.g: stack.lo, stack.hi, stackguard0, stackguard1, _panic, _defer, m, sched.sp. Go 1.4 to 1.26. */
struct stack_go_g {
	__u64 lo, hi, guard0, guard1, panic, defer, m, sched_sp;
};

#define STACK_GO_M_G0 0
#define STACK_GO_M_CURG 0xb8 /* or 8 bytes on */

static __always_inline void stack_add_window(struct stack_plan *p, __u64 address, __u64 len, __u32 id)
{
	__u64 n = p->nwindows;

	if (n >= STACK_WINDOWS_MAX)
		return;
	p->windows[n].address = address;
	p->windows[n].len = len;
	p->windows[n].id = id;
	p->nwindows = n + 1;
}

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

/* The goroutine that a thread on g0 serves waits at sched.sp of its own stack. */
static __always_inline bool stack_go_curg(struct stack_go_g *ret, __u64 address, __u64 m)
{
	return stack_go_read_g(ret, address) && ret->m == m;
}

static __always_inline void stack_plan_goroutine(struct stack_plan *p, __u64 g_address, __u64 m)
{
	__u64 m_g0 = 0, curg[2] = {}, low, len;
	struct stack_go_g g;

	if (!stack_user_read(&m_g0, sizeof(m_g0), m + STACK_GO_M_G0) || m_g0 != g_address ||
	    !stack_user_read(curg, sizeof(curg), m + STACK_GO_M_CURG))
		return;
	p->flags |= ABI_F_ON_G0;
	if (!stack_go_curg(&g, curg[0], m) && !stack_go_curg(&g, curg[1], m))
		return;
	if (g.sched_sp < g.lo || g.sched_sp >= g.hi || g.sched_sp < ABI_RED_ZONE)
		return;
	low = (g.sched_sp - ABI_RED_ZONE) & ~7ull;
	len = (g.hi - low) & ~7ull;
	if (len > STACK_GOROUTINE_MAX)
		len = STACK_GOROUTINE_MAX;
	stack_add_window(p, low, len, ABI_WIN_GOROUTINE);
}

/* Whether sp is inside the stack of the thread's g. */
static __always_inline bool stack_find_g(__u64 tp, __u64 sp, struct stack_top *top)
{
	__u64 address = 0;
	struct stack_go_g g;

	if (tp < 4096 || tp >= REGS_USER_END ||
	    !stack_user_read(&address, sizeof(address), tp - sizeof(address)) ||
	    !stack_go_read_g(&g, address) || sp < g.lo || sp >= g.hi)
		return false;
	top->address = g.hi & ~7ull;
	top->sure = true;
	top->g = address;
	top->m = g.m;
	return true;
}

static __always_inline void stack_find_top(struct stack_plan *p, struct stack_top *top,
					   struct task_struct *task, struct mm_struct *mm, __u64 sp,
					   bool leader)
{
	__u64 alt = FIELD(task, sas_ss_sp), alt_size = FIELD(task, sas_ss_size);
	__u64 start = FIELD(mm, start_stack);
	__u64 tp = regs_thread_pointer(task);
	bool main;

	if (alt_size && sp - alt < alt_size) {
		top->address = (alt + alt_size) & ~7ull;
		top->sure = true;
		p->flags |= ABI_F_ON_ALTSTACK;
		return;
	}
	main = sp < start && start - sp <= FIELD(mm, stack_vm) << REGS_USER_PAGE_SHIFT;
	if (stack_find_g(tp, sp, top) && !main)
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
 * From sp upwards, and when that does not reach the top, downwards from there. The root side of a
 * guessed top is only worth its cost in a thread.
 */
static __always_inline void stack_plan_sides(struct stack_plan *p, const struct stack_top *top,
					     __u64 sp)
{
	__u64 low = (sp - ABI_RED_ZONE) & ~7ull, max = stack_max, want, rest;

	if (!top->address || top->address <= low) {
		stack_add_window(p, low, max < STACK_UNKNOWN_MAX ? max : STACK_UNKNOWN_MAX,
				 ABI_WIN_LEAF);
		return;
	}
	p->flags |= ABI_F_TOP_KNOWN;
	want = top->address - low;
	if (!top->sure && want > STACK_NEAR && max > STACK_UNSURE_MAX)
		max = STACK_UNSURE_MAX;
	if (want <= max) {
		stack_add_window(p, low, want, ABI_WIN_LEAF);
		return;
	}
	stack_add_window(p, low, max, ABI_WIN_LEAF);
	rest = want - max;
	if (rest > stack_max || (!top->sure && !top->thread))
		p->flags |= ABI_F_CUT;
	if (rest > stack_max)
		rest = stack_max;
	if (top->sure || top->thread)
		stack_add_window(p, top->address - rest, rest, ABI_WIN_ROOT);
}

static __always_inline void stack_plan(struct stack_plan *p, struct task_struct *task,
				       struct mm_struct *mm, __u64 sp, bool leader)
{
	struct stack_top top = {};

	stack_find_top(p, &top, task, mm, sp, leader);
	stack_plan_sides(p, &top, sp);
	if (top.m)
		stack_plan_goroutine(p, top.g, top.m);
}

#endif
