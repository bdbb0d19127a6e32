#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/unwind_fixture.h"

static void plain_frames_reach_the_root(void **state)
{
	struct world *w = *state;

	world_plain_stack(w);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
	assert_int_equal(w->result.root_cfa, SP + 16 + 32);
}

static void unknown_rows_are_asked_for_one_at_a_time(void **state)
{
	struct world *w = *state;
	struct rows_fixture *f = &w->fixture;

	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_WANT);
	assert_int_equal(w->result.nframes, 1);
	assert_ptr_equal(w->result.want.file, w->prog);
	assert_int_equal(w->result.want.offset, world_offset(LEAF));
	assert_false(w->result.want.is_return);
	world_leaf_row(w, LEAF, RSP, 16);
	world_word(w, SP + 8, A);
	assert_int_equal(fixture_put(f, w->prog->rows), 0);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_WANT);
	assert_int_equal(w->result.want.offset, world_offset(A));
	assert_true(w->result.want.is_return);
	assert_int_equal(unwind_run(&w->in, w->maps, true, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_ROWS_LATE, LEAF);
	/* A file that is not even open has no rows. */
	w->prog->rows = rows_free(w->prog->rows);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_WANT);
	assert_int_equal(rows_new(&w->prog->rows), 0);
}

static void frame_pointer_rows_restore_what_they_saved(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RBP, 16);
	world_rule(w, RBP, MSG_RULE_CFA_MEM, 0, -16);
	world_rule(w, RBX, MSG_RULE_CFA_MEM, 0, -24);
	world_caller_row(w, A, RBP, 16);
	world_rule(w, RBP, MSG_RULE_CFA_MEM, 0, -16);
	world_caller_row(w, B, RBX, 16);
	world_end_row(w, START);
	w->in.regs[RBP] = SP + 100 * 8;
	world_word(w, SP + 99 * 8, SP + 300 * 8); /* rbx of A, and so of B */
	world_word(w, SP + 100 * 8, SP + 200 * 8);
	world_word(w, SP + 101 * 8, A);
	world_word(w, SP + 200 * 8, 0);
	world_word(w, SP + 201 * 8, B);
	world_word(w, SP + 301 * 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
}

/* As OpenSSL's AES-GCM does with rax: the caller knows that its callee leaves the register alone. */
static void a_caller_may_keep_its_cfa_in_a_register_that_calls_may_clobber(void **state)
{
	struct world *w = *state;

	for (int plain = 0; plain < 2; plain++) {
		world_forget(w);
		world_leaf_row(w, LEAF, RSP, 16);
		if (!plain)
			fixture_last(&w->fixture)->flags = MSG_ROW_INTERPRETER;
		world_caller_row(w, A, RAX, 16);
		world_end_row(w, START);
		world_word(w, SP + 8, A);
		w->in.regs[RAX] = SP + 64;
		world_word(w, SP + 64 + 8, START);
		world_run(w);
		EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
	}
	/* Where it was clobbered all the same it leads nowhere. */
	w->in.regs[RAX] = 7;
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF, A);
}

/* Code without rows may have done anything to a register. */
static void a_register_that_nobody_vouches_for_is_never_used(void **state)
{
	struct world *w = *state;

	world_no_row(w, LEAF, false, MSG_RES_CODE);
	world_caller_row(w, A, RBX, 16);
	world_end_row(w, START);
	w->in.regs[RBX] = SP + 0x80;
	w->in.regs[RBP] = SP + 0x40;
	world_word(w, SP + 0x48, A);
	world_word(w, SP + 0x88, START);
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF, A);
}

