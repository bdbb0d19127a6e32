#include "base/ipc.h"

#include "base/clock.h"
#include "tests/unit/alloc_fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

/* As in ipc.c: a hostile peer knows it too. */
struct header {
	uint32_t type;
	uint32_t flags;
	uint64_t len;
};
enum { HAS_MEMFD = 1, HAS_FD = 2 };

struct fixture {
	int a, b; /* the two ends, both non-blocking */
	struct ipc_in in;
	int nfds; /* open descriptors before the test */
};

static int exe_fd = -1; /* this program, opened at start as the agent does */

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int pair[2];

	assert_non_null(f);
	f->nfds = count_fds();
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	f->a = pair[0];
	f->b = pair[1];
	*state = f;
	return 0;
}

/* Also the check that no path, good or bad, leaves a descriptor behind. */
static int teardown(void **state)
{
	struct fixture *f = *state;

	ipc_in_fini(&f->in);
	closep(&f->a);
	closep(&f->b);
	assert_int_equal(count_fds(), f->nfds);
	free(f);
	return 0;
}

static ino_t inode(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static uint8_t *pattern(size_t len)
{
	uint8_t *p = malloc(len ? len : 1);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + i / 251);
	return p;
}

static void round_trip(struct fixture *f, size_t len, bool with_fd)
{
	CLEANUP_FREE uint8_t *data = pattern(len);
	CLEANUP_FD int fd = with_fd ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
	struct ipc_msg m = {};

	assert_int_equal(ipc_send(f->a, 42, data, len, fd), 0);
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 1);
	assert_int_equal(m.type, 42);
	assert_int_equal(m.len, len);
	assert_memory_equal(m.data, data, len);
	if (!with_fd) {
		assert_int_equal(m.fd, -1);
		return;
	}
	assert_true(m.fd >= 0 && m.fd != fd);
	assert_true(inode(m.fd) == inode(fd));
	assert_true(fcntl(m.fd, F_GETFD) & FD_CLOEXEC);
	close(m.fd);
}

static void payloads_of_any_size_arrive_with_and_without_a_descriptor(void **state)
{
	static const size_t sizes[] = { 0,		    1,	     100,
					IPC_INLINE_MAX - 1, IPC_INLINE_MAX, IPC_INLINE_MAX + 1,
					5 * 1024 * 1024 + 3, IPC_PAYLOAD_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		round_trip(*state, sizes[i], false);
		round_trip(*state, sizes[i], true);
	}
}

static void a_payload_over_the_limit_is_refused_by_the_sender(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ipc_send(f->a, 1, "", (size_t)IPC_PAYLOAD_MAX + 1, -1), -EMSGSIZE);
}

static void a_full_socket_says_so_and_loses_nothing(void **state)
{
	struct fixture *f = *state;
	uint32_t nsent = 0, ngot = 0;
	struct ipc_msg m;
	int err;

	while (!(err = ipc_send(f->a, nsent, &nsent, sizeof(nsent), -1)))
		nsent++;
	assert_int_equal(err, -EAGAIN);
	assert_true(nsent > 1);
	while ((err = ipc_recv(f->b, &f->in, &m)) == 1) {
		assert_int_equal(m.type, ngot);
		ngot++;
	}
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(ngot, nsent);
}

static void the_end_is_told_to_both_sides(void **state)
{
	struct fixture *f = *state;
	struct ipc_msg m;

	assert_int_equal(ipc_send(f->a, 1, "x", 1, -1), 0);
	closep(&f->a);
	f->a = -1;
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 1); /* what was sent before it still comes */
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 0);
	assert_int_equal(ipc_send(f->b, 1, "x", 1, -1), -EPIPE);
}

static void a_peer_that_leaves_with_unread_messages_is_an_end(void **state)
{
	struct fixture *f = *state;
	struct ipc_msg m;

	assert_int_equal(ipc_send(f->b, 1, "x", 1, -1), 0);
	closep(&f->a);
	f->a = -1;
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 0); /* the kernel says ECONNRESET */
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 0);
}

