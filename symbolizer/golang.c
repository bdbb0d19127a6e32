#include "symbolizer/golang.h"

#include <dwarf.h>
#include <string.h>

#include "symbolizer/code.h"

enum {
	SAVED_RBP = -16,	/* from the CFA */
	SETUP_LEN = 4,		/* push %rbp; mov %rsp, %rbp */
	LEAVES_SYSTEM_LEN = 4,	/* mov 0x38(%rax), %rsp */
	CODE_MAX = 512,		/* bytes of a function that are looked at */
	PLACE_MAX = 64,		/* for the first look at g */
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

/* Behind the next of these instructions, as an offset in the function; SIZE_MAX: it is not there. */
static size_t behind(struct bytes code, size_t from, const char *text, size_t len)
{
	size_t at = find_code(code, from, text, len);

	return at ? at + len : SIZE_MAX;
}

/* What asmcgocall of Go 1.20 and before does with the stack: offsets behind the instruction that does it. */
struct cgo_code {
	size_t left;		/* mov 0x38(%rsi), %rsp, with the old rsp in rdx */
	size_t stored;		/* g and depth, on the system stack */
	size_t back;		/* mov %rsi, %rsp, behind the call */
	size_t aligned;		/* when it was there already: sub $N, %rsp, with the old rsp in rdx */
	size_t stored_there;	/* the old rsp */
	size_t back_there;
	size_t end;
};

static bool read_cgo_code(struct bytes code, struct cgo_code *ret)
{
	static const char call_rax[] = "\xff\xd0", mov_rsi_rsp[] = "\x48\x89\xf4";
	size_t at;

	at = behind(code, 0, "\x48\x89\xe2", 3); /* mov %rsp, %rdx */
	at = ret->left = behind(code, at, "\x48\x8b\x66\x38", 4);
	at = behind(code, at, "\x48\x89\x7c\x24\x30", 5); /* mov %rdi, 0x30(%rsp): g */
	at = ret->stored = behind(code, at, "\x48\x89\x7c\x24\x28", 5);
	at = behind(code, at, call_rax, 2);
	at = ret->back = behind(code, at, mov_rsi_rsp, 3);
	at = behind(code, at, "\x48\x83\xec", 3);
	ret->aligned = at + 1; /* behind N */
	at = ret->stored_there = behind(code, at, "\x48\x89\x54\x24\x28", 5);
	at = behind(code, at, call_rax, 2);
	at = ret->back_there = behind(code, at, mov_rsi_rsp, 3);
	ret->end = behind(code, at, "\xc3", 1);
	return ret->end != SIZE_MAX;
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

/* From behind the first instruction to behind the second. */
static struct golang_span span_between(struct bytes code, const char *first, size_t first_len,
				       const char *second, size_t second_len)
{
	size_t from = find_code(code, 0, first, first_len);
	size_t to = from ? find_code(code, from, second, second_len) : 0;

	return to ? (struct golang_span){ from + first_len, to + second_len } : (struct golang_span){ 0, 0 };
}

struct golang_span golang_switched(enum golang_kind kind, struct bytes code)
{
	static const char mov_rsp_r12[] = "\x49\x89\xe4", mov_r12_rsp[] = "\x4c\x89\xe4";
	static const char mov_rbx_rsp[] = "\x48\x89\xdc", mov_rax_38_rsp[] = "\x48\x8b\x60\x38";
	static const char mov_rbx_38_rsp[] = "\x48\x8b\x63\x38";
	static const char mov_rdi_rsp[] = "\x48\x89\xfc", mov_rsi_38_rsp[] = "\x48\x8b\x66\x38";
	struct golang_span span = { 0, 0 };

	switch (kind) {
	case GOLANG_SWITCH:
		return (struct golang_span){ SETUP_LEN, UINT32_MAX };
	case GOLANG_CALLBACK:
		return span_between(code, mov_rdi_rsp, sizeof(mov_rdi_rsp) - 1, mov_rsi_38_rsp,
				    sizeof(mov_rsi_38_rsp) - 1);
	case GOLANG_VDSO: /* r12 stays when rsp is back */
		span = span_between(code, mov_rsp_r12, sizeof(mov_rsp_r12) - 1, mov_r12_rsp, sizeof(mov_r12_rsp) - 1);
		if (span.to)
			span.to = UINT32_MAX;
		return span;
	case GOLANG_MORESTACK: /* and does not come back */
		span.from = find_code(code, 0, mov_rbx_38_rsp, sizeof(mov_rbx_38_rsp) - 1);
		if (span.from)
			span = (struct golang_span){ span.from + sizeof(mov_rbx_38_rsp) - 1, UINT32_MAX };
		return span;
	case GOLANG_SYSTEM:
		return span_between(code, mov_rbx_rsp, sizeof(mov_rbx_rsp) - 1, mov_rax_38_rsp,
				    sizeof(mov_rax_38_rsp) - 1);
	case GOLANG_PLAIN:
	case GOLANG_END:
	case GOLANG_ASYNC:
	case GOLANG_CGO:
	case GOLANG_NO_RULE:
	default:
		return span;
	}
}

/* `kind` where the code does what it stands for. */
static enum golang_kind kind_by_code(enum golang_kind kind, struct bytes code, enum golang_kind otherwise)
{
	return golang_switched(kind, code).to ? kind : otherwise;
}

enum golang_kind golang_kind(struct bytes name, struct bytes code)
{
	static const char abi0[] = ".abi0"; /* how the linker marks assembly's calling convention */
	static const char *const ends[] = {
		"runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.rt0_go", "_rt0_amd64", "_rt0_amd64_linux",
	};
	size_t len = sizeof(abi0) - 1;

	if (name.len > len && memcmp(name.p + name.len - len, abi0, len) == 0)
		name.len -= len;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (is_name(name, ends[i]))
			return GOLANG_END;
	if (is_name(name, "runtime.asyncPreempt"))
		return GOLANG_ASYNC;
	if (is_name(name, "runtime.systemstack"))
		return code_is_frame_setup(code) ? GOLANG_SWITCH : kind_by_code(GOLANG_SYSTEM, code, GOLANG_NO_RULE);
	if (is_name(name, "runtime.morestack"))
		return kind_by_code(GOLANG_MORESTACK, code, GOLANG_NO_RULE);
	if (is_name(name, "runtime.asmcgocall"))
		return kind_of_asmcgocall(code);
	if (is_name(name, "runtime.cgocallback"))
		return kind_by_code(GOLANG_CALLBACK, code, GOLANG_NO_RULE);
	return calls_vdso(name) ? kind_by_code(GOLANG_VDSO, code, GOLANG_PLAIN) : GOLANG_PLAIN;
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

/* The row of code that is on another stack; `frame` is what holds without the switch. */
static void switched_state(enum golang_kind kind, const struct cfi_state *frame, struct cfi_state *ret)
{
	*ret = *frame;
	switch (kind) {
	case GOLANG_SWITCH:
	case GOLANG_CALLBACK:
		golang_switch_state(ret);
		break;
	case GOLANG_VDSO:
		ret->cfa.reg = CFI_R12;
		break;
	case GOLANG_SYSTEM:
		ret->cfa = (struct cfi_rule){ .kind = CFI_REGISTER, .reg = MSG_REG_GOROUTINE_SP, .off = 8 };
		break;
	case GOLANG_MORESTACK:
		ret->cfa = (struct cfi_rule){ .kind = CFI_REGISTER, .reg = MSG_REG_GOROUTINE_SP, .off = 0 };
		ret->regs[CFI_RIP] = (struct cfi_rule){ .kind = CFI_REGISTER, .reg = MSG_REG_GOROUTINE_PC };
		break;
	case GOLANG_PLAIN:
	case GOLANG_END:
	case GOLANG_ASYNC:
	case GOLANG_CGO:
	case GOLANG_NO_RULE:
	default:
		break;
	}
}

/*
 * The rows of [from, to), on the other stack. At the instruction with which systemstack leaves it, g is the
 * goroutine again, in rax, and nobody waits any more.
 */
static bool give_switched(const struct golang_rows *g, uint64_t from, uint64_t to, const struct cfi_state *state)
{
	/* DW_OP_breg0 0x38; DW_OP_deref; DW_OP_plus_uconst 8 */
	static const uint8_t leaving[] = { DW_OP_breg0, 0x38, DW_OP_deref, DW_OP_plus_uconst, 8 };
	struct golang_span span = golang_switched(g->kind, elffile_at(g->file, g->start));
	uint64_t last = MIN(MAX(from, g->start + span.to - LEAVES_SYSTEM_LEN), to);
	struct cfi_state switched;

	switched_state(g->kind, state, &switched);
	if (g->kind != GOLANG_SYSTEM)
		return from >= to || g->fn(g->arg, from, to, &switched);
	if (from < last && !g->fn(g->arg, from, last, &switched))
		return false;
	switched.cfa = (struct cfi_rule){ .kind = CFI_VAL_EXPRESSION, .expr = { leaving, sizeof(leaving) } };
	return last >= to || g->fn(g->arg, last, to, &switched);
}

/* Rows of [start, end): before the switch of stack, on the other one, and after it. */
static bool give(const struct golang_rows *g, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct golang_span span = golang_switched(g->kind, elffile_at(g->file, g->start));
	uint64_t from = MIN(MAX(start, g->start + span.from), end), to = MIN(MAX(from, g->start + span.to), end);
	bool is_back = span.to == UINT32_MAX && state->cfa.kind == CFI_REGISTER && state->cfa.off == 8 &&
		       g->kind != GOLANG_MORESTACK;

	/* A function whose frame is gone has left the other stack before. */
	if (!span.to || is_back)
		return g->fn(g->arg, start, end, state);
	return (start >= from || g->fn(g->arg, start, from, state)) && give_switched(g, from, to, state) &&
	       (to >= end || g->fn(g->arg, to, end, state));
}

bool golang_row(void *rows, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct golang_rows *g = rows;
	struct cfi_state full = *state;
	uint64_t from;

	if (g->kind == GOLANG_SYSTEM || g->kind == GOLANG_MORESTACK)
		return give(g, start, end, state);
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

struct msg_go golang_place(const struct elffile *f, const struct gofunc *fn)
{
	struct bytes code = elffile_at(f, fn->start);
	int32_t off;

	/* mov %fs:OFF, %reg; or mov %fs:(%reg), %reg, behind mov $OFF, %reg or mov SLOT(%rip), %reg. */
	for (size_t at = 0; at + 9 <= MIN(code.len, (size_t)PLACE_MAX); at++) {
		const uint8_t *p = code.p + at, *before = at >= 7 ? p - 7 : NULL;
		uint8_t base = p[3] & 7;

		if (memcmp(p, "\x64\x48\x8b", 3) != 0 || p[3] >> 6)
			continue;
		if (base == 4 && p[4] == 0x25) {
			memcpy(&off, p + 5, sizeof(off));
			return (struct msg_go){ .kind = MSG_GO_FIXED, .off = off };
		}
		if (!before)
			break;
		memcpy(&off, before + 3, sizeof(off));
		if (memcmp(before, "\x48\xc7", 2) == 0 && before[2] == (0xc0 | base))
			return (struct msg_go){ .kind = MSG_GO_FIXED, .off = off };
		if (memcmp(before, "\x48\x8b", 2) == 0 && before[2] == (base << 3 | 5))
			return (struct msg_go){ .kind = MSG_GO_SLOT, .off = (int64_t)(fn->start + at) + off };
		break;
	}
	return (struct msg_go){ .kind = MSG_GO_NONE };
}

void golang_cgo_rows(const struct golang_rows *g)
{
	/* CFA = (goroutine_sp ? goroutine_sp : g.stack.hi - depth) + 8; and the old rsp + 8. */
	static const uint8_t left[] = {
		DW_OP_bregx, MSG_REG_GOROUTINE_SP, 0, DW_OP_dup, DW_OP_bra, 11, 0, DW_OP_drop,
		DW_OP_breg7, 0x30, DW_OP_deref, DW_OP_plus_uconst, 8, DW_OP_deref,
		DW_OP_breg7, 0x28, DW_OP_deref, DW_OP_minus, DW_OP_plus_uconst, 8,
	};
	static const uint8_t there[] = { DW_OP_breg7, 0x28, DW_OP_deref, DW_OP_plus_uconst, 8 };
	struct cfi_state state = { .regs[CFI_RIP] = { .kind = CFI_OFFSET, .off = -8 } };
	const struct cfi_rule on_top = { .kind = CFI_REGISTER, .reg = CFI_RSP, .off = 8 };
	const struct cfi_rule in_rdx = { .kind = CFI_REGISTER, .reg = CFI_RDX, .off = 8 };
	struct cgo_code at;
	uint64_t from = 0;
	bool ok = read_cgo_code(elffile_at(g->file, g->start), &at);
	const struct {
		uint64_t to;
		struct cfi_rule cfa;
	} rows[] = {
		{ at.left, on_top },
		{ at.stored, in_rdx },
		{ at.back, { .kind = CFI_VAL_EXPRESSION, .expr = { left, sizeof(left) } } },
		{ at.aligned, on_top },
		{ at.stored_there, in_rdx },
		{ at.back_there, { .kind = CFI_VAL_EXPRESSION, .expr = { there, sizeof(there) } } },
		{ at.end, on_top },
	};

	for (size_t i = 0; ok && i < ARRAY_SIZE(rows); from = rows[i++].to) {
		state.cfa = rows[i].cfa;
		ok = g->fn(g->arg, g->start + from, g->start + rows[i].to, &state);
	}
}

void golang_run(struct golang_rows *rows, struct gopclntab *t, const struct gofunc *fn)
{
	if (rows->kind == GOLANG_CGO)
		golang_cgo_rows(rows);
	else if (rows->kind != GOLANG_NO_RULE)
		gopclntab_each_depth(t, fn, on_depth, rows);
}
