/*
 * stack - which bytes of user memory are a thread's stack. Included by BPF programs only.
 *
 * A stack's top is found almost for free, in this order:
 *  - sp inside a stack whose ends userspace learned: the upper one;
 *  - sp inside the thread's sigaltstack: its end;
 *  - sp inside the main stack: mm->start_stack, which points at argc. It is inside when it is not
 *    farther below than all growing-down memory of the process (mm->stack_vm) is large, so that
 *    coroutine and thread stacks far below are not mistaken for it;
 *  - sp inside the stack of a goroutine or the system stack of a Go thread: its end (go.h);
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
#define STACK_INTERRUPTED_MAX (32 * 1024)

#include "bpf/plan.h"

#include "bpf/go.h"

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
	top->sure = top->thread = top->m = top->left_high = 0;
	top->near = tp > sp && tp - sp <= STACK_THREAD_MAX;
	top->g = go_address(of->go, tp);
	barrier();
	/* A goroutine that C called, of a library of which nothing is known yet. */
	if (!of->go && !main && !top->near && go_is_on(of->g, sp))
		top->g = of->g;
	barrier();
	go_find(top, tp, sp);
	barrier();
	/* A main thread on g0 is on the main stack, whose top the kernel knows better. */
	if (!top->m && !main && top->near) {
		top->address = tp & ~7ull;
		top->thread = of->pid != of->tid;
	}
	if (main) {
		top->address = (start & ~7ull) + STACK_ARGC_BYTES;
		top->sure = true;
	}
	learned = of->learned && !go_on_goroutine(top) ? stack_learned_top(of->learned, sp) : 0;
	if (learned) {
		top->address = learned;
		top->sure = true;
	}
	barrier();
}

/* The next windows of at most `max` bytes; returns how much of `want` is above them. */
static __always_inline __u64 stack_plan_more(struct stack_plan *p, __u64 low, __u64 want, __u64 max)
{
#pragma unroll
	for (int i = 0; i < ABI_MORE_WINDOWS; i++) {
		__u64 len = want < max ? want : max;

		if (!len)
			break;
		stack_add_window(p, low, len, ABI_WIN_MORE);
		low += len;
		want -= len;
		barrier();
	}
	return want;
}

/*
 * From sp upwards, at most `max` bytes, of a deep stack more, and when that does not reach the top,
 * downwards from there. The root side of a guessed top is only worth its cost in a thread.
 */
static __always_inline void stack_plan_sides(struct stack_plan *p, __u64 sp, __u32 id, __u64 max, bool deep)
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
	if (id == ABI_WIN_LEAF && top->sure && deep)
		rest = stack_plan_more(p, low + max, rest, max);
	if (!rest)
		return;
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
	stack_plan_sides(p, sp, ABI_WIN_LEAF, stack_max, false);
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
	stack_plan_sides(p, sp, id, max, of->deep);
	barrier();
	if (p->top.m)
		go_plan_other(p, of->go, regs_thread_pointer(task), FIELD(of->mm, start_stack));
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
	for (int i = 0; i < STACK_WINDOWS_MAX; i++)
		if (i >= p->nwindows)
			p->windows[i].address = p->windows[i].len = 0;
	for (int i = 0; i < ABI_LEARNED_PAGES; i++) {
		__u64 n = p->npages, page = l->pages[i];

		if (i >= l->npages || n >= ABI_LEARNED_PAGES)
			break;
		p->pages[n] = page;
		n = 1;
#pragma unroll
		for (int k = 0; k < STACK_WINDOWS_MAX; k++)
			n &= stack_is_outside(&p->windows[k], page);
		barrier_var(n);
		p->npages += n;
		barrier();
	}
}

#endif
