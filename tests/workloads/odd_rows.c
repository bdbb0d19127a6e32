/*
 * odd_rows CASE [SECONDS] - functions whose CFI says what compilers seldom need.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, run, on_rbp, on_rbx, CASE, and
 * spin, unless CASE is a leaf, which spins itself. on_rbp and on_rbx keep their CFA in that register,
 * so the chain holds only when each CASE's row brings it back.
 */
#include <string.h>

#include "workload.h"

typedef void fn(uint64_t);

void on_rbp(fn *f, uint64_t arg);
void on_rbx(fn *f, uint64_t arg);
fn spin, cfa_below_rsp, ra_below_rsp, ra_in_register, cfa_indexed, ra_moved, ra_above_cfa, saved_far,
	saved_at_expression, saved_in_registers, cfa_by_jumps;

NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

/* clang-format off */
#define FUNCTION(name, ...)						\
	__asm__(".text\n.p2align 4\n.globl " #name "\n"			\
		".type " #name ",@function\n" #name ":\n.cfi_startproc\n"	\
		__VA_ARGS__						\
		"\n.cfi_endproc\n.size " #name ", . - " #name "\n")
#define LOOP "9: dec %rdi\n jnz 9b\n"

FUNCTION(on_rbp,
	"push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset rbp, -16\n"
	"mov %rsp, %rbp\n .cfi_def_cfa_register rbp\n"
	"sub $64, %rsp\n call on_rbx\n"
	"leave\n .cfi_def_cfa rsp, 8\n ret");

FUNCTION(on_rbx,
	"push %rbx\n .cfi_def_cfa_offset 16\n .cfi_offset rbx, -16\n"
	"mov %rsp, %rbx\n .cfi_def_cfa_register rbx\n"
	"sub $96, %rsp\n mov %rdi, %rax\n mov %rsi, %rdi\n call *%rax\n"
	"mov %rbx, %rsp\n pop %rbx\n .cfi_def_cfa rsp, 8\n ret");

/* The CFA lies in memory below rsp (OpenSSL's SHA-512 for AVX2). */
FUNCTION(cfa_below_rsp,
	"mov %rsp, %rax\n .cfi_def_cfa_register rax\n"
	"sub $200, %rsp\n and $-64, %rsp\n mov %rax, -8(%rsp)\n"
	".cfi_escape 0x0f, 5, 0x77, 0x78, 0x06, 0x23, 8\n" /* breg7 -8, deref, plus_uconst 8 */
	LOOP
	"mov -8(%rsp), %rsp\n .cfi_def_cfa rsp, 8\n ret");

/* So does the return address (OCaml's caml_c_call). */
FUNCTION(ra_below_rsp,
	"pop %r10\n .cfi_def_cfa_offset 0\n"
	LOOP
	"push %r10\n .cfi_def_cfa_offset 8\n ret");

FUNCTION(ra_in_register,
	"pop %r11\n .cfi_def_cfa_offset 0\n .cfi_register rip, r11\n"
	"movq $0, -8(%rsp)\n"
	LOOP
	"jmp *%r11");

/* An index in the expression (OpenSSL's RSA). */
FUNCTION(cfa_indexed,
	"mov %rsp, %rax\n .cfi_def_cfa_register rax\n"
	"sub $512, %rsp\n mov $5, %r9d\n mov %rax, 8(%rsp,%r9,8)\n"
	/* breg7 8, breg9 0, lit8, mul, plus, deref, plus_uconst 8 */
	".cfi_escape 0x0f, 10, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8\n"
	LOOP
	"mov 8(%rsp,%r9,8), %rsp\n .cfi_def_cfa rsp, 8\n ret");

/* The return address was moved away from below the CFA. */
FUNCTION(ra_moved,
	"sub $20008, %rsp\n .cfi_adjust_cfa_offset 20008\n"
	"mov 20008(%rsp), %rax\n mov %rax, 16(%rsp)\n .cfi_offset rip, -20000\n"
	"movq $1, 20008(%rsp)\n call spin\n"
	"mov 16(%rsp), %rax\n mov %rax, 20008(%rsp)\n .cfi_offset rip, -8\n"
	"add $20008, %rsp\n .cfi_adjust_cfa_offset -20008\n ret");

/* The return address lies above the CFA, and rsp has a rule (GHC's StgRun). */
FUNCTION(ra_above_cfa,
	"sub $16424, %rsp\n .cfi_def_cfa rsp, 0\n .cfi_offset rip, 16424\n"
	".cfi_escape 0x16, 7, 4, 0x77, 0xb0, 0x80, 0x01\n" /* rsp is breg7 16432 */
	"call spin\n add $16424, %rsp\n"
	".cfi_def_cfa rsp, 8\n .cfi_offset rip, -8\n .cfi_escape 0x16, 7, 2, 0x77, 8\n ret");

/* Past what 16 bits can say. */
FUNCTION(saved_far,
	"sub $48008, %rsp\n .cfi_adjust_cfa_offset 48008\n"
	"mov %rbx, 8(%rsp)\n .cfi_rel_offset rbx, 8\n mov %rbp, 16(%rsp)\n .cfi_rel_offset rbp, 16\n"
	"xor %ebx, %ebx\n xor %ebp, %ebp\n call spin\n"
	"mov 8(%rsp), %rbx\n .cfi_restore rbx\n mov 16(%rsp), %rbp\n .cfi_restore rbp\n"
	"add $48008, %rsp\n .cfi_adjust_cfa_offset -48008\n ret");

FUNCTION(saved_at_expression,
	"sub $72, %rsp\n .cfi_adjust_cfa_offset 72\n"
	"mov %rbx, 16(%rsp)\n .cfi_escape 0x10, 3, 3, 0x92, 7, 16\n" /* rbx is at bregx 7 16 */
	"mov %rbp, 24(%rsp)\n .cfi_escape 0x10, 6, 3, 0x08, 56, 0x1c\n" /* rbp at CFA, const1u 56, minus */
	"mov $-8, %rbx\n mov $1, %ebp\n call spin\n"
	"mov 16(%rsp), %rbx\n .cfi_restore rbx\n mov 24(%rsp), %rbp\n .cfi_restore rbp\n"
	"add $72, %rsp\n .cfi_adjust_cfa_offset -72\n ret");

/* rbx is in r12, rbp is r13 ^ 0x5a5a. */
FUNCTION(saved_in_registers,
	"push %r12\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset r12, 0\n"
	"push %r13\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset r13, 0\n"
	"sub $8, %rsp\n .cfi_adjust_cfa_offset 8\n"
	"mov %rbx, %r12\n .cfi_register rbx, r12\n"
	"mov %rbp, %r13\n xor $0x5a5a, %r13\n"
	".cfi_escape 0x16, 6, 6, 0x7d, 0, 0x0a, 0x5a, 0x5a, 0x27\n" /* breg13 0, const2u, xor */
	"xor %ebx, %ebx\n xor %ebp, %ebp\n call spin\n"
	"mov %r12, %rbx\n .cfi_restore rbx\n"
	"mov %r13, %rbp\n xor $0x5a5a, %rbp\n .cfi_restore rbp\n"
	"add $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
	"pop %r13\n .cfi_adjust_cfa_offset -8\n .cfi_restore r13\n"
	"pop %r12\n .cfi_adjust_cfa_offset -8\n .cfi_restore r12\n ret");

/*
 * The CFA by jumps and a shuffled stack: lit0, breg7 128, swap, bra +4, skip +1, drop (not reached),
 * dup, over, minus, plus: rsp + 128.
 */
FUNCTION(cfa_by_jumps,
	"sub $120, %rsp\n"
	".cfi_escape 0x0f, 16, 0x30, 0x77, 0x80, 0x01, 0x16, 0x28, 4, 0, 0x2f, 1, 0, 0x13, 0x12, 0x14, "
	"0x1c, 0x22\n"
	"call spin\n add $120, %rsp\n .cfi_def_cfa rsp, 8\n ret");
/* clang-format on */

static const struct {
	const char *name;
	fn *f;
	int is_leaf;
} cases[] = {
	{ "cfa_below_rsp", cfa_below_rsp, 1 },
	{ "ra_below_rsp", ra_below_rsp, 1 },
	{ "ra_in_register", ra_in_register, 1 },
	{ "cfa_indexed", cfa_indexed, 1 },
	{ "ra_moved", ra_moved, 0 },
	{ "ra_above_cfa", ra_above_cfa, 0 },
	{ "saved_far", saved_far, 0 },
	{ "saved_at_expression", saved_at_expression, 0 },
	{ "saved_in_registers", saved_in_registers, 0 },
	{ "cfa_by_jumps", cfa_by_jumps, 0 },
};

static NOINLINE void run(size_t i, uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		on_rbp(cases[i].f, cases[i].is_leaf ? 5000000 : budget_ns);
	while (cpu_ns() < end);
}

int main(int argc, char **argv)
{
	uint64_t budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
			run(i, budget_ns);
			keep(0);
			return 0;
		}
	}
	fprintf(stderr, "usage: odd_rows CASE [SECONDS]\n");
	return 2;
}
