#include "agent/symclient.h"

#include <errno.h>
#include <string.h>

#include "agent/child.h"
#include "base/clock.h"
#include "base/log.h"

#define DEADLINE_NS (10 * NSEC_PER_SEC)
#define CPU_NS (5 * NSEC_PER_SEC)
enum { WINDOW = 32, STRIKES = 2, KILLS_MAX = 8, OFFENDERS_MAX = 1024 };

struct offender {
	uint64_t file_id;
	uint32_t strikes;
};

struct symclient {
	struct child *child;
	event_fn *fn;
	void *arg;
	struct bufw out;
	struct question *deferred;	/* of quarantined files: answered in the loop's next turn */
	struct loop_source *soon;
	struct offender offenders[OFFENDERS_MAX];
	uint32_t noffenders;
	uint64_t nquarantined;
	symclient_link_fn *link;
	symclient_debugged_fn *debugged;
	void *debug_arg;
};

/* The tag of a request: what it was, to go with its answer. */
struct question {
	struct question *next;
	enum msg_type type;
	uint32_t nkills;
	struct msg_request request;
};

static int give(struct symclient *c, const struct question *q, const uint8_t *data, size_t len)
{
	struct event e = { .type = q->type == MSG_ROWS ? EVENT_ROWS : EVENT_NAMES, .time_ns = clock_mono_ns() };

	e.answer = (struct event_answer){ .request = &q->request, .data = data, .len = len };
	return c->fn(c->arg, &e);
}

static int give_link(struct symclient *c, const struct question *q, const struct ipc_msg *msg)
{
	struct msg_link l;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	err = msg_link_decode(&in, &l);
	if (err)
		return err;
	return l.file_id == q->request.file_id ? c->link(c->debug_arg, &l) : -EBADMSG;
}

static int give_debugged(struct symclient *c, const struct question *q, const struct ipc_msg *msg)
{
	struct msg_debugged d;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	err = msg_debugged_decode(&in, &d);
	if (err)
		return err;
	return d.file_id == q->request.file_id ? c->debugged(c->debug_arg, &d) : -EBADMSG;
}

static int give_quarantined(struct symclient *c, const struct question *q)
{
	struct bufw w = { 0 };
	int err;

	if (q->type == MSG_LINK)
		return c->link(c->debug_arg, &(struct msg_link){ .file_id = q->request.file_id });
	if (q->type == MSG_DEBUG)
		return c->debugged(c->debug_arg, &(struct msg_debugged){ .file_id = q->request.file_id });
	if (q->type == MSG_ROWS)
		msg_rows_encode(&w, &(struct msg_rows){ .id = q->request.id, .file_id = q->request.file_id,
							.result = MSG_FILE_QUARANTINED });
	else
		msg_names_encode(&w, &(struct msg_names){ .id = q->request.id, .file_id = q->request.file_id,
							  .result = MSG_FILE_QUARANTINED });
	err = bufw_end(&w);
	if (!err)
		err = give(c, q, w.data, w.len);
	bufw_fini(&w);
	return err;
}

static int answer(void *arg, void *tag, struct ipc_msg *msg)
{
	struct question *q = tag;
	int err;

	if (msg->type != q->type)
		return -EBADMSG;
	if (q->type == MSG_LINK)
		err = give_link(arg, q, msg);
	else if (q->type == MSG_DEBUG)
		err = give_debugged(arg, q, msg);
	else
		err = give(arg, q, msg->data, msg->len);
	if (err)
		return err;
	free(q);
	return CHILD_ANSWERED;
}

static struct offender *find_offender(struct symclient *c, uint64_t file_id)
{
	for (uint32_t i = 0; i < c->noffenders; i++) {
		if (c->offenders[i].file_id == file_id)
			return &c->offenders[i];
	}
	return NULL;
}

static bool quarantined(struct symclient *c, uint64_t file_id)
{
	const struct offender *o = find_offender(c, file_id);

	return o && o->strikes >= STRIKES;
}

static bool trouble(void *arg, void *tag, enum child_trouble why)
{
	struct symclient *c = arg;
	struct question *q = tag;
	struct offender *o;

	if (why == CHILD_KILLED && ++q->nkills < KILLS_MAX)
		return true;
	o = find_offender(c, q->request.file_id);
	if (!o) {
		/* More than a thousand offenders: forget the first ones. */
		o = &c->offenders[c->noffenders < OFFENDERS_MAX ? c->noffenders++ :
								  q->request.file_id % OFFENDERS_MAX];
		*o = (struct offender){ .file_id = q->request.file_id };
	}
	if (++o->strikes < STRIKES)
		return true;
	c->nquarantined++;
	log_warning("a file ended the symbolizer twice and is quarantined file=%llu",
		    (unsigned long long)q->request.file_id);
	if (give_quarantined(c, q))
		log_error("cannot answer for a quarantined file");
	free(q);
	return false;
}

