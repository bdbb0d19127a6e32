/*
 * rowset - the rows of one answer while they are made.
 *
 * May touch: the heap. Never: fail other than by UINT32_MAX (no such row can be said).
 */
#ifndef SYMBOLIZER_ROWSET_H
#define SYMBOLIZER_ROWSET_H

#include "symbolizer/cfi.h"

struct rowset {
	struct msg_rows msg;
	uint32_t cap_rows, cap_rules, cap_ops;
};

enum {
	ROWSET_EAGER_MAX = 16384,	/* past it only rows that were asked for are added */
};

void rowset_fini(struct rowset *s);

/*
 * A row for file offsets [start, end), start < end; joined with row `before` when that ends at
 * start and says the same. Returns its index; UINT32_MAX when the set is full, or when the CFA or
 * the return address cannot be expressed. A saved register that cannot be is sent as undefined.
 */
uint32_t rowset_add(struct rowset *s, uint64_t start, uint64_t end, uint8_t flags,
		    const struct cfi_state *state, uint32_t before);
/* An outermost frame. */
uint32_t rowset_add_end(struct rowset *s, uint64_t start, uint64_t end);
/* The x86-64 frame of rt_sigreturn(2): rsp points at a struct ucontext. */
uint32_t rowset_add_sigreturn(struct rowset *s, uint64_t start, uint64_t end);

#endif
