/* Control groups and the settings' files, read by the real reader as nobody with its capabilities and its filter. */
#include "agent/reader_cgroup.h"
#include "agent/readerclient.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/reader_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static struct loop *loop;
static struct readerclient *client;
static int exe_fd = -1;
static char dir[] = "/tmp/test_reader_cgroup.XXXXXX";

static int on_event(void *arg UNUSED, const struct event *e UNUSED)
{
	return 0;
}

static void start_reader(const char *mode, uint64_t deadline_ns)
{
	struct readerclient_conf conf = { .program = reader_fixture_program(mode, exe_fd), .deadline_ns = deadline_ns };

	if (geteuid() != 0)
		skip();
	assert_int_equal(readerclient_new(&client, loop, &conf, on_event, NULL), 0);
}

static int set_up(void **state UNUSED)
{
	return loop_new(&loop);
}

static int tear_down(void **state UNUSED)
{
	client = readerclient_free(client);
	loop = loop_free(loop);
	return 0;
}

static int set_up_all(void **state UNUSED)
{
	exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	return exe_fd >= 0 && mkdtemp(dir) && chmod(dir, 0700) == 0 ? 0 : -1;
}

static int tear_down_all(void **state UNUSED)
{
	char command[64];

	closep(&exe_fd);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) ? -1 : 0;
}

