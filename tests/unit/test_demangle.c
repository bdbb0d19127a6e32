#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "symbolizer/demangle.h"
#include "tests/unit/elf_fixture.h"

static struct demangled *styled(const char *symbol, enum demangle_style style)
{
	static struct demangled d;

	demangle((struct bytes){ (const uint8_t *)symbol, strlen(symbol) }, false, style, &d);
	return &d;
}

static struct demangled *plain(const char *symbol)
{
	return styled(symbol, DEMANGLE_SHORT);
}

static void known_names_are_readable(void **state UNUSED)
{
	static const char *const cases[][2] = {
		{ "main", "main" },
		{ "_ZN3foo3barEi", "foo::bar" },
		{ "_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back" },
		{ "_Z4sortIiEvPT_", "sort<int>" },
		{ "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad" },
		{ "_RNvCs1234_7mycrate3foo", "mycrate::foo" },
		{ "_RNvMNtCs4fqI2P2rA04_4core3fmtNtB2_9Formatter3pad", "<core::fmt::Formatter>::pad" },
		{ "malloc@@GLIBC_2.2.5", "malloc" },
		{ "_ZN3foo3barEi.part.0", "foo::bar" },
		{ "_ZN3foo3barEi.isra.0.cold", "foo::bar" },
		{ "_ZN3foo3barEi.constprop.12", "foo::bar" },
		{ "work.cold", "work" },
		{ "work.cold.3", "work" },
		{ "work.llvm.1234567890", "work" },
		{ "work.lto_priv.0", "work" },
		{ "work.part", "work.part" },
		{ "work.3", "work.3" },
		{ ".cold", ".cold" },
		{ "_Z", "_Z" },
		{ "_ZN", "_ZN" },
		{ "_R", "_R" },
		{ "@x", "@x" },
		{ "", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(plain(cases[i][0])->name, cases[i][1]);
}

static void each_style_writes_as_much_as_it_says(void **state UNUSED)
{
	static const char *const cases[][4] = { /* symbol, short, full, none */
		{ "_ZN3foo3barEi", "foo::bar", "foo::bar(int)", "_ZN3foo3barEi" },
		{ "_Z4sortIiEvPT_", "sort<int>", "void sort<int>(int*)", "_Z4sortIiEvPT_" },
		{ "_ZNK3foo3getEv", "foo::get", "foo::get() const", "_ZNK3foo3getEv" },
		{ "_ZZ4mainENKUliE0_clEi", "main::{lambda(int)#2}::operator()", "main::{lambda(int)#2}::operator()(int) const",
		  "_ZZ4mainENKUliE0_clEi" },
		{ "_ZN3foo3barEi.constprop.0.cold", "foo::bar", "foo::bar(int)", "_ZN3foo3barEi.constprop.0.cold" },
		{ "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad",
		  "core::fmt::Formatter::pad", "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE" },
		{ "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.1234567890123", "core::fmt::Formatter::pad",
		  "core::fmt::Formatter::pad", "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.1234567890123" },
		{ "_RNvCs1234_7mycrate3foo.llvm.42", "mycrate::foo", "mycrate::foo", "_RNvCs1234_7mycrate3foo.llvm.42" },
		{ "_D8demangle4testFiZv", "demangle.test", "demangle.test(int)", "_D8demangle4testFiZv" },
		{ "_D8demangle4test3runMxFZv", "demangle.test.run", "demangle.test.run() const",
		  "_D8demangle4test3runMxFZv" },
		{ "_D8demangle13__T4testTiTiZv", "demangle.test!(int, int)", "demangle.test!(int, int)",
		  "_D8demangle13__T4testTiTiZv" },
		{ "read@GLIBC_2.2.5", "read", "read", "read" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t k = 0; k < 3; k++)
			assert_string_equal(styled(cases[i][0], (enum demangle_style)k)->name, cases[i][1 + k]);
}

static void the_system_name_keeps_the_suffix_but_no_version(void **state UNUSED)
{
	assert_string_equal(plain("_ZN3foo3barEi.cold")->system_name, "_ZN3foo3barEi.cold");
	assert_string_equal(plain("read@GLIBC_2.2.5")->system_name, "read");
}

static void go_names_stay_as_they_are(void **state UNUSED)
{
	static const char *const names[] = {
		"main.main.func1", "_ZN3foo3barEi", "type:.eq.[2]string", "gopkg.in/x@v1.(*T).cold",
	};
	struct demangled d;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		demangle((struct bytes){ (const uint8_t *)names[i], strlen(names[i]) }, true, DEMANGLE_FULL, &d);
		assert_string_equal(d.name, names[i]);
		assert_string_equal(d.system_name, names[i]);
	}
}

/* ---- against c++filt ---- */

struct compare {
	unsigned int n, nwrong;
};

static void on_pair(void *arg, char *line)
{
	struct compare *c = arg;
	char *tab = strchr(line, '\t');

	if (!tab)
		return;
	*tab = '\0';
	/* c++filt reads global constructors' and clones' names in its own way. */
	if (strchr(line, '.') || strncmp(line, "_GLOBAL_", 8) == 0 || strlen(tab + 1) > MSG_NAME_MAX)
		return;
	c->n++;
	if (strcmp(plain(line)->name, tab + 1) != 0 && c->nwrong++ < 5)
		print_error("%s: got %s want %s\n", line, plain(line)->name, tab + 1);
}

static void thousands_of_cpp_names_agree_with_cxxfilt(void **state UNUSED)
{
	static struct compare c;

	fixture_each_line("t=$(mktemp); nm -D --defined-only /usr/lib/x86_64-linux-gnu/libstdc++.so.6 |"
			  " sed 's/.* //; s/@.*//' | grep '^_Z' | sort -u >$t;"
			  " c++filt -p -i <$t | paste $t -; rm $t",
			  on_pair, &c);
	print_message("%u names, %u disagreements\n", c.n, c.nwrong);
	assert_true(c.n > 3000);
	assert_int_equal(c.nwrong, 0);
}

/* ---- hostile names ---- */

static bool is_clean(const char *s)
{
	size_t left = strlen(s), n;

	if (left > MSG_NAME_MAX)
		return false;
	for (; left; s += n, left -= n) {
		n = msg_utf8_len(s, left);
		if (!n || (n == 1 && (uint8_t)*s < 0x20) || *s == 0x7f)
			return false;
	}
	return true;
}

static void a_name_that_doubles_with_every_level_comes_out_raw_and_soon(void **state UNUSED)
{
	char symbol[2048] = "_Z1fI";
	uint64_t start = clock_cpu_ns();
	size_t len = strlen(symbol);

	/* 1AI i i E, then substitutions of the one before, twice each: 2^60 characters. */
	len += (size_t)sprintf(symbol + len, "1AIiiE");
	for (int i = 0; i < 30; i++)
		len += (size_t)sprintf(symbol + len, "S_IS%c_S%c_E", i < 10 ? '0' + i : 'A' + i - 10,
				       i < 10 ? '0' + i : 'A' + i - 10);
	sprintf(symbol + len, "EvT_");
	assert_string_equal(plain(symbol)->name, symbol);
	assert_string_equal(styled(symbol, DEMANGLE_FULL)->name, symbol);
	/* The same by back references of Rust. */
	len = (size_t)sprintf(symbol, "_RINvC1a1b");
	for (int i = 0; i < 24; i++)
		len += (size_t)sprintf(symbol + len, "TB8_B8_E");
	sprintf(symbol + len, "E");
	assert_true(is_clean(plain(symbol)->name));
	assert_true(clock_cpu_ns() - start < 100000000);
}

/* Each parameter is a map from the one before to the one before: 2^n characters. */
static const char *doubling_d(char *symbol, int n)
{
	size_t len = (size_t)sprintf(symbol, "_D1a1bFHiiHQeQg");

	for (int i = 1; i < n; i++)
		len += (size_t)sprintf(symbol + len, "HQgQi");
	sprintf(symbol + len, "Zv");
	return symbol;
}

static void back_references_of_d_are_followed_while_they_are_few(void **state UNUSED)
{
	char symbol[DEMANGLE_D_SYMBOL_MAX];
	uint64_t start = clock_cpu_ns();

	assert_string_equal(styled(doubling_d(symbol, 1), DEMANGLE_FULL)->name,
			    "a.b(int[int], int[int][int[int]])");
	assert_string_equal(styled(doubling_d(symbol, DEMANGLE_D_REFERENCES_MAX / 2), DEMANGLE_SHORT)->name, "a.b");
	assert_string_equal(styled(doubling_d(symbol, DEMANGLE_D_REFERENCES_MAX / 2 + 1), DEMANGLE_SHORT)->name, symbol);
	assert_string_equal(styled(doubling_d(symbol, 100), DEMANGLE_FULL)->name, symbol);
	assert_true(clock_cpu_ns() - start < 100000000);
}

/* Of every kind, in every style: raw, cut where a name must end, and soon. */
static void a_hundred_thousand_characters_come_out_raw(void **state UNUSED)
{
	static const char *const heads[] = { "_Z1fI", "_ZN", "_RINvC1a1b", "_D", "_Z1fPPPPPP", "plain" };
	static const char *const parts[] = { "1AIiiE", "3foo", "TB8_B8_E", "4name", "S_", "a.cold.part.0" };
	enum { LENGTH = 100000 };
	char *symbol = malloc(LENGTH + 16);
	uint64_t start = clock_cpu_ns();

	assert_non_null(symbol);
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		size_t len = (size_t)sprintf(symbol, "%s", heads[i]);

		while (len < LENGTH)
			len += (size_t)sprintf(symbol + len, "%s", parts[i]);
		for (size_t k = 0; k < 3; k++) {
			const char *name = styled(symbol, (enum demangle_style)k)->name;

			assert_true(is_clean(name));
			assert_int_equal(strlen(name), MSG_NAME_MAX);
			assert_memory_equal(name, symbol, MSG_NAME_MAX);
		}
	}
	assert_true(clock_cpu_ns() - start < 100000000);
	free(symbol);
}

static void deep_nesting_does_not_end_the_stack(void **state UNUSED)
{
	static char symbol[DEMANGLE_SYMBOL_MAX + 1];
	static const char letters[] = "PRKIJNSLXTFDA";

	for (size_t i = 0; i < ARRAY_SIZE(letters) - 1; i++) {
		memset(symbol, letters[i], DEMANGLE_SYMBOL_MAX);
		memcpy(symbol, "_Z1f", 4);
		assert_true(is_clean(plain(symbol)->name));
		memcpy(symbol, "_RNv", 4);
		assert_true(is_clean(plain(symbol)->name));
	}
}

static void a_very_long_name_is_cut_at_a_character(void **state UNUSED)
{
	static char symbol[3 * MSG_NAME_MAX];
	size_t len = 0;

	while (len < sizeof(symbol) - 4)
		len += (size_t)sprintf(symbol + len, "\xe2\x82\xac");
	assert_true(is_clean(plain(symbol)->name));
	assert_int_equal(strlen(plain(symbol)->name), MSG_NAME_MAX / 3 * 3);
	assert_true(is_clean(plain(symbol)->system_name));
}

static void bytes_that_are_no_text_become_question_marks(void **state UNUSED)
{
	assert_string_equal(plain("a\x80\xff\xc3\xa4\x1b[31m\x7f")->name, "a??\xc3\xa4?[31m?");
	assert_string_equal(plain("a\xc2\x9bz")->name, "a?z"); /* C1: terminals take it for ESC [ */
	assert_string_equal(plain("\xed\xa0\x80")->name, "???");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_names_are_readable),
		cmocka_unit_test(each_style_writes_as_much_as_it_says),
		cmocka_unit_test(the_system_name_keeps_the_suffix_but_no_version),
		cmocka_unit_test(go_names_stay_as_they_are),
		cmocka_unit_test(thousands_of_cpp_names_agree_with_cxxfilt),
		cmocka_unit_test(a_name_that_doubles_with_every_level_comes_out_raw_and_soon),
		cmocka_unit_test(back_references_of_d_are_followed_while_they_are_few),
		cmocka_unit_test(a_hundred_thousand_characters_come_out_raw),
		cmocka_unit_test(deep_nesting_does_not_end_the_stack),
		cmocka_unit_test(a_very_long_name_is_cut_at_a_character),
		cmocka_unit_test(bytes_that_are_no_text_become_question_marks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
