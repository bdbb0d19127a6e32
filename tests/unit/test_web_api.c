/* What the API, /metrics and `flamed status` say. */
#include "exporter/web.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/clock.h"
#include "exporter/status.h"
#include "tests/unit/export_fixture.h"
#include "tests/unit/web_fixture.h"

#define TOKEN WEB_FIXTURE_TOKEN

static struct web_fixture *w;

static int setup(void **state)
{
	int err = web_fixture_init(state);

	w = *state;
	return err;
}

/* ---- the API -------------------------------------------------------------------------------- */

static void status_says_what_is_known(void **state)
{
	json_t *s, *o;

	(void)state;
	json_decref(web_fixture_api(w, "/api/v1/status", 200)); /* before anything came */
	web_fixture_tell(w);
	web_fixture_window(w, 1, clock_wall_ns() - 20 * NSEC_PER_SEC);
	web_set_landlock(w->web, 5);
	s = web_fixture_api(w, "/api/v1/status", 200);
	assert_string_equal(json_string_value(json_object_get(s, "version")), "1.2.3");
	assert_string_equal(json_string_value(json_object_get(s, "hostname")), "test-host");
	assert_int_equal(json_integer_value(json_object_get(s, "hz")), 100);
	assert_int_equal(json_integer_value(json_object_get(s, "landlock")), 5);
	assert_true(json_real_value(json_object_get(s, "window_seconds")) == 15);
	assert_true(json_real_value(json_object_get(s, "uptime_seconds")) >= 60);
	o = json_object_get(s, "config");
	assert_string_equal(json_string_value(json_object_get(o, "path")),
			    "/etc/flamed/flamed.yaml");
	assert_string_equal(json_string_value(json_object_get(o, "hash")), w->more.hash);
	assert_true(json_is_true(json_object_get(o, "last_reload_ok")));
	o = json_object_get(s, "samples");
	assert_int_equal(json_integer_value(json_object_get(o, "seen")), 1000);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(o, "dropped"), "ring_full")),
		10);
	/* 900 of 950: a kernel thread has no user stack to complete. */
	assert_true(json_real_value(json_object_get(o, "complete_percent")) > 94.73);
	assert_true(json_real_value(json_object_get(o, "complete_percent")) < 94.74);
	o = json_array_get(json_object_get(s, "sinks"), 0);
	assert_string_equal(json_string_value(json_object_get(o, "last_error")), "401 \"no\"");
	assert_int_equal(json_integer_value(json_object_get(o, "pending")), 290);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(o, "samples"), "delivered")),
		700);
	assert_true(json_real_value(json_object_get(o, "last_ok_time")) == 1700000000.5);
	o = json_object_get(s, "memory");
	assert_int_equal(json_integer_value(json_object_get(o, "agent")), 1 << 20);
	assert_int_equal(json_integer_value(json_object_get(o, "bpf_maps")), 4096);
	assert_true(json_real_value(json_object_get(json_object_get(s, "cpu_seconds"), "agent")) ==
		    2.5);
	o = json_array_get(json_object_get(s, "processes"), 0);
	assert_int_equal(json_array_size(json_object_get(o, "caps_effective")), 2);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(o, "caps_permitted"), 0)),
		"sys_ptrace");
	assert_true(json_is_false(json_object_get(o, "seccomp")));
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(s, "recent"), "windows")), 1);
	assert_int_equal(json_array_size(json_object_get(s, "listeners")), 3);
	o = json_array_get(json_object_get(s, "listeners"), 1);
	assert_string_equal(json_string_value(json_object_get(o, "name")), "control");
	assert_string_equal(json_string_value(json_object_get(o, "address")), w->control);
	json_decref(s);
}

static void services_and_processes_are_listed(void **state)
{
	json_t *s, *o, *p;

	(void)state;
	web_fixture_window(w, 1, clock_wall_ns() - 40 * NSEC_PER_SEC);
	web_fixture_window(w, 2, clock_wall_ns() - 20 * NSEC_PER_SEC);
	s = web_fixture_api(w, "/api/v1/services", 200);
	assert_int_equal(json_integer_value(json_object_get(s, "samples")), 16);
	assert_int_equal(json_array_size(json_object_get(s, "services")), 2);
	o = json_array_get(json_object_get(s, "services"), 0);
	assert_string_equal(json_string_value(json_object_get(o, "name")), "shop");
	assert_int_equal(json_integer_value(json_object_get(o, "samples")), 14);
	assert_int_equal(json_integer_value(json_object_get(o, "nprocesses")), 1);
	p = json_array_get(json_object_get(o, "processes"), 0);
	assert_int_equal(json_integer_value(json_object_get(p, "pid")), 100);
	assert_string_equal(json_string_value(json_object_get(p, "executable")), "/usr/bin/app");
	/* Whatever bytes a workload chose. */
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(p, "labels"), "container_id")),
		"abc\x01<b>\xef\xbf\xbd");
	o = json_array_get(json_object_get(s, "services"), 1); /* not labelled in time */
	assert_string_equal(json_string_value(json_object_get(o, "name")), "kernel");
	json_decref(s);
}

