#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bpf/abi.h"
#include "tests/unit/alloc_fail.h"
#include "tests/unit/rows_fixture.h"

static struct rows_fixture fixture;

static enum rows_answer find(const struct rows *r, uint64_t offset, bool is_return, struct row *row,
			     uint32_t *flags)
{
	memset(row, 0, sizeof(*row));
	*flags = UINT32_MAX;
	return rows_find(r, offset, is_return, row, flags);
}

static int64_t cfa_off(const struct row *row)
{
	return row->plain ? row->plain->cfa_off : row->row->cfa.off;
}

static void an_empty_cache_knows_nothing(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	assert_int_equal(find(r, 0, false, &row, &flags), ROWS_UNKNOWN);
	assert_int_equal(find(r, UINT64_MAX, true, &row, &flags), ROWS_UNKNOWN);
	assert_int_equal(rows_count(r), 0);
}

static void a_row_answers_for_interrupted_pcs_of_its_range_but_not_for_returns(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	fixture_init(&fixture);
	fixture_addr(&fixture, 0x120, true, fixture_row(&fixture, 0x100, 0x140, 7, 16),
		     MSG_RES_CODE | MSG_RES_AFTER_CALL);
	fixture_row(&fixture, 0x140, 0x150, 7, 32);
	assert_int_equal(fixture_put(&fixture, r), 0);

	assert_int_equal(find(r, 0x120, true, &row, &flags), ROWS_KNOWN);
	assert_int_equal(flags, MSG_RES_ROW | MSG_RES_CODE | MSG_RES_AFTER_CALL);
	assert_int_equal(cfa_off(&row), 16);
	assert_int_equal(find(r, 0x121, true, &row, &flags), ROWS_UNKNOWN);
	assert_int_equal(find(r, 0x13f, false, &row, &flags), ROWS_KNOWN);
	assert_int_equal(cfa_off(&row), 16);
	assert_int_equal(find(r, 0x140, false, &row, &flags), ROWS_KNOWN);
	assert_int_equal(cfa_off(&row), 32);
	assert_int_equal(flags, MSG_RES_ROW | MSG_RES_CODE);
	assert_int_equal(find(r, 0x150, false, &row, &flags), ROWS_UNKNOWN);
	assert_int_equal(find(r, 0xff, false, &row, &flags), ROWS_UNKNOWN);
}

static void a_row_that_was_here_before_is_found_for_a_new_return_address(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	fixture_init(&fixture);
	fixture_addr(&fixture, 0x120, false, fixture_row(&fixture, 0x100, 0x140, 7, 16), MSG_RES_CODE);
	assert_int_equal(fixture_put(&fixture, r), 0);
	assert_true(rows_cover(r, 0x140, true));
	assert_false(rows_cover(r, 0x140, false));
	assert_false(rows_cover(r, 0x100, true));
	assert_false(rows_cover(r, 0, true));

	fixture_init(&fixture);
	fixture_addr(&fixture, 0x140, true, FIXTURE_NO_ROW, MSG_RES_CODE | MSG_RES_AFTER_CALL);
	fixture_addr(&fixture, 0x180, true, FIXTURE_NO_ROW, MSG_RES_CODE | MSG_RES_AFTER_CALL);
	fixture.addrs[0].flags |= MSG_ADDR_HAVE_ROW;
	fixture.addrs[1].flags |= MSG_ADDR_HAVE_ROW; /* it was forgotten meanwhile */
	assert_int_equal(fixture_put(&fixture, r), 0);
	assert_int_equal(find(r, 0x140, true, &row, &flags), ROWS_KNOWN);
	assert_int_equal(flags, MSG_RES_ROW | MSG_RES_CODE | MSG_RES_AFTER_CALL);
	assert_int_equal(cfa_off(&row), 16);
	assert_int_equal(find(r, 0x180, true, &row, &flags), ROWS_UNKNOWN);
}

