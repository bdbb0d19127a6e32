#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/procs.h"
#include "base/clock.h"
#include "tests/unit/alloc_fail.h"

#define SEC NSEC_PER_SEC

static struct procs *procs;

static int set_up(void **state UNUSED)
{
	return procs_new(&procs);
}

static int tear_down(void **state UNUSED)
{
	procs = procs_free(procs);
	return 0;
}

static struct proc *get(uint32_t pid, uint64_t now_ns)
{
	struct proc *p = NULL;

	assert_int_equal(procs_get(procs, pid, now_ns, &p), 0);
	assert_non_null(p);
	return p;
}

static void add_anon(struct proc *p, uint64_t start)
{
	struct map map = { .start = start, .end = start + 0x1000, .kind = MAP_ANON };

	assert_int_equal(maps_add(&p->maps, &map), 0);
}

static void a_process_is_made_once_and_found_again(void **state UNUSED)
{
	struct proc *p;

	assert_null(procs_find(procs, 7));
	p = get(7, 5);
	assert_ptr_equal(get(7, 6), p);
	assert_ptr_equal(procs_find(procs, 7), p);
	assert_int_equal(p->since_ns, 5);
	assert_string_equal(p->subject->executable, "");
	assert_int_equal(procs_count(procs), 1);
}

static void thousands_of_processes_are_all_found(void **state UNUSED)
{
	for (uint32_t pid = 1; pid <= 10000; pid++)
		get(pid * 7, pid);
	assert_int_equal(procs_count(procs), 10000);
	for (uint32_t pid = 1; pid <= 10000; pid++)
		assert_int_equal(procs_find(procs, pid * 7)->since_ns, pid);
	assert_null(procs_find(procs, 8));
	assert_true(procs_bytes(procs) < 10000 * 600);
}

static void a_child_has_its_parents_mappings_and_executable(void **state UNUSED)
{
	struct proc *parent = get(1, 1), *child;

	add_anon(parent, 0x1000);
	assert_int_equal(procs_set_executable(parent, "/bin/sh"), 0);
	parent->known_whole = true;
	assert_int_equal(procs_fork(procs, 2, 1, 10), 0);
	child = procs_find(procs, 2);
	assert_ptr_equal(child->maps, parent->maps);
	assert_true(child->known_whole);
	assert_int_equal(child->ppid, 1);
	assert_string_equal(child->subject->executable, "/bin/sh");
	assert_ptr_not_equal(child->subject, parent->subject);
	/* Neither sees what the other maps from now on. */
	add_anon(child, 0x5000);
	assert_null(maps_find(parent->maps, 0x5000));
	add_anon(parent, 0x9000);
	assert_null(maps_find(child->maps, 0x9000));
	assert_non_null(maps_find(child->maps, 0x1000));
}

static void exec_leaves_the_old_subject_to_those_who_hold_it(void **state UNUSED)
{
	struct proc *p = get(1, 1);
	struct subject *old = subject_ref(p->subject);
	struct maps *version = maps_ref(p->maps);

	add_anon(p, 0x1000);
	version = (maps_unref(version), maps_ref(p->maps));
	assert_int_equal(procs_set_executable(p, "/bin/a"), 0);
	assert_int_equal(procs_exec(procs, 1, 9), 0);
	assert_ptr_not_equal(p->subject, old);
	assert_true(p->subject->id > old->id);
	assert_string_equal(old->executable, "/bin/a");
	assert_string_equal(p->subject->executable, "");
	assert_int_equal(maps_count(p->maps), 0);
	assert_int_equal(maps_count(version), 1);
	assert_true(p->known_whole);
	maps_unref(version);
	subject_unref(old);
}

static void a_process_is_kept_for_a_second_after_its_last_thread(void **state UNUSED)
{
	assert_int_equal(procs_fork(procs, 2, 1, SEC), 0);
	procs_thread_start(procs, 2);
	procs_thread_exit(procs, 2, true, 2 * SEC);
	procs_sweep_exited(procs, 90 * SEC);
	assert_non_null(procs_find(procs, 2)); /* a thread is left */
	procs_thread_exit(procs, 2, false, 100 * SEC);
	procs_sweep_exited(procs, 101 * SEC);
	assert_non_null(procs_find(procs, 2));
	procs_sweep_exited(procs, 101 * SEC + 1);
	assert_null(procs_find(procs, 2));
}

