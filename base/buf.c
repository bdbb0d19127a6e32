#include "base/buf.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BUFW_MIN_CAP = 256 };

void bufw_fini(struct bufw *w)
{
	free(w->data);
	*w = (struct bufw){};
}

void bufw_reset(struct bufw *w)
{
	w->len = 0;
	w->err = 0;
}

/* Room for `len` more bytes, counted as written; NULL after a failure. */
static uint8_t *bufw_room(struct bufw *w, size_t len)
{
	size_t need, cap;
	uint8_t *p;

	if (w->err)
		return NULL;
	if (__builtin_add_overflow(w->len, len, &need) || need > SIZE_MAX / 2) {
		w->err = -ENOMEM;
		return NULL;
	}
	if (need > w->cap) {
		cap = w->cap ? w->cap * 2 : BUFW_MIN_CAP;
		cap = MAX(cap, need);
		p = realloc(w->data, cap);
		if (!p) {
			w->err = -ENOMEM;
			return NULL;
		}
		w->data = p;
		w->cap = cap;
	}
	p = w->data + w->len;
	w->len = need;
	return p;
}

static void store_le(uint8_t *p, uint64_t v, size_t size)
{
	v = htole64(v);
	memcpy(p, &v, size);
}

static void bufw_le(struct bufw *w, uint64_t v, size_t size)
{
	uint8_t *p = bufw_room(w, size);

	if (p)
		store_le(p, v, size);
}

void bufw_u8(struct bufw *w, uint8_t v)
{
	bufw_le(w, v, sizeof(v));
}

void bufw_u16(struct bufw *w, uint16_t v)
{
	bufw_le(w, v, sizeof(v));
}

void bufw_u32(struct bufw *w, uint32_t v)
{
	bufw_le(w, v, sizeof(v));
}

void bufw_u64(struct bufw *w, uint64_t v)
{
	bufw_le(w, v, sizeof(v));
}

void bufw_i64(struct bufw *w, int64_t v)
{
	bufw_le(w, (uint64_t)v, sizeof(v));
}

void bufw_bytes(struct bufw *w, const void *p, size_t len)
{
	uint8_t *to;

	if (!len)
		return;
	to = bufw_room(w, len);
	if (to)
		memcpy(to, p, len);
}

void bufw_printf(struct bufw *w, const char *fmt, ...)
{
	char text[BUFW_PRINTF_MAX + 1];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	bufw_bytes(w, text, strlen(text));
}

void bufw_blob(struct bufw *w, const void *p, size_t len)
{
	if (len > UINT32_MAX) {
		w->err = w->err ? w->err : -ENOMEM;
		return;
	}
	bufw_u32(w, (uint32_t)len);
	bufw_bytes(w, p, len);
}

void bufw_str(struct bufw *w, const char *s)
{
	bufw_blob(w, s, strlen(s));
}

size_t bufw_reserve(struct bufw *w, size_t len)
{
	size_t off = w->len;
	uint8_t *p = len ? bufw_room(w, len) : NULL;

	if (p)
		memset(p, 0, len);
	return off;
}

void bufw_patch_u32(struct bufw *w, size_t off, uint32_t v)
{
	if (w->err)
		return;
	assert(w->len >= sizeof(v) && off <= w->len - sizeof(v));
	store_le(w->data + off, v, sizeof(v));
}

int bufw_end(const struct bufw *w)
{
	return w->err;
}

void bufr_init(struct bufr *r, const void *data, size_t len)
{
	r->p = data;
	r->end = len ? r->p + len : r->p;
	r->err = 0;
}

size_t bufr_left(const struct bufr *r)
{
	return r->err ? 0 : (size_t)(r->end - r->p);
}

static uint64_t bufr_le(struct bufr *r, size_t size)
{
	const uint8_t *p = bufr_bytes(r, size);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, size);
	return le64toh(v);
}

uint8_t bufr_u8(struct bufr *r)
{
	return (uint8_t)bufr_le(r, sizeof(uint8_t));
}

uint16_t bufr_u16(struct bufr *r)
{
	return (uint16_t)bufr_le(r, sizeof(uint16_t));
}

uint32_t bufr_u32(struct bufr *r)
{
	return (uint32_t)bufr_le(r, sizeof(uint32_t));
}

uint64_t bufr_u64(struct bufr *r)
{
	return bufr_le(r, sizeof(uint64_t));
}

int64_t bufr_i64(struct bufr *r)
{
	return (int64_t)bufr_le(r, sizeof(int64_t));
}

const void *bufr_bytes(struct bufr *r, size_t len)
{
	const uint8_t *p = r->p;

	if (r->err)
		return NULL;
	if (len > bufr_left(r)) {
		bufr_fail(r);
		return NULL;
	}
	/* An empty message may have no buffer, and NULL must mean an error. */
	if (!len)
		return p ? (const void *)p : "";
	r->p += len;
	return p;
}

const void *bufr_blob(struct bufr *r, size_t max, size_t *ret_len)
{
	uint32_t len = bufr_u32(r);
	const void *p;

	if (len > max)
		bufr_fail(r);
	p = bufr_bytes(r, len);
	if (p)
		*ret_len = len;
	return p;
}

char *bufr_strdup(struct bufr *r, size_t max)
{
	size_t len;
	const char *p = bufr_blob(r, max, &len);
	char *s;

	if (!p)
		return NULL;
	if (len && memchr(p, 0, len)) {
		bufr_fail(r);
		return NULL;
	}
	s = malloc(len + 1);
	if (!s) {
		r->err = -ENOMEM;
		return NULL;
	}
	memcpy(s, p, len);
	s[len] = 0;
	return s;
}

uint32_t bufr_count(struct bufr *r, uint32_t max, size_t min_size)
{
	uint32_t n = bufr_u32(r);

	if (n > max || (min_size && n > bufr_left(r) / min_size))
		bufr_fail(r);
	return r->err ? 0 : n;
}

void bufr_fail(struct bufr *r)
{
	if (!r->err)
		r->err = -EBADMSG;
}

int bufr_err(const struct bufr *r)
{
	return r->err;
}

int bufr_end(const struct bufr *r)
{
	if (r->err)
		return r->err;
	return r->p == r->end ? 0 : -EBADMSG;
}
