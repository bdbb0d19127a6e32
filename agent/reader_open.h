/*
 * reader_open - finds the file of a mapping, and proves that it is the one.
 *
 * Part of the reader process. The proof is what the kernel says of a mapping that we make of the
 * candidate, never stat(2), whose numbers differ from it on overlayfs and btrfs.
 *
 * May touch: /proc, files of every process. Never: opens what is no regular file.
 */
#ifndef AGENT_READER_OPEN_H
#define AGENT_READER_OPEN_H

#include "agent/perfring.h"
#include "agent/reader.h"

struct reader_open_proof {
	struct perfring ring;	/* of our own mmap event; closed: by-path candidates of the side-band fail */
};

/* Needs CAP_PERFMON (or kernel.perf_event_paranoid <= 2). Failing is survivable: see above. */
MUST_USE int reader_open_init(struct reader_open_proof *p);
void reader_open_fini(struct reader_open_proof *p);

/*
 * Fills in what *ret says of the file. 0, or the errno that says best why not: ESTALE when a candidate was another file, EACCES, EFBIG,
 * EINVAL for a path that is none, ENOENT.
 */
MUST_USE int reader_open_file(struct reader_open_proof *p, const struct reader_open *r,
			      struct reader_opened *ret, int *ret_fd);
/* READER_DEBUG. */
MUST_USE int reader_open_debug(const struct reader_debug *d, struct reader_opened *ret, int *ret_fd);
/* What root named, by path in the reader's own root: READER_CONFIG. */
MUST_USE int reader_open_config(const char *path, struct reader_opened *ret, int *ret_fd);

#endif
