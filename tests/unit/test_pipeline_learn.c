/* Samples that miss memory, and looks at live threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/pipeline_fixture.h"

#define A 0x100000ull	/* where /bin/a is mapped */
#define B 0x900000ull
#define PAGE ((uint64_t)EVENT_PAGE_BYTES)
enum { PID = 42, WORDS = EVENT_PAGE_BYTES / 8 };

/* At WORLD_STACK + 8 is what the sample misses; all of the page up to its end are frames. */
static uint64_t frames[WORDS], end[WORDS], code_of_b[WORDS];
static const uint64_t chain[] = { A + 0x10, A + 0x21 };

static int fill_pages(void **state UNUSED)
{
	for (size_t i = 0; i < WORDS; i++)
		frames[i] = code_of_b[i] = A + 0x31;
	code_of_b[2] = B + 0x41;
	return 0;
}

static void begin(struct world *w)
{
	world_init(w, NULL);
	world_start(w, 1, NULL, 0, false);
	world_exec(w, 2, PID);
	world_map(w, 3, PID, A, "/bin/a");
	world_map(w, 4, PID, B, "/bin/b");
}

/* One sample that ends at the first page, unwound as far as it goes. */
static void cut_sample(struct world *w, uint64_t time_ns)
{
	world_cut_sample(w, time_ns, PID, chain, 2);
	world_turn(w, time_ns + 2 * NSEC_PER_MSEC);
	world_settle(w, time_ns + 3 * NSEC_PER_MSEC);
}

static void assert_learned(const struct world *w, uint32_t npages, const uint64_t *pages)
{
	assert_int_equal(w->learned_tid, PID);
	assert_int_equal(w->learned.npages, npages);
	assert_memory_equal(w->learned.pages, pages, npages * sizeof(*pages));
}

#define WORLD(w)                                  \
	CLEANUP(world_fini) struct world w;       \
	begin(&(w))

static void one_miss_teaches_all_that_the_stack_needs(void **state UNUSED)
{
	const uint64_t both[] = { WORLD_STACK, WORLD_STACK + PAGE };
	const uint64_t *const first[EVENT_PAGES_MAX] = { frames, frames }, *const then[EVENT_PAGES_MAX] = { end, NULL };
	CLEANUP_FREE char *text = NULL;
	WORLD(w);

	cut_sample(&w, 10 * NSEC_PER_MSEC);
	assert_learned(&w, 1, both);
	assert_int_equal(w.npeeks, 1);
	assert_true(w.peek.tid == PID && w.peek.npages == 2);
	assert_memory_equal(w.peek.pages, both, sizeof(both));
	world_memory(&w, NSEC_PER_SEC, first, false);
	world_settle(&w, NSEC_PER_SEC);
	/* Both are full of frames: it goes on. */
	assert_int_equal(w.npeeks, 2);
	assert_int_equal(w.peek.pages[0], WORLD_STACK + 2 * PAGE);
	world_memory(&w, NSEC_PER_SEC + 1, then, false);
	assert_int_equal(w.npeeks, 2);
	assert_learned(&w, 3, (const uint64_t[]){ both[0], both[1], both[1] + PAGE });
	/* The sample has no more frames than it came with. */
	world_window(&w, 2 * NSEC_PER_SEC, true);
	world_settle(&w, 2 * NSEC_PER_SEC + 1);
	text = world_text(&w, 0);
	assert_string_equal(text, "42 /bin/a 1: a:10 a:20 [truncated]\n");
}

static void a_page_that_is_not_needed_is_not_learned(void **state UNUSED)
{
	const uint64_t *const pages[EVENT_PAGES_MAX] = { end, frames };
	WORLD(w);

	cut_sample(&w, 10 * NSEC_PER_MSEC);
	world_memory(&w, NSEC_PER_SEC, pages, false);
	assert_int_equal(w.npeeks, 1);
	assert_learned(&w, 1, (const uint64_t[]){ WORLD_STACK });
}

static void a_look_waits_for_rows_of_code_that_it_meets_first(void **state UNUSED)
{
	const uint64_t *const pages[EVENT_PAGES_MAX] = { code_of_b, end };
	uint32_t nrows;
	WORLD(w);

	cut_sample(&w, 10 * NSEC_PER_MSEC);
	nrows = w.nrows_asked;
	world_memory(&w, NSEC_PER_SEC, pages, false);
	assert_learned(&w, 1, (const uint64_t[]){ WORLD_STACK });
	assert_true(w.nrows_asked > nrows);
	world_settle(&w, NSEC_PER_SEC + 1);
	assert_int_equal(w.npeeks, 1);
	assert_learned(&w, 2, (const uint64_t[]){ WORLD_STACK, WORLD_STACK + PAGE });
}

