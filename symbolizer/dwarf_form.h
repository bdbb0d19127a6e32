/*
 * dwarf_form - units, abbreviations and attribute values of .debug_info: what dwarf.c's parts read with.
 *
 * DWARF 2 to 5 of 64-bit little-endian files, in the 32-bit and the 64-bit format. Every offset is checked where
 * it is used.
 *
 * Source: DWARF 5 sections 7.5 (units, forms), 3.1.3 (skeleton units); DW_FORM_GNU_*: binutils' dwarf2.def.
 *
 * May touch: the sections, the heap.
 */
#ifndef SYMBOLIZER_DWARF_FORM_H
#define SYMBOLIZER_DWARF_FORM_H

#include <dwarf.h>

#include "symbolizer/sections.h"

#define DWARF_NONE UINT64_MAX
#define DWARF_ALT (1ull << 40)	/* in a reference: into sections.alt */

enum {
	DWARF_SPECS_MAX = 4096,		/* attributes of one abbreviation */
	DWARF_CODES_MAX = 1 << 16,	/* abbreviations of one table */
	DWARF_TEXT_MAX = 1 << 14,	/* bytes of a string; longer ones are cut */
};

/* A place in the sections: a pointer that never leaves its section. */
struct cursor {
	const uint8_t *p, *end;	/* p == NULL after a read past the end */
};

static inline UNUSED struct cursor cursor_at(struct bytes s, uint64_t off)
{
	return off <= s.len ? (struct cursor){ s.p + off, s.p + s.len } : (struct cursor){ NULL, NULL };
}

static inline UNUSED bool cursor_take(struct cursor *c, uint64_t n)
{
	if (!c->p || n > (uint64_t)(c->end - c->p)) {
		c->p = NULL;
		return false;
	}
	c->p += n;
	return true;
}

/* Little endian, `n` up to 8 bytes; 0 past the end. */
static inline UNUSED uint64_t cursor_uint(struct cursor *c, uint32_t n)
{
	uint64_t v = 0;

	if (cursor_take(c, n))
		__builtin_memcpy(&v, c->p - n, n);
	return v;
}

static inline UNUSED uint64_t cursor_uleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; c->p && c->p < c->end; shift += shift < 64 ? 7 : 0) {
		uint8_t b = *c->p++;

		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	c->p = NULL;
	return 0;
}

static inline UNUSED int64_t cursor_sleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; c->p && c->p < c->end;) {
		uint8_t b = *c->p++;

		if (shift < 64) {
			v |= (uint64_t)(b & 0x7f) << shift;
			shift += 7;
		}
		if (b & 0x80)
			continue;
		if (shift < 64 && b & 0x40)
			v |= ~0ull << shift;
		return (int64_t)v;
	}
	c->p = NULL;
	return 0;
}

/* Where a string stands. */
struct dwarf_ref {
	uint32_t off;
	uint32_t section;	/* enum section_id, SECTION_ALT + it, or SECTION_NONE */
};
/* Without its NUL, which has to be there; empty where there is none. */
struct bytes dwarf_text(const struct sections *s, struct dwarf_ref ref);

/* How a form's value is passed over. */
enum {
	DWARF_SKIP_MAX = 16,	/* up to here: so many bytes */
	DWARF_SKIP_LEB = 32,	/* a LEB128 */
	DWARF_SKIP_BLOCK,	/* a ULEB128 and so many bytes */
	DWARF_SKIP_READ,	/* only by reading it */
};

struct dwarf_spec {
	uint16_t at, form;
	uint8_t skip;
	int64_t implicit;
};

/* `tag` 0: no such code. */
struct dwarf_abbrev {
	uint16_t tag;
	bool has_children;
	bool has_code;		/* DW_AT_low_pc or DW_AT_ranges */
	uint32_t size;		/* of all its attributes where that is fixed, else UINT32_MAX */
	uint32_t first, n;	/* its attributes */
};

struct dwarf_abbrevs {
	struct dwarf_abbrev *by_code;	/* ncodes of them */
	struct dwarf_spec *specs;
	uint32_t ncodes, nspecs, cap_codes, cap_specs;
};

