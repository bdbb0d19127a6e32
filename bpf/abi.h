/*
 * abi - what bpf/sample.bpf.c writes and the agent reads.
 *
 * A sample is one or more ring buffer records that follow each other ("parts"); records of other CPUs
 * may stand between them. A part that does not fit into the ring is left out: a later one says so, and
 * where there is none, a record that is a header alone. If the ring has no room even for that, no
 * part with ABI_F_LAST comes.
 *
 * A record is a struct abi_record and then sections in any order up to `size`, each a struct
 * abi_section, `len` bytes, and padding to 8. Everything is in native byte order; lengths in bytes,
 * times in ns of CLOCK_MONOTONIC.
 *
 * The agent trusts the kernel, not the bytes of a section: registers and stacks are the sampled
 * program's and may be anything.
 */
#ifndef BPF_ABI_H
#define BPF_ABI_H

#ifdef __bpf__
typedef unsigned char abi_u8;
typedef unsigned short abi_u16;
typedef unsigned int abi_u32;
typedef unsigned long long abi_u64;
#else
#include <stdint.h>
typedef uint8_t abi_u8;
typedef uint16_t abi_u16;
typedef uint32_t abi_u32;
typedef uint64_t abi_u64;
#endif

#define ABI_COMM_LEN 16
#define ABI_RECORD_MAX (64 * 1024)	/* bytes of one ring record */
#define ABI_PARTS_MAX 10
#define ABI_WINDOW_MAX (62 * 1024)	/* stack bytes of one record: what headers, registers, frames leave */
#define ABI_KSTACK_MAX 127		/* kernel frames */
#define ABI_USTACK_MAX 64		/* frames of that kind */
#define ABI_RECORD_PAGES 15		/* what one record holds */
#define ABI_LEARNED_PAGES (2 * ABI_RECORD_PAGES)
#define ABI_LEARNED_STACKS 8
#define ABI_MORE_WINDOWS 5
#define ABI_LEARNED_THREADS 1024	/* of which something is known */
#define ABI_XSAVE_SIZES 2		/* that the XSAVE area of a signal's frame may have */
#define ABI_RED_ZONE 128		/* bytes below the stack pointer that belong to the stack */

/* Registers stand in DWARF order, so that a CFI rule's number is an index. */
enum abi_reg_x86_64 {
	ABI_X86_RAX, ABI_X86_RDX, ABI_X86_RCX, ABI_X86_RBX,
	ABI_X86_RSI, ABI_X86_RDI, ABI_X86_RBP, ABI_X86_RSP,
	ABI_X86_R8, ABI_X86_R9, ABI_X86_R10, ABI_X86_R11,
	ABI_X86_R12, ABI_X86_R13, ABI_X86_R14, ABI_X86_R15,
	ABI_X86_RIP,
	ABI_X86_NREGS,
};
#define ABI_REGS_MAX 33		/* arm64: x0-x30, sp, pc */

enum abi_kind {
	ABI_KIND_CPU = 1,	/* a cpu-clock tick */
};

/* abi_record.flags */
enum {
	ABI_F_KERNEL_MODE = 1 << 0,	/* the tick hit in the kernel; registers are those of the way in */
	ABI_F_KERNEL_THREAD = 1 << 1,	/* no user side: kernel thread, io worker, user worker */
	ABI_F_COMPAT32 = 1 << 2,	/* the user side runs 32-bit code */
	ABI_F_IN_EXEC = 1 << 3,		/* in execve: the old stack is gone, or the new one unfinished */
	ABI_F_EXITING = 1 << 4,		/* the thread is exiting; its memory may be gone */
	ABI_F_TOP_KNOWN = 1 << 5,	/* the copied leaf window was to end at a known top */
	ABI_F_CUT = 1 << 6,		/* bytes between the leaf window and the top were left out */
	/* This part or one before it did not fit into the ring, or learned pages were left out to spare it. */
	ABI_F_PART_LOST = 1 << 7,
	ABI_F_LAST = 1 << 8,		/* last part of its sample */
	ABI_F_ON_ALTSTACK = 1 << 9,	/* sp is inside the thread's sigaltstack */
	ABI_F_ON_G0 = 1 << 10,		/* a Go thread on its system stack */
	ABI_F_SIGRETURN = 1 << 11,	/* in rt_sigreturn(2), the signal's frame still in place: the pc is past the call */
	ABI_F_ON_GOROUTINE = 1 << 12,	/* on a goroutine's stack, whose end Go tells */
};

struct abi_record {
	abi_u32 size;		/* header and sections; at most ABI_RECORD_MAX, a multiple of 8 */
	abi_u32 flags;
	abi_u64 seq;		/* per CPU, from 1, also counts dropped samples; shared by a sample's parts */
	abi_u64 time_ns;
	abi_u64 period_ns;	/* CPU time that this sample stands for; of a thinned process N periods */
	abi_u64 cgroup_id;	/* see enum abi_cgroup_hierarchy; 0 unknown */
	abi_u32 pid;		/* tgid in the initial pid namespace */
	abi_u32 tid;
	abi_u32 cpu;
	abi_u8 kind;		/* enum abi_kind */
	abi_u8 part;		/* from 0 */
	abi_u16 nsections;
	char comm[ABI_COMM_LEN];
};

