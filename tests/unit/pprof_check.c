#include "tests/unit/pprof_check.h"

#include <string.h>
#include <wchar.h>
#include <zlib.h>

#define RULE(condition, text)          \
	do {                           \
		if (!(condition))      \
			return (text); \
	} while (0)

enum { INFLATED_MAX = 256 * 1024 * 1024 };

static uint8_t *inflate_all(const void *gz, size_t len, size_t *ret_len)
{
	z_stream z = { .next_in = (z_const Bytef *)(uintptr_t)gz, .avail_in = (uInt)len };
	size_t cap = len * 8 + 4096;
	uint8_t *out = malloc(cap);
	int zerr = inflateInit2(&z, 15 + 16);

	while (out && zerr == Z_OK) {
		if (z.total_out == cap) {
			uint8_t *more = cap < INFLATED_MAX ? realloc(out, cap * 2) : NULL;

			if (!more)
				break;
			cap *= 2;
			out = more;
		}
		z.next_out = out + z.total_out;
		z.avail_out = (uInt)MIN(cap - z.total_out, (size_t)1 << 30);
		zerr = inflate(&z, Z_NO_FLUSH);
	}
	*ret_len = z.total_out;
	if (zerr != Z_STREAM_END || z.avail_in != 0) {
		free(out);
		out = NULL;
	}
	inflateEnd(&z);
	return out;
}

pprof_profile *pprof_load(const void *gz, size_t len)
{
	size_t n = 0;
	CLEANUP_FREE uint8_t *data = inflate_all(gz, len, &n);

	return data ? perftools__profiles__profile__unpack(NULL, n, data) : NULL;
}

void pprof_unload(pprof_profile *p)
{
	perftools__profiles__profile__free_unpacked(p, NULL);
}

const char *pprof_string(const pprof_profile *p, int64_t id)
{
	return id >= 0 && (uint64_t)id < p->n_string_table ? p->string_table[id] : NULL;
}

const char *pprof_function_name(const pprof_profile *p, const Perftools__Profiles__Sample *s,
				size_t frame, size_t line)
{
	const Perftools__Profiles__Location *l = p->location[s->location_id[frame] - 1];

	return pprof_string(p, p->function[l->line[line]->function_id - 1]->name);
}

const Perftools__Profiles__Label *pprof_label(const pprof_profile *p,
					      const Perftools__Profiles__Sample *s, const char *key)
{
	for (size_t i = 0; i < s->n_label; i++) {
		const char *k = pprof_string(p, s->label[i]->key);

		if (k && !strcmp(k, key))
			return s->label[i];
	}
	return NULL;
}

/* Not the product's own decoder: by the value of the code point. */
static bool is_utf8(const char *s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const uint8_t *p = (const uint8_t *)s;

	while (*p) {
		int n = *p < 0x80     ? 1 :
			*p >> 5 == 6  ? 2 :
			*p >> 4 == 14 ? 3 :
			*p >> 3 == 30 ? 4 :
					0;
		uint32_t c = n == 1 ? *p : *p & (0x7fu >> n);

		if (!n)
			return false;
		for (int i = 1; i < n; i++) {
			if ((p[i] & 0xc0) != 0x80)
				return false;
			c = c << 6 | (p[i] & 0x3f);
		}
		if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
			return false;
		p += n;
	}
	return true;
}

static bool is_type(const pprof_profile *p, const Perftools__Profiles__ValueType *t,
		    const char *type, const char *unit)
{
	return t && pprof_string(p, t->type) && !strcmp(pprof_string(p, t->type), type) &&
	       pprof_string(p, t->unit) && !strcmp(pprof_string(p, t->unit), unit);
}

