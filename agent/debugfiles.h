/*
 * debugfiles - finds the files that distributions put debug information and symbols in, and shows them to the
 * symbolizer.
 *
 * Of each file whose code was sampled the symbolizer tells its build ID and .gnu_debuglink; where it has no debug
 * information of its own, the reader opens one candidate after the other, each in the root of a process that maps the
 * file and then in the host's: /usr/lib/debug/.build-id/XX/REST.debug; then, of DIR/FILE with the link NAME: DIR/NAME,
 * DIR/.debug/NAME, /usr/lib/debug/DIR/NAME. The symbolizer takes it only if the build ID, or the link's CRC, agrees.
 * A debug file that dwz has moved parts of to another one names that in .gnu_debugaltlink: by build ID again, and by path.
 * What was not found, or where the reader hung, is looked for again after DEBUGFILES_AGAIN_NS. Nobody waits for any of this: a file's names are
 * better from when its debug file is there.
 *
 * Bounded: DEBUGFILES_MAX files are known, the descriptors of DEBUGFILES_OPEN_MAX debug files are kept; those that
 * nobody asked about for DEBUGFILES_IDLE_NS are closed.
 *
 * May touch: nothing itself. Never: a path, a file's bytes.
 */
#ifndef AGENT_DEBUGFILES_H
#define AGENT_DEBUGFILES_H

#include "agent/readerclient.h"
#include "agent/symclient.h"

enum { DEBUGFILES_MAX = 4096, DEBUGFILES_OPEN_MAX = 64 };
#define DEBUGFILES_AGAIN_NS (600 * NSEC_PER_SEC)
#define DEBUGFILES_IDLE_NS (60 * NSEC_PER_SEC)

struct debugfiles;

/* nopen: descriptors that may be kept, up to DEBUGFILES_OPEN_MAX. */
MUST_USE int debugfiles_new(struct debugfiles **ret, struct readerclient *reader, struct symclient *symbolizer,
			    uint64_t nopen);
struct debugfiles *debugfiles_free(struct debugfiles *d);
DEFINE_CLEANUP(struct debugfiles *, debugfiles_free);

/* A file is being opened: where it is. */
void debugfiles_opening(struct debugfiles *d, const struct reader_open *r);
/* Its code was met; fd is borrowed. */
MUST_USE int debugfiles_met(struct debugfiles *d, uint64_t file_id, int fd, uint64_t now_ns);
/* Its names are about to be asked for. */
MUST_USE int debugfiles_naming(struct debugfiles *d, uint64_t file_id, uint64_t now_ns);
/* With each turn of the loop: goes on with what waits. */
MUST_USE int debugfiles_turn(struct debugfiles *d, uint64_t now_ns);
/* Now and then. */
void debugfiles_tidy(struct debugfiles *d, uint64_t now_ns);

#endif
