#include "agent/expclient.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/child.h"
#include "agent/consignment.h"
#include "base/clock.h"
#include "base/log.h"

/* Of a command the output can be a pipe that somebody reads slowly. */
#define OUTPUT_DEADLINE_NS (60 * NSEC_PER_SEC)
#define DEADLINE_NS (20 * NSEC_PER_SEC)
enum { WINDOW = 32, STRIKES = 3, KILLS_MAX = 8, SUBJECTS_MAX = 4096 };

_Static_assert((int)EXPCLIENT_SINKS_MAX == (int)CONSIGNMENT_SINKS_MAX, "a batch has room for every sink");
_Static_assert(EXPCLIENT_SINKS_MAX <= 64, "a batch's sinks are bits");

struct sink {
	struct expclient_sink account;
	char name[EXPORT_SINK_MAX];
	bool is_current;	/* batches from now on go there */
};

struct expclient {
	struct child *child;
	int output_fd;
	const struct expclient_ops *ops;
	void *arg;
	struct sink sinks[EXPCLIENT_SINKS_MAX];
	size_t nsinks;
	struct consignment **batches;	/* sorted by id */
	size_t nbatches, batches_cap;
	struct log_limit lost_limit;
};

/* What the child keeps for us: a batch by its id (it may be over by then), or a subject. */
struct tag {
	uint64_t batch, subject;	/* the id of what was asked; the other is 0 */
	uint32_t strikes, nkills;
};

/* ---- accounts ---- */

static struct sink *find_sink(struct expclient *c, const char *name)
{
	for (size_t i = 0; i < c->nsinks; i++) {
		if (strcmp(c->sinks[i].name, name) == 0)
			return &c->sinks[i];
	}
	return NULL;
}

static void account(struct expclient *c, struct consignment *b, size_t sink, enum export_fate_kind kind, uint64_t n)
{
	struct expclient_sink *a = &c->sinks[sink].account;
	uint64_t fits = MIN(n, b->left[sink]);

	b->left[sink] -= fits;
	a->pending -= fits;
	a->samples[kind] += fits;
	a->overdone += n - fits;
}

static uint64_t account_rest(struct expclient *c, struct consignment *b, enum export_fate_kind kind)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->nsinks; i++) {
		sum += b->left[i];
		account(c, b, i, kind, b->left[i]);
	}
	return sum;
}

/* A sink that has to account for this batch from now on. */
static void join(struct expclient *c, struct consignment *b, size_t sink)
{
	b->sinks |= 1ull << sink;
	b->left[sink] = b->nsamples;
	c->sinks[sink].account.pending += b->nsamples;
}

/* What the exporter was sending when it died may have arrived. */
static void doubt_what_was_sent(struct expclient *c, struct consignment *b)
{
	for (uint32_t i = 0; i < b->nslots; i++) {
		struct consignment_part *p = &b->parts[i];

		if (!p->id || p->is_settled || !p->is_sending)
			continue;
		p->is_settled = true;
		account(c, b, p->sink, EXPORT_FATE_IN_DOUBT, p->nsamples);
	}
}

/* ---- batches ---- */

