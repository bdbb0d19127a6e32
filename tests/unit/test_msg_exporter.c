#include "exporter/msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/export_fixture.h"

/* A batch and nothing behind it. */
static int decode(const struct bufw *w, size_t len, struct export_batch *ret)
{
	struct export_batch b = {};
	struct bufr r;
	int err;

	bufr_init(&r, w->data, len);
	err = export_batch_decode(&r, &b);
	if (!err && bufr_end(&r)) {
		export_batch_fini(&b);
		return -EBADMSG;
	}
	if (!err)
		*ret = b;
	return err;
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
	assert_int_equal(got.subjects[0].id, 1001);
	assert_int_equal(got.subjects[0].first_pair, 1);
	assert_int_equal(got.subjects[0].npairs, 2);
	assert_int_equal(got.tap, 0);
	assert_int_equal(got.npairs, 3);
	assert_memory_equal(got.pairs, f.pairs, 3 * sizeof(*f.pairs));
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

static void bytes_after_a_batch_are_left_to_the_caller(void **state)
{
	static const uint64_t ids[] = { 7, UINT64_MAX };
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP(export_batch_fini) struct export_batch got = {};
	struct export_settled settled = { ARRAY_SIZE(ids), (uint64_t *)ids }, got_settled;
	struct export_fixture f;
	struct bufr r;

	(void)state;
	export_fixture_init(&f);
	export_batch_encode(&w, &f.batch);
	export_settled_encode(&w, &settled);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_batch_decode(&r, &got), 0);
	assert_int_equal(bufr_left(&r), 4 + sizeof(ids));
	assert_int_equal(export_settled_decode(&r, &got_settled), 0);
	assert_int_equal(got_settled.n, 2);
	assert_memory_equal(got_settled.ids, ids, sizeof(ids));
	free(got_settled.ids);
}

static void an_empty_batch_is_fine(void **state)
{
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.batch.nmappings = f.batch.nfunctions = f.batch.nlines = f.batch.nlocations = 0;
	f.batch.npairs = f.batch.nsubjects = f.batch.nsamples = f.batch.nframes = 0;
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
	REFUSES(f.pairs[0].name = f.batch.nstrings);
	REFUSES(f.pairs[2].value = UINT32_MAX);
	REFUSES(f.subjects[0].first_pair = 2);
	REFUSES(f.subjects[0].first_pair = UINT32_MAX);
	REFUSES(f.subjects[0].npairs = 3);
	REFUSES(f.subjects[0].npairs = UINT32_MAX);
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
	static const size_t sizes[] = { 32, 16, 8, 20, 8, 36, 4, 36 }; /* after the strings */
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_batch got = {};
	struct export_fixture f;
	size_t off = 40;

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
	assert_int_equal(nth, 11); /* nine tables */
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
	assert_string_equal(export_refusal_text(EXPORT_REFUSAL_NO_MEMORY), "agent_memory");
	assert_string_equal(export_refusal_text(EXPORT_REFUSAL_COUNT), "unknown");
	assert_string_equal(export_fate_text(EXPORT_FATE_IN_DOUBT), "in_doubt");
	assert_string_equal(export_fate_text(EXPORT_FATE_COUNT), "unknown");
}

/* ---- the other messages: each is encoded, decoded, and encoded again to the same bytes ---- */

union decoded {
	struct export_config config;
	struct export_file file;
	struct export_facts facts;
	struct export_labels labels;
	struct export_settled settled;
	struct export_taken taken;
	struct export_fate fate;
	struct export_done done;
	struct export_tap tap;
	struct export_tap_refused refused;
	struct export_status status;
};

