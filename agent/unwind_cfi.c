#include "agent/unwind_arch.h"

enum { PAGE_SHIFT = 12 };

/* Whether a byte of [off, off + len) of the window could not be read. */
static bool in_hole(const struct unwind_window *w, uint64_t off, uint64_t len)
{
	uint64_t page = w->address >> PAGE_SHIFT;
	uint64_t first = ((w->address + off) >> PAGE_SHIFT) - page;
	uint64_t last = ((w->address + off + len - 1) >> PAGE_SHIFT) - page;

	/* A record is at most 64 KiB, so 64 bits are more pages than it has. */
	for (uint64_t i = first; i <= last && i < 64; i++)
		if (w->holes >> i & 1)
			return true;
	return false;
}

const uint8_t *unwind_bytes(struct unwind_cursor *c, uint64_t addr, uint64_t len)
{
	for (uint32_t i = 0; i < c->in->nwindows; i++) {
		const struct unwind_window *w = &c->in->windows[i];

		if (unwind_in_window(w, addr, len) && !in_hole(w, addr - w->address, len)) {
			c->window = w;
			c->used |= 1ull << i;
			return w->data + (addr - w->address);
		}
	}
	return NULL;
}

static enum unwind_step read_missed(struct unwind_cursor *c, uint64_t addr, uint32_t size,
				    bool elsewhere)
{
	if (addr < UNWIND_USER_MIN || addr > UNWIND_USER_MAX - size)
		return UNWIND_STEP_BAD;
	if (!elsewhere && !(c->in->flags & (ABI_F_CUT | ABI_F_PART_LOST)) &&
	    addr - c->base >= UNWIND_REACH)
		return UNWIND_STEP_BAD;
	c->missing = addr;
	return UNWIND_STEP_TRUNCATED;
}

enum unwind_step unwind_read(struct unwind_cursor *c, uint64_t addr, uint32_t size, bool elsewhere,
			     uint64_t *ret)
{
	const uint8_t *p = unwind_bytes(c, addr, size);

	if (!p)
		return read_missed(c, addr, size, elsewhere);
	*ret = unwind_load(p, size);
	return UNWIND_STEP_OK;
}

/* 0 when none waits; and none does for code that called what led to it (Go, C, Go again, C again). */
static uint64_t take_goroutine(struct unwind_cursor *c)
{
	uint64_t sp = c->goroutine_gone ? 0 : c->in->goroutine_sp;

	c->goroutine_gone = true;
	return sp;
}

static enum unwind_step reg_value(struct unwind_cursor *c, uint8_t reg, uint64_t *ret)
{
	if (reg == MSG_REG_GOROUTINE_SP) {
		/* None waits for a thread that has given its goroutine back; or it is not known that this is g0. */
		bool none = !c->goroutine_gone && c->in->flags & ABI_F_ON_G0;

		*ret = take_goroutine(c);
		if (*ret)
			return UNWIND_STEP_OK;
		c->missing = 0;
		return none ? UNWIND_STEP_END : UNWIND_STEP_TRUNCATED;
	}
	if (reg == MSG_REG_GOROUTINE_PC) {
		*ret = c->in->goroutine_pc;
		return UNWIND_STEP_OK;
	}
	if (reg >= UNWIND_NREGS)
		return UNWIND_STEP_BAD;
	if (!(c->valid >> reg & 1)) {
		c->wants_skipped |= c->skipped >> reg & 1;
		return c->lost >> reg & 1 ? UNWIND_STEP_TRUNCATED : UNWIND_STEP_BAD;
	}
	*ret = c->regs[reg];
	return UNWIND_STEP_OK;
}

/* ---- expressions ---- */

struct machine {
	struct unwind_cursor *c;
	uint64_t cfa;
	bool has_cfa;
	bool elsewhere;
	uint32_t depth;
	uint64_t stack[MSG_EXPR_DEPTH +
		       1]; /* the CFA that is pushed first, and what the contract allows */
};

static bool push(struct machine *m, uint64_t v)
{
	if (m->depth == ARRAY_SIZE(m->stack))
		return false;
	m->stack[m->depth++] = v;
	return true;
}

