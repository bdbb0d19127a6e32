/*
 * sample - a cpu-clock tick: registers, kernel frames and the used part of the user stack, written to
 * the ring buffer as bpf/abi.h says.
 *
 * `sample` looks at the task and plans which windows of memory to copy; then `part` writes a record
 * for each, calling itself. Apart they are quickly verified: together, every way through the first
 * would be followed through the second.
 *
 * Ticks come in interrupt context, where page faults fail; nothing here may sleep, and a program on
 * one CPU is never interrupted by itself.
 */
#include "bpf/vmlinux.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>

#include "bpf/abi.h"

char LICENSE[] SEC("license") = "GPL";

/* Set before load, constant afterwards. */
const volatile __u32 stack_max = ABI_WINDOW_MAX; /* bytes of one window, a multiple of 8 */
const volatile __u64 wakeup_bytes = 512 * 1024;	 /* wake the agent when the ring holds more */
const volatile __u64 xsave_bytes[ABI_XSAVE_SIZES]; /* of a signal's frame on this machine; 0 none */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 * 1024 * 1024); /* set before load */
} ring SEC(".maps");

/*
 * Processes of which not every sample is wanted, by tgid: one in so many is kept, 0 none. Of a program
 * in interrupt context a hash map has to be preallocated (all kernels before 6.1).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} filter SEC(".maps");
__u32 nfilters; /* entries of it, told by the agent: without any, nobody looks */

/* What is known of threads, by tid, and where the threads of a process have Go's g, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ABI_LEARNED_THREADS);
	__type(key, __u32);
	__type(value, struct abi_learned);
} learned SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ABI_GO_PROCESSES);
	__type(key, __u32);
	__type(value, struct abi_go);
} go_threads SEC(".maps");
__u32 nlearned, ngo_threads; /* as nfilters */

struct counters {
	__u64 n[ABI_CNT_COUNT];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

#if defined(__TARGET_ARCH_x86)
#include "bpf/regs_x86_64.h"
#else
#error "no bpf/regs_ARCH.h for this architecture"
#endif
#include "bpf/cgroup.h"
#include "bpf/record.h"
#include "bpf/stack.h"
#include "bpf/task.h"

/* What is known of the sample at hand; too much for a BPF stack of 512 bytes. */
struct work {
	struct abi_record head; /* of every part; size, sections and flags are of the one at hand */
	__u64 has_regs;		/* of the user side */
	__u64 urgent;		/* the agent is woken: it is cut, or Go's, and nothing is known of it */
	__u64 frames;		/* the kernel's idea of the user's are wanted */
	__u64 spared;		/* it is deep, and what that would bring has no room */
	__u64 go_woken_ns;	/* kept from sample to sample */
	__u64 go_g;		/* what is in the register that is Go's g in its code */
	__u64 part, nparts;	/* the one at hand, and how many */
	__u64 off;		/* how far it is written */
	struct stack_plan plan;
	struct cursor at;
	struct regs_frame entered; /* in kernel mode: the registers at the way in */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} work SEC(".maps");

enum { PROGRAM_PART, PROGRAM_PAGES, PROGRAM_COUNT };
int part(struct regs_context *ctx);
int pages(struct regs_context *ctx);
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAM_COUNT);
	__uint(key_size, sizeof(__u32));
	__array(values, int(struct regs_context *));
} programs SEC(".maps") = { .values = { [PROGRAM_PART] = part, [PROGRAM_PAGES] = pages } };

static __always_inline bool ring_is_roomy(void)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) <= 2 * wakeup_bytes;
}

/* ---- looking at the task ---- */

/* The registers at the way into the kernel. */
static __always_inline bool read_entry_frame(struct task_struct *task, struct regs_frame *ret)
{
	__u64 at;

	/* The verifier never sees the helpers where the kernel's BTF does not know the first one. */
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) {
		at = bpf_task_pt_regs(bpf_get_current_task_btf());
	} else {
		at = (__u64)BPF_CORE_READ(task, stack);
		if (at)
			at += REGS_KERNEL_STACK_SIZE - sizeof(struct regs_frame);
	}
	return at && !bpf_probe_read_kernel(ret, sizeof(*ret), (void *)at);
}

/* What the user side is doing, as flags; sets w->has_regs and *ret_sp. */
static __always_inline __u32 read_user(struct regs_context *ctx, struct task_struct *task,
				       struct work *w, __u64 *ret_sp)
{
	__u64 cs = ctx->regs.cs;

