#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/files.h"
#include "agent/maps.h"
#include "tests/unit/alloc_fail.h"

static struct map anon(uint64_t start, uint64_t end, uint64_t offset)
{
	return (struct map){ .start = start, .end = end, .offset = offset, .kind = MAP_ANON };
}

static void expect_map(const struct maps *m, size_t i, uint64_t start, uint64_t end,
		       uint64_t offset)
{
	const struct map *map = maps_at(m, i);

	assert_int_equal(map->start, start);
	assert_int_equal(map->end, end);
	assert_int_equal(map->offset, offset);
}

static void a_mapping_is_found_from_its_first_to_its_last_byte(void **state UNUSED)
{
	CLEANUP(maps_unrefp) struct maps *m = NULL;
	struct map map = anon(0x1000, 0x3000, 0);

	assert_int_equal(maps_new(&m), 0);
	assert_null(maps_find(m, 0x1000));
	assert_int_equal(maps_add(&m, &map), 0);
	assert_null(maps_find(m, 0xfff));
	assert_non_null(maps_find(m, 0x1000));
	assert_non_null(maps_find(m, 0x2fff));
	assert_null(maps_find(m, 0x3000));
	assert_null(maps_find(m, UINT64_MAX));
}

static void empty_and_wrapping_ranges_are_refused(void **state UNUSED)
{
	CLEANUP(maps_unrefp) struct maps *m = NULL;
	struct map bad[] = { anon(0x1000, 0x1000, 0), anon(0x2000, 0x1000, 0),
			     anon(0x1000, 0x3000, UINT64_MAX - 0x1000), anon(UINT64_MAX, 0, 0) };
	struct map top = anon(UINT64_MAX - 0x1000, UINT64_MAX, 0);

	assert_int_equal(maps_new(&m), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(maps_add(&m, &bad[i]), -EINVAL);
	assert_int_equal(maps_count(m), 0);
	assert_int_equal(maps_add(&m, &top), 0);
	assert_non_null(maps_find(m, UINT64_MAX - 1));
	assert_null(maps_find(m, UINT64_MAX));
}

static void a_mapping_in_the_middle_of_another_leaves_both_ends(void **state UNUSED)
{
	CLEANUP(maps_unrefp) struct maps *m = NULL;
	struct map whole = anon(0x1000, 0x9000, 0x100000), part = anon(0x3000, 0x4000, 0x7000);

	assert_int_equal(maps_new(&m), 0);
	assert_int_equal(maps_add(&m, &whole), 0);
	assert_int_equal(maps_add(&m, &part), 0);
	assert_int_equal(maps_count(m), 3);
	expect_map(m, 0, 0x1000, 0x3000, 0x100000);
	expect_map(m, 1, 0x3000, 0x4000, 0x7000);
	expect_map(m, 2, 0x4000, 0x9000, 0x103000);
}

/* What maps_add() promises, as an array of pages. */
enum { PAGES = 24 };
struct model {
	uint64_t offset[PAGES]; /* 0: not mapped */
};

static void model_add(struct model *model, const struct map *map)
{
	for (uint64_t p = map->start / 0x1000; p < map->end / 0x1000; p++)
		model->offset[p] = map->offset + p * 0x1000 - map->start;
}

static void expect_model(const struct maps *m, const struct model *model)
{
	uint64_t end = 0;

	for (uint64_t p = 0; p < PAGES; p++) {
		uint64_t address = p * 0x1000 + p * 7 % 0x1000;
		const struct map *map = maps_find(m, address);

		assert_int_equal(map != NULL, model->offset[p] != 0);
		if (map)
			assert_int_equal(address - map->start + map->offset,
					 model->offset[p] + address % 0x1000);
	}
	for (size_t i = 0; i < maps_count(m); i++) {
		assert_true(maps_at(m, i)->start >= end);
		assert_true(maps_at(m, i)->start < maps_at(m, i)->end);
		end = maps_at(m, i)->end;
	}
}

static void every_relative_position_of_two_mappings_over_a_third_is_right(void **state UNUSED)
{
	for (uint64_t a = 0; a < 8; a++)
		for (uint64_t b = a + 1; b <= 8; b++)
			for (uint64_t c = 0; c < 8; c++)
				for (uint64_t d = c + 1; d <= 8; d++) {
					CLEANUP(maps_unrefp) struct maps *m = NULL;
					struct model model = { 0 };
					struct map maps[] = {
						anon(0x2000, 0x6000, 0x100000),
						anon(a * 0x1000, b * 0x1000, 0x200000),
						anon(c * 0x1000, d * 0x1000, 0x300000)
					};

					assert_int_equal(maps_new(&m), 0);
					for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
						model_add(&model, &maps[i]);
						assert_int_equal(maps_add(&m, &maps[i]), 0);
						expect_model(m, &model);
					}
				}
}

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* A few holders; each mutates, forks from another, clears, or looks. */
static void random_histories_of_shared_versions_agree_with_a_page_map(void **state UNUSED)
{
	enum { HOLDERS = 5, STEPS = 100000 };
	struct maps *m[HOLDERS];
	struct model model[HOLDERS] = { 0 };
	uint64_t seed = 42;

	for (size_t i = 0; i < HOLDERS; i++)
		assert_int_equal(maps_new(&m[i]), 0);
	for (int step = 0; step < STEPS; step++) {
		size_t i = random_next(&seed) % HOLDERS, from = random_next(&seed) % HOLDERS;
		uint64_t start = random_next(&seed) % PAGES;
		uint64_t end = start + 1 + random_next(&seed) % MIN(PAGES - start, 6ul);
		struct map map = anon(start * 0x1000, end * 0x1000, (uint64_t)(step + 1) << 20);

		switch (random_next(&seed) % 16) {
		case 0:
			if (i != from) {
				maps_unref(m[i]);
				m[i] = maps_ref(m[from]);
				model[i] = model[from];
			}
			break;
		case 1:
			assert_int_equal(maps_clear(&m[i]), 0);
			memset(&model[i], 0, sizeof(model[i]));
			break;
		default:
			assert_int_equal(maps_add(&m[i], &map), 0);
			model_add(&model[i], &map);
		}
		for (size_t k = 0; step % 8 == 0 && k < HOLDERS; k++)
			expect_model(m[k], &model[k]);
	}
	for (size_t i = 0; i < HOLDERS; i++)
		maps_unref(m[i]);
}

