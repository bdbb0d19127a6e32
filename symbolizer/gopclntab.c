#include "symbolizer/gopclntab.h"

#include <elf.h>
#include <string.h>

#include "symbolizer/mem.h"
#include "symbolizer/symtab.h"

#define SCAN_BYTES_MAX (256ull << 20)	/* of segments that are searched for a header or a moduledata */

enum {
	HEADER_WORDS = 9,
	FUNCS_MAX = 1 << 24,
	CANDIDATES_MAX = 8,	/* places that could be the moduledata */
	RELAS_MAX = 4 << 20,

	PCDATA_INL_TREE_INDEX = 2,
	FUNCDATA_INL_TREE = 3,

	/* struct runtime.moduledata: pcHeader, funcnametab, ... */
	MODULE_NAMES = 0x08,
	MODULE_TEXT = 0xb0,
	MODULE_GOFUNC_118 = 0x130,
	MODULE_GOFUNC_120 = 0x140,
};

enum version { GO_116, GO_118, GO_120 };

struct gopclntab {
	const struct elffile *file;
	struct bytes data;	/* from the header to the end of its section or segment */
	uint64_t vaddr;
	uint64_t text;		/* what addresses are relative to; 0 in GO_116 */
	uint64_t gofunc;	/* what inline trees are relative to, 0 unknown */
	enum version version;
	uint32_t nfuncs;
	uint64_t names, units, files, values, funcs;	/* offsets in data */
	uint64_t steps_left;
};

static bool get_u32(struct bytes b, uint64_t off, uint32_t *ret)
{
	if (off > b.len || b.len - off < sizeof(*ret))
		return false;
	memcpy(ret, b.p + off, sizeof(*ret));
	return true;
}

static bool get_u64(struct bytes b, uint64_t off, uint64_t *ret)
{
	if (off > b.len || b.len - off < sizeof(*ret))
		return false;
	memcpy(ret, b.p + off, sizeof(*ret));
	return true;
}

static struct bytes string_at(const struct gopclntab *t, uint64_t table, uint32_t off)
{
	uint64_t at = table + off;
	size_t max;

	if (at >= t->data.len)
		return (struct bytes){ NULL, 0 };
	max = MIN(t->data.len - at, (size_t)SYMTAB_NAME_MAX);
	return (struct bytes){ t->data.p + at, strnlen((const char *)t->data.p + at, max) };
}

/* ---- the list of functions ---- */

/* Entry i of nfuncs + 1: the last one only tells where the code ends. */
static bool read_entry(const struct gopclntab *t, uint32_t i, uint64_t *ret_start, uint64_t *ret_info)
{
	uint64_t start, info;
	uint32_t start32, info32 = 0;

	if (t->version == GO_116) {
		info = 0;
		if (!get_u64(t->data, t->funcs + 16ull * i, &start) ||
		    (i < t->nfuncs && !get_u64(t->data, t->funcs + 16ull * i + 8, &info)))
			return false;
	} else {
		if (!get_u32(t->data, t->funcs + 8ull * i, &start32) ||
		    (i < t->nfuncs && !get_u32(t->data, t->funcs + 8ull * i + 4, &info32)))
			return false;
		info = info32;
		start = t->text + start32;
	}
	if (info > t->data.len)
		return false;
	*ret_start = start;
	*ret_info = t->funcs + info;
	return true;
}

/* Fields of struct runtime._func: their offsets since Go 1.18. */
enum {
	FUNC_NAME = 4,
	FUNC_PCSP = 16,
	FUNC_PCFILE = 20,
	FUNC_PCLN = 24,
	FUNC_NPCDATA = 28,
	FUNC_UNIT = 32,
	FUNC_START_LINE = 36,
};

static bool read_field(const struct gopclntab *t, uint64_t info, uint32_t off, uint32_t *ret)
{
	return get_u32(t->data, info + off + (t->version == GO_116 ? 4 : 0), ret);
}

