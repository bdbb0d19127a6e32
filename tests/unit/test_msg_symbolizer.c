#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "symbolizer/msg.h"
#include "tests/unit/alloc_fail.h"

/* ---- golden messages ---- */

static struct msg_op ops[] = {
	{ MSG_OP_REG, 7, 8 },	  { MSG_OP_REG, 16, 0 },  { MSG_OP_CONST, 0, 15 }, { MSG_OP_AND, 0, 0 },
	{ MSG_OP_CONST, 0, 11 }, { MSG_OP_GE, 0, 0 },	  { MSG_OP_CONST, 0, 3 },  { MSG_OP_SHL, 0, 0 },
	{ MSG_OP_ADD, 0, 0 },	  { MSG_OP_ADD_CONST, 0, -INT64_MAX }, { MSG_OP_DEREF, 8, 0 },
};
static struct msg_rule rules[] = {
	{ 3, MSG_RULE_CFA_MEM, 0, 0, -56 },
	{ 6, MSG_RULE_EXPR_MEM, 0, 2, 9 },
	{ 12, MSG_RULE_REG_MEM, 7, 0, INT32_MIN },
};
static struct msg_row rows[] = {
	{ .start = 0x1000, .end = 0x1020, .cfa = { 0, MSG_RULE_EXPR_VAL, 0, 9, 0 },
	  .ra = { 16, MSG_RULE_CFA_MEM, 0, 0, -8 }, .nrules = 1 },
	{ .start = 0x1020, .end = UINT64_MAX, .generation = 9, .flags = MSG_ROW_SIGNAL, .language = 2, .nrules = 2,
	  .first_rule = 1, .cfa = { 0, MSG_RULE_REG_VAL, 7, 0, 612168 }, .ra = { 16, MSG_RULE_REG_VAL, 5, 0, 0 } },
	{ .start = 5, .end = 6, .flags = MSG_ROW_END, .ra = { .target = 16 } },
};
static struct msg_result results[] = {
	{ 0, MSG_RES_ROW | MSG_RES_CODE }, { 2, MSG_RES_ROW | MSG_RES_AFTER_CALL }, { 0, MSG_RES_FUNCTION_START },
};

static struct msg_rows golden_rows(void)
{
	return (struct msg_rows){
		.id = 7, .file_id = 1ull << 60, .result = MSG_FILE_OK,
		.nrows = ARRAY_SIZE(rows), .nrules = ARRAY_SIZE(rules), .nops = ARRAY_SIZE(ops),
		.nresults = ARRAY_SIZE(results), .rows = rows, .rules = rules, .ops = ops, .results = results,
	};
}

static struct msg_function functions[] = {
	{ (char *)"std::sort<int>", (char *)"_ZSt4sortIiE", (char *)"", 0 },
	{ (char *)"gr\xc3\xbc\xc3\x9f", (char *)"x", (char *)"a/b.c", 12 },
};
static struct msg_line lines[] = { { 1, 3 }, { 0, 0 } };
static struct msg_named named[] = { { 0x401000, 0, 0, 2 }, { 99, UINT32_MAX, 2, 0 } };

static struct msg_names golden_names(void)
{
	return (struct msg_names){
		.id = 3, .file_id = 4, .result = MSG_FILE_OK, .build_id = { 1, 2, 3 }, .build_id_len = 20, .nsegments = 1,
		.segments = { { 0x400000, 0x2000, 0, 0x1fff, 5 } },
		.nfunctions = ARRAY_SIZE(functions), .nlines = ARRAY_SIZE(lines), .nnamed = ARRAY_SIZE(named),
		.functions = functions, .lines = lines, .named = named,
	};
}

static void reads(struct bufr *r, const struct bufw *w)
{
	assert_int_equal(bufw_end(w), 0);
	bufr_init(r, w->data, w->len);
}

/* ---- round trips ---- */

static void a_request_comes_back_as_it_was(void **state UNUSED)
{
	static struct msg_request req, got;
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct bufr r;

	req.id = 1;
	req.file_id = UINT64_MAX;
	req.naddrs = MSG_ADDRS_MAX;
	for (uint32_t i = 0; i < req.naddrs; i++)
		req.addrs[i] = (struct msg_addr){ .offset = (uint64_t)i << 40 | i, .flags = i & 1 };
	msg_request_encode(&w, &req);
	reads(&r, &w);
	assert_int_equal(msg_request_decode(&r, &got), 0);
	assert_memory_equal(&req, &got, sizeof(req));
}

