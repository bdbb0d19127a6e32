/*
 * The engine with everything real around it: the kernel, the reader (this program, run with an argument) and the
 * symbolizer; the test is the exporter.
 */
#include "agent/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"

#define MS NSEC_PER_MSEC

/* ---- a target -------------------------------------------------------------------------------- */

static _Noreturn void be_busy(void)
{
	prctl(PR_SET_NAME, "busy");
	for (volatile uint64_t n = 0;;)
		n++;
}

static pid_t start_busy(void)
{
	char *const argv[] = { (char *)(uintptr_t) "busy", (char *)(uintptr_t) "busy", NULL };
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv("/proc/self/exe", argv);
		_exit(1);
	}
	return pid;
}

static void end(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = -1;
}

/* ---- the owner ------------------------------------------------------------------------------- */

enum { KEPT_MAX = 64 };

struct window {
	uint64_t tap, n, ns; /* of the target: samples and the time that they stand for */
	uint32_t nsubjects;
	uint64_t duration_ns;
	char labels[128];
};

static struct {
	struct loop *loop;
	struct engine *engine;
	struct engine_programs programs;
	uint32_t pid;		/* whose facts count */
	uint32_t nfacts, nothers, nturns;
	uint64_t id;
	char executable[256], comm[32], cgroups[4096];
	bool refuse;		/* the first one of each, once */
	uint32_t nrefused;
	bool answer_all;
	uint32_t keep_one_in;
	uint64_t owed[4096];
	uint32_t nowed;
	struct window windows[KEPT_MAX];
	uint32_t nwindows;
} t;

static int on_subject(void *arg UNUSED, const struct export_facts *f)
{
	if (t.refuse && t.nrefused < 3) {
		t.nrefused++;
		return -ENOBUFS;
	}
	if (t.nowed < ARRAY_SIZE(t.owed))
		t.owed[t.nowed++] = f->id;
	if (f->pid != t.pid) {
		t.nothers++;
		return 0;
	}
	t.nfacts++;
	t.id = f->id;
	snprintf(t.executable, sizeof(t.executable), "%s", f->executable);
	snprintf(t.comm, sizeof(t.comm), "%s", f->comm);
	snprintf(t.cgroups, sizeof(t.cgroups), "%s", f->cgroups);
	return 0;
}

static void add_labels(struct window *w, const struct export_batch *b, const struct export_subject *s)
{
	for (uint32_t i = 0; i < s->npairs; i++) {
		const struct export_pair *p = &b->pairs[s->first_pair + i];
		size_t len = strlen(w->labels);

		snprintf(w->labels + len, sizeof(w->labels) - len, "%.*s=%.*s;", (int)b->strings[p->name].len,
			 b->strings[p->name].text, (int)b->strings[p->value].len, b->strings[p->value].text);
	}
}

static int on_batch(void *arg UNUSED, const struct export_batch *b)
{
	struct window *w = &t.windows[t.nwindows % KEPT_MAX];

	t.nwindows++;
	*w = (struct window){ .tap = b->tap, .duration_ns = b->duration_ns };
	for (uint32_t i = 0; i < b->nsamples; i++) {
		const struct export_subject *s = &b->subjects[b->samples[i].subject];

		if (s->pid != t.pid)
			continue;
		w->n += b->samples[i].count;
		w->ns += b->samples[i].nanoseconds;
		if (!w->nsubjects++)
			add_labels(w, b, s);
	}
	return 0;
}

/* As the exporter: later, and all of them. */
static int on_turn(void *arg UNUSED)
{
	int err = 0;

	t.nturns++;
	for (uint32_t i = 0; i < t.nowed && t.answer_all && !err; i++) {
		struct export_label label = { .name = "service_name", .value = "test", .source = "" };
		bool is_target = t.owed[i] == t.id;
		struct export_labels l = { .id = t.owed[i], .keep_one_in = is_target ? t.keep_one_in : 1,
					   .nlabels = 1, .labels = &label };

		err = engine_labels(t.engine, &l);
	}
	if (t.answer_all)
		t.nowed = 0;
	return err;
}

static void start_engine(uint64_t settle_ns)
{
	static const struct event_start everything;
	struct engine_conf conf = { .hz = 200, .stack_max_bytes = 64 * 1024, .cpus = "", .programs = &t.programs,
				    .start = &everything, .batch = on_batch, .subject = on_subject,
				    .labels_wait_ns = 2000 * MS, .settle_wait_ns = settle_ns };
	const char *why = NULL;

	if (geteuid())
		skip();
	if (engine_new(&t.engine, t.loop, &conf, &why))
		fail_msg("%s", why ? why : "engine_new");
	engine_on_turn(t.engine, on_turn, NULL);
	assert_int_equal(engine_start(t.engine, &why), 0);
}

