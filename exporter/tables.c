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

static const char ellipsis[] = "\xe2\x80\xa6";

static uint32_t literal_text(const struct tables *t, enum tables_literal l)
{
	return t->b->nstrings + (uint32_t)l;
}

static uint32_t service_text(const struct tables *t, uint32_t subject)
{
	return t->b->nstrings + TABLES_NLITERALS + subject;
}

static uint32_t ntexts(const struct tables *t)
{
	return service_text(t, t->b->nsubjects);
}

static uint64_t hash(const struct tables *t, const void *data, size_t len)
{
	return XXH3_64bits_withSeed(data, len, t->seed);
}

uint64_t tables_add_saturated(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static bool has_number(const struct tables *t, const struct tables_number *n)
{
	return n->selection == t->selection;
}

static int put(struct tables *t, struct intern *in, uint64_t h, uint32_t thing,
	       intern_equal_fn *equal, struct tables_number *ret)
{
	uint32_t number;
	int err = intern_put(in, h, thing, equal, t, &number);

	if (!err)
		*ret = (struct tables_number){ t->selection, number };
	return err;
}

/* ---- strings -------------------------------------------------------------------------------- */

static bool texts_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct tables *t = arg;
	const struct tables_text *x = &t->texts[a], *y = &t->texts[b];

	return x->len == y->len && !memcmp(x->text, y->text, x->len);
}

static void own_text(struct tables_text *text, char *owned, size_t len)
{
	if (text->is_owned)
		free((char *)text->text);
	assert(len <= UINT32_MAX); /* EXPORT_STRINGS_MAX */
	text->text = owned;
	text->len = (uint32_t)len;
	text->is_owned = true;
}

static int shorten(struct tables *t, struct tables_text *text)
{
	size_t len = utf8_cut(text->text, text->len, t->text_max - strlen(ellipsis));
	char *shorter = malloc(len + strlen(ellipsis));

	if (!shorter)
		return -ENOMEM;
	memcpy(shorter, text->text, len);
	memcpy(shorter + len, ellipsis, strlen(ellipsis));
	own_text(text, shorter, len + strlen(ellipsis));
	return 0;
}

/* Once in the life of the tables. */
static int ready_text(struct tables *t, struct tables_text *text)
{
	char *repaired;
	size_t len;
	int err = 0;

	if (!utf8_is_text(text->text, text->len)) {
		err = utf8_repair(text->text, text->len, &repaired, &len);
		if (err)
			return err;
		own_text(text, repaired, len);
	}
	if (t->text_max && text->len > t->text_max)
		err = shorten(t, text);
	text->is_ready = !err;
	return err;
}

static int put_string(struct tables *t, uint32_t index)
{
	struct tables_text *text = &t->texts[index];
	int err = 0;

	if (has_number(t, &text->string))
		return 0;
	if (!text->is_ready)
		err = ready_text(t, text);
	if (err)
		return err;
	return put(t, &t->strings, hash(t, text->text, text->len), index, texts_equal,
		   &text->string);
}

static int put_literal(struct tables *t, enum tables_literal l)
{
	return put_string(t, literal_text(t, l));
}

int64_t tables_string(const struct tables *t, uint32_t index)
{
	assert(has_number(t, &t->texts[index].string));
	return t->texts[index].string.number;
}

int64_t tables_literal(const struct tables *t, enum tables_literal l)
{
	return tables_string(t, literal_text(t, l));
}

/* ---- mappings, functions, locations --------------------------------------------------------- */

const struct export_mapping *tables_mapping(const struct tables *t, uint32_t i)
{
	return i < t->b->nmappings ? &t->b->mappings[i] : &t->own.mapping;
}

const struct export_function *tables_function(const struct tables *t, uint32_t i)
{
	return i < t->b->nfunctions ? &t->b->functions[i] :
				      &t->own.functions[i - t->b->nfunctions];
}

const struct export_line *tables_line(const struct tables *t, uint32_t i)
{
	return i < t->b->nlines ? &t->b->lines[i] : &t->own.lines[i - t->b->nlines];
}

const struct export_location *tables_location(const struct tables *t, uint32_t i)
{
	return i < t->b->nlocations ? &t->b->locations[i] :
				      &t->own.locations[i - t->b->nlocations];
}

