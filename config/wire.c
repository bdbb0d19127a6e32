#include "config/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- encode ---------------------------------------------------------------------------------- */

static bool is_of_part(const struct schema_key *k, enum wire_part part)
{
	bool is_secret = k->is_secret || k->is_url;

	return part == WIRE_ALL || is_secret == (part == WIRE_SECRET);
}

/* The names of a secret map are public. */
static void encode_map(struct bufw *w, const struct schema_key *k, const struct value_map *m,
		       enum wire_part part)
{
	bufw_u32(w, (uint32_t)m->n);
	for (size_t i = 0; i < m->n; i++) {
		bufw_str(w, m->v[i].name);
		if (is_of_part(k, part))
			bufw_str(w, m->v[i].value);
	}
}

static void encode_key(struct bufw *w, const struct schema_key *k, const void *base,
		       enum wire_part part)
{
	const struct value_strings *s = schema_field(k, base);
	const struct value_items *items = schema_field(k, base);
	const char *const *text = schema_field(k, base);

	switch (k->type) {
	case SCHEMA_INT:
	case SCHEMA_DURATION:
	case SCHEMA_SIZE:
	case SCHEMA_CHOICE:
	case SCHEMA_BOOL:
		if (is_of_part(k, part))
			bufw_u64(w, schema_number(k, base));
		break;
	case SCHEMA_STRING:
		if (is_of_part(k, part))
			bufw_str(w, *text);
		break;
	case SCHEMA_STRINGS:
		if (!is_of_part(k, part))
			break;
		bufw_u32(w, (uint32_t)s->n);
		for (size_t i = 0; i < s->n; i++)
			bufw_str(w, s->v[i]);
		break;
	case SCHEMA_MAP:
		encode_map(w, k, schema_field(k, base), part);
		break;
	case SCHEMA_SECTION:
		wire_encode(w, k->keys, base, part);
		break;
	case SCHEMA_SECTIONS:
		bufw_u32(w, (uint32_t)items->n);
		for (size_t i = 0; i < items->n; i++)
			wire_encode(w, k->keys, (const char *)items->v + i * k->item_size, part);
		break;
	}
}

void wire_encode(struct bufw *w, const struct schema_key *keys, const void *base,
		 enum wire_part part)
{
	for (; keys->name; keys++)
		encode_key(w, keys, base, part);
}

/* ---- decode ---------------------------------------------------------------------------------- */

/* What schema_*() refuses, config_encode() does not make. */
static int refused(int err)
{
	return err == -EINVAL ? -EBADMSG : err;
}

/* A text at most as long as the schema allows; -ENOMEM or -EBADMSG. */
static int take_text(struct bufr *in, char **ret)
{
	char *text = bufr_strdup(in, SCHEMA_TEXT_MAX);

	if (!text)
		return bufr_err(in) ? bufr_err(in) : -EBADMSG;
	*ret = text;
	return 0;
}

static int decode_string(struct bufr *in, const struct schema_key *k, void *base)
{
	CLEANUP_FREE char *text = NULL, *why = NULL;
	int err = take_text(in, &text);

	if (err)
		return err;
	return refused(k->type == SCHEMA_STRINGS ? schema_add_string(k, base, text, &why) :
						   schema_set(k, base, text, &why));
}

static int decode_pair(struct bufr *in, const struct schema_key *k, void *base)
{
	CLEANUP_FREE char *name = NULL, *value = NULL, *why = NULL;
	int err = take_text(in, &name);

	if (!err)
		err = take_text(in, &value);
	if (err)
		return err;
	return refused(schema_add_pair(k, base, name, value, &why));
}

static int decode_item(struct bufr *in, const struct schema_key *k, void *base)
{
	CLEANUP_FREE char *why = NULL;
	void *item;
	int err = schema_add_item(k, base, &item, &why);

	return err ? refused(err) : wire_decode(in, k->keys, item);
}

/* The elements of a list; each has a byte at least, so their number is bounded by what is there. */
static int decode_list(struct bufr *in, const struct schema_key *k, void *base)
{
	uint32_t n = bufr_count(in, (uint32_t)k->max, 1);
	int err = bufr_err(in);

	schema_clear(k, base);
	for (uint32_t i = 0; i < n && !err; i++) {
		if (k->type == SCHEMA_STRINGS)
			err = decode_string(in, k, base);
		else if (k->type == SCHEMA_MAP)
			err = decode_pair(in, k, base);
		else
			err = decode_item(in, k, base);
	}
	return err;
}

static int decode_key(struct bufr *in, const struct schema_key *k, void *base)
{
	uint64_t v;

	switch (k->type) {
	case SCHEMA_STRING:
		return decode_string(in, k, base);
	case SCHEMA_STRINGS:
	case SCHEMA_MAP:
	case SCHEMA_SECTIONS:
		return decode_list(in, k, base);
	case SCHEMA_SECTION:
		return wire_decode(in, k->keys, base);
	default:
		v = bufr_u64(in);
		return bufr_err(in) ? bufr_err(in) : refused(schema_set_number(k, base, v));
	}
}

int wire_decode(struct bufr *in, const struct schema_key *keys, void *base)
{
	for (; keys->name; keys++) {
		int err = decode_key(in, keys, base);

		if (err)
			return err;
	}
	return 0;
}

/* ---- compare --------------------------------------------------------------------------------- */

/* Out of memory counts as a difference: it only means a warning. */
static bool key_differs(const struct schema_key *k, const void *a, const void *b)
{
	CLEANUP(bufw_fini) struct bufw wa = {}, wb = {};

	encode_key(&wa, k, a, WIRE_ALL);
	encode_key(&wb, k, b, WIRE_ALL);
	return bufw_end(&wa) || bufw_end(&wb) || wa.len != wb.len ||
	       (wa.len && memcmp(wa.data, wb.data, wa.len) != 0);
}

bool wire_differs(const struct schema_key *keys, const void *a, const void *b, char *ret_path,
		  size_t size)
{
	for (const struct schema_key *k = keys; k->name; k++) {
		size_t len = strlen(k->name);

		if (k->type == SCHEMA_SECTION && len + 1 < size) {
			if (!wire_differs(k->keys, a, b, ret_path + len + 1, size - len - 1))
				continue;
			memcpy(ret_path, k->name, len);
			ret_path[len] = '.';
			return true;
		}
		if (k->needs_restart && key_differs(k, a, b)) {
			snprintf(ret_path, size, "%s", k->name);
			return true;
		}
	}
	return false;
}
