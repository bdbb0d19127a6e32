#include "exporter/msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/export_fixture.h"

static int decode(const struct bufw *w, size_t len, struct export_batch *ret)
{
	struct bufr r;

	bufr_init(&r, w->data, len);
	return export_batch_decode(&r, ret);
}

/* Encodes the fixture as it is now and says what the decoder thinks of it. */
static int verdict(const struct export_fixture *f)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP(export_batch_fini) struct export_batch got = {};

	export_batch_encode(&w, &f->batch);
	assert_int_equal(bufw_end(&w), 0);
	return decode(&w, w.len, &got);
}

static void a_batch_survives_the_way(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {}, again = {};
	CLEANUP(export_batch_fini) struct export_batch got = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	export_batch_encode(&w, &f.batch);
	assert_int_equal(bufw_end(&w), 0);
	assert_int_equal(decode(&w, w.len, &got), 0);
	assert_int_equal(got.id, 77);
	assert_int_equal(got.period_ns, 10000000);
	assert_int_equal(got.nsamples, 3);
	assert_int_equal(got.nstrings, f.batch.nstrings);
	assert_memory_equal(got.strings[1].text, "/usr/bin/app", 12);
	assert_memory_equal(got.mappings, f.mappings, 3 * sizeof(*f.mappings));
	assert_memory_equal(got.functions, f.functions, 5 * sizeof(*f.functions));
	assert_memory_equal(got.lines, f.lines, 6 * sizeof(*f.lines));
	assert_memory_equal(got.locations, f.locations, 5 * sizeof(*f.locations));
	assert_memory_equal(got.frames, f.frames, 8 * sizeof(*f.frames));
	assert_int_equal(got.samples[1].tid, 101);
	assert_int_equal(got.samples[1].nanoseconds, 20200000);
	assert_int_equal(got.subjects[1].flags, EXPORT_SUBJECT_KERNEL);
	assert_int_equal(got.subjects[0].cgroup_id, 4242);
	export_batch_encode(&again, &got);
	assert_int_equal(again.len, w.len);
	assert_memory_equal(again.data, w.data, w.len);
}

static void every_prefix_of_a_batch_is_refused(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_batch got = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	export_batch_encode(&w, &f.batch);
	for (size_t len = 0; len < w.len; len++) {
		CLEANUP_FREE uint8_t *exact = malloc(len ? len : 1); /* for ASan */
		struct bufr r;

		memcpy(exact, w.data, len);
		bufr_init(&r, exact, len);
		assert_int_equal(export_batch_decode(&r, &got), -EBADMSG);
	}
	assert_null(got.strings);
}

static void bytes_after_a_batch_are_refused(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_batch got = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	export_batch_encode(&w, &f.batch);
	bufw_u8(&w, 0);
	assert_int_equal(decode(&w, w.len, &got), -EBADMSG);
}

static void an_empty_batch_is_fine(void **state)
{
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.batch.nmappings = f.batch.nfunctions = f.batch.nlines = f.batch.nlocations = 0;
	f.batch.nsubjects = f.batch.nsamples = f.batch.nframes = 0;
	assert_int_equal(verdict(&f), 0);
	f.batch.nstrings = 0;
	assert_int_equal(verdict(&f), -EBADMSG);
}

#define REFUSES(change)                                  \
	do {                                             \
		export_fixture_init(&f);                 \
		assert_int_equal(verdict(&f), 0);        \
		change;                                  \
		assert_int_equal(verdict(&f), -EBADMSG); \
	} while (0)

static void indexes_that_point_nowhere_are_refused(void **state)
{
	struct export_fixture f;

	(void)state;
	REFUSES(f.mappings[1].filename = f.batch.nstrings);
	REFUSES(f.mappings[1].build_id = UINT32_MAX);
	REFUSES(f.functions[4].name = f.batch.nstrings);
	REFUSES(f.functions[4].system_name = f.batch.nstrings);
	REFUSES(f.functions[0].filename = f.batch.nstrings);
	REFUSES(f.lines[0].function = 5);
	REFUSES(f.locations[0].mapping = 3);
	REFUSES(f.locations[0].first_line = 5);
	REFUSES(f.locations[0].first_line = UINT32_MAX);
	REFUSES(f.subjects[1].executable = f.batch.nstrings);
	REFUSES(f.frames[7] = 5);
	REFUSES(f.samples[0].subject = 2);
	REFUSES(f.samples[0].comm = f.batch.nstrings);
	REFUSES(f.samples[0].first_frame = 6);
	REFUSES(f.samples[0].first_frame = UINT32_MAX);
	REFUSES(f.samples[0].nframes = 9);
	REFUSES(f.samples[0].nframes = UINT32_MAX);
}

static void values_out_of_range_are_refused(void **state)
{
	struct export_fixture f;

	(void)state;
	REFUSES(f.batch.period_ns = 0);
	REFUSES(f.batch.period_ns = 1ull << 63);
	REFUSES(f.batch.wall_start_ns = UINT64_MAX);
	REFUSES(f.batch.duration_ns = UINT64_MAX);
	REFUSES(f.mappings[0].limit = f.mappings[0].start - 1);
	REFUSES(f.locations[1].nlines = 0);
	REFUSES(f.locations[1].nlines = EXPORT_LINES_MAX + 1);
	REFUSES(f.samples[0].count = UINT64_MAX);
	REFUSES(f.samples[0].nanoseconds = 1ull << 63);
	REFUSES((f.strings[0].text = "x", f.strings[0].len = 1));
}

