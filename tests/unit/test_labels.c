#include "exporter/labels.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "exporter/utf8.h"
#include "tests/unit/alloc_fail.h"

#define ID "b4510afb170d8204b5ce6dc535770a39fbc66e1a65a8af2a22193b6d4104b49c"
#define POD "3b2c23a8-1fbf-5e54-4a5e-71f318742c6e"

struct made {
	struct export_labels labels;
	void *mem;
};

static void made_fini(struct made *m)
{
	free(m->mem);
}

static struct made make(const char *executable, const char *comm, uint32_t flags, const char *cgroups,
			const struct config *conf)
{
	struct export_facts f = { .id = 5, .flags = flags, .executable = executable, .comm = comm, .cgroups = cgroups };
	struct made m;

	assert_int_equal(labels_make(&f, conf, &m.labels, &m.mem), 0);
	assert_int_equal(m.labels.id, 5);
	for (uint32_t i = 1; i < m.labels.nlabels; i++)
		assert_true(strcmp(m.labels.labels[i - 1].name, m.labels.labels[i].name) < 0);
	return m;
}

static const struct export_label *find(const struct made *m, const char *name)
{
	static const struct export_label none = { "", "", "" };

	for (uint32_t i = 0; i < m->labels.nlabels; i++) {
		if (!strcmp(m->labels.labels[i].name, name))
			return &m->labels.labels[i];
	}
	return &none;
}

