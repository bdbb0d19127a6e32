/*
 * plt - what an entry of a procedure linkage table calls, by the relocation of the slot that it jumps through.
 *
 * Layouts of GNU ld, gold, lld and mold, lazy or not, with and without IBT. The first entry of a lazy table, which
 * calls the resolver, calls nothing that has a name.
 *
 * Source: System V x86-64 psABI 5.2; gABI on relocations.
 *
 * May touch: the file's mapping.
 */
#ifndef SYMBOLIZER_PLT_H
#define SYMBOLIZER_PLT_H

#include "symbolizer/elffile.h"

struct plt_target {
	struct bytes name;	/* of the file; empty: a function of this file, chosen by the one at ... */
	uint64_t resolver;
};

/* Whether the address is in a table. */
bool plt_covers(const struct elffile *f, uint64_t vaddr);
bool plt_find(const struct elffile *f, uint64_t vaddr, struct plt_target *ret);

#endif
