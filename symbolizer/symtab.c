#include "symbolizer/symtab.h"

#include <elf.h>
#include <string.h>

#include "symbolizer/mem.h"
#include "symbolizer/minidebug.h"

enum {
	SYM_FUNCTION = 1u << 31,
	SYM_SIZED = 1u << 30,
	SYM_GLOBAL = 1u << 29,
	SYM_WEAK = 1u << 28,
	SYM_SIZE = SYM_WEAK - 1,	/* the bits of the size */

	ENCLOSING_MAX = 64,	/* symbols before an address that may enclose it */
	UNDERSCORES_MAX = 16,
};

#define NAME_OWN (1u << 31)	/* in a name: it stands in the table's own strings */

struct sym {
	uint32_t rel;		/* address, relative to the table's base */
	uint32_t bits;		/* SYM_*, size */
	uint32_t name;
};

struct symtab {
	uint64_t base;
	uint32_t nsyms, cap;
	struct sym *syms;
	uint32_t strings;	/* section index */
	bool is_of_debug;
	uint8_t *own;		/* strings of MiniDebugInfo */
	size_t own_len;
};

struct section_end {
	uint64_t vaddr;
	bool is_code;
};

struct collect {
	const struct elffile *file, *code;	/* that the symbols are in, and are about */
	struct symtab *t;
	uint32_t own;		/* NAME_OWN or 0 */
	struct section_end *sections;
	uint32_t nsections;
};

static void read_sections(struct collect *c)
{
	struct elf_section s;
	size_t n;

	if (elf_getshdrnum(c->file->elf, &n) < 0 || n > ELFFILE_SECTIONS_MAX)
		return;
	c->nsections = (uint32_t)n;
	c->sections = mem_calloc(n, sizeof(*c->sections));
	for (uint32_t i = 1; i < c->nsections; i++) {
		if (elffile_section_at(c->file, i, &s) < 0 ||
		    __builtin_add_overflow(s.vaddr, s.size, &c->sections[i].vaddr))
			continue;
		c->sections[i].is_code = (s.flags & SHF_ALLOC) && (s.flags & SHF_EXECINSTR);
	}
}

/* False: it is no code, or not in this file. */
static bool sym_from(const struct collect *c, const Elf64_Sym *es, struct sym *ret)
{
	unsigned int type = ELF64_ST_TYPE(es->st_info), bind = ELF64_ST_BIND(es->st_info);
	bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
	const struct msg_segment *segment;
	uint64_t end, size = es->st_size;
	uint32_t bits = 0;

	if (es->st_shndx == SHN_UNDEF || es->st_shndx == SHN_ABS || !es->st_name || es->st_name & NAME_OWN ||
	    (!is_function && type != STT_NOTYPE))
		return false;
	segment = elffile_segment_of_vaddr(c->code, es->st_value);
	if (!segment || !(segment->flags & PF_X) || es->st_value - c->t->base > UINT32_MAX)
		return false;
	end = segment->vaddr + segment->file_bytes;
	if (es->st_shndx < c->nsections) {
		const struct section_end *s = &c->sections[es->st_shndx];

		if (!s->is_code)
			return false;
		if (es->st_value < s->vaddr)
			end = MIN(end, s->vaddr);
		else if (!is_function)
			return false; /* a label at a section's end, such as etext */
	}
	if (!size)
		size = end - es->st_value;
	else
		bits |= SYM_SIZED;
	bits |= (is_function ? SYM_FUNCTION : 0) | (bind == STB_WEAK ? SYM_WEAK : 0) |
		(bind != STB_WEAK && bind != STB_LOCAL ? SYM_GLOBAL : 0);
	ret->rel = (uint32_t)(es->st_value - c->t->base);
	ret->bits = bits | (uint32_t)MIN(size, (uint64_t)SYM_SIZE);
	ret->name = es->st_name | c->own;
	return true;
}

/* A copy of the strings, which will be gone. */
static void keep_strings(struct symtab *t, const struct elffile *f, uint32_t section)
{
	struct elf_section s;

	if (elffile_section_at(f, section, &s) < 0 || !s.data.len)
		return;
	t->own = mem_calloc(s.data.len, 1);
	memcpy(t->own, s.data.p, s.data.len);
	t->own_len = s.data.len;
}

