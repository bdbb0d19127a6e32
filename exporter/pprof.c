#include "exporter/pprof.h"

#include <errno.h>
#include <string.h>

#include "exporter/gzip.h"
#include "exporter/profile.pb-c.h"
#include "exporter/tables.h"

enum { SAMPLE_LABELS_MAX = TABLES_LABELS_MAX + 3 }; /* pid, tid and comm */

/*
 * The second pass: writes by number what tables_select() found. Since a protobuf message is the
 * concatenation of its fields, each entry is packed as a profile of its own with that one entry,
 * and goes to the compressor at once.
 */

struct pprof {
	struct tables t;
	struct bufw packed;
	struct gzip gzip;
	uint64_t bytes_max;
};

static void emit(struct pprof *e, const Perftools__Profiles__Profile *p)
{
	bufw_reset(&e->packed);
	bufw_reserve(&e->packed, perftools__profiles__profile__get_packed_size(p));
	if (bufw_end(&e->packed)) {
		e->gzip.err = bufw_end(&e->packed);
		return;
	}
	perftools__profiles__profile__pack(p, e->packed.data);
	gzip_write(&e->gzip, e->packed.data, e->packed.len);
	if (!e->gzip.err && e->gzip.nbytes > e->bytes_max)
		e->gzip.err = -E2BIG;
}

static void emit_head(struct pprof *e)
{
	Perftools__Profiles__ValueType samples = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
	Perftools__Profiles__ValueType cpu = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
	Perftools__Profiles__ValueType *types[] = { &samples, &cpu };
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;

	samples.type = tables_literal(&e->t, TABLES_SAMPLES);
	samples.unit = tables_literal(&e->t, TABLES_COUNT);
	cpu.type = tables_literal(&e->t, TABLES_CPU);
	cpu.unit = tables_literal(&e->t, TABLES_NANOSECONDS);
	p.n_sample_type = ARRAY_SIZE(types);
	p.sample_type = types;
	p.default_sample_type = cpu.type;
	p.period_type = &cpu;
	p.period = (int64_t)e->t.b->period_ns;
	p.time_nanos = (int64_t)e->t.b->wall_start_ns;
	p.duration_nanos = (int64_t)e->t.b->duration_ns;
	emit(e, &p);
}

/* Returns how many. */
static size_t fill_labels(const struct pprof *e, const struct export_sample *s,
			  Perftools__Profiles__Label labels[SAMPLE_LABELS_MAX])
{
	struct tables_label of_subject[TABLES_LABELS_MAX];
	uint32_t nof_subject = tables_labels(&e->t, s->subject, of_subject);
	int64_t comm = tables_string(&e->t, s->comm);
	size_t n = 0;

	for (size_t i = 0; i < SAMPLE_LABELS_MAX; i++)
		perftools__profiles__label__init(&labels[i]);
	labels[n].key = tables_literal(&e->t, TABLES_PID);
	labels[n++].num = e->t.b->subjects[s->subject].pid;
	labels[n].key = tables_literal(&e->t, TABLES_TID);
	labels[n++].num = s->tid;
	/* A label whose string is "" cannot be told from one whose number is 0. */
	if (comm) {
		labels[n].key = tables_literal(&e->t, TABLES_COMM);
		labels[n++].str = comm;
	}
	for (uint32_t i = 0; i < nof_subject; i++) {
		labels[n].key = tables_string(&e->t, of_subject[i].name);
		labels[n++].str = tables_string(&e->t, of_subject[i].value);
	}
	return n;
}

static void emit_sample(struct pprof *e, uint32_t number)
{
	const struct export_sample *s = &e->t.b->samples[intern_thing(&e->t.samples, number)];
	Perftools__Profiles__Label labels[SAMPLE_LABELS_MAX], *label_ptrs[SAMPLE_LABELS_MAX];
	Perftools__Profiles__Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT, *one = &sample;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t values[] = {
		(int64_t)e->t.values[number].count,
		(int64_t)e->t.values[number].nanoseconds,
	};

	if (e->t.has_labels)
		sample.n_label = fill_labels(e, s, labels);
	for (size_t i = 0; i < sample.n_label; i++)
		label_ptrs[i] = &labels[i];
	sample.label = label_ptrs;
	sample.n_value = ARRAY_SIZE(values);
	sample.value = values;
	sample.n_location_id = tables_nframes(&e->t, s);
	for (uint32_t i = 0; i < sample.n_location_id; i++)
		e->t.location_ids[i] =
			e->t.location_of[tables_frame(&e->t, s, i)].number + 1ull;
	sample.location_id = e->t.location_ids;
	p.n_sample = 1;
	p.sample = &one;
	emit(e, &p);
}

static void emit_mapping(struct pprof *e, uint32_t number)
{
	const struct export_mapping *m =
		tables_mapping(&e->t, intern_thing(&e->t.mappings, number));
	Perftools__Profiles__Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT, *one = &mapping;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;
	uint8_t flags = e->t.mapping_flags[number];

	mapping.id = number + 1ull;
	mapping.memory_start = m->start;
	mapping.memory_limit = m->limit;
	mapping.file_offset = m->offset;
	mapping.filename = tables_string(&e->t, m->filename);
	mapping.build_id = tables_string(&e->t, m->build_id);
	mapping.has_functions = true;
	mapping.has_filenames = flags & TABLES_HAS_FILENAMES;
	mapping.has_line_numbers = flags & TABLES_HAS_LINES;
	mapping.has_inline_frames = flags & TABLES_HAS_INLINES;
	p.n_mapping = 1;
	p.mapping = &one;
	emit(e, &p);
}