/* Two values become one. False for a division by zero. */
static bool binary(uint8_t code, uint64_t a, uint64_t b, uint64_t *ret)
{
	int64_t sa = (int64_t)a, sb = (int64_t)b;

	/* clang-format off */
	switch (code) {
	case MSG_OP_ADD: *ret = a + b; return true;
	case MSG_OP_SUB: *ret = a - b; return true;
	case MSG_OP_MUL: *ret = a * b; return true;
	case MSG_OP_DIV: /* signed; by -1 apart, because INT64_MIN / -1 traps */
		if (b != 0)
			*ret = sb == -1 ? 0 - a : (uint64_t)(sa / sb);
		return b != 0;
	case MSG_OP_MOD: /* unsigned, as every consumer has it */
		if (b != 0)
			*ret = a % b;
		return b != 0;
	case MSG_OP_AND: *ret = a & b; return true;
	case MSG_OP_OR: *ret = a | b; return true;
	case MSG_OP_XOR: *ret = a ^ b; return true;
	case MSG_OP_SHL: *ret = b < 64 ? a << b : 0; return true;
	case MSG_OP_SHR: *ret = b < 64 ? a >> b : 0; return true;
	case MSG_OP_SHRA: *ret = (uint64_t)(sa >> MIN(b, (uint64_t)63)); return true;
	case MSG_OP_EQ: *ret = a == b; return true;
	case MSG_OP_NE: *ret = a != b; return true;
	case MSG_OP_LT: *ret = sa < sb; return true;
	case MSG_OP_LE: *ret = sa <= sb; return true;
	case MSG_OP_GT: *ret = sa > sb; return true;
	case MSG_OP_GE: *ret = sa >= sb; return true;
	default: return false;
	}
	/* clang-format on */
}

/* Stack shuffles; false when the entries are not there. */
static bool shuffle(struct machine *m, const struct msg_op *op)
{
	uint64_t *top = m->stack + m->depth; /* the first free one */
	uint64_t keep;

	switch (op->code) {
	case MSG_OP_DUP:
		return m->depth >= 1 && push(m, top[-1]);
	case MSG_OP_OVER:
		return m->depth >= 2 && push(m, top[-2]);
	case MSG_OP_PICK:
		return op->n >= 0 && (uint64_t)op->n < m->depth && push(m, top[-1 - op->n]);
	case MSG_OP_DROP:
		if (m->depth < 1)
			return false;
		m->depth--;
		return true;
	case MSG_OP_SWAP:
		if (m->depth < 2)
			return false;
		keep = top[-1];
		top[-1] = top[-2];
		top[-2] = keep;
		return true;
	case MSG_OP_ROT: /* the top becomes the third */
		if (m->depth < 3)
			return false;
		keep = top[-1];
		top[-1] = top[-2];
		top[-2] = top[-3];
		top[-3] = keep;
		return true;
	default:
		return false;
	}
}

/* Operations on the top entry alone. */
static enum unwind_step unary(struct machine *m, const struct msg_op *op)
{
	uint64_t *top = &m->stack[m->depth - 1];

	switch (op->code) {
	case MSG_OP_DEREF:
		if (op->reg != 1 && op->reg != 2 && op->reg != 4 && op->reg != 8)
			return UNWIND_STEP_BAD;
		return unwind_read(m->c, *top, op->reg, m->elsewhere, top);
	case MSG_OP_ADD_CONST:
		*top += (uint64_t)op->n;
		break;
	case MSG_OP_NEG:
		*top = 0 - *top;
		break;
	case MSG_OP_NOT:
		*top = ~*top;
		break;
	case MSG_OP_ABS:
		*top = (int64_t)*top < 0 ? 0 - *top : *top;
		break;
	default:
		return UNWIND_STEP_BAD;
	}
	return UNWIND_STEP_OK;
}

/* One operation that is no jump. */
static enum unwind_step operate(struct machine *m, const struct msg_op *op)
{
	enum unwind_step step;
	uint64_t v;