enum { MAPPING_WORDS = 5, FUNCTION_WORDS = 4, SAMPLE_WORDS = 4 };

static void mapping_words(const struct tables *t, uint32_t i, uint64_t *words)
{
	const struct export_mapping *m = tables_mapping(t, i);

	words[0] = m->start;
	words[1] = m->limit;
	words[2] = m->offset;
	words[3] = t->texts[m->filename].string.number;
	words[4] = t->texts[m->build_id].string.number;
}

static bool mappings_equal(const void *arg, uint32_t a, uint32_t b)
{
	uint64_t x[MAPPING_WORDS], y[MAPPING_WORDS];

	mapping_words(arg, a, x);
	mapping_words(arg, b, y);
	return !memcmp(x, y, sizeof(x));
}

static int put_mapping(struct tables *t, uint32_t i)
{
	const struct export_mapping *m = tables_mapping(t, i);
	uint64_t words[MAPPING_WORDS];
	int err;

	if (has_number(t, &t->mapping_of[i]))
		return 0;
	err = put_string(t, m->filename);
	if (!err)
		err = put_string(t, m->build_id);
	if (err)
		return err;
	mapping_words(t, i, words);
	err = put(t, &t->mappings, hash(t, words, sizeof(words)), i, mappings_equal,
		  &t->mapping_of[i]);
	if (!err && intern_thing(&t->mappings, t->mapping_of[i].number) == i)
		t->mapping_flags[t->mapping_of[i].number] = 0;
	return err;
}

static void function_words(const struct tables *t, uint32_t i, uint64_t *words)
{
	const struct export_function *f = tables_function(t, i);

	words[0] = t->texts[f->name].string.number;
	words[1] = t->texts[f->system_name].string.number;
	words[2] = t->texts[f->filename].string.number;
	words[3] = f->start_line;
}

static bool functions_equal(const void *arg, uint32_t a, uint32_t b)
{
	uint64_t x[FUNCTION_WORDS], y[FUNCTION_WORDS];

	function_words(arg, a, x);
	function_words(arg, b, y);
	return !memcmp(x, y, sizeof(x));
}

static int put_function(struct tables *t, uint32_t i)
{
	const struct export_function *f = tables_function(t, i);
	uint64_t words[FUNCTION_WORDS];
	int err;

	if (has_number(t, &t->function_of[i]))
		return 0;
	err = put_string(t, f->name);
	if (!err)
		err = put_string(t, f->system_name);
	if (!err)
		err = put_string(t, f->filename);
	if (err)
		return err;
	function_words(t, i, words);
	return put(t, &t->functions, hash(t, words, sizeof(words)), i, functions_equal,
		   &t->function_of[i]);
}

static bool locations_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct tables *t = arg;
	const struct export_location *x = tables_location(t, a), *y = tables_location(t, b);

	if (t->mapping_of[x->mapping].number != t->mapping_of[y->mapping].number ||
	    x->address != y->address || x->nlines != y->nlines)
		return false;
	for (uint32_t i = 0; i < x->nlines; i++) {
		const struct export_line *p = tables_line(t, x->first_line + i);
		const struct export_line *q = tables_line(t, y->first_line + i);

		if (t->function_of[p->function].number != t->function_of[q->function].number ||
		    p->line != q->line)
			return false;
	}
	return true;
}

static int put_location(struct tables *t, uint32_t i)
{
	const struct export_location *l = tables_location(t, i);
	uint64_t words[2 + 2 * EXPORT_LINES_MAX];
	uint8_t flags = l->nlines > 1 ? TABLES_HAS_INLINES : 0;
	size_t nwords = 0;
	int err;

	if (has_number(t, &t->location_of[i]))
		return 0;
	err = put_mapping(t, l->mapping);
	if (err)
		return err;
	words[nwords++] = t->mapping_of[l->mapping].number;
	words[nwords++] = l->address;
	for (uint32_t k = 0; k < l->nlines; k++) {
		const struct export_line *line = tables_line(t, l->first_line + k);

		err = put_function(t, line->function);
		if (err)
			return err;
		words[nwords++] = t->function_of[line->function].number;
		words[nwords++] = line->line;
		if (line->line)
			flags |= TABLES_HAS_LINES;
		if (t->texts[tables_function(t, line->function)->filename].len)
			flags |= TABLES_HAS_FILENAMES;
	}
	t->mapping_flags[t->mapping_of[l->mapping].number] |= flags;
	return put(t, &t->locations, hash(t, words, nwords * sizeof(*words)), i, locations_equal,
		   &t->location_of[i]);
}

