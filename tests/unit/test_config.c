#include "config/config.h"

#include "base/clock.h"
#include "config/load.h"
#include "config/schema.h"
#include "tests/unit/alloc_fail.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- a schema with every type, as the endpoints will have ------------------------------------ */

struct endpoint {
	char *url;
	uint32_t protocol;
	char *username, *password;
	struct value_map headers;
};

struct sample {
	uint64_t rate;
	uint32_t small;
	uint64_t wait_ns;
	uint64_t limit_bytes;
	bool is_on;
	char *text;
	struct value_strings include;
	struct value_map labels;
	struct value_items endpoints;
};

static const char *const protocols[] = { "auto", "push", "ingest", NULL };

static const char *check_url(const char *text)
{
	return strncmp(text, "http", 4) == 0 || !*text ? NULL : "is no http or https URL";
}

#define E_FIELD(f) SCHEMA_FIELD(struct endpoint, f)
#define S_FIELD(f) SCHEMA_FIELD(struct sample, f)

static const struct schema_key auth_keys[] = {
	{ "username", SCHEMA_STRING, E_FIELD(username) },
	{ "password", SCHEMA_STRING, E_FIELD(password), .is_secret = true },
	{},
};
static const struct schema_key endpoint_keys[] = {
	{ "url", SCHEMA_STRING, E_FIELD(url), .check = check_url },
	{ "protocol", SCHEMA_CHOICE, E_FIELD(protocol), .choices = protocols, .def = "push" },
	{ "basic_auth", SCHEMA_SECTION, .keys = auth_keys, .is_env_flat = true },
	{ "headers", SCHEMA_MAP, E_FIELD(headers), .max = 3, .is_secret = true },
	{},
};
static const struct schema_key label_keys[] = {
	{ "static", SCHEMA_MAP, S_FIELD(labels), .max = 8, .help = "Added to every profile." },
	{ "include", SCHEMA_STRINGS, S_FIELD(include), .max = 4 },
	{},
};
static const struct schema_key keys[] = {
	{ "rate", SCHEMA_INT, S_FIELD(rate), .min = 1, .max = UINT64_MAX, .def = "7" },
	{ "small", SCHEMA_INT, S_FIELD(small), .min = 0, .max = 10, .def = "3" },
	{ "wait", SCHEMA_DURATION, S_FIELD(wait_ns), .min = 1000000, .max = 3600000000000,
	  .def = "10s" },
	{ "limit", SCHEMA_SIZE, S_FIELD(limit_bytes), .min = 1, .max = 1ull << 40, .def = "64MiB" },
	{ "on", SCHEMA_BOOL, S_FIELD(is_on), .def = "true" },
	{ "text", SCHEMA_STRING, S_FIELD(text), .def = "abc" },
	{ "labels", SCHEMA_SECTION, .keys = label_keys },
	{ "endpoints", SCHEMA_SECTIONS, S_FIELD(endpoints), .keys = endpoint_keys,
	  .item_size = sizeof(struct endpoint), .item_env = "endpoint", .max = 3 },
	{},
};

static void sample_fini(struct sample *s)
{
	schema_fini(keys, s);
}

#define CLEANUP_SAMPLE CLEANUP(sample_fini)

static int load(struct sample *s, const char *yaml, size_t len, char **why)
{
	int err = schema_init(keys, s);

	*why = NULL;
	if (err)
		return err;
	return load_bytes("f.yaml", yaml, len, keys, s, why);
}

static const struct endpoint *endpoint(const struct sample *s, size_t i)
{
	assert_true(i < s->endpoints.n);
	return (const struct endpoint *)s->endpoints.v + i;
}

static void assert_loads(struct sample *s, const char *yaml)
{
	CLEANUP_FREE char *why = NULL;
	int err = load(s, yaml, strlen(yaml), &why);

	if (err)
		print_error("%s\n", why ? why : "?");
	assert_int_equal(err, 0);
	assert_null(why);
}

static void assert_refused_bytes(const char *yaml, size_t len, const char *want)
{
	CLEANUP_SAMPLE struct sample s = {};
	CLEANUP_FREE char *why = NULL;

	assert_int_equal(load(&s, yaml, len, &why), -EINVAL);
	assert_non_null(why);
	assert_null(strchr(why, '\n'));
	assert_string_equal(why, want);
}

