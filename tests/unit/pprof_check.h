/* pprof_check - reads a profile back and checks every rule of its structure. */
#ifndef TESTS_UNIT_PPROF_CHECK_H
#define TESTS_UNIT_PPROF_CHECK_H

#include "base/def.h"
#include "exporter/profile.pb-c.h"

typedef Perftools__Profiles__Profile pprof_profile;

/* NULL when it is no gzip stream of a profile, or over 256 MiB. */
pprof_profile *pprof_load(const void *gz, size_t len);
void pprof_unload(pprof_profile *p);

/* The first rule that is broken, or NULL; of a file, and of what is pushed, whose samples have no labels. */
const char *pprof_check(const pprof_profile *p);
const char *pprof_check_pushed(const pprof_profile *p);

/* For tests of what a profile says. */
const char *pprof_string(const pprof_profile *p, int64_t id);
const char *pprof_function_name(const pprof_profile *p, const Perftools__Profiles__Sample *s,
				size_t frame, size_t line);
const Perftools__Profiles__Label *
pprof_label(const pprof_profile *p, const Perftools__Profiles__Sample *s, const char *key);

#endif
