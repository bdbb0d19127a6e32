/* The exporter as a program with an endpoint and a directory: what it says of each sample. */
#include "exporter/msg.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "config/config.h"
#include "tests/unit/export_fixture.h"
#include "tests/unit/http_fixture.h"

enum { DEADLINE_S = 20, SEEN_MAX = 256 };

struct seen_fate {
	uint64_t batch, part, nsamples;
	enum export_fate_kind kind;
	char sink[64];
};

static struct ipc_child child;
static struct ipc_in in;
static struct loop *loop;
static struct http_fixture *server;
static struct http_fixture_answer answer;
static unsigned int nprofiles;
static char last_head[8192];
static char directory[64];

static struct seen_fate fates[SEEN_MAX];
static unsigned int nfates, ntaken, ndone, nlabels, nstarts;
static struct export_done last_done;
static struct export_taken last_taken;
static char last_service[256];

static struct http_fixture_answer respond(void *arg, const struct http_fixture_request *r)
{
	(void)arg;
	snprintf(last_head, sizeof(last_head), "%s", r->head);
	if (!r->len)
		return (struct http_fixture_answer){ .status = 400,
						     .body = "{\"code\":\"invalid_argument\"}" };
	nprofiles++;
	return answer;
}

static void note_fate(struct bufr *r)
{
	CLEANUP_FREE void *mem = NULL;
	struct export_fate f;
	struct seen_fate *seen = &fates[nfates++];

	assert_true(nfates < SEEN_MAX);
	assert_int_equal(export_fate_decode(r, &f, &mem), 0);
	/* What is told of a batch comes after it was taken, and before it is done. */
	assert_int_equal(f.batch, last_taken.id);
	*seen = (struct seen_fate){
		.batch = f.batch, .part = f.part, .nsamples = f.nsamples, .kind = f.kind
	};
	snprintf(seen->sink, sizeof(seen->sink), "%s", f.sink);
}

static void note_labels(struct bufr *r)
{
	CLEANUP_FREE void *mem = NULL;
	struct export_labels l;

	assert_int_equal(export_labels_decode(r, &l, &mem), 0);
	nlabels++;
	for (uint32_t i = 0; i < l.nlabels; i++) {
		if (!strcmp(l.labels[i].name, "service_name"))
			snprintf(last_service, sizeof(last_service), "%s", l.labels[i].value);
	}
}

static int on_message(void *arg, unsigned int events)
{
	struct ipc_msg m;
	struct bufr r;

	(void)arg;
	(void)events;
	assert_int_equal(ipc_recv(child.sock, &in, &m), 1);
	bufr_init(&r, m.data, m.len);
	switch (m.type) {
	case IPC_HELLO:
		nstarts++;
		break;
	case EXPORT_TAKEN:
		assert_int_equal(export_taken_decode(&r, &last_taken), 0);
		ntaken++;
		break;
	case EXPORT_FATE:
		note_fate(&r);
		break;
	case EXPORT_DONE:
		assert_int_equal(export_done_decode(&r, &last_done), 0);
		ndone++;
		break;
	case EXPORT_LABELS:
		note_labels(&r);
		break;
	default:
		fail_msg("message of type %u", m.type);
	}
	return 0;
}

static void run_until(const unsigned int *counter, unsigned int n)
{
	uint64_t end = clock_mono_ns() + DEADLINE_S * NSEC_PER_SEC;

	while (*counter < n) {
		assert_true(clock_mono_ns() < end);
		assert_int_equal(loop_once(loop, NSEC_PER_SEC), 0);
	}
}

static void run_for(uint64_t ns)
{
	uint64_t end = clock_mono_ns() + ns;

	while (clock_mono_ns() < end)
		assert_int_equal(loop_once(loop, NSEC_PER_MSEC), 0);
}

static int setup(void **state)
{
	struct ipc_program program = { .name = "flamed-exporter" };

	(void)state;
	nprofiles = nfates = ntaken = ndone = nlabels = nstarts = 0;
	answer = (struct http_fixture_answer){ .status = 200 };
	snprintf(directory, sizeof(directory), "/tmp/flamed-test-XXXXXX");
	assert_non_null(mkdtemp(directory));
	assert_int_equal(loop_new(&loop), 0);
	server = http_fixture_new(loop, respond, NULL);
	program.exe_fd = open(EXPORTER_PATH, O_RDONLY | O_CLOEXEC);
	assert_int_equal(ipc_spawn(&child, &program), 0);
	close(program.exe_fd);
	assert_int_equal(loop_add(loop, NULL, child.sock, LOOP_IN, on_message, NULL), 0);
	run_until(&nstarts, 1);
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	(void)ipc_child_kill(&child, NSEC_PER_SEC);
	ipc_in_fini(&in);
	http_fixture_free(server);
	loop = loop_free(loop);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command);
}

