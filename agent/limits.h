/*
 * limits - what the agent was started within: limits of resources, namespaces.
 *
 * May touch: this process's own limits, /proc/self.
 */
#ifndef AGENT_LIMITS_H
#define AGENT_LIMITS_H

#include "base/def.h"

/*
 * As many open files, and as much locked memory, as we may have; before root is left. -EMFILE, with the
 * reason (static), when the files are too few for this host.
 */
MUST_USE int limits_settle(const char **ret_why);

#endif
