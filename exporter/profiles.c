#include "exporter/profiles.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "exporter/intern.h"
#include "exporter/labels.h"
#include "exporter/pprof.h"
#include "exporter/utf8.h"

/* Pyroscope's defaults (docs/pyroscope.md), and what we leave of them for what is added on the way. */
enum {
	STACKS_MAX = 16000,
	BYTES_MAX = 1992294, /* 1.9 MiB */
	FRAMES_MAX = 1000,
	LABELS_MAX = 27, /* of 30: __name__, __delta__ and pyroscope_spy */
	TEXT_MAX = 1024, /* of a function's name; what is longer is not read by anyone */
	NAME_MAX_BYTES = 255,
	NONE = UINT32_MAX,
};

/* The smallest profile that one sample can be cut to fits: two frames, one of them of many lines. */
static_assert((EXPORT_LINES_MAX + 1) * (3 * (TEXT_MAX + 16) + 64) +
			      (EXPORT_PAIRS_MAX + 8) * 2 * (TEXT_MAX + 16) +
			      (LABELS_MAX + 3) * (NAME_MAX_BYTES + EXPORT_LABEL_MAX) <
		      BYTES_MAX,
	      "a sample can be too large to be sent");

struct label_text {
	char name[NAME_MAX_BYTES + 1];
	char value[EXPORT_LABEL_MAX + 1];
};

/* One set of series labels. */
struct series {
	char *key; /* name NUL value NUL, by name: equal for equal sets, and all that the set is */
	size_t key_len;
	uint32_t nlabels;
	uint32_t first, n; /* samples, in `order` */
};

struct splitter {
	const struct export_batch *b;
	const struct profiles_conf *conf;
	profiles_fn *fn;
	void *arg;
	struct export_string *services; /* by subject */
	void *services_mem;
	struct label_text labels[LABELS_MAX]; /* of the subject at hand */
	uint32_t nlabels;
	struct series *series;
	uint32_t nseries, series_cap;
	struct intern index; /* of series */
	uint64_t seed;
	uint32_t *series_of; /* by subject */
	uint32_t *order;     /* samples by series */
	struct pprof *pprof;
};

/* ---- profiles ------------------------------------------------------------------------------- */

struct profile *profile_ref(struct profile *p)
{
	assert(p->refs > 0 && p->refs < UINT32_MAX);
	p->refs++;
	return p;
}

void profile_unref(struct profile *p)
{
	if (!p)
		return;
	assert(p->refs > 0);
	if (--p->refs)
		return;
	free(p->data);
	free(p);
}

static uint64_t never_zero(uint64_t id)
{
	return id ? id : 1;
}

uint64_t profile_part_at(const struct profile *p, const char *sink)
{
	return never_zero(XXH64(sink, strlen(sink), p->part));
}

/* Of what is in it, not of what it is called: labels may have changed when a batch comes again. */
static uint64_t part_id(const struct splitter *s, const struct pprof_selection *of)
{
	return never_zero(XXH64(of->samples, of->n * sizeof(of->samples[0]), s->b->id));
}

/* What servers count of labels, those that are added on the way included. */
static size_t label_bytes(const struct series *series)
{
	static const char added[] = "__name__process_cpu__delta__falsepyroscope_spyflamed";

	return series->key_len - 2 * (size_t)series->nlabels + sizeof(added) - 1;
}

/* One block, but for the data: the struct, its labels, their texts. */
static struct profile *new_profile(const struct splitter *s, const struct series *series)
{
	struct profile *p =
		calloc(1, sizeof(*p) + series->nlabels * sizeof(*p->labels) + series->key_len);
	char *text;

	if (!p)
		return NULL;
	p->refs = 1;
	p->batch = s->b->id;
	p->wall_start_ns = s->b->wall_start_ns;
	p->duration_ns = s->b->duration_ns;
	p->nlabels = series->nlabels;
	p->labels = (struct profile_label *)(p + 1);
	text = memcpy(p->labels + p->nlabels, series->key, series->key_len);
	for (uint32_t i = 0; i < p->nlabels; i++) {
		p->labels[i].name = text;
		text += strlen(text) + 1;
		p->labels[i].value = text;
		text += strlen(text) + 1;
		if (!strcmp(p->labels[i].name, "service_name"))
			p->service_name = p->labels[i].value;
	}
	return p;
}

