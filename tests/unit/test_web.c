/* The web server as a browser, go tool pprof, Prometheus and `flamed status` see it. */
#include "exporter/web.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <arpa/inet.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/export_fixture.h"
#include "tests/unit/pprof_check.h"
#include "tests/unit/web_fixture.h"

#define TOKEN		 WEB_FIXTURE_TOKEN
#define BASIC_OK	 "Authorization: Basic cmVhZGVyOnMzY3JldC13b3Jk\r\n" /* reader:s3cret-word */
#define BASIC_WRONG	 "Authorization: Basic cmVhZGVyOnMzY3JldC13b3Jl\r\n" /* reader:s3cret-wore */
#define BASIC_OTHER_USER "Authorization: Basic b3RoZXI6czNjcmV0LXdvcmQ=\r\n" /* other:s3cret-word */
#define BASIC_BLANKS	 "Authorization: Basic cmVhZGVyOnMzY3JldC13b3JkIAk=\r\n" /* the same, blank, tab */
#define BASIC_EMPTY	 "Authorization: Basic Og==\r\n"		     /* : */
#define BASIC_TOKEN							     /* x:TOKEN */ \
	"Authorization: Basic eDowMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==\r\n"

static struct web_fixture *w;

static int setup(void **state)
{
	int err = web_fixture_init(state);

	w = *state;
	return err;
}

static int page(const char *path, const char *headers)
{
	return web_fixture_status(w, w->page_port, "GET", path, headers);
}

/* ---- who may see what ----------------------------------------------------------------------- */

static const char *const guarded[] = {
	"/",
	"/index.html",
	"/app.js",
	"/api/v1/status",
	"/api/v1/services",
	"/api/v1/query",
	"/debug/pprof/profile?seconds=0",
	"/nothing",
};

static void with_query(char *ret, size_t size, const char *path, const char *query)
{
	snprintf(ret, size, "%s%c%s", path, strchr(path, '?') ? '&' : '?', query);
}

static void without_the_token_nothing_is_shown(void **state)
{
	static const char *const wrong[] = {
		"",
		BASIC_WRONG,
		BASIC_OTHER_USER,
		BASIC_EMPTY,
		"Authorization: Bearer 0123456789abcdef0123456789abcdee\r\n",
		"Authorization: Bearer \r\n",
		"Authorization: Basic !!!!\r\n",
		"Authorization: nonsense\r\n",
		"Cookie: token=" TOKEN "\r\n",
	};
	static const char *const queries[] = { "token=", "token=" TOKEN "0",
					       "token=0123456789abcdef", ("tokens=" TOKEN) };
	char path[256];

	(void)state;
	web_fixture_window(w, 1, clock_wall_ns() - 20 * NSEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(guarded); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(wrong); j++) {
			struct web_reply r =
				web_fixture_ask(w, w->page_port, "GET", guarded[i], wrong[j]);

			assert_int_equal(r.status, 401);
			assert_non_null(strstr(r.head, "WWW-Authenticate: Basic"));
			assert_null(strstr(r.body, "shop"));
			assert_null(strstr(r.body, "script"));
			assert_true(r.body_len < 100);
			web_reply_fini(&r);
		}
		for (size_t j = 0; j < ARRAY_SIZE(queries); j++) {
			with_query(path, sizeof(path), guarded[i], queries[j]);
			assert_int_equal(page(path, ""), 401);
		}
		snprintf(path, sizeof(path), "/%s0%s", TOKEN, guarded[i]);
		assert_int_equal(page(path, ""), 401);
		snprintf(path, sizeof(path), "/%.*s%s", 31, TOKEN, guarded[i]);
		assert_int_equal(page(path, ""), 401);
		snprintf(path, sizeof(path), "//%s", guarded[i]);
		assert_int_equal(page(path, ""), 401);
	}
}