static void assert_refused(const char *yaml, const char *want)
{
	assert_refused_bytes(yaml, strlen(yaml), want);
}

static const char full[] = "# everything\n"
			   "rate: 100\n"
			   "small: '10'\n"
			   "wait: 1m30s\n"
			   "limit: 1GiB\n"
			   "on: false\n"
			   "text: \"a \\\"b\\\" \\\\ : # caf\xc3\xa9\"\n"
			   "x-note: {a: [1, {b: c}]}\n"
			   "labels:\n"
			   "  x-old: 1\n"
			   "  static:\n"
			   "    env: prod\n"
			   "    team: \"a, b\"\n"
			   "  include: [pod, 'name space']\n"
			   "endpoints:\n"
			   "  - url: http://a\n"
			   "    basic_auth:\n"
			   "      username: me\n"
			   "      password: pass\n"
			   "    headers: {X-A: '1', X-B: \"2\"}\n"
			   "  - url: https://b\n"
			   "    protocol: ingest\n";

static void every_type_is_read(void **state)
{
	CLEANUP_SAMPLE struct sample s = {};

	(void)state;
	assert_loads(&s, full);
	assert_true(s.rate == 100 && s.small == 10 && !s.is_on);
	assert_true(s.wait_ns == 90 * NSEC_PER_SEC);
	assert_true(s.limit_bytes == 1ull << 30);
	assert_string_equal(s.text, "a \"b\" \\ : # caf\xc3\xa9");
	assert_int_equal(s.labels.n, 2);
	assert_string_equal(value_map_find(&s.labels, "team"), "a, b");
	assert_null(value_map_find(&s.labels, "x"));
	assert_int_equal(s.include.n, 2);
	assert_string_equal(s.include.v[1], "name space");
	assert_int_equal(s.endpoints.n, 2);
	assert_string_equal(endpoint(&s, 0)->password, "pass");
	assert_int_equal(endpoint(&s, 0)->protocol, 1);
	assert_string_equal(value_map_find(&endpoint(&s, 0)->headers, "X-B"), "2");
	assert_string_equal(endpoint(&s, 1)->url, "https://b");
	assert_string_equal(endpoint(&s, 1)->username, "");
	assert_int_equal(endpoint(&s, 1)->protocol, 2);
}

static void what_is_not_there_keeps_its_default(void **state)
{
	static const char *const empty[] = { "", "# nothing\n", "---\n", "labels:\nendpoints:\n",
					     "labels: {static: , include: }\nendpoints: []\n", "{}" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(empty); i++) {
		CLEANUP_SAMPLE struct sample s = {};

		assert_loads(&s, empty[i]);
		assert_true(s.rate == 7 && s.small == 3 && s.is_on);
		assert_true(s.wait_ns == 10 * NSEC_PER_SEC && s.limit_bytes == 64ull << 20);
		assert_string_equal(s.text, "abc");
		assert_true(s.endpoints.n == 0 && s.labels.n == 0 && s.include.n == 0);
	}
}

static void a_bad_value_is_told_with_file_line_and_key(void **state)
{
	(void)state;
	assert_refused("\nrate: 0\n", "f.yaml:2: rate: 0 is not in 1..18446744073709551615");
	assert_refused("small: 11", "f.yaml:1: small: 11 is not in 0..10");
	assert_refused("small: -1", "f.yaml:1: small: '-1' is no whole number");
	assert_refused("small: 1x", "f.yaml:1: small: '1x' is no whole number");
	assert_refused("rate: 18446744073709551616",
		       "f.yaml:1: rate: '18446744073709551616' is no whole number");
	assert_refused("wait: 15",
		       "f.yaml:1: wait: '15' is no duration (such as 15s, 1m30s or 500ms)");
	assert_refused("wait: 2h", "f.yaml:1: wait: 2h is not in 1ms..1h");
	assert_refused("limit: 5 MB", "f.yaml:1: limit: '5 MB' is no size (such as 64MiB)");
	assert_refused("limit: 0", "f.yaml:1: limit: 0 is not in 1..1TiB");
	assert_refused("on: yes", "f.yaml:1: on: 'yes' is neither true nor false");
	assert_refused("endpoints:\n- url: http://a\n- url: ftp://b\n",
		       "f.yaml:3: endpoints[1].url: 'ftp://b' is no http or https URL");
	assert_refused("endpoints: [{protocol: smtp}]",
		       "f.yaml:1: endpoints[0].protocol: 'smtp' is none of auto, push, ingest");
}

