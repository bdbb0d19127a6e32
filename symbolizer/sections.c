#include "symbolizer/sections.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "symbolizer/mem.h"

enum {
	CHUNK = 256 << 10,
	ZSTD = 2,		/* ELFCOMPRESS_ZSTD, which Debian 12's elf.h does not have */
	WINDOW_LOG_MAX = 25,	/* 32 MiB; a frame may ask for gigabytes */
	OLD_HEADER = 12,	/* "ZLIB" and the size, big endian */
};

struct inflating {
	uint8_t *out;
	size_t len;
	uint32_t cap;
};

/* Room for the next bytes, but never more than were claimed. Memory grows with what really comes out. */
static size_t make_room(struct inflating *in, size_t claimed)
{
	size_t chunk = MIN((size_t)CHUNK, claimed - in->len);

	in->out = mem_grow(in->out, &in->cap, (uint32_t)(in->len + chunk), 1);
	return chunk;
}

static bool inflate_zlib(struct inflating *in, struct bytes packed, size_t claimed)
{
	z_stream z = { .next_in = (uint8_t *)(uintptr_t)packed.p, .avail_in = (uint32_t)packed.len };
	int zerr = Z_OK;

	if (packed.len > UINT32_MAX || inflateInit(&z) != Z_OK)
		return false;
	while (zerr == Z_OK && in->len < claimed) {
		size_t chunk = make_room(in, claimed);

		z.next_out = in->out + in->len;
		z.avail_out = (uint32_t)chunk;
		zerr = inflate(&z, Z_NO_FLUSH);
		in->len += chunk - z.avail_out;
	}
	inflateEnd(&z);
	return in->len == claimed;
}

static bool inflate_zstd(struct inflating *in, struct bytes packed, size_t claimed)
{
	ZSTD_inBuffer from = { packed.p, packed.len, 0 };
	ZSTD_DStream *z = mem_check(ZSTD_createDStream());
	size_t left = 1;

	ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
	while (left && in->len < claimed) {
		ZSTD_outBuffer to = { NULL, make_room(in, claimed), 0 };

		to.dst = in->out + in->len;
		left = ZSTD_decompressStream(z, &to, &from);
		if (ZSTD_isError(left) || (!to.pos && from.pos == from.size))
			break;
		in->len += to.pos;
	}
	ZSTD_freeDStream(z);
	return in->len == claimed;
}

static int inflate_section(struct bytes packed, uint32_t type, uint64_t claimed, size_t max, struct bytes *ret,
			   void **ret_heap)
{
	struct inflating in = { 0 };
	bool ok = false;

	if (!claimed || (type != ELFCOMPRESS_ZLIB && type != ZSTD))
		return -EBADMSG;
	if (claimed > max || claimed > UINT32_MAX)
		return -EFBIG;
	ok = type == ZSTD ? inflate_zstd(&in, packed, claimed) : inflate_zlib(&in, packed, claimed);
	if (!ok) {
		free(in.out);
		return -EBADMSG;
	}
	*ret = (struct bytes){ in.out, in.len };
	*ret_heap = in.out;
	return 0;
}

/* What compressors wrote before the gABI had a flag for it: Go up to 1.18, old binutils. */
static int read_old(const struct elffile *f, const char *name, size_t max, struct bytes *ret, void **ret_heap)
{
	struct elf_section s;
	uint64_t size = 0;
	char old[64];

	if (snprintf(old, sizeof(old), ".z%s", name + 1) >= (int)sizeof(old) || elffile_section(f, old, &s) < 0)
		return -ENOENT;
	if (s.data.len < OLD_HEADER || memcmp(s.data.p, "ZLIB", 4) != 0)
		return -EBADMSG;
	for (int i = 4; i < OLD_HEADER; i++)
		size = size << 8 | s.data.p[i];
	return inflate_section((struct bytes){ s.data.p + OLD_HEADER, s.data.len - OLD_HEADER }, ELFCOMPRESS_ZLIB, size,
			       max, ret, ret_heap);
}

int sections_one(const struct elffile *f, const char *name, size_t max, struct bytes *ret, void **ret_heap)
{
	struct elf_section s;
	Elf64_Chdr ch;

	*ret_heap = NULL;
	if (elffile_section(f, name, &s) < 0 || !s.data.len)
		return read_old(f, name, max, ret, ret_heap);
	if (!(s.flags & SHF_COMPRESSED)) {
		*ret = s.data;
		return 0;
	}
	if (s.data.len < sizeof(ch))
		return -EBADMSG;
	memcpy(&ch, s.data.p, sizeof(ch));
	return inflate_section((struct bytes){ s.data.p + sizeof(ch), s.data.len - sizeof(ch) }, ch.ch_type, ch.ch_size,
			       max, ret, ret_heap);
}

void sections_read(struct sections *ret, const struct elffile *f)
{
	static const char *const names[] = {
#define X(id, name) "." name,
		SECTIONS(X)
#undef X
	};
	size_t left = SECTIONS_INFLATED_MAX;

	*ret = (struct sections){ 0 };
	for (size_t i = 0; i < SECTION_COUNT; i++) {
		int err = sections_one(f, names[i], left, &ret->of[i], &ret->heap[i]);

		if (err == -EFBIG)
			ret->is_too_big = true;
		else if (!err && ret->heap[i])
			left -= ret->of[i].len;
	}
}

void sections_fini(struct sections *s)
{
	for (size_t i = 0; i < SECTION_COUNT; i++)
		free(s->heap[i]);
	*s = (struct sections){ 0 };
}