	barrier_var(cs); /* or the compiler makes one load of both, through a pointer into ctx */
	if (regs_user_mode(cs)) {
		*ret_sp = ctx->regs.sp;
		w->go_g = ctx->regs.REGS_GO_G;
		barrier();
		w->has_regs = true;
		return regs_compat32(cs) ? ABI_F_COMPAT32 : 0;
	}
	if (!read_entry_frame(task, &w->entered))
		return 0;
	/*
	 * A thread that the kernel made in a process (vhost, io_uring) was never in user mode: its
	 * creator left it neither pc nor sp. The flag PF_USER_WORKER has other meanings before 6.4.
	 */
	if (!w->entered.ip && !w->entered.sp)
		return ABI_F_KERNEL_THREAD;
	*ret_sp = w->entered.sp;
	w->go_g = w->entered.REGS_GO_G;
	w->has_regs = true;
	if (regs_compat32(w->entered.cs))
		return ABI_F_COMPAT32;
	/* Once it has put the registers back, the kernel forgets which call it was. */
	return w->entered.orig_ax == REGS_NR_SIGRETURN ? ABI_F_SIGRETURN : 0;
}

/* What a task is, and where its user side, if it has one. */
static __always_inline __u32 look_at_task(struct regs_context *ctx, struct task_struct *task,
					  struct work *w)
{
	__u32 task_flags = FIELD(task, flags), flags = 0;
	struct mm_struct *mm = FIELD(task, mm);
	struct stack_of of = { task, mm, NULL, false, NULL, 0, w->head.pid, w->head.tid };
	__u64 sp = 0;

	if (!regs_user_mode(ctx->regs.cs))
		flags |= ABI_F_KERNEL_MODE;
	if (task_flags & PF_EXITING)
		flags |= ABI_F_EXITING;
	if (task_flags & (PF_KTHREAD | PF_IO_WORKER) || (!mm && !(task_flags & PF_EXITING)))
		return flags | ABI_F_KERNEL_THREAD;
	flags |= read_user(ctx, task, w, &sp);
	/* Without an mm of its own a task runs in that of the one before: nothing there is its own. */
	if (!mm || !w->has_regs || flags & ABI_F_COMPAT32)
		return flags;
	if (!FIELD(mm, start_stack))
		return flags | ABI_F_IN_EXEC;
	if (nlearned)
		of.learned = bpf_map_lookup_elem(&learned, &of.tid);
	if (of.learned && of.learned->flags & ABI_LEARNED_DEEP) {
		of.deep = ring_is_roomy();
		w->spared = !of.deep;
	}
	of.g = w->go_g;
	if (ngo_threads)
		of.go = bpf_map_lookup_elem(&go_threads, &of.pid);
	stack_plan(&w->plan, &of, sp);
	if (of.learned)
		stack_plan_pages(&w->plan, of.learned);
	else
		w->urgent = w->plan.flags & ABI_F_CUT;
	w->frames = w->plan.flags & ABI_F_CUT && (!of.learned || of.learned->flags & ABI_LEARNED_FOLLOW);
	if (w->plan.top.m && !of.go && w->head.time_ns - w->go_woken_ns > GO_WAKE_NS) {
		w->go_woken_ns = w->head.time_ns;
		w->urgent = true;
	}
	return flags | w->plan.flags;
}

/* How many samples of this process the one at hand stands for; 0: it is not wanted, and was counted. */
static __always_inline __u32 stands_for(struct counters *c)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, keep;
	__u32 *found;

	if (!nfilters)
		return 1;
	found = bpf_map_lookup_elem(&filter, &pid);
	if (!found)
		return 1;
	keep = *found;
	barrier_var(keep); /* the agent may change it meanwhile */
	if (!keep)
		c->n[ABI_CNT_DROPS + ABI_DROP_FILTERED]++;
	/* Not every Nth: a program that repeats itself could be in step with that. */
	if (keep > 1 && bpf_get_prandom_u32() % keep) {
		c->n[ABI_CNT_DROPS + ABI_DROP_THINNED]++;
		return 0;
	}
	return keep;
}

static __always_inline void fill_header(struct regs_context *ctx, struct task_struct *task,
					struct abi_record *head, __u64 seq, __u32 keep_one_in)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	head->seq = seq;
	head->time_ns = bpf_ktime_get_ns();
	head->period_ns = ctx->sample_period * keep_one_in;
	head->cgroup_id = cgroup_id(task);
	head->pid = pid_tgid >> 32;
	head->tid = pid_tgid;
	head->cpu = bpf_get_smp_processor_id();
	head->kind = ABI_KIND_CPU;
	bpf_get_current_comm(head->comm, sizeof(head->comm));
}

