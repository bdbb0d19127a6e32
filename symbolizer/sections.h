/*
 * sections - the debug sections of an ELF file, as DWARF needs them.
 *
 * May touch: the file's mapping, the heap. All bytes are valid until sections_fini() and elffile_close().
 */
#ifndef SYMBOLIZER_SECTIONS_H
#define SYMBOLIZER_SECTIONS_H

#include "symbolizer/elffile.h"

#define SECTIONS(X)				\
	X(INFO, "debug_info")			\
	X(ABBREV, "debug_abbrev")		\
	X(LINE, "debug_line")			\
	X(STR, "debug_str")			\
	X(LINE_STR, "debug_line_str")		\
	X(STR_OFFSETS, "debug_str_offsets")	\
	X(ADDR, "debug_addr")			\
	X(RANGES, "debug_ranges")		\
	X(RNGLISTS, "debug_rnglists")

enum section_id {
#define X(id, name) SECTION_##id,
	SECTIONS(X)
#undef X
	SECTION_COUNT,
};

enum {
	SECTION_NONE = SECTION_COUNT,
	SECTION_ALT = 16,	/* and an id: of `alt` */
};

enum { SECTIONS_INFLATED_MAX = 24 << 20 }; /* bytes of all sections of a file that are compressed in it */

struct sections {
	struct bytes of[SECTION_COUNT];	/* empty: the file has none, or none that can be read */
	void *heap[SECTION_COUNT];	/* where it was compressed */
	const struct sections *alt;	/* of the file that dwz moved what several have in common to; NULL: not there */
	bool is_too_big;		/* one was left out, because it is over SECTIONS_INFLATED_MAX with the others */
};

void sections_read(struct sections *ret, const struct elffile *f);
void sections_fini(struct sections *s);

/*
 * The bytes of a section of this name (".debug_frame"), or its older form (".zdebug_frame"), inflated into
 * *ret_heap where it is compressed (gABI's ELFCOMPRESS_ZLIB and _ZSTD, or "ZLIB" in front). 0; -ENOENT; -EFBIG:
 * over `max` when inflated, which costs nothing; -EBADMSG: it is not what it claims.
 */
MUST_USE int sections_one(const struct elffile *f, const char *name, size_t max, struct bytes *ret, void **ret_heap);

#endif
