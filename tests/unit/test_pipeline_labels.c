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
#define WAIT (15 * SEC)
#define A 0x10000000ull

static struct world world;

static int set_up(void **state UNUSED)
{
	world_init(&world, NULL);
	world_start_labels(&world, T0, WAIT);
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

static uint64_t drops(void)
{
	uint64_t n = 0;

	for (int d = 0; d < PIPELINE_DROP_COUNT; d++)
		n += stats()->dropped[d];
	return n;
}

/* A process of its own executable, known since time_ns. */
static void run(uint64_t time_ns, uint32_t pid, const char *path)
{
	world_exec(&world, time_ns, pid);
	world_map(&world, time_ns + 1, pid, A, path);
}

static void sample_at(uint64_t time_ns, uint32_t pid)
{
	world_sample(&world, time_ns, pid, &(uint64_t){ A + 0x10 }, 1);
}

/* A sample now, and the turn that unwinds it. */
static void sample_and_turn(uint64_t time_ns, uint32_t pid)
{
	sample_at(time_ns, pid);
	world_turn(&world, time_ns + 10 * MS);
	world_settle(&world, time_ns + 10 * MS);
}

static void expect_subjects(uint32_t batch, const char *want)
{
	char *got = world_subjects(&world, batch);

	assert_string_equal(got, want);
	free(got);
}

static void expect_filters(const char *want)
{
	assert_string_equal(world.filters, want);
	world.filters[0] = 0;
}

/* Ends the run: nothing is lost, and the same events give the same batches. */
static void expect_end(uint64_t time_ns)
{
	static struct world replayed;

	world_window(&world, time_ns, true);
	world_settle(&world, time_ns);
	world_turn(&world, time_ns + SEC);
	assert_int_equal(stats()->samples, world.nbatch_samples + stats()->excluded);
	assert_int_equal(stats()->samples + drops(), world.nsent);
	assert_true(pipeline_idle(world.p));
	assert_int_equal(stats()->windows, world.nbatches);
	world_replay(&world, &replayed, NULL);
	assert_int_equal(world.nbatches, replayed.nbatches);
	for (uint32_t i = 0; i < world.nbatches; i++) {
		assert_int_equal(world.batches[i].len, replayed.batches[i].len);
		assert_memory_equal(world.batches[i].data, replayed.batches[i].data, world.batches[i].len);
	}
	assert_memory_equal(pipeline_stats(replayed.p), stats(), sizeof(*stats()));
	world_fini(&replayed);
}

/* ---- announcing ---------------------------------------------------------------------------------- */

static void a_subject_is_announced_once_with_what_is_known_of_it(void **state UNUSED)
{
	run(T0, 7, "/usr/bin/busy");
	sample_and_turn(T0 + SEC, 7);
	sample_and_turn(T0 + 2 * SEC, 7);
	assert_int_equal(world.nannounced, 1);
	assert_int_equal(world.announced->pid, 7);
	assert_int_equal(world.announced->cgroup_id, 1007);
	assert_string_equal(world.announced->executable, "/usr/bin/busy");
	assert_string_equal(world.announced->comm, "comm");
	assert_false(world.announced->kernel_thread);
	world_label_all(&world, T0 + 3 * SEC, 1);
	sample_and_turn(T0 + 4 * SEC, 7);
	assert_int_equal(world.nannounced, 1);
	expect_end(T0 + 10 * SEC);
}

static void a_process_that_is_moved_to_another_control_group_is_announced_again(void **state UNUSED)
{
	run(T0, 7, "/usr/bin/busy");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 1);
	world.moved = 50;
	sample_and_turn(T0 + 3 * SEC, 7);
	sample_and_turn(T0 + 4 * SEC, 7);
	assert_int_equal(world.nannounced, 2);
	assert_int_equal(world.announced->cgroup_id, 1057);
	world_label_all(&world, T0 + 5 * SEC, 1);
	expect_end(T0 + 10 * SEC);
}

