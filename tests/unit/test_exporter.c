/* The exporter as a program: spawned as the agent does it, spoken to over its channel. */
#include "exporter/msg.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "tests/unit/export_fixture.h"

enum { DEADLINE_MS = 10000 };

static struct ipc_child child;
static struct ipc_in in;

static int next(struct ipc_msg *ret)
{
	struct pollfd p = { .fd = child.sock, .events = POLLIN };

	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	return ipc_recv(child.sock, &in, ret);
}

static int start(void **state)
{
	struct ipc_program program = { .name = "flamed-exporter" };
	struct ipc_msg m;

	(void)state;
	program.exe_fd = open(EXPORTER_PATH, O_RDONLY | O_CLOEXEC);
	assert_true(program.exe_fd >= 0);
	assert_int_equal(ipc_spawn(&child, &program), 0);
	close(program.exe_fd);
	assert_int_equal(next(&m), 1);
	assert_int_equal(m.type, IPC_HELLO);
	assert_int_equal(m.len, strlen(ipc_build_id));
	assert_memory_equal(m.data, ipc_build_id, m.len);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	(void)ipc_child_kill(&child, NSEC_PER_SEC);
	ipc_in_fini(&in);
	return 0;
}

static void send_batch(const struct export_batch *b)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	export_batch_encode(&w, b);
	export_settled_encode(&w, &(struct export_settled){});
	assert_int_equal(bufw_end(&w), 0);
	assert_int_equal(ipc_send(child.sock, EXPORT_BATCH, w.data, w.len, -1), 0);
}

static struct export_taken receive_taken(void)
{
	struct export_taken t;
	struct ipc_msg m;
	struct bufr r;

	assert_int_equal(next(&m), 1);
	assert_int_equal(m.type, EXPORT_TAKEN);
	bufr_init(&r, m.data, m.len);
	assert_int_equal(export_taken_decode(&r, &t), 0);
	return t;
}

static struct export_done receive_done(void)
{
	struct export_taken t = receive_taken();
	struct export_done d;
	struct ipc_msg m;
	struct bufr r;

	assert_int_equal(next(&m), 1);
	assert_int_equal(m.type, EXPORT_DONE);
	bufr_init(&r, m.data, m.len);
	assert_int_equal(export_done_decode(&r, &d), 0);
	assert_int_equal(d.id, t.id);
	return d;
}

static struct export_done export(const struct export_batch *b)
{
	send_batch(b);
	return receive_done();
}

static void begin(void)
{
	assert_int_equal(ipc_send(child.sock, EXPORT_START, NULL, 0, -1), 0);
}

static void set_output(int fd)
{
	assert_int_equal(ipc_send(child.sock, EXPORT_OUTPUT, NULL, 0, fd), 0);
	begin();
}

static int temporary_file(void)
{
	char path[] = "/tmp/flamed-test-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

static void a_batch_is_written_to_the_output(void **state)
{
	CLEANUP_FD int fd = temporary_file();
	struct export_fixture f;
	struct export_done d;
	struct stat st;
	char magic[2];

	(void)state;
	export_fixture_init(&f);
	set_output(fd);
	d = export(&f.batch);
	assert_int_equal(d.id, 77);
	assert_int_equal(d.result, EXPORT_WRITTEN);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.nsamples, 8);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, d.bytes);
	assert_int_equal(pread(fd, magic, 2, 0), 2);
	assert_memory_equal(magic, "\x1f\x8b", 2);
}

static void a_batch_that_is_sent_again_is_written_once(void **state)
{
	CLEANUP_FD int fd = temporary_file();
	uint8_t first[4096], second[4096];
	struct export_fixture f;
	ssize_t n;

	(void)state;
	export_fixture_init(&f);
	/* What was there before, longer than a profile. */
	assert_int_equal(ftruncate(fd, 100000), 0);
	set_output(fd);
	assert_int_equal(export(&f.batch).result, EXPORT_WRITTEN);
	n = pread(fd, first, sizeof(first), 0);
	assert_true(n > 0 && n < (ssize_t)sizeof(first));
	assert_int_equal(export(&f.batch).result, EXPORT_WRITTEN);
	assert_int_equal(pread(fd, second, sizeof(second), 0), n);
	assert_memory_equal(first, second, (size_t)n);
	/* Also by another exporter, after a crash. */
	stop(NULL);
	start(NULL);
	set_output(fd);
	assert_int_equal(export(&f.batch).result, EXPORT_WRITTEN);
	assert_int_equal(pread(fd, second, sizeof(second), 0), n);
	assert_memory_equal(first, second, (size_t)n);
}

