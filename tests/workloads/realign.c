/*
 * realign [SECONDS] - functions that align their stack, so that CFI has expressions for the CFA and rbp.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, outer, aligned, inner, aligned,
 * spin.
 */
#include <alloca.h>
#include <string.h>

#include "workload.h"

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

typedef void fn(uint64_t);

static NOINLINE void aligned(fn *f, uint64_t arg)
{
	_Alignas(128) volatile char local[256];

	local[7] = 1;
	f(arg);
	keep((uint64_t)local[7]);
}

/* Its CFA is rbp's, which aligned() saves in its own way. */
static NOINLINE void inner(uint64_t budget_ns)
{
	char *p = alloca(64 + budget_ns % 64);

	memset(p, 1, 64);
	aligned(spin, budget_ns);
	keep((uint64_t)p[3]);
}

static NOINLINE void outer(uint64_t budget_ns)
{
	aligned(inner, budget_ns);
	keep(1);
}

int main(int argc, char **argv)
{
	outer((uint64_t)(number_arg(argc, argv, 1, 1) * 1e9));
	keep(0);
	return 0;
}
