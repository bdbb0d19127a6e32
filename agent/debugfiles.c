#include "agent/debugfiles.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { SLOTS = 2 * DEBUGFILES_MAX, ROOTS = 2 };

enum state {
	NEW,		/* nothing asked yet */
	WAITING,	/* for the reader to have nothing better to do */
	LOOKING,	/* the reader was asked for the candidate at hand */
	SHOWN,		/* the symbolizer was shown it and has not said whether it is the one */
	FOUND,
	NONE,		/* none at all, or none until again_ns */
};

/* The two files that are looked for: the debug file, and what dwz moved parts of it to. */
enum kind { DEBUG, ALT, KINDS };
static const uint32_t npaths[KINDS] = { 4, 2 };

struct search {
	struct debugfile *of;
	enum kind kind;
	enum state state;
	struct search *next;	/* that waits after this one */
	uint32_t candidate;	/* path * ROOTS + root */
	int fd;			/* of the file, -1 none */
	uint64_t again_ns;
};

struct debugfile {
	struct debugfiles *owner;
	uint64_t file_id;
	uint32_t pid;
	bool link_asked;
	char *path;		/* of the file */
	/* What the symbolizer said, once there is something to look for. */
	struct msg_link *link;
	struct msg_debugged *debug;	/* of the debug file, which needs another one */
	struct search search[KINDS];
	uint64_t used_ns;
};

struct debugfiles {
	struct readerclient *reader;
	struct symclient *symbolizer;
	struct debugfile *slots[SLOTS];	/* by file id, open addressing; ids ascend, so the old ones go first */
	uint32_t n, nopen, open_max;
	struct search *waiting, **waiting_end;
	bool is_looking;	/* one of them is */
};

static struct debugfile **slot_of(struct debugfiles *d, uint64_t file_id)
{
	size_t i = (size_t)(file_id * 0x9e3779b97f4a7c15ull >> 32) % SLOTS;

	while (d->slots[i] && d->slots[i]->file_id != file_id)
		i = (i + 1) % SLOTS;
	return &d->slots[i];
}

static void close_fd(struct debugfiles *d, struct search *s)
{
	if (s->fd >= 0) {
		close(s->fd);
		d->nopen--;
	}
	s->fd = -1;
}

static void close_fds(struct debugfiles *d, struct debugfile *f)
{
	for (size_t i = 0; i < KINDS; i++)
		close_fd(d, &f->search[i]);
}

static void drop(struct debugfiles *d, struct debugfile *f)
{
	close_fds(d, f);
	free(f->link);
	free(f->debug);
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

/* An answer will come that is about it. */
static bool is_awaited(const struct debugfile *f)
{
	for (size_t i = 0; i < KINDS; i++)
		if (f->search[i].state == WAITING || f->search[i].state == LOOKING || f->search[i].state == SHOWN)
			return true;
	return false;
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
		if (f->file_id + DEBUGFILES_MAX / 2 > highest || is_awaited(f))
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
	for (int i = 0; i < KINDS; i++)
		f->search[i] = (struct search){ .of = f, .kind = (enum kind)i, .fd = -1 };
	*slot = f;
	d->n++;
}

/* ---- candidates ---- */

/* Below /usr/lib/debug/.build-id. */
static bool build_id_path(const uint8_t *id, uint32_t len, char *ret, size_t size)
{
	int n;

	if (len < 2)
		return false;
	n = snprintf(ret, size, "/usr/lib/debug/.build-id/%02x/", id[0]);
	for (uint32_t i = 1; i < len && n < (int)size; i++)
		n += snprintf(ret + n, size - (size_t)n, "%02x", id[i]);
	if (n < (int)size)
		n += snprintf(ret + n, size - (size_t)n, ".debug");
	return n < (int)size;
}

static int dir_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash - path) : 0;
}

