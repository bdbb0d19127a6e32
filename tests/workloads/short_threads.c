/*
 * short_threads [SECONDS] - threads that end at once, one after the other.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, make_thread, pthread_create, ...,
 * clone3; of the threads: clone3, start_thread, thread_main; in their first instructions: clone3 alone.
 */
#include <pthread.h>

#include "workload.h"

static void *thread_main(void *arg)
{
	keep(1);
	return arg;
}

static NOINLINE void make_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, thread_main, NULL) || pthread_join(thread, NULL))
		exit(3);
	keep(2);
}

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);

	do
		make_thread();
	while (cpu_ns() < end);
	return 0;
}
