#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/pipeline_fixture.h"

#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (100 * SEC)
#define A 0x10000000ull

static struct world world;

static int set_up(void **state UNUSED)
{
	world_init(&world, NULL);
	world_start(&world, T0, NULL, 0, false);
	return 0;
}

static int tear_down(void **state UNUSED)
{
	world_fini(&world);
	return 0;
}

static const struct pipeline_stats *stats(void)
{
	return pipeline_stats(world.p);
}

/* A process whose samples wait for nothing. */
static void run(uint64_t time_ns, uint32_t pid)
{
	world_exec(&world, time_ns, pid);
	world_map(&world, time_ns + 1, pid, A, "//anon");
}

static void sample_at(uint64_t time_ns, uint32_t pid, uint64_t offset)
{
	world_sample(&world, time_ns, pid, &(uint64_t){ A + offset }, 1);
}

static void turn(uint64_t time_ns)
{
	world_turn(&world, time_ns);
	world_settle(&world, time_ns);
}

static void expect_batch(uint32_t i, const char *want)
{
	char *got = world_text(&world, i);

	assert_string_equal(got, want);
	free(got);
}

static void expect_tap(uint32_t batch, uint64_t id, uint64_t start_ns, uint64_t duration_ns, const char *want)
{
	struct export_batch b = world_batch(&world, batch);

	assert_int_equal(b.tap, id);
	assert_int_equal(b.wall_start_ns, start_ns + 7);
	assert_int_equal(b.duration_ns, duration_ns);
	assert_int_equal(b.period_ns, 10 * MS);
	assert_int_not_equal(b.id, 0);
	export_batch_fini(&b);
	expect_batch(batch, want);
}

/* What stands in the log gives the same batches again. */
static void expect_same_in_replay(void)
{
	static struct world replayed;

	world_replay(&world, &replayed, NULL);
	assert_int_equal(world.nbatches, replayed.nbatches);
	for (uint32_t i = 0; i < world.nbatches; i++) {
		assert_int_equal(world.batches[i].len, replayed.batches[i].len);
		assert_memory_equal(world.batches[i].data, replayed.batches[i].data, world.batches[i].len);
	}
	assert_memory_equal(pipeline_stats(replayed.p), stats(), sizeof(*stats()));
	world_fini(&replayed);
}

static void a_tap_gets_the_samples_of_exactly_its_time(void **state UNUSED)
{
	run(T0, 7);
	sample_at(T0 + SEC - 1, 7, 0x1);
	turn(T0 + SEC);
	world_tap(&world, T0 + SEC, 42, 2 * SEC);
	sample_at(T0 + SEC - 1, 7, 0x2);	/* handed in late */
	sample_at(T0 + SEC, 7, 0x3);
	sample_at(T0 + 3 * SEC - 1, 7, 0x4);
	sample_at(T0 + 3 * SEC, 7, 0x5);
	turn(T0 + 2 * SEC);
	turn(T0 + 3 * SEC);	/* the last millisecond is not unwound yet */
	assert_int_equal(world.nbatches, 0);
	turn(T0 + 3 * SEC + 100 * MS);
	assert_int_equal(world.nbatches, 1);
	expect_tap(0, 42, T0 + SEC, 2 * SEC,
		   "7  1: [jit]+0x3 [unwind: no CFI]\n7  1: [jit]+0x4 [unwind: no CFI]\n");
	assert_int_equal(stats()->taps, 1);
	assert_int_equal(stats()->windows, 0);
	assert_int_equal(stats()->taps_full, 0);
	/* The window has them all. */
	world_window(&world, T0 + 4 * SEC, true);
	assert_int_equal(world.nbatches, 2);
	assert_int_equal(world.nbatch_samples, 5);
	assert_int_equal(stats()->samples, 5);
	expect_same_in_replay();
}

