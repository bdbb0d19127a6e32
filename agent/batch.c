#include "agent/batch.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

/* What one location may add before the next look at batch_full(): MSG_LINES_MAX lines of three names. */
enum { STRINGS_RESERVE = 1024 * 1024, LINES_RESERVE = 4096 };
/* Bytes of all tables of names, without the texts. Samples and texts need the rest of a message. */
enum { TABLES_MAX = 10 * 1024 * 1024 };
/* 1 MiB of that rest. A set of them is a container or a service, hardly ever a process. */
enum { PAIRS_MAX = 128 * 1024 };

/* Open addressing over indexes + 1; the hashes are kept so that growing needs no keys. */
struct index {
	uint32_t *slots;
	uint64_t *hashes;
	size_t nslots, count, hashes_cap;
};

struct label_set {
	uint32_t first_pair, npairs;
};

struct batch {
	struct export_batch tables;
	size_t strings_cap, mappings_cap, functions_cap, lines_cap, locations_cap, pairs_cap, subjects_cap,
		samples_cap, frames_cap;
	struct label_set *sets;
	size_t nsets, sets_cap;
	struct index strings, mappings, functions, locations, sets_index;
	size_t text_bytes;
	uint64_t seed;		/* files choose their names: they must not be able to choose slots */
};

static int grow_array(void *array, size_t *cap, size_t need, size_t elem)
{
	void **p = array;
	size_t want = *cap ? *cap : 64;
	void *bigger;

	if (need <= *cap)
		return 0;
	if (need > UINT32_MAX)
		return -ENOSPC;
	while (want < need)
		want *= 2;
	bigger = reallocarray(*p, want, elem);
	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	*cap = want;
	return 0;
}

static int index_reserve(struct index *ix)
{
	size_t nslots = ix->nslots ? ix->nslots * 2 : 256;
	uint32_t *slots;
	int err;

	err = grow_array(&ix->hashes, &ix->hashes_cap, ix->count + 1, sizeof(*ix->hashes));
	if (err || (ix->count + 1) * 2 <= ix->nslots)
		return err;
	slots = calloc(nslots, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < ix->count; i++) {
		size_t at = ix->hashes[i] & (nslots - 1);

		while (slots[at])
			at = (at + 1) & (nslots - 1);
		slots[at] = (uint32_t)i + 1;
	}
	free(ix->slots);
	ix->slots = slots;
	ix->nslots = nslots;
	return 0;
}

typedef bool same_fn(const struct batch *b, uint32_t i, const void *key);

/* The slot of the key: filled (found), or empty and reserved for it. */
static int index_find(struct batch *b, struct index *ix, uint64_t hash, same_fn *same, const void *key,
		      size_t *ret_slot, uint32_t *ret_found)
{
	int err = index_reserve(ix);
	size_t at;

	if (err)
		return err;
	at = hash & (ix->nslots - 1);
	for (; ix->slots[at]; at = (at + 1) & (ix->nslots - 1)) {
		uint32_t i = ix->slots[at] - 1;

		if (ix->hashes[i] == hash && same(b, i, key)) {
			*ret_found = i;
			return 1;
		}
	}
	*ret_slot = at;
	return 0;
}

static uint32_t index_add(struct index *ix, size_t slot, uint64_t hash)
{
	ix->hashes[ix->count] = hash;
	ix->slots[slot] = (uint32_t)++ix->count;
	return (uint32_t)ix->count - 1;
}

int batch_new(struct batch **ret)
{
	CLEANUP(batch_freep) struct batch *b = calloc(1, sizeof(*b));
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint32_t empty;
	int err;

	if (!b)
		return -ENOMEM;
	if (random)
		memcpy(&b->seed, random, sizeof(b->seed));
	err = batch_string(b, "", 0, &empty);
	if (err)
		return err;
	*ret = TAKE(b);
	return 0;
}

static void index_fini(struct index *ix)
{
	free(ix->slots);
	free(ix->hashes);
}