static void a_restored_register_is_known_again(void **state)
{
	struct world *w = *state;

	/* After code without rows rbx is unknown, until A says where it is. */
	world_no_row(w, LEAF, false, MSG_RES_CODE);
	world_caller_row(w, A, RSP, 32);
	world_rule(w, RBX, MSG_RULE_CFA_MEM, 0, -16);
	world_caller_row(w, B, RBX, 16);
	world_end_row(w, START);
	w->in.regs[RBP] = SP + 0x40;
	world_word(w, SP + 0x40, SP + 0x80);
	world_word(w, SP + 0x48, A);
	world_word(w, SP + 0x50 + 16, SP + 0x200);
	world_word(w, SP + 0x50 + 24, B);
	world_word(w, SP + 0x208, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
}

/* The inner loop skips what most stacks do not ask for. */
static void a_register_that_was_skipped_is_there_for_who_asks(void **state)
{
	const struct msg_op rbx_plus_16 = { .code = MSG_OP_REG, .reg = RBX, .n = 16 };
	struct world *w = *state;

	for (int how = 0; how < 3; how++) {
		world_forget(w);
		world_leaf_row(w, LEAF, RSP, 16);
		world_rule(w, RBX, MSG_RULE_CFA_MEM, 0, -16);
		world_caller_row(w, A, RSP, 32);
		world_caller_row(w, B, RBX, 16);
		if (how == 1)
			world_cfa_expr(w, &rbx_plus_16, 1);
		if (how == 2)
			fixture_last(&w->fixture)->flags = MSG_ROW_INTERPRETER;
		world_end_row(w, START);
		w->in.regs[RBX] = 1;
		world_word(w, SP, SP + 0x100);
		world_word(w, SP + 8, A);
		world_word(w, SP + 40, B);
		world_word(w, SP + 0x108, START);
		world_run(w);
		EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
	}
}

static void a_leaf_may_use_any_register(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, R10, 16);
	w->in.regs[R10] = SP + 64;
	world_word(w, SP + 64 + 8, START);
	world_end_row(w, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
}

/* vfork keeps its return address in rdi across the system call. */
static void a_return_address_may_be_in_a_register(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 0);
	fixture_last(&w->fixture)->ra = (struct msg_rule){ 16, MSG_RULE_REG_VAL, RDI, 0, 0 };
	world_caller_row(w, A, RSP, 32);
	world_end_row(w, START);
	w->in.regs[RDI] = A;
	world_word(w, SP + 24, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

static void rules_are_evaluated_on_the_old_registers(void **state)
{
	struct world *w = *state;

	/* rbp and rbx swap: each rule must see the other's old value. */
	world_leaf_row(w, LEAF, RSP, 16);
	world_rule(w, RBP, MSG_RULE_REG_VAL, RBX, 0);
	world_rule(w, RBX, MSG_RULE_REG_VAL, RBP, 0);
	world_caller_row(w, A, RBP, 16);
	world_caller_row(w, B, RBX, 16);
	world_end_row(w, START);
	w->in.regs[RBX] = SP + 100 * 8;
	w->in.regs[RBP] = SP + 200 * 8;
	world_word(w, SP + 8, A);
	world_word(w, SP + 101 * 8, B);
	world_word(w, SP + 201 * 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
}

/* breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus: 8 more after the stub's push. */
static void the_plt_expression_knows_on_which_side_of_the_push_it_is(void **state)
{
	struct world *w = *state;
	const struct msg_op plt[] = {
		{ MSG_OP_REG, RSP, 8 }, { MSG_OP_REG, RIP, 0 },	 { MSG_OP_CONST, 0, 15 },
		{ MSG_OP_AND, 0, 0 },	{ MSG_OP_CONST, 0, 11 }, { MSG_OP_GE, 0, 0 },
		{ MSG_OP_CONST, 0, 3 }, { MSG_OP_SHL, 0, 0 },	 { MSG_OP_ADD, 0, 0 },
	};

	fixture_row(&w->fixture, world_offset(LEAF), world_offset(LEAF) + 16, RSP, 0);
	world_cfa_expr(w, plt, ARRAY_SIZE(plt));
	world_end_row(w, START);
	world_word(w, SP, START);
	world_word(w, SP + 8, A); /* what the other side would read */
	w->in.regs[RIP] = LEAF + 6;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF + 6, START);
	world_word(w, SP, A);
	world_word(w, SP + 8, START);
	w->in.regs[RIP] = LEAF + 11;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, LEAF + 11, START);
}

/* OpenSSL's AVX2 code keeps its CFA below rsp: breg7 -8; deref; plus_uconst 8. */
static void a_cfa_may_be_read_from_below_the_stack_pointer(void **state)
{
	struct world *w = *state;
	const struct msg_op ops[] = { { MSG_OP_REG, RSP, -8 },
				      { MSG_OP_DEREF, 8, 0 },
				      { MSG_OP_ADD_CONST, 0, 8 } };

	world_leaf_row(w, LEAF, RSP, 0);
	world_cfa_expr(w, ops, ARRAY_SIZE(ops));
	world_end_row(w, START);
	world_word(w, SP - 8, SP + 0x1000);
	world_word(w, SP + 0x1000, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
	assert_int_equal(w->result.root_cfa, SP + 0x1008);
}

/* OCaml's caml_c_call has popped its return address, and still uses it. */
static void a_return_address_may_lie_below_the_stack_pointer(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 0);
	world_caller_row(w, A, RSP, 16);
	world_end_row(w, START);
	world_word(w, SP - 8, A);
	world_word(w, SP + 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

struct expr_case {
	const char *name;
	struct msg_op ops[6];
	uint32_t n;
	bool fails;
	uint64_t value;
};

/* Each leaves its value on top; SP is added to it, so that it shows in the CFA. */
/* clang-format off */
static const struct expr_case expr_cases[] = {
	{ "skip", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_SKIP, 0, 2 }, { MSG_OP_DROP, 0, 0 } }, 3, false, 16 },
	{ "skip to the end", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_SKIP, 0, 1 } }, 2, false, 16 },
	{ "skip past the end", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_SKIP, 0, 7 } }, 2, true, 0 },
	{ "skip past the end with a value", { { MSG_OP_REG, RSP, 16 }, { MSG_OP_SKIP, 0, 7 } }, 2, true, 0 },
	{ "skip back", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_SKIP, 0, -1 } }, 2, true, 0 },
	{ "skip 0", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_SKIP, 0, 0 } }, 2, true, 0 },
	{ "skip far", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_SKIP, 0, INT64_MAX } }, 2, true, 0 },
	{ "branch taken", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 1 }, { MSG_OP_BRANCH, 0, 2 },
			    { MSG_OP_DROP, 0, 0 } }, 4, false, 16 },
	{ "branch not taken", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 0 }, { MSG_OP_BRANCH, 0, 2 },
				{ MSG_OP_ADD_CONST, 0, 8 } }, 4, false, 24 },
	{ "divide by 0", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 0 }, { MSG_OP_DIV, 0, 0 } }, 3, true, 0 },
	{ "modulo 0", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 0 }, { MSG_OP_MOD, 0, 0 } }, 3, true, 0 },
	{ "divide signed", { { MSG_OP_CONST, 0, -64 }, { MSG_OP_CONST, 0, -4 }, { MSG_OP_DIV, 0, 0 } }, 3, false, 16 },
	{ "the division that traps", { { MSG_OP_CONST, 0, INT64_MIN }, { MSG_OP_CONST, 0, -1 }, { MSG_OP_DIV, 0, 0 },
				       { MSG_OP_CONST, 0, INT64_MIN }, { MSG_OP_XOR, 0, 0 },
				       { MSG_OP_ADD_CONST, 0, 16 } }, 6, false, 16 },
	{ "shift by 64", { { MSG_OP_CONST, 0, 1 }, { MSG_OP_CONST, 0, 64 }, { MSG_OP_SHL, 0, 0 },
			   { MSG_OP_ADD_CONST, 0, 16 } }, 4, false, 16 },
	{ "shift right by -1", { { MSG_OP_CONST, 0, -1 }, { MSG_OP_CONST, 0, -1 }, { MSG_OP_SHR, 0, 0 },
				 { MSG_OP_ADD_CONST, 0, 16 } }, 4, false, 16 },
	{ "shift signed", { { MSG_OP_CONST, 0, -64 }, { MSG_OP_CONST, 0, 200 }, { MSG_OP_SHRA, 0, 0 },
			    { MSG_OP_ADD_CONST, 0, 17 } }, 4, false, 16 },
	{ "compare signed", { { MSG_OP_CONST, 0, -1 }, { MSG_OP_CONST, 0, 1 }, { MSG_OP_LT, 0, 0 },
			      { MSG_OP_CONST, 0, 4 }, { MSG_OP_SHL, 0, 0 } }, 5, false, 16 },
	{ "sub", { { MSG_OP_CONST, 0, 40 }, { MSG_OP_CONST, 0, 24 }, { MSG_OP_SUB, 0, 0 } }, 3, false, 16 },
	{ "neg", { { MSG_OP_CONST, 0, -16 }, { MSG_OP_NEG, 0, 0 } }, 2, false, 16 },
	{ "not", { { MSG_OP_CONST, 0, -17 }, { MSG_OP_NOT, 0, 0 } }, 2, false, 16 },
	{ "abs", { { MSG_OP_CONST, 0, -16 }, { MSG_OP_ABS, 0, 0 } }, 2, false, 16 },
	{ "swap", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 5 }, { MSG_OP_SWAP, 0, 0 } }, 3, false, 16 },
	{ "over", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 5 }, { MSG_OP_OVER, 0, 0 } }, 3, false, 16 },
	{ "pick", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 5 }, { MSG_OP_PICK, 0, 1 } }, 3, false, 16 },
	{ "pick too deep", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_PICK, 0, 1 } }, 2, true, 0 },
	{ "rot: the top becomes the third", { { MSG_OP_CONST, 0, 7 }, { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 5 },
					      { MSG_OP_ROT, 0, 0 } }, 4, false, 16 },
	{ "drop", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 5 }, { MSG_OP_DROP, 0, 0 } }, 3, false, 16 },
	{ "drop of nothing", { { MSG_OP_DROP, 0, 0 } }, 1, true, 0 },
	{ "add of one", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_ADD, 0, 0 } }, 2, true, 0 },
	{ "deref of nothing", { { MSG_OP_DEREF, 8, 0 } }, 1, true, 0 },
	{ "deref of 3 bytes", { { MSG_OP_REG, RSP, 0 }, { MSG_OP_DEREF, 3, 0 } }, 2, true, 0 },
	{ "deref of 1 byte", { { MSG_OP_REG, RSP, 0 }, { MSG_OP_DEREF, 1, 0 } }, 2, false, 16 },
	{ "deref of 0", { { MSG_OP_CONST, 0, 0 }, { MSG_OP_DEREF, 8, 0 } }, 2, true, 0 },
	{ "the CFA's own expression has no CFA", { { MSG_OP_CFA, 0, 0 } }, 1, true, 0 },
	{ "no such operation", { { MSG_OP_CONST, 0, 16 }, { MSG_OP_CONST, 0, 16 }, { MSG_OP_COUNT, 0, 0 } }, 3, true, 0 },
	{ "no such register", { { MSG_OP_REG, 30, 0 } }, 1, true, 0 },
};
/* clang-format on */

