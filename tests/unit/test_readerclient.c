#include "agent/readerclient.h"

#include "agent/rights.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/fuse_server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <cmocka.h>

#define FILE_ASKED "/usr/bin/true"

enum { IDS_MAX = 1024 };

/* What the client said. */
struct told {
	uint32_t nanswers[IDS_MAX];	/* by file id */
	uint32_t nok, nfailed, nprocesses;
	uint32_t last_pid;
	bool has_me, scan_is_ordered;
	int err;	/* to return */
};

static int on_event(void *arg, const struct event *e)
{
	struct told *t = arg;

	assert_true(e->time_ns && e->time_ns <= clock_mono_ns());
	if (e->type == EVENT_PROCESS) {
		t->nprocesses++;
		t->scan_is_ordered &= e->process.pid > t->last_pid;
		t->last_pid = e->process.pid;
		t->has_me |= e->process.pid == (uint32_t)getpid();
		return t->err;
	}
	assert_int_equal(e->type, EVENT_OPENED);
	assert_true(e->opened.file_id < IDS_MAX);
	t->nanswers[e->opened.file_id]++;
	assert_int_equal(e->opened.ok, e->opened.fd >= 0);
	if (e->opened.ok) {
		t->nok++;
		close(e->opened.fd);
	} else {
		t->nfailed++;
	}
	return t->err;
}

struct fixture {
	struct loop *loop;
	struct readerclient *client;
	struct told told;
	int exe_fd;
};

static void fixture_fini(struct fixture *f)
{
	readerclient_free(f->client);
	loop_free(f->loop);
	closep(&f->exe_fd);
}

static void fixture_init(struct fixture *f, const char *mode, uint64_t deadline_ns)
{
	struct readerclient_conf conf = { .program = { .name = "reader", .arg = mode }, .deadline_ns = deadline_ns };

	f->told.scan_is_ordered = true;
	if (geteuid() == 0)
		conf.program.caps = rights_reader_start_caps();
	f->exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_true(f->exe_fd >= 0);
	conf.program.exe_fd = f->exe_fd;
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(readerclient_new(&f->client, f->loop, &conf, on_event, &f->told), 0);
}

static struct reader_open request(uint64_t id)
{
	struct reader_open r = { .file_id = id, .path = FILE_ASKED };
	struct stat st;

	assert_int_equal(stat(FILE_ASKED, &st), 0);
	r.key.dev_major = major(st.st_dev);
	r.key.dev_minor = minor(st.st_dev);
	r.key.inode = st.st_ino;
	return r;
}

static void ask(struct fixture *f, uint64_t id)
{
	struct reader_open r = request(id);

	assert_int_equal(readerclient_open(f->client, &r), 0);
}

/* Turns the loop until nothing is asked any more, or time is up; then the test fails. */
static void run_dry(struct fixture *f, uint64_t timeout_ns)
{
	uint64_t until = clock_mono_ns() + timeout_ns;

	while (readerclient_pending(f->client)) {
		assert_true(clock_mono_ns() < until);
		assert_int_equal(loop_once(f->loop, 50 * NSEC_PER_MSEC), 0);
	}
}

static void wait_for_reader(struct fixture *f)
{
	ask(f, 0);
	run_dry(f, 10 * NSEC_PER_SEC);
	assert_int_equal(f->told.nok, 1);
	f->told.nok = 0;
	f->told.nanswers[0] = 0;
}

static void assert_each_was_answered_once(const struct fixture *f, uint64_t n)
{
	for (uint64_t id = 1; id <= n; id++)
		assert_int_equal(f->told.nanswers[id], 1);
}

/* ---- the ordinary way ------------------------------------------------------------------------ */

static void many_files_are_opened_and_answered_once_each(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};

	fixture_init(&f, "reader", 0);
	for (uint64_t id = 1; id <= 500; id++)
		ask(&f, id);
	assert_int_equal(readerclient_pending(f.client), 500);
	run_dry(&f, 20 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 500);
	assert_int_equal(f.told.nok, 500);
	assert_int_equal(readerclient_restarts(f.client), 0);
}