/* Sends a packet as a hostile peer would. */
static void forge(struct fixture *f, struct header h, const void *data, size_t len, const int *fds,
		  size_t nfds)
{
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)data, len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	char control[CMSG_SPACE(8 * sizeof(int))] = {};
	struct cmsghdr *c;

	if (nfds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	assert_true(sendmsg(f->a, &msg, MSG_NOSIGNAL) >= 0);
}

static void assert_refused(struct fixture *f)
{
	struct ipc_msg m = { .type = 99 };

	assert_int_equal(ipc_recv(f->b, &f->in, &m), -EBADMSG);
	assert_int_equal(m.type, 99);
	assert_null(f->in.map);
	round_trip(f, 10, true); /* the channel itself is not harmed */
}

static void malformed_packets_are_refused(void **state)
{
	struct fixture *f = *state;
	CLEANUP_FREE uint8_t *big = pattern(IPC_INLINE_MAX + 1);
	int fds[3] = { 0, 1, 2 };

	assert_true(send(f->a, "short", 5, 0) == 5);
	assert_refused(f);
	forge(f, (struct header){ 1, 0, 3 }, "ab", 2, NULL, 0);
	assert_refused(f);
	forge(f, (struct header){ 1, 0, 1 }, "ab", 2, NULL, 0);
	assert_refused(f);
	forge(f, (struct header){ 1, 0, UINT64_MAX }, "ab", 2, NULL, 0);
	assert_refused(f);
	forge(f, (struct header){ 1, 0, IPC_INLINE_MAX + 1 }, big, IPC_INLINE_MAX + 1, NULL, 0);
	assert_refused(f);
	forge(f, (struct header){ 1, 4, 2 }, "ab", 2, NULL, 0);
	assert_refused(f);
	forge(f, (struct header){ 1, HAS_FD, 2 }, "ab", 2, NULL, 0);
	assert_refused(f);
	forge(f, (struct header){ 1, 0, 2 }, "ab", 2, fds, 1);
	assert_refused(f);
	forge(f, (struct header){ 1, HAS_FD, 2 }, "ab", 2, fds, 2);
	assert_refused(f);
	forge(f, (struct header){ 1, HAS_FD | HAS_MEMFD, 2 }, "ab", 2, fds, 3);
	assert_refused(f);
}

static int new_memfd(size_t size, int seals, unsigned int flags)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return -1;
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void forge_memfd(struct fixture *f, int fd, uint64_t len)
{
	assert_true(fd >= 0);
	forge(f, (struct header){ 1, HAS_MEMFD, len }, "", 0, &fd, 1);
	close(fd);
	assert_refused(f);
}

static void a_memfd_that_could_change_is_refused(void **state)
{
	enum { ALL = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };
	struct fixture *f = *state;
	const size_t size = 100000;
	struct ipc_msg m;
	int fd;

	forge_memfd(f, new_memfd(size, 0, 0), size);
	forge_memfd(f, new_memfd(size, ALL & ~F_SEAL_WRITE, 0), size);
	forge_memfd(f, new_memfd(size, ALL & ~F_SEAL_SHRINK, 0), size);
	forge_memfd(f, new_memfd(size, ALL & ~F_SEAL_GROW, 0), size);
	forge_memfd(f, new_memfd(size, ALL, 0), size + 1);
	forge_memfd(f, new_memfd(size, ALL, 0), size - 1);
	forge_memfd(f, new_memfd(100, ALL, 0), 100); /* would have been inline */
	forge_memfd(f, new_memfd(0, ALL, 0), 0);
	forge_memfd(f, new_memfd((size_t)IPC_PAYLOAD_MAX + 1, ALL, 0), (size_t)IPC_PAYLOAD_MAX + 1);
	forge_memfd(f, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), size);
	forge_memfd(f, open("/dev/zero", O_RDONLY | O_CLOEXEC), size);
	/* A page of hugetlbfs can be missing in spite of the seals: reading it kills. */
	fd = new_memfd(4 << 20, ALL, MFD_HUGETLB);
	if (fd >= 0)
		forge_memfd(f, fd, 4 << 20);
	fd = new_memfd(size, ALL, 0);
	forge(f, (struct header){ 1, HAS_MEMFD, size }, "x", 1, &fd, 1);
	assert_refused(f);
	/* The forgery as such is right: the same with nothing wrong is taken. */
	forge(f, (struct header){ 1, HAS_MEMFD, size }, "", 0, &fd, 1);
	close(fd);
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 1);
	assert_int_equal(m.len, size);
}