static int decode_message(enum export_type type, struct bufr *in, union decoded *ret, void **ret_mem)
{
	int err;

	switch (type) {
	case EXPORT_CONFIG:
		return export_config_decode(in, &ret->config, ret_mem);
	case EXPORT_FILE:
		return export_file_decode(in, &ret->file);
	case EXPORT_SUBJECT:
		return export_facts_decode(in, &ret->facts, ret_mem);
	case EXPORT_LABELS:
		return export_labels_decode(in, &ret->labels, ret_mem);
	case EXPORT_BATCH: /* what follows it */
		err = export_settled_decode(in, &ret->settled);
		*ret_mem = err ? *ret_mem : ret->settled.ids;
		return err;
	case EXPORT_TAKEN:
		return export_taken_decode(in, &ret->taken);
	case EXPORT_FATE:
		return export_fate_decode(in, &ret->fate, ret_mem);
	case EXPORT_DONE:
		return export_done_decode(in, &ret->done);
	case EXPORT_TAP:
		return export_tap_decode(in, &ret->tap);
	case EXPORT_TAP_REFUSED:
		return export_tap_refused_decode(in, &ret->refused);
	case EXPORT_STATUS:
		return export_status_decode(in, &ret->status, ret_mem);
	default:
		fail();
		return -EINVAL;
	}
}

static void encode_message(enum export_type type, struct bufw *w, const union decoded *m)
{
	switch (type) {
	case EXPORT_CONFIG:
		return export_config_encode(w, &m->config);
	case EXPORT_FILE:
		return export_file_encode(w, &m->file);
	case EXPORT_SUBJECT:
		return export_facts_encode(w, &m->facts);
	case EXPORT_LABELS:
		return export_labels_encode(w, &m->labels);
	case EXPORT_BATCH:
		return export_settled_encode(w, &m->settled);
	case EXPORT_TAKEN:
		return export_taken_encode(w, &m->taken);
	case EXPORT_FATE:
		return export_fate_encode(w, &m->fate);
	case EXPORT_DONE:
		return export_done_encode(w, &m->done);
	case EXPORT_TAP:
		return export_tap_encode(w, &m->tap);
	case EXPORT_TAP_REFUSED:
		return export_tap_refused_encode(w, &m->refused);
	case EXPORT_STATUS:
		return export_status_encode(w, &m->status);
	default:
		fail();
	}
}

static struct export_label sample_labels[] = {
	{ "container_id", "c0ffee", "from the control group /docker/c0ffee" },
	{ "service_name", "nginx", "from unit nginx.service" },
	{ "unit", "nginx.service", "" },
};
static struct export_process sample_processes[] = {
	{ "agent", 10, 990, 1ull << 39, 1ull << 39 | 1ull << 19, false, true },
	{ "exporter", 12, 990, 0, 0, true, true },
};
static struct export_metric sample_metrics[] = {
	{ EXPORT_METRIC_SEEN, "", "", 12345 },
	{ EXPORT_METRIC_SINK_SAMPLES, "http://here", "delivered", UINT64_MAX },
	{ EXPORT_METRIC_RELOAD_TIME, "", "", 1700000000 },
};
static uint64_t sample_ids[] = { 1, 2, UINT64_MAX };

static const struct message {
	enum export_type type;
	union decoded m;
	long nallocations;
} messages[] = {
	{ EXPORT_CONFIG,
	  { .config = { (const uint8_t *)"set\0tings", 9, "host", "0123abcd", "0.1.0", "token" } },
	  1 },
	{ EXPORT_FILE, { .file = { EXPORT_ROLE_CONTROL, 3, ENOENT, 2 } }, 0 },
	{ EXPORT_SUBJECT,
	  { .facts = { 1, 2, 3, EXPORT_SUBJECT_KERNEL, "/usr/bin/x\xff", "comm", "0::/a\n1:b:/c\n" } },
	  1 },
	{ EXPORT_LABELS, { .labels = { 9, 10, 3, sample_labels } }, 1 },
	{ EXPORT_BATCH, { .settled = { 3, sample_ids } }, 1 },
	{ EXPORT_TAKEN, { .taken = { 5, 6 } }, 0 },
	{ EXPORT_FATE, { .fate = { 1, 2, EXPORT_FATE_SHUTDOWN, 4, "http://here" } }, 1 },
	{ EXPORT_DONE, { .done = { 9, EXPORT_WRITE_FAILED, ENOSPC, 123, 456 } }, 0 },
	{ EXPORT_TAP, { .tap = { 1, 2 } }, 0 },
	{ EXPORT_TAP_REFUSED, { .refused = { 7, EXPORT_REFUSAL_NOT_SAMPLING } }, 0 },
	{ EXPORT_STATUS,
	  { .status = { 1, 99, 2, 15, "/etc/flamed.yaml", "cap_x: a loss", 2, 3, sample_processes, sample_metrics } },
	  1 },
};