static void each_way_to_be_known_opens_everything(void **state)
{
	static const int wanted[] = { 200, 200, 200, 200, 200, 200, 400, 404 };
	static const char *const ways[] = {
		BASIC_OK,
		BASIC_TOKEN,
		"Authorization: Bearer " TOKEN "\r\n",
		"authorization: bearer  " TOKEN "\r\n",
	};
	char path[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(guarded); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(ways); j++)
			assert_int_equal(page(guarded[i], ways[j]), wanted[i]);
		with_query(path, sizeof(path), guarded[i], "token=" TOKEN);
		assert_int_equal(page(path, ""), wanted[i]);
		snprintf(path, sizeof(path), "/%s%s", TOKEN, guarded[i]);
		assert_int_equal(page(path, ""), wanted[i]);
	}
}

/* A page that polls after a restart must not make its browser ask for a password. */
static void only_who_opens_the_page_is_asked_for_a_password(void **state)
{
	struct web_reply r = web_fixture_ask(w, w->page_port, "GET", "/api/v1/status",
					     "Sec-Fetch-Mode: cors\r\n");

	(void)state;
	assert_int_equal(r.status, 401);
	assert_non_null(strstr(r.head, "WWW-Authenticate: Bearer"));
	assert_null(strstr(r.head, "Basic"));
	web_reply_fini(&r);
	r = web_fixture_ask(w, w->page_port, "GET", "/", "Sec-Fetch-Mode: navigate\r\n");
	assert_non_null(strstr(r.head, "WWW-Authenticate: Basic"));
	web_reply_fini(&r);
}

static void without_a_password_in_the_settings_none_is_taken(void **state)
{
	static char empty[] = "", user[] = "reader";

	(void)state;
	w->config.page.basic_auth.password = empty;
	web_fixture_configure(w);
	assert_int_equal(page("/", BASIC_OK), 401);
	assert_int_equal(page("/", "Authorization: Basic cmVhZGVyOg==\r\n"), 401); /* reader: */
	/* It may come from a file; whoever read that has left out its line end. */
	assert_int_equal(web_page_password(w->web, "s3cret-word", 11), 0);
	assert_int_equal(page("/", BASIC_OK), 200);
	assert_int_equal(web_page_password(w->web, "s3cret-word \t", 13), 0);
	assert_int_equal(page("/", BASIC_OK), 401);
	assert_int_equal(page("/", BASIC_BLANKS), 200);
	assert_int_equal(web_page_password(w->web, NULL, 0), 0);
	assert_int_equal(page("/", BASIC_OK), 401);
	w->config.page.basic_auth.username = empty;
	web_fixture_configure(w);
	assert_int_equal(page("/", BASIC_EMPTY), 401);
	w->config.page.basic_auth.username = user;
}

static void a_new_token_replaces_the_old_one(void **state)
{
	(void)state;
	assert_int_equal(page("/" TOKEN "/", ""), 200);
	w->more.token = "ffffffffffffffffffffffffffffffff";
	web_fixture_configure(w);
	assert_int_equal(page("/" TOKEN "/", ""), 401);
	assert_int_equal(page("/ffffffffffffffffffffffffffffffff/", ""), 200);
}

static void the_page_has_relative_links_and_no_way_out(void **state)
{
	struct web_reply r = web_fixture_ask(w, w->page_port, "GET", "/" TOKEN, "");

	(void)state;
	assert_int_equal(r.status, 301);
	assert_non_null(strstr(r.head, "Location: /" TOKEN "/\r\n"));
	web_reply_fini(&r);
	r = web_fixture_ask(w, w->page_port, "GET", "/" TOKEN "/", "");
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.head, "Content-Type: text/html; charset=utf-8"));
	assert_non_null(strstr(r.head,
			       "Content-Security-Policy: default-src 'none'; script-src 'self'; "
			       "style-src 'self'; connect-src 'self'; img-src 'self' data:"));
	assert_non_null(strstr(r.head, "Referrer-Policy: no-referrer"));
	assert_non_null(strstr(r.head, "X-Content-Type-Options: nosniff"));
	assert_non_null(strstr(r.head, "Cache-Control: no-store"));
	assert_null(strstr(r.head, "Access-Control"));
	assert_memory_equal(r.body, "<!doctype html>", 15);
	assert_null(strstr(r.body, "=\"/"));
	assert_null(strstr(r.body, "http"));
	web_reply_fini(&r);
	assert_int_equal(page("/" TOKEN "/app.js", ""), 200);
	assert_int_equal(page("/" TOKEN "/../app.js", ""), 404);
	assert_int_equal(page("/" TOKEN "/metrics", ""), 404);
}

