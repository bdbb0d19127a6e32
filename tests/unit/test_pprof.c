#include "exporter/pprof.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/export_fixture.h"
#include "tests/unit/pprof_check.h"

static void unloadp(pprof_profile **p)
{
	if (*p)
		pprof_unload(*p);
}

static pprof_profile *load_checked(const struct bufw *w)
{
	pprof_profile *p = pprof_load(w->data, w->len);
	const char *broken;

	assert_non_null(p);
	broken = pprof_check(p);
	if (broken)
		fail_msg("%s", broken);
	return p;
}

static pprof_profile *profile_of(const struct export_batch *b, struct pprof_totals *ret)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	assert_int_equal(pprof_encode(&w, b, ret), 0);
	return load_checked(&w);
}

static void a_profile_says_what_the_batch_says(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	const Perftools__Profiles__Mapping *m;
	const Perftools__Profiles__Location *l;
	const Perftools__Profiles__Function *fn;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->period, 10000000);
	assert_int_equal(p->time_nanos, 1700000000000000000ll);
	assert_int_equal(p->duration_nanos, 15000000000ll);
	assert_int_equal(p->n_sample, 3);
	assert_int_equal(totals.nsamples, 8);
	assert_int_equal(totals.nanoseconds, 80130000);
	assert_int_equal(totals.nstacks, 3);

	assert_int_equal(p->sample[0]->n_location_id, 3);
	assert_string_equal(pprof_function_name(p, p->sample[0], 0, 0), "twice");
	assert_string_equal(pprof_function_name(p, p->sample[0], 0, 1), "spin");
	assert_string_equal(pprof_function_name(p, p->sample[0], 1, 0), "main");
	assert_string_equal(pprof_function_name(p, p->sample[0], 2, 0), "__libc_start_main");
	assert_int_equal(p->sample[0]->value[0], 5);
	assert_int_equal(p->sample[0]->value[1], 50000000);
	assert_string_equal(pprof_function_name(p, p->sample[2], 0, 0), "do_syscall_64");

	l = p->location[p->sample[0]->location_id[0] - 1];
	assert_int_equal(l->address, 0x1234);
	assert_int_equal(l->line[0]->line, 6);
	fn = p->function[l->line[1]->function_id - 1];
	assert_string_equal(pprof_string(p, fn->system_name), "spin.isra.0");
	assert_string_equal(pprof_string(p, fn->filename), "app.c");
	assert_int_equal(fn->start_line, 10);
	m = p->mapping[l->mapping_id - 1];
	assert_int_equal(m->memory_start, 0x1000);
	assert_int_equal(m->memory_limit, 0x9000);
	assert_int_equal(m->file_offset, 0x1000);
	assert_string_equal(pprof_string(p, m->filename), "/usr/bin/app");
	assert_string_equal(pprof_string(p, m->build_id), "00aabbccddeeff11");
	assert_true(m->has_filenames && m->has_line_numbers && m->has_inline_frames);
	m = p->mapping[p->location[p->sample[0]->location_id[2] - 1]->mapping_id - 1];
	assert_string_equal(pprof_string(p, m->filename), "/usr/lib/libc.so.6");
	assert_false(m->has_filenames || m->has_line_numbers || m->has_inline_frames);
}

static void samples_carry_their_labels(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.samples[1].comm = 0; /* an empty comm cannot be told from a number and is left out */
	p = profile_of(&f.batch, &totals);
	assert_int_equal(pprof_label(p, p->sample[1], "pid")->num, 100);
	assert_int_equal(pprof_label(p, p->sample[1], "tid")->num, 101);
	assert_null(pprof_label(p, p->sample[1], "comm"));
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "comm")->str), "app");
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "service_name")->str),
			    "app");
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "container_id")->str), "c0ffee");
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[2], "comm")->str),
			    "kworker/0:1");
	assert_null(pprof_label(p, p->sample[2], "container_id"));
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[2], "service_name")->str),
			    "kernel");
}

/* One process, one service: its other threads must not be filed elsewhere. */
static void without_an_executable_the_main_thread_names_the_service(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_sample swap;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.subjects[0].executable = f.subjects[0].npairs = 0;
	swap = f.samples[0];
	f.samples[0] = f.samples[1];
	f.samples[1] = swap;
	p = profile_of(&f.batch, &totals);
	for (size_t i = 0; i < 2; i++)
		assert_string_equal(
			pprof_string(p, pprof_label(p, p->sample[i], "service_name")->str), "app");
}

