#include "agent/record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>

#include "agent/command.h"
#include "agent/engine.h"
#include "agent/event.h"
#include "agent/limits.h"
#include "agent/profile.h"
#include "agent/rights.h"
#include "base/clock.h"
#include "base/log.h"

#define PROGRESS_NS NSEC_PER_SEC
/* How long a command may take to end after SIGTERM, and after SIGKILL. */
#define COMMAND_WAIT_NS (3 * NSEC_PER_SEC)
#define NAMES_WAIT_NS (60 * NSEC_PER_SEC)
/* One window holds the whole recording: more room than a daemon's window has. */
#define AGGREGATE_MAX_BYTES (256u << 20)

struct record {
	const struct record_options *options;
	struct loop *loop;
	struct engine *engine;
	struct profile profile;
	struct command command;
	struct loop_source *report_source;
	struct event_log *log;
	uint64_t missing_caps;
	int pidfds[RECORD_PIDS_MAX];
	struct loop_source *pid_sources[RECORD_PIDS_MAX];
	uint32_t npids_left;
	uint64_t start_ns;
	uint32_t hz;
	bool show_progress, progress_shown;
	bool command_ended, command_stopped;	/* by itself; by us */
	int command_status;
};

/* ---- what ends a recording ---- */

static int on_signal(void *arg UNUSED, int signo UNUSED)
{
	return LOOP_STOP;
}

static int on_time(void *arg UNUSED)
{
	return LOOP_STOP;
}

static int on_report(void *arg, unsigned int events UNUSED)
{
	struct record *r = arg;

	r->command_ended = command_ended(&r->command, &r->command_status);
	if (!r->command_ended)
		return 0;
	/* What has ended stays readable: it is heard once, or it would stop every later turn too. */
	loop_del(TAKE(r->report_source));
	return LOOP_STOP;
}

static int on_pid_exit(void *arg, unsigned int events UNUSED)
{
	struct record *r = arg;

	for (uint32_t i = 0; i < r->options->npids; i++) {
		struct pollfd p = { .fd = r->pidfds[i], .events = POLLIN };

		/* Ready means exited; a second look is cheap and tells which. */
		if (r->pid_sources[i] && poll(&p, 1, 0) == 1) {
			loop_del(TAKE(r->pid_sources[i]));
			r->npids_left--;
		}
	}
	return r->npids_left ? 0 : LOOP_STOP;
}

static int on_progress(void *arg)
{
	struct record *r = arg;
	const struct pipeline_stats *s;
	int err;

	if (!r->start_ns)
		return 0; /* processes are still being read */
	err = engine_update_counters(r->engine);
	if (err)
		return err;
	s = engine_stats(r->engine);
	fprintf(stderr, "\rrecording %llu s: %llu samples, %.1f %% complete, %llu lost ",
		(unsigned long long)((clock_mono_ns() - r->start_ns) / NSEC_PER_SEC),
		(unsigned long long)s->samples, summary_completeness(s),
		(unsigned long long)s->counters[ABI_CNT_DROPS + ABI_DROP_RING_FULL]);
	r->progress_shown = true;
	return 0;
}

/* ---- setting up, while we still are who called us ---- */

