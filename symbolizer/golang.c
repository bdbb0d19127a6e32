#include "symbolizer/golang.h"

#include <string.h>

#include "symbolizer/code.h"

enum {
	SAVED_RBP = -16,	/* from the CFA */
	SETUP_LEN = 4,		/* push %rbp; mov %rsp, %rbp */
};

static bool is_name(struct bytes name, const char *text)
{
	size_t len = strlen(text);

	return name.len == len && memcmp(name.p, text, len) == 0;
}

static bool has_prefix(struct bytes name, const char *text)
{
	size_t len = strlen(text);

	return name.len >= len && memcmp(name.p, text, len) == 0;
}

enum golang_kind golang_kind(struct bytes name, struct bytes code)
{
	static const char abi0[] = ".abi0"; /* how the linker marks assembly's calling convention */
	static const char *const ends[] = {
		"runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.rt0_go",
	};
	size_t len = sizeof(abi0) - 1;

	if (name.len > len && memcmp(name.p + name.len - len, abi0, len) == 0)
		name.len -= len;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (is_name(name, ends[i]))
			return GOLANG_END;
	if (has_prefix(name, "runtime.morestack"))
		return GOLANG_END;
	if (is_name(name, "runtime.systemstack"))
		return code_is_frame_setup(code) ? GOLANG_SWITCH : GOLANG_PLAIN;
	if (is_name(name, "runtime.asmcgocall"))
		return code_is_frame_setup(code) ? GOLANG_SWITCH : GOLANG_NO_RULE;
	return GOLANG_PLAIN;
}

uint64_t golang_switched_from(uint64_t start)
{
	return start + SETUP_LEN;
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
	from = g->kind == GOLANG_SWITCH ? golang_switched_from(g->start) : g->rbp_saved_from;
	if (from >= end)
		return g->fn(g->arg, start, end, state);
	if (from > start && !g->fn(g->arg, start, from, state))
		return false;
	if (g->kind == GOLANG_SWITCH)
		golang_switch_state(&full);
	else
		full.regs[CFI_RBP] = (struct cfi_rule){ .kind = CFI_OFFSET, .off = SAVED_RBP };
	return g->fn(g->arg, MAX(start, from), end, &full);
}
