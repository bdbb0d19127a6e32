/*
 * intern - a set that numbers different things in the order of their first appearance.
 *
 * The things stay with the caller, who names each by an index of its own ("thing") and compares
 * two of them; numbers count from 0. Hashes are kept whole, so that things are compared only when
 * all 64 bits agree.
 *
 * May touch: the heap.
 */
#ifndef EXPORTER_INTERN_H
#define EXPORTER_INTERN_H

#include "base/def.h"

struct intern {
	struct intern_entry {
		uint64_t hash;
		uint32_t thing;
	} * entries; /* by number */
	uint32_t n;
	uint32_t cap;
	uint32_t *slots; /* number + 1; 0 is free */
	uint32_t nslots; /* a power of two */
};

typedef bool intern_equal_fn(const void *arg, uint32_t a, uint32_t b);

/* Room for a thing more than n in *v, an array of the caller's whose elements have this size. -ENOMEM. */
MUST_USE int intern_reserve(void *v, uint32_t n, uint32_t *cap, size_t size);

void intern_fini(struct intern *t);
void intern_reset(struct intern *t); /* empty; takes as long as there are things */
/* The number of a thing that equals this one. False: there is none. */
bool intern_find(const struct intern *t, uint64_t hash, uint32_t thing, intern_equal_fn *equal,
		 const void *arg, uint32_t *ret_number);
/* The number of a thing that equals this one, else a new one. -ENOMEM: nothing changed. */
MUST_USE int intern_put(struct intern *t, uint64_t hash, uint32_t thing, intern_equal_fn *equal,
			const void *arg, uint32_t *ret_number);
/* The thing that was first under this number. */
uint32_t intern_thing(const struct intern *t, uint32_t number);

#endif
