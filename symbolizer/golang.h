/*
 * golang - how the frames of Go code are found on x86-64.
 *
 * A program's own table (gopclntab.h), or .debug_frame, gives the CFA and the return address, but not
 * that a function with a frame keeps its caller's rbp at CFA - 16: which C code under it, and the
 * switches of stack below, need. Whether one does is read from its code, at the place where the frame
 * appears: `push %rbp` just before (Go 1.21 and later), or `mov %rbp, N-16(%rsp)` there (before).
 *
 * Of the switches of stack neither knows anything:
 *  - runtime.systemstack and runtime.asmcgocall move rsp to the system stack; rbp still points into the
 *    goroutine's: CFA = rbp + 16. Before Go 1.21 they have no frame pointer of their own; the goroutine
 *    then waits at MSG_REG_GOROUTINE_SP, where the return address is. Where C that asmcgocall called
 *    has called Go again, the goroutine does not wait, but asmcgocall has kept its g and the depth of its
 *    frame below g.stack.hi at rsp + 48 and rsp + 40.
 *  - runtime.cgocallback moves from the system stack to the goroutine's, and rbp stays behind as well.
 *  - runtime.morestack notes where its goroutine goes on, MSG_REG_GOROUTINE_{SP,PC}, and has its stack moved.
 *  - What calls the vDSO keeps its rsp in r12.
 *
 * Source: src/runtime/asm_amd64.s, sys_linux_amd64.s, src/cmd/internal/obj/x86/obj6.go.
 */
#ifndef SYMBOLIZER_GOLANG_H
#define SYMBOLIZER_GOLANG_H

#include "symbolizer/cfi.h"
#include "symbolizer/gopclntab.h"

enum golang_kind {
	GOLANG_PLAIN,
	GOLANG_END,		/* the outermost frame of a stack */
	GOLANG_ASYNC,		/* entered as if called from where a signal interrupted its caller */
	GOLANG_SWITCH,		/* CFA = rbp + 16 once the frame is set up */
	GOLANG_CALLBACK,	/* the same, while it is on the goroutine's stack */
	GOLANG_MORESTACK,	/* entered like a function, and left for MSG_REG_GOROUTINE_{SP,PC} */
	GOLANG_CGO,		/* asmcgocall of Go 1.20 and before: golang_cgo_rows() */
	GOLANG_VDSO,		/* r12 holds rsp */
	GOLANG_SYSTEM,		/* systemstack of Go 1.20 and before: CFA = MSG_REG_GOROUTINE_SP + 8 */
	GOLANG_NO_RULE,		/* what is told of it is wrong and nothing is known instead */
};

/* `code` is the function's, or more. */
enum golang_kind golang_kind(struct bytes name, struct bytes code);

/* Where a function of the kind is on another stack, as offsets in it; nowhere: both are 0. */
struct golang_span {
	uint64_t from, to;
};
struct golang_span golang_switched(enum golang_kind kind, struct bytes code);
/* The state of a GOLANG_SWITCH or GOLANG_CALLBACK function there. */
void golang_switch_state(struct cfi_state *ret);

/* Stands between who knows the CFA and the receiver of the rows. */
struct golang_rows {
	const struct elffile *file;
	enum golang_kind kind;
	uint64_t start;		/* of the function */
	cfi_row_fn *fn;		/* gets the completed rows */
	void *arg;
	uint64_t rbp_saved_from;	/* 0: not looked at yet */
};
bool golang_row(void *rows, uint64_t start, uint64_t end, const struct cfi_state *state);

/* Those of a GOLANG_CGO, whose code alone tells. */
void golang_cgo_rows(const struct golang_rows *g);

/*
 * Where code finds the thread's g, by a function that looks for it at its begin (runtime.systemstack): `ret` as
 * in struct msg_go, but `off` of MSG_GO_SLOT is the slot's virtual address.
 */
struct msg_go golang_place(const struct elffile *f, const struct gofunc *fn);

/* The rows of a function by the program's own table; those of a GOLANG_END have no meaning. */
void golang_run(struct golang_rows *rows, struct gopclntab *t, const struct gofunc *fn);

#endif