static bool debug_path(const struct debugfile *f, char *ret, size_t size)
{
	int dir = dir_len(f->path), n;

	switch (f->search[DEBUG].candidate / ROOTS) {
	case 0:
		return build_id_path(f->link->build_id, f->link->build_id_len, ret, size);
	case 1:
		n = snprintf(ret, size, "%.*s/%s", dir, f->path, f->link->name);
		break;
	case 2:
		n = snprintf(ret, size, "%.*s/.debug/%s", dir, f->path, f->link->name);
		break;
	default:
		n = snprintf(ret, size, "/usr/lib/debug%.*s/%s", dir, f->path, f->link->name);
		break;
	}
	return f->link->name[0] && n < (int)size;
}

static bool alt_path(const struct debugfile *f, char *ret, size_t size)
{
	char debug[EVENT_PATH_MAX];
	int n;

	if (f->search[ALT].candidate / ROOTS == 0)
		return build_id_path(f->debug->alt_build_id, f->debug->alt_build_id_len, ret, size);
	if (f->debug->alt_path[0] == '/')
		n = snprintf(ret, size, "%s", f->debug->alt_path);
	else if (debug_path(f, debug, sizeof(debug)))
		n = snprintf(ret, size, "%.*s/%s", dir_len(debug), debug, f->debug->alt_path);
	else
		return false;
	return n < (int)size;
}

static int on_opened(void *arg, const struct reader_opened *o, int fd);

static void give_up(struct search *s, uint64_t now_ns)
{
	s->state = NONE;
	s->candidate = 0;
	s->again_ns = now_ns + DEBUGFILES_AGAIN_NS;
}

/* The next candidate that there can be. */
static int ask(struct search *s, uint64_t now_ns)
{
	struct debugfile *f = s->of;
	char path[EVENT_PATH_MAX];
	int err;

	for (; s->candidate < npaths[s->kind] * ROOTS; s->candidate++) {
		bool is_host = s->candidate % ROOTS;

		if (!is_host && !f->pid)
			continue;
		if (!(s->kind == DEBUG ? debug_path(f, path, sizeof(path)) : alt_path(f, path, sizeof(path))))
			continue;
		/* It is not forgotten while it waits for an answer. */
		err = readerclient_debug(f->owner->reader, is_host ? 0 : f->pid, path, on_opened, s);
		if (!err) {
			s->state = LOOKING;
			f->owner->is_looking = true;
			return 0;
		}
		if (err != -ENOBUFS)
			return err;
		break;
	}
	give_up(s, now_ns);
	return 0;
}

/*
 * The reader opens files of short-lived processes, one after the other: nobody else may stand between them. So one
 * search is under way at a time, and only while nothing else waits: no more is `pending` than is being answered now.
 */
static int ask_next(struct debugfiles *d, size_t pending, uint64_t now_ns)
{
	int err = 0;

	while (!err && d->waiting && !d->is_looking && readerclient_pending(d->reader) <= pending) {
		struct search *s = d->waiting;

		d->waiting = s->next;
		if (!d->waiting)
			d->waiting_end = &d->waiting;
		err = ask(s, now_ns);
	}
	return err;
}

static void look(struct search *s)
{
	struct debugfiles *d = s->of->owner;

	s->state = WAITING;
	s->next = NULL;
	*d->waiting_end = s;
	d->waiting_end = &s->next;
}

/* The descriptors of the file that was not used for longest give way. */
static void make_room(struct debugfiles *d)
{
	struct debugfile *oldest = NULL;

	if (d->nopen < d->open_max)
		return;
	for (size_t i = 0; i < SLOTS; i++) {
		struct debugfile *f = d->slots[i];

		if (f && (f->search[DEBUG].fd >= 0 || f->search[ALT].fd >= 0) && (!oldest || f->used_ns < oldest->used_ns))
			oldest = f;
	}
	if (oldest)
		close_fds(d, oldest);
}

static int show(struct search *s)
{
	const struct debugfile *f = s->of;
	bool is_alt = s->kind == ALT;
	struct msg_debug m = { .file_id = f->file_id, .is_alt = is_alt, .crc = f->link->crc,
			       .by_crc = !is_alt && s->candidate / ROOTS > 0,
			       .build_id_len = is_alt ? f->debug->alt_build_id_len : f->link->build_id_len };

	memcpy(m.build_id, is_alt ? f->debug->alt_build_id : f->link->build_id, m.build_id_len);
	return symclient_debug(f->owner->symbolizer, &m, s->fd);
}

