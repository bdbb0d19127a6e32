#include "exporter/output.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>

static int wait_writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	/* An error on the descriptor ends the wait too; the next write says which. */
	if (poll(&p, 1, -1) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

static int write_all(int fd, const uint8_t *p, size_t len)
{
	ssize_t n;
	int err;

	while (len) {
		n = write(fd, p, len);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0) {
			return -EIO;
		} else if (errno == EAGAIN) {
			err = wait_writable(fd);
			if (err)
				return err;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static int empty(int fd)
{
	if (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	return 0;
}

int output_write(int fd, const void *data, size_t len)
{
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return write_all(fd, data, len);
	err = empty(fd);
	if (!err)
		err = write_all(fd, data, len);
	if (err)
		(void)empty(fd);
	return err;
}
