#include "config/schema.h"

#include "base/log.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

static const char prefix[] = "FLAMED_";

/* Behind `name` in upper case at the start of `text`; NULL when that is not what it starts with. */
static const char *after_name(const char *text, const char *name)
{
	for (; *name; name++, text++) {
		if (*text != toupper((unsigned char)*name))
			return NULL;
	}
	return text;
}

static const char *after_section(const char *text, const char *name)
{
	text = after_name(text, name);
	return text && *text == '_' ? text + 1 : NULL;
}

/* The key that a variable names, or NULL; *ret_list is the list whose first item it belongs to. */
static const struct schema_key *match(const struct schema_key *keys, const char *var,
				      const struct schema_key **ret_list)
{
	for (const struct schema_key *k = keys; k->name; k++) {
		const struct schema_key *found = NULL;
		const char *rest;

		switch (k->type) {
		case SCHEMA_SECTION:
			rest = k->is_env_flat ? var : after_section(var, k->name);
			found = rest ? match(k->keys, rest, ret_list) : NULL;
			break;
		case SCHEMA_SECTIONS:
			rest = k->item_env ? after_section(var, k->item_env) : NULL;
			found = rest ? match(k->keys, rest, ret_list) : NULL;
			if (found) {
				assert(!*ret_list); /* one level of lists has variables */
				*ret_list = k;
			}
			break;
		default:
			rest = after_name(var, k->name);
			found = rest && !*rest ? k : NULL;
		}
		if (found)
			return found;
	}
	return NULL;
}

static int first_item(const struct schema_key *list, void *base, void **ret_item, char **ret_why)
{
	struct value_items *items = (void *)((char *)base + list->off);

	if (!items->n)
		return schema_add_item(list, base, ret_item, ret_why);
	*ret_item = items->v;
	return 0;
}

/* `a,b` or `name=value,name=value`. */
static int set_list(const struct schema_key *k, void *base, const char *text, char **ret_why)
{
	CLEANUP_FREE char *copy = strdup(text);
	char *rest = copy, *one, *value;
	int err = 0;

	if (!copy)
		return -ENOMEM;
	schema_clear(k, base);
	while (!err && *text && (one = strsep(&rest, ","))) {
		if (k->type == SCHEMA_STRINGS) {
			err = schema_add_string(k, base, one, ret_why);
			continue;
		}
		value = strchr(one, '=');
		if (!value)
			return schema_refuse(ret_why, "is not of the form name=value,name=value");
		*value++ = 0;
		err = schema_add_pair(k, base, one, value, ret_why);
	}
	return err;
}

static int set_one(const struct schema_key *keys, void *base, const char *name, const char *value,
		   char **ret_why)
{
	const struct schema_key *list = NULL;
	const struct schema_key *k = match(keys, name + strlen(prefix), &list);
	CLEANUP_FREE char *why = NULL;
	void *owner = base;
	int err = 0;

	if (!k) {
		log_warning("this variable is no setting of this version (--print-config names them) name=%s", LOG_STR(name));
		return 0;
	}
	if (list)
		err = first_item(list, base, &owner, &why);
	if (!err && (k->type == SCHEMA_STRINGS || k->type == SCHEMA_MAP))
		err = set_list(k, owner, value, &why);
	else if (!err)
		err = schema_set(k, owner, value, &why);
	if (!err)
		schema_keep_line(owner, k->line_off, 0); /* what it says now is not the file's */
	return err == -EINVAL ? schema_refuse(ret_why, "%s: %s", name, why) : err;
}

int schema_env(const struct schema_key *keys, void *base, char **ret_why)
{
	for (char **e = environ; e && *e; e++) {
		const char *value = strchr(*e, '=');
		CLEANUP_FREE char *name = NULL;
		int err;

		if (!value || strncmp(*e, prefix, strlen(prefix)) != 0)
			continue;
		name = strndup(*e, (size_t)(value - *e));
		if (!name)
			return -ENOMEM;
		err = set_one(keys, base, name, value + 1, ret_why);
		if (err)
			return err;
	}
	return 0;
}
