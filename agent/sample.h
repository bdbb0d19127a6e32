/*
 * sample - what the sections of a sample's records say, checked.
 *
 * Everything in `ret` is borrowed from the records.
 *
 * May touch: nothing. Never: believe a length.
 */
#ifndef AGENT_SAMPLE_H
#define AGENT_SAMPLE_H

#include "agent/queue.h"
#include "agent/unwind.h"

struct sample_view {
	uint32_t pid, tid;
	uint32_t flags;		/* of all parts */
	uint64_t period_ns;
	uint64_t cgroup_id;
	const char *comm;	/* ABI_COMM_LEN bytes */
	uint32_t nkernel;
	const uint64_t *kernel;
	struct unwind_input user;
};

void sample_view(const struct sample *s, struct sample_view *ret);

#endif
