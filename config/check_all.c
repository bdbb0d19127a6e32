/* What must hold between keys. */
#include "config/keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1024 * 1024)
/* Half of the address space that the exporter has (exporter/sandbox.c): the rest is for its work. */
#define KEPT_MAX (512 * MIB)
/* More leaves too little of systemd/flamed.service's MemoryMax= and the DaemonSet's limit, 512 MiB each. */
#define KEPT_USUAL (384 * MIB)

/* Where the settings are from, and where what is wrong with them goes. */
struct judge {
	const struct config *c;
	const char *file; /* NULL: none was read */
	char **ret_why;
};

/* `line` 0: it is not the file that says so. */
static PRINTF(3, 4) int refuse(const struct judge *j, uint32_t line, const char *fmt, ...)
{
	CLEANUP_FREE char *what = NULL;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vasprintf(&what, fmt, args);
	va_end(args);
	if (n < 0) {
		what = NULL;
		return -ENOMEM;
	}
	return j->file && line ? schema_refuse(j->ret_why, "%s:%u: %s", j->file, line, what) :
				 schema_refuse(j->ret_why, "%s", what);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

/* A basic_auth: NULL, or what is wrong. */
static const char *check_basic_auth(const struct config_basic_auth *a)
{
	bool has_password = *a->password || *a->password_file;

	if (*a->password && *a->password_file)
		return "has both password and password_file: one of them";
	if (*a->username && !has_password)
		return "has a username and no password: set password or password_file";
	if (!*a->username && has_password)
		return "has a password and no username, so that it would not be sent: set username";
	return NULL;
}

static bool has_header(const struct config_endpoint *e, const char *name)
{
	for (size_t i = 0; i < e->headers.n; i++) {
		if (strcasecmp(e->headers.v[i].name, name) == 0)
			return true;
	}
	return false;
}

static bool is_plain_http(const struct config_endpoint *e)
{
	return strncasecmp(e->url, "http://", 7) == 0;
}

/* NULL, or what is wrong; *ret_key is then the key in the endpoint that it is about. */
static const char *check_endpoint(const struct config_endpoint *e, const char **ret_key)
{
	bool has_bearer = *e->bearer_token || *e->bearer_token_file;
	const char *why;

	*ret_key = "url";
	if (!*e->url)
		return "is missing: every endpoint has one, such as http://HOST:4040";
	*ret_key = "basic_auth";
	why = check_basic_auth(&e->basic_auth);
	if (why)
		return why;
	if (*e->basic_auth.username && has_bearer)
		return "is there together with bearer_token: a request carries one of them";
	*ret_key = "bearer_token";
	if (*e->bearer_token && *e->bearer_token_file)
		return "is there together with bearer_token_file: one of them";
	*ret_key = "headers";
	if ((*e->basic_auth.username || has_bearer) && has_header(e, "Authorization"))
		return "has Authorization, which basic_auth or bearer_token sets";
	if (*e->tenant_id && has_header(e, "X-Scope-OrgID"))
		return "has X-Scope-OrgID, which tenant_id sets";
	*ret_key = "tls";
	if (!*e->tls.cert_file != !*e->tls.key_file)
		return "has one of cert_file and key_file: a client's certificate needs both";
	if (is_plain_http(e) &&
	    (*e->tls.ca_file || *e->tls.cert_file || e->tls.insecure_skip_verify))
		return "is set and the url is http://, without TLS: make it https://, or leave tls out";
	return NULL;
}

static bool are_same_map(const struct value_map *a, const struct value_map *b)
{
	for (size_t i = 0; i < a->n; i++) {
		const char *other = value_map_find(b, a->v[i].name);

		if (!other || strcmp(a->v[i].value, other) != 0)
			return false;
	}
	return a->n == b->n;
}

/* The same place, under the same name: what both push is added up there. */
static bool are_same_place(const struct config_endpoint *a, const struct config_endpoint *b)
{
	return strcmp(a->url, b->url) == 0 && strcmp(a->tenant_id, b->tenant_id) == 0 &&
	       strcmp(a->basic_auth.username, b->basic_auth.username) == 0 &&
	       strcmp(a->bearer_token, b->bearer_token) == 0 &&
	       strcmp(a->bearer_token_file, b->bearer_token_file) == 0 &&
	       are_same_map(&a->headers, &b->headers);
}

static int check_endpoints(const struct judge *j)
{
	for (size_t i = 0; i < j->c->endpoints.n; i++) {
		const struct config_endpoint *e = config_endpoint(j->c, i);
		const char *key, *why = check_endpoint(e, &key);

		if (why)
			return refuse(j, e->line, "endpoints[%zu].%s: %s", i, key, why);
		for (size_t k = 0; k < i; k++) {
			if (are_same_place(e, config_endpoint(j->c, k)))
				return refuse(j, e->line,
					      "endpoints[%zu]: is endpoints[%zu] once more, so that all would "
					      "be counted twice there: leave one of them out", i, k);
		}
	}
	return 0;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* ADDRESS:PORT of check_listen(): whether one socket can be at `a` and another at `b`. */
static bool do_collide(const char *a, const char *b)
{
	static const char *const all[] = { "0.0.0.0:", "[::]:" };
	const char *a_port = strrchr(a, ':'), *b_port = strrchr(b, ':');

	if (!a_port || !b_port || strtoul(a_port + 1, NULL, 10) != strtoul(b_port + 1, NULL, 10))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (strncmp(a, all[i], strlen(all[i])) == 0 || strncmp(b, all[i], strlen(all[i])) == 0)
			return true;
	}
	return a_port - a == b_port - b && strncmp(a, b, (size_t)(a_port - a)) == 0;
}

static int check_addresses(const struct judge *j)
{
	const char *page = config_page_address(j->c), *metrics = j->c->metrics.listen;
	bool is_own = *j->c->page.listen;

	if (!page || !do_collide(page, metrics))
		return 0;
	return refuse(j, is_own ? j->c->lines.page_listen : j->c->lines.metrics_listen,
		      "%s: %s is taken by %s (%s): another port for one of them, or off",
		      is_own ? "page.listen" : "metrics.listen", is_own ? page : metrics,
		      is_own ? "metrics.listen" : "the page", is_own ? metrics : page);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* What the exporter may keep: bounded by the ranges of the keys. */
static uint64_t kept_bytes(const struct config *c)
{
	return c->endpoints.n * c->queue_max_bytes + c->page.max_bytes;
}

static int check_memory(const struct judge *j)
{
	const struct config *c = j->c;
	uint64_t room = KEPT_MAX - c->page.max_bytes;

	if (kept_bytes(c) <= KEPT_MAX)
		return 0;
	return refuse(j, c->lines.queue_max_bytes,
		      "queue_max_bytes: %s for each of %zu endpoints and page.max_bytes (%s) are more than "
		      "the %s that there are for them: set it to %" PRIu64 "MiB at most",
		      value_format_size(c->queue_max_bytes).text, c->endpoints.n,
		      value_format_size(c->page.max_bytes).text, value_format_size(KEPT_MAX).text,
		      room / c->endpoints.n / MIB);
}

static int check_directories(const struct judge *j)
{
	const char *output = j->c->output.directory, *runtime = j->c->runtime_directory;
	size_t len = strlen(runtime);

	if (strncmp(output, runtime, len) != 0 || (output[len] && output[len] != '/'))
		return 0;
	return refuse(j, j->c->lines.output_directory,
		      "output.directory: %s is for the lock and the control socket (runtime_directory), and "
		      "gone after a restart: another one, such as /var/lib/flamed/profiles", runtime);
}

static int check_processes(const struct judge *j)
{
	const struct value_strings *exclude = &j->c->processes.exclude;

	for (size_t i = 0; i < exclude->n; i++) {
		if (value_map_find(&j->c->processes.thin, exclude->v[i]))
			return refuse(j, j->c->lines.thin,
				      "processes.thin: %s is in processes.exclude, too: one of them",
				      exclude->v[i]);
	}
	return 0;
}

static int check_included_twice(const struct judge *j)
{
	const struct value_strings *include = &j->c->labels.include;

	for (size_t i = 0; i < include->n; i++) {
		for (size_t k = 0; k < i; k++) {
			if (strcmp(include->v[i], include->v[k]) == 0)
				return refuse(j, j->c->lines.include, "labels.include: %s is there twice",
					      include->v[i]);
		}
	}
	return 0;
}

int check_all(const struct config *c, const char *file, char **ret_why)
{
	const struct judge j = { .c = c, .file = file, .ret_why = ret_why };
	const char *why = check_basic_auth(&c->page.basic_auth);
	int err;

	if ((err = check_endpoints(&j)) || (err = check_addresses(&j)) || (err = check_memory(&j)) ||
	    (err = check_directories(&j)) || (err = check_processes(&j)) || (err = check_included_twice(&j)))
		return err;
	return why ? refuse(&j, c->lines.page_auth, "page.basic_auth: %s", why) : 0;
}

/* ---- what is allowed and hardly meant -------------------------------------------------------- */

static bool has_blank_ends(const char *s)
{
	size_t len = strlen(s);

	return len && (s[0] == ' ' || s[len - 1] == ' ');
}

/* Its traffic does not leave the host. */
static bool is_loopback(const char *url)
{
	static const char *const hosts[] = { "127.", "localhost", "[::1]" };
	const char *host = strstr(url, "://") + 3;

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		if (strncasecmp(host, hosts[i], strlen(hosts[i])) == 0)
			return true;
	}
	return false;
}

static void warn_of_endpoint(const struct config_endpoint *e)
{
	bool has_secret = *e->basic_auth.username || *e->bearer_token || *e->bearer_token_file;
	char name[256];

	config_endpoint_name(e, name, sizeof(name));
	if (has_blank_ends(e->basic_auth.password) || has_blank_ends(e->bearer_token))
		log_warning("a password or token begins or ends with a blank, which it is sent with endpoint=%s",
			    LOG_STR(name));
	if (has_secret && is_plain_http(e) && !is_loopback(e->url))
		log_warning("a password or token is sent without encryption: use https endpoint=%s",
			    LOG_STR(name));
	if (e->tls.insecure_skip_verify)
		log_warning("the server's certificate is not verified endpoint=%s", LOG_STR(name));
}

void check_warn(const struct config *c)
{
	for (size_t i = 0; i < c->endpoints.n; i++)
		warn_of_endpoint(config_endpoint(c, i));
	if (has_blank_ends(c->page.basic_auth.password))
		log_warning("page.basic_auth.password begins or ends with a blank");
	if (*c->page.basic_auth.username && !config_page_address(c))
		log_warning("page.basic_auth does nothing while the page is off: set page.listen");
	for (size_t i = 0; i < c->processes.exclude.n; i++) {
		if (strcmp(c->processes.exclude.v[i], "*") == 0)
			log_warning("processes.exclude has *: no process is sampled");
	}
	if (kept_bytes(c) > KEPT_USUAL)
		log_warning("what may wait takes most of the memory that service and DaemonSet allow: raise "
			    "MemoryMax= or limits.memory, 512 MiB by default, to %" PRIu64 " MiB",
			    kept_bytes(c) / MIB + 128);
}
