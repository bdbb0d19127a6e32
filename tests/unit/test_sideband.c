#include "agent/sideband.h"

#include "base/clock.h"
#include "tests/unit/cpu_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <cmocka.h>

/* ---- what was seen --------------------------------------------------------------------------- */

struct seen {
	struct event e;
	char text[256];	/* path or comm */
};

struct log {
	struct seen *v;
	size_t n, cap;
	uint64_t last_ns;
	uint64_t lost;
};

static int see(void *arg, const struct event *e)
{
	struct log *l = arg;
	struct seen *s;

	assert_true(e->time_ns >= l->last_ns);
	l->last_ns = e->time_ns;
	if (e->type == EVENT_LOST)
		l->lost += e->lost.count;
	if (l->n == l->cap) {
		l->cap = MAX(l->cap * 2, (size_t)1024);
		l->v = reallocarray(l->v, l->cap, sizeof(*l->v));
		assert_non_null(l->v);
	}
	s = &l->v[l->n++];
	s->e = *e;
	snprintf(s->text, sizeof(s->text), "%s",
		 e->type == EVENT_MAP ? e->map.path : e->type == EVENT_COMM ? e->comm.comm : "");
	return 0;
}

static void log_fini(struct log *l)
{
	free(l->v);
}

static struct sideband *new_sideband(const struct sideband_conf *conf, struct log *l)
{
	struct sideband *s = NULL;
	const char *why = "";
	int err = sideband_new(&s, conf, see, l, &why);

	if (err == -EPERM || err == -EACCES)
		skip();	/* not root */
	if (err)
		fail_msg("%s", why);
	return s;
}

static void drain(struct sideband *s)
{
	assert_int_equal(sideband_drain(s), 0);
}

static bool is_of(const struct seen *s, enum event_type type, uint32_t pid)
{
	if (s->e.type != type)
		return false;
	switch (type) {
	case EVENT_MAP:
		return s->e.map.pid == pid;
	case EVENT_COMM:
		return s->e.comm.pid == pid;
	case EVENT_FORK:
		return s->e.fork.pid == pid && s->e.fork.ppid != pid;
	case EVENT_EXIT:
		return s->e.exit.pid == pid && s->e.exit.tid == pid;
	default:
		return false;
	}
}

/* The first at or after `from`; l->n when there is none. */
static size_t find(const struct log *l, size_t from, enum event_type type, uint32_t pid, const char *text)
{
	for (; from < l->n; from++) {
		if (is_of(&l->v[from], type, pid) && (!text || strcmp(l->v[from].text, text) == 0))
			break;
	}
	return from;
}

/* ---- records --------------------------------------------------------------------------------- */

struct record {
	struct perf_event_header h;
	uint8_t body[256];
};

/* A record of the kernel's: header, body, {pid, tid}, time, {cpu, 0}. */
static struct record make(uint32_t type, uint16_t misc, const struct bufw *body)
{
	struct record r = { .h = { .type = type, .misc = misc } };
	CLEANUP(bufw_fini) struct bufw w = {};

	bufw_bytes(&w, body->data, body->len);
	bufw_u32(&w, 42);
	bufw_u32(&w, 43);
	bufw_u64(&w, 123456789);
	bufw_u32(&w, 1);
	bufw_u32(&w, 0);
	assert_true(w.len <= sizeof(r.body));
	memcpy(r.body, w.data, w.len);
	r.h.size = (uint16_t)(sizeof(r.h) + w.len);
	return r;
}

static struct record make_map(uint64_t start, uint64_t len, const char *path, size_t path_bytes)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	bufw_u32(&w, 42);
	bufw_u32(&w, 43);
	bufw_u64(&w, start);
	bufw_u64(&w, len);
	bufw_u64(&w, 0x3000);
	bufw_u32(&w, 254);
	bufw_u32(&w, 1);
	bufw_u64(&w, 777);
	bufw_u64(&w, 888);
	bufw_u32(&w, PROT_READ | PROT_EXEC);
	bufw_u32(&w, MAP_PRIVATE);
	bufw_bytes(&w, path, path_bytes);
	/* Bit 14 as left over from the event of another profiler. */
	return make(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | 1 << 14, &w);
}

