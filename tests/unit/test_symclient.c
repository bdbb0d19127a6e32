#include "agent/symclient.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "symbolizer/msg.h"

/* ---- the symbolizer: this program, run with an argument ------------------------------------------ */

enum { CRASHING_FILE = 666 };

static int symbolizer_main(void)
{
	struct rlimit none = { 0, 0 };
	struct ipc_in in = { 0 };
	struct ipc_msg msg;
	int r;

	(void)setrlimit(RLIMIT_CORE, &none);
	r = ipc_hello();
	while (r >= 0 && (r = ipc_recv(IPC_FD, &in, &msg)) == 1) {
		struct msg_request asked;
		struct bufr b;

		bufr_init(&b, msg.data, msg.len);
		if (msg_request_decode(&b, &asked))
			return 5;
		if (asked.file_id == CRASHING_FILE)
			abort();
		r = ipc_send(IPC_FD, msg.type, &asked.id, sizeof(asked.id), -1);
	}
	ipc_in_fini(&in);
	return r < 0;
}

/* ---- the agent ---------------------------------------------------------------------------------- */

static uint32_t nquarantined, nnormal;
static struct symclient *sym;
static struct loop *loop;

static int set_up(void **state UNUSED)
{
	return loop_new(&loop);
}

static int tear_down(void **state UNUSED)
{
	sym = symclient_free(sym);
	loop = loop_free(loop);
	return 0;
}

static int on_event(void *arg UNUSED, const struct event *e)
{
	bool bad = e->answer.request->file_id == CRASHING_FILE;
	struct msg_names names;
	struct msg_rows rows;
	struct bufr in;

	bufr_init(&in, e->answer.data, e->answer.len);
	if (!bad) {
		assert_int_equal(bufr_u64(&in), e->answer.request->id);
		nnormal++;
	} else if (e->type == EVENT_ROWS) {
		assert_int_equal(msg_rows_decode(&in, &rows), 0);
		assert_int_equal(rows.result, MSG_FILE_QUARANTINED);
		msg_rows_fini(&rows);
		nquarantined++;
	} else {
		assert_int_equal(msg_names_decode(&in, &names), 0);
		assert_int_equal(names.result, MSG_FILE_QUARANTINED);
		msg_names_fini(&names);
		nquarantined++;
	}
	return 0;
}

static void ask_symbolizer(enum msg_type type, uint64_t id, uint64_t file_id)
{
	static struct msg_request r;

	r = (struct msg_request){ .id = id, .file_id = file_id, .naddrs = 1 };
	assert_int_equal(symclient_ask(sym, type, &r, -1), 0);
}

/* However much was asked about it: two crashes, then everything is answered, and others lose nothing. */
static void a_file_that_crashes_the_symbolizer_costs_two_restarts(void **state UNUSED)
{
	CLEANUP_FD int exe_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	struct ipc_program p = { .name = "test-symbolizer", .arg = "serve", .exe_fd = exe_fd };
	uint64_t end = clock_mono_ns() + 10 * NSEC_PER_SEC;

	nquarantined = nnormal = 0;
	assert_int_equal(symclient_new(&sym, loop, &p, on_event, NULL), 0);
	for (uint64_t id = 1; id <= 300; id++)
		ask_symbolizer(id % 2 ? MSG_ROWS : MSG_NAMES, id, id % 3 ? id : CRASHING_FILE);
	while (nquarantined + nnormal < 300) {
		assert_int_equal(loop_once(loop, 100 * NSEC_PER_MSEC), 0);
		assert_true(clock_mono_ns() < end);
	}
	assert_int_equal(nquarantined, 100);
	assert_int_equal(nnormal, 200);
	assert_int_equal(symclient_restarts(sym), 2);
	assert_int_equal(symclient_quarantined(sym), 1);
	assert_int_equal(symclient_pending(sym), 0);
	/* From then on at once, but never inside the question. */
	ask_symbolizer(MSG_ROWS, 301, CRASHING_FILE);
	assert_int_equal(nquarantined, 100);
	assert_int_equal(loop_once(loop, 100 * NSEC_PER_MSEC), 0);
	assert_int_equal(nquarantined, 101);
}

int main(int argc, char **argv UNUSED)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_file_that_crashes_the_symbolizer_costs_two_restarts, set_up, tear_down),
	};

	if (argc > 1)
		return symbolizer_main();
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