static void one_whose_executable_is_learned_later_is_announced_again(void **state UNUSED)
{
	sample_and_turn(T0 + SEC, 7); /* nobody has told of it */
	world_turn(&world, T0 + 2 * SEC);
	assert_int_equal(world.nannounced, 1);
	assert_string_equal(world.announced->executable, "");
	world_label_all(&world, T0 + 3 * SEC, 1);
	world_scanned(&world, T0 + 4 * SEC, 7, 1, A, "/usr/bin/busy");
	sample_and_turn(T0 + 5 * SEC, 7);
	assert_int_equal(world.nannounced, 2);
	assert_string_equal(world.announced->executable, "/usr/bin/busy");
	world_label_all(&world, T0 + 6 * SEC, 1);
	expect_end(T0 + 10 * SEC);
}

static void nobody_is_announced_where_labels_are_not_waited_for(void **state UNUSED)
{
	world_fini(&world);
	world_init(&world, NULL);
	world_start_labels(&world, T0, 0);
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	assert_int_equal(world.nannounced, 0);
	world_window(&world, T0 + 2 * SEC, false);
	world_settle(&world, T0 + 2 * SEC);
	assert_int_equal(world.nbatches, 1);
	assert_int_equal(stats()->labels_late, 0);
	expect_end(T0 + 10 * SEC);
}

static void each_exec_is_announced_for_itself(void **state UNUSED)
{
	run(T0, 7, "/bin/sh");
	sample_at(T0 + SEC, 7);
	run(T0 + SEC + 1, 7, "/bin/ls");
	sample_at(T0 + SEC + 10, 7);
	world_turn(&world, T0 + 2 * SEC);
	world_settle(&world, T0 + 2 * SEC);
	assert_int_equal(world.nannounced, 2);
	assert_int_not_equal(world.announced->id, world.announced->next->id);
	world_label_all(&world, T0 + 3 * SEC, 1);
	world_window(&world, T0 + 4 * SEC, false);
	world_settle(&world, T0 + 4 * SEC);
	expect_subjects(0, "7 exe_pid=7 service_name=sh\n7 exe_pid=7 service_name=ls\n");
	expect_end(T0 + 10 * SEC);
}

/* What is sampled between an exec and its first mapping has no name until the mapping is handled. */
static void the_first_mapping_is_waited_for_but_not_long(void **state UNUSED)
{
	world_exec(&world, T0 + SEC - 2 * MS, 7);
	sample_at(T0 + SEC - MS, 7);
	world_exec(&world, T0 + SEC - 2 * MS, 8);
	sample_at(T0 + SEC - MS, 8);
	world_turn(&world, T0 + SEC);
	assert_int_equal(world.nannounced, 0);
	world_map(&world, T0 + SEC - 1, 7, A, "/bin/late");
	world_turn(&world, T0 + SEC + 100 * MS);
	assert_int_equal(world.nannounced, 1);
	assert_string_equal(world.announced->executable, "/bin/late");
	world_turn(&world, T0 + SEC + 200 * MS);
	assert_int_equal(world.nannounced, 2);
	assert_string_equal(world.announced->next->executable, "");
	expect_end(T0 + 10 * SEC);
}

static void what_cannot_be_announced_now_is_tried_again(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	run(T0, 8, "/bin/b");
	world.announce_err = -ENOBUFS;
	sample_at(T0 + SEC, 7);
	sample_and_turn(T0 + SEC + 1, 8);
	assert_int_equal(world.nannounced, 0);
	world.announce_err = 0;
	world_turn(&world, T0 + 2 * SEC);	/* without another sample */
	assert_int_equal(world.nannounced, 2);
	assert_int_equal(world.announced->pid, 7);
	world_label_all(&world, T0 + 3 * SEC, 1);
	world_window(&world, T0 + 4 * SEC, false);
	world_settle(&world, T0 + 4 * SEC);
	expect_subjects(0, "7 exe_pid=7 service_name=a\n8 exe_pid=8 service_name=b\n");
	expect_end(T0 + 10 * SEC);
}

static void an_answer_that_never_comes_is_asked_for_again(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	for (uint64_t s = 1; s < 60; s++)
		sample_and_turn(T0 + s * SEC, 7);
	assert_int_equal(world.nannounced, 1);
	for (uint64_t s = 60; s < 65; s++)
		sample_and_turn(T0 + s * SEC, 7);
	assert_int_equal(world.nannounced, 2);
	expect_end(T0 + 70 * SEC);
}

