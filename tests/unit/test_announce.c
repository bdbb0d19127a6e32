/* The reader and the receiver of announcements are functions of the test. */
#include "agent/announce.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/alloc_fail.h"

/* ---- the reader ------------------------------------------------------------------------------ */

enum { ASKS_MAX = ANNOUNCE_PENDING_MAX + 16 };

static struct { readerclient_text_fn *fn; void *arg; struct reader_cgroups asked; } asks[ASKS_MAX];
static uint32_t nasks, nanswered;
static int ask_error;

static int ask(struct readerclient *c UNUSED, const struct reader_cgroups *r, readerclient_text_fn *fn, void *arg)
{
	if (ask_error)
		return ask_error;
	assert_true(nasks < ASKS_MAX);
	asks[nasks].fn = fn;
	asks[nasks].arg = arg;
	asks[nasks++].asked = *r;
	return 0;
}

static int answer(const char *text, bool is_of_cgroup)
{
	assert_true(nanswered < nasks);
	nanswered++;
	return asks[nanswered - 1].fn(asks[nanswered - 1].arg, text, is_of_cgroup);
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static struct {
	uint64_t id, cgroup_id;
	uint32_t pid, flags;
	char executable[64], comm[32], cgroups[64];
} last;
static uint64_t ntold, id_sum;
static int tell_error;

static int take(void *arg UNUSED, const struct export_facts *f)
{
	if (tell_error)
		return tell_error;
	ntold++;
	id_sum += f->id;
	last.id = f->id;
	last.cgroup_id = f->cgroup_id;
	last.pid = f->pid;
	last.flags = f->flags;
	snprintf(last.executable, sizeof(last.executable), "%s", f->executable);
	snprintf(last.comm, sizeof(last.comm), "%s", f->comm);
	snprintf(last.cgroups, sizeof(last.cgroups), "%s", f->cgroups);
	return 0;
}

static struct announce *a;
static uint64_t now;

static int set_up(void **state UNUSED)
{
	nasks = nanswered = 0;
	ask_error = tell_error = 0;
	ntold = id_sum = 0;
	now = clock_mono_ns();
	return announce_new(&a, ask, NULL, take, NULL);
}

static int tear_down(void **state UNUSED)
{
	a = announce_free(a);
	return 0;
}

static int announce(uint64_t id, uint64_t cgroup_id)
{
	struct pipeline_subject s = { .id = id, .cgroup_id = cgroup_id, .pid = (uint32_t)id + 100,
				      .executable = "/usr/bin/x", .comm = "x y" };

	return announce_subject(a, &s, now);
}

static void what_is_known_of_a_subject_is_told_with_its_groups(void **state UNUSED)
{
	assert_int_equal(announce(7, 0), 0);
	assert_int_equal(ntold, 0);
	assert_int_equal(announce_pending(a), 1);
	assert_int_equal(asks[0].asked.pid, 107);
	assert_int_equal(asks[0].asked.cgroup_id, 0);
	assert_int_equal(answer("3:cpu:/a\n0::/b\n", false), 0);
	assert_int_equal(ntold, 1);
	assert_true(last.id == 7 && last.pid == 107 && last.flags == 0 && last.cgroup_id == 0);
	assert_string_equal(last.executable, "/usr/bin/x");
	assert_string_equal(last.comm, "x y");
	assert_string_equal(last.cgroups, "3:cpu:/a\n0::/b\n");
	assert_int_equal(announce_pending(a), 0);
	/* Nothing could be read: what is known is told all the same. */
	assert_int_equal(announce(8, 5), 0);
	assert_int_equal(answer("", false), 0);
	assert_true(last.id == 8 && last.cgroup_id == 5);
	assert_string_equal(last.cgroups, "");
}

static void of_a_kernel_thread_nobody_is_asked(void **state UNUSED)
{
	struct pipeline_subject s = { .id = 3, .pid = 2, .kernel_thread = true, .executable = "", .comm = "kthreadd" };

	assert_int_equal(announce_subject(a, &s, now), 0);
	assert_int_equal(nasks, 0);
	assert_int_equal(ntold, 1);
	assert_int_equal(last.flags, EXPORT_SUBJECT_KERNEL);
	assert_string_equal(last.cgroups, "");
}

static void a_group_whose_processes_have_one_text_is_asked_for_once_a_minute(void **state UNUSED)
{
	assert_int_equal(announce(1, 50), 0);
	assert_int_equal(answer("0::/fifty\n", true), 0);
	assert_int_equal(announce(2, 50), 0);
	assert_true(nasks == 1 && ntold == 2 && last.id == 2 && last.pid == 102);
	assert_string_equal(last.cgroups, "0::/fifty\n");
	assert_int_equal(announce(3, 51), 0); /* another group */
	assert_int_equal(nasks, 2);
	now = clock_mono_ns() + 59 * NSEC_PER_SEC;
	assert_int_equal(announce(4, 50), 0);
	assert_int_equal(nasks, 2);
	now = clock_mono_ns() + 61 * NSEC_PER_SEC;
	assert_int_equal(announce(5, 50), 0);
	assert_int_equal(nasks, 3);
}

static void a_text_of_one_process_alone_is_not_kept(void **state UNUSED)
{
	assert_int_equal(announce(1, 50), 0);
	assert_int_equal(answer("1:cpu:/x\n0::/y\n", false), 0);
	assert_int_equal(announce(2, 50), 0);
	assert_int_equal(answer("", true), 0);
	assert_int_equal(announce(3, 50), 0);
	assert_int_equal(nasks, 3);
}

static void the_cache_is_bounded_and_the_oldest_goes(void **state UNUSED)
{
	static char text[4097];
	size_t empty = announce_bytes(a);

	for (uint64_t id = 1; id <= ANNOUNCE_CACHE_MAX + 10; id++) {
		assert_int_equal(announce(id, 1000 + id), 0);
		assert_int_equal(answer("0::/a\n", true), 0);
	}
	nasks = nanswered = 0;
	assert_int_equal(announce(1, 1000 + 11), 0);
	assert_int_equal(announce(1, 1000 + ANNOUNCE_CACHE_MAX + 10), 0);
	assert_int_equal(nasks, 0);
	assert_int_equal(announce(1, 1000 + 10), 0);
	assert_int_equal(nasks, 1);
	assert_int_equal(answer("", false), 0);
	memset(text, 'x', sizeof(text) - 1);
	for (uint64_t id = 1; id <= 600; id++) {
		assert_int_equal(announce(id, 5000 + id), 0);
		assert_int_equal(answer(text, true), 0);
		assert_true(announce_bytes(a) <= empty + ANNOUNCE_CACHE_BYTES);
	}
	assert_true(announce_bytes(a) > empty + ANNOUNCE_CACHE_BYTES / 2);
}

static void what_the_receiver_has_no_room_for_is_told_later(void **state UNUSED)
{
	for (uint64_t id = 1; id <= 5; id++)
		assert_int_equal(announce(id, 0), 0);
	tell_error = -ENOBUFS;
	for (int i = 0; i < 4; i++)
		assert_int_equal(answer("0::/z\n", false), 0);
	assert_int_equal(announce_turn(a), 0);
	assert_int_equal(announce_pending(a), 5);
	assert_int_equal(ntold, 0);
	tell_error = 0;
	assert_int_equal(announce_turn(a), 0);
	assert_true(ntold == 4 && id_sum == 1 + 2 + 3 + 4 && last.id == 4);
	assert_string_equal(last.cgroups, "0::/z\n");
	assert_int_equal(announce_pending(a), 1);
	/* At once, it is the pipeline's to ask again. */
	assert_int_equal(answer("0::/z\n", true), 0);
	tell_error = -ENOBUFS;
	{
		struct pipeline_subject s = { .id = 9, .kernel_thread = true, .executable = "", .comm = "k" };

		assert_int_equal(announce_subject(a, &s, now), -ENOBUFS);
	}
	assert_int_equal(announce_pending(a), 0);
}

static void too_many_that_wait_are_refused(void **state UNUSED)
{
	static char path[4096];
	struct pipeline_subject s = { .id = 1, .pid = 1, .executable = path, .comm = "c" };
	uint64_t n = 0;

	ask_error = -ENOBUFS;
	assert_int_equal(announce(1, 0), -ENOBUFS);
	assert_int_equal(announce_pending(a), 0);
	ask_error = 0;
	while (n <= ANNOUNCE_PENDING_MAX && announce(n + 1, 0) == 0)
		n++;
	assert_int_equal(n, ANNOUNCE_PENDING_MAX);
	while (announce_pending(a))
		assert_int_equal(answer("", false), 0);
	assert_int_equal(ntold, n);
	/* And too many bytes. */
	nasks = nanswered = 0;
	memset(path, 'p', sizeof(path) - 1);
	while (announce_subject(a, &s, now) == 0)
		assert_true(nasks < 2000);
	assert_true(nasks > 500);
}

static void what_cannot_be_told_is_bounded_in_bytes(void **state UNUSED)
{
	size_t empty = announce_bytes(a), kept;
	static char text[4097];

	memset(text, 'x', sizeof(text) - 1);
	for (uint64_t id = 1; id <= ANNOUNCE_PENDING_MAX; id++)
		assert_int_equal(announce(id, 0), 0);
	tell_error = -ENOBUFS;
	for (uint64_t id = 1; id <= ANNOUNCE_PENDING_MAX; id++) {
		assert_int_equal(answer(text, false), 0);
		assert_true(announce_bytes(a) <= empty + ANNOUNCE_BYTES_MAX);
	}
	kept = announce_pending(a);
	assert_in_range(kept, 1000, ANNOUNCE_BYTES_MAX / 4096);
	tell_error = 0;
	assert_int_equal(announce_turn(a), 0);
	assert_int_equal(ntold, kept);
	assert_int_equal(announce_bytes(a), empty);
}

static void errors_of_others_are_passed_on(void **state UNUSED)
{
	ask_error = -ENOMEM;
	assert_int_equal(announce(1, 0), -ENOMEM);
	ask_error = 0;
	assert_int_equal(announce(1, 0), 0);
	tell_error = -EIO;
	assert_int_equal(answer("", false), -EIO);
	assert_int_equal(announce_pending(a), 0);
	tell_error = 0;
	assert_int_equal(announce(2, 0), 0);
	tell_error = -ENOBUFS;
	assert_int_equal(answer("", false), 0);
	tell_error = -EIO;
	assert_int_equal(announce_turn(a), -EIO);
}

static void it_survives_any_failed_allocation(void **state UNUSED)
{
	int err = -1;

	/* What was forgotten for want of memory is no error. */
	for (long nth = 1; err || !announce_pending(a); nth++) {
		alloc_fail_nth(nth);
		err = announce(1, 60);
		if (!err) {
			tell_error = -ENOBUFS;
			err = answer("0::/q\n", true);
			tell_error = 0;
		}
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(nth < 50);
	}
	assert_int_equal(announce_turn(a), 0);
	assert_string_equal(last.cgroups, "0::/q\n");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_known_of_a_subject_is_told_with_its_groups),
		TEST(of_a_kernel_thread_nobody_is_asked),
		TEST(a_group_whose_processes_have_one_text_is_asked_for_once_a_minute),
		TEST(a_text_of_one_process_alone_is_not_kept),
		TEST(the_cache_is_bounded_and_the_oldest_goes),
		TEST(what_the_receiver_has_no_room_for_is_told_later),
		TEST(too_many_that_wait_are_refused),
		TEST(what_cannot_be_told_is_bounded_in_bytes),
		TEST(errors_of_others_are_passed_on),
		TEST(it_survives_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
