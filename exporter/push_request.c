#include "exporter/push_request.h"

#include "base/clock.h"
#include "exporter/push.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROFILE_TYPE "process_cpu" /* __name__; /ingest makes it of the sample types */

/* ---- bodies ---------------------------------------------------------------------------------- */

/* A UUID of our own making (version 8 of RFC 9562), the same for each try. */
static void format_id(uint64_t id, char ret[37])
{
	uint64_t low = (id ^ id >> 31) * 0x9e3779b97f4a7c15ull;

	snprintf(ret, 37, "%08" PRIx32 "-%04x-8%03x-%04x-%012" PRIx64, (uint32_t)(id >> 32),
		 (unsigned int)(id >> 16 & 0xffff), (unsigned int)(id & 0xfff),
		 0x8000u | (unsigned int)(low >> 50), (uint64_t)(low & 0xffffffffffff));
}

static int message_body(struct push_request *r, const struct profile *p, uint64_t id)
{
	CLEANUP_FREE Push__V1__LabelPair *pairs = calloc(p->nlabels + 1, sizeof(*pairs));
	CLEANUP_FREE Push__V1__LabelPair **labels = calloc(p->nlabels + 1, sizeof(*labels));
	Push__V1__RawSample sample = PUSH__V1__RAW_SAMPLE__INIT, *samples = &sample;
	Push__V1__RawProfileSeries one = PUSH__V1__RAW_PROFILE_SERIES__INIT, *series = &one;
	Push__V1__PushRequest message = PUSH__V1__PUSH_REQUEST__INIT;
	static char name[] = "__name__", type[] = PROFILE_TYPE;
	char uuid[37];

	if (!pairs || !labels)
		return -ENOMEM;
	for (uint32_t i = 0; i <= p->nlabels; i++) {
		push__v1__label_pair__init(&pairs[i]);
		pairs[i].name = i ? p->labels[i - 1].name : name;
		pairs[i].value = i ? p->labels[i - 1].value : type;
		labels[i] = &pairs[i];
	}
	format_id(id, uuid);
	sample.raw_profile = (ProtobufCBinaryData){ .len = p->len, .data = p->data };
	sample.id = uuid;
	one.n_labels = p->nlabels + 1;
	one.labels = labels;
	one.n_samples = 1;
	one.samples = &samples;
	message.n_series = 1;
	message.series = &series;
	r->len = push__v1__push_request__get_packed_size(&message);
	r->body = malloc(r->len);
	if (!r->body)
		return -ENOMEM;
	push__v1__push_request__pack(&message, r->body);
	return 0;
}

/* A boundary that the profile does not contain. */
static void choose_boundary(const struct profile *p, uint64_t id, char *ret, size_t size)
{
	do {
		snprintf(ret, size, "flamed-%016" PRIx64, id++);
	} while (memmem(p->data, p->len, ret, strlen(ret)));
}

/* The one form that all servers take: a file part that is called `profile` and has a file's name. */
static int form_body(struct push_request *r, const struct profile *p, const char *boundary)
{
	struct bufw w = {};
	char text[256];
	int n;

	n = snprintf(
		text, sizeof(text),
		"--%s\r\n"
		"Content-Disposition: form-data; name=\"profile\"; filename=\"profile.pprof\"\r\n"
		"Content-Type: application/octet-stream\r\n\r\n",
		boundary);
	bufw_bytes(&w, text, (size_t)n);
	bufw_bytes(&w, p->data, p->len);
	n = snprintf(text, sizeof(text), "\r\n--%s--\r\n", boundary);
	bufw_bytes(&w, text, (size_t)n);
	if (bufw_end(&w)) {
		bufw_fini(&w);
		return -ENOMEM;
	}
	r->body = w.data;
	r->len = w.len;
	return 0;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* `service{name=value,...}`, for which there is no quoting: what ends a value becomes `_`. */
static int ingest_name(const struct profile *p, char **ret)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	bool is_first = true;

	bufw_bytes(&w, p->service_name, strlen(p->service_name));
	bufw_u8(&w, '{');
	for (uint32_t i = 0; i < p->nlabels; i++) {
		const char *name = p->labels[i].name;

		/* The server makes these itself, and refuses them twice; it drops other __names. */
		if (!strcmp(name, "service_name") || !strcmp(name, "pyroscope_spy") ||
		    !strncmp(name, "__", 2) || !*p->labels[i].value)
			continue;
		if (!is_first)
			bufw_u8(&w, ',');
		is_first = false;
		bufw_bytes(&w, name, strlen(name));
		bufw_u8(&w, '=');
		for (const char *v = p->labels[i].value; *v; v++)
			bufw_u8(&w, strchr(",}=", *v) ? '_' : (uint8_t)*v);
	}
	bufw_bytes(&w, "}", 2);
	if (bufw_end(&w))
		return -ENOMEM;
	*ret = (char *)TAKE(w.data);
	return 0;
}

static void free_escaped(char **s)
{
	curl_free(*s);
}

static int ingest_url(CURL *easy, const struct push_settings *s, const struct profile *p,
		      char **ret)
{
	CLEANUP_FREE char *name = NULL;
	CLEANUP(free_escaped) char *escaped = NULL;
	int err = ingest_name(p, &name);

	if (err)
		return err;
	escaped = curl_easy_escape(easy, name, 0);
	if (!escaped ||
	    asprintf(ret,
		     "%s" PUSH_PATH_INGEST "%s%sname=%s&from=%019" PRIu64 "&until=%019" PRIu64
		     "&spyName=flamed",
		     s->base, *s->query ? s->query : "?", *s->query && s->query[1] ? "&" : "",
		     escaped, p->wall_start_ns, p->wall_start_ns + p->duration_ns) < 0)
		return -ENOMEM;
	return 0;
}

