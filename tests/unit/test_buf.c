#include "base/buf.h"

#include "tests/unit/alloc_fail.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct sample {
	uint8_t a;
	uint16_t b;
	uint32_t c;
	uint64_t d;
	int64_t e;
	char *text;
	uint32_t n;
	uint16_t list[8];
};

static void sample_fini(struct sample *s)
{
	free(s->text);
}

static int sample_encode(struct bufw *w)
{
	size_t at;

	bufw_u8(w, 0x12);
	bufw_u16(w, 0x3456);
	bufw_u32(w, 0x789abcde);
	bufw_u64(w, 0x0123456789abcdefull);
	bufw_i64(w, -2);
	bufw_str(w, "hello");
	bufw_blob(w, "", 0);
	at = bufw_reserve(w, 4);
	for (uint16_t i = 0; i < 3; i++)
		bufw_u16(w, (uint16_t)(i * 1000));
	bufw_patch_u32(w, at, 3);
	return bufw_end(w);
}

static int sample_decode(const void *data, size_t len, struct sample *ret)
{
	CLEANUP(sample_fini) struct sample s = {};
	struct bufr r;
	size_t blob_len = 77;
	int err;

	bufr_init(&r, data, len);
	s.a = bufr_u8(&r);
	s.b = bufr_u16(&r);
	s.c = bufr_u32(&r);
	s.d = bufr_u64(&r);
	s.e = bufr_i64(&r);
	s.text = bufr_strdup(&r, 5);
	if (bufr_blob(&r, 0, &blob_len))
		assert_int_equal(blob_len, 0);
	s.n = bufr_count(&r, ARRAY_SIZE(s.list), sizeof(uint16_t));
	for (uint32_t i = 0; i < s.n; i++)
		s.list[i] = bufr_u16(&r);
	err = bufr_end(&r);
	if (err)
		return err;
	*ret = s;
	s.text = NULL;
	return 0;
}

static void what_was_written_is_read_back(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP(sample_fini) struct sample s = {};

	(void)state;
	assert_int_equal(sample_encode(&w), 0);
	assert_int_equal(sample_decode(w.data, w.len, &s), 0);
	assert_int_equal(s.a, 0x12);
	assert_int_equal(s.b, 0x3456);
	assert_int_equal(s.c, 0x789abcde);
	assert_true(s.d == 0x0123456789abcdefull);
	assert_true(s.e == -2);
	assert_string_equal(s.text, "hello");
	assert_int_equal(s.n, 3);
	assert_int_equal(s.list[2], 2000);
}

static void integers_are_little_endian(void **state)
{
	static const uint8_t want[] = { 0x04, 0x03, 0x02, 0x01, 0xfe, 0xff };
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)state;
	bufw_u32(&w, 0x01020304);
	bufw_u16(&w, 0xfffe);
	assert_int_equal(w.len, sizeof(want));
	assert_memory_equal(w.data, want, sizeof(want));
}

static void every_prefix_is_refused(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)state;
	assert_int_equal(sample_encode(&w), 0);
	for (size_t len = 0; len < w.len; len++) {
		/* A copy of exactly this size: a read past it is seen by the sanitizer. */
		CLEANUP_FREE uint8_t *copy = malloc(len ? len : 1);
		struct sample s;

		assert_non_null(copy);
		memcpy(copy, w.data, len);
		assert_int_equal(sample_decode(copy, len, &s), -EBADMSG);
	}
}

static void bytes_left_over_are_refused(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct sample s;

	(void)state;
	assert_int_equal(sample_encode(&w), 0);
	bufw_u8(&w, 0);
	assert_int_equal(sample_decode(w.data, w.len, &s), -EBADMSG);
}

static void an_error_sticks(void **state)
{
	static const uint8_t bytes[] = { 1, 2, 3 };
	struct bufr r;
	size_t len = 9;

	(void)state;
	bufr_init(&r, bytes, sizeof(bytes));
	assert_int_equal(bufr_u32(&r), 0);
	assert_int_equal(bufr_u8(&r), 0);
	assert_null(bufr_bytes(&r, 0));
	assert_null(bufr_blob(&r, 10, &len));
	assert_int_equal(len, 9);
	assert_null(bufr_strdup(&r, 10));
	assert_int_equal(bufr_left(&r), 0);
	assert_int_equal(bufr_err(&r), -EBADMSG);
	assert_int_equal(bufr_end(&r), -EBADMSG);
}