static const char *in_dir(const char *name)
{
	static char paths[4][128];
	static unsigned int next;
	char *p = paths[next++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
	return p;
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct answer {
	uint32_t n;
	char text[READER_TEXT_MAX + 1];
	bool is_of_cgroup;
	int error, fd;
	struct reader_opened about;
};

static int on_text(void *arg, const char *text, bool is_of_cgroup)
{
	struct answer *a = arg;

	a->n++;
	snprintf(a->text, sizeof(a->text), "%s", text);
	a->is_of_cgroup = is_of_cgroup;
	return 0;
}

static int on_file(void *arg, const struct reader_opened *o, int fd)
{
	struct answer *a = arg;

	a->n++;
	a->error = o->error;
	a->about = *o;
	a->fd = fd;
	return 0;
}

static void run_dry(void)
{
	uint64_t until = clock_mono_ns() + 20 * NSEC_PER_SEC;

	while (readerclient_pending(client)) {
		assert_true(clock_mono_ns() < until);
		assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
	}
}

static const char *cgroups_of(uint32_t pid, uint64_t cgroup_id)
{
	static struct answer a;

	a = (struct answer){};
	assert_int_equal(readerclient_cgroups(client, &(struct reader_cgroups){ pid, cgroup_id }, on_text, &a), 0);
	assert_int_equal(a.n, 0); /* never inside the question */
	run_dry();
	assert_int_equal(a.n, 1);
	return a.text;
}

static struct answer open_config(const char *path)
{
	struct answer a = { .fd = -1 };

	assert_int_equal(readerclient_config(client, path, on_file, &a), 0);
	assert_int_equal(a.n, 0);
	run_dry();
	assert_int_equal(a.n, 1);
	assert_int_equal(a.fd >= 0, a.error == 0);
	return a;
}

/* ---- real control groups --------------------------------------------------------------------- */

struct cgroup {
	char path[256];	/* of its directory */
	char name[96];	/* of the control group */
	uint64_t id;	/* as BPF tells it */
};

static bool make_cgroup(struct cgroup *g, const char *mount, enum abi_cgroup_hierarchy h, const char *name)
{
	struct stat st;

	snprintf(g->name, sizeof(g->name), "/flamed-test-%d-%s", getpid(), name);
	snprintf(g->path, sizeof(g->path), "%s%s", mount, g->name);
	g->id = 0;
	if (mkdir(g->path, 0755) || stat(g->path, &st))
		return false;
	g->id = st.st_ino | (uint64_t)h << ABI_CGROUP_SHIFT;
	return true;
}

static void cgroup_fini(struct cgroup *g)
{
	if (g->id)
		assert_int_equal(rmdir(g->path), 0);
}

static const char *v2_mount(void)
{
	return access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
}

/* A process in this control group, that waits for its end. */
static pid_t start_in(const struct cgroup *g)
{
	char name[300], pid_text[16];
	pid_t pid = fork();
	int fd, n;

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	snprintf(name, sizeof(name), "%s/cgroup.procs", g->path);
	fd = open(name, O_WRONLY | O_CLOEXEC);
	n = snprintf(pid_text, sizeof(pid_text), "%d", pid);
	assert_int_equal(write(fd, pid_text, (size_t)n), n);
	close(fd);
	return pid;
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void the_text_is_the_one_of_proc(void **state UNUSED)
{
	char want[READER_TEXT_MAX + 1];
	int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, want, sizeof(want) - 1);

	close(fd);
	assert_true(n > 0);
	want[n] = 0;
	start_reader("reader", 0);
	assert_string_equal(cgroups_of((uint32_t)getpid(), 0), want);
	assert_string_equal(cgroups_of((uint32_t)getpid(), 12345678), want);
}

static void of_a_process_that_is_gone_nothing_is_known_without_an_id(void **state UNUSED)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	start_reader("reader", 0);
	assert_string_equal(cgroups_of((uint32_t)pid, 0), "");
	assert_string_equal(cgroups_of((uint32_t)pid, 1), "");		/* the root says nothing */
	assert_string_equal(cgroups_of((uint32_t)pid, 1ull << 40), "");	/* no such */
	assert_string_equal(cgroups_of((uint32_t)pid, UINT64_MAX), "");
	assert_int_equal(readerclient_restarts(client), 0);
}

static void the_group_of_a_process_that_is_gone_is_found_by_its_id(void **state UNUSED)
{
	static const struct { const char *mount; enum abi_cgroup_hierarchy h; } hierarchies[] = {
		{ NULL, ABI_CGROUP_V2 },
		{ "/sys/fs/cgroup/memory", ABI_CGROUP_MEMORY },
		{ "/sys/fs/cgroup/pids", ABI_CGROUP_PIDS },
		{ "/sys/fs/cgroup/cpu", ABI_CGROUP_CPU },
	};
	int ntried = 0;

	start_reader("reader", 0);
	for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
		const char *mount = hierarchies[i].mount ? hierarchies[i].mount : v2_mount();
		CLEANUP(cgroup_fini) struct cgroup g = {};
		char want[200], below[300];
		pid_t pid;

		if (!make_cgroup(&g, mount, hierarchies[i].h, "a b.service"))
			continue;
		pid = start_in(&g);
		snprintf(want, sizeof(want), ":%s\n", g.name);
		assert_non_null(strstr(cgroups_of((uint32_t)pid, g.id), want)); /* of proc, with the others */
		end(pid);
		snprintf(want, sizeof(want), "0::%s\n", g.name);
		assert_string_equal(cgroups_of((uint32_t)pid, g.id), want);
		/* The same number in another hierarchy is another group, or none. */
		assert_string_not_equal(cgroups_of((uint32_t)pid, g.id ^ 3ull << ABI_CGROUP_SHIFT), want);
		snprintf(below, sizeof(below), "%s/inner", g.path);
		assert_int_equal(mkdir(below, 0755), 0);
		assert_int_equal(rmdir(below), 0);
		assert_int_equal(rmdir(g.path), 0);
		assert_string_equal(cgroups_of((uint32_t)pid, g.id), "");
		g.id = 0;
		ntried++;
	}
	print_message("%d hierarchies\n", ntried);
	if (!ntried)
		skip();
}

