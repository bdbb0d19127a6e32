#include "exporter/msg.h"

#include <errno.h>

/* Bytes of one entry of each table on the wire; of a string, at least. */
enum {
	WIRE_STRING = 4,
	WIRE_MAPPING = 32,
	WIRE_FUNCTION = 16,
	WIRE_LINE = 8,
	WIRE_LOCATION = 20,
	WIRE_PAIR = 8,
	WIRE_SUBJECT = 36,
	WIRE_SAMPLE = 36,
	WIRE_FRAME = 4,
};

void export_batch_fini(struct export_batch *b)
{
	free(b->strings);
	free(b->mappings);
	free(b->functions);
	free(b->lines);
	free(b->locations);
	free(b->pairs);
	free(b->subjects);
	free(b->samples);
	free(b->frames);
	*b = (struct export_batch){};
}

static void encode_names(struct bufw *w, const struct export_batch *b)
{
	bufw_u32(w, b->nstrings);
	for (uint32_t i = 0; i < b->nstrings; i++)
		bufw_blob(w, b->strings[i].text, b->strings[i].len);
	bufw_u32(w, b->nmappings);
	for (uint32_t i = 0; i < b->nmappings; i++) {
		const struct export_mapping *m = &b->mappings[i];

		bufw_u64(w, m->start);
		bufw_u64(w, m->limit);
		bufw_u64(w, m->offset);
		bufw_u32(w, m->filename);
		bufw_u32(w, m->build_id);
	}
	bufw_u32(w, b->nfunctions);
	for (uint32_t i = 0; i < b->nfunctions; i++) {
		const struct export_function *f = &b->functions[i];

		bufw_u32(w, f->name);
		bufw_u32(w, f->system_name);
		bufw_u32(w, f->filename);
		bufw_u32(w, f->start_line);
	}
	bufw_u32(w, b->nlines);
	for (uint32_t i = 0; i < b->nlines; i++) {
		bufw_u32(w, b->lines[i].function);
		bufw_u32(w, b->lines[i].line);
	}
	bufw_u32(w, b->nlocations);
	for (uint32_t i = 0; i < b->nlocations; i++) {
		const struct export_location *l = &b->locations[i];

		bufw_u32(w, l->mapping);
		bufw_u32(w, l->first_line);
		bufw_u32(w, l->nlines);
		bufw_u64(w, l->address);
	}
}

static void encode_samples(struct bufw *w, const struct export_batch *b)
{
	bufw_u32(w, b->npairs);
	for (uint32_t i = 0; i < b->npairs; i++) {
		bufw_u32(w, b->pairs[i].name);
		bufw_u32(w, b->pairs[i].value);
	}
	bufw_u32(w, b->nsubjects);
	for (uint32_t i = 0; i < b->nsubjects; i++) {
		const struct export_subject *s = &b->subjects[i];

		bufw_u64(w, s->id);
		bufw_u32(w, s->pid);
		bufw_u32(w, s->flags);
		bufw_u64(w, s->cgroup_id);
		bufw_u32(w, s->executable);
		bufw_u32(w, s->first_pair);
		bufw_u32(w, s->npairs);
	}
	bufw_u32(w, b->nframes);
	for (uint32_t i = 0; i < b->nframes; i++)
		bufw_u32(w, b->frames[i]);
	bufw_u32(w, b->nsamples);
	for (uint32_t i = 0; i < b->nsamples; i++) {
		const struct export_sample *s = &b->samples[i];

		bufw_u32(w, s->subject);
		bufw_u32(w, s->tid);
		bufw_u32(w, s->comm);
		bufw_u32(w, s->first_frame);
		bufw_u32(w, s->nframes);
		bufw_u64(w, s->count);
		bufw_u64(w, s->nanoseconds);
	}
}

uint64_t export_batch_count(const struct export_batch *b)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < b->nsamples; i++) {
		if (__builtin_add_overflow(n, b->samples[i].count, &n))
			return UINT64_MAX;
	}
	return n;
}

