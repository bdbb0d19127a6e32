#include "symbolizer/golang.h"

#include <dwarf.h>
#include <string.h>

#include "symbolizer/code.h"

enum {
	SAVED_RBP = -16,	/* from the CFA */
	SETUP_LEN = 4,		/* push %rbp; mov %rsp, %rbp */
	SAVES_SP_LEN = 3,	/* mov %rsp, %r12 */
	CALL_LEN = 2,		/* call *%rax */
	CODE_MAX = 512,		/* bytes of a function that are looked at */
};

static bool is_name(struct bytes name, const char *text)
{
	size_t len = strlen(text);

	return name.len == len && memcmp(name.p, text, len) == 0;
}

/* Where these bytes are next, as an offset in the function; 0: not there. */
static size_t find_code(struct bytes code, size_t from, const char *text, size_t len)
{
	size_t max = MIN(code.len, (size_t)CODE_MAX);
	const uint8_t *found = from < max ? memmem(code.p + from, max - from, text, len) : NULL;

	return found ? (size_t)(found - code.p) : 0;
}

/* What asmcgocall of Go 1.20 and before does with the stack, as offsets in it. */
struct cgo_code {
	size_t leaves;		/* mov 0x38(%rsi), %rsp */
	size_t calls;		/* on the system stack, g and depth stored */
	size_t calls_there;	/* when it was on it already, the old rsp stored */
};

static bool read_cgo_code(struct bytes code, struct cgo_code *ret)
{
	size_t g, depth, old;

	ret->leaves = find_code(code, 0, "\x48\x8b\x66\x38", 4);
	g = find_code(code, ret->leaves, "\x48\x89\x7c\x24\x30", 5);
	depth = find_code(code, g, "\x48\x89\x7c\x24\x28", 5);
	ret->calls = find_code(code, depth, "\xff\xd0", CALL_LEN);
	old = find_code(code, ret->calls, "\x48\x89\x54\x24\x28", 5);
	ret->calls_there = find_code(code, old, "\xff\xd0", CALL_LEN);
	return ret->leaves && g && depth && ret->calls && old && ret->calls_there;
}

/* Whether these bytes begin with `sub $N, %rsp; mov %rbp, N-8(%rsp)`: compiled code, from before Go 1.21. */
static bool is_wrapper(struct bytes code)
{
	return code.len >= 4 && memcmp(code.p, "\x48\x83\xec", 3) == 0 &&
	       code_saves_rbp_at((struct bytes){ code.p + 4, code.len - 4 }, (int8_t)code.p[3] - 8);
}

static enum golang_kind kind_of_asmcgocall(struct bytes code)
{
	struct cgo_code cgo;

	if (code_is_frame_setup(code))
		return GOLANG_SWITCH;
	if (read_cgo_code(code, &cgo))
		return GOLANG_CGO;
	return is_wrapper(code) ? GOLANG_PLAIN : GOLANG_NO_RULE;
}