/* ---- labels --------------------------------------------------------------------------------- */

static bool is_literal(const struct export_string *s, enum tables_literal l)
{
	return s->len == strlen(literals[l]) && !memcmp(s->text, literals[l], s->len);
}

/* [a-zA-Z_][a-zA-Z0-9_]*, and none that a sample has anyway. */
static bool is_label_name(const struct export_string *s)
{
	for (uint32_t i = 0; i < s->len; i++) {
		char c = s->text[i];
		bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

		if (!is_letter && (i == 0 || c < '0' || c > '9'))
			return false;
	}
	return s->len && !is_literal(s, TABLES_PID) && !is_literal(s, TABLES_TID) &&
	       !is_literal(s, TABLES_COMM) && !is_literal(s, TABLES_SERVICE_NAME);
}

static bool is_among(const struct tables *t, const struct tables_label *labels, uint32_t n,
		     uint32_t name)
{
	const struct export_string *s = &t->b->strings[name];

	for (uint32_t i = 0; i < n; i++) {
		const struct export_string *other = &t->b->strings[labels[i].name];

		if (other->len == s->len && !memcmp(other->text, s->text, s->len))
			return true;
	}
	return false;
}

uint32_t tables_labels(const struct tables *t, uint32_t subject,
		       struct tables_label ret[TABLES_LABELS_MAX])
{
	const struct export_subject *s = &t->b->subjects[subject];
	uint32_t n = 0;

	ret[n++] = (struct tables_label){ literal_text(t, TABLES_SERVICE_NAME),
					  service_text(t, subject) };
	for (uint32_t i = 0; i < s->npairs; i++) {
		const struct export_pair *p = &t->b->pairs[s->first_pair + i];

		/* A label whose string is "" cannot be told from one whose number is 0. */
		if (is_label_name(&t->b->strings[p->name]) && t->b->strings[p->value].len &&
		    !is_among(t, ret + 1, n - 1, p->name))
			ret[n++] = (struct tables_label){ p->name, p->value };
	}
	return n;
}

static uint32_t label_words(const struct tables *t, uint32_t subject, uint64_t *words)
{
	struct tables_label labels[TABLES_LABELS_MAX];
	uint32_t n = tables_labels(t, subject, labels);

	for (uint32_t i = 0; i < n; i++) {
		words[2 * i] = t->texts[labels[i].name].string.number;
		words[2 * i + 1] = t->texts[labels[i].value].string.number;
	}
	return 2 * n;
}

static bool labels_equal(const void *arg, uint32_t a, uint32_t b)
{
	uint64_t x[2 * TABLES_LABELS_MAX], y[2 * TABLES_LABELS_MAX];
	uint32_t nx = label_words(arg, a, x), ny = label_words(arg, b, y);

	return nx == ny && !memcmp(x, y, nx * sizeof(*x));
}

static int put_labels(struct tables *t, uint32_t subject)
{
	uint64_t words[2 * TABLES_LABELS_MAX];
	struct tables_label labels[TABLES_LABELS_MAX];
	uint32_t n;
	int err = 0;

	if (has_number(t, &t->labels_of[subject]))
		return 0;
	n = tables_labels(t, subject, labels);
	for (uint32_t i = 0; i < n && !err; i++) {
		err = put_string(t, labels[i].name);
		if (!err)
			err = put_string(t, labels[i].value);
	}
	if (err)
		return err;
	n = label_words(t, subject, words);
	return put(t, &t->labels, hash(t, words, n * sizeof(*words)), subject, labels_equal,
		   &t->labels_of[subject]);
}

/* ---- samples -------------------------------------------------------------------------------- */

uint32_t tables_nframes(const struct tables *t, const struct export_sample *s)
{
	return s->nframes ? MIN(s->nframes, t->frames_max) : 1;
}

uint32_t tables_frame(const struct tables *t, const struct export_sample *s, uint32_t i)
{
	if (!s->nframes)
		return t->own.no_stack;
	if (s->nframes > t->frames_max && i == t->frames_max - 1)
		return t->own.truncated;
	return t->b->frames[s->first_frame + i];
}