static void a_mapping_is_decoded_and_another_profilers_misc_bit_means_nothing(void **state UNUSED)
{
	struct record r = make_map(0x1000, 0x2000, "/x\n\0\0\0\0", 8);
	struct event e;

	assert_true(sideband_decode(&r, r.h.size, &e));
	assert_int_equal(e.type, EVENT_MAP);
	assert_true(e.time_ns == 123456789);
	assert_int_equal(e.map.pid, 42);
	assert_int_equal(e.map.tid, 43);
	assert_true(e.map.start == 0x1000 && e.map.end == 0x3000 && e.map.offset == 0x3000);
	assert_true(e.map.key.dev_major == 254 && e.map.key.dev_minor == 1);
	assert_true(e.map.key.inode == 777 && e.map.key.generation == 888 && e.map.key.generation_known);
	assert_string_equal(e.map.path, "/x\n");
}

static void mappings_that_wrap_or_are_empty_are_refused(void **state UNUSED)
{
	struct record wraps = make_map(UINT64_MAX - 10, 0x2000, "/x\0\0\0\0\0", 8);
	struct record empty = make_map(0x1000, 0, "/x\0\0\0\0\0", 8);
	struct event e;

	assert_false(sideband_decode(&wraps, wraps.h.size, &e));
	assert_false(sideband_decode(&empty, empty.h.size, &e));
}

static void a_path_without_an_end_is_refused(void **state UNUSED)
{
	struct record r = make_map(0x1000, 0x2000, "/abcdefg", 8);
	struct event e;

	assert_false(sideband_decode(&r, r.h.size, &e));
}

static void a_record_that_is_too_short_for_its_type_is_refused(void **state UNUSED)
{
	static const uint32_t types[] = { PERF_RECORD_MMAP2, PERF_RECORD_COMM, PERF_RECORD_FORK,
					  PERF_RECORD_EXIT, PERF_RECORD_LOST };
	static const size_t bytes[] = { 64 + 1, 8 + 1, 16, 16, 16 };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		for (size_t len = 0; len < bytes[i]; len++) {
			CLEANUP(bufw_fini) struct bufw w = {};
			CLEANUP_FREE struct record *copy = NULL;
			struct record r;
			struct event e;

			for (size_t j = 0; j < len; j++)
				bufw_u8(&w, 1);
			r = make(types[i], 0, &w);
			copy = malloc(r.h.size); /* exact, for ASan */
			assert_non_null(copy);
			memcpy(copy, &r, r.h.size);
			assert_false(sideband_decode(copy, r.h.size, &e));
			assert_false(sideband_decode(copy, r.h.size - 1u, &e));
		}
	}
	for (size_t len = 0; len < sizeof(struct perf_event_header); len++)
		assert_false(sideband_decode("\x0a\0\0\0\0\0\x08", len, &(struct event){}));
}

static void tasks_outside_our_pid_namespace_are_left_out(void **state UNUSED)
{
	static const uint32_t pids[] = { 0, UINT32_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		CLEANUP(bufw_fini) struct bufw w = {};
		struct record r;
		struct event e;

		for (int j = 0; j < 4; j++)
			bufw_u32(&w, pids[i]);
		bufw_u64(&w, 0);
		r = make(PERF_RECORD_FORK, 0, &w);
		assert_false(sideband_decode(&r, r.h.size, &e));
	}
}

/* ---- live ------------------------------------------------------------------------------------ */

static pid_t spawn_true(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		execl("/usr/bin/true", "true", NULL);
		_exit(127);
	}
	return pid;
}

static void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void five_hundred_short_processes_are_seen_whole_and_in_order(void **state UNUSED)
{
	enum { NPROCS = 500, AT_ONCE = 4 };
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&(struct sideband_conf){}, &l);
	pid_t pids[NPROCS];
	uint64_t start = clock_mono_ns();

	for (int i = 0; i < NPROCS; i++) {
		pids[i] = spawn_true();
		if (i >= AT_ONCE)
			reap(pids[i - AT_ONCE]);
		if (i % 50 == 0)
			drain(s);
	}
	for (int i = NPROCS - AT_ONCE; i < NPROCS; i++)
		reap(pids[i]);
	drain(s);
	print_message("%.0f processes/s, %zu events\n",
		      NPROCS * 1e9 / (double)(clock_mono_ns() - start), l.n);
	assert_true(l.lost == 0);
	for (int i = 0; i < NPROCS; i++) {
		uint32_t pid = (uint32_t)pids[i];
		size_t at = find(&l, 0, EVENT_FORK, pid, NULL);

		assert_true(at < l.n);
		assert_int_equal(l.v[at].e.fork.ppid, getpid());
		at = find(&l, at, EVENT_COMM, pid, "true");
		assert_true(at < l.n && l.v[at].e.comm.exec);
		at = find(&l, at, EVENT_MAP, pid, "/usr/bin/true");
		assert_true(at < l.n);
		at = find(&l, at, EVENT_EXIT, pid, NULL);
		assert_true(at < l.n);
	}
}