static int on_taken(void *arg, const struct msg_debugged *answer)
{
	struct debugfiles *d = arg;
	struct debugfile *f = *slot_of(d, answer->file_id);
	struct search *s = f ? &f->search[answer->is_alt ? ALT : DEBUG] : NULL;

	if (!s || (s->state != SHOWN && s->state != FOUND))
		return 0;
	if (!answer->is_taken) {
		close_fd(d, s);
		s->candidate++;
		look(s);
		return ask_next(d, 0, clock_mono_ns());
	}
	if (s->state == SHOWN)
		log_debug("debug file found file=%s", LOG_STR(f->path));
	s->state = FOUND;
	if (s->kind != DEBUG || !answer->alt_build_id_len || f->search[ALT].state != NEW)
		return 0;
	/* Without memory there is no other file. */
	f->debug = malloc(sizeof(*f->debug));
	if (!f->debug)
		return 0;
	*f->debug = *answer;
	look(&f->search[ALT]);
	return ask_next(d, 0, clock_mono_ns());
}

static int on_opened(void *arg, const struct reader_opened *o, int fd)
{
	struct search *s = arg;
	struct debugfiles *d = s->of->owner;
	uint64_t now = clock_mono_ns();
	int err = 0;

	d->is_looking = false;
	if (o->error == ETIMEDOUT) {
		/* A server that does not answer would hold up the reader for each candidate anew. */
		give_up(s, now);
	} else if (o->error) {
		s->candidate++;
		look(s);
	} else {
		make_room(d);
		s->fd = fd;
		d->nopen++;
		s->of->used_ns = now;
		s->state = SHOWN;
		err = show(s);
	}
	return err ? err : ask_next(d, 1, now);
}

static int on_link(void *arg, const struct msg_link *l)
{
	struct debugfiles *d = arg;
	struct debugfile *f = *slot_of(d, l->file_id);

	if (!f || f->search[DEBUG].state != NEW)
		return 0;
	f->search[DEBUG].state = NONE;
	f->search[DEBUG].again_ns = UINT64_MAX;
	f->link = l->is_wanted ? malloc(sizeof(*f->link)) : NULL;
	if (!f->link)
		return 0;
	*f->link = *l;
	look(&f->search[DEBUG]);
	return ask_next(d, 0, clock_mono_ns());
}

int debugfiles_new(struct debugfiles **ret, struct readerclient *reader, struct symclient *symbolizer, uint64_t nopen)
{
	struct debugfiles *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->reader = reader;
	d->symbolizer = symbolizer;
	d->waiting_end = &d->waiting;
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
	for (size_t i = 0; i < KINDS; i++)
		if (f->search[i].state == NONE && now_ns >= f->search[i].again_ns)
			look(&f->search[i]);
	if (f->link_asked || fd < 0)
		return 0;
	f->link_asked = true;
	return symclient_link(d->symbolizer, file_id, fd);
}

int debugfiles_naming(struct debugfiles *d, uint64_t file_id, uint64_t now_ns)
{
	struct debugfile *f = *slot_of(d, file_id);
	int err = 0;

	if (!f || f->search[DEBUG].state != FOUND)
		return 0;
	f->used_ns = now_ns;
	for (size_t i = 0; i < KINDS && !err; i++) {
		struct search *s = &f->search[i];

		/* Closed meanwhile: it is looked for where it was, and there for the next names. */
		if (s->state != FOUND)
			continue;
		if (s->fd >= 0)
			err = show(s);
		else
			look(s);
	}
	return err;
}

int debugfiles_turn(struct debugfiles *d, uint64_t now_ns)
{
	return ask_next(d, 0, now_ns);
}

void debugfiles_tidy(struct debugfiles *d, uint64_t now_ns)
{
	if (!d->nopen)
		return;
	for (size_t i = 0; i < SLOTS; i++)
		if (d->slots[i] && now_ns - d->slots[i]->used_ns > DEBUGFILES_IDLE_NS)
			close_fds(d, d->slots[i]);
}
