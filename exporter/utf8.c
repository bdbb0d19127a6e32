#include "exporter/utf8.h"

#include <errno.h>
#include <string.h>

static const char replacement[UTF8_REPLACEMENT_BYTES] = { '\xef', '\xbf', '\xbd' };

static bool in_range(uint8_t c, uint8_t low, uint8_t high)
{
	return c >= low && c <= high;
}

/* Bytes of the character at p (table 3-7 of the Unicode standard), 0 when there is none. */
static size_t char_len(const uint8_t *p, size_t left)
{
	uint8_t low = 0x80, high = 0xbf; /* of the second byte */
	size_t len;

	if (in_range(p[0], 0x01, 0x7f))
		return 1;
	if (in_range(p[0], 0xc2, 0xdf))
		len = 2;
	else if (in_range(p[0], 0xe0, 0xef))
		len = 3;
	else if (in_range(p[0], 0xf0, 0xf4))
		len = 4;
	else
		return 0;
	if (p[0] == 0xe0)
		low = 0xa0; /* shorter forms exist */
	else if (p[0] == 0xed)
		high = 0x9f; /* surrogates */
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f; /* past U+10FFFF */
	if (left < len || !in_range(p[1], low, high))
		return 0;
	for (size_t i = 2; i < len; i++) {
		if (!in_range(p[i], 0x80, 0xbf))
			return 0;
	}
	return len;
}

bool utf8_is_text(const char *s, size_t len)
{
	const uint8_t *p = (const uint8_t *)s;
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = char_len(p + i, len - i);
		if (!n)
			return false;
	}
	return true;
}

int utf8_repair(const char *s, size_t len, char **ret, size_t *ret_len)
{
	const uint8_t *p = (const uint8_t *)s;
	size_t n, cap, to = 0;
	char *out;

	if (__builtin_mul_overflow(len, (size_t)UTF8_REPLACEMENT_BYTES, &cap))
		return -ENOMEM;
	out = malloc(cap ? cap : 1);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < len; i += n ? n : 1) {
		n = char_len(p + i, len - i);
		memcpy(out + to, n ? s + i : replacement, n ? n : sizeof(replacement));
		to += n ? n : sizeof(replacement);
	}
	*ret = out;
	*ret_len = to;
	return 0;
}

size_t utf8_cut(const char *s, size_t len, size_t max)
{
	if (len <= max)
		return len;
	while (max && ((uint8_t)s[max] & 0xc0) == 0x80)
		max--;
	return max;
}

/* C0, DEL, C1, and what some programs take for a line's end: U+2028 and U+2029. */
static bool is_control(const uint8_t *p, size_t len)
{
	if (len == 1)
		return p[0] < 0x20 || p[0] == 0x7f;
	if (len == 2)
		return p[0] == 0xc2 && p[1] < 0xa0;
	return len == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9);
}

void utf8_clean(const char *s, size_t len, char *ret, size_t size)
{
	const uint8_t *p = (const uint8_t *)s;
	size_t n, out, to = 0;

	for (size_t i = 0; i < len; i += n ? n : 1) {
		bool is_shown;

		n = char_len(p + i, len - i);
		is_shown = n && !is_control(p + i, n);
		out = is_shown ? n : sizeof(replacement);
		if (to + out > size - 1)
			break;
		memcpy(ret + to, is_shown ? s + i : replacement, out);
		to += out;
	}
	ret[to] = 0;
}