static void *exit_at_once(void *arg)
{
	*(uint32_t *)arg = (uint32_t)gettid();
	return NULL;
}

static void threads_are_born_and_die_in_their_process(void **state UNUSED)
{
	enum { NTHREADS = 20 };
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&(struct sideband_conf){}, &l);
	uint32_t me = (uint32_t)getpid(), tids[NTHREADS];

	for (int i = 0; i < NTHREADS; i++) {
		pthread_t t;

		assert_int_equal(pthread_create(&t, NULL, exit_at_once, &tids[i]), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
	}
	for (int i = 0; i < NTHREADS; i++) {
		bool born = false, died = false;

		/* A joined thread may still be on its last steps in the kernel. */
		for (int tries = 0; !died && tries < 200; tries++) {
			usleep(1000);
			drain(s);
			for (size_t j = 0; j < l.n; j++) {
				const struct event *e = &l.v[j].e;

				born |= e->type == EVENT_FORK && e->fork.tid == tids[i] &&
					e->fork.pid == me && e->fork.ppid == me;
				died |= e->type == EVENT_EXIT && e->exit.tid == tids[i] && e->exit.pid == me;
			}
		}
		assert_true(born && died);
	}
}

static void executable_mappings_come_with_device_inode_and_generation(void **state UNUSED)
{
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&(struct sideband_conf){}, &l);
	CLEANUP_FD int fd = open("/usr/bin/true", O_RDONLY | O_CLOEXEC);
	uint32_t me = (uint32_t)getpid();
	void *data, *code;
	struct stat st;
	size_t at;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	data = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096);
	assert_true(data != MAP_FAILED && code != MAP_FAILED);
	drain(s);
	at = find(&l, 0, EVENT_MAP, me, "/usr/bin/true");
	assert_true(at < l.n);
	assert_true(l.v[at].e.map.start == (uintptr_t)code);
	assert_true(l.v[at].e.map.end == (uintptr_t)code + 4096 && l.v[at].e.map.offset == 4096);
	assert_true(l.v[at].e.map.key.inode == st.st_ino);
	assert_true(l.v[at].e.map.key.generation_known);
	assert_true(find(&l, at + 1, EVENT_MAP, me, "/usr/bin/true") == l.n);

	/* Memory that becomes executable later is told then. */
	assert_int_equal(mprotect(data, 4096, PROT_READ | PROT_EXEC), 0);
	drain(s);
	at = find(&l, at + 1, EVENT_MAP, me, "/usr/bin/true");
	assert_true(at < l.n && l.v[at].e.map.start == (uintptr_t)data);
	munmap(data, 4096);
	munmap(code, 4096);
}

static void names_of_mappings_without_a_file_are_the_kernels(void **state UNUSED)
{
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&(struct sideband_conf){}, &l);
	CLEANUP_FD int fd = memfd_create("jit", MFD_CLOEXEC);
	uint32_t me = (uint32_t)getpid();
	void *anon, *mem;

	assert_true(fd >= 0 && ftruncate(fd, 4096) == 0);
	anon = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mem = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	assert_true(anon != MAP_FAILED && mem != MAP_FAILED);
	drain(s);
	assert_true(find(&l, 0, EVENT_MAP, me, "//anon") < l.n);
	assert_true(find(&l, 0, EVENT_MAP, me, "/memfd:jit (deleted)") < l.n);
	munmap(anon, 4096);
	munmap(mem, 4096);
}

/* ---- kernel code that comes and goes ---------------------------------------------------------- */

static struct {
	char name[256];
	uint64_t address, bytes;
	uint32_t ncame, nwent;
} program;

static int see_code(void *arg UNUSED, const struct event_code *c)
{
	if (!c->is_bpf || !strstr(c->name, "_flamed_test"))
		return 0;
	snprintf(program.name, sizeof(program.name), "%s", c->name);
	if (c->gone) {
		assert_int_equal(c->address, program.address);
		program.nwent++;
		return 0;
	}
	program.address = c->address;
	program.bytes = c->bytes;
	program.ncame++;
	return 0;
}