/* While the agent does not keep up, samples are worth more than the far parts of some. */
static __always_inline void spare_ring(struct work *w, struct counters *c)
{
	if (!w->spared && (!w->plan.npages || ring_is_roomy()))
		return;
	w->plan.npages = 0;
	w->head.flags |= ABI_F_PART_LOST;
	c->n[ABI_CNT_PART_LOST]++;
}

SEC("perf_event")
int sample(struct regs_context *ctx)
{
	struct task_struct *task = task_current();
	struct counters *c;
	struct work *w;
	__u32 zero = 0, keep_one_in;

	c = bpf_map_lookup_elem(&counters, &zero);
	w = bpf_map_lookup_elem(&work, &zero);
	/* The idle task has pid 0; exclude_idle spares us most of it. */
	if (!c || !w || !(__u32)bpf_get_current_pid_tgid())
		return 0;
	c->n[ABI_CNT_SEEN]++;
	keep_one_in = stands_for(c);
	if (!keep_one_in)
		return 0;
	fill_header(ctx, task, &w->head, c->n[ABI_CNT_SEEN], keep_one_in);
	w->has_regs = false;
	w->urgent = w->frames = w->spared = 0;
	w->part = 0;
	w->plan.nwindows = 0;
	w->plan.windows[0].len = 0;
	w->plan.npages = 0;
	w->plan.flags = 0;
	w->plan.waiting[0] = w->plan.g = w->plan.top.m = 0;
	w->head.flags = look_at_task(ctx, task, w);
	spare_ring(w, c);
	/* A sample without any window is a part all the same. */
	w->nparts = w->plan.nwindows + !w->plan.nwindows + !!w->plan.npages +
		    (w->plan.npages > ABI_RECORD_PAGES);
	bpf_tail_call(ctx, &programs, PROGRAM_PART);
	c->n[ABI_CNT_DROPS + ABI_DROP_TAIL_CALL]++; /* or it would not come back */
	return 0;
}

/* ---- writing ---- */

/*
 * The leaf window could not be read at sp: in the middle of execve that means that it is gone. Its
 * address is below sp by the red zone and at most 7 bytes of rounding.
 */
static __always_inline bool lost_stack(const struct work *w, __u64 len)
{
	__u64 low = w->plan.windows[0].address;
	__u64 page = (low + ABI_RED_ZONE) / PAGE - low / PAGE;

	return !len || w->at.holes >> (page & 1) & 1;
}

static __always_inline void submit(struct work *w, struct abi_record *rec, __u64 size)
{
	bool last = w->part + 1 >= w->nparts;
	__u64 flags;

	if (last && (w->urgent || bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > wakeup_bytes))
		flags = BPF_RB_FORCE_WAKEUP;
	else
		flags = BPF_RB_NO_WAKEUP;
	*rec = w->head;
	rec->size = size;
	rec->part = w->part;
	if (last)
		rec->flags |= ABI_F_LAST;
	bpf_ringbuf_submit(rec, flags);
}

/* A part that the ring has no room for; without the first there is no sample. */
static __always_inline bool lose(struct work *w, struct counters *c)
{
	struct abi_record *rec;

	if (!w->part) {
		c->n[ABI_CNT_DROPS + ABI_DROP_RING_FULL]++;
		return false;
	}
	if (!(w->head.flags & ABI_F_PART_LOST))
		c->n[ABI_CNT_PART_LOST]++;
	w->head.flags |= ABI_F_PART_LOST;
	if (w->part + 1 < w->nparts)
		return true;
	rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);
	w->head.nsections = 0;
	if (rec)
		submit(w, rec, sizeof(*rec));
	return false;
}

/* A tail call that succeeds does not come back: what was to follow this part is lost. */
static __always_inline void lose_rest(struct work *w, struct counters *c)
{
	if (w->part >= w->nparts)
		return;
	w->part = w->nparts - 1;
	lose(w, c);
}

/* What part 0 has besides its window. */
static __always_inline void write_first(struct regs_context *ctx, struct work *w, void *rec,
					__u64 size)
{
	bool kernel_mode = w->head.flags & ABI_F_KERNEL_MODE;
	__u64 n;

	if (w->has_regs) {
		w->off += record_add_regs(ctx, rec, size, w->off, kernel_mode, &w->entered);
		w->head.nsections++;
	}
	barrier();
	if (w->plan.waiting[0]) {
		n = record_add_pair(rec, size, w->off, ABI_SEC_GOROUTINE, 0, 0, w->plan.waiting);
		w->off += n;
		w->head.nsections += !!n;
	}
	barrier();
	if (w->plan.g) {
		n = record_add_pair(rec, size, w->off, ABI_SEC_STACK, ABI_WIN_G, w->plan.g, w->plan.g_stack);
		w->off += n;
		w->head.nsections += !!n;
	}
	barrier();
	if (kernel_mode) {
		n = record_add_frames(ctx, rec, size, w->off, ABI_SEC_KSTACK, KSTACK_BYTES, 0);
		w->off += n;
		w->head.nsections += !!n;
	}
	barrier();
	if (w->frames) {
		n = record_add_frames(ctx, rec, size, w->off, ABI_SEC_USTACK, USTACK_BYTES, BPF_F_USER_STACK);
		w->off += n;
		w->head.nsections += !!n;
	}
}

