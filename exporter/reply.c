#include "exporter/reply.h"

#include <string.h>

#include "exporter/gzip.h"

enum { GZIP_MIN = 8 * 1024 };

static const char *const headers[][2] = {
	{ "Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "
				     "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
				     "form-action 'none'; frame-ancestors 'none'" },
	{ "Referrer-Policy", "no-referrer" }, /* the address holds the token */
	{ "X-Content-Type-Options", "nosniff" },
	{ "Cache-Control", "no-store" },
	{ "Connection", "close" }, /* exporter/connections.h */
};

enum MHD_Result reply_send(struct MHD_Connection *c, const struct reply *r)
{
	/* It takes the bytes as not const, and only reads them. */
	struct MHD_Response *response = MHD_create_response_from_buffer(
		r->len, (void *)(uintptr_t)r->data,
		r->is_static ? MHD_RESPMEM_PERSISTENT :
		r->is_given  ? MHD_RESPMEM_MUST_FREE :
			       MHD_RESPMEM_MUST_COPY);
	enum MHD_Result ok = response ? MHD_YES : MHD_NO;

	for (size_t i = 0; i < ARRAY_SIZE(headers) && ok; i++)
		ok = MHD_add_response_header(response, headers[i][0], headers[i][1]);
	if (ok)
		ok = MHD_add_response_header(response, "Content-Type",
					     r->type ? r->type : "text/plain; charset=utf-8");
	if (ok && r->header)
		ok = MHD_add_response_header(response, r->header, r->value);
	if (ok)
		ok = MHD_queue_response(c, r->status, response);
	if (response)
		MHD_destroy_response(response);
	else if (r->is_given)
		free((void *)(uintptr_t)r->data);
	return ok;
}

enum MHD_Result reply_text(struct MHD_Connection *c, unsigned int status, const char *text)
{
	struct reply r = { .status = status, .data = text, .len = strlen(text) };

	return reply_send(c, &r);
}

enum MHD_Result reply_busy(struct MHD_Connection *c, const char *seconds, const char *text)
{
	struct reply r = {
		.status = MHD_HTTP_SERVICE_UNAVAILABLE,
		.data = text,
		.len = strlen(text),
		.header = "Retry-After",
		.value = seconds,
	};

	return reply_send(c, &r);
}

/* `gzip` as a word of the list, and not as one that is refused (`gzip;q=0`). */
static bool accepts_gzip(struct MHD_Connection *c)
{
	const char *list = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Accept-Encoding");

	while (list && *list) {
		size_t len;

		list += strspn(list, ", \t");
		len = strcspn(list, ",; \t");
		if (len == 4 && !strncasecmp(list, "gzip", 4)) {
			list += len;
			return strncmp(list + strspn(list, " \t"), ";q=0", 4) ||
			       strpbrk(list, "123456789");
		}
		list += strcspn(list, ",");
	}
	return false;
}

static int gzipped(const struct bufw *text, struct bufw *ret)
{
	struct gzip g;
	int err = gzip_init(&g, ret);

	if (err)
		return err;
	gzip_write(&g, text->data, text->len);
	err = gzip_end(&g);
	gzip_fini(&g);
	return err;
}

int reply_compress(struct MHD_Connection *c, struct bufw *text, bool *ret_is_gzip)
{
	struct bufw out = {};
	int err;

	*ret_is_gzip = text->len >= GZIP_MIN && accepts_gzip(c);
	if (!*ret_is_gzip)
		return 0;
	err = gzipped(text, &out);
	bufw_fini(err ? &out : text);
	if (!err)
		*text = out;
	return err;
}