static void a_tap_of_a_windows_time_has_the_windows_samples(void **state UNUSED)
{
	char *window, *tap;

	for (uint32_t pid = 1; pid <= 5; pid++) {
		world_exec(&world, T0, pid);
		world_map(&world, T0 + 1, pid, A, pid % 2 ? "/bin/a" : "/bin/b");
	}
	turn(T0 + SEC);
	world_window(&world, T0 + SEC, false);
	world_tap(&world, T0 + SEC, 1, 5 * SEC);
	for (uint64_t i = 0; i < 500; i++) {
		const uint64_t pcs[] = { A + 0x10 + i % 7 * 16, A + 0x101 + i % 3 * 16, A + 0x201 };

		world_sample(&world, T0 + SEC + i * 10 * MS, 1 + (uint32_t)(i % 5), pcs, 3);
		if (i % 10 == 9)
			turn(T0 + SEC + i * 10 * MS + 5 * MS);
	}
	world_turn(&world, T0 + 6 * SEC + 2 * MS);
	world_window(&world, T0 + 6 * SEC + 2 * MS, false);
	world_settle(&world, T0 + 6 * SEC + 3 * MS);
	assert_int_equal(world.nbatches, 3);
	assert_int_equal(world.nbatch_samples, 500);
	tap = world_text(&world, 1);
	window = world_text(&world, 2);
	assert_string_equal(tap, window);
	assert_true(strlen(tap) > 100);
	free(tap);
	free(window);
	expect_same_in_replay();
}

static void a_tap_waits_for_samples_that_wait_for_rows(void **state UNUSED)
{
	world_exec(&world, T0, 7);
	world_map(&world, T0 + 1, 7, A, "/bin/a");
	world_turn(&world, T0 + SEC);
	world_open_all(&world, T0 + SEC);
	world_tap(&world, T0 + SEC, 1, SEC);
	sample_at(T0 + SEC + 500 * MS, 7, 0x10);
	world_turn(&world, T0 + 2 * SEC + 100 * MS);
	assert_int_equal(stats()->parked, 1);
	assert_int_equal(world.nbatches, 0);
	/* One that was taken after its end is not waited for. */
	world_map(&world, T0 + 2 * SEC, 7, 2 * A, "/bin/b");
	world_sample(&world, T0 + 2 * SEC + 50 * MS, 7, &(uint64_t){ 2 * A + 0x20 }, 1);
	world_answer_rows(&world, T0 + 2 * SEC + 200 * MS);
	assert_int_equal(stats()->samples, 1);
	world_turn(&world, T0 + 2 * SEC + 300 * MS);
	world_answer_names(&world, T0 + 2 * SEC + 300 * MS);
	assert_int_equal(world.nbatches, 1);
	assert_false(pipeline_idle(world.p));
	expect_tap(0, 1, T0 + SEC, SEC, "7 /bin/a 1: a:10\n");
}

static void a_tap_waits_two_seconds_at_most(void **state UNUSED)
{
	world_exec(&world, T0, 7);
	world_map(&world, T0 + 1, 7, A, "/bin/a");
	world_tap(&world, T0 + SEC, 1, SEC);
	sample_at(T0 + SEC + 500 * MS, 7, 0x10);
	world_turn(&world, T0 + 4 * SEC - 1);
	assert_int_equal(world.nbatches, 0);
	world_turn(&world, T0 + 4 * SEC);
	assert_int_equal(world.nbatches, 1);
	expect_tap(0, 1, T0 + SEC, SEC, "");
}

static void a_seventeenth_tap_is_refused(void **state UNUSED)
{
	run(T0, 7);
	turn(T0 + SEC);
	for (uint64_t id = 1; id <= EXPORT_TAPS_MAX + 3; id++)
		world_tap(&world, T0 + SEC, id, 2 * SEC);
	assert_int_equal(stats()->taps, EXPORT_TAPS_MAX);
	assert_int_equal(stats()->taps_refused[EXPORT_REFUSAL_TOO_MANY], 3);
	assert_int_equal(world.nrefused[EXPORT_REFUSAL_TOO_MANY], 3);
	assert_int_equal(world.last_refused, EXPORT_TAPS_MAX + 3);
	sample_at(T0 + 2 * SEC, 7, 0x10);
	turn(T0 + 4 * SEC);
	assert_int_equal(world.nbatches, EXPORT_TAPS_MAX);
	for (uint32_t i = 0; i < EXPORT_TAPS_MAX; i++)
		expect_tap(i, i + 1, T0 + SEC, 2 * SEC, "7  1: [jit]+0x10 [unwind: no CFI]\n");
	/* And there is room again. */
	world_tap(&world, T0 + 5 * SEC, 99, SEC);
	assert_int_equal(stats()->taps, EXPORT_TAPS_MAX + 1);
	expect_same_in_replay();
}

