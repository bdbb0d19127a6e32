#include "agent/debugfiles.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { SLOTS = 2 * DEBUGFILES_MAX, ROOTS = 2, PATHS = 4 };

enum state {
	NEW,		/* nothing asked yet */
	ASKED,		/* the symbolizer, for its link */
	LOOKING,	/* the reader, for the candidate at hand */
	SHOWN,		/* the symbolizer was shown it and has not said whether it is the one */
	FOUND,
	NONE,		/* none at all, or none until again_ns */
};

struct debugfile {
	struct debugfiles *owner;
	uint64_t file_id;
	enum state state;
	uint32_t pid;
	char *path;		/* of the file */
	struct msg_link link;
	uint32_t candidate;	/* path * ROOTS + root */
	int fd;			/* of the debug file, -1 none */
	uint64_t used_ns, again_ns;
};

struct debugfiles {
	struct readerclient *reader;
	struct symclient *symbolizer;
	struct debugfile *slots[SLOTS];	/* by file id, open addressing; ids ascend, so the old ones go first */
	uint32_t n, nopen, open_max;
};

static struct debugfile **slot_of(struct debugfiles *d, uint64_t file_id)
{
	size_t i = (size_t)(file_id * 0x9e3779b97f4a7c15ull >> 32) % SLOTS;

	while (d->slots[i] && d->slots[i]->file_id != file_id)
		i = (i + 1) % SLOTS;
	return &d->slots[i];
}

static void close_fd(struct debugfiles *d, struct debugfile *f)
{
	if (f->fd >= 0) {
		close(f->fd);
		d->nopen--;
	}
	f->fd = -1;
}

static void drop(struct debugfiles *d, struct debugfile *f)
{
	close_fd(d, f);
	free(f->path);
	free(f);
}

struct debugfiles *debugfiles_free(struct debugfiles *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < SLOTS; i++)
		if (d->slots[i])
			drop(d, d->slots[i]);
	free(d);
	return NULL;
}

/* Makes room: the half with the lower ids is forgotten, but what an answer is awaited for. */
static void forget_half(struct debugfiles *d)
{
	struct debugfile *kept[DEBUGFILES_MAX];
	uint64_t highest = 0;
	uint32_t n = 0;

	for (size_t i = 0; i < SLOTS; i++)
		if (d->slots[i])
			highest = MAX(highest, d->slots[i]->file_id);
	for (size_t i = 0; i < SLOTS; i++) {
		struct debugfile *f = TAKE(d->slots[i]);

		if (!f)
			continue;
		if (f->file_id + DEBUGFILES_MAX / 2 > highest || f->state == ASKED || f->state == LOOKING ||
		    f->state == SHOWN)
			kept[n++] = f;
		else
			drop(d, f);
	}
	d->n = n;
	for (uint32_t i = 0; i < n; i++)
		*slot_of(d, kept[i]->file_id) = kept[i];
}

void debugfiles_opening(struct debugfiles *d, const struct reader_open *r)
{
	struct debugfile **slot = slot_of(d, r->file_id), *f;

	if (*slot || !r->file_id || r->path[0] != '/')
		return;
	if (d->n == DEBUGFILES_MAX) {
		forget_half(d);
		if (d->n == DEBUGFILES_MAX)
			return;
		slot = slot_of(d, r->file_id);
	}
	/* Without memory its names are those that it has itself. */
	f = calloc(1, sizeof(*f));
	if (f)
		f->path = strdup(r->path);
	if (!f || !f->path) {
		free(f);
		return;
	}
	f->owner = d;
	f->file_id = r->file_id;
	f->pid = r->npids ? r->pids[0] : 0;
	f->fd = -1;
	*slot = f;
	d->n++;
}

/* ---- candidates ---- */

/* The path of a candidate; false: this file has none of its kind. */
static bool candidate_path(const struct debugfile *f, char *ret, size_t size)
{
	const char *slash = strrchr(f->path, '/');
	int dir = slash ? (int)(slash - f->path) : 0, n = 0;

	if (f->candidate / ROOTS > 0 && !f->link.name[0])
		return false;
	switch (f->candidate / ROOTS) {
	case 0:
		if (f->link.build_id_len < 2)
			return false;
		n = snprintf(ret, size, "/usr/lib/debug/.build-id/%02x/", f->link.build_id[0]);
		for (uint32_t i = 1; i < f->link.build_id_len && n < (int)size; i++)
			n += snprintf(ret + n, size - (size_t)n, "%02x", f->link.build_id[i]);
		if (n < (int)size)
			n += snprintf(ret + n, size - (size_t)n, ".debug");
		break;
	case 1:
		n = snprintf(ret, size, "%.*s/%s", dir, f->path, f->link.name);
		break;
	case 2:
		n = snprintf(ret, size, "%.*s/.debug/%s", dir, f->path, f->link.name);
		break;
	default:
		n = snprintf(ret, size, "/usr/lib/debug%.*s/%s", dir, f->path, f->link.name);
		break;
	}
	return n < (int)size;
}

static int on_opened(void *arg, const struct reader_opened *o, int fd);

