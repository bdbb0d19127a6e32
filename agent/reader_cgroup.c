#include "agent/reader_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/log.h"

enum {
	FILEID_KERNFS = 0xfe,	/* include/linux/exportfs.h, Linux 5.5: a handle that is the node's id */
	READ_MAX = 64 * 1024,	/* of /proc/PID/cgroup: a line of at most a page for each hierarchy */
	PATH_BYTES = 4096 + 256,
};

/* One hierarchy: the directory `root` of it is to be seen at `point`. */
struct mount {
	char *point, *root;
};

struct reader_cgroup {
	struct mount mounts[ABI_CGROUP_HIERARCHIES];
	bool has_v1;	/* any hierarchy of v1 */
	char text[READ_MAX + 1];
};

/* ---- mounts ---------------------------------------------------------------------------------- */

/* mountinfo writes blank, tab, newline and backslash as three octal digits. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		    s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = 0;
}

static bool has_word(char *list, const char *word)
{
	for (char *w; (w = strsep(&list, ","));)
		if (strcmp(w, word) == 0)
			return true;
	return false;
}

/* The one that shows most of the hierarchy; the first of equals. */
static void keep_mount(struct mount *m, const char *root, const char *point)
{
	char *new_root, *new_point;

	if (m->root && strlen(root) >= strlen(m->root))
		return;
	new_root = strdup(root);
	new_point = strdup(point);
	if (!new_root || !new_point) {
		free(new_root);
		free(new_point);
		return;
	}
	free(m->root);
	free(m->point);
	m->root = new_root;
	m->point = new_point;
}

/* proc(5): id parent major:minor root point options [fields...] - type source options */
static void learn_mount(struct reader_cgroup *c, char *line)
{
	static const char *const controllers[] = { [ABI_CGROUP_MEMORY] = "memory", [ABI_CGROUP_PIDS] = "pids",
						   [ABI_CGROUP_CPU] = "cpu" };
	char *rest = strstr(line, " - "), *fields[5], *type, *root, *point;

	if (!rest)
		return;
	*rest = 0;
	rest += 3;
	rest[strcspn(rest, "\n")] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		fields[i] = strsep(&line, " ");
		if (!fields[i])
			return;
	}
	root = fields[3];
	point = fields[4];
	unescape(root);
	unescape(point);
	type = strsep(&rest, " ");
	(void)strsep(&rest, " ");
	if (strcmp(type, "cgroup2") == 0)
		keep_mount(&c->mounts[ABI_CGROUP_V2], root, point);
	if (strcmp(type, "cgroup") != 0 || !rest)
		return;
	c->has_v1 = true;
	for (size_t h = ABI_CGROUP_MEMORY; h < ABI_CGROUP_HIERARCHIES; h++) {
		CLEANUP_FREE char *options = strdup(rest);

		if (options && has_word(options, controllers[h]))
			keep_mount(&c->mounts[h], root, point);
	}
}

const char *reader_cgroup_mount(const struct reader_cgroup *c, enum abi_cgroup_hierarchy h, const char **ret_root)
{
	*ret_root = c->mounts[h].root;
	return c->mounts[h].point;
}

int reader_cgroup_new(struct reader_cgroup **ret, const char *mountinfo)
{
	CLEANUP(reader_cgroup_freep) struct reader_cgroup *c = calloc(1, sizeof(*c));
	CLEANUP_FREE char *line = NULL;
	FILE *f = fopen(mountinfo, "re");
	size_t cap = 0;

	if (!c) {
		if (f)
			fclose(f);
		return -ENOMEM;
	}
	if (!f)
		log_warning("mounts of control groups cannot be found error='%s'", strerror(errno));
	while (f && getline(&line, &cap, f) > 0)
		learn_mount(c, line);
	if (f)
		fclose(f);
	*ret = TAKE(c);
	return 0;
}

struct reader_cgroup *reader_cgroup_free(struct reader_cgroup *c)
{
	if (!c)
		return NULL;
	for (size_t h = 0; h < ARRAY_SIZE(c->mounts); h++) {
		free(c->mounts[h].root);
		free(c->mounts[h].point);
	}
	free(c);
	return NULL;
}

/* ---- by id ----------------------------------------------------------------------------------- */

static int open_mount(const struct mount *m, enum abi_cgroup_hierarchy h)
{
	CLEANUP_FD int fd = m->point ? open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	uint32_t magic = h == ABI_CGROUP_V2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC;
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) || (uint32_t)fs.f_type != magic)
		return -1;
	return TAKE_FD(fd);
}

static int open_by_id(int mount_fd, uint64_t id)
{
	union {
		struct file_handle handle;
		uint8_t bytes[sizeof(struct file_handle) + sizeof(id)];
	} h = { .handle = { .handle_bytes = sizeof(id), .handle_type = FILEID_KERNFS } };

	memcpy(h.bytes + offsetof(struct file_handle, f_handle), &id, sizeof(id));
	return open_by_handle_at(mount_fd, &h.handle, O_PATH | O_CLOEXEC);
}

