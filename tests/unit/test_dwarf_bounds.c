/* Debug information that makes little bytes much work: it ends, and what is asked next has its names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbolizer/dwarf.h"
#include "symbolizer/dwarf_form.h"

enum {
	CODE = 0x1000,
	CODE_LEN = 0x100000,
	HANGS_AFTER_S = 300,	/* without a bound, each of these takes hours */
	BIG = 60000,
};

struct image {
	struct bufw of[SECTION_COUNT];
	size_t unit;		/* where the one at hand begins */
};

static void uleb(struct bufw *w, uint64_t v)
{
	for (; v > 0x7f; v >>= 7)
		bufw_u8(w, (uint8_t)(v | 0x80));
	bufw_u8(w, (uint8_t)v);
}

/* Pairs of attribute and form; of a DW_FORM_implicit_const the value is 0. */
static void abbrev(struct image *i, uint32_t code, uint32_t tag, bool has_children, const uint16_t *pairs, size_t n)
{
	struct bufw *w = &i->of[SECTION_ABBREV];

	uleb(w, code);
	uleb(w, tag);
	bufw_u8(w, has_children);
	for (size_t k = 0; k < n; k++) {
		uleb(w, pairs[2 * k]);
		uleb(w, pairs[2 * k + 1]);
		if (pairs[2 * k + 1] == DW_FORM_implicit_const)
			uleb(w, 0);
	}
	uleb(w, 0);
	uleb(w, 0);
}

static const uint16_t unit_attrs[] = { DW_AT_low_pc, DW_FORM_addr, DW_AT_high_pc, DW_FORM_data8,
				       DW_AT_stmt_list, DW_FORM_sec_offset };
static const uint16_t function_attrs[] = { DW_AT_name, DW_FORM_string, DW_AT_low_pc, DW_FORM_addr,
					   DW_AT_high_pc, DW_FORM_data8 };

/* Of DWARF 4, with its first DIE: an abbreviation of `unit_attrs` that has this code. */
static void begin_unit(struct image *i, uint32_t code, uint64_t low, uint64_t len)
{
	struct bufw *w = &i->of[SECTION_INFO];

	i->unit = w->len;
	bufw_u32(w, 0);
	bufw_u16(w, 4);
	bufw_u32(w, 0);
	bufw_u8(w, 8);
	uleb(w, code);
	bufw_u64(w, low);
	bufw_u64(w, len);
	bufw_u32(w, 0);
}

static void add_function(struct image *i, uint32_t code, const char *name, uint64_t low, uint64_t len)
{
	struct bufw *w = &i->of[SECTION_INFO];

	uleb(w, code);
	bufw_bytes(w, name, strlen(name) + 1);
	bufw_u64(w, low);
	bufw_u64(w, len);
}

static void end_unit(struct image *i)
{
	struct bufw *w = &i->of[SECTION_INFO];

	bufw_u8(w, 0);
	bufw_patch_u32(w, i->unit, (uint32_t)(w->len - i->unit - 4));
}

static struct sections sections_of(const struct image *i)
{
	struct sections s = { 0 };

	for (size_t k = 0; k < SECTION_COUNT; k++) {
		assert_int_equal(bufw_end(&i->of[k]), 0);
		s.of[k] = (struct bytes){ i->of[k].data, i->of[k].len };
	}
	return s;
}

static void image_fini(struct image *i)
{
	for (size_t k = 0; k < SECTION_COUNT; k++)
		bufw_fini(&i->of[k]);
}

static const struct elffile code = {
	.nsegments = 1, .segments = { { CODE, CODE_LEN, 0, CODE_LEN, 1 /* PF_X */ } },
};

static void expect_name(struct dwarf *d, const struct sections *s, uint64_t vaddr, const char *name)
{
	struct srcline lines[DWARF_LINES_MAX];

	assert_int_equal(dwarf_lines(d, s, &code, vaddr, lines), 1);
	assert_int_equal(lines[0].name.len, strlen(name));
	assert_memory_equal(lines[0].name.p, name, strlen(name));
}

static void expect_nothing(struct dwarf *d, const struct sections *s, uint64_t vaddr)
{
	struct srcline lines[DWARF_LINES_MAX];

	assert_int_equal(dwarf_lines(d, s, &code, vaddr, lines), 0);
}

/* ---- tests ---- */

/* Of the table, each unit needs the last abbreviation. */
static struct image units_of_a_long_table(uint32_t nunits, uint32_t nabbrevs)
{
	struct image i = { 0 };

	for (uint32_t k = 1; k < nabbrevs; k++)
		abbrev(&i, k, DW_TAG_subprogram, false, function_attrs, 3);
	abbrev(&i, nabbrevs, DW_TAG_compile_unit, true, unit_attrs, 3);
	for (uint32_t k = 0; k < nunits; k++) {
		begin_unit(&i, nabbrevs, CODE + k * 16, 16);
		add_function(&i, 1, "named", CODE + k * 16, 16);
		end_unit(&i);
	}
	return i;
}

