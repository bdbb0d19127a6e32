#include "agent/reader.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "agent/reader_box.h"
#include "agent/reader_cgroup.h"
#include "agent/reader_open.h"
#include "agent/reader_scan.h"
#include "agent/rights.h"
#include "base/ipc.h"
#include "base/log.h"

/* ---- messages -------------------------------------------------------------------------------- */

static bool take_bool(struct bufr *in)
{
	uint8_t v = bufr_u8(in);

	if (v > 1)
		bufr_fail(in);
	return v == 1;
}

void reader_scan_encode(struct bufw *w, const struct reader_scan *s)
{
	bufw_u32(w, s->after_pid);
	bufw_u8(w, s->careful);
}

int reader_scan_decode(struct bufr *in, struct reader_scan *ret)
{
	struct reader_scan s;
	int err;

	s.after_pid = bufr_u32(in);
	s.careful = take_bool(in);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = s;
	return 0;
}

void reader_open_encode(struct bufw *w, const struct reader_open *r)
{
	bufw_u64(w, r->file_id);
	bufw_u64(w, r->start);
	bufw_u64(w, r->end);
	bufw_u64(w, r->offset);
	bufw_u32(w, r->key.dev_major);
	bufw_u32(w, r->key.dev_minor);
	bufw_u64(w, r->key.inode);
	bufw_u64(w, r->key.generation);
	bufw_u8(w, r->key.generation_known);
	bufw_u32(w, r->npids);
	for (uint32_t i = 0; i < r->npids && i < READER_PIDS_MAX; i++)
		bufw_u32(w, r->pids[i]);
	bufw_str(w, r->path);
}

int reader_open_decode(struct bufr *in, struct reader_open *ret)
{
	CLEANUP_FREE char *path = NULL;
	struct reader_open r = {};
	int err;

	r.file_id = bufr_u64(in);
	r.start = bufr_u64(in);
	r.end = bufr_u64(in);
	r.offset = bufr_u64(in);
	r.key.dev_major = bufr_u32(in);
	r.key.dev_minor = bufr_u32(in);
	r.key.inode = bufr_u64(in);
	r.key.generation = bufr_u64(in);
	r.key.generation_known = take_bool(in);
	r.npids = bufr_count(in, READER_PIDS_MAX, sizeof(uint32_t));
	for (uint32_t i = 0; i < r.npids; i++)
		r.pids[i] = bufr_u32(in);
	path = bufr_strdup(in, EVENT_PATH_MAX);
	err = bufr_end(in);
	if (err)
		return err;
	r.path = TAKE(path);
	*ret = r;
	return 0;
}

void reader_cgroups_encode(struct bufw *w, const struct reader_cgroups *c)
{
	bufw_u32(w, c->pid);
	bufw_u64(w, c->cgroup_id);
}

int reader_cgroups_decode(struct bufr *in, struct reader_cgroups *ret)
{
	struct reader_cgroups c;
	int err;

	c.pid = bufr_u32(in);
	c.cgroup_id = bufr_u64(in);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = c;
	return 0;
}

void reader_debug_encode(struct bufw *w, const struct reader_debug *d)
{
	bufw_u32(w, d->pid);
	bufw_str(w, d->path);
}

int reader_debug_decode(struct bufr *in, struct reader_debug *ret)
{
	uint32_t pid = bufr_u32(in);
	CLEANUP_FREE char *path = bufr_strdup(in, EVENT_PATH_MAX);
	int err = bufr_end(in);

	if (err)
		return err;
	*ret = (struct reader_debug){ pid, TAKE(path) };
	return 0;
}

void reader_peek_encode(struct bufw *w, const struct reader_peek *p)
{
	bufw_u64(w, p->id);
	bufw_u32(w, p->tid);
	bufw_u32(w, p->npages);
	for (uint32_t i = 0; i < p->npages && i < EVENT_PAGES_MAX; i++)
		bufw_u64(w, p->pages[i]);
}

int reader_peek_decode(struct bufr *in, struct reader_peek *ret)
{
	struct reader_peek p = {};
	int err;

	p.id = bufr_u64(in);
	p.tid = bufr_u32(in);
	p.npages = bufr_count(in, EVENT_PAGES_MAX, sizeof(uint64_t));
	for (uint32_t i = 0; i < p.npages; i++)
		p.pages[i] = bufr_u64(in);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = p;
	return 0;
}

