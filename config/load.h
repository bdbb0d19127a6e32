/*
 * load - a YAML file into a struct, by its schema.
 *
 * The subset: one document of mappings, lists and scalars in UTF-8. Anchors, aliases and tags are
 * refused, so that no few bytes stand for many; size and depth are bounded. Keys that begin with
 * `x-` are skipped with all that is under them.
 *
 * May touch: the file (opened for reading). Never: the environment.
 */
#ifndef CONFIG_LOAD_H
#define CONFIG_LOAD_H

#include "config/schema.h"

enum { LOAD_FILE_MAX = 1024 * 1024, LOAD_DEPTH_MAX = 32 };

/* `base` has the defaults. Errors as those of config_load(): `file:line: path.of.key: why`. */
MUST_USE int load_file(const char *path, const struct schema_key *keys, void *base, char **ret_why);
/* The same for a file that is open: from its start, wherever its offset is. */
MUST_USE int load_fd(int fd, const char *name, const struct schema_key *keys, void *base,
		     char **ret_why);
/* The same for bytes in memory; `name` stands for the file in errors. */
MUST_USE int load_bytes(const char *name, const void *data, size_t len,
			const struct schema_key *keys, void *base, char **ret_why);

#endif
