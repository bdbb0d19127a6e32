#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/batch.h"
#include "base/clock.h"
#include "base/ipc.h"
#include "tests/unit/alloc_fail.h"

static struct batch *batch;

static int set_up(void **state UNUSED)
{
	return batch_new(&batch);
}

static int tear_down(void **state UNUSED)
{
	batch = batch_free(batch);
	return 0;
}

static uint32_t string(const char *text)
{
	uint32_t i = UINT32_MAX;

	assert_int_equal(batch_string(batch, text, strlen(text), &i), 0);
	return i;
}

/* The exporter takes the batch as it is now. */
static void expect_accepted(void)
{
	struct export_batch *t = batch_tables(batch), got;
	struct bufw w = { 0 };
	struct bufr in;

	t->period_ns = 1;
	export_batch_encode(&w, t);
	assert_int_equal(bufw_end(&w), 0);
	assert_true(w.len <= IPC_PAYLOAD_MAX);
	bufr_init(&in, w.data, w.len);
	assert_int_equal(export_batch_decode(&in, &got), 0);
	assert_int_equal(got.nstrings, t->nstrings);
	assert_int_equal(got.nsamples, t->nsamples);
	export_batch_fini(&got);
	bufw_fini(&w);
}

static void strings_stand_once_and_the_first_is_empty(void **state UNUSED)
{
	uint32_t a = string("a"), b = string("b");

	assert_int_equal(string(""), 0);
	assert_int_not_equal(a, b);
	assert_int_equal(string("a"), a);
	assert_int_equal(batch_tables(batch)->nstrings, 3);
	assert_memory_equal(batch_tables(batch)->strings[b].text, "b", 1);
}

static void a_nul_ends_a_string(void **state UNUSED)
{
	uint32_t a = string("ab"), i;

	assert_int_equal(batch_string(batch, "ab\0cd", 5, &i), 0);
	assert_int_equal(i, a);
	assert_int_equal(batch_string(batch, "\0", 1, &i), 0);
	assert_int_equal(i, 0);
	assert_int_equal(batch_tables(batch)->nstrings, 2);
}

static void every_table_holds_each_entry_once(void **state UNUSED)
{
	struct export_mapping m = { .start = 1, .limit = 9, .offset = 3 };
	struct export_function f = { .start_line = 4 };
	struct export_line lines[2] = { { 0, 5 }, { 0, 6 } };
	struct export_location loc = { .address = 7, .nlines = 2 };
	uint32_t first, again, other;

	f.name = string("f");
	assert_int_equal(batch_mapping(batch, &m, &first), 0);
	assert_int_equal(batch_mapping(batch, &m, &again), 0);
	m.build_id = f.name;
	assert_int_equal(batch_mapping(batch, &m, &other), 0);
	assert_int_equal(first, again);
	assert_int_not_equal(first, other);
	assert_int_equal(batch_function(batch, &f, &first), 0);
	assert_int_equal(batch_function(batch, &f, &again), 0);
	f.start_line = 5;
	assert_int_equal(batch_function(batch, &f, &other), 0);
	assert_int_equal(first, again);
	assert_int_not_equal(first, other);
	assert_int_equal(batch_location(batch, &loc, lines, &first), 0);
	assert_int_equal(batch_location(batch, &loc, lines, &again), 0);
	lines[1].line = 7;
	assert_int_equal(batch_location(batch, &loc, lines, &other), 0);
	assert_int_equal(first, again);
	assert_int_not_equal(first, other);
	assert_int_equal(batch_tables(batch)->nlines, 4);
	assert_int_equal(batch_tables(batch)->locations[other].first_line, 2);
	expect_accepted();
}

static uint32_t location(uint64_t address, const char *name)
{
	struct export_mapping m = { .limit = UINT64_MAX };
	struct export_function f = { .name = string(name) };
	struct export_line line = { 0 };
	struct export_location loc = { .address = address, .nlines = 1 };
	uint32_t i;

	f.system_name = f.name;
	assert_int_equal(batch_mapping(batch, &m, &loc.mapping), 0);
	assert_int_equal(batch_function(batch, &f, &line.function), 0);
	assert_int_equal(batch_location(batch, &loc, &line, &i), 0);
	return i;
}

