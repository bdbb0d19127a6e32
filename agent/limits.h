/*
 * limits - the limits of resources that the agent was started with.
 *
 * May touch: this process's own limits.
 */
#ifndef AGENT_LIMITS_H
#define AGENT_LIMITS_H

#include "base/def.h"

/*
 * As many open files and as much locked memory as we may have. -EMFILE, which is said, when these are open files are too few for
 * this host. Call before root is left.
 */
MUST_USE int limits_raise_files(void);

#endif
