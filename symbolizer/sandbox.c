#include "symbolizer/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "base/box.h"
#include "base/log.h"

#define ADDRESS_SPACE_MAX (72ull << 30) /* four open files of the largest size we map */

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED true
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED false
#endif

static int limit_resources(void)
{
	static const struct box_limit limits[] = {
		{ RLIMIT_AS, ADDRESS_SPACE_MAX },      { RLIMIT_DATA, SANDBOX_DATA_MAX },
		{ RLIMIT_FSIZE, SANDBOX_FSIZE_MAX },   { RLIMIT_NOFILE, SANDBOX_NOFILE },
		{ RLIMIT_CORE, 0 },		       { RLIMIT_NPROC, 0 },
		{ RLIMIT_MEMLOCK, 0 },		       { RLIMIT_MSGQUEUE, 0 },
	};

	return box_limit(limits, ARRAY_SIZE(limits));
}

/* Kernels without Landlock: seccomp alone keeps files away. */
static int forbid_files(void)
{
	/* ABI 1 (Linux 5.13): everything up to LANDLOCK_ACCESS_FS_MAKE_SYM. */
	struct landlock_ruleset_attr attr = {
		.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1,
	};
	CLEANUP_FD int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	if (fd < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
	return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

/* Each group with the reason why it is here; what is not here kills. */
static const int permitted[] = {
	/* the channel and descriptors it brings */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(getsockopt),
	SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(lseek), SCMP_SYS(close), SCMP_SYS(fstat), SCMP_SYS(fstatfs), SCMP_SYS(fcntl),
	/* large answers, lines on stderr */
	SCMP_SYS(memfd_create), SCMP_SYS(ftruncate), SCMP_SYS(write), SCMP_SYS(writev),
	/* memory; mmap and mprotect are below */
	SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk),
	/* libc: malloc's tcache key, qsort's look at the size of memory, stdio, assert */
	SCMP_SYS(getrandom), SCMP_SYS(sysinfo), SCMP_SYS(futex), SCMP_SYS(clock_gettime), SCMP_SYS(getpid),
	SCMP_SYS(gettid), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
};

static void on_forbidden(int signo UNUSED, siginfo_t *info, void *context)
{
	char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, info->si_syscall);

	log_error("sandbox forbids call=%s number=%d", name ? name : "?", info->si_syscall);
	free(name);
#ifdef __x86_64__
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
	(void)context;
#endif
}

static void seccomp_freep(scmp_filter_ctx *ctx)
{
	if (*ctx)
		seccomp_release(*ctx);
}

static int add_rules(scmp_filter_ctx ctx)
{
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(permitted) && !err; i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, permitted[i], 0);
	if (err)
		return err;
	err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (err)
		return err;
	err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
			       SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (err)
		return err;
	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
				SCMP_A3(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH));
}

static int filter_calls(enum sandbox_mode mode)
{
	CLEANUP(seccomp_freep) scmp_filter_ctx ctx = NULL;
	struct sigaction sa = { .sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO };
	int err;

	if (mode == SANDBOX_LOG && sigaction(SIGSYS, &sa, NULL) < 0)
		return -errno;
	ctx = seccomp_init(mode == SANDBOX_LOG ? SCMP_ACT_TRAP : SCMP_ACT_KILL_PROCESS);
	if (!ctx)
		return -ENOMEM;
	err = add_rules(ctx);
	return err ? err : seccomp_load(ctx);
}

int sandbox_enter(enum sandbox_mode mode)
{
	int err;

	err = box_drop_privileges();
	if (!err && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		err = -errno;
	if (err || IS_SANITIZED)
		return err;
	err = limit_resources();
	if (err)
		return err;
	err = forbid_files();
	if (err)
		return err;
	return filter_calls(mode);
}
