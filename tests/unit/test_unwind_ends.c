#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/unwind_fixture.h"

/* rbp = -8 once killed the prototype; sp = -1 and their like must fail as quietly. */
static void hostile_registers_wrap_nothing(void **state)
{
	struct world *w = *state;
	const uint64_t bad[] = { 0,
				 1,
				 7,
				 8,
				 0x1000,
				 UINT64_MAX,
				 -8ull,
				 -16ull,
				 -17ull,
				 1ull << 63,
				 0x7fffffffffffull,
				 0x800000000000ull,
				 0xffff800000000000ull,
				 STACK - 8,
				 TOP,
				 TOP - 8,
				 TOP - 1,
				 OTHER_STACK };

	world_leaf_row(w, LEAF, RBP, 16);
	world_leaf_row(w, A, RSP, 16);
	world_leaf_row(w, B, RBP, -16);
	world_leaf_row(w, C, RSP, INT32_MIN);
	world_no_row(w, LEAF + 0x10000, false, MSG_RES_CODE);
	world_run(w);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		for (size_t k = 0; k < ARRAY_SIZE(bad); k++)
			for (uint64_t pc = 0; pc < 5; pc++) {
				w->in.regs[RBP] = bad[i];
				w->in.regs[RSP] = bad[k];
				w->in.regs[RIP] = (uint64_t[]){ LEAF, A, B, C, LEAF + 0x10000 }[pc];
				assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result),
						 UNWIND_DONE);
				assert_int_equal(w->result.nframes, 1);
				assert_int_not_equal(w->result.outcome, UNWIND_COMPLETE);
			}
}

static void a_cfa_that_is_no_user_address_is_bad(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RBP, 16);
	w->in.regs[RBP] = -8ull;
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF);
}

/* A chain of frame pointers that comes back: the frames of the circle are dropped, too. */
static void a_circle_is_found_and_cut(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RBP, 16);
	world_rule(w, RBP, MSG_RULE_CFA_MEM, 0, -16);
	world_word(w, SP + 8, A);
	w->in.regs[RBP] = SP + 0x100;
	world_word(w, SP + 0x100, SP + 0x200);
	world_word(w, SP + 0x108, A);
	world_word(w, SP + 0x200, SP + 0x100);
	world_word(w, SP + 0x208, A);
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_BAD_FRAME);
	/* leaf, A, A, A: up to where it turned back for the first time. */
	EXPECT(w, UNWIND_BAD_FRAME, LEAF, A, A, A);
}

static void a_frame_that_is_its_own_caller_is_bad(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 0);
	world_word(w, SP + 8, A);
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF, A);
}

/* Its frame pointer may lead elsewhere, its stack pointer only up. */
static void a_caller_below_its_callee_is_bad(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, -64);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	world_word(w, SP + 16 - 64 - 8, START);
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF, A);
}

static void endless_switching_of_stacks_is_bounded(void **state)
{
	struct world *w = *state;

	/* A chain that goes down and down. */
	world_leaf_row(w, LEAF, RBP, 16);
	world_rule(w, RBP, MSG_RULE_CFA_MEM, 0, -16);
	world_caller_row(w, A, RBP, 16);
	world_rule(w, RBP, MSG_RULE_CFA_MEM, 0, -16);
	w->in.regs[RBP] = TOP - 16;
	for (uint64_t at = TOP - 16; at > STACK; at -= 16) {
		world_word(w, at, at - 16);
		world_word(w, at + 8, A);
	}
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_BAD_FRAME);
	assert_true(w->result.nframes < 100);
}

