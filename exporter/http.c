#include "exporter/http.h"

#include "base/buf.h"
#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	REPLY_READ_MAX = 1024 * 1024, /* more is no answer: the connection is given up */
	HEAD_READ_MAX = 64 * 1024,    /* the same, of status lines and headers */
	KEPT_CONNECTIONS_MAX = 16,
	HOST_CONNECTIONS_MAX = 8,
	KEEPALIVE_IDLE_S = 60,
};

struct request {
	struct request *next;
	CURL *easy; /* borrowed */
	http_fn *fn;
	void *arg;
	struct bufw body;
	size_t nread, nhead;
	char error[CURL_ERROR_SIZE];
};

struct http {
	struct loop *loop;
	CURLM *multi;
	struct loop_source *timer;
	struct request *requests;
};

/* A socket of libcurl's that our loop watches. */
struct watched {
	struct http *http;
	struct loop_source *source;
	curl_socket_t fd;
};

/* ---- requests that are over ------------------------------------------------------------------ */

static struct request **request_at(struct http *h, const CURL *easy)
{
	struct request **at = &h->requests;

	while (*at && (*at)->easy != easy)
		at = &(*at)->next;
	return at;
}

/* The handle is the caller's again. */
static struct request *request_detach(struct http *h, CURL *easy)
{
	struct request **at = request_at(h, easy);
	struct request *r = *at;

	if (!r)
		return NULL;
	*at = r->next;
	(void)curl_multi_remove_handle(h->multi, easy);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, NULL);
	return r;
}

static void request_free(struct request *r)
{
	bufw_fini(&r->body);
	free(r);
}

static void finish(struct http *h, CURL *easy, CURLcode code)
{
	struct http_result result = {
		.code = code, .content_type = "", .location = "", .error = "", .body = ""
	};
	struct request *r = request_detach(h, easy);
	curl_off_t retry_after = 0, resolved_us = 0, ready_us = 0;
	long request_bytes = 0;
	char *text = NULL;

	if (!r)
		return;
	(void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &result.status);
	(void)curl_easy_getinfo(easy, CURLINFO_NAMELOOKUP_TIME_T, &resolved_us);
	(void)curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
	(void)curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &request_bytes);
	result.was_sent = code == CURLE_OK || ready_us > 0 || request_bytes > 0;
	result.is_unresolved = code == CURLE_COULDNT_RESOLVE_HOST ||
			       (code == CURLE_OPERATION_TIMEDOUT && !resolved_us);
	/* There is a status, and so much of a body that the rest does not matter. */
	if (code == CURLE_WRITE_ERROR && r->nread > REPLY_READ_MAX)
		result.code = CURLE_OK;
	if (!curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &text) && text)
		result.content_type = text;
	text = NULL;
	if (!curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &text) && text)
		result.location = text;
	if (!curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after) && retry_after > 0)
		result.retry_after_ns =
			(uint64_t)MIN(retry_after, (curl_off_t)86400) * NSEC_PER_SEC;
	if (result.code != CURLE_OK)
		result.error = *r->error ? r->error : curl_easy_strerror(result.code);
	if (r->body.len && !r->body.err) {
		result.body = (const char *)r->body.data;
		result.body_len = r->body.len - 1; /* the NUL */
	}
	r->fn(r->arg, &result);
	request_free(r);
}

static void finish_all(struct http *h)
{
	CURLMsg *msg;
	int nleft;

	/* What fn starts or cancels changes the queue: it is read anew each time. */
	while ((msg = curl_multi_info_read(h->multi, &nleft))) {
		if (msg->msg == CURLMSG_DONE)
			finish(h, msg->easy_handle, msg->data.result);
	}
}

static void act(struct http *h, curl_socket_t fd, int events)
{
	int nrunning;

	(void)curl_multi_socket_action(h->multi, fd, events, &nrunning);
	finish_all(h);
}

/* ---- what libcurl asks of the loop ----------------------------------------------------------- */

static int on_socket(void *arg, unsigned int events)
{
	const struct watched *w = arg;

	act(w->http, w->fd,
	    (events & LOOP_IN ? CURL_CSELECT_IN : 0) | (events & LOOP_OUT ? CURL_CSELECT_OUT : 0));
	return 0;
}

static int on_timer(void *arg)
{
	act(arg, CURL_SOCKET_TIMEOUT, 0);
	return 0;
}

static void unwatch(struct http *h, struct watched *w)
{
	if (!w)
		return;
	(void)curl_multi_assign(h->multi, w->fd, NULL);
	loop_del(w->source);
	free(w);
}

/* -1: libcurl fails the transfer. */
static int watch(struct http *h, struct watched *w, curl_socket_t fd, int what)
{
	unsigned int events = (what & CURL_POLL_IN ? LOOP_IN : 0u) |
			      (what & CURL_POLL_OUT ? LOOP_OUT : 0u);

	if (w)
		return loop_modify(w->source, events) ? -1 : 0;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -1;
	*w = (struct watched){ .http = h, .fd = fd };
	if (loop_add(h->loop, &w->source, fd, events, on_socket, w)) {
		free(w);
		return -1;
	}
	(void)curl_multi_assign(h->multi, fd, w);
	return 0;
}