	switch (op->code) {
	case MSG_OP_CONST:
		return push(m, (uint64_t)op->n) ? UNWIND_STEP_OK : UNWIND_STEP_BAD;
	case MSG_OP_REG:
		if (op->reg == MSG_REG_GOROUTINE_SP) /* 0 for none */
			return push(m, take_goroutine(m->c) + (uint64_t)op->n) ? UNWIND_STEP_OK : UNWIND_STEP_BAD;
		step = reg_value(m->c, op->reg, &v);
		if (step != UNWIND_STEP_OK)
			return step;
		return push(m, v + (uint64_t)op->n) ? UNWIND_STEP_OK : UNWIND_STEP_BAD;
	case MSG_OP_CFA:
		return m->has_cfa && push(m, m->cfa) ? UNWIND_STEP_OK : UNWIND_STEP_BAD;
	case MSG_OP_DUP:
	case MSG_OP_DROP:
	case MSG_OP_OVER:
	case MSG_OP_SWAP:
	case MSG_OP_ROT:
	case MSG_OP_PICK:
		return shuffle(m, op) ? UNWIND_STEP_OK : UNWIND_STEP_BAD;
	case MSG_OP_DEREF:
	case MSG_OP_ADD_CONST:
	case MSG_OP_NEG:
	case MSG_OP_NOT:
	case MSG_OP_ABS:
		return m->depth >= 1 ? unary(m, op) : UNWIND_STEP_BAD;
	default:
		if (m->depth < 2 ||
		    !binary(op->code, m->stack[m->depth - 2], m->stack[m->depth - 1], &v))
			return UNWIND_STEP_BAD;
		m->depth--;
		m->stack[m->depth - 1] = v;
		return UNWIND_STEP_OK;
	}
}

/* Jumps go forward only, so there are at most n steps. */
static enum unwind_step evaluate(struct machine *m, const struct msg_op *ops, uint32_t n,
				 uint64_t *ret)
{
	enum unwind_step step;
	uint32_t i = 0;

	while (i < n) {
		const struct msg_op *op = &ops[i];
		bool jump = op->code == MSG_OP_SKIP;

		if (op->code == MSG_OP_BRANCH) {
			if (m->depth < 1)
				return UNWIND_STEP_BAD;
			jump = m->stack[--m->depth] != 0;
		} else if (op->code != MSG_OP_SKIP) {
			step = operate(m, op);
			if (step != UNWIND_STEP_OK)
				return step;
		}
		if (jump && (op->n < 1 || op->n > (int64_t)(n - i)))
			return UNWIND_STEP_BAD;
		i += jump ? (uint32_t)op->n : 1;
	}
	if (m->depth < 1)
		return UNWIND_STEP_BAD;
	*ret = m->stack[m->depth - 1];
	return UNWIND_STEP_OK;
}

/* ---- rules ---- */

/* Where a row's values are looked for. */
struct place {
	const struct row *row;
	uint64_t cfa;
	bool has_cfa;	/* not while the CFA itself is computed */
	bool elsewhere; /* the row may lead to another stack */
};

static enum unwind_step expression(struct unwind_cursor *c, const struct place *p,
				   const struct msg_rule *rule, uint64_t *ret)
{
	struct machine m = {
		.c = c, .cfa = p->cfa, .has_cfa = p->has_cfa, .elsewhere = p->elsewhere
	};

	/* DWARF 5, 6.4.2.3: the CFA is on the stack before a register's expression begins. */
	if (p->has_cfa && !push(&m, p->cfa))
		return UNWIND_STEP_BAD;
	return evaluate(&m, p->row->ops + rule->off, rule->n, ret);
}

/* END for an undefined value. */
static enum unwind_step rule_value(struct unwind_cursor *c, const struct place *p,
				   const struct msg_rule *rule, uint64_t *ret)
{
	uint64_t v = p->cfa, off = (uint64_t)(int64_t)rule->off;
	enum unwind_step step = UNWIND_STEP_OK;

	switch (rule->kind) {
	case MSG_RULE_UNDEFINED:
		return UNWIND_STEP_END;
	case MSG_RULE_SAME:
		return reg_value(c, rule->target, ret);
	case MSG_RULE_CFA_MEM:
	case MSG_RULE_CFA_VAL:
		if (!p->has_cfa)
			return UNWIND_STEP_BAD;
		break;
	case MSG_RULE_REG_MEM:
	case MSG_RULE_REG_VAL:
		step = reg_value(c, rule->reg, &v);
		break;
	case MSG_RULE_EXPR_MEM:
	case MSG_RULE_EXPR_VAL:
		step = expression(c, p, rule, &v);
		off = 0;
		break;
	default:
		return UNWIND_STEP_BAD;
	}
	if (step != UNWIND_STEP_OK)
		return step;
	if (rule->kind == MSG_RULE_CFA_MEM || rule->kind == MSG_RULE_REG_MEM ||
	    rule->kind == MSG_RULE_EXPR_MEM)
		return unwind_read(c, v + off, 8, p->elsewhere, ret);
	*ret = v + off;
	return UNWIND_STEP_OK;
}

