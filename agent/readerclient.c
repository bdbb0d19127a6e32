#include "agent/readerclient.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/child.h"
#include "base/clock.h"
#include "base/log.h"

enum {
	WINDOW = 64,		/* requests under way at once */
	PENDING_MAX = 16384,	/* and waiting; a path each */
	ENDS_MAX = 3,		/* readers that may end on one request before it is given up */
	SCAN_LATE_MAX = 3,	/* processes that a scan may hang on */
};
#define DEADLINE_NS (2 * NSEC_PER_SEC)

enum ask_kind { ASK_OPEN, ASK_SCAN, ASK_CGROUPS, ASK_CONFIG /* or a debug file */, ASK_PEEK };

struct ask {
	enum ask_kind kind;
	uint32_t nends, nlate;
	union {
		uint64_t file_id;	/* ASK_OPEN */
		uint64_t peek_id;	/* ASK_PEEK */
		uint32_t last_pid;	/* ASK_SCAN: told so far */
		readerclient_text_fn *text;	/* ASK_CGROUPS */
		readerclient_file_fn *file;	/* ASK_CONFIG */
	};
	void *arg;	/* of text and file */
};

struct readerclient {
	struct child *child;
	event_fn *fn;
	void *arg;
	size_t nscans;
	int err;	/* of fn or of asking again in on_trouble(), which cannot return it; sticks */
};

/* ---- answers --------------------------------------------------------------------------------- */

static int tell_opened(struct readerclient *c, const struct event_opened *o)
{
	struct event e = { .type = EVENT_OPENED, .time_ns = clock_mono_ns(), .opened = *o };

	return c->fn(c->arg, &e);
}

static int answer_open(struct readerclient *c, struct ask *a, struct ipc_msg *msg)
{
	struct event_opened o = { .file_id = a->file_id, .fd = -1 };
	struct reader_opened r;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	err = msg->type == READER_OPENED ? reader_opened_decode(&in, &r) : -EBADMSG;
	if (err)
		return err;
	if (r.file_id != a->file_id || (r.error == 0) != (msg->fd >= 0))
		return -EBADMSG;
	if (r.error) {
		log_debug("file cannot be opened file=%" PRIu64 " error='%s'", r.file_id, strerror(r.error));
	} else {
		o.ok = true;
		o.identity = r.identity;
		o.fd = TAKE_FD(msg->fd);
	}
	err = tell_opened(c, &o);
	if (err)
		return err;
	free(a);
	return CHILD_ANSWERED;
}

static int answer_scan(struct readerclient *c, struct ask *a, const struct ipc_msg *msg)
{
	CLEANUP_FREE void *mem = NULL;
	struct event e = { .type = EVENT_PROCESS, .time_ns = clock_mono_ns() };
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	if (msg->type == READER_SCANNED) {
		c->nscans--;
		free(a);
		return CHILD_ANSWERED;
	}
	err = msg->type == READER_PROCESS ? event_process_decode(&in, &e.process, &mem) : -EBADMSG;
	if (err)
		return err;
	if (e.process.pid <= a->last_pid)
		return -EBADMSG;
	a->last_pid = e.process.pid;
	err = c->fn(c->arg, &e);
	return err ? err : CHILD_MORE;
}

static int answer_cgroups(struct ask *a, const struct ipc_msg *msg)
{
	char text[READER_TEXT_MAX + 1];
	struct reader_text t;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	err = msg->type == READER_TEXT ? reader_text_decode(&in, &t) : -EBADMSG;
	if (err)
		return err;
	memcpy(text, t.text, t.len);
	text[t.len] = 0;
	err = a->text(a->arg, text, t.is_of_cgroup);
	if (err)
		return err;
	free(a);
	return CHILD_ANSWERED;
}

static int answer_config(struct ask *a, struct ipc_msg *msg)
{
	struct reader_opened r;
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	err = msg->type == READER_OPENED ? reader_opened_decode(&in, &r) : -EBADMSG;
	if (err)
		return err;
	if (r.file_id || (r.error == 0) != (msg->fd >= 0))
		return -EBADMSG;
	err = a->file(a->arg, &r, TAKE_FD(msg->fd));
	if (err)
		return err;
	free(a);
	return CHILD_ANSWERED;
}

