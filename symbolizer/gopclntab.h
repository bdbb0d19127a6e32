/*
 * gopclntab - the table that every Go program carries, stripped or not: functions with name, file,
 * line and inlined callers, and how far each instruction has moved the stack pointer.
 *
 * It stands in a section of its own or, in programs that the system's linker made, somewhere in the
 * data, where its header is searched. What it leaves out (where the code begins, where the inline
 * trees are) stands in the runtime's moduledata, which points at it. The table may lie: every offset
 * is checked where it is used, and the steps through its tables are counted. What cannot be read has no
 * name.
 *
 * Go 1.16 and later; inlined callers 1.18, first lines of functions 1.20 and later.
 *
 * Source: Go's src/runtime/symtab.go, symtabinl.go; src/cmd/link/internal/ld/pcln.go;
 * src/internal/abi/symtab.go.
 *
 * May touch: the file's mapping, the heap. Never: what is at an address that no segment has.
 */
#ifndef SYMBOLIZER_GOPCLNTAB_H
#define SYMBOLIZER_GOPCLNTAB_H

#include "symbolizer/srcline.h"

enum {
	GOPCLNTAB_LINES_MAX = 32,	/* of one address: what is inlined deeper loses its outer callers but the last */
	GOPCLNTAB_STEPS_MAX = 8 << 20,	/* through tables, between two calls of gopclntab_refill() */
};

struct gopclntab;

struct gofunc {
	uint64_t start, end;	/* virtual addresses, start < end */
	struct bytes name;	/* of the file, like all strings here; empty: unknown */
	uint32_t start_line;	/* 0 unknown */
	uint64_t info;		/* where the table has more of it */
};

/* NULL: the file has none that can be read. `f` is borrowed and must outlive it. */
struct gopclntab *gopclntab_new(const struct elffile *f);
struct gopclntab *gopclntab_free(struct gopclntab *t);
DEFINE_CLEANUP(struct gopclntab *, gopclntab_free);

/* Before each request: GOPCLNTAB_STEPS_MAX steps may be taken. */
void gopclntab_refill(struct gopclntab *t);

/* The function that an address belongs to; padding belongs to the one before it. */
bool gopclntab_find(const struct gopclntab *t, uint64_t vaddr, struct gofunc *ret);

/* The function of this name, with or without the linker's ".abi0" behind it. Looks at each until it is found. */
bool gopclntab_named(const struct gopclntab *t, const char *name, struct gofunc *ret);

/*
 * What stands at an address of the function, innermost first, the function itself last. Returns the
 * number of lines, at least 1.
 */
uint32_t gopclntab_lines(struct gopclntab *t, const struct gofunc *fn, uint64_t vaddr,
			 struct srcline ret[GOPCLNTAB_LINES_MAX]);

/*
 * In [start, end) the stack pointer is `depth` bytes below where it was when the function was
 * entered, where the return address is. False ends the walk.
 */
typedef bool gopclntab_depth_fn(void *arg, uint64_t start, uint64_t end, uint32_t depth);

/* In the order of addresses, up to the first that makes no sense. */
void gopclntab_each_depth(struct gopclntab *t, const struct gofunc *fn, gopclntab_depth_fn *visit, void *arg);

#endif
