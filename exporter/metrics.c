#include "exporter/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "exporter/utf8.h"

static void put(struct bufw *w, const char *s)
{
	bufw_bytes(w, s, strlen(s));
}

static void head(struct bufw *w, const char *name, const char *type, const char *help)
{
	bufw_printf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* One label of a list that begins with `{` at the first of them. */
static void label(struct bufw *w, bool *is_first, const char *name, const char *value)
{
	bufw_printf(w, "%s%s=\"", *is_first ? "{" : ",", name);
	*is_first = false;
	for (const char *c = utf8_is_text(value, strlen(value)) ? value : "?"; *c; c++) {
		switch (*c) {
		case '\\':
			put(w, "\\\\");
			break;
		case '"':
			put(w, "\\\"");
			break;
		case '\n':
			put(w, "\\n");
			break;
		default:
			bufw_bytes(w, c, 1);
		}
	}
	put(w, "\"");
}

static void sample(struct bufw *w, const char *name, const char *label_name,
		   const char *label_value, const char *value)
{
	bool is_first = true;

	put(w, name);
	if (*label_name)
		label(w, &is_first, label_name, label_value);
	bufw_printf(w, "%s %s\n", is_first ? "" : "}", value);
}

/* ---- what the agent tells ------------------------------------------------------------------- */

/* clang-format off */
static const struct {
	const char *name, *type, *label, *help;
} known[] = {
#define GAUGE "gauge"
#define COUNTER "counter"
#define X(id, name, type, label, help) { name, type, label, help },
	EXPORT_METRICS(X)
#undef X
};
/* clang-format on */

static void agents(struct bufw *w, const struct export_status *s, enum export_metric_id id)
{
	bool has_head = false;

	for (uint32_t i = 0; i < s->nmetrics; i++) {
		const struct export_metric *m = &s->metrics[i];
		bool is_first = true;

		if (m->id != id)
			continue;
		if (!has_head)
			head(w, known[id].name, known[id].type, known[id].help);
		has_head = true;
		put(w, known[id].name);
		if (*m->endpoint)
			label(w, &is_first, "endpoint", m->endpoint);
		if (*known[id].label && *m->label)
			label(w, &is_first, known[id].label, m->label);
		bufw_printf(w, "%s %" PRIu64 "\n", is_first ? "" : "}", m->value);
	}
}

/* ---- what the exporter knows ---------------------------------------------------------------- */

/* clang-format off */
static const struct {
	const char *name, *type, *help;
	size_t offset; /* in struct sink_stats */
} of_sinks[] = {
	{ "flamed_sink_queue_profiles", GAUGE, "Profiles that wait to be sent.", offsetof(struct sink_stats, nqueued) },
	{ "flamed_sink_queue_bytes", GAUGE, "Bytes that wait to be sent.", offsetof(struct sink_stats, queued_bytes) },
	{ "flamed_sink_queue_max_bytes", GAUGE, "Bytes that may wait.", offsetof(struct sink_stats, queue_max_bytes) },
	{ "flamed_sink_profiles_sent_total", COUNTER, "Profiles that a sink took.", offsetof(struct sink_stats, nsent) },
	{ "flamed_sink_bytes_sent_total", COUNTER, "Bytes that a sink took.", offsetof(struct sink_stats, bytes_sent) },
	{ "flamed_sink_retries_total", COUNTER, "Requests that were tried again.", offsetof(struct sink_stats, nretries) },
};
/* clang-format on */

static void sinks(struct bufw *w, const struct api_view *v)
{
	static const char last_ok[] = "flamed_sink_last_success_timestamp_seconds";
	char text[64];

	for (size_t i = 0; i < ARRAY_SIZE(of_sinks) && v->nsinks; i++) {
		head(w, of_sinks[i].name, of_sinks[i].type, of_sinks[i].help);
		for (size_t j = 0; j < v->nsinks; j++) {
			uint64_t value;

			memcpy(&value, (const char *)&v->sinks[j] + of_sinks[i].offset,
			       sizeof(value));
			snprintf(text, sizeof(text), "%" PRIu64, value);
			sample(w, of_sinks[i].name, "endpoint", v->sinks[j].name, text);
		}
	}
	if (v->nsinks)
		head(w, last_ok, GAUGE, "When a sink last took a profile; 0 never.");
	for (size_t j = 0; j < v->nsinks; j++) {
		snprintf(text, sizeof(text), "%.3f",
			 clock_seconds(v->sinks[j].last_ok_wall_ns));
		sample(w, last_ok, "endpoint", v->sinks[j].name, text);
	}
}

static void names(struct bufw *w, const struct names_stats *n)
{
	static const char *const kinds[NAMES_NKINDS] = { "executable", "unit" };
	char text[32];

	head(w, "flamed_service_names", GAUGE, "Names of services that are told apart.");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		snprintf(text, sizeof(text), "%" PRIu32, n->n[i]);
		sample(w, "flamed_service_names", "from", kinds[i], text);
	}
	head(w, "flamed_service_names_other_samples_total", COUNTER,
	     "Samples whose service has no name of its own because there are too many.");
	bufw_printf(w, "flamed_service_names_other_samples_total %" PRIu64 "\n", n->nother);
}

