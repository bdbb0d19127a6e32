#include "exporter/intern.h"

#include <assert.h>
#include <errno.h>

enum { INTERN_MIN = 64 };

int intern_reserve(void *v, uint32_t n, uint32_t *cap, size_t size)
{
	void **at = v;
	uint32_t want = *cap ? *cap * 2 : INTERN_MIN;
	void *p;

	if (n < *cap)
		return 0;
	if (*cap > UINT32_MAX / 4)
		return -ENOMEM;
	p = reallocarray(*at, want, size);
	if (!p)
		return -ENOMEM;
	*at = p;
	*cap = want;
	return 0;
}

void intern_fini(struct intern *t)
{
	free(t->entries);
	free(t->slots);
	*t = (struct intern){};
}

static uint32_t slot_of(const struct intern *t, uint64_t hash)
{
	return (uint32_t)hash & (t->nslots - 1);
}

/* Every number is in the run that begins at the slot of its hash, also when part of that is free by now. */
void intern_reset(struct intern *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t slot = slot_of(t, t->entries[i].hash);

		while (t->slots[slot] != i + 1)
			slot = (slot + 1) & (t->nslots - 1);
		t->slots[slot] = 0;
	}
	t->n = 0;
}

/* Twice as many slots as entries, so that runs stay short. */
static int grow(struct intern *t)
{
	uint32_t cap = t->cap ? t->cap * 2 : INTERN_MIN;
	struct intern_entry *entries;
	uint32_t *slots;

	if (cap > UINT32_MAX / 4)
		return -ENOMEM;
	entries = reallocarray(t->entries, cap, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	t->entries = entries;
	slots = calloc((size_t)cap * 2, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(t->slots);
	t->slots = slots;
	t->nslots = cap * 2;
	t->cap = cap;
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t slot = slot_of(t, entries[i].hash);

		while (slots[slot])
			slot = (slot + 1) & (t->nslots - 1);
		slots[slot] = i + 1;
	}
	return 0;
}

/* The slot of an equal thing, or the free one where it would go. */
static uint32_t probe(const struct intern *t, uint64_t hash, uint32_t thing, intern_equal_fn *equal,
		      const void *arg)
{
	uint32_t slot = slot_of(t, hash);

	for (; t->slots[slot]; slot = (slot + 1) & (t->nslots - 1)) {
		const struct intern_entry *e = &t->entries[t->slots[slot] - 1];

		if (e->hash == hash && equal(arg, e->thing, thing))
			break;
	}
	return slot;
}

bool intern_find(const struct intern *t, uint64_t hash, uint32_t thing, intern_equal_fn *equal,
		 const void *arg, uint32_t *ret_number)
{
	uint32_t slot;

	if (!t->n)
		return false;
	slot = probe(t, hash, thing, equal, arg);
	if (!t->slots[slot])
		return false;
	*ret_number = t->slots[slot] - 1;
	return true;
}

int intern_put(struct intern *t, uint64_t hash, uint32_t thing, intern_equal_fn *equal,
	       const void *arg, uint32_t *ret_number)
{
	uint32_t slot;
	int err;

	if (t->n == t->cap) {
		err = grow(t);
		if (err)
			return err;
	}
	slot = probe(t, hash, thing, equal, arg);
	if (!t->slots[slot]) {
		t->entries[t->n] = (struct intern_entry){ .hash = hash, .thing = thing };
		t->slots[slot] = ++t->n;
	}
	*ret_number = t->slots[slot] - 1;
	return 0;
}

uint32_t intern_thing(const struct intern *t, uint32_t number)
{
	assert(number < t->n);
	return t->entries[number].thing;
}