static void answers_about_nobody_are_ignored(void **state UNUSED)
{
	const struct event_label label = { "service_name", "x" };

	run(T0, 7, "/bin/a");
	world_labels(&world, T0, 1, 0, &label, 1);	/* not announced */
	world_labels(&world, T0, 0, 0, &label, 1);
	world_labels(&world, T0, UINT64_MAX, 0, NULL, 0);
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + SEC, 1);
	world_labels(&world, T0 + SEC, 1, 0, &label, 1);	/* not any more */
	world_window(&world, T0 + 4 * SEC, false);
	world_settle(&world, T0 + 4 * SEC);
	expect_subjects(0, "7 exe_pid=7 service_name=a\n");
	expect_filters("");
	expect_end(T0 + 10 * SEC);
}

static void after_a_relabeling_all_are_announced_again(void **state UNUSED)
{
	const struct event_label label = { "service_name", "new" };

	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + SEC, 1);
	world_relabel(&world, T0 + 2 * SEC);
	sample_and_turn(T0 + 3 * SEC, 7);
	sample_and_turn(T0 + 4 * SEC, 7);
	assert_int_equal(world.nannounced, 2);
	/* Old labels will do. */
	world_window(&world, T0 + 5 * SEC, false);
	world_settle(&world, T0 + 5 * SEC);
	expect_subjects(0, "7 exe_pid=7 service_name=a\n");
	sample_and_turn(T0 + 6 * SEC, 7);
	world_labels(&world, T0 + 7 * SEC, world.announced->id, 1, &label, 1);
	world_window(&world, T0 + 8 * SEC, false);
	world_settle(&world, T0 + 8 * SEC);
	expect_subjects(1, "7 service_name=new\n");
	expect_end(T0 + 10 * SEC);
}

/* The answer to the first announcement must not be taken for the one to the second. */
static void a_relabeling_overtakes_an_answer(void **state UNUSED)
{
	const struct event_label old = { "service_name", "old" }, new = { "service_name", "new" };
	uint64_t id;

	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	id = world.announced->id;
	world_relabel(&world, T0 + 2 * SEC);
	sample_and_turn(T0 + 3 * SEC, 7);
	assert_int_equal(world.nannounced, 2);
	world_labels(&world, T0 + 4 * SEC, id, 1, &old, 1);
	world_window(&world, T0 + 5 * SEC, false);
	world_settle(&world, T0 + 5 * SEC);
	expect_subjects(0, "7 service_name=old\n");
	sample_and_turn(T0 + 6 * SEC, 7);
	world_labels(&world, T0 + 7 * SEC, id, 1, &new, 1);
	world_window(&world, T0 + 8 * SEC, false);
	world_settle(&world, T0 + 8 * SEC);
	expect_subjects(1, "7 service_name=new\n");
	expect_end(T0 + 10 * SEC);
}

/* ---- windows ------------------------------------------------------------------------------------- */

static void a_window_waits_for_all_its_labels(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	run(T0, 8, "/bin/b");
	sample_at(T0 + SEC, 7);
	sample_and_turn(T0 + SEC, 8);
	world_window(&world, T0 + 2 * SEC, false);
	world_settle(&world, T0 + 2 * SEC);
	assert_int_equal(world.nbatches, 0);
	assert_true(pipeline_idle(world.p));	/* no name is waited for */
	world_label_one(&world, T0 + 3 * SEC, 1);
	world_turn(&world, T0 + 4 * SEC);
	assert_int_equal(world.nbatches, 0);
	world_label_one(&world, T0 + 5 * SEC, 1);
	assert_int_equal(world.nbatches, 1);
	expect_subjects(0, "7 exe_pid=7 service_name=a\n8 exe_pid=8 service_name=b\n");
	assert_int_equal(stats()->labels_late, 0);
	expect_end(T0 + 10 * SEC);
}

