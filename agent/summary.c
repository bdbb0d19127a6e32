#include "agent/summary.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

double summary_completeness(const struct pipeline_stats *s)
{
	uint64_t all = 0;

	for (int o = 0; o < UNWIND_OUTCOME_COUNT; o++) {
		if (unwind_outcome_counts((enum unwind_outcome)o))
			all += s->outcomes[o];
	}
	return all ? 100.0 * (double)s->outcomes[UNWIND_COMPLETE] / (double)all : 100.0;
}

static uint64_t all_drops(const struct pipeline_stats *s)
{
	uint64_t sum = 0;

	for (int d = 0; d < ABI_DROP_COUNT; d++)
		sum += s->counters[ABI_CNT_DROPS + d];
	for (int d = 0; d < PIPELINE_DROP_COUNT; d++)
		sum += s->dropped[d];
	return sum;
}

int64_t summary_unaccounted(const struct pipeline_stats *s)
{
	return (int64_t)(s->counters[ABI_CNT_SEEN] - s->samples - all_drops(s));
}

static void print_drops(FILE *out, const struct pipeline_stats *s)
{
	static const char *const kernel[] = {
#define X(id, text) [ABI_DROP_##id] = text,
		ABI_DROPS(X)
#undef X
	};
	int64_t unaccounted = summary_unaccounted(s);

	fputs("drops:", out);
	for (int d = 0; d < ABI_DROP_COUNT; d++) {
		uint64_t n = s->counters[ABI_CNT_DROPS + d];

		/* Both sides can filter; it is one reason. */
		if (d == ABI_DROP_FILTERED)
			n += s->dropped[PIPELINE_DROP_FILTERED];
		if (n)
			fprintf(out, " %s=%" PRIu64, kernel[d], n);
	}
	for (int d = 0; d < PIPELINE_DROP_COUNT; d++) {
		if (s->dropped[d] && d != PIPELINE_DROP_FILTERED)
			fprintf(out, " %s=%" PRIu64, pipeline_drop_text((enum pipeline_drop)d), s->dropped[d]);
	}
	if (unaccounted)
		fprintf(out, " unaccounted=%" PRId64, unaccounted);
	fputs(all_drops(s) || unaccounted ? "\n" : " none\n", out);
}

static void print_cost(FILE *out, const struct pipeline_stats *s, const struct summary_run *r)
{
	if (s->samples)
		fprintf(out, "copied: %" PRIu64 " bytes of user stack a sample\n", s->stack_bytes / s->samples);
	if (r->bpf_runs)
		fprintf(out, "bpf: %" PRIu64 " ns a tick\n", r->bpf_ns / r->bpf_runs);
}

void summary_print_counts(FILE *out, const struct pipeline_stats *s, const struct summary_run *r)
{
	fprintf(out, "samples: %" PRIu64 " in the profile\nseen: %" PRIu64 " ticks on busy CPUs\nstacks:",
		s->samples, s->counters[ABI_CNT_SEEN]);
	for (int o = 0; o < UNWIND_OUTCOME_COUNT; o++) {
		if (s->outcomes[o])
			fprintf(out, " %s=%" PRIu64, unwind_outcome_text((enum unwind_outcome)o), s->outcomes[o]);
	}
	fprintf(out, "\ncomplete: %.1f %% of the stacks in user space reach their root\n", summary_completeness(s));
	print_cost(out, s, r);
	print_drops(out, s);
	if (s->sideband_lost)
		fprintf(out, "process records lost: %" PRIu64 " (processes were scanned again)\n",
			s->sideband_lost);
	if (s->files_refused)
		fprintf(out, "files not opened: %" PRIu64 " (the limit of open files is too low: ulimit -Hn)\n",
			s->files_refused);
	if (r->symbolizer || r->exporter || r->reader)
		fprintf(out, "restarts: symbolizer=%" PRIu64 " exporter=%" PRIu64 " reader=%" PRIu64 "\n",
			r->symbolizer, r->exporter, r->reader);
}

