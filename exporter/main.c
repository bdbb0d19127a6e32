/*
 * flamed-exporter - batches from the agent become pprof profiles.
 *
 * Started by the agent with a channel on IPC_FD. This version writes each profile to the descriptor
 * that the agent handed over. It keeps nothing: a batch that is sent again is written again, with
 * the same bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ipc.h"
#include "base/log.h"
#include "exporter/msg.h"
#include "exporter/output.h"
#include "exporter/pprof.h"
#include "exporter/sandbox.h"

struct exporter {
	int output_fd;
	struct ipc_in in;
	struct bufw reply;
};

static void exporter_fini(struct exporter *x)
{
	closep(&x->output_fd);
	ipc_in_fini(&x->in);
	bufw_fini(&x->reply);
}

static void usage(FILE *to)
{
	fputs("Usage: flamed-exporter [--help | --version]\n"
	      "\n"
	      "Turns flamed's samples into pprof profiles. flamed starts it; it has no use by\n"
	      "hand.\n",
	      to);
}

/* -1, or the exit status of a run that ends here. */
static int parse_arguments(int argc, char **argv)
{
	if (argc < 2)
		return -1;
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf("flamed-exporter %s\n", ipc_build_id);
		return EXIT_SUCCESS;
	}
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return EXIT_SUCCESS;
	}
	usage(stderr);
	return 2;
}

static void export_to_output(const struct exporter *x, const struct export_batch *b,
			     struct export_done *done)
{
	CLEANUP(bufw_fini) struct bufw profile = {};
	struct pprof_totals totals;
	int err;

	err = pprof_encode(&profile, b, &totals);
	if (!err)
		err = output_write(x->output_fd, profile.data, profile.len);
	if (err) {
		done->result = EXPORT_WRITE_FAILED;
		done->error = (uint32_t)-err;
		return;
	}
	done->result = EXPORT_WRITTEN;
	done->nsamples = totals.nsamples;
	done->bytes = profile.len;
}

/* The answer to a batch. A batch over a limit or out of order is refused, by its id. */
static int answer_batch(struct exporter *x, const struct ipc_msg *m)
{
	CLEANUP(export_batch_fini) struct export_batch b = {};
	struct export_done done = { .result = EXPORT_REFUSED };
	struct bufr r;
	int err;

	bufr_init(&r, m->data, m->len);
	done.id = bufr_u64(&r);
	if (bufr_err(&r))
		return -EBADMSG;
	bufr_init(&r, m->data, m->len);
	err = export_batch_decode(&r, &b);
	if (err == -ENOMEM) {
		done.result = EXPORT_WRITE_FAILED;
		done.error = ENOMEM;
	} else if (err) {
		log_error("a batch is malformed or too large id=%llu bytes=%zu",
			  (unsigned long long)done.id, m->len);
	} else {
		export_to_output(x, &b, &done);
	}
	bufw_reset(&x->reply);
	export_done_encode(&x->reply, &done);
	err = bufw_end(&x->reply);
	return err ? err : ipc_send(IPC_FD, EXPORT_DONE, x->reply.data, x->reply.len, -1);
}

static int dispatch(struct exporter *x, struct ipc_msg *m)
{
	CLEANUP_FD int fd = m->fd;

	switch (m->type) {
	case EXPORT_OUTPUT:
		if (fd < 0)
			return -EBADMSG;
		closep(&x->output_fd);
		x->output_fd = TAKE_FD(fd);
		return 0;
	case EXPORT_BATCH:
		return answer_batch(x, m);
	default:
		return -EBADMSG;
	}
}

/* 0 when the agent closed the channel. */
static int serve(struct exporter *x)
{
	struct ipc_msg m;
	int err;

	err = ipc_hello();
	while (!err) {
		err = ipc_recv(IPC_FD, &x->in, &m);
		if (err == 0 || err == -EPIPE)
			return 0;
		if (err > 0)
			err = dispatch(x, &m);
	}
	return err == -EPIPE ? 0 : err;
}

int main(int argc, char **argv)
{
	CLEANUP(exporter_fini) struct exporter x = { .output_fd = -1 };
	int status, err;

	log_init("flamed-exporter", LOG_INFO);
	status = parse_arguments(argc, argv);
	if (status >= 0)
		return status;
	ipc_ignore_signals(); /* a closed pipe and a full quota are errors of write(2) */
	err = sandbox_enter();
	if (!err)
		err = serve(&x);
	if (err) {
		log_error("the exporter ends: %s", strerror(-err));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