static void every_message_survives_the_way(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		CLEANUP(bufw_fini) struct bufw w = {}, again = {};
		CLEANUP_FREE void *mem = NULL;
		union decoded got;
		struct bufr r;

		encode_message(messages[i].type, &w, &messages[i].m);
		assert_int_equal(bufw_end(&w), 0);
		bufr_init(&r, w.data, w.len);
		assert_int_equal(decode_message(messages[i].type, &r, &got, &mem), 0);
		encode_message(messages[i].type, &again, &got);
		assert_int_equal(again.len, w.len);
		assert_memory_equal(again.data, w.data, w.len);
	}
}

static void no_prefix_of_a_message_does_and_nothing_may_follow(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		CLEANUP(bufw_fini) struct bufw w = {};
		void *mem = NULL;
		union decoded got;
		struct bufr r;

		encode_message(messages[i].type, &w, &messages[i].m);
		bufw_u8(&w, 0);
		for (size_t len = 0; len <= w.len; len++) {
			CLEANUP_FREE uint8_t *exact = malloc(len ? len : 1); /* for ASan */

			if (len == w.len - 1)
				continue;
			memcpy(exact, w.data, len);
			bufr_init(&r, exact, len);
			assert_int_equal(decode_message(messages[i].type, &r, &got, &mem), -EBADMSG);
			assert_null(mem);
		}
	}
}

static void any_message_survives_any_failed_allocation(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		CLEANUP(bufw_fini) struct bufw w = {};
		CLEANUP_FREE void *mem = NULL;
		union decoded got;
		int err = -ENOMEM;
		struct bufr r;
		long nth;

		encode_message(messages[i].type, &w, &messages[i].m);
		for (nth = 1; err; nth++) {
			bufr_init(&r, w.data, w.len);
			alloc_fail_nth(nth);
			err = decode_message(messages[i].type, &r, &got, &mem);
			alloc_fail_nth(0);
			assert_true(err == 0 || err == -ENOMEM);
			assert_true(!err || !mem);
		}
		assert_int_equal(nth, messages[i].nallocations + 2);
	}
}

static void texts_arrive_as_they_were(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE void *mem = NULL;
	struct export_status got;
	struct bufr r;

	(void)state;
	encode_message(EXPORT_STATUS, &w, &messages[ARRAY_SIZE(messages) - 1].m);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_status_decode(&r, &got, &mem), 0);
	assert_string_equal(got.config_path, "/etc/flamed.yaml");
	assert_string_equal(got.missing_rights, "cap_x: a loss");
	assert_string_equal(got.processes[1].name, "exporter");
	assert_int_equal(got.processes[0].caps_permitted, 1ull << 39 | 1ull << 19);
	assert_true(got.processes[1].seccomp);
	assert_false(got.processes[0].seccomp);
	assert_string_equal(got.metrics[1].endpoint, "http://here");
	assert_string_equal(got.metrics[1].label, "delivered");
	assert_string_equal(got.metrics[2].label, "");
}

static int labels_verdict(const struct export_label *labels, uint32_t n)
{
	struct export_labels l = { .nlabels = n, .labels = (struct export_label *)labels };
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE void *mem = NULL;
	struct export_labels got;
	struct bufr r;

	export_labels_encode(&w, &l);
	bufr_init(&r, w.data, w.len);
	return export_labels_decode(&r, &got, &mem);
}

