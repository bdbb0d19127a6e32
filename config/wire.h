/*
 * wire - a struct of settings as bytes, by its schema, for a process that has no file to read.
 *
 * Keys follow each other in the table's order without names: both sides are of one build, which
 * hello checks. What is decoded has passed the same checks as what is loaded from a file.
 *
 * May touch: the heap. Never: files, the environment.
 */
#ifndef CONFIG_WIRE_H
#define CONFIG_WIRE_H

#include "base/buf.h"
#include "config/schema.h"

enum wire_part {
	WIRE_ALL,
	WIRE_PUBLIC, /* without the values of keys that are secret, and without URLs */
	WIRE_SECRET, /* those alone */
};

/* Only WIRE_ALL can be decoded. */
void wire_encode(struct bufw *w, const struct schema_key *keys, const void *base,
		 enum wire_part part);
/*
 * `base` has the defaults; what was decoded until an error stays in it. 0, -EBADMSG or -ENOMEM; the
 * reader's end is not checked.
 */
MUST_USE int wire_decode(struct bufr *in, const struct schema_key *keys, void *base);

/* Whether a key that needs a restart is not the same in both; *ret_path is then the first. */
bool wire_differs(const struct schema_key *keys, const void *a, const void *b, char *ret_path,
		  size_t size);

#endif
