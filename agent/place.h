/*
 * place - what the daemon has in its runtime directory: a lock, the control socket, the page's token.
 *
 *   flamed.lock   locked (flock) while a daemon runs; its pid as text; 0600
 *   flamed.sock   the control socket, 0660, of the group flamed
 *   page.token    0640, of the group flamed
 *
 * Made while we still are who started us, in a directory that the user we become may not be able to
 * write to; then only descriptors are used. No link is followed.
 *
 * May touch: the runtime directory.
 */
#ifndef AGENT_PLACE_H
#define AGENT_PLACE_H

#include "base/def.h"

enum { PLACE_TOKEN_LEN = 32 };

struct place {
	int dir_fd, lock_fd, control_fd;
	char token[PLACE_TOKEN_LEN + 1];	/* hex, from getrandom(2) */
};
#define PLACE_INIT { .dir_fd = -1, .lock_fd = -1, .control_fd = -1 }

/*
 * Makes the directory (0755) where it is missing. It must be root's, ours, or that of uid and gid, whom we
 * become, and nobody else may write to it: -EPERM. *ret_why: one line, what to do (heap).
 */
MUST_USE int place_open(struct place *p, const char *path, uid_t uid, gid_t gid, char **ret_why);
/* 0: we hold the lock. -EWOULDBLOCK: *ret_pid has it (0 unknown). */
MUST_USE int place_lock(struct place *p, pid_t *ret_pid);
/* Whether the lock is the one that others find there: who held it may have removed the directory. */
bool place_is_current(const struct place *p, const char *path);
/* With the lock: a new listening socket and a new token in place of the last daemon's. gid: of their files. */
MUST_USE int place_settle(struct place *p, gid_t gid, char **ret_why);
void place_close(struct place *p);

#endif
