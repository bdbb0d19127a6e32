#include "exporter/directory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "exporter/shelf.h"

enum {
	SERVICE_MAX = 200, /* of a file name's 255 bytes */
	PAGE_BYTES = 4096, /* what a file system gives at least */
	FULL_TRIES = 4,	   /* on a full file system */
	DELETED_MIN = 32,  /* however slow that is */
	TEMPORARY_NAME_SIZE = 40,
};
#define ROOM_NS	     (20 * NSEC_PER_MSEC)
#define BUSY_NS	     NSEC_PER_SEC
#define TIDY_NS	     (5 * NSEC_PER_MSEC) /* of each TIDY_EACH_NS */
#define TIDY_EACH_NS (50 * NSEC_PER_MSEC)

/* A file that is written and not flushed. */
struct written {
	struct profile *profile;
	int fd;
	char name[256];
};

struct directory {
	int fd;
	char *path; /* for log lines */
	uint64_t max_bytes;
	struct shelf *shelf;
	struct loop_source *timer;
	bool is_tidying; /* the timer runs */
	sink_fate_fn *fn;
	void *arg;
	struct written written[DIRECTORY_GROUP];
	size_t nwritten;
	uint64_t written_bytes;
	uint64_t busy_until_ns; /* time was up: no more of it is spent before that */
	struct sink_stats stats;
	struct log_limit failed;
};

/* ---- room ------------------------------------------------------------------------------------ */

/*
 * Deletes the oldest until there are no more than `keep` bytes. -EBUSY: time is up; one that cannot
 * be deleted is passed over, as long as others can.
 */
static int make_room(struct directory *d, uint64_t keep, uint64_t until_ns)
{
	int failed = -ENOSPC, err;

	for (int n = 1; shelf_bytes(d->shelf) > keep; n++) {
		err = shelf_delete(d->shelf);
		if (err < 0)
			failed = err;
		if (!err) {
			/* Everything that is there is remembered, and stays. */
			if (failed != -ENOSPC && !shelf_wants_look(d->shelf))
				return failed;
			err = shelf_look(d->shelf, until_ns);
			if (err < 0)
				return err;
		}
		if (n >= DELETED_MIN && clock_mono_ns() >= until_ns)
			return -EBUSY;
	}
	return 0;
}

/* For a profile that is to be written now. */
static int make_room_now(struct directory *d, uint64_t keep)
{
	uint64_t now = clock_mono_ns();
	uint64_t until = now < d->busy_until_ns ? now : now + ROOM_NS;
	int err = 0;

	/* Until that is over, what is not found yet does not count. */
	if (!shelf_is_known(d->shelf))
		err = shelf_look(d->shelf, until);
	if (err >= 0)
		err = make_room(d, keep, until);
	now = clock_mono_ns();
	if (now >= until)
		d->busy_until_ns = now + BUSY_NS;
	return err;
}

static void tidy_later(struct directory *d)
{
	int err;

	if (d->is_tidying ||
	    (!shelf_wants_look(d->shelf) && shelf_bytes(d->shelf) <= d->max_bytes))
		return;
	d->is_tidying = true;
	err = loop_timer_at(d->timer, clock_mono_ns() + TIDY_EACH_NS);
	assert(!err); /* it is a timer */
}

/* Failures are told by the next profile that needs room. */
static int on_timer(void *arg)
{
	struct directory *d = arg;
	uint64_t until = clock_mono_ns() + TIDY_NS;
	int err = 0;

	if (shelf_wants_look(d->shelf))
		err = shelf_look(d->shelf, until);
	if (err >= 0 && shelf_is_known(d->shelf))
		err = make_room(d, d->max_bytes, until);
	d->is_tidying = false;
	if (err >= 0 || err == -EBUSY)
		tidy_later(d);
	return 0;
}