static void no_buffer_is_an_empty_one(void **state)
{
	struct bufr r;

	(void)state;
	bufr_init(&r, NULL, 0);
	assert_int_equal(bufr_left(&r), 0);
	assert_non_null(bufr_bytes(&r, 0));
	assert_int_equal(bufr_end(&r), 0);
	assert_null(bufr_bytes(&r, 1));
	assert_int_equal(bufr_end(&r), -EBADMSG);
}

static void a_huge_length_or_count_is_refused(void **state)
{
	static const uint8_t bytes[] = { 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4 };
	struct bufr r;
	size_t len;

	(void)state;
	bufr_init(&r, bytes, sizeof(bytes));
	assert_null(bufr_blob(&r, SIZE_MAX, &len));
	bufr_init(&r, bytes, sizeof(bytes));
	assert_int_equal(bufr_count(&r, UINT32_MAX, SIZE_MAX / 2), 0);
	assert_int_equal(bufr_err(&r), -EBADMSG);
	bufr_init(&r, bytes, sizeof(bytes));
	assert_null(bufr_bytes(&r, SIZE_MAX));
	bufr_init(&r, bytes + 4, 4);
	assert_int_equal(bufr_count(&r, 0x04030200, 0), 0); /* one more than allowed */
	assert_int_equal(bufr_err(&r), -EBADMSG);
}

static void a_string_with_a_nul_is_refused(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct bufr r;

	(void)state;
	bufw_blob(&w, "a\0b", 3);
	bufr_init(&r, w.data, w.len);
	assert_null(bufr_strdup(&r, 100));
	assert_int_equal(bufr_end(&r), -EBADMSG);
}

static void a_reset_writer_keeps_its_memory(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	uint8_t *data;

	(void)state;
	bufw_u64(&w, 1);
	data = w.data;
	bufw_reset(&w);
	assert_int_equal(w.len, 0);
	bufw_u64(&w, 2);
	assert_ptr_equal(w.data, data);
	assert_int_equal(w.len, 8);
}

static void reserved_bytes_are_zero_also_in_used_memory(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)state;
	bufw_u64(&w, UINT64_MAX);
	bufw_reset(&w);
	assert_int_equal(bufw_reserve(&w, 8), 0);
	assert_memory_equal(w.data, "\0\0\0\0\0\0\0\0", 8);
}

static void an_impossible_size_sticks_as_no_memory(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)state;
	bufw_u8(&w, 1);
	bufw_reserve(&w, SIZE_MAX);
	assert_int_equal(bufw_end(&w), -ENOMEM);
	bufw_u8(&w, 2);
	bufw_patch_u32(&w, 1000, 1); /* nothing to patch after a failure: ignored */
	assert_int_equal(w.len, 1);
}

static void writing_survives_any_failed_allocation(void **state)
{
	int err = -1;

	(void)state;
	for (long nth = 1; err; nth++) {
		CLEANUP(bufw_fini) struct bufw w = {};

		alloc_fail_nth(nth);
		err = sample_encode(&w);
		for (int i = 0; i < 1000; i++) /* grow a few times */
			bufw_u64(&w, 1);
		err = bufw_end(&w);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(nth < 100);
		if (nth == 1)
			assert_int_equal(err, -ENOMEM);
	}
}

static void reading_survives_any_failed_allocation(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	int err = -1;

	(void)state;
	assert_int_equal(sample_encode(&w), 0);
	for (long nth = 1; err; nth++) {
		CLEANUP(sample_fini) struct sample s = {};

		alloc_fail_nth(nth);
		err = sample_decode(w.data, w.len, &s);
		alloc_fail_nth(0);
		assert_int_equal(err, nth == 1 ? -ENOMEM : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_written_is_read_back),
		cmocka_unit_test(integers_are_little_endian),
		cmocka_unit_test(every_prefix_is_refused),
		cmocka_unit_test(bytes_left_over_are_refused),
		cmocka_unit_test(an_error_sticks),
		cmocka_unit_test(no_buffer_is_an_empty_one),
		cmocka_unit_test(a_huge_length_or_count_is_refused),
		cmocka_unit_test(a_string_with_a_nul_is_refused),
		cmocka_unit_test(a_reset_writer_keeps_its_memory),
		cmocka_unit_test(reserved_bytes_are_zero_also_in_used_memory),
		cmocka_unit_test(an_impossible_size_sticks_as_no_memory),
		cmocka_unit_test(writing_survives_any_failed_allocation),
		cmocka_unit_test(reading_survives_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