static void labels_are_sorted_and_have_a_service_name(void **state)
{
	const struct export_label sorted[] = { { "a", "1", "" }, { "service_name", "x", "" } };
	const struct export_label twice[] = { { "a", "1", "" }, { "a", "1", "" }, { "service_name", "x", "" } };
	const struct export_label unsorted[] = { { "service_name", "x", "" }, { "a", "1", "" } };
	const struct export_label no_name[] = { { "", "1", "" }, { "service_name", "x", "" } };
	const struct export_label no_service[] = { { "a", "1", "" } };
	const struct export_label empty[] = { { "service_name", "", "" } };
	struct export_label many[EXPORT_PAIRS_MAX + 1];
	char names[EXPORT_PAIRS_MAX + 1][16];

	(void)state;
	assert_int_equal(labels_verdict(sorted, 2), 0);
	assert_int_equal(labels_verdict(twice, 3), -EBADMSG);
	assert_int_equal(labels_verdict(unsorted, 2), -EBADMSG);
	assert_int_equal(labels_verdict(no_name, 2), -EBADMSG);
	assert_int_equal(labels_verdict(no_service, 1), -EBADMSG);
	assert_int_equal(labels_verdict(empty, 1), -EBADMSG);
	assert_int_equal(labels_verdict(NULL, 0), -EBADMSG);
	for (int i = 0; i <= EXPORT_PAIRS_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "a%02d", i);
		many[i] = (struct export_label){ names[i], "v", "" };
	}
	many[EXPORT_PAIRS_MAX - 1].name = "service_name";
	assert_int_equal(labels_verdict(many, EXPORT_PAIRS_MAX), 0);
	many[EXPORT_PAIRS_MAX].name = "t";
	assert_int_equal(labels_verdict(many, EXPORT_PAIRS_MAX + 1), -EBADMSG);
}

/* Where in a message a byte is changed, and to what. */
static int verdict_with(enum export_type type, size_t off, uint8_t byte)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE void *mem = NULL;
	union decoded got;
	struct bufr r;

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		if (messages[i].type == type)
			encode_message(type, &w, &messages[i].m);
	}
	assert_true(off < w.len);
	w.data[off] = byte;
	bufr_init(&r, w.data, w.len);
	return decode_message(type, &r, &got, &mem);
}

static void numbers_out_of_range_are_refused(void **state)
{
	enum { STATUS_TEXTS = 8 + 4 + 4 + 8 + 4 + 4 };
	size_t process = STATUS_TEXTS + 4 + strlen("/etc/flamed.yaml") + 4 + strlen("cap_x: a loss");
	size_t metric = process + 2 * 30 + strlen("agent") + strlen("exporter");

	(void)state;
	assert_int_equal(verdict_with(EXPORT_FILE, 0, EXPORT_ROLE_COUNT - 1), 0);
	assert_int_equal(verdict_with(EXPORT_FILE, 0, EXPORT_ROLE_COUNT), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_FATE, 16, EXPORT_FATE_COUNT - 1), 0);
	assert_int_equal(verdict_with(EXPORT_FATE, 16, EXPORT_FATE_COUNT), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_DONE, 8, EXPORT_RESULT_COUNT), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_TAP, 0, 0), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_TAP_REFUSED, 8, EXPORT_REFUSAL_COUNT), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_STATUS, STATUS_TEXTS - 8, EXPORT_PROCESSES_MAX + 1), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_STATUS, STATUS_TEXTS - 1, 1), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_STATUS, process + 4 + strlen("agent") + 24, 2), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_STATUS, metric, EXPORT_METRIC_COUNT - 1), 0);
	assert_int_equal(verdict_with(EXPORT_STATUS, metric, EXPORT_METRIC_COUNT), -EBADMSG);
}

