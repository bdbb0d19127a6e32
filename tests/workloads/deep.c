/*
 * deep DEPTH [SECONDS] - exactly DEPTH frames of 8 bytes each.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, deep DEPTH times, spin.
 */
#include "workload.h"

void deep(uint64_t budget_ns, uint64_t depth);
void spin(uint64_t budget_ns);

__attribute__((force_align_arg_pointer)) NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

__asm__(".text\n.p2align 4\n.type deep,@function\ndeep:\n.cfi_startproc\n"
	"dec %rsi\njz 1f\ncall deep\nret\n1: call spin\nret\n"
	".cfi_endproc\n.size deep, . - deep\n");

int main(int argc, char **argv)
{
	deep((uint64_t)(number_arg(argc, argv, 2, 1) * 1e9), (uint64_t)number_arg(argc, argv, 1, 100));
	keep(0);
	return 0;
}
