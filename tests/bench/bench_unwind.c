/*
 * bench_unwind - what a frame costs when its rows are known: stacks of 40 frames through 2 000 rows of
 * 5 files, in a process with 60 mappings.
 *
 * "hot" unwinds 2 stacks over and over, "mixed" 64 in turn, whose bytes and rows do not fit into the
 * first cache, as on a busy host. "chain" is what no unwinder can do without: the 2 stacks' frame pointers followed,
 * a load that waits for the one before, and each return address loaded. Prints the best and the median of 25 rounds; with an argument,
 * unwinds about that many stacks and prints nothing, for callgrind.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/files.h"
#include "agent/unwind.h"
#include "base/clock.h"
#include "tests/unit/rows_fixture.h"

enum {
	STACKS = 64,
	HOT = 2,
	FRAMES = 40,
	FILES = 5,
	FUNCTIONS = 400,
	MAPS = 60,
	ROUNDS = 25,
	UNWINDS = 12800
};
#define STACK 0x7ffe00000000ull

struct bench {
	struct files *files;
	struct file *file[FILES];
	uint64_t base[FILES];
	struct maps *maps;
	struct unwind_input in[STACKS];
	uint8_t stack[STACKS][8192];
	uint64_t chained;		/* what the loads of "chain" add up to */
	struct rows_fixture fixture;
	struct unwind_result result;
};

static struct bench bench;
static uint64_t seed = 1;

static uint64_t random_next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Function i of a file: 64 bytes at i * 64, a frame of `size` that saves `nsaved` registers. */
static uint32_t frame_size(uint32_t function)
{
	return 64 + 16 * (function % 5);
}

static void add_rows(struct bench *b, uint32_t f)
{
	static const uint8_t saved[] = { 6, 3, 12, 13, 14, 15 };

	fixture_init(&b->fixture);
	for (uint32_t i = 0; i < FUNCTIONS; i++) {
		uint64_t at = i * 64ull;
		int row = fixture_row(&b->fixture, at, at + 64, 7, (int32_t)frame_size(i));

		for (uint32_t k = 0;
		     k < i % 7 && b->fixture.answer.nrules < ARRAY_SIZE(b->fixture.rules); k++)
			fixture_rule(&b->fixture, saved[k], MSG_RULE_CFA_MEM, 0,
				     -16 - 8 * (int32_t)k);
		if (i == 0)
			fixture_last(&b->fixture)->flags = MSG_ROW_END;
		fixture_addr(&b->fixture, at + 32, true, row, MSG_RES_CODE | MSG_RES_AFTER_CALL);
	}
	if (rows_new(&b->file[f]->rows) || fixture_put(&b->fixture, b->file[f]->rows))
		abort();
}

static void add_maps(struct bench *b)
{
	for (uint32_t i = 0; i < MAPS; i++) {
		struct map map = { .start = 0x7f0000000000ull + i * 0x1000000ull,
				   .kind = MAP_ANON };

		map.end = map.start + 0x200000;
		if (i % 12 == 5) {
			uint32_t f = i / 12;

			b->base[f] = map.start;
			map.kind = MAP_FILE;
			map.file = b->file[f];
		}
		if (maps_add(&b->maps, &map))
			abort();
	}
}

static void fill_stack(struct bench *b, uint32_t s)
{
	struct unwind_input *in = &b->in[s];
	uint64_t at = ABI_RED_ZONE, pc = b->base[0] + 64 + 32, fp = 0, next_fp;
	uint32_t function = 1;

	in->nregs = ABI_X86_NREGS;
	in->regs[ABI_X86_RSP] = STACK + ABI_RED_ZONE;
	in->regs[ABI_X86_RIP] = pc;
	in->flags = ABI_F_TOP_KNOWN;
	in->nwindows = 1;
	in->windows[0] = (struct unwind_window){ STACK, b->stack[s], sizeof(b->stack[s]), 0 };
	for (uint32_t i = 1; i < FRAMES; i++) {
		uint32_t next = i == FRAMES - 1 ? 0 :
						  1 + (uint32_t)(random_next() % (FUNCTIONS - 1));

		at += frame_size(function);
		next_fp = at - 16;
		memcpy(b->stack[s] + fp, &next_fp, 8);
		fp = next_fp;
		pc = b->base[(i / 5) % FILES] + next * 64ull + 32;
		memcpy(b->stack[s] + at - 8, &pc, 8);
		function = next;
	}
}

static void run_all(struct bench *b, uint32_t nstacks)
{
	for (uint32_t s = 0; s < nstacks; s++) {
		int r = unwind_run(&b->in[s], b->maps, false, &b->result);

		if (r != UNWIND_DONE || b->result.outcome != UNWIND_COMPLETE ||
		    b->result.nframes != FRAMES)
			abort();
	}
}

/* The frame pointers of fill_stack(): offsets in the stack, the first one at its begin. */
static void follow_all(struct bench *b, uint32_t nstacks)
{
	for (uint32_t s = 0; s < nstacks; s++) {
		uint64_t fp, sum = 0, pc;

		memcpy(&fp, b->stack[s], 8);
		for (uint32_t i = 1; i < FRAMES; i++) {
			if (fp > sizeof(b->stack[s]) - 16)
				abort();
			memcpy(&pc, b->stack[s] + fp + 8, 8);
			memcpy(&fp, b->stack[s] + fp, 8);
			sum += pc;
		}
		b->chained += sum;
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(struct bench *b, const char *name, uint32_t nstacks, void (*run)(struct bench *b, uint32_t nstacks))
{
	double ns[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = clock_cpu_ns();

		for (uint32_t n = 0; n < UNWINDS; n += nstacks)
			run(b, nstacks);
		ns[round] = (double)(clock_cpu_ns() - start) / (UNWINDS * FRAMES);
	}
	qsort(ns, ROUNDS, sizeof(*ns), compare);
	(void)printf("unwind_ns_per_frame %s best=%.1f median=%.1f\n", name, ns[0], ns[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
	if (files_new(&bench.files) || maps_new(&bench.maps))
		return 1;
	for (uint32_t f = 0; f < FILES; f++) {
		if (files_get(bench.files, &(struct file_key){ .inode = f }, "/lib",
			      &bench.file[f]))
			return 1;
		add_rows(&bench, f);
	}
	add_maps(&bench);
	for (uint32_t s = 0; s < STACKS; s++)
		fill_stack(&bench, s);
	if (argc > 1) {
		for (long i = strtol(argv[1], NULL, 10); i > 0; i -= STACKS)
			run_all(&bench, STACKS);
	} else {
		measure(&bench, "hot", HOT, run_all);
		measure(&bench, "mixed", STACKS, run_all);
		measure(&bench, "chain", HOT, follow_all);
	}
	maps_unref(bench.maps);
	files_free(bench.files);
	return 0;
}
