#include "exporter/profiles.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/alloc_fail.h"
#include "tests/unit/export_fixture.h"
#include "tests/unit/pprof_check.h"

/* What Pyroscope takes by default. */
enum { BYTES_MAX = 2 * 1024 * 1024 * 19 / 20, STACKS_MAX = 16000, DEPTH_MAX = 1000, LABELS_MAX = 30 };

/* Everything that profiles_make() handed out. */
struct parts {
	struct profile **v;
	size_t n;
	int stop_at; /* the call that returns -ECANCELED, from 1 */
};

static void parts_fini(struct parts *parts)
{
	for (size_t i = 0; i < parts->n; i++)
		profile_unref(parts->v[i]);
	free(parts->v);
}

static int keep(void *arg, struct profile *p)
{
	struct parts *parts = arg;

	parts->v = realloc(parts->v, (parts->n + 1) * sizeof(*parts->v));
	parts->v[parts->n++] = profile_ref(p);
	return (int)parts->n == parts->stop_at ? -ECANCELED : 0;
}

static void unloadp(pprof_profile **p)
{
	if (*p)
		pprof_unload(*p);
}

static uint32_t uncompressed_bytes(const struct profile *p)
{
	uint32_t n;

	assert_true(p->len > 18);
	memcpy(&n, p->data + p->len - 4, sizeof(n)); /* RFC 1952 */
	return n;
}

static const char *label_of(const struct profile *p, const char *name)
{
	for (uint32_t i = 0; i < p->nlabels; i++) {
		if (!strcmp(p->labels[i].name, name))
			return p->labels[i].value;
	}
	return NULL;
}

/* Reads it back and holds it against what the struct and servers say. */
static pprof_profile *load_checked(const struct profile *p, bool has_labels)
{
	pprof_profile *q = pprof_load(p->data, p->len);
	const char *broken = NULL;
	uint64_t count = 0, ns = 0, label_bytes = 0;

	assert_non_null(q);
	broken = has_labels ? pprof_check(q) : pprof_check_pushed(q);
	if (broken)
		fail_msg("%s", broken);
	assert_true(q->n_sample > 0);
	for (size_t i = 0; i < q->n_sample; i++) {
		count += (uint64_t)q->sample[i]->value[0];
		ns += (uint64_t)q->sample[i]->value[1];
		assert_true(q->sample[i]->n_location_id <= DEPTH_MAX);
	}
	assert_int_equal(count, p->nsamples);
	assert_int_equal(ns, p->nanoseconds);
	assert_int_equal(q->n_sample, p->nstacks);
	assert_true(p->nstacks <= STACKS_MAX);
	assert_int_equal(q->time_nanos, p->wall_start_ns);
	assert_int_equal(q->duration_nanos, p->duration_ns);
	assert_true(p->nlabels + 1 <= LABELS_MAX && p->part);
	for (uint32_t i = 0; i < p->nlabels; i++) {
		assert_true(!i || strcmp(p->labels[i - 1].name, p->labels[i].name) < 0);
		assert_true(*p->labels[i].value && strlen(p->labels[i].value) <= EXPORT_LABEL_MAX);
		label_bytes += strlen(p->labels[i].name) + strlen(p->labels[i].value);
	}
	assert_ptr_equal(p->service_name, label_of(p, "service_name"));
	assert_true(p->raw_bytes >= uncompressed_bytes(p) + label_bytes);
	assert_true(p->raw_bytes <= uncompressed_bytes(p) + label_bytes + 100);
	assert_true(p->raw_bytes <= BYTES_MAX);
	return q;
}

static void check_sums(const struct export_batch *b, const struct parts *parts, bool has_labels)
{
	uint64_t count = 0, ns = 0, parts_count = 0, parts_ns = 0;

	for (uint32_t i = 0; i < b->nsamples; i++) {
		count += b->samples[i].count;
		ns += b->samples[i].nanoseconds;
	}
	for (size_t i = 0; i < parts->n; i++) {
		pprof_unload(load_checked(parts->v[i], has_labels));
		parts_count += parts->v[i]->nsamples;
		parts_ns += parts->v[i]->nanoseconds;
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(parts->v[k]->part, parts->v[i]->part);
	}
	assert_int_equal(parts_count, count);
	assert_int_equal(parts_ns, ns);
}

static struct config config;
static struct value_pair fixed[20];