static void rows_come_back_as_they_were(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 }, again = { 0 };
	CLEANUP(msg_rows_fini) struct msg_rows got = { 0 };
	struct msg_rows m = golden_rows();
	struct bufr r;

	msg_rows_encode(&w, &m);
	reads(&r, &w);
	assert_int_equal(msg_rows_decode(&r, &got), 0);
	assert_int_equal(got.nrows, m.nrows);
	assert_int_equal(got.rows[1].end, UINT64_MAX);
	assert_int_equal(got.rows[1].cfa.off, 612168);
	assert_int_equal(got.rules[2].off, INT32_MIN);
	assert_int_equal(got.ops[9].n, -INT64_MAX);
	msg_rows_encode(&again, &got);
	assert_int_equal(again.len, w.len);
	assert_memory_equal(again.data, w.data, w.len);
}

static void names_come_back_as_they_were(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 }, again = { 0 };
	CLEANUP(msg_names_fini) struct msg_names got = { 0 };
	struct msg_names m = golden_names();
	struct bufr r;

	msg_names_encode(&w, &m);
	reads(&r, &w);
	assert_int_equal(msg_names_decode(&r, &got), 0);
	assert_string_equal(got.functions[1].name, functions[1].name);
	assert_int_equal(got.named[1].segment, UINT32_MAX);
	msg_names_encode(&again, &got);
	assert_int_equal(again.len, w.len);
	assert_memory_equal(again.data, w.data, w.len);
}

static void an_empty_answer_is_fine(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	CLEANUP(msg_rows_fini) struct msg_rows got = { 0 };
	struct msg_rows m = { .result = MSG_FILE_NOT_ELF };
	struct bufr r;

	msg_rows_encode(&w, &m);
	reads(&r, &w);
	assert_int_equal(msg_rows_decode(&r, &got), 0);
	assert_int_equal(got.result, MSG_FILE_NOT_ELF);
	assert_null(got.rows);
}

/* ---- hostile bytes ---- */

static void every_prefix_is_refused(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw req_w = { 0 }, rows_w = { 0 }, names_w = { 0 };
	static struct msg_request req = { .naddrs = 3 };
	struct msg_rows rows_msg = golden_rows(), got_rows;
	struct msg_names names_msg = golden_names(), got_names;
	struct bufr r;

	msg_request_encode(&req_w, &req);
	for (size_t n = 0; n < req_w.len; n++) {
		bufr_init(&r, req_w.data, n);
		assert_int_equal(msg_request_decode(&r, &req), -EBADMSG);
		assert_int_equal(req.naddrs, 3);
	}
	msg_rows_encode(&rows_w, &rows_msg);
	for (size_t n = 0; n < rows_w.len; n++) {
		bufr_init(&r, rows_w.data, n);
		assert_int_equal(msg_rows_decode(&r, &got_rows), -EBADMSG);
	}
	msg_names_encode(&names_w, &names_msg);
	for (size_t n = 0; n < names_w.len; n++) {
		bufr_init(&r, names_w.data, n);
		assert_int_equal(msg_names_decode(&r, &got_names), -EBADMSG);
	}
}

static void bytes_after_the_end_are_refused(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct msg_rows m = golden_rows(), got;
	struct bufr r;

	msg_rows_encode(&w, &m);
	bufw_u8(&w, 0);
	reads(&r, &w);
	assert_int_equal(msg_rows_decode(&r, &got), -EBADMSG);
}

static void huge_counts_are_refused_before_memory_is_asked_for(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct msg_rows got_rows;
	struct msg_names got_names;
	static struct msg_request got_req;
	struct bufr r;

	bufw_u64(&w, 1);
	bufw_u64(&w, 1);
	bufw_u32(&w, UINT32_MAX);
	reads(&r, &w);
	assert_int_equal(msg_request_decode(&r, &got_req), -EBADMSG);
	bufw_reset(&w);
	bufw_u64(&w, 1);
	bufw_u64(&w, 1);
	bufw_u32(&w, 0);
	bufw_u32(&w, UINT32_MAX);
	reads(&r, &w);
	assert_int_equal(msg_rows_decode(&r, &got_rows), -EBADMSG);
	reads(&r, &w);
	assert_int_equal(msg_names_decode(&r, &got_names), -EBADMSG);
}