static void samples_keep_their_frames(void **state UNUSED)
{
	struct export_subject s = { .pid = 1 };
	struct export_sample sample = { .count = 1, .nanoseconds = 2, .first_frame = 99 };
	uint32_t frames[3] = { location(1, "a"), location(2, "b"), location(3, "c") };

	assert_int_equal(batch_subject(batch, &s, &sample.subject), 0);
	for (uint32_t n = 0; n < 4; n++) {
		sample.nframes = n;
		assert_int_equal(batch_sample(batch, &sample, frames), 0);
	}
	assert_int_equal(batch_tables(batch)->nframes, 6);
	assert_int_equal(batch_tables(batch)->samples[3].first_frame, 3);
	assert_int_equal(batch_tables(batch)->frames[5], frames[2]);
	expect_accepted();
}

/* name NUL value NUL of each; NULL ends the list. */
static size_t pack(char *to, const char *const *texts)
{
	size_t len = 0;

	for (; *texts; texts++) {
		strcpy(to + len, *texts);
		len += strlen(*texts) + 1;
	}
	return len;
}

static struct export_subject with_labels(const char *const *texts, uint32_t n)
{
	static char text[EXPORT_PAIRS_MAX * 2 * (EXPORT_LABEL_MAX + 1)];
	struct export_subject s = { 0 };
	size_t len = pack(text, texts);
	uint32_t i;

	assert_int_equal(batch_labels(batch, n, text, len, &s.first_pair, &s.npairs), 0);
	assert_int_equal(batch_subject(batch, &s, &i), 0);
	return s;
}

static void equal_sets_of_labels_share_their_pairs(void **state UNUSED)
{
	static const char *const a[] = { "host", "h", "name", "x", NULL }, *const b[] = { "host", "h", NULL },
				 *const shifted[] = { "hos", "th", "name", "x", NULL };
	struct export_subject first = with_labels(a, 2), second = with_labels(b, 1), odd = with_labels(shifted, 2);
	struct export_batch *t = batch_tables(batch);

	assert_int_equal(first.npairs, 2);
	assert_int_equal(second.npairs, 1);
	assert_int_not_equal(first.first_pair, second.first_pair);
	assert_int_not_equal(first.first_pair, odd.first_pair);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(with_labels(a, 2).first_pair, first.first_pair);
		assert_int_equal(with_labels(b, 1).first_pair, second.first_pair);
	}
	assert_int_equal(with_labels(a, 0).npairs, 0);
	assert_int_equal(t->npairs, 5);
	assert_int_equal(t->pairs[first.first_pair + 1].name, string("name"));
	assert_int_equal(t->pairs[first.first_pair + 1].value, string("x"));
	expect_accepted();
}

/* What the batch has no room for is left out as a whole: half a set would be another series. */
static void labels_without_end_are_left_out_and_it_is_still_accepted(void **state UNUSED)
{
	const char *texts[EXPORT_PAIRS_MAX * 2 + 1] = { NULL };
	char values[EXPORT_PAIRS_MAX][16];
	uint32_t nsets = 0, nleft_out = 0;

	for (uint32_t set = 0; set < 6000; set++) {
		uint32_t n;

		for (uint32_t i = 0; i < EXPORT_PAIRS_MAX; i++) {
			snprintf(values[i], sizeof(values[i]), "%u", set * EXPORT_PAIRS_MAX + i);
			texts[2 * i] = "name";
			texts[2 * i + 1] = values[i];
		}
		n = with_labels(texts, EXPORT_PAIRS_MAX).npairs;
		assert_true(n == 0 || n == EXPORT_PAIRS_MAX);
		nsets += n > 0;
		nleft_out += n == 0;
	}
	assert_true(nsets >= 4000);
	assert_true(nleft_out > 0);
	expect_accepted();
}

static void labels_longer_than_what_is_left_are_left_out(void **state UNUSED)
{
	static char value[EXPORT_LABEL_MAX + 1];
	const char *texts[] = { "name", value, "last", "x", NULL };
	uint32_t npairs = 1, n;

	memset(value, 'x', EXPORT_LABEL_MAX);
	for (n = 0; npairs; n++) {
		snprintf(value, sizeof(value), "%08u", n);
		value[8] = 'x';
		npairs = with_labels(texts, 2).npairs;
		assert_true(npairs == 0 || npairs == 2);
	}
	assert_in_range(n, EXPORT_STRINGS_MAX / EXPORT_LABEL_MAX - 2, EXPORT_STRINGS_MAX / EXPORT_LABEL_MAX + 2);
	assert_int_equal(batch_tables(batch)->npairs, 2 * (n - 1));
	assert_true(batch_bytes(batch) > EXPORT_STRINGS_MAX - EXPORT_LABEL_MAX);
	expect_accepted();
}

