#include "config/config.h"

#include "config/keys.h"
#include "config/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- the table ------------------------------------------------------------------------------- */

enum { ENDPOINTS_MAX = 8 };

#define FIELD(field) SCHEMA_FIELD(struct config, field)
#define E_FIELD(field) SCHEMA_FIELD(struct config_endpoint, field)
#define LINE(field) .line_off = offsetof(struct config, lines.field)
#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define MSEC 1000000ull
#define SEC (1000 * MSEC)

static const struct schema_key sampling_keys[] = {
	{ "frequency_hz", SCHEMA_INT, FIELD(sampling.frequency_hz), .min = 1, .max = 1000,
	  .def = "100", .needs_restart = true, .help = "Samples per second and busy CPU." },
	{ "cpus", SCHEMA_STRING, FIELD(sampling.cpus), .check = check_cpus, .needs_restart = true,
	  .help = "CPUs to sample, such as 0-3,8; empty: all but nohz_full and isolated ones." },
	{ "stack_max_bytes", SCHEMA_SIZE, FIELD(sampling.stack_max_bytes), .min = 4096, .max = 65536,
	  .def = "64KiB", .needs_restart = true,
	  .help = "Copied from one stack at most; less cuts deep stacks." },
	{},
};

static const struct schema_key processes_keys[] = {
	{ "exclude", SCHEMA_STRINGS, FIELD(processes.exclude), .max = 256, .check = check_pattern,
	  .help = "Services that are not sampled, by name or pattern (`*`, `?`, `[...]`), as\n"
		  "`flamed labels PID` names them." },
	{ "thin", SCHEMA_MAP, FIELD(processes.thin), LINE(thin), .max = 256, .check = check_one_in,
	  .check_name = check_pattern,
	  .help = "Services of which one sample in N is kept (2..1000), such as `batch-*: 10`." },
	{},
};

static const struct schema_key labels_keys[] = {
	{ "hostname", SCHEMA_STRING, FIELD(labels.hostname), .check = check_label_value,
	  .help = "The label hostname; empty: the host's own name." },
	{ "static", SCHEMA_MAP, FIELD(labels.fixed), .max = 16, .check = check_static_value,
	  .check_name = check_static_name, .help = "Labels of every profile: `env: production`." },
	{ "include", SCHEMA_STRINGS, FIELD(labels.include), LINE(include), .max = 16,
	  .check = check_included,
	  .help = "More of what is known of a process as labels: container_id, pod_uid, unit.\n"
		  "Each value is a series of its own." },
	{},
};

/* In the order of enum config_protocol. */
static const char *const protocols[] = { "auto", "push", "ingest", NULL };

static const struct schema_key endpoint_auth_keys[] = {
	{ "username", SCHEMA_STRING, E_FIELD(basic_auth.username), .check = check_username },
	{ "password", SCHEMA_STRING, E_FIELD(basic_auth.password), .is_secret = true,
	  .help = "Used as it is, blanks included." },
	{ "password_file", SCHEMA_STRING, E_FIELD(basic_auth.password_file), .check = check_path,
	  .help = "Read at start and when it changes; one newline at its end is dropped, no more." },
	{},
};

static const struct schema_key tls_keys[] = {
	{ "ca_file", SCHEMA_STRING, E_FIELD(tls.ca_file), .check = check_path,
	  .help = "Certificates (PEM) that the server's is checked with; empty: the system's." },
	{ "cert_file", SCHEMA_STRING, E_FIELD(tls.cert_file), .check = check_path,
	  .help = "The client's certificate (PEM) and its key." },
	{ "key_file", SCHEMA_STRING, E_FIELD(tls.key_file), .check = check_path },
	{ "insecure_skip_verify", SCHEMA_BOOL, E_FIELD(tls.insecure_skip_verify), .def = "false",
	  .help = "Takes any certificate: for a test, never in production." },
	{},
};

