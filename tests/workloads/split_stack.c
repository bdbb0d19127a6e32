/*
 * split_stack [SECONDS] - a stack in segments that the compiler links (gcc -fsplit-stack).
 *
 * Expected, leaf first: spin, split 100 times (where a segment ends, __morestack is between two), main.
 */
#include "workload.h"

static uint64_t budget_ns;

static NOINLINE void spin(void)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void split(unsigned int left)
{
	volatile char locals[4096];

	locals[0] = (char)left;
	if (left > 1)
		split(left - 1);
	else
		spin();
	keep((uint64_t)locals[0]);
}

int main(int argc, char **argv)
{
	budget_ns = (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);
	split(100);
	keep(0);
	return 0;
}
