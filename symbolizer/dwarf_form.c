#include "symbolizer/dwarf_form.h"

#include <string.h>

#include "symbolizer/mem.h"

enum {
	ADDRESS_SIZE = 8,
	RANGES_MAX = 1 << 16,	/* of one DIE */
};

struct bytes dwarf_text(const struct sections *s, struct dwarf_ref ref)
{
	struct bytes in, none = { NULL, 0 };
	const uint8_t *end;

	if (ref.section >= SECTION_ALT && s->alt) {
		s = s->alt;
		ref.section -= SECTION_ALT;
	}
	if (ref.section >= SECTION_COUNT)
		return none;
	in = s->of[ref.section];
	if (ref.off >= in.len)
		return none;
	in.len = MIN(in.len, (size_t)ref.off + DWARF_TEXT_MAX + 1);
	end = memchr(in.p + ref.off, 0, in.len - ref.off);
	if (!end && in.len < s->of[ref.section].len)
		end = in.p + ref.off + DWARF_TEXT_MAX;
	return end ? (struct bytes){ in.p + ref.off, (size_t)(end - in.p) - ref.off } : none;
}

static struct dwarf_ref text_at(uint64_t off, enum section_id section)
{
	return off <= UINT32_MAX ? (struct dwarf_ref){ (uint32_t)off, section } : (struct dwarf_ref){ 0, SECTION_COUNT };
}

/* ---- units ---- */

bool dwarf_unit_header(const struct sections *s, uint64_t off, uint64_t *work, struct dwarf_unit *ret,
		       uint64_t *ret_next)
{
	struct bytes info = s->of[SECTION_INFO];
	struct cursor c = cursor_at(info, off);
	struct dwarf_unit u = { .type = DW_UT_compile, .line_off = DWARF_NONE, .work = work };
	uint64_t length = cursor_uint(&c, 4), abbrev, address_size;

	*ret_next = DWARF_NONE;
	u.offset_size = length == UINT32_MAX ? 8 : 4;
	if (length == UINT32_MAX)
		length = cursor_uint(&c, 8);
	/* Offsets of what the index keeps have 32 bits. */
	if (!c.p || length > (uint64_t)(c.end - c.p) || info.len > UINT32_MAX)
		return false;
	u.off = (uint32_t)off;
	u.end = (uint32_t)(c.p - info.p + (int64_t)length);
	*ret_next = u.end;
	c.end = info.p + u.end;
	u.version = (uint8_t)cursor_uint(&c, 2);
	if (u.version < 2 || u.version > 5)
		return false;
	if (u.version >= 5) {
		u.type = (uint8_t)cursor_uint(&c, 1);
		address_size = cursor_uint(&c, 1);
		abbrev = cursor_uint(&c, u.offset_size);
	} else {
		abbrev = cursor_uint(&c, u.offset_size);
		address_size = cursor_uint(&c, 1);
	}
	if (u.type == DW_UT_skeleton || u.type == DW_UT_split_compile)
		cursor_take(&c, 8);
	else if (u.type != DW_UT_compile && u.type != DW_UT_partial)
		return false;
	if (!c.p || address_size != ADDRESS_SIZE || abbrev >= s->of[SECTION_ABBREV].len || abbrev > UINT32_MAX)
		return false;
	u.abbrev_off = (uint32_t)abbrev;
	u.die = (uint32_t)(c.p - info.p);
	u.name.section = u.comp_dir.section = SECTION_COUNT;
	/* Behind the header of its contribution, until its first DIE says otherwise. */
	u.str_offsets_base = u.addr_base = u.offset_size == 8 ? 16 : 8;
	u.rnglists_base = u.offset_size == 8 ? 20 : 12;
	if (u.version < 5)
		u.str_offsets_base = u.addr_base = 0;
	*ret = u;
	return true;
}

bool dwarf_unit_root(const struct sections *s, const struct dwarf_abbrevs *a, struct dwarf_unit *u,
		     struct dwarf_value *ret_ranges, uint64_t *ret_high)
{
	struct cursor at = cursor_at(s->of[SECTION_INFO], u->die), c;
	struct dwarf_value low = { 0 }, high = { 0 }, v;
	const struct dwarf_abbrev *abbrev;

