/*
 * Whatever the sections hold: names and lines that are told lie in them, and the index stays within its bounds.
 * The input: the size of each section, 4 bytes each, then the sections, in the order of enum section_id.
 */
#include <stdio.h>
#include <string.h>

#include "symbolizer/dwarf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CODE = 0x1000, CODE_LEN = 0x10000 };

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elffile code = { .file = { data, CODE_LEN }, .nsegments = 1 };
	CLEANUP(dwarf_freep) struct dwarf *d = NULL;
	struct srcline lines[DWARF_LINES_MAX];
	struct sections s = { 0 }, alt;
	size_t off = SECTION_COUNT * sizeof(uint32_t);

	if (size < off)
		return 0;
	for (size_t i = 0; i < SECTION_COUNT; i++) {
		uint32_t len;

		memcpy(&len, data + i * sizeof(len), sizeof(len));
		len = (uint32_t)MIN((size_t)len, size - off);
		s.of[i] = (struct bytes){ data + off, len };
		off += len;
	}
	/* They are the shared ones too. */
	alt = s;
	s.alt = &alt;
	code.segments[0] = (struct msg_segment){ CODE, CODE_LEN, 0, CODE_LEN, 1 /* PF_X */ };
	d = dwarf_new(&s, &code);
	for (uint64_t at = CODE; d && at < CODE + CODE_LEN; at += 64 + at % 61) {
		uint32_t n = dwarf_lines(d, &s, &code, at, lines);

		require(n <= DWARF_LINES_MAX, "no more lines than there is room for");
		for (uint32_t i = 0; i < n; i++) {
			require(!lines[i].name.len || !memchr(lines[i].name.p, 0, lines[i].name.len), "a name has no NUL");
			require(!lines[i].file.len || !lines[i].file.p[lines[i].file.len], "a path ends with NUL");
		}
	}
	if (d) {
		dwarf_refill(d);
		require(dwarf_bytes(d) < 3 * (size_t)DWARF_BYTES_MAX, "the index is bounded");
	}
	return 0;
}
