#include "tests/unit/export_fixture.h"

#include <assert.h>
#include <string.h>

uint32_t export_fixture_string(struct export_fixture *f, const char *text)
{
	uint32_t i = f->batch.nstrings++;

	assert(i < ARRAY_SIZE(f->strings));
	f->strings[i] = (struct export_string){ text, (uint32_t)strlen(text) };
	return i;
}

static void init_names(struct export_fixture *f)
{
	uint32_t empty = export_fixture_string(f, "");
	uint32_t app = export_fixture_string(f, "/usr/bin/app");
	uint32_t app_id = export_fixture_string(f, "00aabbccddeeff11");
	uint32_t libc = export_fixture_string(f, "/usr/lib/libc.so.6");
	uint32_t libc_id = export_fixture_string(f, "cafe0123");
	uint32_t kernel = export_fixture_string(f, "[kernel]");
	uint32_t source = export_fixture_string(f, "app.c");

	f->mappings[0] = (struct export_mapping){ 0x1000, 0x9000, 0x1000, app, app_id };
	f->mappings[1] = (struct export_mapping){ 0x26000, 0x80000, 0x26000, libc, libc_id };
	f->mappings[2] = (struct export_mapping){ 0, 0x2000000, 0, kernel, empty };
	f->batch.nmappings = 3;
	f->functions[0] = (struct export_function){ export_fixture_string(f, "spin"),
						    export_fixture_string(f, "spin.isra.0"), source,
						    10 };
	f->functions[1] = (struct export_function){ export_fixture_string(f, "main"),
						    f->batch.nstrings - 1, source, 20 };
	f->functions[2] = (struct export_function){ export_fixture_string(f, "__libc_start_main"),
						    f->batch.nstrings - 1, empty, 0 };
	f->functions[3] = (struct export_function){ export_fixture_string(f, "do_syscall_64"),
						    f->batch.nstrings - 1, empty, 0 };
	f->functions[4] = (struct export_function){ export_fixture_string(f, "twice"),
						    f->batch.nstrings - 1, source, 5 };
	f->batch.nfunctions = 5;
}

static void init_locations(struct export_fixture *f)
{
	static const struct export_line lines[] = {
		{ 4, 6 },  { 0, 12 }, /* twice inlined into spin */
		{ 1, 22 }, { 2, 0 },  { 3, 0 }, { 0, 13 },
	};

	memcpy(f->lines, lines, sizeof(lines));
	f->batch.nlines = ARRAY_SIZE(lines);
	f->locations[0] = (struct export_location){ 0, 0, 2, 0x1234 };
	f->locations[1] = (struct export_location){ 0, 2, 1, 0x2345 };
	f->locations[2] = (struct export_location){ 1, 3, 1, 0x27000 };
	f->locations[3] = (struct export_location){ 2, 4, 1, 0x1000 };
	f->locations[4] = (struct export_location){ 0, 5, 1, 0x1240 };
	f->batch.nlocations = 5;
}

static void init_samples(struct export_fixture *f)
{
	static const uint32_t frames[] = { 0, 1, 2, 3, 4, 1, 2, 3 };
	uint32_t app = 1, comm = export_fixture_string(f, "app");
	uint32_t worker = export_fixture_string(f, "worker");
	uint32_t kthread = export_fixture_string(f, "kworker/0:1");

	f->pairs[0] = (struct export_pair){ export_fixture_string(f, "service_name"),
					    export_fixture_string(f, "kernel") };
	f->pairs[1] = (struct export_pair){ export_fixture_string(f, "container_id"),
					    export_fixture_string(f, "c0ffee") };
	f->pairs[2] = (struct export_pair){ f->pairs[0].name, comm };
	f->batch.npairs = 3;
	f->subjects[0] = (struct export_subject){ 1001, 100, 0, 4242, app, 1, 2 };
	f->subjects[1] = (struct export_subject){ 1002, 7, EXPORT_SUBJECT_KERNEL, 1, 0, 0, 0 };
	f->batch.nsubjects = 2;
	memcpy(f->frames, frames, sizeof(frames));
	f->batch.nframes = ARRAY_SIZE(frames);
	f->samples[0] = (struct export_sample){ 0, 100, comm, 0, 3, 5, 50000000 };
	f->samples[1] = (struct export_sample){ 0, 101, worker, 4, 3, 2, 20200000 };
	f->samples[2] = (struct export_sample){ 1, 7, kthread, 7, 1, 1, 9930000 };
	f->batch.nsamples = 3;
}

void export_fixture_init(struct export_fixture *f)
{
	*f = (struct export_fixture){};
	f->batch = (struct export_batch){
		.id = 77,
		.wall_start_ns = 1700000000000000000ull,
		.duration_ns = 15000000000ull,
		.period_ns = 10000000,
		.strings = f->strings,
		.mappings = f->mappings,
		.functions = f->functions,
		.lines = f->lines,
		.locations = f->locations,
		.pairs = f->pairs,
		.subjects = f->subjects,
		.samples = f->samples,
		.frames = f->frames,
	};
	init_names(f);
	init_locations(f);
	init_samples(f);
}
