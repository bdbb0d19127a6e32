/* An endpoint against a server of the test's own: what is sent, and what becomes of it. */
#include "exporter/push.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "exporter/http.h"
#include "exporter/push.pb-c.h"
#include "tests/unit/http_fixture.h"

enum { ANSWERS_MAX = 8, DEADLINE_S = 20 };

static struct loop *loop;
static struct http *http;
static struct http_fixture *server;
static struct push *push;
static struct config_endpoint endpoint;
static struct push_conf conf;
static char url[128];

/* The n-th request that is no probe gets the n-th answer; the last one goes on. */
static struct http_fixture_answer answers[ANSWERS_MAX], probe_answer;
static unsigned int nanswered, nprobes;
static char last_head[8192];
static uint8_t last_body[65536];
static size_t last_len;

static unsigned int fates[EXPORT_FATE_COUNT];
static uint64_t last_part;

static const struct http_fixture_answer no_profiles = {
	.status = 400,
	.body = "{\"code\":\"invalid_argument\",\"message\":\"no profiles received\"}"
};

static struct http_fixture_answer respond(void *arg, const struct http_fixture_request *r)
{
	unsigned int i = nanswered;

	(void)arg;
	snprintf(last_head, sizeof(last_head), "%s", r->head);
	last_len = MIN(r->len, sizeof(last_body));
	memcpy(last_body, r->body, last_len);
	if (!r->len) {
		nprobes++;
		return probe_answer;
	}
	nanswered++;
	while (i && (i >= ANSWERS_MAX || (!answers[i].status && !answers[i].manner)))
		i--;
	return answers[i];
}

static void on_fate(void *arg, const char *sink, const struct profile *p,
		    enum export_fate_kind kind)
{
	(void)arg;
	assert_string_equal(sink, "test");
	fates[kind]++;
	last_part = p->part;
}

static int setup(void **state)
{
	(void)state;
	memset(fates, 0, sizeof(fates));
	memset(answers, 0, sizeof(answers));
	nanswered = nprobes = 0;
	probe_answer = no_profiles;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(http_new(&http, loop), 0);
	server = http_fixture_new(loop, respond, NULL);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", http_fixture_port(server));
	endpoint = (struct config_endpoint){ .url = url,
					     .protocol = CONFIG_PUSH,
					     .timeout_ns = 10 * NSEC_PER_SEC };
	conf = (struct push_conf){
		.name = "test",
		.endpoint = &endpoint,
		.queue_max_bytes = 1 << 20,
		.version = "1.2.3",
		.backoff_first_ns = 5 * NSEC_PER_MSEC,
		.backoff_max_ns = 20 * NSEC_PER_MSEC,
		.hold_ns = 50 * NSEC_PER_MSEC,
	};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	push = push_free(push);
	http = http_free(http);
	http_fixture_free(server);
	loop = loop_free(loop);
	return 0;
}

static void begin(void)
{
	assert_int_equal(push_new(&push, loop, http, &conf, on_fate, NULL), 0);
}

static void add_of(uint64_t part, uint64_t age_ns, size_t len)
{
	static char names[][16] = { "hostname", "pod", "service_name", "zone" };
	static char values[][16] = { "host,1", "a=b}", "my/service", "\xc3\xa9" };
	static struct profile_label labels[ARRAY_SIZE(names)];
	struct profile *p = calloc(1, sizeof(*p));

	p->refs = 1;
	p->batch = 9;
	p->part = part;
	for (size_t i = 0; i < ARRAY_SIZE(labels); i++)
		labels[i] = (struct profile_label){ names[i], values[i] };
	p->labels = labels;
	p->nlabels = ARRAY_SIZE(labels);
	p->service_name = p->labels[2].value;
	p->wall_start_ns = clock_wall_ns() - age_ns;
	p->duration_ns = NSEC_PER_SEC;
	p->nsamples = 3;
	p->len = len;
	p->data = malloc(len);
	memset(p->data, (int)part, len);
	assert_int_equal(push_add(push, p), 0);
	profile_unref(p);
}

static void add(uint64_t part)
{
	add_of(part, NSEC_PER_SEC, 100);
}

