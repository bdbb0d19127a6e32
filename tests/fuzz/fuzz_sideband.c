/*
 * A side-band record of any bytes. Property: what is decoded has a pid, a mapping that does not
 * wrap, and strings that end inside the record.
 */
#include "agent/sideband.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(const char *s, const uint8_t *data, size_t size)
{
	const uint8_t *p = (const uint8_t *)s;

	assert(p >= data && p < data + size);
	assert(memchr(p, 0, (size_t)(data + size - p)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct event e;

	if (!sideband_decode(data, size, &e))
		return 0;
	switch (e.type) {
	case EVENT_MAP:
		assert(e.map.pid && e.map.pid <= INT_MAX);
		assert(e.map.start < e.map.end);
		check_string(e.map.path, data, size);
		break;
	case EVENT_COMM:
		assert(e.comm.pid && e.comm.pid <= INT_MAX);
		check_string(e.comm.comm, data, size);
		break;
	case EVENT_FORK:
		assert(e.fork.pid && e.fork.pid <= INT_MAX);
		break;
	case EVENT_EXIT:
		assert(e.exit.pid && e.exit.pid <= INT_MAX);
		break;
	default:
		assert(e.type == EVENT_LOST);
	}
	return 0;
}