static void a_scan_tells_of_every_process_once(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};

	fixture_init(&f, "reader", 0);
	assert_int_equal(readerclient_scan(f.client), 0);
	assert_true(readerclient_scanning(f.client));
	ask(&f, 1);	/* is answered after it */
	run_dry(&f, 20 * NSEC_PER_SEC);
	assert_false(readerclient_scanning(f.client));
	assert_true(f.told.has_me && f.told.scan_is_ordered);
	assert_int_equal(f.told.nok, 1);
}

static void a_file_that_is_not_there_is_a_failure_and_no_more(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	struct reader_open r = request(1);

	fixture_init(&f, "reader", 0);
	r.path = "/no/such/file";
	assert_int_equal(readerclient_open(f.client, &r), 0);
	ask(&f, 2);
	run_dry(&f, 10 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 2);
	assert_int_equal(f.told.nfailed, 1);
	assert_int_equal(readerclient_restarts(f.client), 0);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void a_reader_that_is_stopped_is_replaced_and_nothing_fails(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	pid_t hung;

	fixture_init(&f, "reader", 200 * NSEC_PER_MSEC);
	wait_for_reader(&f);
	hung = readerclient_pid(f.client);
	assert_int_equal(kill(hung, SIGSTOP), 0);
	for (uint64_t id = 1; id <= 100; id++)
		ask(&f, id);
	run_dry(&f, 10 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 100);
	assert_int_equal(f.told.nfailed, 0);
	assert_int_equal(f.told.nok, 100);
	assert_int_equal(readerclient_timeouts(f.client), 1);
	assert_int_equal(readerclient_restarts(f.client), 1);
	assert_true(readerclient_pid(f.client) != hung);
	assert_true(kill(hung, 0) && errno == ESRCH); /* reaped */
}

static void a_reader_killed_at_random_loses_no_request(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	uint64_t start = clock_mono_ns();
	unsigned int nkills = 0;

	fixture_init(&f, "reader", 0);
	for (uint64_t id = 1; id <= 900; id++) {
		ask(&f, id);
		assert_int_equal(loop_once(f.loop, 0), 0);
		if (id % 100 == 50 && readerclient_pid(f.client) > 0) {
			usleep((useconds_t)(id * 7 % 5) * 300);
			assert_int_equal(kill(readerclient_pid(f.client), SIGKILL), 0);
			nkills++;
		}
	}
	run_dry(&f, 60 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 900);
	/* Some hit one that was dead already. */
	assert_true(readerclient_restarts(f.client) >= 2 && readerclient_restarts(f.client) <= nkills);
	assert_int_equal(f.told.nok + f.told.nfailed, 900);
	assert_true(f.told.nfailed <= nkills / 3); /* only what three of them died on */
	print_message("%u kills, %u failed, %.1f s\n", nkills, f.told.nfailed,
		      (double)(clock_mono_ns() - start) / 1e9);
}

static void a_scan_goes_on_after_its_reader_was_killed(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	uint64_t until = clock_mono_ns() + 20 * NSEC_PER_SEC;

	fixture_init(&f, "reader", 0);
	wait_for_reader(&f);
	assert_int_equal(readerclient_scan(f.client), 0);
	/* A first part of it has been told; what is in the socket by now is told too. */
	while (!f.told.nprocesses && clock_mono_ns() < until)
		assert_int_equal(loop_once(f.loop, 50 * NSEC_PER_MSEC), 0);
	if (readerclient_scanning(f.client))
		assert_int_equal(kill(readerclient_pid(f.client), SIGKILL), 0);
	run_dry(&f, 20 * NSEC_PER_SEC);
	assert_false(readerclient_scanning(f.client));
	assert_true(f.told.has_me && f.told.scan_is_ordered);
}

static void a_scan_that_hangs_goes_on_behind_the_process_it_hung_on(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};

	fixture_init(&f, "hangs-on-2", 200 * NSEC_PER_MSEC);
	assert_int_equal(readerclient_scan(f.client), 0);
	run_dry(&f, 20 * NSEC_PER_SEC);
	assert_int_equal(readerclient_timeouts(f.client), 1);
	assert_int_equal(f.told.nprocesses, 3);
	assert_true(f.told.scan_is_ordered);
	assert_int_equal(f.told.last_pid, 3);
}