static void run_until_fates(enum export_fate_kind kind, unsigned int n)
{
	uint64_t end = clock_mono_ns() + DEADLINE_S * NSEC_PER_SEC;

	while (fates[kind] < n) {
		assert_true(clock_mono_ns() < end);
		assert_int_equal(loop_once(loop, NSEC_PER_SEC), 0);
	}
	assert_int_equal(fates[kind], n);
}

static void run_for(uint64_t ns)
{
	uint64_t end = clock_mono_ns() + ns;

	while (clock_mono_ns() < end)
		assert_int_equal(loop_once(loop, NSEC_PER_MSEC), 0);
}

static const char *header(const char *name)
{
	return http_fixture_header(&(struct http_fixture_request){ .head = last_head }, name);
}

static const char *state_now(void)
{
	static struct sink_stats s;

	push_stats(push, &s);
	return s.state;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void a_profile_is_one_series_of_one_message(void **state)
{
	static struct value_pair more[] = { { (char *)(uintptr_t) "X-More",
					      (char *)(uintptr_t) "of that" } };
	Push__V1__PushRequest *m;
	Push__V1__RawProfileSeries *s;

	(void)state;
	endpoint.tenant_id = (char *)(uintptr_t) "tenant-1";
	endpoint.basic_auth.username = (char *)(uintptr_t) "Aladdin";
	endpoint.basic_auth.password = (char *)(uintptr_t) "open sesame";
	endpoint.headers = (struct value_map){ more, 1 };
	begin();
	add(0xabcdef0123456789);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(fates[EXPORT_FATE_SENDING], 1);
	assert_int_equal(nprobes, 1);
	assert_int_equal(strncmp(last_head, "POST /push.v1.PusherService/Push HTTP/1.1\r\n", 43),
			 0);
	assert_string_equal(header("Content-Type"), "application/proto");
	assert_string_equal(header("User-Agent"), "flamed/1.2.3");
	assert_string_equal(header("Connect-Protocol-Version"), "1");
	assert_string_equal(header("Authorization"),
			    "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="); /* of RFC 7617 */
	assert_string_equal(header("X-Scope-OrgID"), "tenant-1");
	assert_string_equal(header("X-More"), "of that");
	assert_string_equal(header("Expect"), "");
	assert_string_equal(header("Accept-Encoding"), "");

	m = push__v1__push_request__unpack(NULL, last_len, last_body);
	assert_non_null(m);
	assert_int_equal(m->n_series, 1);
	s = m->series[0];
	assert_int_equal(s->n_labels, 5);
	assert_string_equal(s->labels[0]->name, "__name__");
	assert_string_equal(s->labels[0]->value, "process_cpu");
	assert_string_equal(s->labels[2]->name, "pod");
	assert_string_equal(s->labels[2]->value, "a=b}");
	assert_int_equal(s->n_samples, 1);
	assert_int_equal(s->samples[0]->raw_profile.len, 100);
	assert_int_equal(s->samples[0]->raw_profile.data[99], 0x89);
	assert_int_equal(strlen(s->samples[0]->id), 36);
	assert_int_equal(strspn(s->samples[0]->id, "0123456789abcdef-"), 36);
	assert_int_equal(s->samples[0]->id[14], '8');
	push__v1__push_request__free_unpacked(m, NULL);
}

static void ingest_gets_a_file_in_a_form(void **state)
{
	char until[64];
	const char *at;

	(void)state;
	endpoint.protocol = CONFIG_INGEST;
	endpoint.bearer_token = (char *)(uintptr_t) "glc_token";
	begin();
	add(7);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(nprobes, 0);
	assert_string_equal(header("Authorization"), "Bearer glc_token");
	assert_int_equal(strncmp(header("Content-Type"), "multipart/form-data; boundary=", 30), 0);
	/* What would end a value is gone; service_name is in front, and nowhere else. */
	assert_non_null(strstr(
		last_head,
		"POST /ingest?name=my%2Fservice%7Bhostname%3Dhost_1%2Cpod%3Da_b_%2Czone%3D%C3%A9%7D&"));
	at = strstr(last_head, "&from=");
	assert_non_null(at);
	assert_int_equal(strspn(at + 6, "0123456789"), 19);
	snprintf(until, sizeof(until), "&until=%llu", strtoull(at + 6, NULL, 10) + NSEC_PER_SEC);
	assert_non_null(strstr(last_head, until));
	assert_non_null(strstr(last_head, "&spyName=flamed HTTP/1.1"));
	assert_non_null(memmem(last_body, last_len,
			       "name=\"profile\"; filename=\"profile.pprof\"\r\n", 41));
	at = memmem(last_body, last_len, "\r\n\r\n", 4);
	assert_non_null(at);
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(at[4 + i], 7);
	assert_memory_equal(at + 104, "\r\n--flamed-", 11);
	assert_memory_equal(last_body + last_len - 4, "--\r\n", 4);
}

static void a_path_in_front_and_a_query_are_kept(void **state)
{
	char more[256];

	(void)state;
	snprintf(more, sizeof(more), "%s/v1/pyroscope//?key=s%%3D1", url);
	endpoint.url = more;
	begin();
	add(1);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(strncmp(last_head,
				 "POST /v1/pyroscope/push.v1.PusherService/Push?key=s%3D1 ", 56),
			 0);
	push = push_free(push);
	endpoint.protocol = CONFIG_INGEST;
	begin();
	add(1);
	run_until_fates(EXPORT_FATE_DELIVERED, 2);
	assert_int_equal(strncmp(last_head, "POST /v1/pyroscope/ingest?key=s%3D1&name=my", 43), 0);
}

static void one_connection_serves_many_profiles(void **state)
{
	(void)state;
	begin();
	for (unsigned int i = 1; i <= 20; i++) {
		add(i);
		run_until_fates(EXPORT_FATE_DELIVERED, i);
	}
	assert_int_equal(http_fixture_nconnections(server), 1);
}

static void at_most_four_are_under_way(void **state)
{
	(void)state;
	answers[0].manner = HTTP_HANG;
	begin();
	for (unsigned int i = 1; i <= 20; i++)
		add(i);
	run_for(200 * NSEC_PER_MSEC);
	assert_int_equal(nanswered, 4);
	assert_int_equal(fates[EXPORT_FATE_SENDING], 4);
	assert_int_equal(push_nqueued(push), 20);
}

static void sends_are_spread_and_a_flush_ends_that(void **state)
{
	(void)state;
	conf.spread_ns = 3600 * NSEC_PER_SEC;
	begin();
	for (unsigned int i = 1; i <= 20; i++)
		add(i);
	run_for(100 * NSEC_PER_MSEC);
	assert_true(nanswered <= 1);
	push_flush(push);
	run_until_fates(EXPORT_FATE_DELIVERED, 20);
	assert_int_equal(push_nqueued(push), 0);
}

/* ---- what becomes of it ---------------------------------------------------------------------- */

#define CONNECT(code, text) "{\"code\":\"" code "\",\"message\":\"" text "\"}"

static void what_may_pass_later_is_tried_again(void **state)
{
	struct sink_stats s;

	(void)state;
	answers[0].status = 429;
	answers[1] = (struct http_fixture_answer){ .status = 503, .headers = "Retry-After: 1\r\n" };
	/* On a kept connection libcurl itself tries again. */
	answers[2].manner = answers[3].manner = HTTP_CLOSE;
	answers[4].status = 429;
	answers[5].status = 200;
	begin();
	add(5);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(nanswered, 6);
	/* These say that it did not arrive; a connection that ends says nothing, whatever is said later. */
	assert_int_equal(fates[EXPORT_FATE_SENDING], 3);
	assert_int_equal(fates[EXPORT_FATE_WAITING], 2);
	push_stats(push, &s);
	assert_true(s.nretries >= 4);
	assert_int_equal(s.nsent, 1);
	assert_in_range(s.bytes_sent, 101, 1000); /* what was taken, not what was tried */
	assert_int_equal(s.nqueued, 0);
	assert_int_equal(s.queued_bytes, 0);
	assert_string_equal(s.state, "ok");
	assert_true(s.last_error_wall_ns && s.last_ok_wall_ns >= s.last_error_wall_ns);
}

static void what_cannot_pass_is_dropped_and_the_next_one_goes_on(void **state)
{
	struct sink_stats s;

	(void)state;
	answers[0] =
		(struct http_fixture_answer){ .status = 400,
					      .body = CONNECT("invalid_argument", "no such luck") };
	answers[1].status = 413;
	answers[2].status = 200;
	begin();
	for (unsigned int i = 1; i <= 3; i++) {
		add(i);
		run_for(20 * NSEC_PER_MSEC);
	}
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(fates[EXPORT_FATE_REJECTED], 2);
	assert_int_equal(nanswered, 3);
	push_stats(push, &s);
	assert_string_equal(s.last_error, "413 ");
}

static void a_server_that_asks_for_time_gets_it(void **state)
{
	uint64_t start_ns = clock_mono_ns();

	(void)state;
	answers[0] = (struct http_fixture_answer){ .status = 429, .headers = "Retry-After: 1\r\n" };
	answers[1].status = 200;
	begin();
	add(1);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_true(clock_mono_ns() - start_ns >= NSEC_PER_SEC);
}

static void wrong_credentials_hold_the_queue_until_they_are_right(void **state)
{
	(void)state;
	conf.hold_ns = 3600 * NSEC_PER_SEC;
	endpoint.basic_auth.username = (char *)(uintptr_t) "user";
	endpoint.basic_auth.password_file = (char *)(uintptr_t) "/etc/secret";
	probe_answer = answers[0] = (struct http_fixture_answer){ .status = 401 };
	begin();
	add(1);
	run_for(50 * NSEC_PER_MSEC);
	assert_int_equal(http_fixture_nrequests(server), 0); /* the file has not come */
	assert_string_equal(state_now(), "waiting for a file");
	assert_int_equal(push_secret(push, EXPORT_ROLE_PASSWORD, NULL, 0), 0);
	run_for(50 * NSEC_PER_MSEC);
	assert_int_equal(http_fixture_nrequests(server), 0); /* nor can it be read */
	assert_int_equal(push_secret(push, EXPORT_ROLE_PASSWORD, "wrong", 5), 0);
	run_for(50 * NSEC_PER_MSEC);
	assert_int_equal(nprobes, 1);
	assert_int_equal(nanswered, 0); /* the probe found out */
	assert_string_equal(header("Authorization"), "Basic dXNlcjp3cm9uZw==");
	assert_string_equal(state_now(), "unauthorized");
	answers[0].status = 200;
	assert_int_equal(push_secret(push, EXPORT_ROLE_PASSWORD, "right", 5), 0);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_string_equal(header("Authorization"), "Basic dXNlcjpyaWdodA==");
}

static void a_hold_ends_by_itself_when_the_server_has_changed(void **state)
{
	(void)state;
	answers[0].status = 403;
	answers[1].status = 200;
	begin();
	for (unsigned int i = 1; i <= 10; i++)
		add(i);
	run_until_fates(EXPORT_FATE_DELIVERED, 10);
	assert_int_equal(fates[EXPORT_FATE_SENDING], 10 + fates[EXPORT_FATE_WAITING]);
}

static void without_a_password_nothing_is_sent(void **state)
{
	(void)state;
	endpoint.basic_auth.username = (char *)(uintptr_t) "user";
	endpoint.basic_auth.password_file = (char *)(uintptr_t) "/etc/secret";
	begin();
	add(1);
	assert_int_equal(push_secret(push, EXPORT_ROLE_PASSWORD, "", 0), 0);
	run_for(100 * NSEC_PER_MSEC);
	assert_int_equal(http_fixture_nrequests(server), 0);
	assert_string_equal(state_now(), "no credentials");
	assert_int_equal(push_secret(push, EXPORT_ROLE_PASSWORD, "two\nlines", 9), 0);
	run_for(20 * NSEC_PER_MSEC);
	assert_string_equal(state_now(), "no credentials");
	assert_int_equal(http_fixture_nrequests(server), 0);
	assert_int_equal(push_nqueued(push), 1);
}

static void a_redirect_is_not_followed(void **state)
{
	struct sink_stats s;

	(void)state;
	conf.hold_ns = 3600 * NSEC_PER_SEC;
	probe_answer = (struct http_fixture_answer){ .status = 301,
						     .headers = "Location: /elsewhere\r\n" };
	begin();
	add(1);
	run_for(100 * NSEC_PER_MSEC);
	assert_int_equal(http_fixture_nrequests(server), 1);
	push_stats(push, &s);
	assert_string_equal(s.state, "redirected");
	assert_non_null(strstr(s.last_error, "/elsewhere"));
	assert_int_equal(s.nqueued, 1);
}

static void a_server_without_push_gets_ingest(void **state)
{
	static const struct http_fixture_answer absent[] = {
		{ .status = 404, .type = "text/html", .body = "<html>not here" },
		{ .status = 405 },
		{ .status = 415 },
		{ .status = 501 },
		{ .status = 400, .type = "text/plain", .body = "what?" },
		{ .status = 200, .type = "text/plain", .body = "welcome" },
	};

	(void)state;
	endpoint.protocol = CONFIG_AUTO;
	answers[0].type = "";
	for (unsigned int i = 0; i < ARRAY_SIZE(absent); i++) {
		struct sink_stats s;

		probe_answer = absent[i];
		begin();
		add(1);
		add(2);
		run_until_fates(EXPORT_FATE_DELIVERED, 2 * i + 2);
		assert_int_equal(nprobes, 2 * i + 2); /* once is not enough */
		assert_int_equal(nanswered, 2 * i + 2);
		assert_non_null(strstr(last_head, "POST /ingest?"));
		push_stats(push, &s);
		assert_string_equal(s.kind, "ingest");
		push = push_free(push);
	}
}

static void one_answer_that_there_is_no_push_changes_nothing(void **state)
{
	(void)state;
	endpoint.protocol = CONFIG_AUTO;
	answers[0] = answers[1] = answers[2] = answers[3] =
		(struct http_fixture_answer){ .status = 404 }; /* while it is restarted */
	answers[4].status = 200;
	begin();
	for (unsigned int i = 1; i <= 4; i++)
		add(i);
	run_until_fates(EXPORT_FATE_DELIVERED, 4);
	assert_non_null(strstr(last_head, "POST /push.v1.PusherService/Push"));
}

static void a_server_that_gets_push_is_found_out(void **state)
{
	struct sink_stats s;
	uint64_t end = clock_mono_ns() + DEADLINE_S * NSEC_PER_SEC;

	(void)state;
	endpoint.protocol = CONFIG_AUTO;
	conf.push_again_ns = 50 * NSEC_PER_MSEC;
	probe_answer = (struct http_fixture_answer){ .status = 404 };
	begin();
	add(1);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_non_null(strstr(last_head, "POST /ingest?"));
	probe_answer = no_profiles;
	for (unsigned int n = 2;; n++) {
		assert_true(clock_mono_ns() < end);
		run_for(20 * NSEC_PER_MSEC);
		add(n);
		run_until_fates(EXPORT_FATE_DELIVERED, n);
		push_stats(push, &s);
		if (!strcmp(s.kind, "auto"))
			break;
	}
	add(1000);
	run_until_fates(EXPORT_FATE_SENDING, fates[EXPORT_FATE_DELIVERED] + 1);
	run_until_fates(EXPORT_FATE_DELIVERED, fates[EXPORT_FATE_SENDING]);
	assert_non_null(strstr(last_head, "POST /push.v1.PusherService/Push"));
}

/* Whoever lets one in to the network answers everything with 200. */
static void a_login_page_takes_no_profiles(void **state)
{
	struct sink_stats s;

	(void)state;
	endpoint.protocol = CONFIG_AUTO;
	conf.hold_ns = 3600 * NSEC_PER_SEC;
	probe_answer = answers[0] = (struct http_fixture_answer){ .type = "text/html",
								  .body = "<html>log in</html>" };
	begin();
	add(1);
	while (!nanswered)
		run_for(10 * NSEC_PER_MSEC);
	run_for(50 * NSEC_PER_MSEC);
	push_stats(push, &s);
	assert_string_equal(s.state, "wrong address");
	assert_int_equal(s.nqueued, 1);
	assert_int_equal(s.bytes_sent, 0);
}

static void an_address_without_either_holds_the_queue(void **state)
{
	(void)state;
	endpoint.protocol = CONFIG_AUTO;
	conf.hold_ns = 3600 * NSEC_PER_SEC;
	probe_answer = answers[0] = (struct http_fixture_answer){ .status = 404,
								  .type = "text/html",
								  .body = "<html>" };
	begin();
	add(1);
	run_for(100 * NSEC_PER_MSEC);
	assert_string_equal(state_now(), "wrong address");
	assert_int_equal(push_nqueued(push), 1);
	assert_int_equal(nanswered, 1);
}

static void a_server_that_hangs_is_given_up_and_tried_again(void **state)
{
	(void)state;
	endpoint.timeout_ns = 100 * NSEC_PER_MSEC;
	answers[0].manner = answers[1].manner = HTTP_HANG;
	answers[2].status = 200;
	begin();
	add(1);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(nanswered, 3);
}

static void an_endless_reply_is_cut_off_and_acknowledges_nothing(void **state)
{
	(void)state;
	conf.hold_ns = 3600 * NSEC_PER_SEC;
	endpoint.protocol = CONFIG_INGEST;
	answers[0] = (struct http_fixture_answer){ .status = 200,
						   .type = "text/plain",
						   .padding = 8 << 20 };
	begin();
	add(1);
	while (strcmp(state_now(), "wrong address") != 0)
		run_for(10 * NSEC_PER_MSEC);
	assert_int_equal(push_nqueued(push), 1);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 0);
}

