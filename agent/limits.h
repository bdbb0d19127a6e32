/*
 * limits - what the agent was started within: limits of resources, namespaces.
 *
 * May touch: this process's own limits, /proc/self.
 */
#ifndef AGENT_LIMITS_H
#define AGENT_LIMITS_H

#include "base/def.h"

/*
 * As many open files and as much locked memory as we may have; -EMFILE, which is said, when that is too few
 * files for this host. Warns of a pid namespace that is not the host's. Call before root is left.
 */
MUST_USE int limits_settle(void);

#endif