static void a_window_does_not_wait_longer_than_it_may(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	run(T0, 8, "/bin/b");
	run(T0, 9, "/bin/c");
	sample_at(T0 + SEC, 7);
	sample_at(T0 + SEC, 8);
	sample_at(T0 + SEC, 8);
	sample_and_turn(T0 + SEC, 9);
	world_label_one(&world, T0 + SEC, 1);
	world_window(&world, T0 + 2 * SEC, false);
	world_settle(&world, T0 + 2 * SEC);
	world_turn(&world, T0 + 2 * SEC + WAIT - 1);
	assert_int_equal(world.nbatches, 0);
	world_turn(&world, T0 + 2 * SEC + WAIT);
	assert_int_equal(world.nbatches, 1);
	expect_subjects(0, "7 exe_pid=7 service_name=a\n8\n9\n");
	assert_int_equal(stats()->labels_late, 2);
	assert_int_equal(stats()->windows, 1);
	/* They come for the next one. */
	world_label_all(&world, T0 + 20 * SEC, 1);
	sample_and_turn(T0 + 21 * SEC, 8);
	world_window(&world, T0 + 22 * SEC, false);
	world_settle(&world, T0 + 22 * SEC);
	expect_subjects(1, "8 exe_pid=8 service_name=b\n");
	assert_int_equal(stats()->labels_late, 2);
	expect_end(T0 + 30 * SEC);
}

static void windows_stay_in_order_while_one_waits(void **state UNUSED)
{
	struct export_batch b;
	uint64_t second;

	run(T0, 7, "/bin/a");
	run(T0, 8, "/bin/b");
	sample_and_turn(T0 + SEC, 7);
	world_window(&world, T0 + 2 * SEC, false);
	sample_and_turn(T0 + 3 * SEC, 8);
	world_window(&world, T0 + 4 * SEC, false);
	world_settle(&world, T0 + 4 * SEC);
	second = world.announced->next->id;
	free(TAKE(world.announced->next));
	world_labels(&world, T0 + 5 * SEC, second, 1, NULL, 0);
	assert_int_equal(world.nbatches, 0);
	world_label_all(&world, T0 + 6 * SEC, 1);
	assert_int_equal(world.nbatches, 2);
	b = world_batch(&world, 0);
	assert_int_equal(b.wall_start_ns, T0 + 2 * SEC);
	export_batch_fini(&b);
	expect_end(T0 + 10 * SEC);
}

static void the_last_window_and_those_before_it_wait_for_a_second_only(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_window(&world, T0 + 2 * SEC, false);
	sample_and_turn(T0 + 3 * SEC, 7);
	world_window(&world, T0 + 4 * SEC, true);
	world_settle(&world, T0 + 4 * SEC);
	world_turn(&world, T0 + 5 * SEC - 1);
	assert_int_equal(world.nbatches, 0);
	world_turn(&world, T0 + 5 * SEC);
	assert_int_equal(world.nbatches, 2);
	assert_int_equal(stats()->labels_late, 2);
	assert_int_equal(stats()->samples, world.nbatch_samples);
}

static void at_the_end_nobody_waits_for_a_name_to_be_announced(void **state UNUSED)
{
	world_exec(&world, T0, 7);
	sample_at(T0 + SEC, 7);
	world_window(&world, T0 + SEC, true);
	assert_int_equal(world.nannounced, 1);
	world_label_all(&world, T0 + SEC + MS, 1);
	assert_int_equal(world.nbatches, 1);
	expect_subjects(0, "7 exe_pid=7 service_name=\n");
}

static void what_waits_for_labels_counts_as_memory(void **state UNUSED)
{
	size_t before;

	for (uint32_t pid = 1; pid <= 1000; pid++) {
		run(T0, pid, "/bin/a");
		sample_at(T0 + SEC, pid);
	}
	world_turn(&world, T0 + 2 * SEC);
	world_settle(&world, T0 + 2 * SEC);
	before = pipeline_bytes(world.p);
	world_window(&world, T0 + 3 * SEC, false);
	world_settle(&world, T0 + 3 * SEC);
	assert_int_equal(world.nbatches, 0);
	assert_true(pipeline_bytes(world.p) > before);
	world_label_all(&world, T0 + 4 * SEC, 1);
	assert_int_equal(world.nbatches, 1);
	assert_true(pipeline_bytes(world.p) < before - 1000 * sizeof(uint64_t));
}

