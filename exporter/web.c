#include "exporter/web.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/access.h"
#include "exporter/api.h"
#include "exporter/assets.h"
#include "exporter/listener.h"
#include "exporter/metrics.h"
#include "exporter/ondemand.h"
#include "exporter/recent.h"
#include "exporter/reply.h"

enum { SINKS_MAX = 32, PATH_BYTES_MAX = 1024 };
#define READY_NS (10 * NSEC_PER_SEC)

enum { PAGE, CONTROL, METRICS, NLISTENERS };
static const char *const listener_names[NLISTENERS] = { "page", "control", "metrics" };

struct web {
	const struct web_ops *ops;
	void *arg;
	struct listener *listeners[NLISTENERS];
	struct recent *recent;
	struct ondemand *ondemand;
	const struct config *config; /* borrowed; NULL at first */
	char *hostname, *version, *hash, *token;
	char *password;		     /* of a file; NULL none */
	struct export_status status; /* lives in the next */
	void *status_mem;
	uint64_t status_mono_ns; /* 0: none came */
	int landlock;
};

/* ---- what is shown -------------------------------------------------------------------------- */

struct look {
	struct api_view view;
	struct sink_stats sinks[SINKS_MAX];
	struct names_stats names;
	struct api_listener listeners[NLISTENERS];
	char control[sizeof(struct sockaddr_un)];
};

static void look_at(const struct web *w, struct look *l)
{
	l->view = (struct api_view){
		.recent = w->recent,
		.hostname = w->hostname ? w->hostname : "",
		.version = w->version ? w->version : "",
		.hash = w->hash ? w->hash : "",
		.status = w->status_mono_ns ? &w->status : NULL,
		.sinks = l->sinks,
		.nsinks = MIN(w->ops->sinks(w->arg, l->sinks, SINKS_MAX), (size_t)SINKS_MAX),
		.listeners = l->listeners,
		.landlock = w->landlock,
	};
	if (w->ops->names) {
		w->ops->names(w->arg, &l->names);
		l->view.names = &l->names;
	}
	for (int i = 0; i < NLISTENERS; i++) {
		const struct listener *from = w->listeners[i];
		struct api_listener *to = &l->listeners[l->view.nlisteners];

		if (!listener_is_wanted(from))
			continue;
		l->view.nlisteners++;
		*to = (struct api_listener){
			.name = listener_name(from),
			.address = listener_address(from),
			.error = listener_error(from),
			.is_up = listener_is_up(from),
		};
		for (int e = 0; e < CONNECTION_END_COUNT; e++)
			to->nended[e] = listener_nended(from, (enum connection_end)e);
		/* The agent bound it by way of a descriptor: that path means nothing to anybody else. */
		if (i == CONTROL && w->config && w->config->runtime_directory) {
			const char *name = strrchr(listener_address(from), '/');

			snprintf(l->control, sizeof(l->control), "%s%s",
				 w->config->runtime_directory, name ? name : "");
			to->address = l->control;
		}
	}
}

/* Takes the text. */
static enum MHD_Result send_json(struct listener *l, struct MHD_Connection *c, unsigned int status,
				 struct bufw *text)
{
	struct reply r = { .status = status, .type = "application/json", .is_given = true };
	bool is_gzip;

	if (reply_compress(c, text, &is_gzip))
		return reply_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	if (!listener_hold(l, c, text->cap))
		return reply_busy(c, "2", "too many answers are being read; try again\n");
	if (is_gzip) {
		r.header = "Content-Encoding";
		r.value = "gzip";
	}
	r.data = TAKE(text->data);
	r.len = text->len;
	return reply_send(c, &r);
}

static enum MHD_Result answer_api(const struct web *w, struct listener *l, struct MHD_Connection *c,
				  const char *name)
{
	const struct api_params params = {
		.from = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "from"),
		.to = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "to"),
		.service = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "service"),
		.nodes = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "nodes"),
	};
	CLEANUP(bufw_fini) struct bufw text = {};
	enum MHD_Result result;
	struct look look;
	unsigned int status;

	look_at(w, &look);
	status = api_answer(&look.view, name, &params, &text);
	if (status == MHD_HTTP_INTERNAL_SERVER_ERROR)
		result = reply_text(c, status, "out of memory\n");
	else
		result = send_json(l, c, status, &text);
	malloc_trim(0); /* a query takes many times what is in use otherwise */
	return result;
}

static enum MHD_Result answer_metrics(const struct web *w, struct MHD_Connection *c)
{
	CLEANUP(bufw_fini) struct bufw text = {};
	struct reply r = { .status = MHD_HTTP_OK, .type = METRICS_TYPE };
	struct look look;

	look_at(w, &look);
	metrics_write(&text, &look.view);
	if (bufw_end(&text))
		return reply_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	r.data = text.data;
	r.len = text.len;
	return reply_send(c, &r);
}

