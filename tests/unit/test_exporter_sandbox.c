#include "exporter/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <dirent.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/def.h"

enum { STATUS_NO_SANDBOX = 99 };

static const struct sandbox_conf record = { .has_network = false, .output_dir_fd = -1 };
static struct sandbox_conf network = { .has_network = true, .output_dir_fd = -1 };
static int landlock;

/* What becomes of a process that does this in the sandbox: its wait status. */
static int status_in(const struct sandbox_conf *conf, int (*deed)(void))
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (sandbox_enter(conf, &landlock))
			_exit(STATUS_NO_SANDBOX);
		_exit(deed());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int status_of(int (*deed)(void))
{
	return status_in(&record, deed);
}

static int do_open(void)
{
	return open("/dev/null", O_RDONLY) < 0;
}

static int do_openat2(void)
{
	return syscall(SYS_openat2, AT_FDCWD, "/dev/null", NULL, 0) < 0;
}

static int do_stat_path(void)
{
	struct stat st;

	return stat("/etc/passwd", &st) < 0;
}

static int do_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0) < 0;
}

static int do_socket_unix(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0) < 0;
}

static int do_connect(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };

	return connect(0, (struct sockaddr *)&to, sizeof(to)) < 0;
}

static int do_execve(void)
{
	char *argv[] = { (char[]){ "true" }, NULL };

	return execve("/bin/true", argv, argv + 1);
}

static int do_execveat(void)
{
	return (int)syscall(SYS_execveat, 0, "", NULL, NULL, AT_EMPTY_PATH);
}

static int do_fork(void)
{
	return fork() < 0;
}

static int do_kill(void)
{
	return kill(1, 0);
}

static int do_kill_by_number(void)
{
	return (int)syscall(SYS_kill, 1, 0);
}

static int do_tgkill(void)
{
	return (int)syscall(SYS_tgkill, 1, 1, 0);
}

static int do_pidfd_open(void)
{
	return (int)syscall(SYS_pidfd_open, 1, 0);
}

static int do_pidfd_send_signal(void)
{
	return (int)syscall(SYS_pidfd_send_signal, 0, 0, NULL, 0);
}

static int do_ptrace(void)
{
	return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static int do_vm_readv(void)
{
	return (int)syscall(SYS_process_vm_readv, 1, NULL, 0, NULL, 0, 0);
}

static int do_vm_writev(void)
{
	return (int)syscall(SYS_process_vm_writev, 1, NULL, 0, NULL, 0, 0);
}

static int do_mmap_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
	       MAP_FAILED;
}

static int do_mprotect_code(void)
{
	static char page[8192] __attribute__((aligned(4096)));

	return mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
}

static int do_memfd(void)
{
	return memfd_create("x", 0) < 0;
}

static int do_prctl(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static int do_bpf(void)
{
	return (int)syscall(SYS_bpf, 0, NULL, 0);
}

static int do_perf_event_open(void)
{
	return (int)syscall(SYS_perf_event_open, NULL, 0, 0, -1, 0);
}

static int do_io_uring(void)
{
	return (int)syscall(SYS_io_uring_setup, 1, NULL);
}

static int do_unshare(void)
{
	return (int)syscall(SYS_unshare, 0);
}

static int do_setuid(void)
{
	return (int)syscall(SYS_setuid, 0);
}

static int do_unlink(void)
{
	return unlink("/nowhere");
}

static int do_fcntl_owner(void)
{
	return fcntl(0, F_SETOWN, 1); /* would send SIGIO to somebody */
}

static void each_forbidden_call_is_death(void **state)
{
	/* clang-format off */
	static const struct {
		const char *name;
		int (*deed)(void);
	} table[] = {
#define DEED(name) { #name, do_##name }
		DEED(open), DEED(openat2), DEED(stat_path), DEED(socket), DEED(socket_unix),
		DEED(connect), DEED(execve), DEED(execveat), DEED(fork), DEED(kill),
		DEED(kill_by_number), DEED(tgkill), DEED(pidfd_open), DEED(pidfd_send_signal),
		DEED(ptrace), DEED(vm_readv), DEED(vm_writev), DEED(mmap_code),
		DEED(mprotect_code), DEED(memfd), DEED(prctl), DEED(bpf), DEED(perf_event_open),
		DEED(io_uring), DEED(unshare), DEED(setuid), DEED(unlink), DEED(fcntl_owner),
#undef DEED
	};
	/* clang-format on */

	(void)state;
	if (!SANDBOX_IS_WHOLE)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		int status = status_of(table[i].deed);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("%s ended with status %#x", table[i].name, (unsigned int)status);
	}
}

