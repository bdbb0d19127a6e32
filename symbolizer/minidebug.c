#include "symbolizer/minidebug.h"

#include <lzma.h>

#include "symbolizer/mem.h"

enum { CHUNK = 256 << 10 };

/* The bytes, or NULL; memory grows with what really comes out. */
static uint8_t *inflate_xz(struct bytes packed, uint32_t *ret_len)
{
	lzma_stream z = LZMA_STREAM_INIT;
	uint32_t cap = 0, len = 0;
	uint8_t *out = NULL;
	lzma_ret r;

	if (lzma_stream_decoder(&z, MINIDEBUG_MEMORY_MAX, 0) != LZMA_OK)
		return NULL;
	z.next_in = packed.p;
	z.avail_in = packed.len;
	do {
		out = mem_grow(out, &cap, len + CHUNK, 1);
		z.next_out = out + len;
		z.avail_out = CHUNK;
		r = lzma_code(&z, LZMA_FINISH);
		len += CHUNK - (uint32_t)z.avail_out;
	} while (r == LZMA_OK && len < MINIDEBUG_BYTES_MAX);
	lzma_end(&z);
	if (r != LZMA_STREAM_END) {
		free(out);
		return NULL;
	}
	*ret_len = len;
	return out;
}

struct elffile *minidebug_open(const struct elffile *f, void **ret_heap)
{
	struct elffile *inner;
	struct elf_section s;
	uint32_t len;
	void *bytes;

	if (elffile_section(f, ".gnu_debugdata", &s) < 0 || !s.data.len)
		return NULL;
	bytes = inflate_xz(s.data, &len);
	if (!bytes)
		return NULL;
	if (elffile_open_bytes(&inner, (struct bytes){ bytes, len }) != 0) {
		free(bytes);
		return NULL;
	}
	*ret_heap = bytes;
	return inner;
}