static void a_full_descriptor_table_is_our_error_and_not_the_peers(void **state)
{
	struct fixture *f = *state;
	struct ipc_msg m;
	int fds[1024];
	size_t n = 0;

	assert_int_equal(ipc_send(f->a, 1, "x", 1, 0), 0);
	while (n < ARRAY_SIZE(fds) && (fds[n] = dup(0)) >= 0)
		n++;
	if (n == ARRAY_SIZE(fds)) { /* RLIMIT_NOFILE is large here */
		assert_int_equal(ipc_recv(f->b, &f->in, &m), 1);
		close(m.fd);
	} else {
		assert_int_equal(ipc_recv(f->b, &f->in, &m), -EMFILE);
	}
	while (n > 0)
		close(fds[--n]);
}

static void receiving_survives_a_failed_allocation(void **state)
{
	struct fixture *f = *state;
	struct ipc_msg m;

	assert_int_equal(ipc_send(f->a, 1, "x", 1, -1), 0);
	alloc_fail_nth(1);
	assert_int_equal(ipc_recv(f->b, &f->in, &m), -ENOMEM);
	alloc_fail_nth(0);
	assert_int_equal(ipc_recv(f->b, &f->in, &m), 1); /* the message was not lost */
}

static void a_memfd_of_ours_cannot_be_changed(void **state)
{
	char text[6] = {};
	int fd;

	(void)state;
	assert_int_equal(ipc_memfd("test", "hello", 5, &fd), 0);
	assert_int_equal(pread(fd, text, 5, 0), 5);
	assert_string_equal(text, "hello");
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(fd, 3), -1);
	assert_int_equal(ftruncate(fd, 30), -1);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	assert_int_equal(ipc_memfd("empty", NULL, 0, &fd), 0);
	close(fd);
}

/* ---- children: this program itself, see child_main() ----------------------------------------- */

static void spawn_self(struct ipc_child *c, const char *arg, uint64_t caps)
{
	struct ipc_program p = { .name = "test-child", .arg = arg, .exe_fd = exe_fd, .caps = caps };

	assert_int_equal(ipc_spawn(c, &p), 0);
	assert_true(c->pid > 0 && c->pidfd >= 0 && c->sock >= 0);
}

static int recv_wait(const struct ipc_child *c, struct ipc_in *in, struct ipc_msg *ret)
{
	struct pollfd p = { .fd = c->sock, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 20000), 1);
	return ipc_recv(c->sock, in, ret);
}

/* What the child reports about itself, one text. */
static void ask_child(char *ret_text, size_t size, const char *arg, uint64_t caps)
{
	struct ipc_child c = IPC_CHILD_INIT;
	CLEANUP(ipc_in_fini) struct ipc_in in = {};
	struct ipc_msg m;

	spawn_self(&c, arg, caps);
	assert_int_equal(recv_wait(&c, &in, &m), 1);
	assert_int_equal(m.type, IPC_HELLO);
	assert_int_equal(m.len, strlen(ipc_build_id));
	assert_memory_equal(m.data, ipc_build_id, m.len);
	assert_int_equal(recv_wait(&c, &in, &m), 1);
	assert_true(m.len < size);
	memcpy(ret_text, m.data, m.len);
	ret_text[m.len] = 0;
	assert_int_equal(recv_wait(&c, &in, &m), 0);
	assert_int_equal(ipc_child_kill(&c, 10 * NSEC_PER_SEC), 0);
	assert_int_equal(c.pid, -1);
	assert_int_equal(c.sock, -1);
}

