#include "symbolizer/dwarf.h"

#include <string.h>

#include "symbolizer/dwarf_code.h"
#include "symbolizer/dwarf_line.h"
#include "symbolizer/mem.h"

enum {
	TABLES = 32,		/* abbreviation tables that are kept */
	TABLES_BYTES_MAX = 2 << 20,
	HOPS_MAX = 16,		/* from a DIE to what it is an instance of */
	CANDIDATES = 8,		/* units that claim an address */
	UNIT_WORK = 64,		/* for finding one, whatever is in it */
};

/* Addresses of a unit. */
struct span {
	uint64_t low, high;
	uint32_t unit;		/* its header's offset */
};

/* What an entry of a unit is called. */
struct named {
	uint32_t entry;		/* its index + 1; 0: free */
	uint32_t start_line;
	struct dwarf_ref name;
};

/* A unit that was asked about. */
struct loaded {
	struct dwarf_unit unit;
	struct dwarf_code code;
	struct dwarf_lines lines;
	struct named *names;	/* of entries that were asked for: open addressing, a power of two */
	uint32_t nnames, name_slots;
	uint64_t used;
};

struct table {
	uint32_t off;
	bool is_alt;
	uint8_t offset_size;
	bool is_version_2;
	uint64_t used;		/* 0: free */
	struct dwarf_abbrevs abbrevs;
};

struct dwarf {
	struct span *spans;	/* by address */
	uint32_t *units;	/* offsets of all headers, ascending */
	uint32_t *alt_units;	/* of sections.alt, once they are needed */
	uint32_t nalt_units, cap_alt_units;
	struct loaded **loaded;	/* by unit's offset */
	uint32_t nspans, nunits, nloaded, cap_spans, cap_units, cap_loaded;
	struct table tables[TABLES];
	uint64_t clock, work, skipped;
	size_t loaded_bytes;	/* of all, when they were loaded */
};

static size_t table_bytes(const struct table *t)
{
	return t->abbrevs.cap_codes * sizeof(*t->abbrevs.by_code) + t->abbrevs.cap_specs * sizeof(*t->abbrevs.specs);
}

/* The unit's table, valid until the next call. */
static const struct dwarf_abbrevs *abbrevs_of(struct dwarf *d, const struct sections *s, const struct dwarf_unit *u,
					      bool is_alt)
{
	struct table *slot = &d->tables[0];
	bool is_version_2 = u->version == 2;

	for (size_t i = 0; i < TABLES; i++) {
		struct table *t = &d->tables[i];

		if (t->used && t->is_alt == is_alt && t->off == u->abbrev_off && t->offset_size == u->offset_size &&
		    t->is_version_2 == is_version_2) {
			t->used = ++d->clock;
			return &t->abbrevs;
		}
		if (t->used < slot->used)
			slot = t;
	}
	dwarf_abbrevs_fini(&slot->abbrevs);
	*slot = (struct table){ u->abbrev_off, is_alt, u->offset_size, is_version_2, ++d->clock, { 0 } };
	dwarf_abbrevs_read(&slot->abbrevs, s, u, 0);
	if (!d->work)
		slot->used = 0; /* it may be half of one */
	return &slot->abbrevs;
}

/* ---- which unit ---- */

struct adding {
	struct dwarf *d;
	const struct elffile *code;
	uint32_t unit;
};

static bool add_span(void *arg, uint64_t low, uint64_t high)
{
	struct adding *a = arg;
	struct dwarf *d = a->d;
	struct span *last = d->nspans ? &d->spans[d->nspans - 1] : NULL;

	if (!elffile_is_code(a->code, low))
		return true;
	if (last && last->unit == a->unit && low >= last->low && low <= last->high) {
		last->high = MAX(last->high, high);
		return true;
	}
	if (d->nspans == DWARF_SPANS_MAX)
		return false;
	d->spans = mem_grow(d->spans, &d->cap_spans, d->nspans + 1, sizeof(*d->spans));
	d->spans[d->nspans++] = (struct span){ low, high, a->unit };
	return true;
}