static void equal_labels_share_their_pairs(void **state UNUSED)
{
	const struct event_label labels[] = { { "hostname", "h" }, { "service_name", "web" } };
	struct export_batch b;

	for (uint32_t pid = 1; pid <= 100; pid++) {
		run(T0, pid, "/bin/a");
		sample_at(T0 + SEC, pid);
	}
	world_turn(&world, T0 + 2 * SEC);
	world_settle(&world, T0 + 2 * SEC);
	assert_int_equal(world.nannounced, 100);
	for (struct world_announced *a = world.announced; a; a = a->next)
		world_labels(&world, T0 + 3 * SEC, a->id, 1, labels, 2);
	world_window(&world, T0 + 4 * SEC, false);
	world_settle(&world, T0 + 4 * SEC);
	b = world_batch(&world, 0);
	assert_int_equal(b.nsubjects, 100);
	assert_int_equal(b.npairs, 2);
	for (uint32_t i = 0; i < b.nsubjects; i++) {
		assert_int_equal(b.subjects[i].first_pair, 0);
		assert_int_equal(b.subjects[i].npairs, 2);
		assert_int_not_equal(b.subjects[i].id, 0);
	}
	export_batch_fini(&b);
	expect_end(T0 + 10 * SEC);
}

/* ---- filters ------------------------------------------------------------------------------------- */

static void a_skipped_process_costs_nothing_until_its_pid_is_anothers(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	expect_filters("");
	world_label_all(&world, T0 + 2 * SEC, 0);
	expect_filters("7:0 ");
	/* They were on their way. */
	sample_and_turn(T0 + 3 * SEC, 7);
	sample_and_turn(T0 + 4 * SEC, 7);
	assert_int_equal(stats()->dropped[PIPELINE_DROP_FILTERED], 2);
	assert_int_equal(stats()->samples, 1);
	expect_filters("");
	/* The same pid by another exec. */
	run(T0 + 5 * SEC, 7, "/bin/b");
	sample_and_turn(T0 + 6 * SEC, 7);
	expect_filters("7:1 ");
	assert_int_equal(stats()->samples, 2);
	assert_int_equal(world.nannounced, 2);
	world_label_all(&world, T0 + 7 * SEC, 0);
	expect_filters("7:0 ");
	/* And by a fork, whose records overtook those of the exit. */
	world_fork(&world, T0 + 8 * SEC, 7, 1);
	sample_and_turn(T0 + 9 * SEC, 7);
	world_turn(&world, T0 + 9 * SEC + 300 * MS);
	expect_filters("7:1 ");
	assert_int_equal(stats()->samples, 3);
	assert_int_equal(world.nannounced, 3);
	expect_end(T0 + 10 * SEC);
}

static void the_filter_ends_with_the_last_thread(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 10);
	expect_filters("7:10 ");
	world_exit(&world, T0 + 3 * SEC, 7);
	world_turn(&world, T0 + 3 * SEC + 100 * MS);
	expect_filters("7:1 ");
	world_turn(&world, T0 + 10 * SEC);	/* it is forgotten */
	expect_filters("");
	expect_end(T0 + 11 * SEC);
}

/* One that is older than we are may go on without its leader: it is skipped until it is forgotten. */
static void a_leader_that_exits_does_not_end_the_filter(void **state UNUSED)
{
	world_scanned(&world, T0, 7, 1, A, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 0);
	expect_filters("7:0 ");
	world_exit(&world, T0 + 3 * SEC, 7);
	world_turn(&world, T0 + 4 * SEC);
	expect_filters("");
	world_turn(&world, T0 + 70 * SEC);
	expect_filters("7:1 ");
	expect_end(T0 + 80 * SEC);
}

static void a_process_that_no_scan_meets_any_more_is_not_filtered(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 0);
	expect_filters("7:0 ");
	world_lost(&world, T0 + 3 * SEC);
	world_scanned(&world, T0 + 4 * SEC, 0, 0, 0, NULL);
	expect_filters("7:1 ");
	expect_end(T0 + 10 * SEC);
}

