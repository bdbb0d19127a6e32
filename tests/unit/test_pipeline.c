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
/* Where tests map their files, and places in there. */
#define A 0x10000000ull
#define B 0x20000000ull

static struct world world;
static struct pipeline_conf conf;

static int set_up(void **state UNUSED)
{
	conf = (struct pipeline_conf){ 0 };
	world_init(&world, NULL);
	world_start(&world, T0, NULL, 0, false);
	return 0;
}

static int tear_down(void **state UNUSED)
{
	world_fini(&world);
	return 0;
}

static void restart_with(const struct pipeline_conf *c)
{
	world_fini(&world);
	world_init(&world, c);
	world_start(&world, T0, NULL, 0, false);
}

static const struct pipeline_stats *stats(void)
{
	return pipeline_stats(world.p);
}

static uint64_t drops(void)
{
	uint64_t n = 0;

	for (int d = 0; d < PIPELINE_DROP_COUNT; d++)
		n += stats()->dropped[d];
	return n;
}

static void expect_batch(uint32_t i, const char *want)
{
	char *got = world_text(&world, i);

	assert_string_equal(got, want);
	free(got);
}

/* Ends the run, and compares the only batch. */
static void expect_profile(const char *want)
{
	world_window(&world, T0 + 1000 * SEC, true);
	world_settle(&world, T0 + 1000 * SEC);
	assert_int_equal(world.nbatches, 1);
	expect_batch(0, want);
	assert_int_equal(stats()->samples, world.nbatch_samples);
	assert_int_equal(stats()->samples + drops(), world.nsent);
	assert_true(pipeline_idle(world.p));
}

static void sample_at(uint64_t time_ns, uint32_t pid, uint64_t pc)
{
	world_sample(&world, time_ns, pid, &pc, 1);
}

/* ---- order --------------------------------------------------------------------------------------- */

static void a_chain_of_calls_is_a_stack(void **state UNUSED)
{
	const uint64_t pcs[] = { A + 0x10, A + 0x21, B + 0x31 };

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_map(&world, T0 + 2, 1, B, "/lib/b");
	for (uint64_t i = 0; i < 3; i++)
		world_sample(&world, T0 + 10 + i, 1, pcs, 3);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	assert_int_equal(stats()->outcomes[UNWIND_COMPLETE], 3);
	expect_profile("1 /bin/a 3: a:10 a:20 b:30\n");
}

/* All in one turn, and handed in out of order, as the rings of several CPUs are read. */
static void samples_around_an_exec_see_the_mappings_of_their_time(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	sample_at(T0 + 50, 1, A + 0x10);
	sample_at(T0 + 30, 1, A + 0x20);
	world_map(&world, T0 + 42, 1, A, "/bin/new");
	world_exec(&world, T0 + 40, 1);
	sample_at(T0 + 10, 1, A + 0x30);
	sample_at(T0 + 41, 1, A + 0x40);	/* between the exec and its first mapping */
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1 /bin/new 1: [unwind: no mapping]\n1 /bin/a 1: a:30\n1 /bin/a 1: a:20\n"
		       "1 /bin/new 1: new:10\n");
}

