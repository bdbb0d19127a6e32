/*
 * record - the parts of a record, put into ring memory. Included by BPF programs only.
 *
 * How it stays acceptable to verifiers from Linux 5.10 on, and cheap for them:
 *  - A ring record's size must be a constant, so there are classes. The verifier walks what follows
 *    once for each class, so it is short.
 *  - The verifier bounds an offset and a length each by itself, never their sum. So a window's bytes,
 *    which have a variable length, come first, and what follows at a variable offset has a
 *    constant size or room for the most of it.
 *  - Before 5.11 a bounded number is forgotten when it is spilled, so each clamp stands directly before
 *    its use and barrier_var() keeps the compiler from taking it for redundant.
 *  - A loop keeps its place in a map, of whose contents the verifier knows nothing: it then finds that
 *    both ways of a branch lead to the same state and walks on once.
 */
#ifndef BPF_RECORD_H
#define BPF_RECORD_H

#include "bpf/plan.h"

#include "bpf/abi.h"
#include "bpf/stack.h"

#define PAGE 4096 /* of abi_section.holes, on every machine */

/* A record's places. */
#define OFF_BYTES (sizeof(struct abi_record) + sizeof(struct abi_section))
#define REGS_ROOM (sizeof(struct abi_section) + REGS_COUNT * 8)
#define KSTACK_BYTES (ABI_KSTACK_MAX * 8)
#define KSTACK_ROOM (sizeof(struct abi_section) + KSTACK_BYTES)

#define USTACK_BYTES (ABI_USTACK_MAX * 8)
#define USTACK_ROOM (sizeof(struct abi_section) + USTACK_BYTES)
#define PAIR_ROOM (sizeof(struct abi_section) + 16)

_Static_assert(OFF_BYTES % 8 == 0 && REGS_ROOM % 8 == 0, "sections are padded to 8");
_Static_assert(OFF_BYTES + ABI_WINDOW_MAX + REGS_ROOM + 2 * PAIR_ROOM + USTACK_ROOM + KSTACK_ROOM <= ABI_RECORD_MAX,
	       "a full record fits");

/* Where a read page by page stands. */
struct cursor {
	__u64 off; /* of the window's bytes */
	__u64 end; /* behind the last byte that could be read */
	__u64 bit; /* of the page at hand */
	__u64 holes;
};

/* The class passes through an empty asm, so that the compiler can not merge the branches again. */
#define RESERVE_CLASS(bytes)                                                  \
	do {                                                                  \
		if (need <= (bytes)) {                                        \
			__u64 size_ = (bytes);                                \
			void *p_ = bpf_ringbuf_reserve(&ring, (bytes), 0);    \
                                                                              \
			barrier_var(size_);                                   \
			*ret_size = size_;                                    \
			return p_;                                            \
		}                                                             \
	} while (0)

/*
 * Makes a record of the smallest class that holds `need` bytes; NULL when the ring is full. A class is
 * so much of a stack and what else is in a record of user mode.
 */
static __always_inline void *record_reserve(__u64 need, __u64 *ret_size)
{
	RESERVE_CLASS(1024 + OFF_BYTES + REGS_ROOM);
	RESERVE_CLASS(4 * 1024 + OFF_BYTES + REGS_ROOM);
	RESERVE_CLASS(8 * 1024 + OFF_BYTES + REGS_ROOM);
	RESERVE_CLASS(16 * 1024 + OFF_BYTES + REGS_ROOM);
	RESERVE_CLASS(32 * 1024 + OFF_BYTES + REGS_ROOM);
	RESERVE_CLASS(ABI_RECORD_MAX);
	return NULL;
}

/* Notes what became of a read up to `end`: `err` is 0 or negative. Without a branch, for the verifier. */
static __always_inline void cursor_move(struct cursor *at, __u64 end, long err)
{
	__u64 failed = err >> 63; /* all bits or none */

	barrier_var(failed);
	at->holes |= at->bit & failed;
	at->end += (end - at->end) & ~failed;
	at->off = end;
}

/* One read of `size` bytes, a constant to the verifier; false when there is no room for it. */
static __always_inline bool record_read_piece(struct cursor *at, void *dst, __u64 room, __u64 size,
					      __u64 address)
{
	__u64 off;

	if (size > room)
		return false;
	barrier(); /* reads at->off from the map, whatever the compiler still knows of it */
	off = at->off;
	barrier_var(off);
	if (off > room - size)
		return false;
	cursor_move(at, at->off + size, bpf_probe_read_user(dst + off, size, (void *)(address + off)));
	return true;
}

/*
 * Page by page, past the pages that fail. `len` is a multiple of 8; what is left of it below a page
 * is read in powers of two. Returns the bytes up to the last that could be read.
 */