/* libcurl alone would keep them all. */
static void endless_headers_are_cut_off(void **state)
{
	static char headers[100000];
	struct sink_stats s;
	size_t n = 0;

	(void)state;
	while (n < sizeof(headers) - 64)
		n += (size_t)snprintf(headers + n, 64, "X-Many: %zu\r\n", n);
	conf.backoff_first_ns = conf.backoff_max_ns = 3600 * NSEC_PER_SEC;
	endpoint.protocol = CONFIG_INGEST;
	answers[0] = (struct http_fixture_answer){ .status = 200, .type = "", .headers = headers };
	begin();
	add(1);
	while (strcmp(state_now(), "failing") != 0)
		run_for(10 * NSEC_PER_MSEC);
	push_stats(push, &s);
	assert_string_equal(s.last_error, "the answer is too long");
	assert_int_equal(s.nqueued, 1);
}

static void no_server_at_all_is_a_failure_that_waits(void **state)
{
	struct sink_stats s;

	(void)state;
	endpoint.url = (char *)(uintptr_t) "http://127.0.0.1:1";
	begin();
	add(1);
	run_for(100 * NSEC_PER_MSEC);
	push_stats(push, &s);
	assert_string_equal(s.state, "failing");
	assert_non_null(strstr(s.last_error, "127.0.0.1"));
	assert_int_equal(s.nqueued, 1);
	assert_true(s.nretries > 1);
}