void export_batch_encode(struct bufw *w, const struct export_batch *b)
{
	bufw_u64(w, b->id);
	bufw_u64(w, b->tap);
	bufw_u64(w, b->wall_start_ns);
	bufw_u64(w, b->duration_ns);
	bufw_u64(w, b->period_ns);
	encode_names(w, b);
	encode_samples(w, b);
}

/*
 * The count of a table and its memory, one entry at least, so that NULL means out of memory. The
 * count is checked against the bytes that are there before anything is allocated.
 */
static int decode_table(struct bufr *in, uint32_t max, size_t wire_size, size_t size,
			uint32_t *ret_n, void **ret_table)
{
	uint32_t n = bufr_count(in, max, wire_size);
	void *table;

	if (bufr_err(in))
		return -EBADMSG;
	table = calloc(n ? n : 1, size);
	if (!table)
		return -ENOMEM;
	*ret_n = n;
	*ret_table = table;
	return 0;
}

static int decode_strings(struct bufr *in, struct export_batch *b)
{
	uint64_t total = 0;
	size_t len;
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_STRING, sizeof(*b->strings), &b->nstrings,
			       (void **)&b->strings);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nstrings && !bufr_err(in); i++) {
		b->strings[i].text = bufr_blob(in, EXPORT_STRINGS_MAX, &len);
		if (bufr_err(in))
			break;
		b->strings[i].len = (uint32_t)len;
		total += len;
	}
	if (b->nstrings == 0 || b->strings[0].len != 0 || total > EXPORT_STRINGS_MAX)
		bufr_fail(in);
	return 0;
}

static int decode_mappings(struct bufr *in, struct export_batch *b)
{
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_MAPPING, sizeof(*b->mappings),
			       &b->nmappings, (void **)&b->mappings);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nmappings; i++) {
		struct export_mapping *m = &b->mappings[i];

		m->start = bufr_u64(in);
		m->limit = bufr_u64(in);
		m->offset = bufr_u64(in);
		m->filename = bufr_u32(in);
		m->build_id = bufr_u32(in);
		if (m->start > m->limit || m->filename >= b->nstrings || m->build_id >= b->nstrings)
			bufr_fail(in);
	}
	return 0;
}

static int decode_functions(struct bufr *in, struct export_batch *b)
{
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_FUNCTION, sizeof(*b->functions),
			       &b->nfunctions, (void **)&b->functions);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nfunctions; i++) {
		struct export_function *f = &b->functions[i];

		f->name = bufr_u32(in);
		f->system_name = bufr_u32(in);
		f->filename = bufr_u32(in);
		f->start_line = bufr_u32(in);
		if (f->name >= b->nstrings || f->system_name >= b->nstrings ||
		    f->filename >= b->nstrings)
			bufr_fail(in);
	}
	return 0;
}

static int decode_lines(struct bufr *in, struct export_batch *b)
{
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_LINE, sizeof(*b->lines), &b->nlines,
			       (void **)&b->lines);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nlines; i++) {
		b->lines[i].function = bufr_u32(in);
		b->lines[i].line = bufr_u32(in);
		if (b->lines[i].function >= b->nfunctions)
			bufr_fail(in);
	}
	return 0;
}

static int decode_locations(struct bufr *in, struct export_batch *b)
{
	uint64_t total = 0;
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_LOCATION, sizeof(*b->locations),
			       &b->nlocations, (void **)&b->locations);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nlocations; i++) {
		struct export_location *l = &b->locations[i];

		l->mapping = bufr_u32(in);
		l->first_line = bufr_u32(in);
		l->nlines = bufr_u32(in);
		l->address = bufr_u64(in);
		if (l->mapping >= b->nmappings || l->nlines == 0 || l->nlines > EXPORT_LINES_MAX ||
		    (uint64_t)l->first_line + l->nlines > b->nlines)
			bufr_fail(in);
		total += l->nlines;
	}
	if (total > EXPORT_TOTAL_MAX)
		bufr_fail(in);
	return 0;
}

