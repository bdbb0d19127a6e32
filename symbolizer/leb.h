/* leb - DWARF's variable-length integers (DWARF 5 section 7.6), read through base/buf.h. */
#ifndef SYMBOLIZER_LEB_H
#define SYMBOLIZER_LEB_H

#include "base/buf.h"

/* Bits past the 64th are dropped; the number of bytes is bounded by the buffer. */
static inline UNUSED uint64_t bufr_uleb(struct bufr *r)
{
	uint64_t v = 0;
	unsigned int shift = 0;
	uint8_t b;

	do {
		b = bufr_u8(r);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift = shift < 64 ? shift + 7 : 64;
	} while (b & 0x80);
	return v;
}

static inline UNUSED int64_t bufr_sleb(struct bufr *r)
{
	uint64_t v = 0;
	unsigned int shift = 0;
	uint8_t b;

	do {
		b = bufr_u8(r);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift = shift < 64 ? shift + 7 : 64;
	} while (b & 0x80);
	if (shift < 64 && (b & 0x40))
		v |= ~(uint64_t)0 << shift;
	return (int64_t)v;
}

#endif
