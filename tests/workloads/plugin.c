/*
 * plugin - a library for plugin_host: calls back from a frame of its own size. Built as two, whose code
 * at the same place has other frames.
 */
#include "workload.h"

#ifndef PLUGIN
#define PLUGIN plugin_one
#define LOCAL_BYTES 64
#else
#define LOCAL_BYTES 4000
#endif

void PLUGIN(void (*f)(uint64_t), uint64_t arg);

NOINLINE void PLUGIN(void (*f)(uint64_t), uint64_t arg)
{
	volatile char local[LOCAL_BYTES];

	local[5] = 1;
	f(arg);
	keep((uint64_t)local[5]);
}
