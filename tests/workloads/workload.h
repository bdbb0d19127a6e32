/*
 * workload - what the small programs of known call chains share.
 *
 * Each runs for the CPU seconds of its last argument (default 1) and prints nothing unless its header
 * comment says so. Functions of an expected chain are NOINLINE and end with keep(), so that no call
 * of the chain is a tail call.
 */
#ifndef TESTS_WORKLOADS_WORKLOAD_H
#define TESTS_WORKLOADS_WORKLOAD_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__has_attribute)
#if __has_attribute(noipa)
#define NOINLINE __attribute__((noinline, noipa))
#endif
#endif
#ifndef NOINLINE
#define NOINLINE __attribute__((noinline))
#endif

static volatile uint64_t workload_sink;

static inline void keep(uint64_t v)
{
	workload_sink += v;
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline uint64_t cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* About a third of a millisecond in the caller's own code, without a call. */
static inline void work(void)
{
	for (uint64_t i = 0; i < 100000; i++)
		workload_sink += i ^ (i << 7);
}

/* argv[index] as a positive number; `otherwise` when there is none. */
static inline double number_arg(int argc, char **argv, int index, double otherwise)
{
	char *end;
	double v;

	if (argc <= index)
		return otherwise;
	errno = 0;
	v = strtod(argv[index], &end);
	if (errno || end == argv[index] || *end || !(v > 0) || v > 1e6) {
		fprintf(stderr, "%s: not a positive number: %s\n", argv[0], argv[index]);
		exit(2);
	}
	return v;
}

#endif
