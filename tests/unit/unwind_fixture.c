#include "tests/unit/unwind_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct world world;

int world_set_up(void **state)
{
	struct world *w = &world;
	struct map prog = {
		.start = PROG, .end = PROG_END, .offset = PROG_OFFSET, .kind = MAP_FILE
	};
	struct map jit = { .start = JIT, .end = JIT + 0x10000, .kind = MAP_ANON };

	memset(&w->in, 0, sizeof(w->in));
	memset(w->stack, 0xee, sizeof(w->stack));
	memset(w->other, 0xdd, sizeof(w->other));
	if (files_new(&w->files) ||
	    files_get(w->files, &(struct file_key){ .inode = 1 }, "/prog", &w->prog) ||
	    maps_new(&w->maps) || rows_new(&w->prog->rows))
		return -1;
	prog.file = w->prog;
	if (maps_add(&w->maps, &prog) || maps_add(&w->maps, &jit))
		return -1;
	fixture_init(&w->fixture);
	w->in.nregs = ABI_X86_NREGS;
	w->in.regs[RSP] = SP;
	w->in.regs[RIP] = LEAF;
	w->in.flags = ABI_F_TOP_KNOWN;
	w->in.nwindows = 1;
	w->in.windows[0] =
		(struct unwind_window){ .address = STACK, .data = w->stack, .len = STACK_BYTES };
	*state = w;
	return 0;
}

int world_tear_down(void **state)
{
	struct world *w = *state;

	maps_unref(w->maps);
	files_free(w->files);
	return 0;
}

uint64_t world_offset(uint64_t pc)
{
	return pc - PROG + PROG_OFFSET;
}

void world_word(struct world *w, uint64_t address, uint64_t value)
{
	assert_true(address >= STACK && address <= TOP - 8);
	memcpy(w->stack + (address - STACK), &value, sizeof(value));
}

void world_leaf_row(struct world *w, uint64_t pc, uint8_t reg, int32_t off)
{
	fixture_addr(&w->fixture, world_offset(pc), false,
		     fixture_row(&w->fixture, world_offset(pc) - 8, world_offset(pc) + 8, reg, off),
		     MSG_RES_CODE);
}

void world_caller_row(struct world *w, uint64_t pc, uint8_t reg, int32_t off)
{
	fixture_addr(&w->fixture, world_offset(pc), true,
		     fixture_row(&w->fixture, world_offset(pc) - 8, world_offset(pc) + 8, reg, off),
		     CALL);
}

void world_end_row(struct world *w, uint64_t pc)
{
	world_caller_row(w, pc, RSP, 8);
	fixture_last(&w->fixture)->flags = MSG_ROW_END;
}

void world_no_row(struct world *w, uint64_t pc, bool is_return, uint32_t flags)
{
	fixture_addr(&w->fixture, world_offset(pc), is_return, FIXTURE_NO_ROW, flags);
}

void world_rule(struct world *w, uint8_t target, enum msg_rule_kind kind, uint8_t reg, int32_t off)
{
	fixture_rule(&w->fixture, target, kind, reg, off);
}

void world_cfa_expr(struct world *w, const struct msg_op *ops, uint32_t n)
{
	fixture_last(&w->fixture)->cfa = fixture_expr(&w->fixture, 0, MSG_RULE_EXPR_VAL, ops, n);
}

void world_forget(struct world *w)
{
	w->prog->rows = rows_free(w->prog->rows);
	assert_int_equal(rows_new(&w->prog->rows), 0);
	fixture_init(&w->fixture);
}

void world_run(struct world *w)
{
	assert_int_equal(fixture_put(&w->fixture, w->prog->rows), 0);
	assert_int_equal(unwind_run(&w->in, w->maps, false, &w->result), UNWIND_DONE);
}

void world_expect(const struct world *w, enum unwind_outcome outcome, const uint64_t *pcs,
		  uint32_t n)
{
	assert_string_equal(unwind_outcome_text(w->result.outcome), unwind_outcome_text(outcome));
	assert_int_equal(w->result.nframes, n);
	for (uint32_t i = 0; i < n; i++) {
		const struct unwind_frame *f = &w->result.frames[i];
		bool in_prog = pcs[i] >= PROG && pcs[i] < PROG_END;

		assert_int_equal(f->offset, (in_prog ? world_offset(pcs[i]) : pcs[i]) - (i > 0));
		assert_ptr_equal(f->file, in_prog ? w->prog : NULL);
		assert_int_equal(f->map_kind, in_prog ? MAP_FILE : MAP_ANON);
	}
}
void world_plain_stack(struct world *w)
{
	world_leaf_row(w, LEAF, RSP, 16);
	world_caller_row(w, A, RSP, 32);
	world_end_row(w, START);
	world_word(w, SP + 8, A);
	world_word(w, SP + 16 + 24, START);
}