/* Where the offsets of pcdata begin; those of funcdata follow them. */
static uint64_t func_end(const struct gopclntab *t, uint64_t info)
{
	return info + (t->version == GO_118 ? 40 : 44);
}

bool gopclntab_find(const struct gopclntab *t, uint64_t vaddr, struct gofunc *ret)
{
	uint32_t low = 0, high = t->nfuncs + 1, name, line = 0;
	uint64_t start, end, info, ignored;

	/* The number of entries at or before the address; a list out of order finds nothing or its like. */
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (!read_entry(t, mid, &start, &ignored))
			return false;
		if (start <= vaddr)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == 0 || low > t->nfuncs || !read_entry(t, low - 1, &start, &info) ||
	    !read_entry(t, low, &end, &ignored) || vaddr < start || vaddr >= end ||
	    !read_field(t, info, FUNC_NAME, &name))
		return false;
	if (t->version == GO_120 && (!read_field(t, info, FUNC_START_LINE, &line) || line > INT32_MAX))
		line = 0;
	*ret = (struct gofunc){ start, end, string_at(t, t->names, name), line, info };
	return true;
}

bool gopclntab_named(const struct gopclntab *t, const char *name, struct gofunc *ret)
{
	size_t len = strlen(name);
	uint64_t start, info;
	struct bytes found;
	uint32_t off;

	for (uint32_t i = 0; i < t->nfuncs; i++) {
		if (!read_entry(t, i, &start, &info) || !read_field(t, info, FUNC_NAME, &off))
			return false;
		found = string_at(t, t->names, off);
		if (found.len >= len && memcmp(found.p, name, len) == 0 &&
		    (found.len == len || (found.len == len + 5 && memcmp(found.p + len, ".abi0", 5) == 0)))
			return gopclntab_find(t, start, ret);
	}
	return false;
}

/* ---- tables of values by address ---- */

static bool read_varint(struct bufr *r, uint32_t *ret)
{
	enum { BITS = 7, BYTES_MAX = 5 };
	uint32_t v = 0;

	for (unsigned int i = 0; i < BYTES_MAX; i++) {
		uint8_t b = bufr_u8(r);

		v |= (uint32_t)(b & 0x7f) << (i * BITS);
		if (b & 0x80)
			continue;
		*ret = v;
		return !bufr_err(r);
	}
	return false;
}

/* Pairs of differences, each to the pair before: value (zigzag), address. */
struct values {
	struct gopclntab *t;
	struct bufr r;
	uint64_t end;		/* of the function */
	uint64_t low, high;	/* addresses that have this value */
	int32_t value;
};

/* False: the function has no such table. */
static bool values_init(struct values *v, struct gopclntab *t, const struct gofunc *fn, uint32_t table)
{
	uint64_t at = t->values + table;

	if (!table || at >= t->funcs)
		return false;
	*v = (struct values){ .t = t, .end = fn->end, .low = fn->start, .high = fn->start, .value = -1 };
	bufr_init(&v->r, t->data.p + at, t->funcs - at);
	return true;
}

static bool values_next(struct values *v, bool is_first)
{
	uint32_t delta, pc;

	if (!v->t->steps_left || v->high >= v->end || !read_varint(&v->r, &delta) || (!delta && !is_first) ||
	    !read_varint(&v->r, &pc) || !pc)
		return false;
	v->t->steps_left--;
	v->value = (int32_t)((uint32_t)v->value + (delta & 1 ? ~(delta >> 1) : delta >> 1));
	v->low = v->high;
	v->high += MIN((uint64_t)pc, v->end - v->low);
	return true;
}

/* -1, which no table has for something that is there, where there is none. */
static int32_t value_at(struct gopclntab *t, const struct gofunc *fn, uint32_t table, uint64_t vaddr)
{
	struct values v;

	if (!values_init(&v, t, fn, table))
		return -1;
	for (bool more = values_next(&v, true); more; more = values_next(&v, false))
		if (vaddr < v.high)
			return v.value;
	return -1;
}

