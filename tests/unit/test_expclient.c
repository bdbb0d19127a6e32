#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "agent/expclient.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/log_capture.h"

/* ---- the exporter: this program, run with an argument -------------------------------------------- */

enum mode {
	DELIVER, /* all of it, in two parts a sink */
	HOLD,	 /* take it, and say no more */
	SEND,	 /* take it, deliver the first part, begin to send the second */
	SEND_DIE, /* and die */
	WAIT_DIE, /* the same, after the word that it did not arrive */
	DIE_TAKING, KILL_TAKING,
	FATE_DIE, /* deliver the first part, and die before the answer */
	TWICE,	  /* each fate twice */
	SILENT,	  /* done, and not a word of its fates */
	REFUSE,
	TAP, NONSENSE,
};

/* What the test tells as EXPORT_CONFIG: nobody but the two looks into it. */
struct script {
	enum mode mode;
	uint32_t nsinks;
	char sinks[4][32];
};

static struct script script;

static void say(uint32_t type, const struct bufw *w)
{
	if (bufw_end(w) || ipc_send(IPC_FD, type, w->data, w->len, -1))
		_exit(3);
}

static void say_fate(uint64_t batch, uint32_t sink, uint32_t part, enum export_fate_kind kind, uint64_t n)
{
	struct export_fate f = { .batch = batch, .part = batch * 1000 + sink * 10 + part + 1, .kind = kind,
				 .nsamples = n, .sink = script.sinks[sink] };
	struct bufw w = { 0 };

	export_fate_encode(&w, &f);
	say(EXPORT_FATE, &w);
	bufw_fini(&w);
}

static bool is_settled(const struct export_settled *s, uint64_t part)
{
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->ids[i] == part)
			return true;
	}
	return false;
}

static void deliver(uint64_t batch, uint64_t nsamples, const struct export_settled *settled)
{
	for (uint32_t sink = 0; sink < script.nsinks; sink++) {
		for (uint32_t part = 0; part < 2; part++) {
			uint64_t n = part ? nsamples - nsamples / 4 : nsamples / 4;

			if (is_settled(settled, batch * 1000 + sink * 10 + part + 1))
				continue;
			if (script.mode == FATE_DIE && part == 1)
				abort();
			say_fate(batch, sink, part, EXPORT_FATE_SENDING, n);
			if (part == 1 && script.mode == WAIT_DIE)
				say_fate(batch, sink, part, EXPORT_FATE_WAITING, n);
			if (part == 1 && (script.mode == SEND_DIE || script.mode == WAIT_DIE))
				abort();
			if (part == 1 && script.mode == SEND)
				return;
			for (int i = 0; i <= (script.mode == TWICE); i++)
				say_fate(batch, sink, part, EXPORT_FATE_DELIVERED, n);
		}
	}
}

static void say_taken(uint64_t id, uint64_t nsamples)
{
	struct export_taken taken = { .id = id, .nsamples = nsamples };
	struct bufw w = { 0 };

	export_taken_encode(&w, &taken);
	say(EXPORT_TAKEN, &w);
	bufw_fini(&w);
}

static void say_done(uint64_t id)
{
	struct export_done done = { .id = id, .result = script.mode == REFUSE ? EXPORT_REFUSED : EXPORT_WRITTEN };
	struct bufw w = { 0 };

	export_done_encode(&w, &done);
	say(EXPORT_DONE, &w);
	bufw_fini(&w);
}

static void serve_batch(const struct ipc_msg *msg)
{
	struct export_settled settled;
	struct export_batch b;
	uint64_t nsamples = 0;
	struct bufr in;

	bufr_init(&in, msg->data, msg->len);
	if (export_batch_decode(&in, &b) || export_settled_decode(&in, &settled))
		_exit(4);
	for (uint32_t i = 0; i < b.nsamples; i++)
		nsamples += b.samples[i].count;
	if (script.mode == DIE_TAKING)
		abort();
	if (script.mode == KILL_TAKING)
		raise(SIGKILL);
	if (script.mode == FATE_DIE)
		deliver(b.id, nsamples, &settled);
	say_taken(b.id, nsamples);
	if (script.mode == HOLD)
		return;
	if (script.mode != SILENT && script.mode != REFUSE && !b.tap)
		deliver(b.id, nsamples, &settled);
	if (script.mode != SEND)
		say_done(b.id);
}

