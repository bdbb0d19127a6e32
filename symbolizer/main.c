/*
 * flamed-symbolizer - parses strangers' ELF files for the agent, without any rights; see
 * symbolizer/msg.h for what it is asked. By hand: flamed-symbolizer --file X --dump rows|symbols.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ipc.h"
#include "base/log.h"
#include "symbolizer/answer.h"
#include "symbolizer/dump.h"
#include "symbolizer/mem.h"
#include "symbolizer/sandbox.h"

enum {
	/*
	 * Files stay mapped for a batch: until no request has come for IDLE_MS, but no longer than
	 * BATCH_MS, or on a busy host their pages would stay resident for ever.
	 */
	IDLE_MS = 200,
	BATCH_MS = 1000,
	OFFSETS_MAX = 1 << 20,		/* that are read */
	OUT_KEPT_MAX = 1 << 20,		/* bytes of the answer's buffer that stay allocated */
};

struct options {
	const char *file, *dump, *at;
	enum sandbox_mode sandbox;
	enum demangle_style style;
	bool help, version;
};

static const char usage[] =
	"usage: flamed-symbolizer --file FILE --dump rows|symbols [--at OFFSET] [--sandbox kill|log]\n"
	"                         [--demangle short|full|none]\n"
	"\n"
	"Shows what flamed reads from an ELF file: unwind rows or function symbols, all of them or those\n"
	"for one file offset. Without --file it serves flamed, which starts it.\n"
	"\n"
	"  --at -         file offsets from standard input, one a line (symbols only)\n"
	"  --sandbox log  name forbidden system calls on stderr instead of dying of them\n"
	"  --help, --version\n";

static int parse_options(int argc, char **argv, struct options *ret)
{
	static const struct option longs[] = {
		{ "file", required_argument, NULL, 'f' },    { "dump", required_argument, NULL, 'd' },
		{ "at", required_argument, NULL, 'a' },	     { "sandbox", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },	     { "version", no_argument, NULL, 'v' },
		{ "demangle", required_argument, NULL, 'm' }, { 0 },
	};
	struct options o = { .sandbox = SANDBOX_KILL };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'f': o.file = optarg; break;
		case 'd': o.dump = optarg; break;
		case 'a': o.at = optarg; break;
		case 's':
			if (strcmp(optarg, "log") != 0 && strcmp(optarg, "kill") != 0)
				return -EINVAL;
			o.sandbox = strcmp(optarg, "log") == 0 ? SANDBOX_LOG : SANDBOX_KILL;
			break;
		case 'm':
			if (!demangle_parse_style(optarg, &o.style))
				return -EINVAL;
			break;
		case 'h': o.help = true; break;
		case 'v': o.version = true; break;
		default: return -EINVAL;
		}
	}
	if (optind != argc || !o.file != !o.dump || (o.at && !o.file) ||
	    (o.dump && strcmp(o.dump, "rows") != 0 && strcmp(o.dump, "symbols") != 0) ||
	    (o.at && strcmp(o.at, "-") == 0 && strcmp(o.dump, "symbols") != 0))
		return -EINVAL;
	*ret = o;
	return 0;
}

static int enter_sandbox(enum sandbox_mode mode)
{
	int err;

	elffile_guard_init();
	err = sandbox_enter(mode);
	if (err)
		log_error("cannot enter the sandbox error='%s'", strerror(-err));
	return err;
}

/* Hexadecimal or decimal numbers, one a line. */
static int read_offsets(const char *text, uint64_t **ret, size_t *ret_n)
{
	CLEANUP_FREE uint64_t *offsets = NULL;
	uint32_t cap = 0, n = 0;
	char line[64], *end;

	if (strcmp(text, "-") != 0) {
		offsets = mem_grow(offsets, &cap, 1, sizeof(*offsets));
		offsets[n++] = strtoull(text, &end, 0);
		if (end == text || *end)
			return -EINVAL;
	}
	while (strcmp(text, "-") == 0 && n < OFFSETS_MAX && fgets(line, sizeof(line), stdin)) {
		offsets = mem_grow(offsets, &cap, n + 1, sizeof(*offsets));
		offsets[n++] = strtoull(line, &end, 0);
		if (end == line || *end != '\n')
			return -EINVAL;
	}
	*ret = TAKE(offsets);
	*ret_n = n;
	return 0;
}