static void a_child_has_only_what_it_was_given(void **state)
{
	char text[4096];
	sigset_t usr1, before;

	(void)state;
	/* What must not be inherited. */
	setenv("SECRET", "x", 1);
	setenv("JOURNAL_STREAM", "8:123", 1);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, &before);
	int leak = dup(0), leak_high = fcntl(0, F_DUPFD, 500);

	ask_child(text, sizeof(text), "report", 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGPIPE, SIG_DFL);
	close(leak);
	close(leak_high);
	unsetenv("JOURNAL_STREAM");
	assert_string_equal(text, "argv=test-child,report fds=0,1,2,3 stdin=/dev/null "
				  "env=PATH,LANG,JOURNAL_STREAM blocked=0 ignored=0 "
				  "no_new_privs=1 pdeathsig=9 caps=0,0,0,0\n");
}

static void a_child_keeps_exactly_the_capabilities_it_is_given(void **state)
{
	const uint64_t caps = 1ull << CAP_SYS_PTRACE | 1ull << CAP_CHECKPOINT_RESTORE;
	char text[4096], want[256];

	(void)state;
	if (geteuid() != 0)
		skip();
	ask_child(text, sizeof(text), "report", caps);
	snprintf(want, sizeof(want), " pdeathsig=9 caps=%jx,%jx,%jx,%jx\n", (uintmax_t)caps,
		 (uintmax_t)caps, (uintmax_t)caps, (uintmax_t)caps);
	assert_non_null(strstr(text, want));
}

/* As the agent does it: root is left, and the three capabilities are permitted, not effective. */
static void leave_root(uint64_t caps)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = {
		{ .permitted = (uint32_t)caps },
		{ .permitted = (uint32_t)(caps >> 32) },
	};

	assert_int_equal(prctl(PR_SET_KEEPCAPS, 1), 0);
	assert_int_equal(setresgid(65534, 65534, 65534), 0);
	assert_int_equal(setresuid(65534, 65534, 65534), 0);
	assert_int_equal(syscall(SYS_capset, &h, d), 0);
}