static int decode_pairs(struct bufr *in, struct export_batch *b)
{
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_PAIR, sizeof(*b->pairs), &b->npairs,
			       (void **)&b->pairs);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->npairs; i++) {
		b->pairs[i].name = bufr_u32(in);
		b->pairs[i].value = bufr_u32(in);
		if (b->pairs[i].name >= b->nstrings || b->pairs[i].value >= b->nstrings)
			bufr_fail(in);
	}
	return 0;
}

static int decode_subjects(struct bufr *in, struct export_batch *b)
{
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_SUBJECT, sizeof(*b->subjects),
			       &b->nsubjects, (void **)&b->subjects);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nsubjects; i++) {
		struct export_subject *s = &b->subjects[i];

		s->id = bufr_u64(in);
		s->pid = bufr_u32(in);
		s->flags = bufr_u32(in);
		s->cgroup_id = bufr_u64(in);
		s->executable = bufr_u32(in);
		s->first_pair = bufr_u32(in);
		s->npairs = bufr_u32(in);
		if (s->executable >= b->nstrings || s->npairs > EXPORT_PAIRS_MAX ||
		    (uint64_t)s->first_pair + s->npairs > b->npairs)
			bufr_fail(in);
	}
	return 0;
}

static int decode_frames(struct bufr *in, struct export_batch *b)
{
	int err = decode_table(in, EXPORT_TOTAL_MAX, WIRE_FRAME, sizeof(*b->frames), &b->nframes,
			       (void **)&b->frames);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nframes; i++) {
		b->frames[i] = bufr_u32(in);
		if (b->frames[i] >= b->nlocations)
			bufr_fail(in);
	}
	return 0;
}

static int decode_samples(struct bufr *in, struct export_batch *b)
{
	uint64_t total = 0;
	int err = decode_table(in, EXPORT_TABLE_MAX, WIRE_SAMPLE, sizeof(*b->samples), &b->nsamples,
			       (void **)&b->samples);

	if (err)
		return err;
	for (uint32_t i = 0; i < b->nsamples; i++) {
		struct export_sample *s = &b->samples[i];

		s->subject = bufr_u32(in);
		s->tid = bufr_u32(in);
		s->comm = bufr_u32(in);
		s->first_frame = bufr_u32(in);
		s->nframes = bufr_u32(in);
		s->count = bufr_u64(in);
		s->nanoseconds = bufr_u64(in);
		if (s->subject >= b->nsubjects || s->comm >= b->nstrings ||
		    s->nframes > EXPORT_FRAMES_MAX ||
		    (uint64_t)s->first_frame + s->nframes > b->nframes || s->count > INT64_MAX ||
		    s->nanoseconds > INT64_MAX)
			bufr_fail(in);
		total += s->nframes;
	}
	/* Ranges may overlap: without this a small message could ask for a profile of any size. */
	if (total > EXPORT_TOTAL_MAX)
		bufr_fail(in);
	return 0;
}

/* In the order of the wire; a table is checked against those before it. */
static int decode_tables(struct bufr *in, struct export_batch *b)
{
	static int (*const tables[])(struct bufr *, struct export_batch *) = {
		decode_strings,	  decode_mappings, decode_functions, decode_lines,  decode_locations,
		decode_pairs,	  decode_subjects, decode_frames,    decode_samples,
	};
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		err = tables[i](in, b);
		if (err)
			return err;
		if (bufr_err(in))
			return -EBADMSG;
	}
	return 0;
}

int export_batch_decode(struct bufr *in, struct export_batch *ret)
{
	struct export_batch b = {};
	int err;

	b.id = bufr_u64(in);
	b.tap = bufr_u64(in);
	b.wall_start_ns = bufr_u64(in);
	b.duration_ns = bufr_u64(in);
	b.period_ns = bufr_u64(in);
	if (b.wall_start_ns > INT64_MAX || b.duration_ns > INT64_MAX || b.period_ns == 0 ||
	    b.period_ns > INT64_MAX)
		bufr_fail(in);
	err = decode_tables(in, &b);
	if (err) {
		export_batch_fini(&b);
		return err;
	}
	*ret = b;
	return 0;
}
