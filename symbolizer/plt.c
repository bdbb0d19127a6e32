#include "symbolizer/plt.h"

#include <elf.h>
#include <string.h>

enum {
	ENTRY = 16,
	SHORT_ENTRY = 8,	/* of .plt.got without IBT */
	RELOCATIONS_MAX = 1 << 20,
};

static const char *const tables[] = { ".plt", ".plt.sec", ".plt.got", ".iplt" };

static bool find_table(const struct elffile *f, uint64_t vaddr, struct elf_section *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (elffile_section(f, tables[i], ret) == 0 && vaddr - ret->vaddr < ret->size)
			return true;
	return false;
}

bool plt_covers(const struct elffile *f, uint64_t vaddr)
{
	struct elf_section s;

	return find_table(f, vaddr, &s);
}

/* Length of what may stand in front of an entry's jump or push: endbr64, bnd. */
static size_t prefixes(struct bytes at)
{
	size_t n = at.len >= 4 && memcmp(at.p, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0;

	return at.len > n && at.p[n] == 0xf2 ? n + 1 : n;
}

/* The slot that the entry at `start` jumps through: `jmp *disp(%rip)`. */
static bool slot_of(const struct elffile *f, uint64_t start, uint64_t *ret)
{
	struct bytes at = elffile_at(f, start);
	size_t n = prefixes(at);
	int32_t disp;

	if (at.len < n + 6 || at.p[n] != 0xff || at.p[n + 1] != 0x25)
		return false;
	memcpy(&disp, at.p + n + 2, sizeof(disp));
	*ret = start + n + 6 + (uint64_t)(int64_t)disp;
	return true;
}

/* The relocation whose index the entry at `start` pushes: `push $index`. */
static bool index_of(const struct elffile *f, uint64_t start, uint32_t *ret)
{
	struct bytes at = elffile_at(f, start);
	size_t n = prefixes(at);

	if (at.len < n + 5 || at.p[n] != 0x68)
		return false;
	memcpy(ret, at.p + n + 1, sizeof(*ret));
	return true;
}

static bool target_of(const struct elffile *f, const struct elf_section *relocations, const Elf64_Rela *r,
		      struct plt_target *ret)
{
	uint64_t index = ELF64_R_SYM(r->r_info);
	struct elf_section symbols, strings;
	const uint8_t *end;
	Elf64_Sym sym;

	*ret = (struct plt_target){ .resolver = (uint64_t)r->r_addend };
	if (ELF64_R_TYPE(r->r_info) == R_X86_64_IRELATIVE)
		return true;
	if (elffile_section_at(f, relocations->link, &symbols) < 0 || index >= symbols.data.len / sizeof(sym) || !index ||
	    elffile_section_at(f, symbols.link, &strings) < 0)
		return false;
	memcpy(&sym, symbols.data.p + index * sizeof(sym), sizeof(sym));
	if (sym.st_name >= strings.data.len)
		return false;
	ret->name = (struct bytes){ strings.data.p + sym.st_name, strings.data.len - sym.st_name };
	end = memchr(ret->name.p, 0, ret->name.len);
	if (!end)
		return false;
	ret->name.len = (size_t)(end - ret->name.p);
	return ret->name.len > 0;
}

/* In `name`, the relocation of this slot or, with slot 0, of this index. */
static bool find_relocation(const struct elffile *f, const char *name, uint64_t slot, uint32_t index,
			    struct plt_target *ret)
{
	struct elf_section s;
	Elf64_Rela r;
	size_t n;

	if (elffile_section(f, name, &s) < 0 || s.type != SHT_RELA)
		return false;
	n = MIN(s.data.len / sizeof(r), (size_t)RELOCATIONS_MAX);
	for (size_t i = slot ? 0 : index; i < n; i++) {
		memcpy(&r, s.data.p + i * sizeof(r), sizeof(r));
		if (!slot || r.r_offset == slot)
			return target_of(f, &s, &r, ret);
	}
	return false;
}

bool plt_find(const struct elffile *f, uint64_t vaddr, struct plt_target *ret)
{
	static const char *const relocations[] = { ".rela.plt", ".rela.dyn", ".rela.iplt" };
	struct elf_section table;
	uint64_t start, slot = 0;
	uint32_t index;

	if (!find_table(f, vaddr, &table))
		return false;
	start = vaddr - (vaddr - table.vaddr) % ENTRY;
	if (slot_of(f, start, &slot) && vaddr - start >= SHORT_ENTRY && slot_of(f, start + SHORT_ENTRY, &slot))
		start += SHORT_ENTRY;
	for (size_t i = 0; slot && i < ARRAY_SIZE(relocations); i++)
		if (find_relocation(f, relocations[i], slot, 0, ret))
			return true;
	return !slot && index_of(f, start, &index) && find_relocation(f, ".rela.plt", 0, index, ret);
}
