/* The symbol index against readelf -s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
	struct symtab *t = symtab_new(f);
	struct bytes strings = symtab_strings(t, f);
	struct oracle o = ask_readelf(path, table);
	size_t nsized = 0, nwrong = 0, nafter = 0;
	struct symbol s;

	for (size_t i = 0; i < o.n; i++) {
		const struct oracle_sym *want = &o.syms[i];

		if (!want->size)
			continue;
		nsized++;
		if (!symtab_is_function_start(t, want->vaddr) || !symtab_find(t, want->vaddr, &s) ||
		    !is_covering_name(&o, want->vaddr, symtab_name(strings, s.name)) ||
		    !symtab_find(t, want->vaddr + want->size - 1, &s) ||
		    !is_covering_name(&o, want->vaddr + want->size - 1, symtab_name(strings, s.name))) {
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

static void want_name(const struct symtab *t, struct bytes strings, uint64_t vaddr, const char *want)
{
	struct symbol s;
	bool found = symtab_find(t, vaddr, &s);

	assert_int_equal(found, want != NULL);
	if (found && !same_name(symtab_name(strings, s.name), want))
		fail_msg("at %lx: got %.*s, want %s", vaddr, (int)symtab_name(strings, s.name).len,
			 symtab_name(strings, s.name).p, want);
}

static void aliases_sizes_and_labels_follow_the_rules(void **state UNUSED)
{
	char *path = fixture_compile_to("s", assembly, "-nostdlib -static");
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f);
	struct bytes strings = symtab_strings(t, f);
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

static void a_stripped_program_has_no_symbols(void **state UNUSED)
{
	char *path = fixture_compile_to("c", fixture_c, "-O2 -static -s");
	struct elffile *f = fixture_open(path);
	struct symtab *t = symtab_new(f);
	struct symbol s;

	assert_int_equal(symtab_count(t), 0);
	assert_false(symtab_find(t, f->entry, &s));
	assert_false(symtab_is_function_start(t, f->entry));
	symtab_free(t);
	elffile_close(f);
	fixture_forget(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_dynamic_symbols_are_readelfs),
		cmocka_unit_test(names_of_a_cpp_program_are_readelfs),
		cmocka_unit_test(names_of_a_static_program_are_readelfs),
		cmocka_unit_test(aliases_sizes_and_labels_follow_the_rules),
		cmocka_unit_test(a_stripped_program_has_no_symbols),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