static void expressions_mean_what_dwarf_says(void **state)
{
	struct world *w = *state;

	world_word(w, SP, 0xffffffffffffff10ull);
	world_word(w, SP + 8, START);
	for (size_t i = 0; i < ARRAY_SIZE(expr_cases); i++) {
		const struct expr_case *c = &expr_cases[i];
		const struct msg_op from[] = { { MSG_OP_REG, RSP, 0 }, { MSG_OP_ADD, 0, 0 } };
		struct msg_op ops[8];
		uint32_t n = c->n;

		memcpy(ops, c->ops, sizeof(c->ops));
		memcpy(&ops[n], from, sizeof(from));
		n += 2;
		w->prog->rows = rows_free(w->prog->rows);
		assert_int_equal(rows_new(&w->prog->rows), 0);
		fixture_init(&w->fixture);
		world_end_row(w, START);
		world_leaf_row(w, LEAF, RSP, 0);
		world_cfa_expr(w, ops, n);
		world_word(w, SP + 16, 0);
		assert_int_equal(fixture_put(&w->fixture, w->prog->rows), 0);
		assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
		if (c->fails ? w->result.outcome != UNWIND_BAD_FRAME :
			       w->result.root_cfa != SP + c->value)
			fail_msg("%s: %s, CFA is SP + %lld", c->name,
				 unwind_outcome_text(w->result.outcome),
				 (long long)(w->result.root_cfa - SP));
	}
}

