/*
 * fde - which frame description entry (FDE) of a file covers an address.
 *
 * .eh_frame first, through the sorted table of .eh_frame_hdr where that is usable, else through an
 * index made by one pass; then .debug_frame, always through an index. Of a compressed .debug_frame
 * that one section is inflated, no other. We read these tables ourselves because libdw's interface
 * does not tell where an FDE begins and ends, keeps every entry it saw on the heap, inflates all
 * debug sections at once, and makes a row in time that grows with the FDE, so a function's rows in
 * quadratic time, and allocates for whatever register number a hostile program names. The oracle of
 * tests/unit/test_cfi.c is readelf.
 *
 * Source: LSB 5.0 Core 10.6 (.eh_frame, .eh_frame_hdr); DWARF 5 section 6.4.1.
 *
 * May touch: the heap, the file's mapping. Never: run an FDE's program (cfi.h).
 */
#ifndef SYMBOLIZER_FDE_H
#define SYMBOLIZER_FDE_H

#include "symbolizer/elffile.h"

enum {
	FDE_INDEX_MAX = 1 << 20,	/* entries of an index, 16 bytes each */
	FDE_INFLATED_MAX = 64 << 20,	/* bytes of an inflated .debug_frame */
};

struct cie {
	struct bytes program;	/* initial instructions */
	uint64_t code_align;
	int64_t data_align;
	uint32_t ra_reg;
	uint8_t pointer_encoding;	/* of pc_begin, DW_EH_PE_* */
	uint8_t address_size;
	bool is_signal;		/* 'S' */
	bool has_augmentation_data;	/* 'z' */
};

struct fde {
	uint64_t start, end;	/* virtual addresses, start < end */
	struct cie cie;
	struct bytes program;
	bool is_debug_frame;
};

struct fdes;

struct fdes *fdes_new(const struct elffile *f); /* f is borrowed and must outlive it */
struct fdes *fdes_free(struct fdes *t);
DEFINE_CLEANUP(struct fdes *, fdes_free);

/* Whether an FDE covers the address. */
bool fdes_find(struct fdes *t, uint64_t vaddr, struct fde *ret);
/* Every FDE in the order of its table, until fn returns false. */
void fdes_each(struct fdes *t, bool (*fn)(void *arg, const struct fde *fde), void *arg);

#endif
