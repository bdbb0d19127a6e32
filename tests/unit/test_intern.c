#include "exporter/intern.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/unit/alloc_fail.h"

/* Things are indexes into an array of numbers. */
static bool numbers_equal(const void *arg, uint32_t a, uint32_t b)
{
	const uint32_t *numbers = arg;

	return numbers[a] == numbers[b];
}

static void internp(struct intern *t)
{
	intern_fini(t);
}

static void equal_things_have_one_number_in_order_of_appearance(void **state)
{
	static const uint32_t numbers[] = { 7, 9, 7, 7, 3, 9 }, want[] = { 0, 1, 0, 0, 2, 1 };
	CLEANUP(internp) struct intern t = {};
	uint32_t got;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		assert_int_equal(intern_put(&t, numbers[i], i, numbers_equal, numbers, &got), 0);
		assert_int_equal(got, want[i]);
	}
	assert_int_equal(t.n, 3);
	assert_int_equal(intern_thing(&t, 0), 0);
	assert_int_equal(intern_thing(&t, 1), 1);
	assert_int_equal(intern_thing(&t, 2), 4);
}

static void finding_adds_nothing(void **state)
{
	static const uint32_t numbers[] = { 7, 9, 7, 8 };
	CLEANUP(internp) struct intern t = {};
	uint32_t got = 99;

	(void)state;
	assert_false(intern_find(&t, 7, 0, numbers_equal, numbers, &got));
	assert_int_equal(intern_put(&t, 7, 0, numbers_equal, numbers, &got), 0);
	assert_int_equal(intern_put(&t, 9, 1, numbers_equal, numbers, &got), 0);
	assert_true(intern_find(&t, 7, 2, numbers_equal, numbers, &got));
	assert_int_equal(got, 0);
	assert_false(intern_find(&t, 8, 3, numbers_equal, numbers, &got));
	assert_false(intern_find(&t, 9, 3, numbers_equal, numbers, &got)); /* its hash alone */
	assert_int_equal(got, 0);
	assert_int_equal(t.n, 2);
}

/* Different things with one hash, with the same slot, and with neither: 0, 1 and 2 at the top. */
static void collisions_do_not_mix_things_up(void **state)
{
	enum { N = 1000 };
	CLEANUP(internp) struct intern t = {};
	uint32_t numbers[N], got;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		numbers[i] = i;
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < N; i++) {
			uint64_t hash = i % 3 == 0 ? 5 : i % 3 == 1 ? (uint64_t)i << 32 | 5 : i;

			assert_int_equal(intern_put(&t, hash, i, numbers_equal, numbers, &got), 0);
			assert_int_equal(got, i);
		}
	}
	assert_int_equal(t.n, N);
}

static void a_failed_allocation_changes_nothing(void **state)
{
	enum { N = 300 };
	CLEANUP(internp) struct intern t = {};
	uint32_t numbers[N], got, nfailed = 0;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		numbers[i] = i * i;
	for (uint32_t i = 0; i < N; i++) {
		int err = -ENOMEM;

		for (long nth = 1; err; nth++) {
			alloc_fail_nth(nth);
			err = intern_put(&t, numbers[i], i, numbers_equal, numbers, &got);
			alloc_fail_nth(0);
			assert_true(err == 0 || err == -ENOMEM);
			assert_int_equal(t.n, err ? i : i + 1);
			nfailed += err != 0;
		}
		assert_int_equal(got, i);
	}
	assert_true(nfailed >= 6); /* it grew three times at least, with two allocations each */
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(intern_put(&t, numbers[i], i, numbers_equal, numbers, &got), 0);
		assert_int_equal(got, i);
	}
}

/* Colliding things too: runs of slots are freed out of order. */
static void after_a_reset_nothing_is_left(void **state)
{
	enum { N = 500 };
	CLEANUP(internp) struct intern t = {};
	uint32_t numbers[N], got;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		numbers[i] = i;
	intern_reset(&t);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < N; i++) {
			uint32_t thing = (i * 7 + round * 31) % N;

			assert_int_equal(intern_put(&t, thing % 50, thing, numbers_equal, numbers, &got), 0);
			assert_int_equal(got, i);
			assert_int_equal(intern_thing(&t, i), thing);
		}
		intern_reset(&t);
		assert_int_equal(t.n, 0);
		for (uint32_t i = 0; i < t.nslots; i++)
			assert_int_equal(t.slots[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_things_have_one_number_in_order_of_appearance),
		cmocka_unit_test(finding_adds_nothing),
		cmocka_unit_test(collisions_do_not_mix_things_up),
		cmocka_unit_test(a_failed_allocation_changes_nothing),
		cmocka_unit_test(after_a_reset_nothing_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
