#include "base/loop.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { NPIPES = 4 };

struct fixture {
	struct loop *loop;
	int in[NPIPES], out[NPIPES];
	struct loop_source *sources[NPIPES];
	char trace[64]; /* one letter per call */
};

static void note(struct fixture *f, char c)
{
	size_t n = strlen(f->trace);

	assert_true(n + 1 < sizeof(f->trace));
	f->trace[n] = c;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(loop_new(&f->loop), 0);
	for (size_t i = 0; i < NPIPES; i++) {
		int fds[2];

		assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
		f->out[i] = fds[0];
		f->in[i] = fds[1];
	}
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	loop_free(f->loop);
	for (size_t i = 0; i < NPIPES; i++) {
		close(f->out[i]);
		if (f->in[i] >= 0)
			close(f->in[i]);
	}
	free(f);
	return 0;
}

static int drain(struct fixture *f, size_t i)
{
	char c;

	note(f, (char)('a' + i));
	(void)!read(f->out[i], &c, 1);
	return 0;
}

static int on_0(void *arg, unsigned int events)
{
	assert_int_equal(events, LOOP_IN);
	return drain(arg, 0);
}

static int on_1(void *arg, unsigned int events)
{
	(void)events;
	return drain(arg, 1);
}

static int on_2(void *arg, unsigned int events)
{
	(void)events;
	return drain(arg, 2);
}

static int on_3(void *arg, unsigned int events)
{
	(void)events;
	return drain(arg, 3);
}

static loop_fd_fn *const on[NPIPES] = { on_0, on_1, on_2, on_3 };

static void add(struct fixture *f, size_t i)
{
	assert_int_equal(loop_add(f->loop, &f->sources[i], f->out[i], LOOP_IN, on[i], f), 0);
}

static void poke(struct fixture *f, size_t i)
{
	assert_int_equal(write(f->in[i], "x", 1), 1);
}

static void callbacks_run_in_the_order_of_adding(void **state)
{
	struct fixture *f = *state;

	add(f, 2);
	add(f, 0);
	add(f, 3);
	add(f, 1);
	for (size_t i = 0; i < NPIPES; i++)
		poke(f, i);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_string_equal(f->trace, "cadb");
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "cadb");
}

static int delete_1_and_self(void *arg, unsigned int events)
{
	struct fixture *f = arg;

	(void)events;
	note(f, 'D');
	loop_del(TAKE(f->sources[1]));
	loop_del(TAKE(f->sources[0]));
	return 0;
}

static void a_deleted_source_is_not_called_any_more(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(loop_add(f->loop, &f->sources[0], f->out[0], LOOP_IN, delete_1_and_self, f),
			 0);
	add(f, 1);
	add(f, 2);
	for (size_t i = 0; i < 3; i++)
		poke(f, i);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_string_equal(f->trace, "Dc");
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "Dc");
	add(f, 3); /* the list is whole after deleting at both ends */
	poke(f, 3);
	poke(f, 2);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "Dccd");
	loop_del(NULL);
}

static int add_others(void *arg, unsigned int events)
{
	struct fixture *f = arg;

	(void)events;
	drain(f, 0);
	for (size_t i = 1; i < NPIPES; i++)
		add(f, i);
	return 0;
}

static void a_source_added_in_a_turn_is_called_in_the_next(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(loop_add(f->loop, NULL, f->out[0], LOOP_IN, add_others, f), 0);
	for (size_t i = 0; i < NPIPES; i++)
		poke(f, i);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_string_equal(f->trace, "a");
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_string_equal(f->trace, "abcd");
}

static void an_unwatched_source_is_silent_even_when_hung_up(void **state)
{
	struct fixture *f = *state;

	add(f, 0);
	poke(f, 0);
	assert_int_equal(loop_modify(f->sources[0], 0), 0);
	assert_int_equal(loop_modify(f->sources[0], 0), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	close(f->in[0]);
	f->in[0] = -1;
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "");
	assert_int_equal(loop_modify(f->sources[0], LOOP_IN), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "a");
}

static void a_hang_up_is_told_to_who_reads(void **state)
{
	struct fixture *f = *state;

	add(f, 0);
	close(f->in[0]);
	f->in[0] = -1;
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_string_equal(f->trace, "a");
}

static int on_writable(void *arg, unsigned int events)
{
	assert_int_equal(events, LOOP_OUT);
	note(arg, 'W');
	return 0;
}

static void a_writable_descriptor_is_told(void **state)
{
	struct fixture *f = *state;
	struct loop_source *s;

	assert_int_equal(loop_add(f->loop, &s, f->in[0], 0, on_writable, f), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_int_equal(loop_modify(s, LOOP_OUT), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "W");
}

static int stop(void *arg, unsigned int events)
{
	(void)events;
	note(arg, 'S');
	return LOOP_STOP;
}

static int give_error(void *arg, unsigned int events)
{
	(void)events;
	note(arg, 'F');
	return -EXDEV;
}

static void a_callback_ends_the_loop(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(loop_add(f->loop, NULL, f->out[0], LOOP_IN, stop, f), 0);
	add(f, 1);
	poke(f, 0);
	poke(f, 1);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), LOOP_STOP);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->trace, "SS"); /* what comes after it in the turn is left */
}