static int set_up(void **state UNUSED)
{
	memset(&t, 0, sizeof(t));
	t.programs = (struct engine_programs){ .exporter = -1 };
	t.programs.self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	t.programs.symbolizer = open(SYMBOLIZER_PATH, O_PATH | O_CLOEXEC);
	assert_true(t.programs.self >= 0 && t.programs.symbolizer >= 0);
	t.keep_one_in = 1;
	t.answer_all = true;
	return loop_new(&t.loop);
}

static int tear_down(void **state UNUSED)
{
	t.engine = engine_free(t.engine);
	t.loop = loop_free(t.loop);
	engine_programs_close(&t.programs);
	return 0;
}

static void run(uint64_t ns)
{
	uint64_t until = clock_mono_ns() + ns;

	while (clock_mono_ns() < until)
		assert_int_equal(loop_once(t.loop, 50 * MS), 0);
}

/* Waits for what the machine may be slow to bring about. */
#define RUN_UNTIL(condition)                                                     \
	do {                                                                     \
		uint64_t until_ = clock_mono_ns() + 60 * NSEC_PER_SEC;           \
                                                                                 \
		while (!(condition)) {                                           \
			assert_true(clock_mono_ns() < until_);                   \
			assert_int_equal(loop_once(t.loop, 50 * MS), 0);         \
		}                                                                \
	} while (0)

static void run_until_told(void)
{
	RUN_UNTIL(t.nfacts > 0);
}

static uint64_t filtered(void)
{
	assert_int_equal(engine_update_counters(t.engine), 0);
	return engine_stats(t.engine)->counters[ABI_CNT_DROPS + ABI_DROP_FILTERED];
}

static uint64_t thinned(void)
{
	assert_int_equal(engine_update_counters(t.engine), 0);
	return engine_stats(t.engine)->counters[ABI_CNT_DROPS + ABI_DROP_THINNED];
}