static int decode_changed(const struct msg_rows *m)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	CLEANUP(msg_rows_fini) struct msg_rows got = { 0 };
	struct bufr r;

	msg_rows_encode(&w, m);
	reads(&r, &w);
	return msg_rows_decode(&r, &got);
}

/* One wrong field at a time in a copy of the golden answer. */
#define REFUSES(array, change)                                                 \
	do {                                                                   \
		struct msg_rows m_ = golden_rows();                            \
		__typeof__(array) copy_;                                       \
		memcpy(copy_, array, sizeof(copy_));                           \
		assert_int_equal(decode_changed(&m_), 0);                      \
		m_.array = copy_;                                              \
		copy_ change;                                                  \
		assert_int_equal(decode_changed(&m_), -EBADMSG);               \
	} while (0)

static void wrong_indexes_kinds_and_ranges_are_refused(void **state UNUSED)
{
	REFUSES(rows, [0].end = rows[0].start);
	REFUSES(rows, [0].flags = 0x80);
	REFUSES(rows, [0].nrules = MSG_RULES_MAX + 1);
	REFUSES(rows, [0].first_rule = 3);
	REFUSES(rows, [0].first_rule = UINT32_MAX);
	REFUSES(rows, [0].cfa.kind = MSG_RULE_KIND_COUNT);
	REFUSES(rows, [0].cfa.kind = MSG_RULE_CFA_MEM);
	REFUSES(rows, [0].cfa.kind = MSG_RULE_UNDEFINED);
	REFUSES(rows, [0].cfa.n = 0);
	REFUSES(rows, [0].cfa.n = 12);
	REFUSES(rows, [0].cfa.off = -1);
	REFUSES(rows, [0].cfa.off = INT32_MAX);
	REFUSES(rows, [1].cfa.reg = MSG_REGS_MAX);
	REFUSES(rows, [1].ra.kind = MSG_RULE_SAME);
	REFUSES(rows, [1].ra.kind = MSG_RULE_UNDEFINED);
	REFUSES(rules, [0].target = MSG_REGS_MAX);
	REFUSES(rules, [1].off = 10 + 1);
	REFUSES(ops, [0].reg = MSG_REGS_MAX);
	REFUSES(ops, [0].code = MSG_OP_COUNT);
	REFUSES(ops, [0].code = MSG_OP_CFA);
	REFUSES(ops, [2].code = MSG_OP_DROP);
	REFUSES(ops, [10].reg = 3);
	REFUSES(results, [1].row = 3);
	REFUSES(results, [1].flags = 0x10);
}

static void names_that_are_no_utf8_are_refused(void **state UNUSED)
{
	static const char *const bad[] = { "\x80", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "a\xe2\x82", "\xff" };
	struct msg_function copy[2];
	struct msg_names m = golden_names(), got;
	struct bufr r;

	m.functions = copy;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CLEANUP(bufw_fini) struct bufw w = { 0 };

		memcpy(copy, functions, sizeof(copy));
		copy[1].name = (char *)(uintptr_t)bad[i];
		msg_names_encode(&w, &m);
		reads(&r, &w);
		assert_int_equal(msg_names_decode(&r, &got), -EBADMSG);
	}
}

static void wrong_indexes_of_names_are_refused(void **state UNUSED)
{
	static const struct msg_line bad_lines[] = { { 2, 0 }, { 0, 0 } };
	static const struct msg_named bad_named[][2] = {
		{ { 1, 1, 0, 2 }, { 2, UINT32_MAX, 0, 0 } },
		{ { 1, 0, 1, 2 }, { 2, UINT32_MAX, 0, 0 } },
		{ { 1, 0, UINT32_MAX, 2 }, { 2, UINT32_MAX, 0, 0 } },
		{ { 1, 0, 0, MSG_LINES_MAX + 1 }, { 2, UINT32_MAX, 0, 0 } },
	};
	struct msg_names m = golden_names(), got;
	struct bufr r;

	for (size_t i = 0; i <= ARRAY_SIZE(bad_named); i++) {
		CLEANUP(bufw_fini) struct bufw w = { 0 };

		m = golden_names();
		if (i == ARRAY_SIZE(bad_named))
			m.lines = (struct msg_line *)(uintptr_t)bad_lines;
		else
			m.named = (struct msg_named *)(uintptr_t)bad_named[i];
		msg_names_encode(&w, &m);
		reads(&r, &w);
		assert_int_equal(msg_names_decode(&r, &got), -EBADMSG);
	}
}

