/* config_fixture - settings from YAML in a string, for the tests of config. */
#ifndef TESTS_UNIT_CONFIG_FIXTURE_H
#define TESTS_UNIT_CONFIG_FIXTURE_H

#include "config/config.h"

/* Every key, and none with its default; each secret has "planted" in it. */
extern const char config_fixture_full[];

int config_fixture_file(const char *yaml); /* an open file of these bytes, its offset at the end */
MUST_USE int config_fixture_load(const char *yaml, struct config **ret, char **ret_why);
struct config *config_fixture(const char *yaml); /* what must load */
int config_fixture_clear_env(void **state);	 /* a setup and teardown: no variable of ours */

#endif
