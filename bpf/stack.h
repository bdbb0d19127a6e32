/*
 * stack - which bytes of user memory are a thread's stack. Included by BPF programs only.
 *
 * A stack's top is found almost for free, in this order:
 *  - sp inside a stack whose ends userspace learned: the upper one;
 *  - sp inside the thread's sigaltstack: its end;
 *  - sp inside the main stack: mm->start_stack, which points at argc. It is inside when it is not
 *    farther below than all growing-down memory of the process (mm->stack_vm) is large, so that
 *    coroutine and thread stacks far below are not mistaken for it;
 *  - Go: the runtime keeps g at -8 from the thread pointer, or where userspace says, and g.stack.{lo,hi}
 *    at its start;
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
#define STACK_INTERRUPTED_MAX (32 * 1024)
#define STACK_WINDOWS_MAX 4

struct window {
	__u64 address;
	__u64 len; /* a multiple of 8 */
	__u64 id;  /* enum abi_window_id */
};

struct stack_top {
	__u64 address; /* 0: unknown */
	__u64 sure;
	__u64 thread; /* guessed, but this is no process leader, so it has a stack below its TLS */
	__u64 g, m;   /* of Go, when sp is inside the stack of g */
};

/* What to copy. */
struct stack_plan {
	__u64 nwindows;
	struct window windows[STACK_WINDOWS_MAX]; /* the leaf's is the first */
	__u64 npages;
	__u64 pages[ABI_LEARNED_PAGES];
	__u64 flags; /* ABI_F_* that follow */
	/*
	 * Of the stack at hand. In a map with the rest, and what was written there is read back: so
	 * the verifier forgets which way led to it, and follows what comes next once.
	 */
	struct stack_top top;
};

