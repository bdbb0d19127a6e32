/*
 * pprof - a batch as a gzipped pprof profile (exporter/profile.proto, docs/pprof.md).
 *
 * The same batch gives the same bytes, also in another process. Samples with equal pid, tid, comm,
 * service name and stack become one; what nothing refers to is left out; equal strings, mappings,
 * functions and locations appear once. Numbers follow first use.
 *
 * Memory is bounded by the batch's tables (some 20 bytes an entry) and the compressed profile: the
 * uncompressed one never exists as a whole.
 *
 * May touch: the heap, getrandom(2). Never: descriptors.
 */
#ifndef EXPORTER_PPROF_H
#define EXPORTER_PPROF_H

#include "base/buf.h"
#include "exporter/msg.h"

struct pprof_totals {
	uint64_t nsamples;    /* sum of counts */
	uint64_t nanoseconds; /* sum */
	uint32_t nstacks;     /* entries of the profile */
	uint64_t nbytes;      /* uncompressed */
};

/*
 * Appends the profile to `out`; after a failure `out` holds nonsense. The batch must be one that
 * export_batch_decode() accepts. -ENOMEM.
 */
MUST_USE int pprof_encode(struct bufw *out, const struct export_batch *b, struct pprof_totals *ret);

#endif
