/* Services and processes at their limits. */
#include "exporter/services.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/unit/export_fixture.h"

static struct services *services;

static int setup(void **state)
{
	(void)state;
	return services_new(&services);
}

static int teardown(void **state)
{
	(void)state;
	services = services_free(services);
	return 0;
}

static json_t *shown(void)
{
	CLEANUP(bufw_fini) struct bufw text = {};
	json_t *list;

	assert_int_equal(services_write(services, &text), 0);
	list = json_loadb((const char *)text.data, text.len, 0, NULL);
	assert_non_null(list);
	return list;
}

/* A window of n processes, each of which has one sample and, when `names` is set, a service of its own. */
static void add_window(uint32_t first, uint32_t n, const char *names)
{
	CLEANUP_FREE struct export_subject *subjects = calloc(n, sizeof(*subjects));
	CLEANUP_FREE struct export_sample *samples = calloc(n, sizeof(*samples));
	CLEANUP_FREE struct export_string *strings = calloc(n + 3, sizeof(*strings));
	CLEANUP_FREE struct export_pair *pairs = calloc(n, sizeof(*pairs));
	CLEANUP_FREE char(*texts)[32] = calloc(n, sizeof(*texts));
	struct export_batch b = { .nstrings = n + 3, .npairs = n, .nsubjects = n, .nsamples = n,
				  .strings = strings, .pairs = pairs, .subjects = subjects,
				  .samples = samples };

	strings[0] = (struct export_string){ "", 0 };
	strings[1] = (struct export_string){ "service_name", 12 };
	strings[2] = (struct export_string){ "one", 3 };
	for (uint32_t i = 0; i < n; i++) {
		int len = snprintf(texts[i], sizeof(texts[i]), "%s%u", names ? names : "", first + i);

		strings[3 + i] = (struct export_string){ texts[i], (uint32_t)len };
		pairs[i] = (struct export_pair){ 1, names ? 3 + i : 2 };
		subjects[i] = (struct export_subject){ .id = first + i, .pid = first + i, .first_pair = i, .npairs = 1 };
		samples[i] = (struct export_sample){ .subject = i, .count = 1, .nanoseconds = 10 };
	}
	assert_int_equal(services_add(services, &b), 0);
}

static json_t *find(const json_t *list, const char *name)
{
	json_t *s;
	size_t i;

	json_array_foreach(list, i, s)
	{
		if (!strcmp(json_string_value(json_object_get(s, "name")), name))
			return s;
	}
	return NULL;
}

static json_int_t number(const json_t *service, const char *key)
{
	return json_integer_value(json_object_get(service, key));
}

static void a_service_that_is_known_stays_itself_when_no_more_fit(void **state)
{
	json_t *list;

	(void)state;
	add_window(1, SERVICES_MAX, "s");
	add_window(1, SERVICES_MAX, "s");
	list = shown();
	assert_int_equal(json_array_size(list), SERVICES_MAX);
	assert_null(find(list, "(other)"));
	assert_int_equal(number(find(list, "s1"), "samples"), 2);
	json_decref(list);
	/* New ones are `(other)`, once; the known ones go on. */
	add_window(1, SERVICES_MAX + 7, "s");
	add_window(SERVICES_MAX + 8, 3, "s");
	list = shown();
	assert_int_equal(json_array_size(list), SERVICES_MAX + 1);
	assert_int_equal(number(find(list, "(other)"), "samples"), 10);
	assert_int_equal(number(find(list, "s1"), "samples"), 3);
	assert_int_equal(number(find(list, "s4096"), "samples"), 3);
	json_decref(list);
	assert_int_equal(services_nsamples(services), 3 * SERVICES_MAX + 10);
}

static void a_process_that_is_known_is_still_counted_when_no_more_fit(void **state)
{
	json_t *list, *one;

	(void)state;
	add_window(1, SERVICES_PROCESSES_MAX, NULL);
	add_window(1, SERVICES_PROCESSES_MAX, NULL);
	list = shown();
	one = find(list, "one");
	assert_int_equal(number(one, "nprocesses"), SERVICES_PROCESSES_MAX);
	assert_int_equal(number(json_array_get(json_object_get(one, "processes"), 0), "samples"), 2);
	json_decref(list);
	add_window(SERVICES_PROCESSES_MAX + 1, 5, NULL);
	list = shown();
	one = find(list, "one");
	assert_int_equal(number(one, "nprocesses"), SERVICES_PROCESSES_MAX + 5);
	assert_int_equal(number(one, "samples"), 2 * SERVICES_PROCESSES_MAX + 5);
	json_decref(list);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_service_that_is_known_stays_itself_when_no_more_fit),
		TEST(a_process_that_is_known_is_still_counted_when_no_more_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
