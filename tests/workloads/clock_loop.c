/*
 * clock_loop [SECONDS] - reads the clock through the vDSO.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, ask_clock, clock_gettime of libc,
 * __vdso_clock_gettime or clock_gettime of the vDSO (and its helpers).
 */
#include "workload.h"

static NOINLINE void ask_clock(uint64_t end)
{
	while (cpu_ns() < end) {
		for (int i = 0; i < 100000; i++)
			keep(clock_ns(CLOCK_MONOTONIC));
	}
}

int main(int argc, char **argv)
{
	ask_clock(cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9));
	keep(0);
	return 0;
}
