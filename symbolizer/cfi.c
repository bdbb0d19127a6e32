#include "symbolizer/cfi.h"

#include <dwarf.h>

#include "symbolizer/leb.h"

struct run {
	const struct cie *cie;
	const struct cfi_state *initial;	/* NULL while the CIE's own instructions run */
	struct cfi_state now;
	struct cfi_state remembered[CFI_STATES_MAX];
	uint32_t nremembered;
	uint64_t loc;
	const struct fde *fde;
	cfi_row_fn *fn;
	void *arg;
	bool stopped;
};

/* A rule to write to; registers that nobody asks for get one that nobody reads. */
static struct cfi_rule *rule_of(struct run *run, uint64_t reg)
{
	static struct cfi_rule ignored;

	return reg < CFI_NREGS ? &run->now.regs[reg] : &ignored;
}

static void set_offset(struct run *run, uint64_t reg, enum cfi_kind kind, int64_t factored)
{
	int64_t off;

	if (__builtin_mul_overflow(factored, run->cie->data_align, &off))
		*rule_of(run, reg) = (struct cfi_rule){ .kind = CFI_UNDEFINED };
	else
		*rule_of(run, reg) = (struct cfi_rule){ .kind = kind, .off = off };
}

static bool set_cfa(struct run *run, uint64_t reg, int64_t off)
{
	if (reg >= CFI_NREGS)
		return false;
	run->now.cfa = (struct cfi_rule){ .kind = CFI_REGISTER, .reg = (uint32_t)reg, .off = off };
	return true;
}

static bool read_block(struct bufr *r, struct bytes *ret)
{
	uint64_t len = bufr_uleb(r);

	if (len > bufr_left(r))
		return false;
	*ret = (struct bytes){ bufr_bytes(r, (size_t)len), (size_t)len };
	return ret->p != NULL;
}

static bool set_expression(struct bufr *r, enum cfi_kind kind, struct cfi_rule *rule)
{
	struct bytes expr;

	if (!read_block(r, &expr))
		return false;
	*rule = (struct cfi_rule){ .kind = kind, .expr = expr };
	return true;
}

/* Gives the row that ends here. */
static bool advance_to(struct run *run, uint64_t loc)
{
	uint64_t end = MIN(loc, run->fde->end);

	if (!run->initial || loc < run->loc)
		return false;
	if (end > run->loc && !run->fn(run->arg, run->loc, end, &run->now))
		run->stopped = true;
	run->loc = loc;
	if (loc >= run->fde->end)
		run->stopped = true; /* what follows describes no byte of the function */
	return true;
}

static bool advance_by(struct run *run, uint64_t delta)
{
	uint64_t bytes, loc;

	if (__builtin_mul_overflow(delta, run->cie->code_align, &bytes) ||
	    __builtin_add_overflow(run->loc, bytes, &loc))
		return false;
	return advance_to(run, loc);
}

static bool restore(struct run *run, uint64_t reg)
{
	if (!run->initial)
		return false;
	*rule_of(run, reg) = reg < CFI_NREGS ? run->initial->regs[reg] : (struct cfi_rule){ 0 };
	return true;
}

static bool run_location(struct run *run, uint8_t op, struct bufr *r)
{
	switch (op) {
	case DW_CFA_set_loc:
		/* Its encoding is that of pc_begin; no compiler emits it for x86-64. */
		return run->fde->is_debug_frame && advance_to(run, bufr_u64(r));
	case DW_CFA_advance_loc1:
		return advance_by(run, bufr_u8(r));
	case DW_CFA_advance_loc2:
		return advance_by(run, bufr_u16(r));
	default:
		return advance_by(run, bufr_u32(r));
	}
}

static bool run_cfa(struct run *run, uint8_t op, struct bufr *r)
{
	struct cfi_rule *cfa = &run->now.cfa;
	uint64_t reg;
	int64_t off;

	switch (op) {
	case DW_CFA_def_cfa:
		reg = bufr_uleb(r);
		return set_cfa(run, reg, (int64_t)bufr_uleb(r));
	case DW_CFA_def_cfa_sf:
		reg = bufr_uleb(r);
		return !__builtin_mul_overflow(bufr_sleb(r), run->cie->data_align, &off) &&
		       set_cfa(run, reg, off);
	case DW_CFA_def_cfa_register:
		return set_cfa(run, bufr_uleb(r), cfa->kind == CFI_REGISTER ? cfa->off : 0);
	case DW_CFA_def_cfa_offset:
		return cfa->kind == CFI_REGISTER && set_cfa(run, cfa->reg, (int64_t)bufr_uleb(r));
	case DW_CFA_def_cfa_offset_sf:
		return cfa->kind == CFI_REGISTER &&
		       !__builtin_mul_overflow(bufr_sleb(r), run->cie->data_align, &off) &&
		       set_cfa(run, cfa->reg, off);
	default:
		return set_expression(r, CFI_VAL_EXPRESSION, cfa);
	}
}

