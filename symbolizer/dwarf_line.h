/*
 * dwarf_line - which line of which file an address is of: a unit's line number program, run once.
 *
 * It keeps no pointer into the file. Sequences of code that the linker dropped are left out.
 *
 * Source: DWARF 5 section 6.2; versions 2 to 5.
 *
 * May touch: the sections, the heap.
 */
#ifndef SYMBOLIZER_DWARF_LINE_H
#define SYMBOLIZER_DWARF_LINE_H

#include "symbolizer/dwarf_form.h"

enum {
	DWARF_ROWS_MAX = 1 << 20,	/* of one unit */
	DWARF_FILES_MAX = 1 << 16,
	DWARF_PATH_MAX = 4096,		/* longer ones are unknown */
};

/* From here on, up to the next one. */
struct dwarf_row {
	uint32_t off;		/* from `base` */
	uint32_t line;		/* 0 unknown */
	uint32_t file;		/* UINT32_MAX: no line is known from here on */
};

struct dwarf_file {
	struct dwarf_ref name;
	uint32_t dir;		/* index into dirs; UINT32_MAX none */
	char *path;		/* once somebody asked */
};

struct dwarf_lines {
	uint64_t base;
	struct dwarf_row *rows;
	struct dwarf_file *files;	/* as the program and DW_AT_call_file number them */
	struct dwarf_ref *dirs;
	uint32_t nrows, nfiles, ndirs, cap_rows, cap_files, cap_dirs;
	size_t path_bytes;
};

/* Empty where the unit has none that can be read. */
void dwarf_lines_read(struct dwarf_lines *ret, const struct sections *s, const struct dwarf_unit *u,
		      const struct elffile *code);
void dwarf_lines_fini(struct dwarf_lines *l);

/* False: nothing is known of it. */
bool dwarf_lines_find(const struct dwarf_lines *l, uint64_t vaddr, uint32_t *ret_file, uint32_t *ret_line);

/* The path of a file: absolute where the unit tells where it was compiled. Empty: unknown. */
struct bytes dwarf_lines_path(struct dwarf_lines *l, const struct sections *s, const struct dwarf_unit *u, uint32_t file);
size_t dwarf_lines_bytes(const struct dwarf_lines *l);

#endif