static void an_expression_that_pushes_for_ever_fails(void **state)
{
	struct world *w = *state;
	struct msg_op ops[MSG_EXPR_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = (struct msg_op){ MSG_OP_REG, RSP, 16 };
	world_leaf_row(w, LEAF, RSP, 16);
	world_cfa_expr(w, ops, ARRAY_SIZE(ops));
	world_word(w, SP + 8, START);
	world_end_row(w, START);
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF);
}

static void a_saved_register_s_expression_begins_with_the_cfa(void **state)
{
	struct world *w = *state;
	const struct msg_op ops[] = { { MSG_OP_ADD_CONST, 0, -16 } };

	world_leaf_row(w, LEAF, RSP, 32);
	fixture_expr_rule(&w->fixture, fixture_expr(&w->fixture, RBP, MSG_RULE_EXPR_MEM, ops, 1));
	world_caller_row(w, A, RBP, 16);
	world_end_row(w, START);
	world_word(w, SP + 16, SP + 100 * 8);
	world_word(w, SP + 24, A);
	world_word(w, SP + 101 * 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

/* GHC's StgRun: the return address far above the CFA, and a rule for rsp itself. */
static void the_stack_pointer_may_have_a_rule(void **state)
{
	struct world *w = *state;
	const struct msg_op ops[] = { { MSG_OP_ADD_CONST, 0, 16440 } };

	world_leaf_row(w, LEAF, RSP, 0);
	fixture_last(&w->fixture)->ra = (struct msg_rule){ 16, MSG_RULE_CFA_MEM, 0, 0, 16432 };
	fixture_expr_rule(&w->fixture, fixture_expr(&w->fixture, RSP, MSG_RULE_EXPR_VAL, ops, 1));
	world_caller_row(w, A, RSP, 16);
	world_end_row(w, START);
	world_word(w, SP + 16432, A);
	world_word(w, SP + 16440 + 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

static void a_rule_for_the_stack_pointer_may_lead_to_a_lower_stack(void **state)
{
	struct world *w = *state;
	const struct msg_op ops[] = { { MSG_OP_CONST, 0, (int64_t)OTHER_STACK } };

	world_leaf_row(w, LEAF, RSP, 16);
	fixture_expr_rule(&w->fixture, fixture_expr(&w->fixture, RSP, MSG_RULE_EXPR_VAL, ops, 1));
	world_caller_row(w, A, RSP, 16);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	memcpy(w->other + 8, &(uint64_t){ START }, 8);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

/* A handler on another stack; the interrupted pc is looked up as it is. */
static void a_signal_frame_leads_to_the_interrupted_instruction(void **state)
{
	struct world *w = *state;
	const uint64_t context = OTHER_STACK + 64; /* rsp in the trampoline */
	const struct msg_op rsp[] = { { MSG_OP_REG, RSP, 160 }, { MSG_OP_DEREF, 8, 0 } };
	const struct msg_op rip[] = { { MSG_OP_REG, RSP, 168 } },
			    rbx[] = { { MSG_OP_REG, RSP, 128 } };
	struct msg_rule rule;
	uint64_t word;

	/* On the alternate stack: leaf <- trampoline; interrupted: B <- START. */
	w->in.windows[1] = w->in.windows[0];
	w->in.windows[0] = (struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	w->in.nwindows = 2;
	w->in.regs[RSP] = context - 8;
	word = A;
	memcpy(w->other + 64 - 8, &word, 8);
	word = SP + 512;
	memcpy(w->other + 64 + 160, &word, 8);
	word = B;
	memcpy(w->other + 64 + 168, &word, 8);
	word = SP + 1024;
	memcpy(w->other + 64 + 128, &word, 8);
	world_leaf_row(w, LEAF, RSP, 8);
	/* The trampoline follows no call, and its row begins at its own first byte. */
	fixture_addr(&w->fixture, world_offset(A), true,
		     fixture_row(&w->fixture, world_offset(A), world_offset(A) + 9, 0, 0),
		     MSG_RES_CODE | MSG_RES_FUNCTION_START);
	fixture_last(&w->fixture)->flags = MSG_ROW_SIGNAL;
	world_cfa_expr(w, rsp, 2);
	fixture_last(&w->fixture)->ra = fixture_expr(&w->fixture, RIP, MSG_RULE_EXPR_MEM, rip, 1);
	rule = fixture_expr(&w->fixture, RBX, MSG_RULE_EXPR_MEM, rbx, 1);
	fixture_expr_rule(&w->fixture, rule);
	world_leaf_row(w, B, RBX, 16);
	world_end_row(w, START);
	world_word(w, SP + 1024 + 8, START);
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_COMPLETE);
	assert_int_equal(w->result.nframes, 4);
	assert_int_equal(w->result.frames[1].offset,
			 world_offset(A)); /* the trampoline itself, not A - 1 */
	assert_int_equal(w->result.frames[2].offset, world_offset(B)); /* exact */
	assert_int_equal(w->result.frames[3].offset, world_offset(START) - 1);

	/* What was interrupted may use its red zone: here for its return address. */
	fixture_init(&w->fixture);
	world_leaf_row(w, B + 0x100, RSP, 0);
	assert_int_equal(fixture_put(&w->fixture, w->prog->rows), 0);
	word = B + 0x100;
	memcpy(w->other + 64 + 168, &word, 8);
	world_word(w, SP + 512 - 8, START);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	assert_int_equal(w->result.outcome, UNWIND_COMPLETE);
	assert_int_equal(w->result.nframes, 4);
	word = B;
	memcpy(w->other + 64 + 168, &word, 8);

	/* Without the interrupted stack the leaf side is still true. */
	w->in.nwindows = 1;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	assert_int_equal(w->result.outcome, UNWIND_TRUNCATED);
	assert_int_equal(w->result.nframes, 3);
	assert_int_equal(w->result.missing, SP + 1024 + 8);
}

static void a_signal_that_interrupted_nothing_mapped_is_no_root(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	fixture_last(&w->fixture)->flags = MSG_ROW_SIGNAL;
	world_word(w, SP + 8, 0);
	world_run(w);
	EXPECT(w, UNWIND_NO_MAPPING, LEAF);
}

/* Go's asmcgocall, Rust's stacker: CFA = rbp + 16 on a stack below this one. */
static void a_frame_pointer_row_may_lead_to_another_stack(void **state)
{
	struct world *w = *state;
	uint64_t word = B;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RBP, 16);
	world_rule(w, RBP, MSG_RULE_CFA_MEM, 0, -16);
	world_caller_row(w, B, RSP, 32);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	w->in.regs[RBP] = OTHER_STACK + 64;
	memcpy(w->other + 72, &word, 8);
	word = START;
	memcpy(w->other + 80 + 24, &word, 8);
	/* The stack was not copied: truncated, and the address tells what to copy next time. */
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A);
	assert_int_equal(w->result.missing, OTHER_STACK + 72);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
	/* That stack may be cut, too: it reaches up from where we came to it. */
	w->in.windows[1].len = 100;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B);
}

/* Go's systemstack: the goroutine's stack pointer is in no register, nor on the system stack. */
static void a_goroutine_that_waits_is_the_caller_of_its_system_stack(void **state)
{
	struct world *w = *state;
	uint64_t word = B;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, MSG_REG_GOROUTINE_SP, 8);
	world_caller_row(w, B, RSP, 32);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	memcpy(w->other + 64, &word, 8);
	word = START;
	memcpy(w->other + 72 + 24, &word, 8);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	w->in.goroutine_sp = OTHER_STACK + 64;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
	/* A thread that serves none ends on its system stack, if that is where it is. */
	w->in.goroutine_sp = 0;
	w->in.flags |= ABI_F_ON_G0;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A);
	w->in.flags &= ~(uint32_t)ABI_F_ON_G0;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A);
	assert_int_equal(w->result.missing, 0);
}

