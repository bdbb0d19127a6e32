/*
 * Whatever a CFI program says: its rows are in order and do not overlap, and what is made of them is an answer
 * that the agent's decoder accepts. The first bytes say alignments, how long the CIE's part is, and the range.
 */
#include <stdio.h>
#include <stdlib.h>

#include "symbolizer/mem.h"
#include "symbolizer/rowset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { START = 0x1000, PARAMETERS = 4 };

struct run {
	struct rowset rows;
	uint64_t at, end;
	uint32_t before;
};

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static bool on_row(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct run *r = arg;

	require(start == r->at && end > start && end <= r->end, "rows follow each other in the function");
	r->at = end;
	r->before = rowset_add(&r->rows, start, end, 0, state, r->before);
	require(r->before == UINT32_MAX || r->before < r->rows.msg.nrows, "a row that was added is there");
	return r->rows.msg.nrows < ROWSET_EAGER_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run run = { .at = START, .before = UINT32_MAX };
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct msg_rows again = { 0 };
	struct fde fde = { .start = START };
	struct bufr in;
	size_t cie;

	if (size < PARAMETERS)
		return 0;
	cie = MIN((size_t)data[2], size - PARAMETERS);
	fde.end = run.end = START + 1 + (uint64_t)data[3] * 64;
	fde.cie.code_align = data[0];
	fde.cie.data_align = (int8_t)data[1];
	fde.cie.ra_reg = CFI_RIP;
	fde.cie.program = (struct bytes){ data + PARAMETERS, cie };
	fde.program = (struct bytes){ data + PARAMETERS + cie, size - PARAMETERS - cie };
	(void)!cfi_run(&fde, on_row, &run);
	msg_rows_encode(&w, &run.rows.msg);
	require(bufw_end(&w) == 0, "rows can be encoded");
	bufr_init(&in, w.data, w.len);
	require(msg_rows_decode(&in, &again) == 0, "the agent takes them");
	require(again.nrows == run.rows.msg.nrows, "all of them");
	msg_rows_fini(&again);
	rowset_fini(&run.rows);
	return 0;
}