static uint64_t room_of(const struct profile *p)
{
	return ((uint64_t)p->len + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static void name_of(const struct profile *p, char *ret, size_t size)
{
	const time_t start = (time_t)(p->wall_start_ns / NSEC_PER_SEC);
	char when[32] = "", service[SERVICE_MAX + 1];
	struct tm utc;

	if (gmtime_r(&start, &utc))
		(void)strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &utc);
	snprintf(service, sizeof(service), "%s", p->service_name);
	for (char *s = service; *s; s++) {
		if (*s == '/')
			*s = '_';
	}
	snprintf(ret, size, "%s-%s-%016" PRIx64 ".pb.gz", when, service,
		 profile_part_at(p, DIRECTORY_SINK));
}

static void temporary_name(size_t i, char ret[TEMPORARY_NAME_SIZE])
{
	snprintf(ret, TEMPORARY_NAME_SIZE, ".flamed-tmp-%zu", i);
}

static int write_temporary(const struct directory *d, const struct profile *p, int *ret_fd)
{
	char name[TEMPORARY_NAME_SIZE];
	int fd, err;

	temporary_name(d->nwritten, name);
	/* One that a crash left there. */
	if (unlinkat(d->fd, name, 0) && errno != ENOENT)
		return -errno;
	fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	err = io_write_all(fd, p->data, p->len);
	if (err) {
		closep(&fd);
		(void)unlinkat(d->fd, name, 0);
		return err;
	}
	/* All of a group are on their way before the first is waited for. */
	(void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	*ret_fd = fd;
	return 0;
}

static bool is_full(int err)
{
	return err == -ENOSPC || err == -EDQUOT;
}

static int save(struct directory *d, const struct profile *p, int *ret_fd)
{
	uint64_t room = room_of(p);
	int err;

	if (d->fd < 0)
		return -EBADF;
	if (room > d->max_bytes)
		return -EFBIG;
	if (d->written_bytes > d->max_bytes - room)
		directory_sync(d);
	err = make_room_now(d, d->max_bytes - room - d->written_bytes);
	if (err)
		return err;
	err = write_temporary(d, p, ret_fd);
	for (int i = 0; i < FULL_TRIES && is_full(err); i++) {
		uint64_t held = shelf_bytes(d->shelf);

		if (!held || make_room_now(d, held - MIN(held, room << i)))
			break;
		err = write_temporary(d, p, ret_fd);
	}
	if (!err)
		d->written_bytes += room;
	return err;
}

/* ---- fates ----------------------------------------------------------------------------------- */

static const struct {
	int err;
	const char *hint;
} hints[] = {
	{ EFBIG, "output.max_bytes is less than one profile takes: raise it" },
	{ ENOSPC, "the file system is full: make room there" },
	{ EDQUOT, "the quota of its user is used up: raise it, or lower output.max_bytes" },
	{ EACCES, "the user that flamed runs as has to be able to write there" },
	{ EPERM, "the user that flamed runs as has to be able to write and delete there" },
	{ EROFS, "the file system can only be read: name another output.directory" },
	{ ENOENT, "the directory was deleted: restart flamed, which makes it anew" },
	{ EBADF, "it could not be opened when flamed was started: mend that, then restart flamed" },
	{ EBUSY, "it has so many files that looking for the oldest takes a while: it goes on by itself" },
};

static const char *hint_of(int err)
{
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
		if (hints[i].err == err)
			return hints[i].hint;
	}
	return "the log of the kernel may say more";
}

static void tell(struct directory *d, const struct profile *p, int err)
{
	const char *error = err == -EBADF ? "it is not open" :
			    err == -EBUSY ? "it is over output.max_bytes" :
					    strerror(-err);

	d->stats.state = err ? "failing" : "ok";
	if (err) {
		d->stats.last_error_wall_ns = clock_wall_ns();
		snprintf(d->stats.last_error, sizeof(d->stats.last_error), "%s", error);
		log_limited(&d->failed, LOG_ERROR,
			    "cannot write a profile directory=%s error='%s' hint='%s'",
			    LOG_STR(d->path), error, hint_of(-err));
	} else {
		d->stats.last_ok_wall_ns = clock_wall_ns();
		d->stats.nsent++;
		d->stats.bytes_sent += p->len;
	}
	d->fn(d->arg, d->stats.name, p, err ? EXPORT_FATE_WRITE_FAILED : EXPORT_FATE_DELIVERED);
}

/* The file has its name only when its bytes are safe. */
static int finish(const struct directory *d, size_t i)
{
	const struct written *w = &d->written[i];
	struct stat st = {};
	char temporary[TEMPORARY_NAME_SIZE];
	int err = 0;

	temporary_name(i, temporary);
	if (fdatasync(w->fd) || fstat(w->fd, &st))
		err = -errno;
	/* Some file systems tell only now. */
	if (close(w->fd) && !err)
		err = -errno;
	if (!err && renameat(d->fd, temporary, d->fd, w->name))
		err = -errno;
	if (err)
		(void)unlinkat(d->fd, temporary, 0);
	else
		shelf_added(d->shelf, shelf_bytes_of(&st));
	return err;
}

void directory_sync(struct directory *d)
{
	int errs[DIRECTORY_GROUP], err = 0;

	if (!d->nwritten)
		return;
	for (size_t i = 0; i < d->nwritten; i++)
		errs[i] = finish(d, i);
	/* EINVAL: a file system without that. */
	if (fsync(d->fd) && errno != EINVAL)
		err = -errno;
	for (size_t i = 0; i < d->nwritten; i++) {
		tell(d, d->written[i].profile, errs[i] ? errs[i] : err);
		profile_unref(d->written[i].profile);
	}
	d->nwritten = 0;
	d->written_bytes = 0;
	tidy_later(d);
}

void directory_add(struct directory *d, struct profile *p)
{
	struct written *w;
	int fd, err = save(d, p, &fd);

	if (err) {
		tell(d, p, err);
		return;
	}
	w = &d->written[d->nwritten]; /* save() may have begun a new group */
	w->fd = fd;
	w->profile = profile_ref(p);
	name_of(p, w->name, sizeof(w->name));
	if (++d->nwritten == DIRECTORY_GROUP)
		directory_sync(d);
}

/* ---- life ------------------------------------------------------------------------------------ */

int directory_new(struct directory **ret, struct loop *loop, int dir_fd, const char *path,
		  uint64_t max_bytes, sink_fate_fn *fn, void *arg)
{
	CLEANUP(directory_freep) struct directory *d = calloc(1, sizeof(*d));
	int err;

	if (!d) {
		closep(&dir_fd);
		return -ENOMEM;
	}
	*d = (struct directory){
		.fd = dir_fd,
		.max_bytes = max_bytes,
		.fn = fn,
		.arg = arg,
		.stats = { .name = DIRECTORY_SINK, .kind = "directory", .state = "waiting" },
		.failed = { .interval_ns = 60 * NSEC_PER_SEC, .burst = 1 },
	};
	d->path = strdup(path);
	if (!d->path)
		return -ENOMEM;
	err = loop_add_timer(loop, &d->timer, 0, on_timer, d);
	if (!err)
		err = shelf_new(&d->shelf, dir_fd);
	if (err)
		return err;
	if (dir_fd >= 0)
		tidy_later(d);
	*ret = TAKE(d);
	return 0;
}

struct directory *directory_free(struct directory *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->nwritten; i++) {
		char temporary[TEMPORARY_NAME_SIZE];

		temporary_name(i, temporary);
		closep(&d->written[i].fd);
		(void)unlinkat(d->fd, temporary, 0);
		profile_unref(d->written[i].profile);
	}
	shelf_free(d->shelf);
	loop_del(d->timer);
	closep(&d->fd);
	free(d->path);
	free(d);
	return NULL;
}

const char *directory_name(const struct directory *d)
{
	return d->stats.name;
}

void directory_limit(struct directory *d, uint64_t max_bytes)
{
	d->max_bytes = max_bytes;
}

void directory_stats(const struct directory *d, struct sink_stats *ret)
{
	*ret = d->stats;
	ret->queue_max_bytes = 0;
}
