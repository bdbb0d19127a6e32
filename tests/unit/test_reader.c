#include "agent/reader.h"

#include "agent/perfring.h"
#include "agent/reader_box.h"
#include "agent/rights.h"
#include "agent/sideband.h"
#include "base/clock.h"
#include "base/ipc.h"
#include "tests/unit/reader_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cmocka.h>

#define PROGRAM "/usr/bin/true"

/* ---- the reader, as nobody, with its capabilities -------------------------------------------- */

static struct ipc_child child = IPC_CHILD_INIT;
static struct ipc_in in;
static char dir[] = "/tmp/test_reader.XXXXXX";

static int receive(struct ipc_msg *ret)
{
	struct pollfd p = { .fd = child.sock, .events = POLLIN };
	int r;

	do {
		assert_int_equal(poll(&p, 1, 10000), 1);
		r = ipc_recv(child.sock, &in, ret);
	} while (r == -EAGAIN);
	return r;
}

static int start_reader(void **state UNUSED)
{
	struct ipc_program program;
	struct ipc_msg msg;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0700), 0); /* not for nobody */
	if (geteuid() != 0)
		return 0;
	program = reader_fixture_program("reader", open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	assert_true(program.exe_fd >= 0);
	assert_int_equal(ipc_spawn(&child, &program), 0);
	close(program.exe_fd);
	assert_int_equal(receive(&msg), 1);
	assert_int_equal(msg.type, IPC_HELLO);
	return 0;
}

static int stop_reader(void **state UNUSED)
{
	char command[64];

	ipc_in_fini(&in);
	if (child.pid > 0)
		(void)ipc_child_kill(&child, NSEC_PER_SEC);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) ? -1 : 0;
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static int ask_open(const struct reader_open *r, struct reader_opened *ret, int *ret_fd)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct ipc_msg msg;
	struct bufr b;

	reader_open_encode(&w, r);
	assert_int_equal(ipc_send(child.sock, READER_OPEN, w.data, w.len, -1), 0);
	assert_int_equal(receive(&msg), 1);
	assert_int_equal(msg.type, READER_OPENED);
	bufr_init(&b, msg.data, msg.len);
	assert_int_equal(reader_opened_decode(&b, ret), 0);
	assert_true(ret->file_id == r->file_id);
	assert_int_equal(msg.fd >= 0, ret->error == 0);
	*ret_fd = msg.fd;
	return ret->error;
}

/* ---- files and mappings ---------------------------------------------------------------------- */

static const char *in_dir(const char *name)
{
	static char paths[4][256];
	static unsigned int next;
	char *p = paths[next++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
	return p;
}

static void copy_file(const char *from, const char *to)
{
	CLEANUP_FD int a = open(from, O_RDONLY | O_CLOEXEC);
	CLEANUP_FD int b = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	char buf[65536];
	ssize_t n;

	assert_true(a >= 0 && b >= 0);
	while ((n = read(a, buf, sizeof(buf))) > 0)
		assert_int_equal(write(b, buf, (size_t)n), n);
}

/* What the side-band says of a mapping of this file. */
static struct file_key key_of_fd(int fd)
{
	static uint8_t bounce[PERFRING_RECORD_MAX];
	struct perfring ring = PERFRING_INIT;
	struct perf_event_attr attr = {};
	struct perf_event_header h;
	struct file_key key = {};
	struct event e;
	void *map;

	sideband_attr(&attr);
	assert_int_equal(perfring_open(&ring, &attr, 0, -1, 65536), 0);
	map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	(void)perfring_look(&ring);
	while (perfring_peek(&ring, &h) == 1) {
		if (sideband_decode(perfring_record(&ring, h.size, bounce), h.size, &e) &&
		    e.type == EVENT_MAP && e.map.start == (uintptr_t)map)
			key = e.map.key;
		perfring_next(&ring, h.size);
	}
	munmap(map, 4096);
	perfring_close(&ring);
	assert_true(key.generation_known && key.inode);
	return key;
}

static struct file_key key_of(const char *path)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return key_of_fd(fd);
}

/* A process that maps a file, after `prepare` in it, and waits for its end. */
struct mapper {
	pid_t pid;
	uint64_t start;
	struct file_key key;
};

