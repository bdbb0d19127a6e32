#include "agent/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/engine.h"
#include "agent/expclient.h"
#include "agent/limits.h"
#include "agent/notify.h"
#include "agent/place.h"
#include "agent/report.h"
#include "agent/rights.h"
#include "agent/settings.h"
#include "agent/timeline.h"
#include "base/clock.h"
#include "base/log.h"

#define LOCK_POLL_NS (200 * NSEC_PER_MSEC)
#define NOTIFY_NS (10 * NSEC_PER_SEC)
#define SUMMARY_NS (3600 * NSEC_PER_SEC)
/* After the signal: until the last samples are unwound, the last window is named, it is delivered. */
#define SETTLE_NS (2 * NSEC_PER_SEC)
#define NAMED_NS (3200 * NSEC_PER_MSEC)
#define DELIVERED_NS (4200 * NSEC_PER_MSEC)

struct daemon {
	struct loop *loop;
	struct engine_programs programs;
	struct place place;
	struct settings *settings;
	struct expclient *exporter;
	struct engine *engine;
	struct report *report;
	struct report_source source;
	struct timeline timeline;
	struct timeline_window last;
	struct log_limit lost_limit;
	uint64_t missing_caps;
	uint64_t stop_ns;	/* when the signal came */
	uint64_t handed_on;	/* samples in windows, or left out of them */
	uint64_t excluded;	/* of these, left out */
	uint64_t summary_ns;
	bool sampling, is_last_handed_on, is_flushed;
	bool wants_reload;	/* SIGHUP came before sampling began */
	bool show_progress;
};

static int complain(const char *what, const char *why, int err)
{
	log_error("%s%s%s", what, what[0] ? ": " : "", why ? why : strerror(-err));
	return err;
}

/* ---- what comes in ---- */

static int on_end(void *arg, int signo)
{
	struct daemon *d = arg;

	if (d->stop_ns) {
		log_warning("a second signal ends it at once signal=%d", signo);
		_exit(EXIT_FAILURE); /* the children end with us */
	}
	d->stop_ns = clock_mono_ns();
	return LOOP_STOP;
}

static void on_reloaded(void *arg UNUSED, bool ok UNUSED)
{
	notify_send("READY=1");
}

static int on_hangup(void *arg, int signo UNUSED)
{
	struct daemon *d = arg;

	if (!d->sampling) {
		d->wants_reload = true; /* it may have read them long ago, before it waited for the lock */
		return 0;
	}
	notify_reloading();
	return settings_reload(d->settings, on_reloaded, d);
}

static void account_excluded(struct daemon *d)
{
	uint64_t n = engine_stats(d->engine)->excluded - d->excluded;

	d->excluded += n;
	d->handed_on += n;
	expclient_account(d->exporter, EXPORT_FATE_EXCLUDED, n);
}

static int on_batch(void *arg, const struct export_batch *b)
{
	struct daemon *d = arg;
	uint64_t last_middle_ns = d->last.wall_start_ns + d->last.duration_ns / 2;
	int err;

	for (uint32_t i = 0; i < b->nsamples && !b->tap; i++)
		d->handed_on += b->samples[i].count;
	account_excluded(d);
	if (d->last.wall_start_ns && !b->tap && b->wall_start_ns + b->duration_ns >= last_middle_ns)
		d->is_last_handed_on = true;
	err = expclient_send(d->exporter, b);
	if (err)
		log_limited(&d->lost_limit, LOG_ERROR, "a window is lost error='%s'", strerror(-err));
	return 0;
}

static int on_subject(void *arg, const struct export_facts *f)
{
	struct daemon *d = arg;
	int err = expclient_subject(d->exporter, f);

	return err == -ENOMEM ? -ENOBUFS : err;
}

static int on_done(void *arg UNUSED, const struct export_done *done UNUSED)
{
	return 0; /* its fates are in the sinks' accounts */
}

static int on_labels(void *arg, const struct export_labels *l)
{
	struct daemon *d = arg;

	return engine_labels(d->engine, l);
}

/* One that cannot be told waits in vain, and learns that from the clock. */
static void on_refused(void *arg, const struct export_tap_refused *r)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct daemon *d = arg;
	int err;

	export_tap_refused_encode(&w, r);
	err = bufw_end(&w);
	if (!err)
		err = expclient_tell(d->exporter, EXPORT_TAP_REFUSED, w.data, w.len, -1);
	if (err)
		log_debug("the refusal of a profile on demand cannot be told error='%s'", strerror(-err));
}

