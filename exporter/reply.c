#include "exporter/reply.h"

#include <string.h>

#include "base/buf.h"
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
		r->is_static ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
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
	return ok;
}

enum MHD_Result reply_text(struct MHD_Connection *c, unsigned int status, const char *text)
{
	struct reply r = { .status = status, .data = text, .len = strlen(text) };

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

static int append(const char *data, size_t len, void *arg)
{
	struct bufw *w = arg;

	bufw_bytes(w, data, len);
	return bufw_end(w) ? -1 : 0;
}

static enum MHD_Result send_gzipped(struct MHD_Connection *c, struct reply *r)
{
	CLEANUP(bufw_fini) struct bufw out = {};
	struct gzip g;
	int err = gzip_init(&g, &out);

	if (!err) {
		gzip_write(&g, r->data, r->len);
		err = gzip_end(&g);
		gzip_fini(&g);
	}
	if (err)
		return MHD_NO;
	r->data = out.data;
	r->len = out.len;
	r->header = "Content-Encoding";
	r->value = "gzip";
	return reply_send(c, r);
}

enum MHD_Result reply_json(struct MHD_Connection *c, unsigned int status, const json_t *j)
{
	CLEANUP(bufw_fini) struct bufw text = {};
	struct reply r = { .status = status, .type = "application/json" };

	if (!j || json_dump_callback(j, append, &text, JSON_COMPACT))
		return reply_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	r.data = text.data;
	r.len = text.len;
	return r.len >= GZIP_MIN && accepts_gzip(c) ? send_gzipped(c, &r) : reply_send(c, &r);
}
