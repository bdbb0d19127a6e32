/*
 * demangle - a symbol as people read it.
 *
 * C++ (Itanium ABI, without parameters, as c++filt -p -i), Rust legacy (its hash dropped) and v0, by
 * libiberty. What the compiler adds to the name of a copy or a part of a function (.cold, .part.0,
 * .constprop.0, ...) is left out; it stays in the system name. A symbol version (@GLIBC_2.34) is no
 * part of either. Go names are as they are.
 *
 * Bounded: symbols over DEMANGLE_SYMBOL_MAX bytes, and those whose readable form is over
 * MSG_NAME_MAX, come out raw, the latter as soon as that many bytes have been made (a short symbol
 * can stand for gigabytes). Results are valid UTF-8 without control characters ('?' for what is
 * not), and at most MSG_NAME_MAX bytes.
 *
 * May touch: its arguments.
 */
#ifndef SYMBOLIZER_DEMANGLE_H
#define SYMBOLIZER_DEMANGLE_H

#include "symbolizer/elffile.h"

enum { DEMANGLE_SYMBOL_MAX = 4096 };

struct demangled {
	char name[MSG_NAME_MAX + 1];
	char system_name[MSG_NAME_MAX + 1];
};

void demangle(struct bytes symbol, bool is_go, struct demangled *ret);

#endif
