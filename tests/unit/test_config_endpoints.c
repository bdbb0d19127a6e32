/* flamed's own settings: endpoints, and what else has rules. */
#include "config/config.h"

#include "base/clock.h"
#include "tests/unit/config_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static void assert_refused(const char *yaml, const char *want)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;

	assert_int_equal(config_fixture_load(yaml, &c, &why), -EINVAL);
	assert_null(c);
	assert_non_null(why);
	assert_string_equal(why, want);
}

static void every_key_is_read(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full);
	const struct config_endpoint *e = config_endpoint(c, 0);

	(void)state;
	assert_int_equal(c->endpoints.n, 3);
	assert_string_equal(e->name, "cloud");
	assert_int_equal(e->protocol, CONFIG_PUSH);
	assert_string_equal(e->basic_auth.username, "123");
	assert_string_equal(e->basic_auth.password, "planted-password");
	assert_string_equal(e->tenant_id, "t1");
	assert_string_equal(value_map_find(&e->headers, "X-Key"), "planted-header");
	assert_string_equal(e->tls.key_file, "/key");
	assert_true(e->tls.insecure_skip_verify && e->timeout_ns == 3 * NSEC_PER_SEC);
	assert_int_equal(e->line, 11);
	e = config_endpoint(c, 1);
	assert_int_equal(e->protocol, CONFIG_INGEST);
	assert_string_equal(e->bearer_token, "planted-token");
	assert_true(!e->tls.insecure_skip_verify && e->timeout_ns == 10 * NSEC_PER_SEC);
	assert_string_equal(config_endpoint(c, 2)->bearer_token_file, "/token");
	assert_string_equal(c->processes.exclude.v[1], "systemd-*");
	assert_string_equal(value_map_find(&c->processes.thin, "noisy"), "1000");
	assert_string_equal(c->labels.hostname, "web-1");
	assert_string_equal(value_map_find(&c->labels.fixed, "team"), "a b");
	assert_int_equal(c->labels.include.n, 2);
	assert_int_equal(c->symbols.demangle, CONFIG_FULL);
	assert_true(c->queue_max_bytes == 1 << 20 && c->output.max_bytes == 1 << 20);
	assert_string_equal(c->output.directory, "/var/lib/flamed/profiles");
	assert_string_equal(c->page.basic_auth.password, "planted-page");
	assert_string_equal(c->metrics.listen, "[::]:4042");
	assert_string_equal(c->runtime_directory, "/tmp/run");
}

