/*
 * cfi - runs the program of an FDE: one pass, every row of the function, no memory.
 *
 * Bounded: time is linear in the program's bytes, remembered states are at most CFI_STATES_MAX.
 * Registers past the return address column (vector, x87, ...) are read and forgotten.
 *
 * Source: DWARF 5 section 6.4.2 and 6.4.3; DW_CFA_GNU_*: binutils' dwarf2.h. DW_CFA_restore_state
 * restores the CFA too, as GCC, binutils and libunwind have it.
 */
#ifndef SYMBOLIZER_CFI_H
#define SYMBOLIZER_CFI_H

#include "symbolizer/fde.h"

enum {
	CFI_RAX = 0,
	CFI_RDX = 1,
	CFI_RBX = 3,
	CFI_RBP = 6,
	CFI_RSP = 7,
	CFI_R12 = 12,
	CFI_RIP = 16,		/* the return address column of x86-64 */
	CFI_NREGS = 17,
	CFI_STATES_MAX = 16,
};

enum cfi_kind {
	CFI_UNSPECIFIED,	/* no rule: what the ABI says */
	CFI_UNDEFINED,
	CFI_SAME,
	CFI_OFFSET,		/* at CFA + off */
	CFI_VAL_OFFSET,		/* CFA + off */
	CFI_REGISTER,		/* in register reg; as the CFA's rule: register reg + off */
	CFI_EXPRESSION,		/* at expr */
	CFI_VAL_EXPRESSION,	/* expr */
};

struct cfi_rule {
	enum cfi_kind kind;
	uint32_t reg;
	int64_t off;
	struct bytes expr;
};

struct cfi_state {
	struct cfi_rule cfa;
	struct cfi_rule regs[CFI_NREGS];
};

/* Addresses [start, end) have this state; false ends the run. */
typedef bool cfi_row_fn(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state);

/*
 * Calls fn for each row in the order of addresses. False when the program is malformed; the rows
 * before that place were given. Nothing is given when its return address column is not CFI_RIP.
 */
bool cfi_run(const struct fde *fde, cfi_row_fn *fn, void *arg);

#endif
