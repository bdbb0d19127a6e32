/*
 * go - the stacks of a Go thread: its goroutine's, and the system stack of its m, on which the runtime, C and
 * the vDSO run. Included by BPF programs only.
 *
 * The thread pointer leads to g (struct abi_go says where), g.stack to the ends of the stack. Of the two
 * stacks sp is in one; where the other is a part of the same stack of calls, it is planned too:
 *  - on the system stack, the goroutine that waits for it, from its sched.sp upwards;
 *  - in the vDSO, which is called on the system stack without a word to anybody, all of the goroutine's;
 *  - on a goroutine that C may have called, the system stack from where C left it, and the begin of g: Go 1.20
 *    and before keep on that stack where the goroutine's goes on, as a distance from its end.
 * In a library g is elsewhere, and C may call Go in any process of which userspace has not told yet: until
 * then the register that is g in Go's code is tried where nothing else is known of a stack.
 *
 * Source: Go's src/runtime/runtime2.go (struct g, struct m), asm_amd64.s; Go 1.4 to 1.26.
 */
#ifndef BPF_GO_H
#define BPF_GO_H

#define GO_STACK_MAX (1ull << 30) /* Go's own limit */
#define GO_WINDOW_MAX (32 * 1024)
/* C begins a thread above what Go takes for the end of the system stack, and its thread pointer is near. */
#define GO_C_ROOT_MAX (16 * 1024)
#define GO_WAKE_NS 50000000ull

/* struct g */
struct go_g {
	__u64 lo, hi, guard0, guard1, panic, defer, m, sched_sp, sched_pc;
};

/* struct m */
#define GO_M_G0 0
#define GO_M_CURG 0xb8 /* or 8 bytes on */

static __always_inline bool go_read_g(struct go_g *ret, __u64 address)
{
	if (address < 4096 || address >= REGS_USER_END || address & 7)
		return false;
	return stack_user_read(ret, sizeof(*ret), address) && ret->lo < ret->hi &&
	       ret->hi - ret->lo <= GO_STACK_MAX;
}

/* The address of a thread's g, as far as that is known; 0 unknown. */
static __always_inline __u64 go_address(const struct abi_go *go, __u64 tp)
{
	__u64 off = ABI_GO_PLACE, address = 0;

	if (tp < 4096 || tp >= REGS_USER_END)
		return 0;
	if (go) {
		off = go->place;
		if (go->flags & ABI_GO_SLOT && !stack_user_read(&off, sizeof(off), go->place))
			return 0;
	}
	return stack_user_read(&address, sizeof(address), tp + off) ? address : 0;
}

/* Whether m is one, by its g0, which it is the m of; then *ret is that. */
static __always_inline bool go_read_g0(struct go_g *ret, __u64 m)
{
	__u64 address = 0;

	return stack_user_read(&address, sizeof(address), m + GO_M_G0) && go_read_g(ret, address) && ret->m == m;
}

/* The system stack of this thread, when sp is in it though g is the goroutine: the vDSO was called. */
static __always_inline bool go_find_g0(const struct go_g *g, __u64 sp, struct stack_top *top)
{
	struct go_g g0;

	if (!go_read_g0(&g0, g->m) || sp < g0.lo || sp >= g0.hi)
		return false;
	top->address = g0.hi & ~7ull;
	top->left_low = g->lo;
	top->left_high = g->hi;
	return true;
}

/* Whether this is the address of a g with sp in its stack. */
static __always_inline bool go_is_on(__u64 address, __u64 sp)
{
	struct go_g g;
	__u64 m;

	if (!go_read_g(&g, address) || sp < g.lo || sp >= g.hi)
		return false;
	m = g.m;
	return go_read_g0(&g, m);
}