static void an_address_without_row_is_known_to_have_none(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	fixture_init(&fixture);
	fixture_addr(&fixture, 0x100, false, FIXTURE_NO_ROW, MSG_RES_CODE);
	assert_int_equal(fixture_put(&fixture, r), 0);
	assert_int_equal(find(r, 0x100, false, &row, &flags), ROWS_KNOWN);
	assert_int_equal(flags, MSG_RES_CODE);
	assert_null(row.row);
}

static void every_address_of_a_failed_file_is_known_without_a_row(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	struct msg_addr addrs[] = { { 0x10, MSG_ADDR_RETURN }, { 0x20, 0 } };
	struct msg_rows answer = { .result = MSG_FILE_NOT_ELF };
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	assert_int_equal(rows_put(r, addrs, 2, &answer), 0);
	assert_int_equal(find(r, 0x10, true, &row, &flags), ROWS_KNOWN);
	assert_int_equal(flags, 0);
	assert_int_equal(find(r, 0x20, false, &row, &flags), ROWS_KNOWN);
	assert_int_equal(flags, 0);
	assert_int_equal(find(r, 0x20, true, &row, &flags), ROWS_UNKNOWN);
}

static void the_same_row_sent_twice_is_kept_once(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	const struct msg_op ops[] = { { MSG_OP_REG, 7, -8 },
				      { MSG_OP_DEREF, 8, 0 },
				      { MSG_OP_ADD_CONST, 0, 8 } };
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	for (uint64_t i = 0; i < 10; i++) {
		fixture_init(&fixture);
		/* Other steps before it: the index differs, the row does not. */
		for (uint64_t k = 0; k < i; k++)
			(void)fixture_expr(&fixture, 0, MSG_RULE_EXPR_VAL, ops, 1);
		fixture_addr(&fixture, 0x100 + i, true, fixture_row(&fixture, 0x100, 0x200, 7, 16),
			     MSG_RES_CODE);
		fixture_rule(&fixture, 6, MSG_RULE_CFA_MEM, 0, -16);
		fixture_last(&fixture)->cfa = fixture_expr(&fixture, 0, MSG_RULE_EXPR_VAL, ops, 3);
		assert_int_equal(fixture_put(&fixture, r), 0);
		assert_int_equal(rows_count(r), 1);
		assert_int_equal(find(r, 0x100 + i, true, &row, &flags), ROWS_KNOWN);
		assert_memory_equal(&row.ops[row.row->cfa.off], ops, sizeof(ops));
		assert_int_equal(row.rules[0].off, -16);
		assert_null(row.plain);
	}
	fixture_init(&fixture);
	fixture_addr(&fixture, 0x180, true, fixture_row(&fixture, 0x100, 0x200, 7, 24),
		     MSG_RES_CODE);
	assert_int_equal(fixture_put(&fixture, r), 0);
	assert_int_equal(rows_count(r), 2);
	assert_int_equal(find(r, 0x180, true, &row, &flags), ROWS_KNOWN);
	assert_int_equal(cfa_off(&row), 24);
	/* Steps of a later answer stand behind those of the first. */
	fixture_init(&fixture);
	fixture_addr(&fixture, 0x300, true, fixture_row(&fixture, 0x300, 0x310, 7, 24),
		     MSG_RES_CODE);
	fixture_last(&fixture)->cfa = fixture_expr(&fixture, 0, MSG_RULE_EXPR_VAL, &ops[2], 1);
	/* Nobody asked for this one, and it contradicts. */
	fixture_row(&fixture, 0x100, 0x200, 7, 48);
	assert_int_equal(fixture_put(&fixture, r), 0);
	assert_int_equal(rows_count(r), 3);
	assert_int_equal(find(r, 0x300, true, &row, &flags), ROWS_KNOWN);
	assert_memory_equal(&row.ops[row.row->cfa.off], &ops[2], sizeof(ops[2]));
	/* The range still belongs to the first. */
	assert_int_equal(find(r, 0x1f0, false, &row, &flags), ROWS_KNOWN);
	assert_int_equal(row.row->cfa.kind, MSG_RULE_EXPR_VAL);
}

