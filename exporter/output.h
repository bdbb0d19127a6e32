/*
 * output - a profile to a descriptor that the agent opened.
 *
 * May touch: that descriptor. Never: open anything.
 */
#ifndef EXPORTER_OUTPUT_H
#define EXPORTER_OUTPUT_H

#include "base/def.h"

/*
 * A regular file holds these bytes and no others afterwards, so that writing twice is as good as
 * once, or is empty after a failure: half a profile is never taken for one. To anything else
 * (pipe, terminal) the bytes are appended, waiting where it does not block. 0 or -errno: -ENOSPC,
 * -EPIPE (SIGPIPE must be ignored), -EBADF, ...
 */
MUST_USE int output_write(int fd, const void *data, size_t len);

#endif