static void a_tap_that_is_being_named_still_counts(void **state UNUSED)
{
	world_exec(&world, T0, 7);
	world_map(&world, T0 + 1, 7, A, "/bin/a");
	turn(T0 + SEC);
	for (uint64_t id = 1; id <= EXPORT_TAPS_MAX; id++)
		world_tap(&world, T0 + SEC, id, SEC);
	sample_at(T0 + SEC + 500 * MS, 7, 0x10);
	world_turn(&world, T0 + 2 * SEC - 100 * MS);
	world_answer_rows(&world, T0 + 2 * SEC - 50 * MS);
	world_turn(&world, T0 + 3 * SEC);
	assert_int_equal(world.nbatches, 0);
	world_tap(&world, T0 + 3 * SEC, 99, SEC);
	assert_int_equal(stats()->taps_refused[EXPORT_REFUSAL_TOO_MANY], 1);
	world_answer_names(&world, T0 + 3 * SEC);
	assert_int_equal(world.nbatches, EXPORT_TAPS_MAX);
	for (uint32_t i = 0; i < EXPORT_TAPS_MAX; i++)
		expect_tap(i, i + 1, T0 + SEC, SEC, "7 /bin/a 1: a:10\n");
}

static void taps_that_make_no_sense_are_refused(void **state UNUSED)
{
	world_tap(&world, T0, 0, SEC);
	world_tap(&world, T0, 1, 0);
	world_tap(&world, T0, 1, UINT64_MAX);
	world_tap(&world, T0, 1, 601 * SEC);
	assert_int_equal(stats()->taps_refused[EXPORT_REFUSAL_INVALID], 4);
	assert_int_equal(world.nrefused[EXPORT_REFUSAL_INVALID], 4);
	/* One that is known already goes on, and nobody is told otherwise. */
	world_tap(&world, T0, 1, SEC);
	world_tap(&world, T0, 1, SEC);
	assert_int_equal(world.nrefused[EXPORT_REFUSAL_INVALID], 4);
	assert_int_equal(stats()->taps, 1);
}

/* Kernel answers have no ids: two taps and a window that end at once must get each its own. */
static void kernel_names_go_to_whom_asked_for_them(void **state UNUSED)
{
	const uint64_t odd = 0xffffffff81000001ull, even = 0xffffffff81000002ull;

	world_tap(&world, T0, 1, SEC);
	world_tap(&world, T0 + 500 * MS, 2, 600 * MS);
	world_kernel_sample(&world, T0 + 100 * MS, 3, &odd, 1);		/* in 1 */
	world_kernel_sample(&world, T0 + 1050 * MS, 3, &even, 1);	/* in 2 */
	world_turn(&world, T0 + 2 * SEC);
	world_window(&world, T0 + 2 * SEC, false);
	world_answer_names(&world, T0 + 2 * SEC);
	assert_int_equal(world.nbatches, 3);
	expect_tap(0, 1, T0, SEC, "3  1: odd\n");
	expect_tap(1, 2, T0 + 500 * MS, 600 * MS, "3  1: even\n");
	expect_batch(2, "3  1: odd\n3  1: even\n");
	expect_same_in_replay();
}

/* Five windows that cannot be named are no reason for a tap to wait. */
static void windows_do_not_hold_up_a_tap(void **state UNUSED)
{
	run(T0, 7);
	run(T0, 8);
	world_map(&world, T0 + 2, 8, 2 * A, "/bin/a");
	world_turn(&world, T0 + SEC);
	world_open_all(&world, T0 + SEC);
	for (uint64_t s = 1; s <= 8; s++) {
		world_sample(&world, T0 + s * SEC, 8, &(uint64_t){ 2 * A + 0x10 }, 1);
		world_turn(&world, T0 + s * SEC + 10 * MS);
		world_answer_rows(&world, T0 + s * SEC + 10 * MS);
		world_window(&world, T0 + s * SEC + 20 * MS, false);
	}
	assert_int_equal(world.nbatches, 0);
	world_tap(&world, T0 + 10 * SEC, 1, SEC);
	sample_at(T0 + 10 * SEC + 500 * MS, 7, 0x10);
	world_turn(&world, T0 + 12 * SEC);
	assert_int_equal(world.nbatches, 1);
	expect_tap(0, 1, T0 + 10 * SEC, SEC, "7  1: [jit]+0x10 [unwind: no CFI]\n");
	world_settle(&world, T0 + 13 * SEC);
	world_window(&world, T0 + 14 * SEC, true);
	world_settle(&world, T0 + 14 * SEC);
	assert_int_equal(world.nbatch_samples, 9);
	expect_same_in_replay();
}