static enum MHD_Result answer_ready(const struct web *w, struct MHD_Connection *c)
{
	if (w->status_mono_ns && clock_mono_ns() - w->status_mono_ns <= READY_NS)
		return reply_text(c, MHD_HTTP_OK, "ready\n");
	return reply_text(c, MHD_HTTP_SERVICE_UNAVAILABLE, "the agent is silent\n");
}

/* ---- routes --------------------------------------------------------------------------------- */

static const char *after(const char *path, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(path, prefix, len) ? NULL : path + len;
}

static enum MHD_Result not_found(struct MHD_Connection *c)
{
	return reply_text(c, MHD_HTTP_NOT_FOUND, "not found\n");
}

/* `/TOKEN` alone: the page's links are relative to `/TOKEN/`. */
static enum MHD_Result redirect(const struct web *w, struct MHD_Connection *c)
{
	CLEANUP_FREE char *to = NULL;
	struct reply r = { .status = MHD_HTTP_MOVED_PERMANENTLY, .data = "", .header = "Location" };

	if (asprintf(&to, "/%s/", w->token) < 0)
		return MHD_NO;
	r.value = to;
	return reply_send(c, &r);
}

static enum MHD_Result answer_page(struct web *w, struct MHD_Connection *c, const char *method,
				   const char *path, void **state)
{
	const char *name = after(path, "/api/v1/");
	const struct asset *asset;

	if (name)
		return answer_api(w, w->listeners[PAGE], c, name);
	if (!strcmp(path, "/debug/pprof/profile")) {
		if (!strcmp(method, MHD_HTTP_METHOD_HEAD)) /* not worth a profile */
			return reply_text(c, MHD_HTTP_OK, "");
		return ondemand_request(w->ondemand, w->listeners[PAGE], c, state);
	}
	asset = asset_find(path + 1);
	if (!asset)
		return not_found(c);
	return reply_send(c, &(struct reply){ .status = MHD_HTTP_OK,
					      .type = asset->type,
					      .data = asset->data,
					      .len = asset->len,
					      .is_static = true });
}

static enum MHD_Result answer_control(struct web *w, struct MHD_Connection *c, const char *path)
{
	const char *name = after(path, "/api/v1/");

	return name ? answer_api(w, w->listeners[CONTROL], c, name) : not_found(c);
}

static enum MHD_Result answer_monitoring(struct web *w, struct MHD_Connection *c, const char *path)
{
	if (!strcmp(path, "/metrics"))
		return answer_metrics(w, c);
	if (!strcmp(path, "/healthz"))
		return reply_text(c, MHD_HTTP_OK, "ok\n");
	if (!strcmp(path, "/readyz"))
		return answer_ready(w, c);
	return not_found(c);
}

/* ---- rights --------------------------------------------------------------------------------- */

/*
 * A browser asks its user for a password when it is told of `Basic`: right for somebody who opens the
 * page, wrong for a page that polls after a restart.
 */
static enum MHD_Result unauthorized(struct MHD_Connection *c)
{
	static const char text[] =
		"The address needs the token that flamed printed when it started.\n";
	const char *mode = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Mode");
	bool is_fetch = mode && strcmp(mode, "navigate");
	struct reply r = {
		.status = MHD_HTTP_UNAUTHORIZED,
		.data = text,
		.len = sizeof(text) - 1,
		.header = "WWW-Authenticate",
		.value = is_fetch ? "Bearer realm=\"flamed\"" :
				    "Basic realm=\"flamed\", charset=\"UTF-8\"",
	};

	return reply_send(c, &r);
}

static struct access access_of(const struct web *w)
{
	const struct config_basic_auth *b = &w->config->page.basic_auth;
	const char *password = b->password && *b->password ? b->password : w->password;

	return (struct access){
		.token = w->token ? w->token : "",
		.username = b->username ? b->username : "",
		.password = password ? password : "",
	};
}

static enum MHD_Result guard_page(struct web *w, struct MHD_Connection *c, const char *method,
				  const char *path, void **state)
{
	struct access a = access_of(w);
	const char *rest;

	if (access_path(&a, path, &rest)) {
		if (!*rest)
			return redirect(w, c);
		return answer_page(w, c, method, rest, state);
	}
	if (!access_is_granted(&a, c))
		return unauthorized(c);
	return answer_page(w, c, method, path, state);
}

