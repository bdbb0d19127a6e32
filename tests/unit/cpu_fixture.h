/*
 * cpu_fixture - CPUs that seem to come and go: a mount namespace of its own with other files in
 * /sys/devices/system/cpu. Needs root, and a process of its own.
 */
#ifndef TESTS_CPU_FIXTURE_H
#define TESTS_CPU_FIXTURE_H

#include "base/def.h"

/* From here on the kernel says that these CPUs are online ("0-1"). Exits with status 10 where it cannot. */
void cpu_fixture_online(const char *list);
/* This CPU has gone and come back, for whoever looks at cpulist_birth(). */
void cpu_fixture_reborn(uint32_t cpu);
/* The kernel's ids of the perf events that this process has open; as many of `max` as there are. */
size_t cpu_fixture_events(uint64_t *ret, size_t max);

#endif
