#include "agent/rights.h"

#include "base/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

static uint64_t status_caps(const char *key)
{
	FILE *f = fopen("/proc/thread-self/status", "re");
	char line[256];
	uint64_t caps = UINT64_MAX;

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)) == 0)
			caps = strtoull(line + strlen(key) + 1, NULL, 16);
	}
	if (f)
		fclose(f);
	return caps;
}

static void set_caps(uint64_t permitted, uint64_t inheritable)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	for (unsigned int i = 0; i < 2; i++) {
		uint32_t half = (uint32_t)(permitted >> (32 * i));

		d[i] = (struct __user_cap_data_struct){ half, half, (uint32_t)(inheritable >> (32 * i)) };
	}
	if (syscall(SYS_capset, &h, d))
		_exit(99);
}

/* Runs `body` in a child; it returns 0, or the line at which something was wrong. */
static void in_child(int (*body)(void))
{
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(body());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("child ended with status %#x, line %d modulo 256", status, WEXITSTATUS(status));
}

#define CHECK(cond)                      \
	do {                             \
		if (!(cond))             \
			return __LINE__ & 255 ? __LINE__ & 255 : 1; \
	} while (0)

static uint64_t six(void)
{
	return rights_agent_caps() | rights_reader_caps();
}

/* What must hold of the agent whichever way it came. */
static int check_settled(uint64_t permitted)
{
	CHECK(status_caps("CapPrm:") == permitted);
	CHECK(status_caps("CapEff:") == (permitted & rights_agent_caps()));
	CHECK(status_caps("CapInh:") == (permitted & rights_reader_start_caps()));
	CHECK(status_caps("CapAmb:") == 0);
	CHECK(prctl(PR_GET_DUMPABLE) == 0);
	CHECK(prctl(PR_GET_KEEPCAPS) == 0);
	CHECK(getuid() != 0 && geteuid() != 0 && getgid() != 0 && getegid() != 0);
	CHECK(setresuid(0, 0, 0) && errno == EPERM);
	return 0;
}

static int leave_from_root(void)
{
	const long locked = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
			    SECBIT_KEEP_CAPS_LOCKED;
	uint64_t missing = 77;
	const char *why = "";

	CHECK(rights_leave_root(&missing, &why) == 0);
	CHECK(missing == 0);
	CHECK(getgroups(0, NULL) == 0);
	CHECK(status_caps("CapBnd:") == six());
	CHECK((prctl(PR_GET_SECUREBITS) & locked) == locked);
	return check_settled(six());
}

static void from_root_six_capabilities_are_left_and_three_are_effective(void **state UNUSED)
{
	in_child(leave_from_root);
}

/* As with file capabilities, or ambient ones from a service manager. */
static int become_plain_user(uint64_t caps, bool ambient)
{
	CHECK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0);
	CHECK(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
	CHECK(prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) == 0);
	set_caps(caps, caps);
	for (int cap = 0; ambient && cap < 64; cap++) {
		if (caps & 1ull << cap)
			CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) == 0);
	}
	return 0;
}

static int leave_from_plain_user(void)
{
	uint64_t missing = 77;
	const char *why = "";
	int line = become_plain_user(six(), true);

	if (line)
		return line;
	CHECK(rights_leave_root(&missing, &why) == 0);
	CHECK(missing == 0);
	CHECK(getuid() == 1000);
	return check_settled(six());
}

static void from_a_plain_user_with_the_capabilities_it_is_the_same(void **state UNUSED)
{
	in_child(leave_from_plain_user);
}

static int leave_without_bpf(void)
{
	uint64_t missing = 77;
	const char *why = "";

	set_caps(status_caps("CapPrm:") & ~(1ull << CAP_BPF), 0);
	CHECK(rights_leave_root(&missing, &why) == -EPERM);
	CHECK(strstr(why, "missing cap_bpf:") && strstr(why, "root"));
	CHECK(missing == 77);
	CHECK(geteuid() == 0);
	return 0;
}

static void a_missing_capability_is_named_and_nothing_has_changed(void **state UNUSED)
{
	in_child(leave_without_bpf);
}

static int leave_as_nobody_without_any(void)
{
	uint64_t missing;
	const char *why = "";

	CHECK(setresuid(1000, 1000, 1000) == 0);
	CHECK(rights_leave_root(&missing, &why) == -EPERM);
	CHECK(strstr(why, "missing cap_syslog,cap_perfmon,cap_bpf:"));
	CHECK(!strchr(why, '\n'));
	return 0;
}

static void a_plain_user_without_capabilities_is_told_what_is_needed(void **state UNUSED)
{
	in_child(leave_as_nobody_without_any);
}

static int leave_as_root_that_cannot_leave(void)
{
	uint64_t missing;
	const char *why = "";

	set_caps(six(), 0);
	CHECK(rights_leave_root(&missing, &why) == -EPERM);
	CHECK(strstr(why, "cap_setuid") && strstr(why, "cap_setgid"));
	return 0;
}

static void root_in_a_container_that_may_not_change_its_user_is_told(void **state UNUSED)
{
	in_child(leave_as_root_that_cannot_leave);
}

static int leave_in_a_user_namespace(void)
{
	uint64_t missing = 77;
	const char *why = "";

	if (unshare(CLONE_NEWUSER))
		return 0; /* not allowed here */
	CHECK(rights_leave_root(&missing, &why) == -EPERM);
	CHECK(strstr(why, "user namespace") && strstr(why, "hostUsers") && !strchr(why, '\n'));
	CHECK(missing == 77);
	return 0;
}

static void the_capabilities_of_a_user_namespace_are_told_to_count_for_nothing(void **state UNUSED)
{
	in_child(leave_in_a_user_namespace);
}

