#include "agent/labels_command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/engine.h"
#include "agent/expclient.h"
#include "agent/reader_cgroup.h"
#include "agent/rights.h"
#include "base/clock.h"
#include "base/log.h"

#define WAIT_NS (10 * NSEC_PER_SEC)
/* Source: include/linux/sched.h; the flags in /proc/PID/stat. */
#define PF_KTHREAD 0x00200000u
/* Those of the exporter, hostname, and labels.static. */
enum { LINES_MAX = EXPORT_PAIRS_MAX + 64 };

struct facts {
	char executable[PATH_MAX];
	char comm[64];
	char cgroups[READER_TEXT_MAX + 1];
	bool is_kernel_thread;
};

struct labels_run {
	struct expclient *exporter;
	const struct config *config;
	const char *version;
	char hostname[256];
	bool is_answered;
};

/* ---- the process ---- */

static int read_proc(uint32_t pid, const char *name, char *ret, size_t size)
{
	CLEANUP_FD int fd = -1;
	char path[64];
	size_t len = 0;
	ssize_t n = 0;

	ret[0] = 0;
	snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (len < size - 1 && (n = read(fd, ret + len, size - 1 - len)) > 0)
		len += (size_t)n;
	ret[len] = 0;
	return n < 0 ? -errno : 0;
}

/* Source: proc_pid_stat(5): flags are the 7th field behind the name in parentheses. */
static bool is_kernel_thread(const char *stat)
{
	const char *at = strrchr(stat, ')');
	unsigned int flags = 0;

	return at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && flags & PF_KTHREAD;
}

static int read_executable(uint32_t pid, struct facts *f)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/exe", pid);
	n = readlink(path, f->executable, sizeof(f->executable) - 1);
	/* It has none, or is shielded from root too (another user namespace, a security module). */
	if (n < 0 && (errno == ENOENT || geteuid() == 0))
		return 0;
	if (n < 0)
		return -errno;
	f->executable[n] = 0;
	return 0;
}

/* As the daemon's reader does. */
static int read_cgroups(uint32_t pid, struct facts *f)
{
	CLEANUP(reader_cgroup_freep) struct reader_cgroup *c = NULL;
	struct reader_text text;
	int err = reader_cgroup_new(&c, "/proc/self/mountinfo");

	if (err)
		return err;
	reader_cgroup_read(c, &(struct reader_cgroups){ .pid = pid }, &text);
	memcpy(f->cgroups, text.text, text.len);
	f->cgroups[text.len] = 0;
	return 0;
}

static int read_facts(uint32_t pid, struct facts *f)
{
	char stat[1024];
	int err = read_proc(pid, "stat", stat, sizeof(stat));

	if (err == -ENOENT || err == -ESRCH) {
		log_error("no such process pid=%u", pid);
		return err;
	}
	if (!err)
		err = read_proc(pid, "comm", f->comm, sizeof(f->comm));
	if (!err)
		err = read_cgroups(pid, f);
	f->comm[strcspn(f->comm, "\n")] = 0;
	f->is_kernel_thread = is_kernel_thread(stat);
	if (!err && !f->is_kernel_thread)
		err = read_executable(pid, f);
	if (err)
		log_error("cannot read about the process pid=%u error='%s'%s", pid, strerror(-err),
			  err == -EACCES ? " (it is another user's: run as root)" : "");
	return err;
}

/* ---- the exporter ---- */

/* It is to answer, and neither to listen nor to push. */
static int on_started(void *arg)
{
	struct labels_run *run = arg;
	struct config quiet = *run->config;
	CLEANUP(bufw_fini) struct bufw settings = { 0 };
	CLEANUP(bufw_fini) struct bufw out = { 0 };
	struct export_config c = { .hostname = run->hostname, .hash = "", .version = run->version, .token = "" };
	char off[] = "off", none[] = "";
	int err;

	quiet.endpoints = (struct value_items){ 0 };
	quiet.page.listen = quiet.metrics.listen = off;
	quiet.output.directory = none;
	config_encode(&settings, &quiet);
	err = bufw_end(&settings);
	if (err)
		return err;
	c.settings = settings.data;
	c.settings_len = settings.len;
	export_config_encode(&out, &c);
	err = bufw_end(&out);
	return err ? err : expclient_tell(run->exporter, EXPORT_CONFIG, out.data, out.len, -1);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct export_label *)a)->name, ((const struct export_label *)b)->name);
}

