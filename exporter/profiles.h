/*
 * profiles - a window as what is sent: one gzipped pprof per set of series labels, within the limits
 * that servers set.
 *
 * Series labels are service_name, hostname, the static ones, and what `labels.include` names; of one
 * name the first of these counts, and past 27 labels the last are left out.
 * A series whose profile would be over a limit is split into parts that add up to it.
 * Limits (Pyroscope's defaults): 16 000 samples, 1.9 MiB of uncompressed profile and labels (its
 * burst of 2 MiB refuses more for ever), 1000 frames (it would cut the leaf: we keep the leaf and
 * put [truncated] at the root), 30 labels with the three that are added on the way, 2048 bytes of a
 * value. Texts of a profile have at most 1024 bytes.
 *
 * May touch: the heap, getrandom(2). Never: descriptors.
 */
#ifndef EXPORTER_PROFILES_H
#define EXPORTER_PROFILES_H

#include "config/config.h"
#include "exporter/msg.h"

struct profile_label {
	char *name, *value;	/* UTF-8, name [a-zA-Z_][a-zA-Z0-9_]* */
};

/* One part of one series of one window. Refcounted: several sinks hold it. */
struct profile {
	uint32_t refs;
	uint64_t batch;
	uint64_t part;		/* the same whenever it holds the same samples of this batch; sinks mix their name in */
	struct profile_label *labels;	/* sorted by name; no __name__ */
	uint32_t nlabels;
	const char *service_name;	/* one of them */
	uint64_t wall_start_ns, duration_ns;
	uint64_t nsamples, nanoseconds;	/* sums */
	uint32_t nstacks;
	size_t raw_bytes;	/* uncompressed, and labels */
	uint8_t *data;		/* gzipped pprof */
	size_t len;
};

struct profile *profile_ref(struct profile *p);
void profile_unref(struct profile *p);
uint64_t profile_part_at(const struct profile *p, const char *sink);	/* id of (part, sink); not 0 */

struct profiles_conf {
	const struct config *config;	/* labels.static, labels.include */
	const char *hostname;
	bool sample_labels;	/* pid, tid, comm and all known labels on each sample (files); servers would make series of them */
};

typedef int profiles_fn(void *arg, struct profile *p); /* borrowed */
/* Calls fn with each part, series by series. What fn returns other than 0 ends it and is returned. */
MUST_USE int profiles_make(const struct export_batch *b, const struct profiles_conf *conf, profiles_fn *fn,
			   void *arg);

#endif
