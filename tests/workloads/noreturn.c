/*
 * noreturn [SECONDS] - a function that ends with a call, directly before another function.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, ends_with_call, never_returns.
 */
#include "workload.h"

void ends_with_call(uint64_t budget_ns) __attribute__((noreturn));
void next_function(void);
void never_returns(uint64_t budget_ns) __attribute__((noreturn));

__attribute__((noinline, noipa)) void never_returns(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
	exit(0);
}

__asm__(".text\n.globl ends_with_call\n.type ends_with_call,@function\nends_with_call:\n.cfi_startproc\n"
	"sub $1000, %rsp\n.cfi_adjust_cfa_offset 1000\ncall never_returns\n"
	".cfi_endproc\n.size ends_with_call, . - ends_with_call\n"
	".globl next_function\n.type next_function,@function\nnext_function:\n.cfi_startproc\n"
	"ret\n.cfi_endproc\n.size next_function, . - next_function\n");

int main(int argc, char **argv)
{
	ends_with_call((uint64_t)(number_arg(argc, argv, 1, 1) * 1e9));
}