static void a_zombie_of_v1_is_not_taken_for_a_process_in_the_root(void **state UNUSED)
{
	CLEANUP(cgroup_fini) struct cgroup g = {};
	char want[200], in_memory[200];
	const char *text;
	siginfo_t info;
	pid_t pid;

	start_reader("reader", 0);
	if (!make_cgroup(&g, "/sys/fs/cgroup/memory", ABI_CGROUP_MEMORY, "zombie"))
		skip();
	pid = start_in(&g);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	snprintf(want, sizeof(want), "0::%s\n", g.name);
	snprintf(in_memory, sizeof(in_memory), ":memory:%s\n", g.name);
	text = cgroups_of((uint32_t)pid, g.id);
	/* Where it is in no other group either; else what the kernel says of those. */
	if (strcmp(text, want) != 0)
		assert_true(strstr(text, in_memory) || strstr(text, ":memory:/\n"));
	print_message("%s", text);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- mounts ---------------------------------------------------------------------------------- */

static void assert_mount(const struct reader_cgroup *c, enum abi_cgroup_hierarchy h, const char *point, const char *root)
{
	const char *got_root, *got = reader_cgroup_mount(c, h, &got_root);

	if (!point) {
		assert_null(got);
		return;
	}
	assert_string_equal(got, point);
	assert_string_equal(got_root, root);
}

static void mounts_are_found_in_mountinfo(void **state UNUSED)
{
	static const char text[] = "40 31 0:38 /../.. /deep rw - cgroup2 none rw\n"
				   "41 31 0:38 / /u rw,relatime shared:9 master:1 - cgroup2 none rw,nsdelegate\n"
				   "42 31 0:38 /sub /later rw - cgroup2 none rw\n"
				   "32 31 0:29 / /a\\040b\\134c rw - cgroup cgroup rw,cpuacct,cpu\n"
				   "33 31 0:29 / /memory rw - tmpfs tmpfs rw,memory\n"
				   "\n - \n1 2 3 - cgroup2\n1 2 3 / /x rw - \n1 2 3 / /x rw - cgroup\n"
				   "\\040\\\nx - y - z\n1 2 3 /x /pids rw - cgroup cgroup rw,pids";
	struct reader_cgroup *c = NULL;

	write_text(in_dir("mountinfo"), text);
	assert_int_equal(reader_cgroup_new(&c, in_dir("mountinfo")), 0);
	assert_mount(c, ABI_CGROUP_V2, "/u", "/");
	assert_mount(c, ABI_CGROUP_CPU, "/a b\\c", "/");
	assert_mount(c, ABI_CGROUP_PIDS, "/pids", "/x");
	assert_mount(c, ABI_CGROUP_MEMORY, NULL, NULL);
	reader_cgroup_free(c);
	assert_null(reader_cgroup_free(NULL));
}

/* This process, of which /proc says `text`, in a group of v2 with this id: what every process there has? */
static bool is_of_cgroup(struct reader_cgroup *c, const char *text, uint64_t id)
{
	struct reader_cgroups asked = { .pid = (uint32_t)getpid(), .cgroup_id = id };
	struct reader_text got;

	write_text(in_dir("cgroup"), text);
	reader_cgroup_read(c, &asked, &got);
	if (got.len != strlen(text) || strcmp(got.text, text) != 0)
		_exit(20);
	return got.is_of_cgroup;
}

/* As on a host without v1: in a mount namespace where /proc/self/cgroup is our file. */
static int look_without_v1(const struct cgroup *g, const struct cgroup *other)
{
	CLEANUP(reader_cgroup_freep) struct reader_cgroup *c = NULL;
	char text[300], long_text[9000], proc[64];

	snprintf(text, sizeof(text), "40 31 0:38 / %s rw - cgroup2 none rw\n", v2_mount());
	write_text(in_dir("mountinfo2"), text);
	if (reader_cgroup_new(&c, in_dir("mountinfo2")))
		return 10;
	write_text(in_dir("cgroup"), "");
	snprintf(proc, sizeof(proc), "/proc/%d/cgroup", getpid());
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount(in_dir("cgroup"), proc, NULL, MS_BIND, NULL))
		return 11;
	snprintf(text, sizeof(text), "0::%s\n", g->name);
	if (!is_of_cgroup(c, text, g->id))
		return 1;
	if (is_of_cgroup(c, text, other->id) || is_of_cgroup(c, text, 0) || is_of_cgroup(c, text, 1))
		return 2; /* it has moved */
	snprintf(text, sizeof(text), "1:name=systemd:/\n0::%s\n", g->name);
	if (is_of_cgroup(c, text, g->id))
		return 3;
	if (is_of_cgroup(c, "0::/../x\n", g->id))
		return 4;
	/* What does not fit is left out at the start, in whole lines; half a line is none. */
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text + sizeof(long_text) - 10, "\n0::/y\n0:", 10);
	long_text[sizeof(long_text) - 1] = 0;
	write_text(in_dir("cgroup"), long_text);
	{
		struct reader_cgroups asked = { .pid = (uint32_t)getpid() };
		struct reader_text got;

		reader_cgroup_read(c, &asked, &got);
		if (got.len != 6 || memcmp(got.text, "0::/y\n", 6) != 0)
			return 5;
	}
	return 0;
}

