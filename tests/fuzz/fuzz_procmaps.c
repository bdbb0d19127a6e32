/*
 * /proc/PID/maps of any bytes. Properties: mappings do not wrap and have a path within its limit;
 * the same text in one piece and in pieces gives the same mappings.
 */
#include "agent/procmaps.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	uint64_t n, hash;
};

static void mix(struct sum *s, uint64_t v)
{
	s->hash = (s->hash ^ v) * 0x9e3779b97f4a7c15u;
	s->hash ^= s->hash >> 29;
}

static int add(void *arg, const struct event_map *m)
{
	struct sum *s = arg;

	assert(m->start < m->end);
	assert(strlen(m->path) <= EVENT_PATH_MAX);
	assert(!m->key.generation_known);
	s->n++;
	mix(s, m->start);
	mix(s, m->end);
	mix(s, m->key.inode);
	for (const char *p = m->path; *p; p++)
		mix(s, (unsigned char)*p);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct procmaps lines;
	const char *text = (const char *)data;
	struct sum whole = {}, pieces = {};
	size_t piece = size ? 1 + data[0] % 64u : 1;
	int err;

	lines.len = 0;
	lines.skip = false;
	err = procmaps_feed(&lines, text, size, true, add, &whole);
	assert(!err);
	lines.len = 0;
	lines.skip = false;
	for (size_t at = 0; at < size; at += piece) {
		err = procmaps_feed(&lines, text + at, MIN(piece, size - at), true, add, &pieces);
		assert(!err);
	}
	assert(whole.n == pieces.n && whole.hash == pieces.hash);
	return 0;
}