static void a_reader_that_cannot_start_is_not_started_all_the_time(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	uint64_t until, cpu;

	fixture_init(&f, "dies", 0);
	ask(&f, 1);
	until = clock_mono_ns() + NSEC_PER_SEC;
	cpu = clock_cpu_ns();
	while (clock_mono_ns() < until)
		assert_int_equal(loop_once(f.loop, 50 * NSEC_PER_MSEC), 0);
	print_message("%lu restarts in a second\n", (unsigned long)readerclient_restarts(f.client));
	assert_true(readerclient_restarts(f.client) >= 2);
	assert_true(readerclient_restarts(f.client) <= 10);
	assert_true(clock_cpu_ns() - cpu < 300 * NSEC_PER_MSEC);
}

static void a_request_that_every_reader_dies_on_is_given_up(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};

	fixture_init(&f, "dies-on-1", 0);
	for (uint64_t id = 1; id <= 3; id++)
		ask(&f, id);
	run_dry(&f, 20 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 3);
	assert_int_equal(f.told.nfailed, 3);	/* the others: EINVAL, says this reader */
	assert_int_equal(readerclient_restarts(f.client), 3);
}

static void a_reader_that_answers_nonsense_is_replaced(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};

	fixture_init(&f, "nonsense", 0);
	ask(&f, 1);
	run_dry(&f, 20 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 1);
	assert_int_equal(f.told.nfailed, 1);
	assert_int_equal(readerclient_restarts(f.client), 3);
}

static void a_reader_of_another_build_is_refused(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	uint64_t until = clock_mono_ns() + 10 * NSEC_PER_SEC;
	int err = 0;

	fixture_init(&f, "other-build", 0);
	while (!err && clock_mono_ns() < until)
		err = loop_once(f.loop, 50 * NSEC_PER_MSEC);
	assert_int_equal(err, -EPROTO);
}

static void it_can_be_freed_with_requests_under_way(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	pid_t pid;

	fixture_init(&f, "reader", 0);
	wait_for_reader(&f);
	for (uint64_t id = 1; id <= 200; id++)
		ask(&f, id);
	assert_int_equal(readerclient_scan(f.client), 0);
	assert_int_equal(loop_once(f.loop, 0), 0);
	pid = readerclient_pid(f.client);
	f.client = readerclient_free(f.client);
	assert_true(kill(pid, 0) && errno == ESRCH);
}

static void more_requests_than_it_keeps_are_refused(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	struct reader_open r = request(1);
	int err = 0;

	fixture_init(&f, "dies", 0);
	for (int i = 0; !err && i < 100000; i++)
		err = readerclient_open(f.client, &r);
	assert_int_equal(err, -ENOBUFS);
}

static void an_error_of_the_callback_ends_the_loop(void **state UNUSED)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	uint64_t until = clock_mono_ns() + 10 * NSEC_PER_SEC;
	int err = 0;

	fixture_init(&f, "reader", 0);
	f.told.err = -ENOMEM;
	ask(&f, 1);
	while (!err && clock_mono_ns() < until)
		err = loop_once(f.loop, 50 * NSEC_PER_MSEC);
	assert_int_equal(err, -ENOMEM);
}

/* ---- file systems that do not answer ---------------------------------------------------------- */

static char dir[] = "/tmp/test_readerclient.XXXXXX";

static int make_dir(void **state UNUSED)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state UNUSED)
{
	return rmdir(dir);
}

static struct fuse_server start_fuse(enum fuse_server_trouble trouble)
{
	struct fuse_server s = { .pid = -1 };

