/* What a key that does not exist was meant to be. */
#include "config/schema.h"

#include <ctype.h>
#include <string.h>

enum { NAME_MAX_LEN = 64 };

static int folded(char c)
{
	return c == '-' ? '_' : tolower((unsigned char)c);
}

/* Levenshtein's, of folded names. Both at most NAME_MAX_LEN long. */
static size_t distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_LEN + 1], nb = strlen(b);

	for (size_t k = 0; k <= nb; k++)
		row[k] = k;
	for (size_t i = 1; *a; a++, i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t k = 1; k <= nb; k++) {
			size_t replaced = diagonal + (folded(*a) != folded(b[k - 1]));
			size_t shifted = MIN(row[k], row[k - 1]) + 1;

			diagonal = row[k];
			row[k] = MIN(replaced, shifted);
		}
	}
	return row[nb];
}

static bool is_like(const char *name, const char *key)
{
	size_t len = strlen(name), key_len = strlen(key);

	if (len > NAME_MAX_LEN || key_len > NAME_MAX_LEN || len < 3)
		return false;
	return strncmp(name, key, MIN(len, key_len)) == 0 || distance(name, key) <= MIN(len / 2, (size_t)2);
}

/* A key of this name in one of the sections here. */
static const struct schema_key *find_below(const struct schema_key *keys, const char *name,
					   const struct schema_key **ret_section)
{
	for (const struct schema_key *k = keys; k->name; k++) {
		const struct schema_key *found = k->type == SCHEMA_SECTION ? schema_find(k->keys, name) : NULL;

		*ret_section = k;
		if (found)
			return found;
	}
	return NULL;
}

void schema_suggest(const struct schema_key *keys, const char *name, char *ret, size_t size)
{
	const struct schema_key *section, *found = find_below(keys, name, &section);
	size_t used;

	if (found) {
		snprintf(ret, size, "is it %s.%s?", section->name, found->name);
		return;
	}
	for (const struct schema_key *k = keys; k->name; k++) {
		if (is_like(name, k->name)) {
			snprintf(ret, size, "is it %s?", k->name);
			return;
		}
	}
	used = (size_t)snprintf(ret, size, "there are");
	for (const struct schema_key *k = keys; k->name && used < size; k++)
		used += (size_t)snprintf(ret + used, size - used, "%s %s", k == keys ? "" : ",", k->name);
}