/* Its first DIE, by as much of its abbreviations as that needs. */
static bool read_root(const struct sections *s, struct dwarf_unit *u, struct dwarf_value *ret_ranges, uint64_t *ret_high)
{
	struct cursor c = cursor_at(s->of[SECTION_INFO], u->die);
	struct dwarf_abbrevs a;
	bool ok;

	dwarf_abbrevs_read(&a, s, u, cursor_uleb(&c));
	ok = dwarf_unit_root(s, &a, u, ret_ranges, ret_high);
	dwarf_abbrevs_fini(&a);
	return ok;
}

static int by_low(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->low != y->low)
		return x->low < y->low ? -1 : 1;
	return x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* Neighbours of one unit become one: what lies between them is nobody's. */
static void join_spans(struct dwarf *d)
{
	uint32_t n = 0;

	if (!d->nspans)
		return;
	qsort(d->spans, d->nspans, sizeof(*d->spans), by_low);
	for (uint32_t i = 1; i < d->nspans; i++) {
		if (d->spans[i].unit == d->spans[n].unit)
			d->spans[n].high = MAX(d->spans[n].high, d->spans[i].high);
		else
			d->spans[++n] = d->spans[i];
	}
	d->nspans = n + 1;
	d->cap_spans = d->nspans;
	d->spans = mem_check(realloc(d->spans, d->nspans * sizeof(*d->spans)));
}

struct dwarf *dwarf_new(const struct sections *s, const struct elffile *code)
{
	struct dwarf *d;
	uint64_t off = 0, next, high;

	if (!s->of[SECTION_INFO].len || !s->of[SECTION_ABBREV].len)
		return NULL;
	d = mem_calloc(1, sizeof(*d));
	d->work = DWARF_WORK_MAX;
	for (; off < s->of[SECTION_INFO].len; off = next) {
		struct adding a = { d, code, (uint32_t)off };
		struct dwarf_value ranges;
		struct dwarf_unit u;
		bool ok = dwarf_unit_header(s, off, &d->work, &u, &next);

		if (next == DWARF_NONE)
			break;
		if (!ok)
			continue;
		if (!dwarf_spend(&u, UNIT_WORK)) {
			d->skipped++;
			break;
		}
		d->units = mem_grow(d->units, &d->cap_units, d->nunits + 1, sizeof(*d->units));
		d->units[d->nunits++] = u.off;
		if (u.type == DW_UT_partial || !read_root(s, &u, &ranges, &high))
			continue;
		if (ranges.class != DWARF_NOTHING)
			dwarf_each_range(s, &u, &ranges, add_span, &a);
		else if (high > u.low_pc)
			add_span(&a, u.low_pc, high);
	}
	join_spans(d);
	dwarf_refill(d);
	return d;
}

static struct loaded *drop(struct loaded *l)
{
	dwarf_code_fini(&l->code);
	dwarf_lines_fini(&l->lines);
	free(l->names);
	free(l);
	return NULL;
}

struct dwarf *dwarf_free(struct dwarf *d)
{
	if (!d)
		return NULL;
	for (uint32_t i = 0; i < d->nloaded; i++)
		drop(d->loaded[i]);
	for (size_t i = 0; i < TABLES; i++)
		dwarf_abbrevs_fini(&d->tables[i].abbrevs);
	free(d->spans);
	free(d->units);
	free(d->alt_units);
	free(d->loaded);
	free(d);
	return NULL;
}

static size_t loaded_bytes(const struct loaded *l)
{
	return sizeof(*l) + sizeof(l) + l->name_slots * sizeof(*l->names) + dwarf_code_bytes(&l->code) + dwarf_lines_bytes(&l->lines);
}

size_t dwarf_bytes(const struct dwarf *d)
{
	size_t bytes = sizeof(*d) + d->cap_spans * sizeof(*d->spans) + (d->cap_units + d->cap_alt_units) * sizeof(*d->units);

	for (uint32_t i = 0; i < d->nloaded; i++)
		bytes += loaded_bytes(d->loaded[i]);
	for (size_t i = 0; i < TABLES; i++)
		bytes += table_bytes(&d->tables[i]);
	return bytes;
}