static void other_methods_are_not_allowed(void **state)
{
	static const char *const methods[] = { "POST",	  "PUT",   "DELETE",
					       "OPTIONS", "PATCH", "NONSENSE" };
	struct web_reply r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		assert_int_equal(web_fixture_status(w, w->page_port, methods[i], "/" TOKEN "/", ""),
				 405);
		assert_int_equal(web_fixture_status(w, w->metrics_port, methods[i], "/metrics", ""),
				 405);
		assert_int_equal(web_fixture_status(w, WEB_FIXTURE_CONTROL, methods[i],
						    "/api/v1/status", ""),
				 405);
	}
	r = web_fixture_ask(w, w->page_port, "HEAD", "/" TOKEN "/", "");
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body_len, 0);
	assert_null(strstr(r.head, "Content-Length: 0"));
	web_reply_fini(&r);
	assert_int_equal(web_fixture_status(w, w->page_port, "HEAD",
					    "/" TOKEN "/debug/pprof/profile", ""),
			 200);
	assert_int_equal(w->ntaps, 0);
}

static void a_strangers_name_for_this_address_is_refused(void **state)
{
	(void)state;
	assert_int_equal(page("/" TOKEN "/", "Host: localhost:8080\r\n"), 200);
	assert_int_equal(page("/" TOKEN "/", "Host: 127.0.0.1:4041\r\n"), 200);
	assert_int_equal(page("/" TOKEN "/", "Host: [::1]:4041\r\n"), 200);
	assert_int_equal(page("/" TOKEN "/", "Host: evil.example\r\n"), 421);
	assert_int_equal(page("/" TOKEN "/", "Host: 127.0.0.1.evil.example\r\n"), 421);
	assert_int_equal(page("/" TOKEN "/", "Host: localhost.evil.example:4041\r\n"), 421);
	assert_int_equal(page("/" TOKEN "/", "Host: 10.0.0.1\r\n"), 421);
	assert_int_equal(page("/" TOKEN "/", "Host: localhost:x\r\n"), 421);
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET", "/metrics",
					    "Host: evil.example\r\n"),
			 421);
}

static void metrics_and_control_have_no_other_doors(void **state)
{
	(void)state;
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET", "/api/v1/status", ""), 404);
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET", "/" TOKEN "/", ""), 404);
	assert_int_equal(web_fixture_status(w, w->metrics_port, "GET",
					    "/debug/pprof/profile?token=" TOKEN, ""),
			 404);
	assert_int_equal(web_fixture_status(w, WEB_FIXTURE_CONTROL, "GET", "/", ""), 404);
	assert_int_equal(
		web_fixture_status(w, WEB_FIXTURE_CONTROL, "GET", "/debug/pprof/profile", ""), 404);
	assert_int_equal(web_fixture_status(w, WEB_FIXTURE_CONTROL, "GET", "/api/v1/services", ""),
			 200);
}

static void a_long_or_broken_request_is_refused(void **state)
{
	static char path[6000];

	(void)state;
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	assert_int_equal(page(path, ""), 414);
	path[900] = '\0';
	assert_int_equal(page(path, ""), 401);
	assert_int_equal(web_fixture_status(w, w->page_port, "GET", "/ HTTP/1.1\r\nbroken", ""),
			 400);
}

static void a_crowd_that_goes_away_leaves_nothing_behind(void **state)
{
	int fds[100]; /* more than it takes at once */

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_port = htons((in_port_t)w->page_port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		assert_true(fds[i] >= 0);
		assert_true(!connect(fds[i], (struct sockaddr *)&a, sizeof(a)) || errno == EINPROGRESS);
		web_fixture_wait(w, 1);
		(void)!write(fds[i], "GET /", 5);
	}
	web_fixture_wait(w, 300);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	assert_int_equal(page("/" WEB_FIXTURE_TOKEN "/", ""), 200);
}

/* ---- listeners ------------------------------------------------------------------------------ */

