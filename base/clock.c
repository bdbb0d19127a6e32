#include "base/clock.h"

#include <assert.h>
#include <time.h>

static uint64_t clock_read(clockid_t id)
{
	struct timespec ts;
	int err = clock_gettime(id, &ts);

	assert(!err);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
	return clock_read(CLOCK_BOOTTIME);
}

uint64_t clock_wall_ns(void)
{
	return clock_read(CLOCK_REALTIME);
}

uint64_t clock_cpu_ns(void)
{
	return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}
