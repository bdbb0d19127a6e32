#include "exporter/names.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/intern.h"
#include "exporter/labels.h"

#define IDLE_NS (3600 * NSEC_PER_SEC)

enum { PLACES_MAX = NAMES_EXECUTABLES_MAX + NAMES_UNITS_MAX };

static const uint32_t most[NAMES_NKINDS] = {
	[NAMES_EXECUTABLE] = NAMES_EXECUTABLES_MAX,
	[NAMES_UNIT] = NAMES_UNITS_MAX,
};

struct place {
	char *name;
	size_t len;
	enum names_kind kind;
	uint64_t seen_ns;
};

struct names {
	uint64_t seed;
	struct place places[PLACES_MAX]; /* sorted by name */
	uint32_t nplaces;
	struct names_stats stats;
	struct log_limit limits[NAMES_NKINDS];
};

/* ---- places ---------------------------------------------------------------------------------- */

static int compare(const struct place *p, const char *name, size_t len)
{
	int order = memcmp(p->name, name, MIN(p->len, len));

	return order ? order : (p->len > len) - (p->len < len);
}

/* Where the name is, or would be. */
static uint32_t search_place(const struct names *n, const struct export_string *name,
			     bool *ret_found)
{
	uint32_t low = 0, high = n->nplaces;

	*ret_found = false;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		int order = compare(&n->places[mid], name->text, name->len);

		if (!order) {
			*ret_found = true;
			return mid;
		}
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void remove_place(struct names *n, uint32_t at)
{
	n->stats.n[n->places[at].kind]--;
	free(n->places[at].name);
	n->nplaces--;
	memmove(n->places + at, n->places + at + 1, (n->nplaces - at) * sizeof(n->places[0]));
}

/* The one that nobody has used for longest makes room, when that is long enough. */
static bool make_room(struct names *n, enum names_kind kind, uint64_t now_ns)
{
	uint32_t oldest = PLACES_MAX;

	if (n->stats.n[kind] < most[kind])
		return true;
	for (uint32_t i = 0; i < n->nplaces; i++) {
		if (n->places[i].kind == kind &&
		    (oldest == PLACES_MAX || n->places[i].seen_ns < n->places[oldest].seen_ns))
			oldest = i;
	}
	assert(oldest < n->nplaces);
	if (now_ns - n->places[oldest].seen_ns < IDLE_NS)
		return false;
	remove_place(n, oldest);
	return true;
}

/* A positive answer: there is no place. */
static int add_place(struct names *n, const struct export_string *name, enum names_kind kind,
		     uint64_t now_ns)
{
	bool is_known;
	uint32_t at;
	char *copy;

	if (!make_room(n, kind, now_ns))
		return 1;
	copy = strndup(name->text, name->len);
	if (!copy)
		return -ENOMEM;
	at = search_place(n, name, &is_known);
	assert(!is_known && n->nplaces < PLACES_MAX);
	memmove(n->places + at + 1, n->places + at, (n->nplaces - at) * sizeof(n->places[0]));
	n->places[at] = (struct place){ copy, name->len, kind, now_ns };
	n->nplaces++;
	n->stats.n[kind]++;
	return 0;
}

/* A name that is also a unit's takes a place of these. */
static bool find_place(struct names *n, const struct export_string *name, enum names_kind kind,
		       uint64_t now_ns)
{
	bool is_known;
	struct place *p = &n->places[search_place(n, name, &is_known)];

	if (!is_known)
		return false;
	p->seen_ns = now_ns;
	if (kind > p->kind && n->stats.n[kind] < most[kind]) {
		n->stats.n[p->kind]--;
		n->stats.n[kind]++;
		p->kind = kind;
	}
	return true;
}

/* ---- the names of a window ------------------------------------------------------------------- */

struct used {
	struct export_string name;
	enum names_kind kind;
	uint64_t nsamples;
	bool is_other;
};

struct window {
	const struct export_batch *b;
	struct export_string *services; /* by subject */
	void *services_mem;
	struct intern set; /* of names; things: subjects */
	uint32_t *used_of; /* by subject */
	struct used *used;
	uint32_t nused;
	struct used **unknown;
	uint32_t nunknown;
};

static void window_fini(struct window *w)
{
	free(w->services);
	free(w->services_mem);
	intern_fini(&w->set);
	free(w->used_of);
	free(w->used);
	free(w->unknown);
}

static bool is_text(const struct export_string *s, const char *text)
{
	return s->len == strlen(text) && !memcmp(s->text, text, s->len);
}

static bool names_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct window *w = arg;
	const struct export_string *x = &w->services[a], *y = &w->services[b];

	return x->len == y->len && !memcmp(x->text, y->text, x->len);
}

