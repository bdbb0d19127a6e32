#include "agent/procmaps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct seen {
	size_t n;
	struct event_map maps[16];
	char paths[16][256];
};

static int see(void *arg, const struct event_map *m)
{
	struct seen *s = arg;

	if (s->n < ARRAY_SIZE(s->maps)) {
		s->maps[s->n] = *m;
		snprintf(s->paths[s->n], sizeof(s->paths[0]), "%s", m->path);
	}
	s->n++;
	return 0;
}

static const char text[] =
	"00400000-00452000 r-xp 00001000 08:02 173521                             /usr/bin/dbus daemon\n"
	"00651000-00652000 r--p 00051000 08:02 173521                             /usr/bin/dbus daemon\n"
	"7f2c00000000-7f2c00021000 rwxp 00000000 00:00 0 \n"
	"7f2c00030000-7f2c00031000 r-xs 00000000 00:01 18446744073709551615       /memfd:a\\012b (deleted)\n"
	"7ffe8b5c2000-7ffe8b5c4000 r-xp 00000000 00:00 0                          [vdso]\n"
	"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

static void assert_text_is_seen(const struct seen *s)
{
	assert_int_equal(s->n, 5);
	assert_true(s->maps[0].start == 0x400000 && s->maps[0].end == 0x452000 && s->maps[0].offset == 0x1000);
	assert_true(s->maps[0].key.dev_major == 8 && s->maps[0].key.dev_minor == 2);
	assert_true(s->maps[0].key.inode == 173521 && !s->maps[0].key.generation_known);
	assert_string_equal(s->paths[0], "/usr/bin/dbus daemon");
	assert_string_equal(s->paths[1], "//anon");
	assert_true(s->maps[2].key.inode == UINT64_MAX && s->maps[2].key.dev_minor == 1);
	assert_string_equal(s->paths[2], "/memfd:a\nb (deleted)");
	assert_string_equal(s->paths[3], "[vdso]");
	assert_true(s->maps[4].start == 0xffffffffff600000 && s->maps[4].end == 0xffffffffff601000);
}

static void executable_mappings_are_read_as_the_kernel_wrote_them(void **state UNUSED)
{
	static struct procmaps p;
	struct seen s = {};

	p = (struct procmaps){};
	assert_int_equal(procmaps_feed(&p, text, strlen(text), false, see, &s), 0);
	assert_text_is_seen(&s);
}

static void pieces_of_any_size_give_the_same(void **state UNUSED)
{
	static struct procmaps p;

	for (size_t piece = 1; piece < sizeof(text); piece++) {
		struct seen s = {};

		p = (struct procmaps){};
		for (size_t at = 0; at < strlen(text); at += piece)
			assert_int_equal(procmaps_feed(&p, text + at, MIN(piece, strlen(text) - at), false, see, &s), 0);
		assert_text_is_seen(&s);
	}
}

static void nonsense_is_skipped(void **state UNUSED)
{
	static const char *const lines[] = {
		"",
		"x",
		"1000-2000",
		"1000-2000 r-x",
		"2000-1000 r-xp 0 00:00 0 /x",			/* backwards */
		"1000-1000 r-xp 0 00:00 0 /x",			/* empty */
		"11111111111111111-2 r-xp 0 00:00 0 /x",	/* over 64 bits */
		"1000-2000 r-xp 0 100000000:00 0 /x",		/* device over 32 bits */
		"1000-2000 r-xp 0 00:00 99999999999999999999 /x",
		"1000-2000 r-xp 0 00:00 a /x",
		"-2000 r-xp 0 00:00 0 /x",
		"1000-2000-r-xp 0 00:00 0 /x",
	};
	static char path[EVENT_PATH_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct event_map m;

		assert_false(procmaps_line(lines[i], strlen(lines[i]), true, &m, path));
	}
}

static void a_path_with_a_nul_or_beyond_the_limit_is_skipped(void **state UNUSED)
{
	static const char nul[] = "1000-2000 r-xp 0 00:00 0 /a\0b";
	static char path[EVENT_PATH_MAX + 1], line[EVENT_PATH_MAX + 200];
	struct event_map m;
	int n = snprintf(line, sizeof(line), "1000-2000 r-xp 0 00:00 0 /");

	assert_false(procmaps_line(nul, sizeof(nul) - 1, true, &m, path));
	memset(line + n, 'a', EVENT_PATH_MAX);
	assert_false(procmaps_line(line, (size_t)n + EVENT_PATH_MAX, true, &m, path));
	assert_true(procmaps_line(line, (size_t)n + EVENT_PATH_MAX - 1, true, &m, path));
	assert_int_equal(strlen(m.path), EVENT_PATH_MAX);
}

static void an_endless_line_costs_only_itself(void **state UNUSED)
{
	static struct procmaps p;
	static char garbage[100000];
	struct seen s = {};

	p = (struct procmaps){};
	memset(garbage, 'a', sizeof(garbage));
	assert_int_equal(procmaps_feed(&p, garbage, sizeof(garbage), false, see, &s), 0);
	assert_int_equal(procmaps_feed(&p, garbage, sizeof(garbage), false, see, &s), 0);
	assert_int_equal(procmaps_feed(&p, "\n", 1, false, see, &s), 0);
	assert_int_equal(procmaps_feed(&p, text, strlen(text), false, see, &s), 0);
	assert_text_is_seen(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(executable_mappings_are_read_as_the_kernel_wrote_them),
		cmocka_unit_test(pieces_of_any_size_give_the_same),
		cmocka_unit_test(nonsense_is_skipped),
		cmocka_unit_test(a_path_with_a_nul_or_beyond_the_limit_is_skipped),
		cmocka_unit_test(an_endless_line_costs_only_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