/* ---- a request ------------------------------------------------------------------------------- */

static int add_header(struct push_request *r, const char *name, const char *value)
{
	CLEANUP_FREE char *line = NULL;
	struct curl_slist *more;

	/* An empty value is `Name;` to libcurl, and `Name:` is none at all. */
	if (asprintf(&line, *value ? "%s: %s" : "%s;%s", name, value) < 0)
		return -ENOMEM;
	more = curl_slist_append(r->headers, line);
	explicit_bzero(line, strlen(line));
	if (!more)
		return -ENOMEM;
	r->headers = more;
	return 0;
}

static int add_auth(struct push_request *r, const struct push_settings *s)
{
	CLEANUP_FREE char *pair = NULL, *value = NULL;

	if (s->has_basic) {
		pair = push_settings_basic(s);
		if (!pair || asprintf(&value, "Basic %s", pair) < 0)
			return -ENOMEM;
	} else if (s->has_bearer) {
		if (asprintf(&value, "Bearer %s", s->secrets[EXPORT_ROLE_BEARER_TOKEN].data) < 0)
			return -ENOMEM;
	} else {
		return 0;
	}
	return add_header(r, "Authorization", value);
}

static int add_headers(struct push_request *r, const struct push_settings *s, enum push_transport t,
		       const char *content_type)
{
	/* Without `Expect: 100-continue`, for whose answer libcurl would wait a second. */
	struct curl_slist *more = curl_slist_append(r->headers, "Expect:");
	int err;

	if (!more)
		return -ENOMEM;
	r->headers = more;
	err = add_header(r, "Content-Type", content_type);
	if (!err && t == PUSH_CONNECT)
		err = add_header(r, "Connect-Protocol-Version", "1");
	if (!err && *s->tenant)
		err = add_header(r, "X-Scope-OrgID", s->tenant);
	if (!err)
		err = add_auth(r, s);
	for (size_t i = 0; !err && i < s->headers.n; i++)
		err = add_header(r, s->headers.v[i].name, s->headers.v[i].value);
	return err;
}

static CURLcode set_blob(CURL *easy, CURLoption option, const struct push_secret *s)
{
	struct curl_blob blob = { .data = s->data, .len = s->len, .flags = CURL_BLOB_COPY };

	return curl_easy_setopt(easy, option, &blob);
}

static CURLcode set_tls(CURL *easy, const struct push_settings *s)
{
	const struct push_secret *ca = &s->secrets[EXPORT_ROLE_CA],
				 *cert = &s->secrets[EXPORT_ROLE_CERT],
				 *key = &s->secrets[EXPORT_ROLE_KEY];
	CURLcode code = CURLE_OK;

	if (ca->state == PUSH_SECRET_GIVEN) {
		/* These authorities, and not the host's besides. */
		code = curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
		if (!code)
			code = set_blob(easy, CURLOPT_CAINFO_BLOB, ca);
	}
	if (!code && cert->state == PUSH_SECRET_GIVEN)
		code = set_blob(easy, CURLOPT_SSLCERT_BLOB, cert);
	if (!code && key->state == PUSH_SECRET_GIVEN)
		code = set_blob(easy, CURLOPT_SSLKEY_BLOB, key);
	if (!code && s->insecure)
		code = curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
	if (!code && s->insecure)
		code = curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	return code;
}

static int set_options(struct push_request *r, const struct push_settings *s, const char *url)
{
	CURL *easy = r->easy;
	CURLcode code = curl_easy_setopt(easy, CURLOPT_URL, url);

	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_POST, 1L);
	/* Borrowed; a message of nothing is a message too. */
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_POSTFIELDS,
					r->body ? (const char *)r->body : "");
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->len);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_HTTPHEADER, r->headers);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_USERAGENT, s->user_agent);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
					(long)MAX(s->timeout_ns / NSEC_PER_MSEC, 1ull));
	if (!code)
		code = set_tls(easy, s);
	return code ? -ENOMEM : 0;
}

int push_request_init(struct push_request *r, const struct push_settings *s, enum push_transport t,
		      const struct profile *p, uint64_t id)
{
	CLEANUP_FREE char *url = NULL;
	char type[80] = "application/proto", boundary[32];
	int err;

	*r = (struct push_request){ .easy = curl_easy_init() };
	if (!r->easy)
		return -ENOMEM;
	if (t == PUSH_INGEST) {
		choose_boundary(p, id, boundary, sizeof(boundary));
		snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
		err = form_body(r, p, boundary);
		if (!err)
			err = ingest_url(r->easy, s, p, &url);
	} else {
		err = p ? message_body(r, p, id) : 0;
		if (!err && asprintf(&url, "%s" PUSH_PATH_CONNECT "%s", s->base, s->query) < 0)
			err = -ENOMEM;
	}
	if (!err)
		err = add_headers(r, s, t, type);
	if (!err)
		err = set_options(r, s, url);
	if (err)
		push_request_fini(r);
	return err;
}

void push_request_fini(struct push_request *r)
{
	/* Headers have the password in them. */
	for (struct curl_slist *h = r->headers; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data));
	curl_slist_free_all(r->headers);
	if (r->easy)
		curl_easy_cleanup(r->easy);
	free(r->body);
	*r = (struct push_request){};
}