static int hand_out(struct splitter *s, const struct series *series,
		    const struct pprof_selection *of, struct bufw *data,
		    const struct pprof_totals *totals)
{
	struct profile *p = new_profile(s, series);
	uint8_t *fitted;
	int err;

	if (!p)
		return -ENOMEM;
	p->part = part_id(s, of);
	p->nsamples = totals->nsamples;
	p->nanoseconds = totals->nanoseconds;
	p->nstacks = totals->nstacks;
	p->raw_bytes = totals->nbytes + label_bytes(series);
	/* It may wait for an hour: without the room that a growing buffer has. */
	fitted = realloc(data->data, data->len);
	p->data = fitted ? fitted : data->data;
	p->len = data->len;
	*data = (struct bufw){};
	err = s->fn(s->arg, p);
	profile_unref(p);
	return err;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static int write_part(struct splitter *s, const struct series *series,
		      const struct pprof_selection *selection)
{
	CLEANUP(bufw_fini) struct bufw data = {};
	struct pprof_totals totals;
	int err = pprof_write(s->pprof, selection, &data, &totals);

	return err ? err : hand_out(s, series, selection, &data, &totals);
}

/* The first half and the second, until each fits; of a single sample, the half at the leaf. */
static int split(struct splitter *s, const struct series *series, uint32_t first, uint32_t n,
		 uint32_t frames_max)
{
	struct pprof_selection selection = {
		.samples = s->order + first,
		.n = n,
		.frames_max = frames_max,
		.stacks_max = STACKS_MAX,
		.bytes_max = BYTES_MAX - label_bytes(series),
	};
	int err = write_part(s, series, &selection);

	if (err != -E2BIG)
		return err;
	if (n == 1)
		return frames_max > 2 ? split(s, series, first, n, MAX(frames_max / 2, 2u)) : err;
	err = split(s, series, first, n / 2, frames_max);
	return err ? err : split(s, series, first + n / 2, n - n / 2, frames_max);
}

/* ---- labels of a series --------------------------------------------------------------------- */

/* The first one of a name stays; what is more than servers take is left out. */
static void add_label(struct splitter *s, const char *name, const char *value, size_t value_len)
{
	struct label_text *l = &s->labels[s->nlabels];
	size_t len = strnlen(name, NAME_MAX_BYTES), n;

	if (s->nlabels == LABELS_MAX)
		return;
	for (n = 0; n < len; n++) {
		char c = name[n];
		bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		l->name[n] = is_letter || (n && c >= '0' && c <= '9') ? c : '_';
	}
	l->name[n] = 0;
	utf8_clean(value, value_len, l->value, sizeof(l->value));
	if (!n || !l->value[0])
		return;
	for (uint32_t i = 0; i < s->nlabels; i++) {
		if (!strcmp(s->labels[i].name, l->name))
			return;
	}
	s->nlabels++;
}

static void include_label(struct splitter *s, const struct export_subject *subject,
			  const char *name)
{
	const struct export_batch *b = s->b;

	for (uint32_t i = 0; i < subject->npairs; i++) {
		const struct export_pair *p = &b->pairs[subject->first_pair + i];
		const struct export_string *key = &b->strings[p->name];
		const struct export_string *value = &b->strings[p->value];

		if (key->len == strlen(name) && !memcmp(key->text, name, key->len))
			add_label(s, name, value->text, value->len);
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct label_text *)a)->name, ((const struct label_text *)b)->name);
}

static void find_labels(struct splitter *s, uint32_t subject)
{
	const struct config *c = s->conf->config;
	const char *hostname = s->conf->hostname;

	s->nlabels = 0;
	add_label(s, "service_name", s->services[subject].text, s->services[subject].len);
	if (hostname)
		add_label(s, "hostname", hostname, strlen(hostname));
	for (size_t i = 0; c && i < c->labels.fixed.n; i++) {
		const struct value_pair *p = &c->labels.fixed.v[i];

		add_label(s, p->name, p->value, strlen(p->value));
	}
	for (size_t i = 0; c && i < c->labels.include.n; i++)
		include_label(s, &s->b->subjects[subject], c->labels.include.v[i]);
	qsort(s->labels, s->nlabels, sizeof(s->labels[0]), by_name);
}

/* ---- series --------------------------------------------------------------------------------- */

static bool series_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct splitter *s = arg;
	const struct series *x = &s->series[a], *y = &s->series[b];

	return x->key_len == y->key_len && !memcmp(x->key, y->key, x->key_len);
}