struct batch *batch_free(struct batch *b)
{
	if (!b)
		return NULL;
	for (uint32_t i = 0; i < b->tables.nstrings; i++)
		free((void *)(uintptr_t)b->tables.strings[i].text);
	export_batch_fini(&b->tables);
	index_fini(&b->strings);
	index_fini(&b->mappings);
	index_fini(&b->functions);
	index_fini(&b->locations);
	index_fini(&b->sets_index);
	free(b->sets);
	free(b);
	return NULL;
}

static bool same_string(const struct batch *b, uint32_t i, const void *key)
{
	const struct export_string *want = key, *have = &b->tables.strings[i];

	return have->len == want->len && memcmp(have->text, want->text, want->len) == 0;
}

int batch_string(struct batch *b, const char *text, size_t len, uint32_t *ret)
{
	struct export_string want = { .text = text, .len = (uint32_t)strnlen(text, len) };
	uint64_t hash = XXH3_64bits_withSeed(text, want.len, b->seed);
	CLEANUP_FREE char *copy = NULL;
	size_t slot;
	int r;

	r = index_find(b, &b->strings, hash, same_string, &want, &slot, ret);
	if (r)
		return r < 0 ? r : 0;
	if (want.len > EXPORT_STRINGS_MAX - b->text_bytes || b->tables.nstrings == EXPORT_TABLE_MAX) {
		*ret = 0;
		return 0;
	}
	copy = strndup(text, want.len);
	if (!copy)
		return -ENOMEM;
	r = grow_array(&b->tables.strings, &b->strings_cap, (size_t)b->tables.nstrings + 1,
		       sizeof(*b->tables.strings));
	if (r)
		return r;
	want.text = TAKE(copy);
	b->tables.strings[b->tables.nstrings++] = want;
	b->text_bytes += want.len;
	*ret = index_add(&b->strings, slot, hash);
	return 0;
}

bool batch_full(const struct batch *b)
{
	const struct export_batch *t = &b->tables;
	size_t tables = (size_t)t->nstrings * 4 + (size_t)t->nmappings * 32 + (size_t)t->nfunctions * 16 +
			(size_t)t->nlines * 8 + (size_t)t->nlocations * 20;

	return tables > TABLES_MAX || b->text_bytes > EXPORT_STRINGS_MAX - STRINGS_RESERVE ||
	       t->nlines > EXPORT_TABLE_MAX - LINES_RESERVE;
}

static bool same_mapping(const struct batch *b, uint32_t i, const void *key)
{
	const struct export_mapping *w = key, *h = &b->tables.mappings[i];

	return h->start == w->start && h->limit == w->limit && h->offset == w->offset &&
	       h->filename == w->filename && h->build_id == w->build_id;
}

int batch_mapping(struct batch *b, const struct export_mapping *m, uint32_t *ret)
{
	uint64_t key[5] = { m->start, m->limit, m->offset, m->filename, m->build_id };
	uint64_t hash = XXH3_64bits_withSeed(key, sizeof(key), b->seed);
	size_t slot;
	int r = index_find(b, &b->mappings, hash, same_mapping, m, &slot, ret);

	if (r)
		return r < 0 ? r : 0;
	r = grow_array(&b->tables.mappings, &b->mappings_cap, (size_t)b->tables.nmappings + 1, sizeof(*m));
	if (r)
		return r;
	b->tables.mappings[b->tables.nmappings++] = *m;
	*ret = index_add(&b->mappings, slot, hash);
	return 0;
}

static bool same_function(const struct batch *b, uint32_t i, const void *key)
{
	const struct export_function *w = key, *h = &b->tables.functions[i];

	return h->name == w->name && h->system_name == w->system_name && h->filename == w->filename &&
	       h->start_line == w->start_line;
}