static void a_stack_deeper_than_the_limit_is_too_deep(void **state)
{
	static uint8_t deep[(UNWIND_FRAMES_MAX + 16) * 16];
	struct world *w = *state;
	const uint64_t pc = A;

	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 16);
	world_end_row(w, START);
	for (size_t at = 0; at + 16 <= sizeof(deep); at += 16)
		memcpy(deep + at + 8, &pc, sizeof(pc));
	w->in.windows[0] = (struct unwind_window){ STACK, deep, sizeof(deep), 0 };
	w->in.regs[RSP] = STACK;
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_TOO_DEEP);
	assert_int_equal(w->result.nframes, UNWIND_FRAMES_MAX);
	/* One frame less is complete. */
	memcpy(deep + (UNWIND_FRAMES_MAX - 2) * 16 + 8, &(uint64_t){ START }, 8);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	assert_int_equal(w->result.outcome, UNWIND_COMPLETE);
	assert_int_equal(w->result.nframes, UNWIND_FRAMES_MAX);
	assert_int_equal(w->result.frames[UNWIND_FRAMES_MAX - 1].offset, world_offset(START) - 1);
}

static void a_return_address_that_follows_no_call_is_bad(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	fixture_addr(&w->fixture, world_offset(A), true,
		     fixture_row(&w->fixture, world_offset(A) - 8, world_offset(A) + 8, RSP, 16),
		     MSG_RES_CODE);
	world_word(w, SP + 8, A);
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF);
}

/* makecontext, Boost: whoever made the stack put a function there, not a call. */
static void a_return_to_the_first_byte_of_a_function_is_the_root(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_no_row(w, A, true, MSG_RES_CODE | MSG_RES_FUNCTION_START);
	world_word(w, SP + 8, A);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF);
	assert_int_equal(w->result.root_cfa, SP + 16);
}

/* Go puts goexit + 1 under a new goroutine. */
static void an_end_needs_no_call_before_it(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_end_row(w, START);
	w->fixture.results[w->fixture.answer.nresults - 1].flags &= ~(uint32_t)MSG_RES_AFTER_CALL;
	world_word(w, SP + 8, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
}

static void a_return_address_of_zero_or_an_undefined_one_is_the_root(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_word(w, SP + 8, 0);
	world_leaf_row(w, A, RSP, 16);
	fixture_last(&w->fixture)->ra.kind = MSG_RULE_UNDEFINED;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF);
	assert_int_equal(w->result.root_cfa, SP + 16);
	w->in.regs[RIP] = A;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, A);
}

static void a_return_address_outside_executable_memory_ends_the_stack(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_word(w, SP + 8, SP);
	world_run(w);
	EXPECT(w, UNWIND_NO_MAPPING, LEAF);
	w->in.regs[RIP] = 0;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	assert_int_equal(w->result.outcome, UNWIND_NO_MAPPING);
	assert_int_equal(w->result.nframes, 0);
}

/* A call may be the last instruction of its mapping. */
static void a_return_address_at_the_end_of_its_mapping_belongs_to_it(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	world_end_row(w, PROG_END);
	world_word(w, SP + 8, PROG_END);
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_COMPLETE);
	assert_int_equal(w->result.frames[1].offset, world_offset(PROG_END) - 1);
}

/* The byte before its first one belongs to nobody. */
static void a_return_address_at_the_start_of_its_mapping_does_not(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 16);
	fixture_last(&w->fixture)->flags = MSG_ROW_INTERPRETER; /* not plain */
	world_end_row(w, PROG);
	world_word(w, SP + 8, PROG);
	world_run(w);
	EXPECT(w, UNWIND_NO_MAPPING, LEAF);
}

/* mmap(2) of some devices takes offsets that no file has. */
static void an_offset_that_no_file_has_is_memory_without_a_file(void **state)
{
	struct world *w = *state;
	struct map map = { .start = 0xa00000, .end = 0xa10000, .kind = MAP_FILE, .file = w->prog };

	map.offset = INT64_MAX - 0x8000ull;
	assert_int_equal(maps_add(&w->maps, &map), 0);
	w->in.regs[RIP] = 0xa00010;
	world_run(w);
	EXPECT(w, UNWIND_NO_CFI, 0xa00010);
}

