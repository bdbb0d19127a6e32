/* The program itself: started as the agent starts it, asked over its channel, inside its sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "symbolizer/msg.h"

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"

struct peer {
	struct ipc_child child;
	struct ipc_in in;
};

static struct msg_request req;

/* The next message; false when the peer has gone. */
static bool receive(struct peer *p, struct ipc_msg *msg)
{
	struct pollfd fd = { .fd = p->child.sock, .events = POLLIN };

	assert_int_equal(poll(&fd, 1, 20000), 1);
	return ipc_recv(p->child.sock, &p->in, msg) == 1;
}

static struct peer start(void)
{
	struct ipc_program program = { .name = "flamed-symbolizer", .exe_fd = open(SYMBOLIZER_PATH, O_RDONLY | O_CLOEXEC) };
	struct peer p = { .child = IPC_CHILD_INIT };
	struct ipc_msg msg;

	assert_true(program.exe_fd >= 0);
	assert_int_equal(ipc_spawn(&p.child, &program), 0);
	close(program.exe_fd);
	assert_true(receive(&p, &msg));
	assert_int_equal(msg.type, IPC_HELLO);
	return p;
}

static void stop(struct peer *p)
{
	ipc_in_fini(&p->in);
	assert_int_equal(ipc_child_kill(&p->child, NSEC_PER_SEC), 0);
}

static void ask(struct peer *p, uint32_t type, int fd, struct ipc_msg *ret)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };

	msg_request_encode(&w, &req);
	assert_int_equal(ipc_send(p->child.sock, type, w.data, w.len, fd), 0);
	assert_true(receive(p, ret));
	assert_int_equal(ret->type, type);
	assert_int_equal(ret->fd, -1);
}

/* 512 addresses all over libc's code: an answer that is larger than a packet. */
static void fill_request(void)
{
	req = (struct msg_request){ .id = 1, .file_id = 9, .naddrs = MSG_ADDRS_MAX };
	for (uint32_t i = 0; i < req.naddrs; i++)
		req.addrs[i] = (struct msg_addr){ 0x28000 + (uint64_t)i * 2600, i & 1 };
}

static void libc_is_answered_through_the_channel(void **state UNUSED)
{
	struct peer p = start();
	int fd = open(LIBC, O_RDONLY | O_CLOEXEC);
	uint64_t before, took[3];
	uint32_t with_row = 0, with_name = 0;
	struct msg_names names;
	struct msg_rows rows;
	struct ipc_msg msg;
	struct bufr r;

	fill_request();
	for (size_t i = 0; i < ARRAY_SIZE(took); i++) {
		before = clock_mono_ns();
		if (i < 2)
			ask(&p, MSG_ROWS, fd, &msg);
		else
			ask(&p, MSG_NAMES, fd, &msg);
		took[i] = clock_mono_ns() - before;
		bufr_init(&r, msg.data, msg.len);
		if (i == 2) {
			assert_int_equal(msg_names_decode(&r, &names), 0);
			continue;
		}
		assert_int_equal(msg_rows_decode(&r, &rows), 0);
		assert_true(rows.nrows > 2000);
		for (uint32_t k = 0; k < rows.nresults; k++)
			with_row += rows.results[k].flags & MSG_RES_ROW;
		msg_rows_fini(&rows);
	}
	for (uint32_t k = 0; k < names.nnamed; k++)
		with_name += names.named[k].nlines;
	assert_int_equal(names.build_id_len, 20);
	msg_names_fini(&names);
	print_message("of 512 addresses: %u with a row, %u with a name; rows took %lu us, again %lu us, names %lu us\n",
		      with_row / 2, with_name, took[0] / 1000, took[1] / 1000, took[2] / 1000);
	assert_true(with_row / 2 > 450);
	assert_true(with_name > 50); /* it has only dynamic symbols */
	close(fd);
	stop(&p);
}

static bool maps_mention(pid_t pid, const char *what)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "r");
	if (!f) /* it is not dumpable: only root may look */
		return false;
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, what) != NULL;
	fclose(f);
	return found;
}