static struct consignment *find_batch(const struct expclient *c, uint64_t id)
{
	size_t low = 0, high = c->nbatches;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (c->batches[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < c->nbatches && c->batches[low]->id == id ? c->batches[low] : NULL;
}

static void remove_batch(struct expclient *c, struct consignment *b)
{
	size_t i = 0;

	while (c->batches[i] != b)
		i++;
	memmove(c->batches + i, c->batches + i + 1, (--c->nbatches - i) * sizeof(c->batches[0]));
	consignment_free(b);
}

static int finish(struct expclient *c, struct consignment *b, const struct export_done *done)
{
	int err = c->ops->done(c->arg, done);

	remove_batch(c, b);
	return err;
}

/* It is over without the exporter's word. */
static int give_up(struct expclient *c, struct consignment *b, enum export_fate_kind kind)
{
	struct export_done done = { .id = b->id, .result = EXPORT_REFUSED };

	(void)account_rest(c, b, kind);
	return finish(c, b, &done);
}

static int add_batch(struct expclient *c, struct consignment *b)
{
	size_t cap = c->batches_cap ? c->batches_cap * 2 : 16, at;
	struct consignment **more;

	if (find_batch(c, b->id))
		return -EEXIST;
	if (c->nbatches == EXPCLIENT_BATCHES_MAX)
		return -ENOBUFS;
	if (c->nbatches == c->batches_cap) {
		more = reallocarray(c->batches, cap, sizeof(more[0]));
		if (!more)
			return -ENOMEM;
		c->batches = more;
		c->batches_cap = cap;
	}
	/* A tap can overtake a window that waits for names. */
	for (at = c->nbatches++; at > 0 && c->batches[at - 1]->id > b->id; at--)
		c->batches[at] = c->batches[at - 1];
	c->batches[at] = b;
	return 0;
}

static struct consignment *first_in(const struct expclient *c, enum consignment_state state)
{
	for (size_t i = 0; i < c->nbatches; i++) {
		if (c->batches[i]->state == state)
			return c->batches[i];
	}
	return NULL;
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

	while (!err && !first_in(c, CONSIGNMENT_ASKED) && (b = first_in(c, CONSIGNMENT_WAITING))) {
		int failed = ask(c, b);

		if (!failed)
			break;
		log_limited(&c->lost_limit, LOG_ERROR, "a window cannot be handed to the exporter and is lost error='%s'",
			    strerror(-failed));
		err = give_up(c, b, failed == -EMSGSIZE ? EXPORT_FATE_REJECTED : EXPORT_FATE_EXPORTER_LOST);
	}
	return err;
}

/* The oldest that can be let go: one that the exporter has, else one that it did not get to. */
static struct consignment *find_victim(const struct expclient *c)
{
	for (size_t i = 0; i < c->nbatches; i++) {
		if (c->batches[i]->state == CONSIGNMENT_TAKEN && !c->batches[i]->is_let_go)
			return c->batches[i];
	}
	for (size_t i = 0; i + 1 < c->nbatches; i++) {
		if (c->batches[i]->state == CONSIGNMENT_WAITING && !c->batches[i]->tap)
			return c->batches[i];
	}
	return NULL;
}

static int keep_bounds(struct expclient *c)
{
	while (c->output_fd < 0) {
		struct consignment *b;
		size_t n = 0, bytes = 0;
		int err;

		/* Taps are few (EXPORT_TAPS_MAX), small, and none of them outlives its exporter. */
		for (size_t i = 0; i < c->nbatches; i++) {
			n += !c->batches[i]->is_let_go && !c->batches[i]->tap;
			bytes += c->batches[i]->tap ? 0 : c->batches[i]->wire.cap;
		}
		b = n > EXPCLIENT_HELD_MAX || bytes > EXPCLIENT_HELD_BYTES ? find_victim(c) : NULL;
		if (!b)
			break;
		if (b->state == CONSIGNMENT_TAKEN) {
			consignment_let_go(b);
			continue;
		}
		log_limited(&c->lost_limit, LOG_ERROR, "a window is lost: the exporter does not take what it is given "
			    "samples=%llu", (unsigned long long)b->nsamples);
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
	struct sink *sink;
	bool is_new;
	size_t i;
	int err = export_fate_decode(in, &f, &mem);

	if (err)
		return err;
	b = find_batch(c, f.batch);
	sink = find_sink(c, f.sink);
	if (!sink)
		return -EBADMSG;
	if (!b || b->state == CONSIGNMENT_WAITING || b->tap) {
		sink->account.overdone += export_fate_is_final(f.kind) ? f.nsamples : 0;
		return 0;
	}
	i = (size_t)(sink - c->sinks);
	/* The settings changed while the batch was on its way. */
	if (!(b->sinks & 1ull << i))
		join(c, b, i);
	err = consignment_part(b, f.part, &part, &is_new);
	if (err)
		return err;
	if (is_new)
		*part = (struct consignment_part){ .id = f.part, .nsamples = f.nsamples, .sink = (uint8_t)i };
	if (part->is_settled) {
		sink->account.overdone += export_fate_is_final(f.kind) ? f.nsamples : 0;
		return 0;
	}
	part->is_sending = f.kind == EXPORT_FATE_SENDING;
	if (!export_fate_is_final(f.kind))
		return 0;
	part->is_settled = true;
	account(c, b, i, f.kind, f.nsamples);
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

	for (size_t i = 0; i < c->nsinks; i++) {
		bool is_removed = result == EXPORT_WRITTEN && !c->sinks[i].is_current;

		n += is_removed ? 0 : b->left[i];
		account(c, b, i, is_removed ? EXPORT_FATE_ENDPOINT_REMOVED : fates[result], b->left[i]);
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
	b = find_batch(c, done.id);
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
	b = find_batch(c, tag->batch);
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
	doubt_what_was_sent(c, b);
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

	for (size_t i = c->nbatches; i-- > 0;) {
		struct consignment *b = c->batches[i];

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
	b = find_batch(c, tag->batch);
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
	for (size_t i = 0; i < c->nbatches; i++)
		consignment_free(c->batches[i]);
	free(c->batches);
	free(c);
	return NULL;
}

/* ---- what the agent says ---- */

static bool is_owed(const struct expclient *c, size_t sink)
{
	for (size_t i = 0; i < c->nbatches; i++) {
		if (c->batches[i]->sinks & 1ull << sink)
			return true;
	}
	return false;
}

/* A new account, in the place of a removed sink's when there are too many. */
static struct sink *new_sink(struct expclient *c, const char *name)
{
	struct sink *s = NULL;

	if (c->nsinks < EXPCLIENT_SINKS_MAX)
		s = &c->sinks[c->nsinks++];
	for (size_t i = 0; !s && i < c->nsinks; i++) {
		if (!c->sinks[i].is_current && !is_owed(c, i))
			s = &c->sinks[i];
	}
	if (!s)
		return NULL;
	*s = (struct sink){ 0 };
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->account.name = s->name;
	return s;
}

int expclient_sinks(struct expclient *c, const char *const *names, size_t n)
{
	for (size_t i = 0; i < c->nsinks; i++)
		c->sinks[i].is_current = false;
	for (size_t i = 0; i < n; i++) {
		struct sink *s = find_sink(c, names[i]);

		if (!s)
			s = new_sink(c, names[i]);
		if (!s)
			return -ENOBUFS;
		s->is_current = true;
	}
	return 0;
}

static void join_current(struct expclient *c, struct consignment *b)
{
	for (size_t i = 0; i < c->nsinks && !b->tap; i++) {
		if (c->sinks[i].is_current)
			join(c, b, i);
	}
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
		join_current(c, &lost);
		(void)account_rest(c, &lost, EXPORT_FATE_EXPORTER_LOST);
		return err;
	}
	join_current(c, b);
	err = add_batch(c, b);
	if (err) {
		(void)account_rest(c, b, EXPORT_FATE_EXPORTER_LOST);
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

	for (size_t i = 0; i < c->nbatches; i++) {
		for (size_t k = 0; k < c->nsinks; k++)
			sum += c->batches[i]->left[k];
		doubt_what_was_sent(c, c->batches[i]);
		(void)account_rest(c, c->batches[i], EXPORT_FATE_SHUTDOWN);
	}
	return sum;
}

void expclient_forfeit(struct expclient *c, uint64_t nsamples)
{
	for (size_t i = 0; i < c->nsinks; i++) {
		if (c->sinks[i].is_current)
			c->sinks[i].account.samples[EXPORT_FATE_SHUTDOWN] += nsamples;
	}
}

size_t expclient_nsinks(const struct expclient *c)
{
	return c->nsinks;
}

const struct expclient_sink *expclient_sink(const struct expclient *c, size_t i)
{
	return &c->sinks[i].account;
}

size_t expclient_nheld(const struct expclient *c)
{
	return c->nbatches;
}

uint64_t expclient_restarts(const struct expclient *c)
{
	return child_restarts(c->child);
}

pid_t expclient_pid(const struct expclient *c)
{
	return child_pid(c->child);
}
