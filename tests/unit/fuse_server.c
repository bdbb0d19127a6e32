#include "tests/unit/fuse_server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct server {
	int fd;
	enum fuse_server_trouble trouble;
	uint8_t content[256 * 1024];
	size_t size;
};

static void answer(struct server *s, const struct fuse_in_header *in, int error, const void *data, size_t len)
{
	static uint8_t out[sizeof(struct fuse_out_header) + 256 * 1024];
	struct fuse_out_header h = { .len = (uint32_t)(sizeof(h) + len), .error = error, .unique = in->unique };

	memcpy(out, &h, sizeof(h));
	if (len)
		memcpy(out + sizeof(h), data, len);
	if (write(s->fd, out, sizeof(h) + len) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attr_of(const struct server *s, uint64_t node)
{
	struct fuse_attr a = { .ino = node, .nlink = 1, .blksize = 4096 };

	a.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
	a.size = node == FUSE_ROOT_ID ? 0 : s->size;
	return a;
}

static void serve_lookup(struct server *s, const struct fuse_in_header *in, const char *name)
{
	struct fuse_entry_out e = { .nodeid = FUSE_SERVER_INODE, .entry_valid = 60, .attr_valid = 60 };

	if (strcmp(name, "file") != 0) {
		answer(s, in, -ENOENT, NULL, 0);
		return;
	}
	e.attr = attr_of(s, FUSE_SERVER_INODE);
	answer(s, in, 0, &e, sizeof(e));
}

static void serve_read(struct server *s, const struct fuse_in_header *in, const struct fuse_read_in *r)
{
	size_t off = MIN((size_t)r->offset, s->size);

	answer(s, in, 0, s->content + off, MIN((size_t)r->size, s->size - off));
}

static void serve(struct server *s, const struct fuse_in_header *in)
{
	const void *body = in + 1;
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096,
				      .max_readahead = 65536 };
	struct fuse_attr_out attr = { .attr_valid = 60, .attr = attr_of(s, in->nodeid) };
	struct fuse_open_out opened = { .fh = 1 };
	struct fuse_statfs_out statfs = { .st = { .bsize = 4096, .namelen = 255 } };

	switch (in->opcode) {
	case FUSE_INIT:
		answer(s, in, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		serve_lookup(s, in, body);
		break;
	case FUSE_GETATTR:
		answer(s, in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		if (s->trouble != FUSE_SERVER_HANGS_AT_OPEN)
			answer(s, in, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		serve_read(s, in, body);
		break;
	case FUSE_FLUSH:
		if (s->trouble != FUSE_SERVER_HANGS_AT_FLUSH)
			answer(s, in, 0, NULL, 0);
		break;
	case FUSE_STATFS:
		answer(s, in, 0, &statfs, sizeof(statfs));
		break;
	case FUSE_RELEASE:
		answer(s, in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(s, in, -ENOSYS, NULL, 0);
	}
}

static int mount_it(struct server *s, const char *dir, const char *content)
{
	char options[128];
	int fd = open(content, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, s->content, sizeof(s->content));

	if (n <= 0)
		return -1;
	s->size = (size_t)n;
	close(fd);
	s->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (s->fd < 0 || unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", s->fd);
	return mount("test", dir, "fuse", MS_NODEV | MS_NOSUID, options);
}

static void run(struct server *s, const char *dir, const char *content, int ready_fd)
{
	static _Alignas(8) uint8_t buf[256 * 1024];
	ssize_t n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount_it(s, dir, content) || write(ready_fd, "", 1) != 1)
		_exit(1);
	close(ready_fd);
	while ((n = read(s->fd, buf, sizeof(buf))) >= (ssize_t)sizeof(struct fuse_in_header) || errno == EINTR)
		serve(s, (const void *)buf);
	_exit(0);
}

/* The device number, from the server's mountinfo: "id parent major:minor root dir ..." */
static int find_device(struct fuse_server *s, const char *dir)
{
	char name[64], line[1024], at[512];
	FILE *f;
	int err = -ENOENT;

	snprintf(name, sizeof(name), "/proc/%d/mountinfo", s->pid);
	f = fopen(name, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		unsigned int major, minor;

		if (sscanf(line, "%*d %*d %u:%u %*s %511s", &major, &minor, at) == 3 && strcmp(at, dir) == 0) {
			s->dev_major = major;
			s->dev_minor = minor;
			err = 0;
		}
	}
	fclose(f);
	return err;
}

int fuse_server_start(struct fuse_server *ret, const char *dir, const char *content,
		      enum fuse_server_trouble trouble)
{
	static struct server server;
	struct fuse_server s = { .pid = -1 };
	int pair[2], err;
	char byte;

	server.trouble = trouble;
	if (pipe2(pair, O_CLOEXEC))
		return -errno;
	s.pid = fork();
	if (s.pid == 0)
		run(&server, dir, content, pair[1]);
	close(pair[1]);
	err = s.pid > 0 && read(pair[0], &byte, 1) == 1 ? find_device(&s, dir) : -ENOSYS;
	close(pair[0]);
	if (err) {
		fuse_server_stop(&s);
		return err;
	}
	*ret = s;
	return 0;
}

void fuse_server_stop(struct fuse_server *s)
{
	if (s->pid <= 0)
		return;
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = -1;
}
