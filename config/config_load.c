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

/* name NULL: no file; fd -1: the file of that name. */
static int load(struct config **ret, int fd, const char *name, char **ret_why)
{
	CLEANUP(config_freep) struct config *c = NULL;
	int err;

	*ret_why = NULL;
	err = config_new(&c);
	if (!err && name)
		err = fd < 0 ? load_file(name, config_keys, c, ret_why) :
			       load_fd(fd, name, config_keys, c, ret_why);
	if (!err)
		err = finish(c, name, ret_why);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}

int config_load(struct config **ret, const char *path, char **ret_why)
{
	return load(ret, -1, path, ret_why);
}

int config_load_fd(struct config **ret, int fd, const char *name, char **ret_why)
{
	return load(ret, fd, name, ret_why);
}
