/*
 * stack_kib KIB [SECONDS] - spins with KIB KiB of stack in use, every page of it touched.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, hold KIB / 2 times (each has a
 * frame of 2 KiB), spin.
 */
#include "workload.h"

enum { FRAME_BYTES = 2048 };

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void hold(unsigned long left, uint64_t budget_ns)
{
	/* The rest of the frame: saved registers, the return address and the stack protector. */
	volatile char frame[FRAME_BYTES - 64];

	for (size_t i = 0; i < sizeof(frame); i += 256)
		frame[i] = (char)left;
	if (left > 1)
		hold(left - 1, budget_ns);
	else
		spin(budget_ns);
	keep((uint64_t)frame[left % sizeof(frame)]);
}

int main(int argc, char **argv)
{
	unsigned long kib = (unsigned long)number_arg(argc, argv, 1, 64);

	hold(kib > 2 ? kib * 1024 / FRAME_BYTES : 1, (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9));
	keep(0);
	return 0;
}