static void a_plain_row_is_told_from_the_others(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	struct row row;
	uint32_t flags;
	uint64_t at;

	assert_int_equal(rows_new(&r), 0);
	fixture_init(&fixture);
	for (at = 0x100; at < 0x190; at += 0x10) {
		fixture_addr(&fixture, at, true, fixture_row(&fixture, at, at + 0x10, 7, 64),
			     MSG_RES_CODE | MSG_RES_AFTER_CALL);
		fixture_rule(&fixture, 6, MSG_RULE_CFA_MEM, 0, -16);
		fixture_rule(&fixture, 3, MSG_RULE_CFA_MEM, 0, -56);
		switch (at) {
		case 0x110:
			fixture_rule(&fixture, 12, MSG_RULE_REG_VAL, 3, 0);
			break;
		case 0x120:
			fixture_rule(&fixture, 12, MSG_RULE_CFA_MEM, 0, INT32_MIN);
			break;
		case 0x130:
			fixture_rule(&fixture, 12, MSG_RULE_CFA_MEM, 0, 8);
			break;
		case 0x140:
			fixture_rule(&fixture, 12, MSG_RULE_CFA_MEM, 0, -57);
			break;
		case 0x150:
			fixture_last(&fixture)->flags = MSG_ROW_SIGNAL;
			break;
		case 0x160:
			fixture_last(&fixture)->cfa.kind = MSG_RULE_REG_MEM;
			break;
		case 0x170:
			fixture_last(&fixture)->ra.off = 0;
			break;
		case 0x180:
			fixture_last(&fixture)->cfa.reg = 3;
			break;
		default:
			break;
		}
	}
	assert_int_equal(fixture_put(&fixture, r), 0);
	for (int is_return = 0; is_return < 2; is_return++) {
		assert_int_equal(find(r, 0x100, is_return, &row, &flags), ROWS_KNOWN);
		assert_non_null(row.plain);
		assert_false(row.plain->cfa_is_fp);
		assert_int_equal(row.plain->cfa_off, 64);
		assert_int_equal(row.plain->nslots, 7);
		assert_int_equal(row.plain->ra_slot, 6);
		assert_int_equal(row.plain->saved, 1 << 6 | 1 << 3);
		assert_int_equal(row.flags, 0);
		assert_int_equal(row.plain->fp_slot, 5);
		assert_int_equal(row.row->start, 0x100);
		assert_int_equal(row.row->nrules, 2);
		for (at = 0x110; at < 0x190; at += 0x10) {
			assert_int_equal(find(r, at, is_return, &row, &flags), ROWS_KNOWN);
			assert_null(row.plain);
			assert_non_null(row.row);
		}
	}
	/* A return address that follows no call is looked at closely. */
	fixture_init(&fixture);
	fixture_addr(&fixture, 0x201, true, fixture_row(&fixture, 0x200, 0x210, 7, 64), MSG_RES_CODE);
	assert_int_equal(fixture_put(&fixture, r), 0);
	assert_int_equal(find(r, 0x201, true, &row, &flags), ROWS_KNOWN);
	assert_null(row.plain);
	assert_int_equal(cfa_off(&row), 64);
	assert_int_equal(find(r, 0x201, false, &row, &flags), ROWS_KNOWN);
	assert_non_null(row.plain);
}