#define ALL_KEYS "there are rate, small, wait, limit, on, text, labels, endpoints"

static void an_unknown_key_is_refused(void **state)
{
	(void)state;
	assert_refused("rate: 1\nrat: 2\n", "f.yaml:2: unknown key 'rat': is it rate?");
	assert_refused("RATES: 1", "f.yaml:1: unknown key 'RATES': is it rate?");
	assert_refused("lable: 1", "f.yaml:1: unknown key 'lable': is it labels?");
	assert_refused("static: 1", "f.yaml:1: unknown key 'static': is it labels.static?");
	assert_refused("endpoints: [{password: x}]",
		       "f.yaml:1: endpoints[0]: unknown key 'password': is it basic_auth.password?");
	assert_refused("labels:\n  foo: 1\n",
		       "f.yaml:2: labels: unknown key 'foo': there are static, include");
	assert_refused("endpoints:\n- basic_auth: {\"pass\\e[0mword\": x}\n",
		       "f.yaml:2: endpoints[0].basic_auth: unknown key 'pass\\x1b[0mword': there are "
		       "username, password");
	assert_refused("<<: {rate: 1}", "f.yaml:1: unknown key '<<': " ALL_KEYS);
	assert_refused("'': 1", "f.yaml:1: unknown key '': " ALL_KEYS);
}

static void a_key_twice_is_refused(void **state)
{
	(void)state;
	assert_refused("rate: 1\n\nrate: 1\n", "f.yaml:3: rate: is there twice, first in line 1");
	assert_refused("labels: {static: {a: 1, b: 2, a: 3}}",
		       "f.yaml:1: labels.static: 'a' is there twice");
}

static void a_wrong_shape_is_refused(void **state)
{
	(void)state;
	assert_refused("- rate\n", "f.yaml:1: must be a section: lines of `key: value`");
	assert_refused("rate", "f.yaml:1: must be a section: lines of `key: value`");
	assert_refused("rate: [1]", "f.yaml:1: rate: must be one value, not a list or section");
	assert_refused("rate:\n", "f.yaml:1: rate: has no value");
	assert_refused("text: ~\n", "f.yaml:1: text: has no value");
	assert_refused("labels: 1", "f.yaml:1: labels: must be a section: lines of `key: value`");
	assert_refused("labels: {include: a}", "f.yaml:1: labels.include: must be a list: each entry begins with `- `");
	assert_refused("labels: {include: [[a]]}",
		       "f.yaml:1: labels.include[0]: must be one value, not a list or section");
	assert_refused("labels: {static: [a]}",
		       "f.yaml:1: labels.static: must be a section: lines of `key: value`");
	assert_refused("labels: {static: {a: {b: c}}}",
		       "f.yaml:1: labels.static: must be one value, not a list or section");
	assert_refused("endpoints: {url: x}", "f.yaml:1: endpoints: must be a list: each entry begins with `- `");
	assert_refused("endpoints:\n- http://a",
		       "f.yaml:2: endpoints[0]: must be a section: lines of `key: value`");
	assert_refused("[a]: 1", "f.yaml:1: a key must be a name");
	assert_refused("? [a]\n: 1", "f.yaml:1: a key must be a name");
	assert_refused("rate: 1\n---\nrate: 2\n", "f.yaml:2: has a second document");
}

static void more_entries_than_allowed_are_refused(void **state)
{
	(void)state;
	assert_refused("labels: {include: [a, b, c, d, e]}",
		       "f.yaml:1: labels.include[4]: has more than 4 entries");
	assert_refused("endpoints: [{}, {}, {}, {}]",
		       "f.yaml:1: endpoints: has more than 3 entries");
	assert_refused("endpoints: [{headers: {a: 1, b: 1, c: 1, d: 1}}]",
		       "f.yaml:1: endpoints[0].headers: has more than 3 entries");
}

