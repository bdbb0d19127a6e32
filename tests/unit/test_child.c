#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/log_capture.h"

/* ---- the child: this program, run with an argument ---------------------------------------------- */

enum { ECHO = 10, CRASH, HANG, NONSENSE, THRICE, READ_FD, KILL_SELF, EXIT, SPEAK, CHATTER, TELL, SPIN, STOP, STARVE };
enum { UNASKED = 48, UNASKED_NONSENSE };

static void reply(uint32_t type, const void *data, size_t len)
{
	if (ipc_send(IPC_FD, type, data, len, -1))
		_exit(3);
}

static void serve(const struct ipc_msg *msg)
{
	char text[64] = "";

	switch (msg->type) {
	case CRASH:
		abort();
	case HANG:
		sleep(600);
		break;
	case STARVE:	/* beside a program that spins it hardly runs (sched(7)) */
		if (sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
			_exit(6);
		/* fall through */
	case SPIN:
		for (;;)
			;
	case STOP:
		raise(SIGSTOP);
		break;
	case NONSENSE:
		reply(UNASKED - 1, "", 0);
		break;
	case THRICE:
		reply(THRICE, "a", 1);
		reply(THRICE, "b", 1);
		reply(ECHO, "c", 1);
		break;
	case READ_FD:
		if (pread(msg->fd, text, sizeof(text), 0) < 0)
			_exit(4);
		close(msg->fd);
		reply(ECHO, text, strlen(text));
		break;
	case KILL_SELF:
		raise(SIGKILL);
		break;
	case EXIT:
		_exit(0);
	case SPEAK:
		reply(UNASKED, "1", 1);
		reply(UNASKED, "2", 1);
		reply(ECHO, "between", 7);
		reply(UNASKED, "3", 1);
		break;
	case CHATTER:
		for (;;) {
			reply(UNASKED, "x", 1);
			usleep(20000);
		}
	case TELL:
		reply(msg->len ? UNASKED : UNASKED_NONSENSE, msg->data, msg->len);
		break;
	default:
		reply(ECHO, msg->data, msg->len);
	}
}

static int child_main(const char *mode)
{
	struct rlimit none = { 0, 0 };
	struct ipc_in in = { 0 };
	struct ipc_msg msg;
	int r;

	(void)setrlimit(RLIMIT_CORE, &none);
	if (strcmp(mode, "mute") == 0)
		sleep(600);
	if (strcmp(mode, "other-build") == 0)
		r = ipc_send(IPC_FD, IPC_HELLO, "another", 7, -1);
	else
		r = ipc_hello();
	while (r >= 0 && (r = ipc_recv(IPC_FD, &in, &msg)) == 1)
		serve(&msg);
	ipc_in_fini(&in);
	return r < 0;
}

/* ---- the owner ----------------------------------------------------------------------------------- */

enum { TAGS_MAX = 4096 };

struct tag {
	uint32_t n;
	uint32_t answers, troubles;
	bool is_over, is_freed;
	enum child_trouble why;
};

static struct loop *loop;
static struct child *child;
static struct tag tags[TAGS_MAX];
static uint32_t ntags, nanswered, last_answered;
static uint32_t tries_max;	/* troubles until a request is given up */
static uint32_t obsolete_from;
static char last_text[64];
static size_t last_len;

static int on_answer(void *arg UNUSED, void *tag, struct ipc_msg *msg)
{
	struct tag *t = tag;

	if (msg->type == THRICE) {
		t->answers++;
		return CHILD_MORE;
	}
	if (msg->type != ECHO)
		return -EBADMSG;
	assert_false(t->is_over);
	assert_true(nanswered == 0 || t->n > last_answered);
	t->is_over = true;
	t->answers++;
	last_answered = t->n;
	nanswered++;
	last_len = msg->len;
	memset(last_text, 0, sizeof(last_text));
	memcpy(last_text, msg->data, MIN(msg->len, sizeof(last_text) - 1));
	return CHILD_ANSWERED;
}

static bool on_trouble(void *arg UNUSED, void *tag, enum child_trouble why)
{
	struct tag *t = tag;

	assert_false(t->is_over);
	t->why = why;
	t->answers = 0; /* it is served from the start */
	if (++t->troubles < tries_max)
		return true;
	t->is_over = true;
	return false;
}

static bool is_obsolete(void *arg UNUSED, void *tag)
{
	struct tag *t = tag;

	if (t->n < obsolete_from)
		return false;
	t->is_over = true;
	return true;
}

static void free_tag(void *tag)
{
	struct tag *t = tag;

	assert_false(t->is_over);
	t->is_freed = true;
}

static uint32_t nunasked, nended, nstarted;
static enum child_trouble last_end;
static char unasked_text[64];
static int unasked_error;
static int told_at_start;

static int on_unasked(void *arg UNUSED, struct ipc_msg *msg)
{
	size_t used = strlen(unasked_text);

	if (msg->type == UNASKED_NONSENSE)
		return -EBADMSG;
	assert_int_equal(msg->type, UNASKED);
	assert_true(msg->len < sizeof(unasked_text));
	if (used + msg->len < sizeof(unasked_text))
		memcpy(unasked_text + used, msg->data, msg->len);
	nunasked++;
	return unasked_error;
}

static void on_end(void *arg UNUSED, enum child_trouble why)
{
	/* Before the request that it served is told. */
	for (uint32_t i = 0; i < ntags; i++)
		assert_true(tags[i].troubles <= nended);
	nended++;
	last_end = why;
}

static void on_start(void *arg UNUSED)
{
	nstarted++;
	if (child)
		told_at_start = child_tell(child, TELL, "start ", 6, -1);
}

static const struct child_ops ops = { .answer = on_answer, .trouble = on_trouble, .obsolete = is_obsolete,
				      .unasked = on_unasked, .ended = on_end, .started = on_start,
				      .free_tag = free_tag };

static struct ipc_program program(const char *mode)
{
	static int exe_fd = -1;

	if (exe_fd < 0)
		exe_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	assert_true(exe_fd >= 0);
	return (struct ipc_program){ .name = "test-child", .arg = mode, .exe_fd = exe_fd };
}

static uint64_t cpu_ns; /* of the next start() */

static void start(const char *mode, uint64_t deadline_ns, uint32_t window)
{
	struct child_conf conf = { .program = program(mode), .ops = &ops, .deadline_ns = deadline_ns,
				   .cpu_ns = cpu_ns, .window = window, .unasked_from = UNASKED };

	assert_int_equal(child_new(&child, loop, &conf), 0);
}

static int set_up(void **state UNUSED)
{
	memset(tags, 0, sizeof(tags));
	ntags = nanswered = last_answered = 0;
	tries_max = UINT32_MAX;
	obsolete_from = UINT32_MAX;
	nunasked = nended = nstarted = 0;
	unasked_error = 0;
	cpu_ns = 0;
	memset(unasked_text, 0, sizeof(unasked_text));
	return loop_new(&loop);
}

static int tear_down(void **state UNUSED)
{
	child = child_free(child);
	loop = loop_free(loop);
	return 0;
}

static struct tag *ask(uint32_t type, const void *data, size_t len)
{
	struct tag *t = &tags[ntags];

	t->n = ++ntags;
	assert_int_equal(child_ask(child, type, data, len, -1, t), 0);
	return t;
}

static void run_until_idle(uint64_t wait_ns)
{
	uint64_t end = clock_mono_ns() + wait_ns;

	while (child_pending(child)) {
		assert_int_equal(loop_once(loop, 100 * NSEC_PER_MSEC), 0);
		assert_true(clock_mono_ns() < end);
	}
}

static void answers_come_in_order(void **state UNUSED)
{
	static char big[300000];

	start("serve", 5 * NSEC_PER_SEC, 4);
	memset(big, 'x', sizeof(big));
	for (uint32_t i = 0; i < 500; i++)
		ask(ECHO, big, i % 50 == 7 ? sizeof(big) : 10);
	assert_int_equal(child_pending(child), 500);
	run_until_idle(20 * NSEC_PER_SEC);
	assert_int_equal(nanswered, 500);
	assert_int_equal(child_restarts(child), 0);
}

static void a_descriptor_travels_with_its_request(void **state UNUSED)
{
	struct tag *t = &tags[ntags++];
	int fd;

	start("serve", 5 * NSEC_PER_SEC, 4);
	assert_int_equal(ipc_memfd("x", "from the descriptor", 19, &fd), 0);
	t->n = ntags;
	assert_int_equal(child_ask(child, READ_FD, NULL, 0, fd, t), 0);
	close(fd); /* it was duplicated */
	run_until_idle(5 * NSEC_PER_SEC);
	assert_string_equal(last_text, "from the descriptor");
}

static void an_answer_may_have_several_messages(void **state UNUSED)
{
	struct tag *t;

	start("serve", 5 * NSEC_PER_SEC, 4);
	t = ask(THRICE, NULL, 0);
	ask(ECHO, "after", 5);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(t->answers, 3);
	assert_string_equal(last_text, "after");
}

static void killed_at_any_time_every_request_is_answered_once(void **state UNUSED)
{
	unsigned int seed = 7, nkills = 0;
	uint64_t end = clock_mono_ns() + 60 * NSEC_PER_SEC;

	start("serve", 5 * NSEC_PER_SEC, 8);
	for (uint32_t i = 0; i < 2000; i++)
		ask(ECHO, "0123456789", 10);
	while (child_pending(child)) {
		assert_int_equal(loop_once(loop, 10 * NSEC_PER_MSEC), 0);
		if (rand_r(&seed) % 8 == 0 && child_pid(child) > 0 && nkills < 6) {
			usleep((useconds_t)(rand_r(&seed) % 2000));
			assert_int_equal(kill(child_pid(child), SIGKILL), 0);
			nkills++;
		}
		assert_true(clock_mono_ns() < end);
	}
	assert_int_equal(nanswered, 2000);
	for (uint32_t i = 0; i < ntags; i++) {
		assert_int_equal(tags[i].answers, 1);
		if (tags[i].troubles)
			assert_int_equal(tags[i].why, CHILD_KILLED);
	}
	assert_true(nkills >= 3);
	assert_in_range(child_restarts(child), 1, nkills);
}

static void a_request_that_ends_the_child_twice_is_given_up(void **state UNUSED)
{
	static const uint32_t ends[] = { CRASH, EXIT, KILL_SELF, NONSENSE };

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		struct tag *bad;

		tries_max = 2;
		start("serve", 5 * NSEC_PER_SEC, 8);
		for (int k = 0; k < 5; k++)
			ask(ECHO, "before", 6);
		bad = ask(ends[i], NULL, 0);
		for (int k = 0; k < 5; k++)
			ask(ECHO, "after", 5);
		run_until_idle(10 * NSEC_PER_SEC);
		assert_int_equal(nanswered, 10);
		assert_int_equal(bad->troubles, 2);
		assert_int_equal(bad->why, ends[i] == KILL_SELF ? CHILD_KILLED : CHILD_CRASHED);
		assert_int_equal(child_restarts(child), 2);
		assert_int_equal(child_late(child), 0);
		tear_down(NULL);
		set_up(NULL);
	}
}