/*
 * Each hierarchy numbers its control groups from 1, so the bits from ABI_CGROUP_SHIFT on say which one
 * an id is of: v2, where the bits are 0, unless the task is in its root; then the first of these in
 * whose root it is not.
 */
#define ABI_CGROUP_SHIFT 60
enum abi_cgroup_hierarchy {
	ABI_CGROUP_V2,
	ABI_CGROUP_MEMORY,
	ABI_CGROUP_PIDS,
	ABI_CGROUP_CPU,
	ABI_CGROUP_HIERARCHIES,
};

enum abi_section_kind {
	ABI_SEC_REGS = 1,	/* u64[len / 8], DWARF order */
	ABI_SEC_KSTACK = 2,	/* u64[len / 8], leaf first */
	ABI_SEC_STACK = 3,	/* bytes at `address`; `id` says which window */
	ABI_SEC_GOROUTINE = 4,	/* u64 sp, pc at which the goroutine waits that the thread, on g0, serves */
	/* u64[len / 8], leaf first: the frame pointers as the kernel follows them, of a stack that was cut. */
	ABI_SEC_USTACK = 5,
};

enum abi_window_id {
	ABI_WIN_LEAF = 0,	/* from sp - ABI_RED_ZONE upwards */
	ABI_WIN_ROOT = 1,	/* downwards from the stack's top */
	ABI_WIN_INTERRUPTED = 2,	/* what a handler on sigaltstack interrupted */
	ABI_WIN_GOROUTINE = 3,	/* the goroutine's stack while its thread is on g0 */
	ABI_WIN_LEARNED = 4,	/* pages that userspace asked for, each a window; in the last records */
	ABI_WIN_MORE = 5,	/* what follows the leaf's, of a deep stack */
	ABI_WIN_G = 6,		/* the begin of a goroutine's struct g: where its stack begins and ends */
};

/*
 * What userspace knows of a thread's memory (sampler_learn()): the next samples bring those of these
 * pages that are in no other window; and while sp is inside one of these stacks, its end is the top.
 * The agent is woken for each cut stack of a thread of which nothing is known.
 */
struct abi_range {
	abi_u64 low, high;
};
enum {
	ABI_LEARNED_DEEP = 1 << 0,	/* more is copied from the leaf side, in up to ABI_MORE_WINDOWS windows more */
	ABI_LEARNED_FOLLOW = 1 << 1,	/* cut stacks come with the kernel's walk, as those of unknown threads do */
};
struct abi_learned {
	abi_u32 npages;
	abi_u32 nstacks;
	abi_u64 flags;
	abi_u64 pages[ABI_LEARNED_PAGES]; /* addresses, multiples of 4 KiB */
	struct abi_range stacks[ABI_LEARNED_STACKS];
};

/*
 * Where the threads of a process have the address of Go's g: so far from the thread pointer; or, ABI_GO_SLOT,
 * that distance stands at the address `place`. The agent is woken, 20 times a second at most, by those of which it is unknown.
 */
#define ABI_GO_PROCESSES 1024
#define ABI_GO_PLACE (-8ull) /* in an executable that is all Go's */
enum {
	ABI_GO_SLOT = 1 << 0,
	ABI_GO_CGO = 1 << 1,	/* C code may call Go there */
};
struct abi_go {
	abi_u64 place;
	abi_u64 flags;
};

struct abi_section {
	abi_u16 kind;
	abi_u16 id;
	abi_u32 len;		/* payload bytes, without padding */
	abi_u64 address;	/* user address of the payload, 0 where it has none */
	/*
	 * Pages of the payload that could not be read, as bits: bit 0 is the payload up to the first
	 * 4 KiB boundary of the user's address, bit 1 the page after it, and so on.
	 */
	abi_u64 holes;
};

/* Why BPF did not deliver a sample; a per-CPU u64 counter each. One list is index, text and metric. */
#define ABI_DROPS(X)					\
	X(RING_FULL, "ring_full")			\
	X(FILTERED, "filtered")				\
	X(THINNED, "thinned")				\
	X(TAIL_CALL, "tail_call") /* the kernel did not go on to the program that writes */

enum abi_drop {
#define X(id, text) ABI_DROP_##id,
	ABI_DROPS(X)
#undef X
	ABI_DROP_COUNT,
};

/* Per-CPU u64 counters of the map `counters`: first these, then ABI_DROP_COUNT drops. */
enum abi_counter {
	ABI_CNT_SEEN,		/* ticks on something other than the idle task */
	ABI_CNT_PART_LOST,	/* samples delivered without one of their parts */
	ABI_CNT_STACK_BYTES,	/* user stack bytes copied */
	ABI_CNT_DROPS,		/* + enum abi_drop */
	ABI_CNT_COUNT = ABI_CNT_DROPS + ABI_DROP_COUNT,
};

#endif
