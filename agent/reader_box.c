#include "agent/reader_box.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>

static void filter_freep(scmp_filter_ctx *f)
{
	if (*f)
		seccomp_release(*f);
}

static int allow_plain(scmp_filter_ctx f)
{
	static const int calls[] = {
		/* what it is for */
		SCMP_SYS(openat2), SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(readlinkat),
		SCMP_SYS(readlink), SCMP_SYS(getdents64), SCMP_SYS(fstat), SCMP_SYS(newfstatat),
		SCMP_SYS(statx), SCMP_SYS(fstatfs), SCMP_SYS(lseek), SCMP_SYS(close),
		SCMP_SYS(process_vm_readv),
		/* the channel, and the memfds of large messages and of copies */
		SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(poll), SCMP_SYS(ppoll),
		SCMP_SYS(memfd_create), SCMP_SYS(ftruncate), SCMP_SYS(fcntl), SCMP_SYS(write),
		SCMP_SYS(writev),
		/* libc */
		SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(futex),
		SCMP_SYS(getrandom), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(clock_gettime),
		SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction),
		SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		int err = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);

		if (err)
			return err;
	}
	return 0;
}

/* Calls that are fine without these bits of one argument. */
static int allow_without(scmp_filter_ctx f, int call, unsigned int arg, uint64_t bits)
{
	struct scmp_arg_cmp none = SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, bits, 0);

	return seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 1, none);
}

int reader_box_enter(void)
{
	CLEANUP(filter_freep) scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	const uint64_t writing = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
	int err;

	if (!f)
		return -ENOMEM;
	err = allow_plain(f);
	if (!err)
		err = allow_without(f, SCMP_SYS(openat), 2, writing);
	if (!err)
		err = allow_without(f, SCMP_SYS(open), 1, writing);
	if (!err)
		err = allow_without(f, SCMP_SYS(open_by_handle_at), 2, writing);
	if (!err)
		err = allow_without(f, SCMP_SYS(mmap), 2, PROT_EXEC);
	if (!err)
		err = allow_without(f, SCMP_SYS(mprotect), 2, PROT_EXEC);
	return err ? err : seccomp_load(f); /* sets no_new_privs */
}
