/*
 * go_host [SECONDS] - a C program that spends its time in Go, in libgo_shared.so (go/shared.go).
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, outer, inner, GoSpin, crosscall2,
 * runtime.cgocallback, ..., main.GoSpin, main.spin.
 */
#include "workload.h"

extern void GoSpin(long n);

static NOINLINE void inner(void)
{
	GoSpin(1000000);
	keep(2);
}

static NOINLINE void outer(void)
{
	inner();
	keep(1);
}

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);

	do
		outer();
	while (cpu_ns() < end);
	return 0;
}
