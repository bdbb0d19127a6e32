#include "exporter/gzip.h"

#include <errno.h>

enum {
	/* 40 % of level 6's time, for 1 % more bytes of function names, the bulk of a profile. */
	GZIP_LEVEL = 4,
	GZIP_WINDOW = 15 + 16, /* the largest window; + 16 asks zlib for the gzip format */
	GZIP_MEM_LEVEL = 8,    /* zlib's default */
	GZIP_CHUNK = 16 * 1024,
};

int gzip_init(struct gzip *g, struct bufw *out)
{
	*g = (struct gzip){ .out = out };
	if (deflateInit2(&g->z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, GZIP_MEM_LEVEL,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	return 0;
}

void gzip_fini(struct gzip *g)
{
	deflateEnd(&g->z);
}

static void compress_all(struct gzip *g, int flush)
{
	uint8_t chunk[GZIP_CHUNK];

	do {
		g->z.next_out = chunk;
		g->z.avail_out = sizeof(chunk);
		/* Z_BUF_ERROR only says that there was nothing to do. */
		if (deflate(&g->z, flush) == Z_STREAM_ERROR)
			g->err = -EIO;
		bufw_bytes(g->out, chunk, sizeof(chunk) - g->z.avail_out);
	} while (!g->err && g->z.avail_out == 0);
	if (!g->err)
		g->err = bufw_end(g->out);
}

void gzip_write(struct gzip *g, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len && !g->err) {
		size_t n = MIN(len, (size_t)UINT32_MAX);

		g->z.next_in = (z_const Bytef *)p;
		g->z.avail_in = (uInt)n;
		compress_all(g, Z_NO_FLUSH);
		g->nbytes += n;
		p += n;
		len -= n;
	}
}

int gzip_end(struct gzip *g)
{
	if (!g->err)
		compress_all(g, Z_FINISH);
	return g->err;
}
