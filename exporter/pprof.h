/*
 * pprof - samples of a batch as a gzipped pprof profile (exporter/profile.proto, docs/pprof.md).
 *
 * The same batch gives the same bytes, also in another process. Samples with equal labels and stack
 * become one; what nothing refers to is left out; equal strings, mappings, functions and locations
 * appear once. Numbers follow first use.
 *
 * Memory is bounded by the batch's tables (some 30 bytes an entry) and the compressed profile: the
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
 * Appends the profile of a whole batch to `out`, labels of samples included; after a failure `out`
 * holds nonsense. The batch must be one that export_batch_decode() accepts. -ENOMEM.
 */
MUST_USE int pprof_encode(struct bufw *out, const struct export_batch *b, struct pprof_totals *ret);

/* Several profiles of one batch: each costs what it holds, however large the batch is. */
struct pprof;

struct pprof_conf {
	bool has_labels;   /* of each sample: pid, tid, comm and all that its subject has */
	uint32_t text_max; /* bytes of a string; longer ones end in an ellipsis. 0: any length */
};

/* The batch is borrowed until pprof_free(). -ENOMEM. */
MUST_USE int pprof_new(struct pprof **ret, const struct export_batch *b, const struct pprof_conf *conf);
struct pprof *pprof_free(struct pprof *p);
DEFINE_CLEANUP(struct pprof *, pprof_free);

struct pprof_selection {
	const uint32_t *samples; /* indexes; NULL: all of the batch */
	uint32_t n;
	uint32_t frames_max; /* of a stack, at least 2: more lose those at the root to a frame [truncated] */
	uint32_t stacks_max;
	uint64_t bytes_max; /* uncompressed */
};

/* As pprof_encode(). -E2BIG when the profile would be over stacks_max or bytes_max. */
MUST_USE int pprof_write(struct pprof *p, const struct pprof_selection *s, struct bufw *out,
			 struct pprof_totals *ret);

#endif
