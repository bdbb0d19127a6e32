/*
 * schema - one table per section says all that is known of a key: its type, range, default, place
 * in the struct, environment variable and help. Defaults, files, the environment and print all
 * follow it, so that a new key is one line.
 *
 * A table ends with an empty entry and has at most SCHEMA_KEYS_MAX others. Keys of a section lie
 * in the same struct as the section; those of a list of sections in the list's items.
 * The environment variable is FLAMED_ and the path in upper case (FLAMED_SAMPLING_FREQUENCY_HZ);
 * lists are `a,b`, maps `name=value,name=value`.
 *
 * May touch: the heap, the environment (schema_env). Never: files.
 */
#ifndef CONFIG_SCHEMA_H
#define CONFIG_SCHEMA_H

#include "config/value.h"

#include <stdio.h>

enum { SCHEMA_KEYS_MAX = 64, SCHEMA_TEXT_MAX = 4096 };

enum schema_type {
	SCHEMA_INT,	 /* uint32_t or uint64_t */
	SCHEMA_DURATION, /* uint64_t, ns */
	SCHEMA_SIZE,	 /* uint32_t or uint64_t, bytes */
	SCHEMA_CHOICE,	 /* an enum: the index in `choices` */
	SCHEMA_BOOL,	 /* bool */
	SCHEMA_STRING,	 /* char *, never NULL */
	SCHEMA_STRINGS,	 /* struct value_strings */
	SCHEMA_MAP,	 /* struct value_map; names are unique */
	SCHEMA_SECTION,	 /* no value of its own */
	SCHEMA_SECTIONS, /* struct value_items */
};

struct schema_key {
	const char *name;
	enum schema_type type;
	size_t off, size;		/* SCHEMA_FIELD() */
	uint64_t min, max;		/* of a number; max: elements of a list or map */
	const char *def;		/* as text; NULL: empty */
	const char *const *choices;	/* ends with NULL */
	const struct schema_key *keys;	/* of a section, or of each item */
	size_t item_size;
	const char *item_env;		/* the first item's variables are FLAMED_<this>_... */
	bool is_env_flat;		/* this section's name is not part of its keys' variables */
	size_t line_off;		/* where its line of the file is kept, a uint32_t; 0: nowhere */
	size_t item_line_off;		/* the same for an item, in the item */
	bool is_secret;			/* never printed, also not in an error */
	bool is_url;			/* its query is never printed, and nothing of it in an error */
	bool needs_restart;		/* of one that is no section */
	const char *(*check)(const char *text); /* of a string: NULL, or what is wrong with it */
	const char *(*check_name)(const char *text); /* the same for the names of a map */
	const char *help;
	const char *example;		/* lines of YAML, printed as comments */
};

#define SCHEMA_FIELD(type, field) .off = offsetof(type, field), .size = sizeof(((type *)0)->field)

/* Fills a zeroed struct with the defaults. 0 or -ENOMEM; schema_fini() is due in both cases. */
MUST_USE int schema_init(const struct schema_key *keys, void *base);
void schema_fini(const struct schema_key *keys, void *base);

static inline const void *schema_field(const struct schema_key *k, const void *base)
{
	return (const char *)base + k->off;
}
const struct schema_key *schema_find(const struct schema_key *keys, const char *name);

/* Of a name that is no key: "is it endpoints?", or which there are. */
void schema_suggest(const struct schema_key *keys, const char *name, char *ret, size_t size);

/* A key that is one text. -EINVAL and a new string that says why, without the key; or -ENOMEM. */
MUST_USE int schema_set(const struct schema_key *k, void *base, const char *text, char **ret_why);
/* A number, choice or bool. -EINVAL when it is out of range. */
MUST_USE int schema_set_number(const struct schema_key *k, void *base, uint64_t v);
/* Elements of lists and maps; errors as above. */
MUST_USE int schema_add_string(const struct schema_key *k, void *base, const char *text,
			       char **ret_why);
MUST_USE int schema_add_pair(const struct schema_key *k, void *base, const char *name,
			     const char *value, char **ret_why);
/* A new item with its defaults. */
MUST_USE int schema_add_item(const struct schema_key *k, void *base, void **ret_item,
			     char **ret_why);
void schema_clear(const struct schema_key *k, void *base); /* a list or map: empty */
/* Of what is at `base`, at line_off or item_line_off of its key. */
void schema_keep_line(void *base, size_t off, size_t line);

/* Of a number, choice or bool: its value; and how a number is written. */
uint64_t schema_number(const struct schema_key *k, const void *base);
struct value_text schema_format(enum schema_type type, uint64_t v);
/* -EINVAL and the text, or -ENOMEM. */
MUST_USE int schema_refuse(char **ret_why, const char *fmt, ...) PRINTF(2, 3);

/* Sets what FLAMED_ variables say; *ret_why names the variable. An unknown one is a warning, since
 * Kubernetes makes variables for a service that is called flamed. */
MUST_USE int schema_env(const struct schema_key *keys, void *base, char **ret_why);

/* YAML with the help as comments, which loads to the same value but for secrets. */
void schema_print(FILE *out, const struct schema_key *keys, const void *base);

#endif