static enum names_kind kind_of(const struct export_batch *b, const struct export_subject *s)
{
	for (uint32_t i = 0; i < s->npairs; i++) {
		if (is_text(&b->strings[b->pairs[s->first_pair + i].name], "unit"))
			return NAMES_UNIT;
	}
	return NAMES_EXECUTABLE;
}

static int read_window(struct window *w, const struct export_batch *b, uint64_t seed)
{
	int err;

	w->b = b;
	w->used_of = calloc((size_t)b->nsubjects + 1, sizeof(*w->used_of));
	w->used = calloc((size_t)b->nsubjects + 1, sizeof(*w->used));
	w->unknown = calloc((size_t)b->nsubjects + 1, sizeof(struct used *));
	if (!w->used_of || !w->used || !w->unknown)
		return -ENOMEM;
	err = labels_services(b, &w->services, &w->services_mem);
	for (uint32_t i = 0; i < b->nsubjects && !err; i++) {
		const struct export_string *name = &w->services[i];
		enum names_kind kind = kind_of(b, &b->subjects[i]);

		err = intern_put(&w->set, XXH3_64bits_withSeed(name->text, name->len, seed), i,
				 names_equal, w, &w->used_of[i]);
		if (err)
			break;
		w->used[w->used_of[i]].name = *name;
		w->used[w->used_of[i]].kind = MAX(w->used[w->used_of[i]].kind, kind);
	}
	if (err)
		return err;
	w->nused = w->set.n;
	for (uint32_t i = 0; i < b->nsamples; i++) {
		struct used *u = &w->used[w->used_of[b->samples[i].subject]];

		u->nsamples += MIN(b->samples[i].count, UINT64_MAX - u->nsamples);
	}
	return 0;
}

static int by_weight(const void *a, const void *b)
{
	const struct used *x = *(struct used *const *)a, *y = *(struct used *const *)b;
	int order = memcmp(x->name.text, y->name.text, MIN(x->name.len, y->name.len));

	if (x->nsamples != y->nsamples)
		return x->nsamples < y->nsamples ? 1 : -1;
	return order ? order : (x->name.len > y->name.len) - (x->name.len < y->name.len);
}

static void tell_other(struct names *n, const struct used *u)
{
	static const char *const hints[NAMES_NKINDS] = {
		[NAMES_EXECUTABLE] = "a program that runs in a systemd service has its name; "
				     "processes.exclude leaves programs out",
		[NAMES_UNIT] = "processes.exclude leaves units with ever new names out",
	};

	log_limited(&n->limits[u->kind], LOG_WARNING,
		    "more services in an hour than are told apart, new ones are filed under "
		    "service_name=" NAMES_OTHER " from=%s limit=%u name=%s hint='%s'",
		    u->kind == NAMES_UNIT ? "unit" : "executable", most[u->kind],
		    log_str(u->name.text, u->name.len).text, hints[u->kind]);
}