static void an_old_process_may_outlive_its_leader_for_a_minute(void **state UNUSED)
{
	get(5, SEC);
	procs_thread_exit(procs, 5, false, 2 * SEC);
	procs_sweep_exited(procs, 1000 * SEC);
	assert_non_null(procs_find(procs, 5)); /* only a thread of it ended */
	procs_thread_exit(procs, 5, true, 1000 * SEC);
	procs_sweep_exited(procs, 1060 * SEC);
	assert_non_null(procs_find(procs, 5));
	procs_sweep_exited(procs, 1060 * SEC + 1);
	assert_null(procs_find(procs, 5));
}

/* The leader's exit is reported when another thread calls exec, and the process lives on. */
static void an_exec_by_a_thread_brings_the_process_back(void **state UNUSED)
{
	get(5, SEC);
	procs_thread_exit(procs, 5, true, 2 * SEC);
	assert_int_equal(procs_exec(procs, 5, 2 * SEC + 10), 0);
	procs_sweep_exited(procs, 1000 * SEC);
	assert_non_null(procs_find(procs, 5));
}

static void a_process_that_exited_in_the_future_stays(void **state UNUSED)
{
	assert_int_equal(procs_fork(procs, 2, 1, SEC), 0);
	procs_thread_exit(procs, 2, true, 50 * SEC);
	procs_sweep_exited(procs, 3 * SEC);
	assert_non_null(procs_find(procs, 2));
}

static void a_pid_that_is_used_again_is_another_process(void **state UNUSED)
{
	uint64_t id;

	assert_int_equal(procs_fork(procs, 2, 1, SEC), 0);
	add_anon(procs_find(procs, 2), 0x1000);
	id = procs_find(procs, 2)->subject->id;
	procs_thread_exit(procs, 2, true, 2 * SEC);
	assert_int_equal(procs_fork(procs, 2, 1, 2 * SEC + 5), 0);
	assert_int_equal(maps_count(procs_find(procs, 2)->maps), 0);
	assert_int_not_equal(procs_find(procs, 2)->subject->id, id);
	procs_sweep_exited(procs, 100 * SEC);
	assert_non_null(procs_find(procs, 2));
}

static void a_fork_that_the_scan_has_overtaken_changes_no_mappings(void **state UNUSED)
{
	struct proc *child = get(2, 10 * SEC);

	get(1, SEC)->target = true;
	add_anon(child, 0x1000);
	assert_int_equal(procs_fork(procs, 2, 1, 9 * SEC), 0);
	assert_ptr_equal(procs_find(procs, 2), child);
	assert_int_equal(maps_count(child->maps), 1);
	assert_true(child->target);
}

static void children_of_a_target_count_after_it_is_gone(void **state UNUSED)
{
	get(1, SEC)->target = true;
	assert_int_equal(procs_fork(procs, 2, 1, 2 * SEC), 0);
	assert_int_equal(procs_fork(procs, 3, 2, 3 * SEC), 0);
	assert_int_equal(procs_fork(procs, 9, 8, 3 * SEC), 0);
	procs_exit(procs, 1);
	procs_exit(procs, 2);
	assert_true(procs_target(procs, procs_find(procs, 3)));
	assert_false(procs_target(procs, procs_find(procs, 9)));
}

static void scanned_processes_count_by_their_ancestors(void **state UNUSED)
{
	get(1, SEC)->target = true;
	get(20, SEC)->ppid = 1;
	get(30, SEC)->ppid = 20;
	get(40, SEC)->ppid = 41;
	assert_true(procs_target(procs, procs_find(procs, 30)));
	assert_false(procs_target(procs, procs_find(procs, 40)));
}

