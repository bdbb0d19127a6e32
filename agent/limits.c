#include "agent/limits.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "agent/engine.h"
#include "agent/refusal.h"
#include "base/log.h"

/* Before Linux 5.11 BPF maps count against it; libbpf raises it too, but when root is left behind. */
static void raise_locked_memory(void)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };

	if (setrlimit(RLIMIT_MEMLOCK, &l) == 0 || getrlimit(RLIMIT_MEMLOCK, &l))
		return;
	/* Without CAP_SYS_RESOURCE up to the hard limit. Where that is too low, the sampler says so. */
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &l);
}

/* Source: PROC_PID_INIT_INO, include/linux/proc_ns.h: the inode of the first pid namespace. */
#define FIRST_PID_NAMESPACE "pid:[4026531836]"

/* The kernel tells pids of the host, /proc those of our own namespace. */
static void warn_of_pid_namespace(void)
{
	char name[64] = "";

	if (readlink("/proc/self/ns/pid", name, sizeof(name) - 1) < 0 || strcmp(name, FIRST_PID_NAMESPACE) == 0)
		return;
	log_warning("this is a pid namespace of its own: the host's processes are not in /proc, their stacks cannot be "
		    "followed; run flamed in the host's (hostPID: true, --pid=host)");
}

int limits_settle(const char **ret_why)
{
	uint64_t needed = engine_files_needed((uint32_t)get_nprocs()) + 64;
	struct rlimit l;

	warn_of_pid_namespace();
	raise_locked_memory();
	if (getrlimit(RLIMIT_NOFILE, &l))
		return -errno;
	if (l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &l))
			return -errno;
	}
	if (l.rlim_cur >= needed)
		return 0;
	*ret_why = refusal("the limit of open files is too low: raise it (ulimit -Hn, LimitNOFILE=) limit=%llu needed=%llu",
			   (unsigned long long)l.rlim_cur, (unsigned long long)needed);
	return -EMFILE;
}
