/*
 * sample - a cpu-clock tick: registers, kernel frames and the used part of the user stack, written to
 * the ring buffer as bpf/abi.h says.
 *
 * How it stays acceptable to verifiers from Linux 5.10 on:
 *  - A ring record's size must be a constant, so there are classes of 1 to 64 KiB. Which class was
 *    taken is a constant in each path that the verifier walks, so one body of code serves them all.
 *  - The verifier bounds an offset and a length each by itself, never their sum. So the stack's bytes
 *    always start at the same offset, what has a variable offset has a constant size, and the frames
 *    of the kernel, which have neither, come last and have room for the most of them.
 *  - Before 5.11 a bounded number is forgotten when it is spilled, so each clamp stands directly before
 *    its use and barrier_var() keeps the compiler from taking it for redundant.
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
#include "bpf/stack.h"

#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010 /* 5.12; unused before */
#define PF_KTHREAD 0x00200000

#define PAGE 4096 /* of abi_section.holes, on every machine */

/* A record's places. */
#define OFF_REGS sizeof(struct abi_record)
#define OFF_STACK (OFF_REGS + sizeof(struct abi_section) + REGS_COUNT * 8)
#define OFF_STACK_BYTES (OFF_STACK + sizeof(struct abi_section))
#define OFF_EXTRA_BYTES (sizeof(struct abi_record) + sizeof(struct abi_section))
#define KSTACK_BYTES (ABI_KSTACK_MAX * 8)
#define KSTACK_ROOM (sizeof(struct abi_section) + KSTACK_BYTES)

_Static_assert(OFF_STACK_BYTES % 8 == 0 && OFF_EXTRA_BYTES % 8 == 0, "sections are padded to 8");
_Static_assert(OFF_STACK_BYTES + ABI_WINDOW_MAX + KSTACK_ROOM <= ABI_RECORD_MAX, "a full record fits");

/* Where a read page by page stands. */
struct cursor {
	__u64 off; /* of the window's bytes */
	__u64 end; /* behind the last byte that could be read */
	__u64 holes;
};

/* What is known of the sample at hand; too much for a BPF stack of 512 bytes. */
struct work {
	__u64 regs[REGS_COUNT]; /* of the user side */
	bool has_regs;
	__u32 keep_one_in; /* samples of this process; this is the one */
	__u32 flags; /* ABI_F_* */
	__u32 nsections[ABI_PARTS_MAX];
	struct regs_frame frame;
	struct stack_plan plan;
	struct cursor at;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} work SEC(".maps");

/*
 * Makes a record of the smallest class that holds `need` bytes; NULL when the ring is full. The class
 * passes through an empty asm, so that the compiler can not merge the branches again.
 */
#define RESERVE_CLASS(kib)                                                      \
	do {                                                                    \
		if (need <= (kib) * 1024) {                                     \
			__u64 size_ = (kib) * 1024;                             \
			void *p_ = bpf_ringbuf_reserve(&ring, (kib) * 1024, 0); \
                                                                                \
			barrier_var(size_);                                     \
			*ret_size = size_;                                      \
			return p_;                                              \
		}                                                               \
	} while (0)

static __always_inline void *reserve(__u64 need, __u64 *ret_size)
{
	RESERVE_CLASS(1);
	RESERVE_CLASS(2);
	RESERVE_CLASS(4);
	RESERVE_CLASS(8);
	RESERVE_CLASS(16);
	RESERVE_CLASS(32);
	RESERVE_CLASS(64);
	return NULL;
}

/* One read of `size` bytes, a constant; false when the window has no room for it. */
static __always_inline bool read_piece(struct cursor *at, void *dst, __u64 room, __u64 size,
				       __u64 address, __u64 bit)
{
	__u64 off;

	if (size > room)
		return false;
	barrier(); /* reads at->off from the map, whatever the compiler still knows of it */
	off = at->off;
	barrier_var(off);
	if (off > room - size)
		return false;
	if (bpf_probe_read_user(dst + off, size, (void *)(address + off)))
		at->holes |= bit;
	else
		at->end = off + size;
	at->off = off + size;
	return true;
}

