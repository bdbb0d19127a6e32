#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static int real_stderr = -1, pipe_out = -1;

/* stderr becomes a pipe, and captured() says what went into it. */
static int capture(void **state)
{
	int fds[2];

	(void)state;
	real_stderr = dup(STDERR_FILENO);
	if (real_stderr < 0 || pipe2(fds, O_CLOEXEC | O_NONBLOCK) || dup2(fds[1], STDERR_FILENO) < 0)
		return -1;
	close(fds[1]);
	pipe_out = fds[0];
	unsetenv("JOURNAL_STREAM");
	log_init("test", LOG_INFO);
	return 0;
}

static int release(void **state)
{
	(void)state;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(pipe_out);
	return 0;
}

static const char *captured(void)
{
	static char text[16384];
	ssize_t n = read(pipe_out, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	return text;
}

static void a_line_has_the_name_and_one_newline(void **state)
{
	(void)state;
	log_info("started pid=%d", 7);
	assert_string_equal(captured(), "test: started pid=7\n");
}

static void lines_over_the_level_are_not_written(void **state)
{
	enum log_level level = LOG_INFO;

	(void)state;
	log_debug("no");
	assert_string_equal(captured(), "");
	assert_int_equal(log_level_parse("debug", &level), 0);
	log_set_level(level);
	log_debug("yes");
	assert_string_equal(captured(), "test: yes\n");
	log_set_level(LOG_ERROR);
	log_warning("no");
	assert_string_equal(captured(), "");
}

static void an_unknown_level_is_refused(void **state)
{
	enum log_level level = LOG_DEBUG;

	(void)state;
	assert_int_equal(log_level_parse("loud", &level), -EINVAL);
	assert_int_equal(log_level_parse("", &level), -EINVAL);
	assert_int_equal(level, LOG_DEBUG);
}

static void the_journal_gets_a_priority(void **state)
{
	char stream[64];
	struct stat st;

	(void)state;
	assert_int_equal(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init("test", LOG_INFO);
	log_error("e");
	log_info("i");
	assert_string_equal(captured(), "<3>test: e\n<6>test: i\n");
	setenv("JOURNAL_STREAM", "1:1", 1); /* some other stream: stderr was redirected */
	log_init("test", LOG_INFO);
	log_error("e");
	assert_string_equal(captured(), "test: e\n");
}

static void a_workloads_string_is_quoted_and_escaped(void **state)
{
	(void)state;
	assert_string_equal(LOG_STR("plain"), "'plain'");
	assert_string_equal(LOG_STR("it's \\ \x1b[31m\n\x9b"), "'it\\'s \\\\ \\x1b[31m\\x0a\\x9b'");
	assert_string_equal(log_str("a\0b", 3).text, "'a\\x00b'");
	assert_string_equal(log_str("", 0).text, "''");
}

static void a_long_string_is_cut_between_escapes(void **state)
{
	char s[1000];

	(void)state;
	for (size_t shift = 0; shift < 5; shift++) {
		struct log_str r;

		memset(s, 'x', shift);
		memset(s + shift, '\n', sizeof(s) - shift);
		r = log_str(s, sizeof(s));
		assert_true(strlen(r.text) < sizeof(r.text));
		assert_true(strlen(r.text) > sizeof(r.text) - 8);
		assert_string_equal(r.text + strlen(r.text) - 8, "\\x0a'...");
	}
	memset(s, 'x', sizeof(s));
	assert_int_equal(strlen(log_str(s, 250).text), 252);
	assert_int_equal(log_str(s, 250).text[251], '\'');
	assert_string_equal(log_str(s, 1000).text + 250, "x'...");
}

static void a_forgotten_control_character_does_not_reach_the_terminal(void **state)
{
	(void)state;
	log_info("%s", "a\x1b]0;x\nb");
	assert_string_equal(captured(), "test: a?]0;x?b\n");
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
	char s[5000];
	const char *got;

	(void)state;
	memset(s, 'y', sizeof(s) - 1);
	s[sizeof(s) - 1] = 0;
	log_info("%s", s);
	got = captured();
	assert_int_equal(strlen(got), 2048);
	assert_int_equal(got[2047], '\n');
}

static void a_repeated_warning_is_limited_and_counted(void **state)
{
	struct log_limit limit = { .interval_ns = 300 * NSEC_PER_MSEC, .burst = 2 };
	uint64_t until;

	(void)state;
	for (int i = 0; i < 5; i++)
		log_limited(&limit, LOG_WARNING, "n=%d", i);
	assert_string_equal(captured(), "test: n=0\ntest: n=1\n");
	for (until = clock_mono_ns() + 310 * NSEC_PER_MSEC; clock_mono_ns() < until;)
		;
	log_limited(&limit, LOG_WARNING, "n=5");
	log_limited(&limit, LOG_WARNING, "n=6");
	assert_string_equal(captured(), "test: n=5 suppressed=3\ntest: n=6\n");
}

static void a_line_without_room_is_left_out_and_counted(void **state)
{
	static char text[1 << 20];
	int blocking = fcntl(STDERR_FILENO, F_GETFL) & ~O_NONBLOCK, n = 0;

	(void)state;
	log_never_wait();
	while (write(STDERR_FILENO, text, sizeof(text)) > 0)
		;
	assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, blocking), 0); /* it would hang */
	log_error("nobody reads this");
	log_error("nor this");
	while (n < (int)sizeof(text) && read(pipe_out, text, sizeof(text)) > 0)
		n++;
	log_error("again");
	assert_string_equal(captured(), "test: again unwritten=2\n");
	log_error("and again");
	assert_string_equal(captured(), "test: and again\n");
}

static void errno_is_kept(void **state)
{
	(void)state;
	close(STDERR_FILENO); /* so that the write fails */
	errno = ENOTTY;
	log_error("x");
	assert_int_equal(errno, ENOTTY);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, capture, release)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_line_has_the_name_and_one_newline),
		TEST(lines_over_the_level_are_not_written),
		TEST(an_unknown_level_is_refused),
		TEST(the_journal_gets_a_priority),
		TEST(a_workloads_string_is_quoted_and_escaped),
		TEST(a_long_string_is_cut_between_escapes),
		TEST(a_forgotten_control_character_does_not_reach_the_terminal),
		TEST(a_long_line_is_cut_and_still_ends),
		TEST(a_repeated_warning_is_limited_and_counted),
		TEST(a_line_without_room_is_left_out_and_counted),
		TEST(errno_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