static void the_defaults_send_nothing(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture("");

	(void)state;
	assert_int_equal(c->endpoints.n, 0);
	assert_int_equal(c->symbols.demangle, CONFIG_SHORT);
	assert_true(c->queue_max_bytes == 16 << 20 && c->output.max_bytes == 256 << 20);
	assert_true(c->page.max_bytes == 8 << 20);
	assert_string_equal(c->output.directory, "");
	assert_string_equal(c->metrics.listen, "127.0.0.1:4042");
	assert_string_equal(c->runtime_directory, "/run/flamed");
	assert_string_equal(config_page_address(c), "127.0.0.1:4041");
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void urls_are_http_with_a_host(void **state)
{
	static const char *const good[] = { "http://a",		      "https://a.b-c.example:1/",
					    "HTTP://127.0.0.1:65535", "https://[2001:db8::1]:443/x/y",
					    "http://a/ingest/x",      "http://a/x?ingest=/ingest",
					    "https://a/pushy",	      "http://a?b" };
	static const struct {
		const char *url, *why;
	} bad[] = {
		{ "ftp://a", "is no http:// or https:// URL" },
		{ "profiles.example", "is no http:// or https:// URL" },
		{ "http://", "has no valid HOST or HOST:PORT after ://" },
		{ "http:///x", "has no valid HOST or HOST:PORT after ://" },
		{ "http://:80", "has no valid HOST or HOST:PORT after ://" },
		{ "http://a:", "has no valid HOST or HOST:PORT after ://" },
		{ "http://a:0", "has no valid HOST or HOST:PORT after ://" },
		{ "http://a:65536", "has no valid HOST or HOST:PORT after ://" },
		{ "http://a:1:2", "has no valid HOST or HOST:PORT after ://" },
		{ "http://[::1", "has no valid HOST or HOST:PORT after ://" },
		{ "http://[x]", "has no valid HOST or HOST:PORT after ://" },
		{ "http://a b", "has a blank or a character that is not ASCII" },
		{ "http://\xc3\xa9", "has a blank or a character that is not ASCII" },
		{ "http://a#b", "has a fragment (#...): leave it out" },
		{ "http://a/x?y#b", "has a fragment (#...): leave it out" },
		{ "https://me:hunter2@a",
		  "has a user name or password in it: use basic_auth for them" },
		{ "https://me@a/x",
		  "has a user name or password in it: use basic_auth for them" },
		{ "http://a/ingest", "ends in /ingest, which flamed appends: leave that out "
				     "(`protocol: ingest` uses nothing else)" },
		{ "http://a/b/ingest//?c=d", "ends in /ingest, which flamed appends: leave that out "
					     "(`protocol: ingest` uses nothing else)" },
		{ "http://a/push.v1.PusherService/Push",
		  "ends in the path of Push, which flamed appends: leave "
		  "/push.v1.PusherService/Push out" },
		{ "http://a/push.v1.PusherService/",
		  "ends in the path of Push, which flamed appends: leave "
		  "/push.v1.PusherService/Push out" },
	};
	char yaml[256], want[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CLEANUP(config_freep) struct config *c = NULL;

		snprintf(yaml, sizeof(yaml), "endpoints: [{url: '%s'}]", good[i]);
		c = config_fixture(yaml);
		assert_string_equal(config_endpoint(c, 0)->url, good[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) { /* none shows a secret: the URL is not told */
		snprintf(yaml, sizeof(yaml), "endpoints: [{url: '%s'}]", bad[i].url);
		snprintf(want, sizeof(want), "f.yaml:1: endpoints[0].url: %s", bad[i].why);
		assert_refused(yaml, want);
	}
}

static void half_a_login_is_refused(void **state)
{
	(void)state;
	assert_refused("endpoints:\n  - url: http://a\n    basic_auth: {username: u}\n",
		       "f.yaml:2: endpoints[0].basic_auth: has a username and no password: set "
		       "password or password_file");
	assert_refused("endpoints:\n  - url: http://a\n\n  - url: http://b\n"
		       "    basic_auth: {password: hunter2}\n",
		       "f.yaml:4: endpoints[1].basic_auth: has a password and no username, so that "
		       "it would not be sent: set username");
	assert_refused("endpoints: [{url: 'http://a', basic_auth: {password_file: /p}}]",
		       "f.yaml:1: endpoints[0].basic_auth: has a password and no username, so that "
		       "it would not be sent: set username");
	assert_refused("\npage:\n  basic_auth: {username: u}\n",
		       "f.yaml:3: page.basic_auth: has a username and no password: set password or "
		       "password_file");
}

static void two_of_one_kind_are_refused(void **state)
{
	(void)state;
	assert_refused("endpoints: [{url: 'http://a', basic_auth: "
		       "{username: u, password: hunter2, password_file: /p}}]",
		       "f.yaml:1: endpoints[0].basic_auth: has both password and password_file: one "
		       "of them");
	assert_refused("endpoints: [{url: 'http://a', bearer_token: hunter2, "
		       "basic_auth: {username: u, password: p}}]",
		       "f.yaml:1: endpoints[0].basic_auth: is there together with bearer_token: a "
		       "request carries one of them");
	assert_refused("endpoints: [{url: 'http://a', bearer_token: hunter2, "
		       "bearer_token_file: /t}]",
		       "f.yaml:1: endpoints[0].bearer_token: is there together with "
		       "bearer_token_file: one of them");
	assert_refused("endpoints: [{url: 'http://a', bearer_token: t, "
		       "headers: {authorization: hunter2}}]",
		       "f.yaml:1: endpoints[0].headers: has Authorization, which basic_auth or "
		       "bearer_token sets");
	assert_refused("endpoints: [{url: 'http://a', tenant_id: t, headers: {x-scope-orgid: u}}]",
		       "f.yaml:1: endpoints[0].headers: has X-Scope-OrgID, which tenant_id sets");
	assert_refused("endpoints: [{url: 'http://a', tls: {cert_file: /c}}]",
		       "f.yaml:1: endpoints[0].tls: has one of cert_file and key_file: a client's "
		       "certificate needs both");
}

static void settings_for_tls_need_a_url_with_tls(void **state)
{
	static const char *const settings[] = { "ca_file: /c", "cert_file: /c, key_file: /k",
						"insecure_skip_verify: true" };
	char yaml[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		CLEANUP(config_freep) struct config *c = NULL;

		snprintf(yaml, sizeof(yaml), "endpoints: [{url: 'http://a', tls: {%s}}]", settings[i]);
		assert_refused(yaml, "f.yaml:1: endpoints[0].tls: is set and the url is http://, without "
				     "TLS: make it https://, or leave tls out");
		snprintf(yaml, sizeof(yaml), "endpoints: [{url: 'https://a', tls: {%s}}]", settings[i]);
		c = config_fixture(yaml);
	}
}

static void an_endpoint_twice_is_refused(void **state)
{
	static const char *const different[] = { "tenant_id: b", "headers: {X-Scope-OrgID: b}",
						 "basic_auth: {username: u, password: p}", "bearer_token: b",
						 "bearer_token_file: /b" };
	char yaml[128];

	(void)state;
	assert_refused("endpoints:\n  - url: http://a\n  - url: http://b\n  - {url: http://a, name: x}\n",
		       "f.yaml:4: endpoints[2]: is endpoints[0] once more, so that all would be counted "
		       "twice there: leave one of them out");
	assert_refused("endpoints: [{url: 'http://a', headers: {A: 1}}, {url: 'http://a', headers: {A: 1}}]",
		       "f.yaml:1: endpoints[1]: is endpoints[0] once more, so that all would be counted "
		       "twice there: leave one of them out");
	for (size_t i = 0; i < ARRAY_SIZE(different); i++) {
		CLEANUP(config_freep) struct config *c = NULL;

		snprintf(yaml, sizeof(yaml), "endpoints: [{url: 'http://a'}, {url: 'http://a', %s}]", different[i]);
		c = config_fixture(yaml);
		assert_int_equal(c->endpoints.n, 2);
	}
}

static void an_endpoint_without_a_url_is_refused(void **state)
{
	(void)state;
	assert_refused("endpoints:\n- name: a\n", "f.yaml:2: endpoints[0].url: is missing: every endpoint has one, such as http://HOST:4040");
	assert_refused("endpoints: [{url: ''}]", "f.yaml:1: endpoints[0].url: is missing: every endpoint has one, such as http://HOST:4040");
	setenv("FLAMED_ENDPOINT_USERNAME", "u", 1);
	assert_refused("", "endpoints[0].url: is missing: every endpoint has one, such as http://HOST:4040");
}

static void more_than_eight_endpoints_are_refused(void **state)
{
	(void)state;
	assert_refused("endpoints: [{}, {}, {}, {}, {}, {}, {}, {}, {}]",
		       "f.yaml:1: endpoints: has more than 8 entries");
}

static void paths_are_absolute(void **state)
{
	(void)state;
	assert_refused("endpoints: [{basic_auth: {password_file: p}}]",
		       "f.yaml:1: endpoints[0].basic_auth.password_file: 'p' is no absolute path");
	assert_refused("endpoints: [{bearer_token_file: ./p}]",
		       "f.yaml:1: endpoints[0].bearer_token_file: './p' is no absolute path");
	assert_refused("endpoints: [{tls: {ca_file: p}}]",
		       "f.yaml:1: endpoints[0].tls.ca_file: 'p' is no absolute path");
	assert_refused("output: {directory: p}",
		       "f.yaml:1: output.directory: 'p' is no absolute path");
	assert_refused("page: {basic_auth: {password_file: p}}",
		       "f.yaml:1: page.basic_auth.password_file: 'p' is no absolute path");
	assert_refused("runtime_directory: ''",
		       "f.yaml:1: runtime_directory: '' is no absolute path");
}

static void headers_are_checked_by_name(void **state)
{
	(void)state;
	assert_refused("endpoints: [{headers: {\"X:Y\": hunter2}}]",
		       "f.yaml:1: endpoints[0].headers: a name is no name of an HTTP header");
	assert_refused("endpoints: [{headers: {content-type: hunter2}}]",
		       "f.yaml:1: endpoints[0].headers: a name is a header that flamed sets "
		       "itself");
	assert_refused("endpoints: [{headers: {X-A: \"hunter2\\r\\nX-B: 1\"}}]",
		       "f.yaml:1: endpoints[0].headers: has a control character or is not UTF-8");
	assert_refused("endpoints: [{basic_auth: {username: 'a:b'}}]",
		       "f.yaml:1: endpoints[0].basic_auth.username: 'a:b' has a colon, which Basic "
		       "authentication cannot carry");
	assert_refused("endpoints: [{name: directory}]",
		       "f.yaml:1: endpoints[0].name: 'directory' is what the output directory is "
		       "called");
}

static void addresses_to_listen_on_are_numbers(void **state)
{
	static const char *const good[] = { "127.0.0.1:1", "0.0.0.0:65535", "[::1]:4042", "[::]:1",
					    "off" };
	static const char *const bad[] = { "4042",	 ":4042",     "127.0.0.1",    "127.0.0.1:",
					   "1.2.3:4042", "::1:4042",  "127.0.0.1:0",  "a.example:4042",
					   "[::1]",	 "[::1:4042", "1.2.3.4:65536", "1.2.3.4:+1",
					   "[1.2.3.4]:1", "Off",      "1.2.3.4:1 " };
	char yaml[128], want[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CLEANUP(config_freep) struct config *c = NULL;

		const char *other = good[(i + 1) % ARRAY_SIZE(good)];

		snprintf(yaml, sizeof(yaml), "page: {listen: '%s'}\nmetrics: {listen: '%s'}", good[i], other);
		c = config_fixture(yaml);
		assert_string_equal(c->page.listen, good[i]);
		assert_string_equal(c->metrics.listen, other);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(yaml, sizeof(yaml), "metrics: {listen: '%s'}", bad[i]);
		snprintf(want, sizeof(want),
			 "f.yaml:1: metrics.listen: '%s' is no ADDRESS:PORT (such as 127.0.0.1:4041 "
			 "or [::1]:4041), nor off",
			 bad[i]);
		assert_refused(yaml, want);
		snprintf(yaml, sizeof(yaml), "page: {listen: '%s'}", bad[i]);
		snprintf(want, sizeof(want),
			 "f.yaml:1: page.listen: '%s' is no ADDRESS:PORT (such as 127.0.0.1:4041 or "
			 "[::1]:4041), nor off",
			 bad[i]);
		assert_refused(yaml, want);
	}
}

static void two_listeners_at_one_address_are_refused(void **state)
{
	static const struct {
		const char *page, *metrics;
		bool is_good;
	} pairs[] = {
		{ "127.0.0.1:1", "127.0.0.1:1", false },  { "127.0.0.1:1", "0.0.0.0:1", false },
		{ "0.0.0.0:1", "127.0.0.1:1", false },	  { "[::]:1", "127.0.0.1:1", false },
		{ "[::1]:1", "[::]:01", false },	  { "127.0.0.1:1", "127.0.0.1:2", true },
		{ "127.0.0.1:1", "127.0.0.2:1", true },	  { "127.0.0.1:1", "[::1]:1", true },
		{ "127.0.0.1:11", "127.0.0.1:1", true },  { "off", "off", true },
		{ "127.0.0.1:1", "off", true },
	};
	char yaml[128], want[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		CLEANUP(config_freep) struct config *c = NULL;

		snprintf(yaml, sizeof(yaml), "metrics: {listen: '%s'}\npage:\n  listen: '%s'", pairs[i].metrics,
			 pairs[i].page);
		snprintf(want, sizeof(want),
			 "f.yaml:3: page.listen: %s is taken by metrics.listen (%s): another port for one of "
			 "them, or off", pairs[i].page, pairs[i].metrics);
		if (pairs[i].is_good)
			c = config_fixture(yaml);
		else
			assert_refused(yaml, want);
	}
	assert_refused("metrics: {listen: '0.0.0.0:4041'}",
		       "f.yaml:1: metrics.listen: 0.0.0.0:4041 is taken by the page (127.0.0.1:4041): another "
		       "port for one of them, or off");
	setenv("FLAMED_METRICS_LISTEN", "0.0.0.0:4041", 1);
	assert_refused("metrics: {listen: 'off'}",
		       "metrics.listen: 0.0.0.0:4041 is taken by the page (127.0.0.1:4041): another port for "
		       "one of them, or off");
}

/* ---- memory, directories --------------------------------------------------------------------- */

static void what_waits_fits_into_the_exporter(void **state)
{
	CLEANUP(config_freep) struct config *c = NULL;

	(void)state;
	c = config_fixture("endpoints: [{url: 'http://a'}, {url: 'http://b'}]\n"
			   "queue_max_bytes: 224MiB\npage: {max_bytes: 64MiB}");
	assert_refused("endpoints: [{url: 'http://a'}, {url: 'http://b'}]\n"
		       "queue_max_bytes: 225MiB\npage: {max_bytes: 64MiB}",
		       "f.yaml:2: queue_max_bytes: 225MiB for each of 2 endpoints and page.max_bytes (64MiB) are "
		       "more than the 512MiB that there are for them: set it to 224MiB at most");
	assert_refused("page: {max_bytes: 65MiB}", "f.yaml:1: page.max_bytes: 65MiB is not in 64KiB..64MiB");
	assert_refused("queue_max_bytes: 257MiB", "f.yaml:1: queue_max_bytes: 257MiB is not in 64KiB..256MiB");
	setenv("FLAMED_QUEUE_MAX_BYTES", "256MiB", 1);
	assert_refused("endpoints: [{url: 'http://a'}, {url: 'http://b'}]\nqueue_max_bytes: 1MiB",
		       "queue_max_bytes: 256MiB for each of 2 endpoints and page.max_bytes (8MiB) are more than "
		       "the 512MiB that there are for them: set it to 252MiB at most");
}

static void profiles_are_not_written_where_the_lock_is(void **state)
{
	static const char *const bad[] = { "/run/flamed", "/run/flamed/", "/run/flamed/profiles" };
	CLEANUP(config_freep) struct config *c = config_fixture("output: {directory: /run/flamed2}");
	char yaml[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(yaml, sizeof(yaml), "output: {directory: %s}", bad[i]);
		assert_string_equal(c->output.directory, "/run/flamed2");
		assert_refused(yaml, "f.yaml:1: output.directory: /run/flamed is for the lock and the control "
				     "socket (runtime_directory), and gone after a restart: another one, such as "
				     "/var/lib/flamed/profiles");
	}
}

static void labels_are_what_servers_take(void **state)
{
	static const char *const names[] = { "a-b", "1a", "a.b", "caf\\u00e9" };
	char yaml[2048], value[1026];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		CLEANUP(config_freep) struct config *c = NULL;
		CLEANUP_FREE char *why = NULL;

		snprintf(yaml, sizeof(yaml), "labels: {static: {\"%s\": x}}", names[i]);
		assert_int_equal(config_fixture_load(yaml, &c, &why), -EINVAL);
		free(TAKE(why));
		snprintf(yaml, sizeof(yaml), "labels: {include: [\"%s\"]}", names[i]);
		assert_int_equal(config_fixture_load(yaml, &c, &why), -EINVAL);
	}
	assert_refused("labels: {include: [contaner_id]}",
		       "f.yaml:1: labels.include[0]: 'contaner_id' is none of container_id, pod_uid, unit");
	assert_refused("labels:\n  include: [unit, pod_uid, unit]",
		       "f.yaml:2: labels.include: unit is there twice");
	assert_refused("labels: {static: {a-b: x}}",
		       "f.yaml:1: labels.static: 'a-b' is no label name: letters, digits and _, not "
		       "beginning with a digit");
	assert_refused("labels: {static: {__a: x}}",
		       "f.yaml:1: labels.static: '__a' begins with __, which is for the servers' "
		       "own labels");
	assert_refused("labels: {static: {service_name: x}}",
		       "f.yaml:1: labels.static: 'service_name' is a label with a meaning of its own");
	assert_refused("labels: {static: {hostname: x}}",
		       "f.yaml:1: labels.static: 'hostname' is set by labels.hostname");
	assert_refused("labels: {static: {a: 'x,y'}}",
		       "f.yaml:1: labels.static: 'x,y' has a , or }, which /ingest cannot carry");
	assert_refused("labels: {hostname: 'x}'}",
		       "f.yaml:1: labels.hostname: 'x}' has a , or }, which /ingest cannot carry");
	assert_refused("labels: {static: {a: ''}}",
		       "f.yaml:1: labels.static: '' is empty: leave the label out");
	memset(value, 'x', sizeof(value));
	for (size_t len = 1024; len <= 1025; len++) {
		CLEANUP(config_freep) struct config *c = NULL;
		CLEANUP_FREE char *why = NULL;

		snprintf(yaml, sizeof(yaml), "labels: {static: {a: %.*s}}", (int)len, value);
		assert_int_equal(config_fixture_load(yaml, &c, &why), len == 1024 ? 0 : -EINVAL);
	}
}

static void services_to_thin_have_a_number(void **state)
{
	static const char *const bad[] = { "1", "0", "1001", "x", "-2", "2.5", "1/2" };
	char yaml[128], want[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(yaml, sizeof(yaml), "processes: {thin: {a: '%s'}}", bad[i]);
		snprintf(want, sizeof(want), "f.yaml:1: processes.thin: '%s' is not in 2..1000",
			 bad[i]);
		assert_refused(yaml, want);
	}
	assert_refused("processes: {exclude: ['a b']}",
		       "f.yaml:1: processes.exclude[0]: 'a b' is no pattern of service names: "
		       "letters, digits and _ . / - with * ? [...]");
	assert_refused("processes: {thin: {\"a{b}\": 2}}",
		       "f.yaml:1: processes.thin: 'a{b}' is no pattern of service names: letters, "
		       "digits and _ . / - with * ? [...]");
}

static void a_service_is_excluded_or_thinned(void **state)
{
	(void)state;
	assert_refused("processes:\n  exclude: [b, 'a-*']\n  thin: {c: 2, 'a-*': 2}\n",
		       "f.yaml:3: processes.thin: a-* is in processes.exclude, too: one of them");
}

/* ---- the environment ------------------------------------------------------------------------- */

static void the_environment_makes_an_endpoint(void **state)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;
	const struct config_endpoint *e;

	(void)state;
	setenv("FLAMED_ENDPOINT_URL", "https://a", 1);
	setenv("FLAMED_ENDPOINT_USERNAME", "u", 1);
	setenv("FLAMED_ENDPOINT_PASSWORD_FILE", "/p", 1);
	setenv("FLAMED_ENDPOINT_TENANT_ID", "t", 1);
	setenv("FLAMED_ENDPOINT_HEADERS", "X-A=1,X-B=2", 1);
	setenv("FLAMED_LABELS_HOSTNAME", "node-1", 1);
	setenv("FLAMED_PROCESSES_THIN", "a-*=2", 1);
	assert_int_equal(config_load(&c, NULL, &why), 0);
	assert_int_equal(c->endpoints.n, 1);
	e = config_endpoint(c, 0);
	assert_string_equal(e->url, "https://a");
	assert_string_equal(e->basic_auth.username, "u");
	assert_string_equal(e->basic_auth.password_file, "/p");
	assert_string_equal(e->tenant_id, "t");
	assert_string_equal(value_map_find(&e->headers, "X-B"), "2");
	assert_int_equal(e->line, 0);
	assert_string_equal(c->labels.hostname, "node-1");
	assert_string_equal(value_map_find(&c->processes.thin, "a-*"), "2");
}

static void the_password_may_come_from_the_environment_alone(void **state)
{
	static const char yaml[] = "endpoints: [{url: 'http://a', basic_auth: {username: u}}]";
	CLEANUP(config_freep) struct config *c = NULL;

	(void)state;
	setenv("FLAMED_ENDPOINT_PASSWORD", "hunter2", 1);
	c = config_fixture(yaml);
	assert_string_equal(config_endpoint(c, 0)->basic_auth.password, "hunter2");
	setenv("FLAMED_ENDPOINT_URL", "http://u:hunter2@a", 1);
	assert_refused(yaml, "FLAMED_ENDPOINT_URL: has a user name or password in it: use "
			     "basic_auth for them");
}

/* ---- warnings -------------------------------------------------------------------------------- */

/* What loading says on stderr. */
static void assert_warns(const char *yaml, const char *want)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FD int fd = memfd_create("log", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
	char text[1024] = "";

	assert_true(fd >= 0 && saved >= 0);
	dup2(fd, STDERR_FILENO);
	log_set_level(LOG_INFO);
	c = config_fixture(yaml);
	log_set_level(LOG_ERROR);
	dup2(saved, STDERR_FILENO);
	assert_true(pread(fd, text, sizeof(text) - 1, 0) >= 0);
	if (!want)
		assert_string_equal(text, "");
	else
		assert_non_null(strstr(text, want));
	assert_null(strstr(text, "hunter2"));
}

static void what_is_hardly_meant_is_a_warning(void **state)
{
	(void)state;
	assert_warns("endpoints: [{url: 'https://a?hunter2', "
		     "basic_auth: {username: u, password: 'hunter2 '}}]",
		     "a password or token begins or ends with a blank, which it is sent with "
		     "endpoint='https://a'\n");
	assert_warns("page: {basic_auth: {username: u, password: ' hunter2'}}",
		     "page.basic_auth.password begins or ends with a blank");
	assert_warns("endpoints: [{url: 'http://a', bearer_token: hunter2}]",
		     "a password or token is sent without encryption: use https endpoint='http://a'");
	assert_warns("endpoints: [{url: 'https://a', tls: {insecure_skip_verify: true}}]",
		     "the server's certificate is not verified endpoint='https://a'");
	assert_warns("endpoints: [{url: 'http://a'}]\npage: {basic_auth: {username: u, password: p}}",
		     "page.basic_auth does nothing while the page is off: set page.listen");
	assert_warns("processes: {exclude: ['*']}", "processes.exclude has *: no process is sampled");
	assert_warns("endpoints: [{url: 'http://a'}, {url: 'http://b'}]\nqueue_max_bytes: 200MiB",
		     "what may wait takes most of the memory that service and DaemonSet allow: raise MemoryMax= "
		     "or limits.memory, 512 MiB by default, to 536 MiB");
	assert_warns("endpoints: [{url: 'http://127.0.0.1:1', bearer_token: hunter2}, "
		     "{url: 'https://b', bearer_token: hunter2}, {url: 'http://c'}]",
		     NULL);
}

static void a_pipe_is_a_file_too(void **state)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], "window: 2s\n", 11), 11);
	close(fds[1]);
	assert_int_equal(config_load_fd(&c, fds[0], "-", &why), 0);
	close(fds[0]);
	assert_true(c->window_ns == 2 * NSEC_PER_SEC);
}