static void a_file_is_let_go_when_the_batch_is_over(void **state UNUSED)
{
	struct peer p = start();
	int fd = open("/usr/bin/openssl", O_RDONLY | O_CLOEXEC);
	struct ipc_msg msg;
	char path[64];

	if (fd < 0)
		skip();
	fill_request();
	ask(&p, MSG_ROWS, fd, &msg);
	snprintf(path, sizeof(path), "/proc/%d/maps", p.child.pid);
	if (access(path, R_OK) == 0)
		assert_true(maps_mention(p.child.pid, "openssl"));
	usleep(600000);
	assert_false(maps_mention(p.child.pid, "openssl"));
	/* And it still answers. */
	ask(&p, MSG_ROWS, fd, &msg);
	close(fd);
	stop(&p);
}

static void nonsense_ends_the_process(void **state UNUSED)
{
	struct peer p = start();
	struct ipc_msg msg;

	assert_int_equal(ipc_send(p.child.sock, MSG_ROWS, "garbage", 7, -1), 0);
	assert_false(receive(&p, &msg));
	stop(&p);
	p = start();
	fill_request();
	{
		CLEANUP(bufw_fini) struct bufw w = { 0 };

		msg_request_encode(&w, &req);
		assert_int_equal(ipc_send(p.child.sock, 99, w.data, w.len, -1), 0);
	}
	assert_false(receive(&p, &msg));
	stop(&p);
}

static void the_program_ends_when_the_agent_goes(void **state UNUSED)
{
	struct peer p = start();
	struct pollfd fd = { .fd = p.child.pidfd, .events = POLLIN };
	int status;

	close(p.child.sock);
	p.child.sock = -1;
	assert_int_equal(poll(&fd, 1, 5000), 1);
	assert_int_equal(waitpid(p.child.pid, &status, 0), p.child.pid);
	assert_int_equal(status, 0);
	close(p.child.pidfd);
	ipc_in_fini(&p.in);
}

/* ---- by hand ---- */

static int run(const char *arguments, char *out, size_t size)
{
	char command[512];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), "%s %s 2>&1", SYMBOLIZER_PATH, arguments);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(out, 1, size - 1, f);
	out[n] = '\0';
	while (fread(command, 1, sizeof(command), f) > 0)
		;
	return pclose(f);
}

static void one_file_can_be_read_by_hand(void **state UNUSED)
{
	char out[4096];

	assert_int_equal(run("--file " LIBC " --dump rows", out, sizeof(out)), 0);
	assert_non_null(strstr(out, "cfa=rsp+8 ra=[cfa-8]"));
	assert_int_equal(run("--file " LIBC " --dump symbols", out, sizeof(out)), 0);
	assert_int_equal(run("--file " LIBC " --dump rows --at 0x29000", out, sizeof(out)), 0);
	assert_non_null(strstr(out, " code"));
	assert_int_equal(run("--file " LIBC " --dump symbols --at 0x29000", out, sizeof(out)), 0);
	assert_non_null(strstr(out, "build_id="));
	assert_int_equal(run("--version", out, sizeof(out)), 0);
	assert_non_null(strstr(out, ipc_build_id));
	assert_int_equal(run("--help", out, sizeof(out)), 0);
	assert_non_null(strstr(out, "usage:"));
}

static void mistakes_on_the_command_line_are_told(void **state UNUSED)
{
	static const char *const wrong[] = {
		"--file " LIBC, "--dump rows", "--file " LIBC " --dump nonsense", "--nonsense", "extra",
		"--file /etc/passwd --dump rows", "--file /does/not/exist --dump rows",
		"--file " LIBC " --dump rows --at x", "--file " LIBC " --dump rows --sandbox x", "",
	};
	char out[4096];

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_not_equal(run(wrong[i], out, sizeof(out)), 0);
		assert_int_not_equal(strlen(out), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(libc_is_answered_through_the_channel),
		cmocka_unit_test(a_file_is_let_go_when_the_batch_is_over),
		cmocka_unit_test(nonsense_ends_the_process),
		cmocka_unit_test(the_program_ends_when_the_agent_goes),
		cmocka_unit_test(one_file_can_be_read_by_hand),
		cmocka_unit_test(mistakes_on_the_command_line_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
