/*
 * dwarf_code - which functions, and which functions inlined into them, a unit has at an address: its DIEs walked
 * once, and kept as a list of places where the innermost one changes.
 *
 * It keeps no pointer into the file. Functions that the linker dropped (their address is no code) are left out
 * with all that is inlined into them.
 *
 * May touch: the sections, the heap.
 */
#ifndef SYMBOLIZER_DWARF_CODE_H
#define SYMBOLIZER_DWARF_CODE_H

#include "symbolizer/dwarf_form.h"

enum {
	DWARF_DEPTH_MAX = 512,		/* DIEs within each other */
	DWARF_PIECES_MAX = 1 << 19,	/* ranges of the functions of one unit */
};

/* A function, or one inlined into `parent`. */
struct dwarf_entry {
	uint32_t parent;	/* index; UINT32_MAX: it is inlined into none */
	uint32_t die;		/* in .debug_info */
	uint32_t call_file, call_line;	/* where `parent` calls it, in the unit's line table; 0 unknown */
};

/* From here on, up to the next one. */
struct dwarf_mark {
	uint32_t off;		/* from `base` */
	uint32_t entry;		/* UINT32_MAX: none */
};

struct dwarf_code {
	uint64_t base;
	struct dwarf_entry *entries;
	struct dwarf_mark *marks;
	uint32_t nentries, nmarks, cap_entries, cap_marks;
};

/* `code` tells what an address is: the file that is mapped. Empty where the unit makes no sense. */
void dwarf_code_read(struct dwarf_code *ret, const struct sections *s, const struct dwarf_unit *u,
		     const struct dwarf_abbrevs *a, const struct elffile *code);
void dwarf_code_fini(struct dwarf_code *c);

/* The innermost one, or UINT32_MAX. */
uint32_t dwarf_code_find(const struct dwarf_code *c, uint64_t vaddr);
size_t dwarf_code_bytes(const struct dwarf_code *c);

#endif
