#include "tests/unit/rows_fixture.h"

#include <assert.h>
#include <string.h>

void fixture_init(struct rows_fixture *f)
{
	memset(&f->answer, 0, sizeof(f->answer));
	f->answer.rows = f->rows;
	f->answer.rules = f->rules;
	f->answer.ops = f->ops;
	f->answer.results = f->results;
}

int fixture_row(struct rows_fixture *f, uint64_t start, uint64_t end, uint8_t reg, int32_t off)
{
	assert(f->answer.nrows < ARRAY_SIZE(f->rows));
	f->rows[f->answer.nrows] = (struct msg_row){
		.start = start,
		.end = end,
		.cfa = { .kind = MSG_RULE_REG_VAL, .reg = reg, .off = off },
		.ra = { .target = 16, .kind = MSG_RULE_CFA_MEM, .off = -8 },
		.first_rule = f->answer.nrules,
	};
	return (int)f->answer.nrows++;
}

struct msg_row *fixture_last(struct rows_fixture *f)
{
	assert(f->answer.nrows > 0);
	return &f->rows[f->answer.nrows - 1];
}

void fixture_expr_rule(struct rows_fixture *f, struct msg_rule rule)
{
	assert(f->answer.nrules < ARRAY_SIZE(f->rules));
	f->rules[f->answer.nrules++] = rule;
	fixture_last(f)->nrules++;
}

void fixture_rule(struct rows_fixture *f, uint8_t target, enum msg_rule_kind kind, uint8_t reg,
		  int32_t off)
{
	fixture_expr_rule(f, (struct msg_rule){ target, (uint8_t)kind, reg, 0, off });
}

struct msg_rule fixture_expr(struct rows_fixture *f, uint8_t target, enum msg_rule_kind kind,
			     const struct msg_op *ops, uint32_t n)
{
	struct msg_rule rule = { target, (uint8_t)kind, 0, (uint8_t)n, (int32_t)f->answer.nops };

	assert(f->answer.nops + n <= ARRAY_SIZE(f->ops));
	memcpy(&f->ops[f->answer.nops], ops, n * sizeof(*ops));
	f->answer.nops += n;
	return rule;
}

void fixture_addr(struct rows_fixture *f, uint64_t offset, bool is_return, int row, uint32_t flags)
{
	uint32_t i = f->answer.nresults++;

	assert(i < ARRAY_SIZE(f->results));
	f->addrs[i] = (struct msg_addr){ offset, is_return ? MSG_ADDR_RETURN : 0 };
	f->results[i].flags = flags | (row >= 0 ? (uint32_t)MSG_RES_ROW : 0);
	f->results[i].row = row >= 0 ? (uint32_t)row : 0;
}

int fixture_put(struct rows_fixture *f, struct rows *r)
{
	return rows_put(r, f->addrs, f->answer.nresults, &f->answer);
}
