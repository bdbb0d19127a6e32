#include "agent/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>

#include "agent/announce.h"
#include "agent/debugfiles.h"
#include "agent/kallsyms.h"
#include "agent/readerclient.h"
#include "agent/rights.h"
#include "agent/sampler.h"
#include "agent/sideband.h"
#include "agent/symclient.h"
#include "base/clock.h"
#include "base/log.h"

#define TURN_INTERVAL_NS (100 * NSEC_PER_MSEC)
#define SOON_NS (2 * NSEC_PER_MSEC) /* more than what pipeline.c leaves for the next turn */
#define CPU_CHECK_NS NSEC_PER_SEC
#define SCAN_WAIT_NS (5 * NSEC_PER_SEC)
#define SETTLE_WAIT_NS (15 * NSEC_PER_SEC)

/* Descriptors: of a CPU (a tick, two side-band events); of all else; and the least for mapped files. */
enum { FILES_PER_CPU = 3, FILES_OWN = 96, FILES_MIN = 64 };

/* A question of the pipeline's that we answer ourselves, once its present event is done. */
struct deferred {
	struct deferred *next;
	enum event_type type;	/* EVENT_OPENED, EVENT_KERNEL, or EVENT_MEMORY: none */
	uint64_t file_id, memory_id;
	bool is_vdso;		/* else: a file that cannot be asked for now */
	uint32_t naddresses;
	uint64_t addresses[];
};

struct engine {
	struct loop *loop;
	struct event_log *log;
	struct pipeline *pipeline;
	struct sampler *sampler;
	struct sideband *sideband;
	struct readerclient *reader;
	struct symclient *symbolizer;
	struct debugfiles *debugfiles;
	struct kallsyms *kallsyms;
	struct announce *announce;	/* NULL: subjects are not announced */
	struct deferred *deferred, **deferred_end;
	struct loop_source *sources[5];
	engine_batch_fn *batch;
	engine_subject_fn *subject;
	engine_refused_fn *refused;
	void *arg;
	engine_turn_fn *on_turn;
	void *on_turn_arg;
	struct log_limit filter_limit, learn_limit;
	uint64_t settle_wait_ns;
	uint64_t cpus_checked_ns;
	bool sampling;
	bool rescanning;	/* the pipeline waits for the end of a scan */
};

/* ---- events ---- */

static int feed(struct engine *e, const struct event *event)
{
	int err = 0;

	if (e->log)
		err = event_log_write(e->log, event);
	if (err) {
		log_error("cannot write the event log: it ends here error='%s'", strerror(-err));
		e->log = NULL;
	}
	return pipeline_event(e->pipeline, event);
}

/* Source: vdso(7): the kernel maps the same image into every process of this architecture. */
static int vdso_image(size_t *ret_bytes, const void **ret)
{
	const uint8_t *image = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	uint64_t sections;
	uint16_t entsize, count;

	if (!image)
		return -ENOENT;
	/* The section headers stand last (Elf64_Ehdr: e_shoff, e_shentsize, e_shnum). */
	memcpy(&sections, image + 40, 8);
	memcpy(&entsize, image + 58, 2);
	memcpy(&count, image + 60, 2);
	*ret = image;
	*ret_bytes = (size_t)sections + (size_t)entsize * count;
	return 0;
}

static int answer_open(struct engine *e, uint64_t file_id, bool is_vdso)
{
	struct event event = { .type = EVENT_OPENED, .time_ns = clock_mono_ns(),
			       .opened = { .file_id = file_id, .fd = -1 } };
	const void *image;
	size_t bytes;

	if (is_vdso && vdso_image(&bytes, &image) == 0 && ipc_memfd("vdso", image, bytes, &event.opened.fd) == 0) {
		event.opened.ok = true;
		event.opened.identity = (struct file_identity){ .size = bytes };
	}
	return feed(e, &event);
}

