/*
 * user UID CAPABILITIES COMMAND ARGS...: runs the command as that user with these capabilities ("none",
 * or a list such as bpf,perfmon), as a service manager gives them. For systems without a full setpriv.
 */
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

static const struct {
	const char *name;
	unsigned int cap;
} known[] = {
	{ "bpf", 39 }, { "perfmon", 38 }, { "syslog", 34 }, { "sys_ptrace", 19 }, { "dac_read_search", 2 },
	{ "checkpoint_restore", 40 }, { "sys_admin", 21 },
};

/* The bits of the list; 0 where it names what we do not know. */
static uint64_t parse(char *list)
{
	uint64_t caps = 0;
	char *word;

	while ((word = strsep(&list, ","))) {
		size_t i = 0;

		while (i < sizeof(known) / sizeof(known[0]) && strcmp(known[i].name, word) != 0)
			i++;
		if (i == sizeof(known) / sizeof(known[0]))
			return 0;
		caps |= 1ull << known[i].cap;
	}
	return caps;
}

static int become(unsigned int uid, uint64_t caps)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	for (int i = 0; i < 2; i++) {
		uint32_t half = (uint32_t)(caps >> (32 * i));

		d[i] = (struct __user_cap_data_struct){ half, half, half };
	}
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(uid, uid, uid) ||
	    setresuid(uid, uid, uid) || syscall(SYS_capset, &h, d))
		return -1;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (caps & 1ull << cap && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0))
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t caps = argc > 3 ? parse(argv[2]) : 0;

	if (!caps && (argc <= 3 || strcmp(argv[2], "none") != 0)) {
		fprintf(stderr, "usage: user UID none|CAPABILITY,... COMMAND ARGS...\n");
		return 64;
	}
	if (become((unsigned int)atoi(argv[1]), caps)) {
		perror("user");
		return 70;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 71;
}
