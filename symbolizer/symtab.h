/*
 * symtab - which function symbol covers an address: a sorted index of .symtab or, where that has no functions, of
 * .dynsym and of MiniDebugInfo (minidebug.h), at 12 bytes a symbol. It keeps no name, only where one stands in the
 * file, so that it can outlive the mapping; of MiniDebugInfo it keeps the names too.
 *
 * Of symbols at one address one is kept: a function before a label, one with a size, one that is
 * not local, the fewer leading underscores, global before weak. A symbol with a size covers its own
 * bytes and none after; an assembly symbol without one reaches to the next symbol or the end of its
 * section.
 *
 * May touch: the heap. Never: the file after symtab_new(), other than in symtab_strings().
 */
#ifndef SYMBOLIZER_SYMTAB_H
#define SYMBOLIZER_SYMTAB_H

#include "symbolizer/elffile.h"

enum {
	SYMTAB_SCAN_MAX = 8 << 20,	/* entries of the file's table that are looked at */
	SYMTAB_FUNCTIONS_MAX = 1 << 20,	/* a file with more has no names: half an index would give wrong ones */
	SYMTAB_NAME_MAX = 4 * MSG_NAME_MAX,
};

struct symtab;

struct symbol {
	uint64_t vaddr, size;
	uint32_t name;		/* for symtab_name() */
	bool is_function;
};

/* Empty when the file has none. With `debug`, from its .symtab, if that has functions. */
struct symtab *symtab_new(const struct elffile *f, const struct elffile *debug);
struct symtab *symtab_free(struct symtab *t);
DEFINE_CLEANUP(struct symtab *, symtab_free);

bool symtab_find(const struct symtab *t, uint64_t vaddr, struct symbol *ret);
bool symtab_is_function_start(const struct symtab *t, uint64_t vaddr);
uint32_t symtab_count(const struct symtab *t);
struct symbol symtab_at(const struct symtab *t, uint32_t i); /* in address order */
size_t symtab_bytes(const struct symtab *t);

/* The strings of the file that the index was made from and its own, and a name in them: not NUL-terminated. */
struct symtab_strings {
	struct bytes file, own;
};
struct symtab_strings symtab_strings(const struct symtab *t, const struct elffile *f, const struct elffile *debug);
bool symtab_is_of_debug(const struct symtab *t); /* then its strings are `debug`'s, and none without it */
struct bytes symtab_name(const struct symtab_strings *strings, uint32_t name);

#endif
