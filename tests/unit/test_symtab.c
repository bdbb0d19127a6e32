/* The symbol index against readelf -s. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "symbolizer/symtab.h"
#include "tests/unit/elf_fixture.h"

struct oracle_sym {
	uint64_t vaddr, size;
	char *name;
};

struct oracle {
	struct oracle_sym *syms;
	size_t n, cap;
};

/* "   Num:    Value          Size Type    Bind   Vis      Ndx Name" */
static void on_symbol(void *arg, char *line)
{
	struct oracle *o = arg;
	char type[16], ndx[16], size[32], name[8192];
	uint64_t vaddr;

	if (sscanf(line, " %*u: %lx %31s %15s %*s %*s %15s %8191s", &vaddr, size, type, ndx, name) != 5)
		return;
	if ((strcmp(type, "FUNC") != 0 && strcmp(type, "IFUNC") != 0) || strcmp(ndx, "UND") == 0 ||
	    strcmp(ndx, "ABS") == 0)
		return;
	if (o->n == o->cap) {
		o->cap = o->cap ? 2 * o->cap : 1024;
		o->syms = realloc(o->syms, o->cap * sizeof(*o->syms));
		assert_non_null(o->syms);
	}
	o->syms[o->n++] = (struct oracle_sym){ vaddr, strtoull(size, NULL, 0), strdup(name) };
}

static struct oracle ask_readelf(const char *path, const char *table)
{
	struct oracle o = { 0 };
	char command[256];

	snprintf(command, sizeof(command), "readelf -W %s %s 2>/dev/null; true", table, path);
	fixture_each_line(command, on_symbol, &o);
	return o;
}

static void oracle_fini(struct oracle *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->syms[i].name);
	free(o->syms);
}

static bool same_name(struct bytes name, const char *text)
{
	size_t len = strcspn(text, "@"); /* readelf adds the version of dynamic symbols */

	return name.len == len && memcmp(name.p, text, len) == 0;
}

/* A name that the oracle gives to the address, too. */
static bool is_covering_name(const struct oracle *o, uint64_t vaddr, struct bytes name)
{
	for (size_t i = 0; i < o->n; i++)
		if (vaddr >= o->syms[i].vaddr && vaddr - o->syms[i].vaddr < o->syms[i].size &&
		    same_name(name, o->syms[i].name))
			return true;
	return false;
}

static bool is_covered(const struct oracle *o, uint64_t vaddr)
{
	for (size_t i = 0; i < o->n; i++)
		if (vaddr >= o->syms[i].vaddr && vaddr - o->syms[i].vaddr < MAX(o->syms[i].size, 1ul))
			return true;
	return false;
}

/* First and last byte of every function have one of its names; bytes after it that nobody covers have none. */
static size_t compare_with_readelf(const char *path, const char *table)
{
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f, NULL);
	struct symtab_strings strings = symtab_strings(t, f, NULL);
	struct oracle o = ask_readelf(path, table);
	size_t nsized = 0, nwrong = 0, nafter = 0;
	struct symbol s;

	for (size_t i = 0; i < o.n; i++) {
		const struct oracle_sym *want = &o.syms[i];

		if (!want->size)
			continue;
		nsized++;
		if (!symtab_is_function_start(t, want->vaddr) || !symtab_find(t, want->vaddr, &s) ||
		    !is_covering_name(&o, want->vaddr, symtab_name(&strings, s.name)) ||
		    !symtab_find(t, want->vaddr + want->size - 1, &s) ||
		    !is_covering_name(&o, want->vaddr + want->size - 1, symtab_name(&strings, s.name))) {
			if (nwrong++ < 5)
				print_error("wrong: %lx %lx %s\n", want->vaddr, want->size, want->name);
		}
		if (is_covered(&o, want->vaddr + want->size))
			continue;
		nafter++;
		if (symtab_find(t, want->vaddr + want->size, &s) && s.is_function && nwrong++ < 5)
			print_error("neighbour's name after: %s\n", want->name);
	}
	print_message("%s: %zu functions, %zu ends, %zu wrong, %zu bytes\n", path, nsized, nafter, nwrong,
		      symtab_bytes(t));
	assert_int_equal(nwrong, 0);
	oracle_fini(&o);
	symtab_free(t);
	elffile_close(f);
	return nsized;
}