static void a_reference_keeps_its_version_while_the_other_holder_goes_on(void **state UNUSED)
{
	CLEANUP(maps_unrefp) struct maps *m = NULL, *parked = NULL;
	struct map old = anon(0x1000, 0x2000, 1), new = anon(0x1000, 0x2000, 2);

	assert_int_equal(maps_new(&m), 0);
	assert_int_equal(maps_add(&m, &old), 0);
	parked = maps_ref(m);
	assert_ptr_equal(parked, m);
	assert_int_equal(maps_add(&m, &new), 0);
	assert_ptr_not_equal(parked, m);
	assert_int_equal(maps_find(parked, 0x1000)->offset, 1);
	assert_int_equal(maps_find(m, 0x1000)->offset, 2);
	maps_unref(parked);
	parked = maps_ref(m);
	assert_int_equal(maps_clear(&m), 0);
	assert_int_equal(maps_count(m), 0);
	assert_int_equal(maps_count(parked), 1);
}

static void every_reference_to_a_file_is_given_back(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *files = NULL;
	struct file *a, *b;
	struct maps *m, *fork;
	struct map map;

	assert_int_equal(files_new(&files), 0);
	assert_int_equal(files_get(files, &(struct file_key){ .inode = 1 }, "/a", &a), 0);
	assert_int_equal(files_get(files, &(struct file_key){ .inode = 2 }, "/b", &b), 0);
	assert_int_equal(maps_new(&m), 0);
	map = (struct map){ .start = 0x1000, .end = 0x9000, .file = a, .kind = MAP_FILE };
	assert_int_equal(maps_add(&m, &map), 0);
	assert_int_equal(a->refs, 1);
	map = (struct map){ .start = 0x3000, .end = 0x4000, .file = b, .kind = MAP_FILE };
	assert_int_equal(maps_add(&m, &map), 0);
	assert_int_equal(a->refs, 2);
	assert_int_equal(b->refs, 1);
	fork = maps_ref(m);
	map = (struct map){ .start = 0, .end = 0x10000, .kind = MAP_ANON };
	assert_int_equal(maps_add(&fork, &map), 0);
	assert_int_equal(a->refs, 2);
	maps_unref(m);
	assert_int_equal(a->refs, 0);
	assert_int_equal(b->refs, 0);
	maps_unref(fork);
}

static void a_failed_allocation_leaves_the_version_as_it_was(void **state UNUSED)
{
	struct map old = anon(0x1000, 0x9000, 1), new = anon(0x2000, 0x3000, 2);
	int err = -ENOMEM;

	for (long nth = 1; err; nth++) {
		CLEANUP(maps_unrefp) struct maps *m = NULL, *parked = NULL;

		assert_int_equal(maps_new(&m), 0);
		assert_int_equal(maps_add(&m, &old), 0);
		parked = maps_ref(m);
		alloc_fail_nth(nth);
		err = maps_add(&m, &new);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_int_equal(maps_count(m), err ? 1 : 3);
		assert_int_equal(maps_count(parked), 1);
		assert_true(nth < 10);
	}
}

static void more_mappings_than_the_limit_are_refused(void **state UNUSED)
{
	CLEANUP(maps_unrefp) struct maps *m = NULL;
	int err = 0;

	assert_int_equal(maps_new(&m), 0);
	for (uint64_t i = 0; i < MAPS_MAX + 10 && !err; i++) {
		struct map map = anon(i * 0x2000, i * 0x2000 + 0x1000, 0);

		err = maps_add(&m, &map);
	}
	assert_int_equal(err, -E2BIG);
	assert_true(maps_count(m) <= MAPS_MAX);
	assert_true(maps_bytes(m) >= maps_count(m) * sizeof(struct map));
	assert_true(maps_bytes(m) <= 2 * MAPS_MAX * sizeof(struct map));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mapping_is_found_from_its_first_to_its_last_byte),
		cmocka_unit_test(empty_and_wrapping_ranges_are_refused),
		cmocka_unit_test(a_mapping_in_the_middle_of_another_leaves_both_ends),
		cmocka_unit_test(every_relative_position_of_two_mappings_over_a_third_is_right),
		cmocka_unit_test(random_histories_of_shared_versions_agree_with_a_page_map),
		cmocka_unit_test(a_reference_keeps_its_version_while_the_other_holder_goes_on),
		cmocka_unit_test(every_reference_to_a_file_is_given_back),
		cmocka_unit_test(a_failed_allocation_leaves_the_version_as_it_was),
		cmocka_unit_test(more_mappings_than_the_limit_are_refused),
	};

	return cmocka_run_group_tests_name("maps", tests, NULL, NULL);
}