static int answer_kernel(struct engine *e, const uint64_t *addresses, uint32_t n)
{
	CLEANUP_FREE struct event_kernel_symbol *symbols = calloc(n, sizeof(*symbols));
	struct event event = { .type = EVENT_KERNEL, .time_ns = clock_mono_ns() };
	int err;

	if (!symbols)
		return -ENOMEM;
	err = kallsyms_resolve(e->kallsyms, addresses, n, symbols);
	if (err)
		return err;
	event.kernel = (struct event_kernel){ .nsymbols = n, .symbols = symbols };
	return feed(e, &event);
}

static int answer_no_memory(struct engine *e, uint64_t id)
{
	struct event event = { .type = EVENT_MEMORY, .time_ns = clock_mono_ns(), .memory = { .id = id } };

	return feed(e, &event);
}

static int answer_deferred(struct engine *e)
{
	int err = 0;

	while (e->deferred && !err) {
		struct deferred *d = e->deferred;

		e->deferred = d->next;
		if (!e->deferred)
			e->deferred_end = &e->deferred;
		if (d->type == EVENT_KERNEL)
			err = answer_kernel(e, d->addresses, d->naddresses);
		else if (d->type == EVENT_MEMORY)
			err = answer_no_memory(e, d->memory_id);
		else
			err = answer_open(e, d->file_id, d->is_vdso);
		free(d);
	}
	return err;
}

/* Every event takes this way. Answers never come inside a question. */
static int emit(void *arg, const struct event *event)
{
	struct engine *e = arg;
	int err;

	if (event->type == EVENT_LOST && e->kallsyms)
		kallsyms_doubt(e->kallsyms);
	err = feed(e, event);
	return err ? err : answer_deferred(e);
}

static int on_code(void *arg, const struct event_code *code)
{
	struct engine *e = arg;

	return e->kallsyms ? kallsyms_code(e->kallsyms, code) : 0;
}

static int defer(struct engine *e, const struct deferred *what, const uint64_t *addresses)
{
	struct deferred *d = malloc(sizeof(*d) + what->naddresses * sizeof(*addresses));

	if (!d)
		return -ENOMEM;
	*d = *what;
	if (addresses)
		memcpy(d->addresses, addresses, d->naddresses * sizeof(*addresses));
	*e->deferred_end = d;
	e->deferred_end = &d->next;
	return 0;
}

static int ask_open(void *arg, const struct reader_open *r)
{
	struct deferred open = { .type = EVENT_OPENED, .file_id = r->file_id,
				 .is_vdso = strcmp(r->path, "[vdso]") == 0 };
	struct engine *e = arg;
	int err = open.is_vdso ? -ENOBUFS : readerclient_open(e->reader, r);

	debugfiles_opening(e->debugfiles, r);

	/* What we answer ourselves is in the log too, so that a replay goes the same way. */
	return err == -ENOBUFS ? defer(e, &open, NULL) : err;
}

static int ask_rows(void *arg, const struct msg_request *r, int fd)
{
	struct engine *e = arg;
	int err = debugfiles_met(e->debugfiles, r->file_id, fd, clock_mono_ns());

	return err ? err : symclient_ask(e->symbolizer, MSG_ROWS, r, fd);
}

static int ask_names(void *arg, const struct msg_request *r, int fd)
{
	struct engine *e = arg;
	int err = debugfiles_naming(e->debugfiles, r->file_id, clock_mono_ns());

	return err ? err : symclient_ask(e->symbolizer, MSG_NAMES, r, fd);
}

static int ask_kernel(void *arg, const uint64_t *addresses, uint32_t n)
{
	struct deferred kernel = { .type = EVENT_KERNEL, .naddresses = n };

	return defer(arg, &kernel, addresses);
}

static int ask_rescan(void *arg)
{
	struct engine *e = arg;

	e->rescanning = true;
	return readerclient_scan(e->reader);
}

static int take_batch(void *arg, const struct export_batch *b)
{
	struct engine *e = arg;

	return e->batch(e->arg, b);
}

static void tell_refused(void *arg, const struct export_tap_refused *r)
{
	struct engine *e = arg;

	if (e->refused)
		e->refused(e->arg, r);
}

