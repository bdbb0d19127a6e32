/*
 * threads4 [SECONDS] - four threads that share the CPU seconds evenly.
 *
 * Expected, root first: (glibc's clone3 and start_thread), thread_main, a, spin. The main thread waits.
 */
#include <pthread.h>

#include "workload.h"

enum { NTHREADS = 4 };

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + budget_ns;

	do
		work();
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end);
}

static NOINLINE void a(uint64_t budget_ns)
{
	spin(budget_ns);
	keep(1);
}

static NOINLINE void *thread_main(void *arg)
{
	a(*(uint64_t *)arg);
	keep(0);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t budget_ns = (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9) / NTHREADS;
	pthread_t threads[NTHREADS];

	for (int i = 0; i < NTHREADS; i++) {
		if (pthread_create(&threads[i], NULL, thread_main, &budget_ns))
			return 1;
	}
	for (int i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