static void a_parked_sample_keeps_the_mappings_of_its_time(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	sample_at(T0 + 10, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	assert_int_equal(stats()->samples, 0);
	assert_int_equal(stats()->parked, 1);
	assert_false(pipeline_idle(world.p));
	world_exec(&world, T0 + 110 * MS, 1);
	world_map(&world, T0 + 111 * MS, 1, A, "/bin/b");
	world_exit(&world, T0 + 120 * MS, 1);
	world_turn(&world, T0 + 200 * MS);
	world_turn(&world, T0 + 3 * SEC);
	world_settle(&world, T0 + 3 * SEC);
	expect_profile("1 /bin/a 1: a:10\n");
}

static void the_last_millisecond_waits_for_the_next_turn(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	sample_at(T0 + 99 * MS + 1, 1, A + 0x10);
	sample_at(T0 + 99 * MS, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	assert_int_equal(stats()->parked, 1);
	world_turn(&world, T0 + 200 * MS);
	assert_int_equal(stats()->parked, 2);
}

static void a_child_runs_its_parents_code_until_it_execs(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/sh");
	world_fork(&world, T0 + 10, 2, 1);
	sample_at(T0 + 11, 2, A + 0x10);
	world_map(&world, T0 + 12, 1, B, "/lib/parent_only");
	sample_at(T0 + 13, 2, B + 0x10);
	world_exec(&world, T0 + 20, 2);
	world_map(&world, T0 + 21, 2, A, "/bin/ls");
	sample_at(T0 + 22, 2, A + 0x10);
	sample_at(T0 + 23, 1, A + 0x10);
	sample_at(T0 + 24, 1, B + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("2 /bin/sh 1: [unwind: no mapping]\n2 /bin/sh 1: sh:10\n1 /bin/sh 1: sh:10\n"
		       "1 /bin/sh 1: parent_only:10\n2 /bin/ls 1: ls:10\n");
}

static void a_thread_is_sampled_after_the_record_of_its_exit(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_exit(&world, T0 + 10, 1);
	sample_at(T0 + 11, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1 /bin/a 1: a:10\n");
}

/* ---- files --------------------------------------------------------------------------------------- */

static void two_names_of_one_file_share_rows_and_names(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_exec(&world, T0, 2);
	world_map(&world, T0 + 2, 2, B, "/container/bin/a");
	sample_at(T0 + 10, 1, A + 0x10);
	sample_at(T0 + 11, 2, B + 0x10);	/* parked on a file that turns out to be the other one */
	world_turn(&world, T0 + 100 * MS);
	assert_int_equal(world.nopens, 2);
	assert_int_equal(world.nrows_asked, 0);
	world_settle(&world, T0 + 200 * MS);
	assert_int_equal(world.nrows_asked, 1);
	expect_profile("1 /bin/a 1: a:10\n2 /container/bin/a 1: a:10\n");
	assert_int_equal(world.nnames_asked, 1);
}

static void frames_of_a_file_that_cannot_be_opened_are_module_and_offset(void **state UNUSED)
{
	const uint64_t pcs[] = { A + 0x10, B + 0x21 };

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_map(&world, T0 + 2, 1, B, "/lib/fail.so");
	world_sample(&world, T0 + 10, 1, pcs, 2);
	sample_at(T0 + 11, 1, B + 0x30);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1 /bin/a 1: fail.so+0x30 [unwind: no CFI]\n"
		       "1 /bin/a 1: a:10 fail.so+0x20 [unwind: no CFI]\n");
}

static void a_failed_file_is_asked_for_again_by_a_later_mapping(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/fail");
	world_turn(&world, T0 + 100 * MS);
	world_open_all(&world, T0 + 110 * MS);
	world_map(&world, T0 + 115 * MS, 2, A, "/bin/fail");
	assert_int_equal(world.nopens, 1);	/* not at once */
	world_turn(&world, T0 + 150 * MS);
	world_map(&world, T0 + 160 * MS, 3, A, "/bin/fail");
	assert_int_equal(world.nopens, 2);
}

static void a_failed_file_is_asked_for_again_while_somebody_maps_it(void **state UNUSED)
{
	uint32_t nopens = 1;

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/fail");
	world_turn(&world, T0 + 100 * MS);
	for (uint64_t s = 1; s <= 64; s++) {
		world_open_all(&world, T0 + s * SEC - MS);
		world_turn(&world, T0 + s * SEC);
		nopens = (uint32_t)world.nopens;
		if (s == 2)
			assert_int_equal(nopens, 3);
	}
	/* More and more rarely: 20 ms, 40 ms, ... after each failure. */
	assert_in_range(nopens, 8, 14);
}

static void what_is_no_file_is_memory(void **state UNUSED)
{
	static const char *const names[] = { "//anon", "[heap]", "anon_inode:[perf_event]", "/dev/zero (deleted)",
					     "/SYSV00000000 (deleted)", "/anon_hugepage (deleted)", "", "[vsyscall]" };

	world_exec(&world, T0, 1);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		world_map(&world, T0 + 1 + i, 1, A + (i << 24), names[i]);
		sample_at(T0 + 100 + i, 1, A + (i << 24) + 0x1234);
	}
	world_turn(&world, T0 + 100 * MS);
	assert_int_equal(world.nopens, 0);
	assert_int_equal(world.nperf_maps, 1);
	/* Different code, at one place in its pages. */
	expect_profile("1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n"
		       "1  1: [jit]+0x234 [unwind: no CFI]\n");
}

/* Devices can be mapped at any offset; rows know places below 2^63 only. */
static void a_mapping_beyond_any_file_is_memory(void **state UNUSED)
{
	static const uint64_t offsets[] = { INT64_MAX - 0x1000, INT64_MAX, UINT64_MAX - 0xfff, 1ull << 63 };

	world_exec(&world, T0, 1);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		struct event e = { .type = EVENT_MAP, .time_ns = T0 + 1 + i,
				   .map = { .pid = 1, .start = A + (i << 24), .end = A + (i << 24) + 0x10000,
					    .offset = offsets[i], .key = { .inode = 5 }, .path = "/dev/odd" } };

		world_event(&world, &e);
		sample_at(T0 + 100 + i, 1, A + (i << 24) + 0x1234);
	}
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	assert_int_equal(stats()->samples, ARRAY_SIZE(offsets));
}

static void a_full_table_of_files_ends_nothing(void **state UNUSED)
{
	char path[4200];

	memset(path, 'x', sizeof(path));
	world_exec(&world, T0, 1);
	for (uint32_t i = 0; i < 6000; i++) {
		snprintf(path, sizeof(path), "/%u", i);
		path[strlen(path)] = 'x';
		path[4090] = 0;
		world_map(&world, T0 + 1 + i, 1, A + ((uint64_t)i << 24), path);
		if (i % 500 == 0)
			world_turn(&world, T0 + 100 * MS);
	}
	sample_at(T0 + 10 * MS, 1, A + (5999ull << 24) + 0x10);
	world_turn(&world, T0 + 200 * MS);
	assert_true(pipeline_bytes(world.p) < 40u << 20);
	world_settle(&world, T0 + 300 * MS);
	assert_int_equal(stats()->samples, 1);
}

/* ---- scans --------------------------------------------------------------------------------------- */

static void what_the_side_band_said_is_newer_than_the_scan(void **state UNUSED)
{
	world_map(&world, T0 + 1, 1, A, "/lib/new");
	world_turn(&world, T0 + 10 * MS);
	world_scanned(&world, T0 + 11 * MS, 1, 0, A - 0x80000, "/bin/old");	/* covers half of it */
	sample_at(T0 + 12 * MS, 1, A + 0x10);
	sample_at(T0 + 13 * MS, 1, A - 0x80000 + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1 /bin/old 1: new:10\n1 /bin/old 1: old:10\n");
}

static void a_library_is_nobodys_executable(void **state UNUSED)
{
	sample_at(T0 + 1, 1, A);	/* a process that the scan has not met yet */
	world_map(&world, T0 + 2, 1, A, "/lib/dlopened");
	world_turn(&world, T0 + 10 * MS);
	sample_at(T0 + 12 * MS, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1  1: [unwind: no mapping]\n1  1: dlopened:10\n");
}

static void an_exec_before_the_scan_came_is_not_undone_by_it(void **state UNUSED)
{
	world_exec(&world, T0 + 1, 1);
	world_map(&world, T0 + 2, 1, A, "/bin/new");
	world_turn(&world, T0 + 10 * MS);
	world_scanned(&world, T0 + 11 * MS, 1, 0, A, "/bin/old");
	sample_at(T0 + 12 * MS, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1 /bin/new 1: new:10\n");
}

static void lost_records_are_made_up_for_by_a_scan(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_fork(&world, T0 + 2, 2, 1);
	world_turn(&world, T0 + 10 * MS);
	world_lost(&world, T0 + 20 * MS);
	world_lost(&world, T0 + 21 * MS);
	assert_int_equal(world.nrescans, 1);
	assert_int_equal(stats()->sideband_lost, 6);
	/* 1 has called exec, 2 is gone, 3 is new. */
	world_scanned(&world, T0 + 30 * MS, 1, 0, A, "/bin/b");
	world_scanned(&world, T0 + 31 * MS, 3, 1, A, "/bin/c");
	world_scanned(&world, T0 + 32 * MS, 0, 0, 0, NULL);
	sample_at(T0 + 40 * MS, 1, A + 0x10);
	sample_at(T0 + 41 * MS, 2, A + 0x10);
	sample_at(T0 + 42 * MS, 3, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("2  1: [unwind: no mapping]\n1 /bin/b 1: b:10\n3 /bin/c 1: c:10\n");
}

static void a_process_that_could_not_be_looked_at_keeps_its_mappings(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_turn(&world, T0 + 10 * MS);
	world_lost(&world, T0 + 20 * MS);
	world_scanned(&world, T0 + 30 * MS, 1, 0, 0, NULL);
	world_scanned(&world, T0 + 32 * MS, 0, 0, 0, NULL);
	sample_at(T0 + 40 * MS, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	expect_profile("1 /bin/a 1: a:10\n");
}

static void what_is_lost_during_a_scan_asks_for_another_but_not_at_once(void **state UNUSED)
{
	world_lost(&world, T0 + 20 * MS);
	world_lost(&world, T0 + 25 * MS);
	world_scanned(&world, T0 + 32 * MS, 0, 0, 0, NULL);
	world_turn(&world, T0 + 100 * MS);
	assert_int_equal(world.nrescans, 1);
	world_turn(&world, T0 + 9 * SEC);
	assert_int_equal(world.nrescans, 1);
	world_turn(&world, T0 + 11 * SEC);
	assert_int_equal(world.nrescans, 2);
	world_scanned(&world, T0 + 12 * SEC, 0, 0, 0, NULL);
	world_turn(&world, T0 + 100 * SEC);
	assert_int_equal(world.nrescans, 2);	/* nothing was lost since */
}

/* ---- whom we sample ------------------------------------------------------------------------------ */

static void only_targets_and_their_children_count(void **state UNUSED)
{
	static const uint32_t targets[] = { 10 };

	world_fini(&world);
	world_init(&world, NULL);
	world_start(&world, T0, targets, 1, false);
	world_scanned(&world, T0, 10, 1, A, "/bin/a");
	world_scanned(&world, T0, 11, 10, A, "/bin/b");		/* a child that was there before */
	world_scanned(&world, T0, 20, 1, A, "/bin/other");
	world_fork(&world, T0 + 10, 12, 11);
	world_fork(&world, T0 + 11, 21, 20);
	world_exit(&world, T0 + 12, 10);
	world_turn(&world, T0 + 100 * MS);
	world_turn(&world, T0 + 200 * SEC);
	for (uint32_t pid = 10; pid <= 21; pid++) {
		if (pid <= 12 || pid >= 20)
			sample_at(T0 + 200 * SEC, pid, A + 0x10);
	}
	world_turn(&world, T0 + 201 * SEC);
	world_settle(&world, T0 + 202 * SEC);
	assert_int_equal(stats()->dropped[PIPELINE_DROP_FILTERED], 3);	/* 10 is gone: another one's by now */
	expect_profile("11 /bin/b 1: b:10\n12 /bin/b 1: b:10\n");
	/* The kernel keeps those whom it finds sampled for nothing to itself. */
	assert_non_null(strstr(world.filters, "20:0 "));
	assert_non_null(strstr(world.filters, "21:0 "));
	assert_null(strstr(world.filters, "11:0 "));
	assert_null(strstr(world.filters, "12:0 "));
}

static void a_command_counts_from_its_exec_on(void **state UNUSED)
{
	static const uint32_t targets[] = { 10 };

	world_fini(&world);
	world_init(&world, NULL);
	world_start(&world, T0, targets, 1, true);
	world_scanned(&world, T0, 10, 1, A, "/bin/flamed");
	sample_at(T0 + 1, 10, A + 0x10);
	world_exec(&world, T0 + 2, 10);
	world_map(&world, T0 + 3, 10, A, "/bin/cmd");
	sample_at(T0 + 4, 10, A + 0x10);
	world_fork(&world, T0 + 5, 11, 10);
	sample_at(T0 + 6, 11, A + 0x20);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	assert_int_equal(stats()->dropped[PIPELINE_DROP_FILTERED], 1);
	expect_profile("10 /bin/cmd 1: cmd:10\n11 /bin/cmd 1: cmd:20\n");
}

/* ... also where the process that met it first does not count, and so nobody was to open it. */
static void a_target_has_names_for_files_that_others_mapped_first(void **state UNUSED)
{
	static const uint32_t targets[] = { 10 };
	const uint64_t pcs[] = { A + 0x10, B + 0x21 };

	world_fini(&world);
	world_init(&world, NULL);
	world_start(&world, T0, targets, 1, false);
	world_scanned(&world, T0, 20, 1, B, "/lib/shared");
	world_scanned(&world, T0, 10, 1, A, "/bin/a");
	world_map(&world, T0 + 1, 10, B, "/lib/shared");
	for (uint64_t i = 0; i < 5; i++)
		world_sample(&world, T0 + 10 + i, 10, pcs, 2);
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	assert_int_equal(world.nopens, 2);
	expect_profile("10 /bin/a 5: a:10 shared:20\n");
}

static void kernel_threads_are_known_as_such_whenever_they_were_born(void **state UNUSED)
{
	static const uint64_t addresses[] = { 0xffffffff81000010, 0xffffffff81000021 };
	struct export_batch b;
	struct bufr in;

	world_fork(&world, T0, 50, 2);
	world_kernel_sample(&world, T0 + 10, 50, addresses, 2);
	world_turn(&world, T0 + 100 * MS);
	expect_profile("50  1: even even\n");
	assert_int_equal(stats()->outcomes[UNWIND_KERNEL_THREAD], 1);
	bufr_init(&in, world.batches[0].data, world.batches[0].len);
	assert_int_equal(export_batch_decode(&in, &b), 0);
	assert_int_equal(b.subjects[0].flags, EXPORT_SUBJECT_KERNEL);
	assert_int_equal(b.subjects[0].cgroup_id, 1050);
	/* No run-time address leaves. */
	for (uint32_t i = 0; i < b.nlocations; i++)
		assert_true(b.locations[i].address < 1ull << 47);
	export_batch_fini(&b);
}

/* ---- waiting for rows ---------------------------------------------------------------------------- */

static void a_sample_waits_for_rows_ten_seconds(void **state UNUSED)
{
	const uint64_t pcs[] = { A + 0x10, A + 0x21 };

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_sample(&world, T0 + 10, 1, pcs, 2);
	world_turn(&world, T0 + 100 * MS);
	world_turn(&world, T0 + 10 * SEC);
	assert_int_equal(stats()->samples, 0);
	world_turn(&world, T0 + 10 * SEC + 200 * MS);
	assert_int_equal(stats()->samples, 1);
	assert_int_equal(stats()->outcomes[UNWIND_ROWS_LATE], 1);
	world_settle(&world, T0 + 11 * SEC);
	expect_profile("1 /bin/a 1: a:10 [unwind: late]\n");
}

static void the_oldest_gives_way_when_too_much_waits(void **state UNUSED)
{
	conf.parked_max_bytes = 20000;
	restart_with(&conf);
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	for (uint32_t i = 0; i < 100; i++)
		sample_at(T0 + 10 + i, 1, A + i);
	world_turn(&world, T0 + 100 * MS);
	assert_true(stats()->outcomes[UNWIND_ROWS_LATE] > 20);
	assert_true(stats()->outcomes[UNWIND_ROWS_LATE] < 90);
	world_settle(&world, T0 + 200 * MS);
	assert_int_equal(stats()->samples, 100);
}

static void an_address_is_asked_for_once(void **state UNUSED)
{
	const uint64_t pcs[] = { A + 0x10, A + 0x21, A + 0x31, A + 0x41 };

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_turn(&world, T0 + 10 * MS);
	world_open_all(&world, T0 + 10 * MS);
	for (uint64_t turn = 1; turn <= 20; turn++) {
		for (uint64_t i = 0; i < 50; i++)
			world_sample(&world, T0 + turn * 100 * MS + i, 1, pcs, 4);
		world_turn(&world, T0 + (turn + 1) * 100 * MS);
	}
	/* One request is under way all the time; nothing of it is asked again behind it. */
	assert_int_equal(world.nrows_asked, 1);
	world_answer_rows(&world, T0 + 3 * SEC);
	assert_int_equal(stats()->samples, 1000);
	assert_int_equal(world.nrows_asked, 1);
	assert_int_equal(world.naddrs_asked, 4);
}

static void a_window_ends_while_samples_wait(void **state UNUSED)
{
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	sample_at(T0 + 10, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_window(&world, T0 + 150 * MS, false);	/* it belongs to the next one */
	world_settle(&world, T0 + 200 * MS);
	world_window(&world, T0 + 300 * MS, true);
	world_settle(&world, T0 + 400 * MS);
	assert_int_equal(world.nbatches, 2);
	assert_int_equal(world.nbatch_samples, 1);
	expect_batch(0, "");
}

/* ---- windows ------------------------------------------------------------------------------------- */

static void windows_that_cannot_be_named_yet_are_put_together(void **state UNUSED)
{
	struct export_batch b;
	struct bufr in;

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_turn(&world, T0 + 10 * MS);
	world_open_all(&world, T0 + 10 * MS);
	for (uint64_t i = 1; i <= 8; i++) {
		sample_at(T0 + i * SEC, 1, A + 0x10);
		world_turn(&world, T0 + i * SEC + 100 * MS);
		world_answer_rows(&world, T0 + i * SEC + 200 * MS);
		world_window(&world, T0 + i * SEC + 300 * MS, i == 8);
	}
	assert_int_equal(world.nbatches, 0);
	world_settle(&world, T0 + 10 * SEC);
	/* Four, and the last one with what the three before it could not hand on. */
	assert_int_equal(world.nbatches, 5);
	assert_int_equal(world.nbatch_samples, 8);
	bufr_init(&in, world.batches[4].data, world.batches[4].len);
	assert_int_equal(export_batch_decode(&in, &b), 0);
	assert_int_equal(b.wall_start_ns, T0 + 5 * SEC + 300 * MS);
	assert_int_equal(b.duration_ns, 4 * 1000);
	assert_int_equal(b.samples[0].count, 4);
	export_batch_fini(&b);
}

static void nonsense_from_the_symbolizer_costs_names_not_samples(void **state UNUSED)
{
	const uint64_t pcs[] = { A + 0x10, A + 0x21 };
	unsigned int seed = 5;
	uint8_t garbage[600];

	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	world_turn(&world, T0 + 10 * MS);
	world_open_all(&world, T0 + 10 * MS);
	for (uint64_t i = 0; i < 50; i++) {
		world_sample(&world, T0 + 100 * MS + i, 1, pcs, 2);
		world_turn(&world, T0 + 200 * MS + i);
		for (size_t k = 0; k < sizeof(garbage); k++)
			garbage[k] = (uint8_t)(rand_r(&seed) % (i % 2 ? 256 : 3));
		while (world_answer_one(&world, T0 + 300 * MS + i, 0, garbage, i * 12))
			;
	}
	world_turn(&world, T0 + 400 * MS);
	while (world_answer_one(&world, T0 + 500 * MS, 0, garbage, 100))
		;
	assert_int_equal(stats()->samples, 50);
	world_window(&world, T0 + SEC, true);
	while (world_answer_one(&world, T0 + SEC, 0, garbage, sizeof(garbage)))
		;
	assert_int_equal(world.nbatches, 1);
	expect_batch(0, "1 /bin/a 50: a+0x10 [unwind: no CFI]\n");
}

static void an_answer_to_another_question_is_nonsense(void **state UNUSED)
{
	struct msg_rows rows = { .id = 77, .file_id = 1, .result = MSG_FILE_OK };
	CLEANUP(bufw_fini) struct bufw w = { 0 };

	msg_rows_encode(&w, &rows);
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "/bin/a");
	sample_at(T0 + 10, 1, A + 0x10);
	world_turn(&world, T0 + 100 * MS);
	world_open_all(&world, T0 + 100 * MS);
	assert_true(world_answer_one(&world, T0 + 200 * MS, 0, w.data, w.len));
	assert_int_equal(stats()->samples, 1);
	assert_int_equal(stats()->outcomes[UNWIND_NO_CFI], 1);
}

/* ---- limits -------------------------------------------------------------------------------------- */

static void a_full_queue_drops_samples_and_says_so(void **state UNUSED)
{
	conf.queue_max_bytes = 50000;
	restart_with(&conf);
	for (uint32_t i = 0; i < 1000; i++)
		sample_at(T0 + i, 1, A);
	assert_true(pipeline_bytes(world.p) < 10u << 20);
	assert_true(stats()->dropped[PIPELINE_DROP_AGENT_MEMORY] > 500);
	world_window(&world, T0 + SEC, true);
	world_settle(&world, T0 + SEC);
	assert_int_equal(stats()->samples + drops(), 1000);
	assert_int_equal(world.nbatch_samples, stats()->samples);
}

static void a_full_window_drops_samples_and_says_so(void **state UNUSED)
{
	conf.aggregate_max_bytes = 100000;
	restart_with(&conf);
	world_exec(&world, T0, 1);
	world_map(&world, T0 + 1, 1, A, "//anon");
	for (uint32_t i = 0; i < 4000; i++)
		world_kernel_sample(&world, T0 + 10 + i, 1, &(uint64_t){ 0xffffffff81000000ull + i }, 1);
	world_turn(&world, T0 + 100 * MS);
	assert_true(stats()->samples > 100);
	assert_int_equal(stats()->samples + stats()->dropped[PIPELINE_DROP_AGGREGATE_FULL], 4000);
	world_window(&world, T0 + 200 * MS, true);
	world_settle(&world, T0 + 300 * MS);
	assert_int_equal(world.nbatch_samples, stats()->samples);
}

static void rows_are_given_up_for_memory_and_asked_for_again(void **state UNUSED)
{
	size_t with_rows;

	conf.rows_max_bytes = 100000;
	restart_with(&conf);
	for (uint32_t i = 0; i < 200; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/bin/%u", i);
		world_exec(&world, T0 + i, i + 1);
		world_map(&world, T0 + i, i + 1, A, path);
		sample_at(T0 + 1000 + i, i + 1, A + 0x10);
	}
	world_turn(&world, T0 + 100 * MS);
	world_settle(&world, T0 + 200 * MS);
	with_rows = pipeline_bytes(world.p);
	world_turn(&world, T0 + 2 * SEC);
	assert_true(with_rows - pipeline_bytes(world.p) > 50 * 1024);
	assert_true(stats()->rows_evicted > 50);
	assert_true(stats()->rows_evicted < 200);
	for (uint32_t i = 0; i < 200; i++)
		sample_at(T0 + 2 * SEC + i, i + 1, A + 0x10);
	world_turn(&world, T0 + 3 * SEC);
	world_settle(&world, T0 + 3 * SEC);
	assert_int_equal(stats()->samples, 400);
	assert_int_equal(stats()->outcomes[UNWIND_COMPLETE], 400);
}

/* 64 CPUs at 100 Hz whose programs were never seen before, while the reader hangs for a second. */
static void a_busy_host_and_a_slow_reader_cost_little(void **state UNUSED)
{
	uint64_t start = clock_cpu_ns(), pcs[50];

	for (uint32_t pid = 1; pid <= 64; pid++) {
		world_exec(&world, T0, pid);
		world_map(&world, T0 + 1, pid, A, "/bin/large");
		world_map(&world, T0 + 2, pid, B, pid % 2 ? "/lib/b" : "/lib/c");
	}
	for (uint64_t turn = 1; turn <= 10; turn++) {
		for (uint64_t i = 0; i < 640; i++) {
			for (uint64_t k = 0; k < ARRAY_SIZE(pcs); k++)
				pcs[k] = (k % 3 ? A : B) + (turn * 7919 * i * 31 + k * 977) % 0xfffff;
			world_sample(&world, T0 + turn * 100 * MS + i, 1 + (uint32_t)(i % 64), pcs,
				     ARRAY_SIZE(pcs));
		}
		world_turn(&world, T0 + (turn + 1) * 100 * MS);
	}
	print_message("6400 cold samples: %.0f us each\n", (double)(clock_cpu_ns() - start) / 6400e3);
	assert_true(clock_cpu_ns() - start < 3 * SEC);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_chain_of_calls_is_a_stack),
		TEST(samples_around_an_exec_see_the_mappings_of_their_time),
		TEST(a_parked_sample_keeps_the_mappings_of_its_time),
		TEST(the_last_millisecond_waits_for_the_next_turn),
		TEST(a_child_runs_its_parents_code_until_it_execs),
		TEST(a_thread_is_sampled_after_the_record_of_its_exit),
		TEST(two_names_of_one_file_share_rows_and_names),
		TEST(frames_of_a_file_that_cannot_be_opened_are_module_and_offset),
		TEST(a_failed_file_is_asked_for_again_by_a_later_mapping),
		TEST(a_failed_file_is_asked_for_again_while_somebody_maps_it),
		TEST(what_is_no_file_is_memory),
		TEST(a_mapping_beyond_any_file_is_memory),
		TEST(a_full_table_of_files_ends_nothing),
		TEST(what_the_side_band_said_is_newer_than_the_scan),
		TEST(a_library_is_nobodys_executable),
		TEST(an_exec_before_the_scan_came_is_not_undone_by_it),
		TEST(lost_records_are_made_up_for_by_a_scan),
		TEST(a_process_that_could_not_be_looked_at_keeps_its_mappings),
		TEST(what_is_lost_during_a_scan_asks_for_another_but_not_at_once),
		TEST(only_targets_and_their_children_count),
		TEST(a_command_counts_from_its_exec_on),
		TEST(a_target_has_names_for_files_that_others_mapped_first),
		TEST(kernel_threads_are_known_as_such_whenever_they_were_born),
		TEST(a_sample_waits_for_rows_ten_seconds),
		TEST(the_oldest_gives_way_when_too_much_waits),
		TEST(an_address_is_asked_for_once),
		TEST(a_window_ends_while_samples_wait),
		TEST(windows_that_cannot_be_named_yet_are_put_together),
		TEST(nonsense_from_the_symbolizer_costs_names_not_samples),
		TEST(an_answer_to_another_question_is_nonsense),
		TEST(a_full_queue_drops_samples_and_says_so),
		TEST(a_full_window_drops_samples_and_says_so),
		TEST(rows_are_given_up_for_memory_and_asked_for_again),
		TEST(a_busy_host_and_a_slow_reader_cost_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
