/* Which service names are told apart, when there are more than that. */
#include "exporter/names.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "exporter/labels.h"
#include "tests/unit/alloc_fail.h"

#define HOUR (3600 * NSEC_PER_SEC)

enum { PROCESSES = 2000 };

/* A window of processes, each with a name (`unit` or not) and so many samples. */
struct fixture {
	struct export_batch b;
	char texts[PROCESSES][32];
};

static void add_string(struct export_batch *b, const char *text)
{
	b->strings[b->nstrings++] = (struct export_string){ text, (uint32_t)strlen(text) };
}

static void init(struct fixture *f)
{
	*f = (struct fixture){};
	f->b.strings = calloc(PROCESSES + 4, sizeof(*f->b.strings));
	f->b.pairs = calloc(2 * PROCESSES, sizeof(*f->b.pairs));
	f->b.subjects = calloc(PROCESSES, sizeof(*f->b.subjects));
	f->b.samples = calloc(PROCESSES, sizeof(*f->b.samples));
	add_string(&f->b, "");
	add_string(&f->b, "service_name");
	add_string(&f->b, "unit");
}

static void fini(struct fixture *f)
{
	export_batch_fini(&f->b);
}

static void put(struct fixture *f, const char *name, bool is_unit, uint64_t nsamples)
{
	struct export_batch *b = &f->b;
	uint32_t i = b->nsubjects++, first = b->npairs;

	snprintf(f->texts[i], sizeof(f->texts[i]), "%s", name);
	b->pairs[b->npairs++] = (struct export_pair){ 1, b->nstrings };
	if (is_unit)
		b->pairs[b->npairs++] = (struct export_pair){ 2, b->nstrings };
	add_string(b, f->texts[i]);
	b->subjects[i] = (struct export_subject){
		.id = i, .pid = i, .first_pair = first, .npairs = b->npairs - first
	};
	b->samples[b->nsamples++] = (struct export_sample){ .subject = i, .count = nsamples };
}

/* As the agent sends a process whose labels came too late. */
static void put_unlabelled(struct fixture *f, const char *executable, uint64_t nsamples)
{
	put(f, executable, false, nsamples);
	f->b.subjects[f->b.nsubjects - 1].npairs = 0;
	f->b.subjects[f->b.nsubjects - 1].executable = f->b.nstrings - 1;
}

static void put_many(struct fixture *f, const char *format, uint32_t first, uint32_t n, bool is_unit)
{
	char name[32];

	for (uint32_t i = first; i < first + n; i++) {
		snprintf(name, sizeof(name), "%s%u", format, i);
		put(f, name, is_unit, 1);
	}
}

/* The names that are left, and the samples filed under `other`. */
static uint32_t bound(struct names *n, struct fixture *f, uint64_t now_ns, uint64_t *ret_other)
{
	static char seen[PROCESSES][32];
	struct export_string *got;
	uint32_t nseen = 0;
	bool is_changed;
	void *mem;

	assert_int_equal(names_bound(n, &f->b, now_ns, &is_changed), 0);
	assert_int_equal(labels_services(&f->b, &got, &mem), 0);
	*ret_other = 0;
	for (uint32_t i = 0; i < f->b.nsubjects; i++) {
		char name[32];
		uint32_t k = 0;

		snprintf(name, sizeof(name), "%.*s", (int)got[i].len, got[i].text);
		*ret_other += strcmp(name, "other") ? 0 : f->b.samples[i].count;
		while (k < nseen && strcmp(seen[k], name) != 0)
			k++;
		if (k == nseen)
			strcpy(seen[nseen++], name);
	}
	assert_int_equal(is_changed, *ret_other > 0);
	free(got);
	free(mem);
	return nseen;
}

