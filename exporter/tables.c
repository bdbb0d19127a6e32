#include "exporter/tables.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "exporter/labels.h"
#include "exporter/utf8.h"

static const char *const literals[] = {
#define X(id, text) text,
	TABLES_LITERALS(X)
#undef X
};

uint32_t tables_literal_text(const struct tables *t, enum tables_literal l)
{
	return t->b->nstrings + (uint32_t)l;
}

uint32_t tables_service_text(const struct tables *t, uint32_t subject)
{
	return t->b->nstrings + TABLES_NLITERALS + subject;
}

static uint32_t ntexts(const struct tables *t)
{
	return tables_service_text(t, t->b->nsubjects);
}

static uint64_t hash(const struct tables *t, const void *data, size_t len)
{
	return XXH3_64bits_withSeed(data, len, t->seed);
}

uint64_t tables_add_saturated(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* ---- strings -------------------------------------------------------------------------------- */

static bool texts_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct tables *t = arg;
	const struct tables_text *x = &t->texts[a], *y = &t->texts[b];

	return x->len == y->len && !memcmp(x->text, y->text, x->len);
}

static int put_string(struct tables *t, uint32_t index, uint32_t *ret)
{
	struct tables_text *text = &t->texts[index];
	size_t len;
	int err;

	if (text->string == TABLES_NONE) {
		if (!text->owned && !utf8_is_text(text->text, text->len)) {
			err = utf8_repair(text->text, text->len, &text->owned, &len);
			if (err)
				return err;
			assert(len <= UINT32_MAX); /* EXPORT_STRINGS_MAX */
			text->text = text->owned;
			text->len = (uint32_t)len;
		}
		err = intern_put(&t->strings, hash(t, text->text, text->len), index, texts_equal, t,
				 &text->string);
		if (err)
			return err;
	}
	*ret = text->string;
	return 0;
}

int64_t tables_string(const struct tables *t, uint32_t index)
{
	assert(t->texts[index].string != TABLES_NONE);
	return t->texts[index].string;
}

int64_t tables_literal(const struct tables *t, enum tables_literal l)
{
	return tables_string(t, tables_literal_text(t, l));
}

/* Named after its executable, else after the comm of its main thread, else of its first sample. */
static int put_service(struct tables *t, uint32_t subject, uint32_t *ret)
{
	const struct export_subject *s = &t->b->subjects[subject];
	const struct export_string *executable = &t->b->strings[s->executable];
	const struct export_string *comm = &t->b->strings[t->subject_comm[subject]];
	struct tables_text *text = &t->texts[tables_service_text(t, subject)];
	struct labels_name name;

	if (!text->owned) {
		name = labels_service_name(&(struct labels_subject){
			.executable = executable->text,
			.executable_len = executable->len,
			.comm = comm->text,
			.comm_len = comm->len,
			.is_kernel = s->flags & EXPORT_SUBJECT_KERNEL,
		});
		text->owned = strdup(name.text);
		if (!text->owned)
			return -ENOMEM;
		text->text = text->owned;
		text->len = (uint32_t)strlen(name.text);
	}
	return put_string(t, tables_service_text(t, subject), ret);
}

/* ---- mappings, functions, locations --------------------------------------------------------- */

enum { MAPPING_WORDS = 5, FUNCTION_WORDS = 4, SAMPLE_WORDS = 4 };

static void mapping_words(const struct tables *t, uint32_t i, uint64_t *words)
{
	const struct export_mapping *m = &t->b->mappings[i];

	words[0] = m->start;
	words[1] = m->limit;
	words[2] = m->offset;
	words[3] = t->texts[m->filename].string;
	words[4] = t->texts[m->build_id].string;
}

static bool mappings_equal(const void *arg, uint32_t a, uint32_t b)
{
	uint64_t x[MAPPING_WORDS], y[MAPPING_WORDS];

	mapping_words(arg, a, x);
	mapping_words(arg, b, y);
	return !memcmp(x, y, sizeof(x));
}

static int put_mapping(struct tables *t, uint32_t i, uint32_t *ret)
{
	const struct export_mapping *m = &t->b->mappings[i];
	uint64_t words[MAPPING_WORDS];
	uint32_t string;
	int err = 0;

	if (t->mapping_of[i] == TABLES_NONE) {
		err = put_string(t, m->filename, &string);
		if (!err)
			err = put_string(t, m->build_id, &string);
		if (err)
			return err;
		mapping_words(t, i, words);
		err = intern_put(&t->mappings, hash(t, words, sizeof(words)), i, mappings_equal, t,
				 &t->mapping_of[i]);
	}
	*ret = t->mapping_of[i];
	return err;
}

static void function_words(const struct tables *t, uint32_t i, uint64_t *words)
{
	const struct export_function *f = &t->b->functions[i];

	words[0] = t->texts[f->name].string;
	words[1] = t->texts[f->system_name].string;
	words[2] = t->texts[f->filename].string;
	words[3] = f->start_line;
}