static void an_agent_that_has_left_root_passes_capabilities_on(void **state)
{
	const uint64_t caps = 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_READ_SEARCH |
			      1ull << CAP_CHECKPOINT_RESTORE;
	char text[4096], want[256];
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		leave_root(caps);
		ask_child(text, sizeof(text), "report", caps);
		snprintf(want, sizeof(want), " pdeathsig=9 caps=%jx,%jx,%jx,%jx\n", (uintmax_t)caps,
			 (uintmax_t)caps, (uintmax_t)caps, (uintmax_t)caps);
		if (!strstr(text, want))
			_exit(1);
		ask_child(text, sizeof(text), "report", 0);
		_exit(strstr(text, " pdeathsig=9 caps=0,0,0,0\n") ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_capability_that_the_parent_lacks_is_an_error_of_the_spawn(void **state)
{
	struct ipc_program p = { .name = "x", .exe_fd = exe_fd, .caps = 1ull << 63 };
	struct ipc_child c = IPC_CHILD_INIT;

	(void)state;
	assert_true(ipc_spawn(&c, &p) < 0);
	assert_int_equal(c.pid, -1);
}

static void an_executable_that_is_none_is_an_error_of_the_spawn(void **state)
{
	struct ipc_child c = IPC_CHILD_INIT;
	struct ipc_program p = { .name = "x", .exe_fd = -1 };

	(void)state;
	assert_int_equal(ipc_spawn(&c, &p), -EBADF);
	assert_int_equal(ipc_memfd("x", "not an ELF file at all", 22, &p.exe_fd), 0);
	assert_true(ipc_spawn(&c, &p) < 0);
	close(p.exe_fd);
	assert_int_equal(c.pid, -1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left to reap */
}

static void a_child_is_spawned_also_when_low_descriptors_are_free(void **state)
{
	int saved[3];
	char text[4096];

	(void)state;
	for (int fd = 0; fd < 3; fd++) {
		saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
		close(fd);
	}
	ask_child(text, sizeof(text), "report", 0);
	for (int fd = 0; fd < 3; fd++) {
		dup2(saved[fd], fd);
		close(saved[fd]);
	}
	assert_non_null(strstr(text, " fds=0,1,2,3 stdin=/dev/null "));
}

static void a_child_talks_both_ways(void **state)
{
	CLEANUP(ipc_in_fini) struct ipc_in in = {};
	CLEANUP_FREE uint8_t *data = pattern(300000);
	struct ipc_child c = IPC_CHILD_INIT;
	CLEANUP_FD int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct ipc_msg m;

	(void)state;
	spawn_self(&c, "echo", 0);
	assert_int_equal(recv_wait(&c, &in, &m), 1); /* hello */
	for (int i = 0; i < 50; i++) {
		size_t len = (size_t)i * 6000;

		assert_int_equal(ipc_send(c.sock, 5, data, len, fd), 0);
		assert_int_equal(recv_wait(&c, &in, &m), 1);
		assert_int_equal(m.len, len);
		assert_memory_equal(m.data, data, len);
		assert_true(inode(m.fd) == inode(fd));
		close(m.fd);
	}
	assert_int_equal(ipc_child_kill(&c, 10 * NSEC_PER_SEC), 0);
}

static void a_child_that_ignores_everything_is_killed(void **state)
{
	CLEANUP(ipc_in_fini) struct ipc_in in = {};
	struct ipc_child c = IPC_CHILD_INIT;
	struct ipc_msg m;
	pid_t pid;

	(void)state;
	spawn_self(&c, "hang", 0);
	assert_int_equal(recv_wait(&c, &in, &m), 1);
	pid = c.pid;
	assert_int_equal(ipc_child_kill(&c, 10 * NSEC_PER_SEC), 0);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
	assert_int_equal(ipc_child_kill(&c, 0), 0); /* nothing left to do */
}

static void a_child_dies_with_its_parent(void **state)
{
	int report[2];
	pid_t parent, child = 0;
	struct pollfd p;
	char c;

	(void)state;
	assert_int_equal(pipe(report), 0);
	parent = fork();
	assert_true(parent >= 0);
	if (parent == 0) {
		struct ipc_child ch = IPC_CHILD_INIT;
		struct ipc_in in = {};
		struct ipc_msg m;

		dup2(report[1], STDOUT_FILENO); /* the child holds it for as long as it lives */
		close(report[0]);
		close(report[1]);
		spawn_self(&ch, "hang", 0);
		recv_wait(&ch, &in, &m);
		(void)!write(STDOUT_FILENO, &ch.pid, sizeof(ch.pid));
		kill(getpid(), SIGKILL);
	}
	close(report[1]);
	assert_int_equal(read(report[0], &child, sizeof(child)), sizeof(child));
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	p = (struct pollfd){ .fd = report[0], .events = POLLIN };
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(read(report[0], &c, 1), 0);
	close(report[0]);
}

static void a_program_started_by_hand_says_so(void **state)
{
	int err[2], status;
	char text[256] = {};
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(err), 0);
	pid = fork();
	if (pid == 0) {
		dup2(err[1], STDERR_FILENO);
		close(IPC_FD);
		open("/dev/null", O_RDONLY);
		execl("/proc/self/exe", "test-child", "report", (char *)NULL);
		_exit(1);
	}
	close(err[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
	assert_true(read(err[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "started by flamed"));
	close(err[0]);
}

/* ---- the child's side ------------------------------------------------------------------------ */

static unsigned long long status_field(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long v = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, strlen(name)) == 0)
			v = strtoull(line + strlen(name) + 1, NULL, 16);
	}
	if (f)
		fclose(f);
	return v;
}

static void report_fds(FILE *out)
{
	DIR *d = opendir("/proc/self/fd");
	bool open_fds[1024] = {};
	struct dirent *e;
	const char *sep = "";

	while (d && (e = readdir(d))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd != dirfd(d) && fd < 1024)
			open_fds[fd] = true;
	}
	if (d)
		closedir(d);
	for (int fd = 0; fd < 1024; fd++) {
		if (open_fds[fd]) {
			fprintf(out, "%s%d", sep, fd);
			sep = ",";
		}
	}
}

static int report(char **argv)
{
	char *text = NULL, stdin_path[256] = {};
	size_t len = 0;
	int pdeathsig = 0, err;
	FILE *out = open_memstream(&text, &len);

	prctl(PR_GET_PDEATHSIG, &pdeathsig);
	(void)!readlink("/proc/self/fd/0", stdin_path, sizeof(stdin_path) - 1);
	fclose(out);
	free(text);
	/* open_memstream() has no descriptor, but fopen() inside has: count before and after. */
	out = open_memstream(&text, &len);
	fprintf(out, "argv=%s,%s fds=", argv[0], argv[1]);
	report_fds(out);
	fprintf(out, " stdin=%s env=", stdin_path);
	for (char **e = environ; *e; e++)
		fprintf(out, "%s%.*s", e == environ ? "" : ",", (int)strcspn(*e, "="), *e);
	/* posix_spawn(3), which make(1) uses, leaves the C library's own two ignored. */
	fprintf(out, " blocked=%llx ignored=%llx no_new_privs=%d pdeathsig=%d",
		status_field("SigBlk:"), status_field("SigIgn:") & 0x7fffffff,
		prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), pdeathsig);
	fprintf(out, " caps=%llx,%llx,%llx,%llx\n", status_field("CapInh:"), status_field("CapPrm:"),
		status_field("CapEff:"), status_field("CapAmb:"));
	fclose(out);
	err = ipc_send(IPC_FD, 1, text, len, -1);
	free(text);
	return err;
}

