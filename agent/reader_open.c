#include "agent/reader_open.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>

#include "agent/procmaps.h"
#include "agent/sideband.h"

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

enum {
	RING_BYTES = 64 * 1024,
	THREADS_TRIED = 16,
	COPY_CHUNK = 256 * 1024,
	OPENAT2_TRIES = 8,	/* -EAGAIN: something was renamed meanwhile */
};

/* ---- proof ----------------------------------------------------------------------------------- */

int reader_open_init(struct reader_open_proof *p)
{
	struct perf_event_attr attr = {};

	p->ring = (struct perfring)PERFRING_INIT;
	sideband_attr(&attr);
	attr.mmap_data = 1;	/* our mapping is not executable: it may be on a noexec mount */
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	return perfring_open(&p->ring, &attr, 0, -1, RING_BYTES);
}

void reader_open_fini(struct reader_open_proof *p)
{
	perfring_close(&p->ring);
}

static bool same_inode(const struct file_key *a, const struct file_key *b)
{
	return a->dev_major == b->dev_major && a->dev_minor == b->dev_minor && a->inode == b->inode;
}

/* What the kernel reported of the mapping at `address` through our event. */
static bool event_of(struct perfring *r, uint64_t address, struct file_key *ret)
{
	static uint8_t bounce[PERFRING_RECORD_MAX];
	struct perf_event_header h;
	bool found = false;

	(void)perfring_look(r);
	while (perfring_peek(r, &h) == 1) {
		struct event e;

		if (sideband_decode(perfring_record(r, h.size, bounce), h.size, &e) &&
		    e.type == EVENT_MAP && e.map.start == address) {
			*ret = e.map.key;
			found = true;
		}
		perfring_next(r, h.size);
	}
	perfring_discard(r);
	return found;
}

struct wanted_map {
	uint64_t start;
	struct file_key key;
	bool found;
};

static int match_map(void *arg, const struct event_map *m)
{
	struct wanted_map *w = arg;

	if (m->start == w->start) {
		w->key = m->key;
		w->found = true;
	}
	return 0;
}

/* What our own /proc/self/maps says of it. */
static bool maps_entry_of(uint64_t address, struct file_key *ret)
{
	static struct procmaps lines;
	CLEANUP_FD int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	struct wanted_map w = { .start = address };
	char text[4096];
	ssize_t n;

	if (fd < 0)
		return false;
	lines.len = 0;
	lines.skip = false;
	while ((n = read(fd, text, sizeof(text))) > 0) {
		if (procmaps_feed(&lines, text, (size_t)n, true, match_map, &w))
			return false;
	}
	if (w.found)
		*ret = w.key;
	return w.found;
}

