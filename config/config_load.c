/* The one part of config that needs the YAML library: what is only decoded does without it. */
#include "config/keys.h"
#include "config/load.h"

#include <string.h>

/* What is left when the file is read: the environment, and what must hold between keys. */
static int finish(struct config *c, const char *file, char **ret_why)
{
	int err = schema_env(config_keys, c, ret_why);

	if (!err)
		err = check_all(c, file, ret_why);
	if (!err)
		check_warn(c);
	return err;
}

int config_load(struct config **ret, const char *path, char **ret_why)
{
	CLEANUP(config_freep) struct config *c = NULL;
	int err;

	*ret_why = NULL;
	err = config_new(&c);
	if (!err && path)
		err = load_file(path, config_keys, c, ret_why);
	if (!err)
		err = finish(c, path, ret_why);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}

int config_load_fd(struct config **ret, int fd, const char *name, char **ret_why)
{
	CLEANUP(config_freep) struct config *c = NULL;
	int err;

	*ret_why = NULL;
	err = config_new(&c);
	if (!err)
		err = load_fd(fd, name, config_keys, c, ret_why);
	if (!err)
		err = finish(c, name, ret_why);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}