static void a_verdict_about_the_past_filters_nobody(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	run(T0 + 2 * SEC, 7, "/bin/b");
	world_turn(&world, T0 + 3 * SEC);
	world_label_all(&world, T0 + 3 * SEC, 0);	/* of what it was before */
	expect_filters("");
	sample_and_turn(T0 + 4 * SEC, 7);
	assert_int_equal(stats()->samples, 2);
	world_exit(&world, T0 + 5 * SEC, 7);
	world_turn(&world, T0 + 5 * SEC + 100 * MS);
	world_label_all(&world, T0 + 5 * SEC + 200 * MS, 0);	/* it has ended */
	expect_filters("");
	expect_end(T0 + 10 * SEC);
}

/* A skipped process has no samples that could announce it again: the filter is lifted for that. */
static void a_relabeling_reaches_skipped_processes(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	run(T0, 8, "/bin/b");
	sample_at(T0 + SEC, 7);
	sample_and_turn(T0 + SEC, 8);
	world_label_all(&world, T0 + 2 * SEC, 0);
	expect_filters("7:0 8:0 ");
	world_relabel(&world, T0 + 3 * SEC);
	assert_int_equal(strlen(world.filters), strlen("7:1 8:1 "));
	world.filters[0] = 0;
	sample_at(T0 + 4 * SEC, 7);
	sample_and_turn(T0 + 4 * SEC, 8);
	assert_int_equal(world.nannounced, 4);
	assert_int_equal(stats()->dropped[PIPELINE_DROP_FILTERED], 2);
	expect_filters("");	/* or a lost answer would be the last */
	world_label_one(&world, T0 + 5 * SEC, 1);
	world_label_one(&world, T0 + 5 * SEC, 0);
	expect_filters("8:0 ");
	sample_and_turn(T0 + 6 * SEC, 7);
	assert_int_equal(stats()->samples, 3);
	expect_end(T0 + 10 * SEC);
}

/* The old verdict holds until the new one is there, but must not keep its subject from asking for it. */
static void an_answer_lost_after_a_relabeling_is_asked_for_again(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 0);
	world_relabel(&world, T0 + 3 * SEC);
	sample_and_turn(T0 + 4 * SEC, 7);
	assert_int_equal(world.nannounced, 2);
	expect_filters("7:0 7:1 ");
	world_turn(&world, T0 + 70 * SEC);	/* nobody answers */
	assert_int_equal(stats()->announce_unanswered, 1);
	sample_and_turn(T0 + 71 * SEC, 7);
	assert_int_equal(world.nannounced, 3);
	for (struct world_announced *a = TAKE(world.announced), *next; a; a = next) {
		next = a->next;
		free(a);
	}
	expect_filters("");
	expect_end(T0 + 80 * SEC);
}

/* ---- what was sampled before it was known that it is not to be ------------------------------------ */

static void what_is_skipped_by_the_end_of_its_window_is_left_out_of_it(void **state UNUSED)
{
	run(T0, 7, "/bin/short");
	run(T0, 8, "/bin/b");
	for (int i = 0; i < 5; i++)
		sample_at(T0 + SEC, 7);
	sample_and_turn(T0 + SEC, 8);
	world_exit(&world, T0 + SEC + MS, 7);
	world_tap(&world, T0 + SEC, 99, SEC);
	world_turn(&world, T0 + 2 * SEC);
	world_window(&world, T0 + 3 * SEC, false);
	world_settle(&world, T0 + 3 * SEC);
	world_label_one(&world, T0 + 4 * SEC, 0);
	world_label_one(&world, T0 + 4 * SEC, 1);
	expect_subjects(world.nbatches - 1, "8 exe_pid=8 service_name=b\n");
	assert_int_equal(stats()->samples, 6);
	assert_int_equal(stats()->excluded, 5);
	assert_int_equal(world.nbatch_samples, 1);
}

