#include "base/io.h"

#include <errno.h>
#include <poll.h>

static int wait_writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	/* An error on the descriptor ends the wait too; the next write says which. */
	if (poll(&p, 1, -1) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

int io_write_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);
		int err = 0;

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0) {
			return -EIO;
		} else if (errno == EAGAIN) {
			err = wait_writable(fd);
		} else if (errno != EINTR) {
			return -errno;
		}
		if (err)
			return err;
	}
	return 0;
}
