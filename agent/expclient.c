#include "agent/expclient.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/child.h"
#include "agent/ledger.h"
#include "base/clock.h"
#include "base/log.h"

/* Of a command the output can be a pipe that somebody reads slowly. */
#define OUTPUT_DEADLINE_NS (60 * NSEC_PER_SEC)
#define DEADLINE_NS (20 * NSEC_PER_SEC)
enum { WINDOW = 32, STRIKES = 3, KILLS_MAX = 8, SUBJECTS_MAX = 4096 };

struct expclient {
	struct child *child;
	int output_fd;
	const struct expclient_ops *ops;
	void *arg;
	struct ledger ledger;
	struct log_limit lost_limit;
};

/* What the child keeps for us: a batch by its id (it may be over by then), or a subject. */
struct tag {
	uint64_t batch, subject;	/* the id of what was asked; the other is 0 */
	uint32_t strikes, nkills;
};

static int finish(struct expclient *c, struct consignment *b, const struct export_done *done)
{
	int err = c->ops->done(c->arg, done);

	ledger_del(&c->ledger, b);
	return err;
}

/* It is over without the exporter's word. */
static int give_up(struct expclient *c, struct consignment *b, enum export_fate_kind kind)
{
	struct export_done done = { .id = b->id, .result = EXPORT_REFUSED };

	(void)ledger_account_rest(&c->ledger, b, kind);
	return finish(c, b, &done);
}

static int ask(struct expclient *c, struct consignment *b)
{
	struct tag *tag = calloc(1, sizeof(*tag));
	const uint8_t *data;
	size_t len;
	int err;

	if (!tag)
		return -ENOMEM;
	tag->batch = b->id;
	err = consignment_message(b, &len, &data);
	if (!err)
		err = child_ask(c->child, EXPORT_BATCH, data, len, -1, tag);
	if (err)
		free(tag);
	else
		b->state = CONSIGNMENT_ASKED;
	return err;
}

/* One at a time: what waits is here, where it can be let go, and not in the child's queue. */
static int pump(struct expclient *c)
{
	struct consignment *b;
	int err = 0;

	while (!err && !ledger_first_in(&c->ledger, CONSIGNMENT_ASKED) &&
	       (b = ledger_first_in(&c->ledger, CONSIGNMENT_WAITING))) {
		int failed = ask(c, b);

		if (!failed)
			break;
		log_limited(&c->lost_limit, LOG_ERROR, "a window cannot be handed to the exporter and is lost error='%s'",
			    strerror(-failed));
		err = give_up(c, b, failed == -EMSGSIZE ? EXPORT_FATE_REJECTED : EXPORT_FATE_EXPORTER_LOST);
	}
	return err;
}

static const char *why_lost(const struct expclient *c, size_t n)
{
	if (child_pid(c->child) < 0)
		return "there is no exporter now, and it was the oldest of those that wait for the next one";
	if (n > EXPCLIENT_HELD_MAX)
		return "the exporter did not get to it while later ones came";
	return "large windows came faster than the exporter takes them: a shorter `window` has smaller ones";
}

static int keep_bounds(struct expclient *c)
{
	while (c->output_fd < 0) {
		size_t bytes, n = ledger_held(&c->ledger, &bytes);
		struct consignment *b = NULL;
		int err;

		if (n > EXPCLIENT_HELD_MAX || bytes > EXPCLIENT_HELD_BYTES)
			b = ledger_find_victim(&c->ledger);
		if (!b)
			break;
		if (b->state == CONSIGNMENT_TAKEN) {
			consignment_let_go(b);
			continue;
		}
		log_limited(&c->lost_limit, LOG_ERROR, "a window is lost: %s samples=%llu bytes=%zu held=%zu held_bytes=%zu",
			    why_lost(c, n), (unsigned long long)b->nsamples, b->wire.len, n, bytes);
		err = give_up(c, b, EXPORT_FATE_EXPORTER_LOST);
		if (err)
			return err;
	}
	return 0;
}

/* ---- what the exporter says ---- */