static void emit_location(struct pprof *e, uint32_t number)
{
	const struct export_location *l =
		tables_location(&e->t, intern_thing(&e->t.locations, number));
	Perftools__Profiles__Line lines[EXPORT_LINES_MAX], *line_ptrs[EXPORT_LINES_MAX];
	Perftools__Profiles__Location location = PERFTOOLS__PROFILES__LOCATION__INIT;
	Perftools__Profiles__Location *one = &location;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;

	for (uint32_t i = 0; i < l->nlines; i++) {
		const struct export_line *line = tables_line(&e->t, l->first_line + i);

		perftools__profiles__line__init(&lines[i]);
		lines[i].function_id = e->t.function_of[line->function].number + 1ull;
		lines[i].line = line->line;
		line_ptrs[i] = &lines[i];
	}
	location.id = number + 1ull;
	location.mapping_id = e->t.mapping_of[l->mapping].number + 1ull;
	location.address = l->address;
	location.n_line = l->nlines;
	location.line = line_ptrs;
	p.n_location = 1;
	p.location = &one;
	emit(e, &p);
}

static void emit_function(struct pprof *e, uint32_t number)
{
	const struct export_function *f =
		tables_function(&e->t, intern_thing(&e->t.functions, number));
	Perftools__Profiles__Function function = PERFTOOLS__PROFILES__FUNCTION__INIT;
	Perftools__Profiles__Function *one = &function;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;

	function.id = number + 1ull;
	function.name = tables_string(&e->t, f->name);
	function.system_name = tables_string(&e->t, f->system_name);
	function.filename = tables_string(&e->t, f->filename);
	function.start_line = f->start_line;
	p.n_function = 1;
	p.function = &one;
	emit(e, &p);
}

static int emit_string(struct pprof *e, uint32_t number)
{
	const struct tables_text *t = &e->t.texts[intern_thing(&e->t.strings, number)];
	CLEANUP_FREE char *text = strndup(t->text, t->len);
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;

	if (!text)
		return -ENOMEM;
	p.n_string_table = 1;
	p.string_table = &text;
	emit(e, &p);
	return 0;
}

static int emit_all(struct pprof *e)
{
	int err = 0;

	emit_head(e);
	for (uint32_t i = 0; i < e->t.samples.n && !e->gzip.err; i++)
		emit_sample(e, i);
	for (uint32_t i = 0; i < e->t.mappings.n && !e->gzip.err; i++)
		emit_mapping(e, i);
	for (uint32_t i = 0; i < e->t.locations.n && !e->gzip.err; i++)
		emit_location(e, i);
	for (uint32_t i = 0; i < e->t.functions.n && !e->gzip.err; i++)
		emit_function(e, i);
	for (uint32_t i = 0; i < e->t.strings.n && !e->gzip.err && !err; i++)
		err = emit_string(e, i);
	return err ? err : gzip_end(&e->gzip);
}

int pprof_new(struct pprof **ret, const struct export_batch *b, const struct pprof_conf *conf)
{
	CLEANUP(pprof_freep) struct pprof *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	err = tables_init(&p->t, b, conf->has_labels, conf->text_max);
	if (err)
		return err;
	*ret = TAKE(p);
	return 0;
}

struct pprof *pprof_free(struct pprof *p)
{
	if (!p)
		return NULL;
	tables_fini(&p->t);
	bufw_fini(&p->packed);
	free(p);
	return NULL;
}

static struct pprof_totals totals_of(const struct pprof *p)
{
	struct pprof_totals totals = { .nstacks = p->t.samples.n, .nbytes = p->gzip.nbytes };

	for (uint32_t i = 0; i < p->t.samples.n; i++) {
		const struct tables_value *v = &p->t.values[i];

		totals.nsamples = tables_add_saturated(totals.nsamples, v->count);
		totals.nanoseconds = tables_add_saturated(totals.nanoseconds, v->nanoseconds);
	}
	return totals;
}

int pprof_write(struct pprof *p, const struct pprof_selection *s, struct bufw *out,
		struct pprof_totals *ret)
{
	int err;

	err = tables_select(&p->t, s->samples, s->n, s->frames_max);
	if (err)
		return err;
	if (p->t.samples.n > s->stacks_max)
		return -E2BIG;
	err = gzip_init(&p->gzip, out);
	if (err)
		return err;
	p->bytes_max = s->bytes_max;
	err = emit_all(p);
	gzip_fini(&p->gzip);
	if (!err)
		*ret = totals_of(p);
	return err;
}

int pprof_encode(struct bufw *out, const struct export_batch *b, struct pprof_totals *ret)
{
	CLEANUP(pprof_freep) struct pprof *p = NULL;
	struct pprof_selection all = {
		.frames_max = EXPORT_FRAMES_MAX,
		.stacks_max = UINT32_MAX,
		.bytes_max = UINT64_MAX,
	};
	int err;

	err = pprof_new(&p, b, &(struct pprof_conf){ .has_labels = true });
	return err ? err : pprof_write(p, &all, out, ret);
}
