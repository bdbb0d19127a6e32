/*
 * value - the texts that a setting can be, and what they mean.
 *
 * Durations: numbers with a unit, largest first (`15s`, `1m30s`, `500ms`), in nanoseconds. Sizes:
 * bytes, or a number with B, KiB, MiB, GiB, TiB or kB, MB, GB, TB. What is formatted parses to the
 * same value.
 *
 * May touch: the heap. Never: files, the environment.
 */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "base/def.h"

struct value_strings {
	char **v;
	size_t n;
};

struct value_pair {
	char *name;
	char *value;
};

struct value_map {
	struct value_pair *v;
	size_t n;
};

/* A list of sections: n structs, whose type its key knows. */
struct value_items {
	void *v;
	size_t n;
};

/* Each: 0, or -EINVAL when the text is none or is too large for 64 bits. */
MUST_USE int value_parse_int(const char *text, uint64_t *ret);
MUST_USE int value_parse_bool(const char *text, bool *ret);
MUST_USE int value_parse_duration(const char *text, uint64_t *ret_ns);
MUST_USE int value_parse_size(const char *text, uint64_t *ret_bytes);

/* UTF-8 without control characters, and without what YAML takes for a line's end. */
bool value_is_text(const char *s);

struct value_text {
	char text[48];
};
struct value_text value_format_duration(uint64_t ns);
struct value_text value_format_size(uint64_t bytes);

/* 0 or -ENOMEM; the texts are copied. */
MUST_USE int value_strings_add(struct value_strings *s, const char *text);
MUST_USE int value_map_add(struct value_map *m, const char *name, const char *value);
const char *value_map_find(const struct value_map *m, const char *name); /* NULL: not there */
void value_strings_fini(struct value_strings *s);
void value_map_fini(struct value_map *m);

#endif
