/* Each forbidden call ends a child that is in the sandbox; each needed one works there. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "symbolizer/sandbox.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* The wait status of a child that enters the sandbox, runs fn and exits with what that returns. */
static int run_inside(enum sandbox_mode mode, int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (sandbox_enter(mode) < 0)
			_exit(99);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int call_open(void) { return open("/etc/passwd", O_RDONLY) < 0; }
static int call_openat2(void) { return syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", NULL, 0) < 0; }
static int call_creat(void) { return syscall(SYS_creat, "/tmp/flamed-test-never", 0600) < 0; }
static int call_unlink(void) { return unlink("/tmp/flamed-test-never") < 0; }
static int call_stat(void) { return syscall(SYS_stat, "/etc/passwd", NULL) < 0; }
static int call_stat_path(void)
{
	struct stat st;

	return stat("/etc/passwd", &st) < 0;
}
static int call_socket(void) { return socket(AF_INET, SOCK_STREAM, 0) < 0; }
static int call_socket_unix(void) { return socket(AF_UNIX, SOCK_STREAM, 0) < 0; }
static int call_connect(void) { return connect(0, NULL, 0) < 0; }
static int call_execve(void) { return execl("/bin/true", "true", NULL) < 0; }
static int call_fork(void) { return fork() < 0; }
static int call_vfork(void) { return (int)syscall(SYS_vfork) < 0; }
static int call_kill(void) { return kill(getppid(), 0) < 0; }
static int call_tgkill(void) { return syscall(SYS_tgkill, 1, 1, 0) < 0; }
static int call_ptrace(void) { return ptrace(PTRACE_ATTACH, 1, NULL, NULL) < 0; }
static int call_vm_readv(void)
{
	char c;
	struct iovec v = { &c, 1 };

	return process_vm_readv(getppid(), &v, 1, &v, 1, 0) < 0;
}
static int call_vm_writev(void) { return process_vm_writev(1, NULL, 0, NULL, 0, 0) < 0; }
static int call_bpf(void) { return syscall(SYS_bpf, 0, NULL, 0) < 0; }
static int call_perf(void) { return syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0) < 0; }
static int call_io_uring(void) { return syscall(SYS_io_uring_setup, 1, NULL) < 0; }
static int call_setuid(void) { return setuid(0) < 0; }
static int call_prctl(void) { return (int)syscall(SYS_prctl, 0) < 0; }
static int call_pidfd_getfd(void) { return syscall(SYS_pidfd_getfd, 0, 0, 0) < 0; }
static int call_ioctl(void) { return syscall(SYS_ioctl, 0, 0x5412, "x") < 0; }
static int call_mmap_exec(void) { return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED; }
static int call_mprotect_exec(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(p, 4096, PROT_READ | PROT_EXEC) < 0;
}
static int call_prlimit(void)
{
	struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };

	return setrlimit(RLIMIT_DATA, &r) < 0;
}

static const struct {
	const char *name;
	int (*fn)(void);
} forbidden[] = {
	{ "open", call_open },		  { "openat2", call_openat2 },	  { "creat", call_creat },
	{ "unlink", call_unlink },	  { "stat", call_stat },	  { "stat of a path", call_stat_path },
	{ "socket", call_socket },	  { "unix socket", call_socket_unix }, { "connect", call_connect },
	{ "execve", call_execve },	  { "fork", call_fork },	  { "vfork", call_vfork },
	{ "kill", call_kill },		  { "tgkill", call_tgkill },	  { "ptrace", call_ptrace },
	{ "process_vm_readv", call_vm_readv }, { "process_vm_writev", call_vm_writev },
	{ "bpf", call_bpf },		  { "perf_event_open", call_perf }, { "io_uring_setup", call_io_uring },
	{ "setuid", call_setuid },	  { "prctl", call_prctl },	  { "pidfd_getfd", call_pidfd_getfd },
	{ "ioctl", call_ioctl },	  { "mmap exec", call_mmap_exec }, { "mprotect exec", call_mprotect_exec },
	{ "setrlimit", call_prlimit },
};

static void every_forbidden_call_kills(void **state UNUSED)
{
	for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++) {
		int status = run_inside(SANDBOX_KILL, forbidden[i].fn);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("%s: status %x", forbidden[i].name, status);
	}
}

/* The same, logged: the process lives and the call fails. Its stderr is ours to read. */
static void the_log_mode_names_the_call_and_goes_on(void **state UNUSED)
{
	char text[256] = "";
	int pipefd[2], saved = dup(2), status;

	assert_int_equal(pipe(pipefd), 0);
	dup2(pipefd[1], 2);
	status = run_inside(SANDBOX_LOG, call_socket);
	dup2(saved, 2);
	close(saved);
	close(pipefd[1]);
	assert_true(read(pipefd[0], text, sizeof(text) - 1) > 0);
	close(pipefd[0]);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_non_null(strstr(text, "socket"));
}

/* ---- what must work ---- */

static int compare_bytes(const void *a, const void *b)
{
	return *(const char *)a - *(const char *)b;
}

static int do_memory(void)
{
	char *big = malloc(8 << 20), *p;

	if (!big)
		return 1;
	memset(big, 3, 8 << 20);
	qsort(big, 1 << 20, 1, compare_bytes);
	p = realloc(big, 32 << 20);
	free(p);
	return !p;
}

static int do_memfd(void)
{
	struct stat st;
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0 || write(fd, "hello", 5) != 5 || ftruncate(fd, 4096) < 0 || fstat(fd, &st) < 0 ||
	    st.st_size != 4096 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) < 0)
		return 1;
	p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	return p == MAP_FAILED || memcmp(p, "hello", 5) != 0 || madvise(p, 4096, MADV_DONTNEED) < 0 ||
	       munmap(p, 4096) < 0 || close(fd) < 0;
}

static int do_message(void)
{
	/* The parent's socket pair, as descriptors 100 and 101. */
	char c = 0;
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	return sendmsg(100, &m, MSG_NOSIGNAL) != 1 || recvmsg(101, &m, 0) != 1;
}

static void what_an_answer_needs_works(void **state UNUSED)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	assert_int_equal(dup2(pair[0], 100), 100);
	assert_int_equal(dup2(pair[1], 101), 101);
	assert_int_equal(run_inside(SANDBOX_KILL, do_memory), 0);
	assert_int_equal(run_inside(SANDBOX_KILL, do_memfd), 0);
	assert_int_equal(run_inside(SANDBOX_KILL, do_message), 0);
	close(100);
	close(101);
	close(pair[0]);
	close(pair[1]);
}

static int ask_too_much_memory(void)
{
	char *p = malloc((size_t)SANDBOX_DATA_MAX + (1 << 20));

	if (p)
		memset(p, 1, 1);
	return p == NULL;
}

static void memory_is_bounded(void **state UNUSED)
{
	int status = run_inside(SANDBOX_KILL, ask_too_much_memory);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_forbidden_call_kills),
		cmocka_unit_test(the_log_mode_names_the_call_and_goes_on),
		cmocka_unit_test(what_an_answer_needs_works),
		cmocka_unit_test(memory_is_bounded),
	};

#ifdef SANITIZED
	(void)tests;
	print_message("skipped: the sanitizer's runtime does not run in the sandbox\n");
	return 0;
#else
	return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