static void a_secret_is_not_told(void **state)
{
	(void)state;
	assert_refused("endpoints: [{basic_auth: {password: \"hunter2\\n\"}}]",
		       "f.yaml:1: endpoints[0].basic_auth.password: "
		       "has a control character or is not UTF-8");
	assert_refused("endpoints: [{headers: {Authorization: \"hunter2\\r\"}}]",
		       "f.yaml:1: endpoints[0].headers: has a control character or is not UTF-8");
}

#define HINT                                                                                        \
	" (blanks indent, tabs do not; a text with `: ` or ` #` in it, or that begins with a special " \
	"character, is quoted)"

static void bytes_that_are_no_text_are_refused(void **state)
{
	(void)state;
	assert_refused("text: \"a\\0b\"", "f.yaml:1: text: has a NUL byte");
	assert_refused_bytes("text: a\0b\n", 10, "f.yaml:1: is no YAML: control characters are not allowed");
	assert_refused("text: \xff\n", "f.yaml:1: is no YAML: invalid leading UTF-8 octet");
	assert_refused("text: \xc3(\n", "f.yaml:1: is no YAML: invalid trailing UTF-8 octet");
	assert_refused("text: \"\\u2028\"", "f.yaml:1: text: has a control character or is not UTF-8");
	assert_refused("labels:\n\tstatic: 1\n",
		       "f.yaml:2: is no YAML: found character that cannot start any token" HINT);
	assert_refused("text: \"abc", "f.yaml:1: is no YAML: found unexpected end of stream" HINT);
	assert_refused_bytes("\xff\xfer\0a\0t\0e\0", 10, "f.yaml:1: is no YAML: invalid leading UTF-8 octet");
	assert_refused("labels: {static: {\"a b\": 1}}", "f.yaml:1: labels.static: 'a b' is no name");
}

static void nothing_stands_for_something_elsewhere(void **state)
{
	(void)state;
	assert_refused("rate: &a 1\n", "f.yaml:1: rate: anchors and aliases are not supported");
	assert_refused("labels: &a\n  include: *a\n",
		       "f.yaml:1: labels: anchors and aliases are not supported");
	assert_refused("text: *a\n", "f.yaml:1: text: anchors and aliases are not supported");
	assert_refused("rate: !!int 1\n", "f.yaml:1: rate: tags are not supported");
	/* A billion laughs do no harm where they are skipped. */
	CLEANUP_SAMPLE struct sample s = {};
	assert_loads(&s, "x-a: &a [x, x]\nx-b: &b [*a, *a]\nx-c: [*b, *b]\n");
}

static void depth_and_size_are_bounded(void **state)
{
	CLEANUP_FREE char *deep = malloc(3 << 20);
	CLEANUP_FREE char *why = NULL;
	CLEANUP_SAMPLE struct sample s = {};
	uint64_t start = clock_mono_ns();

	(void)state;
	assert_non_null(deep);
	memcpy(deep, "x-a: ", 5);
	memset(deep + 5, '[', 1000000);
	assert_int_equal(load(&s, deep, 1000005, &why), -EINVAL);
	assert_non_null(strstr(why, "is nested more than 32 deep"));
	sample_fini(&s);
	free(TAKE(why));
	for (size_t i = 0; i < 500000; i += 2) /* block style */
		memcpy(deep + 5 + i, "- ", 2);
	assert_int_equal(load(&s, deep, 500005, &why), -EINVAL);
	sample_fini(&s);
	free(TAKE(why));
	memset(deep, '#', 3 << 20);
	assert_int_equal(load(&s, deep, 3 << 20, &why), -EINVAL);
	assert_string_equal(why, "f.yaml: is larger than 1048576 bytes");
	sample_fini(&s);
	free(TAKE(why));
	memcpy(deep, "text: ", 6);
	memset(deep + 6, 'x', 5000);
	assert_int_equal(load(&s, deep, 5006, &why), -EINVAL);
	assert_string_equal(why, "f.yaml:1: text: is longer than 4096 bytes");
	assert_true(clock_mono_ns() - start < 5 * NSEC_PER_SEC);
}