/* Whether sp is inside the stack of the g at top->g, or in the system stack: then top->m is not 0. */
static __always_inline void go_find(struct stack_top *top, __u64 tp, __u64 sp)
{
	struct go_g g;

	if (!go_read_g(&g, top->g))
		return;
	if (sp >= g.lo && sp < g.hi)
		top->address = g.hi & ~7ull;
	else if (!go_find_g0(&g, sp, top))
		return;
	if (tp > top->address && tp - top->address < GO_C_ROOT_MAX)
		top->address = tp & ~7ull;
	top->sure = true;
	top->m = g.m;
	top->g0 = 0;
	stack_user_read(&top->g0, sizeof(top->g0), g.m + GO_M_G0);
	top->g_stack[0] = g.lo;
	top->g_stack[1] = g.hi;
}

/* Whether sp is in a goroutine's stack; the next one there may be another's, with another end. */
static __always_inline bool go_on_goroutine(const struct stack_top *top)
{
	return top->m && top->g0 && top->g0 != top->g && !top->left_high;
}

/* From `low` to `high`, or the part of it at the end that is given. */
static __always_inline void go_add_window(struct stack_plan *p, __u64 low, __u64 high, __u64 max, __u32 id)
{
	__u64 len;

	low &= ~7ull;
	len = (high - low) & ~7ull;
	if (len > max)
		len = max;
	stack_add_window(p, low, len, id);
}

/* On the system stack: the goroutine that this thread serves waits at sched.sp of its own. */
static __always_inline void go_plan_waiting(struct stack_plan *p, __u64 m)
{
	__u64 curg[2] = {}, address;
	struct go_g g;

	p->flags |= ABI_F_ON_G0;
	if (!stack_user_read(curg, sizeof(curg), m + GO_M_CURG))
		return;
	address = curg[0];
	if (!go_read_g(&g, address) || g.m != m) {
		address = curg[1];
		if (!go_read_g(&g, address) || g.m != m)
			return;
	}
	if (g.sched_sp < g.lo || g.sched_sp >= g.hi)
		return;
	go_add_window(p, g.sched_sp, g.hi, GO_WINDOW_MAX, ABI_WIN_GOROUTINE);
	p->waiting[0] = g.sched_sp;
	p->waiting[1] = g.sched_pc;
	p->g = address;
	p->g_stack[0] = g.lo;
	p->g_stack[1] = g.hi;
}

/*
 * The other stack of a thread whose `top` was found. start: mm->start_stack; tp: the thread pointer, which
 * bound what C may have of the system stack.
 */
static __always_inline void go_plan_other(struct stack_plan *p, const struct abi_go *go, __u64 tp, __u64 start)
{
	__u64 m = p->top.m, g0 = p->top.g0, low, high;
	struct go_g g;

	if (!g0)
		return;
	if (g0 == p->top.g) {
		go_plan_waiting(p, m);
		return;
	}
	if (p->top.left_high) {
		low = p->top.left_low;
		high = p->top.left_high;
		go_add_window(p, high - low > GO_WINDOW_MAX ? high - GO_WINDOW_MAX : low, high, GO_WINDOW_MAX,
			      ABI_WIN_ROOT);
		return;
	}
	p->flags |= ABI_F_ON_GOROUTINE;
	/* As long as it is unknown, C may have called: the first samples are to be whole, too. */
	if ((go && !(go->flags & ABI_GO_CGO)) || !go_read_g(&g, g0) || g.m != m || g.sched_sp < ABI_RED_ZONE)
		return;
	p->g = p->top.g;
	p->g_stack[0] = p->top.g_stack[0];
	p->g_stack[1] = p->top.g_stack[1];
	low = g.sched_sp - ABI_RED_ZONE;
	high = tp > low && tp - low <= STACK_THREAD_MAX ? tp : start > low ? start + STACK_ARGC_BYTES : g.hi;
	if (low >= g.lo && low < g.hi)
		go_add_window(p, low, high, GO_WINDOW_MAX, ABI_WIN_ROOT);
}

#endif