static int hold_what_is_effective(void)
{
	uint64_t missing;
	const char *why = "";

	CHECK(rights_hold(1ull << CAP_SYS_ADMIN | 1ull << CAP_BPF));
	CHECK(rights_leave_root(&missing, &why) == 0);
	CHECK(rights_held() == status_caps("CapEff:"));
	CHECK(rights_hold(1ull << CAP_BPF) && !rights_hold(1ull << CAP_BPF | 1ull << CAP_SYS_PTRACE));
	return 0;
}

static void what_is_held_is_what_is_effective(void **state UNUSED)
{
	in_child(hold_what_is_effective);
}

static int leave_without_the_readers(void)
{
	const uint64_t lost = 1ull << CAP_SYS_PTRACE;
	uint64_t missing = 77;
	const char *why = "";

	set_caps(status_caps("CapPrm:") & ~lost, 0);
	CHECK(rights_leave_root(&missing, &why) == 0);
	CHECK(missing == lost);
	return check_settled(six() & ~lost);
}

static void a_missing_right_of_the_reader_is_reported_and_no_error(void **state UNUSED)
{
	in_child(leave_without_the_readers);
}

static int leave_without_setpcap(void)
{
	uint64_t missing;
	const char *why = "";

	set_caps(status_caps("CapPrm:") & ~(1ull << CAP_SETPCAP), 0);
	CHECK(rights_leave_root(&missing, &why) == 0);
	return check_settled(six());
}

static void the_right_to_trim_the_bounding_set_is_not_needed(void **state UNUSED)
{
	in_child(leave_without_setpcap);
}

static int drop_one(void)
{
	uint64_t missing;
	const char *why = "";

	CHECK(rights_leave_root(&missing, &why) == 0);
	CHECK(rights_drop(CAP_PERFMON) == 0);
	CHECK(status_caps("CapPrm:") == (six() & ~(1ull << CAP_PERFMON)));
	CHECK(status_caps("CapInh:") == rights_reader_caps());
	CHECK(status_caps("CapEff:") == (rights_agent_caps() & ~(1ull << CAP_PERFMON)));
	CHECK(rights_drop(CAP_PERFMON) == 0); /* again is fine */
	return 0;
}

static void one_capability_can_be_dropped_from_every_set(void **state UNUSED)
{
	in_child(drop_one);
}

static void capabilities_are_named_as_setcap_wants_them(void **state UNUSED)
{
	assert_string_equal(rights_text(0), "");
	assert_string_equal(rights_text(rights_agent_caps()), "cap_syslog,cap_perfmon,cap_bpf");
	assert_string_equal(rights_text(rights_reader_caps()),
			    "cap_dac_read_search,cap_sys_ptrace,cap_checkpoint_restore");
	assert_string_equal(rights_text(1ull << 63), "cap_63");
	assert_true(rights_reader_start_caps() == (rights_reader_caps() | 1ull << CAP_PERFMON));
}

/* ---- what a child gets ----------------------------------------------------------------------- */

/* Tells its sets over the channel. */
static int report_caps(void)
{
	uint64_t sets[] = { status_caps("CapPrm:"), status_caps("CapEff:"), status_caps("CapAmb:"), getuid() };

	return ipc_send(IPC_FD, 1, sets, sizeof(sets), -1) ? 1 : 0;
}

static int spawn_after_leaving(void)
{
	struct ipc_program program = { .name = "reader", .arg = "report", .caps = rights_reader_start_caps() };
	struct ipc_child child;
	struct ipc_in in = {};
	struct ipc_msg msg;
	uint64_t missing, sets[4];
	const char *why = "";
	int r;

	program.exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK(program.exe_fd >= 0);
	CHECK(rights_leave_root(&missing, &why) == 0);
	for (int i = 0; i < 2; i++) { /* a restart needs no further rights */
		CHECK(ipc_spawn(&child, &program) == 0);
		while ((r = ipc_recv(child.sock, &in, &msg)) == -EAGAIN)
			usleep(1000);
		CHECK(r == 1 && msg.len == sizeof(sets));
		memcpy(sets, msg.data, sizeof(sets));
		CHECK(sets[0] == rights_reader_start_caps());
		CHECK(sets[1] == rights_reader_start_caps());
		CHECK(sets[2] == rights_reader_start_caps());
		CHECK(sets[3] == getuid());
		CHECK(ipc_child_kill(&child, 1000000000) == 0);
	}
	ipc_in_fini(&in);
	return 0;
}

static void a_child_gets_what_only_it_may_use(void **state UNUSED)
{
	in_child(spawn_after_leaving);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(from_root_six_capabilities_are_left_and_three_are_effective),
		cmocka_unit_test(from_a_plain_user_with_the_capabilities_it_is_the_same),
		cmocka_unit_test(a_missing_capability_is_named_and_nothing_has_changed),
		cmocka_unit_test(a_plain_user_without_capabilities_is_told_what_is_needed),
		cmocka_unit_test(root_in_a_container_that_may_not_change_its_user_is_told),
		cmocka_unit_test(the_capabilities_of_a_user_namespace_are_told_to_count_for_nothing),
		cmocka_unit_test(what_is_held_is_what_is_effective),
		cmocka_unit_test(a_missing_right_of_the_reader_is_reported_and_no_error),
		cmocka_unit_test(the_right_to_trim_the_bounding_set_is_not_needed),
		cmocka_unit_test(one_capability_can_be_dropped_from_every_set),
		cmocka_unit_test(capabilities_are_named_as_setcap_wants_them),
		cmocka_unit_test(a_child_gets_what_only_it_may_use),
	};

	if (argc > 1 && strcmp(argv[1], "report") == 0)
		return report_caps();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
