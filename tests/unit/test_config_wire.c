/* flamed's own settings as bytes, and what can be said of them. */
#include "config/config.h"

#include "base/clock.h"
#include "tests/unit/alloc_fail.h"
#include "tests/unit/config_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- as bytes -------------------------------------------------------------------------------- */

static void encode(struct bufw *w, const struct config *c)
{
	config_encode(w, c);
	assert_int_equal(bufw_end(w), 0);
}

static char *printed(const struct config *c)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	config_print(out, c);
	fclose(out);
	return text;
}

static void what_is_decoded_is_what_was_encoded(void **state)
{
	static const char *const yamls[] = { "", config_fixture_full };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(yamls); i++) {
		CLEANUP(config_freep) struct config *c = config_fixture(yamls[i]), *d = NULL;
		CLEANUP(bufw_fini) struct bufw one = {}, two = {};
		CLEANUP_FREE char *text_c = printed(c), *text_d = NULL;
		struct bufr in;

		encode(&one, c);
		bufr_init(&in, one.data, one.len);
		assert_int_equal(config_decode(&in, &d), 0);
		text_d = printed(d);
		assert_string_equal(text_c, text_d);
		encode(&two, d);
		assert_int_equal(one.len, two.len);
		assert_memory_equal(one.data, two.data, one.len);
		assert_null(config_needs_restart(c, d));
		if (i)
			assert_string_equal(config_endpoint(d, 1)->bearer_token, "planted-token");
	}
}

static void no_prefix_of_it_is_decoded(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full), *d = NULL;
	CLEANUP(bufw_fini) struct bufw w = {};
	struct bufr in;

	(void)state;
	encode(&w, c);
	for (size_t len = 0; len < w.len; len++) {
		CLEANUP_FREE uint8_t *exact = malloc(len + !len); /* so that ASan sees one too many */

		memcpy(exact, w.data, len);
		bufr_init(&in, exact, len);
		assert_int_equal(config_decode(&in, &d), -EBADMSG);
	}
	bufw_u8(&w, 0);
	bufr_init(&in, w.data, w.len);
	assert_int_equal(config_decode(&in, &d), -EBADMSG);
	assert_null(d);
}

/* What the file's rules forbid is no message either: each byte is tried with other values. */
static void no_other_bytes_break_a_rule(void **state)
{
	static const uint8_t values[] = { 0, 1, '\n', ':', 0x7f, 0xff };
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full);
	CLEANUP(bufw_fini) struct bufw w = {};
	size_t nbad = 0;

	(void)state;
	encode(&w, c);
	for (size_t i = 0; i < w.len * ARRAY_SIZE(values); i++) {
		CLEANUP(config_freep) struct config *d = NULL;
		uint8_t *at = w.data + i / ARRAY_SIZE(values), was = *at;
		struct bufr in;
		int err;

		*at = values[i % ARRAY_SIZE(values)];
		bufr_init(&in, w.data, w.len);
		err = config_decode(&in, &d);
		*at = was;
		assert_true(err == 0 || (err == -EBADMSG && !d));
		nbad += err != 0;
		if (!err) {
			CLEANUP_FREE char *text = printed(d);

			assert_true(d->sampling.frequency_hz >= 1 &&
				    d->sampling.frequency_hz <= 1000);
			assert_true(d->endpoints.n <= 8 && d->log.level <= LOG_DEBUG);
			assert_non_null(text);
		}
	}
	assert_true(nbad > w.len);
}

static void decoding_survives_any_failed_allocation(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full);
	CLEANUP(bufw_fini) struct bufw w = {};
	int err = -1;

	(void)state;
	encode(&w, c);
	for (long nth = 1; err; nth++) {
		CLEANUP(config_freep) struct config *d = NULL;
		struct bufr in;

		bufr_init(&in, w.data, w.len);
		alloc_fail_nth(nth);
		err = config_decode(&in, &d);
		alloc_fail_nth(0);
		assert_int_equal(err, nth <= 40 ? -ENOMEM : err);
		assert_true(err == 0 || (err == -ENOMEM && !d));
	}
}

