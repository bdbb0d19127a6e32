/*
 * Whatever registers, stack, rows and mappings there are: unwinding ends, every caller's frame lies in
 * an executable mapping, the same input gives the same stack, settling leaves no wish, and a plain
 * row means the same as its rules do.
 */
#include <stdio.h>
#include <string.h>

#include "agent/files.h"
#include "agent/unwind.h"
#include "base/buf.h"
#include "tests/unit/rows_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	CODE_BYTES = 64, /* few addresses, so that most are known */
	WINDOWS = 4,
	WINDOW_BYTES = 2048,
	ROWS_MAX = 24,
	ADDRS_MAX = 128
};
#define CODE  0x400000ull
#define JIT   0x900000ull
#define STACK 0x7ffe00000000ull

struct world {
	struct files *files;
	struct file *file;
	struct maps *maps;
	struct rows_fixture fixture;
	struct unwind_input in;
	uint8_t stack[WINDOWS][WINDOW_BYTES];
	struct unwind_result result, again;
	struct unwind_want wants[64];
	uint64_t followed[8];
};

static struct world world;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* A word of a stack: code, stack, other stacks, anything. */
static uint64_t random_word(uint64_t *seed)
{
	uint64_t how = random_next(seed) >> 7, v = random_next(seed) >> 7;

	switch (how % 16) {
	case 0:
		return v;
	case 1:
		return 0;
	case 2:
		return JIT + v % CODE_BYTES;
	case 3:
		return STACK + (v % WINDOWS << 32) + v % WINDOW_BYTES / 8 * 8;
	case 4:
	case 5:
	case 6:
	case 7:
		return STACK + v % (2 * WINDOW_BYTES) / 8 * 8;
	default:
		return CODE + v % CODE_BYTES;
	}
}

/* A value that has a chance to mean something. */
static uint64_t take_value(struct bufr *r)
{
	uint8_t how = bufr_u8(r);
	uint64_t v = bufr_u16(r);

	switch (how % 8) {
	case 0:
		return bufr_u64(r);
	case 1:
		return CODE + v % CODE_BYTES;
	case 2:
		return JIT + v % CODE_BYTES;
	case 3:
	case 4:
		return STACK + v % (2 * WINDOW_BYTES) / 8 * 8;
	case 5:
		return STACK + (v % WINDOWS << 32) + v % WINDOW_BYTES;
	case 6:
		return 0 - v;
	default:
		return v;
	}
}

static struct msg_rule take_rule(struct world *w, struct bufr *r, uint8_t target)
{
	struct msg_rule rule = { .target = target,
				 .kind = bufr_u8(r) % MSG_RULE_KIND_COUNT,
				 .reg = bufr_u8(r) % 20 };
	uint8_t n = bufr_u8(r);

	if (rule.kind != MSG_RULE_EXPR_MEM && rule.kind != MSG_RULE_EXPR_VAL) {
		rule.off = n < 128 ? -8 * (n % 32) : (int16_t)bufr_u16(r);
		return rule;
	}
	rule.n = (uint8_t)(1 + n % 12);
	if (w->fixture.answer.nops + rule.n > ARRAY_SIZE(w->fixture.ops))
		return (struct msg_rule){ .target = target };
	rule.off = (int32_t)w->fixture.answer.nops;
	for (uint8_t i = 0; i < rule.n; i++) {
		struct msg_op *op = &w->fixture.ops[w->fixture.answer.nops++];

		op->code = bufr_u8(r) % (MSG_OP_COUNT + 1);
		op->reg = bufr_u8(r) % 20;
		op->n = (int8_t)bufr_u8(r);
	}
	return rule;
}

static void take_row(struct world *w, struct bufr *r)
{
	uint64_t start = bufr_u16(r) % CODE_BYTES, n = bufr_u8(r) % 6;
	struct msg_row *row;

	fixture_row(&w->fixture, start, start + 1 + bufr_u8(r) % 16, ABI_X86_RSP,
		    8 * (bufr_u8(r) % 64));
	row = fixture_last(&w->fixture);
	row->flags = bufr_u8(r) & (MSG_ROW_SIGNAL | MSG_ROW_END | MSG_ROW_NO_CFI | MSG_ROW_CLONE);
	if (bufr_u8(r) % 4 == 0)
		row->cfa = take_rule(w, r, 0);
	if (bufr_u8(r) % 4 == 0)
		row->ra = take_rule(w, r, ABI_X86_RIP);
	for (uint64_t i = 0; i < n; i++)
		fixture_expr_rule(&w->fixture, take_rule(w, r, bufr_u8(r) % 20));
}