static int tell_subject(void *arg, const struct export_facts *f)
{
	struct engine *e = arg;

	return e->subject(e->arg, f);
}

static int announce(void *arg, const struct pipeline_subject *s)
{
	struct engine *e = arg;

	return announce_subject(e->announce, s, clock_mono_ns());
}

/* What BPF delivers all the same, the pipeline drops. */
static bool filter(void *arg, uint32_t pid, uint32_t keep_one_in)
{
	struct engine *e = arg;
	int err = sampler_filter(e->sampler, pid, keep_one_in);

	if (err == -E2BIG)
		log_debug("no more processes can be filtered in the kernel pid=%u", pid);
	else if (err)
		log_limited(&e->filter_limit, LOG_WARNING, "process cannot be filtered in the kernel pid=%u error='%s'",
			    pid, strerror(-err));
	return !err;
}

static void learn(void *arg, uint32_t tid, const struct abi_learned *l)
{
	struct engine *e = arg;
	int err = sampler_learn(e->sampler, tid, l);

	if (err)
		log_limited(&e->learn_limit, LOG_WARNING, "stacks of a thread stay cut: the kernel was not told tid=%u error='%s'",
			    tid, strerror(-err));
}

static void tell_go(void *arg, uint32_t pid, const struct abi_go *go)
{
	struct engine *e = arg;
	int err = sampler_go(e->sampler, pid, go);

	if (err)
		log_limited(&e->learn_limit, LOG_WARNING, "goroutines of a process stay cut: the kernel was not told pid=%u error='%s'",
			    pid, strerror(-err));
}

static int ask_memory(void *arg, const struct reader_peek *r)
{
	struct deferred none = { .type = EVENT_MEMORY, .memory_id = r->id };
	struct engine *e = arg;
	int err = readerclient_peek(e->reader, r);

	return err == -ENOBUFS ? defer(e, &none, NULL) : err;
}

static const struct pipeline_ops ops = {
	.open = ask_open, .rows = ask_rows, .names = ask_names, .kernel = ask_kernel, .rescan = ask_rescan,
	.batch = take_batch, .refused = tell_refused, .announce = announce, .filter = filter,
	.learn = learn, .go = tell_go, .peek = ask_memory,
};

/* ---- turns ---- */

static int take_record(void *arg, const struct abi_record *r, size_t len)
{
	struct event event = { .type = EVENT_SAMPLE, .sample = { .record = r, .len = len } };

	return emit(arg, &event);
}

static int tell_scan_end(struct engine *e)
{
	struct event event = { .type = EVENT_PROCESS, .time_ns = clock_mono_ns(),
			       .process = { .comm = "", .executable = "" } };

	e->rescanning = false;
	return emit(e, &event);
}

static int turn(struct engine *e)
{
	struct event event = { .type = EVENT_TURN, .time_ns = clock_mono_ns() };
	int err;

	if (e->rescanning && !readerclient_scanning(e->reader) && (err = tell_scan_end(e)))
		return err;

	if ((err = sideband_drain(e->sideband)) || (err = sampler_dispatch(e->sampler)) ||
	    (err = emit(e, &event)) || (err = debugfiles_turn(e->debugfiles, event.time_ns)) || (e->announce && (err = announce_turn(e->announce))))
		return err;
	if (event.time_ns - e->cpus_checked_ns < CPU_CHECK_NS || !e->sampling)
		return 0;
	e->cpus_checked_ns = event.time_ns;
	debugfiles_tidy(e->debugfiles, event.time_ns);
	err = sideband_check_cpus(e->sideband);
	return err ? err : sampler_check_cpus(e->sampler);
}

static int on_readable(void *arg, unsigned int events UNUSED)
{
	return turn(arg);
}

static int turn_soon(void *arg)
{
	return turn(arg);
}

/* The sample that we are woken for is too young for this turn, and the thread's next one is to profit from it. */
static int on_samples(void *arg, unsigned int events UNUSED)
{
	struct engine *e = arg;
	int err = turn(e);

	return err ? err : loop_timer_at(e->sources[4], clock_mono_ns() + SOON_NS);
}