static void listeners(struct bufw *w, const struct api_view *v)
{
	static const char name[] = "flamed_listener_up";
	static const char ended[] = "flamed_listener_connections_ended_total";

	head(w, name, GAUGE, "Whether an address that the settings want is served.");
	for (size_t i = 0; i < v->nlisteners; i++)
		sample(w, name, "listener", v->listeners[i].name,
		       v->listeners[i].is_up ? "1" : "0");
	head(w, ended, COUNTER, "Connections that were ended for being slow, or for others.");
	for (size_t i = 0; i < v->nlisteners; i++) {
		for (int e = 0; e < CONNECTION_END_COUNT; e++) {
			bool is_first = true;

			put(w, ended);
			label(w, &is_first, "listener", v->listeners[i].name);
			label(w, &is_first, "reason", connection_end_text((enum connection_end)e));
			bufw_printf(w, "} %" PRIu64 "\n", v->listeners[i].nended[e]);
		}
	}
}

static void recent(struct bufw *w, const struct api_view *v)
{
	struct recent_totals t;

	recent_totals(v->recent, &t);
	head(w, "flamed_recent_windows", GAUGE, "Windows that the page can show.");
	bufw_printf(w, "flamed_recent_windows %zu\n", t.nwindows);
	head(w, "flamed_recent_bytes", GAUGE, "Memory that they take.");
	bufw_printf(w, "flamed_recent_bytes %zu\n", t.bytes);
	head(w, "flamed_recent_windows_evicted_total", COUNTER, "Windows that made room for newer ones.");
	bufw_printf(w, "flamed_recent_windows_evicted_total %" PRIu64 "\n", t.nevicted);
	head(w, "flamed_recent_windows_refused_total", COUNTER, "Windows over page.max_bytes alone.");
	bufw_printf(w, "flamed_recent_windows_refused_total %" PRIu64 "\n", t.nrefused);
}

static void identity(struct bufw *w, const struct api_view *v)
{
	bool is_first = true;

	head(w, "flamed_build_info", GAUGE, "What runs here.");
	put(w, "flamed_build_info");
	label(w, &is_first, "version", v->version);
	label(w, &is_first, "build", ipc_build_id);
	put(w, "} 1\n");
	head(w, "flamed_config_hash", GAUGE, "The settings in use.");
	sample(w, "flamed_config_hash", "hash", v->hash, "1");
	if (v->status) {
		head(w, "flamed_start_time_seconds", GAUGE, "When the daemon began.");
		bufw_printf(w, "flamed_start_time_seconds %.3f\n",
		     clock_seconds(v->status->start_wall_ns));
	}
}

void metrics_write(struct bufw *out, const struct api_view *v)
{
	identity(out, v);
	listeners(out, v);
	for (unsigned int i = 0; i < EXPORT_METRIC_COUNT && v->status; i++)
		agents(out, v->status, (enum export_metric_id)i);
	sinks(out, v);
	if (v->names)
		names(out, v->names);
	recent(out, v);
}
