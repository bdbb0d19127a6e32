#include "exporter/directory.h"

#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
	SERVICE_MAX = 200, /* of a file name's 255 bytes */
	LISTED_MAX = 1 << 20,
};
#define SUFFIX	  ".pb.gz"
#define TEMPORARY ".flamed-tmp"

struct directory {
	int fd;
	char *path; /* for log lines */
	uint64_t max_bytes;
	uint64_t nbytes; /* not less than what is there */
	sink_fate_fn *fn;
	void *arg;
	struct sink_stats stats;
	struct log_limit failed;
};

/* ---- what is there --------------------------------------------------------------------------- */

static bool all_of(const char *s, size_t n, const char *kind)
{
	return strspn(s, kind) >= n;
}

/* YYYYMMDDTHHMMSSZ-SERVICE-0123456789abcdef.pb.gz */
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

struct listed {
	char *name;
	uint64_t nbytes;
};

struct listing {
	struct listed *files;
	size_t n, cap;
	uint64_t nbytes;
};

static void listing_fini(struct listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->files[i].name);
	free(l->files);
}

static int listing_add(struct listing *l, const char *name, uint64_t nbytes)
{
	char *copy;

	if (l->n == l->cap) {
		size_t cap = MAX(l->cap * 2, (size_t)64);
		struct listed *p = l->n < LISTED_MAX ? reallocarray(l->files, cap, sizeof(*p)) :
						       NULL;

		if (!p)
			return -ENOMEM;
		l->files = p;
		l->cap = cap;
	}
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	l->files[l->n++] = (struct listed){ copy, nbytes };
	l->nbytes += nbytes;
	return 0;
}

static void close_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int list(const struct directory *d, struct listing *ret)
{
	/* Not a duplicate of fd, which would share its position. */
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP(close_dir) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	struct stat st;
	int err = 0;

	if (!dir) {
		err = -errno;
		closep(&fd);
		return err;
	}
	while (!err && (errno = 0, e = readdir(dir))) {
		if (!is_ours(e->d_name) || fstatat(d->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(st.st_mode))
			continue;
		err = listing_add(ret, e->d_name, st.st_size > 0 ? (uint64_t)st.st_size : 0);
	}
	return err ? err : -errno;
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Names begin with their time. */
static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* Deletes the oldest files until these bytes fit, and a tenth more, so that it is seldom done. */
static int make_room(struct directory *d, uint64_t nbytes)
{
	CLEANUP(listing_fini) struct listing l = {};
	uint64_t keep = d->max_bytes - nbytes;
	int err = list(d, &l);

	if (err)
		return err;
	if (l.nbytes > keep) {
		keep -= MIN(keep, d->max_bytes / 10);
		qsort(l.files, l.n, sizeof(*l.files), by_name);
	}
	for (size_t i = 0; i < l.n && l.nbytes > keep; i++) {
		if (unlinkat(d->fd, l.files[i].name, 0) && errno != ENOENT)
			return -errno;
		l.nbytes -= l.files[i].nbytes;
	}
	d->nbytes = l.nbytes;
	return 0;
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
	snprintf(ret, size, "%s-%s-%016" PRIx64 SUFFIX, when, service,
		 profile_part_at(p, DIRECTORY_SINK));
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_file(const struct directory *d, const char *name, const struct profile *p)
{
	CLEANUP_FD int fd = -1;
	int err;

	/* One that a crash left there. */
	if (unlinkat(d->fd, TEMPORARY, 0) && errno != ENOENT)
		return -errno;
	fd = openat(d->fd, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	err = write_all(fd, p->data, p->len);
	/* Some file systems tell only now. */
	if (close(TAKE_FD(fd)) && !err)
		err = -errno;
	if (!err && renameat(d->fd, TEMPORARY, d->fd, name))
		err = -errno;
	if (err)
		(void)unlinkat(d->fd, TEMPORARY, 0);
	return err;
}

static int save(struct directory *d, const struct profile *p)
{
	char name[256];
	int err;

	if (p->len > d->max_bytes)
		return -EFBIG;
	if (d->nbytes > d->max_bytes - p->len) {
		err = make_room(d, p->len);
		if (err)
			return err;
	}
	name_of(p, name, sizeof(name));
	err = write_file(d, name, p);
	if (!err)
		d->nbytes += p->len;
	return err;
}

void directory_add(struct directory *d, struct profile *p)
{
	int err = save(d, p);

	d->stats.state = err ? "failing" : "ok";
	if (err) {
		d->stats.last_error_wall_ns = clock_wall_ns();
		snprintf(d->stats.last_error, sizeof(d->stats.last_error), "%s", strerror(-err));
		log_limited(&d->failed, LOG_ERROR,
			    "cannot write a profile directory=%s error='%s' hint='%s'",
			    LOG_STR(d->path), strerror(-err),
			    err == -EFBIG ?
				    "output.max_bytes is less than one profile" :
				    "is there room, and may flamed write to output.directory?");
	} else {
		d->stats.last_ok_wall_ns = clock_wall_ns();
		d->stats.nsent++;
		d->stats.bytes_sent += p->len;
	}
	d->fn(d->arg, d->stats.name, p, err ? EXPORT_FATE_WRITE_FAILED : EXPORT_FATE_DELIVERED);
}

/* ---- life ------------------------------------------------------------------------------------ */

int directory_new(struct directory **ret, int dir_fd, const char *path, uint64_t max_bytes,
		  sink_fate_fn *fn, void *arg)
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
	/* A directory that cannot be read now is looked at again with the first profile. */
	err = make_room(d, 0);
	if (err)
		d->nbytes = max_bytes;
	*ret = TAKE(d);
	return 0;
}

struct directory *directory_free(struct directory *d)
{
	if (!d)
		return NULL;
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
