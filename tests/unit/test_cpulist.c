#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/cpulist.h"

static void lists_of_numbers_and_ranges_are_understood(void **state UNUSED)
{
	struct cpulist l;

	assert_int_equal(cpulist_parse("0-3,8,10-11", &l), 0);
	assert_int_equal(cpulist_count(&l), 7);
	for (uint32_t cpu = 0; cpu < 16; cpu++)
		assert_int_equal(cpulist_has(&l, cpu), cpu <= 3 || cpu == 8 || cpu == 10 || cpu == 11);
	assert_int_equal(cpulist_parse("5,5-5,4-6", &l), 0);
	assert_int_equal(cpulist_count(&l), 3);
	assert_int_equal(cpulist_parse("8191", &l), 0);
	assert_true(cpulist_has(&l, 8191));
	assert_false(cpulist_has(&l, 8192));
	assert_false(cpulist_has(&l, UINT32_MAX));
}

static void nothing_is_the_empty_set(void **state UNUSED)
{
	struct cpulist l;

	assert_int_equal(cpulist_parse("", &l), 0);
	assert_int_equal(cpulist_count(&l), 0);
}

static void what_is_no_list_is_refused_and_nothing_written(void **state UNUSED)
{
	static const char *const bad[] = { ",", "1,", ",1", "1,,2", "-1", "1-", "3-2", "a", "1 2", "1-2-3", "0x1", " 1", "1;2" };
	static const char *const large[] = { "8192", "0-8192", "99999999999999999999", "0-4294967296" };
	struct cpulist l = { .bits = { 42 } };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(cpulist_parse(bad[i], &l), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(large); i++)
		assert_int_equal(cpulist_parse(large[i], &l), -ERANGE);
	assert_int_equal(l.bits[0], 42);
}

static void the_kernels_own_lists_are_read(void **state UNUSED)
{
	struct cpulist l;

	assert_int_equal(cpulist_read("online", &l), 0);
	assert_int_equal(cpulist_count(&l), sysconf(_SC_NPROCESSORS_ONLN));
	assert_int_equal(cpulist_read("isolated", &l), 0);
	assert_int_equal(cpulist_read("nohz_full", &l), 0);
	assert_int_equal(cpulist_read("no_such_list", &l), 0);
	assert_int_equal(cpulist_count(&l), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_numbers_and_ranges_are_understood),
		cmocka_unit_test(nothing_is_the_empty_set),
		cmocka_unit_test(what_is_no_list_is_refused_and_nothing_written),
		cmocka_unit_test(the_kernels_own_lists_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