static void a_query_gives_a_tree_and_a_table(void **state)
{
	json_t *q, *nodes;
	json_int_t frame;

	(void)state;
	web_fixture_window(w, 1, clock_wall_ns() - 20 * NSEC_PER_SEC);
	q = web_fixture_api(w, "/api/v1/query?from=-60&service=shop", 200);
	assert_int_equal(json_integer_value(json_object_get(q, "samples")), 7);
	assert_int_equal(json_integer_value(json_object_get(q, "windows")), 1);
	assert_int_equal(json_integer_value(json_object_get(q, "period_ns")), 10000000);
	nodes = json_object_get(q, "nodes");
	assert_int_equal(json_array_size(json_object_get(nodes, "parent")), 5);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(nodes, "frame"), 0)),
			 -1);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(nodes, "total"), 0)),
			 70200000);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(nodes, "self"), 4)),
			 50000000);
	frame = json_integer_value(json_array_get(json_object_get(nodes, "frame"), 4));
	frame = json_integer_value(
		json_array_get(json_array_get(json_object_get(q, "frames"), (size_t)frame), 0));
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(q, "names"), (size_t)frame)),
		"twice");
	assert_int_equal(json_array_size(json_object_get(q, "top")), 4);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(q, "pruned"), "nodes")),
			 0);
	json_decref(q);
	q = web_fixture_api(w, "/api/v1/query?nodes=2", 200);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(q, "pruned"), "self")),
			 80130000);
	assert_int_equal(json_array_size(json_object_get(json_object_get(q, "nodes"), "self")), 2);
	json_decref(q);
	q = web_fixture_api(w, "/api/v1/query?from=-10", 200);
	assert_int_equal(json_integer_value(json_object_get(q, "samples")), 0);
	assert_int_equal(json_array_size(json_object_get(json_object_get(q, "nodes"), "self")), 1);
	json_decref(q);
}

static void bad_parameters_are_told(void **state)
{
	static const char *const paths[] = {
		"/api/v1/query?from=yesterday", "/api/v1/query?to=1e3",
		"/api/v1/query?from=",		"/api/v1/query?from=nan",
		"/api/v1/query?from=0x10",	"/api/v1/query?from=99999999999999",
		"/api/v1/query?nodes=1",	"/api/v1/query?nodes=131073",
		"/api/v1/query?nodes=-5",	"/api/v1/services?from=-10&to=-20",
		"/api/v1/services?from=1.2.3",
	};
	json_t *j;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		j = web_fixture_api(w, paths[i], 400);
		assert_true(json_is_string(json_object_get(j, "error")));
		json_decref(j);
	}
	json_decref(web_fixture_api(w, "/api/v1/query?nodes=131072&from=0&to=9000000000", 200));
	json_decref(web_fixture_api(w, "/api/v1/nothing", 404));
	json_decref(web_fixture_api(w, "/api/v1/", 404));
}

/* The bytes of a gzip stream, NUL-terminated. */
static char *inflate_all(const char *data, size_t len)
{
	enum { MAX = 1 << 20 };
	char *out = calloc(1, MAX + 1);
	z_stream z = { .next_in = (z_const Bytef *)data,
		       .avail_in = (uInt)len,
		       .next_out = (Bytef *)out,
		       .avail_out = MAX };

	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	inflateEnd(&z);
	return out;
}