static void a_late_child_is_replaced(void **state UNUSED)
{
	struct tag *bad, *good;
	pid_t first;

	tries_max = 1;
	start("serve", 300 * NSEC_PER_MSEC, 8);
	bad = ask(HANG, NULL, 0);
	good = ask(ECHO, "x", 1);
	first = child_pid(child);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(bad->why, CHILD_LATE);
	assert_int_equal(good->answers, 1);
	assert_int_equal(good->troubles, 0);
	assert_int_equal(child_late(child), 1);
	assert_int_not_equal(child_pid(child), first);
	assert_int_equal(kill(first, 0), -1);
}

static uint64_t time_until_late(uint32_t request)
{
	uint64_t begin = clock_mono_ns();

	tries_max = 1;
	cpu_ns = 20 * NSEC_PER_MSEC;
	start("serve", 300 * NSEC_PER_MSEC, 8);
	ask(request, NULL, 0);
	run_until_idle(30 * NSEC_PER_SEC);
	assert_int_equal(child_late(child), 1);
	return clock_mono_ns() - begin;
}

static void a_child_that_waits_for_a_cpu_is_waited_for(void **state UNUSED)
{
	cpu_set_t before, one;
	pid_t spinner;
	uint64_t ns;

	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0); /* who is started now, too */
	spinner = fork();
	if (!spinner) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			;
	}
	ns = time_until_late(STARVE);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	kill(spinner, SIGKILL);
	waitpid(spinner, NULL, 0);
	assert_in_range(ns, CHILD_PATIENCE * 300 * NSEC_PER_MSEC, 20 * NSEC_PER_SEC);
	assert_int_equal(tags[0].why, CHILD_LATE);
}