static const struct schema_key endpoint_keys[] = {
	{ "name", SCHEMA_STRING, E_FIELD(name), .check = check_endpoint_name,
	  .help = "In metrics and log lines; empty: the URL." },
	{ "url", SCHEMA_STRING, E_FIELD(url), .check = check_url, .is_url = true,
	  .help = "Base URL, http or https; the protocol's path is appended." },
	{ "protocol", SCHEMA_CHOICE, E_FIELD(protocol), .choices = protocols, .def = "auto",
	  .help = "auto: Push, and /ingest where there is no Push." },
	{ "basic_auth", SCHEMA_SECTION, .keys = endpoint_auth_keys, .is_env_flat = true },
	{ "bearer_token", SCHEMA_STRING, E_FIELD(bearer_token), .is_secret = true },
	{ "bearer_token_file", SCHEMA_STRING, E_FIELD(bearer_token_file), .check = check_path,
	  .help = "As password_file." },
	{ "tenant_id", SCHEMA_STRING, E_FIELD(tenant_id),
	  .help = "X-Scope-OrgID, for servers with tenants." },
	{ "headers", SCHEMA_MAP, E_FIELD(headers), .max = 16, .check_name = check_header_name,
	  .is_secret = true, .help = "More request headers." },
	{ "tls", SCHEMA_SECTION, .keys = tls_keys },
	{ "timeout", SCHEMA_DURATION, E_FIELD(timeout_ns), .min = 100 * MSEC, .max = 300 * SEC,
	  .def = "10s", .help = "Of one request." },
	{},
};

/* In the order of enum config_demangle. */
static const char *const demangle_styles[] = { "short", "full", "none", NULL };

static const struct schema_key symbols_keys[] = {
	{ "demangle", SCHEMA_CHOICE, FIELD(symbols.demangle), .choices = demangle_styles, .def = "short",
	  .needs_restart = true,
	  .help = "Names of C++, Rust and D. short: without parameters, with template arguments\n"
		  "(overloads are one function); full: with both; none: as in the symbol table." },
	{},
};

static const struct schema_key output_keys[] = {
	{ "directory", SCHEMA_STRING, FIELD(output.directory), LINE(output_directory),
	  .check = check_path, .needs_restart = true, .help = "Where profiles are kept as files, too; empty: nowhere." },
	{ "max_bytes", SCHEMA_SIZE, FIELD(output.max_bytes), .min = 64 * KIB, .max = 1024 * GIB,
	  .def = "256MiB", .needs_restart = true, .help = "The oldest files are deleted beyond it." },
	{},
};

static const struct schema_key page_auth_keys[] = {
	{ "username", SCHEMA_STRING, FIELD(page.basic_auth.username), .check = check_username },
	{ "password", SCHEMA_STRING, FIELD(page.basic_auth.password), .is_secret = true },
	{ "password_file", SCHEMA_STRING, FIELD(page.basic_auth.password_file), .check = check_path,
	  .help = "As that of an endpoint." },
	{},
};

static const struct schema_key page_keys[] = {
	{ "listen", SCHEMA_STRING, FIELD(page.listen), LINE(page_listen), .check = check_page_listen,
	  .help = "ADDRESS:PORT or off; empty: 127.0.0.1:4041 when there is no endpoint, else off." },
	{ "max_bytes", SCHEMA_SIZE, FIELD(page.max_bytes), .min = 64 * KIB, .max = 64 * MIB,
	  .def = "8MiB",
	  .help = "Memory for recent windows, compressed; the oldest are dropped beyond it." },
	{ "basic_auth", SCHEMA_SECTION, .keys = page_auth_keys, LINE(page_auth),
	  .help = "Another way in than the token of the start-up line." },
	{},
};

static const struct schema_key metrics_keys[] = {
	{ "listen", SCHEMA_STRING, FIELD(metrics.listen), LINE(metrics_listen),
	  .check = check_listen, .def = "127.0.0.1:4042",
	  .help = "ADDRESS:PORT or off: /metrics, /healthz and /readyz, with no profile in them." },
	{},
};

/* In the order of enum log_level. */
static const char *const log_levels[] = { "error", "warning", "info", "debug", NULL };

static const struct schema_key log_keys[] = {
	{ "level", SCHEMA_CHOICE, FIELD(log.level), .choices = log_levels, .def = "info",
	  .help = "What is written to stderr." },
	{},
};

/* What is after a password is never in the file that everyone can read. */
static const char endpoints_example[] =
	"Pyroscope on your own host, without authentication:\n"
	"  - url: http://pyroscope.example:4040\n"
	"Grafana Cloud Profiles: the stack's URL and number, and a token with the scope profiles:write:\n"
	"  - url: https://profiles-prod-001.grafana.net\n"
	"    basic_auth:\n"
	"      username: \"123456\"\n"
	"      password_file: /etc/flamed/grafana-token\n"
	"KloudMate: the user name is always KloudMate; an API key of the type Ingest Key - Backend:\n"
	"  - url: https://otel.kloudmate.com/v1/profiles/pyroscope\n"
	"    basic_auth:\n"
	"      username: KloudMate\n"
	"      password_file: /etc/flamed/kloudmate-key\n";