static void serve_subject(const struct ipc_msg *msg)
{
	struct export_label label = { "service_name", "nginx", "unit nginx.service" };
	struct export_labels l = { .keep_one_in = 1, .nlabels = 1, .labels = &label };
	struct export_facts f;
	struct bufw w = { 0 };
	struct bufr in;
	void *mem;

	bufr_init(&in, msg->data, msg->len);
	if (export_facts_decode(&in, &f, &mem))
		_exit(5);
	if (f.pid == 666)
		abort();
	l.id = f.id;
	export_labels_encode(&w, &l);
	say(EXPORT_LABELS, &w);
}

static int exporter_main(void)
{
	static bool is_started, has_output;
	struct rlimit none = { 0, 0 };
	struct ipc_in in = { 0 };
	struct ipc_msg msg;
	struct export_tap tap = { .id = 77, .duration_ns = NSEC_PER_SEC };
	struct bufw w = { 0 };
	int r;

	(void)setrlimit(RLIMIT_CORE, &none);
	r = ipc_hello();
	while (r >= 0 && (r = ipc_recv(IPC_FD, &in, &msg)) == 1) {
		if (msg.type == EXPORT_CONFIG && msg.len == sizeof(script))
			memcpy(&script, msg.data, sizeof(script));
		if (msg.type == EXPORT_OUTPUT)
			has_output = msg.fd >= 0;
		if (msg.type == EXPORT_START) {
			is_started = has_output || script.nsinks;
			export_tap_encode(&w, &tap);
			if (script.mode == TAP)
				say(EXPORT_TAP, &w);
			if (script.mode == NONSENSE)
				say(200, &w);
		}
		if (msg.type == EXPORT_BATCH || msg.type == EXPORT_SUBJECT) {
			if (!is_started)
				_exit(6); /* asked before it was told everything */
			msg.type == EXPORT_BATCH ? serve_batch(&msg) : serve_subject(&msg);
		}
	}
	return r < 0;
}

/* ---- the agent --------------------------------------------------------------------------------- */

static struct loop *loop;
static struct expclient *client;
static enum mode first_mode, later_mode; /* of the first exporter, of its successors */
static uint32_t nlives, lives_bad;	 /* exporters; of these with first_mode */
static uint32_t ndone, nrefused, nlabels, ntaps;
static uint64_t last_label_id;

static int on_done(void *arg UNUSED, const struct export_done *done)
{
	ndone++;
	nrefused += done->result == EXPORT_REFUSED;
	return 0;
}

static int on_labels(void *arg UNUSED, const struct export_labels *l)
{
	nlabels++;
	last_label_id = l->id;
	assert_string_equal(l->labels[0].value, "nginx");
	return 0;
}

static int on_tap(void *arg UNUSED, const struct export_tap *tap)
{
	assert_int_equal(tap->id, 77);
	ntaps++;
	return 0;
}

static int on_started(void *arg UNUSED)
{
	script.mode = nlives++ < lives_bad ? first_mode : later_mode;
	return expclient_tell(client, EXPORT_CONFIG, &script, sizeof(script), -1);
}

static const struct expclient_ops ops = { .done = on_done, .labels = on_labels, .tap = on_tap, .started = on_started };
static const struct expclient_ops output_ops = { .done = on_done };

static struct ipc_program program(void)
{
	static int exe_fd = -1;

	if (exe_fd < 0)
		exe_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	assert_true(exe_fd >= 0);
	return (struct ipc_program){ .name = "test-exporter", .arg = "exporter", .exe_fd = exe_fd };
}

static void set_sinks(const char *a, const char *b)
{
	const char *names[] = { a, b };
	uint32_t n = b ? 2 : 1;

	script.nsinks = n;
	for (uint32_t i = 0; i < n; i++)
		snprintf(script.sinks[i], sizeof(script.sinks[i]), "%s", names[i]);
	assert_int_equal(expclient_sinks(client, names, n), 0);
}

static void start(enum mode first, enum mode later, uint32_t nbad)
{
	struct ipc_program p = program();

	first_mode = first;
	later_mode = later;
	lives_bad = nbad;
	nlives = ndone = nrefused = nlabels = ntaps = 0;
	memset(&script, 0, sizeof(script));
	assert_int_equal(expclient_new(&client, loop, &p, -1, &ops, NULL), 0);
	set_sinks("a", "b");
}

