#include <cap-ng.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "exporter/api.h"
#include "exporter/jsontext.h"

static uint64_t value_of(const struct api_view *v, enum export_metric_id id, const char *endpoint,
			 const char *label)
{
	for (uint32_t i = 0; v->status && i < v->status->nmetrics; i++) {
		const struct export_metric *m = &v->status->metrics[i];

		if (m->id == id && !strcmp(m->endpoint, endpoint) && !strcmp(m->label, label))
			return m->value;
	}
	return 0;
}

/* {label: value} of a metric. */
static json_t *values_of(const struct api_view *v, enum export_metric_id id, const char *endpoint)
{
	CLEANUP_JSON json_t *o = json_object();

	for (uint32_t i = 0; o && v->status && i < v->status->nmetrics; i++) {
		const struct export_metric *m = &v->status->metrics[i];
		CLEANUP_FREE char *key = NULL;
		size_t len;

		if (m->id != id || strcmp(m->endpoint, endpoint))
			continue;
		if (utf8_repair(m->label, strlen(m->label), &key, &len) ||
		    json_object_setn_new_nocheck(o, key, len, json_integer((json_int_t)m->value)))
			return NULL;
	}
	return TAKE(o);
}

/* Of the stacks that had one to find: kernel threads and the like are none (docs/). */
static double complete_percent(const struct api_view *v)
{
	static const char *const without[] = { "kernel_thread", "in_exec", "new_thread",
					       "exiting" };
	uint64_t all = 0, complete = value_of(v, EXPORT_METRIC_OUTCOMES, "", "complete");

	for (uint32_t i = 0; v->status && i < v->status->nmetrics; i++) {
		const struct export_metric *m = &v->status->metrics[i];
		bool is_counted = m->id == EXPORT_METRIC_OUTCOMES;

		for (size_t j = 0; j < ARRAY_SIZE(without); j++)
			is_counted = is_counted && strcmp(m->label, without[j]);
		all += is_counted ? m->value : 0;
	}
	return all ? 100 * (double)complete / (double)all : 100;
}

static json_t *samples_json(const struct api_view *v)
{
	return json_pack("{s:I, s:I, s:o, s:o, s:f}", "seen",
			 (json_int_t)value_of(v, EXPORT_METRIC_SEEN, "", ""), "counted",
			 (json_int_t)value_of(v, EXPORT_METRIC_SAMPLES, "", ""), "dropped",
			 values_of(v, EXPORT_METRIC_DROPPED, ""), "stacks",
			 values_of(v, EXPORT_METRIC_OUTCOMES, ""), "complete_percent",
			 complete_percent(v));
}

static json_t *sink_json(const struct api_view *v, const struct sink_stats *s)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", /**/
			 "name", jsontext(s->name), "kind", jsontext(s->kind), "state",
			 jsontext(s->state), "last_error", jsontext(s->last_error),
			 "last_error_time", clock_seconds(s->last_error_wall_ns), "last_ok_time",
			 clock_seconds(s->last_ok_wall_ns), "queued", (json_int_t)s->nqueued,
			 "queued_bytes", (json_int_t)s->queued_bytes, "queue_max_bytes",
			 (json_int_t)s->queue_max_bytes, "retries", (json_int_t)s->nretries,
			 "bytes_sent", (json_int_t)s->bytes_sent, "pending",
			 (json_int_t)value_of(v, EXPORT_METRIC_SINK_PENDING, s->name, ""),
			 "samples", values_of(v, EXPORT_METRIC_SINK_SAMPLES, s->name));
}

static json_t *sinks_json(const struct api_view *v)
{
	CLEANUP_JSON json_t *list = json_array();

	for (size_t i = 0; list && i < v->nsinks; i++) {
		if (json_array_append_new(list, sink_json(v, &v->sinks[i])))
			return NULL;
	}
	return TAKE(list);
}

