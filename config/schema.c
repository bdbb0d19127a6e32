#include "config/schema.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static void *field(const struct schema_key *k, void *base)
{
	return (char *)base + k->off;
}

int schema_refuse(char **ret_why, const char *fmt, ...)
{
	va_list args;
	char *why;
	int n;

	va_start(args, fmt);
	n = vasprintf(&why, fmt, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;
	*ret_why = why;
	return -EINVAL;
}

/* ---- values ---------------------------------------------------------------------------------- */

uint64_t schema_number(const struct schema_key *k, const void *base)
{
	const void *at = (const char *)base + k->off;
	uint32_t v32;
	uint64_t v64;

	if (k->type == SCHEMA_BOOL)
		return *(const bool *)at;
	if (k->size == sizeof(v32)) {
		memcpy(&v32, at, sizeof(v32));
		return v32;
	}
	assert(k->size == sizeof(v64));
	memcpy(&v64, at, sizeof(v64));
	return v64;
}

static void set_number(const struct schema_key *k, void *base, uint64_t v)
{
	uint32_t v32 = (uint32_t)v;

	if (k->size == sizeof(v32)) {
		assert(v == v32); /* the table's range fits its field */
		memcpy(field(k, base), &v32, sizeof(v32));
		return;
	}
	assert(k->size == sizeof(v));
	memcpy(field(k, base), &v, sizeof(v));
}

int schema_set_number(const struct schema_key *k, void *base, uint64_t v)
{
	uint64_t nchoices = 0;
	bool *b;

	switch (k->type) {
	case SCHEMA_BOOL:
		b = field(k, base);
		if (v > 1)
			return -EINVAL;
		*b = v;
		return 0;
	case SCHEMA_CHOICE:
		while (k->choices[nchoices])
			nchoices++;
		if (v >= nchoices)
			return -EINVAL;
		break;
	default:
		if (v < k->min || v > k->max)
			return -EINVAL;
	}
	set_number(k, base, v);
	return 0;
}

struct value_text schema_format(enum schema_type type, uint64_t v)
{
	struct value_text r;

	if (type == SCHEMA_DURATION)
		return value_format_duration(v);
	if (type == SCHEMA_SIZE)
		return value_format_size(v);
	snprintf(r.text, sizeof(r.text), "%" PRIu64, v);
	return r;
}

static int number_set(const struct schema_key *k, void *base, const char *text, char **ret_why)
{
	uint64_t v;

	switch (k->type) {
	case SCHEMA_DURATION:
		if (value_parse_duration(text, &v))
			return schema_refuse(ret_why, "%s is no duration (such as 15s, 1m30s or 500ms)",
				      LOG_STR(text));
		break;
	case SCHEMA_SIZE:
		if (value_parse_size(text, &v))
			return schema_refuse(ret_why, "%s is no size (such as 64MiB)", LOG_STR(text));
		break;
	default: /* SCHEMA_INT */
		if (value_parse_int(text, &v))
			return schema_refuse(ret_why, "%s is no whole number", LOG_STR(text));
	}
	if (v < k->min || v > k->max)
		return schema_refuse(ret_why, "%s is not in %s..%s", text, schema_format(k->type, k->min).text,
			      schema_format(k->type, k->max).text);
	set_number(k, base, v);
	return 0;
}

/* "error, warning, info, debug" */
static void list_choices(const struct schema_key *k, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; k->choices[i] && used < size; i++)
		used += (size_t)snprintf(ret + used, size - used, "%s%s", i ? ", " : "",
					 k->choices[i]);
}

static int choice_set(const struct schema_key *k, void *base, const char *text, char **ret_why)
{
	char list[256];

	for (uint32_t i = 0; k->choices[i]; i++) {
		if (strcmp(text, k->choices[i]) == 0) {
			set_number(k, base, i);
			return 0;
		}
	}
	list_choices(k, list, sizeof(list));
	return schema_refuse(ret_why, "%s is none of %s", LOG_STR(text), list);
}

/* A string ends up in log lines, label values and HTTP headers: none of these can hold them. */
static int check_text(const struct schema_key *k, const char *text, char **ret_why)
{
	const char *why;

	if (strlen(text) > SCHEMA_TEXT_MAX)
		return schema_refuse(ret_why, "is longer than %d bytes", SCHEMA_TEXT_MAX);
	if (!value_is_text(text))
		return schema_refuse(ret_why, "has a control character or is not UTF-8");
	why = k->check ? k->check(text) : NULL;
	if (!why)
		return 0;
	return k->is_secret || k->is_url ? schema_refuse(ret_why, "%s", why) :
					   schema_refuse(ret_why, "%s %s", LOG_STR(text), why);
}

static int string_set(const struct schema_key *k, void *base, const char *text, char **ret_why)
{
	char **at = field(k, base);
	int err = check_text(k, text, ret_why);
	char *copy;

	if (err)
		return err;
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	free(*at);
	*at = copy;
	return 0;
}