static void every_prefix_is_an_answer(void **state)
{
	(void)state;
	for (size_t len = 0; len < sizeof(full); len++) {
		CLEANUP_SAMPLE struct sample s = {};
		CLEANUP_FREE char *why = NULL;
		int err = load(&s, full, len, &why);

		assert_true(err == 0 || err == -EINVAL);
		assert_int_equal(why != NULL, err != 0);
	}
}

static void loading_survives_any_failed_allocation(void **state)
{
	int err = -1;

	(void)state;
	for (long nth = 1; err; nth++) {
		CLEANUP_SAMPLE struct sample s = {};
		CLEANUP_FREE char *why = NULL;

		alloc_fail_nth(nth);
		err = load(&s, full, strlen(full), &why);
		alloc_fail_nth(0);
		assert_int_equal(err, nth <= 20 ? -ENOMEM : err);
		assert_true(err == 0 || err == -ENOMEM);
		assert_null(why);
	}
}

static char *print(const struct sample *s)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	schema_print(out, keys, s);
	fclose(out);
	return text;
}

static void what_is_printed_loads_to_the_same(void **state)
{
	static const char *const yamls[] = { full, "",
					     "wait: 1ms\nlimit: 1025\ntext: ''\non: false\n"
					     "labels: {include: [\" a\", \"#\", '- b: c', '~']}\n",
					     "endpoints: [{}, {url: 'http://x?a=\"\\'}]" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(yamls); i++) {
		CLEANUP_SAMPLE struct sample a = {}, b = {};
		CLEANUP_FREE char *one = NULL, *two = NULL;

		assert_loads(&a, yamls[i]);
		one = print(&a);
		assert_loads(&b, one);
		two = print(&b);
		assert_string_equal(one, two);
		assert_true(a.rate == b.rate && a.wait_ns == b.wait_ns && a.is_on == b.is_on);
		assert_true(a.limit_bytes == b.limit_bytes);
		assert_string_equal(a.text, b.text);
		assert_int_equal(a.include.n, b.include.n);
		for (size_t j = 0; j < a.include.n; j++)
			assert_string_equal(a.include.v[j], b.include.v[j]);
		assert_int_equal(a.endpoints.n, b.endpoints.n);
	}
}

static void secrets_are_masked_in_print(void **state)
{
	CLEANUP_SAMPLE struct sample s = {};
	CLEANUP_FREE char *text = NULL;

	(void)state;
	assert_loads(&s, "endpoints: [{basic_auth: {username: me, password: hunter2}, "
			 "headers: {Authorization: hunter3}}, {}]");
	text = print(&s);
	assert_null(strstr(text, "hunter"));
	assert_non_null(strstr(text, "username: \"me\""));
	assert_non_null(strstr(text, "password: \"(hidden)\""));
	assert_non_null(strstr(text, "\"Authorization\": \"(hidden)\""));
	assert_non_null(strstr(text, "password: \"\"")); /* none is told from one */
	assert_non_null(strstr(text, "FLAMED_LABELS_STATIC\n"));
	assert_non_null(strstr(text, "FLAMED_ENDPOINT_PASSWORD\n"));
	assert_non_null(strstr(text, "auto|push|ingest, default push, FLAMED_ENDPOINT_PROTOCOL\n"));
}

/* ---- the environment ------------------------------------------------------------------------- */

static int clear_env(void **state)
{
	char *name;

	(void)state;
	for (char **e = environ; *e;) {
		if (strncmp(*e, "FLAMED_", 7) != 0) {
			e++;
			continue;
		}
		name = strndup(*e, strcspn(*e, "="));
		unsetenv(name);
		free(name);
		e = environ;
	}
	return 0;
}

