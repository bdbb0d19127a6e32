#include "exporter/jsontext.h"

#include <errno.h>

static int append(const char *data, size_t len, void *arg)
{
	bufw_bytes(arg, data, len);
	return bufw_end(arg) ? -1 : 0;
}

int jsontext_dump(const json_t *j, struct bufw *w)
{
	return json_dump_callback(j, append, w, JSON_COMPACT | JSON_ENCODE_ANY) ? -ENOMEM : 0;
}

int jsontext_put(struct bufw *w, const char *s, size_t len)
{
	CLEANUP_JSON json_t *j = jsontext_bytes(s, len);

	return j ? jsontext_dump(j, w) : -ENOMEM;
}
