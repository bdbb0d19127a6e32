/*
 * duty PERCENT [SECONDS] - uses PERCENT of one CPU in bursts of random length (1-30 ms), until it used
 * SECONDS of CPU time; 100 never sleeps. The seed is fixed: runs are alike.
 *
 * Prints at its end, one `key: value` per line: rusage_ns (utime + stime), clock_ns (of
 * CLOCK_PROCESS_CPUTIME_ID), asked_ns (what it meant to use) and wall_ns.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, burst.
 */
#include <sys/resource.h>

#include "workload.h"

static NOINLINE void burst(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do {
		for (uint64_t i = 0; i < 2000; i++)
			keep(i);
	} while (cpu_ns() < end);
}

static void rest(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	while (ns && nanosleep(&t, &t))
		;
}

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_usec * 1000u;
}

int main(int argc, char **argv)
{
	double percent = number_arg(argc, argv, 1, 100);
	uint64_t budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);
	uint64_t start = clock_ns(CLOCK_MONOTONIC), asked = 0;
	struct rusage used;

	srandom(7);
	while (asked < budget_ns) {
		uint64_t ns = 1000000u + (uint64_t)random() % 29000000u;

		if (ns > budget_ns - asked)
			ns = budget_ns - asked;
		burst(ns);
		asked += ns;
		if (percent < 100)
			rest((uint64_t)((double)ns * (100 - percent) / percent));
	}
	getrusage(RUSAGE_SELF, &used);
	printf("rusage_ns: %llu\nclock_ns: %llu\nasked_ns: %llu\nwall_ns: %llu\n",
	       (unsigned long long)(timeval_ns(used.ru_utime) + timeval_ns(used.ru_stime)),
	       (unsigned long long)cpu_ns(), (unsigned long long)asked,
	       (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - start));
	return 0;
}
