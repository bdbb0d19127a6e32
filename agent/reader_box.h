/*
 * reader_box - the system calls that the reader may make once it serves.
 *
 * Everything else fails with EPERM: no network, no exec, no signal, no ptrace, no other process's
 * memory, no new executable memory, no file opened for writing.
 *
 * May touch: seccomp, no_new_privs. Never: anything else.
 */
#ifndef AGENT_READER_BOX_H
#define AGENT_READER_BOX_H

#include "base/def.h"

MUST_USE int reader_box_enter(void);

#endif
