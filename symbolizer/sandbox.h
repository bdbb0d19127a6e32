/*
 * sandbox - what the process that parses strangers' files may still do: compute, read and map
 * descriptors it was given, answer.
 *
 * Memory: RLIMIT_DATA bounds what we allocate; RLIMIT_AS is only a second fence, since it also
 * counts read-only mappings of files, which can be several GiB. Files: Landlock (Linux 5.13) without
 * a rule, so none can be opened; and seccomp, deny by default, knows no call that names a file, other
 * than newfstatat() with AT_EMPTY_PATH, which is how glibc has fstat(). No capability, no new privileges,
 * no core dump, not dumpable, no executable mapping.
 *
 * May touch: this process's rights, for ever. Never: anything else.
 */
#ifndef SYMBOLIZER_SANDBOX_H
#define SYMBOLIZER_SANDBOX_H

#include "base/def.h"

enum {
	SANDBOX_DATA_MAX = 256 << 20,	/* bytes of heap and other private memory */
	SANDBOX_FSIZE_MAX = 80 << 20,	/* an answer's memfd: more than IPC_PAYLOAD_MAX */
	SANDBOX_NOFILE = 32,
};

enum sandbox_mode {
	SANDBOX_KILL,	/* a forbidden call ends the process with SIGSYS */
	SANDBOX_LOG,	/* it is named on stderr and fails with EPERM: to find out what is missing */
};

/*
 * 0 or -errno; after an error the process must not parse anything. Under AddressSanitizer, whose
 * runtime needs more calls and address space, only capabilities and no_new_privs are taken.
 */
MUST_USE int sandbox_enter(enum sandbox_mode mode);

#endif
