/*
 * What is accepted as a message encodes to the bytes that it came from; the profile of a batch keeps
 * every structural rule and every sample, and so do the parts that it is sent as.
 */
#include <stdio.h>
#include <string.h>

#include "exporter/pprof.h"
#include "exporter/profiles.h"
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

struct sums {
	uint64_t count, ns;
};

static int check_part(void *arg, struct profile *p)
{
	struct sums *sums = arg;
	pprof_profile *q = pprof_load(p->data, p->len);
	const char *broken;

	require(q, "a part can be read");
	broken = pprof_check_pushed(q);
	require(!broken, broken);
	require(q->n_sample == p->nstacks && p->nstacks && p->part, "a part has samples and an id");
	sums->count = add(sums->count, p->nsamples);
	sums->ns = add(sums->ns, p->nanoseconds);
	pprof_unload(q);
	return 0;
}

static void check_parts(const struct export_batch *b)
{
	static char hostname[] = "h", include[] = "container_id", *includes[] = { include };
	static struct config config = { .labels.include = { includes, 1 } };
	struct profiles_conf conf = { .config = &config, .hostname = hostname };
	struct sums sums = {}, want = {};

	for (uint32_t i = 0; i < b->nsamples; i++) {
		want.count = add(want.count, b->samples[i].count);
		want.ns = add(want.ns, b->samples[i].nanoseconds);
	}
	require(profiles_make(b, &conf, check_part, &sums) == 0, "a batch that decodes has parts");
	require(sums.count == want.count && sums.ns == want.ns, "parts add up");
}

/*
 * Decodes and encodes again. Texts end at their first NUL, which may have been in the middle, so
 * what comes out may be shorter; then it is the same from there on.
 */
#define CHECK_MESSAGE(type, decode, encode)                                                      \
	do {                                                                                     \
		CLEANUP(bufw_fini) struct bufw once = {}, twice = {};                            \
		CLEANUP_FREE void *mem = NULL, *mem_again = NULL;                                \
		struct type m;                                                                   \
		struct bufr in;                                                                  \
                                                                                                 \
		bufr_init(&in, data, size);                                                      \
		if (decode(&in, &m, &mem))                                                       \
			break;                                                                   \
		encode(&once, &m);                                                               \
		require(!bufw_end(&once) && once.len <= size, #type " does not grow");           \
		if (once.len == size)                                                            \
			require(!memcmp(once.data, data, size), #type " encodes to itself");     \
		bufr_init(&in, once.data, once.len);                                             \
		require(!decode(&in, &m, &mem_again), #type " decodes again");                   \
		encode(&twice, &m);                                                              \
		require(twice.len == once.len && !memcmp(once.data, twice.data, once.len),       \
			#type " stays the same");                                                \
	} while (0)

static int file_decode(struct bufr *in, struct export_file *ret, void **ret_mem)
{
	(void)ret_mem;
	return export_file_decode(in, ret);
}

static int taken_decode(struct bufr *in, struct export_taken *ret, void **ret_mem)
{
	(void)ret_mem;
	return export_taken_decode(in, ret);
}

static int tap_decode(struct bufr *in, struct export_tap *ret, void **ret_mem)
{
	(void)ret_mem;
	return export_tap_decode(in, ret);
}

static int tap_refused_decode(struct bufr *in, struct export_tap_refused *ret, void **ret_mem)
{
	(void)ret_mem;
	return export_tap_refused_decode(in, ret);
}

static int done_decode(struct bufr *in, struct export_done *ret, void **ret_mem)
{
	(void)ret_mem;
	return export_done_decode(in, ret);
}

static int settled_decode(struct bufr *in, struct export_settled *ret, void **ret_mem)
{
	int err = export_settled_decode(in, ret);

	if (!err)
		*ret_mem = ret->ids;
	return err;
}

static void check_messages(const uint8_t *data, size_t size)
{
	CHECK_MESSAGE(export_config, export_config_decode, export_config_encode);
	CHECK_MESSAGE(export_file, file_decode, export_file_encode);
	CHECK_MESSAGE(export_facts, export_facts_decode, export_facts_encode);
	CHECK_MESSAGE(export_labels, export_labels_decode, export_labels_encode);
	CHECK_MESSAGE(export_settled, settled_decode, export_settled_encode);
	CHECK_MESSAGE(export_taken, taken_decode, export_taken_encode);
	CHECK_MESSAGE(export_fate, export_fate_decode, export_fate_encode);
	CHECK_MESSAGE(export_done, done_decode, export_done_encode);
	CHECK_MESSAGE(export_tap, tap_decode, export_tap_encode);
	CHECK_MESSAGE(export_tap_refused, tap_refused_decode, export_tap_refused_encode);
	CHECK_MESSAGE(export_status, export_status_decode, export_status_encode);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(export_batch_fini) struct export_batch b = {};
	CLEANUP(bufw_fini) struct bufw w = {};
	struct bufr r;
	size_t left;

	check_messages(data, size);
	bufr_init(&r, data, size);
	if (export_batch_decode(&r, &b))
		return 0;
	left = bufr_left(&r);
	export_batch_encode(&w, &b);
	require(!bufw_end(&w) && w.len + left == size && !memcmp(w.data, data, w.len), "a batch encodes to itself");
	check_profile(&b);
	check_parts(&b);
	return 0;
}
