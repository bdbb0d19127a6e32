/* What answers of servers and proxies mean: the rules of docs/pyroscope.md, row by row. */
#include "exporter/push_reply.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const char no_profiles[] =
	"{\"code\":\"invalid_argument\",\"message\":\"no profiles received\"}";

#define CONNECT(code, text) "{\"code\":\"" code "\",\"message\":\"" text "\"}"

static void answers_are_told_apart(void **state)
{
	static const struct {
		enum push_transport t;
		long status;
		const char *type, *body;
		enum push_verdict verdict;
		bool did_not_arrive; /* of what is not passed */
		uint64_t retry_after_ns;
	} table[] = {
		{ PUSH_CONNECT, 200, "application/proto", "", PUSH_PASSED, false, 0 },
		{ PUSH_CONNECT, 200, "Application/Proto; v=1", "\x0a\x02hi", PUSH_PASSED, false, 0 },
		{ PUSH_CONNECT, 200, "application/json", "{}", PUSH_PASSED, false, 0 },
		{ PUSH_INGEST, 200, "", "", PUSH_PASSED, false, 0 },
		{ PUSH_INGEST, 200, "text/plain", "ok\n", PUSH_PASSED, false, 0 },
		{ PUSH_INGEST, 200, "application/json", "{\"status\":\"success\"}", PUSH_PASSED, false, 0 },
		{ PUSH_INGEST, 202, "application/json", "{}", PUSH_PASSED, false, 0 },
		{ PUSH_INGEST, 204, "", "", PUSH_PASSED, false, 0 },
		/* Others say 200 too. */
		{ PUSH_CONNECT, 200, "", "", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 204, "application/proto", "", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "text/plain", "", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "text/plain", "ok", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "application/protocols", "", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "application/proto", "welcome", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "application/json", "", PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "application/json", CONNECT("internal", "x"), PUSH_ABSENT, false, 0 },
		{ PUSH_CONNECT, 200, "text/html; charset=utf-8", "<html>log in</html>", PUSH_ABSENT, false, 0 },
		{ PUSH_INGEST, 200, "text/html", "<html>log in</html>", PUSH_HOLD, false, 0 },
		{ PUSH_INGEST, 200, "text/plain", " <!DOCTYPE html>", PUSH_HOLD, false, 0 },
		{ PUSH_INGEST, 200, "text/plain", "okay, who are you?", PUSH_HOLD, false, 0 },
		{ PUSH_INGEST, 200, "application/json", "{\"error\":\"no\"}", PUSH_HOLD, false, 0 },
		{ PUSH_INGEST, 200, "application/json", "{\"status\":\"error\"}", PUSH_HOLD, false, 0 },
		{ PUSH_INGEST, 200, "application/json", "{\"success\":false}", PUSH_HOLD, false, 0 },
		{ PUSH_INGEST, 200, "application/json", "[]", PUSH_HOLD, false, 0 },
		{ PUSH_CONNECT, 302, "", "", PUSH_HOLD, true, 0 },
		{ PUSH_CONNECT, 400, "application/json", CONNECT("invalid_argument", "bad"),
		  PUSH_REFUSED, true, 0 },
		{ PUSH_CONNECT, 400, "text/plain", "bad request", PUSH_ABSENT, true, 0 },
		{ PUSH_INGEST, 400, "text/plain", "bad name", PUSH_REFUSED, true, 0 },
		{ PUSH_CONNECT, 401, "", "", PUSH_HOLD, true, 0 },
		{ PUSH_INGEST, 401, "application/json",
		  "{\"status\":\"error\",\"error\":\"no credentials\"}", PUSH_HOLD, true, 0 },
		{ PUSH_CONNECT, 403, "", "", PUSH_HOLD, true, 0 },
		{ PUSH_CONNECT, 404, "text/html", "<html>", PUSH_ABSENT, true, 0 },
		{ PUSH_INGEST, 404, "text/html", "<html>", PUSH_HOLD, true, 0 },
		{ PUSH_CONNECT, 405, "", "", PUSH_ABSENT, true, 0 },
		{ PUSH_INGEST, 407, "", "", PUSH_HOLD, true, 0 },
		{ PUSH_CONNECT, 408, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 409, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 413, "text/html", "<html>", PUSH_REFUSED, true, 0 },
		{ PUSH_CONNECT, 415, "", "", PUSH_ABSENT, true, 0 },
		{ PUSH_INGEST, 415, "", "", PUSH_HOLD, true, 0 },
		{ PUSH_INGEST, 422, "application/json",
		  CONNECT("unknown", "x resource_exhausted: push rate limit"), PUSH_RETRY, true, 0 },
		{ PUSH_INGEST, 422, "application/json",
		  CONNECT("unknown", "unavailable: segment writer"), PUSH_RETRY, false, 0 },
		{ PUSH_INGEST, 422, "application/json",
		  CONNECT("unknown", "deadline_exceeded: x"), PUSH_RETRY, false, 0 },
		{ PUSH_INGEST, 422, "application/json",
		  CONNECT("unknown", "invalid_argument: labels '{service_name=internal: x}' bad"),
		  PUSH_REFUSED, false, 0 },
		{ PUSH_INGEST, 422, "application/json",
		  CONNECT("unknown", "service internal is odd"), PUSH_REFUSED, false, 0 },
		{ PUSH_CONNECT, 422, "application/json", CONNECT("unknown", "unavailable: x"),
		  PUSH_REFUSED, false, 0 },
		{ PUSH_CONNECT, 425, "", "", PUSH_RETRY, true, 0 },
		{ PUSH_CONNECT, 429, "", "", PUSH_RETRY, true, 0 },
		{ PUSH_CONNECT, 499, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 500, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 501, "application/json", CONNECT("unimplemented", "x"),
		  PUSH_ABSENT, true, 0 },
		{ PUSH_CONNECT, 502, "text/html", "<html>", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 503, "text/html", "<html>", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 503, "text/html", "<html>", PUSH_RETRY, true, NSEC_PER_SEC },
		{ PUSH_INGEST, 504, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_INGEST, 507, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 418, "", "", PUSH_REFUSED, true, 0 },
		{ PUSH_CONNECT, 999, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 101, "", "", PUSH_RETRY, false, 0 },
		{ PUSH_CONNECT, 400, "application/json", "[1,2", PUSH_ABSENT, true, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct push_asked asked = { .transport = table[i].t,
					    .url = "http://a",
					    .username = "" };
		struct http_result r = { .status = table[i].status,
					 .content_type = table[i].type,
					 .body = table[i].body,
					 .body_len = strlen(table[i].body),
					 .location = "",
					 .error = "",
					 .retry_after_ns = table[i].retry_after_ns };
		struct push_reply reply;

		push_reply_read(&asked, &r, &reply);
		if (reply.verdict != table[i].verdict ||
		    (reply.verdict != PUSH_PASSED && reply.did_not_arrive != table[i].did_not_arrive))
			fail_msg("row %zu: status %ld is %d, %s arrived", i, table[i].status,
				 (int)reply.verdict, reply.did_not_arrive ? "never" : "perhaps");
		assert_non_null(reply.hint);
		/* In the log, what is not simply done comes with what to do. */
		assert_true(reply.verdict == PUSH_PASSED || *reply.hint);
		assert_null(strchr(reply.hint, '\'')); /* it is quoted there */
	}
}

static void the_empty_message_of_the_probe_is_refused_and_that_is_fine(void **state)
{
	struct push_asked asked = {
		.transport = PUSH_CONNECT, .is_probe = true, .url = "", .username = ""
	};
	struct http_result r = { .status = 400,
				 .content_type = "application/json",
				 .body = no_profiles,
				 .body_len = strlen(no_profiles),
				 .location = "",
				 .error = "" };
	struct push_reply reply;

	(void)state;
	push_reply_read(&asked, &r, &reply);
	assert_int_equal(reply.verdict, PUSH_PASSED);
	assert_string_equal(reply.state, "ok");
}

static void a_probe_is_answered_by_a_server_with_push_alone(void **state)
{
	static const struct {
		long status;
		const char *body;
		enum push_verdict verdict;
	} table[] = {
		{ 400, CONNECT("invalid_argument", "another text"), PUSH_PASSED },
		{ 400, "who are you?", PUSH_ABSENT },
		{ 413, "<html>", PUSH_ABSENT },
		{ 418, "", PUSH_ABSENT },
		{ 401, "", PUSH_HOLD },
		{ 200, "<html>", PUSH_ABSENT },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct push_asked asked = {
			.transport = PUSH_CONNECT, .is_probe = true, .url = "", .username = ""
		};
		struct http_result r = { .status = table[i].status,
					 .content_type = "",
					 .body = table[i].body,
					 .body_len = strlen(table[i].body),
					 .location = "",
					 .error = "" };
		struct push_reply reply;

		push_reply_read(&asked, &r, &reply);
		assert_int_equal(reply.verdict, table[i].verdict);
	}
}

static void an_answer_that_is_too_large_acknowledges_nothing(void **state)
{
	static char body[HTTP_REPLY_MAX + 1];
	struct push_asked asked = { .transport = PUSH_INGEST, .url = "", .username = "" };
	struct http_result r = { .status = 200, .content_type = "", .body = body, .body_len = HTTP_REPLY_MAX,
				 .location = "", .error = "" };
	struct push_reply reply;

	(void)state;
	memset(body, ' ', HTTP_REPLY_MAX);
	push_reply_read(&asked, &r, &reply);
	assert_int_equal(reply.verdict, PUSH_HOLD);
	r.body_len--;
	body[HTTP_REPLY_MAX - 1] = '\0';
	push_reply_read(&asked, &r, &reply);
	assert_int_equal(reply.verdict, PUSH_PASSED);
}

static void a_message_of_a_server_is_text_on_one_line(void **state)
{
	static const char body[] =
		"{\"code\":\"internal\",\"message\":\"a\\nb\\u001b[31m\\u0000c\"}";
	struct push_asked asked = { .transport = PUSH_CONNECT, .url = "", .username = "" };
	struct http_result r = { .status = 500,
				 .content_type = "",
				 .body = body,
				 .body_len = strlen(body),
				 .location = "",
				 .error = "" };
	struct push_reply reply;

	(void)state;
	push_reply_read(&asked, &r, &reply);
	for (const char *s = reply.message; *s; s++)
		assert_true(*s >= 0x20 && *s != 0x7f);
}

static void hints_know_the_endpoint(void **state)
{
	static const struct {
		const char *url, *username, *word;
		bool has_auth, has_tenant;
	} table[] = {
		{ "https://otel.kloudmate.com/v1/profiles/pyroscope", "me", "is the word KloudMate",
		  true, false },
		{ "https://otel.kloudmate.com/v1/profiles/pyroscope", "KloudMate",
		  "Ingest Key - Backend", true, false },
		{ "https://profiles-prod-001.grafana.net", "123", "profiles:write", true, false },
		{ "http://pyroscope:4040", "", "tenant_id", false, false },
		{ "http://pyroscope:4040", "", "basic_auth", false, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct push_asked asked = { .url = table[i].url,
					    .username = table[i].username,
					    .has_auth = table[i].has_auth,
					    .has_tenant = table[i].has_tenant };
		struct http_result r = {
			.status = 401, .content_type = "", .body = "", .location = "", .error = ""
		};
		struct push_reply reply;

		push_reply_read(&asked, &r, &reply);
		assert_int_equal(reply.verdict, PUSH_HOLD);
		assert_non_null(strstr(reply.hint, table[i].word));
	}
}

/* No answer at all: it is tried again, unless our own settings are the cause. */
static void a_silent_name_server_is_told_from_a_slow_server(void **state)
{
	struct push_asked asked = { .url = "", .username = "" };
	struct http_result r = { .code = CURLE_OPERATION_TIMEDOUT, .is_unresolved = true,
				 .content_type = "", .body = "", .location = "", .error = "timed out" };
	struct push_reply reply;

	(void)state;
	push_reply_read(&asked, &r, &reply);
	assert_int_equal(reply.verdict, PUSH_RETRY);
	assert_non_null(strstr(reply.hint, "/etc/resolv.conf"));
}

static void failures_of_the_network_are_told_apart(void **state)
{
	static const struct {
		CURLcode code;
		enum push_verdict verdict;
		const char *word;
	} table[] = {
		{ CURLE_COULDNT_RESOLVE_HOST, PUSH_RETRY, "resolver" },
		{ CURLE_COULDNT_CONNECT, PUSH_RETRY, "firewall" },
		{ CURLE_OPERATION_TIMEDOUT, PUSH_RETRY, "timeout" },
		{ CURLE_PEER_FAILED_VERIFICATION, PUSH_RETRY, "tls.ca_file" },
		{ CURLE_SSL_CERTPROBLEM, PUSH_HOLD, "tls.cert_file" },
		{ CURLE_HTTP2_STREAM, PUSH_RETRY, "tried again" },
	};

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(table); i++) {
		struct push_asked asked = { .url = "", .username = "" };
		/* Also one that cannot connect may have sent it on a connection that ended. */
		struct http_result r = { .code = table[i / 2].code,
					 .was_sent = i % 2,
					 .content_type = "",
					 .body = "",
					 .location = "",
					 .error = "what\nit said" };
		struct push_reply reply;

		push_reply_read(&asked, &r, &reply);
		assert_int_equal(reply.verdict, table[i / 2].verdict);
		assert_int_equal(reply.did_not_arrive, !(i % 2));
		assert_non_null(strstr(reply.hint, table[i / 2].word));
		assert_string_equal(reply.message, "what?it said");
		assert_true(reply.kind < 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_are_told_apart),
		cmocka_unit_test(the_empty_message_of_the_probe_is_refused_and_that_is_fine),
		cmocka_unit_test(a_probe_is_answered_by_a_server_with_push_alone),
		cmocka_unit_test(an_answer_that_is_too_large_acknowledges_nothing),
		cmocka_unit_test(a_message_of_a_server_is_text_on_one_line),
		cmocka_unit_test(hints_know_the_endpoint),
		cmocka_unit_test(a_silent_name_server_is_told_from_a_slow_server),
		cmocka_unit_test(failures_of_the_network_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