/* A label that a sample has anyway, one without a value, one twice, names that are none. */
static void odd_labels_are_left_out(void **state)
{
	static const char *const odd[][2] = { { "pid", "x" },	  { "comm", "x" }, { "unit", "" }, { "unit", "a.service" },
					      { "unit", "b.service" }, { "a-b", "x" },  { "", "x" },    { "1a", "x" } };
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	for (uint32_t i = 0; i < ARRAY_SIZE(odd); i++)
		f.pairs[i] = (struct export_pair){ export_fixture_string(&f, odd[i][0]),
						   export_fixture_string(&f, odd[i][1]) };
	f.batch.npairs = f.subjects[0].npairs = ARRAY_SIZE(odd);
	f.subjects[0].first_pair = 0;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->sample[0]->n_label, 5);
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "unit")->str), "a.service");
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "service_name")->str), "app");
}

/* Two processes of one pid, before and after an exec. */
static void samples_of_different_labels_stay_apart(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL, *q = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.subjects[2] = f.subjects[0];
	f.batch.nsubjects = 3;
	f.samples[3] = f.samples[0];
	f.samples[3].subject = 2;
	f.batch.nsamples = 4;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_sample, 3);
	f.subjects[2].npairs = 0; /* no container */
	q = profile_of(&f.batch, &totals);
	assert_int_equal(q->n_sample, 4);
}

static pprof_profile *selection_of(struct pprof *pprof, const struct pprof_selection *s, struct pprof_totals *ret)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	pprof_profile *p;

	assert_int_equal(pprof_write(pprof, s, &w, ret), 0);
	p = pprof_load(w.data, w.len);
	assert_non_null(p);
	if (pprof_check_pushed(p))
		fail_msg("%s", pprof_check_pushed(p));
	return p;
}

/* One after the other, the first one twice: nothing of one is left in the next. */
static void a_selection_holds_what_it_needs(void **state)
{
	static const uint32_t first[] = { 0, 1 }, second[] = { 2 };
	const struct pprof_selection app = { first, 2, 1000, 100, 1 << 20 };
	const struct pprof_selection kernel = { second, 1, 1000, 100, 1 << 20 };
	CLEANUP(pprof_freep) struct pprof *pprof = NULL;
	CLEANUP(unloadp) pprof_profile *a = NULL, *b = NULL, *c = NULL;
	struct pprof_totals x, y, z;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(pprof_new(&pprof, &f.batch, &(struct pprof_conf){ .text_max = 1024 }), 0);
	a = selection_of(pprof, &app, &x);
	b = selection_of(pprof, &kernel, &y);
	c = selection_of(pprof, &app, &z);
	assert_int_equal(a->n_sample, 2);
	assert_int_equal(x.nsamples, 7);
	assert_int_equal(x.nanoseconds, 70200000);
	assert_int_equal(b->n_sample, 1);
	assert_int_equal(b->n_location, 1);
	assert_int_equal(b->n_mapping, 1);
	assert_int_equal(b->n_function, 1);
	assert_int_equal(y.nsamples, 1);
	assert_string_equal(pprof_function_name(b, b->sample[0], 0, 0), "do_syscall_64");
	assert_false(b->mapping[0]->has_filenames || b->mapping[0]->has_line_numbers);
	assert_int_equal(z.nsamples, x.nsamples);
	assert_int_equal(z.nstacks, x.nstacks);
	assert_int_equal(z.nbytes, x.nbytes);
	assert_int_equal(perftools__profiles__profile__get_packed_size(a), x.nbytes);
	assert_int_equal(perftools__profiles__profile__get_packed_size(c), x.nbytes);
	assert_int_equal(perftools__profiles__profile__get_packed_size(b), y.nbytes);
	for (size_t i = 0; i < b->n_string_table; i++)
		assert_true(strcmp(b->string_table[i], "pid") && strcmp(b->string_table[i], "main"));
}