/* Their periods are their own: thinned or not, each stands for what it was. */
static void what_is_thinned_by_the_end_of_its_window_stays_in_it(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 10);
	world_window(&world, T0 + 3 * SEC, false);
	world_settle(&world, T0 + 3 * SEC);
	assert_int_equal(stats()->excluded, 0);
	assert_int_equal(world.nbatch_samples, 1);
	expect_end(T0 + 10 * SEC);
}

static void a_filter_without_room_is_tried_again_with_the_next_sample(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	run(T0, 8, "/bin/b");
	sample_at(T0 + SEC, 7);
	sample_and_turn(T0 + SEC, 8);
	world.filters_full = true;
	world_label_one(&world, T0 + 2 * SEC, 0);
	world_label_one(&world, T0 + 2 * SEC, 10);
	sample_at(T0 + 3 * SEC, 7);
	sample_and_turn(T0 + 3 * SEC, 8);
	expect_filters("");
	assert_int_equal(stats()->dropped[PIPELINE_DROP_FILTERED], 1);
	world.filters_full = false;
	sample_at(T0 + 4 * SEC, 7);
	sample_and_turn(T0 + 4 * SEC, 8);
	expect_filters("7:0 8:10 ");
	sample_and_turn(T0 + 5 * SEC, 7);
	expect_filters("");
	expect_end(T0 + 10 * SEC);
}

/* ---- names ---------------------------------------------------------------------------------------- */

static void unnamed_window(uint64_t time_ns, bool last)
{
	uint32_t rows;

	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + SEC, 1);
	rows = world.nrows_asked;
	world_window(&world, time_ns, last);
	assert_int_equal(world.nrows_asked, rows);
	assert_non_null(world.requests);
	assert_true(world.requests->is_names);
	assert_int_equal(world.nbatches, 0);
}

static void a_window_does_not_wait_for_names_longer_than_it_may(void **state UNUSED)
{
	char *text;

	unnamed_window(T0 + 2 * SEC, false);
	world_turn(&world, T0 + 2 * SEC + WAIT - 1);
	assert_int_equal(world.nbatches, 0);
	world_turn(&world, T0 + 2 * SEC + WAIT);
	assert_int_equal(world.nbatches, 1);
	text = world_text(&world, 0);
	assert_non_null(strstr(text, "a+0x"));
	free(text);
	assert_true(stats()->names_late > 0);
	world_settle(&world, T0 + 3 * SEC + WAIT);	/* the names come, for nobody */
	expect_end(T0 + 30 * SEC);
}

static void at_the_very_end_windows_are_handed_on_as_they_are(void **state UNUSED)
{
	unnamed_window(T0 + 2 * SEC, true);
	world_window(&world, T0 + 4 * SEC, true);
	assert_int_equal(world.nbatches, 1);
	assert_int_equal(stats()->samples, world.nbatch_samples);
}