static int on_tap(void *arg, const struct export_tap *tap)
{
	struct daemon *d = arg;

	if (d->sampling)
		return engine_tap(d->engine, tap);
	on_refused(d, &(struct export_tap_refused){ .id = tap->id, .why = EXPORT_REFUSAL_NOT_SAMPLING });
	return 0;
}

static int on_exporter(void *arg)
{
	struct daemon *d = arg;

	return settings_brief(d->settings);
}

/* ---- time ---- */

static int end_window(struct daemon *d, enum timeline_end why, const struct timeline_window *w, bool last)
{
	int err;

	d->source.windows[why]++;
	err = engine_update_counters(d->engine);
	return err ? err : engine_end_window(d->engine, w->wall_start_ns, w->duration_ns, last);
}

static int on_turn(void *arg)
{
	struct daemon *d = arg;
	struct timeline_clocks now;
	struct timeline_window w;
	enum timeline_end end;

	if (!d->sampling)
		return 0;
	timeline_read_clocks(&now);
	end = timeline_turn(&d->timeline, &now, &w);
	return end == TIMELINE_NONE ? 0 : end_window(d, end, &w, false);
}

static int on_second(void *arg)
{
	struct daemon *d = arg;
	int err;

	if ((err = engine_update_counters(d->engine)) || (err = settings_turn(d->settings)) ||
	    (err = d->sampling ? report_send(d->report, &d->source) : 0))
		return err;
	if (d->show_progress && d->sampling)
		report_progress(&d->source);
	if (clock_mono_ns() - d->summary_ns >= SUMMARY_NS) {
		d->summary_ns = clock_mono_ns();
		report_log_short(&d->source, "profiling goes on");
	}
	return 0;
}

/* ---- setting up, while we still are who started us ---- */

static void say_holder(pid_t holder, const char *path)
{
	static const char text[] = "another flamed runs on this host, this one waits for its end";

	if (holder)
		log_warning("%s pid=%d directory=%s", text, (int)holder, LOG_STR(path));
	else
		log_warning("%s directory=%s", text, LOG_STR(path));
}

/* LOOP_STOP: a signal ended the wait. */
static int wait_for_lock(struct daemon *d, const char *path)
{
	uint64_t told_ns = 0;
	bool said = false;
	pid_t holder = 0;
	int err;

	while ((err = place_lock(&d->place, &holder)) == -EWOULDBLOCK) {
		if (!said)
			say_holder(holder, path);
		said = true;
		if (clock_mono_ns() - told_ns >= NOTIFY_NS) {
			notify_send("STATUS=waiting for another flamed to end\nEXTEND_TIMEOUT_USEC=30000000");
			told_ns = clock_mono_ns();
		}
		err = loop_once(d->loop, LOCK_POLL_NS);
		if (err)
			return err;
	}
	if (err)
		return complain("cannot take the lock", NULL, err);
	if (said)
		log_info("the other flamed has ended, this one goes on");
	return 0;
}

/* Whoever ended may have taken the directory along, as systemd does with a RuntimeDirectory. */
static int take_lock(struct daemon *d, const char *path)
{
	CLEANUP_FREE char *why = NULL;
	uid_t uid;
	gid_t gid;
	int err;

	rights_user(&uid, &gid);
	do {
		place_close(&d->place);
		err = place_open(&d->place, path, uid, gid, &why);
		if (err)
			return complain("", why, err);
		err = wait_for_lock(d, path);
	} while (!err && !place_is_current(&d->place, path));
	return err;
}

static int settle_in(struct daemon *d, const struct config *config)
{
	const struct group *group = getgrnam("flamed");
	CLEANUP_FREE char *why = NULL;
	int err = take_lock(d, config->runtime_directory);

	if (err)
		return err;
	err = place_settle(&d->place, group ? group->gr_gid : (gid_t)-1, &why);
	return err ? complain("", why, err) : 0;
}

static int leave_root(struct daemon *d)
{
	const char *why = NULL;
	int err = limits_settle(&why);

	if (!err)
		err = rights_leave_root(&d->missing_caps, &why);

	if (err)
		return complain("", why, err);
	if (d->missing_caps)
		log_warning("rights are missing (docs/install.md): %s", rights_loss(d->missing_caps));
	return 0;
}