/* Together they would cost the agent seconds. */
static void expressions_that_share_their_steps_without_end_are_refused(void **state UNUSED)
{
	enum { N = 1200 };
	struct msg_op steps[MSG_EXPR_MAX];
	struct msg_rule *many = calloc(N, sizeof(*many));
	struct msg_rows m = { .nops = MSG_EXPR_MAX, .ops = steps, .rules = many };

	assert_non_null(many);
	for (size_t i = 0; i < MSG_EXPR_MAX; i++)
		steps[i] = (struct msg_op){ .code = MSG_OP_NOT };
	for (size_t i = 0; i < N; i++)
		many[i] = (struct msg_rule){ .kind = MSG_RULE_EXPR_VAL, .n = MSG_EXPR_MAX };
	m.nrules = 1000;
	assert_int_equal(decode_changed(&m), 0);
	m.nrules = N;
	assert_int_equal(decode_changed(&m), -EBADMSG);
	free(many);
}

static void decoding_survives_any_failed_allocation(void **state UNUSED)
{
	CLEANUP(bufw_fini) struct bufw rows_w = { 0 }, names_w = { 0 };
	struct msg_rows m = golden_rows(), got_rows = { 0 };
	struct msg_names n = golden_names(), got_names = { 0 };
	struct bufr r;
	int err = -1;

	msg_rows_encode(&rows_w, &m);
	msg_names_encode(&names_w, &n);
	for (long nth = 1; err; nth++) {
		reads(&r, &rows_w);
		alloc_fail_nth(nth);
		err = msg_rows_decode(&r, &got_rows);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(nth < 100);
	}
	err = -1;
	for (long nth = 1; err; nth++) {
		reads(&r, &names_w);
		alloc_fail_nth(nth);
		err = msg_names_decode(&r, &got_names);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(nth < 100);
	}
	msg_rows_fini(&got_rows);
	msg_names_fini(&got_names);
}

/* ---- expressions ---- */

static void branches_must_agree_on_the_depth(void **state UNUSED)
{
	/* 1; if (pop) goto 4; 2; goto 5; 4: 3; 5: */
	struct msg_op good[] = {
		{ MSG_OP_CONST, 0, 1 }, { MSG_OP_BRANCH, 0, 3 }, { MSG_OP_CONST, 0, 2 },
		{ MSG_OP_SKIP, 0, 2 },	{ MSG_OP_CONST, 0, 3 },
	};

	assert_true(msg_expr_valid(good, 5, 0));
	good[3].n = 1; /* now one way has two values */
	assert_false(msg_expr_valid(good, 5, 0));
	good[3].n = 3;
	assert_false(msg_expr_valid(good, 5, 0));
	good[3].n = 0;
	assert_false(msg_expr_valid(good, 5, 0));
	good[3].n = -1;
	assert_false(msg_expr_valid(good, 5, 0));
}

static void the_stack_is_bounded_on_both_sides(void **state UNUSED)
{
	struct msg_op steps[MSG_EXPR_MAX + 1];

	for (size_t i = 0; i <= MSG_EXPR_MAX; i++)
		steps[i] = (struct msg_op){ .code = MSG_OP_CONST };
	assert_false(msg_expr_valid(steps, 0, 1));
	assert_true(msg_expr_valid(steps, MSG_EXPR_DEPTH, 0));
	assert_false(msg_expr_valid(steps, MSG_EXPR_DEPTH, 1));
	assert_false(msg_expr_valid(steps, MSG_EXPR_MAX + 1, 0));
	steps[1].code = MSG_OP_SWAP;
	assert_false(msg_expr_valid(steps, 2, 0));
	assert_true(msg_expr_valid(steps, 2, 1));
	steps[1] = (struct msg_op){ MSG_OP_PICK, 0, 1 };
	assert_false(msg_expr_valid(steps, 2, 0));
	assert_true(msg_expr_valid(steps, 2, 1));
	steps[1] = (struct msg_op){ MSG_OP_PICK, 0, -1 };
	assert_false(msg_expr_valid(steps, 2, 1));
}

/* ---- separate debug files ---- */