/* Fills and hands over the record of the part at hand. */
static __always_inline void write(struct regs_context *ctx, struct work *w, struct counters *c,
				  void *rec, __u64 size, const struct window *window)
{
	__u64 n = record_add_window(rec, size, &w->at, window);

	c->n[ABI_CNT_STACK_BYTES] += n;
	w->off = n ? OFF_BYTES + n : sizeof(struct abi_record);
	w->head.nsections = !!n;
	if (w->part && !n)
		w->head.flags |= ABI_F_CUT;
	if (!w->part && window->len && lost_stack(w, n) && task_in_execve(task_current()))
		w->head.flags |= ABI_F_IN_EXEC;
	barrier(); /* what is read back from the map, the verifier forgets: all ways meet here */
	if (!w->part)
		write_first(ctx, w, rec, size);
	barrier();
	submit(w, rec, w->off);
}

/* One record, and then the next. */
SEC("perf_event")
int part(struct regs_context *ctx)
{
	struct window *window;
	struct counters *c;
	__u64 i, need, size = 0;
	__u32 zero = 0;
	struct work *w;
	void *rec;

	c = bpf_map_lookup_elem(&counters, &zero);
	w = bpf_map_lookup_elem(&work, &zero);
	if (!c || !w)
		return 0;
	i = w->part;
	if (i >= STACK_WINDOWS_MAX)
		return 0;
	window = &w->plan.windows[i];
	need = OFF_BYTES + window->len;
	if (!i)
		need += REGS_ROOM + (w->head.flags & ABI_F_KERNEL_MODE ? KSTACK_ROOM : 0) +
			(w->plan.waiting[0] ? PAIR_ROOM : 0) + (w->plan.g ? PAIR_ROOM : 0) +
			(w->frames ? USTACK_ROOM : 0);
	rec = record_reserve(need, &size);
	if (rec)
		write(ctx, w, c, rec, size, window);
	else if (!lose(w, c))
		return 0;
	w->part++;
	if (w->part < w->plan.nwindows)
		bpf_tail_call(ctx, &programs, PROGRAM_PART);
	else if (w->part < w->nparts)
		bpf_tail_call(ctx, &programs, PROGRAM_PAGES);
	lose_rest(w, c);
	return 0;
}

/* How many of the pages that are left come in this record; the rest moves up. */
static __always_inline __u64 take_pages(struct stack_plan *p)
{
	__u64 n = p->npages;

	if (n <= ABI_RECORD_PAGES)
		return n;
	p->npages -= ABI_RECORD_PAGES;
	return ABI_RECORD_PAGES;
}

static __always_inline void drop_pages(struct stack_plan *p)
{
	for (int i = 0; i < ABI_LEARNED_PAGES - ABI_RECORD_PAGES; i++)
		p->pages[i] = p->pages[i + ABI_RECORD_PAGES];
}

/* A record of learned pages. */
SEC("perf_event")
int pages(struct regs_context *ctx)
{
	struct counters *c;
	__u64 size = 0, n;
	__u32 zero = 0;
	struct work *w;
	void *rec;

	c = bpf_map_lookup_elem(&counters, &zero);
	w = bpf_map_lookup_elem(&work, &zero);
	if (!c || !w)
		return 0;
	n = take_pages(&w->plan);
	rec = record_reserve_pages(n, &size);
	if (rec) {
		for (__u64 i = 0; i < ABI_RECORD_PAGES && PAGE_OFF(i + 1) <= size; i++) {
			if (i >= n)
				break;
			c->n[ABI_CNT_STACK_BYTES] += record_add_page(rec + PAGE_OFF(i), w->plan.pages[i]);
		}
		w->head.nsections = n;
		submit(w, rec, PAGE_OFF(n));
	} else if (!lose(w, c)) {
		return 0;
	}
	w->part++;
	if (w->part >= w->nparts)
		return 0;
	drop_pages(&w->plan);
	bpf_tail_call(ctx, &programs, PROGRAM_PAGES);
	lose_rest(w, c);
	return 0;
}
