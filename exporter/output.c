#include "exporter/output.h"

#include "base/io.h"

#include <errno.h>
#include <sys/stat.h>

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
		return io_write_all(fd, data, len);
	err = empty(fd);
	if (!err)
		err = io_write_all(fd, data, len);
	if (err)
		(void)empty(fd);
	return err;
}