static struct profiles_conf plain = { .config = &config, .hostname = "host-1" };

static int reset_config(void **state)
{
	(void)state;
	config = (struct config){};
	plain = (struct profiles_conf){ .config = &config, .hostname = "host-1" };
	return 0;
}

static void each_service_is_a_series(void **state)
{
	CLEANUP(parts_fini) struct parts parts = {};
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct export_fixture f;

	(void)state;
	fixed[0] = (struct value_pair){ (char *)"zone", (char *)"eu\n1" };
	fixed[1] = (struct value_pair){ (char *)"env", (char *)"prod" };
	config.labels.fixed = (struct value_map){ fixed, 2 };
	export_fixture_init(&f);
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &parts), 0);
	assert_int_equal(parts.n, 2);
	check_sums(&f.batch, &parts, false);
	assert_string_equal(parts.v[0]->service_name, "app");
	assert_string_equal(parts.v[1]->service_name, "kernel");
	assert_int_equal(parts.v[0]->nlabels, 4);
	assert_string_equal(parts.v[0]->labels[0].name, "env");
	assert_string_equal(parts.v[0]->labels[1].name, "hostname");
	assert_string_equal(parts.v[0]->labels[1].value, "host-1");
	assert_string_equal(parts.v[0]->labels[3].value, "eu\xef\xbf\xbd" "1");
	assert_int_equal(parts.v[0]->batch, 77);
	assert_int_equal(parts.v[0]->nsamples, 7);
	p = load_checked(parts.v[1], false);
	assert_string_equal(pprof_function_name(p, p->sample[0], 0, 0), "do_syscall_64");
	assert_int_equal(p->n_function, 1);
}

static void an_included_label_splits_a_service(void **state)
{
	char *include[] = { (char *)"container_id", (char *)"unit" };
	CLEANUP(parts_fini) struct parts together = {}, apart = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	f.subjects[2] = f.subjects[0];
	f.subjects[2].npairs = 0; /* the same service in no container */
	f.batch.nsubjects = 3;
	f.samples[3] = f.samples[0];
	f.samples[3].subject = 2;
	f.batch.nsamples = 4;
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &together), 0);
	assert_int_equal(together.n, 2);
	config.labels.include = (struct value_strings){ include, 2 };
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &apart), 0);
	assert_int_equal(apart.n, 3);
	assert_string_equal(label_of(apart.v[0], "container_id"), "c0ffee");
	assert_null(label_of(apart.v[2], "container_id"));
	assert_string_equal(apart.v[2]->service_name, "app");
	check_sums(&f.batch, &together, false);
	check_sums(&f.batch, &apart, false);
}

static void samples_can_carry_their_labels(void **state)
{
	CLEANUP(parts_fini) struct parts parts = {};
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct export_fixture f;

	(void)state;
	plain.sample_labels = true;
	export_fixture_init(&f);
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &parts), 0);
	check_sums(&f.batch, &parts, true);
	p = load_checked(parts.v[0], true);
	assert_string_equal(pprof_string(p, pprof_label(p, p->sample[0], "container_id")->str), "c0ffee");
	assert_int_equal(pprof_label(p, p->sample[1], "tid")->num, 101);
}

static void settings_and_hostname_may_be_missing(void **state)
{
	CLEANUP(parts_fini) struct parts parts = {};
	struct profiles_conf none = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(profiles_make(&f.batch, &none, keep, &parts), 0);
	assert_int_equal(parts.n, 2);
	assert_int_equal(parts.v[0]->nlabels, 1);
}

