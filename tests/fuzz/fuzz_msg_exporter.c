/*
 * What is accepted as a batch encodes to the bytes that it came from, and its profile keeps every
 * structural rule and every sample.
 */
#include <stdio.h>
#include <string.h>

#include "exporter/pprof.h"
#include "tests/unit/pprof_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static void check_profile(const struct export_batch *b)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct pprof_totals totals;
	uint64_t count = 0, ns = 0, profile_count = 0, profile_ns = 0;
	const char *broken;
	pprof_profile *p;

	require(pprof_encode(&w, b, &totals) == 0, "a batch that decodes has a profile");
	p = pprof_load(w.data, w.len);
	require(p, "a profile can be read");
	broken = pprof_check(p);
	require(!broken, broken);
	for (uint32_t i = 0; i < b->nsamples; i++) {
		count = add(count, b->samples[i].count);
		ns = add(ns, b->samples[i].nanoseconds);
	}
	for (size_t i = 0; i < p->n_sample; i++) {
		profile_count = add(profile_count, (uint64_t)p->sample[i]->value[0]);
		profile_ns = add(profile_ns, (uint64_t)p->sample[i]->value[1]);
	}
	require(count == profile_count && ns == profile_ns, "no sample is lost");
	require(count == totals.nsamples && ns == totals.nanoseconds, "the totals are right");
	pprof_unload(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(export_batch_fini) struct export_batch b = {};
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_done done;
	struct bufr r;

	bufr_init(&r, data, size);
	if (!export_done_decode(&r, &done)) {
		export_done_encode(&w, &done);
		require(w.len == size && !memcmp(w.data, data, size),
			"an answer encodes to itself");
		bufw_reset(&w);
	}
	bufr_init(&r, data, size);
	if (export_batch_decode(&r, &b))
		return 0;
	export_batch_encode(&w, &b);
	require(!bufw_end(&w) && w.len == size && !memcmp(w.data, data, size),
		"a batch encodes to itself");
	check_profile(&b);
	return 0;
}
