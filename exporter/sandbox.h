/*
 * sandbox - what is left of the exporter's rights: its descriptors and memory.
 *
 * No capabilities, no new privileges, no core dumps, bounded memory and descriptors, and a list of
 * system calls outside of which the kernel kills the process (and names the call in its log).
 * There is no open, no socket, no exec, no fork, no kill, no ptrace and no executable memory.
 *
 * A build with a sanitizer has neither filter nor limits: its runtime reserves terabytes and, at
 * the end, forks and looks into its own memory.
 */
#ifndef EXPORTER_SANDBOX_H
#define EXPORTER_SANDBOX_H

#include "base/def.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANDBOX_IS_WHOLE false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANDBOX_IS_WHOLE false
#endif
#endif
#ifndef SANDBOX_IS_WHOLE
#define SANDBOX_IS_WHOLE true
#endif

/* For good. -errno when any part fails: the caller must not go on. */
MUST_USE int sandbox_enter(void);

#endif