/* The smallest there is: r0 = 0; exit. */
static int load_program(void)
{
	static const struct bpf_insn code[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0 },
						{ .code = BPF_JMP | BPF_EXIT } };
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (uintptr_t)code,
				.insn_cnt = ARRAY_SIZE(code), .license = (uintptr_t)"GPL", .prog_name = "flamed_test" };

	return (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

static void a_bpf_program_is_told_when_it_comes_and_when_it_goes(void **state UNUSED)
{
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&(struct sideband_conf){ .code = see_code }, &l);
	int fd = load_program();

	if (fd < 0 && errno == EPERM)
		skip();
	assert_true(fd >= 0);
	drain(s);
	/* Without the JIT compiler a program is no code of its own. */
	if (!program.ncame)
		skip();
	assert_int_equal(program.ncame, 1);
	assert_int_equal(program.nwent, 0);
	assert_int_equal(strncmp(program.name, "bpf_prog_", 9), 0);
	assert_true(program.bytes > 0 && program.bytes < 4096);
	close(fd);
	/* The kernel frees it when nobody can be in it any more. */
	for (int i = 0; i < 1000 && !program.nwent; i++) {
		usleep(10000);
		drain(s);
	}
	assert_int_equal(program.nwent, 1);
}

static void a_new_name_is_no_exec(void **state UNUSED)
{
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&(struct sideband_conf){}, &l);
	size_t at;

	assert_int_equal(prctl(PR_SET_NAME, "a new name"), 0);
	drain(s);
	assert_int_equal(prctl(PR_SET_NAME, "test_sideband"), 0);
	at = find(&l, 0, EVENT_COMM, (uint32_t)getpid(), "a new name");
	assert_true(at < l.n && !l.v[at].e.comm.exec);
}

static void what_a_full_ring_dropped_is_told(void **state UNUSED)
{
	const struct sideband_conf conf = { .ring_bytes = 4096 };
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&conf, &l);
	struct pollfd p = { .fd = sideband_fd(s), .events = POLLIN };
	pid_t pid;

	for (int i = 0; i < 100; i++)
		reap(spawn_true());
	assert_int_equal(poll(&p, 1, 1000), 1); /* a quarter was full */
	drain(s);
	/* The kernel tells of a loss in front of the next record that fits. */
	for (int i = 0; i < 100 && !l.lost; i++) {
		reap(spawn_true());
		drain(s);
	}
	assert_true(l.lost > 0);
	pid = spawn_true();
	reap(pid);
	drain(s);
	assert_true(find(&l, 0, EVENT_EXIT, (uint32_t)pid, NULL) < l.n);
}

static int refuse_third(void *arg, const struct event *e UNUSED)
{
	return ++*(int *)arg == 3 ? -ENOMEM : 0;
}

static void an_error_of_the_callback_ends_the_drain_and_loses_nothing_else(void **state UNUSED)
{
	const char *why = "";
	int n = 0;
	struct sideband *s = NULL;

	if (sideband_new(&s, &(struct sideband_conf){}, refuse_third, &n, &why))
		skip();
	reap(spawn_true());
	assert_int_equal(sideband_drain(s), -ENOMEM);
	assert_int_equal(n, 3);
	assert_int_equal(sideband_drain(s), 0);
	assert_true(n > 5);	/* fork, exec, mappings, exit */
	sideband_free(s);
}

