#include "agent/maps.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/files.h"

/*
 * Places where the last look-ups ended, by address: a stack goes through few mappings, again and
 * again. They are only hints (checked against the mapping, so they need no upkeep), and stand
 * behind a pointer because finding does not change a version.
 */
enum { HINT_BITS = 4, HINT_COUNT = 1 << HINT_BITS };

struct maps {
	uint32_t refs;
	uint32_t *hints; /* HINT_COUNT indexes into v */
	size_t n;
	size_t cap;
	struct map *v;
};

static struct maps *maps_alloc(size_t cap)
{
	struct maps *m = calloc(1, sizeof(*m) + HINT_COUNT * sizeof(*m->hints));

	if (!m)
		return NULL;
	if (cap > 0) {
		m->v = malloc(cap * sizeof(*m->v));
		if (!m->v) {
			free(m);
			return NULL;
		}
	}
	m->hints = (uint32_t *)(m + 1);
	m->cap = cap;
	m->refs = 1;
	return m;
}

int maps_new(struct maps **ret)
{
	struct maps *m = maps_alloc(0);

	if (!m)
		return -ENOMEM;
	*ret = m;
	return 0;
}

struct maps *maps_ref(struct maps *m)
{
	assert(m->refs > 0 && m->refs < UINT32_MAX);
	m->refs++;
	return m;
}

static void maps_drop_files(struct maps *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->v[i].file)
			file_unref(m->v[i].file);
	m->n = 0;
}

struct maps *maps_unref(struct maps *m)
{
	if (!m)
		return NULL;
	assert(m->refs > 0);
	if (--m->refs > 0)
		return NULL;
	maps_drop_files(m);
	free(m->v);
	free(m);
	return NULL;
}

/* Makes *m this holder's own, with room for `room` more mappings. */
static int maps_own(struct maps **m, size_t room)
{
	struct maps *old = *m;
	size_t need = old->n + room;
	size_t cap = MAX(need, need <= old->cap ? old->cap : old->cap + old->cap / 2);
	struct maps *own;
	struct map *v;

	if (old->refs == 1) {
		if (need <= old->cap)
			return 0;
		v = realloc(old->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		old->v = v;
		old->cap = cap;
		return 0;
	}
	own = maps_alloc(need);
	if (!own)
		return -ENOMEM;
	if (old->n > 0)
		memcpy(own->v, old->v, old->n * sizeof(*own->v));
	own->n = old->n;
	for (size_t i = 0; i < own->n; i++)
		if (own->v[i].file)
			file_ref(own->v[i].file);
	maps_unref(old);
	*m = own;
	return 0;
}

/* The first mapping that ends above `address`. */
static size_t maps_lower(const struct maps *m, uint64_t address)
{
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (m->v[mid].end > address)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* What is left of `old` above `address`. */
static struct map map_above(const struct map *old, uint64_t address)
{
	struct map rest = *old;

	rest.start = address;
	rest.offset += address - old->start;
	return rest;
}

int maps_add(struct maps **m, const struct map *map)
{
	struct map put[3];
	size_t first, last, nput = 0;
	int err;

	if (map->start >= map->end || map->offset > UINT64_MAX - (map->end - map->start))
		return -EINVAL;
	if ((*m)->n >= MAPS_MAX - 2)
		return -E2BIG;
	err = maps_own(m, 2);
	if (err)
		return err;

	/* [first, last) are the mappings that it covers, the outer two perhaps in part. */
	first = last = maps_lower(*m, map->start);
	while (last < (*m)->n && (*m)->v[last].start < map->end)
		last++;
	if (first < last && (*m)->v[first].start < map->start) {
		put[nput] = (*m)->v[first];
		put[nput++].end = map->start;
	}
	put[nput++] = *map;
	if (first < last && (*m)->v[last - 1].end > map->end)
		put[nput++] = map_above(&(*m)->v[last - 1], map->end);

	for (size_t i = 0; i < nput; i++)
		if (put[i].file)
			file_ref(put[i].file);
	for (size_t i = first; i < last; i++)
		if ((*m)->v[i].file)
			file_unref((*m)->v[i].file);
	memmove(&(*m)->v[first + nput], &(*m)->v[last], ((*m)->n - last) * sizeof(*put));
	memcpy(&(*m)->v[first], put, nput * sizeof(*put));
	(*m)->n = (*m)->n - (last - first) + nput;
	return 0;
}

int maps_clear(struct maps **m)
{
	struct maps *empty;
	int err;

	if ((*m)->refs == 1) {
		maps_drop_files(*m);
		return 0;
	}
	err = maps_new(&empty);
	if (err)
		return err;
	maps_unref(*m);
	*m = empty;
	return 0;
}

const struct map *maps_find(const struct maps *m, uint64_t address)
{
	/* Of 64 KiB each; multiplied, because mappings like to lie at round distances. */
	uint32_t *hint = &m->hints[(address >> 16) * 0x9e3779b97f4a7c15ull >> (64 - HINT_BITS)];
	size_t i = *hint;

	if (i < m->n && address >= m->v[i].start && address < m->v[i].end)
		return &m->v[i];
	i = maps_lower(m, address);
	if (i == m->n || address < m->v[i].start)
		return NULL;
	*hint = (uint32_t)i;
	return &m->v[i];
}

size_t maps_count(const struct maps *m)
{
	return m->n;
}

const struct map *maps_at(const struct maps *m, size_t i)
{
	assert(i < m->n);
	return &m->v[i];
}

size_t maps_bytes(const struct maps *m)
{
	return sizeof(*m) + HINT_COUNT * sizeof(*m->hints) + m->cap * sizeof(*m->v);
}
