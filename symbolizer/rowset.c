#include "symbolizer/rowset.h"

#include <string.h>

#include "symbolizer/expr.h"
#include "symbolizer/mem.h"

void rowset_fini(struct rowset *s)
{
	msg_rows_fini(&s->msg);
	*s = (struct rowset){ 0 };
}

static bool is_callee_saved(uint32_t reg)
{
	return reg == CFI_RBX || reg == CFI_RBP || (reg >= 12 && reg <= 15);
}

static bool set_off(struct msg_rule *rule, enum msg_rule_kind kind, uint32_t reg, int64_t off)
{
	if (off < INT32_MIN || off > INT32_MAX)
		return false;
	rule->kind = (uint8_t)kind;
	rule->reg = (uint8_t)reg;
	rule->off = (int32_t)off;
	return true;
}

/* Appends the steps; one that is only register + n becomes a rule without steps. */
static bool set_steps(struct rowset *s, struct msg_rule *rule, bool is_memory, const struct msg_op *ops,
		      uint32_t nops)
{
	struct msg_rows *m = &s->msg;

	if (!nops || nops > MSG_EXPR_MAX)
		return false;
	if (nops == 1 && ops[0].code == MSG_OP_REG &&
	    set_off(rule, is_memory ? MSG_RULE_REG_MEM : MSG_RULE_REG_VAL, ops[0].reg, ops[0].n))
		return true;
	if (nops > MSG_OPS_MAX - m->nops)
		return false;
	m->ops = mem_grow(m->ops, &s->cap_ops, m->nops + nops, sizeof(*m->ops));
	memcpy(m->ops + m->nops, ops, nops * sizeof(*ops));
	rule->kind = is_memory ? MSG_RULE_EXPR_MEM : MSG_RULE_EXPR_VAL;
	rule->n = (uint8_t)nops;
	rule->off = (int32_t)m->nops;
	m->nops += nops;
	return true;
}

/* DWARF pushes the CFA before a register's expression; `pushes` says whether our reader does. */
static bool set_expression(struct rowset *s, struct msg_rule *rule, const struct cfi_rule *from, bool pushes)
{
	bool is_memory = from->kind == CFI_EXPRESSION;
	struct msg_op ops[MSG_EXPR_MAX + 1];
	uint32_t n;

	if (pushes) {
		n = expr_compile(from->expr, 1, ops);
		return set_steps(s, rule, is_memory, ops, n);
	}
	n = expr_compile(from->expr, 0, ops);
	if (n)
		return set_steps(s, rule, is_memory, ops, n);
	ops[0] = (struct msg_op){ .code = MSG_OP_CFA };
	n = expr_compile(from->expr, 1, ops + 1);
	return n && set_steps(s, rule, is_memory, ops, n + 1);
}

static bool set_cfa(struct rowset *s, struct msg_rule *rule, const struct cfi_rule *from)
{
	struct msg_op ops[MSG_EXPR_MAX];
	uint32_t n;

	if (from->kind == CFI_REGISTER)
		return set_off(rule, MSG_RULE_REG_VAL, from->reg, from->off);
	if (from->kind != CFI_VAL_EXPRESSION)
		return false;
	n = expr_compile(from->expr, 0, ops);
	for (uint32_t i = 0; i < n; i++)
		if (ops[i].code == MSG_OP_CFA)
			return false;
	return set_steps(s, rule, false, ops, n);
}

/* False: it cannot be said. */
static bool set_register(struct rowset *s, struct msg_rule *rule, const struct cfi_rule *from, bool is_ra)
{
	switch (from->kind) {
	case CFI_UNDEFINED:
		rule->kind = MSG_RULE_UNDEFINED;
		return true;
	case CFI_SAME:
		rule->kind = MSG_RULE_SAME;
		return !is_ra;
	case CFI_OFFSET:
		return set_off(rule, MSG_RULE_CFA_MEM, 0, from->off);
	case CFI_VAL_OFFSET:
		return set_off(rule, MSG_RULE_CFA_VAL, 0, from->off);
	case CFI_REGISTER:
		return (!is_ra || from->reg != CFI_RIP) && set_off(rule, MSG_RULE_REG_VAL, from->reg, 0);
	case CFI_EXPRESSION:
	case CFI_VAL_EXPRESSION:
		return set_expression(s, rule, from, !is_ra);
	case CFI_UNSPECIFIED:
	default:
		return false;
	}
}