/* A server may say our own words back to us. */
static void a_secret_that_the_server_repeats_is_told_to_nobody(void **state)
{
	struct sink_stats s;

	(void)state;
	endpoint.basic_auth.username = (char *)(uintptr_t) "user";
	endpoint.basic_auth.password = (char *)(uintptr_t) "hunter2";
	probe_answer = (struct http_fixture_answer){
		.status = 401,
		.type = "text/plain",
		.body = "hunter2 is no password: dXNlcjpodW50ZXIy hunter2",
	};
	begin();
	run_for(100 * NSEC_PER_MSEC);
	push_stats(push, &s);
	assert_string_equal(s.last_error, "401 *** is no password: *** ***");
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void a_full_queue_loses_its_oldest(void **state)
{
	(void)state;
	conf.spread_ns = 3600 * NSEC_PER_SEC;
	conf.queue_max_bytes = 10 * (100 + 1024);
	begin();
	for (unsigned int i = 1; i <= 12; i++)
		add(i);
	assert_int_equal(fates[EXPORT_FATE_QUEUE_FULL], 2);
	assert_int_equal(last_part, 2);
	assert_int_equal(push_nqueued(push), 10);
	add_of(13, NSEC_PER_SEC, 100000); /* more than it can ever hold */
	assert_int_equal(fates[EXPORT_FATE_QUEUE_FULL], 13);
	assert_int_equal(last_part, 13);
	assert_int_equal(push_nqueued(push), 0);
}

static void what_servers_take_no_more_is_not_sent(void **state)
{
	(void)state;
	begin();
	add_of(1, 2 * 3600 * NSEC_PER_SEC, 100);
	assert_int_equal(fates[EXPORT_FATE_TOO_OLD], 1);
	add_of(2, 58 * 60 * NSEC_PER_SEC, 100);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_int_equal(nanswered, 1);
}

static void what_grows_too_old_while_it_fails_is_dropped(void **state)
{
	(void)state;
	conf.age_max_ns = 1200 * NSEC_PER_MSEC;
	answers[0].status = 429;
	begin();
	add(1); /* a second old */
	run_until_fates(EXPORT_FATE_TOO_OLD, 1);
	assert_true(fates[EXPORT_FATE_WAITING] > 1);
	assert_int_equal(fates[EXPORT_FATE_SENDING], fates[EXPORT_FATE_WAITING]);
	assert_int_equal(push_nqueued(push), 0);
}

static void what_is_abandoned_gets_that_fate_also_under_way(void **state)
{
	(void)state;
	answers[0].manner = HTTP_HANG;
	begin();
	for (unsigned int i = 1; i <= 6; i++)
		add(i);
	run_for(100 * NSEC_PER_MSEC);
	push_abandon(push, EXPORT_FATE_ENDPOINT_REMOVED);
	assert_int_equal(fates[EXPORT_FATE_ENDPOINT_REMOVED], 6);
	assert_int_equal(push_nqueued(push), 0);
}

static void other_settings_leave_the_queue_as_it_is(void **state)
{
	(void)state;
	conf.hold_ns = 3600 * NSEC_PER_SEC;
	endpoint.bearer_token_file = (char *)(uintptr_t) "/etc/token";
	probe_answer = answers[0] = (struct http_fixture_answer){ .status = 401 };
	begin();
	assert_int_equal(push_secret(push, EXPORT_ROLE_BEARER_TOKEN, "abc", 3), 0);
	add(1);
	run_for(50 * NSEC_PER_MSEC);
	assert_string_equal(state_now(), "unauthorized");
	probe_answer = no_profiles;
	answers[0].status = 200;
	endpoint.tenant_id = (char *)(uintptr_t) "me";
	assert_int_equal(push_configure(push, &conf), 0);
	run_until_fates(EXPORT_FATE_DELIVERED, 1);
	assert_string_equal(header("X-Scope-OrgID"), "me");
	assert_string_equal(header("Authorization"), "Bearer abc");
	assert_int_equal(nprobes, 2);
}

#define PUSH_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PUSH_TEST(a_profile_is_one_series_of_one_message),
		PUSH_TEST(ingest_gets_a_file_in_a_form),
		PUSH_TEST(a_path_in_front_and_a_query_are_kept),
		PUSH_TEST(one_connection_serves_many_profiles),
		PUSH_TEST(at_most_four_are_under_way),
		PUSH_TEST(sends_are_spread_and_a_flush_ends_that),
		PUSH_TEST(what_may_pass_later_is_tried_again),
		PUSH_TEST(what_cannot_pass_is_dropped_and_the_next_one_goes_on),
		PUSH_TEST(a_server_that_asks_for_time_gets_it),
		PUSH_TEST(wrong_credentials_hold_the_queue_until_they_are_right),
		PUSH_TEST(a_hold_ends_by_itself_when_the_server_has_changed),
		PUSH_TEST(without_a_password_nothing_is_sent),
		PUSH_TEST(a_redirect_is_not_followed),
		PUSH_TEST(a_server_without_push_gets_ingest),
		PUSH_TEST(one_answer_that_there_is_no_push_changes_nothing),
		PUSH_TEST(a_server_that_gets_push_is_found_out),
		PUSH_TEST(a_login_page_takes_no_profiles),
		PUSH_TEST(an_address_without_either_holds_the_queue),
		PUSH_TEST(a_server_that_hangs_is_given_up_and_tried_again),
		PUSH_TEST(an_endless_reply_is_cut_off_and_acknowledges_nothing),
		PUSH_TEST(endless_headers_are_cut_off),
		PUSH_TEST(no_server_at_all_is_a_failure_that_waits),
		PUSH_TEST(a_secret_that_the_server_repeats_is_told_to_nobody),
		PUSH_TEST(a_full_queue_loses_its_oldest),
		PUSH_TEST(what_servers_take_no_more_is_not_sent),
		PUSH_TEST(what_grows_too_old_while_it_fails_is_dropped),
		PUSH_TEST(what_is_abandoned_gets_that_fate_also_under_way),
		PUSH_TEST(other_settings_leave_the_queue_as_it_is),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