static void a_child_that_sleeps_is_late_at_the_first_deadline(void **state UNUSED)
{
	assert_in_range(time_until_late(HANG), 300 * NSEC_PER_MSEC, CHILD_PATIENCE * 300 * NSEC_PER_MSEC - 1);
	assert_int_equal(tags[0].why, CHILD_LATE);
}

/* It is not the fault of what it was asked. */
static void a_child_that_is_stopped_is_replaced_at_the_first_deadline(void **state UNUSED)
{
	assert_in_range(time_until_late(STOP), 300 * NSEC_PER_MSEC, CHILD_PATIENCE * 300 * NSEC_PER_MSEC - 1);
	assert_int_equal(tags[0].why, CHILD_KILLED);
}

static void end_captured(char *ret, size_t size, uint32_t request, uint32_t nends)
{
	log_capture_begin(LOG_WARNING);
	tries_max = nends;
	start("serve", 5 * NSEC_PER_SEC, 8);
	if (request)
		ask(request, NULL, 0);
	else
		child_kill(child);
	while (nended < nends)
		assert_int_equal(loop_once(loop, 100 * NSEC_PER_MSEC), 0);
	log_capture_end(ret, size);
}

static void a_kill_from_elsewhere_is_told_and_not_without_end(void **state UNUSED)
{
	char text[8192], *at = text;
	uint32_t n = 0;

	end_captured(text, sizeof(text), KILL_SELF, 8);
	while ((at = strstr(at, "child ended child=test-child signal=9"))) {
		assert_non_null(strstr(at, "OOM killer"));
		at++;
		n++;
	}
	assert_int_equal(n, 5);
}