static struct mapper start_mapper(int (*prepare)(void), const char *path)
{
	struct mapper m = {};
	int pair[2];

	assert_int_equal(pipe(pair), 0);
	m.pid = fork();
	assert_true(m.pid >= 0);
	if (m.pid == 0) {
		void *map;
		int fd;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		fd = prepare ? prepare() : -1;
		if (fd < 0)
			fd = open(path, O_RDONLY);
		if (fd < 0)
			_exit(1);
		m.key = key_of_fd(fd);
		map = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		m.start = (uintptr_t)map;
		if (map == MAP_FAILED || write(pair[1], &m, sizeof(m)) != sizeof(m))
			_exit(1);
		close(fd);
		close(pair[1]);
		for (;;)
			pause();
	}
	close(pair[1]);
	{
		pid_t pid = m.pid;

		if (read(pair[0], &m, sizeof(m)) != sizeof(m))
			m.start = 0;
		m.pid = pid;
	}
	close(pair[0]);
	return m;
}

static void stop_mapper(struct mapper *m)
{
	if (m->pid <= 0)
		return;
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
	m->pid = -1;
}

static struct reader_open request_for(const struct mapper *m, const char *path)
{
	static uint64_t next_id;

	return (struct reader_open){
		.file_id = ++next_id, .start = m->start, .end = m->start + 8192, .key = m->key,
		.npids = 1, .pids = { (uint32_t)m->pid }, .path = path,
	};
}