static void a_taken_port_is_told_and_the_rest_goes_on(void **state)
{
	CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	char address[64];
	struct web_reply r;
	json_t *s, *l;

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(a.sin_port));
	w->config.page.listen = address;
	web_fixture_configure(w);
	s = web_fixture_api(w, "/api/v1/status", 200);
	l = json_array_get(json_object_get(s, "listeners"), 0);
	assert_string_equal(json_string_value(json_object_get(l, "name")), "page");
	assert_string_equal(json_string_value(json_object_get(l, "address")), address);
	assert_true(json_is_false(json_object_get(l, "up")));
	assert_string_equal(json_string_value(json_object_get(l, "error")),
			    "Address already in use");
	json_decref(s);
	r = web_fixture_ask(w, w->metrics_port, "GET", "/metrics", "");
	assert_non_null(strstr(r.body, "flamed_listener_up{listener=\"page\"} 0\n"));
	web_reply_fini(&r);
}

static void the_page_is_off_when_there_is_an_endpoint(void **state)
{
	static char empty[] = "", off[] = "off";
	struct config_endpoint endpoint = {};
	struct web_reply r;

	(void)state;
	w->config.page.listen = empty;
	w->config.endpoints = (struct value_items){ &endpoint, 1 };
	for (uint64_t i = 1; i < 4; i++)
		web_fixture_window(w, i, clock_wall_ns() - 20 * NSEC_PER_SEC);
	web_fixture_configure(w);
	assert_int_equal(w->page_port, 0);
	json_decref(web_fixture_api(w, "/api/v1/services", 200));
	r = web_fixture_ask(w, w->metrics_port, "GET", "/metrics", "");
	assert_null(strstr(r.body, "listener=\"page\""));
	assert_non_null(
		strstr(r.body, "flamed_recent_windows 1\n")); /* the last, for `flamed status` */
	web_reply_fini(&r);
	w->config.endpoints.n = 0;
	w->config.page.listen = off;
	web_fixture_configure(w);
	assert_int_equal(w->page_port, 0);
}

static void listeners_move_and_close_with_the_settings(void **state)
{
	static char v6[] = "[::1]:0", off[] = "off", same[] = "127.0.0.1:0";
	int port = w->page_port;

	(void)state;
	web_fixture_configure(w); /* the same: it stays */
	assert_int_equal(w->page_port, port);
	w->config.metrics.listen = off;
	web_fixture_configure(w);
	assert_int_equal(w->metrics_port, 0);
	w->config.metrics.listen = same;
	w->config.page.listen = v6;
	web_fixture_configure(w);
	assert_int_not_equal(w->metrics_port, 0);
	assert_int_not_equal(w->page_port, 0);
}

/* ---- profiles on demand --------------------------------------------------------------------- */

static void bring(uint64_t tap)
{
	struct export_fixture f;

	export_fixture_init(&f);
	f.batch.tap = tap;
	f.batch.duration_ns = 2 * NSEC_PER_SEC;
	web_take_tap(w->web, &f.batch);
}

static void a_profile_of_the_next_seconds_is_served(void **state)
{
	int fd = web_fixture_send(w, w->page_port, "GET",
				  "/" TOKEN "/debug/pprof/profile?seconds=2", "");
	struct web_reply r;
	pprof_profile *p;

	(void)state;
	web_fixture_wait(w, 300);
	assert_int_equal(w->ntaps, 1);
	assert_int_equal(w->taps[0].duration_ns, 2 * NSEC_PER_SEC);
	bring(w->taps[0].id + 1); /* another's: ignored */
	bring(w->taps[0].id);
	r = web_fixture_receive(w, fd);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.head, "Content-Type: application/octet-stream"));
	assert_non_null(strstr(r.head, "Content-Disposition: attachment"));
	p = pprof_load(r.body, r.body_len);
	assert_non_null(p);
	assert_null(pprof_check(p));
	assert_int_equal(p->duration_nanos, 2 * NSEC_PER_SEC);
	assert_int_equal(p->n_sample, 3);
	pprof_unload(p);
	web_reply_fini(&r);
	bring(w->taps[0].id); /* again: nobody waits */
}

