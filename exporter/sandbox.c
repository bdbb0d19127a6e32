#include "exporter/sandbox.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum {
	/* A message, its tables (at most 4 times as much) and the compressed profile. */
	MEMORY_BYTES_MAX = 512 * 1024 * 1024,
	FDS_MAX = 16,
};

static int limit_resources(void)
{
	static const struct {
		__rlimit_resource_t resource;
		rlim_t max;
	} limits[] = {
		{ RLIMIT_CORE, 0 },
		{ RLIMIT_NPROC, 0 },
		{ RLIMIT_NOFILE, FDS_MAX },
		{ RLIMIT_AS, MEMORY_BYTES_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit now, next = { limits[i].max, limits[i].max };

		/* What is lower already stays. */
		if (getrlimit(limits[i].resource, &now))
			return -errno;
		next.rlim_max = MIN(next.rlim_max, now.rlim_max);
		next.rlim_cur = MIN(next.rlim_max, now.rlim_cur);
		if (setrlimit(limits[i].resource, &next))
			return -errno;
	}
	return 0;
}

static int drop_privileges(void)
{
	capng_select_t what = CAPNG_SELECT_CAPS;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		return -errno;
	if (capng_get_caps_process())
		return -EPERM;
	if (capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP))
		what = CAPNG_SELECT_BOTH;
	capng_clear(CAPNG_SELECT_BOTH);
	return capng_apply(what) ? -EPERM : 0;
}

static int allow(scmp_filter_ctx filter)
{
	/* clang-format off */
	static const int calls[] = {
		/* the channel and the output */
		SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(recvmsg),
		SCMP_SYS(sendmsg), SCMP_SYS(getsockopt), SCMP_SYS(poll), SCMP_SYS(ppoll),
		SCMP_SYS(fstat), SCMP_SYS(fstatfs), SCMP_SYS(lseek), SCMP_SYS(ftruncate),
		SCMP_SYS(close),
		/* memory */
		SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
		SCMP_SYS(getrandom), SCMP_SYS(futex),
		/* time, signals (glibc 2.41's getrandom(3) blocks them), the end */
		SCMP_SYS(clock_gettime), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
		SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
	};
	/* clang-format on */
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(calls) && !err; i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
	if (!err)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				       SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (!err)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				       SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (!err)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				       SCMP_A1(SCMP_CMP_EQ, F_GET_SEALS));
	/* glibc's fstat() is newfstatat(fd, "", ..., AT_EMPTY_PATH). */
	if (!err)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
				       SCMP_A3(SCMP_CMP_EQ, AT_EMPTY_PATH));
	return err;
}

static int filter_calls(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int err;

	if (!filter)
		return -ENOMEM;
	err = allow(filter);
	if (!err)
		err = seccomp_load(filter);
	seccomp_release(filter);
	return err;
}

int sandbox_enter(void)
{
	int err;

	err = drop_privileges();
	if (err || !SANDBOX_IS_WHOLE)
		return err;
	err = limit_resources();
	if (err)
		return err;
	/* Others of our uid, which may be nobody's, must not look in. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	return filter_calls();
}