static __always_inline __u64 record_read_pages(struct cursor *at, void *dst, __u64 room,
					       __u64 address, __u64 len)
{
	__u64 n = PAGE - (address & (PAGE - 1)), last;

	if (n > len)
		n = len;
	at->holes = 0;
	at->end = 0;
	at->bit = 1;
	at->off = n;
	barrier_var(n);
	if (n > room)
		n = room;
	cursor_move(at, at->off, bpf_probe_read_user(dst, n, (void *)address));
	for (__u64 i = 1; i * PAGE <= room; i++) {
		at->bit <<= 1;
		if (len < at->off + PAGE || !record_read_piece(at, dst, room, PAGE, address))
			break;
	}
	barrier();
	n = len - at->off;
	for (__u64 size = PAGE / 2; size >= 8; size /= 2)
		if (n & size)
			record_read_piece(at, dst, room, size, address);
	if (!at->end)
		return 0;
	/* Only pages up to there. */
	last = (address + at->end - 1) / PAGE - address / PAGE;
	at->holes &= (2ull << (last & 31)) - 1;
	return at->end;
}

/* The first section; returns its bytes, 0 when none could be read. */
static __always_inline __u64 record_add_window(void *rec, __u64 size, struct cursor *at,
					       const struct window *w)
{
	struct abi_section *section = rec + sizeof(struct abi_record);
	__u64 len = w->len, room = size - OFF_BYTES;

	at->holes = 0;
	barrier_var(len);
	if (len > room)
		len = room;
	if (!len)
		return 0;
	if (bpf_probe_read_user(rec + OFF_BYTES, len, (void *)w->address)) {
		len = record_read_pages(at, rec + OFF_BYTES, room, w->address, w->len);
		if (!len)
			return 0;
	}
	section->kind = ABI_SEC_STACK;
	section->id = w->id;
	section->len = len;
	section->address = w->address;
	section->holes = at->holes;
	return len;
}

/* Each page is a section of its own, so that its place is a constant; one that failed is a hole. */
#define PAGE_OFF(i) (sizeof(struct abi_record) + (i) * (sizeof(struct abi_section) + PAGE))

_Static_assert(PAGE_OFF(ABI_RECORD_PAGES) <= ABI_RECORD_MAX, "a full record fits");

static __always_inline void *record_reserve_pages(__u64 npages, __u64 *ret_size)
{
	__u64 need = PAGE_OFF(npages);

	RESERVE_CLASS(PAGE_OFF(2));
	RESERVE_CLASS(PAGE_OFF(5));
	RESERVE_CLASS(PAGE_OFF(ABI_RECORD_PAGES));
	return NULL;
}

/* Returns the bytes that could be read. */
static __always_inline __u64 record_add_page(struct abi_section *section, __u64 page)
{
	__u64 failed = bpf_probe_read_user(section + 1, PAGE, (void *)page) >> 63; /* all bits or none */

	barrier_var(failed);
	section->kind = ABI_SEC_STACK;
	section->id = ABI_WIN_LEARNED;
	section->len = PAGE;
	section->address = page;
	section->holes = failed & 1;
	return PAGE & ~failed;
}

/* At `off`, which is checked against `size`; returns the section's bytes. */
static __always_inline __u64 record_add_regs(struct regs_context *ctx, void *rec, __u64 size,
					     __u64 off, bool kernel_mode,
					     const struct regs_frame *entered)
{
	struct abi_section *section;
	__u64 *dst;

	barrier_var(off);
	if (off > size - REGS_ROOM)
		return 0;
	section = rec + off;
	section->kind = ABI_SEC_REGS;
	section->id = 0;
	section->len = REGS_COUNT * 8;
	section->address = 0;
	section->holes = 0;
	dst = (void *)(section + 1);
	if (kernel_mode) {
		REGS_COPY(dst, entered);
		barrier(); /* or one load serves both, through a pointer into ctx, which is refused */
	} else {
		REGS_COPY(dst, &ctx->regs);
	}
	return REGS_ROOM;
}

/* A section of two words; its bytes. */
static __always_inline __u64 record_add_pair(void *rec, __u64 size, __u64 off, __u32 kind, __u32 id, __u64 address,
					     const __u64 *pair)
{
	struct abi_section *section;
	__u64 *dst;

	barrier_var(off);
	if (off > size - PAIR_ROOM)
		return 0;
	section = rec + off;
	section->kind = kind;
	section->id = id;
	section->len = 16;
	section->address = address;
	section->holes = 0;
	dst = (void *)(section + 1);
	dst[0] = pair[0];
	dst[1] = pair[1];
	return PAIR_ROOM;
}

/* The kernel's, or the user's frame pointers' as the kernel follows them. */
static __always_inline __u64 record_add_frames(void *ctx, void *rec, __u64 size, __u64 off, __u32 kind, __u32 bytes,
					       __u64 flags)
{
	__u64 room = sizeof(struct abi_section) + bytes;
	struct abi_section *section;
	long n;

	if (size < room)
		return 0;
	barrier_var(off);
	if (off > size - room)
		return 0;
	section = rec + off;
	n = bpf_get_stack(ctx, section + 1, bytes, flags);
	if (n <= 0)
		return 0;
	section->kind = kind;
	section->id = 0;
	section->len = n;
	section->address = 0;
	section->holes = 0;
	return sizeof(*section) + n;
}

#endif
