#include "config/config.h"

#include "config/load.h"
#include "config/schema.h"

#include <errno.h>
#include <string.h>

#define FIELD(field) SCHEMA_FIELD(struct config, field)

/* As in /sys/devices/system/cpu/online. */
static const char *check_cpus(const char *text)
{
	static const char why[] = "is no list of CPUs (such as 0-3,8)";
	char *end;

	while (*text) {
		unsigned long first, last;

		if (*text < '0' || *text > '9')
			return why;
		first = last = strtoul(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtoul(end + 1, &end, 10);
		if (first > last || last >= 65536)
			return why;
		if (*end == ',' && end[1])
			end++;
		else if (*end)
			return why;
		text = end;
	}
	return NULL;
}

static const struct schema_key sampling_keys[] = {
	{ "frequency_hz", SCHEMA_INT, FIELD(sampling.frequency_hz), .min = 1, .max = 1000,
	  .def = "100", .help = "Samples per second and busy CPU." },
	{ "cpus", SCHEMA_STRING, FIELD(sampling.cpus), .def = "", .check = check_cpus,
	  .help = "CPUs to sample, such as 0-3,8; empty: all but nohz_full and isolated ones." },
	{ "stack_max_bytes", SCHEMA_SIZE, FIELD(sampling.stack_max_bytes), .min = 4096, .max = 65536,
	  .def = "64KiB", .help = "Copied from one stack at most; less cuts deep stacks." },
	{},
};

/* In the order of enum log_level. */
static const char *const log_levels[] = { "error", "warning", "info", "debug", NULL };

static const struct schema_key log_keys[] = {
	{ "level", SCHEMA_CHOICE, FIELD(log.level), .choices = log_levels, .def = "info",
	  .help = "What is written to stderr." },
	{},
};

static const struct schema_key config_keys[] = {
	{ "sampling", SCHEMA_SECTION, .keys = sampling_keys, .help = "When and what to sample." },
	{ "window", SCHEMA_DURATION, FIELD(window_ns), .min = 1000000000, .max = 600000000000,
	  .def = "15s", .help = "Identical stacks are merged over this time." },
	{ "log", SCHEMA_SECTION, .keys = log_keys },
	{},
};

struct config *config_free(struct config *c)
{
	if (c)
		schema_fini(config_keys, c);
	free(c);
	return NULL;
}

int config_load(struct config **ret, const char *path, char **ret_why)
{
	CLEANUP(config_freep) struct config *c = calloc(1, sizeof(*c));
	int err;

	*ret_why = NULL;
	if (!c)
		return -ENOMEM;
	err = schema_init(config_keys, c);
	if (err)
		return err;
	err = path ? load_file(path, config_keys, c, ret_why) : 0;
	if (err)
		return err;
	err = schema_env(config_keys, c, ret_why);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}

void config_print(FILE *out, const struct config *c)
{
	fputs("# flamed's settings: all of them, with their values, types and variables.\n", out);
	schema_print(out, config_keys, c);
}