static void a_profile_can_be_narrowed_to_a_service(void **state)
{
	int fd = web_fixture_send(w, w->page_port, "GET",
				  "/debug/pprof/profile?seconds=1&service=kernel",
				  "Authorization: Bearer " TOKEN "\r\n");
	struct web_reply r;
	pprof_profile *p;

	(void)state;
	web_fixture_wait(w, 100);
	bring(w->taps[0].id);
	r = web_fixture_receive(w, fd);
	p = pprof_load(r.body, r.body_len);
	assert_non_null(p);
	assert_null(pprof_check(p));
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->sample[0]->value[0], 1);
	pprof_unload(p);
	web_reply_fini(&r);
}

static void seconds_out_of_range_are_refused(void **state)
{
	static const char *const seconds[] = { "0", "121", "-1", "x", "", "1000000000000", "2.5" };
	char path[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(seconds); i++) {
		snprintf(path, sizeof(path), "/%s/debug/pprof/profile?seconds=%s", TOKEN,
			 seconds[i]);
		assert_int_equal(page(path, ""), 400);
	}
	assert_int_equal(w->ntaps, 0);
}

static void the_seventeenth_profile_at_once_is_refused(void **state)
{
	static const char path[] = "/" TOKEN "/debug/pprof/profile?seconds=60";
	int fds[EXPORT_TAPS_MAX];
	struct web_reply r;

	(void)state;
	for (int i = 0; i < EXPORT_TAPS_MAX; i++)
		fds[i] = web_fixture_send(w, w->page_port, "GET", path, "");
	web_fixture_wait(w, 100);
	assert_int_equal(w->ntaps, EXPORT_TAPS_MAX);
	for (int i = 0; i < EXPORT_TAPS_MAX; i++) {
		for (int j = 0; j < i; j++)
			assert_int_not_equal(w->taps[i].id, w->taps[j].id);
	}
	r = web_fixture_ask(w, w->page_port, "GET", path, "");
	assert_int_equal(r.status, 503);
	assert_non_null(strstr(r.head, "Retry-After: "));
	web_reply_fini(&r);
	/* One that is served frees its place. */
	bring(w->taps[1].id);
	r = web_fixture_receive(w, fds[1]);
	assert_int_equal(r.status, 200);
	web_reply_fini(&r);
	fds[1] = web_fixture_send(w, w->page_port, "GET", path, "");
	web_fixture_wait(w, 100);
	assert_int_equal(w->ntaps, EXPORT_TAPS_MAX + 1);
	assert_int_equal(page(path, ""), 503);
	for (int i = 0; i < EXPORT_TAPS_MAX; i++)
		close(fds[i]);
}

static void refuse_tap(uint64_t id, enum export_refusal why)
{
	web_tap_refused(w->web, &(struct export_tap_refused){ id, why });
}

/* The agent takes it to its end: until then there is no room for another, which must not wait in vain. */
static void a_profile_whose_client_left_keeps_its_place(void **state)
{
	static const char path[] = "/" TOKEN "/debug/pprof/profile?seconds=60";

	(void)state;
	for (int i = 0; i < EXPORT_TAPS_MAX; i++) {
		int fd = web_fixture_send(w, w->page_port, "GET", path, "");

		while (w->ntaps == i)
			web_fixture_wait(w, 1);
		close(fd);
	}
	web_fixture_wait(w, 600); /* each is seen to have left */
	assert_int_equal(page(path, ""), 503);
	assert_int_equal(w->ntaps, EXPORT_TAPS_MAX);
	bring(w->taps[3].id);
	refuse_tap(w->taps[5].id, EXPORT_REFUSAL_NO_MEMORY);
	for (int i = 0; i < 2; i++) {
		int fd = web_fixture_send(w, w->page_port, "GET", path, "");

		while (w->ntaps == EXPORT_TAPS_MAX + i)
			web_fixture_wait(w, 1);
		close(fd);
	}
	assert_int_equal(page(path, ""), 503);
}

