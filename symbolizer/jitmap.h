/*
 * jitmap - what a JIT wrote of its code: a perf map (text) or a jitdump (records).
 *
 * Both only grow, and are read on from where the last call ended; one that shrank is read anew. Where
 * entries overlap the later one holds. Lines and records that make no sense are passed over, what is not
 * written to its end waits. Kept of an entry is where its name stands.
 *
 * Sources: tools/perf/Documentation/{jit-interface.txt, jitdump-specification.txt} of Linux.
 *
 * May touch: the descriptor it is given (never closes it), the heap.
 */
#ifndef SYMBOLIZER_JITMAP_H
#define SYMBOLIZER_JITMAP_H

#include "symbolizer/msg.h"

enum {
	JITMAP_ENTRIES_MAX = 128 * 1024,	/* of one file; what comes later has no name */
	JITMAP_BYTES_MAX = 256 << 20,		/* of one file that are looked at */
	JITMAP_STEP_BYTES = 64 << 20,		/* of text, in one call */
	JITMAP_STEP_RECORDS = 256 * 1024,	/* of a jitdump, in one call */
};

struct jitmap_found {
	char name[MSG_NAME_MAX + 1];	/* as in the file, "" none */
	char file[MSG_NAME_MAX + 1];	/* "" unknown */
	uint32_t line;
	uint32_t entry;			/* the same for all addresses of one piece of code */
};

struct jitmap;

struct jitmap *jitmap_new(void);
struct jitmap *jitmap_free(struct jitmap *m);
/* What was written since. 0, or a positive enum msg_file_result: then nothing is known. */
MUST_USE int jitmap_read(struct jitmap *m, int fd);
/*
 * The latest entry that holds each address, UINT32_MAX where there is none. Costs one pass over the
 * entries, however many of them overlap.
 */
void jitmap_find(const struct jitmap *m, const uint64_t *addresses, uint32_t n, uint32_t *ret);
void jitmap_name(const struct jitmap *m, int fd, uint32_t entry, uint64_t address, struct jitmap_found *ret);
bool jitmap_is_over(const struct jitmap *m); /* a limit was reached: later code has no names */
size_t jitmap_bytes(const struct jitmap *m);

#endif
