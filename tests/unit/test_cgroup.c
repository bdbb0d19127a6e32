#include "exporter/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define ID "b4510afb170d8204b5ce6dc535770a39fbc66e1a65a8af2a22193b6d4104b49c"
#define OTHER "b52a5173c7f39e1c7f011ce72ee8b30688a12a14ff71902f0be2036d802da8b2"
#define POD "3b2c23a8-1fbf-5e54-4a5e-71f318742c6e"

enum { NVECTORS_MIN = 30 + 40 };

static bool differ(const char *what, const char *got, const char *want, const char *note)
{
	if (!strcmp(got, want))
		return false;
	print_error("%s: %s is '%s', not '%s'\n", note, what, got, want);
	return true;
}

static void every_known_format_is_understood(void **state)
{
	FILE *f = fopen(CGROUP_VECTORS, "r");
	size_t cap = 0, n = 0, nwrong = 0;
	CLEANUP_FREE char *line = NULL;
	struct cgroup_facts got;

	(void)state;
	assert_non_null(f);
	assert_true(getline(&line, &cap, f) > 0); /* names of the columns */
	while (getline(&line, &cap, f) > 0) {
		char *rest = line, *lines = strsep(&rest, "\t"), *id = strsep(&rest, "\t");
		char *pod = strsep(&rest, "\t"), *unit = strsep(&rest, "\t");
		char *note = strsep(&rest, "\n");

		assert_non_null(note);
		cgroup_parse(lines, &got);
		nwrong += differ("container_id", got.container_id, id, note);
		nwrong += differ("pod_uid", got.pod_uid, pod, note);
		nwrong += differ("unit", got.service_unit, unit, note);
		assert_int_equal(!got.container_path, !*id);
		assert_int_equal(!got.pod_path, !*pod);
		assert_int_equal(!got.unit_path, !*unit);
		n++;
	}
	fclose(f);
	assert_true(n >= NVECTORS_MIN);
	assert_int_equal(nwrong, 0);
}

static void of_several_hierarchies_the_deepest_id_wins(void **state)
{
	struct cgroup_facts got;

	(void)state;
	cgroup_parse("12:cpu:/docker/" OTHER "\n"
		     "3:memory:/docker/" OTHER "/kubepods/besteffort/pod" POD "/" ID "\n"
		     "1:name=systemd:/docker/" OTHER "\n"
		     "0::/\n",
		     &got);
	assert_string_equal(got.container_id, ID);
	assert_string_equal(got.pod_uid, POD);
	assert_string_equal(got.service_unit, "");
	assert_int_equal(got.container_path_len, strlen("/docker/" OTHER "/kubepods/besteffort/pod" POD "/" ID));
	assert_memory_equal(got.container_path, "/docker/" OTHER "/kube", 20);
}

static void the_unit_is_where_systemd_keeps_it(void **state)
{
	struct cgroup_facts got;

	(void)state;
	cgroup_parse("5:pids:/a.service\n1:name=systemd:/b.service\n0::/\n", &got);
	assert_string_equal(got.service_unit, "b.service");
	cgroup_parse("5:pids:/a.service\n1:name=systemd:/b.service\n0::/c.service\n", &got);
	assert_string_equal(got.service_unit, "c.service");
	assert_int_equal(got.unit_path_len, strlen("/c.service"));
	cgroup_parse("5:pids:/a.service\n", &got);
	assert_string_equal(got.service_unit, "a.service");
}

/* Docker on a hybrid host: in the unified hierarchy its processes stay with containerd. */
static void a_container_is_not_named_after_its_runtime(void **state)
{
	struct cgroup_facts got;

	(void)state;
	cgroup_parse("13:name=systemd:/docker/" ID "\n0::/system.slice/containerd.service\n", &got);
	assert_string_equal(got.container_id, ID);
	assert_string_equal(got.service_unit, "");
	cgroup_parse("13:name=systemd:/docker/" ID "/system.slice/nginx.service\n"
		     "0::/system.slice/containerd.service\n",
		     &got);
	assert_string_equal(got.service_unit, "nginx.service");
	/* The runtime itself is in no container. */
	cgroup_parse("13:name=systemd:/system.slice/containerd.service\n"
		     "0::/system.slice/containerd.service\n",
		     &got);
	assert_string_equal(got.service_unit, "containerd.service");
}