static void threads_become_one_where_samples_have_no_labels(void **state)
{
	static const uint32_t all[] = { 0, 1 };
	const struct pprof_selection s = { all, 2, 1000, 1, 1 << 20 };
	CLEANUP(pprof_freep) struct pprof *pprof = NULL;
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.samples[1].first_frame = f.samples[0].first_frame;
	assert_int_equal(pprof_new(&pprof, &f.batch, &(struct pprof_conf){ .text_max = 1024 }), 0);
	p = selection_of(pprof, &s, &totals);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->sample[0]->value[0], 7);
}

static void what_is_over_a_limit_is_refused_and_the_next_is_fine(void **state)
{
	CLEANUP(pprof_freep) struct pprof *pprof = NULL;
	struct pprof_selection s = { NULL, 0, 1000, UINT32_MAX, UINT64_MAX };
	struct pprof_totals totals, got;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(pprof_new(&pprof, &f.batch, &(struct pprof_conf){ .has_labels = true }), 0);
	for (int i = 0; i < 4; i++) {
		CLEANUP(bufw_fini) struct bufw w = {};

		s.stacks_max = i == 1 ? 2 : 3;
		if (i)
			s.bytes_max = i == 2 ? totals.nbytes - 1 : totals.nbytes;
		assert_int_equal(pprof_write(pprof, &s, &w, i ? &got : &totals), i == 1 || i == 2 ? -E2BIG : 0);
	}
	assert_int_equal(got.nbytes, totals.nbytes);
	assert_int_equal(got.nsamples, totals.nsamples);
}

static void a_long_name_ends_in_an_ellipsis(void **state)
{
	char name[] = "0123456789abc\xc3\xa9zzzzzzzzzzzzzzz";
	const struct pprof_selection s = { NULL, 0, 1000, 100, 1 << 20 };
	CLEANUP(pprof_freep) struct pprof *pprof = NULL;
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.functions[1].name = export_fixture_string(&f, name);
	assert_int_equal(pprof_new(&pprof, &f.batch, &(struct pprof_conf){ .text_max = 17 }), 0);
	p = selection_of(pprof, &s, &totals);
	assert_string_equal(pprof_function_name(p, p->sample[0], 1, 0), "0123456789abc\xe2\x80\xa6");
}

/* The leaf says what ran; the root can be told without it. */
static void a_stack_that_is_too_deep_keeps_its_leaf(void **state)
{
	struct pprof_selection s = { NULL, 0, 3, 100, 1 << 20 };
	CLEANUP(pprof_freep) struct pprof *pprof = NULL;
	CLEANUP(unloadp) pprof_profile *p = NULL, *q = NULL, *r = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.samples[0].nframes = 4;
	assert_int_equal(pprof_new(&pprof, &f.batch, &(struct pprof_conf){ .text_max = 1024 }), 0);
	p = selection_of(pprof, &s, &totals);
	assert_int_equal(p->sample[0]->n_location_id, 3);
	assert_string_equal(pprof_function_name(p, p->sample[0], 0, 0), "twice");
	assert_string_equal(pprof_function_name(p, p->sample[0], 1, 0), "main");
	assert_string_equal(pprof_function_name(p, p->sample[0], 2, 0), "[truncated]");
	assert_int_equal(p->sample[1]->n_location_id, 3);
	assert_string_equal(pprof_function_name(p, p->sample[1], 2, 0), "__libc_start_main");
	s.frames_max = 2;
	q = selection_of(pprof, &s, &totals);
	assert_int_equal(q->sample[0]->n_location_id, 2);
	s.frames_max = 4;
	r = selection_of(pprof, &s, &totals);
	assert_int_equal(r->sample[0]->n_location_id, 4);
	for (size_t i = 0; i < r->n_string_table; i++)
		assert_string_not_equal(r->string_table[i], "[truncated]");
}

