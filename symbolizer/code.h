/*
 * code - the few things that unwinding asks of x86-64 machine code itself.
 *
 * Source: Intel SDM volume 2, chapter 2 (ModRM, SIB) and CALL; Linux arch/x86/include/uapi/asm/
 * sigcontext.h for the frame that rt_sigreturn(2) takes.
 */
#ifndef SYMBOLIZER_CODE_H
#define SYMBOLIZER_CODE_H

#include "symbolizer/elffile.h"

enum {
	CODE_CALL_MAX = 7,	/* bytes of a near call from its opcode; prefixes stand before it */
	CODE_SIGRETURN_LEN = 9,
	CODE_SIGRETURN_CALL = 7,	/* where in it the system call is */
	CODE_PLT_BEFORE = 6,
	CODE_CLONE_LEN = 10,
};

/* Whether these bytes end with a near call, direct or through a register or memory. */
bool code_ends_with_call(struct bytes before);

/* Whether these bytes end with a jump through a register. */
bool code_ends_with_register_jump(struct bytes before);

/*
 * The CFA, as an offset from rsp, at an instruction of a procedure linkage table; 0 for what is none
 * that GNU ld, lld, gold or mold write. `before` is what stands before it, up to CODE_PLT_BEFORE bytes.
 */
uint32_t code_plt_cfa(struct bytes before, struct bytes at);

/*
 * Whether the pc between these bytes is in the middle of glibc's clone or clone3, from the system call
 * to the parent's return: `syscall; test %rax, %rax; jl error; je child; ret; child:`, where rsp is
 * as at the function's entry. Where the call returned 0, this is the child on its own stack.
 */
bool code_is_clone(struct bytes before, struct bytes at);

/*
 * Whether the pc between these bytes is at an instruction of `mov $15, %rax; syscall`, the trampoline that ends
 * a signal handler; then *ret_before is how many of its bytes stand before.
 */
bool code_is_sigreturn(struct bytes before, struct bytes at, uint32_t *ret_before);

/* Whether the last of these bytes can be `pop %rbp`. */
bool code_ends_with_pop_rbp(struct bytes before);

/* Whether these bytes begin with `push %rbp; mov %rsp, %rbp`. */
bool code_is_frame_setup(struct bytes at);

/* Length of `mov %rbp, disp(%rsp)` at these bytes, 0 when it is another instruction. */
size_t code_saves_rbp_at(struct bytes at, int64_t disp);

#endif
