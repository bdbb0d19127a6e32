/* jsontext - texts that a workload may have chosen, as JSON strings. */
#ifndef EXPORTER_JSONTEXT_H
#define EXPORTER_JSONTEXT_H

#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "exporter/utf8.h"

/* NULL: out of memory. What is no UTF-8 is repaired. */
static inline UNUSED json_t *jsontext_bytes(const char *s, size_t len)
{
	CLEANUP_FREE char *fixed = NULL;
	size_t fixed_len;

	if (utf8_is_text(s, len))
		return json_stringn_nocheck(s, len);
	if (utf8_repair(s, len, &fixed, &fixed_len))
		return NULL;
	return json_stringn_nocheck(fixed, fixed_len);
}

static inline UNUSED json_t *jsontext(const char *s)
{
	return jsontext_bytes(s, strlen(s));
}

/* Appends a value, as short as it goes; a string as jsontext_bytes() makes it. -ENOMEM. */
MUST_USE int jsontext_dump(const json_t *j, struct bufw *w);
MUST_USE int jsontext_put(struct bufw *w, const char *s, size_t len);

static inline UNUSED void jsontext_decrefp(json_t **j)
{
	json_decref(*j);
}
#define CLEANUP_JSON CLEANUP(jsontext_decrefp)

#endif