/* Offsets of the counts in the fixture's encoding, found by walking it. */
static void counts_beyond_the_message_are_refused_without_allocating(void **state)
{
	static const size_t sizes[] = { 32, 16, 8, 20, 20, 4, 36 }; /* after the strings */
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_batch got = {};
	struct export_fixture f;
	size_t off = 32;

	(void)state;
	export_fixture_init(&f);
	export_batch_encode(&w, &f.batch);
	for (size_t table = 0; table <= ARRAY_SIZE(sizes); table++) {
		uint32_t n, huge = UINT32_MAX;

		memcpy(&n, w.data + off, sizeof(n));
		memcpy(w.data + off, &huge, sizeof(huge));
		alloc_fail_nth(0);
		assert_int_equal(decode(&w, w.len, &got), -EBADMSG);
		assert_int_equal(alloc_fail_count(), table);
		huge = n + 1;
		memcpy(w.data + off, &huge, sizeof(huge));
		assert_int_equal(decode(&w, w.len, &got), -EBADMSG);
		memcpy(w.data + off, &n, sizeof(n));
		off += sizeof(n);
		if (table) {
			off += n * sizes[table - 1];
			continue;
		}
		for (uint32_t i = 0; i < n; i++)
			off += 4 + f.strings[i].len;
	}
	assert_int_equal(off, w.len);
	assert_int_equal(decode(&w, w.len, &got), 0);
	export_batch_fini(&got);
}

/* 2000 samples that share one stack of 16384 frames: 144 KB that stand for 33 million frames. */
static void shared_frames_cannot_multiply_a_message(void **state)
{
	enum { N = 2000 };
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE struct export_sample *samples = calloc(N, sizeof(*samples));
	CLEANUP_FREE uint32_t *frames = calloc(EXPORT_FRAMES_MAX, sizeof(*frames));
	CLEANUP(export_batch_fini) struct export_batch got = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	for (uint32_t i = 0; i < N; i++)
		samples[i] = (struct export_sample){ 0, i, 1, 0, EXPORT_FRAMES_MAX, 1, 1 };
	f.batch.samples = samples;
	f.batch.frames = frames;
	f.batch.nframes = EXPORT_FRAMES_MAX;
	f.batch.nsamples = N;
	export_batch_encode(&w, &f.batch);
	assert_int_equal(decode(&w, w.len, &got), -EBADMSG);
	bufw_reset(&w);
	f.batch.nsamples = EXPORT_TOTAL_MAX / EXPORT_FRAMES_MAX;
	export_batch_encode(&w, &f.batch);
	assert_int_equal(decode(&w, w.len, &got), 0);
}

static void decoding_survives_any_failed_allocation(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_batch got = {};
	struct export_fixture f;
	int err = -ENOMEM;
	long nth;

	(void)state;
	export_fixture_init(&f);
	export_batch_encode(&w, &f.batch);
	for (nth = 1; err; nth++) {
		alloc_fail_nth(nth);
		err = decode(&w, w.len, &got);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(err == 0 || !got.strings);
	}
	assert_int_equal(nth, 10); /* eight tables */
	export_batch_fini(&got);
}

static void a_done_survives_the_way_and_no_prefix_does(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_done d = { 9, EXPORT_WRITE_FAILED, ENOSPC, 123, 456 }, got = {};
	struct bufr r;

	(void)state;
	export_done_encode(&w, &d);
	for (size_t len = 0; len < w.len; len++) {
		bufr_init(&r, w.data, len);
		assert_int_equal(export_done_decode(&r, &got), -EBADMSG);
	}
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_done_decode(&r, &got), 0);
	assert_int_equal(got.id, 9);
	assert_int_equal(got.result, EXPORT_WRITE_FAILED);
	assert_int_equal(got.error, ENOSPC);
	assert_int_equal(got.nsamples, 123);
	assert_int_equal(got.bytes, 456);
	w.data[8] = EXPORT_RESULT_COUNT;
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_done_decode(&r, &got), -EBADMSG);
}

static void every_result_has_a_text(void **state)
{
	(void)state;
	assert_string_equal(export_result_text(EXPORT_WRITTEN), "written");
	assert_string_equal(export_result_text(EXPORT_REFUSED), "refused");
	assert_string_equal(export_result_text(EXPORT_RESULT_COUNT), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_survives_the_way),
		cmocka_unit_test(every_prefix_of_a_batch_is_refused),
		cmocka_unit_test(bytes_after_a_batch_are_refused),
		cmocka_unit_test(an_empty_batch_is_fine),
		cmocka_unit_test(indexes_that_point_nowhere_are_refused),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(counts_beyond_the_message_are_refused_without_allocating),
		cmocka_unit_test(shared_frames_cannot_multiply_a_message),
		cmocka_unit_test(decoding_survives_any_failed_allocation),
		cmocka_unit_test(a_done_survives_the_way_and_no_prefix_does),
		cmocka_unit_test(every_result_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