static void the_environment_goes_over_the_file(void **state)
{
	CLEANUP_SAMPLE struct sample s = {};
	CLEANUP_FREE char *why = NULL;

	(void)state;
	assert_loads(&s, full);
	setenv("FLAMED_RATE", "5", 1);
	setenv("FLAMED_WAIT", "3s", 1);
	setenv("FLAMED_LABELS_STATIC", "a=b,c=d=e", 1);
	setenv("FLAMED_LABELS_INCLUDE", "", 1);
	setenv("FLAMED_ENDPOINT_URL", "http://env", 1);
	setenv("FLAMED_ENDPOINT_PASSWORD", "env", 1);
	assert_int_equal(schema_env(keys, &s, &why), 0);
	assert_true(s.rate == 5 && s.wait_ns == 3 * NSEC_PER_SEC);
	assert_int_equal(s.labels.n, 2);
	assert_string_equal(value_map_find(&s.labels, "c"), "d=e");
	assert_int_equal(s.include.n, 0);
	assert_int_equal(s.endpoints.n, 2);
	assert_string_equal(endpoint(&s, 0)->url, "http://env");
	assert_string_equal(endpoint(&s, 0)->username, "me");
	assert_string_equal(endpoint(&s, 0)->password, "env");
	assert_string_equal(endpoint(&s, 1)->url, "https://b");
}

static void the_environment_makes_the_first_endpoint(void **state)
{
	CLEANUP_SAMPLE struct sample s = {};
	CLEANUP_FREE char *why = NULL;

	(void)state;
	assert_loads(&s, "");
	setenv("FLAMED_ENDPOINT_URL", "http://env", 1);
	setenv("FLAMED_ENDPOINT_USERNAME", "u", 1);
	assert_int_equal(schema_env(keys, &s, &why), 0);
	assert_int_equal(s.endpoints.n, 1);
	assert_string_equal(endpoint(&s, 0)->username, "u");
	assert_int_equal(endpoint(&s, 0)->protocol, 1);
}

static void a_bad_variable_is_told_by_name(void **state)
{
	CLEANUP_SAMPLE struct sample s = {};
	CLEANUP_FREE char *why = NULL;

	(void)state;
	assert_loads(&s, "");
	setenv("FLAMED_SMALL", "11", 1);
	assert_int_equal(schema_env(keys, &s, &why), -EINVAL);
	assert_string_equal(why, "FLAMED_SMALL: 11 is not in 0..10");
	free(TAKE(why));
	unsetenv("FLAMED_SMALL");
	setenv("FLAMED_TEXT", "\xff", 1);
	assert_int_equal(schema_env(keys, &s, &why), -EINVAL);
	free(TAKE(why));
	unsetenv("FLAMED_TEXT");
	setenv("FLAMED_LABELS_STATIC", "a", 1);
	assert_int_equal(schema_env(keys, &s, &why), -EINVAL);
	assert_string_equal(why, "FLAMED_LABELS_STATIC: is not of the form name=value,name=value");
}

static void a_foreign_variable_is_no_error_and_makes_nothing(void **state)
{
	CLEANUP_SAMPLE struct sample s = {};
	CLEANUP_FREE char *why = NULL;

	(void)state;
	assert_loads(&s, "");
	log_set_level(LOG_ERROR);
	setenv("FLAMED_PORT_4040_TCP", "tcp://10.0.0.1:4040", 1);
	setenv("FLAMED_ENDPOINT_NONSENSE", "x", 1);
	setenv("FLAMED_ENDPOINTS_URL", "x", 1);
	setenv("FLAMED_RATES", "x", 1);
	setenv("FLAMED_", "x", 1);
	assert_int_equal(schema_env(keys, &s, &why), 0);
	log_set_level(LOG_INFO);
	assert_int_equal(s.endpoints.n, 0);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void durations_are_numbers_with_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = { { "0s", 0 },
		     { "1ns", 1 },
		     { "500ms", 500000000 },
		     { "1m30s", 90000000000 },
		     { "1h1ms", 3600001000000 },
		     { "2d", 172800000000000 },
		     { "213503d", 18446659200000000000ull } };
	static const char *const bad[] = { "",	  "s",	  "1",	 "1x",	    "-1s",     "1.5s", "1s ",
					   " 1s", "1s1m", "1s1s", "213504d", "1sm",    "1S",
					   "99999999999999999999s", "213503d24h" };
	uint64_t ns = 42;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(value_parse_duration(good[i].text, &ns), 0);
		assert_true(ns == good[i].ns);
		assert_string_equal(value_format_duration(ns).text, good[i].text);
	}
	ns = 42;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(value_parse_duration(bad[i], &ns), -EINVAL);
	assert_true(ns == 42);
}