static void a_profile_that_the_agent_refuses_is_503_with_the_reason(void **state)
{
	static const struct {
		enum export_refusal why;
		const char *text;
	} refusals[] = {
		{ EXPORT_REFUSAL_TOO_MANY, "it is taking 16 already" },
		{ EXPORT_REFUSAL_NO_MEMORY, "short of memory" },
		{ EXPORT_REFUSAL_INVALID, "does not know how" },
		{ EXPORT_REFUSAL_NOT_SAMPLING, "starting or ending" },
	};

	(void)state;
	refuse_tap(12345, EXPORT_REFUSAL_TOO_MANY); /* nobody's */
	for (int i = 0; i < (int)ARRAY_SIZE(refusals); i++) {
		int fd = web_fixture_send(w, w->page_port, "GET", "/" TOKEN "/debug/pprof/profile", "");
		struct web_reply r;

		while (w->ntaps == i)
			web_fixture_wait(w, 1);
		refuse_tap(w->taps[i].id, refusals[i].why);
		refuse_tap(w->taps[i].id, refusals[i].why);
		bring(w->taps[i].id); /* too late */
		r = web_fixture_receive(w, fd);
		assert_int_equal(r.status, 503);
		assert_non_null(strstr(r.head, "Retry-After: 30"));
		assert_non_null(strstr(r.body, refusals[i].text));
		web_reply_fini(&r);
	}
}

static void an_agent_that_cannot_be_asked_is_503(void **state)
{
	(void)state;
	w->tap_error = -EPIPE;
	for (int i = 0; i < 20; i++)
		assert_int_equal(page("/" TOKEN "/debug/pprof/profile", ""), 503);
}

static void waiting_profiles_do_not_keep_a_listener_open(void **state)
{
	static char off[] = "off";
	int fds[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		fds[i] = web_fixture_send(w, w->page_port, "GET", "/" TOKEN "/debug/pprof/profile",
					  "");
	web_fixture_wait(w, 100);
	assert_int_equal(w->ntaps, 3);
	w->config.page.listen = off;
	web_fixture_configure(w);
	for (int i = 0; i < 3; i++) {
		struct web_reply r = web_fixture_receive(w, fds[i]);

		assert_int_equal(r.status, 0);
		web_reply_fini(&r);
	}
	bring(w->taps[0].id);
}

/* An idle server must not turn the loop. */
static void nothing_happens_while_nobody_asks(void **state)
{
	uint64_t end;
	int nturns = 0;

	(void)state;
	json_decref(web_fixture_api(w, "/api/v1/status", 200));
	web_fixture_wait(w, 100);
	end = clock_mono_ns() + NSEC_PER_SEC;
	while (clock_mono_ns() < end) {
		assert_int_equal(loop_once(w->loop, 200 * NSEC_PER_MSEC), 0);
		nturns++;
	}
	assert_true(nturns < 20);
}

#define WITH_WEB(test) cmocka_unit_test_setup_teardown(test, setup, web_fixture_fini)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WEB(without_the_token_nothing_is_shown),
		WITH_WEB(each_way_to_be_known_opens_everything),
		WITH_WEB(only_who_opens_the_page_is_asked_for_a_password),
		WITH_WEB(without_a_password_in_the_settings_none_is_taken),
		WITH_WEB(a_new_token_replaces_the_old_one),
		WITH_WEB(the_page_has_relative_links_and_no_way_out),
		WITH_WEB(other_methods_are_not_allowed),
		WITH_WEB(a_strangers_name_for_this_address_is_refused),
		WITH_WEB(metrics_and_control_have_no_other_doors),
		WITH_WEB(a_long_or_broken_request_is_refused),
		WITH_WEB(a_crowd_that_goes_away_leaves_nothing_behind),
		WITH_WEB(a_taken_port_is_told_and_the_rest_goes_on),
		WITH_WEB(the_page_is_off_when_there_is_an_endpoint),
		WITH_WEB(listeners_move_and_close_with_the_settings),
		WITH_WEB(a_profile_of_the_next_seconds_is_served),
		WITH_WEB(a_profile_can_be_narrowed_to_a_service),
		WITH_WEB(seconds_out_of_range_are_refused),
		WITH_WEB(the_seventeenth_profile_at_once_is_refused),
		WITH_WEB(a_profile_whose_client_left_keeps_its_place),
		WITH_WEB(a_profile_that_the_agent_refuses_is_503_with_the_reason),
		WITH_WEB(an_agent_that_cannot_be_asked_is_503),
		WITH_WEB(waiting_profiles_do_not_keep_a_listener_open),
		WITH_WEB(nothing_happens_while_nobody_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
