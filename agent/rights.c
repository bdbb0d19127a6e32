#include "agent/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { NOBODY = 65534 };

#define X(cap) | 1ull << CAP_##cap
uint64_t rights_agent_caps(void)
{
	return 0 RIGHTS_AGENT(X);
}

uint64_t rights_reader_caps(void)
{
	return 0 RIGHTS_READER(X);
}
#undef X

uint64_t rights_reader_start_caps(void)
{
	return rights_reader_caps() | 1ull << CAP_PERFMON;
}

long rights_paranoid(void)
{
	char text[16] = "";
	CLEANUP_FD int fd = open("/proc/sys/kernel/perf_event_paranoid", O_RDONLY | O_CLOEXEC);

	return fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ? 2 : strtol(text, NULL, 10);
}

uint64_t rights_start_caps(void)
{
	return rights_paranoid() > 2 ? 1ull << CAP_SYS_ADMIN : 0;
}

static const char *cap_name(unsigned int cap)
{
	switch (cap) {
	case CAP_SYS_ADMIN:
		return "cap_sys_admin";
	case CAP_SETUID:
		return "cap_setuid";
	case CAP_SETGID:
		return "cap_setgid";
	case CAP_BPF:
		return "cap_bpf";
	case CAP_PERFMON:
		return "cap_perfmon";
	case CAP_SYSLOG:
		return "cap_syslog";
	case CAP_SYS_PTRACE:
		return "cap_sys_ptrace";
	case CAP_DAC_READ_SEARCH:
		return "cap_dac_read_search";
	case CAP_CHECKPOINT_RESTORE:
		return "cap_checkpoint_restore";
	default:
		return NULL;
	}
}

const char *rights_text(uint64_t caps)
{
	static char text[1024];
	size_t n = 0;

	text[0] = 0;
	for (unsigned int cap = 0; cap < 64; cap++) {
		const char *name = cap_name(cap);

		if (!(caps & 1ull << cap))
			continue;
		if (name)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? "," : "", name);
		else
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%scap_%u", n ? "," : "", cap);
	}
	return text;
}

const char *rights_loss(uint64_t caps)
{
	static const struct {
		unsigned int cap;
		const char *text;
	} losses[] = {
		{ CAP_SYS_PTRACE, "processes of other users cannot be looked at, almost none of their stacks is "
				  "complete or has names" },
		{ CAP_DAC_READ_SEARCH, "files that not everybody may read stay closed, so stacks through such programs "
				       "break off, and password files need the right owner" },
		{ CAP_CHECKPOINT_RESTORE, "programs that were deleted or replaced while they run cannot be read, stacks "
					  "through them break off" },
	};
	static char text[1024];
	size_t n = 0;

	text[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
		if (caps & 1ull << losses[i].cap)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s: %s", n ? "; " : "",
					      cap_name(losses[i].cap), losses[i].text);
	}
	return text;
}

/* ---- capability sets ------------------------------------------------------------------------- */

struct caps {
	uint64_t effective, permitted, inheritable;
};

static int caps_get(struct caps *ret)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return -errno;
	ret->effective = d[0].effective | (uint64_t)d[1].effective << 32;
	ret->permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	ret->inheritable = d[0].inheritable | (uint64_t)d[1].inheritable << 32;
	return 0;
}

static int caps_set(const struct caps *c)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = {
		{ (uint32_t)c->effective, (uint32_t)c->permitted, (uint32_t)c->inheritable },
		{ (uint32_t)(c->effective >> 32), (uint32_t)(c->permitted >> 32),
		  (uint32_t)(c->inheritable >> 32) },
	};

	return syscall(SYS_capset, &h, d) ? -errno : 0;
}

uint64_t rights_held(void)
{
	struct caps c;

	return caps_get(&c) ? 0 : c.effective;
}

static int clear_ambient(void)
{
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) ? -errno : 0;
}

/* Without CAP_SETPCAP the bounding set stays: no_new_privs keeps the children from using it. */
static int trim_bounding(uint64_t keep)
{
	for (unsigned int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		if (!(keep & 1ull << cap) && prctl(PR_CAPBSET_DROP, cap) && errno != EPERM)
			return -errno;
	}
	return 0;
}

/* uid 0 and set-user-ID programs give nothing any more, to us and to whatever we exec. */
static int lock_securebits(void)
{
	const unsigned long now = (unsigned long)prctl(PR_GET_SECUREBITS);
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED;

	if (prctl(PR_SET_SECUREBITS, (now & ~(unsigned long)SECBIT_KEEP_CAPS) | bits) && errno != EPERM)
		return -errno;
	return 0;
}

/* ---- the steps down -------------------------------------------------------------------------- */

/* Source: PROC_USER_INIT_INO, include/linux/proc_ns.h: the inode of the first user namespace. */
#define FIRST_USER_NAMESPACE "user:[4026531837]"