void reader_text_encode(struct bufw *w, const struct reader_text *t)
{
	bufw_u8(w, t->is_of_cgroup);
	bufw_blob(w, t->text, t->len);
}

int reader_text_decode(struct bufr *in, struct reader_text *ret)
{
	struct reader_text t;
	int err;

	t.is_of_cgroup = take_bool(in);
	t.text = bufr_blob(in, READER_TEXT_MAX, &t.len);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = t;
	return 0;
}

void reader_opened_encode(struct bufw *w, const struct reader_opened *r)
{
	bufw_u64(w, r->file_id);
	bufw_u32(w, (uint32_t)r->error);
	bufw_u64(w, r->identity.dev);
	bufw_u64(w, r->identity.inode);
	bufw_u64(w, r->identity.ctime_ns);
	bufw_u64(w, r->identity.size);
	bufw_u32(w, r->mode);
}

int reader_opened_decode(struct bufr *in, struct reader_opened *ret)
{
	struct reader_opened r;
	uint32_t error;
	int err;

	r.file_id = bufr_u64(in);
	error = bufr_u32(in);
	r.identity.dev = bufr_u64(in);
	r.identity.inode = bufr_u64(in);
	r.identity.ctime_ns = bufr_u64(in);
	r.identity.size = bufr_u64(in);
	r.mode = bufr_u32(in);
	if (error > 4095) /* MAX_ERRNO */
		bufr_fail(in);
	err = bufr_end(in);
	if (err)
		return err;
	r.error = (int)error;
	*ret = r;
	return 0;
}

/* ---- serving --------------------------------------------------------------------------------- */

struct reader {
	struct reader_open_proof proof;
	struct reader_cgroup *cgroup;
	struct ipc_in in;
	struct bufw out;
};

static int reply(struct reader *r, uint32_t type, int fd)
{
	int err = bufw_end(&r->out);

	while (!err) {
		struct pollfd p = { .fd = IPC_FD, .events = POLLOUT };

		err = ipc_send(IPC_FD, type, r->out.data, r->out.len, fd);
		if (err != -EAGAIN)
			break;
		/* The socket may be writable and yet refuse: too many descriptors are in flight. */
		(void)poll(&p, 1, 100);
		(void)poll(NULL, 0, 1);
		err = 0;
	}
	return err;
}

static int tell_process(void *arg, const struct event_process *p)
{
	struct reader *r = arg;

	bufw_reset(&r->out);
	event_process_encode(&r->out, p);
	return reply(r, READER_PROCESS, -1);
}

static int serve_scan(struct reader *r, struct bufr *in)
{
	struct reader_scan s;
	int err = reader_scan_decode(in, &s);

	if (!err)
		err = reader_scan_run(&s, tell_process, r);
	if (err)
		return err;
	bufw_reset(&r->out);
	return reply(r, READER_SCANNED, -1);
}

static int serve_open(struct reader *r, struct bufr *in)
{
	CLEANUP_FD int fd = -1;
	struct reader_opened opened = {};
	struct reader_open open;
	int err = reader_open_decode(in, &open);

	if (err)
		return err;
	opened.file_id = open.file_id;
	opened.error = -reader_open_file(&r->proof, &open, &opened, &fd);
	free((void *)(uintptr_t)open.path);
	bufw_reset(&r->out);
	reader_opened_encode(&r->out, &opened);
	return reply(r, READER_OPENED, fd);
}

static int serve_cgroups(struct reader *r, struct bufr *in)
{
	struct reader_cgroups asked;
	struct reader_text text;
	int err = reader_cgroups_decode(in, &asked);

	if (err)
		return err;
	reader_cgroup_read(r->cgroup, &asked, &text);
	bufw_reset(&r->out);
	reader_text_encode(&r->out, &text);
	return reply(r, READER_TEXT, -1);
}

