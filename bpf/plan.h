/*
 * plan - which windows of user memory a sample brings. Included by BPF programs only.
 */
#ifndef BPF_PLAN_H
#define BPF_PLAN_H

#define STACK_WINDOWS_MAX (3 + ABI_MORE_WINDOWS) /* of the leaf and the root side, and of another stack */

struct window {
	__u64 address;
	__u64 len; /* a multiple of 8 */
	__u64 id;  /* enum abi_window_id */
};

struct stack_top {
	__u64 address; /* 0: unknown */
	__u64 sure;
	__u64 near; /* the thread pointer may be it */
	__u64 thread; /* guessed, but this is no process leader, so it has a stack below its TLS */
	__u64 g, m;   /* of Go, when sp is inside a stack of g or m; 0: no Go */
	__u64 g0;     /* m's; 0: unknown */
	__u64 left_low, left_high; /* the goroutine's stack, when sp is in the other without its knowing; 0 */
	__u64 g_stack[2];	   /* of g */
};

/* What to copy. */
struct stack_plan {
	__u64 nwindows;
	struct window windows[STACK_WINDOWS_MAX]; /* the leaf's is the first */
	__u64 npages;
	__u64 pages[ABI_LEARNED_PAGES];
	__u64 flags; /* ABI_F_* that follow */
	__u64 waiting[2]; /* sp and pc of a goroutine: ABI_SEC_GOROUTINE; sp 0: none */
	__u64 g, g_stack[2]; /* ABI_WIN_G; 0: none */
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
	bool deep; /* it is known to be, and the ring has room for it */
	const struct abi_go *go; /* NULL: as in an executable that is all Go's */
	__u64 g; /* where that is unknown: the address of g if this is Go's code */
	__u32 pid, tid;
};

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

#endif