static int on_timer(void *arg)
{
	struct engine *e = arg;
	int err = turn(e);

	return err || !e->on_turn ? err : e->on_turn(e->on_turn_arg);
}

static int watch(struct engine *e)
{
	int exec_fd = sideband_exec_fd(e->sideband);
	int err;

	if ((err = loop_add(e->loop, &e->sources[0], sideband_fd(e->sideband), LOOP_IN, on_readable, e)) ||
	    (err = loop_add(e->loop, &e->sources[1], sampler_fd(e->sampler), LOOP_IN, on_samples, e)) ||
	    (err = loop_add_timer(e->loop, &e->sources[2], TURN_INTERVAL_NS, on_timer, e)) ||
	    (err = loop_add_timer(e->loop, &e->sources[4], 0, turn_soon, e)))
		return err;
	return exec_fd < 0 ? 0 : loop_add(e->loop, &e->sources[3], exec_fd, LOOP_IN, on_readable, e);
}

/* ---- life ---- */

static const char *why_no_child(const char *name, int err)
{
	static char text[256];

	snprintf(text, sizeof(text), "cannot start %s: %s%s", name, strerror(-err), err != -EACCES ? "" :
		 "; flamed, which has left root, must be allowed to execute its own programs (chmod 755)");
	return text;
}

uint64_t engine_files_needed(uint32_t ncpus)
{
	return (uint64_t)ncpus * FILES_PER_CPU + FILES_OWN;
}

/* Half of what is left of the limit: a request to a child holds a second descriptor of its file. */
static uint64_t files_max(uint32_t ncpus)
{
	uint64_t own = engine_files_needed(ncpus);
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur <= own)
		return FILES_MIN / 2;
	return MAX((l.rlim_cur - own) / 2, (uint64_t)FILES_MIN / 2);
}

/* Of those, what debug files may have. */
static uint64_t debug_files_max(uint32_t ncpus)
{
	return MIN(files_max(ncpus) / 8, (uint64_t)DEBUGFILES_OPEN_MAX);
}

static int new_modules(struct engine *e, const struct engine_conf *conf, const char **ret_why)
{
	struct sampler_conf sampler = { .hz = conf->hz, .stack_max_bytes = conf->stack_max_bytes,
					.cpus = conf->cpus };
	struct sideband_conf sideband = { .wake_on_exec = true, .code = on_code };
	struct readerclient_conf reader = {
		.program = { .name = "flamed-reader", .arg = "reader", .exe_fd = conf->programs->self,
			     .caps = rights_reader_start_caps() & ~conf->missing_caps,
			     .caps_if_held = rights_start_caps() },
	};
	static const char *const styles[] = {
		[CONFIG_SHORT] = "--demangle=short", [CONFIG_FULL] = "--demangle=full", [CONFIG_RAW] = "--demangle=none",
	};
	struct ipc_program symbolizer = { .name = "flamed-symbolizer", .arg = styles[conf->demangle],
					  .exe_fd = conf->programs->symbolizer };
	struct pipeline_conf pipeline = { .ops = &ops, .arg = e,
					  .aggregate_max_bytes = conf->aggregate_max_bytes };
	int err;

	if ((err = sampler_new(&e->sampler, &sampler, take_record, e, ret_why)) ||
	    (err = sideband_new(&e->sideband, &sideband, emit, e, ret_why)))
		return err;
	*ret_why = NULL;
	if ((err = pipeline_new(&e->pipeline, &pipeline)) || (err = kallsyms_new(&e->kallsyms)))
		return err;
	err = readerclient_new(&e->reader, e->loop, &reader, emit, e);
	if (err) {
		*ret_why = why_no_child(reader.program.name, err);
		return err;
	}
	err = symclient_new(&e->symbolizer, e->loop, &symbolizer, emit, e);
	if (err)
		*ret_why = why_no_child(symbolizer.name, err);
	if (!err)
		err = debugfiles_new(&e->debugfiles, e->reader, e->symbolizer, debug_files_max(sampler_ncpus(e->sampler)));
	if (!err && conf->subject)
		err = announce_new(&e->announce, readerclient_cgroups, e->reader, tell_subject, e);
	return err;
}

