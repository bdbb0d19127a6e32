/*
 * keys - what the files of this folder share of struct config: its table, a value of defaults, and
 * what must hold between keys.
 */
#ifndef CONFIG_KEYS_H
#define CONFIG_KEYS_H

#include "config/config.h"
#include "config/schema.h"

extern const struct schema_key config_keys[];

MUST_USE int config_new(struct config **ret); /* the defaults; -ENOMEM */

/*
 * What no key can tell alone. `file`, with the line of what it is about, stands in front of the error
 * where the file says so; NULL: none was read. Errors as those of config_load().
 */
MUST_USE int check_all(const struct config *c, const char *file, char **ret_why);
/* What is allowed and hardly meant, as warnings in the log. */
void check_warn(const struct config *c);

/* Checks of one text, for the table: NULL, or what is wrong with it. The empty text is good unless told otherwise. */
const char *check_cpus(const char *text);	  /* as in /sys/devices/system/cpu/online */
const char *check_url(const char *text);	  /* of an endpoint */
const char *check_path(const char *text);	  /* absolute */
const char *check_directory(const char *text);	  /* the same, not empty */
const char *check_listen(const char *text);	  /* ADDRESS:PORT or off; not empty */
const char *check_page_listen(const char *text);  /* the same, or empty */
const char *check_label_name(const char *text);	  /* not empty */
const char *check_static_name(const char *text);  /* a label that flamed does not set itself */
const char *check_included(const char *text);	  /* a label of labels.include */
const char *check_label_value(const char *text);
const char *check_static_value(const char *text); /* the same, not empty */
const char *check_pattern(const char *text);	  /* of service names; not empty */
const char *check_one_in(const char *text);
const char *check_endpoint_name(const char *text);
const char *check_username(const char *text);
const char *check_header_name(const char *text);

#endif