static void tell(enum export_type type, struct bufw *w, int fd)
{
	assert_int_equal(bufw_end(w), 0);
	assert_int_equal(ipc_send(child.sock, type, w->data, w->len, fd), 0);
	bufw_fini(w);
}

/* The settings as the agent would load them. */
static void tell_config(const char *endpoint, const char *more_of_it, bool has_directory,
			const char *window)
{
	CLEANUP(config_freep) struct config *c = NULL;
	struct export_config more = {
		.hostname = "host-1", .hash = "00", .version = "1", .token = ""
	};
	char path[] = "/tmp/flamed-test-XXXXXX", text[1024], *why = NULL;
	struct bufw settings = {}, w = {};
	CLEANUP_FD int fd = mkstemp(path);
	int n;

	n = snprintf(text, sizeof(text),
		     "page:\n  listen: off\nmetrics:\n  listen: off\nwindow: %s\n", window);
	if (endpoint)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			      "endpoints:\n  - name: %s\n    url: http://127.0.0.1:%d\n%s",
			      endpoint, http_fixture_port(server), more_of_it);
	if (has_directory)
		snprintf(text + n, sizeof(text) - (size_t)n, "output:\n  directory: %s\n",
			 directory);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	if (config_load(&c, path, &why))
		fail_msg("%s", why);
	unlink(path);
	config_encode(&settings, c);
	more.settings = settings.data;
	more.settings_len = settings.len;
	export_config_encode(&w, &more);
	tell(EXPORT_CONFIG, &w, -1);
	bufw_fini(&settings);
}

static void tell_file(enum export_role role, uint32_t generation, const char *content)
{
	struct export_file f = { .role = role, .generation = generation };
	char path[] = "/tmp/flamed-test-XXXXXX";
	CLEANUP_FD int fd = mkstemp(path);
	struct bufw w = {};

	unlink(path);
	assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
	export_file_encode(&w, &f);
	tell(EXPORT_FILE, &w, fd);
}

static void tell_directory(void)
{
	struct export_file f = { .role = EXPORT_ROLE_OUTPUT_DIRECTORY, .generation = 1 };
	CLEANUP_FD int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct bufw w = {};

	export_file_encode(&w, &f);
	tell(EXPORT_FILE, &w, fd);
}

static void begin(void)
{
	struct bufw none = {};

	tell(EXPORT_START, &none, -1);
}

static void send_batch(uint64_t id, const struct export_settled *settled)
{
	struct export_fixture f;
	struct bufw w = {};

	export_fixture_init(&f);
	f.batch.id = id;
	f.batch.tap = 0;
	f.batch.wall_start_ns = clock_wall_ns() - NSEC_PER_SEC;
	export_batch_encode(&w, &f.batch);
	export_settled_encode(&w, settled ? settled : &(struct export_settled){});
	tell(EXPORT_BATCH, &w, -1);
}

static uint64_t samples_of(const char *sink, enum export_fate_kind kind)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < nfates; i++) {
		if (!strcmp(fates[i].sink, sink) && fates[i].kind == kind)
			n += fates[i].nsamples;
	}
	return n;
}

static void every_sample_has_a_fate_at_every_sink(void **state)
{
	(void)state;
	tell_config("one", "", true, "1s");
	tell_directory();
	begin();
	send_batch(5, NULL);
	run_until(&ndone, 1);
	assert_int_equal(ntaken, 1);
	assert_int_equal(last_taken.id, 5);
	assert_int_equal(last_taken.nsamples, 8);
	assert_int_equal(last_done.id, 5);
	assert_int_equal(last_done.result, EXPORT_WRITTEN);
	assert_int_equal(last_done.nsamples, 8);
	assert_int_equal(samples_of("one", EXPORT_FATE_SENDING), 8);
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 8);
	assert_int_equal(samples_of("directory", EXPORT_FATE_DELIVERED), 8);
	assert_true(nprofiles > 0);
}