static int setup(void **state UNUSED)
{
	return loop_new(&loop);
}

static int teardown(void **state UNUSED)
{
	client = expclient_free(client);
	loop = loop_free(loop);
	return 0;
}

static void send_sized(uint64_t id, uint64_t nsamples, uint64_t tap, size_t bytes)
{
	char *text = calloc(1, bytes + 1);
	struct export_string strings[2] = { { "", 0 }, { memset(text, 'x', bytes), (uint32_t)bytes } };
	struct export_subject subject = { .id = 1, .pid = 1 };
	struct export_sample sample = { .count = nsamples, .nanoseconds = nsamples * 10000000 };
	struct export_batch b = { .id = id, .tap = tap, .period_ns = 10000000, .nstrings = 2, .nsubjects = 1,
				  .nsamples = 1, .strings = strings, .subjects = &subject, .samples = &sample };

	assert_int_equal(expclient_send(client, &b), 0);
	free(text);
}

static void send(uint64_t id, uint64_t nsamples)
{
	send_sized(id, nsamples, 0, 10);
}

static void turn(void)
{
	int r = loop_once(loop, 20 * NSEC_PER_MSEC);

	assert_true(r == 0 || r == LOOP_STOP);
}

#define WAIT_FOR(condition)                                                       \
	do {                                                                      \
		uint64_t end_ns_ = clock_mono_ns() + 20 * NSEC_PER_SEC;           \
		while (!(condition) && clock_mono_ns() < end_ns_)                 \
			turn();                                                   \
		assert_true(condition);                                           \
	} while (0)

static const struct ledger_sink *sink(const char *name)
{
	for (size_t i = 0; i < expclient_nsinks(client); i++) {
		if (strcmp(expclient_sink(client, i)->name, name) == 0)
			return expclient_sink(client, i);
	}
	fail_msg("no sink %s", name);
	return NULL;
}

/* The law of a sink. */
static void check(const char *name, uint64_t handed_over)
{
	const struct ledger_sink *s = sink(name);
	uint64_t sum = s->pending;

	for (int k = 0; k < EXPORT_FATE_COUNT; k++)
		sum += s->samples[k];
	assert_int_equal(sum, handed_over);
	assert_int_equal(s->overdone, 0);
	assert_int_equal(s->samples[EXPORT_FATE_SENDING], 0);
}