static void loading_survives_any_failed_allocation(void **state)
{
	int err = -1;

	(void)state;
	for (long nth = 1; err; nth++) {
		CLEANUP(config_freep) struct config *c = NULL;
		CLEANUP_FREE char *why = NULL;
		CLEANUP_FD int fd = config_fixture_file(config_fixture_full);

		alloc_fail_nth(nth);
		err = config_load_fd(&c, fd, "f.yaml", &why);
		alloc_fail_nth(0);
		assert_true(err == 0 || (err == -ENOMEM && !c && !why));
	}
}

static void encoding_survives_any_failed_allocation(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full);
	int err = -1;

	(void)state;
	for (long nth = 1; err; nth++) {
		CLEANUP(bufw_fini) struct bufw w = {};
		char hash[33];

		alloc_fail_nth(nth);
		config_encode(&w, c);
		config_hash(c, hash);
		alloc_fail_nth(0);
		err = bufw_end(&w);
		assert_true(err == 0 || err == -ENOMEM);
		assert_int_equal(strspn(hash, "0123456789abcdef"), 32);
	}
}

/* ---- what can be said of one ----------------------------------------------------------------- */

static void what_needs_a_restart_is_told_by_its_key(void **state)
{
	static const struct {
		const char *yaml, *key;
	} rows[] = {
		{ "", NULL },
		{ "sampling: {frequency_hz: 99}", "sampling.frequency_hz" },
		{ "sampling: {cpus: '0'}", "sampling.cpus" },
		{ "sampling: {stack_max_bytes: 4KiB}", "sampling.stack_max_bytes" },
		{ "window: 10s\nlog: {level: debug}", "window" },
		{ "output: {directory: /d}", "output.directory" },
		{ "output: {max_bytes: 1MiB}", "output.max_bytes" },
		{ "symbols: {demangle: none}", "symbols.demangle" },
		{ "runtime_directory: /r", "runtime_directory" },
		{ "labels: {hostname: x, static: {a: b}, include: [unit]}", NULL },
		{ "endpoints: [{url: 'http://a'}]\nqueue_max_bytes: 1MiB", NULL },
		{ "page: {listen: 'off', max_bytes: 1MiB}\nmetrics: {listen: 'off'}", NULL },
		{ "processes: {exclude: [a], thin: {b: 2}}", NULL },
	};
	CLEANUP(config_freep) struct config *defaults = config_fixture("");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(config_freep) struct config *c = config_fixture(rows[i].yaml);
		const char *key = config_needs_restart(defaults, c);

		assert_true(!key == !rows[i].key);
		if (key)
			assert_string_equal(key, rows[i].key);
	}
}

static void secrets_are_never_printed(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full);
	CLEANUP_FREE char *text = printed(c);

	(void)state;
	assert_null(strstr(text, "planted"));
	assert_non_null(strstr(text, "password: \"(hidden)\"\n"));
	assert_non_null(strstr(text, "\"X-Key\": \"(hidden)\"\n"));
	assert_non_null(strstr(text, "bearer_token: \"(hidden)\"\n"));
	assert_non_null(strstr(text, "url: \"https://profiles.example/base/?(hidden)\"\n"));
	assert_non_null(strstr(text, "url: \"http://127.0.0.1:4040\"\n"));
}

/* Of the full settings with `to` in place of `from`. */
static void hash_with(const char *from, const char *to, char ret[33])
{
	char yaml[2048];
	const char *at = strstr(config_fixture_full, from);
	CLEANUP(config_freep) struct config *c = NULL;

	assert_non_null(at);
	snprintf(yaml, sizeof(yaml), "%.*s%s%s", (int)(at - config_fixture_full),
		 config_fixture_full, to, at + strlen(from));
	c = config_fixture(yaml);
	config_hash(c, ret);
}

static void the_hash_changes_with_every_setting(void **state)
{
	static const char *const changes[][2] = {
		{ "49", "50" },		  { "planted-password", "planted-passwore" },
		{ "planted-token", "x" }, { "planted-header", "planted-heades" },
		{ "planted-page", "y" },  { "planted-query", "planted-querz" },
		{ "team", "teal" },	  { "sshd", "ssh" },
		{ "timeout: 3s", "" },	  { "level: error", "level: debug" },
	};
	char hash[33], other[33];

	(void)state;
	hash_with("49", "49", hash);
	assert_int_equal(strspn(hash, "0123456789abcdef"), 32);
	hash_with("window: 10s", "window:   10000ms # the same", other);
	assert_string_equal(hash, other);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		hash_with(changes[i][0], changes[i][1], other);
		assert_string_not_equal(hash, other);
	}
}

