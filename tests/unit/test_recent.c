#include "exporter/recent.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/export_fixture.h"

#define S 1000000000ull

struct seen {
	size_t n;
	uint64_t ids[16];
	uint64_t nsamples;
};

static int see(void *arg, const struct recent_window *w, const struct export_batch *b)
{
	struct seen *s = arg;

	s->ids[s->n++] = b->id;
	s->nsamples += w->nsamples;
	return 0;
}

static void encode(struct export_fixture *f, uint64_t id, uint64_t start_s, struct bufw *w)
{
	export_fixture_init(f);
	f->batch.id = id;
	f->batch.wall_start_ns = start_s * S;
	f->batch.duration_ns = 10 * S;
	export_batch_encode(w, &f->batch);
	assert_int_equal(bufw_end(w), 0);
}

static int add(struct recent *r, uint64_t id, uint64_t start_s)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_fixture f;

	encode(&f, id, start_s, &w);
	return recent_add(r, &f.batch, w.data, w.len);
}

static struct seen look(const struct recent *r, uint64_t from_s, uint64_t to_s)
{
	struct seen s = {};

	assert_int_equal(recent_each(r, from_s * S, to_s * S, see, &s), 0);
	return s;
}

static void a_window_comes_back_as_it_was(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;
	struct recent_totals t;
	struct seen s;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, 1 << 20);
	assert_int_equal(add(r, 5, 1000), 0);
	s = look(r, 0, 5000);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.ids[0], 5);
	assert_int_equal(s.nsamples, 8);
	recent_totals(r, &t);
	assert_int_equal(t.nwindows, 1);
	assert_true(t.bytes > 0);
	assert_int_equal(t.from_ns, 1000 * S);
	assert_int_equal(t.to_ns, 1010 * S);
}

static void a_window_counts_when_its_middle_is_inside(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, 1 << 20);
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(add(r, i, 1000 + 10 * i), 0); /* middles 1015, 1025, 1035 */
	assert_int_equal(look(r, 1015, 1016).n, 1);
	assert_int_equal(look(r, 1016, 1025).n, 0);
	assert_int_equal(look(r, 1014, 1026).n, 2);
	assert_int_equal(look(r, 1014, 1026).ids[1], 2);
	assert_int_equal(look(r, 0, UINT64_MAX / S).n, 3);
}

static void the_oldest_goes_when_bytes_are_short(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;
	struct recent_totals t;
	size_t one;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, 1 << 20);
	assert_int_equal(add(r, 1, 1000), 0);
	recent_totals(r, &t);
	one = t.bytes;
	recent_limit(r, SIZE_MAX, 3 * one + one / 2);
	for (uint64_t i = 2; i <= 6; i++)
		assert_int_equal(add(r, i, 1000 + 10 * i), 0);
	recent_totals(r, &t);
	assert_int_equal(t.nwindows, 3);
	assert_true(t.bytes <= 3 * one + one / 2);
	assert_int_equal(t.nevicted, 3);
	assert_int_equal(look(r, 0, 100000).ids[0], 4);
	recent_limit(r, 1, 1 << 20); /* the page is off: the last one is kept */
	assert_int_equal(look(r, 0, 100000).n, 1);
	assert_int_equal(look(r, 0, 100000).ids[0], 6);
}

static void a_window_over_the_limit_is_refused(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;
	struct recent_totals t;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, 100);
	assert_int_equal(add(r, 1, 1000), 0);
	recent_totals(r, &t);
	assert_int_equal(t.nwindows, 0);
	assert_int_equal(t.bytes, 0);
	assert_int_equal(t.nrefused, 1);
	assert_int_equal(look(r, 0, 100000).n, 0);
}

/* The agent sends it again after a crash, or after a slow answer. */
static void the_same_window_again_is_kept_once(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, 1 << 20);
	assert_int_equal(add(r, 1, 1000), 0);
	assert_int_equal(add(r, 2, 1010), 0);
	assert_int_equal(add(r, 2, 1010), 0);
	assert_int_equal(add(r, 3, 1020), 0);
	assert_int_equal(look(r, 0, 100000).n, 3);
	assert_int_equal(look(r, 0, 100000).ids[1], 2);
}

static int stop(void *arg, const struct recent_window *w, const struct export_batch *b)
{
	(void)w;
	(void)b;
	++*(int *)arg;
	return 7;
}

static void what_the_callback_returns_ends_it(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;
	int ncalls = 0;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, 1 << 20);
	assert_int_equal(add(r, 1, 1000), 0);
	assert_int_equal(add(r, 2, 1010), 0);
	assert_int_equal(recent_each(r, 0, UINT64_MAX, stop, &ncalls), 7);
	assert_int_equal(ncalls, 1);
}

static void it_survives_any_failed_allocation(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_fixture f;
	int err = -1;

	(void)state;
	encode(&f, 1, 1000, &w);
	for (long nth = 1; err; nth++) {
		CLEANUP(recent_freep) struct recent *r = NULL;
		struct seen s = {};

		alloc_fail_nth(nth);
		err = recent_new(&r);
		if (!err)
			err = recent_add(r, &f.batch, w.data, w.len);
		if (!err)
			err = recent_each(r, 0, UINT64_MAX, see, &s);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(nth < 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_window_comes_back_as_it_was),
		cmocka_unit_test(a_window_counts_when_its_middle_is_inside),
		cmocka_unit_test(the_oldest_goes_when_bytes_are_short),
		cmocka_unit_test(a_window_over_the_limit_is_refused),
		cmocka_unit_test(the_same_window_again_is_kept_once),
		cmocka_unit_test(what_the_callback_returns_ends_it),
		cmocka_unit_test(it_survives_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
