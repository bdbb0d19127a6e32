/*
 * rights - what each process may do, in one table, and the steps down to it.
 *
 * From root: the agent becomes the user `flamed` (else nobody) and keeps six capabilities
 * permitted, three of them effective; the other three are only passed on to the reader. From a
 * plain user that was given the capabilities it is the same without the change of user.
 *
 * May touch: uid, gid, groups, capabilities, prctl, the user database, the sysctl named below,
 * /proc/self/ns/user. Never: other files.
 */
#ifndef AGENT_RIGHTS_H
#define AGENT_RIGHTS_H

#include "base/def.h"

/* Which process holds which capability while running; the one table. */
#define RIGHTS_AGENT(X) X(BPF) X(PERFMON) X(SYSLOG)
#define RIGHTS_READER(X) X(SYS_PTRACE) X(DAC_READ_SEARCH) X(CHECKPOINT_RESTORE)

uint64_t rights_agent_caps(void);	/* bit per capability */
uint64_t rights_reader_caps(void);	/* what the reader runs with */
uint64_t rights_reader_start_caps(void);	/* and what it starts with: + PERFMON */
/*
 * CAP_SYS_ADMIN, where kernel.perf_event_paranoid is above 2, as on Debian and Ubuntu: their kernels ask for it whoever
 * has CAP_PERFMON. Held from root until rights_started(), by agent and reader, to open perf events; else 0.
 */
uint64_t rights_start_caps(void);
long rights_paranoid(void);	/* that sysctl; 2, the kernel's own value, where it cannot be read */
uint64_t rights_held(void);	/* effective now */
static inline bool rights_hold(uint64_t caps)
{
	return !(caps & ~rights_held());
}

/* Who rights_leave_root() will become; ourselves where we are not root. */
void rights_user(uid_t *ret_uid, gid_t *ret_gid);
/*
 * First statement of the agent after it has opened what the invoking user named. *ret_why says in
 * one line which capability is missing and what to do (-EPERM); or that they are those of a user
 * namespace, which count for nothing here. A missing right of the reader's is no error: *ret_missing
 * gets its bit, and the caller warns.
 */
MUST_USE int rights_leave_root(uint64_t *ret_missing, const char **ret_why);
/* All perf events are open: gives up what rights_start_caps() kept. A CPU that comes later may be refused. */
MUST_USE int rights_started(void);
/* "cap_bpf,cap_perfmon" for people; static buffer. */
const char *rights_text(uint64_t caps);
/* What the reader cannot do without these of its own: "cap_x: what is lost; cap_y: ..."; static buffer. */
const char *rights_loss(uint64_t caps);
/* Drops one capability of the calling process from every set. */
MUST_USE int rights_drop(int capability);

#endif
