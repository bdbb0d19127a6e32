#include "agent/pending.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/alloc_fail.h"

static struct procs *procs;
static struct pending *pending;

static int set_up(void **state UNUSED)
{
	return procs_new(&procs) || pending_new(&pending) ? -1 : 0;
}

static int tear_down(void **state UNUSED)
{
	pending = pending_free(pending);
	procs = procs_free(procs);
	return 0;
}

static struct subject *subject_of(uint32_t pid)
{
	struct proc *p;

	assert_int_equal(procs_get(procs, pid, 1, &p), 0);
	return p->subject;
}

static void add(uint32_t pid, uint32_t number, uint64_t now_ns)
{
	struct subject *s = subject_of(pid);

	assert_int_equal(pending_add(pending, s, number, "0123456789abcdefXX", now_ns), 0);
	s->announced = number;
}

struct made {
	uint32_t n, pids[64], later_pid;
	int err;
};

static int make(void *arg, const struct announcement *a)
{
	struct made *m = arg;

	assert_string_equal(a->comm, "0123456789abcdef");
	if (a->subject->pid == m->later_pid)
		return PENDING_LATER;
	if (m->err)
		return m->err;
	m->pids[m->n++] = a->subject->pid;
	return 0;
}

static struct made make_all(uint32_t later_pid, int err)
{
	struct made m = { .later_pid = later_pid, .err = err };

	assert_int_equal(pending_make(pending, make, &m), err);
	return m;
}

static void each_is_made_once_in_order(void **state UNUSED)
{
	struct made m;

	for (uint32_t pid = 1; pid <= 5; pid++)
		add(pid, 1, 0);
	m = make_all(2, 0);
	assert_int_equal(m.n, 4);
	assert_memory_equal(m.pids, ((uint32_t[]){ 1, 3, 4, 5 }), 16);
	add(6, 1, 0);
	assert_int_equal(make_all(0, -ENOBUFS).n, 0);
	m = make_all(0, 0);
	assert_int_equal(m.n, 2);
	assert_memory_equal(m.pids, ((uint32_t[]){ 2, 6 }), 8);
	assert_int_equal(make_all(0, 0).n, 0);
	assert_int_equal(pending_count(pending), 6);
}

static void answers_meet_announcements_in_their_order(void **state UNUSED)
{
	uint64_t id = subject_of(1)->id;
	struct announcement *a;

	add(1, 1, 0);
	add(1, 2, 0);
	add(1, 3, 0);
	for (uint32_t number = 1; number <= 3; number++) {
		if (number == 2)
			assert_int_equal(make_all(0, 0).n, 2);	/* the first was answered before it was made */
		a = pending_take(pending, id);
		assert_int_equal(a->number, number);
		announcement_free(a);
	}
	assert_null(pending_take(pending, id));
	add(2, 1, 0);
	assert_int_equal(make_all(0, 0).n, 1);
	assert_int_equal(pending_count(pending), 1);
}

static void what_waited_too_long_may_be_announced_again(void **state UNUSED)
{
	for (uint32_t pid = 1; pid <= 10; pid++)
		add(pid, 1, pid);
	assert_int_equal(make_all(7, 0).n, 9);
	add(9, 2, 20);
	pending_give_up(pending, 10);
	assert_int_equal(pending_count(pending), 2);
	for (uint32_t pid = 1; pid <= 8; pid++)
		assert_int_equal(subject_of(pid)->announced, 0);
	assert_int_equal(subject_of(9)->announced, 2);	/* the later one still waits */
	assert_int_equal(subject_of(10)->announced, 1);
	assert_int_equal(make_all(0, 0).n, 1);
	pending_give_up(pending, UINT64_MAX);
	assert_int_equal(pending_count(pending), 0);
	add(11, 1, 30);
	assert_int_equal(make_all(0, 0).n, 1);
}

static void a_subject_is_kept_while_it_waits(void **state UNUSED)
{
	uint64_t id = subject_of(1)->id;
	struct announcement *a;

	add(1, 1, 0);
	procs_exit(procs, 1);
	a = pending_take(pending, id);
	assert_int_equal(a->subject->pid, 1);
	assert_int_equal(a->subject->refs, 1);
	announcement_free(a);
}

static void the_table_is_bounded(void **state UNUSED)
{
	size_t empty = pending_bytes(pending);
	struct subject *s;

	for (uint32_t pid = 1; pid <= PENDING_MAX; pid++)
		add(pid, 1, 0);
	s = subject_of(PENDING_MAX + 1);
	assert_int_equal(pending_add(pending, s, 1, "", 0), -ENOSPC);
	assert_true(pending_bytes(pending) - empty < PENDING_MAX * 300ull);
	announcement_free(pending_take(pending, subject_of(77)->id));
	assert_int_equal(pending_add(pending, s, 1, "", 0), 0);
	pending_give_up(pending, 1);
	assert_int_equal(pending_bytes(pending), empty);
}

static void what_it_keeps_alive_is_bounded_in_bytes(void **state UNUSED)
{
	static char path[8000];
	size_t empty = pending_bytes(pending);
	uint32_t pid = 0;
	struct proc *p;
	int err;

	memset(path, '/', sizeof(path) - 1);
	do {
		assert_int_equal(procs_get(procs, ++pid, 1, &p), 0);
		assert_int_equal(procs_set_executable(p, path), 0);
		err = pending_add(pending, p->subject, 1, "", 0);
	} while (!err);
	assert_int_equal(err, -ENOSPC);
	assert_in_range(pid, PENDING_BYTES_MAX / 8400, PENDING_BYTES_MAX / 8000);
	assert_in_range(pending_bytes(pending) - empty, PENDING_BYTES_MAX - 8400, PENDING_BYTES_MAX);
	/* What changes meanwhile does not matter. */
	for (uint32_t i = 1; i < pid; i++)
		assert_int_equal(subject_set_labels(subject_of(i), 0, path, sizeof(path)), 0);
	assert_int_equal(pending_give_up(pending, 1), pid - 1);
	assert_int_equal(pending_bytes(pending), empty);
}

static void any_failed_allocation_is_reported(void **state UNUSED)
{
	struct subject *s = subject_of(1);
	int err = -1;

	for (long nth = 1; err; nth++) {
		pending = pending_free(pending);
		alloc_fail_nth(nth);
		err = pending_new(&pending);
		if (!err)
			err = pending_add(pending, s, 1, "x", 0);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		if (pending && err)
			assert_int_equal(pending_count(pending), 0);
	}
	assert_int_equal(pending_count(pending), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_is_made_once_in_order),
		TEST(answers_meet_announcements_in_their_order),
		TEST(what_waited_too_long_may_be_announced_again),
		TEST(a_subject_is_kept_while_it_waits),
		TEST(the_table_is_bounded),
		TEST(what_it_keeps_alive_is_bounded_in_bytes),
		TEST(any_failed_allocation_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