static int take_fate(struct expclient *c, struct bufr *in)
{
	CLEANUP_FREE void *mem = NULL;
	struct consignment_part *part;
	struct export_fate f;
	struct consignment *b;
	struct ledger_sink *owner;
	bool is_new;
	size_t i;
	int sink;
	int err = export_fate_decode(in, &f, &mem);

	if (err)
		return err;
	b = ledger_find(&c->ledger, f.batch);
	sink = ledger_find_sink(&c->ledger, f.sink);
	if (sink < 0)
		return -EBADMSG;
	i = (size_t)sink;
	owner = &c->ledger.sinks[i];
	if (!b || b->state == CONSIGNMENT_WAITING || b->tap) {
		owner->overdone += export_fate_is_final(f.kind) ? f.nsamples : 0;
		return 0;
	}
	/* The settings changed while the batch was on its way. */
	if (!(b->sinks & 1ull << i))
		ledger_owe(&c->ledger, b, i);
	err = consignment_part(b, f.part, &part, &is_new);
	if (err)
		return err;
	if (is_new)
		*part = (struct consignment_part){ .id = f.part, .nsamples = f.nsamples, .sink = (uint8_t)i };
	if (part->is_settled) {
		owner->overdone += export_fate_is_final(f.kind) ? f.nsamples : 0;
		return 0;
	}
	part->is_sending = f.kind == EXPORT_FATE_SENDING;
	if (!export_fate_is_final(f.kind))
		return 0;
	part->is_settled = true;
	ledger_account(&c->ledger, b, i, f.kind, f.nsamples);
	return 0;
}

/* The exporter has no more to say of this batch. */
static void account_untold(struct expclient *c, struct consignment *b, enum export_result result)
{
	static const enum export_fate_kind fates[] = {
		[EXPORT_WRITTEN] = EXPORT_FATE_EXPORTER_LOST, [EXPORT_WRITE_FAILED] = EXPORT_FATE_WRITE_FAILED,
		[EXPORT_REFUSED] = EXPORT_FATE_REJECTED,
	};
	uint64_t n = 0;

	for (size_t i = 0; i < c->ledger.nsinks; i++) {
		bool is_removed = result == EXPORT_WRITTEN && !ledger_is_current(&c->ledger, i);

		n += is_removed ? 0 : b->left[i];
		ledger_account(&c->ledger, b, i, is_removed ? EXPORT_FATE_ENDPOINT_REMOVED : fates[result], b->left[i]);
	}
	if (n)
		log_limited(&c->lost_limit, LOG_ERROR, "the exporter does not say what became of some samples "
			    "result=%s samples=%llu", export_result_text(result), (unsigned long long)n);
}

static int take_done(struct expclient *c, struct bufr *in)
{
	struct export_done done;
	struct consignment *b;
	int err = export_done_decode(in, &done);

	if (err)
		return err;
	b = ledger_find(&c->ledger, done.id);
	if (!b)
		return 0;
	if (b->state != CONSIGNMENT_TAKEN)
		return -EBADMSG;
	account_untold(c, b, done.result);
	return finish(c, b, &done);
}

static int unasked(void *arg, struct ipc_msg *msg)
{
	struct expclient *c = arg;
	struct export_tap tap;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	switch (msg->type) {
	case EXPORT_FATE:
		return take_fate(c, &in);
	case EXPORT_DONE:
		return take_done(c, &in);
	case EXPORT_TAP:
		err = export_tap_decode(&in, &tap);
		if (err || !c->ops->tap)
			return err;
		return c->ops->tap(c->arg, &tap);
	default:
		return -EBADMSG;
	}
}

static int take_labels(struct expclient *c, struct ipc_msg *msg, struct tag *tag)
{
	CLEANUP_FREE void *mem = NULL;
	struct export_labels l;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	if (msg->type != EXPORT_LABELS)
		return -EBADMSG;
	err = export_labels_decode(&in, &l, &mem);
	if (!err && l.id != tag->subject)
		err = -EBADMSG;
	if (!err && c->ops->labels)
		err = c->ops->labels(c->arg, &l);
	if (err)
		return err;
	free(tag);
	return CHILD_ANSWERED;
}

