#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/command.h"
#include "base/clock.h"

static struct command command;

static int set_up(void **state UNUSED)
{
	command = (struct command)COMMAND_INIT;
	return 0;
}

static int tear_down(void **state UNUSED)
{
	pid_t supervisor = command.supervisor;

	command_fini(&command);
	if (supervisor > 0)
		(void)waitpid(supervisor, NULL, 0);
	return 0;
}

static void prepare(char *const argv[])
{
	assert_int_equal(command_prepare(&command, argv), 0);
	assert_true(command.pid > 0);
	assert_true(command.supervisor > 0);
}

static void prepare_shell(const char *script)
{
	char sh[] = "sh", c[] = "-c", text[512];
	char *argv[] = { sh, c, text, NULL };

	snprintf(text, sizeof(text), "%s", script);
	prepare(argv);
}

static int wait_status(void)
{
	struct pollfd p = { .fd = command.report, .events = POLLIN };
	int status = -1;

	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(command_ended(&command, &status), 1);
	return status;
}

static int run_shell(const char *script)
{
	prepare_shell(script);
	assert_int_equal(command_go(&command), 0);
	return wait_status();
}

static void its_exit_status_is_told(void **state UNUSED)
{
	assert_int_equal(run_shell("exit 0"), 0);
	tear_down(NULL);
	assert_int_equal(run_shell("exit 37"), 37);
}

static void a_signal_is_told_as_a_shell_would(void **state UNUSED)
{
	assert_int_equal(run_shell("kill -SEGV $$"), 128 + SIGSEGV);
	tear_down(NULL);
	assert_int_equal(run_shell("kill -KILL $$"), 128 + SIGKILL);
}

static void a_program_that_is_not_there_fails_with_its_errno(void **state UNUSED)
{
	char name[] = "/nowhere/no-such-program";
	char *argv[] = { name, NULL };

	prepare(argv);
	assert_int_equal(command_go(&command), -ENOENT);
	assert_int_equal(wait_status(), 127);
}

static void a_program_that_cannot_be_run_fails_with_its_errno(void **state UNUSED)
{
	char name[] = "/proc/version";
	char *argv[] = { name, NULL };

	prepare(argv);
	assert_int_equal(command_go(&command), -EACCES);
	assert_int_equal(wait_status(), 126);
}

static void it_does_not_run_before_it_is_told_to(void **state UNUSED)
{
	char path[] = "/tmp/test_command.XXXXXX";
	char script[128];
	int fd = mkstemp(path), status;

	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	snprintf(script, sizeof(script), "touch %s", path);
	prepare_shell(script);
	usleep(50000);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(command_ended(&command, &status), 0);
	assert_int_equal(command_go(&command), 0);
	assert_int_equal(wait_status(), 0);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
}

static void it_can_be_terminated(void **state UNUSED)
{
	prepare_shell("exec sleep 60");
	assert_int_equal(command_go(&command), 0);
	command_terminate(&command, false);
	assert_int_equal(wait_status(), 128 + SIGTERM);
}

static void it_can_be_terminated_before_it_has_begun(void **state UNUSED)
{
	prepare_shell("exit 0");
	command_terminate(&command, false);
	/* Whatever comes first: it ends, and going on is an error, not a wait for ever. */
	(void)!command_go(&command);
	tear_down(NULL);
}

static void closing_before_the_start_calls_it_off(void **state UNUSED)
{
	pid_t pid;

	prepare_shell("sleep 60");
	pid = command.pid;
	tear_down(NULL);
	for (int i = 0; i < 500 && kill(pid, 0) == 0; i++)
		usleep(10000);
	assert_int_equal(kill(pid, 0), -1);
}