static void add_rules(struct rowset *s, struct msg_row *row, const struct cfi_state *state)
{
	struct msg_rows *m = &s->msg;

	row->first_rule = m->nrules;
	for (uint32_t reg = 0; reg < CFI_RIP; reg++) {
		const struct cfi_rule *from = &state->regs[reg];
		struct msg_rule rule = { .target = (uint8_t)reg };

		if (from->kind == CFI_UNSPECIFIED || (from->kind == CFI_SAME && is_callee_saved(reg)))
			continue;
		if (!set_register(s, &rule, from, false))
			rule = (struct msg_rule){ .target = (uint8_t)reg, .kind = MSG_RULE_UNDEFINED };
		m->rules = mem_grow(m->rules, &s->cap_rules, m->nrules + 1, sizeof(*m->rules));
		m->rules[m->nrules++] = rule;
		row->nrules++;
	}
}

static bool same_rule(const struct msg_rule *a, const struct msg_rule *b)
{
	return a->kind == b->kind && a->kind != MSG_RULE_EXPR_MEM && a->kind != MSG_RULE_EXPR_VAL &&
	       a->target == b->target && a->reg == b->reg && a->off == b->off;
}

static bool same_row(const struct msg_rows *m, const struct msg_row *a, const struct msg_row *b)
{
	if (a->end != b->start || a->flags != b->flags || a->nrules != b->nrules ||
	    !same_rule(&a->cfa, &b->cfa) || !same_rule(&a->ra, &b->ra))
		return false;
	for (uint32_t i = 0; i < a->nrules; i++)
		if (!same_rule(&m->rules[a->first_rule + i], &m->rules[b->first_rule + i]))
			return false;
	return true;
}

static uint32_t push_row(struct rowset *s, const struct msg_row *row)
{
	struct msg_rows *m = &s->msg;

	m->rows = mem_grow(m->rows, &s->cap_rows, m->nrows + 1, sizeof(*m->rows));
	m->rows[m->nrows] = *row;
	return m->nrows++;
}

uint32_t rowset_add(struct rowset *s, uint64_t start, uint64_t end, uint8_t flags,
		    const struct cfi_state *state, uint32_t before)
{
	struct msg_row row = { .start = start, .end = end, .flags = flags, .ra.target = CFI_RIP };
	struct msg_rows *m = &s->msg;
	uint32_t nrules = m->nrules, nops = m->nops;

	if (start >= end || m->nrows == MSG_ROWS_MAX)
		return UINT32_MAX;
	if (state->regs[CFI_RIP].kind == CFI_UNDEFINED)
		row.flags |= MSG_ROW_END;
	if ((!set_cfa(s, &row.cfa, &state->cfa) && !(row.flags & MSG_ROW_END)) ||
	    !set_register(s, &row.ra, &state->regs[CFI_RIP], true)) {
		m->nops = nops;
		return UINT32_MAX;
	}
	add_rules(s, &row, state);
	if (before < m->nrows && same_row(m, &m->rows[before], &row)) {
		m->rows[before].end = end;
		m->nrules = nrules;
		return before;
	}
	return push_row(s, &row);
}

uint32_t rowset_add_end(struct rowset *s, uint64_t start, uint64_t end)
{
	struct msg_row row = { .start = start, .end = end, .flags = MSG_ROW_END, .ra.target = CFI_RIP };

	if (start >= end || s->msg.nrows == MSG_ROWS_MAX)
		return UINT32_MAX;
	return push_row(s, &row);
}

/*
 * struct ucontext begins with uc_flags and uc_link (8 bytes each) and uc_stack (24); then struct
 * sigcontext: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
 */
uint32_t rowset_add_sigreturn(struct rowset *s, uint64_t start, uint64_t end)
{
	static const uint8_t order[] = { 8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16 };
	static const uint8_t cfa[] = { 0x77, 0xa0, 0x01, 0x06 }; /* DW_OP_breg7 160; DW_OP_deref: rsp */
	struct cfi_state state = { .cfa = { .kind = CFI_VAL_EXPRESSION, .expr = { cfa, sizeof(cfa) } } };
	uint8_t at[ARRAY_SIZE(order)][3];

	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		unsigned int off = 40 + 8 * (unsigned int)i;

		at[i][0] = 0x77; /* DW_OP_breg7 and the offset as two bytes of SLEB128 */
		at[i][1] = (uint8_t)(0x80 | (off & 0x7f));
		at[i][2] = (uint8_t)(off >> 7);
		if (order[i] == CFI_RSP)
			continue; /* it is the CFA */
		state.regs[order[i]] = (struct cfi_rule){ .kind = CFI_EXPRESSION, .expr = { at[i], 3 } };
	}
	return rowset_add(s, start, end, MSG_ROW_SIGNAL, &state, UINT32_MAX);
}
