#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbolizer/jitmap.h"

static struct jitmap *map;
static int fd;

static int set_up(void **state UNUSED)
{
	map = jitmap_new();
	fd = memfd_create("map", MFD_CLOEXEC);
	return fd < 0;
}

static int tear_down(void **state UNUSED)
{
	map = jitmap_free(map);
	return close(fd);
}

static void append(const void *p, size_t n)
{
	assert_true(lseek(fd, 0, SEEK_END) >= 0);
	assert_int_equal(write(fd, p, n), n);
}

static void append_text(const char *text)
{
	append(text, strlen(text));
}

static struct jitmap_found *look(uint64_t address)
{
	static struct jitmap_found found;
	uint32_t entry;

	memset(&found, 0, sizeof(found));
	jitmap_find(map, &address, 1, &entry);
	if (entry != UINT32_MAX)
		jitmap_name(map, fd, entry, address, &found);
	return &found;
}

static void assert_name(uint64_t address, const char *name)
{
	assert_int_equal(jitmap_read(map, fd), MSG_FILE_OK);
	assert_string_equal(look(address)->name, name);
}

/* ---- perf maps ---- */

static void an_entry_holds_from_its_first_byte_to_its_last(void **state UNUSED)
{
	append_text("1000 20 a\n");
	assert_name(0xfff, "");
	assert_name(0x1000, "a");
	assert_name(0x101f, "a");
	assert_name(0x1020, "");
}

static void the_later_of_two_that_overlap_holds_and_the_rest_stays(void **state UNUSED)
{
	append_text("1000 100 old\n1040 40 new\n");
	assert_name(0x103f, "old");
	assert_name(0x1040, "new");
	assert_name(0x107f, "new");
	assert_name(0x1080, "old");
}

static void prefixes_blanks_and_line_ends_of_other_systems_are_read(void **state UNUSED)
{
	append_text("0x1000 0X10 LazyCompile:~f g.js:1:2\n 2000\t10  two blanks\r\nABC0 1f upper\n");
	assert_name(0x1000, "LazyCompile:~f g.js:1:2");
	assert_name(0x2000, "two blanks");
	assert_name(0xabde, "upper");
}

static void junk_is_passed_over(void **state UNUSED)
{
	append_text("\n1000\n1000 10\n1000 10 \nxyz 10 a\n1000 zz a\n10000000000000000 10 a\n"
		    "fffffffffffffff8 10 wraps\n1000 0 empty\n1000 100000000 huge\n-1 5 a\n0x 5 a\n");
	append("1000 \0 a\n", 9);
	append_text("2000 10 good\n");
	assert_name(0x1000, "");
	assert_name(0xfffffffffffffffcull, "");
	assert_name(0x2000, "good");
}

static void a_line_waits_until_it_is_whole(void **state UNUSED)
{
	append_text("1000 10 first\n2000 10 half");
	assert_name(0x2000, "");
	append_text(" and whole\n3000 10 third\n");
	assert_name(0x2000, "half and whole");
	assert_name(0x1000, "first");
	assert_name(0x3000, "third");
}

static void a_file_that_shrank_is_read_anew(void **state UNUSED)
{
	append_text("1000 10 first\n2000 10 second\n");
	assert_name(0x2000, "second");
	assert_int_equal(ftruncate(fd, 0), 0);
	append_text("1000 10 other\n");
	assert_name(0x1000, "other");
	assert_name(0x2000, "");
}

static void another_file_is_read_anew(void **state UNUSED)
{
	append_text("1000 10 first\n");
	assert_name(0x1000, "first");
	close(fd);
	fd = memfd_create("other", MFD_CLOEXEC);
	append_text("2000 10 second, and longer than the first was\n");
	assert_name(0x2000, "second, and longer than the first was");
	assert_name(0x1000, "");
}

static void a_line_without_end_hides_only_itself(void **state UNUSED)
{
	size_t len = 300000;
	char *long_line = malloc(len);

	memset(long_line, 'x', len);
	append_text("1000 10 ");
	append(long_line, len);
	append_text("\n2000 10 behind\n");
	free(long_line);
	assert_name(0x2000, "behind");
	assert_name(0x1000, "");
}