static int channel[2], out[2], file_fd;

/* What the exporter lives on: a channel, an output, memory, time. */
static int do_work(void)
{
	char text[16] = "", reply_text[] = "reply";
	struct iovec in_iov = { text, sizeof(text) }, reply_iov = { reply_text, 5 };
	struct msghdr in = { .msg_iov = &in_iov, .msg_iovlen = 1 };
	struct msghdr reply = { .msg_iov = &reply_iov, .msg_iovlen = 1 };
	struct stat st;
	char *p = malloc(8 << 20);

	if (!p)
		return 1;
	memset(p, 1, 8 << 20);
	p = realloc(p, 64 << 20);
	if (!p)
		return 2;
	free(p);
	if (recvmsg(channel[1], &in, MSG_CMSG_CLOEXEC) != 5 ||
	    sendmsg(channel[1], &reply, MSG_NOSIGNAL) != 5)
		return 3;
	if (fstat(file_fd, &st) || !S_ISREG(st.st_mode) || ftruncate(file_fd, 0) ||
	    lseek(file_fd, 0, SEEK_SET) || write(file_fd, text, 5) != 5)
		return 4;
	if (write(out[1], text, 5) != 5)
		return 5;
	return 0;
}

static void its_own_work_is_permitted(void **state)
{
	char path[] = "/tmp/flamed-test-XXXXXX", text[16] = "";
	int status;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel), 0);
	assert_int_equal(pipe(out), 0);
	file_fd = mkstemp(path);
	assert_true(file_fd >= 0);
	unlink(path);
	assert_int_equal(send(channel[0], "hello", 5, 0), 5);
	status = status_of(do_work);
	assert_int_equal(status, 0);
	assert_int_equal(read(out[0], text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
	assert_int_equal(recv(channel[0], text, sizeof(text), 0), 5);
	assert_string_equal(text, "reply");
}

static int do_nothing(void)
{
	static char byte;

	(void)!write(out[1], "r", 1);
	(void)!read(channel[1], &byte, 1);
	return 0;
}

/* Reads a line like "CapEff:\t0000" of the status of a process in the sandbox. */
static unsigned long long status_value(pid_t pid, const char *key)
{
	char path[64], line[256];
	unsigned long long value = ~0ull;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':')
			value = strtoull(line + strlen(key) + 1, NULL, 16);
	}
	fclose(f);
	return value;
}

/* Before the secrets come, and the sandbox. */
static void nobody_looks_in_from_the_beginning(void **state)
{
	(void)state;
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
	assert_int_equal(sandbox_hide(), 0);
	assert_int_equal(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), SANDBOX_IS_WHOLE ? 0 : 1);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
}

static void no_privilege_is_left(void **state)
{
	static const char *const empty[] = { "CapInh", "CapPrm", "CapEff", "CapAmb" };
	struct rlimit limit;
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || sandbox_enter(&record, &landlock))
			_exit(STATUS_NO_SANDBOX);
		_exit(do_nothing());
	}
	close(out[1]);
	assert_int_equal(read(out[0], &byte, 1), 1);
	for (size_t i = 0; i < ARRAY_SIZE(empty); i++)
		assert_int_equal(status_value(pid, empty[i]), 0);
	if (geteuid() == 0) /* else the right to empty it may be missing */
		assert_int_equal(status_value(pid, "CapBnd"), 0);
	assert_int_equal(status_value(pid, "NoNewPrivs"), 1);
	if (SANDBOX_IS_WHOLE) {
		assert_int_equal(status_value(pid, "Seccomp"), 2);
		assert_int_equal(prlimit(pid, RLIMIT_CORE, NULL, &limit), 0);
		assert_int_equal(limit.rlim_max, 0);
		assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &limit), 0);
		assert_int_equal(limit.rlim_max, 16);
	}
	assert_int_equal(send(channel[0], "x", 1, 0), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- with the network ------------------------------------------------------------------------ */

static int do_socket_packet(void)
{
	return socket(AF_PACKET, SOCK_RAW, 0) < 0;
}

static int do_socket_netlink_audit(void)
{
	return socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT) < 0;
}