static void many_entries_are_found_again_in_little_time(void **state UNUSED)
{
	uint64_t start = clock_cpu_ns();
	static uint32_t first[100000];
	char name[32];

	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < ARRAY_SIZE(first); i++) {
			uint32_t at;

			snprintf(name, sizeof(name), "function_%u", i);
			at = location(i, name);
			if (round)
				assert_int_equal(at, first[i]);
			first[i] = at;
		}
	}
	assert_int_equal(batch_tables(batch)->nlocations, ARRAY_SIZE(first));
	assert_true(clock_cpu_ns() - start < 5 * NSEC_PER_SEC);
	expect_accepted();
}

/* A file may have as many and as long names as it likes. */
static void long_names_fill_the_batch_and_it_is_still_accepted(void **state UNUSED)
{
	static char name[4096];
	uint32_t n = 0;

	memset(name, 'x', sizeof(name) - 1);
	for (; !batch_full(batch); n++) {
		snprintf(name, sizeof(name), "%08u", n);
		name[8] = 'x';
		location(n, name);
	}
	assert_true(n > 3000);
	expect_accepted();
	/* Executables and thread names come later; those that do not fit are "". */
	for (uint32_t i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "/%08u", i);
		name[9] = 'x';
		(void)string(name);
	}
	assert_int_equal(string("one more that is new and much longer than what is left, so that ........"
				"................................................................."), 0);
	expect_accepted();
}

static void many_locations_fill_the_batch_and_it_is_still_accepted(void **state UNUSED)
{
	char name[32];
	uint32_t n = 0;

	for (; !batch_full(batch); n++) {
		snprintf(name, sizeof(name), "f%u", n);
		location(n, name);
	}
	assert_true(n > 100000);
	assert_true(n <= EXPORT_TABLE_MAX);
	expect_accepted();
}

static int all_steps(void)
{
	struct export_mapping m = { .limit = 1 };
	struct export_function f = { 0 };
	struct export_line line = { 0 };
	struct export_location loc = { .nlines = 1 };
	struct export_subject s = { 0 };
	struct export_sample sample = { .nframes = 1 };
	uint32_t frame;
	int err;

	if ((err = batch_labels(batch, 1, "a\0b", 4, &s.first_pair, &s.npairs)))
		return err;

	if ((err = batch_string(batch, "name", 4, &f.name)) || (err = batch_mapping(batch, &m, &loc.mapping)) ||
	    (err = batch_function(batch, &f, &line.function)) ||
	    (err = batch_location(batch, &loc, &line, &frame)) ||
	    (err = batch_subject(batch, &s, &sample.subject)))
		return err;
	return batch_sample(batch, &sample, &frame);
}

static void any_failed_allocation_is_reported_and_mended(void **state UNUSED)
{
	int err = -1;

	for (long nth = 1; err; nth++) {
		batch = batch_free(batch);
		alloc_fail_nth(nth);
		err = batch_new(&batch);
		if (!err)
			err = all_steps();
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		if (!batch)
			continue;
		assert_int_equal(all_steps(), 0);
		assert_int_equal(batch_tables(batch)->nlocations, 1);
		assert_int_equal(batch_tables(batch)->npairs, 1);
		expect_accepted();
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(strings_stand_once_and_the_first_is_empty),
		TEST(a_nul_ends_a_string),
		TEST(every_table_holds_each_entry_once),
		TEST(samples_keep_their_frames),
		TEST(equal_sets_of_labels_share_their_pairs),
		TEST(labels_without_end_are_left_out_and_it_is_still_accepted),
		TEST(labels_longer_than_what_is_left_are_left_out),
		TEST(many_entries_are_found_again_in_little_time),
		TEST(long_names_fill_the_batch_and_it_is_still_accepted),
		TEST(many_locations_fill_the_batch_and_it_is_still_accepted),
		TEST(any_failed_allocation_is_reported_and_mended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