static void names_of_dynamic_symbols_are_readelfs(void **state UNUSED)
{
	assert_true(compare_with_readelf("/lib/x86_64-linux-gnu/libc.so.6", "--dyn-syms") > 2000);
	assert_true(compare_with_readelf("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "--dyn-syms") > 3000);
}

static void names_of_a_cpp_program_are_readelfs(void **state UNUSED)
{
	char *path = fixture_compile_to("cc", fixture_cpp, "-O2");

	assert_true(compare_with_readelf(path, "-s") > 15);
	fixture_forget(path);
}

static void names_of_a_static_program_are_readelfs(void **state UNUSED)
{
	char *path = fixture_compile_to("c", fixture_c, "-O2 -static");

	assert_true(compare_with_readelf(path, "-s") > 1000);
	fixture_forget(path);
}

/* ---- by hand ---- */

static const char assembly[] =
	".text\n.globl _start\n.type _start, @function\n_start: nop\nnop\n.size _start, .-_start\n"
	".byte 0xcc, 0xcc\n"				/* 2: padding that belongs to nobody */
	"bare: nop\nnop\nnop\n"				/* 4: without type and size */
	".globl pub\n.type pub, @function\n"
	".globl __pub\n.type __pub, @function\n"
	".weak weak_pub\n.type weak_pub, @function\n"
	"local_pub:\nlabel_pub:\n.type local_pub, @function\n"
	"pub: __pub: weak_pub: nop\nnop\ninner: nop\nnop\n"	/* 7, inner at 9 */
	".size pub, .-pub\n.size __pub, .-__pub\n.size weak_pub, .-weak_pub\n.size local_pub, .-local_pub\n"
	"tail: nop\nnop\netext:\n"			/* 11: to the end of the section, 13 */
	".section .text2, \"ax\"\nnop\nnop\nnop\nnop\n"
	".data\nobject: .quad 1\n";

static void want_name(const struct symtab *t, struct symtab_strings strings, uint64_t vaddr, const char *want)
{
	struct symbol s;
	bool found = symtab_find(t, vaddr, &s);

	assert_int_equal(found, want != NULL);
	if (found && !same_name(symtab_name(&strings, s.name), want))
		fail_msg("at %lx: got %.*s, want %s", vaddr, (int)symtab_name(&strings, s.name).len,
			 symtab_name(&strings, s.name).p, want);
}

static void aliases_sizes_and_labels_follow_the_rules(void **state UNUSED)
{
	char *path = fixture_compile_to("s", assembly, "-nostdlib -static");
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f, NULL);
	struct symtab_strings strings = symtab_strings(t, f, NULL);
	uint64_t base = f->entry;

	want_name(t, strings, base, "_start");
	want_name(t, strings, base + 1, "_start");
	want_name(t, strings, base + 2, NULL);
	want_name(t, strings, base + 4, "bare");
	want_name(t, strings, base + 6, "bare");
	want_name(t, strings, base + 7, "pub");
	want_name(t, strings, base + 9, "pub");	/* a label inside of a function does not hide it */
	want_name(t, strings, base + 10, "pub");
	want_name(t, strings, base + 11, "tail");
	want_name(t, strings, base + 12, "tail");
	want_name(t, strings, base + 13, NULL);	/* the next section */
	want_name(t, strings, base - 1, NULL);
	assert_true(symtab_is_function_start(t, base + 7));
	assert_false(symtab_is_function_start(t, base + 4));
	assert_false(symtab_is_function_start(t, base + 8));
	symtab_free(t);
	elffile_close(f);
	fixture_forget(path);
}

/* The program's table is replaced by one of n symbols, each at the address of the one before and `step`. */
static struct elffile *open_with_symbols(const char *path, size_t n, uint64_t step, size_t name_len)
{
	size_t len, bytes = n * sizeof(Elf64_Sym);
	uint8_t *data = fixture_read(path, &len);
	struct elffile *f = fixture_open(path);
	uint16_t text = 0;
	Elf64_Ehdr eh;
	int fd;

	memcpy(&eh, data, sizeof(eh));
	data = realloc(data, len + bytes + name_len + 1);
	assert_non_null(data);
	memset(data + len + bytes, '_', name_len);
	data[len + bytes + name_len] = '\0';
	for (uint16_t i = 1; i < eh.e_shnum; i++) {
		uint8_t *at = data + eh.e_shoff + i * sizeof(Elf64_Shdr);
		Elf64_Shdr sh, strings;

		memcpy(&sh, at, sizeof(sh));
		if ((sh.sh_flags & SHF_EXECINSTR) && f->entry - sh.sh_addr < sh.sh_size)
			text = i;
		if (sh.sh_type != SHT_SYMTAB)
			continue;
		sh.sh_offset = len;
		sh.sh_size = bytes;
		memcpy(at, &sh, sizeof(sh));
		at = data + eh.e_shoff + sh.sh_link * sizeof(Elf64_Shdr);
		memcpy(&strings, at, sizeof(strings));
		strings.sh_offset = len + bytes;
		strings.sh_size = name_len + 1;
		memcpy(at, &strings, sizeof(strings));
	}
	assert_true(text);
	for (size_t i = 0; i < n; i++) {
		Elf64_Sym es = { .st_name = (uint32_t)(i % name_len), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				 .st_shndx = text, .st_value = f->entry + i * step, .st_size = 1 };

		memcpy(data + len + i * sizeof(es), &es, sizeof(es));
	}
	elffile_close(f);
	fd = fixture_memfd(data, len + bytes + name_len + 1);
	free(data);
	assert_int_equal(elffile_open(&f, fd), 0);
	close(fd);
	return f;
}

static void too_many_functions_are_none_and_as_many_as_may_be_are_soon_read(void **state UNUSED)
{
	char *path = fixture_compile_to("c", fixture_c, "-O1");
	static const struct {
		size_t n, count;
		uint64_t step;
	} cases[] = {
		/* The first symbol of a table is none, and the second has the empty name. */
		{ 1000, 998, 1 },
		{ SYMTAB_FUNCTIONS_MAX, 1, 0 },
		{ SYMTAB_FUNCTIONS_MAX + 1000, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct elffile *f = open_with_symbols(path, cases[i].n, cases[i].step, 60000);
		uint64_t start = clock_cpu_ns();
		struct symtab *t = symtab_new(f, NULL);

		print_message("%zu symbols: %lu us\n", cases[i].n, (clock_cpu_ns() - start) / 1000);
		assert_true(clock_cpu_ns() - start < 1000000000);
		if (cases[i].step)
			assert_in_range(symtab_count(t), 100, cases[i].count);
		else
			assert_int_equal(symtab_count(t), cases[i].count);
		symtab_free(t);
		elffile_close(f);
	}
	fixture_forget(path);
}

static void functions_in_data_and_unknown_names_do_no_harm(void **state UNUSED)
{
	static const char in_data[] =
		".text\n.globl _start\n.type _start, @function\n_start: nop\nnop\n.size _start, .-_start\n"
		".section .constants, \"a\"\n.type table, @function\ntable: .quad 1\n.size table, 8\n";
	char *path = fixture_compile_to("s", in_data, "-nostdlib -static -Wl,-N");
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f, NULL);
	struct symtab_strings strings = symtab_strings(t, f, NULL);
	struct elf_section constants;

	assert_int_equal(elffile_section(f, ".constants", &constants), 0);
	assert_true(elffile_is_code(f, constants.vaddr)); /* by its segment: -N makes it all one */
	want_name(t, strings, constants.vaddr, NULL);
	want_name(t, strings, f->entry + 1, "_start");
	assert_int_equal(symtab_name(&strings, UINT32_MAX).len, 0);
	symtab_free(t);
	elffile_close(f);
	fixture_forget(path);
}

static void a_stripped_program_has_no_symbols(void **state UNUSED)
{
	char *path = fixture_compile_to("c", fixture_c, "-O2 -static -s");
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f, NULL);
	struct symbol s;

	assert_int_equal(symtab_count(t), 0);
	assert_false(symtab_find(t, f->entry, &s));
	assert_false(symtab_is_function_start(t, f->entry));
	symtab_free(t);
	elffile_close(f);
	fixture_forget(path);
}