static void a_long_name_is_no_unit_and_no_id(void **state)
{
	char lines[1024] = "0::/lxc/";
	struct cgroup_facts got;

	(void)state;
	memset(lines + 8, 'x', CGROUP_ID_MAX);
	cgroup_parse(lines, &got);
	assert_string_equal(got.container_id, "");
	lines[8 + CGROUP_ID_MAX - 1] = 0;
	cgroup_parse(lines, &got);
	assert_int_equal(strlen(got.container_id), CGROUP_ID_MAX - 1);
	memset(lines + 4, 'x', 300);
	strcpy(lines + 4 + 248, ".service");
	cgroup_parse(lines, &got);
	assert_string_equal(got.service_unit, "");
	strcpy(lines + 4 + 247, ".service");
	cgroup_parse(lines, &got);
	assert_int_equal(strlen(got.service_unit), CGROUP_UNIT_MAX - 1);
}

/* Megabytes of what a hostile group could be called: in time, and without a result. */
static void hostile_paths_are_only_long(void **state)
{
	enum { SIZE = 4 << 20 };
	static const char *const pieces[] = { "/", "a/", "../", ":", "\n0::/", "pod", "-", "0::/a:b", "\xff\x01" };
	CLEANUP_FREE char *lines = malloc(SIZE + 16);
	struct cgroup_facts got;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		size_t n = strlen(pieces[i]);

		strcpy(lines, "0::/");
		for (size_t at = 4; at + n < SIZE; at += n)
			memcpy(lines + at, pieces[i], n + 1);
		cgroup_parse(lines, &got);
		assert_string_equal(got.container_id, "");
		assert_string_equal(got.pod_uid, "");
		assert_string_equal(got.service_unit, "");
	}
	strcpy(lines + SIZE - 100, "/docker/" ID);
	cgroup_parse(lines, &got);
	assert_string_equal(got.container_id, ID);
}

static void nothing_is_known_of_nothing(void **state)
{
	struct cgroup_facts got;

	(void)state;
	cgroup_parse("", &got);
	assert_string_equal(got.container_id, "");
	assert_null(got.container_path);
	cgroup_parse("\n\n::\n:::/\n", &got);
	assert_string_equal(got.service_unit, "");
}

static void a_unit_has_a_name_without_what_is_systemds(void **state)
{
	static const struct {
		const char *unit, *want;
	} table[] = {
		{ "nginx.service", "nginx" },
		{ "my-app@blue\\x2dgreen.service", "my-app" },
		{ "my\\x2dapp.service", "my-app" },
		{ "caf\\xc3\\xa9.service", "caf\xc3\xa9" },
		{ "a\\x2.service", "a\\x2" },
		{ "a\\xzz.service", "a\\xzz" },
		{ "a\\x00b.service", "a\\x00b" },
		{ "a\\X2D.service", "a\\X2D" },
		{ "a\\x2D.service", "a-" },
		{ "@x.service", "" },
		{ ".service", "" },
		{ "", "" },
		{ "x\\", "x\\" },
		{ "a.service.service", "a.service" },
		{ "getty@tty1.service", "getty" },
	};
	char name[16], tiny[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		cgroup_unit_name(table[i].unit, name, sizeof(name));
		assert_string_equal(name, table[i].want);
	}
	cgroup_unit_name("nginx.service", tiny, sizeof(tiny));
	assert_string_equal(tiny, "ngi");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_known_format_is_understood),
		cmocka_unit_test(of_several_hierarchies_the_deepest_id_wins),
		cmocka_unit_test(the_unit_is_where_systemd_keeps_it),
		cmocka_unit_test(a_container_is_not_named_after_its_runtime),
		cmocka_unit_test(a_long_name_is_no_unit_and_no_id),
		cmocka_unit_test(hostile_paths_are_only_long),
		cmocka_unit_test(nothing_is_known_of_nothing),
		cmocka_unit_test(a_unit_has_a_name_without_what_is_systemds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
