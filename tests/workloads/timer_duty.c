/*
 * timer_duty PERIOD_MS [SECONDS] - on an absolute timer, uses a tenth of each period, until it used
 * SECONDS of CPU time. Periods that divide or multiply a profiler's own are what this is for.
 *
 * Periods begin at multiples of the period on CLOCK_MONOTONIC. Prints at its end `clock_ns: N`, its
 * own CPU time, and `missed: N`, the periods that were over before their work began.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, burst.
 */
#include "workload.h"

static NOINLINE void burst(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do {
		for (uint64_t i = 0; i < 200; i++)
			keep(i);
	} while (cpu_ns() < end);
}

int main(int argc, char **argv)
{
	uint64_t period_ns = (uint64_t)(number_arg(argc, argv, 1, 10) * 1e6);
	uint64_t budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);
	uint64_t next = (clock_ns(CLOCK_MONOTONIC) / period_ns + 1) * period_ns;
	unsigned long missed = 0;

	while (cpu_ns() < budget_ns) {
		struct timespec t = { .tv_sec = (time_t)(next / 1000000000u),
				      .tv_nsec = (long)(next % 1000000000u) };

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
			;
		if (clock_ns(CLOCK_MONOTONIC) >= next + period_ns)
			missed++;
		burst(period_ns / 10);
		do
			next += period_ns;
		while (next <= clock_ns(CLOCK_MONOTONIC));
	}
	printf("clock_ns: %llu\nmissed: %lu\n", (unsigned long long)cpu_ns(), missed);
	return 0;
}
