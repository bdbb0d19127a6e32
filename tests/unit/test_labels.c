#include "exporter/labels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "exporter/utf8.h"

static struct labels_name name_of(const char *executable, const char *comm, bool is_kernel)
{
	return labels_service_name(&(struct labels_subject){
		.executable = executable,
		.executable_len = strlen(executable),
		.comm = comm,
		.comm_len = strlen(comm),
		.is_kernel = is_kernel,
	});
}

static void a_service_is_named_after_its_executable(void **state)
{
	static const struct {
		const char *executable, *comm, *want;
	} table[] = {
		{ "/usr/bin/python3.11", "worker", "python3.11" },
		{ "/usr/sbin/nginx (deleted)", "nginx", "nginx" },
		{ "/opt/my app/run it!", "x", "run_it_" },
		{ "/usr/bin/na\xc3\xafve", "x", "na_ve" },
		{ "/usr/bin/a\xff\x62", "x", "a_b" },
		{ "/usr/bin/g++-12", "x", "g__-12" },
		{ "/usr/bin/svc{a=b,c}", "x", "svc_a_b_c_" },
		{ "/usr/bin/new\nline", "x", "new_line" },
		{ "/memfd:jit (deleted)", "x", "memfd_jit" },
		{ "plain", "x", "plain" },
		{ "/usr/bin/ (deleted)", "comm", "comm" },
		{ "/", "comm", "comm" },
		{ " (deleted)", "x", "__deleted_" },
		{ "/tmp/go-build123/b001/exe/main", "main", "other" },
		{ "/var/tmp/x", "x", "other" },
		{ "/dev/shm/x (deleted)", "x", "other" },
		{ "/tmp", "x", "tmp" },
		{ "/tmpfiles/x", "y", "x" },
		{ "/home/a/tmp/x", "y", "x" },
		{ "", "kworker/0:1", "kworker/0_1" },
		{ "", "", "unknown" },
		{ "/usr/bin/\x80\x80", "", "unknown" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_string_equal(name_of(table[i].executable, table[i].comm, false).text,
				    table[i].want);
}

static void kernel_threads_are_kernel(void **state)
{
	(void)state;
	assert_string_equal(name_of("", "ksoftirqd/0", true).text, "kernel");
	assert_string_equal(name_of("/usr/bin/x", "ksoftirqd/0", true).text, "kernel");
}

static void a_name_is_never_longer_than_its_limit(void **state)
{
	char path[4097] = "/";

	(void)state;
	memset(path + 1, 'x', sizeof(path) - 2);
	assert_int_equal(strlen(name_of(path, "", false).text), LABELS_NAME_MAX);
}

static void only_text_is_text(void **state)
{
	static const struct {
		const char *s;
		size_t len;
		bool want;
		const char *repaired;
	} table[] = {
		{ "", 0, true, "" },
		{ "plain", 5, true, "plain" },
		{ "a\0b", 3, false,
		  "a\xef\xbf\xbd"
		  "b" },
		{ "\xc3\xa9", 2, true, "\xc3\xa9" },
		{ "\xe2\x82\xac", 3, true, "\xe2\x82\xac" },
		{ "\xf0\x9f\x98\x80", 4, true, "\xf0\x9f\x98\x80" },
		{ "\xf4\x8f\xbf\xbf", 4, true, "\xf4\x8f\xbf\xbf" },
		{ "\xc0\x80", 2, false, "\xef\xbf\xbd\xef\xbf\xbd" }, /* overlong */
		{ "\xe0\x9f\xbf", 3, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xed\xa0\x80", 3, false,
		  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* surrogate */
		{ "\xf4\x90\x80\x80", 4, false,
		  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xf0\x8f\xbf\xbf", 4, false,
		  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "x\xc3", 2, false, "x\xef\xbf\xbd" },
		{ "\xff", 1, false, "\xef\xbf\xbd" },
		{ "\xe2\x82"
		  "a",
		  3, false,
		  "\xef\xbf\xbd\xef\xbf\xbd"
		  "a" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		CLEANUP_FREE char *repaired = NULL;
		size_t len;

		assert_int_equal(utf8_is_text(table[i].s, table[i].len), table[i].want);
		assert_int_equal(utf8_repair(table[i].s, table[i].len, &repaired, &len), 0);
		assert_int_equal(len, strlen(table[i].repaired));
		assert_memory_equal(repaired, table[i].repaired, len);
		assert_true(utf8_is_text(repaired, len));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_service_is_named_after_its_executable),
		cmocka_unit_test(kernel_threads_are_kernel),
		cmocka_unit_test(a_name_is_never_longer_than_its_limit),
		cmocka_unit_test(only_text_is_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
