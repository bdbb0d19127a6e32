/*
 * plt_calls [SECONDS] - a loop of calls through the procedure linkage table.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, call, and then the stub or labs.
 * Built as plt_lazy (.plt), plt_sec (.plt and .plt.sec), plt_got (.plt.got) and plt_lld (lld's .plt,
 * of which no CFI speaks). With LD_BIND_NOT=1 each call goes through .plt's first entry and the resolver.
 */
#include "workload.h"

static NOINLINE void call(uint64_t end_ns)
{
#ifdef PLT_GOT
	/* A function whose address the code takes too has its slot in .got. */
	long (*volatile taken)(long) = labs;

	keep((uintptr_t)taken);
#endif
	do {
		for (long i = 0; i < 100000; i++)
			keep((uint64_t)labs(i));
	} while (cpu_ns() < end_ns);
}

int main(int argc, char **argv)
{
	call(cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9));
	keep(0);
	return 0;
}
