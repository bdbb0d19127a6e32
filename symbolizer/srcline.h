/* srcline - one line of source that an address belongs to: a function, or one inlined into the next. */
#ifndef SYMBOLIZER_SRCLINE_H
#define SYMBOLIZER_SRCLINE_H

#include "symbolizer/elffile.h"

struct srcline {
	struct bytes name, file;	/* either may be empty */
	uint32_t line, start_line;	/* 0 unknown */
	bool is_plt;		/* an entry of a linkage table that calls it */
};

#endif