int batch_function(struct batch *b, const struct export_function *f, uint32_t *ret)
{
	uint32_t key[4] = { f->name, f->system_name, f->filename, f->start_line };
	uint64_t hash = XXH3_64bits_withSeed(key, sizeof(key), b->seed);
	size_t slot;
	int r = index_find(b, &b->functions, hash, same_function, f, &slot, ret);

	if (r)
		return r < 0 ? r : 0;
	r = grow_array(&b->tables.functions, &b->functions_cap, (size_t)b->tables.nfunctions + 1, sizeof(*f));
	if (r)
		return r;
	b->tables.functions[b->tables.nfunctions++] = *f;
	*ret = index_add(&b->functions, slot, hash);
	return 0;
}

struct location_key {
	const struct export_location *loc;
	const struct export_line *lines;
};

static bool same_location(const struct batch *b, uint32_t i, const void *key)
{
	const struct location_key *w = key;
	const struct export_location *h = &b->tables.locations[i];

	return h->mapping == w->loc->mapping && h->address == w->loc->address && h->nlines == w->loc->nlines &&
	       memcmp(b->tables.lines + h->first_line, w->lines, h->nlines * sizeof(*w->lines)) == 0;
}

int batch_location(struct batch *b, const struct export_location *loc, const struct export_line *lines,
		   uint32_t *ret)
{
	struct export_batch *t = &b->tables;
	struct location_key key = { .loc = loc, .lines = lines };
	uint64_t seed = XXH3_64bits_withSeed(lines, loc->nlines * sizeof(*lines), b->seed);
	uint64_t words[2] = { loc->mapping, loc->address };
	uint64_t hash = XXH3_64bits_withSeed(words, sizeof(words), seed);
	size_t slot;
	int r = index_find(b, &b->locations, hash, same_location, &key, &slot, ret);

	if (r)
		return r < 0 ? r : 0;
	if ((r = grow_array(&t->locations, &b->locations_cap, (size_t)t->nlocations + 1, sizeof(*loc))) ||
	    (r = grow_array(&t->lines, &b->lines_cap, (size_t)t->nlines + loc->nlines, sizeof(*lines))))
		return r;
	t->locations[t->nlocations] = *loc;
	t->locations[t->nlocations++].first_line = t->nlines;
	memcpy(t->lines + t->nlines, lines, loc->nlines * sizeof(*lines));
	t->nlines += loc->nlines;
	*ret = index_add(&b->locations, slot, hash);
	return 0;
}

/* The next of the texts that end with NUL; "" after the last. */
static const char *next_text(const char **at, const char *end)
{
	const char *text = *at;
	size_t left = (size_t)(end - text), len = strnlen(text, left);

	if (len == left)
		return "";
	*at += len + 1;
	return text;
}

struct labels_key {
	uint32_t nlabels;
	const char *text, *end;
};

static bool is_text(const struct batch *b, uint32_t string, const char *text)
{
	const struct export_string *s = &b->tables.strings[string];

	return strlen(text) == s->len && memcmp(s->text, text, s->len) == 0;
}

static bool same_labels(const struct batch *b, uint32_t i, const void *key)
{
	const struct labels_key *want = key;
	const struct label_set *set = &b->sets[i];
	const char *at = want->text;

	if (set->npairs != want->nlabels)
		return false;
	for (uint32_t k = 0; k < set->npairs; k++) {
		const struct export_pair *pair = &b->tables.pairs[set->first_pair + k];

		if (!is_text(b, pair->name, next_text(&at, want->end)) ||
		    !is_text(b, pair->value, next_text(&at, want->end)))
			return false;
	}
	return true;
}

/* Appends the pairs; fewer than nlabels are there afterwards when a text found no room. */
static int add_pairs(struct batch *b, const struct labels_key *key)
{
	struct export_batch *t = &b->tables;
	const char *at = key->text;
	int err;

	err = grow_array(&t->pairs, &b->pairs_cap, (size_t)t->npairs + key->nlabels, sizeof(*t->pairs));
	for (uint32_t i = 0; i < key->nlabels && !err; i++) {
		const char *name = next_text(&at, key->end), *value = next_text(&at, key->end);
		struct export_pair *pair = &t->pairs[t->npairs];

		if ((err = batch_string(b, name, strlen(name), &pair->name)) ||
		    (err = batch_string(b, value, strlen(value), &pair->value)))
			break;
		if ((name[0] && !pair->name) || (value[0] && !pair->value))
			break;
		t->npairs++;
	}
	return err;
}