static const char *check_head(const pprof_profile *p)
{
	RULE(p->n_string_table && !*p->string_table[0], "string_table[0] is not empty");
	for (size_t i = 0; i < p->n_string_table; i++)
		RULE(is_utf8(p->string_table[i]), "a string is not UTF-8");
	RULE(p->n_sample_type == 2 && is_type(p, p->sample_type[0], "samples", "count") &&
		     is_type(p, p->sample_type[1], "cpu", "nanoseconds"),
	     "sample types");
	RULE(is_type(p, p->period_type, "cpu", "nanoseconds"), "period type");
	RULE(p->default_sample_type == p->sample_type[1]->type, "default sample type");
	RULE(p->period > 0 && p->time_nanos >= 0 && p->duration_nanos >= 0, "period or times");
	return NULL;
}

static const char *check_entries(const pprof_profile *p)
{
	for (size_t i = 0; i < p->n_mapping; i++) {
		const Perftools__Profiles__Mapping *m = p->mapping[i];

		RULE(m->id == i + 1, "mapping ids");
		RULE(m->has_functions, "a mapping without functions");
		RULE(m->memory_start <= m->memory_limit, "mapping range");
		RULE(pprof_string(p, m->filename) && pprof_string(p, m->build_id),
		     "mapping strings");
	}
	for (size_t i = 0; i < p->n_function; i++) {
		const Perftools__Profiles__Function *f = p->function[i];

		RULE(f->id == i + 1, "function ids");
		RULE(pprof_string(p, f->name) && pprof_string(p, f->system_name) &&
			     pprof_string(p, f->filename),
		     "function strings");
	}
	for (size_t i = 0; i < p->n_location; i++) {
		const Perftools__Profiles__Location *l = p->location[i];

		RULE(l->id == i + 1, "location ids");
		RULE(l->mapping_id >= 1 && l->mapping_id <= p->n_mapping, "mapping of a location");
		RULE(l->n_line, "a location without a line");
		for (size_t k = 0; k < l->n_line; k++)
			RULE(l->line[k]->function_id >= 1 &&
				     l->line[k]->function_id <= p->n_function,
			     "function of a line");
	}
	return NULL;
}

static const char *check_sample(const pprof_profile *p, const Perftools__Profiles__Sample *s)
{
	RULE(s->n_location_id, "a sample without a stack");
	for (size_t i = 0; i < s->n_location_id; i++)
		RULE(s->location_id[i] >= 1 && s->location_id[i] <= p->n_location,
		     "location of a sample");
	RULE(s->n_value == 2 && s->value[0] >= 0 && s->value[1] >= 0, "values");
	RULE(s->value[0] || s->value[1], "a sample of nothing");
	return NULL;
}

static const char *check_labels(const pprof_profile *p, const Perftools__Profiles__Sample *s)
{
	const Perftools__Profiles__Label *service = pprof_label(p, s, "service_name");

	RULE(pprof_label(p, s, "pid") && pprof_label(p, s, "tid"), "no pid or tid");
	RULE(service && service->str, "no service name");
	for (size_t i = 0; i < s->n_label; i++) {
		const Perftools__Profiles__Label *l = s->label[i];

		RULE(pprof_string(p, l->key) && *pprof_string(p, l->key), "label key");
		RULE(pprof_string(p, l->str), "label string");
		RULE(!l->str || !l->num, "a label of both kinds");
	}
	return NULL;
}

static const char *check_all(const pprof_profile *p, bool is_pushed)
{
	const char *broken = check_head(p);

	if (!broken)
		broken = check_entries(p);
	for (size_t i = 0; i < p->n_sample && !broken; i++) {
		broken = check_sample(p, p->sample[i]);
		if (!broken && !is_pushed)
			broken = check_labels(p, p->sample[i]);
		if (!broken && is_pushed && p->sample[i]->n_label)
			broken = "a label that would make a series";
	}
	return broken;
}

const char *pprof_check(const pprof_profile *p)
{
	return check_all(p, false);
}

const char *pprof_check_pushed(const pprof_profile *p)
{
	return check_all(p, true);
}
