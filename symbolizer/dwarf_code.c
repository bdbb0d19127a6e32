#include "symbolizer/dwarf_code.h"

#include <string.h>

#include "symbolizer/mem.h"

#define NO_ENTRY UINT32_MAX
#define DROPPED (UINT32_MAX - 1)

/* A range of an entry. */
struct piece {
	uint64_t low, high;
	uint32_t entry;
};

struct reading {
	const struct sections *s;
	const struct dwarf_unit *unit;
	const struct dwarf_abbrevs *abbrevs;
	const struct elffile *code;
	struct dwarf_code *to;
	struct piece *pieces;
	uint32_t npieces, cap_pieces;
	/* The DIE at hand. */
	uint32_t entry;
	bool failed;
};

static bool add_piece(void *arg, uint64_t low, uint64_t high)
{
	struct reading *r = arg;

	if (!elffile_is_code(r->code, low))
		return true;
	r->failed |= r->npieces == DWARF_PIECES_MAX;
	if (r->failed)
		return false;
	r->pieces = mem_grow(r->pieces, &r->cap_pieces, r->npieces + 1, sizeof(*r->pieces));
	r->pieces[r->npieces++] = (struct piece){ low, high, r->entry };
	return true;
}

/* What a DIE of code says of itself. */
struct facts {
	struct dwarf_value low, high, ranges;
	uint32_t call_file, call_line;
};

static void read_facts(const struct reading *r, const struct dwarf_abbrev *abbrev, struct cursor *c, struct facts *ret)
{
	struct dwarf_value v;

	*ret = (struct facts){ 0 };
	if (!dwarf_spend(r->unit, abbrev->n))
		c->p = NULL;
	for (uint32_t i = 0; i < abbrev->n && c->p; i++) {
		const struct dwarf_spec *spec = &r->abbrevs->specs[abbrev->first + i];

		switch (spec->at) {
		case DW_AT_low_pc:
		case DW_AT_high_pc:
		case DW_AT_ranges:
		case DW_AT_call_file:
		case DW_AT_call_line:
			dwarf_value(r->s, r->unit, spec, c, &v);
			break;
		default:
			dwarf_skip_one(r->s, r->unit, spec, c);
			continue;
		}
		switch (spec->at) {
		case DW_AT_low_pc: ret->low = v; break;
		case DW_AT_high_pc: ret->high = v; break;
		case DW_AT_ranges: ret->ranges = v; break;
		case DW_AT_call_file: ret->call_file = v.u <= UINT32_MAX ? (uint32_t)v.u : 0; break;
		default: ret->call_line = v.u <= UINT32_MAX ? (uint32_t)v.u : 0; break;
		}
	}
}

/* An entry for this DIE within `parent`; DROPPED where it has no code. */
static uint32_t add_entry(struct reading *r, uint32_t die, uint32_t parent, const struct facts *f)
{
	struct dwarf_code *to = r->to;
	uint32_t before = r->npieces;
	uint64_t high;

	r->entry = to->nentries;
	if (f->ranges.class != DWARF_NOTHING) {
		dwarf_each_range(r->s, r->unit, &f->ranges, add_piece, r);
	} else if (f->low.class == DWARF_ADDRESS) {
		high = f->high.class == DWARF_ADDRESS ? f->high.u : f->low.u + f->high.u;
		if (f->high.class != DWARF_NOTHING && high > f->low.u)
			add_piece(r, f->low.u, high);
	}
	if (r->npieces == before)
		return DROPPED;
	to->entries = mem_grow(to->entries, &to->cap_entries, to->nentries + 1, sizeof(*to->entries));
	to->entries[to->nentries] = (struct dwarf_entry){ .parent = parent, .die = die,
							  .call_file = f->call_file, .call_line = f->call_line };
	return to->nentries++;
}

/* The DIE's entry, into which what its children are is inlined. */
static uint32_t read_code(struct reading *r, uint32_t die, const struct dwarf_abbrev *abbrev, struct cursor *c,
			  uint32_t in)
{
	bool is_inlined = abbrev->tag == DW_TAG_inlined_subroutine;
	struct facts f;

	read_facts(r, abbrev, c, &f);
	if (is_inlined && in >= DROPPED)
		return DROPPED;
	return add_entry(r, die, is_inlined ? in : NO_ENTRY, &f);
}

static void walk(struct reading *r)
{
	struct bytes info = r->s->of[SECTION_INFO];
	struct cursor c = { info.p + r->unit->die, info.p + r->unit->end };
	uint32_t in[DWARF_DEPTH_MAX] = { NO_ENTRY }, depth = 0;

	while (c.p && c.p < c.end && !r->failed) {
		uint32_t die = (uint32_t)(c.p - info.p);
		uint64_t code = *c.p < 0x80 ? *c.p++ : cursor_uleb(&c);
		const struct dwarf_abbrev *abbrev;
		uint32_t own;

		if (!code) {
			/* Units end with their first DIE's children, or in padding. */
			if (depth <= 1)
				return;
			depth--;
			continue;
		}
		abbrev = dwarf_abbrevs_find(r->abbrevs, code);
		if (!abbrev)
			break;
		own = in[depth];
		if (abbrev->has_code && (abbrev->tag == DW_TAG_subprogram || abbrev->tag == DW_TAG_inlined_subroutine))
			own = read_code(r, die, abbrev, &c, own);
		else
			dwarf_skip(r->s, r->unit, r->abbrevs, abbrev, &c);
		if (!abbrev->has_children)
			continue;
		if (++depth == DWARF_DEPTH_MAX)
			break;
		in[depth] = own;
	}
	r->failed |= !c.p || depth > 0;
}

/* ---- which is the innermost ---- */