static void memory_that_is_not_there_ends_the_look(void **state UNUSED)
{
	const uint64_t *const pages[EVENT_PAGES_MAX] = { NULL, NULL };
	WORLD(w);

	cut_sample(&w, 10 * NSEC_PER_MSEC);
	world_memory(&w, NSEC_PER_SEC, pages, false);
	assert_int_equal(w.npeeks, 1);
	assert_learned(&w, 1, (const uint64_t[]){ WORLD_STACK });
	/* An answer to nothing. */
	world_memory(&w, NSEC_PER_SEC + 1, (const uint64_t *const[EVENT_PAGES_MAX]){ frames, frames }, false);
	assert_int_equal(w.npeeks, 1);
}

static void known_pages_are_asked_for_once(void **state UNUSED)
{
	WORLD(w);

	for (uint64_t i = 1; i < 20; i++)
		cut_sample(&w, i * 10 * NSEC_PER_MSEC);
	assert_int_equal(w.npeeks, 1);
	/* The page, and once that it did not suffice. */
	assert_int_equal(w.nlearned, 2);
	assert_true(w.learned.flags & ABI_LEARNED_FOLLOW);
}

static void after_a_reader_hung_nobody_is_looked_at_for_a_minute(void **state UNUSED)
{
	WORLD(w);

	cut_sample(&w, 10 * NSEC_PER_MSEC);
	world_memory(&w, NSEC_PER_SEC, NULL, true);
	world_exec(&w, 2 * NSEC_PER_SEC, PID);
	world_map(&w, 2 * NSEC_PER_SEC + 1, PID, A, "/bin/a");
	cut_sample(&w, 3 * NSEC_PER_SEC);
	assert_int_equal(w.npeeks, 1);
	assert_learned(&w, 1, (const uint64_t[]){ WORLD_STACK });
	world_exec(&w, 70 * NSEC_PER_SEC, PID);
	world_map(&w, 70 * NSEC_PER_SEC + 1, PID, A, "/bin/a");
	world_turn(&w, 70 * NSEC_PER_SEC + 2 * NSEC_PER_MSEC);
	cut_sample(&w, 71 * NSEC_PER_SEC);
	assert_int_equal(w.npeeks, 2);
}

static void looks_are_bounded(void **state UNUSED)
{
	WORLD(w);

	cut_sample(&w, NSEC_PER_SEC);
	for (uint32_t i = 1; i < 100; i++) {
		world_fork(&w, NSEC_PER_SEC + i, PID + i, PID);
		world_cut_sample(&w, NSEC_PER_SEC + 100 + i, PID + i, chain, 2);
	}
	world_turn(&w, 2 * NSEC_PER_SEC);
	assert_int_equal(w.nlearned, 100);
	assert_int_equal(w.npeeks, 8); /* at a time; none was answered */
	world_turn(&w, 8 * NSEC_PER_SEC);
	for (uint32_t i = 1; i < 100; i++) {
		world_exit(&w, 8 * NSEC_PER_SEC + i, PID + i);
		world_fork(&w, 8 * NSEC_PER_SEC + 200 + i, PID + i, PID);
		world_cut_sample(&w, 8 * NSEC_PER_SEC + 400 + i, PID + i, chain, 2);
	}
	world_turn(&w, 9 * NSEC_PER_SEC);
	assert_int_equal(w.npeeks, 16); /* the first ones' time is over */
}

static void what_ends_or_calls_exec_is_forgotten(void **state UNUSED)
{
	WORLD(w);

	cut_sample(&w, NSEC_PER_SEC);
	world_exec(&w, 2 * NSEC_PER_SEC, PID);
	world_map(&w, 2 * NSEC_PER_SEC + 1, PID, A, "/bin/a");
	world_turn(&w, 3 * NSEC_PER_SEC);
	assert_true(w.nlearned == 2 && w.learned.npages == 0 && w.learned.nstacks == 0);
	cut_sample(&w, 3 * NSEC_PER_SEC);
	assert_true(w.nlearned == 3 && w.learned.npages == 1);
	world_exit(&w, 4 * NSEC_PER_SEC, PID);
	world_turn(&w, 5 * NSEC_PER_SEC);
	assert_true(w.nlearned == 4 && w.learned.npages == 0 && w.learned.nstacks == 0);
}