static void check_fate(const char *name, enum export_fate_kind kind, uint64_t n)
{
	assert_int_equal(sink(name)->samples[kind], n);
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void each_sink_accounts_for_every_sample(void **state UNUSED)
{
	uint64_t sum = 0;

	start(DELIVER, DELIVER, 0);
	for (uint64_t id = 1; id <= 50; id++) {
		send(id, id * 10);
		sum += id * 10;
		WAIT_FOR(ndone + 2 >= id);
	}
	WAIT_FOR(ndone == 50);
	assert_int_equal(expclient_nheld(client), 0);
	check("a", sum);
	check("b", sum);
	check_fate("a", EXPORT_FATE_DELIVERED, sum);
	check_fate("b", EXPORT_FATE_DELIVERED, sum);
	assert_int_equal(expclient_restarts(client), 0);
}

static void what_certainly_did_not_arrive_before_a_crash_is_sent_again(void **state UNUSED)
{
	start(WAIT_DIE, DELIVER, 1);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	check("a", 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 100);
	check_fate("a", EXPORT_FATE_IN_DOUBT, 0);
	assert_int_equal(expclient_restarts(client), 1);
}

static void what_was_being_sent_at_a_crash_is_in_doubt_and_the_rest_is_sent_again(void **state UNUSED)
{
	start(SEND_DIE, DELIVER, 1);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	check("a", 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 25);
	check_fate("a", EXPORT_FATE_IN_DOUBT, 75);
	check_fate("b", EXPORT_FATE_DELIVERED, 100);
	check("b", 100);
	assert_int_equal(nlives, 2);
}

static void a_fate_before_the_answer_is_not_lost_with_the_exporter(void **state UNUSED)
{
	start(FATE_DIE, DELIVER, 1);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	check("a", 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 100);
	check_fate("b", EXPORT_FATE_DELIVERED, 100);
}

static void a_batch_that_three_exporters_die_of_is_poisoned(void **state UNUSED)
{
	start(DIE_TAKING, DELIVER, 3);
	send(1, 100);
	send(2, 7);
	WAIT_FOR(ndone == 2);
	assert_int_equal(nrefused, 1);
	assert_int_equal(nlives, 4);
	check("a", 107);
	check_fate("a", EXPORT_FATE_POISONED, 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 7);
	check_fate("b", EXPORT_FATE_POISONED, 100);
}

static void a_kill_from_outside_is_not_the_batchs_fault(void **state UNUSED)
{
	start(KILL_TAKING, DELIVER, 4);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	assert_int_equal(nlives, 5);
	check_fate("a", EXPORT_FATE_DELIVERED, 100);
}

static void a_batch_that_was_taken_is_sent_again_to_the_next_exporter(void **state UNUSED)
{
	start(HOLD, DELIVER, 1);
	send(1, 100);
	send(2, 200);
	turn();
	WAIT_FOR(nlives == 1);
	for (int i = 0; i < 20; i++)
		turn();
	assert_int_equal(expclient_nheld(client), 2);
	assert_int_equal(kill(expclient_pid(client), SIGKILL), 0);
	WAIT_FOR(ndone == 2);
	check("a", 300);
	check_fate("a", EXPORT_FATE_DELIVERED, 300);
}

static void of_many_that_were_taken_the_newest_four_survive_a_crash(void **state UNUSED)
{
	start(HOLD, DELIVER, 1);
	WAIT_FOR(nlives == 1);
	for (uint64_t id = 1; id <= 10; id++) {
		send(id, 100);
		for (int i = 0; i < 5; i++)
			turn();
	}
	assert_int_equal(expclient_nheld(client), 10);
	assert_int_equal(kill(expclient_pid(client), SIGKILL), 0);
	WAIT_FOR(ndone == 10);
	check("a", 1000);
	check_fate("a", EXPORT_FATE_EXPORTER_LOST, 600);
	check_fate("a", EXPORT_FATE_DELIVERED, 400);
	check("b", 1000);
}

static void bytes_are_bounded_too(void **state UNUSED)
{
	start(HOLD, DELIVER, 1);
	for (uint64_t id = 1; id <= 3; id++)
		send_sized(id, 100, 0, 3 << 20);
	WAIT_FOR(nlives == 1);
	for (int i = 0; i < 50; i++)
		turn();
	assert_int_equal(kill(expclient_pid(client), SIGKILL), 0);
	WAIT_FOR(ndone == 3);
	check_fate("a", EXPORT_FATE_EXPORTER_LOST, 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 200);
}

static void a_let_go_batch_gets_its_fates_as_long_as_its_exporter_lives(void **state UNUSED)
{
	start(DELIVER, DELIVER, 0);
	/* Larger than all that is kept: let go as soon as it is taken. */
	send_sized(1, 100, 0, 9 << 20);
	WAIT_FOR(ndone == 1);
	check_fate("a", EXPORT_FATE_DELIVERED, 100);
}

static void windows_that_no_exporter_takes_are_bounded(void **state UNUSED)
{
	start(DELIVER, DELIVER, 0);
	/* It is not up yet: the loop has not run. */
	for (uint64_t id = 1; id <= 20; id++)
		send(id, 10);
	assert_true(expclient_nheld(client) <= EXPCLIENT_HELD_MAX);
	WAIT_FOR(ndone == 20);
	check("a", 200);
	assert_true(sink("a")->samples[EXPORT_FATE_EXPORTER_LOST] == 160);
	check_fate("a", EXPORT_FATE_DELIVERED, 40);
}

static void lose_some(uint64_t n, size_t bytes, char *ret, size_t size)
{
	log_capture_begin(LOG_ERROR);
	for (uint64_t id = 1; id <= n; id++)
		send_sized(id, 10, 0, bytes);
	log_capture_end(ret, size);
}

static void a_lost_window_is_told_with_the_true_reason(void **state UNUSED)
{
	char text[4096];

	start(DELIVER, DELIVER, 0);
	lose_some(3, 10 << 20, text, sizeof(text));
	assert_non_null(strstr(text, "large windows came faster than the exporter takes them"));
	assert_null(strstr(text, "did not get to it"));
	WAIT_FOR(ndone == 3);
	check("a", 30);
	client = expclient_free(client);
	start(DELIVER, DELIVER, 0);
	lose_some(EXPCLIENT_HELD_MAX + 1, 10, text, sizeof(text));
	assert_non_null(strstr(text, "the exporter did not get to it"));
	assert_null(strstr(text, "large windows"));
	WAIT_FOR(ndone == EXPCLIENT_HELD_MAX + 1);
	check("a", (EXPCLIENT_HELD_MAX + 1) * 10);
}

static void what_is_in_no_batch_has_a_fate_at_each_current_sink(void **state UNUSED)
{
	start(DELIVER, DELIVER, 0);
	expclient_account(client, EXPORT_FATE_EXCLUDED, 5);
	set_sinks("b", NULL);
	expclient_account(client, EXPORT_FATE_EXCLUDED, 2);
	check("a", 5);
	check("b", 7);
	check_fate("b", EXPORT_FATE_EXCLUDED, 7);
}

static void fates_beyond_what_was_handed_over_are_told(void **state UNUSED)
{
	start(TWICE, TWICE, 0);
	later_mode = TWICE;
	send(1, 100);
	WAIT_FOR(ndone == 1);
	assert_int_equal(sink("a")->overdone, 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 100);
}

static void what_the_exporter_is_silent_about_is_lost(void **state UNUSED)
{
	start(SILENT, SILENT, 0);
	later_mode = SILENT;
	send(1, 100);
	WAIT_FOR(ndone == 1);
	check("a", 100);
	check_fate("a", EXPORT_FATE_EXPORTER_LOST, 100);
}

static void what_the_exporter_refuses_is_rejected(void **state UNUSED)
{
	start(REFUSE, REFUSE, 0);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	assert_int_equal(nrefused, 1);
	check_fate("a", EXPORT_FATE_REJECTED, 100);
}

static void sinks_come_and_go(void **state UNUSED)
{
	start(DELIVER, DELIVER, 0);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	set_sinks("b", "c");
	assert_int_equal(expclient_tell(client, EXPORT_CONFIG, &script, sizeof(script), -1), 0);
	send(2, 10);
	WAIT_FOR(ndone == 2);
	check("a", 100);
	check("b", 110);
	check("c", 10);
	/* The exporter hears of new settings before a batch that was made for the old ones. */
	send(3, 1000);
	set_sinks("d", NULL);
	assert_int_equal(expclient_tell(client, EXPORT_CONFIG, &script, sizeof(script), -1), 0);
	WAIT_FOR(ndone == 3);
	check("b", 1110);
	check("d", sink("d")->samples[EXPORT_FATE_DELIVERED]);
}

static void accounts_of_removed_sinks_make_room(void **state UNUSED)
{
	start(DELIVER, DELIVER, 0);
	for (int i = 0; i < 3 * LEDGER_SINKS_MAX; i++) {
		char name[32];

		snprintf(name, sizeof(name), "sink-%d", i);
		set_sinks(name, NULL);
	}
	assert_int_equal(expclient_nsinks(client), LEDGER_SINKS_MAX);
	assert_int_equal(sink("sink-191")->pending, 0);
}

static void subjects_get_their_labels(void **state UNUSED)
{
	struct export_facts f = { .executable = "/usr/sbin/nginx", .comm = "nginx", .cgroups = "0::/\n" };

	start(DELIVER, DELIVER, 0);
	for (f.id = 1; f.id <= 100; f.id++)
		assert_int_equal(expclient_subject(client, &f), 0);
	WAIT_FOR(nlabels == 100);
	assert_int_equal(last_label_id, 100);
	/* One that the exporter dies of is given up, the others are answered. */
	f.pid = 666;
	assert_int_equal(expclient_subject(client, &f), 0);
	f.pid = 1;
	f.id = 500;
	assert_int_equal(expclient_subject(client, &f), 0);
	WAIT_FOR(last_label_id == 500);
	assert_int_equal(expclient_restarts(client), 3);
}

static void a_tap_is_told_and_its_batch_concerns_no_sink(void **state UNUSED)
{
	start(TAP, DELIVER, 1);
	WAIT_FOR(ntaps == 1);
	send_sized(5, 100, 77, 10);
	/* It may overtake a window. */
	send(4, 10);
	WAIT_FOR(ndone == 2);
	check("a", 10);
}

static void as_many_taps_as_there_can_be_come_at_once(void **state UNUSED)
{
	start(DELIVER, DELIVER, 0);
	WAIT_FOR(nlives == 1);
	for (uint64_t id = 1; id <= EXPORT_TAPS_MAX; id++)
		send_sized(id, 100, id, 1000000);
	send(EXPORT_TAPS_MAX + 1, 10);
	WAIT_FOR(ndone == EXPORT_TAPS_MAX + 1);
	assert_int_equal(nrefused, 0);
	check_fate("a", EXPORT_FATE_DELIVERED, 10);
}

static void a_tap_whose_exporter_dies_is_forgotten(void **state UNUSED)
{
	start(DIE_TAKING, DELIVER, 1);
	send_sized(1, 100, 77, 10);
	WAIT_FOR(ndone == 1);
	assert_int_equal(nrefused, 1);
	check("a", 0);
}

static void an_exporter_that_talks_nonsense_is_replaced(void **state UNUSED)
{
	start(NONSENSE, DELIVER, 1);
	send(1, 100);
	WAIT_FOR(ndone == 1);
	check_fate("a", EXPORT_FATE_DELIVERED, 100);
	assert_int_equal(expclient_restarts(client), 1);
}

static void at_the_end_what_has_no_fate_is_told(void **state UNUSED)
{
	start(SEND, SEND, 0);
	later_mode = SEND;
	send(1, 100);
	WAIT_FOR(nlives == 1);
	for (int i = 0; i < 30; i++)
		turn();
	assert_int_equal(sink("a")->pending, 75);
	assert_int_equal(expclient_abandon(client), 75 + 100);
	check("a", 100);
	check_fate("a", EXPORT_FATE_DELIVERED, 25);
	check_fate("a", EXPORT_FATE_IN_DOUBT, 75);
	check_fate("b", EXPORT_FATE_SHUTDOWN, 100);
}

static void a_commands_batch_is_written_to_its_output(void **state UNUSED)
{
	struct ipc_program p = program();
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	ndone = 0;
	assert_int_equal(expclient_new(&client, loop, &p, fd, &output_ops, NULL), 0);
	send_sized(1, 100, 0, 10 << 20); /* of any size */
	WAIT_FOR(ndone == 1);
	close(fd);
}

int main(int argc, char **argv UNUSED)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(each_sink_accounts_for_every_sample),
		TEST(what_was_being_sent_at_a_crash_is_in_doubt_and_the_rest_is_sent_again),
		TEST(what_certainly_did_not_arrive_before_a_crash_is_sent_again),
		TEST(a_fate_before_the_answer_is_not_lost_with_the_exporter),
		TEST(a_batch_that_three_exporters_die_of_is_poisoned),
		TEST(a_kill_from_outside_is_not_the_batchs_fault),
		TEST(a_batch_that_was_taken_is_sent_again_to_the_next_exporter),
		TEST(of_many_that_were_taken_the_newest_four_survive_a_crash),
		TEST(bytes_are_bounded_too),
		TEST(a_let_go_batch_gets_its_fates_as_long_as_its_exporter_lives),
		TEST(windows_that_no_exporter_takes_are_bounded),
		TEST(a_lost_window_is_told_with_the_true_reason),
		TEST(what_is_in_no_batch_has_a_fate_at_each_current_sink),
		TEST(fates_beyond_what_was_handed_over_are_told),
		TEST(what_the_exporter_is_silent_about_is_lost),
		TEST(what_the_exporter_refuses_is_rejected),
		TEST(sinks_come_and_go),
		TEST(accounts_of_removed_sinks_make_room),
		TEST(subjects_get_their_labels),
		TEST(a_tap_is_told_and_its_batch_concerns_no_sink),
		TEST(as_many_taps_as_there_can_be_come_at_once),
		TEST(a_tap_whose_exporter_dies_is_forgotten),
		TEST(an_exporter_that_talks_nonsense_is_replaced),
		TEST(at_the_end_what_has_no_fate_is_told),
		TEST(a_commands_batch_is_written_to_its_output),
	};

	if (argc > 1)
		return exporter_main();
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
