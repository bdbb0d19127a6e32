/*
 * fuse_server DIR CONTENT - a file system of one file, DIR/file, with this content, in a mount namespace
 * of its own (tests/unit/fuse_server.h).
 *
 * Prints `pid: N`, the server's, as soon as it is mounted; enter its namespace with nsenter. Stopped
 * with SIGSTOP the server answers nobody any more. All ends when this program is killed.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/unit/fuse_server.h"

int main(int argc, char **argv)
{
	struct fuse_server server;
	int err;

	if (argc != 3)
		return 2;
	err = fuse_server_start(&server, argv[1], argv[2], FUSE_SERVER_FINE);
	if (err)
		return 77;
	printf("pid: %d\n", server.pid);
	fflush(stdout);
	pause();
	return 0;
}