static bool wakes(const struct sideband *s, int timeout_ms)
{
	struct pollfd p = { .fd = sideband_exec_fd(s), .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

/* Other processes of this machine wake too: what must hold is that wakes are rare, not that there are none. */
static void an_exec_wakes_at_once_and_at_most_once_for_each_rest(void **state UNUSED)
{
	const struct sideband_conf conf = { .wake_on_exec = true };
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&conf, &l);
	uint64_t start = clock_mono_ns();
	int nwakes = 0, nprocs = 0;

	reap(spawn_true());
	assert_true(wakes(s, 1000));
	drain(s);	/* rests now */
	drain(s);
	for (; clock_mono_ns() - start < 400 * NSEC_PER_MSEC; nprocs++) {
		reap(spawn_true());
		if (wakes(s, 0))
			nwakes++;
		drain(s);
	}
	print_message("%d processes, %d wakes\n", nprocs, nwakes);
	/* Each wake needs a rest of 20 ms before it; one more may be under way when it is disarmed. */
	assert_true(nwakes <= 2 * 400 / 20 + 2);
	assert_true(nwakes >= 2);
	assert_true(l.lost == 0);
}

static void perf_record_still_works_beside_it(void **state UNUSED)
{
	const struct sideband_conf conf = { .wake_on_exec = true };
	CLEANUP(log_fini) struct log l = {};
	CLEANUP(sideband_freep) struct sideband *s = new_sideband(&conf, &l);
	char data[] = "/tmp/test_sideband.XXXXXX";
	int fd = mkstemp(data), status;
	pid_t pid;

	if (access("/usr/bin/perf", X_OK))
		skip();
	assert_true(fd >= 0);
	close(fd);
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 1);
		dup2(null, 2);
		setenv("HOME", "/dev/null", 1); /* for its ~/.debug */
		execl("/usr/bin/perf", "perf", "record", "-e", "cpu-clock", "-g", "-o", data, "--", "/usr/bin/true", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unlink(data);
	assert_int_equal(status, 0);
	drain(s);
}

/* In a process of its own; ends it with 0, or with what was wrong. */
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
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int watch_a_cpu_come_back(void)
{
	uint64_t first[2] = {}, second[2] = {};
	struct log l = {};
	struct sideband *s;
	const char *why;
	pid_t pid;

	cpu_fixture_online("0");
	if (sideband_new(&s, &(struct sideband_conf){}, see, &l, &why) || sideband_check_cpus(s) || sideband_drain(s) || l.lost)
		return 1;
	if (cpu_fixture_events(first, 2) != 1)
		return 2;
	cpu_fixture_reborn(0);
	if (sideband_check_cpus(s) || l.lost != 1) /* what happened since it came back */
		return 3;
	if (cpu_fixture_events(second, 2) != 1 || first[0] == second[0])
		return 4;
	if (sideband_check_cpus(s) || l.lost != 1)
		return 5;
	if (sched_setaffinity(0, sizeof(uint64_t), (const cpu_set_t *)&(uint64_t){ 1 }))
		return 6;
	pid = spawn_true();
	reap(pid);
	if (sideband_drain(s) || find(&l, 0, EVENT_EXIT, (uint32_t)pid, NULL) == l.n)
		return 7;
	return 0;
}

static void a_cpu_that_went_and_came_back_is_heard_again_and_the_gap_is_told(void **state UNUSED)
{
	in_child(watch_a_cpu_come_back);
}

static int lose_the_right(void)
{
	struct log l = {};
	struct sideband *s;
	const char *why;

	cpu_fixture_online("0");
	if (sideband_new(&s, &(struct sideband_conf){ .wake_on_exec = true }, see, &l, &why))
		return 1;
	if (setresuid(65534, 65534, 65534))
		return 2;
	cpu_fixture_online("0-1");
	return sideband_check_cpus(s) || sideband_check_cpus(s) || sideband_drain(s) ? 3 : 0;
}

static void a_cpu_that_comes_and_may_not_be_had_is_no_reason_to_end(void **state UNUSED)
{
	in_child(lose_the_right);
}

static int open_as_nobody(void)
{
	struct sideband *s = NULL;
	const char *why = "";
	int err;

	if (setresuid(65534, 65534, 65534))
		return 3;
	err = sideband_new(&s, &(struct sideband_conf){}, see, NULL, &why);
	return (err == -EACCES || err == -EPERM) && strstr(why, "cap_perfmon") ? 0 : 1;
}

static void without_the_right_it_says_what_to_do(void **state UNUSED)
{
	in_child(open_as_nobody);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mapping_is_decoded_and_another_profilers_misc_bit_means_nothing),
		cmocka_unit_test(mappings_that_wrap_or_are_empty_are_refused),
		cmocka_unit_test(a_path_without_an_end_is_refused),
		cmocka_unit_test(a_record_that_is_too_short_for_its_type_is_refused),
		cmocka_unit_test(tasks_outside_our_pid_namespace_are_left_out),
		cmocka_unit_test(five_hundred_short_processes_are_seen_whole_and_in_order),
		cmocka_unit_test(threads_are_born_and_die_in_their_process),
		cmocka_unit_test(executable_mappings_come_with_device_inode_and_generation),
		cmocka_unit_test(names_of_mappings_without_a_file_are_the_kernels),
		cmocka_unit_test(a_bpf_program_is_told_when_it_comes_and_when_it_goes),
		cmocka_unit_test(a_new_name_is_no_exec),
		cmocka_unit_test(what_a_full_ring_dropped_is_told),
		cmocka_unit_test(an_error_of_the_callback_ends_the_drain_and_loses_nothing_else),
		cmocka_unit_test(an_exec_wakes_at_once_and_at_most_once_for_each_rest),
		cmocka_unit_test(perf_record_still_works_beside_it),
		cmocka_unit_test(a_cpu_that_went_and_came_back_is_heard_again_and_the_gap_is_told),
		cmocka_unit_test(a_cpu_that_comes_and_may_not_be_had_is_no_reason_to_end),
		cmocka_unit_test(without_the_right_it_says_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
