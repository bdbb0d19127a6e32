/*
 * fuse_server - a file system of one file, DIR/file with inode FUSE_SERVER_INODE, whose server can
 * stop answering: what somebody else's broken or hostile mount does to whoever opens files on it.
 *
 * It is mounted in the server's own mount namespace, so it can harm nobody but the test, and is
 * reached under /proc/PID/root. Killing the server ends every hang.
 */
#ifndef TESTS_UNIT_FUSE_SERVER_H
#define TESTS_UNIT_FUSE_SERVER_H

#include "base/def.h"

enum { FUSE_SERVER_INODE = 7 };
enum fuse_server_trouble { FUSE_SERVER_FINE, FUSE_SERVER_HANGS_AT_OPEN, FUSE_SERVER_HANGS_AT_FLUSH };

struct fuse_server {
	pid_t pid;	/* -1: none */
	uint32_t dev_major, dev_minor;
};

/* -ENOSYS where this host has no FUSE or we may not mount. The file is a copy of `content`. */
MUST_USE int fuse_server_start(struct fuse_server *ret, const char *dir, const char *content,
			       enum fuse_server_trouble trouble);
void fuse_server_stop(struct fuse_server *s);

#endif
