#include "symbolizer/plt.h"

#include <elf.h>
#include <string.h>

#include "symbolizer/mem.h"

enum {
	TABLES_MAX = 4,
	NAME_MAX_BYTES = 4 * MSG_NAME_MAX,
	ENTRY_BYTES = 16,	/* where the section does not tell */
	DYNAMIC_MAX = 4096,	/* entries of PT_DYNAMIC that are looked at */
};

struct table {
	uint64_t vaddr, size, entry_bytes;
};

struct slot {
	uint64_t vaddr, resolver;	/* resolver: of an IFUNC, 0 none */
	uint32_t symbol;
};

struct plt {
	const struct elffile *file;
	struct table tables[TABLES_MAX];
	uint32_t ntables;
	bool has_sections, has_slots;
	struct bytes jmprel, symbols, strings;
	struct slot *slots;		/* by vaddr */
	uint32_t nslots, cap;
};

struct plt *plt_new(const struct elffile *f)
{
	static const char *const names[TABLES_MAX] = { ".plt", ".plt.sec", ".plt.got", ".iplt" };
	struct plt *p = mem_calloc(1, sizeof(*p));
	struct elf_section s;

	p->file = f;
	p->has_sections = elffile_section_at(f, 1, &s) == 0;
	for (size_t i = 0; i < TABLES_MAX && p->has_sections; i++) {
		if (elffile_section(f, names[i], &s) < 0 || !elffile_is_code(f, s.vaddr))
			continue;
		p->tables[p->ntables++] = (struct table){
			.vaddr = s.vaddr,
			.size = s.size,
			.entry_bytes = s.entsize == 8 ? 8 : ENTRY_BYTES,
		};
	}
	return p;
}

struct plt *plt_free(struct plt *p)
{
	if (p)
		free(p->slots);
	free(p);
	return NULL;
}

static const struct table *find_table(const struct plt *p, uint64_t vaddr)
{
	for (uint32_t i = 0; i < p->ntables; i++)
		if (vaddr >= p->tables[i].vaddr && vaddr - p->tables[i].vaddr < p->tables[i].size)
			return &p->tables[i];
	return NULL;
}

bool plt_covers(const struct plt *p, uint64_t vaddr)
{
	return find_table(p, vaddr);
}

/* ---- relocations ---- */

static struct bytes cut(struct bytes b, uint64_t len)
{
	return (struct bytes){ b.p, (size_t)MIN((uint64_t)b.len, len) };
}

static Elf64_Rela relocation_at(struct bytes table, size_t i)
{
	Elf64_Rela r;

	memcpy(&r, table.p + i * sizeof(r), sizeof(r));
	return r;
}

static void add_relocations(struct plt *p, struct bytes table)
{
	size_t n = MIN(table.len / sizeof(Elf64_Rela), (size_t)PLT_RELOCATIONS_MAX);

	for (size_t i = 0; i < n && p->nslots < PLT_SLOTS_MAX; i++) {
		Elf64_Rela r = relocation_at(table, i);
		uint64_t type = ELF64_R_TYPE(r.r_info);

		if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_IRELATIVE)
			continue;
		p->slots = mem_grow(p->slots, &p->cap, p->nslots + 1, sizeof(*p->slots));
		p->slots[p->nslots++] = (struct slot){
			.vaddr = r.r_offset,
			.resolver = type == R_X86_64_IRELATIVE ? (uint64_t)r.r_addend : 0,
			.symbol = (uint32_t)ELF64_R_SYM(r.r_info),
		};
	}
}

static int compare_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return (x->vaddr > y->vaddr) - (x->vaddr < y->vaddr);
}

static void read_dynamic(struct plt *p)
{
	size_t n = MIN(p->file->dynamic.len / sizeof(Elf64_Dyn), (size_t)DYNAMIC_MAX);
	uint64_t rela_bytes = 0, jmprel_bytes = 0;
	struct bytes rela = { NULL, 0 };
	Elf64_Dyn d;

	for (size_t i = 0; i < n; i++) {
		memcpy(&d, p->file->dynamic.p + i * sizeof(d), sizeof(d));
		switch (d.d_tag) {
		case DT_NULL: n = 0; break;
		case DT_RELA: rela = elffile_at(p->file, d.d_un.d_ptr); break;
		case DT_RELASZ: rela_bytes = d.d_un.d_val; break;
		case DT_JMPREL: p->jmprel = elffile_at(p->file, d.d_un.d_ptr); break;
		case DT_PLTRELSZ: jmprel_bytes = d.d_un.d_val; break;
		case DT_SYMTAB: p->symbols = elffile_at(p->file, d.d_un.d_ptr); break;
		case DT_STRTAB: p->strings = elffile_at(p->file, d.d_un.d_ptr); break;
		default: break;
		}
	}
	p->jmprel = cut(p->jmprel, jmprel_bytes);
	add_relocations(p, p->jmprel);
	if (p->has_sections)
		add_relocations(p, cut(rela, rela_bytes));
}