static void sample_words(const struct tables *t, uint32_t i, uint64_t *words)
{
	const struct export_sample *s = &t->b->samples[i];

	memset(words, 0, SAMPLE_WORDS * sizeof(*words));
	if (!t->has_labels)
		return;
	words[0] = t->b->subjects[s->subject].pid;
	words[1] = s->tid;
	words[2] = t->texts[s->comm].string.number;
	words[3] = t->labels_of[s->subject].number;
}

static bool samples_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct tables *t = arg;
	const struct export_sample *s = &t->b->samples[a], *r = &t->b->samples[b];
	uint32_t n = tables_nframes(t, s);
	uint64_t x[SAMPLE_WORDS], y[SAMPLE_WORDS];

	sample_words(t, a, x);
	sample_words(t, b, y);
	if (n != tables_nframes(t, r) || memcmp(x, y, sizeof(x)) != 0)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (t->location_of[tables_frame(t, s, i)].number !=
		    t->location_of[tables_frame(t, r, i)].number)
			return false;
	}
	return true;
}

static int put_sample(struct tables *t, uint32_t i)
{
	const struct export_sample *s = &t->b->samples[i];
	uint32_t n = tables_nframes(t, s), nbefore = t->samples.n;
	uint64_t words[SAMPLE_WORDS + 1];
	struct tables_number number;
	struct tables_value *v;
	int err = 0;

	if (t->has_labels) {
		err = put_string(t, s->comm);
		if (!err)
			err = put_labels(t, s->subject);
	}
	for (uint32_t k = 0; k < n && !err; k++) {
		uint32_t location = tables_frame(t, s, k);

		err = put_location(t, location);
		t->location_ids[k] = t->location_of[location].number;
	}
	if (err)
		return err;
	sample_words(t, i, words);
	words[SAMPLE_WORDS] = hash(t, t->location_ids, n * sizeof(*t->location_ids));
	err = put(t, &t->samples, hash(t, words, sizeof(words)), i, samples_equal, &number);
	if (err)
		return err;
	v = &t->values[number.number];
	if (t->samples.n > nbefore)
		*v = (struct tables_value){};
	v->count = tables_add_saturated(v->count, s->count);
	v->nanoseconds = tables_add_saturated(v->nanoseconds, s->nanoseconds);
	return 0;
}