static void assert_service(const char *executable, const char *comm, uint32_t flags, const char *cgroups,
			   const char *want)
{
	CLEANUP(made_fini) struct made m = make(executable, comm, flags, cgroups, NULL);

	assert_string_equal(find(&m, "service_name")->value, want);
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
		{ "/memfd:jit (deleted)", "x", "other" },
		{ "plain", "x", "plain" },
		{ "/usr/bin/ (deleted)", "comm", "comm" },
		{ "/", "comm", "comm" },
		{ " (deleted)", "x", "__deleted_" },
		{ "/tmp/go-build123/b001/exe/main", "main", "other" },
		{ "/var/tmp/x", "x", "other" },
		{ "/dev/shm/x (deleted)", "x", "other" },
		{ "/memfd:run-4f1c (deleted)", "x", "other" },
		{ "/memfd:runc_cloned:/proc/self/exe (deleted)", "runc", "other" },
		{ "/tmp", "x", "tmp" },
		{ "/tmpfiles/x", "y", "x" },
		{ "/home/a/tmp/x", "y", "x" },
		{ "", "kworker/0:1", "kworker/0_1" },
		{ "", "", "unknown" },
		{ "/usr/bin/\x80\x80", "", "unknown" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_service(table[i].executable, table[i].comm, 0, "", table[i].want);
}

static void kernel_threads_are_kernel(void **state)
{
	(void)state;
	assert_service("", "ksoftirqd/0", EXPORT_SUBJECT_KERNEL, "0::/\n", "kernel");
	assert_service("/usr/bin/x", "ksoftirqd/0", EXPORT_SUBJECT_KERNEL, "0::/a.service\n", "kernel");
}

static void a_name_is_never_longer_than_its_limit(void **state)
{
	char path[4097] = "/";
	CLEANUP(made_fini) struct made m = {};

	(void)state;
	memset(path + 1, 'x', sizeof(path) - 2);
	m = make(path, "", 0, "", NULL);
	assert_int_equal(strlen(find(&m, "service_name")->value), LABELS_NAME_MAX);
	assert_true(strlen(find(&m, "service_name")->source) < 600);
}

static void a_service_is_named_after_its_unit(void **state)
{
	static const struct {
		const char *cgroups, *want;
	} table[] = {
		{ "0::/system.slice/nginx.service\n", "nginx" },
		{ "0::/system.slice/system-my\\x2dapp.slice/my-app@blue\\x2dgreen.service\n", "my-app" },
		{ "0::/user.slice/user-1.slice/user@1.service/app.slice/foo.service\n", "user/foo" },
		{ "0::/user.slice/user-1.slice/user@1.service/user@0.service/foo.service\n", "user/foo" },
		{ "0::/user.slice/user-0.slice/user@0.service/app.slice/foo.service\n", "foo" },
		{ "0::/user.slice/user-1.slice/user@1.service/app.slice/@x.service\n", "bash" },
		{ "0::/user.slice/user-1.slice/user@1.service/init.scope\n", "bash" },
		{ "0::/system.slice/caf\\xc3\\xa9\\x20bar.service\n", "caf__bar" },
		{ "0::/system.slice/@x.service\n", "bash" },
		{ "0::/docker/" ID "\n", "bash" },
		{ "13:name=systemd:/docker/" ID "\n0::/system.slice/containerd.service\n", "bash" },
		{ "0::/system.slice/dbus-:1.2-org.foo@0.service", "dbus-_1.2-org.foo" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_service("/usr/bin/bash", "x", 0, table[i].cgroups, table[i].want);
	assert_service("/tmp/x", "x", 0, "0::/system.slice/nginx.service\n", "nginx");
}

static void each_label_says_where_it_is_from(void **state)
{
	CLEANUP(made_fini) struct made m = make("/usr/sbin/nginx", "nginx", 0, "0::/system.slice/web@1.service\n", NULL);
	CLEANUP(made_fini) struct made n = make(
		"/usr/sbin/ngi\nnx\xff", "nginx", 0, "0::/kubepods/pod" POD "/" ID "\n", NULL);
	CLEANUP(made_fini) struct made k = make("", "", EXPORT_SUBJECT_KERNEL, "", NULL);
	CLEANUP(made_fini) struct made c = make("", "thing", 0, "", NULL);

	(void)state;
	assert_int_equal(m.labels.nlabels, 2);
	assert_string_equal(find(&m, "service_name")->source, "from unit web@1.service");
	assert_string_equal(find(&m, "unit")->value, "web@1.service");
	assert_string_equal(find(&m, "unit")->source, "from the control group /system.slice/web@1.service");
	assert_int_equal(n.labels.nlabels, 3);
	assert_string_equal(find(&n, "service_name")->value, "ngi_nx_");
	assert_string_equal(find(&n, "service_name")->source,
			    "from the executable /usr/sbin/ngi\xef\xbf\xbdnx\xef\xbf\xbd");
	assert_string_equal(find(&n, "container_id")->value, ID);
	assert_string_equal(find(&n, "container_id")->source, "from the control group /kubepods/pod" POD "/" ID);
	assert_string_equal(find(&n, "pod_uid")->value, POD);
	assert_string_equal(find(&k, "service_name")->source, "kernel thread");
	assert_string_equal(find(&c, "service_name")->source, "from the thread's name thing");
}

/* What ssh, systemd-run and builds make thousands of, must not make thousands of series. */
static void made_up_names_make_no_services(void **state)
{
	static const char *const shells[] = { "/usr/bin/bash", "/usr/sbin/sshd", "/usr/bin/make" };
	CLEANUP_FREE char(*seen)[LABELS_NAME_MAX + 1] = calloc(64, sizeof(*seen));
	size_t nseen = 0;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		const char *const executables[] = { shells[i % 3], "/tmp/x%d", "/tmp/x%d (deleted)",
						    "/var/tmp/go-build%d/b001/exe/a.out", "/dev/shm/%d" };
		const char *const groups[] = {
			"0::/user.slice/user-%d.slice/session-%d.scope\n",
			"0::/user.slice/user-%d.slice/user@%d.service/init.scope\n",
			"0::/system.slice/run-u%d.service\n",
			"0::/system.slice/run-r%032x.service\n",
			"0::/system.slice/run-r%032x.scope\n",
			"0::/system.slice/run-p%d-i%d.service\n",
			"0::/user.slice/user-%d.slice/user@%d.service/app.slice/run-u9.service\n",
			"0::/system.slice/system-sshd.slice/sshd@%d-10.0.0.1:22-10.0.0.2:%d.service\n",
			"0::/machine.slice/libpod-%064x.scope/container\n",
			"0::/system.slice/%064x-6a3b.service\n",
		};
		char executable[128], cgroups[256];

		snprintf(executable, sizeof(executable), executables[i % 5], i);
		snprintf(cgroups, sizeof(cgroups), groups[i / 5 % 10], i, i);
		CLEANUP(made_fini) struct made m = make(executable, "x", 0, cgroups, NULL);
		const char *name = find(&m, "service_name")->value;
		size_t k = 0;

		while (k < nseen && strcmp(seen[k], name))
			k++;
		if (k < nseen)
			continue;
		assert_true(nseen < 20);
		snprintf(seen[nseen++], sizeof(*seen), "%s", name);
	}
	assert_int_equal(nseen, 4); /* bash, sshd, make, other */
}

static void settings_say_what_is_skipped_and_what_is_thinned(void **state)
{
	char *exclude[] = { (char *)"backup-*", (char *)"kernel" };
	struct value_pair thin[] = { { (char *)"java", (char *)"10" }, { (char *)"j*", (char *)"3" },
				     { (char *)"odd", (char *)"99999999999" }, { (char *)"backup-x", (char *)"2" } };
	struct config c = { .processes = { .exclude = { exclude, 2 }, .thin = { thin, 4 } } };
	static const struct {
		const char *executable;
		uint32_t flags, want;
	} table[] = {
		{ "/usr/bin/backup-home", 0, 0 }, { "/usr/bin/backup-x", 0, 0 }, { "", EXPORT_SUBJECT_KERNEL, 0 },
		{ "/usr/bin/java", 0, 10 },	  { "/usr/bin/jq", 0, 3 },	 { "/usr/bin/odd", 0, 1 },
		{ "/usr/bin/backup", 0, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		CLEANUP(made_fini) struct made m = make(table[i].executable, "", table[i].flags, "", &c);

		assert_int_equal(m.labels.keep_one_in, table[i].want);
	}
}

static void a_batch_names_the_services_that_it_was_not_given(void **state)
{
	static const char *const texts[] = { "", "/usr/bin/app", "worker", "service_name", "web", "bad name",
					     "main-thread" };
	struct export_string strings[ARRAY_SIZE(texts)];
	struct export_pair pairs[] = { { 3, 4 }, { 3, 5 } };
	struct export_subject subjects[] = {
		{ .pid = 1, .executable = 1, .first_pair = 0, .npairs = 1 },
		{ .pid = 2, .executable = 1, .first_pair = 1, .npairs = 1 }, /* not what we give */
		{ .pid = 3 }, /* nothing but threads */
		{ .pid = 4, .flags = EXPORT_SUBJECT_KERNEL },
		{ .pid = 5 }, /* no sample */
	};
	struct export_sample samples[] = {
		{ .subject = 2, .tid = 30, .comm = 2 },
		{ .subject = 2, .tid = 3, .comm = 6 },
		{ .subject = 3, .tid = 4, .comm = 2 },
	};
	struct export_batch b = { .nstrings = ARRAY_SIZE(texts), .npairs = 2, .nsubjects = 5, .nsamples = 3,
				  .strings = strings, .pairs = pairs, .subjects = subjects, .samples = samples };
	static const char *const want[] = { "web", "app", "main-thread", "kernel", "unknown" };
	struct export_string *got = NULL;
	void *mem = NULL;
	int err = -ENOMEM;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		strings[i] = (struct export_string){ texts[i], (uint32_t)strlen(texts[i]) };
	for (long nth = 1; err; nth++) {
		alloc_fail_nth(nth);
		err = labels_services(&b, &got, &mem);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
	}
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_int_equal(got[i].len, strlen(want[i]));
		assert_memory_equal(got[i].text, want[i], got[i].len);
	}
	free(got);
	free(mem);
}

static void making_labels_survives_a_failed_allocation(void **state)
{
	struct export_facts f = { .executable = "/x", .comm = "", .cgroups = "" };
	struct export_labels l;
	void *mem = NULL;

	(void)state;
	alloc_fail_nth(1);
	assert_int_equal(labels_make(&f, NULL, &l, &mem), -ENOMEM);
	alloc_fail_nth(0);
	assert_null(mem);
}

static void what_is_shown_has_no_control_characters_and_whole_characters(void **state)
{
	static const struct {
		const char *text, *want;
	} table[] = {
		{ "plain", "plain" },
		{ "a\tb\x7f", "a\xef\xbf\xbd" "b\xef\xbf\xbd" },
		{ "a\xc2\x9b" "31m", "a\xef\xbf\xbd" "31m" },
		{ "\xe2\x80\xa8\xe2\x80\xa6", "\xef\xbf\xbd\xe2\x80\xa6" },
		{ "\xff\xc3\xa9", "\xef\xbf\xbd\xc3\xa9" },
		{ "0123456789ab\xc3\xa9z", "0123456789ab\xc3\xa9z" },
		{ "0123456789abcd\xc3\xa9", "0123456789abcd" }, /* no half of it */
		{ "0123456789abc\xff", "0123456789abc" },
	};
	char got[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		utf8_clean(table[i].text, strlen(table[i].text), got, sizeof(got));
		assert_string_equal(got, table[i].want);
	}
	assert_int_equal(utf8_cut("abc", 3, 5), 3);
	assert_int_equal(utf8_cut("abc", 3, 2), 2);
	assert_int_equal(utf8_cut("a\xc3\xa9", 3, 2), 1);
	assert_int_equal(utf8_cut("\xf0\x9f\x98\x80", 4, 3), 0);
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
		cmocka_unit_test(a_service_is_named_after_its_unit),
		cmocka_unit_test(each_label_says_where_it_is_from),
		cmocka_unit_test(made_up_names_make_no_services),
		cmocka_unit_test(settings_say_what_is_skipped_and_what_is_thinned),
		cmocka_unit_test(a_batch_names_the_services_that_it_was_not_given),
		cmocka_unit_test(making_labels_survives_a_failed_allocation),
		cmocka_unit_test(what_is_shown_has_no_control_characters_and_whole_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
