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

#include "base/log.h"
#include "config/value.h"

#include <stdio.h>

struct config {
	struct {
		uint32_t frequency_hz;
		char *cpus; /* kernel list format, "" = all that are not nohz_full or isolated */
		uint32_t stack_max_bytes;
	} sampling;
	uint64_t window_ns;
	struct {
		enum log_level level;
	} log;
};

/*
 * path NULL: no file. -EINVAL for what is wrong in file or environment, -errno when the file cannot
 * be read, both with a new one-line text in *ret_why; -ENOMEM, with *ret_why NULL.
 */
MUST_USE int config_load(struct config **ret, const char *path, char **ret_why);
struct config *config_free(struct config *c);
DEFINE_CLEANUP(struct config *, config_free);

/* Valid YAML that loads to the same value, each key with its help; secrets are masked. */
void config_print(FILE *out, const struct config *c);

#endif
