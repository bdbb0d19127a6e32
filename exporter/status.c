#include "exporter/status.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "base/buf.h"
#include "base/log.h"
#include "exporter/jsontext.h"

enum { REPLY_MAX = 4 * 1024 * 1024, TIMEOUT_S = 10 };

/* ---- asking --------------------------------------------------------------------------------- */

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct bufw *w = arg;

	if (w->len + size * n > REPLY_MAX)
		return 0;
	bufw_bytes(w, data, size * n);
	return bufw_end(w) ? 0 : size * n;
}

/* libcurl only says that it could not connect: this is why. */
static int why_not(const char *path)
{
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (fd < 0)
		return errno;
	if (strlen(path) >= sizeof(a.sun_path))
		return ENAMETOOLONG;
	memcpy(a.sun_path, path, strlen(path) + 1);
	return connect(fd, (const struct sockaddr *)&a, sizeof(a)) ? errno : 0;
}

static void complain(const char *path, CURLcode code, long status)
{
	int err = code == CURLE_COULDNT_CONNECT ? why_not(path) : 0;

	if (err == ENOENT || err == ECONNREFUSED)
		log_error(
			"no daemon runs here, or its runtime_directory is another one: --socket PATH "
			"socket='%s'",
			path);
	else if (err == EACCES)
		log_error("only root and members of the group flamed may ask socket='%s'", path);
	else if (err)
		log_error("the daemon cannot be asked socket='%s' error='%s'", path, strerror(err));
	else if (code)
		log_error("the daemon does not answer socket='%s' error='%s'", path,
			  curl_easy_strerror(code));
	else
		log_error("the daemon's answer is none of ours socket='%s' status=%ld", path,
			  status);
}

static CURLcode get(CURL *curl, const char *path, struct bufw *body, long *ret_status)
{
	CURLcode code;

	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, path);
	curl_easy_setopt(curl, CURLOPT_URL, "http://localhost/api/v1/status");
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	code = curl_easy_perform(curl);
	if (!code)
		code = curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
	return code;
}