	*ret_ranges = (struct dwarf_value){ 0 };
	*ret_high = 0;
	if (at.p)
		at.end = s->of[SECTION_INFO].p + u->end;
	abbrev = dwarf_abbrevs_find(a, cursor_uleb(&at));
	if (!abbrev || !at.p || !dwarf_spend(u, 2ull * abbrev->n))
		return false;
	/* The bases first: other attributes count from them. */
	for (int round = 0; round < 2; round++) {
		c = at;
		for (uint32_t i = 0; i < abbrev->n && c.p; i++) {
			const struct dwarf_spec *spec = &a->specs[abbrev->first + i];

			dwarf_value(s, u, spec, &c, &v);
			switch (spec->at) {
			case DW_AT_str_offsets_base: u->str_offsets_base = v.u; break;
			case DW_AT_addr_base:
			case DW_AT_GNU_addr_base: u->addr_base = v.u; break;
			case DW_AT_rnglists_base: u->rnglists_base = v.u; break;
			case DW_AT_name: u->name = v.text; break;
			case DW_AT_comp_dir: u->comp_dir = v.text; break;
			case DW_AT_low_pc: low = v; break;
			case DW_AT_high_pc: high = v; break;
			case DW_AT_ranges: *ret_ranges = v; break;
			case DW_AT_stmt_list:
				if (v.class == DWARF_SECTION || v.class == DWARF_CONSTANT)
					u->line_off = v.u;
				break;
			default: break;
			}
		}
	}
	u->low_pc = low.class == DWARF_ADDRESS ? low.u : 0;
	if (low.class == DWARF_ADDRESS && high.class == DWARF_ADDRESS)
		*ret_high = high.u;
	else if (low.class == DWARF_ADDRESS && high.class == DWARF_CONSTANT)
		*ret_high = low.u + high.u;
	return true;
}

/* ---- abbreviations ---- */

/* Bytes of a form, UINT32_MAX where the value tells. */
static uint32_t form_size(const struct dwarf_unit *u, uint16_t form)
{
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const: return 0;
	case DW_FORM_data1:
	case DW_FORM_ref1:
	case DW_FORM_flag:
	case DW_FORM_strx1:
	case DW_FORM_addrx1: return 1;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2: return 2;
	case DW_FORM_strx3:
	case DW_FORM_addrx3: return 3;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_ref_sup4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4: return 4;
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sup8:
	case DW_FORM_ref_sig8:
	case DW_FORM_addr: return 8;
	case DW_FORM_data16: return 16;
	case DW_FORM_ref_addr: return u->version == 2 ? ADDRESS_SIZE : u->offset_size;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_GNU_strp_alt: return u->offset_size;
	default: return UINT32_MAX;
	}
}

static uint8_t skip_of(const struct dwarf_unit *u, uint16_t form)
{
	uint32_t size = form_size(u, form);

	switch (form) {
	case DW_FORM_udata:
	case DW_FORM_sdata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
	case DW_FORM_GNU_str_index:
	case DW_FORM_GNU_addr_index: return DWARF_SKIP_LEB;
	case DW_FORM_block:
	case DW_FORM_exprloc: return DWARF_SKIP_BLOCK;
	default: return size == UINT32_MAX ? DWARF_SKIP_READ : (uint8_t)size;
	}
}