static void code_without_rows_is_walked_by_its_frame_pointer(void **state)
{
	struct world *w = *state;

	world_no_row(w, LEAF, false, MSG_RES_CODE);
	world_no_row(w, A, true, CALL);
	world_end_row(w, START);
	w->in.regs[RBP] = SP + 0x40;
	world_word(w, SP + 0x40, SP + 0x80);
	world_word(w, SP + 0x48, A);
	world_word(w, SP + 0x80, 0);
	world_word(w, SP + 0x88, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

static void jit_code_is_walked_by_its_frame_pointer(void **state)
{
	struct world *w = *state;

	w->in.regs[RIP] = JIT + 0x100;
	w->in.regs[RBP] = SP + 0x40;
	world_word(w, SP + 0x40, SP + 0x80);
	world_word(w, SP + 0x48, JIT + 0x200);
	world_word(w, SP + 0x80, 0);
	world_word(w, SP + 0x88, START);
	world_end_row(w, START);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, JIT + 0x100, JIT + 0x200, START);
}

/* The kernel is at work on what `syscall` in a trampoline at LEAF began, so the pc is behind that. */
static void inside_rt_sigreturn_the_signals_frame_is_the_stack_while_it_is_there(void **state)
{
	const struct msg_op rsp[] = { { MSG_OP_REG, RSP, 160 }, { MSG_OP_DEREF, 8, 0 } };
	const struct msg_op rip[] = { { MSG_OP_REG, RSP, 168 } };
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 0);
	fixture_last(&w->fixture)->flags = MSG_ROW_SIGNAL;
	world_cfa_expr(w, rsp, ARRAY_SIZE(rsp));
	fixture_last(&w->fixture)->ra = fixture_expr(&w->fixture, RIP, MSG_RULE_EXPR_MEM, rip, ARRAY_SIZE(rip));
	/* Behind the trampoline is a function that would read its return address elsewhere. */
	fixture_addr(&w->fixture, world_offset(LEAF + 16), false,
		     fixture_row(&w->fixture, world_offset(LEAF + 8), world_offset(LEAF + 32), RSP, 64), MSG_RES_CODE);
	world_leaf_row(w, A, RSP, 8);
	world_end_row(w, START);
	world_word(w, SP + 160, SP + 512);
	world_word(w, SP + 168, A);
	world_word(w, SP + 184, 0x002b000000000033);
	world_word(w, SP + 512, START);
	world_word(w, SP + 56, B);
	w->in.regs[RIP] = LEAF + 8;
	w->in.flags |= ABI_F_KERNEL_MODE | ABI_F_SIGRETURN;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF + 6, A + 1, START);

	/* The stack pointer is back, the pc is not: nothing leads on. */
	world_word(w, SP + 184, 0x002b000000000000);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF + 6);

	/* Both are back. */
	w->in.regs[RIP] = A;
	w->in.regs[RSP] = SP + 512;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_COMPLETE, A, START);
	/* Nothing is mapped there. */
	w->in.regs[RIP] = 1;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NO_MAPPING);
}

static void a_frame_pointer_that_is_none_ends_with_no_cfi(void **state)
{
	struct world *w = *state;
	const uint64_t bad[] = { 0,	 1,   -8ull,   SP - 8,	SP + 1,
				 SP + 4, TOP, TOP - 8, TOP + 8, OTHER_STACK };

	world_no_row(w, LEAF, false, MSG_RES_CODE);
	world_run(w);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		w->in.regs[RBP] = bad[i];
		assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
		EXPECT(w, UNWIND_NO_CFI, LEAF);
	}
	/* Not aligned as a push leaves it, whatever lies there. */
	w->in.regs[RBP] = SP + 0x104;
	memcpy(w->stack + ABI_RED_ZONE + 0x104 + 8, &(uint64_t){ START }, 8);
	world_end_row(w, START);
	world_run(w);
	EXPECT(w, UNWIND_NO_CFI, LEAF);
	/* Below sp, whatever lies there. */
	w->in.regs[RBP] = SP - 16;
	world_word(w, SP - 8, START);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NO_CFI, LEAF);
	/* Aligned and in the stack, but what lies there is no return address. */
	w->in.regs[RBP] = SP + 0x40;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NO_CFI, LEAF);
	/* 0, with a frame pointer or without: no proof of an end. */
	world_word(w, SP + 0x48, 0);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NO_CFI, LEAF);
	world_word(w, SP + 0x40, 0);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NO_CFI, LEAF);
	/* Code, but no call before it; and a function's first byte proves nothing here. */
	world_word(w, SP + 0x48, A);
	world_no_row(w, A, true, MSG_RES_CODE | MSG_RES_FUNCTION_START);
	world_run(w);
	EXPECT(w, UNWIND_NO_CFI, LEAF);
}