static bool from_sp(const struct row *row)
{
	return row->row->cfa.kind == MSG_RULE_REG_VAL && row->row->cfa.reg == UNWIND_SP;
}

static enum unwind_step find_cfa(struct unwind_cursor *c, struct place *p)
{
	enum unwind_step step;
	uint64_t cfa;

	if (p->row->row->cfa.kind == MSG_RULE_SAME)
		return UNWIND_STEP_BAD;
	step = rule_value(c, p, &p->row->row->cfa, &cfa);
	if (step == UNWIND_STEP_END && p->row->row->cfa.kind == MSG_RULE_REG_VAL) {
		c->floor = c->regs[UNWIND_SP]; /* nobody waits below this system stack */
		return UNWIND_STEP_END;
	}
	if (step != UNWIND_STEP_OK)
		return step == UNWIND_STEP_END ? UNWIND_STEP_BAD : step;
	if (!unwind_is_user(cfa))
		return UNWIND_STEP_BAD;
	p->cfa = cfa;
	p->has_cfa = true;
	return UNWIND_STEP_OK;
}

/*
 * The caller's registers, all from the callee's. One that cannot be had is unknown from here on,
 * and fails only what needs it.
 */
static void restore(struct unwind_cursor *c, struct unwind_cursor *caller, const struct place *p)
{
	caller->regs[UNWIND_SP] = p->cfa;
	caller->valid |= UNWIND_BIT(UNWIND_SP);
	caller->lost &= ~UNWIND_BIT(UNWIND_SP);
	for (uint32_t i = 0; i < p->row->row->nrules; i++) {
		const struct msg_rule *rule = &p->row->rules[i];
		enum unwind_step step;
		uint64_t bit;

		if (rule->target >= UNWIND_NREGS)
			continue;
		step = rule_value(c, p, rule, &caller->regs[rule->target]);
		bit = UNWIND_BIT(rule->target);
		caller->skipped &= ~bit;
		caller->valid = step == UNWIND_STEP_OK ? caller->valid | bit : caller->valid & ~bit;
		caller->lost = step == UNWIND_STEP_TRUNCATED ? caller->lost | bit :
							       caller->lost & ~bit;
	}
}

/* Whether a rule says where the stack pointer is: then it is not the CFA. */
static bool moves_sp(const struct row *row)
{
	for (uint32_t i = 0; i < row->row->nrules; i++)
		if (row->rules[i].target == UNWIND_SP)
			return true;
	return false;
}

enum unwind_step unwind_rules_step(struct unwind_cursor *c, const struct row *row)
{
	struct place p = { .row = row };
	bool is_signal = row->row->flags & MSG_ROW_SIGNAL;
	const uint64_t sp = UNWIND_BIT(UNWIND_SP);
	struct unwind_cursor caller;
	enum unwind_step step;
	uint64_t ra = 0;

	p.elsewhere = is_signal || !from_sp(row);
	step = find_cfa(c, &p);
	if (step != UNWIND_STEP_OK)
		return step;
	step = rule_value(c, &p, &row->row->ra, &ra);
	if (step == UNWIND_STEP_END || (step == UNWIND_STEP_OK && ra == 0 && !is_signal)) {
		c->floor = p.cfa;
		return UNWIND_STEP_END;
	}
	if (step != UNWIND_STEP_OK)
		return step;
	caller = *c;
	restore(c, &caller, &p);
	if (!(caller.valid & sp))
		return caller.lost & sp ? UNWIND_STEP_TRUNCATED : UNWIND_STEP_BAD;
	if (!unwind_is_user(caller.regs[UNWIND_SP]))
		return UNWIND_STEP_BAD;
	step = unwind_advance(&caller, caller.regs[UNWIND_SP], p.elsewhere || moves_sp(row),
			      is_signal);
	if (step != UNWIND_STEP_OK)
		return step;
	caller.regs[UNWIND_PC] = ra;
	caller.valid |= UNWIND_BIT(UNWIND_PC);
	caller.window = c->window;
	caller.missing = c->missing;
	caller.used = c->used;
	caller.wants_skipped = c->wants_skipped;
	*c = caller;
	return UNWIND_STEP_OK;
}