/* Go's morestack: nothing on either stack says where the goroutine was, while its stack is moved. */
static void a_goroutine_whose_stack_is_moved_goes_on_where_it_waits(void **state)
{
	struct world *w = *state;
	uint64_t word = START;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, MSG_REG_GOROUTINE_SP, 0);
	fixture_last(&w->fixture)->ra =
		(struct msg_rule){ .target = RIP, .kind = MSG_RULE_REG_VAL, .reg = MSG_REG_GOROUTINE_PC };
	world_caller_row(w, B, RSP, 8);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	memcpy(w->other + 64, &word, 8);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	w->in.goroutine_sp = OTHER_STACK + 64;
	w->in.goroutine_pc = B;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
}

/* Go's asmcgocall before frame pointers: the one that waits, else the one that it has noted. */
static void an_expression_can_ask_whether_a_goroutine_waits(void **state)
{
	static const struct msg_op ops[] = {
		{ MSG_OP_REG, MSG_REG_GOROUTINE_SP, 0 }, { MSG_OP_DUP, 0, 0 }, { MSG_OP_BRANCH, 0, 3 },
		{ MSG_OP_DROP, 0, 0 },			 { MSG_OP_REG, RSP, 24 }, { MSG_OP_ADD_CONST, 0, 8 },
	};
	struct world *w = *state;
	uint64_t word = START;

	world_leaf_row(w, LEAF, RSP, 0);
	world_cfa_expr(w, ops, ARRAY_SIZE(ops));
	world_end_row(w, START);
	world_word(w, SP + 24, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
	assert_int_equal(w->result.root_cfa, SP + 32);
	memcpy(w->other + 64, &word, 8);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	w->in.goroutine_sp = OTHER_STACK + 64;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
	assert_int_equal(w->result.root_cfa, OTHER_STACK + 72);
}

/* C that a goroutine called, which C had called, which a goroutine had called: only the first of them waits. */
static void a_goroutine_waits_once(void **state)
{
	static const struct msg_op ops[] = {
		{ MSG_OP_REG, MSG_REG_GOROUTINE_SP, 0 }, { MSG_OP_DUP, 0, 0 }, { MSG_OP_BRANCH, 0, 3 },
		{ MSG_OP_DROP, 0, 0 },			 { MSG_OP_REG, RSP, 24 }, { MSG_OP_ADD_CONST, 0, 8 },
	};
	struct world *w = *state;
	uint64_t word = B;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 0);
	world_cfa_expr(w, ops, ARRAY_SIZE(ops));
	world_caller_row(w, B, RSP, 0);
	world_cfa_expr(w, ops, ARRAY_SIZE(ops));
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	memcpy(w->other + 64, &word, 8);
	word = START;
	memcpy(w->other + 72 + 24, &word, 8);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ OTHER_STACK, w->other, sizeof(w->other), 0 };
	w->in.goroutine_sp = OTHER_STACK + 64;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
	assert_int_equal(w->result.root_cfa, OTHER_STACK + 72 + 32);
}