static int answer(void *arg, void *of, struct ipc_msg *msg)
{
	struct tag *tag = of;
	struct expclient *c = arg;
	struct export_taken taken;
	struct consignment *b;
	struct bufr in;
	int err;

	if (!tag->batch)
		return take_labels(c, msg, tag);
	bufr_init(&in, msg->data, msg->len);
	if (msg->type != EXPORT_TAKEN || export_taken_decode(&in, &taken) || taken.id != tag->batch)
		return -EBADMSG;
	b = ledger_find(&c->ledger, tag->batch);
	assert(b && b->state == CONSIGNMENT_ASKED);
	b->state = CONSIGNMENT_TAKEN;
	if (b->tap)
		consignment_let_go(b);
	err = keep_bounds(c);
	if (!err)
		err = pump(c);
	if (err)
		return err;
	free(tag);
	return CHILD_ANSWERED;
}

/* ---- the exporter's life ---- */

static bool is_one_too_many(enum child_trouble why, uint32_t *strikes, uint32_t *nkills)
{
	/* The kernel's OOM killer may do it again and again. */
	return why == CHILD_KILLED ? ++*nkills >= KILLS_MAX : ++*strikes >= STRIKES;
}

/* Whoever wanted a tap's profile is gone with the exporter. */
static bool has_no_future(struct expclient *c, struct consignment *b, enum child_trouble why)
{
	ledger_account_sending(&c->ledger, b);
	if (b->tap)
		return true;
	if (b->state != CONSIGNMENT_TAKEN)
		return false; /* `trouble` judges it, or nobody has seen it */
	if (b->is_let_go)
		return true;
	b->state = CONSIGNMENT_WAITING;
	/* A command's one batch: its exporter dies of writing it. */
	return c->output_fd >= 0 && is_one_too_many(why, &b->strikes, &b->nkills);
}

static void ended(void *arg, enum child_trouble why)
{
	struct expclient *c = arg;

	for (size_t i = c->ledger.nbatches; i-- > 0;) {
		struct consignment *b = c->ledger.batches[i];

		/* One that was asked has its tag in the child's queue still. */
		if (has_no_future(c, b, why) && b->state != CONSIGNMENT_ASKED &&
		    give_up(c, b, EXPORT_FATE_EXPORTER_LOST))
			log_error("cannot account for a batch that is lost");
	}
}

static bool trouble(void *arg, void *of, enum child_trouble why)
{
	struct expclient *c = arg;
	struct tag *tag = of;
	struct consignment *b;

	if (!tag->batch) {
		if (!is_one_too_many(why, &tag->strikes, &tag->nkills))
			return true;
		free(tag);
		return false;
	}
	/* What is settled has changed: it is asked anew, by pump(). */
	b = ledger_find(&c->ledger, tag->batch);
	assert(b && b->state == CONSIGNMENT_ASKED);
	free(tag);
	b->state = CONSIGNMENT_WAITING;
	if (!b->tap && !is_one_too_many(why, &b->strikes, &b->nkills))
		return false;
	if (!b->tap)
		log_error("the exporter fails on a window, which is given up batch=%llu samples=%llu",
			  (unsigned long long)b->id, (unsigned long long)b->nsamples);
	if (give_up(c, b, EXPORT_FATE_POISONED))
		log_error("cannot account for a batch that was given up");
	return false;
}

static int brief(struct expclient *c)
{
	int err = 0;

	if (c->output_fd >= 0)
		err = child_tell(c->child, EXPORT_OUTPUT, NULL, 0, c->output_fd);
	if (!err && c->ops->started)
		err = c->ops->started(c->arg);
	if (!err)
		err = child_tell(c->child, EXPORT_START, NULL, 0, -1);
	return err;
}

static void started(void *arg)
{
	struct expclient *c = arg;
	int err = brief(c);

	/* One that does not know what it is to do would wait for ever. */
	if (err) {
		log_error("cannot tell the exporter its settings, it is replaced error='%s'", strerror(-err));
		child_kill(c->child);
		return;
	}
	err = pump(c);
	if (err)
		log_error("cannot hand windows to the new exporter error='%s'", strerror(-err));
}

