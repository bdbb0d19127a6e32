/*
 * zero_frames [SECONDS] - code without CFI that keeps the address of zeros on its stack in rbp, as compilers
 * do with that of a local variable.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, a, spin; or what is left of it, marked.
 */
#include "workload.h"

static NOINLINE void spin(void)
{
	uint64_t zeros[8] = { 0 }, n = 1000000;
	register uint64_t *at __asm__("rbp") = zeros;

	__asm__ volatile("1: dec %0; jnz 1b" : "+r"(n) : "r"(at), "m"(zeros));
	keep(n + zeros[0]);
}

static NOINLINE void a(void)
{
	spin();
	keep(1);
}

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);

	while (cpu_ns() < end)
		a();
	return 0;
}