/* More often than it may have descriptors. */
static void a_new_output_replaces_the_old_one(void **state)
{
	CLEANUP_FD int fd = temporary_file();
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	for (int i = 0; i < 40; i++)
		assert_int_equal(ipc_send(child.sock, EXPORT_OUTPUT, NULL, 0, fd), 0);
	begin();
	assert_int_equal(export(&f.batch).result, EXPORT_WRITTEN);
}

/* The profile is larger than the pipe, which does not block: writes are short, and wait. */
static void a_slow_pipe_gets_all_of_it(void **state)
{
	enum { BIG = 1 << 20 };
	CLEANUP_FREE char *text = malloc(BIG);
	struct export_fixture f;
	struct export_done d;
	uint32_t x = 1;
	uint64_t got = 0;
	int fds[2];

	(void)state;
	for (size_t i = 0; i < BIG; i++) {
		x = x * 1664525 + 1013904223;
		text[i] = (char)('!' + (x >> 24) % 90);
	}
	export_fixture_init(&f);
	f.strings[f.functions[0].name] = (struct export_string){ text, BIG };
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0); /* the exporter's end, too */
	set_output(fds[1]);
	send_batch(&f.batch);
	while (poll(&(struct pollfd){ .fd = fds[1], .events = POLLOUT }, 1, 0) != 0)
		usleep(1000); /* until the pipe is full, */
	usleep(50000);	      /* and the exporter met that */
	close(fds[1]);
	for (;;) {
		struct pollfd p[] = { { .fd = fds[0], .events = POLLIN },
				      { .fd = child.sock, .events = POLLIN } };
		char buf[5000];

		assert_true(poll(p, 2, DEADLINE_MS) > 0);
		if (p[0].revents & POLLIN) {
			ssize_t n = read(fds[0], buf, sizeof(buf));

			assert_true(n > 0);
			got += (uint64_t)n;
		} else if (p[1].revents & POLLIN) {
			break;
		}
	}
	d = receive_done();
	assert_int_equal(d.result, EXPORT_WRITTEN);
	assert_true(d.bytes > 500000);
	assert_int_equal(got, d.bytes);
	close(fds[0]);
}

static void a_closed_pipe_is_reported(void **state)
{
	struct export_fixture f;
	struct export_done d;
	int fds[2];

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[0]);
	set_output(fds[1]);
	close(fds[1]);
	d = export(&f.batch);
	assert_int_equal(d.result, EXPORT_WRITE_FAILED);
	assert_int_equal(d.error, EPIPE);
	assert_int_equal(d.nsamples, 0);
}

static void a_full_disk_is_reported(void **state)
{
	CLEANUP_FD int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct export_fixture f;
	struct export_done d;

	(void)state;
	export_fixture_init(&f);
	set_output(full);
	d = export(&f.batch);
	assert_int_equal(d.id, 77);
	assert_int_equal(d.result, EXPORT_WRITE_FAILED);
	assert_int_equal(d.error, ENOSPC);
}