/* Runs a shell command in which $P is the path. */
static void shell(const char *path, const char *command)
{
	CLEANUP_FREE char *line = NULL;

	assert_true(asprintf(&line, "P='%s'; %s", path, command) > 0);
	assert_int_equal(system(line), 0);
}

/* As distributions make it: the full table without what .dynsym has, in a file of its own, compressed. */
#define ADD_MINIDEBUG                                                                                                  \
	"nm -D --format=posix --defined-only $P | awk '{ print $1 }' | sort >$P.dyn && "                                \
	"nm --format=posix --defined-only $P | awk '$2 ~ /[tT]/ { print $1 }' | sort >$P.all && "                       \
	"comm -13 $P.dyn $P.all >$P.keep && "                                                                           \
	"objcopy --only-keep-debug $P $P.mini && "                                                                      \
	"objcopy -S --remove-section .comment --keep-symbols=$P.keep $P.mini && xz -k -f $P.mini && strip $P && "

static void forget_all(char *path)
{
	shell(path, "rm -f $P.dyn $P.all $P.keep $P.mini $P.mini.xz");
	fixture_forget(path);
}

static const char with_static[] = "static __attribute__((noinline)) int hidden(int n) { return n * 3; }\n"
				  "int exported(int n) { return hidden(n) + 1; }\n"
				  "int main(int argc, char **argv) { (void)argv; return exported(argc); }\n";