static void of_ever_new_programs_a_host_has_a_bounded_number_of_names(void **state)
{
	struct names *n;
	uint64_t other, all = 0;

	(void)state;
	assert_int_equal(names_new(&n), 0);
	for (uint32_t window = 0; window < 4; window++) {
		struct fixture f;

		init(&f);
		put(&f, "nginx", true, 3); /* each time, and never `other` */
		put_many(&f, "p", 360 * window, 360, false);
		for (uint32_t i = 0; i < 60; i++)
			put_unlabelled(&f, "/usr/bin/late", 1);
		assert_in_range(bound(n, &f, window * 15 * NSEC_PER_SEC, &other), 2, 258);
		all += other;
		fini(&f);
	}
	/* `late` has most samples, and takes one of the 256 places. */
	assert_int_equal(all, 4 * 360 - 255);
	struct names_stats s;
	names_stats(n, &s);
	assert_int_equal(s.n[NAMES_EXECUTABLE], 256);
	assert_int_equal(s.n[NAMES_UNIT], 1);
	assert_int_equal(s.nother, all);
	names_free(n);
}

static void units_have_places_of_their_own_and_not_without_bound(void **state)
{
	struct names *n;
	struct fixture f;
	uint64_t other;

	(void)state;
	assert_int_equal(names_new(&n), 0);
	init(&f);
	put_many(&f, "p", 0, 300, false);
	put_many(&f, "u", 0, 1100, true);
	put(&f, "kernel", false, 1);
	put(&f, "unknown", false, 1);
	assert_int_equal(bound(n, &f, 0, &other), 256 + 1024 + 3);
	assert_int_equal(other, 300 - 256 + 1100 - 1024);
	fini(&f);
	names_free(n);
}

static void the_heaviest_new_names_get_the_places(void **state)
{
	struct names *n;
	struct fixture f;
	uint64_t other;

	(void)state;
	assert_int_equal(names_new(&n), 0);
	init(&f);
	put_many(&f, "p", 0, 400, false);
	put(&f, "database", false, 100);
	put_unlabelled(&f, "/usr/bin/compiler", 90);
	(void)bound(n, &f, 0, &other);
	assert_int_equal(other, 400 - 254);
	assert_int_equal(f.b.subjects[400].npairs, 1);
	assert_int_not_equal(f.b.strings[f.b.pairs[f.b.subjects[400].first_pair].value].len, 5);
	fini(&f);
	names_free(n);
}

static void a_place_is_given_up_only_after_an_hour(void **state)
{
	struct names *n;
	struct fixture f;
	uint64_t other;

	(void)state;
	assert_int_equal(names_new(&n), 0);
	init(&f);
	put_many(&f, "old", 0, 256, false);
	(void)bound(n, &f, 0, &other);
	assert_int_equal(other, 0);
	fini(&f);

	init(&f);
	put(&f, "old7", false, 1); /* in use */
	put(&f, "new", false, 1);
	(void)bound(n, &f, HOUR - 1, &other);
	assert_int_equal(other, 1);
	fini(&f);

	init(&f);
	put(&f, "new", false, 1);
	put(&f, "newer", false, 1);
	(void)bound(n, &f, HOUR, &other);
	assert_int_equal(other, 0);
	fini(&f);

	init(&f);
	put(&f, "old7", false, 1);
	put_many(&f, "newest", 0, 300, false);
	(void)bound(n, &f, HOUR + 1, &other);
	assert_int_equal(other, 300 - (256 - 3));
	fini(&f);
	names_free(n);
}

static void a_window_that_finds_no_memory_keeps_its_names(void **state)
{
	struct names *n;
	struct fixture f;
	bool is_changed;
	int err = -ENOMEM;

	(void)state;
	assert_int_equal(names_new(&n), 0);
	init(&f);
	put_many(&f, "p", 0, 300, false);
	for (long nth = 1; err; nth++) {
		alloc_fail_nth(nth);
		err = names_bound(n, &f.b, 0, &is_changed);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		if (err)
			assert_int_equal(f.b.pairs[f.b.subjects[299].first_pair].value, 3 + 299);
	}
	assert_true(is_changed);
	fini(&f);
	names_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_ever_new_programs_a_host_has_a_bounded_number_of_names),
		cmocka_unit_test(units_have_places_of_their_own_and_not_without_bound),
		cmocka_unit_test(the_heaviest_new_names_get_the_places),
		cmocka_unit_test(a_place_is_given_up_only_after_an_hour),
		cmocka_unit_test(a_window_that_finds_no_memory_keeps_its_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