static bool calls_vdso(struct bytes name)
{
	static const char *const names[] = {
		"runtime.nanotime1", "runtime.walltime", "time.now", "runtime.vgetrandom1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (is_name(name, names[i]))
			return true;
	return false;
}

/* Where r12 begins to hold rsp, as an offset in the function; 0: nowhere. */
static size_t find_saved_sp(struct bytes code)
{
	size_t at = find_code(code, 0, "\x49\x89\xe4", SAVES_SP_LEN);

	return at && find_code(code, at, "\x4c\x89\xe4", SAVES_SP_LEN) ? at + SAVES_SP_LEN : 0;
}

enum golang_kind golang_kind(struct bytes name, struct bytes code)
{
	static const char abi0[] = ".abi0"; /* how the linker marks assembly's calling convention */
	static const char *const ends[] = {
		"runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.rt0_go",
		"_rt0_amd64", "_rt0_amd64_linux",
	};
	size_t len = sizeof(abi0) - 1;

	if (name.len > len && memcmp(name.p + name.len - len, abi0, len) == 0)
		name.len -= len;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (is_name(name, ends[i]))
			return GOLANG_END;
	if (is_name(name, "runtime.morestack") || is_name(name, "runtime.morestack_noctxt"))
		return GOLANG_END;
	if (is_name(name, "runtime.systemstack"))
		return code_is_frame_setup(code) ? GOLANG_SWITCH : GOLANG_PLAIN;
	if (is_name(name, "runtime.asmcgocall"))
		return kind_of_asmcgocall(code);
	if (calls_vdso(name) && find_saved_sp(code))
		return GOLANG_VDSO;
	return GOLANG_PLAIN;
}

uint64_t golang_switched_from(enum golang_kind kind, uint64_t start, struct bytes code)
{
	return start + (kind == GOLANG_VDSO ? find_saved_sp(code) : SETUP_LEN);
}

void golang_switch_state(struct cfi_state *ret)
{
	*ret = (struct cfi_state){
		.cfa = { .kind = CFI_REGISTER, .reg = CFI_RBP, .off = -SAVED_RBP },
		.regs[CFI_RBP] = { .kind = CFI_OFFSET, .off = SAVED_RBP },
		.regs[CFI_RIP] = { .kind = CFI_OFFSET, .off = -8 },
	};
}

/* Where CFA - 16 begins to hold rbp, when the function's first row with a frame begins at `start`. */
static uint64_t find_rbp_saved(const struct elffile *f, uint64_t start, int64_t cfa_off)
{
	struct bytes before = elffile_before(f, start, 1);
	size_t len;

	if (cfa_off == -SAVED_RBP && before.len == 1 && before.p[0] == 0x55)
		return start;
	len = code_saves_rbp_at(elffile_at(f, start), cfa_off + SAVED_RBP);
	return len ? start + len : UINT64_MAX;
}

/* The row of code that the stack pointer has left; rbp's rule is that of the frame. */
static void switched_state(const struct golang_rows *g, const struct cfi_state *frame, struct cfi_state *ret)
{
	if (g->kind == GOLANG_SWITCH) {
		golang_switch_state(ret);
		return;
	}
	*ret = *frame;
	ret->cfa.reg = CFI_R12;
}

/* Rows of [start, end), whose frame is complete, and from `switched` on on another stack. */
static bool give(const struct golang_rows *g, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct cfi_state switched;
	uint64_t from = UINT64_MAX;

	if (g->kind == GOLANG_SWITCH || g->kind == GOLANG_VDSO)
		from = golang_switched_from(g->kind, g->start, elffile_at(g->file, g->start));
	if (start < from && !g->fn(g->arg, start, MIN(end, from), state))
		return false;
	if (from >= end)
		return true;
	switched_state(g, state, &switched);
	return g->fn(g->arg, MAX(start, from), end, &switched);
}

bool golang_row(void *rows, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct golang_rows *g = rows;
	struct cfi_state full = *state;
	uint64_t from;

	if (state->cfa.kind != CFI_REGISTER || state->cfa.reg != CFI_RSP || state->cfa.off < -SAVED_RBP ||
	    state->regs[CFI_RBP].kind != CFI_UNSPECIFIED)
		return g->fn(g->arg, start, end, state);
	if (!g->rbp_saved_from)
		g->rbp_saved_from = find_rbp_saved(g->file, start, state->cfa.off);
	from = g->rbp_saved_from;
	if (start < from && !give(g, start, MIN(end, from), state))
		return false;
	full.regs[CFI_RBP] = (struct cfi_rule){ .kind = CFI_OFFSET, .off = SAVED_RBP };
	return from >= end || give(g, MAX(start, from), end, &full);
}

static bool on_depth(void *rows, uint64_t start, uint64_t end, uint32_t depth)
{
	struct cfi_state state = {
		.cfa = { .kind = CFI_REGISTER, .reg = CFI_RSP, .off = (int64_t)depth + 8 },
		.regs[CFI_RIP] = { .kind = CFI_OFFSET, .off = -8 },
	};

	return golang_row(rows, start, end, &state);
}

static void cgo_rows(const struct golang_rows *g)
{
	/* CFA = g.stack.hi - depth + 8; and the old rsp + 8. */
	static const uint8_t left[] = {
		DW_OP_breg7, 0x30, DW_OP_deref, DW_OP_plus_uconst, 8, DW_OP_deref,
		DW_OP_breg7, 0x28, DW_OP_deref, DW_OP_minus, DW_OP_plus_uconst, 8,
	};
	static const uint8_t there[] = { DW_OP_breg7, 0x28, DW_OP_deref, DW_OP_plus_uconst, 8 };
	struct cfi_state state = {
		.cfa = { .kind = CFI_REGISTER, .reg = CFI_RSP, .off = 8 },
		.regs[CFI_RIP] = { .kind = CFI_OFFSET, .off = -8 },
	};
	struct cgo_code at;

	if (!read_cgo_code(elffile_at(g->file, g->start), &at) ||
	    !g->fn(g->arg, g->start, g->start + at.leaves, &state))
		return;
	state.cfa = (struct cfi_rule){ .kind = CFI_VAL_EXPRESSION, .expr = { left, sizeof(left) } };
	if (!g->fn(g->arg, g->start + at.calls, g->start + at.calls + CALL_LEN, &state))
		return;
	state.cfa.expr = (struct bytes){ there, sizeof(there) };
	g->fn(g->arg, g->start + at.calls_there, g->start + at.calls_there + CALL_LEN, &state);
}

void golang_run(struct golang_rows *rows, struct gopclntab *t, const struct gofunc *fn)
{
	if (rows->kind == GOLANG_CGO)
		cgo_rows(rows);
	else if (rows->kind != GOLANG_NO_RULE)
		gopclntab_each_depth(t, fn, on_depth, rows);
}
