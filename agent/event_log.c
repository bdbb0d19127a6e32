#include "agent/event.h"

#include "base/io.h"

#include <errno.h>
#include <string.h>

/*
 * The file: magic, u32 version, then events of u32 length of what follows it, u8 type, u64 time,
 * payload. The version changes with any payload, that of symbolizer/msg.h and bpf/abi.h included.
 */
static const char MAGIC[8] = "FLMDLOG";
enum {
	VERSION = 3,
	FILE_HEADER = sizeof(MAGIC) + 4,
	EVENT_HEADER = 4 + 1 + 8,
	EVENT_HEADER_COUNTED = 1 + 8,	/* of it, in the length */
	FLUSH_BYTES = 256 * 1024,
	READ_CHUNK = 1024 * 1024,
};

struct event_log {
	int fd;
	int err;	/* the first, for ever: a log with a hole is no log */
	struct bufw buf;
};

int event_log_new(struct event_log **ret, int fd)
{
	struct event_log *log = calloc(1, sizeof(*log));

	if (!log) {
		closep(&fd);
		return -ENOMEM;
	}
	log->fd = fd;
	bufw_bytes(&log->buf, MAGIC, sizeof(MAGIC));
	bufw_u32(&log->buf, VERSION);
	*ret = log;
	return 0;
}

static int flush(struct event_log *log)
{
	if (!log->err)
		log->err = bufw_end(&log->buf);
	if (!log->err)
		log->err = io_write_all(log->fd, log->buf.data, log->buf.len);
	bufw_reset(&log->buf);
	return log->err;
}

int event_log_write(struct event_log *log, const struct event *e)
{
	size_t before = log->buf.len, len;

	if (log->err)
		return log->err;
	bufw_u32(&log->buf, 0);
	bufw_u8(&log->buf, (uint8_t)e->type);
	bufw_u64(&log->buf, e->time_ns);
	event_encode(&log->buf, e);
	log->err = bufw_end(&log->buf);
	if (log->err)
		return log->err;
	len = log->buf.len - before - (EVENT_HEADER - EVENT_HEADER_COUNTED);
	if (len > EVENT_BYTES_MAX) {
		log->buf.len = before;
		return -EINVAL;
	}
	bufw_patch_u32(&log->buf, before, (uint32_t)len);
	return log->buf.len >= FLUSH_BYTES ? flush(log) : 0;
}

int event_log_close(struct event_log **log)
{
	int err = flush(*log);

	/* Some file systems tell of a full disk only now. */
	if (close((*log)->fd) && !err && errno != EINTR)
		err = -errno;
	(*log)->fd = -1;
	*log = event_log_free(*log);
	return err;
}

struct event_log *event_log_free(struct event_log *log)
{
	if (!log)
		return NULL;
	if (log->fd >= 0)
		(void)flush(log);
	closep(&log->fd);
	bufw_fini(&log->buf);
	free(log);
	return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct input {
	int fd;
	uint8_t *buf;
	size_t pos, len, cap;
};

static void input_fini(struct input *in)
{
	free(in->buf);
}

/*
 * Makes `want` bytes available at pos. Memory grows with what the file really holds, not with what
 * a length in it claims. 1, 0 when the file ends before, or an error.
 */
static int input_need(struct input *in, size_t want)
{
	while (in->len - in->pos < want) {
		ssize_t n;

		if (in->pos && in->pos >= in->len / 2) {
			memmove(in->buf, in->buf + in->pos, in->len - in->pos);
			in->len -= in->pos;
			in->pos = 0;
		}
		if (in->len == in->cap) {
			size_t cap = MAX(in->cap * 2, (size_t)READ_CHUNK);
			uint8_t *p = realloc(in->buf, cap);

			if (!p)
				return -ENOMEM;
			in->buf = p;
			in->cap = cap;
		}
		n = read(in->fd, in->buf + in->len, in->cap - in->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		in->len += (size_t)n;
	}
	return 1;
}

static int read_file_header(struct input *in)
{
	struct bufr r;
	const void *magic;
	int err = input_need(in, FILE_HEADER);

	if (err <= 0)
		return err ? err : -EBADMSG;
	bufr_init(&r, in->buf, FILE_HEADER);
	magic = bufr_bytes(&r, sizeof(MAGIC));
	if (memcmp(magic, MAGIC, sizeof(MAGIC)) != 0 || bufr_u32(&r) != VERSION)
		return -EBADMSG;
	in->pos = FILE_HEADER;
	return 0;
}

enum place { PLACE_EVENT, PLACE_END, PLACE_CUT };

/* The header of the next event is decoded, and its payload is at pos. */
struct head {
	uint8_t type;
	uint64_t time_ns;
	size_t payload;
};

static int read_head(struct input *in, struct head *ret, enum place *ret_place)
{
	struct head h;
	struct bufr r;
	uint32_t len;
	int err = input_need(in, EVENT_HEADER);

	if (err < 0)
		return err;
	if (!err) {
		*ret_place = in->len > in->pos ? PLACE_CUT : PLACE_END;
		return 0;
	}
	bufr_init(&r, in->buf + in->pos, EVENT_HEADER);
	len = bufr_u32(&r);
	h.type = bufr_u8(&r);
	h.time_ns = bufr_u64(&r);
	if (len < EVENT_HEADER_COUNTED || len > EVENT_BYTES_MAX || !h.type || h.type >= EVENT_TYPE_COUNT)
		return -EBADMSG;
	h.payload = len - EVENT_HEADER_COUNTED;
	err = input_need(in, EVENT_HEADER + h.payload);
	if (err < 0)
		return err;
	in->pos += EVENT_HEADER;
	*ret = h;
	*ret_place = err ? PLACE_EVENT : PLACE_CUT;
	return 0;
}

/* A sample is read in place as a struct, so its payload has to be where one may stand. */
static const uint8_t *aligned_payload(struct input *in, size_t len)
{
	uint8_t *p = in->buf + in->pos;
	uint8_t *to = p - (uintptr_t)p % 8;	/* over the header, which is decoded */

	if (to != p)
		memmove(to, p, len);
	return to;
}

static int deliver(struct input *in, const struct head *h, event_fn *fn, void *arg)
{
	CLEANUP_FREE void *mem = NULL;
	struct event e;
	int err = event_decode(h->type, h->time_ns, aligned_payload(in, h->payload), h->payload, &e, &mem);

	if (err)
		return err;
	in->pos += h->payload;
	return fn(arg, &e);
}

int event_log_read(int fd, event_fn *fn, void *arg)
{
	CLEANUP(input_fini) struct input in = { .fd = fd };
	int err = read_file_header(&in);

	while (!err) {
		enum place place;
		struct head h;

		err = read_head(&in, &h, &place);
		if (err)
			break;
		if (place != PLACE_EVENT)
			return place == PLACE_CUT ? EVENT_LOG_TRUNCATED : 0;
		err = deliver(&in, &h, fn, arg);
	}
	return err;
}