static int by_use(const void *a, const void *b)
{
	const struct loaded *x = *(struct loaded *const *)a, *y = *(struct loaded *const *)b;

	return x->used > y->used ? -1 : x->used < y->used;
}

static int by_offset(const void *a, const void *b)
{
	const struct loaded *x = *(struct loaded *const *)a, *y = *(struct loaded *const *)b;

	return x->unit.off < y->unit.off ? -1 : x->unit.off > y->unit.off;
}

/* The units used longest ago give way. */
static void trim(struct dwarf *d)
{
	size_t bytes = 0;
	uint32_t n = 0;

	qsort(d->loaded, d->nloaded, sizeof(struct loaded *), by_use);
	for (uint32_t i = 0; i < d->nloaded; i++) {
		bytes += loaded_bytes(d->loaded[i]);
		if (bytes > DWARF_BYTES_MAX)
			drop(d->loaded[i]);
		else
			d->loaded[n++] = d->loaded[i];
	}
	d->nloaded = n;
	d->loaded_bytes = MIN(bytes, (size_t)DWARF_BYTES_MAX);
	qsort(d->loaded, n, sizeof(struct loaded *), by_offset);
}

void dwarf_refill(struct dwarf *d)
{
	size_t bytes = 0;

	d->work = DWARF_WORK_MAX;
	if (d->nloaded)
		trim(d);
	for (size_t i = 0; i < TABLES; i++)
		bytes += table_bytes(&d->tables[i]);
	for (size_t i = 0; bytes > TABLES_BYTES_MAX && i < TABLES; i++) {
		dwarf_abbrevs_fini(&d->tables[i].abbrevs);
		d->tables[i].used = 0;
	}
}

uint64_t dwarf_skipped(const struct dwarf *d)
{
	return d->skipped;
}

/* Where a unit of this offset is among those loaded, or belongs. */
static uint32_t place_of(const struct dwarf *d, uint32_t off)
{
	uint32_t low = 0, high = d->nloaded;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (d->loaded[mid]->unit.off < off)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* NULL: it cannot be read, or that would be too much now. */
static struct loaded *load(struct dwarf *d, const struct sections *s, const struct elffile *code, uint32_t off)
{
	uint32_t at = place_of(d, off);
	uint64_t before = d->work;
	struct dwarf_value ranges;
	struct dwarf_unit u;
	struct loaded *l;
	uint64_t next, high;

	if (at < d->nloaded && d->loaded[at]->unit.off == off) {
		d->loaded[at]->used = ++d->clock;
		return d->loaded[at];
	}
	if (d->loaded_bytes > DWARF_REQUEST_BYTES_MAX) {
		d->skipped++;
		return NULL;
	}
	if (!dwarf_unit_header(s, off, &d->work, &u, &next) || !read_root(s, &u, &ranges, &high))
		return NULL;
	if (u.end - u.off > d->work) {
		d->skipped++;
		return NULL;
	}
	dwarf_spend(&u, u.end - u.off);
	l = mem_calloc(1, sizeof(*l));
	l->unit = u;
	l->used = ++d->clock;
	dwarf_code_read(&l->code, s, &u, abbrevs_of(d, s, &u, false), code);
	dwarf_lines_read(&l->lines, s, &u, code);
	if (!d->work) {
		d->skipped++;
		/* One that is too much even for a whole request stays as it is, so that nobody tries again. */
		if (before < DWARF_WORK_MAX)
			return drop(l);
		dwarf_code_fini(&l->code);
		dwarf_lines_fini(&l->lines);
	}
	d->loaded_bytes += loaded_bytes(l);
	d->loaded = mem_grow(d->loaded, &d->cap_loaded, d->nloaded + 1, sizeof(struct loaded *));
	memmove(&d->loaded[at + 1], &d->loaded[at], (d->nloaded - at) * sizeof(struct loaded *));
	d->loaded[at] = l;
	d->nloaded++;
	return l;
}

/* ---- names ---- */

/* The unit that a DIE of any unit is in. */
static bool unit_of(struct dwarf *d, const struct sections *in, const uint32_t *units, uint32_t n, uint64_t die,
		    struct dwarf_unit *ret)
{
	uint32_t low = 0, high = n;
	struct dwarf_value ranges;
	uint64_t next, end;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (units[mid] > die)
			high = mid;
		else
			low = mid + 1;
	}
	return low > 0 && dwarf_unit_header(in, units[low - 1], &d->work, ret, &next) && die >= ret->die &&
	       die < ret->end && read_root(in, ret, &ranges, &end);
}

