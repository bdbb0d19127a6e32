#include "symbolizer/expr.h"

#include <dwarf.h>

#include "symbolizer/leb.h"

struct compile {
	struct msg_op *ops;
	uint32_t nops;
	uint32_t at[MSG_EXPR_MAX];	/* byte offset at which each step's operation begins */
	uint32_t jump_to[MSG_EXPR_MAX];	/* byte offset of a jump's target */
};

static bool is_jump(const struct msg_op *op)
{
	return op->code == MSG_OP_SKIP || op->code == MSG_OP_BRANCH;
}

/* Operations without an operand. */
static int plain_code(uint8_t op)
{
	switch (op) {
	case DW_OP_plus: return MSG_OP_ADD;
	case DW_OP_minus: return MSG_OP_SUB;
	case DW_OP_mul: return MSG_OP_MUL;
	case DW_OP_div: return MSG_OP_DIV;
	case DW_OP_mod: return MSG_OP_MOD;
	case DW_OP_and: return MSG_OP_AND;
	case DW_OP_or: return MSG_OP_OR;
	case DW_OP_xor: return MSG_OP_XOR;
	case DW_OP_shl: return MSG_OP_SHL;
	case DW_OP_shr: return MSG_OP_SHR;
	case DW_OP_shra: return MSG_OP_SHRA;
	case DW_OP_neg: return MSG_OP_NEG;
	case DW_OP_not: return MSG_OP_NOT;
	case DW_OP_abs: return MSG_OP_ABS;
	case DW_OP_eq: return MSG_OP_EQ;
	case DW_OP_ne: return MSG_OP_NE;
	case DW_OP_lt: return MSG_OP_LT;
	case DW_OP_le: return MSG_OP_LE;
	case DW_OP_gt: return MSG_OP_GT;
	case DW_OP_ge: return MSG_OP_GE;
	case DW_OP_dup: return MSG_OP_DUP;
	case DW_OP_drop: return MSG_OP_DROP;
	case DW_OP_over: return MSG_OP_OVER;
	case DW_OP_swap: return MSG_OP_SWAP;
	case DW_OP_rot: return MSG_OP_ROT;
	case DW_OP_call_frame_cfa: return MSG_OP_CFA;
	default: return -1;
	}
}

static bool read_constant(uint8_t op, struct bufr *r, int64_t *ret)
{
	switch (op) {
	case DW_OP_lit0 ... DW_OP_lit31: *ret = op - DW_OP_lit0; return true;
	case DW_OP_const1u: *ret = bufr_u8(r); return true;
	case DW_OP_const1s: *ret = (int8_t)bufr_u8(r); return true;
	case DW_OP_const2u: *ret = bufr_u16(r); return true;
	case DW_OP_const2s: *ret = (int16_t)bufr_u16(r); return true;
	case DW_OP_const4u: *ret = bufr_u32(r); return true;
	case DW_OP_const4s: *ret = (int32_t)bufr_u32(r); return true;
	case DW_OP_const8u:
	case DW_OP_const8s: *ret = bufr_i64(r); return true;
	case DW_OP_constu: *ret = (int64_t)bufr_uleb(r); return true;
	case DW_OP_consts: *ret = bufr_sleb(r); return true;
	default: return false;
	}
}

static bool set_reg(struct msg_op *op, uint64_t reg, int64_t off)
{
	*op = (struct msg_op){ .code = MSG_OP_REG, .reg = (uint8_t)reg, .n = off };
	return reg < MSG_REGS_MAX;
}

/* One operation; a jump's distance in bytes stays in n until patch_jumps(). */
static bool compile_one(uint8_t code, struct bufr *r, struct msg_op *op)
{
	int plain = plain_code(code);
	uint64_t reg;

	*op = (struct msg_op){ 0 };
	if (plain >= 0) {
		op->code = (uint8_t)plain;
		return true;
	}
	if (read_constant(code, r, &op->n)) {
		op->code = MSG_OP_CONST;
		return true;
	}
	switch (code) {
	case DW_OP_breg0 ... DW_OP_breg31:
		return set_reg(op, (uint64_t)code - DW_OP_breg0, bufr_sleb(r));
	case DW_OP_bregx:
		reg = bufr_uleb(r);
		return set_reg(op, reg, bufr_sleb(r));
	case DW_OP_deref:
		*op = (struct msg_op){ .code = MSG_OP_DEREF, .reg = 8 };
		return true;
	case DW_OP_deref_size:
		*op = (struct msg_op){ .code = MSG_OP_DEREF, .reg = bufr_u8(r) };
		return true;
	case DW_OP_plus_uconst:
		*op = (struct msg_op){ .code = MSG_OP_ADD_CONST, .n = (int64_t)bufr_uleb(r) };
		return true;
	case DW_OP_pick:
		*op = (struct msg_op){ .code = MSG_OP_PICK, .n = bufr_u8(r) };
		return true;
	case DW_OP_skip:
	case DW_OP_bra:
		op->code = code == DW_OP_skip ? MSG_OP_SKIP : MSG_OP_BRANCH;
		op->n = (int16_t)bufr_u16(r);
		return op->n >= 0;
	default:
		return false;
	}
}

/* Distances from bytes to steps. DW_OP_nop is no step: a jump to it goes to the one after it. */
static bool patch_jumps(struct compile *c, uint32_t end)
{
	for (uint32_t i = 0; i < c->nops; i++) {
		uint32_t to = i + 1;

		if (!is_jump(&c->ops[i]))
			continue;
		if (c->jump_to[i] > end)
			return false;
		while (to < c->nops && c->at[to] < c->jump_to[i])
			to++;
		c->ops[i].n = (int64_t)to - i;
	}
	return true;
}

uint32_t expr_compile(struct bytes expr, unsigned int depth, struct msg_op *ops)
{
	struct compile c = { .ops = ops };
	struct bufr r;

	if (expr.len > UINT16_MAX)
		return 0;
	bufr_init(&r, expr.p, expr.len);
	while (bufr_left(&r)) {
		uint32_t at = (uint32_t)(r.p - expr.p);
		uint8_t code = bufr_u8(&r);

		if (code == DW_OP_nop)
			continue;
		if (c.nops == MSG_EXPR_MAX || !compile_one(code, &r, &ops[c.nops]) || bufr_err(&r))
			return 0;
		c.at[c.nops] = at;
		if (is_jump(&ops[c.nops]))
			c.jump_to[c.nops] = (uint32_t)(r.p - expr.p) + (uint32_t)ops[c.nops].n;
		c.nops++;
	}
	if (!patch_jumps(&c, (uint32_t)expr.len) || !msg_expr_valid(ops, c.nops, depth))
		return 0;
	return c.nops;
}