static void finding_units_ends_though_each_needs_the_whole_table(void **state UNUSED)
{
	struct image few = units_of_a_long_table(20, 20), many = units_of_a_long_table(BIG, BIG);
	struct sections s = sections_of(&few);
	struct dwarf *d = dwarf_new(&s, &code);

	expect_name(d, &s, CODE + 19 * 16, "named");
	assert_int_equal(dwarf_skipped(d), 0);
	dwarf_free(d);
	s = sections_of(&many);
	d = dwarf_new(&s, &code);
	assert_int_equal(dwarf_skipped(d), 1);
	/* What was found before that is as good as ever. */
	expect_name(d, &s, CODE, "named");
	expect_nothing(d, &s, CODE + (BIG - 1) * 16);
	dwarf_free(d);
	image_fini(&few);
	image_fini(&many);
}

/* A unit of functions that share a list of ranges, of which none is code; then one of a plain function. */
static struct image functions_of_one_list(uint32_t nfunctions, uint32_t nranges)
{
	static const uint16_t attrs[] = { DW_AT_ranges, DW_FORM_implicit_const };
	struct image i = { 0 };

	abbrev(&i, 1, DW_TAG_compile_unit, true, unit_attrs, 3);
	abbrev(&i, 2, DW_TAG_subprogram, false, function_attrs, 3);
	abbrev(&i, 3, DW_TAG_subprogram, false, attrs, 1);
	bufw_u64(&i.of[SECTION_RANGES], UINT64_MAX); /* they count from 0, not from the unit's begin */
	bufw_u64(&i.of[SECTION_RANGES], 0);
	for (uint32_t k = 0; k < nranges; k++) {
		bufw_u64(&i.of[SECTION_RANGES], 1);
		bufw_u64(&i.of[SECTION_RANGES], 2);
	}
	bufw_u64(&i.of[SECTION_RANGES], 0);
	bufw_u64(&i.of[SECTION_RANGES], 0);
	begin_unit(&i, 1, CODE, 16);
	add_function(&i, 2, "first", CODE, 16);
	for (uint32_t k = 0; k < nfunctions; k++)
		uleb(&i.of[SECTION_INFO], 3);
	end_unit(&i);
	begin_unit(&i, 1, CODE + 16, 16);
	add_function(&i, 2, "second", CODE + 16, 16);
	end_unit(&i);
	return i;
}

static void a_list_of_ranges_that_all_functions_share_ends(void **state UNUSED)
{
	struct image few = functions_of_one_list(20, 20), many = functions_of_one_list(BIG, BIG);
	struct sections s = sections_of(&few);
	struct dwarf *d = dwarf_new(&s, &code);

	expect_name(d, &s, CODE, "first");
	dwarf_free(d);
	s = sections_of(&many);
	d = dwarf_new(&s, &code);
	expect_nothing(d, &s, CODE);
	assert_int_equal(dwarf_skipped(d), 1);
	dwarf_refill(d);
	expect_name(d, &s, CODE + 16, "second");
	dwarf_free(d);
	image_fini(&few);
	image_fini(&many);
}

/* DIEs of one byte with thousands of attributes. */
static void attributes_without_bytes_are_counted(void **state UNUSED)
{
	enum { NATTRS = 4000, NDIES = 1 << 20 };
	uint16_t attrs[2 * NATTRS] = { DW_AT_ranges, DW_FORM_implicit_const };
	struct image i = { 0 };
	struct sections s;
	struct dwarf *d;

	for (size_t k = 1; k < NATTRS; k++) {
		attrs[2 * k] = DW_AT_external;
		attrs[2 * k + 1] = DW_FORM_flag_present;
	}
	abbrev(&i, 1, DW_TAG_compile_unit, true, unit_attrs, 3);
	abbrev(&i, 2, DW_TAG_subprogram, false, function_attrs, 3);
	abbrev(&i, 3, DW_TAG_subprogram, false, attrs, NATTRS);
	begin_unit(&i, 1, CODE, 16);
	add_function(&i, 2, "first", CODE, 16);
	for (uint32_t k = 0; k < NDIES; k++)
		uleb(&i.of[SECTION_INFO], 3);
	end_unit(&i);
	begin_unit(&i, 1, CODE + 16, 16);
	add_function(&i, 2, "second", CODE + 16, 16);
	end_unit(&i);
	s = sections_of(&i);
	d = dwarf_new(&s, &code);
	expect_name(d, &s, CODE + 16, "second");
	expect_nothing(d, &s, CODE);
	assert_int_equal(dwarf_skipped(d), 1);
	/* Now it had a request for itself, so nobody tries a third time. */
	dwarf_refill(d);
	expect_nothing(d, &s, CODE);
	assert_int_equal(dwarf_skipped(d), 2);
	dwarf_refill(d);
	expect_nothing(d, &s, CODE);
	assert_int_equal(dwarf_skipped(d), 2);
	dwarf_free(d);
	image_fini(&i);
}