/* Where a piece begins or ends. */
struct event {
	uint64_t key;		/* twice the address, from the unit's base on; ends before begins */
	uint32_t entry;
};

/* By key, in the order in which they are among equals: a radix sort over the bits that there are. */
static void sort_events(struct event **events, uint32_t n, uint64_t highest)
{
	enum { BITS = 11, NBUCKETS = 1 << BITS };
	struct event *from = *events, *to = mem_calloc(n, sizeof(*to)), *swap;

	for (unsigned int shift = 0; shift < 64 && highest >> shift; shift += BITS) {
		uint32_t next[NBUCKETS] = { 0 }, sum = 0;

		for (uint32_t i = 0; i < n; i++)
			next[from[i].key >> shift & (NBUCKETS - 1)]++;
		for (uint32_t i = 0; i < NBUCKETS; i++) {
			uint32_t count = next[i];

			next[i] = sum;
			sum += count;
		}
		for (uint32_t i = 0; i < n; i++)
			to[next[from[i].key >> shift & (NBUCKETS - 1)]++] = from[i];
		swap = from;
		from = to;
		to = swap;
	}
	free(to);
	*events = from;
}

static void add_mark(struct dwarf_code *to, uint64_t off, uint32_t entry)
{
	const struct dwarf_mark *last = to->nmarks ? &to->marks[to->nmarks - 1] : NULL;

	if (last && last->entry == entry)
		return;
	to->marks = mem_grow(to->marks, &to->cap_marks, to->nmarks + 1, sizeof(*to->marks));
	to->marks[to->nmarks++] = (struct dwarf_mark){ (uint32_t)off, entry };
}

/* The entries that a place is in, in the order of their DIEs. */
struct around {
	uint32_t in[DWARF_DEPTH_MAX];
	uint32_t n;
};

static void enter(struct around *a, uint32_t entry)
{
	uint32_t at = a->n;

	if (a->n == DWARF_DEPTH_MAX)
		return;
	while (at > 0 && a->in[at - 1] > entry)
		at--;
	memmove(&a->in[at + 1], &a->in[at], (a->n - at) * sizeof(a->in[0]));
	a->in[at] = entry;
	a->n++;
}

static void leave(struct around *a, uint32_t entry)
{
	for (uint32_t i = a->n; i > 0; i--) {
		if (a->in[i - 1] != entry)
			continue;
		memmove(&a->in[i - 1], &a->in[i], (a->n - i) * sizeof(a->in[0]));
		a->n--;
		return;
	}
}

/* Where several that are inlined into one overlap, as compilers have it, the first one counts. */
static uint32_t innermost(const struct dwarf_code *to, const struct around *a)
{
	uint32_t entry = NO_ENTRY;

	for (uint32_t i = 0; i < a->n; i++)
		if (to->entries[a->in[i]].parent == entry)
			entry = a->in[i];
	return entry;
}

static void make_marks(struct reading *r)
{
	struct dwarf_code *to = r->to;
	struct around around = { .n = 0 };
	uint64_t low = UINT64_MAX, highest = 0;
	struct event *events;
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->npieces; i++)
		low = MIN(low, r->pieces[i].low);
	to->base = low;
	events = mem_calloc(2ul * r->npieces, sizeof(*events));
	for (uint32_t i = 0; i < r->npieces; i++) {
		const struct piece *p = &r->pieces[i];

		if (p->high - low > UINT32_MAX)
			continue;
		events[n++] = (struct event){ (p->low - low) * 2 + 1, p->entry };
		events[n++] = (struct event){ (p->high - low) * 2, p->entry };
		highest = MAX(highest, (p->high - low) * 2);
	}
	sort_events(&events, n, highest);
	for (uint32_t i = 0; i < n; i++) {
		if (events[i].key & 1)
			enter(&around, events[i].entry);
		else
			leave(&around, events[i].entry);
		if (i + 1 == n || events[i + 1].key >> 1 != events[i].key >> 1)
			add_mark(to, events[i].key >> 1, innermost(to, &around));
	}
	free(events);
}

/* To what is used: it stays for long. */
static void shrink(struct dwarf_code *c)
{
	c->cap_entries = c->nentries;
	c->cap_marks = c->nmarks;
	c->entries = mem_check(reallocarray(c->entries, MAX(c->nentries, 1u), sizeof(*c->entries)));
	c->marks = mem_check(reallocarray(c->marks, MAX(c->nmarks, 1u), sizeof(*c->marks)));
}

void dwarf_code_read(struct dwarf_code *ret, const struct sections *s, const struct dwarf_unit *u,
		     const struct dwarf_abbrevs *a, const struct elffile *code)
{
	struct reading r = { .s = s, .unit = u, .abbrevs = a, .code = code, .to = ret };

	*ret = (struct dwarf_code){ 0 };
	walk(&r);
	/* Half a list would give an outer function's name to an inner one's code. */
	if (r.failed) {
		dwarf_code_fini(ret);
	} else if (r.npieces) {
		make_marks(&r);
		shrink(ret);
	}
	free(r.pieces);
}

void dwarf_code_fini(struct dwarf_code *c)
{
	free(c->entries);
	free(c->marks);
	*c = (struct dwarf_code){ 0 };
}

uint32_t dwarf_code_find(const struct dwarf_code *c, uint64_t vaddr)
{
	uint32_t low = 0, high = c->nmarks;
	uint64_t off = vaddr - c->base;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (c->marks[mid].off > off)
			high = mid;
		else
			low = mid + 1;
	}
	return vaddr >= c->base && low > 0 ? c->marks[low - 1].entry : NO_ENTRY;
}

size_t dwarf_code_bytes(const struct dwarf_code *c)
{
	return c->cap_entries * sizeof(*c->entries) + c->cap_marks * sizeof(*c->marks);
}