/* 0 when the file is the one of the key, -ESTALE when it is another. */
static int prove(struct reader_open_proof *p, const struct file_key *key, bool by_path, int fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool use_event = key->generation_known && p->ring.fd >= 0;
	struct file_key got = {};
	bool known;
	void *map;

	/* Without the generation a reused inode number cannot be told from the file that had it. */
	if (key->generation_known && !use_event && by_path)
		return -EACCES;
	if (use_event)
		perfring_discard(&p->ring);
	map = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	known = use_event ? event_of(&p->ring, (uintptr_t)map, &got) :
			    maps_entry_of((uintptr_t)map, &got);
	munmap(map, page);
	if (!known)
		return -EIO;
	if (!same_inode(&got, key) || (use_event && got.generation != key->generation))
		return -ESTALE;
	return 0;
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* From an O_PATH descriptor. A FIFO, device or socket is never opened: it could block or act. */
static int open_regular(int path_fd, int *ret_fd)
{
	char self[32];
	struct stat st;
	int fd;

	if (fstat(path_fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	/* Non-blocking: does not wait for the holder of a lease. */
	fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int try_candidate(struct reader_open_proof *p, const struct reader_open *r, bool by_path,
			 int path_fd, int *ret_fd)
{
	CLEANUP_FD int fd = -1;
	int err = open_regular(path_fd, &fd);

	if (!err)
		err = prove(p, &r->key, by_path, fd);
	if (err)
		return err;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int try_map_files(struct reader_open_proof *p, const struct reader_open *r, int *ret_fd)
{
	CLEANUP_FD int path_fd = -1;
	char name[96];

	if (!r->npids || r->start >= r->end)
		return -ENOENT;
	snprintf(name, sizeof(name), "/proc/%" PRIu32 "/map_files/%" PRIx64 "-%" PRIx64, r->pids[0],
		 r->start, r->end);
	path_fd = open(name, O_PATH | O_CLOEXEC);
	if (path_fd < 0)
		return -errno;
	return try_candidate(p, r, false, path_fd, ret_fd);
}

/* Symbolic links, ".." and absolute targets stay inside the root. */
static int open_below(int root_fd, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC | flags,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	for (int i = 0; i < OPENAT2_TRIES; i++) {
		fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how)); /* Linux 5.6 */
		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN)
			break;
	}
	return -errno;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A process whose first thread has exited has its root in the threads that are left. */
static int open_root_of_threads(uint32_t pid)
{
	char name[64];
	struct dirent *e;
	DIR *dir;
	int fd = -ENOENT;

	snprintf(name, sizeof(name), "/proc/%" PRIu32 "/task", pid);
	dir = opendir(name);
	if (!dir)
		return -errno;
	for (int i = 0; fd < 0 && i < THREADS_TRIED && (e = readdir(dir));) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		snprintf(name, sizeof(name), "/proc/%" PRIu32 "/task/%.10s/root", pid, e->d_name);
		fd = open_dir(name);
		i++;
	}
	closedir(dir);
	return fd;
}

static int open_root(uint32_t pid)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/proc/%" PRIu32 "/root", pid);
	fd = open_dir(name);
	return fd == -ENOENT ? open_root_of_threads(pid) : fd;
}

static int try_root(struct reader_open_proof *p, const struct reader_open *r, int root, int *ret_fd)
{
	CLEANUP_FD int root_fd = root;
	CLEANUP_FD int path_fd = -1;

	if (root_fd < 0)
		return root_fd;
	path_fd = open_below(root_fd, r->path, 0);
	if (path_fd < 0)
		return path_fd;
	return try_candidate(p, r, true, path_fd, ret_fd);
}

/* How much a failure tells; the first of equals is kept. */
static int weight(int err)
{
	switch (err) {
	case -ENOENT:
	case -ESRCH:
		return 0;
	case -EACCES:
	case -EPERM:
		return 1;
	case -ESTALE:
		return 3;
	default:
		return 2;
	}
}

static bool keep_best(int *best, int err)
{
	if (err && weight(err) > weight(*best))
		*best = err;
	return !err;
}

static int find(struct reader_open_proof *p, const struct reader_open *r, int *ret_fd)
{
	int best = -ENOENT, root;

	if (keep_best(&best, try_map_files(p, r, ret_fd)))
		return 0;
	for (uint32_t i = 0; i < r->npids; i++) {
		if (keep_best(&best, try_root(p, r, open_root(r->pids[i]), ret_fd)))
			return 0;
	}
	/* The host's root; our own is of use where pid 1 is out of reach. */
	root = open_root(1);
	if (root >= 0 && keep_best(&best, try_root(p, r, root, ret_fd)))
		return 0;
	if (keep_best(&best, try_root(p, r, open_dir("/"), ret_fd)))
		return 0;
	return best;
}

/* ---- what is handed over --------------------------------------------------------------------- */

static int copy_bytes(int from, int to, size_t max)
{
	static uint8_t chunk[COPY_CHUNK];
	size_t total = 0;

	for (;;) {
		ssize_t n = read(from, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		total += (size_t)n;
		if (total > max)
			return -EFBIG;
		for (ssize_t done = 0; done < n;) {
			ssize_t m = write(to, chunk + done, (size_t)(n - done));

			if (m < 0 && errno != EINTR)
				return -errno;
			done += MAX(m, (ssize_t)0);
		}
	}
}

/*
 * close(2) of a FUSE file asks its server, cannot be interrupted, and has no end when the server
 * does not answer. That may happen to us; whoever gets the descriptor must be safe from it.
 */
static int replace_by_copy(int *fd, off_t size, size_t max)
{
	CLEANUP_FD int copy = -1;
	int err;

	if (size < 0 || (size_t)size > max)
		return -EFBIG;
	copy = memfd_create("flamed-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0)
		return -errno;
	err = copy_bytes(*fd, copy, max);
	if (err)
		return err;
	if (lseek(copy, 0, SEEK_SET) || fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	closep(fd);
	*fd = TAKE_FD(copy);
	return 0;
}

static void describe(const struct stat *st, struct reader_opened *ret)
{
	ret->identity = (struct file_identity){
		.dev = st->st_dev,
		.inode = st->st_ino,
		.ctime_ns = (uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec,
		.size = (uint64_t)st->st_size,
	};
	ret->mode = st->st_mode;
}

static int prepare(int *fd, struct reader_opened *ret)
{
	struct statfs fs;
	struct stat st;
	int err;

	if (fstat(*fd, &st) || fstatfs(*fd, &fs))
		return -errno;
	if ((uint32_t)fs.f_type == FUSE_SUPER_MAGIC) {
		err = replace_by_copy(fd, st.st_size, READER_COPY_MAX);
		if (err)
			return err;
	}
	describe(&st, ret);
	return 0;
}

/* ---- perf maps ------------------------------------------------------------------------------- */

/* Of a process, as its JIT names its map, and as others see it. */
struct perf_map_owner {
	uint32_t inner_pid;	/* in the innermost pid namespace that it is in */
	uint32_t uid;		/* effective */
	time_t since;		/* when it began */
};

static int read_text(uint32_t pid, const char *name, char *text, size_t size)
{
	CLEANUP_FD int fd = -1;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	if (n < 0)
		return -errno;
	text[n] = 0;
	return 0;
}

/* Field 22 of /proc/PID/stat, in ticks since the machine started; the name before it may hold anything. */
static int read_start(uint32_t pid, time_t *ret)
{
	struct timespec now, up;
	unsigned long long ticks = 0;
	char text[1024], *at;
	int err = read_text(pid, "stat", text, sizeof(text));

	if (err)
		return err;
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%llu", &ticks) != 1 || clock_gettime(CLOCK_REALTIME, &now) ||
	    clock_gettime(CLOCK_BOOTTIME, &up))
		return -EINVAL;
	*ret = now.tv_sec - up.tv_sec + (time_t)(ticks / (unsigned long long)sysconf(_SC_CLK_TCK));
	return 0;
}

static int read_owner(uint32_t pid, struct perf_map_owner *ret)
{
	char text[4096], *ids, *pids, *end, *last = NULL;
	int err = read_text(pid, "status", text, sizeof(text));

	if (err)
		return err;
	ids = strstr(text, "\nUid:");
	pids = strstr(text, "\nNSpid:");
	if (!ids || !pids || sscanf(ids, "\nUid: %*u %" SCNu32, &ret->uid) != 1)
		return -EINVAL;
	pids += sizeof("\nNSpid:") - 1;
	end = strchr(pids, '\n');
	if (!end)
		return -EINVAL;
	*end = 0;
	last = strrchr(pids, '\t');
	if (!last || sscanf(last, "%" SCNu32, &ret->inner_pid) != 1)
		return -EINVAL;
	return read_start(pid, &ret->since);
}

/* One that was not written to since the process began is of another that had the same number. */
static int check_owner(const struct perf_map_owner *owner, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_uid && st.st_uid != owner->uid)
		return -EACCES;
	return st.st_mtime + 1 < owner->since ? -ESTALE : 0;
}

static int try_perf_map(uint32_t pid, int *ret_fd)
{
	CLEANUP_FD int root_fd = -1, path_fd = -1, fd = -1;
	struct perf_map_owner owner;
	char path[64];
	int err = read_owner(pid, &owner);

	if (err)
		return err;
	root_fd = open_root(pid);
	if (root_fd < 0)
		return root_fd;
	snprintf(path, sizeof(path), "/tmp/perf-%" PRIu32 ".map", owner.inner_pid);
	path_fd = open_below(root_fd, path, O_NOFOLLOW);
	if (path_fd < 0)
		return path_fd;
	err = open_regular(path_fd, &fd);
	if (!err)
		err = check_owner(&owner, fd);
	if (err)
		return err;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int find_perf_map(const struct reader_open *r, int *ret_fd)
{
	int best = -ENOENT;

	for (uint32_t i = 0; i < r->npids; i++) {
		if (keep_best(&best, try_perf_map(r->pids[i], ret_fd)))
			return 0;
	}
	return best;
}

int reader_open_file(struct reader_open_proof *p, const struct reader_open *r,
		     struct reader_opened *ret, int *ret_fd)
{
	bool is_perf_map = strcmp(r->path, READER_PERF_MAP) == 0;
	CLEANUP_FD int fd = -1;
	int err;

	if (!is_perf_map && (r->path[0] != '/' || r->path[1] == '/'))
		return -EINVAL;
	err = is_perf_map ? find_perf_map(r, &fd) : find(p, r, &fd);
	if (!err)
		err = prepare(&fd, ret);
	if (err)
		return err;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int reader_open_debug(const struct reader_debug *d, struct reader_opened *ret, int *ret_fd)
{
	CLEANUP_FD int root_fd = open_root(d->pid ? d->pid : 1);
	CLEANUP_FD int path_fd = -1;
	CLEANUP_FD int fd = -1;
	int err;

	/* Our own root is of use where pid 1 is out of reach. */
	if (root_fd < 0 && !d->pid)
		root_fd = open_dir("/");
	if (root_fd < 0)
		return root_fd;
	path_fd = open_below(root_fd, d->path, 0);
	if (path_fd < 0)
		return path_fd;
	err = open_regular(path_fd, &fd);
	if (!err)
		err = prepare(&fd, ret);
	if (err)
		return err;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int reader_open_config(const char *path, struct reader_opened *ret, int *ret_fd)
{
	CLEANUP_FD int path_fd = -1;
	CLEANUP_FD int fd = -1;
	struct stat st;
	int err;

	if (path[0] != '/')
		return -EINVAL;
	path_fd = open(path, O_PATH | O_CLOEXEC);
	if (path_fd < 0)
		return -errno;
	err = open_regular(path_fd, &fd);
	if (err)
		return err;
	if (fstat(fd, &st))
		return -errno;
	err = replace_by_copy(&fd, st.st_size, READER_CONFIG_MAX);
	if (err)
		return err;
	describe(&st, ret);
	*ret_fd = TAKE_FD(fd);
	return 0;
}