	if (geteuid() != 0 || fuse_server_start(&s, dir, FILE_ASKED, trouble))
		skip();
	return s;
}

static void ask_fuse(struct fixture *f, const struct fuse_server *s, uint64_t id)
{
	char path[64];
	struct reader_open r = { .file_id = id, .npids = 1, .pids = { (uint32_t)s->pid }, .path = path };

	snprintf(path, sizeof(path), "%s/file", dir);
	r.key.dev_major = s->dev_major;
	r.key.dev_minor = s->dev_minor;
	r.key.inode = FUSE_SERVER_INODE;
	assert_int_equal(readerclient_open(f->client, &r), 0);
}

static int keep_file(void *arg, const struct event *e)
{
	assert_int_equal(e->type, EVENT_OPENED);
	assert_true(e->opened.ok);
	assert_true(e->opened.identity.inode == FUSE_SERVER_INODE);
	*(int *)arg = e->opened.fd;
	return 0;
}

static void a_file_on_fuse_comes_as_a_copy(void **state UNUSED)
{
	CLEANUP(fuse_server_stop) struct fuse_server s = start_fuse(FUSE_SERVER_FINE);
	CLEANUP(fixture_fini) struct fixture f = {};
	struct readerclient_conf conf = { .program = { .name = "reader", .arg = "reader" } };
	CLEANUP_FD int same = open(FILE_ASKED, O_RDONLY | O_CLOEXEC);
	CLEANUP_FD int fd = -1;
	char a[4096], b[4096];
	struct stat st, want;

	f.exe_fd = conf.program.exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	conf.program.caps = rights_reader_start_caps();
	assert_int_equal(loop_new(&f.loop), 0);
	assert_int_equal(readerclient_new(&f.client, f.loop, &conf, keep_file, &fd), 0);
	ask_fuse(&f, &s, 1);
	run_dry(&f, 10 * NSEC_PER_SEC);
	assert_true(fd >= 0 && fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE);
	assert_true(fstat(fd, &st) == 0 && fstat(same, &want) == 0 && st.st_size == want.st_size);
	for (off_t off = 0; off < want.st_size; off += (off_t)sizeof(a)) {
		ssize_t n = pread(same, a, sizeof(a), off);

		assert_int_equal(pread(fd, b, sizeof(b), off), n);
		assert_memory_equal(a, b, (size_t)n);
	}
}

static void assert_only_the_fuse_file_fails(enum fuse_server_trouble trouble)
{
	CLEANUP(fixture_fini) struct fixture f = {};
	CLEANUP(fuse_server_stop) struct fuse_server s = start_fuse(trouble);
	uint64_t start;

	fixture_init(&f, "reader", 200 * NSEC_PER_MSEC);
	wait_for_reader(&f);
	start = clock_mono_ns();
	ask(&f, 1);
	ask_fuse(&f, &s, 2);
	ask(&f, 3);
	run_dry(&f, 10 * NSEC_PER_SEC);
	assert_true(clock_mono_ns() - start < 3 * NSEC_PER_SEC);
	assert_each_was_answered_once(&f, 3);
	assert_int_equal(f.told.nok, 2);
	assert_int_equal(f.told.nfailed, 1);
	assert_int_equal(readerclient_timeouts(f.client), 1);
}

static void a_file_system_that_does_not_open_costs_one_reader(void **state UNUSED)
{
	assert_only_the_fuse_file_fails(FUSE_SERVER_HANGS_AT_OPEN);
}

/* The reader cannot even be killed then: it is left behind until the server is gone. */
static void a_file_system_that_does_not_close_costs_one_reader(void **state UNUSED)
{
	assert_only_the_fuse_file_fails(FUSE_SERVER_HANGS_AT_FLUSH);
}

