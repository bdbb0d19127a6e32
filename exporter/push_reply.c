#include "exporter/push_reply.h"

#include "exporter/push.pb-c.h"
#include "exporter/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- what the server said -------------------------------------------------------------------- */

struct said {
	bool is_connect; /* {"code": ..., "message": ...}: a Pyroscope server, not a proxy before it */
	bool is_html;
	bool is_taken; /* the body of an acknowledgement */
};

static void free_json(json_t **j)
{
	json_decref(*j);
}

static const char *member(const json_t *j, const char *name)
{
	const char *text = json_string_value(json_object_get(j, name));

	return text ? text : "";
}

static bool begins_with(const char *s, const char *prefix)
{
	return !strncasecmp(s, prefix, strlen(prefix));
}

static bool looks_like_html(const struct http_result *r)
{
	const char *s = r->body + strspn(r->body, " \t\r\n");

	return begins_with(r->content_type, "text/html") || begins_with(s, "<!doctype") ||
	       begins_with(s, "<html");
}

static bool is_type(const struct http_result *r, const char *type)
{
	size_t len = strcspn(r->content_type, "; \t");

	return len == strlen(type) && !strncasecmp(r->content_type, type, len);
}

static bool speaks_of_an_error(const json_t *j)
{
	static const char *const members[] = { "code", "error", "errors" };

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (json_object_get(j, members[i]))
			return true;
	}
	return json_is_false(json_object_get(j, "success")) ||
	       !strcasecmp(member(j, "status"), "error");
}

static bool is_message(const struct http_result *r)
{
	Push__V1__PushResponse *m = push__v1__push_response__unpack(
		NULL, r->body_len, (const uint8_t *)r->body);

	if (m)
		push__v1__push_response__free_unpacked(m, NULL);
	return m != NULL;
}

static bool is_taken(const struct push_asked *asked, const struct http_result *r, const json_t *j)
{
	bool is_good_json = json_is_object(j) && !speaks_of_an_error(j);
	size_t blanks = strspn(r->body, " \t\r\n");

	if (r->body_len >= HTTP_REPLY_MAX)
		return false;
	if (asked->transport == PUSH_INGEST)
		return is_good_json || blanks == r->body_len ||
		       (!strncasecmp(r->body + blanks, "ok", 2) &&
			blanks + 2 + strspn(r->body + blanks + 2, " \t\r\n") == r->body_len);
	if (r->status != 200)
		return false;
	if (is_type(r, "application/json"))
		return is_good_json;
	return is_type(r, "application/proto") && is_message(r);
}

/* A text is cut where it is too long; what it is made of is the log's matter. */
static void read_body(const struct push_asked *asked, const struct http_result *r,
		      struct said *said, char message[PUSH_MESSAGE_MAX])
{
	CLEANUP(free_json) json_t *j = NULL;
	const char *code, *text;

	*message = '\0';
	said->is_html = looks_like_html(r);
	if (said->is_html) {
		snprintf(message, PUSH_MESSAGE_MAX, "a page of HTML");
		return;
	}
	j = json_loadb(r->body, r->body_len, 0, NULL);
	said->is_taken = is_taken(asked, r, j);
	if (!json_is_object(j)) {
		int len = (int)strcspn(r->body, "\r\n");

		snprintf(message, PUSH_MESSAGE_MAX, "%.*s", len, r->body);
		return;
	}
	code = member(j, "code");
	text = *member(j, "message") ? member(j, "message") :
				       member(j, "error"); /* Grafana's gateway */
	said->is_connect = *code != '\0';
	snprintf(message, PUSH_MESSAGE_MAX, "%s%s%s", code, *code && *text ? ": " : "", text);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static bool has(const char *s, const char *part)
{
	return strcasestr(s, part) != NULL;
}

/* /ingest says 422 to almost everything; the text has the word of what it was. */
static enum push_verdict verdict_of_422(const char *message)
{
	static const char *const passing[] = {
		"resource_exhausted:", "unavailable:", "deadline_exceeded:",
		"canceled:",	       "internal:",
	};