static bool is_in_user_namespace(void)
{
	char name[64] = "";

	return readlink("/proc/self/ns/user", name, sizeof(name) - 1) > 0 && strcmp(name, FIRST_USER_NAMESPACE) != 0;
}

/* Before 5.8 there is no capability 39: asking for one that is unknown is an error. */
static bool kernel_knows(unsigned int cap)
{
	return prctl(PR_CAPBSET_READ, cap) >= 0;
}

static int refuse(uint64_t missing, bool is_root, const char **ret_why)
{
	static char why[1400];
	char names[512];

	snprintf(names, sizeof(names), "%s", rights_text(missing));
	if (!kernel_knows(CAP_BPF))
		snprintf(why, sizeof(why), "this kernel does not know %s, which came with Linux 5.8: flamed needs Linux "
			 "5.10 or newer", rights_text(1ull << CAP_BPF | 1ull << CAP_PERFMON));
	else if (is_root)
		snprintf(why, sizeof(why), "missing %s: this root was not given it; add it to what the "
			 "container or service may do", names);
	else
		snprintf(why, sizeof(why), "missing %s: run as root, or give the program what it needs "
			 "(setcap %s+ep)", names, rights_text(rights_agent_caps() | rights_reader_caps()));
	*ret_why = why;
	return -EPERM;
}

void rights_user(uid_t *ret_uid, gid_t *ret_gid)
{
	const struct passwd *pw = NULL;

	*ret_uid = geteuid();
	*ret_gid = getegid();
	if (geteuid() != 0 && getuid() != 0)
		return;
	pw = getpwnam("flamed");
	if (!pw || !pw->pw_uid)
		pw = getpwnam("nobody");
	*ret_uid = pw && pw->pw_uid ? pw->pw_uid : NOBODY;
	*ret_gid = pw && pw->pw_uid ? pw->pw_gid : NOBODY;
}

static int leave_uid_0(const char **ret_why)
{
	uid_t uid;
	gid_t gid;

	rights_user(&uid, &gid);
	*ret_why = "cannot become the user flamed or nobody";
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
		return -errno;
	if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		return -errno;
	return 0;
}

/* From here on `permitted` is all that there ever is. */
static int settle(uint64_t permitted)
{
	struct caps c = {};
	int err = caps_get(&c);

	if (err)
		return err;
	/* Leaving uid 0 cleared the effective set; the next two steps need CAP_SETPCAP if we have it. */
	c.effective = c.permitted;
	err = caps_set(&c);
	if (err)
		return err;
	if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0))
		return -errno;
	err = trim_bounding(permitted);
	if (err)
		return err;
	err = lock_securebits();
	if (err)
		return err;
	err = clear_ambient();
	if (err)
		return err;
	c.permitted = permitted;
	c.effective = permitted & (rights_agent_caps() | rights_start_caps());
	c.inheritable = permitted & (rights_reader_start_caps() | rights_start_caps());
	return caps_set(&c);
}

int rights_leave_root(uint64_t *ret_missing, const char **ret_why)
{
	const uint64_t wanted = rights_agent_caps() | rights_reader_caps();
	const bool is_root = geteuid() == 0 || getuid() == 0;
	const char *why = "cannot read this process's capabilities";
	uint64_t needed = rights_agent_caps();
	struct caps c;
	int err;

	if (is_in_user_namespace()) {
		*ret_why = "this is a user namespace of its own, whose capabilities allow neither BPF nor perf events: run "
			   "flamed as root of the host (not rootless; hostUsers: true, without --userns, PrivateUsers=no)";
		return -EPERM;
	}
	err = caps_get(&c);
	if (!err) {
		if (is_root)
			needed |= 1ull << CAP_SETUID | 1ull << CAP_SETGID;
		if (needed & ~c.permitted)
			return refuse(needed & ~c.permitted, is_root, ret_why);
		why = "cannot use this process's capabilities";
		c.effective |= needed;
		err = caps_set(&c);
	}
	if (!err && is_root)
		err = leave_uid_0(&why);
	if (!err) {
		why = "cannot give up capabilities";
		err = settle(c.permitted & (wanted | rights_start_caps()));
	}
	/* No core file and no debugger of the same user; a change of user alone may allow both. */
	if (!err && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		err = -errno;
	if (err) {
		*ret_why = why;
		return err;
	}
	*ret_missing = wanted & ~c.permitted;
	return 0;
}

int rights_drop(int capability)
{
	const uint64_t bit = 1ull << capability;
	struct caps c;
	int err = caps_get(&c);

	if (err)
		return err;
	if (prctl(PR_CAPBSET_DROP, capability) && errno != EPERM)
		return -errno;
	/* The kernel takes what is not permitted and inheritable out of the ambient set. */
	c.effective &= ~bit;
	c.permitted &= ~bit;
	c.inheritable &= ~bit;
	return caps_set(&c);
}

int rights_started(void)
{
	return rights_drop(CAP_SYS_ADMIN);
}