/*
 * Page by page, past the pages that fail. `len` is a multiple of 8. Full pages have a constant size and
 * a checked offset; what is left below a page is read in powers of two for the same reason. The place
 * is kept in a map, of whose contents the verifier knows nothing: it then finds that both ways of a
 * branch lead to the same state and walks on once. Returns the bytes up to the last that could be read.
 */
static __always_inline __u64 read_pages(struct cursor *at, void *dst, __u64 room, __u64 address,
					__u64 len)
{
	__u64 n = PAGE - (address & (PAGE - 1)), bit = 1;

	if (n > len)
		n = len;
	at->off = n;
	at->holes = 0;
	at->end = 0;
	barrier_var(n);
	if (n > room)
		n = room;
	if (bpf_probe_read_user(dst, n, (void *)address))
		at->holes = bit;
	else
		at->end = n;
	for (int i = 1; i <= ABI_RECORD_MAX / PAGE; i++) {
		bit = 1ull << i;
		if (len < at->off + PAGE || !read_piece(at, dst, room, PAGE, address, bit))
			break;
	}
	n = len - at->off;
#pragma unroll
	for (__u64 size = PAGE / 2; size >= 8; size /= 2)
		if (n & size)
			read_piece(at, dst, room, size, address, bit);
	if (!at->end)
		return 0;
	/* Only pages up to there. */
	bit = (address + at->end - 1) / PAGE - address / PAGE;
	at->holes &= (2ull << (bit & 31)) - 1;
	return at->end;
}

/*
 * Fills the section at `section` and the bytes after it, of which there are `room`. False when no byte
 * could be read.
 */
static __always_inline bool add_window(struct cursor *at, struct abi_section *section, __u64 room,
				       const struct window *w, __u32 id)
{
	__u64 len = w->len, holes = 0;
	void *dst = section + 1;

	barrier_var(len);
	if (len > room)
		len = room;
	if (!len)
		return false;
	if (bpf_probe_read_user(dst, len, (void *)w->address)) {
		len = read_pages(at, dst, room, w->address, len);
		if (!len)
			return false;
		holes = at->holes;
	}
	section->kind = ABI_SEC_STACK;
	section->id = id;
	section->len = len;
	section->address = w->address;
	section->holes = holes;
	return true;
}

/* At `off` of the record; returns the bytes used. */
static __always_inline __u64 add_kstack(void *ctx, void *rec, __u64 size, __u64 off)
{
	struct abi_section *section;
	long n;

	if (size < KSTACK_ROOM)
		return 0;
	barrier_var(off);
	if (off > size - KSTACK_ROOM)
		return 0;
	section = rec + off;
	n = bpf_get_stack(ctx, section + 1, KSTACK_BYTES, 0);
	if (n <= 0)
		return 0;
	section->kind = ABI_SEC_KSTACK;
	section->id = 0;
	section->len = n;
	section->address = 0;
	section->holes = 0;
	return sizeof(*section) + n;
}

static __always_inline void add_regs(void *rec, struct work *w)
{
	struct abi_section *section = rec + OFF_REGS;
	__u64 *dst = (void *)(section + 1);

	section->kind = ABI_SEC_REGS;
	section->id = 0;
	section->len = REGS_COUNT * 8;
	section->address = 0;
	section->holes = 0;
#pragma unroll
	for (int i = 0; i < REGS_COUNT; i++)
		dst[i] = w->regs[i];
}

static __always_inline void submit(void *rec, bool last)
{
	__u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(rec, last && waiting > wakeup_bytes ? BPF_RB_FORCE_WAKEUP :
								 BPF_RB_NO_WAKEUP);
}

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

/* Fills w->regs; returns what the registers tell as flags. */
static __always_inline __u32 read_user(struct regs_context *ctx, struct task_struct *task,
				       struct work *w)
{
	__u64 cs = ctx->regs.cs;

