/*
 * recurse DEPTH [SECONDS] - exactly DEPTH frames of one function.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, recurse DEPTH times, spin.
 */
#include "workload.h"

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void recurse(unsigned long depth, uint64_t budget_ns)
{
	if (depth > 1)
		recurse(depth - 1, budget_ns);
	else
		spin(budget_ns);
	keep(depth);
}

int main(int argc, char **argv)
{
	unsigned long depth = (unsigned long)number_arg(argc, argv, 1, 100);

	recurse(depth, (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9));
	keep(0);
	return 0;
}