	if (has(message, "invalid_argument:"))
		return PUSH_REFUSED;
	for (size_t i = 0; i < ARRAY_SIZE(passing); i++) {
		if (has(message, passing[i]))
			return PUSH_RETRY;
	}
	return PUSH_REFUSED;
}

/* Ranges of status codes; the first that fits. */
static const struct {
	long first, last;
	enum push_verdict push, ingest;
	const char *state;
} verdicts[] = {
	{ 200, 299, PUSH_PASSED, PUSH_PASSED, "ok" },
	{ 300, 399, PUSH_HOLD, PUSH_HOLD, "redirected" },
	{ 401, 401, PUSH_HOLD, PUSH_HOLD, "unauthorized" },
	{ 403, 403, PUSH_HOLD, PUSH_HOLD, "forbidden" },
	{ 404, 405, PUSH_ABSENT, PUSH_HOLD, "wrong address" },
	{ 407, 407, PUSH_HOLD, PUSH_HOLD, "unauthorized" },
	{ 408, 409, PUSH_RETRY, PUSH_RETRY, "failing" },
	{ 415, 415, PUSH_ABSENT, PUSH_HOLD, "wrong address" },
	{ 425, 425, PUSH_RETRY, PUSH_RETRY, "failing" },
	{ 429, 429, PUSH_RETRY, PUSH_RETRY, "limited" },
	{ 499, 500, PUSH_RETRY, PUSH_RETRY, "failing" },
	{ 501, 501, PUSH_ABSENT, PUSH_HOLD, "wrong address" },
	{ 502, 599, PUSH_RETRY, PUSH_RETRY, "failing" },
	{ 400, 499, PUSH_REFUSED, PUSH_REFUSED, "refusing" },
};

/* Statuses after which the server does not have it; the first that fits, none: it may have it. */
static const struct {
	long first, last;
	bool did_not_arrive;
} arrivals[] = {
	{ 300, 399, true },
	{ 408, 409, false }, /* gave up waiting for it, or on it; a conflict with what is there */
	{ 422, 422, false }, /* /ingest says so of everything: the text decides */
	{ 499, 499, false }, /* somebody in between gave up */
	{ 400, 498, true },
	{ 501, 501, true },
};

static bool did_not_arrive(const struct http_result *r, const char *message)
{
	/* Without that it may be the answer of a proxy whose server was slow. */
	if (r->status == 503)
		return r->retry_after_ns > 0;
	if (r->status == 422)
		return has(message, "resource_exhausted:");
	for (size_t i = 0; i < ARRAY_SIZE(arrivals); i++) {
		if (r->status >= arrivals[i].first && r->status <= arrivals[i].last)
			return arrivals[i].did_not_arrive;
	}
	return false;
}

static void judge_status(const struct push_asked *asked, long status, const struct said *said,
			 struct push_reply *ret)
{
	ret->verdict = PUSH_RETRY;
	ret->state = "failing";
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		if (status >= verdicts[i].first && status <= verdicts[i].last) {
			ret->verdict = asked->transport == PUSH_CONNECT ? verdicts[i].push :
									  verdicts[i].ingest;
			ret->state = verdicts[i].state;
			break;
		}
	}
	if (status == 422 && asked->transport == PUSH_INGEST)
		ret->verdict = verdict_of_422(ret->message);
	/* Of a proxy, or of a server that has another service there. */
	if (status == 400 && asked->transport == PUSH_CONNECT && !said->is_connect) {
		ret->verdict = PUSH_ABSENT;
		ret->state = "wrong address";
	}
	/* Someone else's server, or a login. */
	if (ret->verdict == PUSH_PASSED && !said->is_taken) {
		ret->verdict = asked->transport == PUSH_CONNECT ? PUSH_ABSENT : PUSH_HOLD;
		ret->state = "wrong address";
	}
	/* No one but a server with Push refuses the empty message in its words. */
	if (asked->is_probe && ret->verdict == PUSH_REFUSED) {
		ret->verdict = said->is_connect ? PUSH_PASSED : PUSH_ABSENT;
		ret->state = said->is_connect ? "ok" : "wrong address";
	}
}

/* ---- hints ----------------------------------------------------------------------------------- */

static const struct {
	CURLcode code;
	enum push_verdict verdict;
	const char *hint;
} failures[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, PUSH_RETRY,
	  "is the host name in `url` right, and does the resolver of this host know it?" },
	{ CURLE_COULDNT_CONNECT, PUSH_RETRY,
	  "does the server run, is the port in `url` right, is there a firewall?" },
	{ CURLE_OPERATION_TIMEDOUT, PUSH_RETRY,
	  "the server is slow or unreachable; `timeout` is how long it may take" },
	{ CURLE_PEER_FAILED_VERIFICATION, PUSH_RETRY,
	  "the certificate of the server is not trusted, or of another host: tls.ca_file, or the name in `url`" },
	{ CURLE_SSL_CONNECT_ERROR, PUSH_RETRY,
	  "does that port speak TLS? plain HTTP needs http:// in `url`" },
	{ CURLE_WRITE_ERROR, PUSH_RETRY,
	  "that is no answer of a Pyroscope server: `url` is its base address" },
	{ CURLE_GOT_NOTHING, PUSH_RETRY,
	  "the server closed the connection; TLS needs https:// in `url`" },
	{ CURLE_SSL_CACERT_BADFILE, PUSH_HOLD, "tls.ca_file holds no PEM certificates" },
	{ CURLE_SSL_CERTPROBLEM, PUSH_HOLD, "tls.cert_file and tls.key_file are no PEM pair" },
	{ CURLE_URL_MALFORMAT, PUSH_HOLD, "`url` is none" },
	{ CURLE_UNSUPPORTED_PROTOCOL, PUSH_HOLD, "`url` begins with http:// or https://" },
};