static void a_hole_of_100_gib_ends_the_reading(void **state UNUSED)
{
	append_text("1000 10 before\n");
	assert_int_equal(ftruncate(fd, 100ll << 30), 0);
	for (int i = 0; i < 8; i++)
		assert_name(0x1000, "before");
}

static void entries_are_bounded(void **state UNUSED)
{
	char *text = malloc(JITMAP_ENTRIES_MAX * 2u * 24u), *p = text;

	for (uint32_t i = 0; i < JITMAP_ENTRIES_MAX * 2u; i++)
		p += sprintf(p, "%x 10 f%x\n", 0x1000 + i * 16, i);
	append(text, (size_t)(p - text));
	free(text);
	assert_name(0x1000 + 16 * (JITMAP_ENTRIES_MAX - 1), "f1ffff");
	assert_name(0x1000 + 16 * JITMAP_ENTRIES_MAX, "");
	assert_true(jitmap_bytes(map) < 8u << 20);
}

static void many_questions_are_answered_as_one_by_one(void **state UNUSED)
{
	uint64_t addresses[MSG_ADDRS_MAX];
	uint32_t entries[MSG_ADDRS_MAX], one;
	char line[64];

	for (uint32_t i = 0; i < 3000; i++) {
		snprintf(line, sizeof(line), "%x %x n\n", (i * 7919) % 50000, 1 + (i * 104729) % 900);
		append_text(line);
	}
	assert_int_equal(jitmap_read(map, fd), MSG_FILE_OK);
	for (uint32_t i = 0; i < MSG_ADDRS_MAX; i++)
		addresses[i] = (i * 31337) % 52000;
	jitmap_find(map, addresses, MSG_ADDRS_MAX, entries);
	for (uint32_t i = 0; i < MSG_ADDRS_MAX; i++) {
		/* The rule itself: the last one in which the address lies. */
		one = UINT32_MAX;
		for (uint32_t k = 0; k < 3000; k++) {
			uint32_t start = (k * 7919) % 50000, size = 1 + (k * 104729) % 900;

			if (addresses[i] >= start && addresses[i] < start + size)
				one = k;
		}
		assert_int_equal(entries[i], one);
	}
}

/* ---- jitdump ---- */

static void append_u32(uint32_t v)
{
	append(&v, sizeof(v));
}

static void append_u64(uint64_t v)
{
	append(&v, sizeof(v));
}

static void append_head(uint32_t magic)
{
	const uint32_t words[] = { magic, 1, 40, 62, 0, 1, 0, 0, 0, 0 };

	append(words, sizeof(words));
}

static void append_record(uint32_t id, size_t rest)
{
	append_u32(id);
	append_u32((uint32_t)(16 + rest));
	append_u64(0);
}

static void append_load(uint64_t start, uint64_t size, uint64_t index, const char *name)
{
	append_record(0, 40 + strlen(name) + 1 + size);
	append_u64(0);
	append_u64(start);
	append_u64(start);
	append_u64(size);
	append_u64(index);
	append(name, strlen(name) + 1);
	for (uint64_t i = 0; i < size; i++)
		append("\x90", 1);
}

static void append_move(uint64_t from, uint64_t to, uint64_t size, uint64_t index)
{
	append_record(1, 48);
	append_u64(0);
	append_u64(to);
	append_u64(from);
	append_u64(to);
	append_u64(size);
	append_u64(index);
}

static void append_line(uint64_t start, uint32_t line, const char *name)
{
	append_u64(start);
	append_u32(line);
	append_u32(0);
	append(name, strlen(name) + 1);
}

static void append_lines(uint64_t start)
{
	append_record(2, 16 + 3 * 16 + 4 + 2 + 4);
	append_u64(start);
	append_u64(3);
	append_line(start, 10, "a.x");
	append_line(start + 8, 20, "\xff");
	append_line(start + 16, 30, "b.x");
}

static void assert_line(uint64_t address, const char *file, uint32_t line)
{
	struct jitmap_found *f = look(address);

	assert_string_equal(f->file, file);
	assert_int_equal(f->line, line);
}