static void messages_about_debug_files_are_as_they_were(void **state UNUSED)
{
	struct msg_link link = { .id = 1, .file_id = 2, .is_wanted = true, .build_id = { 7, 8 }, .build_id_len = 2,
				 .name = "libc.so.6.debug", .crc = 0xfedcba98 };
	struct msg_debug debug = { .id = 3, .file_id = 4, .is_alt = true, .by_crc = true, .build_id = { 9 }, .build_id_len = 1, .crc = 5 };
	struct msg_debugged debugged = { .id = 6, .file_id = 7, .is_alt = true, .is_taken = true,
					 .alt_build_id = { 5, 4, 3 }, .alt_build_id_len = 3, .alt_path = "../dwz/a" };
	struct msg_link l;
	struct msg_debug d;
	struct msg_debugged g;

	for (int which = 0; which < 3; which++) {
		CLEANUP(bufw_fini) struct bufw w = { 0 };
		struct bufr r;
		int err = -1;

		if (which == 0)
			msg_link_encode(&w, &link);
		else if (which == 1)
			msg_debug_encode(&w, &debug);
		else
			msg_debugged_encode(&w, &debugged);
		for (size_t len = 0; len <= w.len; len++) {
			bufr_init(&r, w.data, len);
			err = which == 0 ? msg_link_decode(&r, &l) :
			      which == 1 ? msg_debug_decode(&r, &d) :
					   msg_debugged_decode(&r, &g);
			assert_int_equal(err, len < w.len ? -EBADMSG : 0);
		}
	}
	assert_true(l.id == 1 && l.file_id == 2 && l.is_wanted && l.crc == link.crc);
	assert_string_equal(l.name, link.name);
	assert_int_equal(l.build_id_len, 2);
	assert_memory_equal(l.build_id, link.build_id, 2);
	assert_true(d.id == 3 && d.file_id == 4 && d.is_alt && d.by_crc && d.crc == 5 && d.build_id_len == 1 && d.build_id[0] == 9);
	assert_true(g.id == 6 && g.file_id == 7 && g.is_alt && g.is_taken && g.alt_build_id_len == 3 && g.alt_build_id[2] == 3);
	assert_string_equal(g.alt_path, debugged.alt_path);
}

static void what_was_cut_is_told(void **state UNUSED)
{
	static const uint32_t good[] = { 1, ARRAY_SIZE(named) };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CLEANUP(bufw_fini) struct bufw w = { 0 };
		struct msg_names m = golden_names(), got;
		struct bufr r;

		m.ncut = good[i];
		msg_names_encode(&w, &m);
		reads(&r, &w);
		assert_int_equal(msg_names_decode(&r, &got), 0);
		assert_int_equal(got.ncut, good[i]);
		msg_names_fini(&got);
		/* More addresses than there are, and a 0 that is not to be sent. */
		for (uint32_t bad = 0; bad <= ARRAY_SIZE(named) + 1; bad += ARRAY_SIZE(named) + 1) {
			memcpy(w.data + w.len - sizeof(bad), &bad, sizeof(bad));
			reads(&r, &w);
			assert_int_equal(msg_names_decode(&r, &got), -EBADMSG);
		}
	}
}

static void a_link_is_a_file_name(void **state UNUSED)
{
	static const char *const bad[] = { "a/b", "/", "..", "." };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CLEANUP(bufw_fini) struct bufw w = { 0 };
		struct msg_link link = { .file_id = 1 }, ret;
		struct bufr r;

		strcpy(link.name, bad[i]);
		msg_link_encode(&w, &link);
		bufr_init(&r, w.data, w.len);
		assert_int_equal(msg_link_decode(&r, &ret), -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_comes_back_as_it_was),
		cmocka_unit_test(rows_come_back_as_they_were),
		cmocka_unit_test(names_come_back_as_they_were),
		cmocka_unit_test(an_empty_answer_is_fine),
		cmocka_unit_test(every_prefix_is_refused),
		cmocka_unit_test(messages_about_debug_files_are_as_they_were),
		cmocka_unit_test(a_link_is_a_file_name),
		cmocka_unit_test(what_was_cut_is_told),
		cmocka_unit_test(bytes_after_the_end_are_refused),
		cmocka_unit_test(huge_counts_are_refused_before_memory_is_asked_for),
		cmocka_unit_test(wrong_indexes_kinds_and_ranges_are_refused),
		cmocka_unit_test(names_that_are_no_utf8_are_refused),
		cmocka_unit_test(wrong_indexes_of_names_are_refused),
		cmocka_unit_test(expressions_that_share_their_steps_without_end_are_refused),
		cmocka_unit_test(decoding_survives_any_failed_allocation),
		cmocka_unit_test(branches_must_agree_on_the_depth),
		cmocka_unit_test(the_stack_is_bounded_on_both_sides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