int status_run(const char *socket, bool is_json)
{
	CLEANUP(bufw_fini) struct bufw body = {};
	CLEANUP_JSON json_t *status = NULL;
	CURLcode code = CURLE_FAILED_INIT;
	CURL *curl = curl_easy_init();
	long http = 0;

	if (curl)
		code = get(curl, socket, &body, &http);
	curl_easy_cleanup(curl);
	if (!code && http == 200)
		status = json_loadb((const char *)body.data, body.len, 0, NULL);
	if (!json_is_object(status)) {
		complain(socket, code, http);
		return EXIT_FAILURE;
	}
	if (!is_json) {
		status_print(stdout, status);
	} else if (json_dumpf(status, stdout, JSON_INDENT(2)) || putchar('\n') == EOF) {
		log_error("cannot write error='%s'", strerror(errno));
		return EXIT_FAILURE;
	}
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- printing ------------------------------------------------------------------------------- */

/* Texts of the API without the control characters that a terminal would obey. */
static void put_key(FILE *out, const char *s)
{
	for (const char *c = s; *c; c++) {
		bool is_c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0;

		if ((unsigned char)*c < ' ' || *c == 0x7f || is_c1) {
			putc('?', out);
			c += is_c1;
		} else {
			putc(*c, out);
		}
	}
}

static void put_text(FILE *out, const json_t *s)
{
	put_key(out, json_is_string(s) ? json_string_value(s) : "");
}

/* In a column of so many bytes. */
static void put_padded(FILE *out, const char *s, int width)
{
	put_key(out, s);
	fprintf(out, "%*s", MAX(width - (int)strnlen(s, (size_t)width), 0), "");
}

static const char *text_of(const json_t *o, const char *key)
{
	const json_t *s = json_object_get(o, key);

	return json_is_string(s) ? json_string_value(s) : "";
}

static double number_of(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static bool is_true(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

/* "12 MiB" */
static void put_bytes(FILE *out, double n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	size_t i = 0;

	while (n >= 1024 && i + 1 < ARRAY_SIZE(units)) {
		n /= 1024;
		i++;
	}
	fprintf(out, i && n < 100 ? "%.1f %s" : "%.0f %s", n, units[i]);
}

static void put_time(FILE *out, double when)
{
	time_t t = (time_t)when;
	char text[32] = "never";
	struct tm tm;

	if (when > 0 && when < 9e9 && localtime_r(&t, &tm))
		strftime(text, sizeof(text), "%F %T", &tm);
	fputs(text, out);
}

/* `name value, name value`, without what is 0. */
static void put_counts(FILE *out, const json_t *counts)
{
	bool is_first = true;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)counts, key, value)
	{
		if (json_number_value(value) <= 0)
			continue;
		if (!is_first)
			fputs(", ", out);
		put_key(out, key);
		fprintf(out, " %.0f", json_number_value(value));
		is_first = false;
	}
	fputs(is_first ? "none\n" : "\n", out);
}

static void head(FILE *out, const char *name)
{
	fprintf(out, "%-12s", name);
}

static void print_identity(FILE *out, const json_t *s)
{
	const json_t *config = json_object_get(s, "config");

	head(out, "flamed");
	put_text(out, json_object_get(s, "build"));
	fputs(" on ", out);
	put_text(out, json_object_get(s, "hostname"));
	fputs(", since ", out);
	put_time(out, number_of(s, "start_time"));
	fputs("\n", out);
	head(out, "settings");
	if (*text_of(config, "path"))
		put_text(out, json_object_get(config, "path"));
	else
		fputs("no file", out);
	fprintf(out, "%s\n",
		is_true(config, "last_reload_ok") ?
			"" :
			"; the last reload failed (see the log), the settings before it go on");
}

static void print_sampling(FILE *out, const json_t *s)
{
	const json_t *samples = json_object_get(s, "samples"),
		     *recent = json_object_get(s, "recent");

	head(out, "sampling");
	fprintf(out, "%.0f Hz on %.0f CPUs, windows of %g s\n", number_of(s, "hz"),
		number_of(s, "cpus"), number_of(s, "window_seconds"));
	head(out, "samples");
	fprintf(out, "%.0f seen, %.0f counted, %.2f %% of stacks complete\n",
		number_of(samples, "seen"), number_of(samples, "counted"),
		number_of(samples, "complete_percent"));
	head(out, "stacks");
	put_counts(out, json_object_get(samples, "stacks"));
	head(out, "dropped");
	put_counts(out, json_object_get(samples, "dropped"));
	head(out, "windows");
	put_counts(out, json_object_get(s, "windows"));
	head(out, "kept");
	fprintf(out, "%.0f windows, ", number_of(recent, "windows"));
	put_bytes(out, number_of(recent, "bytes"));
	fprintf(out, "; %.0f made room for newer ones", number_of(recent, "evicted"));
	if (number_of(recent, "refused") > 0)
		fprintf(out, "; %.0f were over page.max_bytes alone", number_of(recent, "refused"));
	fputs("\n", out);
}

static void print_sink(FILE *out, const json_t *sink)
{
	fputs("\n", out);
	head(out, "sink");
	put_text(out, json_object_get(sink, "name"));
	fputs(" (", out);
	put_text(out, json_object_get(sink, "kind"));
	fputs("): ", out);
	put_text(out, json_object_get(sink, "state"));
	fputs("\n", out);
	head(out, "  last");
	put_time(out, number_of(sink, "last_ok_time"));
	fputs("; ", out);
	put_bytes(out, number_of(sink, "bytes_sent"));
	fprintf(out, " sent, %.0f retries\n", number_of(sink, "retries"));
	if (*text_of(sink, "last_error")) {
		head(out, "  error");
		put_time(out, number_of(sink, "last_error_time"));
		fputs(": ", out);
		put_text(out, json_object_get(sink, "last_error"));
		fputs("\n", out);
	}
	head(out, "  queued");
	fprintf(out, "%.0f profiles, ", number_of(sink, "queued"));
	put_bytes(out, number_of(sink, "queued_bytes"));
	fputs(" of ", out);
	put_bytes(out, number_of(sink, "queue_max_bytes"));
	fprintf(out, "; %.0f samples pending\n", number_of(sink, "pending"));
	head(out, "  samples");
	put_counts(out, json_object_get(sink, "samples"));
}

static void print_listeners(FILE *out, const json_t *s)
{
	const json_t *list = json_object_get(s, "listeners"), *l;
	size_t i;

	fputs("\n", out);
	json_array_foreach(list, i, l)
	{
		head(out, i ? "" : "listening");
		put_text(out, json_object_get(l, "name"));
		fputs(" at ", out);
		put_text(out, json_object_get(l, "address"));
		if (!is_true(l, "up")) {
			fputs(": not up, ", out);
			put_text(out, json_object_get(l, "error"));
		}
		fputs("\n", out);
	}
}

static void print_cost(FILE *out, const json_t *s)
{
	const json_t *memory = json_object_get(s, "memory"), *value;
	double total = 0, up = number_of(s, "uptime_seconds"), cpu = 0;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)memory, key, value)
		total += json_number_value(value);
	json_object_foreach(json_object_get(s, "cpu_seconds"), key, value)
		cpu += json_number_value(value);
	fputs("\n", out);
	head(out, "memory");
	put_bytes(out, total);
	json_object_foreach((json_t *)(uintptr_t)memory, key, value)
	{
		fputs(", ", out);
		put_key(out, key);
		fputs(" ", out);
		put_bytes(out, json_number_value(value));
	}
	fputs("\n", out);
	head(out, "cpu");
	fprintf(out, "%.1f s, %.2f %% of one CPU\n", cpu, up > 0 ? 100 * cpu / up : 0);
	head(out, "restarts");
	put_counts(out, json_object_get(s, "restarts"));
}