static int do_open_to_write(void)
{
	return open("/tmp/flamed-test-sandbox", O_WRONLY) < 0;
}

static int do_create(void)
{
	return open("/tmp/flamed-test-sandbox", O_RDONLY | O_CREAT, 0600) < 0;
}

static int do_mkdir(void)
{
	return mkdir("/tmp/flamed-test-sandbox", 0700);
}

static int do_prlimit(void)
{
	struct rlimit limit = { 1, 1 };

	return prlimit(0, RLIMIT_AS, &limit, NULL);
}

static int do_memfd_unsealable(void)
{
	return memfd_create("x", MFD_CLOEXEC) < 0;
}

static void each_forbidden_call_is_death_with_the_network_too(void **state)
{
	/* clang-format off */
	static const struct {
		const char *name;
		int (*deed)(void);
	} table[] = {
#define DEED(name) { #name, do_##name }
		DEED(openat2), DEED(execve), DEED(execveat), DEED(fork), DEED(kill),
		DEED(kill_by_number), DEED(tgkill), DEED(pidfd_open), DEED(pidfd_send_signal),
		DEED(ptrace), DEED(vm_readv), DEED(vm_writev), DEED(prctl), DEED(bpf),
		DEED(perf_event_open), DEED(io_uring), DEED(unshare), DEED(setuid), DEED(unlink),
		DEED(fcntl_owner), DEED(socket_packet), DEED(socket_netlink_audit),
		DEED(open_to_write), DEED(create), DEED(mkdir), DEED(prlimit), DEED(memfd_unsealable),
#undef DEED
	};
	/* clang-format on */

	(void)state;
	if (!SANDBOX_IS_WHOLE)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		int status = status_in(&network, table[i].deed);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("%s ended with status %#x", table[i].name, (unsigned int)status);
	}
}

/* A plug-in of the resolver that is to be loaded has to learn that it cannot. */
static int do_load_code(void)
{
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	    MAP_FAILED)
		return 1;
	if (errno != EACCES)
		return 2;
	return do_mprotect_code() == 0 ? 3 : 0;
}

static void no_memory_becomes_code(void **state)
{
	(void)state;
	if (!SANDBOX_IS_WHOLE)
		skip();
	assert_int_equal(status_in(&network, do_load_code), 0);
}

static bool can_read(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0;
}

static int do_read_around(void)
{
	if (!landlock)
		return 77;
	if (can_read("/etc/passwd") || can_read("/etc") || can_read("/proc/self/maps") ||
	    can_read("/tmp") || can_read("/dev/null") || can_read("/etc/ssl/../passwd"))
		return 1;
	if (errno != EACCES)
		return 2;
	if (!can_read("/etc/hosts") || !can_read("/etc/ssl/certs"))
		return 3;
	return sandbox_is_outdated() ? 4 : 0;
}

static void only_what_the_resolver_and_tls_need_can_be_read(void **state)
{
	int status;

	(void)state;
	if (!SANDBOX_IS_WHOLE)
		skip();
	status = status_in(&network, do_read_around);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* this kernel has no Landlock */
	assert_int_equal(status, 0);
}

static void *resolve(void *arg)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;

	*(int *)arg = getaddrinfo("localhost", "80", &hints, &found);
	if (found)
		freeaddrinfo(found);
	/* It asks the name servers, if there are any; that it says no is all right. */
	if (!getaddrinfo("flamed-test.invalid", "80", &hints, &found) && found)
		freeaddrinfo(found);
	return NULL;
}