/* ... but not by a stranger that has got a dead parent's pid. */
static void a_later_process_with_the_parents_pid_is_no_parent(void **state UNUSED)
{
	get(1, SEC)->target = true;
	get(20, SEC)->ppid = 10;
	assert_int_equal(procs_fork(procs, 10, 1, 5 * SEC), 0);
	assert_true(procs_target(procs, procs_find(procs, 10)));
	assert_false(procs_target(procs, procs_find(procs, 20)));
}

static void circles_of_parents_end(void **state UNUSED)
{
	get(1, SEC)->ppid = 2;
	get(2, SEC)->ppid = 1;
	get(3, SEC)->ppid = 3;
	assert_false(procs_target(procs, procs_find(procs, 1)));
	assert_false(procs_target(procs, procs_find(procs, 3)));
}

static void a_target_can_count_from_its_next_exec_on(void **state UNUSED)
{
	get(1, SEC)->target_at_exec = true;
	assert_int_equal(procs_fork(procs, 2, 1, 2 * SEC), 0);
	assert_false(procs_target(procs, procs_find(procs, 1)));
	assert_int_equal(procs_exec(procs, 1, 3 * SEC), 0);
	assert_int_equal(procs_fork(procs, 3, 1, 4 * SEC), 0);
	assert_true(procs_target(procs, procs_find(procs, 1)));
	assert_false(procs_target(procs, procs_find(procs, 2)));
	assert_true(procs_target(procs, procs_find(procs, 3)));
}

static void whom_no_scan_met_is_forgotten_but_not_the_newer_ones(void **state UNUSED)
{
	get(1, SEC);
	get(2, SEC)->scan_ns = 11 * SEC;
	get(3, 12 * SEC);
	procs_sweep_unscanned(procs, 10 * SEC);
	assert_null(procs_find(procs, 1));
	assert_non_null(procs_find(procs, 2));
	assert_non_null(procs_find(procs, 3));
	assert_int_equal(procs_count(procs), 2);
}

static void doubt_makes_the_leader_the_measure(void **state UNUSED)
{
	assert_int_equal(procs_fork(procs, 2, 1, SEC), 0);
	procs_thread_exit(procs, 2, true, 2 * SEC);
	procs_doubt(procs_find(procs, 2)); /* it lives: that exit was another process's */
	procs_sweep_exited(procs, 1000 * SEC);
	assert_non_null(procs_find(procs, 2));
	procs_thread_exit(procs, 2, false, 1000 * SEC);
	procs_sweep_exited(procs, 2000 * SEC);
	assert_non_null(procs_find(procs, 2));
}

/* 500 processes a second, for an hour: what is kept is what lives. */
static void short_processes_leave_nothing(void **state UNUSED)
{
	size_t most = 0;

	get(1, 1);
	for (uint64_t i = 0; i < 500 * 3600; i++) {
		uint64_t now = SEC + i * 2 * NSEC_PER_MSEC;
		uint32_t pid = 2 + (uint32_t)(i % 4000000);

		assert_int_equal(procs_fork(procs, pid, 1, now), 0);
		procs_thread_exit(procs, pid, true, now + NSEC_PER_MSEC);
		get(pid, now + NSEC_PER_MSEC + 10000); /* sampled at the end of its exit */
		if (i % 500 == 0)
			procs_sweep_exited(procs, now);
		most = MAX(most, procs_count(procs));
	}
	assert_true(most < 1200);
}

struct ends {
	uint32_t n;
	uint64_t subject_id;
};

static void note_end(void *arg, struct proc *p)
{
	struct ends *e = arg;

	e->n++;
	e->subject_id = p->subject->id;
	assert_ptr_equal(procs_find(procs, p->pid), p);	/* still there */
}