static void what_is_settled_is_not_sent_again(void **state)
{
	uint64_t ids[SEEN_MAX];
	struct export_settled settled = { .ids = ids };
	unsigned int before;

	(void)state;
	tell_config("one", "", true, "1s");
	tell_directory();
	begin();
	send_batch(5, NULL);
	run_until(&ndone, 1);
	/* All of it but the first part that the server got. */
	for (unsigned int i = 0, nth = 0; i < nfates; i++) {
		if (fates[i].kind != EXPORT_FATE_DELIVERED ||
		    (!strcmp(fates[i].sink, "one") && !nth++))
			continue;
		ids[settled.n++] = fates[i].part;
	}
	before = nprofiles;
	nfates = 0;
	send_batch(5, &settled);
	run_until(&ndone, 2);
	assert_int_equal(nprofiles, before + 1);
	assert_int_equal(nfates, 2); /* sending, delivered */
	assert_string_equal(fates[1].sink, "one");
	assert_int_equal(last_taken.nsamples, 8);
}

/* What is settled by other settings of labels, in the exporter's life before this one. */
static void settle_one_of_two(const char *labels, struct export_settled *ret)
{
	tell_config("one", labels, false, "1s");
	begin();
	send_batch(5, NULL);
	run_until(&ndone, 1);
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 8);
	ret->n = 0;
	for (unsigned int i = 0; i < nfates && !ret->n; i++) {
		if (fates[i].kind == EXPORT_FATE_DELIVERED && fates[i].nsamples == 7)
			ret->ids[ret->n++] = fates[i].part;
	}
	assert_int_equal(ret->n, 1);
}

static void a_label_that_was_changed_makes_nothing_come_twice(void **state)
{
	uint64_t ids[SEEN_MAX];
	struct export_settled settled = { .ids = ids };

	settle_one_of_two("labels:\n  static: {env: old}\n", &settled);
	assert_int_equal(teardown(state), 0);
	assert_int_equal(setup(state), 0);
	tell_config("one", "labels:\n  static: {env: new, more: x}\n", false, "1s");
	begin();
	send_batch(5, &settled);
	run_until(&ndone, 1);
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 1);
	assert_int_equal(nprofiles, 1);
}

static void a_window_that_is_split_in_another_way_is_not_sent_on(void **state)
{
	uint64_t ids[SEEN_MAX] = { 0 };
	struct export_settled settled = { .ids = ids, .n = 1 };

	(void)state;
	tell_config("one", "", false, "1s");
	begin();
	ids[0] = 4711; /* no part has it */
	send_batch(5, &settled);
	run_until(&ndone, 1);
	assert_int_equal(last_taken.nsamples, 8);
	assert_int_equal(last_done.result, EXPORT_WRITTEN);
	assert_int_equal(nfates, 0);
	assert_int_equal(nprofiles, 0);
	send_batch(6, NULL);
	run_until(&ndone, 2);
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 8);
}

static void another_process_splits_a_batch_in_the_same_parts(void **state)
{
	static struct seen_fate first[SEEN_MAX];
	unsigned int nfirst;

	tell_config("one", "", true, "1s");
	tell_directory();
	begin();
	send_batch(5, NULL);
	run_until(&ndone, 1);
	memcpy(first, fates, sizeof(first));
	nfirst = nfates;
	assert_int_equal(teardown(state), 0);
	assert_int_equal(setup(state), 0);
	tell_config("one", "", true, "1s");
	tell_directory();
	begin();
	send_batch(5, NULL);
	run_until(&ndone, 1);
	assert_int_equal(nfates, nfirst);
	for (unsigned int i = 0; i < nfates; i++) {
		bool is_found = false;

		for (unsigned int j = 0; j < nfirst; j++)
			is_found |= fates[i].part == first[j].part &&
				    !strcmp(fates[i].sink, first[j].sink);
		assert_true(is_found);
	}
}

static void an_endpoint_that_is_removed_accounts_for_what_waits(void **state)
{
	(void)state;
	answer.manner = HTTP_HANG;
	tell_config("one", "", false, "1s");
	begin();
	send_batch(5, NULL);
	run_until(&nprofiles, 1);
	tell_config(NULL, "", false, "1s");
	run_until(&ndone, 1);
	assert_int_equal(samples_of("one", EXPORT_FATE_ENDPOINT_REMOVED), 8);
	assert_int_equal(last_done.nsamples, 8);
	/* And nobody gets the next one. */
	nfates = 0;
	send_batch(6, NULL);
	run_until(&ndone, 2);
	assert_int_equal(nfates, 0);
	assert_int_equal(last_done.result, EXPORT_WRITTEN);
}

