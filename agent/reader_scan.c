#include "agent/reader_scan.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/procmaps.h"
#include "base/log.h"

enum {
	PF_KTHREAD = 0x00200000,	/* of the flags in /proc/PID/stat */
	STAT_FLAGS = 9,			/* the field's number, from 1 */
	STAT_PPID = 4,
	READ_CHUNK = 64 * 1024,
};

/* ---- mappings -------------------------------------------------------------------------------- */

struct mappings {
	struct event_map *v;
	size_t n, cap, bytes;
	bool is_full;
	struct procmaps lines;
	char chunk[READ_CHUNK];
};

static void mappings_reset(struct mappings *m)
{
	for (size_t i = 0; i < m->n; i++)
		free((void *)(uintptr_t)m->v[i].path);
	m->n = 0;
	m->bytes = 0;
	m->is_full = false;
	m->lines.len = 0;
	m->lines.skip = false;
}

static struct mappings *mappings_free(struct mappings *m)
{
	mappings_reset(m);
	free(m->v);
	free(m);
	return NULL;
}
DEFINE_CLEANUP(struct mappings *, mappings_free);

static int add_map(void *arg, const struct event_map *map)
{
	struct mappings *m = arg;
	size_t bytes = sizeof(*map) + strlen(map->path) + 1;
	char *path;

	if (m->n >= EVENT_MAPS_MAX || bytes > READER_SCAN_MAPS_BYTES - m->bytes) {
		m->is_full = true;
		return 0;
	}
	if (m->n == m->cap) {
		size_t cap = MAX(m->cap * 2, (size_t)64);
		struct event_map *v = reallocarray(m->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		m->v = v;
		m->cap = cap;
	}
	path = strdup(map->path);
	if (!path)
		return -ENOMEM;
	m->v[m->n] = *map;
	m->v[m->n++].path = path;
	m->bytes += bytes;
	return 0;
}

static int read_maps_file(int dir_fd, const char *name, struct mappings *m)
{
	CLEANUP_FD int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int err;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, m->chunk, sizeof(m->chunk))) > 0) {
		err = procmaps_feed(&m->lines, m->chunk, (size_t)n, false, add_map, m);
		if (err)
			return err;
	}
	return n < 0 ? -errno : 0;
}

/* When the first thread has exited /proc/PID/maps is empty; those of the other threads are not. */
static int read_maps_of_threads(int dir_fd, struct mappings *m)
{
	int fd = openat(dir_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int err = 0;

	if (!dir) {
		closep(&fd);
		return -errno;
	}
	while (!err && !m->n && (e = readdir(dir))) {
		char name[64];

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		snprintf(name, sizeof(name), "task/%.10s/maps", e->d_name);
		err = read_maps_file(dir_fd, name, m);
		if (err != -ENOMEM)
			err = 0; /* this thread is gone or not ours to see: the next */
	}
	closedir(dir);
	return err;
}

static int read_maps(int dir_fd, uint32_t pid, struct mappings *m)
{
	int err = read_maps_file(dir_fd, "maps", m);

	if (!m->n && err != -ENOMEM)
		err = read_maps_of_threads(dir_fd, m);
	for (size_t i = 0; i < m->n; i++)
		m->v[i].pid = m->v[i].tid = pid;
	return err == -ENOMEM ? err : 0;
}

/* ---- one process ----------------------------------------------------------------------------- */

static ssize_t read_small(int dir_fd, const char *name, char *buf, size_t size)
{
	CLEANUP_FD int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	buf[MAX(n, (ssize_t)0)] = 0;
	return n;
}

/* "pid (comm) state ppid ... flags ...": comm may hold anything, so count from its last bracket. */
static bool parse_stat(const char *stat, uint32_t *ret_ppid, bool *ret_kernel_thread)
{
	const char *p = strrchr(stat, ')');
	unsigned long long ppid = 0, flags = 0;

	if (!p)
		return false;
	for (int field = 3; field <= STAT_FLAGS; field++) {
		p = strchr(p, ' ');
		if (!p)
			return false;
		p++;
		if (field == STAT_PPID)
			ppid = strtoull(p, NULL, 10);
		if (field == STAT_FLAGS)
			flags = strtoull(p, NULL, 10);
	}
	*ret_ppid = (uint32_t)MIN(ppid, (unsigned long long)INT_MAX);
	*ret_kernel_thread = flags & PF_KTHREAD;
	return true;
}

/* 0, and nothing is told of a process that is gone. */
static int tell(int proc_fd, uint32_t pid, bool careful, struct mappings *m, reader_scan_fn *fn, void *arg)
{
	static char exe[EVENT_PATH_MAX];
	struct event_process p = { .pid = pid, .executable = exe };
	CLEANUP_FD int dir_fd = -1;
	char name[16], stat[1024], comm[EVENT_COMM_MAX + 2];
	ssize_t n;
	int err;

	/* One directory for all: the pid cannot become another process between two reads. */
	snprintf(name, sizeof(name), "%" PRIu32, pid);
	dir_fd = openat(proc_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return 0;
	if (read_small(dir_fd, "stat", stat, sizeof(stat)) <= 0 ||
	    !parse_stat(stat, &p.ppid, &p.kernel_thread))
		return 0;
	n = read_small(dir_fd, "comm", comm, sizeof(comm));
	if (n <= 0)
		return 0;
	if (comm[n - 1] == '\n')
		comm[n - 1] = 0;
	comm[EVENT_COMM_MAX] = 0;
	p.comm = comm;
	exe[0] = 0;
	mappings_reset(m);
	if (!p.kernel_thread && !careful) {
		n = readlinkat(dir_fd, "exe", exe, sizeof(exe) - 1);
		exe[MAX(n, (ssize_t)0)] = 0;
		err = read_maps(dir_fd, pid, m);
		if (err)
			return err;
	}
	if (m->is_full)
		log_warning("process has more mappings than are kept pid=%" PRIu32 " kept=%zu", pid, m->n);
	p.nmaps = (uint32_t)m->n;
	p.maps = m->v;
	return fn(arg, &p);
}

int reader_scan_run(const struct reader_scan *s, reader_scan_fn *fn, void *arg)
{
	CLEANUP(mappings_freep) struct mappings *m = calloc(1, sizeof(*m));
	DIR *proc = opendir("/proc");
	bool careful = s->careful;
	struct dirent *e;
	int err = 0;

	if (!m || !proc) {
		err = m ? -errno : -ENOMEM;
		if (proc)
			closedir(proc);
		return err;
	}
	while (!err && (e = readdir(proc))) {
		unsigned long pid = strtoul(e->d_name, NULL, 10); /* names that are none give 0 */

		if (!pid || pid > INT_MAX || pid <= s->after_pid)
			continue;
		err = tell(dirfd(proc), (uint32_t)pid, careful, m, fn, arg);
		careful = false;
	}
	closedir(proc);
	return err;
}