/* What follows the directory `dir` in `path`; NULL when it is not below it. */
static const char *below(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	if (strncmp(path, dir, n) != 0 || (path[n] && path[n] != '/'))
		return NULL;
	return path + n;
}

/* Bytes written to `text`; 0 when there is no such control group, or we cannot see it. */
static size_t line_of_id(const struct reader_cgroup *c, uint64_t cgroup_id, char *text, size_t size)
{
	uint64_t h = cgroup_id >> ABI_CGROUP_SHIFT, id = cgroup_id & ((1ull << ABI_CGROUP_SHIFT) - 1);
	CLEANUP_FD int mount_fd = -1;
	CLEANUP_FD int fd = -1;
	char name[32], path[PATH_BYTES];
	const char *rest, *root;
	ssize_t n;
	int len;

	if (h >= ABI_CGROUP_HIERARCHIES || id <= 1) /* none, or the root */
		return 0;
	mount_fd = open_mount(&c->mounts[h], (enum abi_cgroup_hierarchy)h);
	fd = mount_fd < 0 ? -1 : open_by_id(mount_fd, id);
	if (fd < 0)
		return 0;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, path, sizeof(path) - 1);
	if (n <= 0)
		return 0;
	path[n] = 0;
	rest = below(path, c->mounts[h].point);
	if (!rest)
		return 0;
	root = strcmp(c->mounts[h].root, "/") == 0 ? "" : c->mounts[h].root;
	len = snprintf(text, size, "0::%s%s\n", root, *root || *rest ? rest : "/");
	return len < 0 || (size_t)len >= size ? 0 : (size_t)len;
}

/* ---- of a process ---------------------------------------------------------------------------- */

static size_t read_lines(uint32_t pid, char *text, size_t size)
{
	char name[64];
	size_t len = 0;
	ssize_t n = 0;
	CLEANUP_FD int fd = -1;

	snprintf(name, sizeof(name), "/proc/%" PRIu32 "/cgroup", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	while (len < size && (n = read(fd, text + len, size - len)) > 0)
		len += (size_t)n;
	return n < 0 ? 0 : len;
}

/*
 * Of v1 every zombie is in the root (kernel/cgroup/cgroup.c, proc_cgroup_show). A process that really is there
 * in all hierarchies is not sampled in any other.
 */
static bool is_in_roots_only(const char *text)
{
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
		const char *path = strchr(line, '/');

		if (path && path[1] != '\n' && path[1] != 0)
			return false;
		if (!strchr(line, '\n'))
			break;
	}
	return true;
}

/* The only line says "0::PATH", and that is the control group of this id: it may have moved meanwhile. */
static bool is_of_cgroup(const struct reader_cgroup *c, const char *text, size_t len, uint64_t cgroup_id)
{
	const struct mount *m = &c->mounts[ABI_CGROUP_V2];
	char path[PATH_BYTES * 2];
	const char *rest;
	struct stat st;

	if (c->has_v1 || !m->point || cgroup_id <= 1 || strncmp(text, "0::/", 4) != 0 ||
	    memchr(text, '\n', len) != text + len - 1)
		return false;
	rest = below(text + 3, m->root);
	if (!rest)
		return false;
	snprintf(path, sizeof(path), "%s%.*s", m->point, (int)strcspn(rest, "\n"), rest);
	return stat(path, &st) == 0 && st.st_ino == cgroup_id;
}

/* v2 comes last, and is the one that matters most. */
static void keep_last_lines(struct reader_text *t)
{
	const char *at;

	if (t->len <= READER_TEXT_MAX)
		return;
	at = t->text + t->len - READER_TEXT_MAX;
	at = at[-1] == '\n' ? at : strchr(at, '\n') + 1;
	t->len -= (size_t)(at - t->text);
	t->text = at;
}

void reader_cgroup_read(struct reader_cgroup *c, const struct reader_cgroups *asked, struct reader_text *ret)
{
	size_t len = read_lines(asked->pid, c->text, READ_MAX);
	char line[READER_TEXT_MAX];

	/* A NUL cannot be; what the kernel cut in the middle of a line is not kept. */
	while (len && c->text[len - 1] != '\n')
		len--;
	c->text[len] = 0;
	*ret = (struct reader_text){ .text = c->text, .len = len };
	if (asked->cgroup_id > 1 && is_in_roots_only(c->text)) {
		len = line_of_id(c, asked->cgroup_id, line, sizeof(line));
		if (len) {
			memcpy(c->text, line, len + 1);
			ret->len = len;
			ret->is_of_cgroup = !c->has_v1;
			return;
		}
	}
	if (ret->len)
		ret->is_of_cgroup = is_of_cgroup(c, ret->text, ret->len, asked->cgroup_id);
	keep_last_lines(ret);
}