/* There is one [flamed] in a profile, the batch's or ours. */
static void own_frames_are_those_of_the_batch_where_it_has_them(void **state)
{
	struct pprof_selection s = { NULL, 0, 2, 100, 1 << 20 };
	CLEANUP(pprof_freep) struct pprof *pprof = NULL;
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;
	uint32_t name;

	(void)state;
	export_fixture_init(&f);
	name = export_fixture_string(&f, "[truncated]");
	f.mappings[3] = (struct export_mapping){ 0, 9, 0, export_fixture_string(&f, "[flamed]"), 0 };
	f.functions[5] = (struct export_function){ name, name, 0, 0 };
	f.lines[6] = (struct export_line){ 5, 0 };
	f.locations[5] = (struct export_location){ 3, 6, 1, 1 };
	f.batch.nmappings = 4;
	f.batch.nfunctions = 6;
	f.batch.nlines = 7;
	f.batch.nlocations = 6;
	f.frames[8] = 5;
	f.frames[9] = 5;
	f.batch.nframes = 10;
	f.samples[1].first_frame = 8;
	f.samples[1].nframes = 1;
	f.samples[2].nframes = 0;
	assert_int_equal(pprof_new(&pprof, &f.batch, &(struct pprof_conf){ .text_max = 1024 }), 0);
	p = selection_of(pprof, &s, &totals);
	assert_int_equal(p->sample[0]->location_id[1], p->sample[1]->location_id[0]);
	assert_string_equal(pprof_function_name(p, p->sample[2], 0, 0), "[no stack]");
	assert_int_equal(p->location[p->sample[2]->location_id[0] - 1]->mapping_id,
			 p->location[p->sample[1]->location_id[0] - 1]->mapping_id);
	assert_int_equal(p->n_mapping, 2);
}

static void the_same_batch_gives_the_same_bytes(void **state)
{
	CLEANUP(bufw_fini) struct bufw first = {}, second = {};
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(pprof_encode(&first, &f.batch, &totals), 0);
	assert_int_equal(pprof_encode(&second, &f.batch, &totals), 0);
	assert_int_equal(first.len, second.len);
	assert_memory_equal(first.data, second.data, first.len);
	assert_memory_equal(first.data, "\x1f\x8b\x08\x00\x00\x00\x00\x00",
			    8); /* no name, mtime 0 */
}

static void equal_samples_become_one(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.samples[3] = f.samples[0];
	f.samples[4] = f.samples[0];
	f.samples[4].tid = 102; /* another thread stays another sample */
	f.samples[5] = f.samples[0];
	f.samples[5].comm = f.samples[1].comm;
	f.samples[6] = f.samples[0];
	f.samples[6].nframes = 2;
	f.batch.nsamples = 7;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_sample, 6);
	assert_int_equal(p->sample[0]->value[0], 10);
	assert_int_equal(p->sample[0]->value[1], 100000000);
	assert_int_equal(totals.nsamples, 28);
}

/* A copy of every entry, and samples that use the copies. */
static void equal_entries_appear_once(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL, *q = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	p = profile_of(&f.batch, &totals);
	f.mappings[3] = f.mappings[0];
	f.mappings[3].filename = export_fixture_string(&f, "/usr/bin/app");
	f.functions[5] = f.functions[0];
	f.functions[5].name = export_fixture_string(&f, "spin");
	f.lines[6] = f.lines[0];
	f.lines[7] = f.lines[1];
	f.lines[7].function = 5;
	f.locations[5] = (struct export_location){ 3, 6, 2, f.locations[0].address };
	f.frames[8] = 5;
	f.frames[9] = 1;
	f.frames[10] = 2;
	f.batch.nmappings++;
	f.batch.nfunctions++;
	f.batch.nlines += 2;
	f.batch.nlocations++;
	f.batch.nframes += 3;
	f.samples[3] = f.samples[0];
	f.samples[3].first_frame = 8;
	f.batch.nsamples++;
	q = profile_of(&f.batch, &totals);
	assert_int_equal(q->n_mapping, p->n_mapping);
	assert_int_equal(q->n_function, p->n_function);
	assert_int_equal(q->n_location, p->n_location);
	assert_int_equal(q->n_string_table, p->n_string_table);
	assert_int_equal(q->n_sample, p->n_sample);
	assert_int_equal(q->sample[0]->value[0], 10);
}

/* The same function at another address, on another line, in another file: three more locations. */
static void different_locations_stay_apart(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.lines[6] = (struct export_line){ 1, 23 };
	f.batch.nlines = 7;
	f.locations[0] = f.locations[1];
	f.locations[0].address++;
	f.locations[2] = f.locations[1];
	f.locations[2].first_line = 6;
	f.locations[4] = f.locations[1];
	f.locations[4].mapping = 1;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_location, 5);
	assert_int_equal(p->n_function, 2);
	assert_int_equal(p->n_sample, 3);
}