/* Those that have a place keep it before any new one looks for one. */
static int give_places(struct names *n, struct window *w, uint64_t now_ns)
{
	static const char *const free_names[] = { "kernel", NAMES_OTHER, "unknown" };

	for (uint32_t i = 0; i < w->nused; i++) {
		struct used *u = &w->used[i];
		bool is_free = false;

		for (size_t k = 0; k < ARRAY_SIZE(free_names); k++)
			is_free |= is_text(&u->name, free_names[k]);
		if (!is_free && !find_place(n, &u->name, u->kind, now_ns))
			w->unknown[w->nunknown++] = u;
	}
	qsort(w->unknown, w->nunknown, sizeof(struct used *), by_weight);
	for (uint32_t i = 0; i < w->nunknown; i++) {
		int err = add_place(n, &w->unknown[i]->name, w->unknown[i]->kind, now_ns);

		if (err < 0)
			return err;
		w->unknown[i]->is_other = err > 0;
	}
	return 0;
}

/* ---- the batch ------------------------------------------------------------------------------- */

/* A string and a pair behind the others. */
static int add_other(struct export_batch *b)
{
	static const struct export_string texts[] = { { "service_name", 12 }, { NAMES_OTHER, 5 } };
	struct export_string *strings =
		reallocarray(b->strings, (size_t)b->nstrings + 2, sizeof(*strings));
	struct export_pair *pairs;

	if (!strings)
		return -ENOMEM;
	b->strings = strings;
	pairs = reallocarray(b->pairs, (size_t)b->npairs + 1, sizeof(*pairs));
	if (!pairs)
		return -ENOMEM;
	b->pairs = pairs;
	memcpy(b->strings + b->nstrings, texts, sizeof(texts));
	b->pairs[b->npairs++] = (struct export_pair){ b->nstrings, b->nstrings + 1 };
	b->nstrings += 2;
	return 0;
}

static void rename_subject(struct export_batch *b, struct export_subject *s)
{
	const uint32_t other = b->npairs - 1;

	/* A range that others share is theirs too: they have the same name. */
	for (uint32_t i = 0; i < s->npairs; i++) {
		struct export_pair *p = &b->pairs[s->first_pair + i];

		if (is_text(&b->strings[p->name], "service_name")) {
			p->value = b->pairs[other].value;
			return;
		}
	}
	s->first_pair = other;
	s->npairs = 1;
}

int names_bound(struct names *n, struct export_batch *b, uint64_t now_ns, bool *ret_changed)
{
	CLEANUP(window_fini) struct window w = {};
	bool is_changed = false;
	int err = read_window(&w, b, n->seed);

	if (!err)
		err = give_places(n, &w, now_ns);
	for (uint32_t i = 0; i < w.nunknown && !err; i++) {
		if (!w.unknown[i]->is_other)
			continue;
		if (!is_changed)
			err = add_other(b);
		if (err)
			break;
		is_changed = true;
		tell_other(n, w.unknown[i]);
		n->stats.nother += w.unknown[i]->nsamples;
	}
	if (err)
		return err;
	for (uint32_t i = 0; i < b->nsubjects && is_changed; i++) {
		if (w.used[w.used_of[i]].is_other)
			rename_subject(b, &b->subjects[i]);
	}
	*ret_changed = is_changed;
	return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

int names_new(struct names **ret)
{
	struct names *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	if (getrandom(&n->seed, sizeof(n->seed), GRND_NONBLOCK) != (ssize_t)sizeof(n->seed))
		n->seed = 0;
	for (size_t i = 0; i < ARRAY_SIZE(n->limits); i++)
		n->limits[i] = (struct log_limit){ .interval_ns = 600 * NSEC_PER_SEC, .burst = 1 };
	*ret = n;
	return 0;
}

struct names *names_free(struct names *n)
{
	if (!n)
		return NULL;
	for (uint32_t i = 0; i < n->nplaces; i++)
		free(n->places[i].name);
	free(n);
	return NULL;
}

void names_stats(const struct names *n, struct names_stats *ret)
{
	*ret = n->stats;
}
