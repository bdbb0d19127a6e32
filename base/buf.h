/*
 * buf - the only door to bytes that another process or a file sent.
 *
 * Writer: grows; the first failure sticks, and bufw_end() tells it. Reader: never reads past its
 * end; the first short or malformed read sticks, later reads return 0 or NULL, and bufr_end()
 * tells it. Integers are little endian and unaligned. Varlen data is a u32 length and the bytes.
 *
 * May touch: the heap (writer). Never: descriptors.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/def.h"

enum { BUFW_PRINTF_MAX = 511 };

struct bufw {
	uint8_t *data;
	size_t len;
	size_t cap;
	int err;
};

void bufw_fini(struct bufw *w);
void bufw_reset(struct bufw *w); /* empty, memory kept, error forgotten */
void bufw_u8(struct bufw *w, uint8_t v);
void bufw_u16(struct bufw *w, uint16_t v);
void bufw_u32(struct bufw *w, uint32_t v);
void bufw_u64(struct bufw *w, uint64_t v);
void bufw_i64(struct bufw *w, int64_t v);
void bufw_bytes(struct bufw *w, const void *p, size_t len); /* no length in front */
/* As text, without the NUL: at most BUFW_PRINTF_MAX bytes of it. */
void bufw_printf(struct bufw *w, const char *fmt, ...) PRINTF(2, 3);
void bufw_blob(struct bufw *w, const void *p, size_t len);  /* u32 length, bytes */
void bufw_str(struct bufw *w, const char *s);               /* a blob without the NUL */
/* Reserves `len` zeroed bytes and returns their offset, to be filled by bufw_patch_u32(). */
size_t bufw_reserve(struct bufw *w, size_t len);
void bufw_patch_u32(struct bufw *w, size_t off, uint32_t v);
MUST_USE int bufw_end(const struct bufw *w); /* 0 or -ENOMEM */

struct bufr {
	const uint8_t *p;
	const uint8_t *end;
	int err;
};

void bufr_init(struct bufr *r, const void *data, size_t len);
size_t bufr_left(const struct bufr *r); /* 0 after an error */
uint8_t bufr_u8(struct bufr *r);
uint16_t bufr_u16(struct bufr *r);
uint32_t bufr_u32(struct bufr *r);
uint64_t bufr_u64(struct bufr *r);
int64_t bufr_i64(struct bufr *r);
/* Borrowed from the buffer; NULL after an error, or when len > what is left. */
const void *bufr_bytes(struct bufr *r, size_t len);
const void *bufr_blob(struct bufr *r, size_t max, size_t *ret_len);
/* A blob of at most `max` bytes without NUL, as a new C string; NULL after an error. */
char *bufr_strdup(struct bufr *r, size_t max);
/* A u32 count; an error when count * min_size is more than what is left, or count > max. */
uint32_t bufr_count(struct bufr *r, uint32_t max, size_t min_size);
void bufr_fail(struct bufr *r); /* the caller saw nonsense: -EBADMSG sticks */
int bufr_err(const struct bufr *r);
MUST_USE int bufr_end(const struct bufr *r); /* 0; -EBADMSG on an error or when bytes are left; -ENOMEM */

#endif