static void a_large_answer_is_compressed_when_that_is_accepted(void **state)
{
	static const char path[] = "/" TOKEN "/api/v1/query";
	CLEANUP(bufw_fini) struct bufw bytes = {};
	static char name[20000];
	struct export_fixture f;
	struct web_reply r;
	char *text;
	json_t *j;

	(void)state;
	memset(name, 'n', sizeof(name));
	export_fixture_init(&f);
	f.batch.wall_start_ns = clock_wall_ns() - 20 * NSEC_PER_SEC;
	for (uint32_t i = 0; i < 4; i++) {
		name[0] = (char)('a' + i);
		f.strings[f.functions[i].name] =
			(struct export_string){ strndup(name, sizeof(name)), sizeof(name) };
	}
	export_batch_encode(&bytes, &f.batch);
	assert_int_equal(bufw_end(&bytes), 0);
	assert_int_equal(web_window(w->web, &f.batch, bytes.data, bytes.len), 0);
	for (uint32_t i = 0; i < 4; i++)
		free((void *)(uintptr_t)f.strings[f.functions[i].name].text);
	r = web_fixture_ask(w, w->page_port, "GET", path,
			    "Accept-Encoding: deflate, gzip;q=1.0, *;q=0.5\r\n");
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.head, "Content-Encoding: gzip"));
	assert_true(r.body_len < 4096);
	text = inflate_all(r.body, r.body_len);
	j = json_loads(text, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(j, "names")), 5);
	/* Names are cut, however long they are. */
	assert_int_equal(json_string_length(json_array_get(json_object_get(j, "names"), 0)), 4096);
	json_decref(j);
	free(text);
	web_reply_fini(&r);
	r = web_fixture_ask(w, w->page_port, "GET", path, "Accept-Encoding: gzip;q=0, deflate\r\n");
	assert_null(strstr(r.head, "Content-Encoding"));
	assert_true(r.body_len > 16384);
	web_reply_fini(&r);
	r = web_fixture_ask(w, w->page_port, "GET", path, "");
	assert_null(strstr(r.head, "Content-Encoding"));
	web_reply_fini(&r);
}

/* ---- metrics -------------------------------------------------------------------------------- */

static void metrics_are_prometheus_text(void **state)
{
	static const char *const lines[] = {
		"# TYPE flamed_samples_seen_total counter\nflamed_samples_seen_total 1000\n",
		"flamed_samples_dropped_total{reason=\"ring_full\"} 10\n",
		"flamed_stacks_total{outcome=\"complete\"} 900\nflamed_stacks_total{outcome=\"no_cfi\"} 50\n",
		"flamed_sink_samples_total{endpoint=\"https://example.com\",result=\"delivered\"} 700\n",
		"flamed_sink_samples_total{endpoint=\"a\\\"b\\\\c\\nd\",result=\"rejected\"} 1\n",
		"flamed_sink_samples_pending{endpoint=\"https://example.com\"} 290\n",
		"flamed_memory_bytes{process=\"agent\"} 1048576\n",
		"flamed_build_info{version=\"1.2.3\",build=\"",
		"flamed_config_hash{hash=\"00112233445566778899aabbccddeeff\"} 1\n",
		"flamed_sink_queue_bytes{endpoint=\"https://example.com\"} 4096\n",
		"flamed_sink_queue_profiles{endpoint=\"https://example.com\"} 3\n",
		"flamed_sink_last_success_timestamp_seconds{endpoint=\"https://example.com\"} 1700000000.500\n",
		"flamed_listener_up{listener=\"page\"} 1\n",
	};
	struct web_reply r;

	(void)state;
	web_fixture_tell(w);
	web_fixture_window(w, 1, clock_wall_ns());
	r = web_fixture_ask(w, w->metrics_port, "GET", "/metrics", "");
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.head, "Content-Type: text/plain; version=0.0.4"));
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		if (!strstr(r.body, lines[i]))
			fail_msg("no %s", lines[i]);
	}
	assert_null(strstr(r.body, "shop")); /* no profile data */
	assert_null(strstr(r.body, TOKEN));
	assert_null(strstr(r.body, "s3cret"));
	web_reply_fini(&r);
}

static void it_is_ready_when_the_agent_speaks(void **state)
{
	(void)state;
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET", "/healthz", ""), 200);
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET", "/readyz", ""), 503);
	web_fixture_tell(w);
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET", "/readyz", ""), 200);
}

/* ---- flamed status -------------------------------------------------------------------------- */