static void on_a_host_with_v2_alone_a_text_holds_for_all_of_its_group(void **state UNUSED)
{
	CLEANUP(cgroup_fini) struct cgroup g = {}, other = {};
	int status;
	pid_t pid;

	if (geteuid() != 0 || !make_cgroup(&g, v2_mount(), ABI_CGROUP_V2, "one") ||
	    !make_cgroup(&other, v2_mount(), ABI_CGROUP_V2, "two"))
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(look_without_v1(&g, &other));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	cgroup_fini(&other);
	other.id = 0;
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- files of the settings ------------------------------------------------------------------- */

static void write_file(const char *path, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "secret", MIN(len, (size_t)6)), MIN(len, (size_t)6));
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	close(fd);
}

static void a_file_that_only_root_may_read_is_handed_over_for_reading(void **state UNUSED)
{
	struct answer a, again;
	struct stat st, copy;
	char text[16];

	start_reader("reader", 0);
	write_file(in_dir("password"), 6, 0600);
	assert_int_equal(symlink("password", in_dir("link")), 0); /* as Kubernetes does */
	a = open_config(in_dir("link"));
	assert_int_equal(a.error, 0);
	assert_int_equal(pread(a.fd, text, sizeof(text), 0), 6);
	assert_memory_equal(text, "secret", 6);
	assert_true(fcntl(a.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(write(a.fd, "x", 1) < 0);
	assert_true(ftruncate(a.fd, 0) < 0);
	/* A copy, so that nobody else can hang on its disk, told as what it is of. */
	assert_int_equal(fstat(a.fd, &copy), 0);
	assert_int_equal(stat(in_dir("password"), &st), 0);
	assert_int_not_equal(copy.st_dev, st.st_dev);
	assert_int_equal(a.about.identity.dev, st.st_dev);
	assert_int_equal(a.about.identity.inode, st.st_ino);
	assert_int_equal(a.about.identity.size, 6);
	assert_int_equal(a.about.mode, S_IFREG | 0600);
	close(a.fd);
	again = open_config(in_dir("link"));
	assert_memory_equal(&again.about.identity, &a.about.identity, sizeof(a.about.identity));
	assert_int_equal(read(again.fd, text, sizeof(text)), 6);
	close(again.fd);
	write_file(in_dir("large"), READER_CONFIG_MAX, 0600);
	a = open_config(in_dir("large"));
	assert_int_equal(a.error, 0);
	close(a.fd);
}

static void what_is_no_file_of_settings_is_refused(void **state UNUSED)
{
	struct answer a;

	start_reader("reader", 0);
	assert_int_equal(open_config(in_dir("missing")).error, ENOENT);
	assert_int_equal(open_config("password").error, EINVAL); /* whose directory? */
	assert_int_equal(open_config("").error, EINVAL);
	assert_int_equal(open_config(dir).error, EINVAL);
	assert_int_equal(open_config("/dev/zero").error, EINVAL);
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_int_equal(open_config(in_dir("fifo")).error, EINVAL);
	write_file(in_dir("huge"), READER_CONFIG_MAX + 1, 0600);
	assert_int_equal(open_config(in_dir("huge")).error, EFBIG);
	a = open_config("/proc/self/mem/x");
	assert_int_equal(a.error, ENOTDIR);
	assert_int_equal(readerclient_restarts(client), 0);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void what_a_stopped_reader_was_asked_the_next_one_answers(void **state UNUSED)
{
	struct answer a = { .text = "x" }, b = { .text = "x" }, c = { .fd = -1 }, d = { .fd = -1 };
	struct reader_cgroups me = { .pid = (uint32_t)getpid() };

	start_reader("reader", 200 * NSEC_PER_MSEC);
	(void)cgroups_of(1, 0);
	assert_int_equal(kill(readerclient_pid(client), SIGSTOP), 0);
	assert_int_equal(readerclient_cgroups(client, &me, on_text, &a), 0);
	assert_int_equal(readerclient_cgroups(client, &me, on_text, &b), 0);
	run_dry();
	assert_int_equal(a.n + b.n, 2);
	assert_non_null(strchr(a.text, '/'));
	assert_non_null(strchr(b.text, '/'));
	assert_int_equal(kill(readerclient_pid(client), SIGSTOP), 0);
	assert_int_equal(readerclient_config(client, "/etc/passwd", on_file, &c), 0);
	assert_int_equal(readerclient_config(client, "/etc/passwd", on_file, &d), 0);
	run_dry();
	assert_int_equal(c.n + d.n, 2);
	assert_int_equal(c.error, 0);
	assert_int_equal(d.error, 0);
	close(c.fd);
	close(d.fd);
	assert_int_equal(readerclient_timeouts(client), 2);
}

static void requests_that_every_reader_dies_on_are_answered_for(void **state UNUSED)
{
	struct answer a = { .text = "x" }, b = { .fd = -1 };

	start_reader("dies", 0);
	assert_int_equal(readerclient_cgroups(client, &(struct reader_cgroups){ 1, 0 }, on_text, &a), 0);
	assert_int_equal(readerclient_config(client, "/etc/passwd", on_file, &b), 0);
	run_dry();
	assert_true(a.n == 1 && b.n == 1);
	assert_string_equal(a.text, "");
	assert_int_equal(b.error, EIO);
	assert_int_equal(readerclient_restarts(client), 6);
}

static void there_is_room_for_the_settings_when_there_is_none_for_processes(void **state UNUSED)
{
	struct answer a = {}, b = { .fd = -1 };
	uint32_t nasked = 0;
	int err = 0;

	start_reader("reader", 0);
	while (!err && nasked < 100000) {
		err = readerclient_cgroups(client, &(struct reader_cgroups){ 1, 0 }, on_text, &a);
		nasked += !err;
	}
	assert_int_equal(err, -ENOBUFS);
	assert_int_equal(readerclient_config(client, "/etc/passwd", on_file, &b), 0);
	run_dry();
	assert_int_equal(a.n, nasked);
	assert_int_equal(b.error, 0);
	close(b.fd);
}

/* A reader that ends with the first thing it is asked. */
static int die(void)
{
	struct ipc_in in = {};
	struct ipc_msg msg;
	int r = ipc_hello();

	if (!r)
		r = ipc_recv(IPC_FD, &in, &msg);
	ipc_in_fini(&in);
	return r != 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(the_text_is_the_one_of_proc),
		TEST(of_a_process_that_is_gone_nothing_is_known_without_an_id),
		TEST(the_group_of_a_process_that_is_gone_is_found_by_its_id),
		TEST(a_zombie_of_v1_is_not_taken_for_a_process_in_the_root),
		TEST(mounts_are_found_in_mountinfo),
		TEST(on_a_host_with_v2_alone_a_text_holds_for_all_of_its_group),
		TEST(a_file_that_only_root_may_read_is_handed_over_for_reading),
		TEST(what_is_no_file_of_settings_is_refused),
		TEST(what_a_stopped_reader_was_asked_the_next_one_answers),
		TEST(requests_that_every_reader_dies_on_are_answered_for),
		TEST(there_is_room_for_the_settings_when_there_is_none_for_processes),
	};

	if (argc > 1 && strcmp(argv[1], "reader") == 0)
		return reader_fixture_main();
	if (argc > 1)
		return die();
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