static void what_does_not_fit_leaves_an_empty_file(void **state)
{
	CLEANUP_FD int fd = temporary_file();
	struct rlimit limit = { 100, 100 };
	struct export_fixture f;
	struct export_done d;
	struct stat st;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(prlimit(child.pid, RLIMIT_FSIZE, &limit, NULL), 0);
	set_output(fd);
	d = export(&f.batch);
	assert_int_equal(d.result, EXPORT_WRITE_FAILED);
	assert_int_equal(d.error, EFBIG);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void an_output_that_cannot_be_written_is_reported(void **state)
{
	CLEANUP_FD int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct export_fixture f;
	struct export_done d;

	(void)state;
	export_fixture_init(&f);
	begin();
	d = export(&f.batch); /* none at all */
	assert_int_equal(d.result, EXPORT_WRITE_FAILED);
	assert_int_equal(d.error, EBADF);
	stop(NULL);
	start(NULL);
	set_output(fd);
	d = export(&f.batch);
	assert_int_equal(d.result, EXPORT_WRITE_FAILED);
	assert_int_equal(d.error, EBADF);
}

static void a_bad_batch_is_refused_and_the_next_one_written(void **state)
{
	CLEANUP_FD int fd = temporary_file();
	struct export_fixture f;
	struct export_done d;

	(void)state;
	set_output(fd);
	export_fixture_init(&f);
	f.batch.id = 5;
	f.samples[0].subject = 9;
	d = export(&f.batch);
	assert_int_equal(d.id, 5);
	assert_int_equal(d.result, EXPORT_REFUSED);
	export_fixture_init(&f);
	f.batch.id = 6;
	d = export(&f.batch);
	assert_int_equal(d.id, 6);
	assert_int_equal(d.result, EXPORT_WRITTEN);
}

static void a_big_batch_arrives(void **state)
{
	enum { N = 100000 };
	CLEANUP_FREE struct export_sample *samples = calloc(N, sizeof(*samples));
	CLEANUP_FD int fd = temporary_file();
	struct export_fixture f;
	struct export_done d;

	(void)state;
	export_fixture_init(&f);
	for (uint32_t i = 0; i < N; i++)
		samples[i] = (struct export_sample){ 0, i + 1, 1, 0, 3, 1, 10000000 };
	f.batch.samples = samples;
	f.batch.nsamples = N;
	set_output(fd);
	d = export(&f.batch);
	assert_int_equal(d.result, EXPORT_WRITTEN);
	assert_int_equal(d.nsamples, N);
}

static void signals_to_the_whole_group_do_not_end_it(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	CLEANUP_FD int fd = temporary_file();
	struct export_fixture f;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		assert_int_equal(kill(child.pid, signals[i]), 0);
	export_fixture_init(&f);
	set_output(fd);
	assert_int_equal(export(&f.batch).result, EXPORT_WRITTEN);
}

static void it_ends_when_the_channel_does(void **state)
{
	struct pollfd p;
	int status;

	(void)state;
	close(TAKE_FD(child.sock));
	p = (struct pollfd){ .fd = child.pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_int_equal(status, 0);
	close(child.pidfd);
	child = (struct ipc_child)IPC_CHILD_INIT;
}

static void nonsense_from_the_agent_ends_it(void **state)
{
	struct pollfd p = { .fd = child.pidfd, .events = POLLIN };

	(void)state;
	assert_int_equal(ipc_send(child.sock, 12345, "x", 1, -1), 0);
	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
}

static void what_comes_before_its_time_ends_it(void **state)
{
	struct pollfd p = { .fd = child.pidfd, .events = POLLIN };
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	send_batch(&f.batch); /* before START */
	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
}

static void by_hand_it_says_what_it_is(void **state)
{
	char line[256] = "";
	FILE *f;

	(void)state;
	f = popen(EXPORTER_PATH " --version", "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_int_equal(pclose(f), 0);
	assert_non_null(strstr(line, ipc_build_id));
	f = popen(EXPORTER_PATH " --help", "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_int_equal(pclose(f), 0);
	assert_memory_equal(line, "Usage:", 6);
	f = popen(EXPORTER_PATH " --nonsense 2>&1", "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_int_equal(WEXITSTATUS(pclose(f)), 2);
	f = popen(EXPORTER_PATH " 2>&1 3<&-", "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_int_equal(WEXITSTATUS(pclose(f)), 1);
}

#define WITH_CHILD(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_CHILD(a_batch_is_written_to_the_output),
		WITH_CHILD(a_batch_that_is_sent_again_is_written_once),
		WITH_CHILD(a_new_output_replaces_the_old_one),
		WITH_CHILD(a_slow_pipe_gets_all_of_it),
		WITH_CHILD(a_closed_pipe_is_reported),
		WITH_CHILD(a_full_disk_is_reported),
		WITH_CHILD(what_does_not_fit_leaves_an_empty_file),
		WITH_CHILD(an_output_that_cannot_be_written_is_reported),
		WITH_CHILD(a_bad_batch_is_refused_and_the_next_one_written),
		WITH_CHILD(a_big_batch_arrives),
		WITH_CHILD(signals_to_the_whole_group_do_not_end_it),
		WITH_CHILD(it_ends_when_the_channel_does),
		WITH_CHILD(nonsense_from_the_agent_ends_it),
		WITH_CHILD(what_comes_before_its_time_ends_it),
		cmocka_unit_test(by_hand_it_says_what_it_is),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
