/* What the API costs when it is asked for the most, of windows with the most in them. */
#include "exporter/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"

enum { NSTACKS = 2700, DEPTH = 1000, NFUNCTIONS = 60000, NWINDOWS = 4 };

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}

/* Every stack goes its own way from its root on. */
static void add_window(struct recent *r, uint64_t id)
{
	static struct export_string strings[1 + NFUNCTIONS];
	static struct export_function functions[NFUNCTIONS];
	static struct export_line lines[NFUNCTIONS];
	static struct export_location locations[NFUNCTIONS];
	static struct export_sample samples[NSTACKS];
	static uint32_t frames[NSTACKS * DEPTH];
	static char names[NFUNCTIONS][24];
	CLEANUP(bufw_fini) struct bufw wire = {};
	struct export_mapping mapping = {};
	struct export_subject subject = { .id = 1, .pid = 1 };
	struct export_batch b = { .id = id, .wall_start_ns = clock_wall_ns() - 20 * NSEC_PER_SEC,
				  .duration_ns = NSEC_PER_SEC, .period_ns = 10 * NSEC_PER_MSEC,
				  .nstrings = 1 + NFUNCTIONS, .strings = strings, .nmappings = 1,
				  .mappings = &mapping, .nfunctions = NFUNCTIONS, .functions = functions,
				  .nlines = NFUNCTIONS, .lines = lines, .nlocations = NFUNCTIONS,
				  .locations = locations, .nsubjects = 1, .subjects = &subject,
				  .nsamples = NSTACKS, .samples = samples, .nframes = NSTACKS * DEPTH,
				  .frames = frames };
	uint64_t seed = id;

	strings[0] = (struct export_string){ "", 0 };
	for (uint32_t i = 0; i < NFUNCTIONS; i++) {
		int len = snprintf(names[i], sizeof(names[i]), "function_%llu_%u", (unsigned long long)id, i);

		strings[1 + i] = (struct export_string){ names[i], (uint32_t)len };
		functions[i] = (struct export_function){ .name = 1 + i };
		lines[i] = (struct export_line){ .function = i };
		locations[i] = (struct export_location){ .first_line = i, .nlines = 1 };
	}
	for (uint32_t i = 0; i < NSTACKS * DEPTH; i++)
		frames[i] = next_random(&seed) % NFUNCTIONS;
	for (uint32_t i = 0; i < NSTACKS; i++)
		samples[i] = (struct export_sample){ .first_frame = i * DEPTH, .nframes = DEPTH, .count = 1,
						     .nanoseconds = 10 * NSEC_PER_MSEC };
	export_batch_encode(&wire, &b);
	assert_int_equal(bufw_end(&wire), 0);
	assert_int_equal(recent_add(r, &b, wire.data, wire.len), 0);
}

/* Memory in kB, by its name in /proc/self/status. */
static long memory_kb(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kb = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, name, strlen(name)))
			kb = strtol(line + strlen(name), NULL, 10);
	}
	fclose(f);
	assert_true(kb >= 0);
	return kb;
}

static void check_sums(const json_t *q)
{
	const json_t *nodes = json_object_get(q, "nodes"), *self = json_object_get(nodes, "self");
	json_int_t sum = 0;

	for (size_t i = 0; i < json_array_size(self); i++)
		sum += json_integer_value(json_array_get(self, i));
	assert_true(json_array_size(self) <= API_NODES_MAX);
	assert_int_equal(sum, (json_int_t)NWINDOWS * NSTACKS * 10 * (json_int_t)NSEC_PER_MSEC);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(nodes, "total"), 0)), sum);
}

/* In a process of its own, whose peak is that of the query. */
static int run_query(const struct recent *r)
{
	const struct api_params params = { .from = "-300", .nodes = "131072" };
	const struct api_view view = { .recent = r, .hostname = "", .version = "", .hash = "" };
	CLEANUP(bufw_fini) struct bufw text = {};
	uint64_t start = clock_mono_ns();
	FILE *clear = fopen("/proc/self/clear_refs", "w");
	long before, peak;
	json_t *q;

	if (clear) { /* the peak begins anew */
		fputs("5", clear);
		fclose(clear);
	}
	before = memory_kb("VmRSS:");
	assert_int_equal(api_answer(&view, "query", &params, &text), 200);
	peak = memory_kb("VmHWM:");
	printf("# %ld KiB more, %llu ms, %zu bytes of answer\n", peak - before,
	       (unsigned long long)((clock_mono_ns() - start) / NSEC_PER_MSEC), text.len);
	q = json_loadb((const char *)text.data, text.len, 0, NULL);
	check_sums(q);
	json_decref(q);
	/* A window of these is 22 MiB while it is read. */
	return peak - before < 36 * 1024 ? 0 : 1;
}

static void a_query_for_everything_stays_within_its_memory(void **state)
{
	CLEANUP(recent_freep) struct recent *r = NULL;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(recent_new(&r), 0);
	recent_limit(r, SIZE_MAX, SIZE_MAX);
	for (uint64_t id = 1; id <= NWINDOWS; id++)
		add_window(r, id);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		status = run_query(r);
		fflush(stdout);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_query_for_everything_stays_within_its_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