/* As libcurl's resolver: in a thread. */
static int do_resolve(void)
{
	pthread_t thread;
	int result = -1;

	if (pthread_create(&thread, NULL, resolve, &result) || pthread_join(thread, NULL))
		return 1;
	return result ? 2 : 0;
}

static void names_are_resolved_in_a_thread(void **state)
{
	(void)state;
	assert_int_equal(status_in(&network, do_resolve), 0);
}

static void put_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		_exit(STATUS_NO_SANDBOX);
}

static int ready[2], replaced[2];

static int see_resolv_conf(void)
{
	char byte = 'x';

	if (!landlock)
		return 77;
	if (sandbox_is_outdated())
		return 1;
	if (write(ready[1], &byte, 1) != 1 || read(replaced[0], &byte, 1) != 1)
		return 2;
	return sandbox_is_outdated() ? 0 : 3;
}

/* In a world of its own, whose /etc/resolv.conf is replaced as dhclient does it. */
static int replace_resolv_conf(void)
{
	char byte;
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/etc", "tmpfs", 0, NULL) || pipe(ready) || pipe(replaced))
		return 77;
	put_text("/etc/resolv.conf", "nameserver 127.0.0.1\n");
	pid = fork();
	if (pid == 0) {
		if (sandbox_enter(&network, &landlock))
			_exit(STATUS_NO_SANDBOX);
		_exit(see_resolv_conf());
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1) {
		put_text("/etc/resolv.conf.new", "nameserver 127.0.0.2\n");
		if (rename("/etc/resolv.conf.new", "/etc/resolv.conf") ||
		    write(replaced[1], "x", 1) != 1)
			return 4;
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

static void a_resolver_that_is_replaced_is_noticed(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (!SANDBOX_IS_WHOLE || geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0)
		_exit(replace_resolv_conf());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* no Landlock, or no right to mount */
	assert_int_equal(status, 0);
}

static int do_keep_files(void)
{
	const int dir = network.output_dir_fd;
	CLEANUP_FD int fd = openat(dir, "temporary", O_WRONLY | O_CREAT | O_EXCL, 0640);
	CLEANUP_FD int list = openat(dir, ".", O_RDONLY | O_DIRECTORY);
	DIR *d = fdopendir(list);
	struct stat st;
	int n = 0;

	if (fd < 0 || !d)
		return 1;
	list = -1;
	if (write(fd, "x", 1) != 1 || renameat(dir, "temporary", dir, "file"))
		return 2;
	while (readdir(d))
		n++;
	closedir(d);
	if (n != 3 || fstatat(dir, "file", &st, AT_SYMLINK_NOFOLLOW) || st.st_size != 1)
		return 3;
	if (unlinkat(dir, "file", 0))
		return 4;
	/* Not out of it. */
	if (landlock && openat(dir, "../flamed-test-outside", O_WRONLY | O_CREAT, 0640) >= 0)
		return 5;
	return 0;
}

static void the_output_directory_can_be_written_to(void **state)
{
	char path[] = "/tmp/flamed-test-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(path));
	network.output_dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(network.output_dir_fd >= 0);
	assert_int_equal(status_in(&network, do_keep_files), 0);
	close(network.output_dir_fd);
	network.output_dir_fd = -1;
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_forbidden_call_is_death),
		cmocka_unit_test(its_own_work_is_permitted),
		cmocka_unit_test(nobody_looks_in_from_the_beginning),
		cmocka_unit_test(no_privilege_is_left),
		cmocka_unit_test(each_forbidden_call_is_death_with_the_network_too),
		cmocka_unit_test(no_memory_becomes_code),
		cmocka_unit_test(only_what_the_resolver_and_tls_need_can_be_read),
		cmocka_unit_test(names_are_resolved_in_a_thread),
		cmocka_unit_test(a_resolver_that_is_replaced_is_noticed),
		cmocka_unit_test(the_output_directory_can_be_written_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