/* Page by page: one call for all would end at the first that is not there. */
static int serve_peek(struct reader *r, struct bufr *in)
{
	static uint8_t pages[EVENT_PAGES_MAX][EVENT_PAGE_BYTES];
	struct event_memory memory = { .pages = pages[0] };
	struct reader_peek asked;
	int err = reader_peek_decode(in, &asked);

	if (err)
		return err;
	memory.id = asked.id;
	memory.npages = asked.npages;
	for (uint32_t i = 0; i < asked.npages; i++) {
		struct iovec local = { pages[i], EVENT_PAGE_BYTES };
		struct iovec remote = { (void *)(uintptr_t)asked.pages[i], EVENT_PAGE_BYTES };

		if (process_vm_readv((pid_t)asked.tid, &local, 1, &remote, 1, 0) == EVENT_PAGE_BYTES)
			memory.present |= 1u << i;
		else
			memset(pages[i], 0, sizeof(pages[i]));
	}
	bufw_reset(&r->out);
	event_memory_encode(&r->out, &memory);
	return reply(r, READER_MEMORY, -1);
}

static int serve_config(struct reader *r, struct bufr *in)
{
	CLEANUP_FREE char *path = bufr_strdup(in, EVENT_PATH_MAX);
	struct reader_opened opened = {};
	CLEANUP_FD int fd = -1;
	int err = bufr_end(in);

	if (err)
		return err;
	opened.error = -reader_open_config(path, &opened, &fd);
	bufw_reset(&r->out);
	reader_opened_encode(&r->out, &opened);
	return reply(r, READER_OPENED, fd);
}

static int serve_debug(struct reader *r, struct bufr *in)
{
	struct reader_opened opened = {};
	CLEANUP_FD int fd = -1;
	struct reader_debug d;
	int err = reader_debug_decode(in, &d);

	if (err)
		return err;
	opened.error = -reader_open_debug(&d, &opened, &fd);
	free((void *)(uintptr_t)d.path);
	bufw_reset(&r->out);
	reader_opened_encode(&r->out, &opened);
	return reply(r, READER_OPENED, fd);
}

static int serve_one(struct reader *r, const struct ipc_msg *msg)
{
	struct bufr in;

	bufr_init(&in, msg->data, msg->len);
	switch (msg->type) {
	case READER_SCAN:
		return serve_scan(r, &in);
	case READER_OPEN:
		return serve_open(r, &in);
	case READER_CGROUPS:
		return serve_cgroups(r, &in);
	case READER_CONFIG:
		return serve_config(r, &in);
	case READER_PEEK:
		return serve_peek(r, &in);
	case READER_DEBUG:
		return serve_debug(r, &in);
	default:
		return -EBADMSG;
	}
}

static int serve(struct reader *r)
{
	for (;;) {
		struct pollfd p = { .fd = IPC_FD, .events = POLLIN };
		CLEANUP_FD int unasked = -1;
		struct ipc_msg msg;
		int err = ipc_recv(IPC_FD, &r->in, &msg);

		if (err == -EAGAIN) {
			(void)poll(&p, 1, -1);
			continue;
		}
		if (err <= 0)
			return err;
		unasked = msg.fd;
		err = serve_one(r, &msg);
		if (err)
			return err;
	}
}

/* Everything it will need is open when its rights shrink to the three that it serves with. */
static int start(struct reader *r)
{
	int err = ipc_hello();

	if (err)
		return err;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	err = reader_open_init(&r->proof);
	if (err)
		log_warning("files that are gone cannot be found again by path: perf_event_open: %s",
			    strerror(-err));
	err = reader_cgroup_new(&r->cgroup, "/proc/self/mountinfo");
	if (err)
		return err;
	err = rights_started();
	if (!err)
		err = rights_drop(CAP_PERFMON);
	return err ? err : reader_box_enter();
}

int reader_main(void)
{
	struct reader r = { .proof = { .ring = PERFRING_INIT } };
	int err;

	log_init("flamed-reader", LOG_INFO);
	ipc_ignore_signals();
	err = start(&r);
	if (!err)
		err = serve(&r);
	if (err && err != -EPIPE)
		log_error("reader ends error='%s'", strerror(-err));
	reader_open_fini(&r.proof);
	reader_cgroup_free(r.cgroup);
	ipc_in_fini(&r.in);
	bufw_fini(&r.out);
	return err && err != -EPIPE ? EXIT_FAILURE : EXIT_SUCCESS;
}
