/*
 * dump - one file by hand, for people: what the symbolizer would say of it.
 *
 * May touch: stdout.
 */
#ifndef SYMBOLIZER_DUMP_H
#define SYMBOLIZER_DUMP_H

#include "symbolizer/handles.h"

/* Each returns 0, a positive enum msg_file_result, or -errno. */
MUST_USE int dump_rows(int fd);			/* every row of the file's CFI */
MUST_USE int dump_rows_at(int fd, uint64_t offset);	/* what a request for it is answered */
MUST_USE int dump_symbols(int fd, enum demangle_style style);
MUST_USE int dump_symbols_at(int fd, enum demangle_style style, const uint64_t *offsets, size_t n);

#endif