static void an_answer_that_points_outside_itself_is_refused(void **state UNUSED)
{
	for (int fault = 0; fault < 13; fault++) {
		CLEANUP(rows_freep) struct rows *r = NULL;
		const struct msg_op op = { MSG_OP_REG, 7, 0 };
		struct msg_row *row;
		struct row found;
		uint32_t flags;

		assert_int_equal(rows_new(&r), 0);
		fixture_init(&fixture);
		fixture_addr(&fixture, 0x100, true, fixture_row(&fixture, 0x100, 0x200, 7, 16),
			     MSG_RES_CODE);
		fixture_rule(&fixture, 6, MSG_RULE_CFA_MEM, 0, -16);
		row = fixture_last(&fixture);
		row->cfa = fixture_expr(&fixture, 0, MSG_RULE_EXPR_VAL, &op, 1);
		switch (fault) {
		case 0:
			fixture.results[0].row = 1;
			break;
		case 1:
			row->first_rule = 1;
			break;
		case 2:
			row->nrules = MSG_RULES_MAX + 1;
			break;
		case 3:
			row->cfa.off = 1;
			break;
		case 4:
			row->cfa.off = -1;
			break;
		case 5:
			row->cfa.n = MSG_EXPR_MAX + 1;
			break;
		case 6:
			row->cfa.n = 0;
			break;
		case 7:
			row->ra.kind = MSG_RULE_KIND_COUNT;
			break;
		case 8:
			fixture.rules[0].target = ABI_REGS_MAX;
			break;
		case 9:
			fixture.rules[0].reg = 255;
			break;
		case 10:
			row->end = row->start;
			break;
		case 11:
			fixture.answer.nresults = 0;
			break;
		default:
			row->first_rule = UINT32_MAX;
			break;
		}
		assert_int_equal(rows_put(r, fixture.addrs, 1, &fixture.answer), -EBADMSG);
		assert_int_equal(rows_count(r), 0);
		assert_int_equal(find(r, 0x100, true, &found, &flags), ROWS_UNKNOWN);
	}
}

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/*
 * The truth is a function of the offset: unit u = offset / 16 has a row with CFA offset 8 * (u + 1),
 * or none when u % 5 == 0, and is no plain one when u % 3 == 0; answers bring it, and up to two
 * neighbours, in any order.
 */
enum { UNITS = 4096 };

static int truth_row(uint64_t u)
{
	int i;

	if (u % 5 == 0 || u >= UNITS)
		return FIXTURE_NO_ROW;
	i = fixture_row(&fixture, u * 16, u * 16 + 16, 7, (int32_t)(8 * (u + 1)));
	for (uint64_t k = 0; k < u % 4; k++)
		fixture_rule(&fixture, (uint8_t)(12 + k), MSG_RULE_CFA_MEM, 0,
			     (int32_t)(-16 - 8 * (int64_t)k));
	fixture_last(&fixture)->flags = u % 3 == 0 ? MSG_ROW_END : 0;
	return i;
}

static void expect_truth(const struct row *row, uint64_t offset, bool is_return, uint32_t flags)
{
	uint64_t u = offset / 16;

	assert_int_equal(!!(flags & MSG_RES_ROW), u % 5 != 0);
	if (!(flags & MSG_RES_ROW))
		return;
	assert_int_equal(cfa_off(row), 8 * (u + 1));
	assert_int_equal(!row->plain, u % 3 == 0 || (is_return && !(flags & MSG_RES_AFTER_CALL)));
	assert_int_equal(row->row->start, u * 16);
	assert_int_equal(row->row->nrules, u % 4);
	for (uint64_t k = 0; k < u % 4; k++)
		assert_int_equal(row->rules[k].off, -16 - 8 * (int64_t)k);
	if (row->plain)
		assert_int_equal(row->plain->saved, 0x7000 & ((1 << (12 + u % 4)) - 1));
}

static void random_answers_agree_with_what_was_sent(void **state UNUSED)
{
	static bool asked[UNITS * 16][2], sent[UNITS];
	CLEANUP(rows_freep) struct rows *r = NULL;
	uint64_t seed = 7;
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	for (int round = 0; round < 3000; round++) {
		fixture_init(&fixture);
		for (uint64_t n = 1 + random_next(&seed) % 20; n > 0; n--) {
			uint64_t offset = random_next(&seed) % (UNITS * 16), u = offset / 16;
			bool is_return = random_next(&seed) % 2;

			fixture_addr(&fixture, offset, is_return, truth_row(u),
				     MSG_RES_CODE | (offset % 3 ? 0u : MSG_RES_AFTER_CALL));
			asked[offset][is_return] = true;
			sent[u] = true;
			for (uint64_t k = random_next(&seed) % 3; k > 0; k--)
				if (truth_row(u + k) != FIXTURE_NO_ROW)
					sent[u + k] = true;
		}
		assert_int_equal(fixture_put(&fixture, r), 0);
		for (int look = 0; look < 200; look++) {
			uint64_t offset = random_next(&seed) % (UNITS * 16), u = offset / 16;
			bool is_return = random_next(&seed) % 2;
			bool known = asked[offset][is_return] ||
				     (!is_return && sent[u] && u % 5 != 0);

			assert_int_equal(find(r, offset, is_return, &row, &flags),
					 known ? ROWS_KNOWN : ROWS_UNKNOWN);
			if (!known)
				continue;
			expect_truth(&row, offset, is_return, flags);
			if (asked[offset][is_return])
				assert_int_equal(!!(flags & MSG_RES_AFTER_CALL),
						 is_return || asked[offset][0] ? offset % 3 == 0 :
										 0);
		}
	}
	assert_true(rows_count(r) <= UNITS);
	assert_true(rows_bytes(r) > rows_count(r) * sizeof(struct msg_row));
}