static void a_value_in_a_hole_truncates(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 0x2000);
	world_caller_row(w, A, RSP, 0x2000);
	world_end_row(w, START);
	world_word(w, SP + 0x2000 - 8, A);
	world_word(w, SP + 0x4000 - 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
	/* STACK is page-aligned: the address SP + 0x3ff8 lies in page 4. */
	w->in.windows[0].holes = 1 << 3;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
	w->in.windows[0].holes = 1 << 4;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A);
	assert_int_equal(w->result.missing, SP + 0x3ff8);
}

/* Bit 0 is the part up to the first page boundary, however short. */
static void holes_count_from_the_first_page_boundary(void **state)
{
	struct world *w = *state;

	w->in.windows[0].address = STACK + 0xff0;
	w->in.regs[RSP] = STACK + 0xff0;
	world_leaf_row(w, LEAF, RSP, 16); /* return address at ...ff8, in the first 16 bytes */
	world_end_row(w, START);
	memcpy(w->stack + 8, &(uint64_t){ START }, 8);
	w->in.windows[0].holes = ~1ull;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
	w->in.windows[0].holes = 1;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF);
}

/* A saved register that was not copied fails only the frame that needs it. */
static void a_missing_saved_register_is_missed_only_when_needed(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 0x3000);
	world_rule(w, RBX, MSG_RULE_CFA_MEM, 0, -0x2000);
	world_caller_row(w, A, RSP, 16);
	fixture_last(&w->fixture)->flags = MSG_ROW_INTERPRETER;
	world_caller_row(w, B, RBX, 16);
	world_end_row(w, START);
	world_word(w, SP + 0x3000 - 8, A);
	world_word(w, SP + 0x3000 + 8, B);
	w->in.windows[0].holes = 1 << 1;
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B);
	assert_int_equal(w->result.missing, SP + 0x1000);
	/* The same with slots that a plain row has. */
	world_forget(w);
	w->in.regs[RSP] = STACK + 0xff0;
	world_leaf_row(w, LEAF, RSP, 0x20);
	world_rule(w, RBX, MSG_RULE_CFA_MEM, 0, -0x18);
	world_caller_row(w, A, RSP, 16);
	world_caller_row(w, B, RBX, 16);
	world_end_row(w, START);
	world_word(w, STACK + 0x1008, A);
	world_word(w, STACK + 0x1018, B);
	w->in.windows[0].holes = 1;
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B);
	assert_int_equal(w->result.missing, STACK + 0xff8);
}