static void a_kill_of_ours_is_not_told(void **state UNUSED)
{
	char text[8192];

	end_captured(text, sizeof(text), 0, 1);
	assert_string_equal(text, "");
	assert_int_equal(last_end, CHILD_KILLED);
}

static void a_child_that_had_its_cpu_time_is_late(void **state UNUSED)
{
	/* Before the last deadline, also on a busy machine. */
	assert_in_range(time_until_late(SPIN), 300 * NSEC_PER_MSEC, CHILD_PATIENCE * 300 * NSEC_PER_MSEC - 1);
}

static void the_deadline_is_of_each_request(void **state UNUSED)
{
	uint64_t end = clock_mono_ns() + 900 * NSEC_PER_MSEC;

	start("serve", 300 * NSEC_PER_MSEC, 8);
	/* Busy for longer than the deadline, and idle for longer. */
	while (clock_mono_ns() < end) {
		ask(ECHO, "x", 1);
		run_until_idle(NSEC_PER_SEC);
		usleep(1000);
	}
	assert_int_equal(loop_once(loop, 400 * NSEC_PER_MSEC), 0);
	assert_int_equal(child_restarts(child), 0);
}

/* What does not depend on a request at all: it must not take the requests along. */
static void a_child_that_never_says_its_name_is_replaced(void **state UNUSED)
{
	uint64_t begin = clock_mono_ns();
	struct tag *t;

	start("mute", 300 * NSEC_PER_MSEC, 8);
	t = ask(ECHO, "x", 1);
	while (!child_restarts(child)) {
		assert_int_equal(loop_once(loop, 100 * NSEC_PER_MSEC), 0);
		assert_true(clock_mono_ns() - begin < 15 * NSEC_PER_SEC);
	}
	assert_true(clock_mono_ns() - begin > 5 * NSEC_PER_SEC);
	assert_int_equal(t->troubles, 0);
	assert_int_equal(child_pending(child), 1);
}

static void a_child_of_another_build_is_refused(void **state UNUSED)
{
	int r = 0;

	start("other-build", 5 * NSEC_PER_SEC, 8);
	for (int i = 0; i < 50 && !r; i++)
		r = loop_once(loop, 100 * NSEC_PER_MSEC);
	assert_int_equal(r, -EPROTO);
}

static void what_is_too_large_was_never_asked(void **state UNUSED)
{
	size_t len = (size_t)IPC_PAYLOAD_MAX + 1;
	char *data = calloc(1, len);

	assert_non_null(data);
	start("serve", 5 * NSEC_PER_SEC, 8);
	assert_int_equal(child_ask(child, ECHO, data, len, -1, &tags[0]), -EMSGSIZE);
	assert_int_equal(child_pending(child), 0);
	ask(ECHO, "x", 1);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(nanswered, 1);
	free(data);
}

static void a_descriptor_that_cannot_be_sent_leaves_the_tag_with_the_caller(void **state UNUSED)
{
	start("serve", 5 * NSEC_PER_SEC, 8);
	assert_int_equal(child_ask(child, ECHO, "x", 1, 1000000, &tags[0]), -EBADF);
	assert_int_equal(child_pending(child), 0);
}

/* Large messages travel as descriptors, of which there can be no more for a while. */
static struct rlimit no_descriptors(void)
{
	struct rlimit before;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, before.rlim_max }), 0);
	return before;
}

