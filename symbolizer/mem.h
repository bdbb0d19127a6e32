/*
 * mem - the symbolizer's allocations: none fails. Out of memory ends the process; the agent starts
 * it again and asks once more. sandbox.h bounds what there is.
 */
#ifndef SYMBOLIZER_MEM_H
#define SYMBOLIZER_MEM_H

#include "base/def.h"
#include "base/log.h"

static inline UNUSED void *mem_check(void *p)
{
	if (!p) {
		log_error("out of memory");
		_exit(EXIT_FAILURE);
	}
	return p;
}

static inline UNUSED void *mem_calloc(size_t n, size_t size)
{
	return mem_check(calloc(n ? n : 1, size));
}

/* Room for at least `need` elements; *cap is what there is room for. */
static inline UNUSED void *mem_grow(void *p, uint32_t *cap, uint32_t need, size_t size)
{
	uint32_t n = *cap;

	if (need <= n)
		return p;
	n = n < 16 ? 16 : n > UINT32_MAX / 2 ? UINT32_MAX : n * 2;
	n = MAX(n, need);
	*cap = n;
	return mem_check(reallocarray(p, n, size));
}

#endif