static void put_caps(FILE *out, const json_t *caps)
{
	const json_t *cap;
	size_t i;

	if (!json_array_size(caps))
		fputs("-", out);
	json_array_foreach(caps, i, cap)
	{
		if (i)
			fputs(",", out);
		put_text(out, cap);
	}
}

static void print_rights(FILE *out, const json_t *s)
{
	const json_t *list = json_object_get(s, "processes"), *p;
	size_t i;

	fprintf(out, "\n%-12s%8s%8s  %-8s%-14s%s\n", "process", "pid", "uid", "seccomp",
		"no_new_privs", "capabilities (effective; permitted)");
	json_array_foreach(list, i, p)
	{
		put_padded(out, text_of(p, "name"), 12);
		fprintf(out, "%8.0f%8.0f  %-8s%-14s", number_of(p, "pid"), number_of(p, "uid"),
			is_true(p, "seccomp") ? "yes" : "no",
			is_true(p, "no_new_privs") ? "yes" : "no");
		put_caps(out, json_object_get(p, "caps_effective"));
		fputs("; ", out);
		put_caps(out, json_object_get(p, "caps_permitted"));
		fputs("\n", out);
	}
	if (*text_of(s, "missing_rights")) {
		fputs("Missing rights: ", out);
		put_text(out, json_object_get(s, "missing_rights"));
		fputs("\n", out);
	}
	if (number_of(s, "landlock") > 0)
		fprintf(out, "The exporter is held by Landlock, version %.0f.\n",
			number_of(s, "landlock"));
}

void status_print(FILE *out, const json_t *status)
{
	const json_t *sinks = json_object_get(status, "sinks"), *sink;
	size_t i;

	print_identity(out, status);
	print_sampling(out, status);
	json_array_foreach(sinks, i, sink) print_sink(out, sink);
	print_listeners(out, status);
	print_cost(out, status);
	print_rights(out, status);
}