static void a_stripped_program_is_named_by_minidebuginfo(void **state UNUSED)
{
	char *path = fixture_compile_to("c", with_static, "-O1 -rdynamic");
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f, NULL);
	struct symtab_strings strings = symtab_strings(t, f, NULL);
	uint64_t hidden = 0, exported = 0;

	for (uint32_t i = 0; i < symtab_count(t); i++) {
		struct symbol s = symtab_at(t, i);

		if (same_name(symtab_name(&strings, s.name), "hidden"))
			hidden = s.vaddr;
		if (same_name(symtab_name(&strings, s.name), "exported"))
			exported = s.vaddr;
	}
	assert_true(hidden && exported);
	symtab_free(t);
	elffile_close(f);

	shell(path, ADD_MINIDEBUG "objcopy --add-section .gnu_debugdata=$P.mini.xz $P");
	f = fixture_open(path);
	t = symtab_new(f, NULL);
	strings = symtab_strings(t, f, NULL);
	want_name(t, strings, hidden + 1, "hidden");
	want_name(t, strings, exported + 1, "exported");
	symtab_free(t);
	elffile_close(f);
	forget_all(path);
}

/* What is cut off or changed counts as none, and the exported names stay. */
static void corrupt_minidebuginfo_is_none(void **state UNUSED)
{
	static const char *const harm[] = {
		"head -c 200 $P.mini.xz >$P.mini",
		"(head -c 100 $P.mini.xz; head -c 50 /dev/zero; tail -c +151 $P.mini.xz) >$P.mini",
		"head -c 100000000 /dev/zero | xz -9 >$P.mini", /* more than is taken */
		"head -c 100000 /dev/zero | xz >$P.mini",	 /* no ELF file */
		"printf x >$P.mini",
	};

	for (size_t i = 0; i < ARRAY_SIZE(harm); i++) {
		char *path = fixture_compile_to("c", with_static, "-O1 -rdynamic");
		CLEANUP_FREE char *command = NULL;
		struct elffile *f;
		struct symtab *t;

		assert_true(asprintf(&command, ADD_MINIDEBUG "%s && objcopy --add-section .gnu_debugdata=$P.mini $P",
				     harm[i]) > 0);
		shell(path, command);
		f = fixture_open(path);
		t = symtab_new(f, NULL);
		assert_true(symtab_count(t) > 0 && symtab_count(t) < 16);
		assert_true(symtab_bytes(t) < 4096);
		symtab_free(t);
		elffile_close(f);
		forget_all(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_dynamic_symbols_are_readelfs),
		cmocka_unit_test(names_of_a_cpp_program_are_readelfs),
		cmocka_unit_test(names_of_a_static_program_are_readelfs),
		cmocka_unit_test(aliases_sizes_and_labels_follow_the_rules),
		cmocka_unit_test(too_many_functions_are_none_and_as_many_as_may_be_are_soon_read),
		cmocka_unit_test(functions_in_data_and_unknown_names_do_no_harm),
		cmocka_unit_test(a_stripped_program_has_no_symbols),
		cmocka_unit_test(a_stripped_program_is_named_by_minidebuginfo),
		cmocka_unit_test(corrupt_minidebuginfo_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
