#include "agent/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static const char lock_name[] = "flamed.lock";
static const char socket_name[] = "flamed.sock";
static const char token_name[] = "page.token";
static const char new_token_name[] = "page.token.new";

enum { BACKLOG = 16 };

static int PRINTF(3, 4) refuse(char **ret_why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (vasprintf(ret_why, fmt, args) < 0)
		*ret_why = NULL;
	va_end(args);
	return err;
}

/* Whoever may write to it can put their own lock, socket and token there. */
static int check_directory(int fd, const char *path, uid_t uid, gid_t gid, char **ret_why)
{
	struct stat st;

	if (fstat(fd, &st))
		return refuse(ret_why, -errno, "cannot look at %s: %s", path, strerror(errno));
	if (st.st_uid && st.st_uid != geteuid() && st.st_uid != uid)
		return refuse(ret_why, -EPERM, "%s belongs to another user (uid %u): chown it to root, or set "
			      "runtime_directory to a directory of its own", path, st.st_uid);
	if ((st.st_mode & 0020) && st.st_gid && st.st_gid != getegid() && st.st_gid != gid)
		return refuse(ret_why, -EPERM, "a group (gid %u) can write to %s: chmod g-w, or set runtime_directory "
			      "to a directory of its own", st.st_gid, path);
	/* An emptyDir of Kubernetes can be written to by everybody, too, but nobody else is in there. */
	if ((st.st_mode & 0002) && (st.st_uid != geteuid() || st.st_mode & S_ISVTX))
		return refuse(ret_why, -EPERM, "everybody can write to %s: set runtime_directory to a directory "
			      "of its own", path);
	return 0;
}

static int open_lock(int dir_fd, const char *path, int *ret, char **ret_why)
{
	CLEANUP_FD int fd = openat(dir_fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
	struct stat st;

	if (fd < 0)
		return refuse(ret_why, -errno, "cannot open %s/%s: %s; run as the user who owns it, or set "
			      "runtime_directory", path, lock_name, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return refuse(ret_why, -EINVAL, "%s/%s is no regular file: remove it", path, lock_name);
	/* We write to it. It has none when whoever ended has just removed it. */
	if (st.st_nlink > 1)
		return refuse(ret_why, -EMLINK, "%s/%s has another name: remove it", path, lock_name);
	/* Whoever can read it can lock it. */
	if (st.st_uid == geteuid() && fchmod(fd, 0600))
		return refuse(ret_why, -errno, "cannot change the mode of %s/%s: %s", path, lock_name, strerror(errno));
	*ret = TAKE_FD(fd);
	return 0;
}

static int open_directory(const char *path, int *ret, char **ret_why)
{
	bool is_new = mkdir(path, 0755) == 0;
	CLEANUP_FD int fd = -1;
	struct stat st;
	int err;

	if (!is_new && errno != EEXIST)
		return refuse(ret_why, -errno, "cannot make %s: %s; run as root, or set runtime_directory", path,
			      strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	err = fd < 0 ? -errno : 0;
	if (err && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		return refuse(ret_why, err, "%s is a symbolic link: set runtime_directory to the directory itself", path);
	if (err)
		return refuse(ret_why, err, "cannot open %s: %s; set runtime_directory to a directory of its own",
			      path, strerror(-err));
	/* Whatever the umask: clients of the socket have to get there. */
	if (is_new && fchmod(fd, 0755))
		return refuse(ret_why, -errno, "cannot change the mode of %s: %s", path, strerror(errno));
	*ret = TAKE_FD(fd);
	return 0;
}

int place_open(struct place *p, const char *path, uid_t uid, gid_t gid, char **ret_why)
{
	int err;

	*ret_why = NULL;
	err = open_directory(path, &p->dir_fd, ret_why);
	if (!err)
		err = check_directory(p->dir_fd, path, uid, gid, ret_why);
	return err ? err : open_lock(p->dir_fd, path, &p->lock_fd, ret_why);
}

static pid_t read_pid(int fd)
{
	char text[16] = "";
	long pid;

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	pid = strtol(text, NULL, 10);
	return pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

int place_lock(struct place *p, pid_t *ret_pid)
{
	char text[16];
	ssize_t written;
	int n;

	if (flock(p->lock_fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return -errno;
		*ret_pid = read_pid(p->lock_fd);
		return -EWOULDBLOCK;
	}
	n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(p->lock_fd, 0))
		return -errno;
	written = pwrite(p->lock_fd, text, (size_t)n, 0);
	if (written < 0)
		return -errno;
	return written == n ? 0 : -ENOSPC;
}

bool place_is_current(const struct place *p, const char *path)
{
	CLEANUP_FD int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat ours, named;

	return dir_fd >= 0 && fstat(p->lock_fd, &ours) == 0 &&
	       fstatat(dir_fd, lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_dev == named.st_dev &&
	       ours.st_ino == named.st_ino;
}

/* Of a group that we are not in we can give nothing away: then it stays ours. */
static bool gave(int r)
{
	return r == 0 || errno == EPERM;
}

static int settle_token(struct place *p, gid_t gid)
{
	uint8_t random[PLACE_TOKEN_LEN / 2];
	CLEANUP_FD int fd = -1;

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(p->token + 2 * i, 3, "%02x", random[i]);
	if (unlinkat(p->dir_fd, new_token_name, 0) && errno != ENOENT)
		return -errno;
	fd = openat(p->dir_fd, new_token_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || !gave(fchown(fd, (uid_t)-1, gid)) || fchmod(fd, 0640))
		return -errno;
	if (dprintf(fd, "%s\n", p->token) < 0 || renameat(p->dir_fd, new_token_name, p->dir_fd, token_name))
		return -errno;
	return 0;
}

/* Through /proc, since a path of the directory could be longer than a socket's address. */
static int settle_socket(struct place *p, gid_t gid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || (unlinkat(p->dir_fd, socket_name, 0) && errno != ENOENT))
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", p->dir_fd, socket_name);
	/* bind(2) makes the file with the socket's own mode, so it is never more open than this. */
	if (fchmod(fd, 0660) || bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    fchmodat(p->dir_fd, socket_name, 0660, 0) ||
	    !gave(fchownat(p->dir_fd, socket_name, (uid_t)-1, gid, AT_SYMLINK_NOFOLLOW)) || listen(fd, BACKLOG))
		return -errno;
	p->control_fd = TAKE_FD(fd);
	return 0;
}

int place_settle(struct place *p, gid_t gid, char **ret_why)
{
	int err = settle_token(p, gid);

	*ret_why = NULL;
	if (err)
		return refuse(ret_why, err, "cannot write %s in the runtime directory: %s", token_name,
			      strerror(-err));
	err = settle_socket(p, gid);
	if (err)
		return refuse(ret_why, err, "cannot make %s in the runtime directory: %s", socket_name,
			      strerror(-err));
	return 0;
}

void place_close(struct place *p)
{
	/* As far as we still may: a dead socket and an old token do no harm, the next daemon replaces them. */
	if (p->control_fd >= 0) {
		(void)unlinkat(p->dir_fd, socket_name, 0);
		(void)unlinkat(p->dir_fd, token_name, 0);
	}
	closep(&p->control_fd);
	closep(&p->lock_fd);
	closep(&p->dir_fd);
	*p = (struct place)PLACE_INIT;
}