int schema_set(const struct schema_key *k, void *base, const char *text, char **ret_why)
{
	switch (k->type) {
	case SCHEMA_INT:
	case SCHEMA_DURATION:
	case SCHEMA_SIZE:
		return number_set(k, base, text, ret_why);
	case SCHEMA_CHOICE:
		return choice_set(k, base, text, ret_why);
	case SCHEMA_BOOL:
		if (value_parse_bool(text, field(k, base)))
			return schema_refuse(ret_why, "%s is neither true nor false", LOG_STR(text));
		return 0;
	default: /* the others are not one text */
		assert(k->type == SCHEMA_STRING);
		return string_set(k, base, text, ret_why);
	}
}

static int check_room(const struct schema_key *k, size_t n, char **ret_why)
{
	assert(k->max);
	return n < k->max ? 0 : schema_refuse(ret_why, "has more than %" PRIu64 " entries", k->max);
}

int schema_add_string(const struct schema_key *k, void *base, const char *text, char **ret_why)
{
	struct value_strings *s = field(k, base);
	int err = check_room(k, s->n, ret_why);

	if (!err)
		err = check_text(k, text, ret_why);
	return err ? err : value_strings_add(s, text);
}

static int check_name(const struct schema_key *k, const char *name, char **ret_why)
{
	const char *why;

	for (const char *p = name; *p; p++) {
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			/* `Authorization: Basic ...` where NAME=VALUE is wanted has the secret in its name. */
			return k->is_secret ? schema_refuse(ret_why, "a name in it is none (is it of the form name=value?)") :
					      schema_refuse(ret_why, "%s is no name", LOG_STR(name));
	}
	if (!*name || strlen(name) > SCHEMA_TEXT_MAX)
		return schema_refuse(ret_why, "a name is empty or too long");
	why = k->check_name ? k->check_name(name) : NULL;
	if (!why)
		return 0;
	return k->is_secret ? schema_refuse(ret_why, "a name %s", why) :
			      schema_refuse(ret_why, "%s %s", LOG_STR(name), why);
}

int schema_add_pair(const struct schema_key *k, void *base, const char *name, const char *value,
		    char **ret_why)
{
	struct value_map *m = field(k, base);
	int err = check_room(k, m->n, ret_why);

	if (!err)
		err = check_name(k, name, ret_why);
	if (!err)
		err = check_text(k, value, ret_why);
	if (err)
		return err;
	if (value_map_find(m, name))
		return schema_refuse(ret_why, "%s is there twice", LOG_STR(name));
	return value_map_add(m, name, value);
}

int schema_add_item(const struct schema_key *k, void *base, void **ret_item, char **ret_why)
{
	struct value_items *items = field(k, base);
	int err = check_room(k, items->n, ret_why);
	char *v, *item;

	if (err)
		return err;
	v = reallocarray(items->v, items->n + 1, k->item_size);
	if (!v)
		return -ENOMEM;
	items->v = v;
	item = v + items->n * k->item_size;
	memset(item, 0, k->item_size);
	items->n++; /* also a half-built item is freed with the list */
	err = schema_init(k->keys, item);
	if (err)
		return err;
	*ret_item = item;
	return 0;
}

void schema_keep_line(void *base, size_t off, size_t line)
{
	uint32_t v = (uint32_t)line; /* a file has at most LOAD_FILE_MAX of them */

	if (off)
		memcpy((char *)base + off, &v, sizeof(v));
}

/* ---- life ------------------------------------------------------------------------------------ */

const struct schema_key *schema_find(const struct schema_key *keys, const char *name)
{
	for (; keys->name; keys++) {
		if (strcmp(keys->name, name) == 0)
			return keys;
	}
	return NULL;
}

static void items_fini(const struct schema_key *k, struct value_items *items)
{
	for (size_t i = 0; i < items->n; i++)
		schema_fini(k->keys, (char *)items->v + i * k->item_size);
	free(items->v);
	*items = (struct value_items){};
}

void schema_clear(const struct schema_key *k, void *base)
{
	char **s;

	switch (k->type) {
	case SCHEMA_STRING:
		s = field(k, base);
		free(*s);
		*s = NULL;
		break;
	case SCHEMA_STRINGS:
		value_strings_fini(field(k, base));
		break;
	case SCHEMA_MAP:
		value_map_fini(field(k, base));
		break;
	case SCHEMA_SECTION:
		schema_fini(k->keys, base);
		break;
	case SCHEMA_SECTIONS:
		items_fini(k, field(k, base));
		break;
	case SCHEMA_INT:
	case SCHEMA_DURATION:
	case SCHEMA_SIZE:
	case SCHEMA_CHOICE:
	case SCHEMA_BOOL:
		break;
	}
}

void schema_fini(const struct schema_key *keys, void *base)
{
	for (; keys->name; keys++)
		schema_clear(keys, base);
}

int schema_init(const struct schema_key *keys, void *base)
{
	for (const struct schema_key *k = keys; k->name; k++) {
		CLEANUP_FREE char *why = NULL;
		int err = 0;

		assert(k - keys < SCHEMA_KEYS_MAX);
		if (k->type == SCHEMA_SECTION)
			err = schema_init(k->keys, base);
		else if (k->type == SCHEMA_STRING)
			err = schema_set(k, base, k->def ? k->def : "", &why);
		else if (k->def)
			err = schema_set(k, base, k->def, &why);
		assert(err != -EINVAL); /* the table's own default */
		if (err)
			return err;
	}
	return 0;
}
