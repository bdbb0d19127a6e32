/* clock - the clocks we use, in nanoseconds. Never fails on Linux. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/def.h"

#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull

static inline double clock_seconds(uint64_t ns)
{
	return (double)ns / (double)NSEC_PER_SEC;
}

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: the clock of samples and of the side-band */
uint64_t clock_boot_ns(void); /* CLOCK_BOOTTIME: goes on during suspend */
uint64_t clock_wall_ns(void); /* CLOCK_REALTIME: for what leaves the host */
uint64_t clock_cpu_ns(void);  /* CLOCK_PROCESS_CPUTIME_ID */

#endif
