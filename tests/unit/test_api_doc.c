/* docs/api.md says which values a metric's label can have: those that the program has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/pipeline.h"
#include "agent/timeline.h"
#include "agent/unwind.h"
#include "bpf/abi.h"
#include "exporter/connections.h"
#include "exporter/msg.h"

enum { VALUES_MAX = 64 };

struct values {
	const char *of[VALUES_MAX];
	size_t n;
};

static void add(struct values *v, const char *value)
{
	for (size_t i = 0; i < v->n; i++) {
		if (!strcmp(v->of[i], value))
			return;
	}
	assert_true(v->n < VALUES_MAX);
	v->of[v->n++] = value;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static char *doc;

static int read_doc(void **state)
{
	FILE *f = fopen("docs/api.md", "r");
	size_t cap = 0;

	(void)state;
	assert_non_null(f);
	assert_true(getdelim(&doc, &cap, '\0', f) > 0);
	fclose(f);
	return 0;
}

static int free_doc(void **state)
{
	(void)state;
	free(doc);
	return 0;
}

/* The line "| `metric` | `label` | `value`, `value` |", with its values in any order. */
static void check(const char *metric, const char *label, struct values *want)
{
	CLEANUP_FREE char *line = NULL;
	struct values got = {};
	char key[128], *end;
	const char *at;

	snprintf(key, sizeof(key), "\n| `%s` | `%s` | ", metric, label);
	at = strstr(doc, key);
	if (!at)
		fail_msg("docs/api.md has no line for %s{%s}", metric, label);
	at += strlen(key);
	line = strndup(at, strcspn(at, "\n"));
	for (char *value = strchr(line, '`'); value; value = strchr(end + 1, '`')) {
		end = strchr(++value, '`');
		assert_non_null(end);
		*end = '\0';
		add(&got, value);
	}
	qsort(got.of, got.n, sizeof(*got.of), by_text);
	qsort(want->of, want->n, sizeof(*want->of), by_text);
	for (size_t i = 0; i < got.n && i < want->n; i++) {
		if (strcmp(got.of[i], want->of[i]))
			fail_msg("%s{%s}: documented '%s', there is '%s'", metric, label, got.of[i], want->of[i]);
	}
	if (got.n != want->n)
		fail_msg("%s{%s}: %zu documented, %zu there are", metric, label, got.n, want->n);
}

static void the_documented_label_values_are_those_that_there_are(void **state)
{
	struct values drops = {}, outcomes = {}, results = {}, ends = {}, refusals = {}, connections = {};

	(void)state;
#define X(id, text, ...) add(&drops, text);
	ABI_DROPS(X)
	PIPELINE_DROPS(X)
#undef X
	check("flamed_samples_dropped_total", "reason", &drops);
#define X(id, text, ...) add(&outcomes, text);
	UNWIND_OUTCOMES(X)
#undef X
	check("flamed_stacks_total", "outcome", &outcomes);
#define X(id, text)                                    \
	if (export_fate_is_final(EXPORT_FATE_##id)) \
		add(&results, text);
	EXPORT_FATES(X)
#undef X
	check("flamed_sink_samples_total", "result", &results);
#define X(id, text)                            \
	if (TIMELINE_##id != TIMELINE_NONE) \
		add(&ends, text);
	TIMELINE_ENDS(X)
#undef X
	check("flamed_windows_total", "end", &ends);
#define X(id, text) add(&refusals, text);
	EXPORT_REFUSALS(X)
#undef X
	check("flamed_taps_refused_total", "reason", &refusals);
#define X(id, text) add(&connections, text);
	CONNECTION_ENDS(X)
#undef X
	check("flamed_listener_connections_ended_total", "reason", &connections);
}

/* What is known by its metric alone. */
static void every_metric_with_a_label_has_a_line(void **state)
{
	static const struct {
		const char *name, *label;
	} metrics[] = {
#define GAUGE 0
#define COUNTER 0
#define X(id, name, type, label, help) { name, label },
		EXPORT_METRICS(X)
#undef X
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		char key[128];

		snprintf(key, sizeof(key), "\n| `%s` | `%s` | `", metrics[i].name, metrics[i].label);
		if (*metrics[i].label && !strstr(doc, key))
			fail_msg("docs/api.md says no values of %s{%s}", metrics[i].name, metrics[i].label);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_documented_label_values_are_those_that_there_are),
		cmocka_unit_test(every_metric_with_a_label_has_a_line),
	};

	return cmocka_run_group_tests(tests, read_doc, free_doc);
}
