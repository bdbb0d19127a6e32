#include "exporter/sandbox_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* A call with its arguments as they must be; A1..A2 of seccomp(3). */
struct rule {
	int call;
	unsigned int nargs;
	struct scmp_arg_cmp args[2];
};

static int add_calls(scmp_filter_ctx filter, const int *calls, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
	return err;
}

static int add_rules(scmp_filter_ctx filter, uint32_t action, const struct rule *rules, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = seccomp_rule_add_array(filter, action, rules[i].call, rules[i].nargs,
					     rules[i].args);
	return err;
}

/* clang-format off */

/* What every exporter does. */
static int allow_common(scmp_filter_ctx filter)
{
	static const int calls[] = {
		/* the channel and the output */
		SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(recvmsg),
		SCMP_SYS(sendmsg), SCMP_SYS(getsockopt), SCMP_SYS(poll), SCMP_SYS(ppoll),
		SCMP_SYS(fstat), SCMP_SYS(fstatfs), SCMP_SYS(lseek), SCMP_SYS(ftruncate),
		SCMP_SYS(close), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
		/* memory */
		SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
		SCMP_SYS(getrandom), SCMP_SYS(futex),
		/* time, signals (glibc 2.41's getrandom(3) blocks them), the end */
		SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(time),
		SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
		SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
	};
	static const struct rule rules[] = {
		{ SCMP_SYS(mmap), 1, { SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) } },
		{ SCMP_SYS(mprotect), 1, { SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) } },
		{ SCMP_SYS(fcntl), 1, { SCMP_A1_64(SCMP_CMP_EQ, F_GET_SEALS) } },
	};
	int err = add_calls(filter, calls, ARRAY_SIZE(calls));

	return err ? err : add_rules(filter, SCMP_ACT_ALLOW, rules, ARRAY_SIZE(rules));
}

static int allow_record(scmp_filter_ctx filter)
{
	static const struct rule rules[] = {
		/* glibc's fstat() is newfstatat(fd, "", ..., AT_EMPTY_PATH). */
		{ SCMP_SYS(newfstatat), 1, { SCMP_A3_64(SCMP_CMP_EQ, AT_EMPTY_PATH) } },
	};

	return add_rules(filter, SCMP_ACT_ALLOW, rules, ARRAY_SIZE(rules));
}

/* libcurl, OpenSSL, glibc's resolver and threads, libmicrohttpd. */
static int allow_network(scmp_filter_ctx filter)
{
	static const int calls[] = {
		SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(accept), SCMP_SYS(accept4),
		SCMP_SYS(shutdown), SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(setsockopt),
		SCMP_SYS(sendto), SCMP_SYS(recvfrom), SCMP_SYS(sendmmsg), SCMP_SYS(recvmmsg),
		SCMP_SYS(sendfile), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(preadv),
		SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_pwait2),
		SCMP_SYS(eventfd2), SCMP_SYS(pipe2),
		/* what is read: Landlock says where */
		SCMP_SYS(newfstatat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(statx), SCMP_SYS(access),
		SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
		SCMP_SYS(getdents64), SCMP_SYS(getcwd),
		/* threads */
		SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity),
		SCMP_SYS(gettid), SCMP_SYS(rt_sigaction), SCMP_SYS(sigaltstack), SCMP_SYS(membarrier),
		/* who and where we are */
		SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
		SCMP_SYS(getegid), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getcpu),
		SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
		SCMP_SYS(getrusage), SCMP_SYS(times),
	};
	static const struct rule rules[] = {
		{ SCMP_SYS(socket), 1, { SCMP_A0_64(SCMP_CMP_EQ, AF_INET) } },
		{ SCMP_SYS(socket), 1, { SCMP_A0_64(SCMP_CMP_EQ, AF_INET6) } },
		{ SCMP_SYS(socket), 1, { SCMP_A0_64(SCMP_CMP_EQ, AF_UNIX) } },
		{ SCMP_SYS(socket), 2, { SCMP_A0_64(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2_64(SCMP_CMP_EQ, NETLINK_ROUTE) } },
		{ SCMP_SYS(socketpair), 1, { SCMP_A0_64(SCMP_CMP_EQ, AF_UNIX) } },
		/* Threads and no processes, in no namespace of their own. */
		{ SCMP_SYS(clone), 1, { SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_NEWNS | CLONE_NEWUSER |
			CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP, CLONE_THREAD) } },
		{ SCMP_SYS(openat), 1, { SCMP_A2_64(SCMP_CMP_MASKED_EQ,
			O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY), O_RDONLY) } },
		{ SCMP_SYS(fcntl), 1, { SCMP_A1_64(SCMP_CMP_EQ, F_GETFD) } },
		{ SCMP_SYS(fcntl), 1, { SCMP_A1_64(SCMP_CMP_EQ, F_SETFD) } },
		{ SCMP_SYS(fcntl), 1, { SCMP_A1_64(SCMP_CMP_EQ, F_GETFL) } },
		{ SCMP_SYS(fcntl), 2, { SCMP_A1_64(SCMP_CMP_EQ, F_SETFL), SCMP_A2_64(SCMP_CMP_MASKED_EQ, O_ASYNC, 0) } },
		{ SCMP_SYS(fcntl), 1, { SCMP_A1_64(SCMP_CMP_EQ, F_DUPFD_CLOEXEC) } },
		{ SCMP_SYS(fcntl), 1, { SCMP_A1_64(SCMP_CMP_EQ, F_ADD_SEALS) } },
		{ SCMP_SYS(ioctl), 1, { SCMP_A1_64(SCMP_CMP_EQ, FIONREAD) } },
		{ SCMP_SYS(ioctl), 1, { SCMP_A1_64(SCMP_CMP_EQ, FIONBIO) } },
		{ SCMP_SYS(ioctl), 1, { SCMP_A1_64(SCMP_CMP_EQ, TCGETS) } },
		{ SCMP_SYS(prctl), 1, { SCMP_A0_64(SCMP_CMP_EQ, PR_SET_NAME) } },
		/* Reading a limit, of ourselves. */
		{ SCMP_SYS(prlimit64), 2, { SCMP_A0_64(SCMP_CMP_EQ, 0), SCMP_A2_64(SCMP_CMP_EQ, 0) } },
		/* A message over IPC_INLINE_MAX. */
		{ SCMP_SYS(memfd_create), 1, { SCMP_A1_64(SCMP_CMP_MASKED_EQ, MFD_ALLOW_SEALING, MFD_ALLOW_SEALING) } },
	};
	int err = add_calls(filter, calls, ARRAY_SIZE(calls));

	return err ? err : add_rules(filter, SCMP_ACT_ALLOW, rules, ARRAY_SIZE(rules));
}

