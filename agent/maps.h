/*
 * maps - the executable mappings of one process at one time.
 *
 * A version is immutable while more than one holder has it: maps_add() and maps_clear() on a shared
 * version make a new one. So a parked sample pins the version of its time by a reference, and a
 * fork is a reference too. Sorted by address, never overlapping; a new mapping over an old one
 * replaces what it covers.
 *
 * May touch: struct file's reference count. Never: /proc, descriptors.
 */
#ifndef AGENT_MAPS_H
#define AGENT_MAPS_H

#include "base/def.h"

struct file;

enum map_kind {
	MAP_FILE,	/* `file` is set; address - start + offset is the place in it */
	MAP_ANON,	/* JIT code, memfd without a file, //anon, [heap] ... */
	MAP_VDSO,	/* `file` is the vDSO's image */
};

struct map {
	uint64_t start, end;	/* [start, end) */
	uint64_t offset;
	struct file *file;	/* a reference of the maps', or NULL */
	enum map_kind kind;
};

enum { MAPS_MAX = 65536 };	/* mappings of one process; more are refused with -E2BIG */

struct maps;

MUST_USE int maps_new(struct maps **ret);
struct maps *maps_ref(struct maps *m);
struct maps *maps_unref(struct maps *m);
DEFINE_CLEANUP(struct maps *, maps_unref);

/* Replaces *m where it is shared. Refuses empty and wrapping ranges with -EINVAL. */
MUST_USE int maps_add(struct maps **m, const struct map *map);
MUST_USE int maps_clear(struct maps **m);
/* The mapping that holds the address, or NULL. Valid while this version is. */
const struct map *maps_find(const struct maps *m, uint64_t address);
size_t maps_count(const struct maps *m);
const struct map *maps_at(const struct maps *m, size_t i); /* in address order */
size_t maps_bytes(const struct maps *m);

#endif