/* False: over a limit. */
static bool collect_table(struct collect *c, const struct elf_section *table)
{
	size_t n = table->data.len / sizeof(Elf64_Sym);
	struct symtab *t = c->t;
	Elf64_Sym es;
	struct sym sym;

	if (n > SYMTAB_SCAN_MAX)
		return false;
	if (c->own)
		keep_strings(t, c->file, table->link);
	else
		t->strings = table->link;
	for (size_t i = 1; i < n; i++) {
		memcpy(&es, table->data.p + i * sizeof(es), sizeof(es));
		if (!sym_from(c, &es, &sym))
			continue;
		if (t->nsyms == SYMTAB_FUNCTIONS_MAX)
			return false;
		t->syms = mem_grow(t->syms, &t->cap, t->nsyms + 1, sizeof(*t->syms));
		t->syms[t->nsyms++] = sym;
	}
	return true;
}

/*
 * By address, the order of the file's table among equals. A radix sort: the one step whose time a
 * table of a million symbols, hostile or not, would otherwise make felt.
 */
static void sort_syms(struct symtab *t)
{
	enum { BITS = 11, NBUCKETS = 1 << BITS, PASSES = 3 };
	CLEANUP_FREE struct sym *other = mem_calloc(t->nsyms, sizeof(*other));
	struct sym *from = t->syms, *to = other, *swap;

	for (unsigned int pass = 0; pass < PASSES; pass++) {
		uint32_t next[NBUCKETS] = { 0 }, sum = 0;

		for (uint32_t i = 0; i < t->nsyms; i++)
			next[from[i].rel >> (pass * BITS) & (NBUCKETS - 1)]++;
		for (uint32_t i = 0; i < NBUCKETS; i++) {
			uint32_t n = next[i];

			next[i] = sum;
			sum += n;
		}
		for (uint32_t i = 0; i < t->nsyms; i++)
			to[next[from[i].rel >> (pass * BITS) & (NBUCKETS - 1)]++] = from[i];
		swap = from;
		from = to;
		to = swap;
	}
	/* An odd number of passes: the result is in the other array. */
	other = t->syms;
	t->syms = from;
	t->cap = t->nsyms;
}

/* The strings from this name on. */
static struct bytes from_name(const struct symtab_strings *strings, uint32_t name)
{
	struct bytes in = name & NAME_OWN ? strings->own : strings->file;

	name &= ~NAME_OWN;
	return name < in.len ? (struct bytes){ in.p + name, in.len - name } : (struct bytes){ NULL, 0 };
}

static size_t count_underscores(const struct symtab_strings *strings, uint32_t name)
{
	/* Not symtab_name(), which looks for the end: that takes too long for a million long names. */
	struct bytes s = from_name(strings, name);
	size_t n = 0;

	while (n < s.len && n < UNDERSCORES_MAX && s.p[n] == '_')
		n++;
	return n;
}

/* Whether b is the better name of the address that both have. */
static bool is_better(const struct symtab_strings *strings, const struct sym *a, const struct sym *b)
{
	static const uint32_t order[] = { SYM_FUNCTION, SYM_SIZED, SYM_GLOBAL | SYM_WEAK };
	size_t x, y;

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		if (!(a->bits & order[i]) != !(b->bits & order[i]))
			return b->bits & order[i];
	x = count_underscores(strings, a->name);
	y = count_underscores(strings, b->name);
	if (x != y)
		return y < x;
	return (b->bits & SYM_GLOBAL) && !(a->bits & SYM_GLOBAL);
}

static void drop_aliases(struct symtab *t, const struct symtab_strings *strings)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->nsyms; i++) {
		if (n && t->syms[n - 1].rel == t->syms[i].rel) {
			if (is_better(strings, &t->syms[n - 1], &t->syms[i]))
				t->syms[n - 1] = t->syms[i];
			continue;
		}
		t->syms[n++] = t->syms[i];
	}
	t->nsyms = n;
}

/* A symbol without a size ends at the latest where the next one begins. */
static void end_sizeless(struct symtab *t)
{
	for (uint32_t i = 0; i + 1 < t->nsyms; i++) {
		struct sym *s = &t->syms[i];
		uint32_t room = s[1].rel - s->rel;

		if (!(s->bits & SYM_SIZED) && (s->bits & SYM_SIZE) > room)
			s->bits = (s->bits & ~(uint32_t)SYM_SIZE) | room;
	}
}

static uint64_t lowest_code(const struct elffile *f)
{
	uint64_t low = UINT64_MAX;

	for (uint32_t i = 0; i < f->nsegments; i++)
		if ((f->segments[i].flags & PF_X) && f->segments[i].vaddr < low)
			low = f->segments[i].vaddr;
	return low;
}