static void a_tap_does_not_hold_up_a_window(void **state UNUSED)
{
	world_exec(&world, T0, 7);
	world_map(&world, T0 + 1, 7, A, "/bin/a");
	turn(T0 + SEC);
	world_tap(&world, T0 + SEC, 1, SEC);
	sample_at(T0 + SEC + 100 * MS, 7, 0x10);
	turn(T0 + SEC + 200 * MS);
	world_window(&world, T0 + SEC + 300 * MS, false);
	world_settle(&world, T0 + SEC + 300 * MS);
	assert_int_equal(world.nbatches, 1);
	world_turn(&world, T0 + 2 * SEC + 10 * MS);	/* the tap waits for names */
	assert_false(pipeline_idle(world.p));
	world_window(&world, T0 + 3 * SEC, false);
	assert_int_equal(world.nbatches, 2);
	world_answer_names(&world, T0 + 3 * SEC);
	assert_int_equal(world.nbatches, 3);
	expect_tap(2, 1, T0 + SEC, SEC, "7 /bin/a 1: a:10\n");
}

static void a_tap_waits_a_second_for_labels_and_not_for_windows_that_do(void **state UNUSED)
{
	char *subjects;

	world_fini(&world);
	world_init(&world, NULL);
	world_start_labels(&world, T0, 15 * SEC);
	run(T0, 7);
	run(T0, 8);
	sample_at(T0 + SEC, 8, 0x10);
	turn(T0 + SEC + 10 * MS);
	world_window(&world, T0 + 2 * SEC, false);
	world_tap(&world, T0 + 2 * SEC, 1, SEC);
	sample_at(T0 + 2 * SEC + 500 * MS, 7, 0x10);
	turn(T0 + 3 * SEC + 10 * MS);
	turn(T0 + 4 * SEC - 1);
	assert_int_equal(world.nbatches, 0);
	turn(T0 + 4 * SEC);
	assert_int_equal(world.nbatches, 1);
	expect_tap(0, 1, T0 + 2 * SEC, SEC, "7  1: [jit]+0x10 [unwind: no CFI]\n");
	assert_int_equal(stats()->labels_late, 0);	/* it counts windows */
	/* Labels that are there go with it. */
	world_tap(&world, T0 + 5 * SEC, 2, SEC);
	sample_at(T0 + 5 * SEC + 500 * MS, 7, 0x10);
	turn(T0 + 5 * SEC + 510 * MS);
	world_label_all(&world, T0 + 5 * SEC + 600 * MS, 1);
	turn(T0 + 6 * SEC + 10 * MS);
	assert_int_equal(world.nbatches, 3);
	subjects = world_subjects(&world, 2);
	assert_string_equal(subjects, "7 exe_pid=7 service_name=\n");
	free(subjects);
	expect_same_in_replay();
}