static void find_alt_units(struct dwarf *d, const struct sections *alt)
{
	uint64_t next;

	for (uint64_t off = 0; off < alt->of[SECTION_INFO].len; off = next) {
		struct dwarf_unit u;
		bool ok = dwarf_unit_header(alt, off, &d->work, &u, &next);

		if (next == DWARF_NONE)
			return;
		if (!ok)
			continue;
		d->alt_units = mem_grow(d->alt_units, &d->cap_alt_units, d->nalt_units + 1, sizeof(*d->alt_units));
		d->alt_units[d->nalt_units++] = u.off;
	}
}

/* What a DIE tells of a function. */
struct naming {
	struct dwarf_ref linkage, name;
	uint32_t start_line;
	uint64_t more;		/* the DIE that tells the rest; DWARF_NONE */
};

static bool read_naming(struct dwarf *d, const struct sections *s, const struct dwarf_unit *u, uint64_t die,
			bool is_alt, struct naming *n)
{
	struct cursor c = cursor_at(s->of[SECTION_INFO], die);
	const struct dwarf_abbrevs *a = abbrevs_of(d, s, u, is_alt);
	const struct dwarf_abbrev *abbrev;
	struct dwarf_value v;

	n->more = DWARF_NONE;
	if (!c.p)
		return false;
	c.end = s->of[SECTION_INFO].p + u->end;
	abbrev = dwarf_abbrevs_find(a, cursor_uleb(&c));
	if (!abbrev || !dwarf_spend(u, abbrev->n))
		return false;
	for (uint32_t i = 0; i < abbrev->n && c.p; i++) {
		const struct dwarf_spec *spec = &a->specs[abbrev->first + i];

		dwarf_value(s, u, spec, &c, &v);
		/* What the other file says of itself is of the other file for us. */
		if (is_alt && v.class == DWARF_REFERENCE)
			v.u |= DWARF_ALT;
		if (is_alt && v.text.section < SECTION_COUNT)
			v.text.section += SECTION_ALT;
		switch (spec->at) {
		case DW_AT_linkage_name:
		case DW_AT_MIPS_linkage_name:
			if (n->linkage.section == SECTION_NONE)
				n->linkage = v.text;
			break;
		case DW_AT_name:
			if (n->name.section == SECTION_NONE)
				n->name = v.text;
			break;
		case DW_AT_decl_line:
			if (!n->start_line && v.u <= UINT32_MAX)
				n->start_line = (uint32_t)v.u;
			break;
		case DW_AT_abstract_origin:
		case DW_AT_specification:
			if (v.class == DWARF_REFERENCE)
				n->more = v.u;
			break;
		default:
			break;
		}
	}
	return c.p != NULL;
}

static void name_die(struct dwarf *d, const struct sections *s, const struct dwarf_unit *u, uint64_t die,
		     struct named *ret)
{
	struct naming n = { .linkage.section = SECTION_NONE, .name.section = SECTION_NONE };
	const struct sections *in = s;
	struct dwarf_unit other;

