/*
 * gzip - a compressed stream that grows in memory, the same bytes for the same input: no time, no
 * name, one level.
 *
 * May touch: the heap. Never: descriptors.
 */
#ifndef EXPORTER_GZIP_H
#define EXPORTER_GZIP_H

#include <zlib.h>

#include "base/buf.h"

struct gzip {
	z_stream z;
	struct bufw *out; /* borrowed */
	int err;	  /* the first failure sticks; gzip_end() tells it */
	uint64_t nbytes;  /* uncompressed */
};

MUST_USE int gzip_init(struct gzip *g, struct bufw *out);
void gzip_fini(struct gzip *g);
void gzip_write(struct gzip *g, const void *data, size_t len);
MUST_USE int gzip_end(struct gzip *g); /* 0 or -ENOMEM */

#endif