struct dwarf_unit {
	uint32_t off, die, end;	/* in .debug_info: header, first DIE, behind the last */
	uint8_t version, type;	/* type: DW_UT_*, compile before version 5 */
	uint8_t offset_size;
	uint32_t abbrev_off;
	/* Of its first DIE. */
	uint64_t low_pc;	/* 0 none: what ranges count from */
	uint64_t line_off;	/* DWARF_NONE */
	uint64_t str_offsets_base, addr_base, rnglists_base;
	struct dwarf_ref name, comp_dir;
	uint64_t *work;		/* what may still be read: dwarf_spend() */
};

/*
 * A byte, an attribute or a part of a range costs 1, each time that it is looked at: many DIEs can refer to one
 * table. False: it is more than there is left, and nothing is left from then on.
 */
static inline UNUSED bool dwarf_spend(const struct dwarf_unit *u, uint64_t n)
{
	bool enough = n <= *u->work;

	*u->work = enough ? *u->work - n : 0;
	return enough;
}

enum dwarf_class {
	DWARF_NOTHING,		/* what cannot be read, or points into a file that is not there */
	DWARF_ADDRESS,
	DWARF_CONSTANT,
	DWARF_STRING,
	DWARF_REFERENCE,	/* u: an offset in .debug_info, perhaps with DWARF_ALT */
	DWARF_SECTION,		/* u: an offset in the section that the attribute means */
	DWARF_LIST,		/* u: an index into .debug_rnglists' offsets */
};
struct dwarf_value {
	enum dwarf_class class;
	uint64_t u;
	struct dwarf_ref text;
};

/*
 * The unit's header at `off`, read on account of *work, without what its first DIE tells. False where there is none that can be read;
 * *ret_next is where the next one is then, DWARF_NONE where that is not known.
 */
bool dwarf_unit_header(const struct sections *s, uint64_t off, uint64_t *work, struct dwarf_unit *ret,
		       uint64_t *ret_next);
/* Adds what its first DIE tells. */
bool dwarf_unit_root(const struct sections *s, const struct dwarf_abbrevs *a, struct dwarf_unit *u,
		     struct dwarf_value *ret_ranges, uint64_t *ret_high);

/* Everything of a table that can be read; with `until`, no more than up to this code. */
void dwarf_abbrevs_read(struct dwarf_abbrevs *ret, const struct sections *s, const struct dwarf_unit *u,
			uint64_t until);
void dwarf_abbrevs_fini(struct dwarf_abbrevs *a);
static inline UNUSED const struct dwarf_abbrev *dwarf_abbrevs_find(const struct dwarf_abbrevs *a, uint64_t code)
{
	return code < a->ncodes && a->by_code[code].tag ? &a->by_code[code] : NULL;
}

/* Reads one value and goes on behind it; c->p is NULL where that cannot be. */
void dwarf_value(const struct sections *s, const struct dwarf_unit *u, const struct dwarf_spec *spec, struct cursor *c,
		 struct dwarf_value *ret);
/* Goes past one value, or past all attributes of a DIE. */
static inline UNUSED void dwarf_skip_one(const struct sections *s, const struct dwarf_unit *u,
					 const struct dwarf_spec *spec, struct cursor *c)
{
	struct dwarf_value ignored;

	if (spec->skip <= DWARF_SKIP_MAX)
		cursor_take(c, spec->skip);
	else if (spec->skip == DWARF_SKIP_LEB)
		cursor_uleb(c);
	else if (spec->skip == DWARF_SKIP_BLOCK)
		cursor_take(c, cursor_uleb(c));
	else
		dwarf_value(s, u, spec, c, &ignored);
}
void dwarf_skip(const struct sections *s, const struct dwarf_unit *u, const struct dwarf_abbrevs *a,
		const struct dwarf_abbrev *abbrev, struct cursor *c);

/* The ranges of a DW_AT_ranges. */
typedef bool dwarf_range_fn(void *arg, uint64_t low, uint64_t high);
void dwarf_each_range(const struct sections *s, const struct dwarf_unit *u, const struct dwarf_value *ranges,
		      dwarf_range_fn *fn, void *arg);

#endif