static json_t *memory_json(const struct api_view *v)
{
	json_t *o = values_of(v, EXPORT_METRIC_MEMORY, "");
	uint64_t maps = value_of(v, EXPORT_METRIC_MAPS, "", "");

	if (o && json_object_set_new_nocheck(o, "bpf_maps", json_integer((json_int_t)maps))) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static json_t *cpu_json(const struct api_view *v)
{
	CLEANUP_JSON json_t *o = values_of(v, EXPORT_METRIC_CPU, "");
	const char *key;
	json_t *value;

	json_object_foreach(o, key, value)
	{
		double s = clock_seconds((uint64_t)json_integer_value(value));

		if (json_object_set_new_nocheck(o, key, json_real(s)))
			return NULL;
	}
	return TAKE(o);
}

static json_t *caps_json(uint64_t caps)
{
	CLEANUP_JSON json_t *list = json_array();

	for (unsigned int cap = 0; list && cap < 64; cap++) {
		const char *name;
		char number[16];

		if (!(caps >> cap & 1))
			continue;
		name = capng_capability_to_name(cap);
		if (!name) {
			snprintf(number, sizeof(number), "cap_%u", cap);
			name = number;
		}
		if (json_array_append_new(list, json_string(name)))
			return NULL;
	}
	return TAKE(list);
}

static json_t *processes_json(const struct api_view *v)
{
	CLEANUP_JSON json_t *list = json_array();

	for (uint32_t i = 0; list && v->status && i < v->status->nprocesses; i++) {
		const struct export_process *p = &v->status->processes[i];
		json_t *o = json_pack("{s:o, s:I, s:I, s:o, s:o, s:b, s:b}", "name",
				      jsontext(p->name), "pid", (json_int_t)p->pid, "uid",
				      (json_int_t)p->uid, "caps_effective",
				      caps_json(p->caps_effective), "caps_permitted",
				      caps_json(p->caps_permitted), "seccomp", p->seccomp,
				      "no_new_privs", p->no_new_privs);

		if (json_array_append_new(list, o))
			return NULL;
	}
	return TAKE(list);
}

static json_t *listeners_json(const struct api_view *v)
{
	CLEANUP_JSON json_t *list = json_array();

	for (size_t i = 0; list && i < v->nlisteners; i++) {
		const struct api_listener *l = &v->listeners[i];

		if (json_array_append_new(list, json_pack("{s:o, s:o, s:b, s:o}", "name",
							  jsontext(l->name), "address",
							  jsontext(l->address), "up", l->is_up,
							  "error", jsontext(l->error))))
			return NULL;
	}
	return TAKE(list);
}

static json_t *recent_json(const struct api_view *v)
{
	struct recent_totals t;

	recent_totals(v->recent, &t);
	return json_pack("{s:I, s:I, s:f, s:f, s:I, s:I}", "windows", (json_int_t)t.nwindows,
			 "bytes", (json_int_t)t.bytes, "from", clock_seconds(t.from_ns), "to",
			 clock_seconds(t.to_ns), "evicted", (json_int_t)t.nevicted, "refused",
			 (json_int_t)t.nrefused);
}

static json_t *config_json(const struct api_view *v)
{
	return json_pack("{s:o, s:o, s:b}", "path",
			 jsontext(v->status ? v->status->config_path : ""), "hash",
			 jsontext(v->hash), "last_reload_ok",
			 value_of(v, EXPORT_METRIC_RELOAD_OK, "", "") != 0);
}

/* Adds `o`, also when it is NULL: then it fails. */
static int put(json_t *to, const char *key, json_t *o)
{
	return json_object_set_new_nocheck(to, key, o);
}

json_t *api_status(const struct api_view *v)
{
	CLEANUP_JSON json_t *o = json_object();
	const struct export_status *s = v->status;
	uint64_t start = s ? s->start_wall_ns : 0, now = clock_wall_ns();

	if (!o || put(o, "version", jsontext(v->version)) ||
	    put(o, "build", jsontext(ipc_build_id)) || put(o, "hostname", jsontext(v->hostname)) ||
	    put(o, "start_time", json_real(clock_seconds(start))) ||
	    put(o, "uptime_seconds", json_real(s && now > start ? clock_seconds(now - start) : 0)) ||
	    put(o, "hz", json_integer(s ? s->hz : 0)) ||
	    put(o, "cpus", json_integer(s ? s->ncpus : 0)) ||
	    put(o, "window_seconds", json_real(clock_seconds(s ? s->window_ns : 0))) ||
	    put(o, "config", config_json(v)) || put(o, "samples", samples_json(v)) ||
	    put(o, "windows", values_of(v, EXPORT_METRIC_WINDOWS, "")) ||
	    put(o, "sinks", sinks_json(v)) || put(o, "memory", memory_json(v)) ||
	    put(o, "cpu_seconds", cpu_json(v)) ||
	    put(o, "restarts", values_of(v, EXPORT_METRIC_RESTARTS, "")) ||
	    put(o, "processes", processes_json(v)) ||
	    put(o, "missing_rights", jsontext(s ? s->missing_rights : "")) || put(o, "listeners", listeners_json(v)) ||
	    put(o, "recent", recent_json(v)) || put(o, "landlock", json_integer(v->landlock)))
		return NULL;
	return TAKE(o);
}