/* A candidate behind the last series, to be compared with those before it. */
static int propose_series(struct splitter *s)
{
	CLEANUP(bufw_fini) struct bufw key = {};
	int err;

	if (s->nseries == s->series_cap) {
		uint32_t cap = s->series_cap ? 2 * s->series_cap : 64;
		struct series *more = reallocarray(s->series, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->series = more;
		s->series_cap = cap;
	}
	for (uint32_t i = 0; i < s->nlabels; i++) {
		bufw_bytes(&key, s->labels[i].name, strlen(s->labels[i].name) + 1);
		bufw_bytes(&key, s->labels[i].value, strlen(s->labels[i].value) + 1);
	}
	err = bufw_end(&key);
	if (err)
		return err;
	s->series[s->nseries] = (struct series){ .key_len = key.len, .nlabels = s->nlabels };
	s->series[s->nseries].key = (char *)TAKE(key.data);
	return 0;
}

static int find_series(struct splitter *s, uint32_t subject)
{
	struct series *candidate;
	int err;

	find_labels(s, subject);
	err = propose_series(s);
	if (err)
		return err;
	candidate = &s->series[s->nseries];
	err = intern_put(&s->index, XXH3_64bits_withSeed(candidate->key, candidate->key_len, s->seed),
			 s->nseries, series_equal, s, &s->series_of[subject]);
	if (!err && s->series_of[subject] == s->nseries)
		s->nseries++;
	else
		free(candidate->key);
	return err;
}

/* Samples by series, each in the order of the batch. */
static int group(struct splitter *s)
{
	uint32_t next = 0;
	int err = 0;

	for (uint32_t i = 0; i < s->b->nsubjects; i++)
		s->series_of[i] = NONE;
	for (uint32_t i = 0; i < s->b->nsamples && !err; i++) {
		uint32_t subject = s->b->samples[i].subject;

		if (!export_sample_has_value(&s->b->samples[i]))
			continue;
		if (s->series_of[subject] == NONE)
			err = find_series(s, subject);
		if (!err)
			s->series[s->series_of[subject]].n++;
	}
	for (uint32_t i = 0; i < s->nseries; i++) {
		s->series[i].first = next;
		next += s->series[i].n;
		s->series[i].n = 0;
	}
	for (uint32_t i = 0; i < s->b->nsamples && !err; i++) {
		struct series *series;

		if (!export_sample_has_value(&s->b->samples[i]))
			continue;
		series = &s->series[s->series_of[s->b->samples[i].subject]];
		s->order[series->first + series->n++] = i;
	}
	return err;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void splitter_free(struct splitter *s)
{
	for (uint32_t i = 0; i < s->nseries; i++)
		free(s->series[i].key);
	free(s->series);
	free(s->services);
	free(s->services_mem);
	free(s->series_of);
	free(s->order);
	intern_fini(&s->index);
	pprof_free(s->pprof);
	free(s);
}
DEFINE_CLEANUP(struct splitter *, splitter_free);

static int prepare(struct splitter *s)
{
	struct pprof_conf conf = { .has_labels = s->conf->sample_labels, .text_max = TEXT_MAX };
	int err;

	s->series_of = calloc((size_t)s->b->nsubjects + 1, sizeof(*s->series_of));
	s->order = calloc((size_t)s->b->nsamples + 1, sizeof(*s->order));
	if (!s->series_of || !s->order)
		return -ENOMEM;
	/* Without entropy, as at boot, the hashes are merely predictable. */
	if (getrandom(&s->seed, sizeof(s->seed), GRND_NONBLOCK) != (ssize_t)sizeof(s->seed))
		s->seed = 0;
	err = labels_services(s->b, &s->services, &s->services_mem);
	if (!err)
		err = pprof_new(&s->pprof, s->b, &conf);
	return err ? err : group(s);
}

int profiles_make(const struct export_batch *b, const struct profiles_conf *conf, profiles_fn *fn,
		  void *arg)
{
	CLEANUP(splitter_freep) struct splitter *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->b = b;
	s->conf = conf;
	s->fn = fn;
	s->arg = arg;
	err = prepare(s);
	for (uint32_t i = 0; i < s->nseries && !err; i++)
		err = split(s, &s->series[i], s->series[i].first, s->series[i].n, FRAMES_MAX);
	return err;
}