/* The window's batch. */
static const struct window *end_window(uint64_t duration_ns)
{
	uint32_t n = t.nwindows;
	uint64_t until = clock_mono_ns() + 10 * NSEC_PER_SEC;

	assert_int_equal(engine_end_window(t.engine, clock_wall_ns() - duration_ns, duration_ns, false), 0);
	while (t.nwindows == n) {
		assert_true(clock_mono_ns() < until);
		assert_int_equal(loop_once(t.loop, 50 * MS), 0);
	}
	return &t.windows[n % KEPT_MAX];
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_process_is_announced_once_and_its_window_has_its_labels(void **state UNUSED)
{
	CLEANUP(end) pid_t pid = start_busy();
	char exe[256] = "", proc[64], cgroups[4096];
	const struct window *w;
	ssize_t n;
	int fd;

	t.pid = (uint32_t)pid;
	t.refuse = true; /* the exporter is full at first */
	start_engine(0);
	run_until_told();
	run(1000 * MS);
	assert_int_equal(t.nrefused, 3);
	assert_int_equal(t.nfacts, 1);
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	assert_string_equal(t.executable, exe);
	assert_string_equal(t.comm, "busy");
	snprintf(proc, sizeof(proc), "/proc/%d/cgroup", pid);
	fd = open(proc, O_RDONLY | O_CLOEXEC);
	n = read(fd, cgroups, sizeof(cgroups) - 1);
	close(fd);
	cgroups[MAX(n, (ssize_t)0)] = 0;
	assert_string_equal(t.cgroups, cgroups);
	w = end_window(1000 * MS);
	assert_true(w->n > 5 && w->nsubjects > 0);
	assert_string_equal(w->labels, "service_name=test;");
	assert_int_equal(filtered() + thinned(), 0);
	assert_int_equal(engine_stats(t.engine)->labels_late, 0);
	/* The settings change: once more. */
	assert_int_equal(engine_relabel(t.engine), 0);
	RUN_UNTIL(t.nfacts > 1);
	assert_int_equal(t.nfacts, 2);
	assert_true(engine_bytes(t.engine) > 0 && engine_map_bytes(t.engine) > 2 << 20);
	assert_true(engine_ncpus(t.engine) > 0 && engine_quarantined(t.engine) == 0);
	assert_true(engine_pids(t.engine).reader > 0 && engine_pids(t.engine).symbolizer > 0);
	assert_int_equal(engine_stop(t.engine), 0);
}

static void a_process_that_is_to_be_skipped_costs_a_count_in_the_kernel(void **state UNUSED)
{
	CLEANUP(end) pid_t pid = start_busy();
	uint64_t before;

	t.pid = (uint32_t)pid;
	t.keep_one_in = 0;
	start_engine(0);
	run_until_told();
	RUN_UNTIL(filtered() > 0);
	(void)end_window(500 * MS);
	before = filtered();
	RUN_UNTIL(filtered() > before + 20);
	assert_int_equal(end_window(1000 * MS)->n, 0);
	/* From now on one in three; the time is whole. */
	t.keep_one_in = 3;
	assert_int_equal(engine_relabel(t.engine), 0);
	RUN_UNTIL(thinned() > 0);
	(void)end_window(600 * MS);
	before = filtered();
	RUN_UNTIL(thinned() > 100);
	assert_int_equal(filtered(), before);
	{
		const struct window *w = end_window(2000 * MS);

		print_message("%llu samples, %llu ms of CPU\n", (unsigned long long)w->n,
			      (unsigned long long)(w->ns / MS));
		assert_true(w->n > 10 && w->ns / w->n > 14 * MS && w->ns / w->n < 16 * MS);
	}
	assert_int_equal(engine_stop(t.engine), 0);
}

static void a_tap_brings_a_second_batch_of_exactly_its_time(void **state UNUSED)
{
	CLEANUP(end) pid_t pid = start_busy();
	struct export_tap tap = { .id = 77, .duration_ns = 700 * MS };
	const struct window *w = NULL;

	t.pid = (uint32_t)pid;
	start_engine(0);
	run_until_told();
	assert_int_equal(engine_tap(t.engine, &tap), 0);
	RUN_UNTIL(t.nwindows > 0);
	w = &t.windows[0];
	assert_int_equal(w->tap, 77);
	assert_int_equal(t.nwindows, 1);
	assert_int_equal(w->duration_ns, 700 * MS);
	assert_true(w->n > 3);
	assert_string_equal(w->labels, "service_name=test;");
	assert_int_equal(engine_stop(t.engine), 0);
}

static int got_error = -1, got_fd = -1;

static int on_file(void *arg UNUSED, const struct reader_opened *o, int fd)
{
	got_error = o->error;
	got_fd = fd;
	return 0;
}

static void a_file_of_the_settings_is_opened_by_the_reader(void **state UNUSED)
{
	start_engine(0);
	assert_int_equal(engine_open_config(t.engine, "/etc/passwd", on_file, NULL), 0);
	assert_int_equal(got_error, -1);
	for (int i = 0; i < 100 && got_error < 0; i++)
		run(20 * MS);
	assert_int_equal(got_error, 0);
	assert_true(got_fd >= 0);
	closep(&got_fd);
	run(200 * MS);
	assert_true(t.nturns > 0);
	assert_int_equal(engine_stop(t.engine), 0);
}

/* Neither the reader nor the exporter answers any more. */
static void it_stops_in_time_whatever_does_not_answer(void **state UNUSED)
{
	CLEANUP(end) pid_t pid = -1;
	uint64_t start;

	t.answer_all = false;
	start_engine(1000 * MS);
	assert_int_equal(kill(engine_pids(t.engine).reader, SIGSTOP), 0);
	assert_int_equal(kill(engine_pids(t.engine).symbolizer, SIGSTOP), 0);
	pid = start_busy();
	run(500 * MS);
	start = clock_mono_ns();
	assert_int_equal(engine_stop(t.engine), 0);
	assert_true(clock_mono_ns() - start < 1500 * MS);
	start = clock_mono_ns();
	t.engine = engine_free(t.engine);
	assert_true(clock_mono_ns() - start < 500 * MS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_is_announced_once_and_its_window_has_its_labels),
		TEST(a_process_that_is_to_be_skipped_costs_a_count_in_the_kernel),
		TEST(a_tap_brings_a_second_batch_of_exactly_its_time),
		TEST(a_file_of_the_settings_is_opened_by_the_reader),
		TEST(it_stops_in_time_whatever_does_not_answer),
	};

	if (argc > 1 && strcmp(argv[1], "reader") == 0)
		return reader_main();
	if (argc > 1)
		be_busy();
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