static void give_up(struct debugfile *f, uint64_t now_ns)
{
	f->state = NONE;
	f->candidate = 0;
	f->again_ns = now_ns + DEBUGFILES_AGAIN_NS;
}

/* The next candidate that there can be. */
static int look(struct debugfiles *d, struct debugfile *f, uint64_t now_ns)
{
	char path[EVENT_PATH_MAX];
	int err;

	for (; f->candidate < PATHS * ROOTS; f->candidate++) {
		bool is_host = f->candidate % ROOTS;

		if ((!is_host && !f->pid) || !candidate_path(f, path, sizeof(path)))
			continue;
		/* It is not forgotten while it waits for an answer. */
		err = readerclient_debug(d->reader, is_host ? 0 : f->pid, path, on_opened, f);
		if (!err) {
			f->state = LOOKING;
			return 0;
		}
		if (err != -ENOBUFS)
			return err;
		break;
	}
	give_up(f, now_ns);
	return 0;
}

/* The descriptor that was not used for longest gives way. */
static void make_room(struct debugfiles *d)
{
	struct debugfile *oldest = NULL;

	if (d->nopen < d->open_max)
		return;
	for (size_t i = 0; i < SLOTS; i++) {
		struct debugfile *f = d->slots[i];

		if (f && f->fd >= 0 && (!oldest || f->used_ns < oldest->used_ns))
			oldest = f;
	}
	if (oldest)
		close_fd(d, oldest);
}

static int on_taken(void *arg, const struct msg_debugged *answer)
{
	struct debugfiles *d = arg;
	struct debugfile *f = *slot_of(d, answer->file_id);

	if (!f || (f->state != SHOWN && f->state != FOUND))
		return 0;
	if (answer->is_taken) {
		if (f->state == SHOWN)
			log_debug("debug file found file=%s", LOG_STR(f->path));
		f->state = FOUND;
		return 0;
	}
	close_fd(d, f);
	f->candidate++;
	return look(d, f, clock_mono_ns());
}

static int show(struct debugfiles *d, struct debugfile *f)
{
	struct msg_debug m = { .file_id = f->file_id, .by_crc = f->candidate / ROOTS > 0, .crc = f->link.crc,
			       .build_id_len = f->link.build_id_len };

	memcpy(m.build_id, f->link.build_id, f->link.build_id_len);
	return symclient_debug(d->symbolizer, &m, f->fd);
}

static int on_opened(void *arg, const struct reader_opened *o, int fd)
{
	struct debugfile *f = arg;
	struct debugfiles *d = f->owner;
	uint64_t now = clock_mono_ns();

	/* A server that does not answer would hold up the reader for each candidate anew. */
	if (o->error == ETIMEDOUT) {
		give_up(f, now);
		return 0;
	}
	if (o->error) {
		f->candidate++;
		return look(d, f, now);
	}
	make_room(d);
	f->fd = fd;
	d->nopen++;
	f->used_ns = now;
	f->state = SHOWN;
	return show(d, f);
}

static int on_link(void *arg, const struct msg_link *l)
{
	struct debugfiles *d = arg;
	struct debugfile *f = *slot_of(d, l->file_id);

	if (!f || f->state != ASKED)
		return 0;
	f->link = *l;
	f->state = NONE;
	f->again_ns = UINT64_MAX;
	return l->is_wanted ? look(d, f, clock_mono_ns()) : 0;
}

int debugfiles_new(struct debugfiles **ret, struct readerclient *reader, struct symclient *symbolizer, uint64_t nopen)
{
	struct debugfiles *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->reader = reader;
	d->symbolizer = symbolizer;
	d->open_max = (uint32_t)MAX(MIN(nopen, (uint64_t)DEBUGFILES_OPEN_MAX), (uint64_t)1);
	symclient_on_debug(symbolizer, on_link, on_taken, d);
	*ret = d;
	return 0;
}

int debugfiles_met(struct debugfiles *d, uint64_t file_id, int fd, uint64_t now_ns)
{
	struct debugfile *f = *slot_of(d, file_id);

	if (!f)
		return 0;
	if (f->state == NONE && now_ns >= f->again_ns)
		return look(d, f, now_ns);
	if (f->state != NEW || fd < 0)
		return 0;
	f->state = ASKED;
	return symclient_link(d->symbolizer, file_id, fd);
}

int debugfiles_naming(struct debugfiles *d, uint64_t file_id, uint64_t now_ns)
{
	struct debugfile *f = *slot_of(d, file_id);

	if (!f || f->state != FOUND)
		return 0;
	f->used_ns = now_ns;
	/* Closed meanwhile: it is looked for where it was, and there for the next names. */
	return f->fd >= 0 ? show(d, f) : look(d, f, now_ns);
}

void debugfiles_tidy(struct debugfiles *d, uint64_t now_ns)
{
	if (!d->nopen)
		return;
	for (size_t i = 0; i < SLOTS; i++)
		if (d->slots[i] && d->slots[i]->fd >= 0 && now_ns - d->slots[i]->used_ns > DEBUGFILES_IDLE_NS)
			close_fd(d, d->slots[i]);
}