/* Two aggregates that hold the same subjects and are built one after the other. */
static void subjects_stand_in_each_of_two_that_end_at_once(void **state UNUSED)
{
	for (uint32_t pid = 1; pid <= 20; pid++) {
		world_exec(&world, T0, pid);
		world_map(&world, T0 + 1, pid, A, pid % 2 ? "/bin/a" : "/bin/b");
	}
	turn(T0 + 10 * MS);
	world_tap(&world, T0 + 20 * MS, 5, SEC);
	for (uint32_t pid = 1; pid <= 20; pid++)
		sample_at(T0 + 100 * MS + pid, 21 - pid, pid);
	world_turn(&world, T0 + 200 * MS);
	world_answer_rows(&world, T0 + 200 * MS);
	world_turn(&world, T0 + 2 * SEC);
	world_window(&world, T0 + 2 * SEC, false);
	assert_int_equal(world.nbatches, 0);
	world_settle(&world, T0 + 3 * SEC);
	assert_int_equal(world.nbatches, 2);
	for (uint32_t i = 0; i < 2; i++) {
		struct export_batch b = world_batch(&world, i);

		assert_int_equal(b.nsubjects, 20);
		assert_int_equal(b.nsamples, 20);
		for (uint32_t k = 0; k < b.nsamples; k++)
			assert_int_equal(b.subjects[b.samples[k].subject].pid, b.samples[k].tid);
		export_batch_fini(&b);
	}
}

static void a_tap_is_cut_with_its_true_length_when_we_end(void **state UNUSED)
{
	run(T0, 7);
	turn(T0 + SEC);
	world_tap(&world, T0 + SEC, 1, 30 * SEC);
	sample_at(T0 + 2 * SEC, 7, 0x10);
	world_tap(&world, T0 + 3 * SEC, 2, 30 * SEC);	/* nothing of it has passed */
	world_window(&world, T0 + 3 * SEC, true);
	world_settle(&world, T0 + 3 * SEC);
	assert_int_equal(world.nbatches, 2);
	expect_tap(0, 1, T0 + SEC, 2 * SEC, "7  1: [jit]+0x10 [unwind: no CFI]\n");
	expect_same_in_replay();
}

/* All taps together stay within their 16 MiB, and the last has half a MiB as well. */
static void a_full_tap_says_so_and_the_window_loses_nothing(void **state UNUSED)
{
	size_t before, most;

	run(T0, 7);
	turn(T0 + SEC);
	for (uint64_t id = 1; id <= EXPORT_TAPS_MAX; id++)
		world_tap(&world, T0 + SEC, id, 10 * SEC);
	before = pipeline_bytes(world.p);
	for (uint64_t i = 0; i < 80000; i++) {
		uint64_t at = T0 + SEC + i * 100000;

		world_kernel_sample(&world, at, 7, &(uint64_t){ 0xffffffff81000000ull + i }, 1);
		if (i % 1000 == 0)
			world_turn(&world, at);
	}
	world_turn(&world, T0 + 10 * SEC);
	most = pipeline_bytes(world.p) - before;
	assert_in_range(most, 10u << 20, 33u << 20);	/* the window's 16 MiB are the other half */
	assert_int_equal(stats()->samples + stats()->dropped[PIPELINE_DROP_AGGREGATE_FULL], 80000);
	assert_int_equal(stats()->samples, 80000);
	assert_true(stats()->taps_full > 15ull * 50000);
	world_turn(&world, T0 + 12 * SEC);
	world_settle(&world, T0 + 12 * SEC);
	assert_int_equal(world.nbatches, EXPORT_TAPS_MAX);
	for (uint32_t i = 0; i < EXPORT_TAPS_MAX; i++) {
		struct export_batch b = world_batch(&world, i);

		assert_true(b.nsamples > 1000);
		export_batch_fini(&b);
	}
	assert_true(pipeline_bytes(world.p) < before + most - (5u << 20));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_tap_gets_the_samples_of_exactly_its_time),
		TEST(a_tap_of_a_windows_time_has_the_windows_samples),
		TEST(a_tap_waits_for_samples_that_wait_for_rows),
		TEST(a_tap_waits_two_seconds_at_most),
		TEST(a_seventeenth_tap_is_refused),
		TEST(a_tap_that_is_being_named_still_counts),
		TEST(taps_that_make_no_sense_are_refused),
		TEST(kernel_names_go_to_whom_asked_for_them),
		TEST(windows_do_not_hold_up_a_tap),
		TEST(a_tap_does_not_hold_up_a_window),
		TEST(a_tap_waits_a_second_for_labels_and_not_for_windows_that_do),
		TEST(subjects_stand_in_each_of_two_that_end_at_once),
		TEST(a_tap_is_cut_with_its_true_length_when_we_end),
		TEST(a_full_tap_says_so_and_the_window_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