static void read_failure(const struct http_result *r, struct push_reply *ret)
{
	ret->verdict = PUSH_RETRY;
	ret->did_not_arrive = !r->was_sent;
	ret->kind = -(int)r->code;
	ret->state = "failing";
	ret->hint = "it is tried again";
	snprintf(ret->message, sizeof(ret->message), "%s",
		 r->code == CURLE_WRITE_ERROR ? "the answer is too long" : r->error);
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		if (failures[i].code == r->code) {
			ret->verdict = failures[i].verdict;
			ret->hint = failures[i].hint;
		}
	}
	if (r->is_unresolved && r->code == CURLE_OPERATION_TIMEDOUT)
		ret->hint = "no name server answers: look at /etc/resolv.conf of this host";
}

static const char *hint_of_401(const struct push_asked *asked)
{
	if (has(asked->url, "kloudmate") && strcmp(asked->username, "KloudMate") != 0)
		return "the user name of KloudMate is the word KloudMate, the password an `Ingest Key - Backend`";
	if (has(asked->url, "kloudmate"))
		return "the password is an API key of the type `Ingest Key - Backend`";
	if (has(asked->url, "grafana.net"))
		return "the user name is the number of the Profiles instance of the stack, the password an access policy "
		       "token (glc_...) with profiles:write of the same region";
	if (asked->has_auth)
		return "the server does not accept basic_auth or bearer_token of this endpoint";
	if (!asked->has_tenant)
		return "set basic_auth, bearer_token or, for a server with tenants, tenant_id";
	return "set basic_auth or bearer_token";
}

/* The first whose status (0: any) and word of the server's ("": any) fit. */
static const struct {
	long status;
	const char *word, *hint;
} hints[] = {
	{ 403, "", "the credentials are known but lack a right: profiles:write" },
	{ 407, "", "a proxy in between wants credentials, which flamed has none for" },
	{ 404, "",
	  "`url` is the base address of the server with its path prefix, without /ingest and the like" },
	{ 405, "", "`url` is the base address of the server: something else answers there" },
	{ 415, "", "`url` is the base address of the server: something else answers there" },
	{ 501, "", "`url` is the base address of the server: something else answers there" },
	{ 413, "",
	  "a proxy before the server limits the size of a request (nginx: client_max_body_size)" },
	{ 0, "ingestion window",
	  "the clocks of this host and of the server differ, or the profile is over an hour old" },
	{ 0, "https port", "that port speaks TLS: https:// in `url`" },
	{ 0, "label name", "fewer labels: labels.static and labels.include" },
	{ 0, "duplicate label", "a label is there twice: labels.static and labels.include" },
	{ 429, "reached", "the quota of this account is used up" },
	{ 429, "",
	  "the server limits how much it takes: raise its limit, or send less; it is tried again" },
	{ 500, "", "the log of the server says more; it is tried again" },
	{ 400, "", "the profile is dropped: please report this, with what the server said" },
	{ 422, "", "the profile is dropped: please report this, with what the server said" },
};

static const char *hint_of_status(const struct push_asked *asked, long status,
				  const struct said *said, const char *message)
{
	if (status == 401)
		return hint_of_401(asked);
	if (status >= 300 && status <= 399)
		return "a redirect is not followed: `url` has to be the address that it leads to";
	if (status >= 200 && status <= 299)
		return said->is_taken ? "" :
		       said->is_html  ? "a page for people answers there, perhaps one to log in to the "
					"network: `url` is the base address of a server" :
					"that is no answer of a Pyroscope server: `url` is its base address";
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
		if ((!hints[i].status || hints[i].status == status) && has(message, hints[i].word))
			return hints[i].hint;
	}
	return status >= 500 ? "it is tried again" : "the profile is dropped";
}

/* It is shown by the log, the API and the page: UTF-8 on one line, also where it was cut. */
static void tidy(char *text)
{
	bool is_utf8 = utf8_is_text(text, strlen(text));

	for (unsigned char *s = (unsigned char *)text; *s; s++) {
		if (*s < 0x20 || *s == 0x7f || (*s >= 0x80 && !is_utf8))
			*s = '?';
	}
}

void push_reply_read(const struct push_asked *asked, const struct http_result *r,
		     struct push_reply *ret)
{
	struct said said = {};

	*ret = (struct push_reply){ .kind = (int)r->status, .hint = "", .state = "ok" };
	if (r->code != CURLE_OK) {
		read_failure(r, ret);
		tidy(ret->message);
		return;
	}
	read_body(asked, r, &said, ret->message);
	judge_status(asked, r->status, &said, ret);
	ret->did_not_arrive = did_not_arrive(r, ret->message);
	ret->hint = hint_of_status(asked, r->status, &said, ret->message);
	if (*r->location)
		snprintf(ret->message, sizeof(ret->message), "redirect to %s", r->location);
	tidy(ret->message);
}