static const struct child_ops child_ops = {
	.answer = answer, .unasked = unasked, .trouble = trouble, .ended = ended, .started = started, .free_tag = free,
};

int expclient_new(struct expclient **ret, struct loop *loop, const struct ipc_program *program, int output_fd,
		  const struct expclient_ops *ops, void *arg)
{
	CLEANUP(expclient_freep) struct expclient *c = calloc(1, sizeof(*c));
	struct child_conf conf = { .program = *program, .ops = &child_ops, .arg = c,
				   .deadline_ns = output_fd >= 0 ? OUTPUT_DEADLINE_NS : DEADLINE_NS,
				   .window = WINDOW, .unasked_from = EXPORT_FATE };
	int err;

	if (!c)
		return -ENOMEM;
	c->output_fd = output_fd;
	c->ops = ops;
	c->arg = arg;
	c->lost_limit = (struct log_limit)LOG_LIMIT_INIT;
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
	ledger_fini(&c->ledger);
	free(c);
	return NULL;
}

/* ---- what the agent says ---- */

int expclient_sinks(struct expclient *c, const char *const *names, size_t n)
{
	return ledger_set_sinks(&c->ledger, names, n);
}

int expclient_send(struct expclient *c, const struct export_batch *batch)
{
	CLEANUP(consignment_freep) struct consignment *b = NULL;
	int err = consignment_new(&b, batch);

	if (err) {
		/* Without memory for it there is an account still. */
		struct consignment lost = { .tap = batch->tap };

		for (uint32_t i = 0; i < batch->nsamples; i++)
			lost.nsamples += batch->samples[i].count;
		ledger_owe_current(&c->ledger, &lost);
		(void)ledger_account_rest(&c->ledger, &lost, EXPORT_FATE_EXPORTER_LOST);
		return err;
	}
	ledger_owe_current(&c->ledger, b);
	err = ledger_add(&c->ledger, b);
	if (err) {
		(void)ledger_account_rest(&c->ledger, b, EXPORT_FATE_EXPORTER_LOST);
		return err;
	}
	b = NULL; /* it is in the list */
	err = keep_bounds(c);
	return err ? err : pump(c);
}

int expclient_subject(struct expclient *c, const struct export_facts *f)
{
	struct tag *tag;
	CLEANUP(bufw_fini) struct bufw out = { 0 };
	int err;

	if (child_pending(c->child) >= SUBJECTS_MAX)
		return -ENOBUFS;
	tag = calloc(1, sizeof(*tag));
	if (!tag)
		return -ENOMEM;
	tag->subject = f->id;
	export_facts_encode(&out, f);
	err = bufw_end(&out);
	if (!err)
		err = child_ask(c->child, EXPORT_SUBJECT, out.data, out.len, -1, tag);
	if (err)
		free(tag);
	return err;
}

int expclient_tell(struct expclient *c, enum export_type type, const void *data, size_t len, int fd)
{
	return child_tell(c->child, type, data, len, fd);
}

uint64_t expclient_abandon(struct expclient *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->ledger.nbatches; i++) {
		struct consignment *b = c->ledger.batches[i];

		for (size_t k = 0; k < c->ledger.nsinks; k++)
			sum += b->left[k];
		ledger_account_sending(&c->ledger, b);
		(void)ledger_account_rest(&c->ledger, b, EXPORT_FATE_SHUTDOWN);
	}
	return sum;
}

void expclient_account(struct expclient *c, enum export_fate_kind kind, uint64_t nsamples)
{
	ledger_account_loose(&c->ledger, kind, nsamples);
}

size_t expclient_nsinks(const struct expclient *c)
{
	return c->ledger.nsinks;
}

const struct ledger_sink *expclient_sink(const struct expclient *c, size_t i)
{
	return &c->ledger.sinks[i];
}

size_t expclient_nheld(const struct expclient *c)
{
	return c->ledger.nbatches;
}

uint64_t expclient_restarts(const struct expclient *c)
{
	return child_restarts(c->child);
}

pid_t expclient_pid(const struct expclient *c)
{
	return child_pid(c->child);
}