static void a_running_command_outlives_us(void **state UNUSED)
{
	pid_t pid;

	prepare_shell("exec sleep 60");
	assert_int_equal(command_go(&command), 0);
	pid = command.pid;
	tear_down(NULL);
	assert_int_equal(kill(pid, 0), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

/* The supervisor's own death must not take us along (SIGPIPE), and is told. */
static void a_killed_supervisor_is_noticed(void **state UNUSED)
{
	int control;

	prepare_shell("exec sleep 60");
	assert_int_equal(command_go(&command), 0);
	assert_int_equal(kill(command.supervisor, SIGKILL), 0);
	assert_int_equal(wait_status(), 1);
	control = command.control;
	for (int i = 0; i < 500 && command.control >= 0; i++) {
		command_terminate(&command, false);
		usleep(10000); /* its descriptors close one after the other */
	}
	assert_int_equal(command.control, -1);
	assert_int_equal(fcntl(control, F_GETFD), -1);
	/* The descriptor's number may be somebody else's by now. */
	assert_int_equal(dup2(STDERR_FILENO, control), control);
	assert_int_equal(kill(command.pid, SIGKILL), 0);
	tear_down(NULL);
	assert_true(fcntl(control, F_GETFD) >= 0);
	close(control);
}

static void signals_are_as_they_were_for_whoever_called_us(void **state UNUSED)
{
	/* Bits of SigIgn: PIPE is 13, INT is 2, so that the mask's last four hex digits tell. */
	const char script[] = "set -- $(grep SigIgn /proc/$$/status); case $2 in *1000) exit 5;; "
			      "*1002) exit 6;; *0002) exit 7;; *0000) exit 8;; esac; exit 9";

	/* Ours may ignore some: nohup(1), a job in the background of a script. */
	for (int signo = 1; signo <= 16; signo++)
		(void)signal(signo, SIG_DFL);
	assert_int_equal(run_shell(script), 8);
	tear_down(NULL);
	signal(SIGINT, SIG_IGN);
	prepare_shell(script);
	signal(SIGINT, SIG_DFL);
	assert_int_equal(command_go(&command), 0);
	assert_int_equal(wait_status(), 7);
}

static void an_ignored_sigchld_of_our_caller_does_no_harm(void **state UNUSED)
{
	signal(SIGCHLD, SIG_IGN);
	prepare_shell("exit 3");
	signal(SIGCHLD, SIG_DFL);
	assert_int_equal(command_go(&command), 0);
	assert_int_equal(wait_status(), 3);
}

static void the_terminals_signals_end_the_command_not_the_supervisor(void **state UNUSED)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };

	prepare_shell("exit 4");
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		assert_int_equal(kill(command.supervisor, signals[i]), 0);
	usleep(20000);
	assert_int_equal(command_go(&command), 0);
	assert_int_equal(wait_status(), 4);
}

static void no_descriptor_of_ours_reaches_the_command(void **state UNUSED)
{
	char self[] = "/proc/self/exe", arg[] = "count-descriptors";
	char *argv[] = { self, arg, NULL };

	/* Those that our own caller left open are not the command's business here. */
	assert_int_equal(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC), 0);
	prepare(argv);
	assert_int_equal(command_go(&command), 0);
	assert_int_equal(wait_status(), 0);
}

static int count_descriptors(void)
{
	int n = 0;

	for (int fd = 3; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(its_exit_status_is_told),
		TEST(a_signal_is_told_as_a_shell_would),
		TEST(a_program_that_is_not_there_fails_with_its_errno),
		TEST(a_program_that_cannot_be_run_fails_with_its_errno),
		TEST(it_does_not_run_before_it_is_told_to),
		TEST(it_can_be_terminated),
		TEST(it_can_be_terminated_before_it_has_begun),
		TEST(closing_before_the_start_calls_it_off),
		TEST(a_running_command_outlives_us),
		TEST(a_killed_supervisor_is_noticed),
		TEST(signals_are_as_they_were_for_whoever_called_us),
		TEST(an_ignored_sigchld_of_our_caller_does_no_harm),
		TEST(the_terminals_signals_end_the_command_not_the_supervisor),
		TEST(no_descriptor_of_ours_reaches_the_command),
	};

	if (argc > 1 && strcmp(argv[1], "count-descriptors") == 0)
		return count_descriptors();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
