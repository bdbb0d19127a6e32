/*
 * dwarf - function, file, line and inlined callers of an address, by a file's debug information.
 *
 * An index of which unit has which addresses, and of units that were asked about: each is walked once and kept
 * until DWARF_BYTES_MAX make it give way. It holds offsets alone, so it outlives the mapping. Names and lines are
 * those of the unit's DIEs and line table (dwarf_code.h, dwarf_line.h).
 *
 * The debug information may be another file's than the code's; their virtual addresses are the same.
 *
 * Bounded: DWARF_WORK_MAX bytes, attributes and ranges are read between two calls of dwarf_refill(), and as many by
 * dwarf_new(); an address of a unit that would exceed it has no lines this time. So have addresses of units that
 * are not in the index while that is over DWARF_REQUEST_BYTES_MAX.
 *
 * May touch: the sections, the heap.
 */
#ifndef SYMBOLIZER_DWARF_H
#define SYMBOLIZER_DWARF_H

#include "symbolizer/sections.h"
#include "symbolizer/srcline.h"

enum {
	DWARF_LINES_MAX = 64,		/* of one address: what is inlined deeper loses its outer callers but the last */
	DWARF_WORK_MAX = 256 << 20,
	DWARF_BYTES_MAX = 12 << 20,	/* of the units of one file, between two requests */
	DWARF_REQUEST_BYTES_MAX = 24 << 20,	/* of them, within a request: no more units are added then */
	DWARF_SPANS_MAX = 1 << 18,	/* ranges of all units, neighbours of one unit joined */
};

struct dwarf;

/* NULL: there is no debug information. */
struct dwarf *dwarf_new(const struct sections *s, const struct elffile *code);
struct dwarf *dwarf_free(struct dwarf *d);
DEFINE_CLEANUP(struct dwarf *, dwarf_free);

/* Before each request: what was not asked about lately gives way, and there is work to spend again. */
void dwarf_refill(struct dwarf *d);

/*
 * Innermost first; the function itself, last, may have no name though a line is known. 0: nothing is known. The
 * strings are valid until dwarf_refill() and as long as the sections.
 */
uint32_t dwarf_lines(struct dwarf *d, const struct sections *s, const struct elffile *code, uint64_t vaddr,
		     struct srcline ret[DWARF_LINES_MAX]);

/* How many addresses had no lines because there was too much to walk; 1 more: not all units were found. */
uint64_t dwarf_skipped(const struct dwarf *d);
size_t dwarf_bytes(const struct dwarf *d);

#endif