static bool read_abbrev(struct dwarf_abbrevs *t, const struct dwarf_unit *u, struct cursor *c)
{
	uint64_t code = cursor_uleb(c), tag = cursor_uleb(c);
	struct dwarf_abbrev a = { .tag = (uint16_t)tag, .first = t->nspecs };

	a.has_children = cursor_uint(c, 1);
	for (;;) {
		uint64_t at = cursor_uleb(c), form = cursor_uleb(c);
		int64_t implicit = form == DW_FORM_implicit_const ? cursor_sleb(c) : 0;
		uint32_t size;

		if (!c->p || at > UINT16_MAX || form > UINT16_MAX)
			return false;
		if (!at && !form)
			break;
		if (++a.n > DWARF_SPECS_MAX)
			return false;
		size = form_size(u, (uint16_t)form);
		a.size = size == UINT32_MAX || a.size == UINT32_MAX ? UINT32_MAX : a.size + size;
		a.has_code |= at == DW_AT_low_pc || at == DW_AT_ranges;
		t->specs = mem_grow(t->specs, &t->cap_specs, t->nspecs + 1, sizeof(*t->specs));
		t->specs[t->nspecs++] = (struct dwarf_spec){ (uint16_t)at, (uint16_t)form, skip_of(u, (uint16_t)form),
								 implicit };
	}
	if (!code || code >= DWARF_CODES_MAX || !tag || tag > UINT16_MAX)
		return false;
	if (code >= t->ncodes) {
		t->by_code = mem_grow(t->by_code, &t->cap_codes, (uint32_t)code + 1, sizeof(*t->by_code));
		memset(t->by_code + t->ncodes, 0, (code + 1 - t->ncodes) * sizeof(*t->by_code));
		t->ncodes = (uint32_t)code + 1;
	}
	t->by_code[code] = a;
	return true;
}

void dwarf_abbrevs_read(struct dwarf_abbrevs *ret, const struct sections *s, const struct dwarf_unit *u,
			uint64_t until)
{
	struct cursor c = cursor_at(s->of[SECTION_ABBREV], u->abbrev_off);
	uint32_t n = 0;

	*ret = (struct dwarf_abbrevs){ 0 };
	while (c.p && c.p < c.end && *c.p && n++ < DWARF_CODES_MAX) {
		const uint8_t *begin = c.p;
		uint32_t ncodes = ret->ncodes;

		if (!read_abbrev(ret, u, &c) || !dwarf_spend(u, (uint64_t)(c.p - begin) + ret->ncodes - ncodes) ||
		    (until && dwarf_abbrevs_find(ret, until)))
			break;
	}
}

void dwarf_abbrevs_fini(struct dwarf_abbrevs *a)
{
	free(a->by_code);
	free(a->specs);
	*a = (struct dwarf_abbrevs){ 0 };
}

/* ---- values ---- */

static uint64_t indexed(struct bytes in, uint64_t base, uint64_t index, uint32_t size)
{
	struct cursor c = { NULL, NULL };

	if (base <= in.len && index <= (in.len - base) / size)
		c = cursor_at(in, base + index * size);
	return c.p && (uint64_t)(c.end - c.p) >= size ? cursor_uint(&c, size) : DWARF_NONE;
}

static struct dwarf_value address_at(const struct sections *s, const struct dwarf_unit *u, uint64_t index)
{
	uint64_t v = indexed(s->of[SECTION_ADDR], u->addr_base, index, ADDRESS_SIZE);

	return (struct dwarf_value){ v == DWARF_NONE ? DWARF_NOTHING : DWARF_ADDRESS, v, { 0, SECTION_COUNT } };
}

static struct dwarf_value string_value(uint64_t off, enum section_id section)
{
	struct dwarf_ref ref = off == DWARF_NONE ? (struct dwarf_ref){ 0, SECTION_COUNT } : text_at(off, section);

	return (struct dwarf_value){ DWARF_STRING, 0, ref };
}

static struct dwarf_value string_at(const struct sections *s, const struct dwarf_unit *u, uint64_t index)
{
	return string_value(indexed(s->of[SECTION_STR_OFFSETS], u->str_offsets_base, index, u->offset_size),
			    SECTION_STR);
}

/* A string in the DIE itself. */
static struct dwarf_value inline_string(const struct sections *s, struct cursor *c)
{
	struct dwarf_value v = { .text.section = SECTION_COUNT };
	const uint8_t *end = c->p ? memchr(c->p, 0, (size_t)(c->end - c->p)) : NULL;

	if (end)
		v = string_value((uint64_t)(c->p - s->of[SECTION_INFO].p), SECTION_INFO);
	c->p = end ? end + 1 : NULL;
	return v;
}