/* Of what servers refuse nothing is sent; what tells services apart comes first. */
static void labels_are_what_servers_take(void **state)
{
	static char names[20][24];
	static char value[EXPORT_LABEL_MAX + 3];
	char *include[16];
	CLEANUP(parts_fini) struct parts parts = {};
	struct export_fixture f;

	(void)state;
	memset(value, 'v', EXPORT_LABEL_MAX - 1);
	strcpy(value + EXPORT_LABEL_MAX - 1, "\xc3\xa9");
	for (int i = 0; i < 20; i++) {
		snprintf(names[i], sizeof(names[i]), "label_%02d", i);
		fixed[i] = (struct value_pair){ names[i], value };
	}
	fixed[0].name = (char *)"1a-b.\xc3\xa9";
	fixed[1].name = (char *)"service_name"; /* never one for all */
	fixed[2].value = (char *)"";
	config.labels.fixed = (struct value_map){ fixed, 20 };
	export_fixture_init(&f);
	for (uint32_t i = 0; i < ARRAY_SIZE(include); i++) {
		f.pairs[0] = (struct export_pair){ export_fixture_string(&f, "more"), 1 };
		include[i] = (char *)"more";
	}
	config.labels.include = (struct value_strings){ include, 16 };
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &parts), 0);
	assert_int_equal(parts.n, 2);
	check_sums(&f.batch, &parts, false);
	assert_string_equal(parts.v[0]->service_name, "app");
	assert_int_equal(strlen(label_of(parts.v[0], "label_19")), EXPORT_LABEL_MAX - 1); /* no half of it */
	assert_non_null(label_of(parts.v[0], "_a_b___"));
	assert_null(label_of(parts.v[0], "label_02"));
	assert_non_null(label_of(parts.v[0], "hostname"));
}

static void a_part_has_the_same_id_each_time(void **state)
{
	CLEANUP(parts_fini) struct parts a = {}, b = {}, c = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &a), 0);
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &b), 0);
	f.batch.id++;
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &c), 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(a.v[i]->part, b.v[i]->part);
		assert_int_equal(a.v[i]->len, b.v[i]->len);
		assert_memory_equal(a.v[i]->data, b.v[i]->data, a.v[i]->len);
		assert_int_not_equal(a.v[i]->part, c.v[i]->part);
		assert_int_equal(profile_part_at(a.v[i], "x"), profile_part_at(b.v[i], "x"));
		assert_int_not_equal(profile_part_at(a.v[i], "x"), profile_part_at(a.v[i], "y"));
	}
	/* In this process as in any other, of any version that can be sent the same batch again. */
	assert_int_equal(a.v[0]->part, 0x5efc56c891b55511ull);
	assert_int_equal(profile_part_at(a.v[0], "directory"), 0x2b46a15bbcd87d1eull);
}

static void nothing_is_made_of_nothing(void **state)
{
	CLEANUP(parts_fini) struct parts parts = {};
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	for (uint32_t i = 0; i < f.batch.nsamples; i++)
		f.samples[i].count = f.samples[i].nanoseconds = 0;
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &parts), 0);
	f.batch.nsamples = 0;
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &parts), 0);
	assert_int_equal(parts.n, 0);
}

static void who_is_called_can_end_it(void **state)
{
	CLEANUP(parts_fini) struct parts parts = { .stop_at = 1 };
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(profiles_make(&f.batch, &plain, keep, &parts), -ECANCELED);
	assert_int_equal(parts.n, 1);
}

/* ---- large ones ---- */

struct large {
	struct export_batch b;
	struct export_string *strings;
	char (*names)[32];
	uint32_t x; /* a generator of numbers */
};

static uint32_t next_random(struct large *l, uint32_t below)
{
	l->x = l->x * 1664525 + 1013904223;
	return (l->x >> 8) % below;
}

static uint32_t add_text(struct large *l, const char *text, size_t len)
{
	l->strings[l->b.nstrings] = (struct export_string){ text, (uint32_t)len };
	return l->b.nstrings++;
}

static void large_fini(struct large *l)
{
	free(l->names);
	export_batch_fini(&l->b);
}