static int prepare(struct daemon *d, const struct daemon_options *o, struct config *config)
{
	CLEANUP(config_freep) struct config *owned = config;
	struct settings_conf conf = { .config = config, .path = o->path, .version = o->version };
	CLEANUP_FREE char *why = NULL;
	uid_t uid;
	gid_t gid;
	int err = engine_programs_open(&d->programs, &why);

	if (err)
		return complain("", why, err);
	err = settle_in(d, config);
	if (err)
		return err;
	conf.token = d->place.token;
	conf.control_fd = d->place.control_fd;
	err = settings_new(&d->settings, &conf);
	if (err)
		return complain("cannot start", NULL, err);
	owned = NULL;
	rights_user(&uid, &gid);
	err = settings_open_output(d->settings, uid, gid);
	return err ? err : leave_root(d);
}

/* ---- starting ---- */

static int new_exporter(struct daemon *d)
{
	static const struct expclient_ops ops = { .done = on_done, .labels = on_labels, .tap = on_tap,
						  .started = on_exporter };
	struct ipc_program program = { .name = "flamed-exporter", .exe_fd = d->programs.exporter };
	int err = expclient_new(&d->exporter, d->loop, &program, -1, &ops, d);

	return err ? complain("cannot start flamed-exporter", NULL, err) : 0;
}

static int new_engine(struct daemon *d)
{
	const struct config *config = settings_config(d->settings);
	struct event_start start = { .ntargets = 0 };
	struct engine_conf conf = {
		.demangle = config->symbols.demangle,
		.hz = config->sampling.frequency_hz, .stack_max_bytes = config->sampling.stack_max_bytes,
		.cpus = config->sampling.cpus, .programs = &d->programs, .missing_caps = d->missing_caps,
		.start = &start, .batch = on_batch, .subject = on_subject, .refused = on_refused, .labels_wait_ns = config->window_ns,
		.settle_wait_ns = SETTLE_NS, .arg = d,
	};
	const char *why = NULL;
	int err = engine_new(&d->engine, d->loop, &conf, &why);

	if (err)
		return complain(why ? "" : "cannot start", why, err);
	engine_on_turn(d->engine, on_turn, d);
	err = rights_started();
	return err ? complain("cannot give up capabilities", NULL, err) : 0;
}

/* Any text that tells this host from others. */
static void read_machine_id(char *ret, size_t size)
{
	CLEANUP_FD int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	if (n <= 0 && gethostname(ret, size) == 0)
		n = (ssize_t)strnlen(ret, size - 1);
	ret[MAX(n, (ssize_t)0)] = 0;
}

static void say_sinks(const struct settings *settings)
{
	const struct config *c = settings_config(settings);
	char names[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX];
	size_t n = config_sink_names(c, names);

	for (size_t i = 0; i < c->endpoints.n; i++)
		log_info("an endpoint for profiles is set endpoint=%s", LOG_STR(names[i]));
	settings_say_output(settings);
	if (!n && config_page_address(c))
		log_info("profiles are kept in memory for the page: no endpoint is configured");
	else if (!n)
		log_warning("profiles are dropped: set endpoints, output.directory or page.listen");
}

static void say_start(const struct daemon *d)
{
	const struct config *c = settings_config(d->settings);
	const char *path = settings_path(d->settings);

	log_info("profiling every process of this host pid=%d uid=%u hz=%u cpus=%u window=%s settings=%s",
		 (int)getpid(), getuid(), c->sampling.frequency_hz, engine_ncpus(d->engine), value_format_duration(c->window_ns).text,
		 path[0] ? LOG_STR(path) : "defaults");
	say_sinks(d->settings);
}

/* LOOP_STOP: called off. */
static int start(struct daemon *d)
{
	struct timeline_clocks now;
	char machine_id[128];
	const char *why = NULL;
	int err;

	if ((err = new_exporter(d)) || (err = new_engine(d)))
		return err;
	d->source = (struct report_source){ .engine = d->engine, .settings = d->settings, .exporter = d->exporter,
					    .start_wall_ns = clock_wall_ns(), .missing_caps = d->missing_caps };
	if ((err = settings_attach(d->settings, d->engine, d->exporter)) || (err = report_new(&d->report)) ||
	    (err = loop_add_timer(d->loop, NULL, NSEC_PER_SEC, on_second, d)))
		return complain("cannot start", NULL, err);
	err = engine_start(d->engine, &why);
	if (err)
		return err > 0 ? err : complain("", why, err);
	read_machine_id(machine_id, sizeof(machine_id));
	timeline_read_clocks(&now);
	timeline_init(&d->timeline, settings_config(d->settings)->window_ns, machine_id, &now);
	d->sampling = true;
	d->summary_ns = clock_mono_ns();
	say_start(d);
	notify_send("READY=1\nSTATUS=profiling");
	return d->wants_reload ? on_hangup(d, SIGHUP) : 0;
}