/* Whose stack it is. */
struct stack_of {
	struct task_struct *task;
	struct mm_struct *mm;
	const struct abi_learned *learned; /* NULL: nothing */
	__u32 pid, tid;
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

/* Where a thread has g, from its thread pointer. */
static __always_inline __s64 stack_go_g_off(__u32 pid)
{
	__s64 *found = ngo_g ? bpf_map_lookup_elem(&go_g, &pid) : NULL;

	return found ? *found : -8;
}

/* Whether sp is inside the stack of the thread's g. */
static __always_inline bool stack_find_g(__u64 tp, __s64 g_off, __u64 sp, struct stack_top *top)
{
	__u64 address = 0;
	struct stack_go_g g;

	if (tp < 4096 || tp >= REGS_USER_END ||
	    !stack_user_read(&address, sizeof(address), tp + g_off) ||
	    !stack_go_read_g(&g, address) || sp < g.lo || sp >= g.hi)
		return false;
	top->address = g.hi & ~7ull;
	top->sure = true;
	top->g = address;
	top->m = g.m;
	return true;
}

/* The end of the stack that sp is in, 0 when none is known. */
static __always_inline __u64 stack_learned_top(const struct abi_learned *l, __u64 sp)
{
	for (int i = 0; i < ABI_LEARNED_STACKS; i++) {
		if (i >= l->nstacks)
			break;
		if (sp - l->stacks[i].low < l->stacks[i].high - l->stacks[i].low)
			return l->stacks[i].high & ~7ull;
	}
	return 0;
}

static __always_inline void stack_find_top(struct stack_top *top, const struct stack_of *of, __u64 sp)
{
	struct mm_struct *mm = of->mm;
	__u64 start = FIELD(mm, start_stack);
	__u64 tp = regs_thread_pointer(of->task);
	bool main = sp < start && start - sp <= FIELD(mm, stack_vm) << REGS_USER_PAGE_SHIFT;
	__u64 learned;

	top->address = 0;
	top->sure = top->thread = top->m = 0;
	/* A main thread on g0 is on the main stack, whose top the kernel knows better. */
	if (!stack_find_g(tp, stack_go_g_off(of->pid), sp, top) && !main && tp > sp &&
	    tp - sp <= STACK_THREAD_MAX) {
		top->address = tp & ~7ull;
		top->thread = of->pid != of->tid;
	}
	if (main) {
		top->address = (start & ~7ull) + STACK_ARGC_BYTES;
		top->sure = true;
	}
	learned = of->learned ? stack_learned_top(of->learned, sp) : 0;
	if (learned) {
		top->address = learned;
		top->sure = true;
	}
	barrier();
}

/*
 * From sp upwards, at most `max` bytes, and when that does not reach the top, downwards from there. The
 * root side of a guessed top is only worth its cost in a thread.
 */
static __always_inline void stack_plan_sides(struct stack_plan *p, __u64 sp, __u32 id, __u64 max)
{
	const struct stack_top *top = &p->top;
	__u64 low = (sp - ABI_RED_ZONE) & ~7ull, want, rest;

	if (!top->address || top->address <= low) {
		stack_add_window(p, low, max < STACK_UNKNOWN_MAX ? max : STACK_UNKNOWN_MAX, id);
		return;
	}
	if (id == ABI_WIN_LEAF)
		p->flags |= ABI_F_TOP_KNOWN;
	want = top->address - low;
	if (!top->sure && want > STACK_NEAR && max > STACK_UNSURE_MAX)
		max = STACK_UNSURE_MAX;
	if (want <= max) {
		stack_add_window(p, low, want, id);
		return;
	}
	stack_add_window(p, low, max, id);
	rest = want - max;
	if (rest > stack_max || (!top->sure && !top->thread))
		p->flags |= ABI_F_CUT;
	if (rest > stack_max)
		rest = stack_max;
	if (top->sure || top->thread)
		stack_add_window(p, top->address - rest, rest, ABI_WIN_ROOT);
}

/*
 * A handler on a sigaltstack: that one, and what it interrupted. Returns the sp of the latter, 0 when
 * it is not found.
 */
static __always_inline __u64 stack_plan_alternate(struct stack_plan *p, __u64 alt, __u64 size,
						  __u64 sp)
{
	p->top.address = (alt + size) & ~7ull;
	p->top.sure = true;
	p->flags |= ABI_F_ON_ALTSTACK;
	stack_plan_sides(p, sp, ABI_WIN_LEAF, stack_max);
	sp = regs_interrupted_sp(alt + size);
	return sp - alt < size ? 0 : sp;
}

static __always_inline void stack_plan(struct stack_plan *p, const struct stack_of *of, __u64 sp)
{
	/* Not of->task: a relocation of a struct that only we have stops 5.10, which has no typed task. */
	struct task_struct *task = of->task;
	__u64 alt = FIELD(task, sas_ss_sp), alt_size = FIELD(task, sas_ss_size);
	__u64 max = stack_max;
	__u32 id = ABI_WIN_LEAF;

	if (alt_size && sp - alt < alt_size) {
		sp = stack_plan_alternate(p, alt, alt_size, sp);
		if (!sp)
			return;
		id = ABI_WIN_INTERRUPTED;
		if (max > STACK_INTERRUPTED_MAX)
			max = STACK_INTERRUPTED_MAX;
	}
	stack_find_top(&p->top, of, sp);
	stack_plan_sides(p, sp, id, max);
	barrier();
	if (p->top.m)
		stack_plan_goroutine(p, p->top.g, p->top.m);
	barrier();
}

/* Whether [page, page + 4096) is not inside the window: 1 or 0, without a branch for the verifier. */
static __always_inline __u64 stack_is_outside(const struct window *w, __u64 page)
{
	__u64 outside = (page - w->address) | (w->address + w->len - 4096 - page);

	return outside >> 63;
}

/* The learned pages that are in no window. */
static __always_inline void stack_plan_pages(struct stack_plan *p, const struct abi_learned *l)
{
	_Static_assert(STACK_WINDOWS_MAX == 4, "each window is looked at");

	for (int i = 0; i < STACK_WINDOWS_MAX; i++)
		if (i >= p->nwindows)
			p->windows[i].address = p->windows[i].len = 0;
	for (int i = 0; i < ABI_LEARNED_PAGES; i++) {
		__u64 n = p->npages, page = l->pages[i];

		if (i >= l->npages || n >= ABI_LEARNED_PAGES)
			break;
		p->pages[n] = page;
		n = stack_is_outside(&p->windows[0], page) & stack_is_outside(&p->windows[1], page) &
		    stack_is_outside(&p->windows[2], page) & stack_is_outside(&p->windows[3], page);
		barrier_var(n);
		p->npages += n;
		barrier();
	}
}

#endif