int batch_labels(struct batch *b, uint32_t nlabels, const char *text, size_t len, uint32_t *ret_first_pair,
		 uint32_t *ret_npairs)
{
	struct labels_key key = { .nlabels = nlabels, .text = text, .end = text + len };
	struct label_set set = { .first_pair = b->tables.npairs, .npairs = nlabels };
	uint64_t hash = XXH3_64bits_withSeed(text, len, b->seed ^ nlabels);
	uint32_t found = 0;
	size_t slot;
	int r;

	*ret_first_pair = *ret_npairs = 0;
	if (!nlabels || nlabels > EXPORT_PAIRS_MAX)
		return 0;
	r = index_find(b, &b->sets_index, hash, same_labels, &key, &slot, &found);
	if (r < 0)
		return r;
	if (r == 1) {
		*ret_first_pair = b->sets[found].first_pair;
		*ret_npairs = nlabels;
		return 0;
	}
	if (nlabels > PAIRS_MAX - b->tables.npairs)
		return 0;
	r = grow_array(&b->sets, &b->sets_cap, b->nsets + 1, sizeof(set));
	if (!r)
		r = add_pairs(b, &key);
	if (r || b->tables.npairs - set.first_pair < nlabels) {
		b->tables.npairs = set.first_pair;
		return r;
	}
	b->sets[b->nsets++] = set;
	(void)index_add(&b->sets_index, slot, hash);
	*ret_first_pair = set.first_pair;
	*ret_npairs = nlabels;
	return 0;
}

int batch_subject(struct batch *b, const struct export_subject *s, uint32_t *ret)
{
	int err = grow_array(&b->tables.subjects, &b->subjects_cap, (size_t)b->tables.nsubjects + 1, sizeof(*s));

	if (err)
		return err;
	b->tables.subjects[b->tables.nsubjects] = *s;
	*ret = b->tables.nsubjects++;
	return 0;
}

int batch_sample(struct batch *b, const struct export_sample *s, const uint32_t *frames)
{
	struct export_batch *t = &b->tables;
	int err;

	if ((err = grow_array(&t->samples, &b->samples_cap, (size_t)t->nsamples + 1, sizeof(*s))) ||
	    (err = grow_array(&t->frames, &b->frames_cap, (size_t)t->nframes + s->nframes, sizeof(*frames))))
		return err;
	t->samples[t->nsamples] = *s;
	t->samples[t->nsamples++].first_frame = t->nframes;
	if (s->nframes)
		memcpy(t->frames + t->nframes, frames, s->nframes * sizeof(*frames));
	t->nframes += s->nframes;
	return 0;
}

static size_t index_bytes(const struct index *ix)
{
	return ix->nslots * sizeof(*ix->slots) + ix->hashes_cap * sizeof(*ix->hashes);
}

size_t batch_bytes(const struct batch *b)
{
	const struct export_batch *t = &b->tables;

	return sizeof(*b) + b->text_bytes + b->strings_cap * sizeof(*t->strings) +
	       b->mappings_cap * sizeof(*t->mappings) + b->functions_cap * sizeof(*t->functions) +
	       b->lines_cap * sizeof(*t->lines) + b->locations_cap * sizeof(*t->locations) +
	       b->pairs_cap * sizeof(*t->pairs) + b->subjects_cap * sizeof(*t->subjects) +
	       b->samples_cap * sizeof(*t->samples) + b->frames_cap * sizeof(*t->frames) +
	       b->sets_cap * sizeof(*b->sets) + index_bytes(&b->strings) + index_bytes(&b->mappings) +
	       index_bytes(&b->functions) + index_bytes(&b->locations) + index_bytes(&b->sets_index);
}

struct export_batch *batch_tables(struct batch *b)
{
	return &b->tables;
}