/* ---- the end ---- */

static bool is_named(const struct daemon *d)
{
	return d->is_last_handed_on;
}

static bool is_delivered(const struct daemon *d)
{
	return expclient_nheld(d->exporter) == 0;
}

static int flush(struct daemon *d)
{
	int err = d->is_flushed ? 0 : expclient_tell(d->exporter, EXPORT_FLUSH, NULL, 0, -1);

	d->is_flushed = !err;
	return err == -EAGAIN || err == -EPIPE ? 0 : err;
}

static int run_until(struct daemon *d, bool (*done)(const struct daemon *d), uint64_t end_ns)
{
	uint64_t now = clock_mono_ns();
	int err = 0;

	while (!done(d) && now < end_ns && err >= 0) {
		err = loop_once(d->loop, MIN(end_ns - now, 50 * NSEC_PER_MSEC));
		if (err >= 0 && d->is_last_handed_on)
			err = flush(d);
		now = clock_mono_ns();
	}
	return err < 0 ? err : 0;
}

static void say_end(struct daemon *d)
{
	const struct pipeline_stats *s = engine_stats(d->engine);
	uint64_t left = expclient_abandon(d->exporter);

	if (s->samples > d->handed_on) {
		expclient_account(d->exporter, EXPORT_FATE_SHUTDOWN, s->samples - d->handed_on);
		log_warning("the last window was not named in time samples=%llu",
			    (unsigned long long)(s->samples - d->handed_on));
	}
	if (left)
		log_warning("not all was delivered before the end samples=%llu", (unsigned long long)left);
	report_log(&d->source, "profiling ended");
}

static int stop(struct daemon *d)
{
	struct timeline_clocks now;
	int err;

	notify_send("STOPPING=1");
	if (d->show_progress)
		fputs("\r\033[K", stderr);
	d->sampling = false;
	err = engine_stop(d->engine);
	if (err)
		return err;
	timeline_read_clocks(&now);
	timeline_stop(&d->timeline, &now, &d->last);
	if ((err = end_window(d, TIMELINE_SHUTDOWN, &d->last, true)) ||
	    (err = run_until(d, is_named, d->stop_ns + NAMED_NS)) ||
	    (err = is_named(d) ? 0 : engine_hand_on(d->engine)) || (err = flush(d)) ||
	    (err = run_until(d, is_delivered, d->stop_ns + DELIVERED_NS)))
		return err;
	say_end(d);
	return 0;
}

static int run(struct daemon *d)
{
	int err = loop_run(d->loop);

	if (!err)
		err = stop(d);
	return err ? complain("flamed cannot go on", NULL, err) : 0;
}

static void daemon_fini(struct daemon *d)
{
	engine_free(d->engine);
	expclient_free(d->exporter);
	settings_free(d->settings);
	report_free(d->report);
	place_close(&d->place);
	engine_programs_close(&d->programs);
	loop_free(d->loop);
}

int daemon_run(const struct daemon_options *o)
{
	CLEANUP(daemon_fini) struct daemon d = { .programs = ENGINE_PROGRAMS_INIT, .place = PLACE_INIT,
						 .lost_limit = LOG_LIMIT_INIT };
	int err;

	log_never_wait();
	d.show_progress = isatty(STDERR_FILENO);
	signal(SIGPIPE, SIG_IGN); /* whoever read the log is gone */
	if ((err = loop_new(&d.loop)) || (err = loop_add_signal(d.loop, SIGTERM, on_end, &d)) ||
	    (err = loop_add_signal(d.loop, SIGINT, on_end, &d)) ||
	    (err = loop_add_signal(d.loop, SIGHUP, on_hangup, &d))) {
		config_free(o->config);
		return complain("cannot start", NULL, err) ? EXIT_FAILURE : 0;
	}
	if ((err = prepare(&d, o, o->config)) || (err = start(&d)))
		return err == LOOP_STOP ? 0 : EXIT_FAILURE;
	return run(&d) ? EXIT_FAILURE : 0;
}
