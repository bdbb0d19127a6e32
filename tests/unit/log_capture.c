#include "tests/unit/log_capture.h"

#include <assert.h>
#include <sys/mman.h>

static int before = -1, file = -1;

void log_capture_begin(enum log_level level)
{
	before = dup(STDERR_FILENO);
	file = memfd_create("log", MFD_CLOEXEC);
	assert(before >= 0 && file >= 0);
	if (dup2(file, STDERR_FILENO) < 0)
		abort();
	log_set_level(level);
}

void log_capture_end(char *ret, size_t size)
{
	ssize_t n = pread(file, ret, size - 1, 0);

	ret[n > 0 ? n : 0] = 0;
	log_set_level(LOG_ERROR);
	if (dup2(before, STDERR_FILENO) < 0)
		abort();
	close(before);
	close(file);
}