static int answer_peek(struct readerclient *c, struct ask *a, const struct ipc_msg *msg)
{
	struct event e = { .type = EVENT_MEMORY, .time_ns = clock_mono_ns() };
	struct bufr in;
	int err;

	bufr_init(&in, msg->data, msg->len);
	err = msg->type == READER_MEMORY ? event_memory_decode(&in, &e.memory) : -EBADMSG;
	if (!err && e.memory.id != a->peek_id)
		err = -EBADMSG;
	if (!err)
		err = c->fn(c->arg, &e);
	if (err)
		return err;
	free(a);
	return CHILD_ANSWERED;
}

static int on_answer(void *arg, void *tag, struct ipc_msg *msg)
{
	struct readerclient *c = arg;
	struct ask *a = tag;

	if (c->err)
		return c->err;
	switch (a->kind) {
	case ASK_OPEN:
		return answer_open(c, a, msg);
	case ASK_SCAN:
		return answer_scan(c, a, msg);
	case ASK_CGROUPS:
		return answer_cgroups(a, msg);
	case ASK_CONFIG:
		return answer_config(a, msg);
	case ASK_PEEK:
		return answer_peek(c, a, msg);
	}
	return -EBADMSG;
}

/* ---- trouble --------------------------------------------------------------------------------- */

static int ask_scan(struct readerclient *c, struct ask *a, bool careful)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	struct reader_scan s = { .after_pid = a->last_pid, .careful = careful };
	int err;

	reader_scan_encode(&w, &s);
	err = bufw_end(&w);
	return err ? err : child_ask(c->child, READER_SCAN, w.data, w.len, -1, a);
}

/* A scan goes on behind the last process that was told, as a new request. */
static void scan_trouble(struct readerclient *c, struct ask *a, bool late)
{
	int err;

	if (a->nlate > SCAN_LATE_MAX || a->nends > ENDS_MAX) {
		log_warning("scan of /proc was cut short after pid=%" PRIu32, a->last_pid);
		err = 0;
	} else {
		err = ask_scan(c, a, late);
		if (!err)
			return;
		c->err = err;
	}
	c->nscans--;
	free(a);
}

static int tell_no_memory(struct readerclient *c, const struct ask *a)
{
	struct event e = { .type = EVENT_MEMORY, .time_ns = clock_mono_ns(),
			   .memory = { .id = a->peek_id, .late = a->nlate > 0 } };

	return c->fn(c->arg, &e);
}

static int answer_failed(struct readerclient *c, const struct ask *a)
{
	switch (a->kind) {
	case ASK_CGROUPS:
		return a->text(a->arg, "", false);
	case ASK_CONFIG:
		return a->file(a->arg, &(struct reader_opened){ .error = a->nlate ? ETIMEDOUT : EIO }, -1);
	case ASK_PEEK:
		return tell_no_memory(c, a);
	default:
		return tell_opened(c, &(struct event_opened){ .file_id = a->file_id, .fd = -1 });
	}
}

/* Whether to ask the same again. */
static bool on_trouble(void *arg, void *tag, enum child_trouble why)
{
	struct readerclient *c = arg;
	struct ask *a = tag;
	int err;

	if (why == CHILD_LATE)
		a->nlate++;
	else
		a->nends++;
	if (a->kind == ASK_SCAN) {
		scan_trouble(c, a, why == CHILD_LATE);
		return false;
	}
	if (!a->nlate && a->nends < ENDS_MAX)
		return true;
	err = answer_failed(c, a);
	free(a);
	if (err)
		c->err = err;
	return false;
}

static const struct child_ops child_ops = {
	.answer = on_answer,
	.trouble = on_trouble,
	.free_tag = free,
};

/* ---- the owner's side ------------------------------------------------------------------------ */

int readerclient_new(struct readerclient **ret, struct loop *loop, const struct readerclient_conf *conf,
		     event_fn *fn, void *arg)
{
	CLEANUP(readerclient_freep) struct readerclient *c = calloc(1, sizeof(*c));
	struct child_conf child = {
		.program = conf->program,
		.ops = &child_ops,
		.arg = c,
		.deadline_ns = conf->deadline_ns ? conf->deadline_ns : DEADLINE_NS,
		.window = WINDOW,
	};
	int err;

	if (!c)
		return -ENOMEM;
	c->fn = fn;
	c->arg = arg;
	err = child_new(&c->child, loop, &child);
	if (err)
		return err;
	*ret = TAKE(c);
	return 0;
}