/* An answer never comes inside the question: whoever asked is in the middle of something. */
static int defer(struct symclient *c, struct question *q)
{
	struct question **end = &c->deferred;
	int err = loop_timer_at(c->soon, clock_mono_ns());

	if (err)
		return err;
	while (*end)
		end = &(*end)->next;
	q->next = NULL;
	*end = q;
	return 0;
}

/* What else was asked about a file before it was quarantined. */
static bool obsolete(void *arg, void *tag)
{
	struct symclient *c = arg;
	struct question *q = tag;

	return quarantined(c, q->request.file_id) && !defer(c, q);
}

static const struct child_ops ops = { .answer = answer, .trouble = trouble, .obsolete = obsolete,
				      .free_tag = free };

static int answer_deferred(void *arg)
{
	struct symclient *c = arg;
	struct question *list = TAKE(c->deferred);
	int err = 0;

	for (struct question *next; list; list = next) {
		next = list->next;
		if (!err)
			err = give_quarantined(c, list);
		free(list);
	}
	return err;
}

int symclient_new(struct symclient **ret, struct loop *loop, const struct ipc_program *program, event_fn *fn,
		  void *arg)
{
	CLEANUP(symclient_freep) struct symclient *c = calloc(1, sizeof(*c));
	struct child_conf conf = { .program = *program, .ops = &ops, .arg = c, .deadline_ns = DEADLINE_NS,
				   .cpu_ns = CPU_NS, .window = WINDOW };
	int err;

	if (!c)
		return -ENOMEM;
	c->fn = fn;
	c->arg = arg;
	if ((err = child_new(&c->child, loop, &conf)) || (err = loop_add_timer(loop, &c->soon, 0, answer_deferred, c)))
		return err;
	*ret = TAKE(c);
	return 0;
}

struct symclient *symclient_free(struct symclient *c)
{
	if (!c)
		return NULL;
	child_free(c->child);
	loop_del(c->soon);
	for (struct question *next; c->deferred; c->deferred = next) {
		next = c->deferred->next;
		free(c->deferred);
	}
	bufw_fini(&c->out);
	free(c);
	return NULL;
}

/* Asks what c->out holds. */
static int ask(struct symclient *c, enum msg_type type, const struct msg_request *r, int fd)
{
	struct question *q;
	int err;

	q = malloc(sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->type = type;
	q->request = *r;
	q->nkills = 0;
	if (quarantined(c, r->file_id)) {
		err = defer(c, q);
	} else {
		err = bufw_end(&c->out);
		if (!err)
			err = child_ask(c->child, type, c->out.data, c->out.len, fd, q);
	}
	if (err)
		free(q);
	return err;
}

int symclient_ask(struct symclient *c, enum msg_type type, const struct msg_request *r, int fd)
{
	bufw_reset(&c->out);
	msg_request_encode(&c->out, r);
	return ask(c, type, r, fd);
}

void symclient_on_debug(struct symclient *c, symclient_link_fn *link, symclient_debugged_fn *debugged, void *arg)
{
	c->link = link;
	c->debugged = debugged;
	c->debug_arg = arg;
}

int symclient_link(struct symclient *c, uint64_t file_id, int fd)
{
	static struct msg_request r; /* large, and empty but for the id */

	r.file_id = file_id;
	return symclient_ask(c, MSG_LINK, &r, fd);
}

int symclient_debug(struct symclient *c, const struct msg_debug *d, int fd)
{
	static struct msg_request r;

	r.file_id = d->file_id;
	bufw_reset(&c->out);
	msg_debug_encode(&c->out, d);
	return ask(c, MSG_DEBUG, &r, fd);
}

size_t symclient_pending(const struct symclient *c)
{
	return child_pending(c->child);
}

uint64_t symclient_restarts(const struct symclient *c)
{
	return child_restarts(c->child);
}

uint64_t symclient_quarantined(const struct symclient *c)
{
	return c->nquarantined;
}

pid_t symclient_pid(const struct symclient *c)
{
	return child_pid(c->child);
}