/* Whoever handles the fault never does. */
static void *page_that_nobody_fills(int *ret_fd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *p = mmap(NULL, EVENT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	*ret_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range = (struct uffdio_range){ (uintptr_t)p, EVENT_PAGE_BYTES };
	if (*ret_fd < 0 || ioctl(*ret_fd, UFFDIO_API, &api) || ioctl(*ret_fd, UFFDIO_REGISTER, &range))
		skip();
	return p;
}

/* The last answer, and its bytes. */
struct memory {
	struct event_memory told;
	uint8_t pages[EVENT_PAGES_MAX * EVENT_PAGE_BYTES];
};

static int keep_memory(void *arg, const struct event *e)
{
	struct memory *m = arg;

	assert_int_equal(e->type, EVENT_MEMORY);
	m->told = e->memory;
	if (e->memory.npages)
		memcpy(m->pages, e->memory.pages, (size_t)e->memory.npages * EVENT_PAGE_BYTES);
	return 0;
}

static void start_peeks(struct fixture *f, uint64_t deadline_ns, struct memory *ret)
{
	struct readerclient_conf conf = { .program = { .name = "reader", .arg = "reader" },
					  .deadline_ns = deadline_ns };

	if (geteuid() != 0)
		skip();
	f->exe_fd = conf.program.exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	conf.program.caps = rights_reader_start_caps();
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(readerclient_new(&f->client, f->loop, &conf, keep_memory, ret), 0);
}

static void peek(struct fixture *f, const struct reader_peek *p)
{
	assert_int_equal(readerclient_peek(f->client, p), 0);
	run_dry(f, 20 * NSEC_PER_SEC);
}

static void pages_of_a_thread_are_read_as_far_as_they_are_there(void **state UNUSED)
{
	static struct memory got;
	CLEANUP(fixture_fini) struct fixture f = {};
	struct reader_peek p = { .id = 77, .tid = (uint32_t)gettid(), .npages = 4 };
	uint8_t *page = mmap(NULL, 3 * EVENT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(page != MAP_FAILED);
	for (size_t i = 0; i < 3; i++)
		p.pages[i] = (uintptr_t)page + i * EVENT_PAGE_BYTES; /* and the last is address 0 */
	memset(page, 'a', EVENT_PAGE_BYTES);
	memset(page + 2 * EVENT_PAGE_BYTES, 'c', EVENT_PAGE_BYTES);
	assert_int_equal(munmap(page + EVENT_PAGE_BYTES, EVENT_PAGE_BYTES), 0);
	start_peeks(&f, 0, &got);
	peek(&f, &p);
	assert_true(got.told.id == 77 && !got.told.late && got.told.npages == 4);
	assert_int_equal(got.told.present, 1 | 4);
	assert_memory_equal(got.pages, page, EVENT_PAGE_BYTES);
	assert_int_equal(got.pages[EVENT_PAGE_BYTES], 0);
	assert_memory_equal(got.pages + 2 * EVENT_PAGE_BYTES, page + 2 * EVENT_PAGE_BYTES, EVENT_PAGE_BYTES);
	p.tid = INT32_MAX; /* nobody */
	peek(&f, &p);
	assert_true(got.told.npages == 4 && !got.told.present);
	assert_int_equal(munmap(page, EVENT_PAGE_BYTES), 0);
	assert_int_equal(munmap(page + 2 * EVENT_PAGE_BYTES, EVENT_PAGE_BYTES), 0);
}

static void memory_that_does_not_come_is_late(void **state UNUSED)
{
	static struct memory got;
	CLEANUP(fixture_fini) struct fixture f = {};
	struct reader_peek p = { .id = 5, .tid = (uint32_t)gettid(), .npages = 1 };
	CLEANUP_FD int fault_fd = -1;

	start_peeks(&f, 200 * NSEC_PER_MSEC, &got);
	p.pages[0] = (uintptr_t)page_that_nobody_fills(&fault_fd);
	peek(&f, &p);
	assert_true(got.told.id == 5 && got.told.late && got.told.npages == 0);
	assert_int_equal(readerclient_timeouts(f.client), 1);
	assert_int_equal(munmap((void *)(uintptr_t)p.pages[0], EVENT_PAGE_BYTES), 0);
}

/* ---- readers that misbehave ------------------------------------------------------------------ */

static void say_process(uint32_t pid)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	event_process_encode(&w, &(struct event_process){ .pid = pid, .comm = "x", .executable = "" });
	if (ipc_send(IPC_FD, READER_PROCESS, w.data, w.len, -1))
		exit(1);
}

/* Pids 1, 2, 3; hangs on 2 unless it is to be careful with it. */
static void scan_and_hang(struct bufr *b)
{
	struct reader_scan s;

	if (reader_scan_decode(b, &s))
		exit(1);
	for (uint32_t pid = s.after_pid + 1; pid <= 3; pid++) {
		if (pid == 2 && !(s.careful && s.after_pid == 1))
			pause();
		say_process(pid);
	}
	if (ipc_send(IPC_FD, READER_SCANNED, NULL, 0, -1))
		exit(1);
}

static void refuse_or_die(struct bufr *b, bool dies_on_1)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct reader_opened opened = { .error = EINVAL };
	struct reader_open r;

	if (reader_open_decode(b, &r) || (dies_on_1 && r.file_id == 1))
		exit(1);
	opened.file_id = dies_on_1 ? r.file_id : r.file_id + 1;
	reader_opened_encode(&w, &opened);
	if (ipc_send(IPC_FD, READER_OPENED, w.data, w.len, -1))
		exit(1);
}