/* The symbols of a table of this name. False: over a limit. */
static bool collect(struct symtab *t, const struct elffile *code, const struct elffile *file, const char *name,
		    uint32_t own)
{
	struct collect c = { .file = file, .code = code, .t = t, .own = own };
	struct elf_section table;
	bool ok = true;

	if (elffile_section(file, name, &table) == 0) {
		read_sections(&c);
		ok = collect_table(&c, &table);
		free(c.sections);
	}
	return ok;
}

/* What of a stripped file's symbols is left. */
static bool collect_rest(struct symtab *t, const struct elffile *f)
{
	void *heap = NULL;
	struct elffile *mini = minidebug_open(f, &heap);
	bool ok = collect(t, f, f, ".dynsym", 0) && (!mini || collect(t, f, mini, ".symtab", NAME_OWN));

	elffile_close(mini);
	free(heap);
	return ok;
}

struct symtab *symtab_new(const struct elffile *f, const struct elffile *debug)
{
	struct symtab *t = mem_calloc(1, sizeof(*t));
	struct symtab_strings strings;

	t->base = lowest_code(f);
	if (debug)
		t->is_of_debug = collect(t, f, debug, ".symtab", 0) && t->nsyms;
	if (!t->is_of_debug) {
		t->nsyms = 0;
		if (!collect(t, f, f, ".symtab", 0) || (!t->nsyms && !collect_rest(t, f)))
			t->nsyms = 0;
	}
	if (!t->nsyms)
		return t;
	sort_syms(t);
	strings = symtab_strings(t, f, debug);
	drop_aliases(t, &strings);
	end_sizeless(t);
	t->cap = t->nsyms;
	t->syms = mem_check(reallocarray(t->syms, t->cap, sizeof(*t->syms)));
	return t;
}

struct symtab *symtab_free(struct symtab *t)
{
	if (!t)
		return NULL;
	free(t->syms);
	free(t->own);
	free(t);
	return NULL;
}

/* The number of symbols at or before the address. */
static uint32_t upper_bound(const struct symtab *t, uint64_t vaddr)
{
	uint32_t low = 0, high = t->nsyms;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (t->base + t->syms[mid].rel <= vaddr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct symbol symtab_at(const struct symtab *t, uint32_t i)
{
	const struct sym *s = &t->syms[i];

	return (struct symbol){
		.vaddr = t->base + s->rel,
		.size = s->bits & SYM_SIZE,
		.name = s->name,
		.is_function = s->bits & SYM_FUNCTION,
	};
}

/*
 * The nearest symbol before the address that has a size and covers it; functions can enclose others.
 * Only without one, a symbol without a size.
 */
bool symtab_find(const struct symtab *t, uint64_t vaddr, struct symbol *ret)
{
	uint32_t n = upper_bound(t, vaddr), low = n > ENCLOSING_MAX ? n - ENCLOSING_MAX : 0;
	uint32_t sizeless = UINT32_MAX;

	for (uint32_t i = n; i-- > low;) {
		const struct sym *s = &t->syms[i];

		if (vaddr - (t->base + s->rel) >= (s->bits & SYM_SIZE))
			continue;
		if (s->bits & SYM_SIZED) {
			*ret = symtab_at(t, i);
			return true;
		}
		if (sizeless == UINT32_MAX)
			sizeless = i;
	}
	if (sizeless == UINT32_MAX)
		return false;
	*ret = symtab_at(t, sizeless);
	return true;
}

bool symtab_is_function_start(const struct symtab *t, uint64_t vaddr)
{
	uint32_t n = upper_bound(t, vaddr);

	return n && t->base + t->syms[n - 1].rel == vaddr && (t->syms[n - 1].bits & SYM_FUNCTION);
}

uint32_t symtab_count(const struct symtab *t)
{
	return t->nsyms;
}

size_t symtab_bytes(const struct symtab *t)
{
	return sizeof(*t) + (size_t)t->cap * sizeof(*t->syms) + t->own_len;
}

bool symtab_is_of_debug(const struct symtab *t)
{
	return t->is_of_debug;
}

struct symtab_strings symtab_strings(const struct symtab *t, const struct elffile *f, const struct elffile *debug)
{
	struct symtab_strings ret = { .own = { t->own, t->own_len } };
	const struct elffile *in = t->is_of_debug ? debug : f;
	struct elf_section s;

	if (in && elffile_section_at(in, t->strings, &s) == 0)
		ret.file = s.data;
	return ret;
}

struct bytes symtab_name(const struct symtab_strings *strings, uint32_t name)
{
	struct bytes s = from_name(strings, name);

	if (s.len)
		s.len = strnlen((const char *)s.p, MIN(s.len, (size_t)SYMTAB_NAME_MAX));
	return s;
}
