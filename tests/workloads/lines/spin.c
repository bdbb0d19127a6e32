/* Spins for a second of CPU time in `inner`, inlined into `middle`, inlined into `outer`. */
#include <stdint.h>
#include <time.h>

static volatile uint64_t sink;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline __attribute__((always_inline)) void inner(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		sink += i * n; /* inner's work */
}

static inline __attribute__((always_inline)) void middle(uint64_t n)
{
	inner(n + 1); /* middle's call */
}

static __attribute__((noinline)) void outer(uint64_t n)
{
	middle(n * 2); /* outer's call */
	sink++;
}

int main(void)
{
	uint64_t end = now_ns() + 1000000000;

	while (now_ns() < end)
		outer(100000); /* main's call */
	return 0;
}