static void read_slots(struct plt *p)
{
	static const char *const names[] = { ".rela.plt", ".rela.iplt" };
	struct elf_section s;

	p->has_slots = true;
	read_dynamic(p);
	for (size_t i = 0; i < ARRAY_SIZE(names) && !p->nslots; i++) {
		if (elffile_section(p->file, names[i], &s) < 0)
			continue;
		p->jmprel = s.data;
		add_relocations(p, s.data);
	}
	if (p->nslots)
		qsort(p->slots, p->nslots, sizeof(*p->slots), compare_slots);
}

static const struct slot *find_slot(const struct plt *p, uint64_t vaddr)
{
	struct slot key = { .vaddr = vaddr };

	return p->nslots ? bsearch(&key, p->slots, p->nslots, sizeof(key), compare_slots) : NULL;
}

/* ---- entries ---- */

static uint32_t u32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* What of the entry is left when it begins with these bytes, and `extra` more; or all of it. */
static struct bytes skip(struct bytes code, const void *bytes, size_t n, size_t extra)
{
	if (code.len < n + extra || memcmp(code.p, bytes, n) != 0)
		return code;
	return (struct bytes){ code.p + n + extra, code.len - n - extra };
}

/*
 *   [endbr64] [mov $number, %r11d] [bnd] jmp *slot(%rip)	most; the second is mold's
 *   [endbr64] push $number ...					ld's with IBT: the slot's jump is in .plt.sec
 */
static const struct slot *slot_of_entry(const struct plt *p, uint64_t start, uint64_t entry_bytes)
{
	struct bytes entry = cut(elffile_at(p->file, start), entry_bytes);
	struct bytes code = skip(entry, "\xf3\x0f\x1e\xfa", 4, 0);
	uint64_t next;

	if (code.len >= 5 && code.p[0] == 0x68) {
		uint32_t number = u32_at(code.p + 1);

		if (number >= p->jmprel.len / sizeof(Elf64_Rela))
			return NULL;
		return find_slot(p, relocation_at(p->jmprel, number).r_offset);
	}
	code = skip(code, "\x41\xbb", 2, 4);
	code = skip(code, "\xf2", 1, 0);
	if (code.len < 6 || code.p[0] != 0xff || code.p[1] != 0x25)
		return NULL;
	next = start + (uint64_t)(code.p + 6 - entry.p);
	return find_slot(p, next + (uint64_t)(int64_t)(int32_t)u32_at(code.p + 2));
}

static bool target_of(const struct plt *p, const struct slot *slot, struct plt_target *ret)
{
	struct bytes name;
	Elf64_Sym es;

	if (slot->resolver) {
		*ret = (struct plt_target){ .resolver = slot->resolver };
		return true;
	}
	if (!slot->symbol || slot->symbol >= p->symbols.len / sizeof(es))
		return false;
	memcpy(&es, p->symbols.p + slot->symbol * sizeof(es), sizeof(es));
	if (es.st_name >= p->strings.len)
		return false;
	name = (struct bytes){ p->strings.p + es.st_name, MIN(p->strings.len - es.st_name, (size_t)NAME_MAX_BYTES) };
	name.len = strnlen((const char *)name.p, name.len);
	*ret = (struct plt_target){ .name = name };
	return name.len;
}

bool plt_find(struct plt *p, uint64_t vaddr, struct plt_target *ret)
{
	const struct table *t = find_table(p, vaddr);
	uint64_t entry_bytes = t ? t->entry_bytes : ENTRY_BYTES;
	const struct slot *slot;

	if ((!t && p->has_sections) || !elffile_is_code(p->file, vaddr))
		return false;
	if (!p->has_slots)
		read_slots(p);
	slot = slot_of_entry(p, vaddr - (vaddr - (t ? t->vaddr : 0)) % entry_bytes, entry_bytes);
	return slot && target_of(p, slot, ret);
}
