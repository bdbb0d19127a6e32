/*
 * cpulist - sets of CPUs in the kernel's text form, "0-3,8,10-11".
 *
 * Source: Documentation/core-api/kernel-parameters ("cpu lists"), without the strides that the kernel
 * reads but never prints.
 *
 * May touch: /sys/devices/system/cpu. Never: allocate.
 */
#ifndef AGENT_CPULIST_H
#define AGENT_CPULIST_H

#include "base/def.h"

enum { CPULIST_MAX = 8192 }; /* the kernel's largest NR_CPUS on x86-64 */

struct cpulist {
	uint64_t bits[CPULIST_MAX / 64];
};

static inline bool cpulist_has(const struct cpulist *l, uint32_t cpu)
{
	return cpu < CPULIST_MAX && l->bits[cpu / 64] >> (cpu % 64) & 1;
}

uint32_t cpulist_count(const struct cpulist *l);
/* -EINVAL for anything that is no list, -ERANGE for a CPU of CPULIST_MAX or more. "" is the empty set. */
MUST_USE int cpulist_parse(const char *text, struct cpulist *ret);
/*
 * One of the files of /sys/devices/system/cpu: "online", "isolated", "nohz_full". A file that does not
 * exist (a kernel without nohz_full) or says "(null)" (before 6.6, without that parameter) is the
 * empty set.
 */
MUST_USE int cpulist_read(const char *name, struct cpulist *ret);
/*
 * A number that is another one each time that this CPU has come online: of the directory that the kernel
 * then makes anew (drivers/base/topology.c), also after a suspend, of which nothing else tells. 0: unknown.
 */
uint64_t cpulist_birth(uint32_t cpu);

#endif
