#include "agent/expclient.h"

#include <errno.h>
#include <string.h>

#include "agent/child.h"
#include "base/clock.h"
#include "base/log.h"

#define DEADLINE_NS (60 * NSEC_PER_SEC)
enum { WINDOW = 1, STRIKES = 3, KILLS_MAX = 8 };

struct expclient {
	struct child *child;
	int output_fd;
	expclient_fn *fn;
	void *arg;
};

/* The tag of a batch. */
struct consignment {
	uint64_t id;
	uint64_t nsamples;
	uint32_t strikes, nkills;
};

static int answer(void *arg, void *tag, struct ipc_msg *msg)
{
	struct consignment *sent = tag;
	struct expclient *c = arg;
	struct export_done done;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	if (msg->type != EXPORT_DONE || export_done_decode(&in, &done) || done.id != sent->id)
		return -EBADMSG;
	err = c->fn(c->arg, &done);
	if (err)
		return err;
	free(sent);
	return CHILD_ANSWERED;
}

static bool trouble(void *arg, void *tag, enum child_trouble why)
{
	struct consignment *sent = tag;
	struct expclient *c = arg;
	struct export_done done = { .id = sent->id, .result = EXPORT_REFUSED, .nsamples = 0 };

	/* The kernel's OOM killer may do it again and again. */
	if (why == CHILD_KILLED ? ++sent->nkills < KILLS_MAX : ++sent->strikes < STRIKES)
		return true;
	log_error("the exporter fails on a batch, which is given up batch=%llu", (unsigned long long)sent->id);
	if (c->fn(c->arg, &done))
		log_error("cannot account for a batch that was given up");
	free(sent);
	return false;
}

static void started(void *arg)
{
	struct expclient *c = arg;

	if (c->output_fd >= 0 && child_tell(c->child, EXPORT_OUTPUT, NULL, 0, c->output_fd))
		log_error("cannot hand the output to the exporter");
}

static const struct child_ops ops = { .answer = answer, .trouble = trouble, .started = started,
				      .free_tag = free };

int expclient_new(struct expclient **ret, struct loop *loop, const struct ipc_program *program, int output_fd,
		  expclient_fn *fn, void *arg)
{
	CLEANUP(expclient_freep) struct expclient *c = calloc(1, sizeof(*c));
	struct child_conf conf = { .program = *program, .ops = &ops, .arg = c, .deadline_ns = DEADLINE_NS,
				   .window = WINDOW };
	int err;

	if (!c)
		return -ENOMEM;
	c->output_fd = output_fd;
	c->fn = fn;
	c->arg = arg;
	err = child_new(&c->child, loop, &conf);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}

struct expclient *expclient_free(struct expclient *c)
{
	if (!c)
		return NULL;
	child_free(c->child);
	free(c);
	return NULL;
}

int expclient_send(struct expclient *c, const struct export_batch *b)
{
	struct consignment *sent = calloc(1, sizeof(*sent));
	struct bufw out = { 0 };
	int err;

	if (!sent)
		return -ENOMEM;
	sent->id = b->id;
	export_batch_encode(&out, b);
	err = bufw_end(&out);
	if (!err)
		err = child_ask(c->child, EXPORT_BATCH, out.data, out.len, -1, sent);
	if (err)
		free(sent);
	bufw_fini(&out);
	return err;
}

uint64_t expclient_restarts(const struct expclient *c)
{
	return child_restarts(c->child);
}
