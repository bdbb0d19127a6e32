/*
 * summary - what a run tells its user at the end: samples, outcomes, drops, hottest functions.
 *
 * May touch: the stream it is given. Never: fail.
 */
#ifndef AGENT_SUMMARY_H
#define AGENT_SUMMARY_H

#include <stdio.h>

#include "agent/pipeline.h"

struct summary_run {
	uint64_t symbolizer, exporter, reader;	/* restarts */
	uint64_t bpf_ns, bpf_runs;		/* of the BPF program; 0 unless kernel.bpf_stats_enabled */
};

/* Complete stacks of all that count, in percent; 100 where none counts. */
double summary_completeness(const struct pipeline_stats *s);
/* Samples that BPF saw and that are neither aggregated nor dropped with a reason. */
int64_t summary_unaccounted(const struct pipeline_stats *s);
void summary_print_counts(FILE *out, const struct pipeline_stats *s, const struct summary_run *r);
/* The functions in which most CPU time was spent, `n` of them. */
void summary_print_hottest(FILE *out, const struct export_batch *b, uint32_t n);

#endif