/* Rows as compilers make them, for every address: stacks get deep. */
static void take_usual_rows(struct world *w, struct bufr *r)
{
	static const uint8_t regs[] = { ABI_X86_RSP, ABI_X86_RSP, ABI_X86_RSP,
					ABI_X86_RBP, ABI_X86_RBX, ABI_X86_R10 };
	static const uint8_t saved[] = { ABI_X86_RBP, ABI_X86_RBX, ABI_X86_R12, ABI_X86_R10 };
	const uint32_t known = MSG_RES_CODE | MSG_RES_AFTER_CALL;

	fixture_init(&w->fixture);
	for (uint64_t at = 0; at < CODE_BYTES; at += 8) {
		uint8_t n = bufr_u8(r), reg = regs[bufr_u8(r) % ARRAY_SIZE(regs)];
		int row = fixture_row(&w->fixture, at, at + 8, reg, 8 * (1 + bufr_u8(r) % 6));

		for (uint8_t i = 0; i < n % 4; i++)
			fixture_rule(&w->fixture, saved[(n + i) % ARRAY_SIZE(saved)],
				     n < 240 ? MSG_RULE_CFA_MEM : n % MSG_RULE_EXPR_MEM, reg,
				     -8 * (2 + i));
		for (uint64_t k = 0; k < 8; k++) {
			fixture_addr(&w->fixture, at + k, true, row, known);
			fixture_addr(&w->fixture, at + k, false, row, known);
		}
	}
}

static void take_any_rows(struct world *w, struct bufr *r)
{
	uint32_t nrows = bufr_u8(r) % ROWS_MAX, naddrs = bufr_u8(r) % ADDRS_MAX;

	fixture_init(&w->fixture);
	for (uint32_t i = 0; i < nrows; i++)
		take_row(w, r);
	for (uint32_t i = 0; i < naddrs; i++) {
		uint8_t row = bufr_u8(r), flags = bufr_u8(r);

		fixture_addr(&w->fixture, bufr_u16(r) % CODE_BYTES, flags & 1,
			     row < nrows ? row : FIXTURE_NO_ROW, flags >> 1 & 14);
	}
}

static void take_maps(struct world *w, struct bufr *r)
{
	struct map code = { CODE, CODE + CODE_BYTES, 0, w->file, MAP_FILE };
	struct map jit = { JIT, JIT + CODE_BYTES, 0, NULL, MAP_ANON };
	uint32_t n = bufr_u8(r) % 4;

	require(!maps_add(&w->maps, &code) && !maps_add(&w->maps, &jit), "maps are added");
	for (uint32_t i = 0; i < n; i++) {
		struct map map = { .start = take_value(r),
				   .offset = take_value(r),
				   .kind = MAP_FILE };

		map.end = map.start + bufr_u16(r);
		map.file = bufr_u8(r) % 2 ? w->file : NULL;
		(void)!maps_add(&w->maps, &map);
	}
}

static void take_stack(struct world *w, struct bufr *r)
{
	uint64_t seed = bufr_u64(r) | 1;

	w->in.nregs = bufr_u8(r) % 16 != 15 ? ABI_X86_NREGS : bufr_u8(r) % ABI_REGS_MAX;
	for (uint32_t i = 0; i < ABI_X86_NREGS; i++)
		w->in.regs[i] = random_word(&seed);
	if (bufr_u8(r) % 4 != 3) {
		w->in.regs[ABI_X86_RSP] = STACK + ABI_RED_ZONE + bufr_u8(r) * 8ull;
		w->in.regs[ABI_X86_RIP] = CODE + bufr_u8(r) % CODE_BYTES;
	} else {
		w->in.regs[ABI_X86_RSP] = take_value(r);
		w->in.regs[ABI_X86_RBP] = take_value(r);
		w->in.regs[ABI_X86_RIP] = take_value(r);
	}
	w->in.flags = bufr_u8(r) % 4 != 3 ? 0 : bufr_u16(r);
	w->in.goroutine_sp = w->in.flags & ABI_F_ON_G0 ? STACK + bufr_u16(r) % WINDOW_BYTES : 0;
	w->in.goroutine_pc = CODE + (w->in.goroutine_sp & (CODE_BYTES - 1));
	w->in.nfollowed = bufr_u8(r) % 8;
	w->in.followed = w->followed;
	for (uint32_t i = 0; i < w->in.nfollowed; i++)
		w->followed[i] = i ? CODE + bufr_u8(r) % (2 * CODE_BYTES) : w->in.regs[ABI_X86_RIP];
	w->in.nwindows = WINDOWS - bufr_u8(r) % 16 / 4;
	for (uint32_t i = 0; i < w->in.nwindows; i++) {
		struct unwind_window *win = &w->in.windows[i];

		win->address = bufr_u8(r) % 8 != 7 ? STACK + ((uint64_t)i << 32) : take_value(r);
		win->len = WINDOW_BYTES;
		if (bufr_u8(r) % 4 == 3)
			win->len -= bufr_u16(r) % (WINDOW_BYTES + 1);
		win->holes = bufr_u8(r) % 4 != 3 ? 0 : bufr_u8(r);
		/* Of its exact size, so that a read past its end is seen. */
		win->data = w->stack[i] + WINDOW_BYTES - win->len;
		for (uint32_t at = 0; at + 8 <= WINDOW_BYTES; at += 8) {
			uint64_t v = random_word(&seed);

			memcpy(w->stack[i] + at, &v, sizeof(v));
		}
	}
}