	barrier_var(cs); /* or the compiler makes one load of both, through a pointer into ctx */
	if (regs_user_mode(cs)) {
		REGS_COPY(w->regs, &ctx->regs);
		w->has_regs = true;
		return regs_compat32(cs) ? ABI_F_COMPAT32 : 0;
	}
	if (!read_entry_frame(task, &w->frame))
		return 0;
	/*
	 * A thread that the kernel made in a process (vhost, io_uring) was never in user mode: its
	 * creator left it neither pc nor sp. The flag PF_USER_WORKER has other meanings before 6.4.
	 */
	if (!w->frame.ip && !w->frame.sp)
		return ABI_F_KERNEL_THREAD;
	REGS_COPY(w->regs, &w->frame);
	w->has_regs = true;
	return regs_compat32(w->frame.cs) ? ABI_F_COMPAT32 : 0;
}

static __always_inline bool in_execve(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->in_execve))
		return false;
	return BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
}

/* What a task is, and where its user side, if it has one. */
static __always_inline __u32 look_at_task(struct regs_context *ctx, struct task_struct *task,
					  struct work *w)
{
	__u32 task_flags = BPF_CORE_READ(task, flags), flags = 0;
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	if (!regs_user_mode(ctx->regs.cs))
		flags |= ABI_F_KERNEL_MODE;
	if (task_flags & PF_EXITING)
		flags |= ABI_F_EXITING;
	if (task_flags & (PF_KTHREAD | PF_IO_WORKER) || (!mm && !(task_flags & PF_EXITING)))
		return flags | ABI_F_KERNEL_THREAD;
	flags |= read_user(ctx, task, w);
	/* Without an mm of its own a task runs in that of the one before: nothing there is its own. */
	if (!mm || !w->has_regs || flags & ABI_F_COMPAT32)
		return flags;
	if (!BPF_CORE_READ(mm, start_stack))
		return flags | ABI_F_IN_EXEC;
	stack_plan(&w->plan, task, mm, w->regs[REGS_SP],
		   pid_tgid >> 32 == (__u32)pid_tgid);
	return flags | w->plan.flags;
}

/* The leaf window could not be read at sp: in the middle of execve that means that it is gone. */
static __always_inline bool lost_stack(struct task_struct *task, const struct abi_section *leaf,
				       __u64 sp)
{
	__u64 page = (sp / PAGE) - ((sp - ABI_RED_ZONE) / PAGE);

	return (!leaf || leaf->holes >> (page & 1) & 1) && in_execve(task);
}

/* The sections of part 0; returns its size. */
static __always_inline __u64 fill_first(struct regs_context *ctx, struct task_struct *task, void *rec,
					__u64 size, struct work *w, struct counters *c)
{
	struct abi_section *leaf = NULL;
	__u64 off = OFF_REGS, n;

	if (w->has_regs) {
		add_regs(rec, w);
		w->nsections[0]++;
		off = OFF_STACK;
	}
	if (w->plan.leaf.len && size > OFF_STACK_BYTES) {
		if (add_window(&w->at, rec + OFF_STACK, size - OFF_STACK_BYTES, &w->plan.leaf,
			       ABI_WIN_LEAF)) {
			leaf = rec + OFF_STACK;
			w->nsections[0]++;
			c->n[ABI_CNT_STACK_BYTES] += leaf->len;
			off = OFF_STACK_BYTES + leaf->len;
		}
		if (lost_stack(task, leaf, w->regs[REGS_SP]))
			w->flags |= ABI_F_IN_EXEC;
	}
	if (w->flags & ABI_F_KERNEL_MODE) {
		n = add_kstack(ctx, rec, size, off);
		if (n)
			w->nsections[0]++;
		off += n;
	}
	return off;
}