static int dump_file(const struct options *o)
{
	CLEANUP_FREE uint64_t *offsets = NULL;
	bool rows = strcmp(o->dump, "rows") == 0;
	CLEANUP_FD int fd = open(o->file, O_RDONLY | O_CLOEXEC);
	static char buffer[64 * 1024];
	size_t n = 0;
	int err;

	/* A stranger's file is parsed inside the sandbox; what the user types is not. */
	if (o->at && read_offsets(o->at, &offsets, &n) < 0) {
		fputs(usage, stderr);
		return EXIT_FAILURE;
	}
	if (fd < 0) {
		log_error("cannot open file=%s error='%s'", LOG_STR(o->file), strerror(errno));
		return EXIT_FAILURE;
	}
	/* Otherwise stdio asks a terminal about itself, by an ioctl that the sandbox does not have. */
	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	if (enter_sandbox(o->sandbox) < 0)
		return EXIT_FAILURE;
	if (o->at) {
		err = rows ? dump_rows_at(fd, offsets[0]) : dump_symbols_at(fd, o->style, offsets, n);
	} else {
		err = rows ? dump_rows(fd) : dump_symbols(fd, o->style);
	}
	if (err) {
		log_error("cannot read file=%s reason='%s'", LOG_STR(o->file),
			  err > 0 ? msg_file_result_text((enum msg_file_result)err) : strerror(-err));
		return EXIT_FAILURE;
	}
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The socket blocks, and yet refuses a payload's memfd while too many descriptors of this user are in flight. */
static int reply(uint32_t type, const struct bufw *out)
{
	int err;

	while ((err = ipc_send(IPC_FD, type, out->data, out->len, -1)) == -EAGAIN)
		(void)poll(NULL, 0, 1);
	return err;
}

static int answer(struct handles *h, const struct ipc_msg *msg, struct msg_request *req, struct bufw *out)
{
	struct msg_debug debug;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	if (msg->type == MSG_DEBUG) {
		err = msg_debug_decode(&in, &debug);
		if (err)
			return err;
		answer_debug(h, &debug, msg->fd, out);
		return reply(msg->type, out);
	}
	err = msg_request_decode(&in, req);
	if (err)
		return err;
	switch (msg->type) {
	case MSG_ROWS:
		answer_rows(h, req, msg->fd, out);
		break;
	case MSG_NAMES:
		if (req->flags & MSG_REQUEST_JIT)
			answer_jit(h, req, msg->fd, out);
		else
			answer_names(h, req, msg->fd, out);
		break;
	case MSG_LINK:
		answer_link(h, req, msg->fd, out);
		break;
	default:
		return -EBADMSG;
	}
	return reply(msg->type, out);
}

static void end_batch(struct handles *h)
{
	handles_trim(h);
	malloc_trim(0);
}

/* Waits for a request; when a batch is over, gives memory and mappings back first. */
static int wait_for_request(struct handles *h, uint64_t *batch_start_ns)
{
	struct pollfd p = { .fd = IPC_FD, .events = POLLIN };
	uint64_t now = clock_mono_ns();
	int n;

	if (handles_any_open(h) && now - *batch_start_ns > BATCH_MS * NSEC_PER_MSEC)
		end_batch(h);
	do {
		n = poll(&p, 1, handles_any_open(h) ? IDLE_MS : -1);
		if (n == 0)
			end_batch(h);
	} while (n == 0 || (n < 0 && errno == EINTR));
	if (!handles_any_open(h))
		*batch_start_ns = clock_mono_ns();
	return n < 0 ? -errno : 0;
}

/* Ends with 0 when the agent has gone. */
static int serve(enum demangle_style style)
{
	CLEANUP(handles_fini) struct handles h = { .style = style };
	CLEANUP(ipc_in_fini) struct ipc_in in = { 0 };
	CLEANUP(bufw_fini) struct bufw out = { 0 };
	static struct msg_request req;
	uint64_t batch_start_ns = 0;
	struct ipc_msg msg;
	int err;

	err = ipc_hello();
	while (!err) {
		err = wait_for_request(&h, &batch_start_ns);
		if (err)
			break;
		err = ipc_recv(IPC_FD, &in, &msg);
		if (err <= 0) {
			if (err == -EAGAIN || err == -EINTR) {
				err = 0;
				continue;
			}
			break;
		}
		err = answer(&h, &msg, &req, &out);
		if (msg.fd >= 0)
			close(msg.fd);
		if (out.cap > OUT_KEPT_MAX)
			bufw_fini(&out);
		bufw_reset(&out);
	}
	return err == -EPIPE ? 0 : err;
}

int main(int argc, char **argv)
{
	struct options o;
	int err;

	log_init("flamed-symbolizer", LOG_INFO);
	if (parse_options(argc, argv, &o) < 0) {
		fputs(usage, stderr);
		return EXIT_FAILURE;
	}
	if (o.help || o.version) {
		printf("%s%s", o.help ? usage : ipc_build_id, o.help ? "" : "\n");
		return EXIT_SUCCESS;
	}
	if (o.file)
		return dump_file(&o);
	ipc_ignore_signals();
	if (enter_sandbox(o.sandbox) < 0)
		return EXIT_FAILURE;
	err = serve(o.style);
	if (err) {
		log_error("channel to the agent failed error='%s'", strerror(-err));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
