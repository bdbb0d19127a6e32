/*
 * wild_stacks [SECONDS] - spins on stack pointers anywhere in 64 MiB, with a thread pointer that leads to what looks
 * like Go's g and m, more or less: sizes, addresses and circles that no runtime makes.
 *
 * Expected: nothing of its stacks but their leaf, wild.
 */
#include <asm/prctl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

#define MAPPING (64ull << 20)

static uint64_t seed = 88172645463325252ull;
static uint64_t *memory;

static uint64_t any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint64_t address_near(uint64_t sp)
{
	const uint64_t values[] = { 0, 8, sp, sp - 4096, sp + 4096, sp + (512ull << 20), (uint64_t)-8, 1ull << 47,
				    (uint64_t)memory, (uint64_t)(memory + 512), any() };

	return values[any() % (sizeof(values) / sizeof(*values))];
}

/* struct g: stack.lo, stack.hi, ..., m at 6, sched.sp at 7; struct m: g0 first, curg at 23 or 24. */
static void make_go(uint64_t *tls, uint64_t sp)
{
	uint64_t *g = memory + 512, *g0 = memory + 1024, *m = memory + 1536, *curg = memory + 2048;

	for (int i = 0; i < 10; i++) {
		g[i] = address_near(sp);
		g0[i] = address_near(sp);
		curg[i] = address_near(sp);
	}
	if (any() % 2) {
		g[0] = sp - 8192;
		g[1] = sp + any() % (600ull << 20);
		g[6] = (uint64_t)m;
	}
	if (any() % 2) {
		g0[0] = sp - (1 << 20);
		g0[1] = sp + (1 << 20);
		g0[6] = (uint64_t)m;
	}
	if (any() % 2) {
		curg[0] = sp - 4096;
		curg[1] = sp + any() % (900ull << 20);
		curg[6] = (uint64_t)m;
		curg[7] = sp + any() % 8192;
	}
	m[0] = any() % 2 ? (uint64_t)g0 : address_near(sp);
	m[23] = address_near(sp);
	m[24] = any() % 2 ? (uint64_t)curg : address_near(sp);
	tls[-1] = any() % 2 ? (uint64_t)g : (uint64_t)g0;
}

/* Nothing that needs the thread pointer: no library function, no stack protector. */
static NOINLINE void wild(uint64_t sp, uint64_t tls, uint64_t back)
{
	__asm__ volatile("mov %%rsp, %%rbx\n"
			 "	mov %[set], %%edi\n"
			 "	mov %[tls], %%rsi\n"
			 "	mov %[call], %%eax\n"
			 "	syscall\n"
			 "	mov %[sp], %%rsp\n"
			 "	mov $200000, %%edx\n"
			 "1:	dec %%edx\n"
			 "	jnz 1b\n"
			 "	mov %%rbx, %%rsp\n"
			 "	mov %[set], %%edi\n"
			 "	mov %[back], %%rsi\n"
			 "	mov %[call], %%eax\n"
			 "	syscall\n"
			 :
			 : [set] "i"(ARCH_SET_FS), [call] "i"(SYS_arch_prctl), [tls] "r"(tls), [sp] "r"(sp),
			   [back] "r"(back)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r11", "memory");
}

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9), back = 0;

	memory = mmap(NULL, MAPPING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED || syscall(SYS_arch_prctl, ARCH_GET_FS, &back))
		return 3;
	for (size_t i = 0; i < MAPPING / 8; i++)
		memory[i] = any() % 4 ? (uint64_t)(memory + any() % (MAPPING / 8)) : (uint64_t)&wild + any() % 64;
	do {
		uint64_t sp = (uint64_t)memory + (any() % MAPPING & ~7ull);

		make_go(memory + 256, sp);
		wild(sp, (uint64_t)(memory + 256), back);
	} while (cpu_ns() < end);
	return 0;
}