void gopclntab_each_depth(struct gopclntab *t, const struct gofunc *fn, gopclntab_depth_fn *visit, void *arg)
{
	struct values v;
	uint32_t table;

	if (!read_field(t, fn->info, FUNC_PCSP, &table) || !values_init(&v, t, fn, table))
		return;
	for (bool more = values_next(&v, true); more; more = values_next(&v, false))
		if (v.value < 0 || v.value % 8 || !visit(arg, v.low, v.high, (uint32_t)v.value))
			return;
}

/* ---- files, lines, inlined calls ---- */

static void read_place(struct gopclntab *t, const struct gofunc *fn, uint64_t vaddr, struct srcline *ret)
{
	uint32_t files, lines, unit, off;
	int32_t value;

	if (!read_field(t, fn->info, FUNC_PCFILE, &files) || !read_field(t, fn->info, FUNC_PCLN, &lines) ||
	    !read_field(t, fn->info, FUNC_UNIT, &unit))
		return;
	value = value_at(t, fn, lines, vaddr);
	ret->line = value > 0 ? (uint32_t)value : 0;
	value = value_at(t, fn, files, vaddr);
	if (value >= 0 && get_u32(t->data, t->units + 4 * ((uint64_t)unit + (uint32_t)value), &off) &&
	    off != UINT32_MAX)
		ret->file = string_at(t, t->files, off);
}

struct inlined {
	struct bytes name;
	uint32_t parent_pc;	/* from the function's start: an instruction that stands for the call */
	uint32_t start_line;
};

/* Where the function's inline tree is; empty: it has none. */
static struct bytes inline_tree(const struct gopclntab *t, const struct gofunc *fn, uint32_t npcdata)
{
	uint64_t at = func_end(t, fn->info), tree;
	uint32_t off;

	if (!t->gofunc || at > t->data.len || !at || t->data.p[at - 1] <= FUNCDATA_INL_TREE ||
	    !get_u32(t->data, at + 4 * ((uint64_t)npcdata + FUNCDATA_INL_TREE), &off) || off == UINT32_MAX ||
	    __builtin_add_overflow(t->gofunc, off, &tree))
		return (struct bytes){ NULL, 0 };
	return elffile_at(t->file, tree);
}

static bool read_inlined(const struct gopclntab *t, struct bytes tree, uint32_t i, struct inlined *ret)
{
	/* struct runtime.inlinedCall */
	uint64_t at = (t->version == GO_120 ? 16ull : 20ull) * i;
	uint32_t name, parent_pc, line = 0;

	if (!get_u32(tree, at + (t->version == GO_120 ? 4 : 12), &name) ||
	    !get_u32(tree, at + (t->version == GO_120 ? 8 : 16), &parent_pc) ||
	    (t->version == GO_120 && !get_u32(tree, at + 12, &line)))
		return false;
	*ret = (struct inlined){ string_at(t, t->names, name), parent_pc, line > INT32_MAX ? 0 : line };
	return ret->name.len > 0;
}

uint32_t gopclntab_lines(struct gopclntab *t, const struct gofunc *fn, uint64_t vaddr,
			 struct srcline ret[GOPCLNTAB_LINES_MAX])
{
	uint32_t n = 0, npcdata = 0, table = 0;
	struct bytes tree = { NULL, 0 };

	if (read_field(t, fn->info, FUNC_NPCDATA, &npcdata) && npcdata > PCDATA_INL_TREE_INDEX &&
	    get_u32(t->data, func_end(t, fn->info) + 4 * PCDATA_INL_TREE_INDEX, &table))
		tree = inline_tree(t, fn, npcdata);
	while (tree.len && n < GOPCLNTAB_LINES_MAX - 1) {
		int32_t i = value_at(t, fn, table, vaddr);
		struct inlined in;

		if (i < 0 || !read_inlined(t, tree, (uint32_t)i, &in) || in.parent_pc >= fn->end - fn->start)
			break;
		ret[n] = (struct srcline){ .name = in.name, .start_line = in.start_line };
		read_place(t, fn, vaddr, &ret[n++]);
		vaddr = fn->start + in.parent_pc;
	}
	ret[n] = (struct srcline){ .name = fn->name, .start_line = fn->start_line };
	read_place(t, fn, vaddr, &ret[n]);
	return n + 1;
}