static void an_endpoint_that_stays_keeps_what_waits(void **state)
{
	(void)state;
	answer = (struct http_fixture_answer){ .status = 503 };
	tell_config("one", "", false, "1s");
	begin();
	send_batch(5, NULL);
	run_until(&nprofiles, 1);
	answer.status = 200;
	tell_config("one", "    tenant_id: other\n", false, "1s");
	run_until(&ndone, 1);
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 8);
	assert_non_null(strstr(last_head, "X-Scope-OrgID: other"));
}

static void a_password_comes_as_a_file_of_the_present_settings(void **state)
{
	(void)state;
	tell_config("one",
		    "    basic_auth:\n      username: user\n      password_file: /etc/secret\n",
		    false, "1s");
	tell_file(EXPORT_ROLE_PASSWORD, 7, "of other settings");
	begin();
	send_batch(5, NULL);
	run_for(300 * NSEC_PER_MSEC);
	assert_int_equal(http_fixture_nrequests(server), 0);
	tell_file(EXPORT_ROLE_PASSWORD, 1, "right\n");
	run_until(&ndone, 1);
	assert_non_null(strstr(last_head, "Authorization: Basic dXNlcjpyaWdodA==\r\n"));
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 8);
}

/* Of a file one line end is left out, and nothing else. */
static void a_password_is_what_the_file_says(void **state)
{
	static const struct {
		const char *content, *pair;
	} table[] = {
		{ "right\n", "dXNlcjpyaWdodA==" },	{ "right\r\n", "dXNlcjpyaWdodA==" },
		{ "right", "dXNlcjpyaWdodA==" },	{ " right \n", "dXNlcjogcmlnaHQg" },
	};
	unsigned int n = 0;

	(void)state;
	tell_config("one",
		    "    basic_auth:\n      username: user\n      password_file: /etc/secret\n",
		    false, "1s");
	begin();
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char want[128];

		tell_file(EXPORT_ROLE_PASSWORD, 1, table[i].content);
		send_batch(i + 1, NULL);
		run_until(&ndone, ++n);
		snprintf(want, sizeof(want), "Authorization: Basic %s\r\n", table[i].pair);
		assert_non_null(strstr(last_head, want));
	}
	/* Two line ends are a mistake that is told, and no password. */
	tell_file(EXPORT_ROLE_PASSWORD, 1, "right\n\n");
	send_batch(99, NULL);
	run_until(&ntaken, n + 1);
	run_for(100 * NSEC_PER_MSEC);
	assert_int_equal(ndone, n);
}

static void a_directory_that_did_not_come_fails_to_be_written_to(void **state)
{
	(void)state;
	tell_config(NULL, "", true, "1s");
	begin();
	send_batch(5, NULL);
	run_until(&ndone, 1);
	assert_int_equal(samples_of("directory", EXPORT_FATE_WRITE_FAILED), 8);
}

static void a_flush_sends_what_waits(void **state)
{
	struct bufw none = {};

	(void)state;
	tell_config("one", "", false, "600s");
	begin();
	send_batch(5, NULL);
	run_until(&ntaken, 1);
	tell(EXPORT_FLUSH, &none, -1);
	run_until(&ndone, 1);
	assert_int_equal(samples_of("one", EXPORT_FATE_DELIVERED), 8);
}

static void a_process_is_labelled(void **state)
{
	struct export_facts f = {
		.id = 3, .pid = 1, .executable = "/usr/sbin/nginx", .comm = "x", .cgroups = ""
	};
	struct bufw w = {};

	(void)state;
	tell_config(NULL, "", false, "1s");
	begin();
	export_facts_encode(&w, &f);
	tell(EXPORT_SUBJECT, &w, -1);
	run_until(&nlabels, 1);
	assert_string_equal(last_service, "nginx");
}

#define EXPORTER_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EXPORTER_TEST(every_sample_has_a_fate_at_every_sink),
		EXPORTER_TEST(what_is_settled_is_not_sent_again),
		EXPORTER_TEST(a_label_that_was_changed_makes_nothing_come_twice),
		EXPORTER_TEST(a_window_that_is_split_in_another_way_is_not_sent_on),
		EXPORTER_TEST(another_process_splits_a_batch_in_the_same_parts),
		EXPORTER_TEST(an_endpoint_that_is_removed_accounts_for_what_waits),
		EXPORTER_TEST(an_endpoint_that_stays_keeps_what_waits),
		EXPORTER_TEST(a_password_comes_as_a_file_of_the_present_settings),
		EXPORTER_TEST(a_password_is_what_the_file_says),
		EXPORTER_TEST(a_directory_that_did_not_come_fails_to_be_written_to),
		EXPORTER_TEST(a_flush_sends_what_waits),
		EXPORTER_TEST(a_process_is_labelled),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
