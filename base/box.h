/*
 * box - what every sandbox of flamed's begins with, and does not come back from.
 *
 * May touch: this process's capabilities and limits.
 */
#ifndef BASE_BOX_H
#define BASE_BOX_H

#include "base/def.h"

#include <sys/resource.h>

/*
 * No capability in any set, no new privileges. Without CAP_SETPCAP the bounding set stays: with
 * no_new_privs nothing can be had from it. -errno.
 */
MUST_USE int box_drop_privileges(void);

struct box_limit {
	__rlimit_resource_t resource;
	rlim_t max;
};
/* Soft and hard; what is lower already stays. -errno. */
MUST_USE int box_limit(const struct box_limit *limits, size_t n);

#endif
