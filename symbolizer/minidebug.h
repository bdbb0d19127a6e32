/*
 * minidebug - MiniDebugInfo: the symbols that distributions strip from a program and leave in it as an xz-compressed
 * ELF file, section .gnu_debugdata (Fedora, RHEL, openSUSE).
 *
 * Bounded: MINIDEBUG_BYTES_MAX when inflated; what is corrupt or larger counts as none.
 *
 * May touch: the file's mapping, the heap.
 */
#ifndef SYMBOLIZER_MINIDEBUG_H
#define SYMBOLIZER_MINIDEBUG_H

#include "symbolizer/elffile.h"

enum { MINIDEBUG_BYTES_MAX = 32 << 20, MINIDEBUG_MEMORY_MAX = 40 << 20 };

/* The file in it, whose bytes are *ret_heap, to be freed after it is closed; NULL where there is none. */
struct elffile *minidebug_open(const struct elffile *f, void **ret_heap);

#endif
