/*
 * utf8 - servers refuse a whole profile for one byte that is not UTF-8.
 *
 * May touch: the heap.
 */
#ifndef EXPORTER_UTF8_H
#define EXPORTER_UTF8_H

#include "base/def.h"

enum { UTF8_REPLACEMENT_BYTES = 3 };

/* UTF-8 as in RFC 3629, and without NUL. */
bool utf8_is_text(const char *s, size_t len);
/* A new copy, not NUL-terminated; U+FFFD stands for each byte that belongs to no character. */
MUST_USE int utf8_repair(const char *s, size_t len, char **ret, size_t *ret_len);
/* Of text: at most max bytes, so that no character is cut in two. */
size_t utf8_cut(const char *s, size_t len, size_t max);
/* What people can be shown: U+FFFD also for control characters; cut at size - 1, NUL-terminated. */
void utf8_clean(const char *s, size_t len, char *ret, size_t size);

#endif