static int open_log(struct record *r)
{
	int fd, err;

	if (!r->options->events)
		return 0;
	fd = open(r->options->events, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
	if (fd < 0 || fchmod(fd, 0600)) {
		log_error("cannot write the event log file=%s error='%s'", LOG_STR(r->options->events),
			  strerror(errno));
		closep(&fd);
		return -EIO;
	}
	log_warning("the event log holds stack memory of the sampled programs: keep it secret file=%s",
		    LOG_STR(r->options->events));
	err = event_log_new(&r->log, fd);
	if (err)
		close(fd);
	return err;
}

static int open_pids(struct record *r)
{
	for (uint32_t i = 0; i < r->options->npids; i++) {
		r->pidfds[i] = pidfd_open((pid_t)r->options->pids[i], 0);
		if (r->pidfds[i] < 0) {
			log_error("no such process pid=%u error='%s'", r->options->pids[i], strerror(errno));
			return -ESRCH;
		}
	}
	return 0;
}

static int prepare(struct record *r, struct engine_programs *programs)
{
	CLEANUP_FREE char *program_why = NULL;
	const char *why = NULL;
	int err;

	err = engine_programs_open(programs, &program_why);
	if (err) {
		log_error("%s", program_why ? program_why : strerror(-err));
		return err;
	}
	if ((err = profile_open(&r->profile, r->options->output)) || (err = open_log(r)) || (err = open_pids(r)))
		return err;
	if (r->options->command && (err = command_prepare(&r->command, r->options->command))) {
		log_error("cannot prepare the command error='%s'", strerror(-err));
		return err;
	}
	err = limits_settle(&why);
	if (!err)
		err = rights_leave_root(&r->missing_caps, &why);
	if (err) {
		log_error("%s", why ? why : strerror(-err));
		return err;
	}
	if (r->missing_caps)
		log_warning("rights are missing (docs/install.md): %s", rights_loss(r->missing_caps));
	return 0;
}

static int new_engine(struct record *r, const struct config *config, const struct engine_programs *programs)
{
	struct event_start start = { .ntargets = r->options->npids };
	struct engine_conf conf = {
		.demangle = config->symbols.demangle,
		.hz = config->sampling.frequency_hz, .stack_max_bytes = config->sampling.stack_max_bytes,
		.cpus = config->sampling.cpus, .aggregate_max_bytes = AGGREGATE_MAX_BYTES, .programs = programs,
		.missing_caps = r->missing_caps, .log = r->log, .start = &start, .batch = profile_take_batch, .arg = &r->profile,
	};
	const char *why = NULL;
	int err;

	memcpy(start.targets, r->options->pids, start.ntargets * sizeof(start.targets[0]));
	if (r->options->command) {
		start.targets[start.ntargets++] = (uint32_t)r->command.pid;
		start.after_exec = true;
	}
	err = engine_new(&r->engine, r->loop, &conf, &why);
	if (!err)
		err = rights_started();
	if (err)
		log_error("%s%s%s", why ? why : "cannot start", why ? "" : ": ", why ? "" : strerror(-err));
	return err;
}

static int watch(struct record *r)
{
	struct loop_source *source;
	int err;

	/* Signals are first: nothing of the recording may keep them waiting. */
	if ((err = loop_add_signal(r->loop, SIGINT, on_signal, r)) ||
	    (err = loop_add_signal(r->loop, SIGTERM, on_signal, r)) ||
	    (err = loop_add_signal(r->loop, SIGHUP, on_signal, r)))
		return err;
	if (r->options->command &&
	    (err = loop_add(r->loop, &r->report_source, r->command.report, LOOP_IN, on_report, r)))
		return err;
	r->npids_left = r->options->npids;
	for (uint32_t i = 0; i < r->options->npids; i++) {
		err = loop_add(r->loop, &r->pid_sources[i], r->pidfds[i], LOOP_IN, on_pid_exit, r);
		if (err)
			return err;
	}
	if (!r->show_progress)
		return 0;
	return loop_add_timer(r->loop, &source, PROGRESS_NS, on_progress, r);
}

/* ---- the recording ---- */

static void tell_start(const struct record *r)
{
	const struct record_options *o = r->options;
	const char *what = o->command ? "the command and its children" :
			   o->npids ? "the given processes and their children" : "every process of this host";

	if (o->duration_ns)
		log_info("profiling %s hz=%u seconds=%g", what, r->hz, (double)o->duration_ns / (double)NSEC_PER_SEC);
	else
		log_info("profiling %s until %s hz=%u", what,
			 o->command ? "it ends" : o->npids ? "they end" : "Ctrl-C", r->hz);
}

static int start(struct record *r)
{
	struct loop_source *source;
	const char *why = NULL;
	int err;

	err = engine_start(r->engine, &why);
	if (err > 0) {
		log_error("%s before the first sample: nothing was written",
			  r->options->npids && !r->npids_left ? "the processes ended" : "interrupted");
		return -EINTR;
	}
	if (err) {
		log_error("%s", why ? why : strerror(-err));
		return err;
	}
	r->start_ns = clock_mono_ns();
	tell_start(r);
	if (r->options->duration_ns &&
	    ((err = loop_add_timer(r->loop, &source, 0, on_time, r)) ||
	     (err = loop_timer_at(source, r->start_ns + r->options->duration_ns))))
		return err;
	if (!r->options->command)
		return 0;
	err = command_go(&r->command);
	if (err) {
		log_error("cannot run the command command=%s error='%s'", LOG_STR(r->options->command[0]),
			  strerror(-err));
		r->command_status = err == -ENOENT ? 127 : 126;
	}
	return err;
}

static int stop(struct record *r, uint64_t wall_start_ns)
{
	uint64_t duration_ns = clock_mono_ns() - r->start_ns, end_ns;
	int err;

	if (r->progress_shown)
		fputc('\n', stderr);
	err = engine_stop(r->engine);
	if (!err)
		err = engine_update_counters(r->engine);
	if (!err)
		err = engine_end_window(r->engine, wall_start_ns, duration_ns, true);
	end_ns = clock_mono_ns() + NAMES_WAIT_NS;
	while (!err && !r->profile.have_batch) {
		err = loop_once(r->loop, 100 * NSEC_PER_MSEC);
		err = err > 0 ? 0 : err;
		if (!err && clock_mono_ns() > end_ns)
			err = -ETIMEDOUT;
	}
	if (err)
		log_error("the recording failed error='%s'", strerror(-err));
	return err;
}

/* A command that we ended ourselves has not failed. */
static int wait_for_command(struct record *r)
{
	uint64_t since_ns = clock_mono_ns();
	bool insisted = false;

	if (!r->command_ended) {
		command_terminate(&r->command, false);
		r->command_stopped = true;
	}
	while (!r->command_ended) {
		uint64_t waited_ns = clock_mono_ns() - since_ns;

		r->command_ended = command_ended(&r->command, &r->command_status);
		if (r->command_ended)
			break;
		if (waited_ns > COMMAND_WAIT_NS && !insisted) {
			command_terminate(&r->command, true);
			insisted = true;
		}
		if (waited_ns > 2 * COMMAND_WAIT_NS) {
			log_warning("the command does not end and is left alone pid=%d", (int)r->command.pid);
			break;
		}
		usleep(10000);
	}
	return r->command_stopped ? 0 : r->command_status;
}

static struct summary_run about_run(const struct record *r)
{
	struct engine_restarts restarts = engine_restarts(r->engine);
	struct summary_run run = { .symbolizer = restarts.symbolizer, .reader = restarts.reader };

	if (engine_bpf_cost(r->engine, &run.bpf_ns, &run.bpf_runs))
		run.bpf_ns = run.bpf_runs = 0;
	return run;
}

static int run(struct record *r)
{
	uint64_t wall_start_ns;
	int err, status;

	err = start(r);
	if (err)
		return r->command_status ? r->command_status : 1;
	wall_start_ns = clock_wall_ns();
	err = loop_run(r->loop);
	if (err) {
		log_error("the recording failed error='%s'", strerror(-err));
		return 1;
	}
	if (stop(r, wall_start_ns))
		return 1;
	status = profile_finish(&r->profile, engine_stats(r->engine), about_run(r));
	/* Not before: the engine goes on while the loop waits for the exporter, and writes to it. */
	if (r->log && (err = event_log_close(&r->log))) {
		log_error("the event log is not whole error='%s'", strerror(-err));
		status = 1;
	}
	if (r->options->command) {
		int command_status = wait_for_command(r);

		status = status ? status : command_status;
	}
	return status;
}

static void record_fini(struct record *r)
{
	engine_free(r->engine);
	profile_fini(&r->profile);
	command_fini(&r->command);
	event_log_free(r->log);
	loop_free(r->loop);
	for (uint32_t i = 0; i < r->options->npids; i++)
		closep(&r->pidfds[i]);
}

int record_run(const struct record_options *o, const struct config *config)
{
	CLEANUP(engine_programs_close) struct engine_programs programs = ENGINE_PROGRAMS_INIT;
	CLEANUP(record_fini) struct record r = { .options = o, .profile = PROFILE_INIT,
						 .command = COMMAND_INIT,
						 .hz = config->sampling.frequency_hz };

	memset(r.pidfds, 0xff, sizeof(r.pidfds));
	r.show_progress = isatty(STDERR_FILENO);
	if (prepare(&r, &programs) || loop_new(&r.loop) || watch(&r))
		return 1;
	if (new_engine(&r, config, &programs) || profile_start(&r.profile, r.loop, &programs))
		return 1;
	return run(&r);
}
