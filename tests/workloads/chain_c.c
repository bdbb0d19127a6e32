/*
 * chain_c [SECONDS] - plain calls.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, a, b, c, spin.
 * Built as chain_c (gcc's default), chain_pie, chain_nopie, chain_static, chain_stripped (no names) and
 * chain_lld (clang and lld, where the file offset of code is not its address).
 */
#include "workload.h"

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void c(uint64_t budget_ns)
{
	spin(budget_ns);
	keep(3);
}

static NOINLINE void b(uint64_t budget_ns)
{
	c(budget_ns);
	keep(2);
}

static NOINLINE void a(uint64_t budget_ns)
{
	b(budget_ns);
	keep(1);
}

int main(int argc, char **argv)
{
	a((uint64_t)(number_arg(argc, argv, 1, 1) * 1e9));
	keep(0);
	return 0;
}