static void an_error_of_a_callback_is_the_loops(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(loop_add(f->loop, NULL, f->out[0], LOOP_IN, give_error, f), 0);
	poke(f, 0);
	assert_int_equal(loop_run(f->loop), -EXDEV);
}

static int on_timer(void *arg)
{
	note(arg, 't');
	return 0;
}

static int stop_timer(void *arg)
{
	note(arg, 'T');
	return LOOP_STOP;
}

static void a_timer_is_never_early_and_repeats(void **state)
{
	struct fixture *f = *state;
	struct loop_source *s;
	uint64_t start = clock_mono_ns();

	assert_int_equal(loop_add_timer(f->loop, NULL, 10 * NSEC_PER_MSEC, on_timer, f), 0);
	assert_int_equal(loop_add_timer(f->loop, &s, 0, stop_timer, f), 0);
	assert_int_equal(loop_timer_at(s, start + 35 * NSEC_PER_MSEC), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_true(clock_mono_ns() - start >= 35 * NSEC_PER_MSEC);
	assert_true(strlen(f->trace) >= 2 && strlen(f->trace) <= 4);
	assert_int_equal(f->trace[strlen(f->trace) - 1], 'T');
}

static void a_late_timer_does_not_catch_up(void **state)
{
	struct fixture *f = *state;
	uint64_t until;

	assert_int_equal(loop_add_timer(f->loop, NULL, 200 * NSEC_PER_MSEC, on_timer, f), 0);
	for (until = clock_mono_ns() + 650 * NSEC_PER_MSEC; clock_mono_ns() < until;)
		;
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "t");
}

static void a_timer_set_once_fires_once(void **state)
{
	struct fixture *f = *state;
	struct loop_source *s;

	assert_int_equal(loop_add_timer(f->loop, &s, 0, on_timer, f), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_int_equal(loop_timer_at(s, 1), 0);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "t");
	assert_int_equal(loop_timer_at(s, 1), 0);
	assert_int_equal(loop_timer_at(s, 0), 0);
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_string_equal(f->trace, "t");
	loop_del(s);
}

static void timers_run_after_descriptors(void **state)
{
	struct fixture *f = *state;
	struct loop_source *s;

	assert_int_equal(loop_add_timer(f->loop, &s, 0, on_timer, f), 0);
	assert_int_equal(loop_timer_at(s, 1), 0);
	add(f, 0);
	poke(f, 0);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	assert_string_equal(f->trace, "at");
}

static int on_signal(void *arg, int signo)
{
	assert_int_equal(signo, SIGUSR1);
	note(arg, 'U');
	return LOOP_STOP;
}

static void a_signal_comes_through_the_loop(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(loop_add_signal(f->loop, SIGUSR1, on_signal, f), 0);
	assert_int_equal(raise(SIGUSR1), 0);
	assert_string_equal(f->trace, "");
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->trace, "U");
}

static void an_empty_loop_only_waits(void **state)
{
	struct fixture *f = *state;
	uint64_t start = clock_mono_ns();

	assert_int_equal(loop_once(f->loop, 2 * NSEC_PER_MSEC), 0);
	assert_true(clock_mono_ns() - start >= 2 * NSEC_PER_MSEC);
}

static void a_descriptor_that_cannot_be_watched_is_refused(void **state)
{
	struct fixture *f = *state;
	CLEANUP_FD int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct loop_source *s = NULL;

	assert_int_equal(loop_add(f->loop, &s, fd, LOOP_IN, on_0, f), -EPERM);
	assert_int_equal(loop_add(f->loop, &s, -1, LOOP_IN, on_0, f), -EBADF);
	assert_null(s);
}

static void more_sources_than_one_wait_expects_keep_their_order(void **state)
{
	struct fixture *f = *state;
	int dups[60];

	for (size_t i = 0; i < ARRAY_SIZE(dups); i++) {
		dups[i] = dup(f->out[i % 2]);
		assert_int_equal(loop_add(f->loop, NULL, dups[i], LOOP_IN, on[i % 2], f), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(dups); i++)
		poke(f, i % 2);
	assert_int_equal(loop_once(f->loop, UINT64_MAX), 0);
	for (size_t i = 0; i < ARRAY_SIZE(dups); i++) {
		assert_int_equal(f->trace[i], i % 2 ? 'b' : 'a');
		close(dups[i]);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(callbacks_run_in_the_order_of_adding),
		TEST(a_deleted_source_is_not_called_any_more),
		TEST(a_source_added_in_a_turn_is_called_in_the_next),
		TEST(an_unwatched_source_is_silent_even_when_hung_up),
		TEST(a_hang_up_is_told_to_who_reads),
		TEST(a_writable_descriptor_is_told),
		TEST(a_callback_ends_the_loop),
		TEST(an_error_of_a_callback_is_the_loops),
		TEST(a_timer_is_never_early_and_repeats),
		TEST(a_late_timer_does_not_catch_up),
		TEST(a_timer_set_once_fires_once),
		TEST(timers_run_after_descriptors),
		TEST(a_signal_comes_through_the_loop),
		TEST(an_empty_loop_only_waits),
		TEST(a_descriptor_that_cannot_be_watched_is_refused),
		TEST(more_sources_than_one_wait_expects_keep_their_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
