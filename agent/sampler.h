/*
 * sampler - the BPF program, its perf events and its ring buffer.
 *
 * One cpu-clock event per online CPU, each with its own period (1/hz)(1 + d), so that no program
 * that works on a timer stays in step with it; a CPU that comes online later is picked up by
 * sampler_check_cpus(). Idle CPUs are not counted.
 *
 * May touch: bpf(2), perf_event_open(2), /sys/devices/system/cpu, /sys/kernel/btf. Never: /proc,
 * other modules' state. Records are borrowed: they are gone when the callback returns.
 */
#ifndef AGENT_SAMPLER_H
#define AGENT_SAMPLER_H

#include "base/def.h"
#include "bpf/abi.h"

struct sampler_conf {
	uint32_t hz;
	uint32_t stack_max_bytes;	/* of one window; at most 64 KiB */
	const char *cpus;		/* list as in the kernel's cpulist format; "" = all online ones that are not nohz_full or isolated */
	uint32_t ring_bytes;		/* 0: 256 KiB per CPU, 2 to 32 MiB */
};

typedef int sampler_fn(void *arg, const struct abi_record *r, size_t len);

struct sampler;

/*
 * Loads the program; samples nothing yet. On failure *ret_why (static or heap, leak it) says in one
 * line what is missing and what to do; the code is -errno.
 */
MUST_USE int sampler_new(struct sampler **ret, const struct sampler_conf *conf, sampler_fn *fn,
			 void *arg, const char **ret_why);
struct sampler *sampler_free(struct sampler *s);
DEFINE_CLEANUP(struct sampler *, sampler_free);

MUST_USE int sampler_start(struct sampler *s, const char **ret_why);
void sampler_stop(struct sampler *s); /* disables the events; records that wait can still be drained */
/* Readable when a quarter of the ring is full, and after a cut stack of a thread of which nothing is known. */
int sampler_fd(const struct sampler *s);
/* Hands every record that waits at the call to fn. Stops at fn's first error and returns it. */
MUST_USE int sampler_dispatch(struct sampler *s);
/* Picks up CPUs that came online, drops those that went. Cheap; call once a second. */
MUST_USE int sampler_check_cpus(struct sampler *s);
/*
 * Of this process (tgid in the initial pid namespace) one sample in N is kept from now on, its period
 * N times as long, the others are counted as thinned; 0: none, counted as filtered; 1: all. -E2BIG: as many
 * processes as fit have a filter, this one has none.
 */
MUST_USE int sampler_filter(struct sampler *s, uint32_t pid, uint32_t keep_one_in);
/*
 * What is known of this thread (in the initial pid namespace) from now on, in place of what was known
 * before: without pages and stacks, nothing. The next samples bring the pages as windows
 * ABI_WIN_LEARNED. A stack's `high` is where its copy ends: above all that the unwinder reads at
 * its root. Who ends a thread's life calls it with nothing; the kernel does not. -E2BIG: as many
 * threads as fit are known, of this one nothing is.
 */
MUST_USE int sampler_learn(struct sampler *s, uint32_t tid, const struct abi_learned *l);
/* Where the threads of this process have Go's g; NULL: nothing is known any more. -E2BIG as above. */
MUST_USE int sampler_go(struct sampler *s, uint32_t pid, const struct abi_go *go);
/* Sums over CPUs: the counters of enum abi_counter. */
MUST_USE int sampler_counters(const struct sampler *s, uint64_t ret[ABI_CNT_COUNT]);
/* CPUs sampled now, and the run time and count of the BPF program (0 without bpf_stats_enabled). */
uint32_t sampler_ncpus(const struct sampler *s);
MUST_USE int sampler_cost(const struct sampler *s, uint64_t *ret_ns, uint64_t *ret_runs);
size_t sampler_map_bytes(const struct sampler *s); /* ring and maps */

#endif