static int watch_fn(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		unwatch(arg, socket_arg);
		return 0;
	}
	return watch(arg, socket_arg, fd, what);
}

/* Never acts at once: libcurl is in the middle of something. */
static int timer_fn(CURLM *multi, long timeout_ms, void *arg)
{
	struct http *h = arg;
	uint64_t when_ns = 0;

	(void)multi;
	if (timeout_ms >= 0)
		when_ns = clock_mono_ns() + (uint64_t)timeout_ms * NSEC_PER_MSEC;
	return loop_timer_at(h->timer, when_ns) ? -1 : 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int setup(struct http *h)
{
	CURLMcode code;

	code = curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, watch_fn);
	if (!code)
		code = curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	if (!code)
		code = curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, timer_fn);
	if (!code)
		code = curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	if (!code)
		code = curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS,
					 (long)KEPT_CONNECTIONS_MAX);
	if (!code)
		code = curl_multi_setopt(h->multi, CURLMOPT_MAX_HOST_CONNECTIONS,
					 (long)HOST_CONNECTIONS_MAX);
	return code ? -ENOMEM : 0;
}

int http_new(struct http **ret, struct loop *loop)
{
	CLEANUP(http_freep) struct http *h = NULL;
	int err;

	if (curl_global_init(CURL_GLOBAL_ALL))
		return -ENOMEM;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->loop = loop;
	h->multi = curl_multi_init();
	if (!h->multi)
		return -ENOMEM;
	err = loop_add_timer(loop, &h->timer, 0, on_timer, h);
	if (!err)
		err = setup(h);
	if (err)
		return err;
	*ret = TAKE(h);
	return 0;
}

struct http *http_free(struct http *h)
{
	if (!h)
		return NULL;
	while (h->requests)
		http_cancel(h, h->requests->easy);
	if (h->multi)
		(void)curl_multi_cleanup(h->multi);
	loop_del(h->timer);
	free(h);
	return NULL;
}

/* ---- a request ------------------------------------------------------------------------------- */

static size_t write_fn(char *data, size_t size, size_t n, void *arg)
{
	struct request *r = arg;
	size_t len = size * n; /* size is 1 */
	size_t used = r->body.len ? r->body.len - 1 : 0;
	size_t kept = MIN(len, HTTP_REPLY_MAX - used);

	if (kept) {
		if (r->body.len)
			r->body.len--; /* over the NUL */
		bufw_bytes(&r->body, data, kept);
		bufw_u8(&r->body, 0);
	}
	r->nread += len;
	return r->nread > REPLY_READ_MAX ? 0 : len;
}

/* libcurl keeps headers, and would keep reading 1xx replies. */
static size_t header_fn(char *data, size_t size, size_t n, void *arg)
{
	struct request *r = arg;
	size_t len = size * n;

	(void)data;
	r->nhead += len;
	return r->nhead > HEAD_READ_MAX ? 0 : len;
}

static CURLcode set_options(CURL *easy, struct request *r)
{
	const struct {
		CURLoption option;
		long value;
	} numbers[] = {
		{ CURLOPT_NOSIGNAL, 1 },
#if LIBCURL_VERSION_NUM >= 0x075700
		/* Else a request that ends while its name is looked up waits for the resolver's thread. */
		{ CURLOPT_QUICK_EXIT, 1 },
#endif
		{ CURLOPT_FOLLOWLOCATION, 0 },
		{ CURLOPT_TCP_KEEPALIVE, 1 },
		{ CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S },
		{ CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS },
		{ CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2 },
		{ CURLOPT_NETRC, CURL_NETRC_IGNORED },
	};
	CURLcode code = CURLE_OK;

	for (size_t i = 0; i < ARRAY_SIZE(numbers) && !code; i++)
		code = curl_easy_setopt(easy, numbers[i].option, numbers[i].value);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	/* What http_proxy and the like say is not for us. */
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_PROXY, "");
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, write_fn);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_WRITEDATA, r);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, header_fn);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_HEADERDATA, r);
	if (!code)
		code = curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, r->error);
	return code;
}

int http_start(struct http *h, CURL *easy, http_fn *fn, void *arg)
{
	struct request *r;

	assert(!*request_at(h, easy));
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct request){ .easy = easy, .fn = fn, .arg = arg, .next = h->requests };
	if (set_options(easy, r) || curl_multi_add_handle(h->multi, easy)) {
		(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, NULL);
		free(r);
		return -ENOMEM;
	}
	h->requests = r;
	return 0;
}

void http_cancel(struct http *h, CURL *easy)
{
	struct request *r = request_detach(h, easy);

	if (r)
		request_free(r);
}