static void a_stack_larger_than_its_window_is_truncated(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 540080);
	world_word(w, SP + 8, A);
	w->in.flags = ABI_F_CUT;
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A);
	assert_int_equal(w->result.missing, SP + 16 + 540080 - 8);
}

static void a_giant_frame_is_crossed_by_the_root_window(void **state)
{
	struct world *w = *state;
	const uint64_t far = SP + 16 + 540080;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 540080);
	world_caller_row(w, B, RSP, 16);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	memcpy(w->other + 0, &(uint64_t){ B }, 8);
	memcpy(w->other + 16, &(uint64_t){ START }, 8);
	w->in.windows[w->in.nwindows++] =
		(struct unwind_window){ far - 8, w->other, sizeof(w->other), 0 };
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, B, START);
}

static void a_value_across_the_end_of_a_window_is_not_read(void **state)
{
	struct world *w = *state;

	for (uint32_t cut = 0; cut < 8; cut++) {
		w->in.windows[0].len = ABI_RED_ZONE + 8 + cut;
		fixture_init(&w->fixture);
		world_plain_stack(w);
		world_run(w);
		EXPECT(w, UNWIND_TRUNCATED, LEAF);
	}
	w->in.windows[0].len = ABI_RED_ZONE + 16;
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(plain_frames_reach_the_root),
		TEST(unknown_rows_are_asked_for_one_at_a_time),
		TEST(frame_pointer_rows_restore_what_they_saved),
		TEST(a_caller_may_keep_its_cfa_in_a_register_that_calls_may_clobber),
		TEST(a_register_that_nobody_vouches_for_is_never_used),
		TEST(a_restored_register_is_known_again),
		TEST(a_register_that_was_skipped_is_there_for_who_asks),
		TEST(a_leaf_may_use_any_register),
		TEST(a_return_address_may_be_in_a_register),
		TEST(rules_are_evaluated_on_the_old_registers),
		TEST(the_plt_expression_knows_on_which_side_of_the_push_it_is),
		TEST(a_cfa_may_be_read_from_below_the_stack_pointer),
		TEST(a_return_address_may_lie_below_the_stack_pointer),
		TEST(expressions_mean_what_dwarf_says),
		TEST(an_expression_that_pushes_for_ever_fails),
		TEST(a_saved_register_s_expression_begins_with_the_cfa),
		TEST(the_stack_pointer_may_have_a_rule),
		TEST(a_rule_for_the_stack_pointer_may_lead_to_a_lower_stack),
		TEST(a_signal_frame_leads_to_the_interrupted_instruction),
		TEST(a_signal_that_interrupted_nothing_mapped_is_no_root),
		TEST(a_frame_pointer_row_may_lead_to_another_stack),
		TEST(a_goroutine_that_waits_is_the_caller_of_its_system_stack),
		TEST(a_goroutine_whose_stack_is_moved_goes_on_where_it_waits),
		TEST(an_expression_can_ask_whether_a_goroutine_waits),
		TEST(a_goroutine_waits_once),
		TEST(a_value_in_a_hole_truncates),
		TEST(holes_count_from_the_first_page_boundary),
		TEST(a_missing_saved_register_is_missed_only_when_needed),
		TEST(a_stack_larger_than_its_window_is_truncated),
		TEST(a_giant_frame_is_crossed_by_the_root_window),
		TEST(a_value_across_the_end_of_a_window_is_not_read),
	};

	return cmocka_run_group_tests_name("unwind", tests, NULL, NULL);
}