static void loaded_code_has_its_name_and_lines(void **state UNUSED)
{
	append_head(0x4A695444);
	append_lines(0x1000);
	append_load(0x1000, 32, 1, "f");
	append_load(0x2000, 32, 2, "g");
	assert_name(0x101f, "f");
	assert_name(0x2000, "g");
	assert_name(0x1020, "");
	assert_line(0x1000, "a.x", 10);
	assert_line(0x1007, "a.x", 10);
	assert_line(0x1008, "a.x", 20);
	assert_line(0x101f, "b.x", 30);
	assert_line(0x2000, "", 0);
}

static void lines_of_other_code_are_not_taken(void **state UNUSED)
{
	append_head(0x4A695444);
	append_lines(0x5000);
	append_load(0x1000, 32, 1, "f");
	append_load(0x5000, 32, 2, "late");
	assert_name(0x1000, "f");
	assert_line(0x1000, "", 0);
	assert_line(0x5000, "", 0);
}

static void moved_code_keeps_its_lines(void **state UNUSED)
{
	append_head(0x4A695444);
	append_lines(0x1000);
	append_load(0x1000, 32, 1, "f");
	append_move(0x1000, 0x9000, 32, 1);
	append_move(0x9000, 0x400, 32, 1);
	append_move(0x9000, 0x7000, 32, 5);	/* of what was never loaded */
	assert_name(0x9008, "f");
	assert_line(0x9008, "a.x", 20);
	assert_name(0x408, "f");
	assert_line(0x408, "a.x", 20);
	assert_name(0x7000, "");
}

static void a_later_load_overrides(void **state UNUSED)
{
	append_head(0x4A695444);
	append_load(0x1000, 32, 1, "old");
	append_load(0x1010, 8, 2, "new");
	assert_name(0x1010, "new");
	assert_name(0x100f, "old");
	assert_name(0x1018, "old");
}

static void a_record_waits_until_it_is_whole(void **state UNUSED)
{
	off_t whole;

	append_head(0x4A695444);
	append_load(0x1000, 32, 1, "f");
	whole = lseek(fd, 0, SEEK_END);
	append_load(0x2000, 32, 2, "g");
	for (off_t len = lseek(fd, 0, SEEK_END) - 1; len >= whole; len--) {
		assert_int_equal(ftruncate(fd, len), 0);
		assert_name(0x1000, "f");
		assert_name(0x2000, "");
	}
	append_load(0x2000, 32, 2, "g");
	assert_name(0x2000, "g");
}

static void nothing_follows_the_end(void **state UNUSED)
{
	append_head(0x4A695444);
	append_record(3, 0);
	append_load(0x1000, 32, 1, "f");
	assert_name(0x1000, "");
}

static void the_other_byte_order_is_refused(void **state UNUSED)
{
	append_head(0x4454694A);
	assert_int_equal(jitmap_read(map, fd), MSG_FILE_UNSUPPORTED);
}

static void sizes_that_lie_harm_nothing(void **state UNUSED)
{
	append_head(0x4A695444);
	append_record(0, 56);
	append_u64(0);
	append_u64(0x1000);
	append_u64(0x1000);
	append_u64(UINT64_MAX - 8);	/* of code */
	append_u64(1);
	append_u64(0);
	append_u64(0);
	append_load(0x2000, 16, 2, "g");
	append_u32(0);
	append_u32(8);	/* less than a record has */
	append_u64(0);
	append_load(0x3000, 16, 3, "behind");
	assert_name(0x1000, "");
	assert_name(0x2000, "g");
	assert_name(0x3000, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_entry_holds_from_its_first_byte_to_its_last),
		T(the_later_of_two_that_overlap_holds_and_the_rest_stays),
		T(prefixes_blanks_and_line_ends_of_other_systems_are_read),
		T(junk_is_passed_over),
		T(a_line_waits_until_it_is_whole),
		T(a_file_that_shrank_is_read_anew),
		T(another_file_is_read_anew),
		T(a_line_without_end_hides_only_itself),
		T(a_hole_of_100_gib_ends_the_reading),
		T(entries_are_bounded),
		T(many_questions_are_answered_as_one_by_one),
		T(loaded_code_has_its_name_and_lines),
		T(lines_of_other_code_are_not_taken),
		T(moved_code_keeps_its_lines),
		T(a_later_load_overrides),
		T(a_record_waits_until_it_is_whole),
		T(nothing_follows_the_end),
		T(the_other_byte_order_is_refused),
		T(sizes_that_lie_harm_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
