/*
 * golang - what Go's own CFI leaves out on x86-64.
 *
 * .debug_frame gives the CFA and the return address, but not that a function with a frame keeps its
 * caller's rbp at CFA - 16: which C code under it, and the switches of stack below, need. Whether
 * one does is read from its code, at the place where the frame appears: `push %rbp` just before
 * (Go 1.21 and later), or `mov %rbp, N-16(%rsp)` there (before).
 *
 * runtime.systemstack and runtime.asmcgocall move rsp to the system stack, of which CFI knows
 * nothing; rbp still points into the goroutine's: CFA = rbp + 16. Before Go 1.21 they have no frame
 * pointer of their own; then asmcgocall has no row, and systemstack ends at the runtime.mstart that
 * it pretends to be called from.
 *
 * Source: src/runtime/asm_amd64.s, src/cmd/internal/obj/x86/obj6.go.
 */
#ifndef SYMBOLIZER_GOLANG_H
#define SYMBOLIZER_GOLANG_H

#include "symbolizer/cfi.h"

enum golang_kind {
	GOLANG_PLAIN,
	GOLANG_END,		/* the outermost frame of a stack */
	GOLANG_SWITCH,		/* CFA = rbp + 16 once the frame is set up */
	GOLANG_NO_RULE,		/* its CFI is wrong and nothing is known instead */
};

/* `code` is the function's. */
enum golang_kind golang_kind(struct bytes name, struct bytes code);

/* The state of a GOLANG_SWITCH function after golang_switched_from(start). */
void golang_switch_state(struct cfi_state *ret);
uint64_t golang_switched_from(uint64_t start);

/* Stands between cfi_run() and the receiver of its rows. */
struct golang_rows {
	const struct elffile *file;
	enum golang_kind kind;
	uint64_t start;		/* of the function */
	cfi_row_fn *fn;		/* gets the completed rows */
	void *arg;
	uint64_t rbp_saved_from;	/* 0: not looked at yet */
};
bool golang_row(void *rows, uint64_t start, uint64_t end, const struct cfi_state *state);

#endif