static void status_is_printed_for_people(void **state)
{
	static const char *const parts[] = {
		"test-host",
		"100 Hz on 2 CPUs",
		"1000 seen, 990 counted, 94.74 %",
		"ring_full 10",
		"https://example.com (push): failing",
		"401 \"no\"",
		"delivered 700",
		"page at 127.0.0.1:",
		"perfmon,bpf",
		"\nMissing rights: cap_x: a loss\n",
		"version 5",
		"/etc/flamed/flamed.yaml",
	};
	char *text = NULL;
	json_t *s;
	size_t len;
	FILE *out;

	(void)state;
	web_fixture_tell(w);
	web_set_landlock(w->web, 5);
	w->sink.last_error[0] = '\x1b';
	s = web_fixture_api(w, "/api/v1/status", 200);
	out = open_memstream(&text, &len);
	status_print(out, s);
	fclose(out);
	assert_null(strchr(text, '\x1b'));
	w->sink.last_error[0] = '4';
	json_decref(s);
	free(text);
	s = web_fixture_api(w, "/api/v1/status", 200);
	out = open_memstream(&text, &len);
	status_print(out, s);
	fclose(out);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!strstr(text, parts[i]))
			fail_msg("no %s in\n%s", parts[i], text);
	}
	free(text);
	json_decref(s);
	s = json_object(); /* nothing at all: no crash */
	out = open_memstream(&text, &len);
	status_print(out, s);
	fclose(out);
	free(text);
	json_decref(s);
}

/* Whatever a daemon, or who pretends to be one, says: no control character reaches the terminal. */
static void status_prints_no_control_characters(void **state)
{
	static const char evil[] = "a\x1b[2J\x7f\xc2\x9b\nb";
	CLEANUP_FREE char *text = NULL;
	json_t *s = json_pack("{s:{s:I}, s:{s:{s:I}}, s:{s:I}, s:[{s:s, s:I, s:[s]}], s:[{s:s, s:s}],"
			      " s:[{s:s, s:s, s:s, s:s}], s:s}", /**/
			      "memory", evil, (json_int_t)1, "samples", "dropped", evil, (json_int_t)1,
			      "windows", evil, (json_int_t)1, "processes", "name", evil, "pid",
			      (json_int_t)1, "caps_effective", evil, "listeners", "name", evil, "error",
			      evil, "sinks", "name", evil, "kind", evil, "state", evil, "last_error",
			      evil, "hostname", evil);
	size_t len, nshown = 0;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	assert_non_null(s);
	status_print(out, s);
	fclose(out);
	for (size_t i = 0; i < len; i++)
		assert_true(text[i] == '\n' || (text[i] >= ' ' && text[i] != 0x7f));
	for (const char *at = text; (at = strstr(at, "a?[2J???b")); at++)
		nshown++;
	assert_int_equal(nshown, 12);
	json_decref(s);
}

static void windows_that_are_not_kept_are_told(void **state)
{
	struct web_reply r;
	json_t *s, *recent;

	(void)state;
	for (uint64_t i = 1; i <= 3; i++)
		web_fixture_window(w, i, clock_wall_ns() - 20 * NSEC_PER_SEC);
	s = web_fixture_api(w, "/api/v1/status", 200);
	w->config.page.max_bytes = 5 *
		(uint64_t)json_integer_value(json_object_get(json_object_get(s, "recent"), "bytes")) / 6;
	json_decref(s);
	web_fixture_configure(w);
	w->config.page.max_bytes = 10;
	s = web_fixture_api(w, "/api/v1/status", 200);
	recent = json_object_get(s, "recent");
	assert_int_equal(json_integer_value(json_object_get(recent, "evicted")), 1);
	assert_int_equal(json_integer_value(json_object_get(recent, "refused")), 0);
	json_decref(s);
	web_fixture_configure(w);
	web_fixture_window(w, 4, clock_wall_ns());
	r = web_fixture_ask(w, w->metrics_port, "GET", "/metrics", "");
	assert_non_null(strstr(r.body, "flamed_recent_windows_evicted_total 3\n"));
	assert_non_null(strstr(r.body, "flamed_recent_windows_refused_total 1\n"));
	web_reply_fini(&r);
}

static void status_of_no_daemon_is_one_line(void **state)
{
	(void)state;
	assert_int_equal(status_run("/nonexistent/flamed.sock", false), 1);
}

#define WITH_WEB(test) cmocka_unit_test_setup_teardown(test, setup, web_fixture_fini)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WEB(status_says_what_is_known),
		WITH_WEB(services_and_processes_are_listed),
		WITH_WEB(a_query_gives_a_tree_and_a_table),
		WITH_WEB(bad_parameters_are_told),
		WITH_WEB(a_large_answer_is_compressed_when_that_is_accepted),
		WITH_WEB(metrics_are_prometheus_text),
		WITH_WEB(it_is_ready_when_the_agent_speaks),
		WITH_WEB(status_is_printed_for_people),
		cmocka_unit_test(status_prints_no_control_characters),
		WITH_WEB(windows_that_are_not_kept_are_told),
		cmocka_unit_test(status_of_no_daemon_is_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