void dwarf_value(const struct sections *s, const struct dwarf_unit *u, const struct dwarf_spec *spec, struct cursor *c,
		 struct dwarf_value *ret)
{
	struct dwarf_value v = { .text.section = SECTION_COUNT };
	uint16_t form = spec->form;
	uint32_t size;

	if (form == DW_FORM_indirect) {
		form = (uint16_t)cursor_uleb(c);
		/* An endless chain of them, and a constant that stands in no abbreviation. */
		if (form == DW_FORM_indirect || form == DW_FORM_implicit_const)
			c->p = NULL;
	}
	size = form_size(u, form);
	if (size != UINT32_MAX && size <= 8)
		v.u = cursor_uint(c, size);
	switch (form) {
	case DW_FORM_addr:
		v.class = DWARF_ADDRESS;
		break;
	case DW_FORM_addrx1:
	case DW_FORM_addrx2:
	case DW_FORM_addrx3:
	case DW_FORM_addrx4:
		v = address_at(s, u, v.u);
		break;
	case DW_FORM_addrx:
	case DW_FORM_GNU_addr_index:
		v = address_at(s, u, cursor_uleb(c));
		break;
	case DW_FORM_data1:
	case DW_FORM_data2:
	case DW_FORM_data4:
	case DW_FORM_data8:
	case DW_FORM_flag:
		v.class = DWARF_CONSTANT;
		break;
	case DW_FORM_flag_present:
		v = (struct dwarf_value){ DWARF_CONSTANT, 1, { 0, SECTION_COUNT } };
		break;
	case DW_FORM_implicit_const:
		v = (struct dwarf_value){ DWARF_CONSTANT, (uint64_t)spec->implicit, { 0, SECTION_COUNT } };
		break;
	case DW_FORM_udata:
		v = (struct dwarf_value){ DWARF_CONSTANT, cursor_uleb(c), { 0, SECTION_COUNT } };
		break;
	case DW_FORM_sdata:
		v = (struct dwarf_value){ DWARF_CONSTANT, (uint64_t)cursor_sleb(c), { 0, SECTION_COUNT } };
		break;
	case DW_FORM_data16:
		cursor_take(c, 16);
		break;
	case DW_FORM_string:
		v = inline_string(s, c);
		break;
	case DW_FORM_strp:
		v = string_value(v.u, SECTION_STR);
		break;
	case DW_FORM_line_strp:
		v = string_value(v.u, SECTION_LINE_STR);
		break;
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
		v = string_at(s, u, v.u);
		break;
	case DW_FORM_strx:
	case DW_FORM_GNU_str_index:
		v = string_at(s, u, cursor_uleb(c));
		break;
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8:
		v.class = v.u < u->end - u->off ? DWARF_REFERENCE : DWARF_NOTHING;
		v.u += u->off;
		break;
	case DW_FORM_ref_udata:
		v.u = cursor_uleb(c);
		v.class = v.u < u->end - u->off ? DWARF_REFERENCE : DWARF_NOTHING;
		v.u += u->off;
		break;
	case DW_FORM_ref_addr:
		v.class = DWARF_REFERENCE;
		break;
	case DW_FORM_sec_offset:
		v.class = DWARF_SECTION;
		break;
	case DW_FORM_rnglistx:
		v = (struct dwarf_value){ DWARF_LIST, cursor_uleb(c), { 0, SECTION_COUNT } };
		break;
	case DW_FORM_loclistx:
		cursor_uleb(c);
		break;
	case DW_FORM_block1:
		cursor_take(c, cursor_uint(c, 1));
		break;
	case DW_FORM_block2:
		cursor_take(c, cursor_uint(c, 2));
		break;
	case DW_FORM_block4:
		cursor_take(c, cursor_uint(c, 4));
		break;
	case DW_FORM_block:
	case DW_FORM_exprloc:
		cursor_take(c, cursor_uleb(c));
		break;
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		v = string_value(v.u, SECTION_STR);
		if (v.text.section != SECTION_NONE)
			v.text.section += SECTION_ALT;
		break;
	case DW_FORM_ref_sup4:
	case DW_FORM_ref_sup8:
	case DW_FORM_GNU_ref_alt:
		v.class = v.u <= UINT32_MAX ? DWARF_REFERENCE : DWARF_NOTHING;
		v.u |= DWARF_ALT;
		break;
	case DW_FORM_ref_sig8:
		break;
	default:
		c->p = NULL;
		break;
	}
	*ret = v;
}

