/* flamed: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "agent/daemon.h"
#include "agent/features_command.h"
#include "agent/labels_command.h"
#include "agent/reader.h"
#include "agent/record.h"
#include "agent/settings.h"
#include "agent/status_command.h"
#include "base/clock.h"
#include "base/log.h"

/* Source: sysexits.h; what systemd shows as "bad configuration". */
enum { STATUS_USAGE = 64, STATUS_CONFIG = 78 };

static const char usage[] =
	"usage: flamed [--config FILE]\n"
	"       flamed record [-d SECONDS] [-o FILE] [-p PID]... [-F HZ] [--demangle STYLE] [--events FILE]\n"
	"                     [-- COMMAND ARGS...]\n"
	"       flamed replay FILE [-o FILE]\n"
	"       flamed status [--socket PATH] [--config FILE] [--json]\n"
	"       flamed labels PID [--config FILE]\n"
	"       flamed features\n"
	"       flamed --check-config | --print-config [--config FILE]\n"
	"       flamed --version | --help\n"
	"\n"
	"Without a command flamed profiles every process of this host, for ever, and pushes the profiles\n"
	"or shows them on its page. SIGHUP reloads the configuration.\n"
	"\n"
	"  -c, --config FILE       configuration (YAML; default " SETTINGS_DEFAULT_PATH " where there is one)\n"
	"\n"
	"record samples the kernel and user stacks of every process on this host, of some processes and\n"
	"their children, or of a command and its children, and writes one gzipped pprof profile.\n"
	"\n"
	"  -d, --duration SECONDS  how long (default: until Ctrl-C, or until what is sampled has ended)\n"
	"  -o, --output FILE       the profile (default flamed.pb.gz; - is standard output)\n"
	"  -p, --pid PID           only this process and its children; may be repeated\n"
	"  -F, --frequency HZ      samples per second and CPU (default 100)\n"
	"      --demangle STYLE    names of C++, Rust and D: short (default), full with parameters, or none\n"
	"      --events FILE       also keep what the profile is made of; it holds stack memory\n"
	"\n"
	"replay makes the profile of a recording from its --events file.\n"
	"status says how the flamed of this host is: what is sampled, lost and delivered, rights, memory.\n"
	"labels says what a process is filed under, and why.\n"
	"features says what this kernel offers, and whether flamed can run here.\n";

/* After getopt has complained, it is all that is left to say. */
static int suggest_help(void)
{
	fputs("flamed: try 'flamed --help'\n", stderr);
	return STATUS_USAGE;
}

static int PRINTF(1, 0) complain(const char *fmt, const char *what)
{
	fprintf(stderr, "flamed: ");
	fprintf(stderr, fmt, what);
	fputc('\n', stderr);
	return suggest_help();
}

typedef int load_fn(struct config **ret, const char *path, char **ret_why);

static int load_config(load_fn *load, const char *path, struct config **ret)
{
	CLEANUP_FREE char *why = NULL;
	int err = load(ret, path, &why);

	if (!err) {
		log_set_level((*ret)->log.level);
		return 0;
	}
	fprintf(stderr, "flamed: %s%s\n", why ? why : strerror(-err),
		err == -EACCES ? ": run it as root, or name a file of your own (--config)" : "");
	return STATUS_CONFIG;
}

static bool parse_number(const char *text, double min, double max, double *ret)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(text, &end);
	if (errno || end == text || *end || !(v >= min && v <= max))
		return false;
	*ret = v;
	return true;
}

struct arguments {
	struct record_options record;
	const char *config;
	double hz; /* 0: as configured */
	bool has_demangle;
	enum config_demangle demangle;
};

enum { OPT_EVENTS = 256, OPT_DEMANGLE };

static int parse_record_option(struct arguments *a, int option)
{
	double number;

	switch (option) {
	case 'd':
		if (!parse_number(optarg, 0.001, 1e7, &number))
			return complain("--duration takes seconds, 0.001 to 10000000: '%s'", optarg);
		a->record.duration_ns = (uint64_t)(number * (double)NSEC_PER_SEC);
		return 0;
	case 'o':
		a->record.output = optarg;
		return 0;
	case 'p':
		if (!parse_number(optarg, 1, 4194304, &number) || number != (double)(uint32_t)number)
			return complain("--pid takes a process id: '%s'", optarg);
		if (a->record.npids == RECORD_PIDS_MAX)
			return complain("too many --pid%s", "");
		a->record.pids[a->record.npids++] = (uint32_t)number;
		return 0;
	case 'F':
		if (!parse_number(optarg, 1, 1000, &a->hz) || a->hz != (double)(uint32_t)a->hz)
			return complain("--frequency takes a whole number, 1 to 1000: '%s'", optarg);
		return 0;
	case 'c':
		a->config = optarg;
		return 0;
	case OPT_DEMANGLE:
		a->has_demangle = config_parse_demangle(optarg, &a->demangle);
		return a->has_demangle ? 0 : complain("--demangle is short, full or none: '%s'", optarg);
	case OPT_EVENTS:
		a->record.events = optarg;
		return 0;
	default:
		return suggest_help();
	}
}