static bool run_register(struct run *run, uint8_t op, struct bufr *r)
{
	uint64_t reg = bufr_uleb(r), from;

	switch (op) {
	case DW_CFA_offset_extended:
		set_offset(run, reg, CFI_OFFSET, (int64_t)bufr_uleb(r));
		return true;
	case DW_CFA_offset_extended_sf:
		set_offset(run, reg, CFI_OFFSET, bufr_sleb(r));
		return true;
	case DW_CFA_GNU_negative_offset_extended:
		set_offset(run, reg, CFI_OFFSET, (int64_t)-bufr_uleb(r));
		return true;
	case DW_CFA_val_offset:
		set_offset(run, reg, CFI_VAL_OFFSET, (int64_t)bufr_uleb(r));
		return true;
	case DW_CFA_val_offset_sf:
		set_offset(run, reg, CFI_VAL_OFFSET, bufr_sleb(r));
		return true;
	case DW_CFA_restore_extended:
		return restore(run, reg);
	case DW_CFA_undefined:
		*rule_of(run, reg) = (struct cfi_rule){ .kind = CFI_UNDEFINED };
		return true;
	case DW_CFA_same_value:
		*rule_of(run, reg) = (struct cfi_rule){ .kind = CFI_SAME };
		return true;
	case DW_CFA_register:
		from = bufr_uleb(r);
		*rule_of(run, reg) = from < CFI_NREGS ?
			(struct cfi_rule){ .kind = CFI_REGISTER, .reg = (uint32_t)from } :
			(struct cfi_rule){ .kind = CFI_UNDEFINED };
		return true;
	case DW_CFA_expression:
		return set_expression(r, CFI_EXPRESSION, rule_of(run, reg));
	default:
		return set_expression(r, CFI_VAL_EXPRESSION, rule_of(run, reg));
	}
}

static bool run_one(struct run *run, struct bufr *r)
{
	uint8_t op = bufr_u8(r);

	switch (op & 0xc0) {
	case DW_CFA_advance_loc:
		return advance_by(run, op & 0x3f);
	case DW_CFA_offset:
		set_offset(run, op & 0x3f, CFI_OFFSET, (int64_t)bufr_uleb(r));
		return true;
	case DW_CFA_restore:
		return restore(run, op & 0x3f);
	default:
		break;
	}
	switch (op) {
	case DW_CFA_nop:
		return true;
	case DW_CFA_set_loc:
	case DW_CFA_advance_loc1:
	case DW_CFA_advance_loc2:
	case DW_CFA_advance_loc4:
		return run_location(run, op, r);
	case DW_CFA_def_cfa:
	case DW_CFA_def_cfa_sf:
	case DW_CFA_def_cfa_register:
	case DW_CFA_def_cfa_offset:
	case DW_CFA_def_cfa_offset_sf:
	case DW_CFA_def_cfa_expression:
		return run_cfa(run, op, r);
	case DW_CFA_offset_extended:
	case DW_CFA_offset_extended_sf:
	case DW_CFA_GNU_negative_offset_extended:
	case DW_CFA_val_offset:
	case DW_CFA_val_offset_sf:
	case DW_CFA_restore_extended:
	case DW_CFA_undefined:
	case DW_CFA_same_value:
	case DW_CFA_register:
	case DW_CFA_expression:
	case DW_CFA_val_expression:
		return run_register(run, op, r);
	case DW_CFA_remember_state:
		if (run->nremembered == CFI_STATES_MAX)
			return false;
		run->remembered[run->nremembered++] = run->now;
		return true;
	case DW_CFA_restore_state:
		if (!run->nremembered)
			return false;
		run->now = run->remembered[--run->nremembered];
		return true;
	case DW_CFA_GNU_args_size:
		bufr_uleb(r);
		return true;
	default:
		return false;
	}
}

static bool run_program(struct run *run, struct bytes program)
{
	struct bufr r;

	bufr_init(&r, program.p, program.len);
	while (bufr_left(&r) && !run->stopped)
		if (!run_one(run, &r) || bufr_err(&r))
			return false;
	return true;
}

bool cfi_run(const struct fde *fde, cfi_row_fn *fn, void *arg)
{
	struct run run = { .cie = &fde->cie, .fde = fde, .fn = fn, .arg = arg, .loc = fde->start };
	struct cfi_state initial;

	if (fde->cie.ra_reg != CFI_RIP || !run_program(&run, fde->cie.program))
		return false;
	initial = run.now;
	run.initial = &initial;
	if (!run_program(&run, fde->program))
		return false;
	return run.stopped || advance_to(&run, fde->end);
}