int engine_new(struct engine **ret, struct loop *loop, const struct engine_conf *conf, const char **ret_why)
{
	CLEANUP(engine_freep) struct engine *e = calloc(1, sizeof(*e));
	struct event event = { .type = EVENT_START };
	int err;

	*ret_why = NULL;
	if (!e)
		return -ENOMEM;
	e->loop = loop;
	e->log = conf->log;
	e->batch = conf->batch;
	e->subject = conf->subject;
	e->refused = conf->refused;
	e->settle_wait_ns = conf->settle_wait_ns ? conf->settle_wait_ns : SETTLE_WAIT_NS;
	e->filter_limit = e->learn_limit = (struct log_limit)LOG_LIMIT_INIT;
	e->arg = conf->arg;
	e->deferred_end = &e->deferred;
	err = new_modules(e, conf, ret_why);
	if (err)
		return err;
	event.time_ns = clock_mono_ns();
	event.start = *conf->start;
	event.start.wall_ns = clock_wall_ns();
	event.start.hz = conf->hz;
	event.start.ncpus = sampler_ncpus(e->sampler);
	event.start.files_max = files_max(event.start.ncpus) - debug_files_max(event.start.ncpus);
	event.start.labels_wait_ns = conf->subject ? conf->labels_wait_ns : 0;
	if ((err = emit(e, &event)) || (err = watch(e)))
		return err;
	*ret = TAKE(e);
	return 0;
}

struct engine *engine_free(struct engine *e)
{
	if (!e)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(e->sources); i++)
		loop_del(e->sources[i]);
	symclient_free(e->symbolizer);
	debugfiles_free(e->debugfiles);
	readerclient_free(e->reader);
	announce_free(e->announce);
	sideband_free(e->sideband);
	sampler_free(e->sampler);
	pipeline_free(e->pipeline);
	kallsyms_free(e->kallsyms);
	for (struct deferred *next; e->deferred; e->deferred = next) {
		next = e->deferred->next;
		free(e->deferred);
	}
	free(e);
	return NULL;
}

/* Runs the loop until done(e), or until end_ns. LOOP_STOP: something else in the loop wants an end. */
static int run_until(struct engine *e, bool (*done)(const struct engine *e), uint64_t end_ns)
{
	while (!done(e)) {
		uint64_t now = clock_mono_ns();
		int r;

		if (now >= end_ns)
			return 0;
		r = loop_once(e->loop, MIN(end_ns - now, TURN_INTERVAL_NS));
		if (r)
			return r;
	}
	return 0;
}

static bool scanned(const struct engine *e)
{
	return !readerclient_scanning(e->reader);
}

/* Files that running processes map are opened before the first sample, or the first stacks would wait. */
static bool opened(const struct engine *e)
{
	return readerclient_pending(e->reader) == 0;
}

int engine_start(struct engine *e, const char **ret_why)
{
	int err;

	*ret_why = NULL;
	if ((err = readerclient_scan(e->reader)) ||
	    (err = run_until(e, scanned, clock_mono_ns() + SCAN_WAIT_NS)) ||
	    (err = run_until(e, opened, clock_mono_ns() + SCAN_WAIT_NS)))
		return err;
	err = sampler_start(e->sampler, ret_why);
	e->sampling = !err;
	return err;
}

static bool idle(const struct engine *e)
{
	return pipeline_idle(e->pipeline);
}

int engine_stop(struct engine *e)
{
	uint64_t end_ns = clock_mono_ns() + e->settle_wait_ns;
	int err;

	sampler_stop(e->sampler);
	e->sampling = false;
	/* Samples of the last millisecond wait for their turn (pipeline.c). */
	for (int i = 0; i < 2; i++) {
		usleep(2000);
		err = turn(e);
		if (err)
			return err;
	}
	do {
		err = run_until(e, idle, end_ns);
	} while (err == LOOP_STOP); /* that is what we are about */
	return err;
}