	for (int hop = 0; hop < HOPS_MAX && die != DWARF_NONE && n.linkage.section == SECTION_NONE; hop++) {
		uint64_t off = die & ~DWARF_ALT;
		bool was_alt = in != s;

		in = die & DWARF_ALT ? s->alt : s;
		if (!in)
			break;
		if (in == s->alt && !d->nalt_units)
			find_alt_units(d, in);
		if (was_alt != (in != s) || off < u->die || off >= u->end) {
			bool found = in == s ? unit_of(d, in, d->units, d->nunits, off, &other) :
					       unit_of(d, in, d->alt_units, d->nalt_units, off, &other);

			if (!found)
				break;
			u = &other;
		}
		if (!read_naming(d, in, u, off, in != s, &n))
			break;
		die = n.more;
	}
	ret->name = n.linkage.section != SECTION_NONE ? n.linkage : n.name;
	ret->start_line = n.start_line;
}

/* The slot of an entry, or the free one where it belongs. */
static struct named *name_slot(struct named *names, uint32_t nslots, uint32_t entry)
{
	uint32_t i = (uint32_t)((entry + 1) * 0x9e3779b1u) & (nslots - 1);

	while (names[i].entry && names[i].entry != entry + 1)
		i = (i + 1) & (nslots - 1);
	return &names[i];
}

static void grow_names(struct loaded *l)
{
	uint32_t nslots = l->name_slots ? 2 * l->name_slots : 16;
	struct named *names = mem_calloc(nslots, sizeof(*names));

	for (uint32_t i = 0; i < l->name_slots; i++)
		if (l->names[i].entry)
			*name_slot(names, nslots, l->names[i].entry - 1) = l->names[i];
	free(l->names);
	l->names = names;
	l->name_slots = nslots;
}

/* Valid until the next call. */
static const struct named *name_entry(struct dwarf *d, const struct sections *s, struct loaded *l, uint32_t entry)
{
	struct named *slot;

	if (2 * (l->nnames + 1) > l->name_slots)
		grow_names(l);
	slot = name_slot(l->names, l->name_slots, entry);
	if (!slot->entry) {
		name_die(d, s, &l->unit, l->code.entries[entry].die, slot);
		if (!d->work) {
			/* It may be half of a name: the slot stays free. */
			d->skipped++;
			slot->name.section = SECTION_NONE;
			slot->start_line = 0;
			return slot;
		}
		slot->entry = entry + 1;
		l->nnames++;
	}
	return slot;
}

/* ---- lines ---- */

static uint32_t lines_of(struct dwarf *d, const struct sections *s, struct loaded *l, uint64_t vaddr,
			 struct srcline ret[DWARF_LINES_MAX])
{
	uint32_t entry = dwarf_code_find(&l->code, vaddr), file = 0, line = 0, n = 0;
	bool has_line = dwarf_lines_find(&l->lines, vaddr, &file, &line);
	struct bytes path = { NULL, 0 };

	if (has_line)
		path = dwarf_lines_path(&l->lines, s, &l->unit, file);
	while (entry < l->code.nentries) {
		const struct dwarf_entry *e = &l->code.entries[entry];
		const struct named *named = name_entry(d, s, l, entry);

		/* Of what is inlined too deep, the outermost counts. */
		if (n == DWARF_LINES_MAX)
			n--;
		ret[n++] = (struct srcline){ dwarf_text(s, named->name), path, line, named->start_line, false };
		path = dwarf_lines_path(&l->lines, s, &l->unit, e->call_file);
		line = e->call_line;
		entry = e->parent;
	}
	if (!n && has_line)
		ret[n++] = (struct srcline){ { NULL, 0 }, path, line, 0, false };
	return n;
}

uint32_t dwarf_lines(struct dwarf *d, const struct sections *s, const struct elffile *code, uint64_t vaddr,
		     struct srcline ret[DWARF_LINES_MAX])
{
	uint32_t low = 0, high = d->nspans, n = 0;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (d->spans[mid].low > vaddr)
			high = mid;
		else
			low = mid + 1;
	}
	for (uint32_t i = 0; i < CANDIDATES && low > i && !n; i++) {
		const struct span *span = &d->spans[low - 1 - i];
		struct loaded *l;

		if (vaddr >= span->high)
			continue;
		l = load(d, s, code, span->unit);
		if (l)
			n = lines_of(d, s, l, vaddr, ret);
	}
	return n;
}
