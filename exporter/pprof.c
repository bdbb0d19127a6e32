#include "exporter/pprof.h"

#include <errno.h>
#include <string.h>

#include "exporter/gzip.h"
#include "exporter/profile.pb-c.h"
#include "exporter/tables.h"

/*
 * The second pass: writes by number what tables_init() found. Since a protobuf message is the
 * concatenation of its fields, each entry is packed as a profile of its own with that one entry,
 * and goes to the compressor at once.
 */

struct encoder {
	struct tables t;
	struct bufw packed;
	struct gzip gzip;
};

static void emit(struct encoder *e, const Perftools__Profiles__Profile *p)
{
	bufw_reset(&e->packed);
	bufw_reserve(&e->packed, perftools__profiles__profile__get_packed_size(p));
	if (bufw_end(&e->packed)) {
		e->gzip.err = bufw_end(&e->packed);
		return;
	}
	perftools__profiles__profile__pack(p, e->packed.data);
	gzip_write(&e->gzip, e->packed.data, e->packed.len);
}

static void emit_head(struct encoder *e)
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

static void emit_sample(struct encoder *e, uint32_t number)
{
	const struct export_sample *s = &e->t.b->samples[intern_thing(&e->t.samples, number)];
	Perftools__Profiles__Label labels[4];
	Perftools__Profiles__Label *label_ptrs[ARRAY_SIZE(labels)];
	Perftools__Profiles__Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT, *one = &sample;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t values[] = {
		(int64_t)e->t.values[number].count,
		(int64_t)e->t.values[number].nanoseconds,
	};

	for (size_t i = 0; i < ARRAY_SIZE(labels); i++) {
		perftools__profiles__label__init(&labels[i]);
		label_ptrs[i] = &labels[i];
	}
	labels[0].key = tables_literal(&e->t, TABLES_PID);
	labels[0].num = e->t.b->subjects[s->subject].pid;
	labels[1].key = tables_literal(&e->t, TABLES_TID);
	labels[1].num = s->tid;
	labels[2].key = tables_literal(&e->t, TABLES_SERVICE_NAME);
	labels[2].str = tables_string(&e->t, tables_service_text(&e->t, s->subject));
	labels[3].key = tables_literal(&e->t, TABLES_COMM);
	labels[3].str = tables_string(&e->t, s->comm);
	/* A label whose string is "" cannot be told from one whose number is 0. */
	sample.n_label = labels[3].str ? 4 : 3;
	sample.label = label_ptrs;
	sample.n_value = ARRAY_SIZE(values);
	sample.value = values;
	for (uint32_t i = 0; i < s->nframes; i++)
		e->t.location_ids[i] = e->t.location_of[e->t.b->frames[s->first_frame + i]] + 1ull;
	sample.n_location_id = s->nframes;
	if (!s->nframes)
		e->t.location_ids[sample.n_location_id++] = e->t.locations.n + 1ull;
	sample.location_id = e->t.location_ids;
	p.n_sample = 1;
	p.sample = &one;
	emit(e, &p);
}

static void emit_mapping(struct encoder *e, uint32_t number)
{
	const struct export_mapping *m = &e->t.b->mappings[intern_thing(&e->t.mappings, number)];
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

static void emit_location(struct encoder *e, uint32_t number)
{
	const struct export_location *l = &e->t.b->locations[intern_thing(&e->t.locations, number)];
	Perftools__Profiles__Line lines[EXPORT_LINES_MAX], *line_ptrs[EXPORT_LINES_MAX];
	Perftools__Profiles__Location location = PERFTOOLS__PROFILES__LOCATION__INIT;
	Perftools__Profiles__Location *one = &location;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;

	for (uint32_t i = 0; i < l->nlines; i++) {
		const struct export_line *line = &e->t.b->lines[l->first_line + i];

		perftools__profiles__line__init(&lines[i]);
		lines[i].function_id = e->t.function_of[line->function] + 1ull;
		lines[i].line = line->line;
		line_ptrs[i] = &lines[i];
	}
	location.id = number + 1ull;
	location.mapping_id = e->t.mapping_of[l->mapping] + 1ull;
	location.address = l->address;
	location.n_line = l->nlines;
	location.line = line_ptrs;
	p.n_location = 1;
	p.location = &one;
	emit(e, &p);
}

static void emit_function(struct encoder *e, uint32_t number)
{
	const struct export_function *f = &e->t.b->functions[intern_thing(&e->t.functions, number)];
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

/* A sample without a stack still shows: servers and flame graphs drop samples without frames. */
static void emit_empty_stack(struct encoder *e)
{
	Perftools__Profiles__Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT;
	Perftools__Profiles__Mapping *mappings = &mapping;
	Perftools__Profiles__Function function = PERFTOOLS__PROFILES__FUNCTION__INIT;
	Perftools__Profiles__Function *functions = &function;
	Perftools__Profiles__Line line = PERFTOOLS__PROFILES__LINE__INIT, *lines = &line;
	Perftools__Profiles__Location location = PERFTOOLS__PROFILES__LOCATION__INIT;
	Perftools__Profiles__Location *locations = &location;
	Perftools__Profiles__Profile p = PERFTOOLS__PROFILES__PROFILE__INIT;

	mapping.id = e->t.mappings.n + 1ull;
	mapping.memory_limit = 1; /* holds its one address, 0 */
	mapping.filename = tables_literal(&e->t, TABLES_FLAMED);
	mapping.has_functions = true;
	function.id = e->t.functions.n + 1ull;
	function.name = tables_literal(&e->t, TABLES_NO_STACK);
	function.system_name = function.name;
	line.function_id = function.id;
	location.id = e->t.locations.n + 1ull;
	location.mapping_id = mapping.id;
	location.n_line = 1;
	location.line = &lines;
	p.n_mapping = p.n_location = p.n_function = 1;
	p.mapping = &mappings;
	p.location = &locations;
	p.function = &functions;
	emit(e, &p);
}

static int emit_string(struct encoder *e, uint32_t number)
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

static int emit_all(struct encoder *e)
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
	if (e->t.has_empty_stack)
		emit_empty_stack(e);
	for (uint32_t i = 0; i < e->t.strings.n && !e->gzip.err && !err; i++)
		err = emit_string(e, i);
	return err ? err : gzip_end(&e->gzip);
}

static void encoder_fini(struct encoder *e)
{
	tables_fini(&e->t);
	bufw_fini(&e->packed);
	gzip_fini(&e->gzip);
}

int pprof_encode(struct bufw *out, const struct export_batch *b, struct pprof_totals *ret)
{
	CLEANUP(encoder_fini) struct encoder e = {};
	struct pprof_totals totals = {};
	int err;

	err = tables_init(&e.t, b);
	if (!err)
		err = gzip_init(&e.gzip, out);
	if (!err)
		err = emit_all(&e);
	if (err)
		return err;
	for (uint32_t i = 0; i < e.t.samples.n; i++) {
		totals.nsamples = tables_add_saturated(totals.nsamples, e.t.values[i].count);
		totals.nanoseconds =
			tables_add_saturated(totals.nanoseconds, e.t.values[i].nanoseconds);
	}
	totals.nstacks = e.t.samples.n;
	totals.nbytes = e.gzip.nbytes;
	*ret = totals;
	return 0;
}
