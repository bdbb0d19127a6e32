#include "agent/refusal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

const char *refusal(const char *fmt, ...)
{
	static char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

static bool kernel_is_older_than(int major, int minor)
{
	struct utsname u;
	int a = 0, b = 0;

	if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &a, &b) != 2)
		return false;
	return a < major || (a == major && b < minor);
}

const char *refusal_bpf(int err)
{
	struct utsname u = {};

	(void)uname(&u);
	if (err == -EPERM && kernel_is_older_than(5, 11))
		return "loading the BPF program is not permitted: run as root or with CAP_BPF and "
		       "CAP_PERFMON, and with an unlimited RLIMIT_MEMLOCK (LimitMEMLOCK=infinity, ulimit -l)";
	if (err == -EPERM || err == -EACCES)
		return "loading the BPF program is not permitted: run as root or with CAP_BPF and "
		       "CAP_PERFMON; in a container the seccomp profile must allow bpf(2)";
	if (kernel_is_older_than(5, 10))
		return refusal("Linux %s is too old: flamed needs 5.10 or newer with BTF", u.release);
	if (err == -ENOMEM)
		return "no memory for the BPF program and its ring buffer";
	return refusal("the kernel (Linux %s) refuses the BPF program: %s; is it locked down for confidentiality? "
		   "With log level debug its reasons are logged", u.release, strerror(-err));
}

const char *refusal_perf(int err, uint32_t cpu)
{
	if (err == -EPERM || err == -EACCES)
		return "perf_event_open(2) is not permitted: run as root or with CAP_PERFMON (without it "
		       "kernel.perf_event_paranoid would have to be 0 or less); Debian's kernels want it to be "
		       "at most 2 all the same (sysctl kernel.perf_event_paranoid=2); in a container the seccomp "
		       "profile must allow it";
	if (err == -EMFILE || err == -ENFILE)
		return "too many open files: each CPU needs three, raise RLIMIT_NOFILE (LimitNOFILE=, ulimit -n)";
	return refusal("cannot sample CPU %u: %s", cpu, strerror(-err));
}
