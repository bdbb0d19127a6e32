/* io - all of it, to a descriptor. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/def.h"

/* Waits where the descriptor does not block. -errno: some of it may be written. */
MUST_USE int io_write_all(int fd, const void *data, size_t len);

#endif