/* ---- finding it ---- */

/* The first word of a header: magic, two zeroes, instructions of 1 byte, pointers of 8. */
static bool read_version(uint64_t word, enum version *ret)
{
	switch (word) {
	case 0x08010000fffffffa:
		*ret = GO_116;
		return true;
	case 0x08010000fffffff0:
		*ret = GO_118;
		return true;
	case 0x08010000fffffff1:
		*ret = GO_120;
		return true;
	default:
		return false;
	}
}

static bool read_header(struct gopclntab *t, struct bytes data, uint64_t *ret_text)
{
	uint64_t words[HEADER_WORDS], first, last, ignored;
	const uint64_t *offsets;

	if (data.len < sizeof(words))
		return false;
	memcpy(words, data.p, sizeof(words));
	if (!read_version(words[0], &t->version))
		return false;
	/* nfunc, nfiles, since Go 1.18 textStart, then where the tables are, in the linker's order */
	offsets = words + (t->version == GO_116 ? 3 : 4);
	if (!words[1] || words[1] > FUNCS_MAX || offsets[0] > offsets[1] || offsets[1] > offsets[2] ||
	    offsets[2] > offsets[3] || offsets[3] > offsets[4] || offsets[4] > data.len)
		return false;
	t->data = data;
	t->nfuncs = (uint32_t)words[1];
	t->names = offsets[0];
	t->units = offsets[1];
	t->files = offsets[2];
	t->values = offsets[3];
	t->funcs = offsets[4];
	if (!read_entry(t, 0, &first, &ignored) || !read_entry(t, t->nfuncs, &last, &ignored) || first >= last)
		return false;
	*ret_text = t->version == GO_116 ? 0 : words[3];
	return true;
}

/* The next place at or after `from` that could be a header, UINT64_MAX for none. */
static uint64_t next_magic(struct bytes data, uint64_t from)
{
	enum version ignored;
	uint64_t word;

	for (uint64_t at = from; get_u64(data, at, &word); at += 8)
		if (read_version(word, &ignored))
			return at;
	return UINT64_MAX;
}

static struct bytes segment_bytes(const struct elffile *f, const struct msg_segment *s)
{
	struct bytes b = elffile_at(f, s->vaddr);

	b.len = MIN(b.len, (size_t)SCAN_BYTES_MAX);
	return b;
}

static bool search_header(struct gopclntab *t, uint64_t *ret_text)
{
	const struct elffile *f = t->file;

	for (uint32_t i = 0; i < f->nsegments; i++) {
		const struct msg_segment *s = &f->segments[i];
		struct bytes b = segment_bytes(f, s);

		for (uint64_t at = 0; (at = next_magic(b, at)) != UINT64_MAX; at += 8) {
			if (!read_header(t, elffile_at(f, s->vaddr + at), ret_text))
				continue;
			t->vaddr = s->vaddr + at;
			return true;
		}
	}
	return false;
}

static bool find_header(struct gopclntab *t, uint64_t *ret_text)
{
	static const char *const names[] = { ".gopclntab", ".data.rel.ro.gopclntab" };
	struct elf_section s;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (elffile_section(t->file, names[i], &s) < 0 || !read_header(t, s.data, ret_text))
			continue;
		t->vaddr = s.vaddr;
		return true;
	}
	return search_header(t, ret_text);
}

/* ---- the runtime's moduledata ---- */

static uint64_t gofunc_offset(const struct gopclntab *t)
{
	return t->version == GO_120 ? MODULE_GOFUNC_120 : MODULE_GOFUNC_118;
}