#define TEST(f)                                                      \
	cmocka_unit_test_setup_teardown(f, config_fixture_clear_env, \
					config_fixture_clear_env)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_key_is_read),
		TEST(the_defaults_send_nothing),
		TEST(urls_are_http_with_a_host),
		TEST(half_a_login_is_refused),
		TEST(two_of_one_kind_are_refused),
		TEST(settings_for_tls_need_a_url_with_tls),
		TEST(an_endpoint_twice_is_refused),
		TEST(an_endpoint_without_a_url_is_refused),
		TEST(more_than_eight_endpoints_are_refused),
		TEST(paths_are_absolute),
		TEST(headers_are_checked_by_name),
		TEST(addresses_to_listen_on_are_numbers),
		TEST(two_listeners_at_one_address_are_refused),
		TEST(what_waits_fits_into_the_exporter),
		TEST(profiles_are_not_written_where_the_lock_is),
		TEST(labels_are_what_servers_take),
		TEST(services_to_thin_have_a_number),
		TEST(a_service_is_excluded_or_thinned),
		TEST(the_environment_makes_an_endpoint),
		TEST(the_password_may_come_from_the_environment_alone),
		TEST(what_is_hardly_meant_is_a_warning),
		TEST(a_pipe_is_a_file_too),
	};

	log_set_level(LOG_ERROR); /* warnings have a test of their own */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
