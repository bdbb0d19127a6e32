/*
 * rows_fixture - a symbolizer's answer, written by hand. Everything is bounded by the arrays; a test
 * that needs more fails an assertion.
 */
#ifndef TESTS_UNIT_ROWS_FIXTURE_H
#define TESTS_UNIT_ROWS_FIXTURE_H

#include "agent/rows.h"
#include "symbolizer/msg.h"

enum { FIXTURE_MAX = 512, FIXTURE_NO_ROW = -1 };

struct rows_fixture {
	struct msg_row rows[FIXTURE_MAX];
	struct msg_rule rules[FIXTURE_MAX * 4];
	struct msg_op ops[FIXTURE_MAX * 4];
	struct msg_result results[FIXTURE_MAX];
	struct msg_addr addrs[FIXTURE_MAX];
	struct msg_rows answer;
};

void fixture_init(struct rows_fixture *f);
/* A row over [start, end) with CFA = reg + off and the return address at CFA - 8; its index. */
int fixture_row(struct rows_fixture *f, uint64_t start, uint64_t end, uint8_t reg, int32_t off);
/* A rule of the last row. */
void fixture_rule(struct rows_fixture *f, uint8_t target, enum msg_rule_kind kind, uint8_t reg,
		  int32_t off);
/* Steps; the rule's `off` and `n` for them. */
struct msg_rule fixture_expr(struct rows_fixture *f, uint8_t target, enum msg_rule_kind kind,
			     const struct msg_op *ops, uint32_t n);
void fixture_expr_rule(struct rows_fixture *f, struct msg_rule rule);
struct msg_row *fixture_last(struct rows_fixture *f);
/* What is known of one address; `row` may be FIXTURE_NO_ROW. */
void fixture_addr(struct rows_fixture *f, uint64_t offset, bool is_return, int row, uint32_t flags);
MUST_USE int fixture_put(struct rows_fixture *f, struct rows *r);

#endif
