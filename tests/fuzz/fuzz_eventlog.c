/*
 * An event log of any bytes. Property: every event that is delivered can be written again, and
 * comes back with the same bytes. The input is the log without its header, so that the fuzzer does
 * not have to find that.
 */
#include "agent/event.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check(void *arg, const struct event *e)
{
	struct bufw *w = arg, again = {};
	struct event back;
	void *mem = NULL;
	int err;

	assert(e->type > 0 && e->type < EVENT_TYPE_COUNT);
	bufw_reset(w);
	event_encode(w, e);
	err = bufw_end(w);
	assert(!err);
	err = event_decode(e->type, e->time_ns, w->data, w->len, &back, &mem);
	assert(!err);
	event_encode(&again, &back);
	assert(again.len == w->len && (!w->len || memcmp(again.data, w->data, w->len) == 0));
	bufw_fini(&again);
	free(mem);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t header[] = { 'F', 'L', 'M', 'D', 'L', 'O', 'G', 0, 3, 0, 0, 0 };
	static int fd = -1;
	static struct bufw w;
	int err;

	if (fd < 0)
		fd = memfd_create("log", MFD_CLOEXEC);
	assert(fd >= 0);
	if (ftruncate(fd, 0) || pwrite(fd, header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
	    pwrite(fd, data, size, sizeof(header)) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
		return 0;
	err = event_log_read(fd, check, &w);
	assert(!err || err == EVENT_LOG_TRUNCATED || err == -EBADMSG);
	return 0;
}