static void what_cannot_be_sent_for_scarcity_is_sent_later(void **state UNUSED)
{
	static char big[300000];
	struct rlimit before;
	struct tag *t;

	start("serve", 5 * NSEC_PER_SEC, 8);
	ask(ECHO, "up", 2);
	run_until_idle(5 * NSEC_PER_SEC);
	before = no_descriptors();
	t = ask(ECHO, big, sizeof(big));
	assert_int_equal(child_tell(child, TELL, big, sizeof(big), -1), -EAGAIN);
	for (int i = 0; i < 20; i++)
		assert_int_equal(loop_once(loop, 20 * NSEC_PER_MSEC), 0);
	assert_int_equal(t->answers, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(t->answers, 1);
	assert_int_equal(child_restarts(child), 0);
}

/* It is no fault of the request's. */
static void an_answer_that_cannot_be_taken_is_asked_for_again(void **state UNUSED)
{
	static char big[300000];
	struct rlimit before;
	struct tag *t;

	start("serve", 5 * NSEC_PER_SEC, 8);
	ask(ECHO, "up", 2);
	run_until_idle(5 * NSEC_PER_SEC);
	t = ask(ECHO, big, sizeof(big));
	before = no_descriptors();
	while (!nended)
		assert_int_equal(loop_once(loop, 20 * NSEC_PER_MSEC), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(t->answers, 1);
	assert_int_equal(t->why, CHILD_KILLED);
}

static void what_is_obsolete_is_not_sent(void **state UNUSED)
{
	start("serve", 5 * NSEC_PER_SEC, 2);
	for (int i = 0; i < 10; i++)
		ask(ECHO, "x", 1);
	obsolete_from = 5;
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(nanswered, 4);
	for (uint32_t i = 0; i < 10; i++)
		assert_true(tags[i].is_over);
	obsolete_from = UINT32_MAX;
	ask(ECHO, "y", 1);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(nanswered, 5);
}

static void what_is_left_is_freed_with_the_child(void **state UNUSED)
{
	pid_t pid;

	start("serve", 5 * NSEC_PER_SEC, 8);
	pid = child_pid(child);
	for (int i = 0; i < 20; i++)
		ask(HANG, NULL, 0);
	assert_int_equal(loop_once(loop, 200 * NSEC_PER_MSEC), 0);
	child = child_free(child);
	for (uint32_t i = 0; i < 20; i++)
		assert_true(tags[i].is_freed);
	assert_int_equal(kill(pid, 0), -1);
}

/* ---- what is told, either way -------------------------------------------------------------------- */

static void run_until_unasked(const char *text)
{
	uint64_t end = clock_mono_ns() + 5 * NSEC_PER_SEC;

	while (strcmp(unasked_text, text) != 0) {
		assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
		assert_true(clock_mono_ns() < end);
	}
}

static void what_nobody_asked_for_comes_beside_the_answers(void **state UNUSED)
{
	start("serve", 5 * NSEC_PER_SEC, 4);
	ask(SPEAK, NULL, 0);
	ask(ECHO, "after", 5);
	run_until_idle(5 * NSEC_PER_SEC);
	run_until_unasked("start 123");
	assert_int_equal(nanswered, 2);
	assert_string_equal(last_text, "after");
	assert_int_equal(nended, 0);
	assert_int_equal(child_restarts(child), 0);
}

static void a_child_can_be_told_things_at_any_time(void **state UNUSED)
{
	start("serve", 300 * NSEC_PER_MSEC, 4);
	assert_int_equal(child_tell(child, TELL, "x", 1, -1), -EPIPE); /* it has not said its name */
	run_until_unasked("start ");
	assert_int_equal(told_at_start, 0);
	assert_int_equal(child_tell(child, TELL, "one ", 4, -1), 0);
	run_until_unasked("start one ");
	/* It owes nothing, however long it is silent, and whatever it says. */
	assert_int_equal(loop_once(loop, 500 * NSEC_PER_MSEC), 0);
	assert_int_equal(child_tell(child, TELL, "two", 3, -1), 0);
	run_until_unasked("start one two");
	assert_int_equal(child_restarts(child), 0);
	/* Nobody is there while it is replaced. */
	assert_int_equal(kill(child_pid(child), SIGKILL), 0);
	while (!nended)
		assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
	assert_int_equal(last_end, CHILD_KILLED);
	assert_int_equal(child_tell(child, TELL, "x", 1, -1), -EPIPE);
	while (nstarted < 2)
		assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
	assert_int_equal(child_tell(child, TELL, "x", 1, -1), 0);
}

static void a_child_that_does_not_read_what_it_is_told_is_no_danger(void **state UNUSED)
{
	static char text[16384];
	int err = 0, n = 0;

	start("serve", 60 * NSEC_PER_SEC, 4);
	run_until_unasked("start ");
	ask(HANG, NULL, 0);
	while (!err && n++ < 10000)
		err = child_tell(child, TELL, text, sizeof(text), -1);
	assert_int_equal(err, -EAGAIN);
}

static void talking_is_no_answer_to_a_request(void **state UNUSED)
{
	struct tag *bad;

	tries_max = 1;
	start("serve", 300 * NSEC_PER_MSEC, 4);
	bad = ask(CHATTER, NULL, 0);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(bad->why, CHILD_LATE);
	assert_true(nunasked >= 3);
	assert_int_equal(nended, 1);
	assert_int_equal(last_end, CHILD_LATE);
}

static void nonsense_that_nobody_asked_for_ends_the_child_and_no_request(void **state UNUSED)
{
	start("serve", 5 * NSEC_PER_SEC, 4);
	run_until_unasked("start ");
	assert_int_equal(child_tell(child, TELL, NULL, 0, -1), 0);
	while (!nended)
		assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
	assert_int_equal(last_end, CHILD_CRASHED);
	ask(ECHO, "x", 1);
	run_until_idle(5 * NSEC_PER_SEC);
	assert_int_equal(nanswered, 1);
	assert_int_equal(tags[0].troubles, 0);
}

static void an_error_of_the_owners_ends_the_loop(void **state UNUSED)
{
	int r = 0;

	start("serve", 5 * NSEC_PER_SEC, 4);
	run_until_unasked("start ");
	unasked_error = -ENOMEM;
	assert_int_equal(child_tell(child, TELL, "x", 1, -1), 0);
	for (int i = 0; i < 100 && !r; i++)
		r = loop_once(loop, 50 * NSEC_PER_MSEC);
	assert_int_equal(r, -ENOMEM);
}

static void every_end_is_told_once_idle_or_not(void **state UNUSED)
{
	start("serve", 5 * NSEC_PER_SEC, 4);
	for (uint32_t i = 1; i <= 3; i++) {
		while (nstarted < i)
			assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
		assert_int_equal(kill(child_pid(child), SIGKILL), 0);
		while (nended < i)
			assert_int_equal(loop_once(loop, 50 * NSEC_PER_MSEC), 0);
	}
	child = child_free(child);
	assert_int_equal(nended, 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(answers_come_in_order),
		TEST(a_descriptor_travels_with_its_request),
		TEST(an_answer_may_have_several_messages),
		TEST(killed_at_any_time_every_request_is_answered_once),
		TEST(a_request_that_ends_the_child_twice_is_given_up),
		TEST(a_late_child_is_replaced),
		TEST(a_child_that_waits_for_a_cpu_is_waited_for),
		TEST(a_child_that_sleeps_is_late_at_the_first_deadline),
		TEST(a_child_that_is_stopped_is_replaced_at_the_first_deadline),
		TEST(a_kill_from_elsewhere_is_told_and_not_without_end),
		TEST(a_kill_of_ours_is_not_told),
		TEST(a_child_that_had_its_cpu_time_is_late),
		TEST(the_deadline_is_of_each_request),
		TEST(a_child_that_never_says_its_name_is_replaced),
		TEST(a_child_of_another_build_is_refused),
		TEST(what_is_too_large_was_never_asked),
		TEST(a_descriptor_that_cannot_be_sent_leaves_the_tag_with_the_caller),
		TEST(what_cannot_be_sent_for_scarcity_is_sent_later),
		TEST(an_answer_that_cannot_be_taken_is_asked_for_again),
		TEST(what_is_obsolete_is_not_sent),
		TEST(what_is_left_is_freed_with_the_child),
		TEST(what_nobody_asked_for_comes_beside_the_answers),
		TEST(a_child_can_be_told_things_at_any_time),
		TEST(a_child_that_does_not_read_what_it_is_told_is_no_danger),
		TEST(talking_is_no_answer_to_a_request),
		TEST(nonsense_that_nobody_asked_for_ends_the_child_and_no_request),
		TEST(an_error_of_the_owners_ends_the_loop),
		TEST(every_end_is_told_once_idle_or_not),
	};

	if (argc > 1)
		return child_main(argv[1]);
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
