/*
 * demangle - a symbol as people read it.
 *
 * C++ (Itanium ABI), Rust legacy (its hash dropped) and v0, and D, by libiberty. What the compiler adds to the name of a copy or a part of a function (.cold, .part.0,
 * .constprop.0, ...) is left out; it stays in the system name. A symbol version (@GLIBC_2.34) is no
 * part of either. Go names are as they are.
 *
 * Short is without parameters and return types, as c++filt -p -i, and with template arguments, or
 * instances would be one; full is as c++filt -i; none is the system name.
 *
 * Bounded: symbols over DEMANGLE_SYMBOL_MAX bytes, and those whose readable form is over
 * MSG_NAME_MAX, come out raw, the latter as soon as that many bytes have been made (a short symbol
 * can stand for gigabytes). libiberty keeps D's in memory until they are whole: they are shorter, and
 * have few back references. Results are valid UTF-8 without control characters ('?' for what is
 * not), and at most MSG_NAME_MAX bytes.
 *
 * May touch: its arguments.
 */
#ifndef SYMBOLIZER_DEMANGLE_H
#define SYMBOLIZER_DEMANGLE_H

#include "symbolizer/elffile.h"

enum {
	DEMANGLE_SYMBOL_MAX = 4096,
	DEMANGLE_D_SYMBOL_MAX = 1024,
	DEMANGLE_D_REFERENCES_MAX = 12,	/* each can double what came before it */
};

enum demangle_style { DEMANGLE_SHORT, DEMANGLE_FULL, DEMANGLE_NONE };

struct demangled {
	char name[MSG_NAME_MAX + 1];
	char system_name[MSG_NAME_MAX + 1];
};

/* "short", "full", "none". */
MUST_USE bool demangle_parse_style(const char *text, enum demangle_style *ret);
void demangle(struct bytes symbol, bool is_go, enum demangle_style style, struct demangled *ret);

#endif