/* What others' code tries, and does without when it is told that it cannot. */
static int refuse_kindly(scmp_filter_ctx filter)
{
	static const struct rule absent[] = {
		{ SCMP_SYS(clone3), 0, {} }, /* its flags are in memory; glibc goes on with clone */
	};
	static const struct rule denied[] = {
		/* A plug-in of the resolver that is loaded. */
		{ SCMP_SYS(mmap), 1, { SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC) } },
		{ SCMP_SYS(mprotect), 1, { SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC) } },
	};
	int err = add_rules(filter, SCMP_ACT_ERRNO(ENOSYS), absent, ARRAY_SIZE(absent));

	return err ? err : add_rules(filter, SCMP_ACT_ERRNO(EACCES), denied, ARRAY_SIZE(denied));
}

/* Only relative to this descriptor; that a path stays beneath it is Landlock's to see. */
static int allow_output_dir(scmp_filter_ctx filter, int fd)
{
	const uint64_t dir = (uint64_t)fd;
	const struct rule rules[] = {
		{ SCMP_SYS(openat), 1, { SCMP_A0_64(SCMP_CMP_EQ, dir) } },
		{ SCMP_SYS(unlinkat), 2, { SCMP_A0_64(SCMP_CMP_EQ, dir), SCMP_A2_64(SCMP_CMP_EQ, 0) } },
		{ SCMP_SYS(renameat), 2, { SCMP_A0_64(SCMP_CMP_EQ, dir), SCMP_A2_64(SCMP_CMP_EQ, dir) } },
		{ SCMP_SYS(renameat2), 2, { SCMP_A0_64(SCMP_CMP_EQ, dir), SCMP_A2_64(SCMP_CMP_EQ, dir) } },
		{ SCMP_SYS(fsync), 1, { SCMP_A0_64(SCMP_CMP_EQ, dir) } },
		{ SCMP_SYS(fdatasync), 0, {} },
		{ SCMP_SYS(sync_file_range), 0, {} },
	};

	return add_rules(filter, SCMP_ACT_ALLOW, rules, ARRAY_SIZE(rules));
}
/* clang-format on */

static int allow(scmp_filter_ctx filter, const struct sandbox_conf *conf)
{
	int err = allow_common(filter);

	if (err)
		return err;
	if (!conf->has_network)
		return allow_record(filter);
	err = allow_network(filter);
	if (!err)
		err = refuse_kindly(filter);
	if (!err && conf->output_dir_fd >= 0)
		err = allow_output_dir(filter, conf->output_dir_fd);
	return err;
}

int sandbox_filter(const struct sandbox_conf *conf)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int err;

	if (!filter)
		return -ENOMEM;
	err = allow(filter, conf);
	if (!err)
		err = seccomp_load(filter);
	seccomp_release(filter);
	return err;
}
