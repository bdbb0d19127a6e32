/*
 * config - the settings of this host, as one immutable value.
 *
 * Later ones win: defaults, the file, the environment (FLAMED_...). A key that is unknown, twice
 * there or out of range is an error that names file, line and key; keys that begin with `x-` are
 * ignored. The table in config.c is the reference: each key with type, range, default and help.
 *
 * May touch: the file it is given, the environment. Never: check what only the host can tell.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/buf.h"
#include "base/log.h"
#include "config/value.h"

#include <stdio.h>

/* How names of functions are written, see config.c. */
enum config_demangle { CONFIG_SHORT, CONFIG_FULL, CONFIG_RAW };

enum config_protocol { CONFIG_AUTO, CONFIG_PUSH, CONFIG_INGEST };

struct config_basic_auth {
	char *username, *password, *password_file; /* of the last two one at most */
};

struct config_endpoint {
	char *name;	/* in metrics and log lines; "" = the URL without what is secret */
	char *url;	/* http or https; the protocol's path is appended; no userinfo, no fragment */
	enum config_protocol protocol;
	struct config_basic_auth basic_auth;
	char *bearer_token, *bearer_token_file;
	char *tenant_id; /* X-Scope-OrgID; "" none */
	struct value_map headers;
	struct {
		char *ca_file, *cert_file, *key_file;
		bool insecure_skip_verify;
	} tls;
	uint64_t timeout_ns;
	uint32_t line; /* of the file, for messages; 0: of the environment */
};

struct config {
	struct {
		uint32_t frequency_hz;
		char *cpus; /* kernel list format, "" = all that are not nohz_full or isolated */
		uint32_t stack_max_bytes;
	} sampling;
	uint64_t window_ns;
	struct {
		struct value_strings exclude; /* service names (fnmatch patterns) that are not sampled */
		struct value_map thin;	      /* service name (pattern) -> N: one sample in N is kept */
	} processes;
	struct {
		char *hostname; /* "" = the host's own */
		struct value_map fixed;	/* labels.static */
		struct value_strings include;
	} labels;
	struct value_items endpoints; /* struct config_endpoint */
	uint64_t queue_max_bytes;     /* of each endpoint: what waits, compressed */
	struct {
		enum config_demangle demangle;
	} symbols;
	struct {
		char *directory; /* "" none */
		uint64_t max_bytes;
	} output;
	struct {
		char *listen; /* HOST:PORT; "" = 127.0.0.1:4041 when there is no endpoint, else off; "off" */
		uint64_t max_bytes;
		struct config_basic_auth basic_auth;
	} page;
	struct {
		char *listen; /* HOST:PORT or "off" */
	} metrics;
	char *runtime_directory; /* lock, control socket, the page's token */
	struct {
		enum log_level level;
	} log;
	struct { /* of the file, for messages; 0: of the environment, or not set */
		uint32_t thin, include, queue_max_bytes, output_directory, page_listen, page_auth,
			metrics_listen;
	} lines;
};

/*
 * path NULL: no file. -EINVAL for what is wrong in file or environment, -errno when the file cannot
 * be read, both with a new one-line text in *ret_why; -ENOMEM, with *ret_why NULL.
 */
MUST_USE int config_load(struct config **ret, const char *path, char **ret_why);
struct config *config_free(struct config *c);
DEFINE_CLEANUP(struct config *, config_free);

/* The same for a file that is open already, and stays so; `name` stands for it in errors. */
MUST_USE int config_load_fd(struct config **ret, int fd, const char *name, char **ret_why);

/* As bytes, secrets included, for flamed's own processes. -EBADMSG for what config_encode() does not make. */
void config_encode(struct bufw *w, const struct config *c);
MUST_USE int config_decode(struct bufr *in, struct config **ret);
/* The first key (`sampling.frequency_hz`) of those that need a restart in which the two differ; NULL: none. */
const char *config_needs_restart(const struct config *a, const struct config *b);
/* 32 hex digits and a NUL: of all settings, secrets included (hashed with nothing that gives them away). */
void config_hash(const struct config *c, char ret[33]);

static inline const struct config_endpoint *config_endpoint(const struct config *c, size_t i)
{
	return (const struct config_endpoint *)c->endpoints.v + i;
}
/* False: none of the values that symbols.demangle can have. */
MUST_USE bool config_parse_demangle(const char *text, enum config_demangle *ret);
/* What an endpoint is called: its name, else its URL without userinfo and query. */
void config_endpoint_name(const struct config_endpoint *e, char *ret, size_t size);
/*
 * What the sinks are called, each differently: the exporter's sinks and the agent's accounts. First
 * the endpoints in order, `#2` and so on behind a name that was there before, then "directory" when
 * there is an output directory. Returns how many.
 */
enum { CONFIG_SINKS_MAX = 9, CONFIG_SINK_NAME_MAX = 256 };
size_t config_sink_names(const struct config *c, char ret[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX]);
/* Where the page listens: HOST:PORT, or NULL when it is off. */
const char *config_page_address(const struct config *c);

/* Valid YAML that loads to the same value, each key with its help; secrets are masked. */
void config_print(FILE *out, const struct config *c);

#endif
