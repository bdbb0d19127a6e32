/*
 * plt - which function an entry of a procedure linkage table calls.
 *
 * The entry's own code tells: it jumps through a slot of the GOT, or, where a second table does so
 * for it (-z ibtplt), pushes the number of a relocation. The relocation of the slot names the
 * function. Relocations come from PT_DYNAMIC, which every program that is loaded with libraries has;
 * a static one's are those of its IFUNCs and found by section. Tables are found by their section;
 * in a file without any section header, an entry is what jumps through a slot of DT_JMPREL.
 *
 * Layouts of ld, gold, lld and mold, with and without IBT. The first entry of a lazy table, which
 * enters the dynamic linker, is nobody's.
 *
 * May touch: the file, the heap.
 */
#ifndef SYMBOLIZER_PLT_H
#define SYMBOLIZER_PLT_H

#include "symbolizer/elffile.h"

enum {
	PLT_RELOCATIONS_MAX = 4 << 20,	/* that are looked at */
	PLT_SLOTS_MAX = 1 << 17,	/* that are kept; those after have no name */
};

struct plt;

struct plt_target {
	struct bytes name;	/* of the file; empty: a function of this file, chosen by the one at ... */
	uint64_t resolver;
};

/* `f` is borrowed and must outlive it. */
struct plt *plt_new(const struct elffile *f);
struct plt *plt_free(struct plt *p);
DEFINE_CLEANUP(struct plt *, plt_free);

/* Whether the address lies in a table's section. */
bool plt_covers(const struct plt *p, uint64_t vaddr);
/* False: no entry, or not known whose. Reads the relocations at its first call. */
bool plt_find(struct plt *p, uint64_t vaddr, struct plt_target *ret);

#endif
