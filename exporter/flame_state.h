/* flame_state - what flame.c builds and flame_view.c shows; nobody else's. */
#ifndef EXPORTER_FLAME_STATE_H
#define EXPORTER_FLAME_STATE_H

#include "exporter/flame.h"
#include "exporter/intern.h"

struct flame_string {
	char *p;
	uint32_t len;
};

struct flame_frame {
	uint32_t name, module; /* texts */
};

struct flame {
	uint64_t seed; /* workloads choose names */
	struct flame_string *texts;
	uint32_t texts_cap;
	size_t names_bytes;
	struct intern text_set;
	struct flame_frame *frames;
	uint32_t frames_cap;
	struct intern frame_set;
	struct flame_node *nodes; /* a parent before its children; total is set by flame_view.c */
	uint32_t nnodes, nodes_cap;
	uint32_t *slots; /* node number + 1; 0 is free */
	uint32_t nslots; /* a power of two */
	uint32_t other, no_stack; /* frames */
	uint32_t nthinnings;
	uint64_t npruned; /* nodes, by these */
	uint64_t nsamples, nanoseconds;
};

/* JSON's integers end at INT64_MAX. */
static inline uint64_t flame_add_saturated(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - MIN(b, (uint64_t)INT64_MAX) ? INT64_MAX : a + b;
}

#endif