int tables_select(struct tables *t, const uint32_t *samples, uint32_t n, uint32_t frames_max)
{
	int err = 0;

	assert(frames_max >= 2);
	intern_reset(&t->strings);
	intern_reset(&t->mappings);
	intern_reset(&t->functions);
	intern_reset(&t->locations);
	intern_reset(&t->labels);
	intern_reset(&t->samples);
	t->selection++;
	t->frames_max = frames_max;
	for (enum tables_literal l = TABLES_EMPTY; l <= TABLES_SERVICE_NAME && !err; l++) {
		if (t->has_labels || l < TABLES_PID)
			err = put_literal(t, l);
	}
	if (!samples)
		n = t->b->nsamples;
	for (uint32_t i = 0; i < n && !err; i++) {
		uint32_t sample = samples ? samples[i] : i;

		if (export_sample_has_value(&t->b->samples[sample]))
			err = put_sample(t, sample);
	}
	return err;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void init_texts(struct tables *t)
{
	for (uint32_t i = 0; i < t->b->nstrings; i++) {
		t->texts[i].text = t->b->strings[i].text;
		t->texts[i].len = t->b->strings[i].len;
	}
	for (enum tables_literal l = 0; l < TABLES_NLITERALS; l++) {
		t->texts[literal_text(t, l)].text = literals[l];
		t->texts[literal_text(t, l)].len = (uint32_t)strlen(literals[l]);
	}
	for (uint32_t i = 0; i < t->b->nsubjects; i++) {
		t->texts[service_text(t, i)].text = t->services[i].text;
		t->texts[service_text(t, i)].len = t->services[i].len;
	}
}

/* The batch's own mapping of this name, so that there is one. */
static uint32_t find_flamed(const struct tables *t)
{
	for (uint32_t i = 0; i < t->b->nmappings; i++) {
		const struct export_mapping *m = &t->b->mappings[i];

		if (is_literal(&t->b->strings[m->filename], TABLES_FLAMED) &&
		    !t->b->strings[m->build_id].len)
			return i;
	}
	return t->b->nmappings;
}

static uint32_t find_own(const struct tables *t, uint32_t flamed, enum tables_literal name,
			 uint32_t none)
{
	if (flamed == t->b->nmappings)
		return none;
	for (uint32_t i = 0; i < t->b->nlocations; i++) {
		const struct export_location *l = &t->b->locations[i];
		uint32_t function = t->b->lines[l->first_line].function;

		if (l->mapping == flamed && l->nlines == 1 &&
		    is_literal(&t->b->strings[t->b->functions[function].name], name))
			return i;
	}
	return none;
}

static void init_own(struct tables *t)
{
	static const enum tables_literal names[TABLES_OWN_FRAMES] = { TABLES_NO_STACK,
								      TABLES_TRUNCATED };
	const struct export_batch *b = t->b;
	uint32_t flamed = find_flamed(t), empty = literal_text(t, TABLES_EMPTY);

	t->own.mapping = (struct export_mapping){
		.limit = TABLES_OWN_FRAMES, /* holds their addresses */
		.filename = literal_text(t, TABLES_FLAMED),
		.build_id = empty,
	};
	for (uint32_t i = 0; i < TABLES_OWN_FRAMES; i++) {
		uint32_t name = literal_text(t, names[i]);

		t->own.functions[i] = (struct export_function){ name, name, empty, 0 };
		t->own.lines[i] = (struct export_line){ b->nfunctions + i, 0 };
		t->own.locations[i] = (struct export_location){ flamed, b->nlines + i, 1, i };
	}
	t->own.no_stack = find_own(t, flamed, TABLES_NO_STACK, b->nlocations);
	t->own.truncated = find_own(t, flamed, TABLES_TRUNCATED, b->nlocations + 1);
}

static int allocate(struct tables *t)
{
	const struct export_batch *b = t->b;

	t->texts = calloc(ntexts(t), sizeof(*t->texts));
	t->mapping_of = calloc((size_t)b->nmappings + 1, sizeof(*t->mapping_of));
	t->function_of =
		calloc((size_t)b->nfunctions + TABLES_OWN_FRAMES, sizeof(*t->function_of));
	t->location_of =
		calloc((size_t)b->nlocations + TABLES_OWN_FRAMES, sizeof(*t->location_of));
	t->labels_of = calloc((size_t)b->nsubjects + 1, sizeof(*t->labels_of));
	t->mapping_flags = calloc((size_t)b->nmappings + 1, sizeof(*t->mapping_flags));
	t->values = calloc((size_t)b->nsamples + 1, sizeof(*t->values));
	t->location_ids = calloc(EXPORT_FRAMES_MAX, sizeof(*t->location_ids));
	if (!t->texts || !t->mapping_of || !t->function_of || !t->location_of || !t->labels_of ||
	    !t->mapping_flags || !t->values || !t->location_ids)
		return -ENOMEM;
	return 0;
}

int tables_init(struct tables *t, const struct export_batch *b, bool has_labels, uint32_t text_max)
{
	int err;

	assert(!text_max || text_max >= sizeof(ellipsis));
	*t = (struct tables){ .b = b, .has_labels = has_labels, .text_max = text_max };
	err = allocate(t);
	if (!err)
		err = labels_services(b, &t->services, &t->services_mem);
	if (err)
		return err;
	init_texts(t);
	init_own(t);
	/* Without entropy, as at boot, the hashes are merely predictable. */
	if (getrandom(&t->seed, sizeof(t->seed), GRND_NONBLOCK) != (ssize_t)sizeof(t->seed))
		t->seed = 0;
	return 0;
}

void tables_fini(struct tables *t)
{
	for (uint32_t i = 0; t->texts && i < ntexts(t); i++) {
		if (t->texts[i].is_owned)
			free((char *)t->texts[i].text);
	}
	free(t->texts);
	free(t->services);
	free(t->services_mem);
	free(t->mapping_of);
	free(t->function_of);
	free(t->location_of);
	free(t->labels_of);
	free(t->mapping_flags);
	free(t->values);
	free(t->location_ids);
	intern_fini(&t->strings);
	intern_fini(&t->mappings);
	intern_fini(&t->functions);
	intern_fini(&t->locations);
	intern_fini(&t->labels);
	intern_fini(&t->samples);
}
