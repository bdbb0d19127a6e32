/*
 * flamed-exporter - what the agent has counted goes out: to servers, files and the page.
 *
 * Started by the agent with a channel on IPC_FD, which first says what to work with. By hand it is
 * `flamed status`, a client of the daemon's control socket.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/loop.h"
#include "exporter/channel.h"
#include "exporter/sandbox.h"
#include "exporter/status.h"

#define OUTDATED_CHECK_NS (30 * NSEC_PER_SEC)

static void usage(FILE *to)
{
	fputs("Usage: flamed-exporter [--help | --version]\n"
	      "       flamed-exporter status SOCKET [--json]\n"
	      "\n"
	      "Turns flamed's samples into pprof profiles and delivers them. flamed starts it; by\n"
	      "hand it only asks a running flamed for its state.\n",
	      to);
}

/* -1, or the exit status of a run that ends here. */
static int parse_arguments(int argc, char **argv)
{
	const char *first = argc > 1 ? argv[1] : NULL;

	if (!first)
		return -1;
	if (argc == 2 && !strcmp(first, "--version")) {
		printf("flamed-exporter %s\n", ipc_build_id);
		return EXIT_SUCCESS;
	}
	if (argc == 2 && !strcmp(first, "--help")) {
		usage(stdout);
		return EXIT_SUCCESS;
	}
	if (!strcmp(first, "status") && (argc == 3 || (argc == 4 && !strcmp(argv[3], "--json")))) {
		log_init("flamed", LOG_INFO); /* what its caller typed */
		return status_run(argv[2], argc == 4);
	}
	usage(stderr);
	return 2;
}

static int on_channel(void *arg, unsigned int events)
{
	(void)events;
	return channel_receive(arg);
}

static int on_outdated_check(void *arg)
{
	if (!sandbox_is_outdated() || !channel_may_restart(arg))
		return 0;
	log_info(
		"the exporter starts anew: /etc/resolv.conf was replaced, and only a new one can read it");
	return LOOP_STOP;
}

static int enter_sandbox(struct channel *c, struct loop *loop)
{
	const struct sandbox_conf conf = {
		.has_network = channel_has_network(c),
		.output_dir_fd = channel_output_dir(c),
	};
	int landlock, err;

	err = sandbox_enter(&conf, &landlock);
	if (err)
		return err;
	channel_set_landlock(c, landlock);
	/* One that nobody but root can read is none that a new exporter could. */
	if (!landlock || sandbox_is_outdated())
		return 0;
	return loop_add_timer(loop, NULL, OUTDATED_CHECK_NS, on_outdated_check, c);
}

static int serve(void)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	CLEANUP(channel_freep) struct channel *c = NULL;
	int err = sandbox_hide();

	if (!err)
		err = loop_new(&loop);
	if (!err)
		err = channel_new(&c, loop);
	if (!err)
		err = ipc_hello();
	while (!err && !channel_is_started(c))
		err = channel_receive(c);
	if (!err)
		err = enter_sandbox(c, loop);
	if (!err)
		err = loop_add(loop, NULL, IPC_FD, LOOP_IN, on_channel, c);
	if (!err)
		err = loop_run(loop);
	return err == LOOP_STOP || err == -EPIPE ? 0 : err;
}

int main(int argc, char **argv)
{
	int status, err;

	log_init("flamed-exporter", LOG_INFO);
	status = parse_arguments(argc, argv);
	if (status >= 0)
		return status;
	ipc_ignore_signals(); /* a closed pipe and a full quota are errors of write(2) */
	err = serve();
	if (err) {
		log_error("the exporter ends: %s", strerror(-err));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