/* Every location has a function of its own; subject i is the service i of nservices. */
static void large_init(struct large *l, uint32_t nservices, uint32_t nsubjects, uint32_t nlocations,
		       uint32_t nsamples, uint32_t depth)
{
	struct export_batch *b = &l->b;
	uint32_t n = nlocations + nsubjects;

	*l = (struct large){ .x = 1 };
	*b = (struct export_batch){ .id = 5, .wall_start_ns = 1700000000000000000ull, .duration_ns = 15000000000ull,
				    .period_ns = 10000000, .nmappings = 1, .nfunctions = nlocations,
				    .nlines = nlocations, .nlocations = nlocations, .nsubjects = nsubjects,
				    .nsamples = nsamples, .nframes = nsamples * depth };
	l->names = calloc(n, sizeof(*l->names));
	l->strings = b->strings = calloc(n + 8, sizeof(*b->strings));
	b->mappings = calloc(1, sizeof(*b->mappings));
	b->functions = calloc(nlocations, sizeof(*b->functions));
	b->lines = calloc(nlocations, sizeof(*b->lines));
	b->locations = calloc(nlocations, sizeof(*b->locations));
	b->pairs = calloc(1, sizeof(*b->pairs));
	b->subjects = calloc(nsubjects, sizeof(*b->subjects));
	b->samples = calloc(nsamples, sizeof(*b->samples));
	b->frames = calloc((size_t)nsamples * depth, sizeof(*b->frames));
	add_text(l, "", 0);
	b->mappings[0] = (struct export_mapping){ 0, 1 << 30, 0, add_text(l, "/lib/x.so", 9), 0 };
	for (uint32_t i = 0; i < n; i++)
		snprintf(l->names[i], sizeof(l->names[i]), i < nlocations ? "function_%u" : "/bin/s%u",
			 i < nlocations ? i : (i - nlocations) % nservices);
	for (uint32_t i = 0; i < nlocations; i++) {
		uint32_t name = add_text(l, l->names[i], strlen(l->names[i]));

		b->functions[i] = (struct export_function){ name, name, 0, 0 };
		b->lines[i] = (struct export_line){ i, i };
		b->locations[i] = (struct export_location){ 0, i, 1, 16 * i };
	}
	for (uint32_t i = 0; i < nsubjects; i++)
		b->subjects[i] = (struct export_subject){
			.id = i, .pid = i + 1,
			.executable = add_text(l, l->names[nlocations + i], strlen(l->names[nlocations + i])) };
	for (uint32_t i = 0; i < nsamples; i++)
		b->samples[i] = (struct export_sample){ next_random(l, nsubjects), i + 1, 1, i * depth,
							1 + next_random(l, depth), next_random(l, 4),
							next_random(l, 1 << 30) };
	for (uint32_t i = 0; i < nsamples * depth; i++)
		b->frames[i] = next_random(l, nlocations);
}

/* A location of each function, so that a series has each stack once. */
static void parts_add_up_to_the_batch(void **state)
{
	struct large l;

	(void)state;
	for (int has_labels = 0; has_labels < 2; has_labels++) {
		CLEANUP(parts_fini) struct parts parts = {};

		large_init(&l, 10, 50, 500, 20000, 12);
		plain.sample_labels = has_labels;
		assert_int_equal(profiles_make(&l.b, &plain, keep, &parts), 0);
		assert_true(parts.n >= 10);
		check_sums(&l.b, &parts, has_labels);
		large_fini(&l);
	}
}

static void a_large_series_becomes_parts_that_fit(void **state)
{
	CLEANUP(parts_fini) struct parts parts = {};
	struct large l;

	(void)state;
	large_init(&l, 1, 3, 20000, 60000, 30);
	assert_int_equal(profiles_make(&l.b, &plain, keep, &parts), 0);
	assert_true(parts.n >= 4 && parts.n <= 16);
	check_sums(&l.b, &parts, false);
	for (size_t i = 0; i < parts.n; i++)
		assert_string_equal(parts.v[i]->service_name, "s0");
	large_fini(&l);
}

/* Frames of many lines with long names: what is left is the leaf. */
static void a_sample_that_is_too_large_alone_keeps_its_leaf(void **state)
{
	enum { DEPTH = 2000, LINES = EXPORT_LINES_MAX, NAME = 60000 };
	CLEANUP(parts_fini) struct parts parts = {};
	CLEANUP(unloadp) pprof_profile *p = NULL;
	CLEANUP_FREE char(*names)[NAME] = calloc(LINES, NAME);
	struct export_line *lines = calloc(LINES, sizeof(*lines));
	struct large l;

	(void)state;
	large_init(&l, 1, 1, LINES, 1, DEPTH);
	free(l.b.lines);
	l.b.lines = lines;
	for (uint32_t i = 0; i < LINES; i++) {
		memset(names[i], 'a' + (int)(i % 26), NAME);
		snprintf(names[i], 16, "function_%u", i);
		names[i][strlen(names[i])] = 'x';
		l.strings[l.b.functions[i].name] = (struct export_string){ names[i], NAME };
		lines[i] = (struct export_line){ i, UINT32_MAX };
		l.b.locations[i].first_line = 0;
		l.b.locations[i].nlines = LINES;
		l.b.locations[i].address = UINT64_MAX - i;
	}
	for (uint32_t i = 0; i < DEPTH; i++)
		l.b.frames[i] = i % LINES;
	l.b.samples[0].nframes = DEPTH;
	l.b.samples[0].count = 1;
	assert_int_equal(profiles_make(&l.b, &plain, keep, &parts), 0);
	assert_int_equal(parts.n, 1);
	p = load_checked(parts.v[0], false);
	assert_true(p->sample[0]->n_location_id >= 2);
	assert_string_equal(pprof_function_name(p, p->sample[0], p->sample[0]->n_location_id - 1, 0), "[truncated]");
	assert_int_equal(p->location[p->sample[0]->location_id[0] - 1]->address, UINT64_MAX);
	large_fini(&l);
}