/* ---- where Go has g ------------------------------------------------------------------------------ */

static void sample_of(struct world *w, uint64_t time_ns, uint32_t pid, uint64_t address)
{
	const uint64_t pcs[] = { address + 0x10, address + 0x21 };

	world_sample(w, time_ns, pid, pcs, 2);
	world_turn(w, time_ns + 2 * NSEC_PER_MSEC);
	world_settle(w, time_ns + 3 * NSEC_PER_MSEC);
}

static void the_kernel_is_told_where_go_has_g(void **state UNUSED)
{
	const uint64_t a = 0x300000, b = 0x700000, s = NSEC_PER_SEC;
	char expected[64];
	WORLD(w);

	world_map(&w, 5, PID, a, "/bin/goslot");
	sample_of(&w, s, PID, A);
	assert_string_equal(w.gos, ""); /* that code is not Go's */
	sample_of(&w, 2 * s, PID, a);
	snprintf(expected, sizeof(expected), "42:%llx:3 ", (unsigned long long)a + 0x20 + 0x500);
	assert_string_equal(w.gos, expected);
	sample_of(&w, 3 * s, PID, a);
	assert_string_equal(w.gos, expected); /* once */
	w.gos[0] = 0;
	world_fork(&w, 4 * s, 50, PID);
	world_exec(&w, 5 * s, PID);
	world_turn(&w, 6 * s);
	assert_string_equal(w.gos, "42: ");
	sample_of(&w, 7 * s, 50, a); /* a child is a process of its own, and the file is known */
	snprintf(expected, sizeof(expected), "42: 50:%llx:3 ", (unsigned long long)a + 0x20 + 0x500);
	assert_string_equal(w.gos, expected);
	w.gos[0] = 0;
	world_map(&w, 8 * s, PID, b, "/bin/gofixed");
	sample_of(&w, 9 * s, PID, b);
	assert_string_equal(w.gos, "42:ffffffffffffffe0:0 ");
	w.gos[0] = 0;
	world_exit(&w, 10 * s, PID);
	world_exit(&w, 10 * s, 50);
	world_turn(&w, 90 * s);
	assert_true(strstr(w.gos, "42: ") && strstr(w.gos, "50: "));
}

static void a_replay_learns_the_same(void **state UNUSED)
{
	const uint64_t *const pages[EVENT_PAGES_MAX] = { code_of_b, frames }, *const then[EVENT_PAGES_MAX] = { end, NULL };
	struct pipeline_conf conf = { 0 };
	CLEANUP(world_fini) struct world again;
	WORLD(w);

	cut_sample(&w, 10 * NSEC_PER_MSEC);
	world_memory(&w, NSEC_PER_SEC, pages, false);
	world_settle(&w, NSEC_PER_SEC + 1);
	world_memory(&w, NSEC_PER_SEC + 2, then, false);
	assert_int_equal(w.learned.npages, 3);
	world_window(&w, 2 * NSEC_PER_SEC, true);
	world_settle(&w, 2 * NSEC_PER_SEC + 1);
	world_replay(&w, &again, &conf);
	assert_int_equal(again.nbatches, w.nbatches);
	assert_int_equal(again.batches[0].len, w.batches[0].len);
	assert_memory_equal(again.batches[0].data, w.batches[0].data, w.batches[0].len);
	assert_memory_equal(&again.learned, &w.learned, sizeof(w.learned));
	assert_int_equal(again.nlearned, w.nlearned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_miss_teaches_all_that_the_stack_needs),
		cmocka_unit_test(a_page_that_is_not_needed_is_not_learned),
		cmocka_unit_test(a_look_waits_for_rows_of_code_that_it_meets_first),
		cmocka_unit_test(memory_that_is_not_there_ends_the_look),
		cmocka_unit_test(known_pages_are_asked_for_once),
		cmocka_unit_test(after_a_reader_hung_nobody_is_looked_at_for_a_minute),
		cmocka_unit_test(looks_are_bounded),
		cmocka_unit_test(what_ends_or_calls_exec_is_forgotten),
		cmocka_unit_test(the_kernel_is_told_where_go_has_g),
		cmocka_unit_test(a_replay_learns_the_same),
	};

	return cmocka_run_group_tests(tests, fill_pages, NULL);
}