struct hot {
	uint64_t self_ns, total_ns;
	uint32_t function;
	bool is_module;		/* frames of a file without names */
	uint32_t seen_in;	/* sample + 1 that counted it last: recursion counts once */
};

static int by_self(const void *a, const void *b)
{
	const struct hot *x = a, *y = b;

	if (x->self_ns != y->self_ns)
		return x->self_ns > y->self_ns ? -1 : 1;
	return x->function < y->function ? -1 : 1;
}

/* Whether a function is the module+0xoffset of a frame without a name, and nothing that a file named so. */
static bool is_unnamed(const struct export_batch *b, const struct export_location *loc, uint32_t function)
{
	const struct export_string *name = &b->strings[b->functions[function].name];
	const struct export_string *path = &b->strings[b->mappings[loc->mapping].filename];
	const char *slash = memrchr(path->text, '/', path->len);
	const char *base = slash ? slash + 1 : path->text;
	size_t len = (size_t)(path->text + path->len - base);

	return name->len > len + 3 && memcmp(name->text, base, len) == 0 &&
	       memcmp(name->text + len, "+0x", 3) == 0;
}

/*
 * What a line counts under: functions of one name are one line, whatever file they are in; frames
 * without a name are one line a file, or a stripped library would fill the table address by address.
 */
static struct hot *hot_of(const struct export_batch *b, const struct export_location *loc, uint32_t line,
			  struct hot *by_name)
{
	uint32_t function = b->lines[loc->first_line + line].function;
	struct hot *h;

	if (!is_unnamed(b, loc, function))
		return &by_name[b->functions[function].name];
	h = &by_name[b->mappings[loc->mapping].filename];
	h->is_module = true;
	return h;
}

static void add_sample(const struct export_batch *b, uint32_t i, struct hot *by_name)
{
	const struct export_sample *s = &b->samples[i];

	for (uint32_t f = 0; f < s->nframes; f++) {
		const struct export_location *loc = &b->locations[b->frames[s->first_frame + f]];

		for (uint32_t l = 0; l < loc->nlines; l++) {
			struct hot *h = hot_of(b, loc, l, by_name);

			if (f == 0 && l == 0)
				h->self_ns += s->nanoseconds;
			if (h->seen_in != i + 1)
				h->total_ns += s->nanoseconds;
			h->seen_in = i + 1;
		}
	}
}

void summary_print_hottest(FILE *out, const struct export_batch *b, uint32_t n)
{
	struct hot *by_name = calloc(b->nstrings + 1, sizeof(*by_name));
	uint64_t sum_ns = 0;

	if (!by_name)
		return;
	for (uint32_t i = 0; i < b->nstrings; i++)
		by_name[i].function = i;
	for (uint32_t i = 0; i < b->nsamples; i++) {
		add_sample(b, i, by_name);
		sum_ns += b->samples[i].nanoseconds;
	}
	qsort(by_name, b->nstrings, sizeof(*by_name), by_self);
	if (sum_ns)
		fprintf(out, "\n%10s %6s %6s  %s\n", "CPU", "self", "total", "function");
	for (uint32_t i = 0; i < n && i < b->nstrings && by_name[i].self_ns; i++) {
		const struct export_string *name = &b->strings[by_name[i].function];
		struct log_str shown = log_str(name->text, MIN(name->len, 100u));

		/* Escaped like in a log line, but without its quotes. */
		shown.text[strlen(shown.text) - 1] = 0;
		fprintf(out, "%9.2fs %5.1f%% %5.1f%%  %s%s\n", (double)by_name[i].self_ns / 1e9,
			100.0 * (double)by_name[i].self_ns / (double)sum_ns,
			100.0 * (double)by_name[i].total_ns / (double)sum_ns, shown.text + 1,
			by_name[i].is_module ? " (no name)" : "");
	}
	free(by_name);
}