static void a_deep_stack_loses_its_root(void **state)
{
	enum { DEPTH = 1500 };
	CLEANUP(parts_fini) struct parts parts = {};
	CLEANUP(unloadp) pprof_profile *p = NULL;
	struct large l;

	(void)state;
	large_init(&l, 1, 1, DEPTH, 1, DEPTH);
	for (uint32_t i = 0; i < DEPTH; i++)
		l.b.frames[i] = i;
	l.b.samples[0].nframes = DEPTH;
	l.b.samples[0].count = 1;
	assert_int_equal(profiles_make(&l.b, &plain, keep, &parts), 0);
	assert_int_equal(parts.n, 1);
	p = load_checked(parts.v[0], false);
	assert_int_equal(p->sample[0]->n_location_id, DEPTH_MAX);
	assert_string_equal(pprof_function_name(p, p->sample[0], 0, 0), "function_0");
	assert_string_equal(pprof_function_name(p, p->sample[0], DEPTH_MAX - 2, 0), "function_998");
	assert_string_equal(pprof_function_name(p, p->sample[0], DEPTH_MAX - 1, 0), "[truncated]");
	large_fini(&l);
}

/* A window of a large host. With tables that are reset whole for each series it takes minutes. */
static void many_services_and_locations_are_no_problem(void **state)
{
	CLEANUP(parts_fini) struct parts parts = {};
	uint64_t start, took;
	struct large l;

	(void)state;
	large_init(&l, 2000, 2000, 200000, 20000, 20);
	start = clock_cpu_ns();
	assert_int_equal(profiles_make(&l.b, &plain, keep, &parts), 0);
	took = clock_cpu_ns() - start;
	assert_true(parts.n > 1900 && parts.n <= 2000); /* some have no sample */
	if (getenv("VERBOSE"))
		print_message("%.3f s\n", (double)took / 1e9);
	assert_true(took < 20 * NSEC_PER_SEC);
	large_fini(&l);
}

static void splitting_survives_any_failed_allocation(void **state)
{
	struct export_fixture f;
	int err = -ENOMEM;
	long nth;

	(void)state;
	export_fixture_init(&f);
	f.samples[0].nframes = 0;
	f.functions[1].name = export_fixture_string(&f, "bad\xff");
	for (nth = 1; err; nth++) {
		CLEANUP(parts_fini) struct parts parts = {};

		alloc_fail_nth(nth);
		err = profiles_make(&f.batch, &plain, keep, &parts);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
	}
	assert_true(nth > 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_service_is_a_series, reset_config),
		cmocka_unit_test_setup(an_included_label_splits_a_service, reset_config),
		cmocka_unit_test_setup(samples_can_carry_their_labels, reset_config),
		cmocka_unit_test_setup(settings_and_hostname_may_be_missing, reset_config),
		cmocka_unit_test_setup(labels_are_what_servers_take, reset_config),
		cmocka_unit_test_setup(a_part_has_the_same_id_each_time, reset_config),
		cmocka_unit_test_setup(nothing_is_made_of_nothing, reset_config),
		cmocka_unit_test_setup(who_is_called_can_end_it, reset_config),
		cmocka_unit_test_setup(parts_add_up_to_the_batch, reset_config),
		cmocka_unit_test_setup(a_large_series_becomes_parts_that_fit, reset_config),
		cmocka_unit_test_setup(a_sample_that_is_too_large_alone_keeps_its_leaf, reset_config),
		cmocka_unit_test_setup(a_deep_stack_loses_its_root, reset_config),
		cmocka_unit_test_setup(many_services_and_locations_are_no_problem, reset_config),
		cmocka_unit_test_setup(splitting_survives_any_failed_allocation, reset_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