static bool is_known_host(const struct listener *l, struct MHD_Connection *c)
{
	return !listener_is_loopback(l) ||
	       access_is_loopback_host(MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host"));
}

static enum MHD_Result on_request(void *arg, struct listener *l, struct MHD_Connection *c,
				  const char *method, const char *path, void **state)
{
	struct web *w = arg;

	if (*state) /* it went through all of this before it was suspended */
		return ondemand_request(w->ondemand, l, c, state);
	if (!is_known_host(l, c))
		return reply_text(c, MHD_HTTP_MISDIRECTED_REQUEST, "not a name of this address\n");
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return reply_send(c, &(struct reply){ .status = MHD_HTTP_METHOD_NOT_ALLOWED,
						      .data = "",
						      .header = "Allow",
						      .value = "GET, HEAD" });
	if (*path != '/' || strlen(path) > PATH_BYTES_MAX)
		return reply_text(c, MHD_HTTP_URI_TOO_LONG, "the address is too long\n");
	if (l == w->listeners[PAGE])
		return guard_page(w, c, method, path, state);
	if (l == w->listeners[CONTROL])
		return answer_control(w, c, path);
	return answer_monitoring(w, c, path);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_done(void *arg, void *state)
{
	ondemand_done(((struct web *)arg)->ondemand, state);
}

static void on_closing(void *arg, struct listener *l)
{
	ondemand_closing(((struct web *)arg)->ondemand, l);
}

static void on_opened(void *arg, struct listener *l)
{
	struct web *w = arg;

	if (l == w->listeners[PAGE])
		log_info("page at http://%s/%s/", listener_address(l), w->token);
	if (l == w->listeners[METRICS])
		log_info("metrics at http://%s/metrics", listener_address(l));
	if (l == w->listeners[PAGE] && !listener_is_loopback(l))
		log_warning(
			"the page is plain HTTP that other hosts can reach, its token too: put TLS in "
			"front of it address=%s",
			listener_address(l));
}

static const struct listener_ops listener_ops = {
	.request = on_request,
	.done = on_done,
	.opened = on_opened,
	.closing = on_closing,
};

int web_new(struct web **ret, struct loop *loop, const struct web_ops *ops, void *arg)
{
	CLEANUP(web_freep) struct web *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->ops = ops;
	w->arg = arg;
	err = recent_new(&w->recent);
	if (!err)
		err = ondemand_new(&w->ondemand, loop, ops->tap, arg);
	for (int i = 0; i < NLISTENERS && !err; i++)
		err = listener_new(&w->listeners[i], loop, listener_names[i], &listener_ops, w);
	if (err)
		return err;
	*ret = TAKE(w);
	return 0;
}

static void free_secret(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void forget_identity(struct web *w)
{
	free(w->hostname);
	free(w->version);
	free(w->hash);
	free_secret(w->token);
	w->hostname = w->version = w->hash = w->token = NULL;
}

struct web *web_free(struct web *w)
{
	if (!w)
		return NULL;
	for (int i = 0; i < NLISTENERS; i++)
		listener_free(w->listeners[i]);
	ondemand_free(w->ondemand);
	recent_free(w->recent);
	forget_identity(w);
	free_secret(w->password);
	free(w->status_mem);
	free(w);
	return NULL;
}

/* ---- what it is told ------------------------------------------------------------------------ */

int web_configure(struct web *w, const struct config *c, const struct export_config *more)
{
	const char *page, *metrics = c->metrics.listen;
	int err;

	w->config = c;
	forget_identity(w);
	free_secret(w->password); /* files are told again after settings */
	w->password = NULL;
	w->hostname = strdup(more->hostname);
	w->version = strdup(more->version);
	w->hash = strdup(more->hash);
	w->token = strdup(more->token);
	if (!w->hostname || !w->version || !w->hash || !w->token)
		return -ENOMEM;
	page = *w->token ? config_page_address(c) : NULL;
	recent_limit(w->recent, page ? SIZE_MAX : 1,
		     (size_t)MIN(c->page.max_bytes, (uint64_t)SIZE_MAX));
	err = listener_move(w->listeners[PAGE], page);
	if (err)
		return err;
	return listener_move(w->listeners[METRICS], strcmp(metrics, "off") ? metrics : NULL);
}

int web_control(struct web *w, int listen_fd)
{
	return listener_take(w->listeners[CONTROL], listen_fd);
}

int web_page_password(struct web *w, const char *text, size_t len)
{
	char *copy = NULL;

	if (text && len) {
		copy = strndup(text, len);
		if (!copy)
			return -ENOMEM;
	}
	free_secret(w->password);
	w->password = copy;
	return 0;
}

int web_window(struct web *w, const struct export_batch *b, const void *wire, size_t len)
{
	return recent_add(w->recent, b, wire, len);
}

void web_take_tap(struct web *w, const struct export_batch *b)
{
	ondemand_take(w->ondemand, b);
}

void web_tap_refused(struct web *w, const struct export_tap_refused *r)
{
	ondemand_refused(w->ondemand, r);
}

/* A copy, made by the codec: texts and arrays move into it as one. */
int web_status(struct web *w, const struct export_status *s)
{
	CLEANUP(bufw_fini) struct bufw bytes = {};
	struct export_status copy;
	struct bufr in;
	void *mem;
	int err;

	export_status_encode(&bytes, s);
	err = bufw_end(&bytes);
	if (!err) {
		bufr_init(&in, bytes.data, bytes.len);
		err = export_status_decode(&in, &copy, &mem);
	}
	if (err)
		return err;
	free(w->status_mem);
	w->status = copy;
	w->status_mem = mem;
	w->status_mono_ns = clock_mono_ns();
	return 0;
}

void web_set_landlock(struct web *w, int version)
{
	w->landlock = version;
}
