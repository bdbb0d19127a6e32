/*
 * bench_work ROUNDS - a fixed amount of CPU-bound work, and the CPU time that it took.
 *
 * Half of it computes, half walks 256 KiB of memory, which a sample's copying may push out of the
 * caches; 16 KiB of stack are in use. Prints one number: ns of CPU time per round.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { MEMORY_WORDS = 256 * 1024 / 8, COMPUTE = 200000, WALKS = 8, STACK_BYTES = 16 * 1024 };

static uint64_t memory[MEMORY_WORDS];

static __attribute__((noinline)) uint64_t work(uint64_t seed)
{
	for (int i = 0; i < COMPUTE; i++)
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	for (int walk = 0; walk < WALKS; walk++)
		for (size_t i = 0; i < MEMORY_WORDS; i += 8) {
			memory[i] += seed;
			seed ^= memory[(i * 509) % MEMORY_WORDS];
		}
	return seed;
}

int main(int argc, char **argv)
{
	volatile char stack[STACK_BYTES];
	long rounds = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	uint64_t start, seed = 1;

	if (rounds <= 0) {
		fprintf(stderr, "usage: bench_work ROUNDS\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(stack); i += 256)
		stack[i] = 1;
	seed += (uint64_t)stack[256];
	start = clock_cpu_ns();
	for (long i = 0; i < rounds; i++)
		seed = work(seed);
	printf("%" PRIu64 "\n", (clock_cpu_ns() - start) / (uint64_t)rounds);
	return seed == 0;
}