static int misbehave(const char *mode)
{
	struct ipc_in in = {};
	struct ipc_msg msg;

	if (strcmp(mode, "dies") == 0)
		return 1;
	if (strcmp(mode, "other-build") == 0)
		return ipc_send(IPC_FD, IPC_HELLO, "other", 5, -1) ? 1 : pause();
	if (ipc_hello())
		return 1;
	while (ipc_recv(IPC_FD, &in, &msg) == 1) {
		struct bufr b;

		bufr_init(&b, msg.data, msg.len);
		if (msg.type == READER_SCAN)
			scan_and_hang(&b);
		else
			refuse_or_die(&b, strcmp(mode, "dies-on-1") == 0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_files_are_opened_and_answered_once_each),
		cmocka_unit_test(a_scan_tells_of_every_process_once),
		cmocka_unit_test(a_file_that_is_not_there_is_a_failure_and_no_more),
		cmocka_unit_test(a_reader_that_is_stopped_is_replaced_and_nothing_fails),
		cmocka_unit_test(a_reader_killed_at_random_loses_no_request),
		cmocka_unit_test(a_scan_goes_on_after_its_reader_was_killed),
		cmocka_unit_test(a_scan_that_hangs_goes_on_behind_the_process_it_hung_on),
		cmocka_unit_test(a_reader_that_cannot_start_is_not_started_all_the_time),
		cmocka_unit_test(a_request_that_every_reader_dies_on_is_given_up),
		cmocka_unit_test(a_reader_that_answers_nonsense_is_replaced),
		cmocka_unit_test(a_reader_of_another_build_is_refused),
		cmocka_unit_test(it_can_be_freed_with_requests_under_way),
		cmocka_unit_test(more_requests_than_it_keeps_are_refused),
		cmocka_unit_test(an_error_of_the_callback_ends_the_loop),
		cmocka_unit_test(a_file_on_fuse_comes_as_a_copy),
		cmocka_unit_test(a_file_system_that_does_not_open_costs_one_reader),
		cmocka_unit_test(a_file_system_that_does_not_close_costs_one_reader),
		cmocka_unit_test(pages_of_a_thread_are_read_as_far_as_they_are_there),
		cmocka_unit_test(memory_that_does_not_come_is_late),
	};

	if (argc > 1 && strcmp(argv[1], "reader") == 0)
		return reader_main();
	if (argc > 1)
		return misbehave(argv[1]);
	log_init("test_readerclient", LOG_ERROR);
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