/* Who knows all but the password cannot find it by trying: many others have the same hash. */
static void the_hash_does_not_tell_a_secret_by_trying(void **state)
{
	CLEANUP(config_freep) struct config *c = config_fixture(config_fixture_full);
	char *password = config_endpoint(c, 0)->basic_auth.password;
	char hash[33], other[33];
	size_t nsame = 0;

	(void)state;
	config_hash(c, hash);
	for (unsigned i = 0; i < 1000000 && nsame < 3; i++) {
		snprintf(password, strlen("planted-password") + 1, "%u", i);
		config_hash(c, other);
		nsame += strcmp(hash, other) == 0;
	}
	assert_int_equal(nsame, 3);
}

static void sinks_have_names_of_their_own(void **state)
{
	CLEANUP(config_freep) struct config *c =
		config_fixture("endpoints: [{url: 'http://a/?key=secret'}, {url: 'http://a/'}, "
		       "{url: 'http://b', name: 'http://a/#2'}, {url: 'http://c', name: x}]\n"
		       "output: {directory: /d}");
	char names[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX];

	(void)state;
	assert_int_equal(config_sink_names(c, names), 5);
	assert_string_equal(names[0], "http://a/");
	assert_string_equal(names[1], "http://a/#2");
	assert_string_equal(names[2], "http://a/#2#2");
	assert_string_equal(names[3], "x");
	assert_string_equal(names[4], "directory");
}

static void long_urls_still_have_names_of_their_own(void **state)
{
	char yaml[2048], names[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX], path[300];
	CLEANUP(config_freep) struct config *c = NULL;

	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	snprintf(yaml, sizeof(yaml), "endpoints: [{url: 'http://a/%s1'}, {url: 'http://a/%s2'}]",
		 path, path);
	c = config_fixture(yaml);
	assert_int_equal(config_sink_names(c, names), 2);
	assert_string_not_equal(names[0], names[1]);
	assert_string_equal(names[1] + CONFIG_SINK_NAME_MAX - 3, "#2");
}

static void the_page_is_off_with_an_endpoint_until_it_is_asked_for(void **state)
{
	static const struct {
		const char *yaml, *address;
	} rows[] = {
		{ "", "127.0.0.1:4041" },
		{ "page: {listen: 'off'}", NULL },
		{ "page: {listen: '[::1]:1'}", "[::1]:1" },
		{ "endpoints: [{url: 'http://a'}]", NULL },
		{ "endpoints: [{url: 'http://a'}]\npage: {listen: '0.0.0.0:1'}", "0.0.0.0:1" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(config_freep) struct config *c = config_fixture(rows[i].yaml);
		const char *address = config_page_address(c);

		assert_true(!address == !rows[i].address);
		if (address)
			assert_string_equal(address, rows[i].address);
	}
}

#define TEST(f)                                                      \
	cmocka_unit_test_setup_teardown(f, config_fixture_clear_env, \
					config_fixture_clear_env)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_decoded_is_what_was_encoded),
		TEST(no_prefix_of_it_is_decoded),
		TEST(no_other_bytes_break_a_rule),
		TEST(decoding_survives_any_failed_allocation),
		TEST(loading_survives_any_failed_allocation),
		TEST(encoding_survives_any_failed_allocation),
		TEST(what_needs_a_restart_is_told_by_its_key),
		TEST(secrets_are_never_printed),
		TEST(the_hash_changes_with_every_setting),
		TEST(the_hash_does_not_tell_a_secret_by_trying),
		TEST(sinks_have_names_of_their_own),
		TEST(long_urls_still_have_names_of_their_own),
		TEST(the_page_is_off_with_an_endpoint_until_it_is_asked_for),
	};

	log_set_level(LOG_ERROR); /* warnings have a test of their own */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