/* Callers' frames: their place in the file, or their address, belongs to an executable mapping. */
static void check_frame(const struct world *w, const struct unwind_frame *f)
{
	for (size_t i = 0; i < maps_count(w->maps); i++) {
		const struct map *map = maps_at(w->maps, i);
		uint64_t len = map->end - map->start;

		if (f->file ? map->file == f->file && f->offset - map->offset < len :
			      f->offset - map->start < len)
			return;
	}
	require(false, "a frame lies in an executable mapping");
}

static int run(struct world *w, bool settle, struct unwind_result *result)
{
	int r = unwind_run(&w->in, w->maps, settle, result);

	require(r == UNWIND_DONE || r == UNWIND_WANT, "there are two answers");
	require(result->nframes <= UNWIND_FRAMES_MAX, "frames are bounded");
	for (uint32_t i = 0; i < result->nframes; i++)
		check_frame(w, &result->frames[i]);
	require(r == UNWIND_WANT || result->outcome < UNWIND_OUTCOME_COUNT, "there is an outcome");
	return r;
}

static void require_same(const struct world *w, int r, int again, const char *what)
{
	require(r == again && w->result.nframes == w->again.nframes, what);
	require(w->result.missing == w->again.missing && w->result.root_cfa == w->again.root_cfa,
		what);
	require(r == UNWIND_WANT || w->result.outcome == w->again.outcome, what);
	for (uint32_t i = 0; i < w->result.nframes; i++)
		require(w->result.frames[i].offset == w->again.frames[i].offset &&
				w->result.frames[i].file == w->again.frames[i].file,
			what);
}

static void check_want(const struct world *w, int r)
{
	struct row row;
	uint32_t flags;

	if (r != UNWIND_WANT)
		return;
	require(w->result.want.file == w->file, "only files are asked for");
	require(rows_find(w->file->rows, w->result.want.offset, w->result.want.is_return, &row,
			  &flags) == ROWS_UNKNOWN,
		"only what is unknown is asked for");
}

static void check(struct world *w)
{
	int r;

	require(fixture_put(&w->fixture, w->file->rows) == 0, "these rows are stored");
	r = run(w, false, &w->result);
	check_want(w, r);
	require_same(w, r, run(w, false, &w->again), "the same input gives the same stack");
	require(unwind_guess(&w->in, w->maps, w->wants, ARRAY_SIZE(w->wants)) <=
			ARRAY_SIZE(w->wants),
		"guesses are bounded");

	/* A flag that means nothing to the unwinder, but no row is plain that has one. */
	for (uint32_t i = 0; i < w->fixture.answer.nrows; i++)
		w->fixture.rows[i].flags |= MSG_ROW_INTERPRETER;
	w->file->rows = rows_free(w->file->rows);
	require(rows_new(&w->file->rows) == 0 && fixture_put(&w->fixture, w->file->rows) == 0,
		"stored again");
	require_same(w, r, run(w, false, &w->again), "a plain row means what its rules mean");
	require(run(w, true, &w->again) == UNWIND_DONE, "settling leaves no wish");
	require(r == UNWIND_WANT || w->again.outcome == w->result.outcome,
		"settling changes nothing else");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = &world;
	struct bufr r;

	bufr_init(&r, data, size);
	memset(&w->in, 0, sizeof(w->in));
	if (files_new(&w->files) || files_get(w->files, &(struct file_key){ 0 }, "/f", &w->file) ||
	    rows_new(&w->file->rows) || maps_new(&w->maps))
		abort();
	take_maps(w, &r);
	if (bufr_u8(&r) % 2 == 0)
		take_usual_rows(w, &r);
	else
		take_any_rows(w, &r);
	take_stack(w, &r);
	check(w);
	w->maps = maps_unref(w->maps);
	w->files = files_free(w->files);
	return 0;
}