static void a_file_whose_rows_are_endless_stays_within_its_limit(void **state UNUSED)
{
	CLEANUP(rows_freep) struct rows *r = NULL;
	size_t largest = 0, evictions = 0, last = 0;
	struct row row;
	uint32_t flags;

	assert_int_equal(rows_new(&r), 0);
	for (uint64_t round = 0; round < 2000; round++) {
		uint64_t base = round * 0x100000;

		fixture_init(&fixture);
		for (uint64_t i = 0; i < 100; i++) {
			fixture_addr(&fixture, base + i * 16, true,
				     fixture_row(&fixture, base + i * 16, base + i * 16 + 16, 7,
						 16),
				     MSG_RES_CODE);
			for (uint8_t k = 0; k < 6; k++)
				fixture_rule(&fixture, k, MSG_RULE_CFA_MEM, 0, -8 * k);
		}
		assert_int_equal(fixture_put(&fixture, r), 0);
		assert_int_equal(find(r, base + 99 * 16, true, &row, &flags), ROWS_KNOWN);
		assert_true(flags & MSG_RES_ROW);
		evictions += rows_count(r) < last;
		last = rows_count(r);
		largest = MAX(largest, rows_bytes(r));
	}
	assert_true(evictions > 0);
	assert_true(largest < 2 * (size_t)ROWS_BYTES_MAX + (1 << 20));
}

static void a_failed_allocation_stores_nothing(void **state UNUSED)
{
	int err = -ENOMEM;

	for (long nth = 1; err; nth++) {
		CLEANUP(rows_freep) struct rows *r = NULL;
		struct row row;
		uint32_t flags;

		assert_int_equal(rows_new(&r), 0);
		fixture_init(&fixture);
		for (uint64_t i = 1; i < 40; i++)
			fixture_addr(&fixture, i * 16, true, truth_row(i), MSG_RES_CODE);
		alloc_fail_nth(nth);
		err = fixture_put(&fixture, r);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_int_equal(rows_count(r) > 0, err == 0);
		for (uint64_t i = 1; i < 40; i++) {
			assert_int_equal(find(r, i * 16, true, &row, &flags),
					 err ? ROWS_UNKNOWN : ROWS_KNOWN);
			assert_true(!err || find(r, i * 16, false, &row, &flags) == ROWS_UNKNOWN);
		}
		assert_true(nth < 100);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_cache_knows_nothing),
		cmocka_unit_test(
			a_row_answers_for_interrupted_pcs_of_its_range_but_not_for_returns),
		cmocka_unit_test(a_row_that_was_here_before_is_found_for_a_new_return_address),
		cmocka_unit_test(an_address_without_row_is_known_to_have_none),
		cmocka_unit_test(every_address_of_a_failed_file_is_known_without_a_row),
		cmocka_unit_test(the_same_row_sent_twice_is_kept_once),
		cmocka_unit_test(a_plain_row_is_told_from_the_others),
		cmocka_unit_test(an_answer_that_points_outside_itself_is_refused),
		cmocka_unit_test(random_answers_agree_with_what_was_sent),
		cmocka_unit_test(a_file_whose_rows_are_endless_stays_within_its_limit),
		cmocka_unit_test(a_failed_allocation_stores_nothing),
	};

	return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