static void a_frame_pointer_into_what_was_cut_is_truncated(void **state)
{
	struct world *w = *state;

	world_no_row(w, LEAF, false, MSG_RES_CODE);
	w->in.regs[RBP] = TOP + 0x100;
	w->in.flags = ABI_F_TOP_KNOWN | ABI_F_CUT;
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF);
	w->in.flags = 0;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF);
}

static void registers_are_unknown_after_code_without_rows(void **state)
{
	struct world *w = *state;

	world_no_row(w, LEAF, false, MSG_RES_CODE);
	world_caller_row(w, A, RBX, 16);
	w->in.regs[RBX] = SP + 0x100;
	world_word(w, SP + 0x108, START);
	world_end_row(w, START);
	w->in.regs[RBP] = SP + 0x40;
	world_word(w, SP + 0x40, SP + 0x80);
	world_word(w, SP + 0x48, A);
	world_run(w);
	EXPECT(w, UNWIND_BAD_FRAME, LEAF, A);
}

static void code_of_a_file_that_cannot_be_read_is_like_jit_code(void **state)
{
	struct world *w = *state;

	w->in.regs[RBP] = SP + 0x40;
	world_word(w, SP + 0x40, 0);
	world_word(w, SP + 0x48, A);
	files_failed(w->files, w->prog);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NO_CFI, LEAF, A);
}

static void an_alias_uses_the_rows_of_its_canonical_file(void **state)
{
	struct world *w = *state;
	struct file *alias;
	struct map map = { .start = PROG, .end = PROG_END, .offset = PROG_OFFSET, .kind = MAP_FILE };

	assert_int_equal(
		files_get(w->files, &(struct file_key){ .inode = 2 }, "/merged/prog", &alias), 0);
	files_opened(w->files, w->prog, &(struct file_identity){ 1, 2, 3, 4 }, -1);
	files_opened(w->files, alias, &(struct file_identity){ 1, 2, 3, 4 }, -1);
	map.file = alias;
	assert_int_equal(maps_add(&w->maps, &map), 0);
	world_plain_stack(w);
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
}

static void a_32_bit_program_gives_its_leaf(void **state)
{
	struct world *w = *state;

	w->in.flags = ABI_F_COMPAT32;
	w->in.regs[RIP] = 0xdead00000000ull | LEAF;
	world_run(w);
	EXPECT(w, UNWIND_COMPAT32, LEAF);
	w->in.regs[RIP] = 0x10;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	assert_int_equal(w->result.nframes, 0);
	assert_int_equal(w->result.outcome, UNWIND_COMPAT32);
}

static void what_has_no_user_stack_says_why(void **state)
{
	struct world *w = *state;

	w->in.flags = ABI_F_KERNEL_THREAD;
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_KERNEL_THREAD);
	assert_int_equal(w->result.nframes, 0);
	w->in.nwindows = 0;
	w->in.flags = ABI_F_IN_EXEC | ABI_F_EXITING;
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_IN_EXEC);
	assert_int_equal(w->result.nframes, 0);
	w->in.flags = ABI_F_EXITING;
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_EXITING);
	assert_int_equal(w->result.nframes, 0);
	w->in.flags = 0;
	world_run(w);
	EXPECT(w, UNWIND_NO_STACK, LEAF);
	w->in.nregs = 0;
	world_run(w);
	assert_int_equal(w->result.outcome, UNWIND_NO_STACK);
	assert_int_equal(w->result.nframes, 0);
}

static void a_stack_in_exec_counts_only_when_it_is_complete(void **state)
{
	struct world *w = *state;

	world_plain_stack(w);
	w->in.flags = ABI_F_IN_EXEC;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, A, START);
	world_word(w, SP + 8, SP);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	assert_int_equal(w->result.outcome, UNWIND_IN_EXEC);
	assert_int_equal(w->result.nframes, 0);
}