static void the_longest_duration_is_written_whole(void **state)
{
	uint64_t ns = 0;

	(void)state;
	assert_int_equal(value_parse_duration(value_format_duration(UINT64_MAX).text, &ns), 0);
	assert_true(ns == UINT64_MAX);
}

static void sizes_are_bytes_or_numbers_with_units(void **state)
{
	static const char *const bad[] = { "",	   "B",	      "-1",	   "1 MiB",
					   "1mib", "1MiBs",   "16777216TiB", "18446744073709551616" };
	uint64_t n;

	(void)state;
	assert_true(value_parse_size("64MiB", &n) == 0 && n == 64ull << 20);
	assert_true(value_parse_size("100kB", &n) == 0 && n == 100000);
	assert_true(value_parse_size("100", &n) == 0 && n == 100);
	assert_true(value_parse_size("16777215TiB", &n) == 0 && n == 16777215ull << 40);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(value_parse_size(bad[i], &n), -EINVAL);
	for (n = 1; n < 1ull << 50; n = n * 3 + 1024) {
		uint64_t back = 0;

		assert_int_equal(value_parse_size(value_format_size(n).text, &back), 0);
		assert_true(back == n);
	}
	assert_string_equal(value_format_size(0).text, "0");
	assert_string_equal(value_format_size(65536).text, "64KiB");
	assert_string_equal(value_format_size(1000).text, "1000");
}

static void only_printable_utf8_is_text(void **state)
{
	static const char *const bad[] = { "\n", "\x7f", "\xc2\x85", "\xff", "\xc3", "\x80",
					   "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
					   "\xf4\x90\x80\x80", "\xef\xbf\xbf", "\xf8\x88\x80\x80\x80",
					   "\xe2\x80\xa8", "\xf0\x9f\x94" };

	(void)state;
	assert_true(value_is_text("a \xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5"));
	assert_true(value_is_text(""));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(value_is_text(bad[i]));
}