/* A line table of so many rows at neighbouring addresses. */
static void add_line_table(struct image *i, uint32_t nrows)
{
	static const uint8_t lengths[] = { 0, 1, 1, 1, 1, 0, 0, 0, 1 };
	struct bufw *w = &i->of[SECTION_LINE];
	size_t header;

	bufw_u32(w, 0);
	bufw_u16(w, 2);
	header = w->len;
	bufw_u32(w, 0);
	bufw_u8(w, 1); /* bytes of the shortest instruction */
	bufw_u8(w, 1);
	bufw_u8(w, 0); /* line_base */
	bufw_u8(w, 2); /* line_range */
	bufw_u8(w, 10);
	bufw_bytes(w, lengths, sizeof(lengths));
	bufw_u8(w, 0);
	bufw_bytes(w, "/file\0\0\0", 9);
	bufw_u8(w, 0);
	bufw_patch_u32(w, header, (uint32_t)(w->len - header - 4));
	bufw_bytes(w, "\0\x09\x02", 3);
	bufw_u64(w, CODE);
	for (uint32_t k = 0; k < nrows; k++)
		bufw_u8(w, 10 + 3); /* the next address, the next line */
	bufw_bytes(w, "\0\x01\x01", 3);
	bufw_patch_u32(w, 0, (uint32_t)(w->len - 4));
}

static void units_that_share_a_line_table_stay_within_the_memory_of_a_request(void **state UNUSED)
{
	enum { NUNITS = 512, NROWS = CODE_LEN - 1 };
	struct srcline lines[DWARF_LINES_MAX];
	struct image i = { 0 };
	struct sections s;
	struct dwarf *d;
	size_t nlines = 0;

	abbrev(&i, 1, DW_TAG_compile_unit, true, unit_attrs, 3);
	for (uint32_t k = 0; k < NUNITS; k++) {
		begin_unit(&i, 1, CODE + k * 16, 16);
		end_unit(&i);
	}
	add_line_table(&i, NROWS);
	s = sections_of(&i);
	d = dwarf_new(&s, &code);
	for (uint32_t k = 0; k < NUNITS; k++) {
		uint32_t n = dwarf_lines(d, &s, &code, CODE + k * 16 + 3, lines);

		if (!n)
			continue;
		assert_int_equal(lines[0].line, 1 + k * 16 + 3);
		assert_string_equal(lines[0].file.p, "/file");
		nlines++;
	}
	assert_in_range(nlines, 1, 4);
	assert_int_equal(dwarf_skipped(d), NUNITS - nlines);
	assert_true(dwarf_bytes(d) < 2 * (size_t)DWARF_REQUEST_BYTES_MAX);
	dwarf_refill(d);
	assert_true(dwarf_bytes(d) < 2 * (size_t)DWARF_BYTES_MAX);
	assert_int_equal(dwarf_lines(d, &s, &code, CODE + (NUNITS - 1) * 16, lines), 1);
	assert_int_equal(lines[0].line, 1 + (NUNITS - 1) * 16);
	dwarf_free(d);
	image_fini(&i);
}

static void a_name_that_does_not_end_is_cut(void **state UNUSED)
{
	struct srcline lines[DWARF_LINES_MAX];
	char *name = calloc(1, (1 << 20) + 1);
	struct image i = { 0 };
	struct sections s;
	struct dwarf *d;

	assert_non_null(name);
	memset(name, 'n', 1 << 20);
	abbrev(&i, 1, DW_TAG_compile_unit, true, unit_attrs, 3);
	abbrev(&i, 2, DW_TAG_subprogram, false, function_attrs, 3);
	begin_unit(&i, 1, CODE, 32);
	add_function(&i, 2, name, CODE, 16);
	add_function(&i, 2, "second", CODE + 16, 16);
	end_unit(&i);
	s = sections_of(&i);
	d = dwarf_new(&s, &code);
	assert_int_equal(dwarf_lines(d, &s, &code, CODE, lines), 1);
	assert_int_equal(lines[0].name.len, DWARF_TEXT_MAX);
	expect_name(d, &s, CODE + 16, "second");
	dwarf_free(d);
	image_fini(&i);
	free(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finding_units_ends_though_each_needs_the_whole_table),
		cmocka_unit_test(a_list_of_ranges_that_all_functions_share_ends),
		cmocka_unit_test(attributes_without_bytes_are_counted),
		cmocka_unit_test(units_that_share_a_line_table_stay_within_the_memory_of_a_request),
		cmocka_unit_test(a_name_that_does_not_end_is_cut),
	};

	alarm(HANGS_AFTER_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