void dwarf_skip(const struct sections *s, const struct dwarf_unit *u, const struct dwarf_abbrevs *a,
		const struct dwarf_abbrev *abbrev, struct cursor *c)
{
	if (abbrev->size != UINT32_MAX) {
		cursor_take(c, abbrev->size);
		return;
	}
	if (!dwarf_spend(u, abbrev->n))
		c->p = NULL;
	for (uint32_t i = 0; i < abbrev->n && c->p; i++)
		dwarf_skip_one(s, u, &a->specs[abbrev->first + i], c);
}

/* ---- ranges ---- */

static void old_ranges(const struct sections *s, const struct dwarf_unit *u, uint64_t off, dwarf_range_fn *fn, void *arg)
{
	struct cursor c = cursor_at(s->of[SECTION_RANGES], off);
	uint64_t base = u->low_pc;

	for (uint32_t n = 0; n < RANGES_MAX && dwarf_spend(u, 1); n++) {
		uint64_t low = cursor_uint(&c, 8), high = cursor_uint(&c, 8);

		if (!c.p || (!low && !high))
			return;
		if (low == UINT64_MAX)
			base = high;
		else if (low < high && !fn(arg, base + low, base + high))
			return;
	}
}

static void new_ranges(const struct sections *s, const struct dwarf_unit *u, uint64_t off, dwarf_range_fn *fn, void *arg)
{
	struct cursor c = cursor_at(s->of[SECTION_RNGLISTS], off);
	uint64_t base = u->low_pc, low, high;

	for (uint32_t n = 0; n < RANGES_MAX && c.p && dwarf_spend(u, 1); n++) {
		low = high = 0;
		switch (cursor_uint(&c, 1)) {
		case DW_RLE_base_addressx:
			base = address_at(s, u, cursor_uleb(&c)).u;
			continue;
		case DW_RLE_startx_endx:
			low = address_at(s, u, cursor_uleb(&c)).u;
			high = address_at(s, u, cursor_uleb(&c)).u;
			break;
		case DW_RLE_startx_length:
			low = address_at(s, u, cursor_uleb(&c)).u;
			high = low + cursor_uleb(&c);
			break;
		case DW_RLE_offset_pair:
			low = base + cursor_uleb(&c);
			high = base + cursor_uleb(&c);
			break;
		case DW_RLE_base_address:
			base = cursor_uint(&c, 8);
			continue;
		case DW_RLE_start_end:
			low = cursor_uint(&c, 8);
			high = cursor_uint(&c, 8);
			break;
		case DW_RLE_start_length:
			low = cursor_uint(&c, 8);
			high = low + cursor_uleb(&c);
			break;
		case DW_RLE_end_of_list:
		default:
			return;
		}
		if (c.p && low < high && !fn(arg, low, high))
			return;
	}
}

void dwarf_each_range(const struct sections *s, const struct dwarf_unit *u, const struct dwarf_value *ranges,
		      dwarf_range_fn *fn, void *arg)
{
	uint64_t off = ranges->u;

	if (ranges->class == DWARF_LIST) {
		off = indexed(s->of[SECTION_RNGLISTS], u->rnglists_base, ranges->u, u->offset_size);
		if (off == DWARF_NONE)
			return;
		off += u->rnglists_base;
	} else if (ranges->class != DWARF_SECTION && ranges->class != DWARF_CONSTANT) {
		return;
	}
	if (u->version >= 5)
		new_ranges(s, u, off, fn, arg);
	else
		old_ranges(s, u, off, fn, arg);
}