static void what_nothing_refers_to_is_left_out(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	export_fixture_string(&f, "unused");
	f.samples[0].count = f.samples[0].nanoseconds = 0; /* nothing happened here */
	f.samples[1].count = f.samples[1].nanoseconds = 0;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->n_mapping, 1);
	assert_int_equal(p->n_function, 1);
	assert_int_equal(p->n_location, 1);
	for (size_t i = 0; i < p->n_string_table; i++)
		assert_true(strcmp(p->string_table[i], "unused") &&
			    strcmp(p->string_table[i], "app.c"));
}

static void a_sample_without_a_stack_shows(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.samples[1].nframes = 0;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_sample, 3);
	assert_int_equal(p->sample[1]->n_location_id, 1);
	assert_string_equal(pprof_function_name(p, p->sample[1], 0, 0), "[no stack]");
	assert_int_equal(totals.nsamples, 8);
}

static void strings_become_valid_utf8(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.functions[0].name = export_fixture_string(&f, "bad\xff"
							"name");
	f.functions[1].name = export_fixture_string(&f, "bad\xef\xbf\xbd"
							"name");
	f.strings[f.samples[0].comm] = (struct export_string){ "a\0b", 3 };
	p = profile_of(&f.batch, &totals);
	assert_string_equal(pprof_function_name(p, p->sample[0], 0, 1), "bad\xef\xbf\xbd"
									"name");
	assert_string_equal(pprof_function_name(p, p->sample[0], 1, 0), "bad\xef\xbf\xbd"
									"name");
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "comm")->str),
			    "a\xef\xbf\xbd"
			    "b");
}

static void sums_do_not_wrap(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.samples[0].nanoseconds = INT64_MAX;
	f.samples[1] = f.samples[0];
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->sample[0]->value[1], INT64_MAX);
	assert_int_equal(totals.nanoseconds, INT64_MAX);
}

static void an_empty_batch_is_an_empty_profile(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.batch.nsamples = 0;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_sample, 0);
	assert_int_equal(p->n_location, 0);
	assert_int_equal(totals.nsamples, 0);
}

static void a_deep_stack_is_kept_whole(void **state)
{
	CLEANUP(unloadp) pprof_profile *p = NULL;
	CLEANUP_FREE uint32_t *frames = calloc(EXPORT_FRAMES_MAX, sizeof(*frames));
	struct pprof_totals totals;
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	for (uint32_t i = 0; i < EXPORT_FRAMES_MAX; i++)
		frames[i] = i % 5;
	f.batch.frames = frames;
	f.batch.nframes = EXPORT_FRAMES_MAX;
	f.samples[0].nframes = EXPORT_FRAMES_MAX;
	f.batch.nsamples = 1;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->sample[0]->n_location_id, EXPORT_FRAMES_MAX);
	assert_int_equal(p->sample[0]->location_id[EXPORT_FRAMES_MAX - 1], EXPORT_FRAMES_MAX % 5);
}

/*
 * 100 000 stacks of 40 frames over 5 000 locations. The point is that nothing is quadratic: with
 * a table that is, this takes minutes.
 */