static bool functions_equal(const void *arg, uint32_t a, uint32_t b)
{
	uint64_t x[FUNCTION_WORDS], y[FUNCTION_WORDS];

	function_words(arg, a, x);
	function_words(arg, b, y);
	return !memcmp(x, y, sizeof(x));
}

static int put_function(struct tables *t, uint32_t i, uint32_t *ret)
{
	const struct export_function *f = &t->b->functions[i];
	uint64_t words[FUNCTION_WORDS];
	uint32_t string;
	int err = 0;

	if (t->function_of[i] == TABLES_NONE) {
		err = put_string(t, f->name, &string);
		if (!err)
			err = put_string(t, f->system_name, &string);
		if (!err)
			err = put_string(t, f->filename, &string);
		if (err)
			return err;
		function_words(t, i, words);
		err = intern_put(&t->functions, hash(t, words, sizeof(words)), i, functions_equal,
				 t, &t->function_of[i]);
	}
	*ret = t->function_of[i];
	return err;
}

static bool locations_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct tables *t = arg;
	const struct export_location *x = &t->b->locations[a], *y = &t->b->locations[b];
	const struct export_line *p = t->b->lines + x->first_line, *q = t->b->lines + y->first_line;

	if (t->mapping_of[x->mapping] != t->mapping_of[y->mapping] || x->address != y->address ||
	    x->nlines != y->nlines)
		return false;
	for (uint32_t i = 0; i < x->nlines; i++) {
		if (t->function_of[p[i].function] != t->function_of[q[i].function] ||
		    p[i].line != q[i].line)
			return false;
	}
	return true;
}

static int put_location(struct tables *t, uint32_t i, uint32_t *ret)
{
	const struct export_location *l = &t->b->locations[i];
	const struct export_line *lines = t->b->lines + l->first_line;
	uint64_t words[2 + 2 * EXPORT_LINES_MAX];
	uint32_t mapping, function;
	uint8_t flags = l->nlines > 1 ? TABLES_HAS_INLINES : 0;
	size_t nwords = 0;
	int err;

	if (t->location_of[i] != TABLES_NONE) {
		*ret = t->location_of[i];
		return 0;
	}
	err = put_mapping(t, l->mapping, &mapping);
	if (err)
		return err;
	words[nwords++] = mapping;
	words[nwords++] = l->address;
	for (uint32_t k = 0; k < l->nlines; k++) {
		err = put_function(t, lines[k].function, &function);
		if (err)
			return err;
		words[nwords++] = function;
		words[nwords++] = lines[k].line;
		if (lines[k].line)
			flags |= TABLES_HAS_LINES;
		if (t->texts[t->b->functions[lines[k].function].filename].len)
			flags |= TABLES_HAS_FILENAMES;
	}
	t->mapping_flags[mapping] |= flags;
	err = intern_put(&t->locations, hash(t, words, nwords * sizeof(*words)), i, locations_equal,
			 t, &t->location_of[i]);
	*ret = t->location_of[i];
	return err;
}

/* ---- samples -------------------------------------------------------------------------------- */

static void sample_words(const struct tables *t, uint32_t i, uint64_t *words)
{
	const struct export_sample *s = &t->b->samples[i];

	words[0] = t->b->subjects[s->subject].pid;
	words[1] = s->tid;
	words[2] = t->texts[s->comm].string;
	words[3] = t->texts[tables_service_text(t, s->subject)].string;
}

static bool samples_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct tables *t = arg;
	const struct export_sample *s = &t->b->samples[a], *r = &t->b->samples[b];
	const uint32_t *p = t->b->frames + s->first_frame, *q = t->b->frames + r->first_frame;
	uint64_t x[SAMPLE_WORDS], y[SAMPLE_WORDS];

	sample_words(t, a, x);
	sample_words(t, b, y);
	if (s->nframes != r->nframes || memcmp(x, y, sizeof(x)) != 0)
		return false;
	for (uint32_t i = 0; i < s->nframes; i++) {
		if (t->location_of[p[i]] != t->location_of[q[i]])
			return false;
	}
	return true;
}

static int put_sample(struct tables *t, uint32_t i)
{
	const struct export_sample *s = &t->b->samples[i];
	uint64_t words[SAMPLE_WORDS + 1];
	uint32_t number;
	int err;

	err = put_string(t, s->comm, &number);
	if (!err)
		err = put_service(t, s->subject, &number);
	for (uint32_t k = 0; k < s->nframes && !err; k++) {
		err = put_location(t, t->b->frames[s->first_frame + k], &number);
		t->location_ids[k] = number;
	}
	if (err)
		return err;
	sample_words(t, i, words);
	words[SAMPLE_WORDS] = hash(t, t->location_ids, s->nframes * sizeof(*t->location_ids));
	err = intern_put(&t->samples, hash(t, words, sizeof(words)), i, samples_equal, t, &number);
	if (err)
		return err;
	t->values[number].count = tables_add_saturated(t->values[number].count, s->count);
	t->values[number].nanoseconds =
		tables_add_saturated(t->values[number].nanoseconds, s->nanoseconds);
	t->has_empty_stack |= s->nframes == 0;
	return 0;
}