const struct schema_key config_keys[] = {
	{ "sampling", SCHEMA_SECTION, .keys = sampling_keys, .help = "When and what to sample." },
	{ "window", SCHEMA_DURATION, FIELD(window_ns), .min = SEC, .max = 600 * SEC, .def = "15s",
	  .needs_restart = true, .help = "Identical stacks are merged over this time." },
	{ "processes", SCHEMA_SECTION, .keys = processes_keys, .help = "Which processes to sample." },
	{ "labels", SCHEMA_SECTION, .keys = labels_keys, .help = "What profiles are filed under." },
	{ "endpoints", SCHEMA_SECTIONS, FIELD(endpoints), .keys = endpoint_keys,
	  .item_size = sizeof(struct config_endpoint), .item_env = "endpoint",
	  .item_line_off = offsetof(struct config_endpoint, line), .max = ENDPOINTS_MAX,
	  .help = "Where profiles are sent; without one they are kept for the page.",
	  .example = endpoints_example },
	{ "queue_max_bytes", SCHEMA_SIZE, FIELD(queue_max_bytes), LINE(queue_max_bytes),
	  .min = 64 * KIB, .max = 256 * MIB, .def = "16MiB",
	  .help = "Memory of each endpoint for what could not be sent yet; beyond it the oldest is\n"
		  "dropped. With page.max_bytes at most 512MiB for all endpoints." },
	{ "symbols", SCHEMA_SECTION, .keys = symbols_keys, .help = "How functions are named." },
	{ "output", SCHEMA_SECTION, .keys = output_keys, .help = "Profiles as files." },
	{ "page", SCHEMA_SECTION, .keys = page_keys, .help = "The page with the flame graph." },
	{ "metrics", SCHEMA_SECTION, .keys = metrics_keys, .help = "Metrics for Prometheus." },
	{ "runtime_directory", SCHEMA_STRING, FIELD(runtime_directory), .check = check_directory,
	  .def = "/run/flamed", .needs_restart = true,
	  .help = "For the lock, the control socket and the page's token." },
	{ "log", SCHEMA_SECTION, .keys = log_keys },
	{},
};

/* ---- life ------------------------------------------------------------------------------------ */

int config_new(struct config **ret)
{
	CLEANUP(config_freep) struct config *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	err = schema_init(config_keys, c);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}

struct config *config_free(struct config *c)
{
	if (c)
		schema_fini(config_keys, c);
	free(c);
	return NULL;
}

void config_encode(struct bufw *w, const struct config *c)
{
	wire_encode(w, config_keys, c, WIRE_ALL);
}

int config_decode(struct bufr *in, struct config **ret)
{
	CLEANUP(config_freep) struct config *c = NULL;
	CLEANUP_FREE char *why = NULL;
	int err = config_new(&c);

	if (!err)
		err = wire_decode(in, config_keys, c);
	if (!err)
		err = bufr_end(in);
	if (err)
		return err;
	err = check_all(c, NULL, &why);
	if (err)
		return err == -EINVAL ? -EBADMSG : err;
	*ret = TAKE(c);
	return 0;
}

bool config_parse_demangle(const char *text, enum config_demangle *ret)
{
	for (uint32_t i = 0; demangle_styles[i]; i++) {
		if (strcmp(text, demangle_styles[i]) == 0) {
			*ret = (enum config_demangle)i;
			return true;
		}
	}
	return false;
}

/* ---- what can be said of one ----------------------------------------------------------------- */

const char *config_needs_restart(const struct config *a, const struct config *b)
{
	static char path[128]; /* of the last answer */

	return wire_differs(config_keys, a, b, path, sizeof(path)) ? path : NULL;
}

/*
 * The hash is shown to everyone, and a password may be short: of a hash of it whoever knows the
 * other settings could try all words of a list. So all that is secret goes in as 16 bits, too few
 * to tell a right guess from thousands of wrong ones, and enough to show a change.
 */
void config_hash(const struct config *c, char ret[33])
{
	CLEANUP(bufw_fini) struct bufw secret = {}, all = {};
	XXH128_hash_t h;

	wire_encode(&secret, config_keys, c, WIRE_SECRET);
	wire_encode(&all, config_keys, c, WIRE_PUBLIC);
	bufw_u16(&all, (uint16_t)XXH3_64bits(secret.data, secret.len));
	if (bufw_end(&secret) || bufw_end(&all)) { /* no memory: no hash */
		memset(ret, '0', 32);
		ret[32] = 0;
		return;
	}
	h = XXH3_128bits(all.data, all.len);
	snprintf(ret, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

void config_print(FILE *out, const struct config *c)
{
	fputs("# flamed's settings: all of them, with their values, types and variables.\n"
	      "# What needs a restart says so; the rest is applied when flamed gets SIGHUP.\n",
	      out);
	schema_print(out, config_keys, c);
}