struct readerclient *readerclient_free(struct readerclient *c)
{
	if (!c)
		return NULL;
	child_free(c->child);
	free(c);
	return NULL;
}

int readerclient_scan(struct readerclient *c)
{
	CLEANUP_FREE struct ask *a = calloc(1, sizeof(*a));
	int err;

	if (!a)
		return -ENOMEM;
	if (c->err)
		return c->err;
	a->kind = ASK_SCAN;
	c->nscans++;
	err = ask_scan(c, a, false);
	if (err) {
		c->nscans--;
		return err;
	}
	TAKE(a);
	return 0;
}

bool readerclient_scanning(const struct readerclient *c)
{
	return c->nscans > 0;
}

int readerclient_open(struct readerclient *c, const struct reader_open *r)
{
	CLEANUP(bufw_fini) struct bufw w = {};
	CLEANUP_FREE struct ask *a = calloc(1, sizeof(*a));
	int err;

	if (!a)
		return -ENOMEM;
	if (c->err)
		return c->err;
	if (child_pending(c->child) >= PENDING_MAX)
		return -ENOBUFS;
	a->kind = ASK_OPEN;
	a->file_id = r->file_id;
	reader_open_encode(&w, r);
	err = bufw_end(&w);
	if (!err)
		err = child_ask(c->child, READER_OPEN, w.data, w.len, -1, a);
	if (err)
		return err;
	TAKE(a);
	return 0;
}

static int ask_new(struct readerclient *c, enum reader_type type, const struct bufw *w, const struct ask *what)
{
	struct ask *a = malloc(sizeof(*a));
	int err = bufw_end(w);

	if (!a)
		return -ENOMEM;
	*a = *what;
	if (!err)
		err = child_ask(c->child, type, w->data, w->len, -1, a);
	if (err)
		free(a);
	return err;
}

int readerclient_cgroups(struct readerclient *c, const struct reader_cgroups *r, readerclient_text_fn *fn,
			 void *arg)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	if (c->err)
		return c->err;
	if (child_pending(c->child) >= PENDING_MAX)
		return -ENOBUFS;
	reader_cgroups_encode(&w, r);
	return ask_new(c, READER_CGROUPS, &w, &(struct ask){ .kind = ASK_CGROUPS, .text = fn, .arg = arg });
}

int readerclient_config(struct readerclient *c, const char *path, readerclient_file_fn *fn, void *arg)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	if (c->err)
		return c->err;
	bufw_str(&w, path);
	return ask_new(c, READER_CONFIG, &w, &(struct ask){ .kind = ASK_CONFIG, .file = fn, .arg = arg });
}

int readerclient_debug(struct readerclient *c, uint32_t pid, const char *path, readerclient_file_fn *fn, void *arg)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	if (c->err)
		return c->err;
	if (child_pending(c->child) >= PENDING_MAX)
		return -ENOBUFS;
	reader_debug_encode(&w, &(struct reader_debug){ pid, path });
	return ask_new(c, READER_DEBUG, &w, &(struct ask){ .kind = ASK_CONFIG, .file = fn, .arg = arg });
}

int readerclient_peek(struct readerclient *c, const struct reader_peek *p)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	if (c->err)
		return c->err;
	if (child_pending(c->child) >= PENDING_MAX)
		return -ENOBUFS;
	reader_peek_encode(&w, p);
	return ask_new(c, READER_PEEK, &w, &(struct ask){ .kind = ASK_PEEK, .peek_id = p->id });
}

size_t readerclient_pending(const struct readerclient *c)
{
	return child_pending(c->child);
}

uint64_t readerclient_restarts(const struct readerclient *c)
{
	return child_restarts(c->child);
}

uint64_t readerclient_timeouts(const struct readerclient *c)
{
	return child_late(c->child);
}

pid_t readerclient_pid(const struct readerclient *c)
{
	return child_pid(c->child);
}