/* What the exporter adds to every series besides. */
static uint32_t add_general(const struct labels_run *run, struct export_label *lines, uint32_t n)
{
	const struct value_map *fixed = &run->config->labels.fixed;

	if (run->hostname[0])
		lines[n++] = (struct export_label){ "hostname", run->hostname, run->config->labels.hostname[0] ?
						    "from labels.hostname" : "of this host" };
	for (size_t i = 0; i < fixed->n && n < LINES_MAX; i++)
		lines[n++] = (struct export_label){ fixed->v[i].name, fixed->v[i].value, "from labels.static" };
	return n;
}

/* A stranger's text: no control character reaches a terminal. */
static void print_text(const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		/* C1 controls are two bytes in UTF-8, which is what a label's value is. */
		bool is_c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;

		if (*c < ' ' || *c == 0x7f || is_c1)
			putchar('?');
		else
			putchar(*c);
		c += is_c1;
	}
}

static int on_labels(void *arg, const struct export_labels *l)
{
	struct export_label lines[LINES_MAX];
	struct labels_run *run = arg;
	uint32_t n = MIN(l->nlabels, (uint32_t)EXPORT_PAIRS_MAX);

	memcpy(lines, l->labels, n * sizeof(lines[0]));
	n = add_general(run, lines, n);
	qsort(lines, n, sizeof(lines[0]), by_name);
	for (uint32_t i = 0; i < n; i++) {
		printf("%s: ", lines[i].name);
		print_text(lines[i].value);
		fputs("  (", stdout);
		print_text(lines[i].source);
		fputs(")\n", stdout);
	}
	if (l->keep_one_in > 1)
		printf("sampled: 1 in %u\n", l->keep_one_in);
	else
		printf("sampled: %s\n", l->keep_one_in ? "yes" : "no");
	run->is_answered = true;
	return 0;
}

static int on_done(void *arg UNUSED, const struct export_done *done UNUSED)
{
	return 0;
}

static const struct expclient_ops ops = { .done = on_done, .labels = on_labels, .started = on_started };

static int ask(struct labels_run *run, uint32_t pid, const struct facts *f, const struct engine_programs *programs)
{
	struct ipc_program program = { .name = "flamed-exporter", .exe_fd = programs->exporter };
	struct export_facts facts = { .id = 1, .pid = pid, .flags = f->is_kernel_thread ? EXPORT_SUBJECT_KERNEL : 0,
				      .executable = f->executable, .comm = f->comm, .cgroups = f->cgroups };
	CLEANUP(expclient_freep) struct expclient *exporter = NULL;
	CLEANUP(loop_freep) struct loop *loop = NULL;
	uint64_t end_ns = clock_mono_ns() + WAIT_NS;
	int err = loop_new(&loop);

	if (err || (err = expclient_new(&exporter, loop, &program, -1, &ops, run)))
		return err;
	run->exporter = exporter;
	err = expclient_subject(exporter, &facts);
	while (err >= 0 && !run->is_answered && clock_mono_ns() < end_ns)
		err = loop_once(loop, 100 * NSEC_PER_MSEC);
	exporter = expclient_free(exporter); /* before its loop */
	if (err < 0)
		return err;
	return run->is_answered ? 0 : -ETIMEDOUT;
}

int labels_command_run(uint32_t pid, const struct config *config, const char *version)
{
	CLEANUP(engine_programs_close) struct engine_programs programs = ENGINE_PROGRAMS_INIT;
	struct labels_run run = { .config = config, .version = version };
	CLEANUP_FREE char *program_why = NULL;
	const char *why = NULL;
	struct facts facts = { .executable = "" };
	uint64_t missing;
	int err;

	if (read_facts(pid, &facts))
		return EXIT_FAILURE;
	snprintf(run.hostname, sizeof(run.hostname), "%s", config->labels.hostname);
	if (!run.hostname[0] && gethostname(run.hostname, sizeof(run.hostname) - 1))
		run.hostname[0] = 0;
	err = engine_programs_open(&programs, &program_why);
	if (!err && geteuid() == 0)
		err = rights_leave_root(&missing, &why);
	if (!err)
		err = ask(&run, pid, &facts, &programs);
	if (!err)
		return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
	log_error("cannot ask for labels: %s", program_why ? program_why : why ? why : strerror(-err));
	return EXIT_FAILURE;
}
