#include "agent/limits.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "agent/engine.h"
#include "base/log.h"

/* Before Linux 5.11 BPF maps count against it; libbpf raises it too, but when root is left behind. */
static void raise_locked_memory(void)
{
	const struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };

	(void)setrlimit(RLIMIT_MEMLOCK, &l); /* without the right, the sampler says what is missing */
}

int limits_raise_files(void)
{
	uint64_t needed = engine_files_needed((uint32_t)get_nprocs()) + 64;
	struct rlimit l;

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
	log_error("the limit of open files is too low: raise it (ulimit -Hn, LimitNOFILE=) limit=%llu needed=%llu",
		  (unsigned long long)l.rlim_cur, (unsigned long long)needed);
	return -EMFILE;
}