static bool has_value(const struct export_sample *s)
{
	return s->count || s->nanoseconds;
}

static void find_comms(struct tables *t)
{
	for (uint32_t i = 0; i < t->b->nsamples; i++) {
		const struct export_sample *s = &t->b->samples[i];
		uint32_t *comm = &t->subject_comm[s->subject];

		if (*comm == TABLES_NONE)
			*comm = s->comm;
	}
	/* Backwards, so that the first one of the main thread stays. */
	for (uint32_t i = t->b->nsamples; i-- > 0;) {
		const struct export_sample *s = &t->b->samples[i];

		if (s->tid == t->b->subjects[s->subject].pid)
			t->subject_comm[s->subject] = s->comm;
	}
}

static int number_all(struct tables *t)
{
	uint32_t string;
	int err = 0;

	for (uint32_t l = 0; l < TABLES_NLITERALS && !err; l++) {
		if (l < TABLES_FLAMED)
			err = put_string(t, tables_literal_text(t, l), &string);
	}
	find_comms(t);
	for (uint32_t i = 0; i < t->b->nsamples && !err; i++) {
		if (has_value(&t->b->samples[i]))
			err = put_sample(t, i);
	}
	for (uint32_t l = TABLES_FLAMED; t->has_empty_stack && l < TABLES_NLITERALS && !err; l++)
		err = put_string(t, tables_literal_text(t, l), &string);
	return err;
}

/* ---- life ----------------------------------------------------------------------------------- */

static uint32_t *new_numbers(uint32_t n)
{
	uint32_t *numbers = calloc((size_t)n + 1, sizeof(*numbers));

	for (uint32_t i = 0; numbers && i < n; i++)
		numbers[i] = TABLES_NONE;
	return numbers;
}

static void init_texts(struct tables *t)
{
	for (uint32_t i = 0; i < ntexts(t); i++)
		t->texts[i] = (struct tables_text){ .text = "", .string = TABLES_NONE };
	for (uint32_t i = 0; i < t->b->nstrings; i++) {
		t->texts[i].text = t->b->strings[i].text;
		t->texts[i].len = t->b->strings[i].len;
	}
	for (uint32_t l = 0; l < TABLES_NLITERALS; l++) {
		t->texts[tables_literal_text(t, l)].text = literals[l];
		t->texts[tables_literal_text(t, l)].len = (uint32_t)strlen(literals[l]);
	}
}

static int allocate(struct tables *t)
{
	const struct export_batch *b = t->b;

	t->texts = calloc(ntexts(t), sizeof(*t->texts));
	t->subject_comm = new_numbers(b->nsubjects);
	t->mapping_of = new_numbers(b->nmappings);
	t->function_of = new_numbers(b->nfunctions);
	t->location_of = new_numbers(b->nlocations);
	t->mapping_flags = calloc((size_t)b->nmappings + 1, sizeof(*t->mapping_flags));
	t->values = calloc((size_t)b->nsamples + 1, sizeof(*t->values));
	t->location_ids = calloc(EXPORT_FRAMES_MAX, sizeof(*t->location_ids));
	if (!t->texts || !t->subject_comm || !t->mapping_of || !t->function_of || !t->location_of ||
	    !t->mapping_flags || !t->values || !t->location_ids)
		return -ENOMEM;
	return 0;
}

int tables_init(struct tables *t, const struct export_batch *b)
{
	int err;

	*t = (struct tables){ .b = b };
	err = allocate(t);
	if (err)
		return err;
	init_texts(t);
	/* Without entropy, as at boot, the hashes are merely predictable. */
	if (getrandom(&t->seed, sizeof(t->seed), GRND_NONBLOCK) != (ssize_t)sizeof(t->seed))
		t->seed = 0;
	return number_all(t);
}

void tables_fini(struct tables *t)
{
	for (uint32_t i = 0; t->texts && i < ntexts(t); i++)
		free(t->texts[i].owned);
	free(t->texts);
	free(t->subject_comm);
	free(t->mapping_of);
	free(t->function_of);
	free(t->location_of);
	free(t->mapping_flags);
	free(t->values);
	free(t->location_ids);
	intern_fini(&t->strings);
	intern_fini(&t->mappings);
	intern_fini(&t->functions);
	intern_fini(&t->locations);
	intern_fini(&t->samples);
}
