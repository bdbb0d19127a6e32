/* flamed: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "agent/reader.h"
#include "agent/record.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

/* Source: sysexits.h; what systemd shows as "bad configuration". */
enum { STATUS_USAGE = 64, STATUS_CONFIG = 78 };

static const char usage[] =
	"usage: flamed record [-d SECONDS] [-o FILE] [-p PID]... [-F HZ] [--events FILE] [-- COMMAND ARGS...]\n"
	"       flamed replay FILE [-o FILE]\n"
	"       flamed --check-config | --print-config [--config FILE]\n"
	"       flamed --version | --help\n"
	"\n"
	"record samples the kernel and user stacks of every process on this host, of some processes and\n"
	"their children, or of a command and its children, and writes one gzipped pprof profile.\n"
	"\n"
	"  -d, --duration SECONDS  how long (default: until Ctrl-C, or until what is sampled has ended)\n"
	"  -o, --output FILE       the profile (default flamed.pb.gz; - is standard output)\n"
	"  -p, --pid PID           only this process and its children; may be repeated\n"
	"  -F, --frequency HZ      samples per second and CPU (default 100)\n"
	"      --events FILE       also keep what the profile is made of; it holds stack memory\n"
	"  -c, --config FILE       configuration (YAML)\n"
	"\n"
	"replay makes the profile of a recording from its --events file.\n";

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

static int load_config(const char *path, struct config **ret)
{
	CLEANUP_FREE char *why = NULL;
	int err = config_load(ret, path, &why);

	if (!err) {
		log_set_level((*ret)->log.level);
		return 0;
	}
	fprintf(stderr, "flamed: %s\n", why ? why : strerror(-err));
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
};

enum { OPT_EVENTS = 256 };

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
		{ "help", no_argument, NULL, 'h' },	       { 0 },
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
	status = load_config(a.config, &config);
	if (status)
		return status;
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
		return complain("nothing to do: 'flamed record' profiles this host%s", "");
	status = load_config(path, &config);
	if (!status && action == 'p')
		config_print(stdout, config);
	return status;
}

int main(int argc, char **argv)
{
	static char record_name[] = "flamed record", replay_name[] = "flamed replay";

	log_init("flamed", LOG_INFO);
	if (argc > 1 && strcmp(argv[1], "reader") == 0)
		return reader_main();
	/* getopt says who complains. */
	if (argc > 1 && strcmp(argv[1], "record") == 0) {
		argv[1] = record_name;
		return record_command(argc - 1, argv + 1);
	}
	if (argc > 1 && strcmp(argv[1], "replay") == 0) {
		argv[1] = replay_name;
		return replay_command(argc - 1, argv + 1);
	}
	return global_options(argc, argv);
}