static void assert_opens_as(const struct reader_open *r, const char *content)
{
	CLEANUP_FD int same = open(content, O_RDONLY | O_CLOEXEC);
	CLEANUP_FD int fd = -1;
	struct reader_opened opened;
	char a[4096], b[4096];
	struct stat st;
	ssize_t n;

	assert_int_equal(ask_open(r, &opened, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(opened.identity.dev == st.st_dev && opened.identity.inode == st.st_ino);
	assert_true(opened.identity.size == (uint64_t)st.st_size);
	assert_true(opened.identity.ctime_ns ==
		    (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec);
	n = pread(fd, a, sizeof(a), 0);
	assert_true(n > 0);
	assert_int_equal(pread(same, b, sizeof(b), 0), n);
	assert_memory_equal(a, b, (size_t)n);
}

static void assert_refused(const struct reader_open *r, int why)
{
	CLEANUP_FD int fd = -1;
	struct reader_opened opened;

	assert_int_equal(ask_open(r, &opened, &fd), why);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void a_mapped_file_is_opened_through_map_files(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct reader_open r;

	need_root();
	m = start_mapper(NULL, PROGRAM);
	r = request_for(&m, "/no/such/path");
	assert_opens_as(&r, PROGRAM);
}

static void a_deleted_file_is_opened_as_long_as_it_is_mapped(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct reader_open r;
	char name[300];

	need_root();
	copy_file(PROGRAM, in_dir("deleted"));
	m = start_mapper(NULL, in_dir("deleted"));
	assert_int_equal(unlink(in_dir("deleted")), 0);
	snprintf(name, sizeof(name), "%s (deleted)", in_dir("deleted"));
	r = request_for(&m, name);
	assert_opens_as(&r, PROGRAM);
	stop_mapper(&m);
	assert_refused(&r, ENOENT);
}

static int open_memfd(void)
{
	int fd = memfd_create("code", 0);
	char zeros[8192] = { 1 };

	return write(fd, zeros, sizeof(zeros)) == sizeof(zeros) ? fd : -1;
}

static void a_memfd_is_opened(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	CLEANUP_FD int fd = -1;
	struct reader_opened opened;
	struct reader_open r;

	need_root();
	m = start_mapper(open_memfd, NULL);
	r = request_for(&m, "/memfd:code (deleted)");
	assert_int_equal(ask_open(&r, &opened, &fd), 0);
	assert_int_equal(opened.identity.size, 8192);
}

static void the_file_of_a_process_that_is_gone_is_found_by_path(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct reader_open r;

	need_root();
	m = start_mapper(NULL, PROGRAM);
	stop_mapper(&m);
	r = request_for(&m, PROGRAM);
	r.pids[0] = INT32_MAX;
	assert_opens_as(&r, PROGRAM);
	r.start = r.end = 0;
	r.npids = 0;
	assert_opens_as(&r, PROGRAM);
	r.key.generation_known = false;	/* as from /proc/PID/maps */
	r.key.generation = 0;
	assert_opens_as(&r, PROGRAM);
}

static void another_file_at_the_same_path_is_refused(void **state UNUSED)
{
	struct reader_open r = { .file_id = 1, .npids = 1 };
	struct stat before, after;

	need_root();
	r.pids[0] = (uint32_t)getpid();
	copy_file(PROGRAM, in_dir("old"));
	copy_file(PROGRAM, in_dir("new"));
	r.path = in_dir("old");
	r.key = key_of(r.path);
	assert_opens_as(&r, PROGRAM);
	assert_int_equal(stat(r.path, &before), 0);
	assert_int_equal(rename(in_dir("new"), r.path), 0);
	assert_int_equal(stat(r.path, &after), 0);
	assert_true(before.st_ino != after.st_ino);
	assert_refused(&r, ESTALE);
	r.key.generation_known = false;
	assert_refused(&r, ESTALE);
}

static void a_reused_inode_number_is_refused(void **state UNUSED)
{
	struct reader_open r = { .file_id = 1, .path = PROGRAM };

	need_root();
	r.key = key_of(PROGRAM);
	r.key.generation++;
	assert_refused(&r, ESTALE);
	r.key.generation--;
	r.key.dev_minor++;
	assert_refused(&r, ESTALE);
}

static void another_mapping_at_the_same_address_is_refused(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct reader_open r;

	need_root();
	m = start_mapper(NULL, PROGRAM);
	r = request_for(&m, "/no/such/path");
	r.key = key_of("/usr/bin/false");
	assert_refused(&r, ESTALE);
}

static void what_is_no_path_is_refused(void **state UNUSED)
{
	static const char *const paths[] = { "", "//anon", "[vdso]", "x", "../x" };
	struct reader_open r = { .file_id = 1, .key = { 1, 1, 1, 0, false } };

	need_root();
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		r.path = paths[i];
		assert_refused(&r, EINVAL);
	}
	r.path = "/";
	assert_refused(&r, EINVAL);
	r.path = "/no/such/file";
	assert_refused(&r, ENOENT);
}

static void fifos_devices_and_sockets_are_never_opened(void **state UNUSED)
{
	struct reader_open r = { .file_id = 1, .npids = 1, .key = { 1, 1, 1, 0, false } };
	uint64_t start = clock_mono_ns();
	CLEANUP_FD int writer = -1;

	need_root();
	r.pids[0] = (uint32_t)getpid();
	assert_int_equal(mkfifo(in_dir("fifo"), 0666), 0);
	r.path = in_dir("fifo");
	assert_refused(&r, EINVAL);
	/* Nobody has opened it for reading: a writer that does not wait finds no reader. */
	writer = open(r.path, O_WRONLY | O_NONBLOCK);
	assert_true(writer < 0 && errno == ENXIO);
	r.path = "/dev/null";
	assert_refused(&r, EINVAL);
	assert_true(clock_mono_ns() - start < NSEC_PER_SEC);
}

static void a_lease_on_a_file_does_not_hold_the_reader_up(void **state UNUSED)
{
	struct reader_open r = { .file_id = 1, .npids = 1 };
	uint64_t start = clock_mono_ns();
	CLEANUP_FD int fd = -1;

	need_root();
	copy_file(PROGRAM, in_dir("leased"));
	r.pids[0] = (uint32_t)getpid();
	r.path = in_dir("leased");
	r.key = key_of(r.path);
	fd = open(r.path, O_RDWR | O_CLOEXEC);
	signal(SIGIO, SIG_IGN);
	if (fcntl(fd, F_SETLEASE, F_WRLCK))
		skip();
	assert_refused(&r, EAGAIN);
	assert_true(clock_mono_ns() - start < NSEC_PER_SEC);
	assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
}

/* ---- other mount namespaces ------------------------------------------------------------------ */

static int private_tmpfs(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", dir, "tmpfs", 0, "mode=0700"))
		return -1;
	copy_file(PROGRAM, in_dir("inside"));
	if (symlink("/../../../usr/bin/false", in_dir("escape")) ||
	    symlink(in_dir("inside"), in_dir("absolute")) || symlink("/proc/self/exe", in_dir("magic")))
		return -1;
	return open(in_dir("inside"), O_RDONLY);
}

static void a_file_of_another_mount_namespace_is_opened(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct reader_open r;

	need_root();
	m = start_mapper(private_tmpfs, NULL);
	if (!m.start)
		skip();
	r = request_for(&m, in_dir("inside"));
	assert_opens_as(&r, PROGRAM);	/* through map_files */
	r.start = r.end = 0;
	assert_opens_as(&r, PROGRAM);	/* by path below its root */
	r.path = in_dir("absolute");
	assert_opens_as(&r, PROGRAM);
	r.path = in_dir("escape");	/* stays below the root, where it is another file */
	assert_refused(&r, ESTALE);
	r.path = in_dir("magic");
	assert_refused(&r, ELOOP);
	stop_mapper(&m);
	r.path = in_dir("inside");
	assert_refused(&r, ENOENT);
}

static int overlay(void)
{
	char options[512];

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", dir, "tmpfs", 0, "mode=0700") || mkdir(in_dir("lower"), 0700) ||
	    mkdir(in_dir("upper"), 0700) || mkdir(in_dir("work"), 0700) || mkdir(in_dir("merged"), 0700))
		return -1;
	copy_file(PROGRAM, in_dir("lower/program"));
	snprintf(options, sizeof(options), "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir);
	if (mount("none", in_dir("merged"), "overlay", 0, options))
		return -1;
	return open(in_dir("merged/program"), O_RDONLY);
}

static void a_file_on_overlayfs_is_opened_both_ways(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct reader_open r;

	need_root();
	m = start_mapper(overlay, NULL);
	if (!m.start)
		skip();
	r = request_for(&m, in_dir("merged/program"));
	assert_opens_as(&r, PROGRAM);
	r.start = r.end = 0;
	assert_opens_as(&r, PROGRAM);
}

/* ---- the scan -------------------------------------------------------------------------------- */

struct scan {
	uint32_t nprocesses, last_pid, wanted_pid;
	uint32_t first_nmaps;
	bool found, kernel_thread;
	char comm[64], executable[512];
	uint32_t ppid, nmaps;
	bool has_path;
	const char *path;
};

static void take_process(struct scan *s, const struct ipc_msg *msg)
{
	CLEANUP_FREE void *mem = NULL;
	struct event_process p;
	struct bufr b;

	bufr_init(&b, msg->data, msg->len);
	assert_int_equal(event_process_decode(&b, &p, &mem), 0);
	assert_true(p.pid > s->last_pid);
	s->last_pid = p.pid;
	if (s->nprocesses++ == 0)
		s->first_nmaps = p.nmaps;
	if (p.pid != s->wanted_pid)
		return;
	s->found = true;
	s->kernel_thread = p.kernel_thread;
	s->ppid = p.ppid;
	s->nmaps = p.nmaps;
	snprintf(s->comm, sizeof(s->comm), "%s", p.comm);
	snprintf(s->executable, sizeof(s->executable), "%s", p.executable);
	for (uint32_t i = 0; s->path && i < p.nmaps; i++)
		s->has_path |= strcmp(p.maps[i].path, s->path) == 0 && p.maps[i].key.inode;
}

static struct scan scan_for(uint32_t pid, const char *path, const struct reader_scan *conf)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct scan s = { .wanted_pid = pid, .path = path };
	struct ipc_msg msg;

	reader_scan_encode(&w, conf);
	assert_int_equal(ipc_send(child.sock, READER_SCAN, w.data, w.len, -1), 0);
	for (;;) {
		assert_int_equal(receive(&msg), 1);
		if (msg.type == READER_SCANNED)
			return s;
		assert_int_equal(msg.type, READER_PROCESS);
		take_process(&s, &msg);
	}
}

static void a_scan_tells_of_this_process(void **state UNUSED)
{
	struct scan s;
	char exe[512] = "";

	need_root();
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	assert_int_equal(prctl(PR_SET_NAME, "a (b) c\nd"), 0);
	s = scan_for((uint32_t)getpid(), exe, &(struct reader_scan){});
	assert_int_equal(prctl(PR_SET_NAME, "test_reader"), 0);
	assert_true(s.found && !s.kernel_thread && s.has_path);
	assert_string_equal(s.comm, "a (b) c\nd");
	assert_string_equal(s.executable, exe);
	assert_int_equal(s.ppid, getppid());
}

static void a_scan_knows_kernel_threads(void **state UNUSED)
{
	struct scan s;

	need_root();
	s = scan_for(2, NULL, &(struct reader_scan){});
	if (!s.found)
		skip();	/* in a pid namespace */
	assert_true(s.kernel_thread);
	assert_string_equal(s.comm, "kthreadd");
	assert_string_equal(s.executable, "");
	assert_int_equal(s.nmaps, 0);
}

static void *wait_for_ever(void *arg UNUSED)
{
	for (;;)
		pause();
	return NULL;
}

static void a_scan_sees_the_mappings_of_a_process_whose_first_thread_is_gone(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct scan s = {};

	need_root();
	m.pid = fork();
	assert_true(m.pid >= 0);
	if (m.pid == 0) {
		pthread_t t;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pthread_create(&t, NULL, wait_for_ever, NULL);
		pthread_exit(NULL);
	}
	for (int i = 0; i < 100; i++) { /* until it is */
		char name[64], state_letter = 0;
		FILE *f;

		snprintf(name, sizeof(name), "/proc/%d/stat", m.pid);
		f = fopen(name, "re");
		assert_non_null(f);
		assert_int_equal(fscanf(f, "%*d %*s %c", &state_letter), 1);
		fclose(f);
		if (state_letter == 'Z')
			break;
		usleep(10000);
	}
	s = scan_for((uint32_t)m.pid, NULL, &(struct reader_scan){});
	assert_true(s.found && s.nmaps > 2);
}

static void a_scan_reads_paths_with_any_bytes(void **state UNUSED)
{
	CLEANUP(stop_mapper) struct mapper m = {};
	struct scan s;
	const char *path;

	need_root();
	path = in_dir("a b\nc\x01\xff");
	copy_file(PROGRAM, path);
	m = start_mapper(NULL, path);
	s = scan_for((uint32_t)m.pid, path, &(struct reader_scan){});
	assert_true(s.found && s.has_path);
}

static void a_scan_goes_on_where_another_was_cut_short(void **state UNUSED)
{
	struct scan all, rest, careful;
	struct reader_scan conf = {};

	need_root();
	all = scan_for((uint32_t)getpid(), NULL, &conf);
	assert_true(all.nmaps > 0);
	conf.after_pid = (uint32_t)getpid();
	rest = scan_for((uint32_t)getpid(), NULL, &conf);
	assert_false(rest.found);
	conf.after_pid--;
	conf.careful = true;
	careful = scan_for((uint32_t)getpid(), NULL, &conf);
	assert_true(careful.found);
	assert_int_equal(careful.first_nmaps, 0);
	assert_int_equal(careful.nmaps, 0);
}

/* ---- rights ---------------------------------------------------------------------------------- */

static bool denied(long r)
{
	return r == -1 && errno == EPERM;
}

static int try_everything(const char *writable)
{
	struct iovec iov = { &(char){ 0 }, 1 };
	char *const argv[] = { (char *)(uintptr_t) "true", NULL };
	pid_t parent = getppid();

	if (reader_box_enter())
		return 1;
	if (!denied(socket(AF_UNIX, SOCK_STREAM, 0)) || !denied(socket(AF_INET, SOCK_STREAM, 0)))
		return 2;
	if (!denied(kill(parent, 0)) || !denied(syscall(SYS_tgkill, parent, parent, 0)))
		return 3;
	if (!denied(ptrace(PTRACE_ATTACH, parent, NULL, NULL)))
		return 4;
	if (!denied(process_vm_writev(parent, &iov, 1, &iov, 1, 0)))
		return 5;
	if (!denied(execv("/usr/bin/true", argv)) || !denied(syscall(SYS_fork)) || !denied(syscall(SYS_vfork)))
		return 6;
	if (!denied(open(writable, O_WRONLY)) || !denied(open(writable, O_RDWR)) ||
	    !denied(open(writable, O_RDONLY | O_CREAT, 0600)) || !denied(unlink(writable)) ||
	    !denied(syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, O_WRONLY)) ||
	    denied(syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, O_RDONLY)))
		return 7;
	if (mmap(NULL, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		return 8;
	if (!denied(mount("none", "/tmp", "tmpfs", 0, NULL)) || !denied(syscall(SYS_bpf, 0, NULL, 0)))
		return 9;
	if (open("/proc/self/maps", O_RDONLY) < 0) /* what it is for still works */
		return 10;
	return 0;
}

static void inside_its_filter_it_can_read_and_nothing_else(void **state UNUSED)
{
	const char *writable = in_dir("writable");
	int status;
	pid_t pid;

	copy_file(PROGRAM, writable);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(try_everything(writable));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void it_serves_with_three_capabilities_and_a_filter(void **state UNUSED)
{
	char name[64], line[256];
	uint64_t permitted = 0, effective = 0;
	int filters = -1, no_new_privs = -1;
	FILE *f;

	need_root();
	(void)scan_for(1, NULL, &(struct reader_scan){ .after_pid = INT32_MAX - 1 }); /* it serves */
	snprintf(name, sizeof(name), "/proc/%d/status", child.pid);
	f = fopen(name, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		(void)sscanf(line, "CapPrm: %lx", &permitted);
		(void)sscanf(line, "CapEff: %lx", &effective);
		(void)sscanf(line, "Seccomp: %d", &filters);
		(void)sscanf(line, "NoNewPrivs: %d", &no_new_privs);
	}
	fclose(f);
	assert_true(permitted == rights_reader_caps() && effective == permitted);
	assert_int_equal(filters, 2);
	assert_int_equal(no_new_privs, 1);
}

static void a_request_that_is_nonsense_ends_it(void **state UNUSED)
{
	struct ipc_msg msg;

	need_root();
	assert_int_equal(ipc_send(child.sock, READER_OPEN, "x", 1, -1), 0);
	assert_int_equal(receive(&msg), 0);
	assert_int_equal(ipc_child_kill(&child, NSEC_PER_SEC), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mapped_file_is_opened_through_map_files),
		cmocka_unit_test(a_deleted_file_is_opened_as_long_as_it_is_mapped),
		cmocka_unit_test(a_memfd_is_opened),
		cmocka_unit_test(the_file_of_a_process_that_is_gone_is_found_by_path),
		cmocka_unit_test(another_file_at_the_same_path_is_refused),
		cmocka_unit_test(a_reused_inode_number_is_refused),
		cmocka_unit_test(another_mapping_at_the_same_address_is_refused),
		cmocka_unit_test(what_is_no_path_is_refused),
		cmocka_unit_test(fifos_devices_and_sockets_are_never_opened),
		cmocka_unit_test(a_lease_on_a_file_does_not_hold_the_reader_up),
		cmocka_unit_test(a_file_of_another_mount_namespace_is_opened),
		cmocka_unit_test(a_file_on_overlayfs_is_opened_both_ways),
		cmocka_unit_test(a_scan_tells_of_this_process),
		cmocka_unit_test(a_scan_knows_kernel_threads),
		cmocka_unit_test(a_scan_sees_the_mappings_of_a_process_whose_first_thread_is_gone),
		cmocka_unit_test(a_scan_reads_paths_with_any_bytes),
		cmocka_unit_test(a_scan_goes_on_where_another_was_cut_short),
		cmocka_unit_test(inside_its_filter_it_can_read_and_nothing_else),
		cmocka_unit_test(it_serves_with_three_capabilities_and_a_filter),
		cmocka_unit_test(a_request_that_is_nonsense_ends_it),
	};

	if (argc > 1 && strcmp(argv[1], "reader") == 0)
		return reader_fixture_main();
	return cmocka_run_group_tests(tests, start_reader, stop_reader);
}