/* The one section of part 1; returns its size. */
static __always_inline __u64 fill_extra(void *rec, __u64 size, struct work *w, struct counters *c)
{
	struct abi_section *section = rec + sizeof(struct abi_record);

	if (size <= OFF_EXTRA_BYTES ||
	    !add_window(&w->at, section, size - OFF_EXTRA_BYTES, &w->plan.extra,
			w->plan.extra_id)) {
		w->flags |= ABI_F_CUT;
		return sizeof(struct abi_record);
	}
	w->nsections[1] = 1;
	c->n[ABI_CNT_STACK_BYTES] += section->len;
	return OFF_EXTRA_BYTES + section->len;
}

static __always_inline void fill_header(struct regs_context *ctx, struct task_struct *task,
					struct abi_record *rec, __u64 time_ns, __u64 seq,
					__u32 keep_one_in)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	rec->seq = seq;
	rec->time_ns = time_ns;
	rec->period_ns = ctx->sample_period * keep_one_in;
	rec->cgroup_id = cgroup_id(task);
	rec->pid = pid_tgid >> 32;
	rec->tid = pid_tgid;
	rec->cpu = bpf_get_smp_processor_id();
	rec->kind = ABI_KIND_CPU;
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
}

static __always_inline void deliver(struct regs_context *ctx, struct task_struct *task,
				    struct counters *c, struct work *w, __u64 time_ns)
{
	__u64 need = w->has_regs ? OFF_STACK_BYTES + w->plan.leaf.len : OFF_REGS;
	__u64 size = 0, extra_size = 0;
	struct abi_record *rec, *extra = NULL;

	if (w->flags & ABI_F_KERNEL_MODE)
		need += KSTACK_ROOM;
	rec = reserve(need, &size);
	if (!rec) {
		c->n[ABI_CNT_DROPS + ABI_DROP_RING_FULL]++;
		return;
	}
	/* Before the first part is handed over, so that it can say whether a second one follows. */
	if (w->plan.extra.len) {
		extra = reserve(OFF_EXTRA_BYTES + w->plan.extra.len, &extra_size);
		if (!extra) {
			extra_size = 0;
			c->n[ABI_CNT_PART_LOST]++;
			w->flags |= ABI_F_PART_LOST;
		}
	}
	/* From here on a number tells whether there is one: 5.10 forgets that a pointer is not NULL. */
	barrier_var(extra_size);
	fill_header(ctx, task, rec, time_ns, c->n[ABI_CNT_SEEN], w->keep_one_in);
	if (extra_size) {
		__builtin_memcpy(extra, rec, sizeof(*rec));
		extra->size = fill_extra(extra, extra_size, w, c);
	}
	rec->size = fill_first(ctx, task, rec, size, w, c);
	rec->flags = extra_size ? w->flags : w->flags | ABI_F_LAST;
	rec->part = 0;
	rec->nsections = w->nsections[0];
	submit(rec, !extra_size);
	if (extra_size) {
		extra->flags = w->flags | ABI_F_LAST;
		extra->part = 1;
		extra->nsections = w->nsections[1];
		submit(extra, true);
	}
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

SEC("perf_event")
int sample(struct regs_context *ctx)
{
	__u64 time_ns = bpf_ktime_get_ns();
	struct task_struct *task = (void *)bpf_get_current_task();
	struct counters *c;
	struct work *w;
	__u32 zero = 0;

	c = bpf_map_lookup_elem(&counters, &zero);
	w = bpf_map_lookup_elem(&work, &zero);
	/* The idle task has pid 0; exclude_idle spares us most of it. */
	if (!c || !w || !(__u32)bpf_get_current_pid_tgid())
		return 0;
	c->n[ABI_CNT_SEEN]++;
	w->keep_one_in = stands_for(c);
	if (!w->keep_one_in)
		return 0;
	w->has_regs = false;
	__builtin_memset(&w->plan, 0, sizeof(w->plan));
	__builtin_memset(w->nsections, 0, sizeof(w->nsections));
	w->flags = look_at_task(ctx, task, w);
	barrier(); /* w->flags is read back from here on, see read_pages() */
	deliver(ctx, task, c, w, time_ns);
	return 0;
}
