/*
 * unwind_fixture - a world: one program file, one piece of memory without file, one stack, and what
 * the symbolizer has said. Tests write return addresses into the stack and ask for the frames.
 */
#ifndef TESTS_UNIT_UNWIND_FIXTURE_H
#define TESTS_UNIT_UNWIND_FIXTURE_H

#include "agent/files.h"
#include "agent/unwind.h"
#include "tests/unit/rows_fixture.h"

enum {
	RBX = ABI_X86_RBX,
	RBP = ABI_X86_RBP,
	RSP = ABI_X86_RSP,
	RIP = ABI_X86_RIP,
	RAX = ABI_X86_RAX,
	RCX = ABI_X86_RCX,
	RDI = ABI_X86_RDI,
	R10 = ABI_X86_R10,
	R12 = ABI_X86_R12,
	STACK_BYTES = 64 * 1024,
	CALL = MSG_RES_CODE | MSG_RES_AFTER_CALL,
};
#define PROG	    0x400000ull
#define PROG_END    0x800000ull
#define PROG_OFFSET 0x1000ull
#define JIT	    0x900000ull
#define STACK	    0x7ffe00000000ull /* lowest copied address */
#define SP	    (STACK + ABI_RED_ZONE)
#define TOP	    (STACK + STACK_BYTES)
#define OTHER_STACK 0x7f0000000000ull
/* Functions; an address in each, far enough apart for a row of +-8 bytes. */
#define LEAF	    0x401000ull
#define A	    0x402000ull
#define B	    0x403000ull
#define C	    0x404000ull
#define START	    0x405000ull

struct world {
	struct files *files;
	struct file *prog;
	struct maps *maps;
	struct unwind_input in;
	uint8_t stack[STACK_BYTES];
	uint8_t other[4096];
	struct rows_fixture fixture;
	struct unwind_result result;
};

int world_set_up(void **state);
int world_tear_down(void **state);
uint64_t world_offset(uint64_t pc); /* in the program's file */
/* The word at this stack address. */
void world_word(struct world *w, uint64_t address, uint64_t value);
/* A row around pc, known for pc as a leaf, or as a return address. */
void world_leaf_row(struct world *w, uint64_t pc, uint8_t reg, int32_t off);
void world_caller_row(struct world *w, uint64_t pc, uint8_t reg, int32_t off);
/* The outermost function. */
void world_end_row(struct world *w, uint64_t pc);
void world_no_row(struct world *w, uint64_t pc, bool is_return, uint32_t flags);
/* Of the last row. */
void world_rule(struct world *w, uint8_t target, enum msg_rule_kind kind, uint8_t reg, int32_t off);
void world_cfa_expr(struct world *w, const struct msg_op *ops, uint32_t n);
/* No rows are known any more. */
void world_forget(struct world *w);
/* Stores the rows and unwinds; fails where more rows are wanted. */
void world_run(struct world *w);
/* Return addresses (the leaf's pc first); the callers' frames lie one byte before. */
void world_expect(const struct world *w, enum unwind_outcome outcome, const uint64_t *pcs,
		  uint32_t n);
/* leaf (16 bytes) <- A (32) <- START */
void world_plain_stack(struct world *w);

#define EXPECT(w, outcome, ...)                               \
	world_expect(w, outcome, (uint64_t[]){ __VA_ARGS__ }, \
		     sizeof((uint64_t[]){ __VA_ARGS__ }) / 8)

#endif