/* BPF has multiplied their period. */
static void thinned_samples_are_not_thinned_again(void **state UNUSED)
{
	run(T0, 7, "/bin/a");
	sample_and_turn(T0 + SEC, 7);
	world_label_all(&world, T0 + 2 * SEC, 4);
	for (uint64_t i = 0; i < 10; i++)
		sample_and_turn(T0 + 3 * SEC + i * 100 * MS, 7);
	assert_int_equal(stats()->samples, 11);
	expect_filters("7:4 ");
	expect_end(T0 + 10 * SEC);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void what_is_kept_for_labels_counts_as_memory(void **state UNUSED)
{
	static char value[EXPORT_LABEL_MAX + 1];
	const struct event_label label = { "service_name", value };
	size_t before, pending;

	memset(value, 'x', sizeof(value) - 1);
	for (uint32_t pid = 1; pid <= 100; pid++)
		run(T0, pid, "/bin/a");
	world_turn(&world, T0 + SEC);
	world_settle(&world, T0 + SEC);
	before = pipeline_bytes(world.p);
	for (uint32_t pid = 1; pid <= 100; pid++)
		sample_at(T0 + 2 * SEC, pid);
	world_turn(&world, T0 + 3 * SEC);
	world_settle(&world, T0 + 3 * SEC);
	pending = pipeline_bytes(world.p);
	assert_in_range(pending - before, 100 * 100, 200000);
	for (struct world_announced *a = world.announced; a; a = a->next)
		world_labels(&world, T0 + 4 * SEC, a->id, 1, &label, 1);
	assert_in_range(pipeline_bytes(world.p) - pending, 100 * (sizeof(value) - 300), 100 * (sizeof(value) + 100));
	for (uint32_t pid = 1; pid <= 100; pid++)
		world_exit(&world, T0 + 5 * SEC, pid);
	world_window(&world, T0 + 6 * SEC, false);
	world_settle(&world, T0 + 6 * SEC);
	world_turn(&world, T0 + 10 * SEC);
	assert_true(pipeline_bytes(world.p) < before);
	expect_end(T0 + 11 * SEC);
}

/* Nobody answers: what waits is bounded, and is forgotten. */
static void announcements_without_end_are_bounded(void **state UNUSED)
{
	uint64_t start = clock_cpu_ns();

	world.announce_err = -ENOBUFS;
	for (uint32_t i = 0; i < 80000; i++) {
		uint64_t at = T0 + i * 100000ull;

		world_fork(&world, at, 10 + i, 1);
		world_kernel_sample(&world, at + 1, 10 + i, &(uint64_t){ 0xffffffff81000000ull }, 1);
		world_exit(&world, at + 2, 10 + i);
		if (i % 1000 == 0)
			world_turn(&world, at);
	}
	world_turn(&world, T0 + 10 * SEC);
	assert_int_equal(stats()->samples, 80000);
	assert_true(pipeline_bytes(world.p) < 60u << 20);
	world_turn(&world, T0 + 100 * SEC);
	world_window(&world, T0 + 100 * SEC, false);
	world_settle(&world, T0 + 100 * SEC);
	world_turn(&world, T0 + 120 * SEC);
	assert_true(pipeline_bytes(world.p) < 1u << 20);
	assert_int_equal(stats()->labels_late, 80000);
	assert_true(clock_cpu_ns() - start < 5 * SEC);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_subject_is_announced_once_with_what_is_known_of_it),
		TEST(a_process_that_is_moved_to_another_control_group_is_announced_again),
		TEST(one_whose_executable_is_learned_later_is_announced_again),
		TEST(nobody_is_announced_where_labels_are_not_waited_for),
		TEST(each_exec_is_announced_for_itself),
		TEST(the_first_mapping_is_waited_for_but_not_long),
		TEST(what_cannot_be_announced_now_is_tried_again),
		TEST(an_answer_that_never_comes_is_asked_for_again),
		TEST(answers_about_nobody_are_ignored),
		TEST(after_a_relabeling_all_are_announced_again),
		TEST(a_relabeling_overtakes_an_answer),
		TEST(a_window_waits_for_all_its_labels),
		TEST(a_window_does_not_wait_longer_than_it_may),
		TEST(windows_stay_in_order_while_one_waits),
		TEST(the_last_window_and_those_before_it_wait_for_a_second_only),
		TEST(at_the_end_nobody_waits_for_a_name_to_be_announced),
		TEST(what_waits_for_labels_counts_as_memory),
		TEST(equal_labels_share_their_pairs),
		TEST(a_skipped_process_costs_nothing_until_its_pid_is_anothers),
		TEST(the_filter_ends_with_the_last_thread),
		TEST(a_leader_that_exits_does_not_end_the_filter),
		TEST(a_process_that_no_scan_meets_any_more_is_not_filtered),
		TEST(a_verdict_about_the_past_filters_nobody),
		TEST(a_relabeling_reaches_skipped_processes),
		TEST(an_answer_lost_after_a_relabeling_is_asked_for_again),
		TEST(what_is_skipped_by_the_end_of_its_window_is_left_out_of_it),
		TEST(what_is_thinned_by_the_end_of_its_window_stays_in_it),
		TEST(a_filter_without_room_is_tried_again_with_the_next_sample),
		TEST(a_window_does_not_wait_for_names_longer_than_it_may),
		TEST(at_the_very_end_windows_are_handed_on_as_they_are),
		TEST(thinned_samples_are_not_thinned_again),
		TEST(what_is_kept_for_labels_counts_as_memory),
		TEST(announcements_without_end_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