static void a_new_thread_is_known_by_its_registers_and_its_empty_stack(void **state)
{
	struct world *w = *state;

	world_no_row(w, LEAF, false, MSG_RES_CODE);
	w->in.regs[RSP] = TOP - 16;
	w->in.regs[RCX] = LEAF;
	world_run(w);
	EXPECT(w, UNWIND_NEW_THREAD, LEAF);
	/* None of these is proof. */
	for (int missing = 0; missing < 4; missing++) {
		struct unwind_input in = w->in;

		switch (missing) {
		case 0:
			in.regs[RAX] = 1;
			break;
		case 1:
			in.regs[RCX]++;
			break;
		case 2:
			in.regs[RSP] = TOP - 1024;
			break;
		default:
			in.flags = 0;
			break;
		}
		assert_int_equal(unwind_run(&in, w->maps, false, &w->result), UNWIND_DONE);
		EXPECT(w, UNWIND_NO_CFI, LEAF);
	}
}

static void behind_a_clone_the_child_is_a_new_thread_and_the_parent_has_a_caller(void **state)
{
	struct world *w = *state;

	world_leaf_row(w, LEAF, RSP, 8);
	fixture_last(&w->fixture)->flags = MSG_ROW_CLONE;
	world_end_row(w, START);
	world_word(w, SP, START);
	w->in.regs[RAX] = 4711;
	world_run(w);
	EXPECT(w, UNWIND_COMPLETE, LEAF, START);
	w->in.regs[RAX] = 0;
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_NEW_THREAD, LEAF);
}

static void guesses_are_unknown_code_nearest_to_the_stack_pointer_first(void **state)
{
	struct world *w = *state;
	struct unwind_want wants[8];

	memset(w->stack, 0, sizeof(w->stack));
	world_word(w, SP - 8, C); /* below sp: not on the stack */
	world_word(w, SP + 0x10, B);
	world_word(w, SP + 0x18, JIT + 8); /* no file */
	world_word(w, SP + 0x20, A);
	world_word(w, SP + 0x28, B);	 /* again */
	world_word(w, SP + 0x30, START); /* known */
	world_word(w, SP + 0x40, C);
	world_word(w, SP + 0x48, UINT64_MAX);
	world_end_row(w, START);
	assert_int_equal(fixture_put(&w->fixture, w->prog->rows), 0);
	assert_int_equal(unwind_guess(&w->in, w->maps, wants, 8), 3);
	assert_int_equal(wants[0].offset, world_offset(B));
	assert_int_equal(wants[1].offset, world_offset(A));
	assert_int_equal(wants[2].offset, world_offset(C));
	assert_true(wants[0].is_return);
	assert_ptr_equal(wants[0].file, w->prog);
	assert_int_equal(unwind_guess(&w->in, w->maps, wants, 2), 2);
	assert_int_equal(unwind_guess(&w->in, w->maps, wants, 0), 0);
}

/* Whatever is on the stack: guesses never become frames. */
static void guesses_are_bounded(void **state)
{
	static struct unwind_want wants[1024];
	struct world *w = *state;

	for (uint64_t at = STACK; at < TOP; at += 8)
		world_word(w, at, PROG + (at - STACK) * 3);
	assert_true(unwind_guess(&w->in, w->maps, wants, 1024) <= 512);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_WANT);
	assert_int_equal(w->result.nframes, 1);
}

static void every_outcome_has_a_text_and_the_marked_ones_a_root(void **state UNUSED)
{
	for (enum unwind_outcome o = 0; o < UNWIND_OUTCOME_COUNT; o++) {
		assert_non_null(unwind_outcome_text(o));
		/* What does not count needs no marker; what counts and is not complete has one. */
		assert_int_equal(unwind_outcome_root(o)[0] != '\0',
				 unwind_outcome_counts(o) && o != UNWIND_COMPLETE);
	}
}

