/*
 * sampler_fixture - real targets with stacks that they describe themselves, and the records that the
 * kernel made of them. Needs root (or CAP_BPF and CAP_PERFMON).
 */
#ifndef TESTS_UNIT_SAMPLER_FIXTURE_H
#define TESTS_UNIT_SAMPLER_FIXTURE_H

#include <sys/types.h>

#include "agent/sampler.h"

/* What a target says of itself, in memory that it shares with the test. */
struct facts {
	volatile uint32_t ready;
	volatile int32_t tid;
	volatile uint64_t low, high; /* meaning is the target's */
	volatile uint64_t pc_low, pc_high;
	volatile uint64_t tp;
};

struct target {
	pid_t pid;
	struct facts *facts;
};

/* Functions of targets: with stacks as they are in release, and a thread pointer that may be anything. */
#define TARGET __attribute__((noinline, no_sanitize("address"), no_sanitize("undefined")))

typedef void target_fn(struct facts *f);

/* Forks a process that runs fn and waits until it is ready; fn spins until it is killed. */
struct target target_start(target_fn *fn);
void target_stop(struct target *t);
void target_ready(struct facts *f);	  /* called by the target */
_Noreturn void target_spin(struct facts *f); /* the same, and then work for ever */
uint64_t target_start_stack(const struct target *t); /* of /proc/PID/stat */

/* Copies of records, in order of arrival. */
struct harvest {
	pid_t pid;   /* only of this process, 0: all */
	size_t nseen; /* samples of anything: part 0 */
	size_t nrecords;
	struct abi_record **records;
};

int harvest_add(void *arg, const struct abi_record *r, size_t len); /* a sampler_fn */
void harvest_reset(struct harvest *h);

/* Runs a sampler for this long, draining it every 20 ms. */
void harvest_run(struct harvest *h, const struct sampler_conf *conf, uint64_t duration_ns);

const struct abi_section *record_find(const struct abi_record *r, uint32_t kind, uint32_t id);
const void *section_data(const struct abi_section *s);
bool section_covers(const struct abi_section *s, uint64_t address, uint64_t len);
bool section_has_hole_at(const struct abi_section *s, uint64_t address);
uint64_t record_reg(const struct abi_record *r, uint32_t reg);
/* Fails the test when a record is not as bpf/abi.h says. */
void record_check(const struct abi_record *r, size_t len);

#endif
