/*
 * refusal - what to tell when the kernel, or whoever confines us, does not let flamed work: one line,
 * what it is and what to do.
 *
 * The texts are static and one at a time: the caller prints it and ends.
 *
 * May touch: nothing.
 */
#ifndef AGENT_REFUSAL_H
#define AGENT_REFUSAL_H

#include "base/def.h"

const char *PRINTF(1, 2) refusal(const char *fmt, ...);
const char *refusal_bpf(int err);	/* of loading the program and its maps */
const char *refusal_perf(int err, uint32_t cpu); /* of sampling this CPU */

#endif
