/*
 * jit_page [SECONDS] - code in an anonymous page, with a frame pointer, between functions without.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, run, [jit], called_back, [jit],
 * spin.
 */
#include <string.h>
#include <sys/mman.h>

#include "workload.h"

typedef void fn(uint64_t);
typedef void jit_fn(fn *f, uint64_t arg);

static jit_fn *jit;

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void called_back(uint64_t budget_ns)
{
	jit(spin, budget_ns);
	keep(1);
}

static NOINLINE void run(uint64_t budget_ns)
{
	jit(called_back, budget_ns);
	keep(2);
}

int main(int argc, char **argv)
{
	/* push %rbp; mov %rsp, %rbp; sub $64, %rsp; mov %rdi, %rax; mov %rsi, %rdi; call *%rax; leave; ret */
	static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0x48, 0x89, 0xf8,
					0x48, 0x89, 0xf7, 0xff, 0xd0, 0xc9, 0xc3 };
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return 3;
	memcpy(page, code, sizeof(code));
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC) < 0)
		return 3;
	memcpy(&jit, &page, sizeof(jit));
	run((uint64_t)(number_arg(argc, argv, 1, 1) * 1e9));
	keep(0);
	return 0;
}