/* ---- flamed's own settings ------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static char *print_config(const struct config *c)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	config_print(out, c);
	fclose(out);
	return text;
}

static void the_defaults_need_no_file(void **state)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;

	(void)state;
	assert_int_equal(config_load(&c, NULL, &why), 0);
	assert_int_equal(c->sampling.frequency_hz, 100);
	assert_string_equal(c->sampling.cpus, "");
	assert_int_equal(c->sampling.stack_max_bytes, 65536);
	assert_true(c->window_ns == 15 * NSEC_PER_SEC);
	assert_int_equal(c->log.level, LOG_INFO);
}

static void a_file_and_the_environment_make_a_config(void **state)
{
	char path[] = "/tmp/flamed-test-XXXXXX";
	CLEANUP_FD int fd = mkstemp(path);
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;
	char want[256];

	(void)state;
	assert_true(fd >= 0);
	write_file(path, "sampling:\n  frequency_hz: 50\n  cpus: 0-3,8\nlog: {level: debug}\n");
	setenv("FLAMED_SAMPLING_FREQUENCY_HZ", "20", 1);
	assert_int_equal(config_load(&c, path, &why), 0);
	assert_int_equal(c->sampling.frequency_hz, 20);
	assert_string_equal(c->sampling.cpus, "0-3,8");
	assert_int_equal(c->log.level, LOG_DEBUG);
	config_free(TAKE(c));
	write_file(path, "\nsampling:\n  frequency_hz: 0\n");
	assert_int_equal(config_load(&c, path, &why), -EINVAL);
	snprintf(want, sizeof(want), "%s:3: sampling.frequency_hz: 0 is not in 1..1000", path);
	assert_string_equal(why, want);
	assert_null(c);
	unlink(path);
}

static void a_file_that_cannot_be_read_is_told(void **state)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;

	(void)state;
	assert_int_equal(config_load(&c, "/nonexistent/f.yaml", &why), -ENOENT);
	assert_string_equal(why, "/nonexistent/f.yaml: No such file or directory");
	free(TAKE(why));
	assert_int_equal(config_load(&c, "/proc/self", &why), -EISDIR);
	free(TAKE(why));
	assert_int_equal(config_load(&c, "/dev/zero", &why), -EINVAL);
	assert_string_equal(why, "/dev/zero: is larger than 1048576 bytes");
}

static void a_list_of_cpus_is_checked(void **state)
{
	static const char *const good[] = { "", "0", "0-3", "1,3,5-7", "65535" };
	static const char *const bad[] = { ",", "0,", "a", "3-1", "0-", "-1", "0 1", "65536",
					   "99999999999999999999", "1--2", "0-3:1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good) + ARRAY_SIZE(bad); i++) {
		bool is_good = i < ARRAY_SIZE(good);
		CLEANUP(config_freep) struct config *c = NULL;
		CLEANUP_FREE char *why = NULL;

		setenv("FLAMED_SAMPLING_CPUS", is_good ? good[i] : bad[i - ARRAY_SIZE(good)], 1);
		assert_int_equal(config_load(&c, NULL, &why), is_good ? 0 : -EINVAL);
	}
}

static void a_config_survives_any_failed_allocation(void **state)
{
	int err = -1;

	(void)state;
	for (long nth = 1; err; nth++) {
		CLEANUP(config_freep) struct config *c = NULL;
		CLEANUP_FREE char *why = NULL;

		alloc_fail_nth(nth);
		err = config_load(&c, "config/flamed.yaml", &why);
		alloc_fail_nth(0);
		assert_true(err == 0 || (err == -ENOMEM && !c && !why));
	}
}

/* The file in the tree is what --print-config says, so it cannot go stale. */
static void the_file_in_the_tree_is_the_printed_defaults(void **state)
{
	CLEANUP(config_freep) struct config *c = NULL, *from_file = NULL;
	CLEANUP_FREE char *why = NULL, *printed = NULL, *again = NULL;
	static char file[65536];
	FILE *f = fopen("config/flamed.yaml", "re");

	(void)state;
	assert_non_null(f); /* the tests run in the top directory */
	file[fread(file, 1, sizeof(file) - 1, f)] = 0;
	fclose(f);
	assert_int_equal(config_load(&c, NULL, &why), 0);
	printed = print_config(c);
	assert_string_equal(printed, file);
	assert_int_equal(config_load(&from_file, "config/flamed.yaml", &why), 0);
	again = print_config(from_file);
	assert_string_equal(again, file);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clear_env, clear_env)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(every_type_is_read),
		TEST(what_is_not_there_keeps_its_default),
		TEST(a_bad_value_is_told_with_file_line_and_key),
		TEST(an_unknown_key_is_refused),
		TEST(a_key_twice_is_refused),
		TEST(a_wrong_shape_is_refused),
		TEST(more_entries_than_allowed_are_refused),
		TEST(a_secret_is_not_told),
		TEST(bytes_that_are_no_text_are_refused),
		TEST(nothing_stands_for_something_elsewhere),
		TEST(depth_and_size_are_bounded),
		TEST(every_prefix_is_an_answer),
		TEST(loading_survives_any_failed_allocation),
		TEST(what_is_printed_loads_to_the_same),
		TEST(secrets_are_masked_in_print),
		TEST(the_environment_goes_over_the_file),
		TEST(the_environment_makes_the_first_endpoint),
		TEST(a_bad_variable_is_told_by_name),
		TEST(a_foreign_variable_is_no_error_and_makes_nothing),
		TEST(durations_are_numbers_with_units),
		TEST(the_longest_duration_is_written_whole),
		TEST(sizes_are_bytes_or_numbers_with_units),
		TEST(only_printable_utf8_is_text),
		TEST(the_defaults_need_no_file),
		TEST(a_file_and_the_environment_make_a_config),
		TEST(a_file_that_cannot_be_read_is_told),
		TEST(a_list_of_cpus_is_checked),
		TEST(a_config_survives_any_failed_allocation),
		TEST(the_file_in_the_tree_is_the_printed_defaults),
	};
	struct config *c;
	char *why;

	/* `test_config print > config/flamed.yaml` after a change of the table. */
	if (argc > 1 && strcmp(argv[1], "print") == 0 && !config_load(&c, NULL, &why)) {
		config_print(stdout, c);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
