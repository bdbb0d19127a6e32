#include "agent/refusal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "agent/rights.h"

const char *refusal(const char *fmt, ...)
{
	static char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

/* ---- what can be seen ---- */

static bool file_says(const char *path, const char *words)
{
	char text[4096];
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	text[MAX(n, (ssize_t)0)] = '\0';
	return strstr(text, words);
}

/* A container's, a service manager's; it may have nothing to do with us. */
static bool has_seccomp_filter(void)
{
	return file_says("/proc/self/status", "\nSeccomp:\t2\n");
}

static bool is_refusal(int err)
{
	return err == -EPERM || err == -EACCES || err == -ENOSYS;
}

/* A command that there is not: -EINVAL comes from the kernel's bpf(2), anything else from in front of it. */
static int try_bpf(void)
{
	union bpf_attr attr = {};

	return syscall(SYS_bpf, INT32_MAX, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

/* The same with flags that there are not, which the kernel looks at first. */
static int try_perf(void)
{
	return syscall(SYS_perf_event_open, NULL, 0, -1, -1, ~0ul) < 0 ? -errno : 0;
}

static bool can_open_an_event(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
					.config = PERF_COUNT_SW_DUMMY, .disabled = 1 };
	CLEANUP_FD int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd >= 0;
}

static const char *why_filtered(const char *call)
{
	return refusal("a seccomp filter refuses %s(2): allow bpf and perf_event_open in the profile of the container "
		       "(--security-opt seccomp=unconfined) or service (SystemCallFilter=)", call);
}

static const char *why_module(const char *call)
{
	return refusal("a security module of this kernel (SELinux, AppArmor, BPF) refuses %s(2): allow it for flamed, "
		       "the audit log says what was denied", call);
}

static const char *why_missing(uint64_t caps)
{
	return refusal("missing %s: run as root, or with CAP_BPF and CAP_PERFMON", rights_text(caps));
}

static uint64_t missing_caps(uint64_t wanted)
{
	return rights_hold(1ull << CAP_SYS_ADMIN) ? 0 : wanted & ~rights_held();
}

/* ---- bpf(2) ---- */

const char *refusal_of_bpf(void)
{
	uint64_t missing = missing_caps(1ull << CAP_BPF);
	int err = try_bpf();

	if (!is_refusal(err))
		return NULL;
	if (err != -ENOSYS && missing)
		return why_missing(missing);
	if (has_seccomp_filter())
		return why_filtered("bpf");
	if (err == -ENOSYS)
		return "this kernel has no bpf(2): it must be built with CONFIG_BPF_SYSCALL=y";
	return why_module("bpf");
}

#define LOCKDOWN "/sys/kernel/security/lockdown"

const char *refusal_of_lockdown(void)
{
	if (!file_says(LOCKDOWN, "[confidentiality]"))
		return NULL;
	return "the kernel is locked down for confidentiality, BPF programs may not read its memory: boot with "
	       "lockdown=integrity or without (/sys/kernel/security/lockdown)";
}

const char *refusal_bpf(int err, size_t locked_bytes)
{
	uint64_t missing = missing_caps(1ull << CAP_BPF | 1ull << CAP_PERFMON);
	struct utsname u = {};
	struct rlimit l = {};

	(void)uname(&u);
	(void)getrlimit(RLIMIT_MEMLOCK, &l);
	if (is_refusal(err) && missing)
		return why_missing(missing);
	if (err == -EPERM && locked_bytes && l.rlim_cur != RLIM_INFINITY)
		return refusal("RLIMIT_MEMLOCK is too small, in which this kernel counts BPF memory (not from Linux 5.11 on): "
			       "raise it (LimitMEMLOCK=infinity, ulimit -l unlimited) limit=%llu needed=%zu",
			       (unsigned long long)l.rlim_cur, locked_bytes);
	if (err == -EPERM && has_seccomp_filter())
		return why_filtered("bpf");
	if (err == -EPERM)
		return why_module("bpf");
	if (err == -ENOMEM)
		return "no memory for the BPF program and its ring buffer";
	return refusal("the kernel (Linux %s) refuses the BPF program: %s; %swith log level debug its reasons are logged",
		       u.release, strerror(-err), access(LOCKDOWN, R_OK) == 0 ? "" :
		       "it may be locked down for confidentiality; ");
}

/* ---- perf_event_open(2) ---- */

const char *refusal_of_perf(void)
{
	int err = try_perf();

	if (!is_refusal(err))
		return NULL;
	if (has_seccomp_filter())
		return why_filtered("perf_event_open");
	if (err == -ENOSYS)
		return "this kernel has no perf events: it must be built with CONFIG_PERF_EVENTS=y";
	return why_module("perf_event_open");
}

static const char *why_not_permitted(void)
{
	uint64_t missing = missing_caps(1ull << CAP_PERFMON);
	const char *why = refusal_of_perf();

	if (why)
		return why;
	if (missing)
		return why_missing(missing);
	if (rights_paranoid() > 2 && !rights_hold(1ull << CAP_SYS_ADMIN))
		return refusal("kernel.perf_event_paranoid is %ld: above 2 the kernels of Debian and Ubuntu refuse perf events "
			       "to CAP_PERFMON alone: sysctl kernel.perf_event_paranoid=2, or add CAP_SYS_ADMIN",
			       rights_paranoid());
	if (can_open_an_event())
		return "the rings of perf events are more than this user may lock: raise kernel.perf_event_mlock_kb, or "
		       "RLIMIT_MEMLOCK (LimitMEMLOCK=infinity, ulimit -l unlimited)";
	return why_module("perf_event_open");
}

const char *refusal_perf(int err, int cpu)
{
	if (is_refusal(err))
		return why_not_permitted();
	if (err == -EMFILE || err == -ENFILE)
		return "too many open files: each CPU needs three, raise RLIMIT_NOFILE (LimitNOFILE=, ulimit -n)";
	if (err == -ENOMEM)
		return "no memory for the rings of perf events";
	if (cpu >= 0)
		return refusal("perf_event_open(2) fails on CPU %d: %s", cpu, strerror(-err));
	return refusal("perf_event_open(2) fails: %s", strerror(-err));
}