int engine_end_window(struct engine *e, uint64_t wall_start_ns, uint64_t duration_ns, bool last)
{
	struct event event = { .type = EVENT_WINDOW, .time_ns = clock_mono_ns() };

	event.window = (struct event_window){ .wall_start_ns = wall_start_ns, .duration_ns = duration_ns,
					      .last = last };
	return emit(e, &event);
}

int engine_hand_on(struct engine *e)
{
	struct event event = { .type = EVENT_WINDOW, .time_ns = clock_mono_ns(), .window = { .last = true } };

	return emit(e, &event);
}

int engine_labels(struct engine *e, const struct export_labels *l)
{
	struct event_label labels[EXPORT_PAIRS_MAX];
	struct event event = { .type = EVENT_LABELS, .time_ns = clock_mono_ns(),
			       .labels = { .subject_id = l->id, .keep_one_in = l->keep_one_in,
					   .nlabels = l->nlabels, .labels = labels } };

	assert(l->nlabels <= EXPORT_PAIRS_MAX); /* export_labels_decode() */
	for (uint32_t i = 0; i < l->nlabels; i++)
		labels[i] = (struct event_label){ .name = l->labels[i].name, .value = l->labels[i].value };
	return emit(e, &event);
}

int engine_relabel(struct engine *e)
{
	struct event event = { .type = EVENT_RELABEL, .time_ns = clock_mono_ns() };

	return emit(e, &event);
}

int engine_tap(struct engine *e, const struct export_tap *tap)
{
	struct event event = { .type = EVENT_TAP, .time_ns = clock_mono_ns() };

	event.tap = (struct event_tap){ .id = tap->id, .wall_start_ns = clock_wall_ns(),
					.duration_ns = tap->duration_ns };
	return emit(e, &event);
}

int engine_open_config(struct engine *e, const char *path, readerclient_file_fn *fn, void *arg)
{
	return readerclient_config(e->reader, path, fn, arg);
}

void engine_on_turn(struct engine *e, engine_turn_fn *fn, void *arg)
{
	e->on_turn = fn;
	e->on_turn_arg = arg;
}

int engine_update_counters(struct engine *e)
{
	uint64_t values[ABI_CNT_COUNT];
	struct event event = { .type = EVENT_COUNTERS, .time_ns = clock_mono_ns(),
			       .counters = { .n = ABI_CNT_COUNT, .values = values } };
	int err = sampler_counters(e->sampler, values);

	return err ? err : emit(e, &event);
}

const struct pipeline_stats *engine_stats(const struct engine *e)
{
	return pipeline_stats(e->pipeline);
}

size_t engine_bytes(const struct engine *e)
{
	return pipeline_bytes(e->pipeline) + (e->announce ? announce_bytes(e->announce) : 0);
}

size_t engine_map_bytes(const struct engine *e)
{
	return sampler_map_bytes(e->sampler) + sideband_map_bytes(e->sideband);
}

uint32_t engine_ncpus(const struct engine *e)
{
	return sampler_ncpus(e->sampler);
}

uint64_t engine_quarantined(const struct engine *e)
{
	return symclient_quarantined(e->symbolizer);
}

struct engine_pids engine_pids(const struct engine *e)
{
	return (struct engine_pids){ .symbolizer = symclient_pid(e->symbolizer),
				     .reader = readerclient_pid(e->reader) };
}

int engine_bpf_cost(const struct engine *e, uint64_t *ret_ns, uint64_t *ret_runs)
{
	return sampler_cost(e->sampler, ret_ns, ret_runs);
}

struct engine_restarts engine_restarts(const struct engine *e)
{
	return (struct engine_restarts){ .symbolizer = symclient_restarts(e->symbolizer),
					 .reader = readerclient_restarts(e->reader) };
}
