/*
 * short5 [SECONDS] - a process that is over after 5 ms of CPU time, its start included.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, a, spin; or the dynamic loader.
 */
#include "workload.h"

static NOINLINE void spin(uint64_t end)
{
	do {
		for (uint64_t i = 0; i < 5000; i++)
			keep(i);
	} while (cpu_ns() < end);
}

static NOINLINE void a(uint64_t end)
{
	spin(end);
	keep(1);
}

int main(int argc, char **argv)
{
	a((uint64_t)(number_arg(argc, argv, 1, 0.005) * 1e9));
	keep(0);
	return 0;
}
