/*
 * refusal - what to tell when the kernel, or whoever confines us, does not let flamed work: one line,
 * what it is and what to do.
 *
 * The cause is looked for after a call has failed, where it can be seen, and never guessed from a
 * version. The texts are static and one at a time: the caller prints it and ends.
 *
 * May touch: bpf(2) and perf_event_open(2), with arguments that do nothing; /proc/self/status,
 * /sys/kernel/security/lockdown, sysctls.
 */
#ifndef AGENT_REFUSAL_H
#define AGENT_REFUSAL_H

#include "base/def.h"

const char *refusal(const char *fmt, ...) PRINTF(1, 2);
/* bpf(2) or perf_event_open(2) cannot be called at all; NULL: they can. */
const char *refusal_of_bpf(void);
const char *refusal_of_perf(void);
const char *refusal_of_lockdown(void);	/* no BPF program may read memory; NULL: they may */
/* Of loading the program, where bpf(2) can be called; locked_bytes: that its maps count as locked memory. */
const char *refusal_bpf(int err, size_t locked_bytes);
/* Of a perf event, or its ring; `cpu` -1: whichever. */
const char *refusal_perf(int err, int cpu);

#endif
