#include "config/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first: the order in which a duration is written. */
static const struct unit duration_units[] = {
	{ "d", 86400ull * 1000000000 }, { "h", 3600ull * 1000000000 }, { "m", 60ull * 1000000000 },
	{ "s", 1000000000 },		{ "ms", 1000000 },	       { "us", 1000 },
	{ "ns", 1 },
};

static const struct unit size_units[] = {
	{ "TiB", 1ull << 40 },	{ "GiB", 1ull << 30 },	{ "MiB", 1ull << 20 }, { "KiB", 1ull << 10 },
	{ "TB", 1000000000000 }, { "GB", 1000000000 },	{ "MB", 1000000 },     { "kB", 1000 },
	{ "B", 1 },
};

/* The digits at *text, which is moved behind them. */
static int parse_digits(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t v = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -EINVAL;
	}
	*text = p;
	*ret = v;
	return 0;
}

int value_parse_int(const char *text, uint64_t *ret)
{
	uint64_t v;
	int err = parse_digits(&text, &v);

	if (err)
		return err;
	if (*text)
		return -EINVAL;
	*ret = v;
	return 0;
}

int value_parse_bool(const char *text, bool *ret)
{
	bool is_true = strcmp(text, "true") == 0;

	if (!is_true && strcmp(text, "false") != 0)
		return -EINVAL;
	*ret = is_true;
	return 0;
}

int value_parse_duration(const char *text, uint64_t *ret_ns)
{
	uint64_t sum = 0, v;
	size_t next = 0; /* units before this one are no longer allowed */

	do {
		size_t len;
		int err = parse_digits(&text, &v);

		if (err)
			return err;
		len = strspn(text, "abcdefghijklmnopqrstuvwxyz");
		while (next < ARRAY_SIZE(duration_units) &&
		       (strlen(duration_units[next].name) != len ||
			memcmp(duration_units[next].name, text, len) != 0))
			next++;
		if (next == ARRAY_SIZE(duration_units) ||
		    __builtin_mul_overflow(v, duration_units[next].factor, &v) ||
		    __builtin_add_overflow(sum, v, &sum))
			return -EINVAL;
		text += len;
		next++;
	} while (*text);
	*ret_ns = sum;
	return 0;
}

int value_parse_size(const char *text, uint64_t *ret_bytes)
{
	uint64_t v;
	int err = parse_digits(&text, &v);

	if (err)
		return err;
	if (!*text) {
		*ret_bytes = v;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(size_units); i++) {
		if (strcmp(text, size_units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(v, size_units[i].factor, &v))
			return -EINVAL;
		*ret_bytes = v;
		return 0;
	}
	return -EINVAL;
}

/* The code point at *s, which is moved behind it; UINT32_MAX when it is none. */
static uint32_t next_code_point(const char **s)
{
	static const uint32_t min[] = { 0, 0x80, 0x800, 0x10000 };
	const unsigned char *p = (const unsigned char *)*s;
	uint32_t c = *p++;
	size_t nmore = 0;

	if (c >= 0xf8 || (c >= 0x80 && c < 0xc0))
		return UINT32_MAX;
	if (c >= 0xc0) {
		nmore = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
		c &= 0x3fu >> nmore;
	}
	for (size_t i = 0; i < nmore; i++, p++) {
		if ((*p & 0xc0) != 0x80) /* also the end */
			return UINT32_MAX;
		c = c << 6 | (*p & 0x3f);
	}
	*s = (const char *)p;
	return c < min[nmore] ? UINT32_MAX : c;
}

bool value_is_text(const char *s)
{
	while (*s) {
		uint32_t c = next_code_point(&s);

		if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0xd800 && c < 0xe000) ||
		    c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff ||
		    c > 0x10ffff)
			return false;
	}
	return true;
}

struct value_text value_format_duration(uint64_t ns)
{
	struct value_text r = { "0s" };
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(duration_units); i++) {
		uint64_t n = ns / duration_units[i].factor;

		ns %= duration_units[i].factor;
		if (n)
			used += (size_t)snprintf(r.text + used, sizeof(r.text) - used,
						 "%" PRIu64 "%s", n, duration_units[i].name);
	}
	return r;
}

struct value_text value_format_size(uint64_t bytes)
{
	struct value_text r;

	for (size_t i = 0; i < 4 && bytes; i++) { /* the binary ones */
		if (bytes % size_units[i].factor)
			continue;
		snprintf(r.text, sizeof(r.text), "%" PRIu64 "%s", bytes / size_units[i].factor,
			 size_units[i].name);
		return r;
	}
	snprintf(r.text, sizeof(r.text), "%" PRIu64, bytes);
	return r;
}

int value_strings_add(struct value_strings *s, const char *text)
{
	char **v = reallocarray(s->v, s->n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	s->v = v;
	v[s->n] = strdup(text);
	if (!v[s->n])
		return -ENOMEM;
	s->n++;
	return 0;
}

int value_map_add(struct value_map *m, const char *name, const char *value)
{
	CLEANUP_FREE char *new_name = strdup(name), *new_value = strdup(value);
	struct value_pair *v;

	if (!new_name || !new_value)
		return -ENOMEM;
	v = reallocarray(m->v, m->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	m->v = v;
	v[m->n++] = (struct value_pair){ TAKE(new_name), TAKE(new_value) };
	return 0;
}

const char *value_map_find(const struct value_map *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++) {
		if (strcmp(m->v[i].name, name) == 0)
			return m->v[i].value;
	}
	return NULL;
}

void value_strings_fini(struct value_strings *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
	*s = (struct value_strings){};
}

void value_map_fini(struct value_map *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->v[i].name);
		free(m->v[i].value);
	}
	free(m->v);
	*m = (struct value_map){};
}