static int echo(void)
{
	struct ipc_in in = {};
	struct ipc_msg m;
	int err;

	while ((err = ipc_recv(IPC_FD, &in, &m)) == 1) {
		err = ipc_send(IPC_FD, m.type, m.data, m.len, m.fd);
		closep(&m.fd);
		if (err)
			return err;
	}
	ipc_in_fini(&in);
	return err;
}

static int child_main(char **argv)
{
	int err = ipc_hello();

	if (err)
		return 1;
	if (strcmp(argv[1], "report") == 0)
		return report(argv) != 0;
	if (strcmp(argv[1], "echo") == 0)
		return echo() != 0;
	for (int signo = 1; signo < SIGRTMIN; signo++)
		signal(signo, SIG_IGN);
	for (;;)
		pause();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(payloads_of_any_size_arrive_with_and_without_a_descriptor),
		TEST(a_payload_over_the_limit_is_refused_by_the_sender),
		TEST(a_full_socket_says_so_and_loses_nothing),
		TEST(the_end_is_told_to_both_sides),
		TEST(a_peer_that_leaves_with_unread_messages_is_an_end),
		TEST(malformed_packets_are_refused),
		TEST(a_memfd_that_could_change_is_refused),
		TEST(a_full_descriptor_table_is_our_error_and_not_the_peers),
		TEST(receiving_survives_a_failed_allocation),
		TEST(a_memfd_of_ours_cannot_be_changed),
		TEST(a_child_has_only_what_it_was_given),
		TEST(a_child_keeps_exactly_the_capabilities_it_is_given),
		TEST(an_agent_that_has_left_root_passes_capabilities_on),
		TEST(a_capability_that_the_parent_lacks_is_an_error_of_the_spawn),
		TEST(an_executable_that_is_none_is_an_error_of_the_spawn),
		TEST(a_child_is_spawned_also_when_low_descriptors_are_free),
		TEST(a_child_talks_both_ways),
		TEST(a_child_that_ignores_everything_is_killed),
		TEST(a_child_dies_with_its_parent),
		TEST(a_program_started_by_hand_says_so),
	};

	if (argc > 1)
		return child_main(argv);
	exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (exe_fd < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