/* leaf <- A <- B, of whose frame nothing was copied. */
static void cut_at_b(struct world *w)
{
	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 32);
	world_caller_row(w, B, RSP, STACK_BYTES);
	world_caller_row(w, C, RSP, 16);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	world_word(w, SP + 40, B);
	w->in.flags |= ABI_F_CUT;
}

static void frame_pointers_go_on_where_the_copy_ends(void **state)
{
	static const uint64_t followed[] = { LEAF, A, B, C, START, C }, without_a[] = { LEAF, B, C, START };
	struct world *w = *state;

	cut_at_b(w);
	world_run(w);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B);
	w->in.followed = followed;
	w->in.nfollowed = ARRAY_SIZE(followed);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B, C, START);
	assert_true(w->result.missing);
	/* A leaf without a frame has its caller's frame pointer. */
	w->in.followed = without_a;
	w->in.nfollowed = ARRAY_SIZE(without_a);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
	EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B, C, START);
}

static void frame_pointers_that_do_not_agree_are_not_followed(void **state)
{
	static const uint64_t others[][4] = {
		{ A, A, B, C }, { LEAF, A, C, START }, { LEAF, A, 0, C }, { LEAF, A, B, 0x1234 }, { LEAF, A, B, JIT + 5 },
	};
	struct world *w = *state;

	cut_at_b(w);
	world_run(w);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		w->in.followed = others[i];
		w->in.nfollowed = ARRAY_SIZE(others[i]);
		assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
		if (i == ARRAY_SIZE(others) - 1)
			EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B, JIT + 5); /* code without rows: nothing contradicts */
		else
			EXPECT(w, UNWIND_TRUNCATED, LEAF, A, B);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(frame_pointers_go_on_where_the_copy_ends),
		TEST(frame_pointers_that_do_not_agree_are_not_followed),
		TEST(hostile_registers_wrap_nothing),
		TEST(a_cfa_that_is_no_user_address_is_bad),
		TEST(a_circle_is_found_and_cut),
		TEST(a_frame_that_is_its_own_caller_is_bad),
		TEST(a_caller_below_its_callee_is_bad),
		TEST(endless_switching_of_stacks_is_bounded),
		TEST(a_stack_deeper_than_the_limit_is_too_deep),
		TEST(a_return_address_that_follows_no_call_is_bad),
		TEST(a_return_to_the_first_byte_of_a_function_is_the_root),
		TEST(an_end_needs_no_call_before_it),
		TEST(a_return_address_of_zero_or_an_undefined_one_is_the_root),
		TEST(a_return_address_outside_executable_memory_ends_the_stack),
		TEST(a_return_address_at_the_end_of_its_mapping_belongs_to_it),
		TEST(a_return_address_at_the_start_of_its_mapping_does_not),
		TEST(an_offset_that_no_file_has_is_memory_without_a_file),
		TEST(code_without_rows_is_walked_by_its_frame_pointer),
		TEST(jit_code_is_walked_by_its_frame_pointer),
		TEST(inside_rt_sigreturn_the_signals_frame_is_the_stack_while_it_is_there),
		TEST(a_frame_pointer_that_is_none_ends_with_no_cfi),
		TEST(a_frame_pointer_into_what_was_cut_is_truncated),
		TEST(registers_are_unknown_after_code_without_rows),
		TEST(code_of_a_file_that_cannot_be_read_is_like_jit_code),
		TEST(an_alias_uses_the_rows_of_its_canonical_file),
		TEST(a_32_bit_program_gives_its_leaf),
		TEST(what_has_no_user_stack_says_why),
		TEST(a_stack_in_exec_counts_only_when_it_is_complete),
		TEST(a_new_thread_is_known_by_its_registers_and_its_empty_stack),
		TEST(behind_a_clone_the_child_is_a_new_thread_and_the_parent_has_a_caller),
		TEST(guesses_are_unknown_code_nearest_to_the_stack_pointer_first),
		TEST(guesses_are_bounded),
		TEST(every_outcome_has_a_text_and_the_marked_ones_a_root),
	};

	return cmocka_run_group_tests_name("unwind_ends", tests, NULL, NULL);
}
