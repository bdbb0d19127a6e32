/* Entries of linkage tables against objdump, and in files that it cannot read. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "symbolizer/plt.h"
#include "symbolizer/symtab.h"
#include "tests/unit/elf_fixture.h"

enum { ENTRIES_MAX = 256 };

static const char source[] =
	"#include <stdlib.h>\n#include <stdio.h>\n#include <string.h>\n"
	"long (*volatile pointer)(long);\n"
	"int main(int argc, char **argv) { pointer = labs; puts(argv[0]);\n"
	" return (int)(labs(argc) + atoi(argv[0]) + (long)strlen(argv[0]) + pointer(argc)); }\n";

struct entry {
	uint64_t vaddr;
	char name[64];
};

struct entries {
	struct entry v[ENTRIES_MAX];
	size_t n;
};

/* "0000000000001030 <puts@plt>:" */
static void on_line(void *arg, char *line)
{
	struct entries *e = arg;
	char *at = strstr(line, "@plt>:");
	struct entry *entry = &e->v[e->n];

	if (!at || e->n == ENTRIES_MAX)
		return;
	*at = '\0';
	if (sscanf(line, "%lx <%63[^\n]", &entry->vaddr, entry->name) == 2)
		e->n++;
}

static struct entries ask_objdump(const char *path)
{
	struct entries e = { 0 };
	char command[256];

	snprintf(command, sizeof(command), "/usr/bin/objdump -d %s", path);
	fixture_each_line(command, on_line, &e);
	return e;
}

/* At the first and the last byte of each entry. */
static void check(const struct elffile *f, const struct entries *e)
{
	CLEANUP(plt_freep) struct plt *p = plt_new(f);
	struct elf_section got = { 0 };
	struct plt_target target;

	(void)!elffile_section(f, ".plt.got", &got);
	for (size_t i = 0; i < e->n; i++) {
		size_t entry_bytes = e->v[i].vaddr - got.vaddr < got.size && got.entsize == 8 ? 8 : 16;

		for (size_t off = 0; off < entry_bytes; off += entry_bytes - 1) {
			assert_true(plt_find(p, e->v[i].vaddr + off, &target));
			assert_int_equal(target.name.len, strlen(e->v[i].name));
			assert_memory_equal(target.name.p, e->v[i].name, target.name.len);
		}
	}
	assert_false(plt_find(p, f->entry, &target));
	assert_false(plt_find(p, UINT64_MAX, &target));
}

static void each_linkers_entries_have_objdumps_names(void **state UNUSED)
{
	static const char *const layouts[] = {
		"-Wl,-z,lazy -fcf-protection=none",
		"-Wl,-z,now -fcf-protection=none", /* .plt.got for what has its address taken */
		"-Wl,-z,lazy -Wl,-z,ibtplt",
		"-Wl,-z,now -Wl,-z,ibtplt",
		"-no-pie",
		"-fuse-ld=lld -Wl,-z,lazy",
		"-fuse-ld=lld -Wl,-z,now",
		"-fuse-ld=gold",
	};

	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		char *path = fixture_compile_to("c", source, layouts[i]);
		struct entries e = ask_objdump(path);
		struct elffile *f = fixture_open(path);

		print_message("%s: %zu entries\n", layouts[i], e.n);
		assert_true(e.n >= 3);
		check(f, &e);
		elffile_close(f);
		fixture_forget(path);
	}
}

static struct elffile *open_bytes(const uint8_t *data, size_t len)
{
	CLEANUP_FD int fd = fixture_memfd(data, len);
	struct elffile *f;

	assert_int_equal(elffile_open(&f, fd), 0);
	return f;
}

static void without_section_headers_a_lazy_table_is_still_known(void **state UNUSED)
{
	static const char *const flags[] = { "-Wl,-z,lazy -fcf-protection=none", "-fuse-ld=lld" };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		char *path = fixture_compile_to("c", source, flags[i]);
		struct entries all = ask_objdump(path), lazy = { 0 };
		struct elf_section table;
		struct elffile *f = fixture_open(path);
		Elf64_Ehdr eh;
		size_t len;
		uint8_t *data = fixture_read(path, &len);

		assert_int_equal(elffile_section(f, ".plt", &table), 0);
		for (size_t k = 0; k < all.n; k++)
			if (all.v[k].vaddr - table.vaddr < table.size)
				lazy.v[lazy.n++] = all.v[k];
		assert_true(lazy.n >= 3);
		elffile_close(f);
		memcpy(&eh, data, sizeof(eh));
		eh.e_shoff = 0;
		eh.e_shnum = eh.e_shstrndx = 0;
		memcpy(data, &eh, sizeof(eh));
		f = open_bytes(data, len);
		check(f, &lazy);
		elffile_close(f);
		free(data);
		fixture_forget(path);
	}
}

/* mold's entry: endbr64; mov $number, %r11d; jmp *slot(%rip). */
static void entries_in_molds_layout_are_known(void **state UNUSED)
{
	char *path = fixture_compile_to("c", source, "-fuse-ld=lld");
	struct entries e = ask_objdump(path);
	size_t len;
	uint8_t *data = fixture_read(path, &len);
	struct elffile *f = fixture_open(path);

	assert_true(e.n >= 4);
	for (size_t i = 0; i < e.n; i++) {
		uint8_t *at = data + (elffile_at(f, e.v[i].vaddr).p - f->file.p);
		int32_t disp;

		assert_memory_equal(at, "\xff\x25", 2);
		memcpy(&disp, at + 2, sizeof(disp));
		disp -= 10;
		memcpy(at, "\xf3\x0f\x1e\xfa\x41\xbb\0\0\0\0\xff\x25", 12);
		memcpy(at + 12, &disp, sizeof(disp));
	}
	elffile_close(f);
	f = open_bytes(data, len);
	check(f, &e);
	elffile_close(f);
	free(data);
	fixture_forget(path);
}

static void a_static_programs_entries_name_their_ifunc(void **state UNUSED)
{
	char *path = fixture_compile_to("c", source, "-static");
	struct elffile *f = fixture_open(path);
	CLEANUP(symtab_freep) struct symtab *t = symtab_new(f, NULL);
	CLEANUP(plt_freep) struct plt *p = plt_new(f);
	struct elf_section table;
	struct plt_target target;
	struct symbol s;
	size_t n = 0;

	if (elffile_section(f, ".iplt", &table) < 0)
		assert_int_equal(elffile_section(f, ".plt", &table), 0);
	for (uint64_t at = table.vaddr; at < table.vaddr + table.size; at += table.entsize == 8 ? 8 : 16) {
		if (!plt_find(p, at, &target))
			continue;
		assert_int_equal(target.name.len, 0);
		assert_true(symtab_find(t, target.resolver, &s) && s.vaddr == target.resolver);
		n++;
	}
	assert_true(n > 10);
	elffile_close(f);
	fixture_forget(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_linkers_entries_have_objdumps_names),
		cmocka_unit_test(without_section_headers_a_lazy_table_is_still_known),
		cmocka_unit_test(entries_in_molds_layout_are_known),
		cmocka_unit_test(a_static_programs_entries_name_their_ifunc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