/* Counts are checked against the bytes that are there before anything is allocated. */
static void counts_that_lie_cost_nothing(void **state)
{
	(void)state;
	alloc_fail_nth(0);
	assert_int_equal(verdict_with(EXPORT_BATCH, 0, 4), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_BATCH, 3, 0xff), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_LABELS, 12, 32), -EBADMSG);
	assert_int_equal(verdict_with(EXPORT_STATUS, 29, 0x10), -EBADMSG);
	assert_true(alloc_fail_count() <= 12); /* those of the encoder */
}

static void what_is_too_long_is_cut_where_it_is_sent(void **state)
{
	CLEANUP_FREE char *path = calloc(1, 2 * EXPORT_PATH_MAX);
	CLEANUP_FREE char *lines = calloc(1, 2 * EXPORT_CGROUPS_MAX);
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE void *mem = NULL;
	struct export_facts f = { .executable = path, .comm = NULL, .cgroups = lines }, got;
	struct bufr r;

	(void)state;
	memset(path, 'x', 2 * EXPORT_PATH_MAX - 1);
	memset(lines, 'y', 2 * EXPORT_CGROUPS_MAX - 1);
	lines[100] = lines[EXPORT_CGROUPS_MAX - 1] = '\n'; /* the second one is the last byte that is told */
	export_facts_encode(&w, &f);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_facts_decode(&r, &got, &mem), 0);
	assert_int_equal(strlen(got.executable), EXPORT_PATH_MAX);
	assert_string_equal(got.comm, "");
	assert_int_equal(strlen(got.cgroups), EXPORT_CGROUPS_MAX);
	free(TAKE(mem));

	lines[EXPORT_CGROUPS_MAX - 1] = 'y';
	bufw_reset(&w);
	export_facts_encode(&w, &f);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_facts_decode(&r, &got, &mem), 0);
	assert_int_equal(strlen(got.cgroups), 101); /* half a path would be another group's */
	free(TAKE(mem));

	lines[100] = 'y';
	bufw_reset(&w);
	export_facts_encode(&w, &f);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_facts_decode(&r, &got, &mem), 0);
	assert_string_equal(got.cgroups, "");
}

static void a_text_ends_at_its_first_nul(void **state)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE void *mem = NULL;
	struct export_fate got;
	struct bufr r;

	(void)state;
	bufw_u64(&w, 1);
	bufw_u64(&w, 2);
	bufw_u32(&w, EXPORT_FATE_DELIVERED);
	bufw_u64(&w, 3);
	bufw_blob(&w, "a\0b", 3);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(export_fate_decode(&r, &got, &mem), 0);
	assert_string_equal(got.sink, "a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_survives_the_way),
		cmocka_unit_test(every_prefix_of_a_batch_is_refused),
		cmocka_unit_test(bytes_after_a_batch_are_left_to_the_caller),
		cmocka_unit_test(an_empty_batch_is_fine),
		cmocka_unit_test(indexes_that_point_nowhere_are_refused),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(counts_beyond_the_message_are_refused_without_allocating),
		cmocka_unit_test(shared_frames_cannot_multiply_a_message),
		cmocka_unit_test(decoding_survives_any_failed_allocation),
		cmocka_unit_test(a_done_survives_the_way_and_no_prefix_does),
		cmocka_unit_test(every_result_has_a_text),
		cmocka_unit_test(every_message_survives_the_way),
		cmocka_unit_test(no_prefix_of_a_message_does_and_nothing_may_follow),
		cmocka_unit_test(any_message_survives_any_failed_allocation),
		cmocka_unit_test(texts_arrive_as_they_were),
		cmocka_unit_test(labels_are_sorted_and_have_a_service_name),
		cmocka_unit_test(numbers_out_of_range_are_refused),
		cmocka_unit_test(counts_that_lie_cost_nothing),
		cmocka_unit_test(what_is_too_long_is_cut_where_it_is_sent),
		cmocka_unit_test(a_text_ends_at_its_first_nul),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
