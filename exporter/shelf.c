#include "exporter/shelf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"

enum { PIECE = 512 }; /* entries between two looks at the clock */
#define SUFFIX ".pb.gz"

struct file {
	char *name;
	uint64_t nbytes;
};

struct shelf {
	int fd;
	bool is_known;	 /* it was read to its end once */
	uint64_t nbytes; /* by then, and what came and went since */

	/* The oldest, the next to go at the end. */
	struct file oldest[SHELF_OLDEST_MAX];
	size_t noldest;
	bool has_more; /* than these */

	DIR *dir; /* it is being read; NULL: not */
	uint64_t found_bytes;
	size_t nfound;
	struct file found[SHELF_OLDEST_MAX]; /* a heap: the youngest first */
	size_t nheap;
};

/* ---- names ----------------------------------------------------------------------------------- */

static bool all_of(const char *s, size_t n, const char *kind)
{
	return strspn(s, kind) >= n;
}

static bool is_ours(const char *name)
{
	const size_t suffix = strlen(SUFFIX);
	size_t len = strlen(name);
	const char *part;

	if (len < 17 + 1 + 1 + 16 + suffix || strcmp(name + len - suffix, SUFFIX) != 0)
		return false;
	part = name + len - suffix - 16;
	return all_of(name, 8, "0123456789") && name[8] == 'T' &&
	       all_of(name + 9, 6, "0123456789") && name[15] == 'Z' && name[16] == '-' &&
	       part[-1] == '-' && part > name + 17 && all_of(part, 16, "0123456789abcdef");
}

/* ---- the oldest ------------------------------------------------------------------------------ */

/* Names begin with their time. */
static bool is_younger(const struct file *a, const struct file *b)
{
	return strcmp(a->name, b->name) > 0;
}

static void swap(struct file *a, struct file *b)
{
	struct file c = *a;

	*a = *b;
	*b = c;
}

static void sink_down(struct file *heap, size_t n, size_t i)
{
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= n)
			return;
		if (child + 1 < n && is_younger(&heap[child + 1], &heap[child]))
			child++;
		if (!is_younger(&heap[child], &heap[i]))
			return;
		swap(&heap[child], &heap[i]);
		i = child;
	}
}

static void float_up(struct file *heap, size_t i)
{
	while (i && is_younger(&heap[i], &heap[(i - 1) / 2])) {
		swap(&heap[i], &heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
}

static int remember(struct shelf *s, const char *name, uint64_t nbytes)
{
	struct file f = { .nbytes = nbytes };

	if (s->nheap == SHELF_OLDEST_MAX && strcmp(name, s->found[0].name) >= 0)
		return 0;
	f.name = strdup(name);
	if (!f.name)
		return -ENOMEM;
	if (s->nheap < SHELF_OLDEST_MAX) {
		s->found[s->nheap++] = f;
		float_up(s->found, s->nheap - 1);
	} else {
		free(s->found[0].name);
		s->found[0] = f;
		sink_down(s->found, s->nheap, 0);
	}
	return 0;
}

static void forget(struct file *files, size_t *n)
{
	while (*n)
		free(files[--*n].name);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void stop_looking(struct shelf *s)
{
	if (s->dir)
		closedir(s->dir);
	s->dir = NULL;
	forget(s->found, &s->nheap);
}

static int begin_looking(struct shelf *s)
{
	/* Not a duplicate of fd, which would share its position. */
	int fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	s->dir = fdopendir(fd);
	if (!s->dir) {
		err = -errno;
		closep(&fd);
		return err;
	}
	s->found_bytes = 0;
	s->nfound = 0;
	return 0;
}

/* What is found counts as found; what is remembered goes from its end: the oldest last. */
static void end_looking(struct shelf *s)
{
	forget(s->oldest, &s->noldest);
	for (size_t n = s->nheap; n > 0; n--) {
		s->oldest[s->nheap - n] = s->found[0];
		swap(&s->found[0], &s->found[n - 1]);
		sink_down(s->found, n - 1, 0);
	}
	s->noldest = s->nheap;
	s->has_more = s->nfound > s->nheap;
	s->nheap = 0;
	s->nbytes = s->found_bytes;
	s->is_known = true;
	stop_looking(s);
}

/* 1: that was the end. */
static int look_at_next(struct shelf *s)
{
	const struct dirent *e;
	struct stat st;
	uint64_t nbytes;

	errno = 0;
	e = readdir(s->dir);
	if (!e)
		return errno ? -errno : 1;
	if (!is_ours(e->d_name) || fstatat(s->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(st.st_mode))
		return 0;
	nbytes = shelf_bytes_of(&st);
	s->found_bytes += MIN(nbytes, UINT64_MAX - s->found_bytes);
	s->nfound++;
	return remember(s, e->d_name, nbytes);
}

int shelf_look(struct shelf *s, uint64_t until_ns)
{
	int err = s->dir ? 0 : begin_looking(s);

	do {
		for (int i = 0; i < PIECE && !err; i++)
			err = look_at_next(s);
	} while (!err && clock_mono_ns() < until_ns);
	if (err < 0)
		stop_looking(s);
	else if (err)
		end_looking(s);
	return err;
}

bool shelf_is_known(const struct shelf *s)
{
	return s->is_known;
}

bool shelf_wants_look(const struct shelf *s)
{
	return s->dir || !s->is_known || (s->has_more && s->noldest < SHELF_OLDEST_MAX / 4);
}

/* ---- what is there --------------------------------------------------------------------------- */

uint64_t shelf_bytes(const struct shelf *s)
{
	return s->is_known ? s->nbytes : MAX(s->nbytes, s->found_bytes);
}

uint64_t shelf_bytes_of(const struct stat *st)
{
	return st->st_blocks > 0 ? (uint64_t)st->st_blocks * 512 : SHELF_BLOCK;
}

void shelf_added(struct shelf *s, uint64_t nbytes)
{
	s->nbytes += MIN(nbytes, UINT64_MAX - s->nbytes);
	/* It may be behind what was read of it already. */
	if (s->dir)
		s->found_bytes += MIN(nbytes, UINT64_MAX - s->found_bytes);
}

int shelf_delete(struct shelf *s)
{
	struct file f;
	int err = 0;

	if (!s->noldest)
		return 0;
	f = s->oldest[--s->noldest];
	if (unlinkat(s->fd, f.name, 0) && errno != ENOENT)
		err = -errno;
	if (!err)
		s->nbytes -= MIN(f.nbytes, s->nbytes);
	free(f.name);
	return err ? err : 1;
}

/* ---- life ------------------------------------------------------------------------------------ */

int shelf_new(struct shelf **ret, int dir_fd)
{
	struct shelf *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->fd = dir_fd;
	*ret = s;
	return 0;
}

struct shelf *shelf_free(struct shelf *s)
{
	if (!s)
		return NULL;
	stop_looking(s);
	forget(s->oldest, &s->noldest);
	free(s);
	return NULL;
}