static void the_end_of_each_subject_is_told(void **state UNUSED)
{
	struct ends e = { 0 };
	uint64_t id;

	procs_on_end(procs, note_end, &e);
	id = get(1, SEC)->subject->id;
	assert_int_equal(e.n, 0);
	assert_int_equal(procs_exec(procs, 1, 2 * SEC), 0);
	assert_int_equal(e.n, 1);
	assert_int_equal(e.subject_id, id);
	id = procs_find(procs, 1)->subject->id;
	assert_int_equal(procs_fork(procs, 1, 9, 3 * SEC), 0);
	assert_int_equal(e.n, 2);
	assert_int_equal(e.subject_id, id);
	procs_exit(procs, 1);
	procs_exit(procs, 1);
	assert_int_equal(e.n, 3);
	assert_int_equal(procs_fork(procs, 2, 9, 3 * SEC), 0);
	procs_thread_exit(procs, 2, true, 4 * SEC);
	assert_int_equal(e.n, 3);
	procs_sweep_exited(procs, 10 * SEC);
	assert_int_equal(e.n, 4);
	get(3, SEC);
	procs_sweep_unscanned(procs, 2 * SEC);
	assert_int_equal(e.n, 5);
	assert_int_equal(procs_count(procs), 0);
}

static void labels_are_replaced_and_counted(void **state UNUSED)
{
	struct proc *p = get(1, SEC);
	size_t before = procs_bytes(procs);

	assert_int_equal(p->subject->keep_one_in, 1);
	assert_int_equal(p->filter, 1);
	assert_int_equal(subject_set_labels(p->subject, 1, "name\0value", 11), 0);
	assert_int_equal(procs_bytes(procs), before + 11);
	assert_int_equal(subject_set_labels(p->subject, 1, "a\0b", 4), 0);
	assert_int_equal(procs_bytes(procs), before + 4);
	assert_memory_equal(p->subject->labels, "a\0b", 4);
	assert_int_equal(subject_set_labels(p->subject, 0, NULL, 0), 0);
	assert_int_equal(p->subject->nlabels, 0);
	assert_int_equal(procs_bytes(procs), before);
	/* A child has its own to get. */
	assert_int_equal(subject_set_labels(p->subject, 1, "a\0b", 4), 0);
	assert_int_equal(procs_fork(procs, 2, 1, 2 * SEC), 0);
	assert_int_equal(procs_find(procs, 2)->subject->nlabels, 0);
}

static int all_steps(void)
{
	struct proc *p;
	int err;

	if ((err = procs_get(procs, 1, SEC, &p)) || (err = procs_set_executable(p, "/bin/sh")) ||
	    (err = subject_set_labels(p->subject, 1, "a\0b", 4)) ||
	    (err = procs_fork(procs, 2, 1, 2 * SEC)) || (err = procs_exec(procs, 2, 3 * SEC)))
		return err;
	for (uint32_t pid = 100; pid < 400 && !err; pid++)
		err = procs_get(procs, pid, SEC, &p);
	return err;
}

static void any_failed_allocation_is_reported(void **state UNUSED)
{
	int err = -1;

	for (long nth = 1; err; nth++) {
		procs_free(procs);
		assert_int_equal(procs_new(&procs), 0);
		alloc_fail_nth(nth);
		err = all_steps();
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_int_equal(all_steps(), 0);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_is_made_once_and_found_again),
		TEST(thousands_of_processes_are_all_found),
		TEST(a_child_has_its_parents_mappings_and_executable),
		TEST(exec_leaves_the_old_subject_to_those_who_hold_it),
		TEST(a_process_is_kept_for_a_second_after_its_last_thread),
		TEST(an_old_process_may_outlive_its_leader_for_a_minute),
		TEST(an_exec_by_a_thread_brings_the_process_back),
		TEST(a_process_that_exited_in_the_future_stays),
		TEST(a_pid_that_is_used_again_is_another_process),
		TEST(a_fork_that_the_scan_has_overtaken_changes_no_mappings),
		TEST(children_of_a_target_count_after_it_is_gone),
		TEST(scanned_processes_count_by_their_ancestors),
		TEST(a_later_process_with_the_parents_pid_is_no_parent),
		TEST(circles_of_parents_end),
		TEST(a_target_can_count_from_its_next_exec_on),
		TEST(whom_no_scan_met_is_forgotten_but_not_the_newer_ones),
		TEST(doubt_makes_the_leader_the_measure),
		TEST(short_processes_leave_nothing),
		TEST(the_end_of_each_subject_is_told),
		TEST(labels_are_replaced_and_counted),
		TEST(any_failed_allocation_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