/* Where pointers stand in the file as they are. */
static bool search_module(struct gopclntab *t)
{
	for (uint32_t i = 0; i < t->file->nsegments; i++) {
		const struct msg_segment *s = &t->file->segments[i];
		struct bytes b = segment_bytes(t->file, s);
		uint64_t word, names, text, gofunc;

		if (!(s->flags & PF_W))
			continue;
		for (uint64_t at = 0; get_u64(b, at, &word); at += 8) {
			if (word != t->vaddr || !get_u64(b, at + MODULE_NAMES, &names) ||
			    names != t->vaddr + t->names || !get_u64(b, at + MODULE_TEXT, &text) ||
			    !get_u64(b, at + gofunc_offset(t), &gofunc) || !elffile_is_code(t->file, text))
				continue;
			t->text = text;
			t->gofunc = gofunc;
			return true;
		}
	}
	return false;
}

struct candidate {
	uint64_t vaddr, names, text, gofunc;
};

/* Where they are filled in when the program is loaded: the relocations have them. */
static bool search_module_in(struct gopclntab *t, struct bytes relas)
{
	struct candidate candidates[CANDIDATES_MAX];
	uint64_t n = MIN(relas.len / sizeof(Elf64_Rela), (uint64_t)RELAS_MAX);
	uint32_t ncandidates = 0;
	Elf64_Rela rela;

	for (uint64_t i = 0; i < n && ncandidates < CANDIDATES_MAX; i++) {
		memcpy(&rela, relas.p + i * sizeof(rela), sizeof(rela));
		if ((uint64_t)rela.r_addend == t->vaddr && ELF64_R_TYPE(rela.r_info) == R_X86_64_RELATIVE)
			candidates[ncandidates++] = (struct candidate){ .vaddr = rela.r_offset };
	}
	for (uint64_t i = 0; i < n && ncandidates; i++) {
		memcpy(&rela, relas.p + i * sizeof(rela), sizeof(rela));
		for (uint32_t k = 0; k < ncandidates; k++) {
			struct candidate *c = &candidates[k];
			uint64_t field = rela.r_offset - c->vaddr;

			if (field == MODULE_NAMES)
				c->names = (uint64_t)rela.r_addend;
			else if (field == MODULE_TEXT)
				c->text = (uint64_t)rela.r_addend;
			else if (field == gofunc_offset(t))
				c->gofunc = (uint64_t)rela.r_addend;
		}
	}
	for (uint32_t k = 0; k < ncandidates; k++) {
		if (candidates[k].names != t->vaddr + t->names || !elffile_is_code(t->file, candidates[k].text))
			continue;
		t->text = candidates[k].text;
		t->gofunc = candidates[k].gofunc;
		return true;
	}
	return false;
}

static bool find_module(struct gopclntab *t)
{
	static const char *const names[] = { ".rela.dyn", ".rela" };
	struct elf_section s;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (elffile_section(t->file, names[i], &s) == 0 && s.type == SHT_RELA && search_module_in(t, s.data))
			return true;
	return search_module(t);
}

struct gopclntab *gopclntab_new(const struct elffile *f)
{
	CLEANUP(gopclntab_freep) struct gopclntab *t = NULL;
	uint64_t text = 0;

	if (!f->is_go)
		return NULL;
	t = mem_calloc(1, sizeof(*t));
	t->file = f;
	gopclntab_refill(t);
	if (!find_header(t, &text))
		return NULL;
	/* Since Go 1.26 the header does not tell, and in a PIE it may be filled in by a relocation. */
	if (t->version != GO_116 && !find_module(t)) {
		t->text = text;
		if (!elffile_is_code(f, text))
			return NULL;
	}
	return TAKE(t);
}

struct gopclntab *gopclntab_free(struct gopclntab *t)
{
	free(t);
	return NULL;
}

void gopclntab_refill(struct gopclntab *t)
{
	t->steps_left = GOPCLNTAB_STEPS_MAX;
}