static void a_hundred_thousand_stacks_are_no_problem(void **state)
{
	enum { NSTACKS = 100000, DEPTH = 40, NLOCATIONS = 5000 };
	CLEANUP(unloadp) pprof_profile *p = NULL;
	CLEANUP_FREE struct export_sample *samples = calloc(NSTACKS, sizeof(*samples));
	CLEANUP_FREE uint32_t *frames = calloc((size_t)NSTACKS * DEPTH, sizeof(*frames));
	CLEANUP_FREE struct export_string *strings = calloc(NLOCATIONS + EXPORT_FIXTURE_STRINGS, sizeof(*strings));
	CLEANUP_FREE char(*names)[24] = calloc(NLOCATIONS, sizeof(*names));
	CLEANUP_FREE struct export_function *functions = calloc(NLOCATIONS, sizeof(*functions));
	CLEANUP_FREE struct export_line *lines = calloc(NLOCATIONS, sizeof(*lines));
	CLEANUP_FREE struct export_location *locations = calloc(NLOCATIONS, sizeof(*locations));
	struct pprof_totals totals;
	struct export_fixture f;
	uint32_t base, x = 1;

	(void)state;
	export_fixture_init(&f);
	base = f.batch.nstrings;
	memcpy(strings, f.strings, sizeof(f.strings));
	for (uint32_t i = 0; i < NLOCATIONS; i++) {
		snprintf(names[i], sizeof(names[i]), "function_%u", i);
		strings[base + i] = (struct export_string){ names[i], (uint32_t)strlen(names[i]) };
		functions[i] = (struct export_function){ base + i, base + i, 0, 0 };
		lines[i] = (struct export_line){ i, i };
		locations[i] = (struct export_location){ 2, i, 1, 16 * i };
	}
	for (uint32_t i = 0; i < NSTACKS * DEPTH; i++) {
		x = x * 1664525 + 1013904223;
		frames[i] = (x >> 8) % NLOCATIONS;
	}
	for (uint32_t i = 0; i < NSTACKS; i++)
		samples[i] = (struct export_sample){ 0, 100, 1, i * DEPTH, DEPTH, 1, 10000000 };
	f.batch.strings = strings;
	f.batch.nstrings = base + NLOCATIONS;
	f.batch.functions = functions;
	f.batch.lines = lines;
	f.batch.locations = locations;
	f.batch.nfunctions = f.batch.nlines = f.batch.nlocations = NLOCATIONS;
	f.batch.samples = samples;
	f.batch.nsamples = NSTACKS;
	f.batch.frames = frames;
	f.batch.nframes = NSTACKS * DEPTH;
	p = profile_of(&f.batch, &totals);
	assert_int_equal(p->n_sample, NSTACKS);
	assert_int_equal(p->n_location, NLOCATIONS);
	assert_int_equal(totals.nsamples, NSTACKS);
	if (getenv("VERBOSE"))
		print_message("%llu bytes uncompressed\n", (unsigned long long)totals.nbytes);
}

static void encoding_survives_any_failed_allocation(void **state)
{
	struct pprof_totals totals;
	struct export_fixture f;
	int err = -ENOMEM;
	long nth;

	(void)state;
	export_fixture_init(&f);
	f.functions[0].name = export_fixture_string(&f, "bad\xff"
							"name");
	f.samples[2].nframes = 0;
	for (nth = 1; err; nth++) {
		CLEANUP(bufw_fini) struct bufw w = {};

		alloc_fail_nth(nth);
		err = pprof_encode(&w, &f.batch, &totals);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
	}
	assert_true(nth > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_profile_says_what_the_batch_says),
		cmocka_unit_test(samples_carry_their_labels),
		cmocka_unit_test(without_an_executable_the_main_thread_names_the_service),
		cmocka_unit_test(odd_labels_are_left_out),
		cmocka_unit_test(samples_of_different_labels_stay_apart),
		cmocka_unit_test(a_selection_holds_what_it_needs),
		cmocka_unit_test(threads_become_one_where_samples_have_no_labels),
		cmocka_unit_test(what_is_over_a_limit_is_refused_and_the_next_is_fine),
		cmocka_unit_test(a_long_name_ends_in_an_ellipsis),
		cmocka_unit_test(a_stack_that_is_too_deep_keeps_its_leaf),
		cmocka_unit_test(own_frames_are_those_of_the_batch_where_it_has_them),
		cmocka_unit_test(the_same_batch_gives_the_same_bytes),
		cmocka_unit_test(equal_samples_become_one),
		cmocka_unit_test(equal_entries_appear_once),
		cmocka_unit_test(different_locations_stay_apart),
		cmocka_unit_test(what_nothing_refers_to_is_left_out),
		cmocka_unit_test(a_sample_without_a_stack_shows),
		cmocka_unit_test(strings_become_valid_utf8),
		cmocka_unit_test(sums_do_not_wrap),
		cmocka_unit_test(an_empty_batch_is_an_empty_profile),
		cmocka_unit_test(a_deep_stack_is_kept_whole),
		cmocka_unit_test(a_hundred_thousand_stacks_are_no_problem),
		cmocka_unit_test(encoding_survives_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
