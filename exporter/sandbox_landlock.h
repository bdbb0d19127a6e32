/*
 * sandbox_landlock - which files can be opened at all (Linux 5.13, by its system calls: there is no
 * library). Part of the sandbox.
 *
 * May touch: landlock(7). Never: what it grants.
 */
#ifndef EXPORTER_SANDBOX_LANDLOCK_H
#define EXPORTER_SANDBOX_LANDLOCK_H

#include "base/def.h"

/*
 * Needs no_new_privs. Reading of SANDBOX_READS; reading and writing beneath output_dir_fd (-1 none).
 * *ret_version 0: this kernel has no Landlock, or it is turned off.
 */
MUST_USE int sandbox_landlock(int output_dir_fd, int *ret_version);

#endif
