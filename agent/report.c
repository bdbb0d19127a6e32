#include "agent/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/rights.h"
#include "agent/summary.h"
#include "base/clock.h"
#include "base/log.h"

/* /proc of four processes costs more than all the rest. */
enum { LOOK_EVERY = 5, METRICS_MAX = 1024, PROCESSES = 4, PROC_TEXT_MAX = 4096 };

/* One of our own, as it was last seen. */
struct process {
	struct export_process about;
	uint64_t memory_bytes, cpu_ns;
};

struct report {
	struct process processes[PROCESSES];
	uint32_t nprocesses, nsent;
	struct export_metric metrics[METRICS_MAX];
	uint32_t nmetrics;
	struct bufw out;
};

/* ---- processes ---- */

static bool read_proc(pid_t pid, const char *name, char *ret, size_t size)
{
	CLEANUP_FD int fd = -1;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, size - 1);
	ret[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* The number behind `\nName:`; the file begins with another line. */
static uint64_t field(const char *text, const char *name, int base)
{
	char key[32];
	const char *at;

	snprintf(key, sizeof(key), "\n%s:", name);
	at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, base) : 0;
}

/* Source: proc_pid_stat(5): utime and stime are the 12th and 13th after the name in parentheses. */
static uint64_t cpu_ns(const char *stat)
{
	const char *at = strrchr(stat, ')');
	uint64_t utime = 0, stime = 0;

	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &utime, &stime) != 2)
		return 0;
	return (utime + stime) * (NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void look_at(struct report *r, const char *name, pid_t pid)
{
	struct process *p = &r->processes[r->nprocesses];
	char text[PROC_TEXT_MAX];

	if (pid < 0 || !read_proc(pid, "status", text, sizeof(text)))
		return;
	*p = (struct process){ .about = {
		.name = name, .pid = (uint32_t)pid, .uid = (uint32_t)field(text, "Uid", 10),
		.caps_effective = field(text, "CapEff", 16), .caps_permitted = field(text, "CapPrm", 16),
		.seccomp = field(text, "Seccomp", 10) != 0, .no_new_privs = field(text, "NoNewPrivs", 10) != 0,
	} };
	p->memory_bytes = (field(text, "RssAnon", 10) + field(text, "RssShmem", 10)) * 1024;
	if (read_proc(pid, "stat", text, sizeof(text)))
		p->cpu_ns = cpu_ns(text);
	r->nprocesses++;
}

static void look_at_all(struct report *r, const struct report_source *src)
{
	struct engine_pids pids = engine_pids(src->engine);

	r->nprocesses = 0;
	look_at(r, "agent", getpid());
	look_at(r, "reader", pids.reader);
	look_at(r, "symbolizer", pids.symbolizer);
	look_at(r, "exporter", expclient_pid(src->exporter));
}

/* ---- metrics ---- */

static void add(struct report *r, enum export_metric_id id, const char *endpoint, const char *label, uint64_t value)
{
	if (r->nmetrics < METRICS_MAX)
		r->metrics[r->nmetrics++] = (struct export_metric){ id, endpoint, label, value };
}

static const char *kernel_drop_text(int d)
{
	static const char *const texts[] = {
#define X(id, text) [ABI_DROP_##id] = text,
		ABI_DROPS(X)
#undef X
	};

	return texts[d];
}

typedef void drop_fn(void *arg, const char *reason, uint64_t n);

static void each_drop(const struct pipeline_stats *s, drop_fn *fn, void *arg)
{
	for (int d = 0; d < ABI_DROP_COUNT; d++) {
		uint64_t n = s->counters[ABI_CNT_DROPS + d];

		/* Both sides can filter; it is one reason. */
		if (d == ABI_DROP_FILTERED)
			n += s->dropped[PIPELINE_DROP_FILTERED];
		fn(arg, kernel_drop_text(d), n);
	}
	for (int d = 0; d < PIPELINE_DROP_COUNT; d++) {
		if (d != PIPELINE_DROP_FILTERED)
			fn(arg, pipeline_drop_text((enum pipeline_drop)d), s->dropped[d]);
	}
}

static void add_drop(void *arg, const char *reason, uint64_t n)
{
	add(arg, EXPORT_METRIC_DROPPED, "", reason, n);
}

static void add_samples(struct report *r, const struct pipeline_stats *s)
{
	add(r, EXPORT_METRIC_SEEN, "", "", s->counters[ABI_CNT_SEEN]);
	add(r, EXPORT_METRIC_SAMPLES, "", "", s->samples);
	each_drop(s, add_drop, r);
	for (int o = 0; o < UNWIND_OUTCOME_COUNT; o++)
		add(r, EXPORT_METRIC_OUTCOMES, "", unwind_outcome_text((enum unwind_outcome)o), s->outcomes[o]);
	add(r, EXPORT_METRIC_LABELS_LATE, "", "", s->labels_late);
	add(r, EXPORT_METRIC_NAMES_LATE, "", "", s->names_late);
	add(r, EXPORT_METRIC_NAMES_CUT, "", "", s->names_cut);
	add(r, EXPORT_METRIC_EXCLUDED, "", "", s->excluded);
	add(r, EXPORT_METRIC_ANNOUNCE_LOST, "", "full", s->announce_full);
	add(r, EXPORT_METRIC_ANNOUNCE_LOST, "", "unanswered", s->announce_unanswered);
	add(r, EXPORT_METRIC_TAPS, "", "", s->taps);
	for (int w = 0; w < EXPORT_REFUSAL_COUNT; w++)
		add(r, EXPORT_METRIC_TAPS_REFUSED, "", export_refusal_text((enum export_refusal)w), s->taps_refused[w]);
	add(r, EXPORT_METRIC_TAPS_FULL, "", "", s->taps_full);
	add(r, EXPORT_METRIC_SIDEBAND_LOST, "", "", s->sideband_lost);
	add(r, EXPORT_METRIC_ROWS_EVICTED, "", "", s->rows_evicted);
	add(r, EXPORT_METRIC_FILES_REFUSED, "", "", s->files_refused);
}

static void add_sinks(struct report *r, const struct expclient *c)
{
	for (size_t i = 0; i < expclient_nsinks(c); i++) {
		const struct ledger_sink *s = expclient_sink(c, i);

		for (int k = 0; k < EXPORT_FATE_COUNT; k++) {
			enum export_fate_kind kind = (enum export_fate_kind)k;

			if (export_fate_is_final(kind))
				add(r, EXPORT_METRIC_SINK_SAMPLES, s->name, export_fate_text(kind), s->samples[k]);
		}
		add(r, EXPORT_METRIC_SINK_PENDING, s->name, "", s->pending);
	}
	add(r, EXPORT_METRIC_BATCHES_HELD, "", "", expclient_nheld(c));
}

static void add_own(struct report *r, const struct report_source *src)
{
	struct engine_restarts restarts = engine_restarts(src->engine);

	for (int e = TIMELINE_NONE + 1; e < TIMELINE_END_COUNT; e++)
		add(r, EXPORT_METRIC_WINDOWS, "", timeline_end_text((enum timeline_end)e), src->windows[e]);
	add(r, EXPORT_METRIC_RESTARTS, "", "symbolizer", restarts.symbolizer);
	add(r, EXPORT_METRIC_RESTARTS, "", "reader", restarts.reader);
	add(r, EXPORT_METRIC_RESTARTS, "", "exporter", expclient_restarts(src->exporter));
	add(r, EXPORT_METRIC_QUARANTINED, "", "", engine_quarantined(src->engine));
	for (uint32_t i = 0; i < r->nprocesses; i++) {
		add(r, EXPORT_METRIC_MEMORY, "", r->processes[i].about.name, r->processes[i].memory_bytes);
		add(r, EXPORT_METRIC_CPU, "", r->processes[i].about.name, r->processes[i].cpu_ns);
	}
	add(r, EXPORT_METRIC_MAPS, "", "", engine_map_bytes(src->engine));
	add(r, EXPORT_METRIC_RELOAD_OK, "", "", settings_reload_ok(src->settings));
	add(r, EXPORT_METRIC_RELOAD_TIME, "", "", settings_wall_ns(src->settings) / NSEC_PER_SEC);
}

int report_send(struct report *r, const struct report_source *src)
{
	const struct config *config = settings_config(src->settings);
	struct export_process processes[PROCESSES];
	struct export_status status = {
		.start_wall_ns = src->start_wall_ns, .hz = config->sampling.frequency_hz,
		.ncpus = engine_ncpus(src->engine), .window_ns = config->window_ns,
		.config_path = settings_path(src->settings), .missing_rights = rights_loss(src->missing_caps), .processes = processes, .metrics = r->metrics,
	};
	int err;

	if (r->nsent++ % LOOK_EVERY == 0)
		look_at_all(r, src);
	for (uint32_t i = 0; i < r->nprocesses; i++)
		processes[i] = r->processes[i].about;
	r->nmetrics = 0;
	add_samples(r, engine_stats(src->engine));
	add_sinks(r, src->exporter);
	add_own(r, src);
	status.nprocesses = r->nprocesses;
	status.nmetrics = r->nmetrics;
	bufw_reset(&r->out);
	export_status_encode(&r->out, &status);
	err = bufw_end(&r->out);
	if (!err)
		err = expclient_tell(src->exporter, EXPORT_STATUS, r->out.data, r->out.len, -1);
	return err == -EAGAIN || err == -EPIPE ? 0 : err;
}

int report_new(struct report **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

struct report *report_free(struct report *r)
{
	if (r)
		bufw_fini(&r->out);
	free(r);
	return NULL;
}

/* ---- for people ---- */

struct text {
	char s[768];
	size_t len;
};

static void PRINTF(2, 3) append(struct text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->s + t->len, sizeof(t->s) - t->len, fmt, args);
	va_end(args);
	t->len = MIN(t->len + (size_t)MAX(n, 0), sizeof(t->s) - 1);
}

static void append_drop(void *arg, const char *reason, uint64_t n)
{
	if (n)
		append(arg, " %s=%" PRIu64, reason, n);
}

static uint64_t count_windows(const struct report_source *src)
{
	uint64_t sum = 0;

	for (int e = 0; e < TIMELINE_END_COUNT; e++)
		sum += src->windows[e];
	return sum;
}

static void log_sink(const struct ledger_sink *s)
{
	struct text fates = { .s = "" };
	uint64_t sum = s->pending;

	for (int k = 0; k < EXPORT_FATE_COUNT; k++) {
		sum += s->samples[k];
		append_drop(&fates, export_fate_text((enum export_fate_kind)k), s->samples[k]);
	}
	append_drop(&fates, "pending", s->pending);
	append_drop(&fates, "overdone", s->overdone);
	log_info("delivery endpoint=%s samples=%" PRIu64 "%s", LOG_STR(s->name), sum, fates.s);
}

void report_log(const struct report_source *src, const char *text)
{
	report_log_short(src, text);
	for (size_t i = 0; i < expclient_nsinks(src->exporter); i++)
		log_sink(expclient_sink(src->exporter, i));
}

void report_log_short(const struct report_source *src, const char *text)
{
	const struct pipeline_stats *s = engine_stats(src->engine);
	int64_t unaccounted = summary_unaccounted(s);
	struct text drops = { .s = "" };

	each_drop(s, append_drop, &drops);
	if (unaccounted)
		append(&drops, " unaccounted=%" PRId64, unaccounted);
	log_info("%s windows=%" PRIu64 " seen=%" PRIu64 " samples=%" PRIu64 " complete=%.1f%%%s", text,
		 count_windows(src), s->counters[ABI_CNT_SEEN], s->samples, summary_completeness(s), drops.s);
}

void report_progress(const struct report_source *src)
{
	const struct pipeline_stats *s = engine_stats(src->engine);
	uint64_t delivered = 0;

	for (size_t i = 0; i < expclient_nsinks(src->exporter); i++)
		delivered += expclient_sink(src->exporter, i)->samples[EXPORT_FATE_DELIVERED];
	/* A log line that comes next begins at the left again. */
	fprintf(stderr, "\r\033[K%" PRIu64 " samples, %.1f %% complete, %" PRIu64 " lost, %" PRIu64 " windows, %" PRIu64
		" samples delivered\r", s->samples, summary_completeness(s),
		s->counters[ABI_CNT_DROPS + ABI_DROP_RING_FULL], count_windows(src), delivered);
}