static int record_command(int argc, char **argv)
{
	static const struct option options[] = {
		{ "duration", required_argument, NULL, 'd' },  { "output", required_argument, NULL, 'o' },
		{ "pid", required_argument, NULL, 'p' },       { "frequency", required_argument, NULL, 'F' },
		{ "events", required_argument, NULL, OPT_EVENTS }, { "config", required_argument, NULL, 'c' },
		{ "demangle", required_argument, NULL, OPT_DEMANGLE }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct arguments a = { .record = { .output = "flamed.pb.gz" } };
	CLEANUP(config_freep) struct config *config = NULL;
	int option, status;

	while ((option = getopt_long(argc, argv, "+d:o:p:F:c:h", options, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		status = parse_record_option(&a, option);
		if (status)
			return status;
	}
	if (optind < argc)
		a.record.command = argv + optind;
	if (a.record.command && a.record.npids)
		return complain("--pid and a command exclude each other%s", "");
	status = load_config(settings_load_if_allowed, a.config, &config);
	if (status)
		return status;
	if (a.has_demangle)
		config->symbols.demangle = a.demangle;
	if (a.hz > 0)
		config->sampling.frequency_hz = (uint32_t)a.hz;
	return record_run(&a.record, config);
}

static int replay_command(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	const char *output = "flamed.pb.gz";
	int option;

	while ((option = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (option != 'o')
			return suggest_help();
		output = optarg;
	}
	if (optind + 1 != argc)
		return complain("replay takes one event log%s", "");
	return replay_run(argv[optind], output);
}

static int labels_command(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	CLEANUP(config_freep) struct config *config = NULL;
	const char *path = NULL;
	double pid;
	int option, status;

	while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (option != 'c')
			return suggest_help();
		path = optarg;
	}
	if (optind + 1 != argc)
		return complain("labels takes one process id%s", "");
	if (!parse_number(argv[optind], 1, INT32_MAX, &pid) || pid != (double)(uint32_t)pid)
		return complain("labels takes a process id: '%s'", argv[optind]);
	status = load_config(settings_load_if_allowed, path, &config);
	return status ? status : labels_command_run((uint32_t)pid, config, FLAMED_VERSION);
}

static int features_command(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int option = getopt_long(argc, argv, "h", options, NULL);

	if (option == 'h') {
		fputs(usage, stdout);
		return 0;
	}
	if (option != -1)
		return suggest_help();
	if (optind < argc)
		return complain("features takes no '%s'", argv[optind]);
	return features_command_run();
}

static int status_command(int argc, char **argv)
{
	static const struct option options[] = {
		{ "socket", required_argument, NULL, 's' }, { "config", required_argument, NULL, 'c' },
		{ "json", no_argument, NULL, 'j' },	    { "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct status_options o = { .socket = NULL };
	int option;

	while ((option = getopt_long(argc, argv, "s:c:h", options, NULL)) != -1) {
		if (option == 's')
			o.socket = optarg;
		else if (option == 'c')
			o.config = optarg;
		else if (option == 'j')
			o.is_json = true;
		else if (option != 'h')
			return suggest_help();
		if (option == 'h') {
			fputs(usage, stdout);
			return 0;
		}
	}
	if (optind < argc)
		return complain("status takes no '%s'", argv[optind]);
	return status_command_run(&o);
}

static int run_daemon(const char *path)
{
	struct daemon_options o = { .path = path, .version = FLAMED_VERSION };
	int status = load_config(settings_load, path, &o.config);

	return status ? status : daemon_run(&o);
}

static int global_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },   { "check-config", no_argument, NULL, 'k' },
		{ "print-config", no_argument, NULL, 'p' },   { "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },	      { 0 },
	};
	CLEANUP(config_freep) struct config *config = NULL;
	const char *path = NULL;
	int option, action = 0, status;

	while ((option = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1) {
		if (option == 'c')
			path = optarg;
		else if (option == '?')
			return suggest_help();
		else
			action = option;
	}
	if (action == 'V') {
		puts("flamed " FLAMED_VERSION " (" FLAMED_BUILD_ID ")");
		return 0;
	}
	if (action == 'h') {
		fputs(usage, stdout);
		return 0;
	}
	if (optind < argc)
		return complain("no such command: '%s'", argv[optind]);
	if (!action)
		return run_daemon(path);
	status = load_config(settings_load, path, &config);
	if (!status && action == 'p')
		config_print(stdout, config);
	return status;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *word;
		char name[16];	/* as getopt says who complains */
		int (*run)(int argc, char **argv);
	} commands[] = {
		{ "record", "flamed record", record_command }, { "replay", "flamed replay", replay_command },
		{ "labels", "flamed labels", labels_command }, { "status", "flamed status", status_command },
		{ "features", "flamed features", features_command },
	};

	log_init("flamed", LOG_INFO);
	if (argc > 1 && strcmp(argv[1], "reader") == 0)
		return reader_main();
	for (size_t i = 0; i < ARRAY_SIZE(commands) && argc > 1; i++) {
		if (strcmp(argv[1], commands[i].word) == 0) {
			argv[1] = (char *)(uintptr_t)commands[i].name;
			return commands[i].run(argc - 1, argv + 1);
		}
	}
	return global_options(argc, argv);
}
