#include "base/ipc.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif

const char ipc_build_id[] = FLAMED_BUILD_ID;

/* ---- messages -------------------------------------------------------------------------------- */

/* In front of each packet, in the byte order of this host. */
struct ipc_header {
	uint32_t type;
	uint32_t flags;
	uint64_t len; /* of the payload, wherever it is */
};

/* Which descriptors came along, in this order; any other bit is nonsense. */
enum { HAS_MEMFD = 1, HAS_FD = 2 };
enum { NFDS_MAX = 2 };
enum { PACKET_MAX = sizeof(struct ipc_header) + IPC_INLINE_MAX };
enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(NFDS_MAX * sizeof(int))];
};

void ipc_in_fini(struct ipc_in *in)
{
	if (in->map)
		munmap(in->map, in->map_len);
	free(in->buf);
	*in = (struct ipc_in){};
}

int ipc_memfd(const char *name, const void *data, size_t len, int *ret_fd)
{
	/* Since 6.3 a host can require memfds to say that they are not to be executed. */
	CLEANUP_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	int err;

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	err = io_write_all(fd, data, len);
	if (err)
		return err;
	if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL))
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static void put_fds(struct msghdr *msg, union control *control, const int *fds, size_t nfds)
{
	struct cmsghdr *c;

	if (!nfds)
		return;
	memset(control, 0, sizeof(*control));
	msg->msg_control = control->bytes;
	msg->msg_controllen = CMSG_SPACE(nfds * sizeof(int));
	c = CMSG_FIRSTHDR(msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
	memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
}

static int send_packet(int sock, const struct msghdr *msg)
{
	ssize_t n;

	do {
		n = sendmsg(sock, msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	switch (errno) {
	case EAGAIN:
	case ENOBUFS:
	case ETOOMANYREFS: /* descriptors in flight over RLIMIT_NOFILE: the peer has to catch up */
		return -EAGAIN;
	case EPIPE:
	case ECONNRESET:
		return -EPIPE;
	default:
		return -errno;
	}
}

int ipc_send(int sock, uint32_t type, const void *data, size_t len, int fd)
{
	struct ipc_header h = { .type = type, .len = len };
	struct iovec iov[2] = { { &h, sizeof(h) }, {} };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 1 };
	CLEANUP_FD int memfd = -1;
	union control control;
	int fds[NFDS_MAX];
	size_t nfds = 0;
	int err;

	if (len > IPC_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (len > IPC_INLINE_MAX) {
		err = ipc_memfd("flamed-message", data, len, &memfd);
		if (err)
			return err;
		h.flags |= HAS_MEMFD;
		fds[nfds++] = memfd;
	} else if (len > 0) {
		iov[1] = (struct iovec){ (void *)(uintptr_t)data, len };
		msg.msg_iovlen = 2;
	}
	if (fd >= 0) {
		h.flags |= HAS_FD;
		fds[nfds++] = fd;
	}
	put_fds(&msg, &control, fds, nfds);
	return send_packet(sock, &msg);
}

struct packet {
	struct ipc_header h;
	size_t len; /* of the bytes after the header */
	int fds[NFDS_MAX];
	size_t nfds;
};

static void packet_fini(struct packet *p)
{
	for (size_t i = 0; i < p->nfds; i++)
		closep(&p->fds[i]);
}

/* The kernel has installed these descriptors in our table, whatever else is wrong. */
static void take_fds(struct packet *p, struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		assert(n <= NFDS_MAX - p->nfds); /* the control buffer has no room for more */
		memcpy(p->fds + p->nfds, CMSG_DATA(c), n * sizeof(int));
		p->nfds += n;
	}
}

/* 1 and a packet whose descriptors are the ones that its flags announce; 0 at the end. */
static int recv_packet(int sock, uint8_t *buf, struct packet *ret)
{
	struct iovec iov = { buf, PACKET_MAX };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	size_t nfds;
	ssize_t n;

	/* A peer that ends with unread packets leaves ECONNRESET, once, before what it has sent. */
	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n < 0)
		return -errno;
	take_fds(ret, &msg);
	if (n == 0)
		return 0;
	/* Fewer than fit in the buffer means that our own table was full. */
	if (msg.msg_flags & MSG_CTRUNC)
		return ret->nfds < NFDS_MAX ? -EMFILE : -EBADMSG;
	if (msg.msg_flags & MSG_TRUNC || (size_t)n < sizeof(ret->h))
		return -EBADMSG;
	memcpy(&ret->h, buf, sizeof(ret->h));
	ret->len = (size_t)n - sizeof(ret->h);
	nfds = (ret->h.flags & HAS_MEMFD ? 1u : 0u) + (ret->h.flags & HAS_FD ? 1u : 0u);
	if (ret->h.flags & ~(uint32_t)(HAS_MEMFD | HAS_FD) || nfds != ret->nfds)
		return -EBADMSG;
	return 1;
}

/*
 * Maps a payload that nobody can change, shrink or make fault: sealed, of the size announced, and
 * on tmpfs, since a page of a sealed hugetlbfs file can be missing.
 */
static int map_payload(struct ipc_in *in, int memfd, uint64_t len)
{
	struct statfs fs;
	struct stat st;
	int seals = fcntl(memfd, F_GET_SEALS);
	void *map;

	if (seals < 0 || (seals & SEALS) != SEALS)
		return -EBADMSG;
	if (fstatfs(memfd, &fs) || fs.f_type != TMPFS_MAGIC)
		return -EBADMSG;
	if (fstat(memfd, &st) || st.st_size < 0 || (uint64_t)st.st_size != len)
		return -EBADMSG;
	if (len <= IPC_INLINE_MAX || len > IPC_PAYLOAD_MAX)
		return -EBADMSG;
	map = mmap(NULL, (size_t)len, PROT_READ, MAP_PRIVATE, memfd, 0);
	if (map == MAP_FAILED)
		return errno == ENOMEM ? -ENOMEM : -EBADMSG;
	in->map = map;
	in->map_len = (size_t)len;
	return 0;
}

int ipc_recv(int sock, struct ipc_in *in, struct ipc_msg *ret)
{
	CLEANUP(packet_fini) struct packet p = {};
	const uint8_t *data;
	int err;

	if (in->map)
		munmap(in->map, in->map_len);
	in->map = NULL;
	if (!in->buf)
		in->buf = malloc(PACKET_MAX);
	if (!in->buf)
		return -ENOMEM;

	err = recv_packet(sock, in->buf, &p);
	if (err <= 0)
		return err;
	if (p.h.flags & HAS_MEMFD) {
		err = p.len ? -EBADMSG : map_payload(in, p.fds[0], p.h.len);
		if (err)
			return err;
		data = in->map;
	} else {
		if (p.len != p.h.len)
			return -EBADMSG;
		data = in->buf + sizeof(p.h);
	}
	*ret = (struct ipc_msg){ .type = p.h.type, .data = data, .len = (size_t)p.h.len, .fd = -1 };
	if (p.h.flags & HAS_FD)
		ret->fd = TAKE_FD(p.fds[p.nfds - 1]);
	return 1;
}

void ipc_ignore_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		signal(signals[i], SIG_IGN); /* cannot fail for these */
}

int ipc_hello(void)
{
	int type = 0;
	socklen_t len = sizeof(type);

	if (getsockopt(IPC_FD, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_SEQPACKET) {
		log_error("this program is started by flamed and is of no use by hand");
		exit(EXIT_FAILURE);
	}
	return ipc_send(IPC_FD, IPC_HELLO, ipc_build_id, strlen(ipc_build_id), -1);
}

/* ---- children -------------------------------------------------------------------------------- */

/* What the child needs between fork and exec, where it may not allocate. */
struct spawn {
	const struct ipc_program *program;
	pid_t parent;
	int sock, null, report;
	char *argv[3];
	char *envp[4];
};

enum { EXE_FD = IPC_FD + 1, REPORT_FD, FIRST_CLOSED_FD, SAFE_FD = 16 };

static int move_up(int *fd)
{
	int up = fcntl(*fd, F_DUPFD_CLOEXEC, SAFE_FD);

	if (up < 0)
		return -errno;
	*fd = up;
	return 0;
}

/* 0 is /dev/null, 1 and 2 are the parent's, 3 the channel, all others are closed by exec. */
static int arrange_fds(struct spawn *s)
{
	int exe = s->program->exe_fd;

	/* First out of the way of the numbers that they will get. */
	if (move_up(&exe) || move_up(&s->sock) || move_up(&s->null) || move_up(&s->report))
		return -errno;
	if (dup2(s->null, STDIN_FILENO) < 0 || dup2(s->sock, IPC_FD) < 0 ||
	    dup3(exe, EXE_FD, O_CLOEXEC) < 0 || dup3(s->report, REPORT_FD, O_CLOEXEC) < 0)
		return -errno;
	s->report = REPORT_FD;
	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && dup2(s->null, fd) < 0)
			return -errno;
		if (fcntl(fd, F_SETFD, 0))
			return -errno;
	}
	if (syscall(SYS_close_range, FIRST_CLOSED_FD, ~0u, 0)) /* Linux 5.9 */
		return -errno;
	return 0;
}

static int reset_signals(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int signo = 1; signo <= SIGRTMAX; signo++)
		(void)sigaction(signo, &dfl, NULL); /* KILL, STOP and glibc's own two refuse */
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL) ? -errno : 0;
}

static bool has_cap(uint64_t caps, unsigned long cap)
{
	return cap < 64 && caps & (1ull << cap);
}

/* Leaves the child with `caps` and nothing else, and no way to gain more, across exec. */
static int limit_caps(uint64_t caps, uint64_t caps_if_held)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];
	const unsigned long noroot = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED;
	int ambient;

	if (syscall(SYS_capget, &h, d))
		return -errno;
	caps |= caps_if_held & (d[0].permitted | (uint64_t)d[1].permitted << 32);

	/* Exec would give uid 0 the whole bounding set; an agent that has left root has neither
	 * the need nor the right (CAP_SETPCAP) to say so. */
	if ((getuid() == 0 || geteuid() == 0) &&
	    (prctl(PR_GET_SECUREBITS) & (long)noroot) != (long)noroot &&
	    prctl(PR_SET_SECUREBITS, (unsigned long)prctl(PR_GET_SECUREBITS) | noroot))
		return -errno;
	for (unsigned long cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		if (!has_cap(caps, cap) && prctl(PR_CAPBSET_DROP, cap) && errno != EPERM)
			return -errno;
	}
	for (unsigned int i = 0; i < 2; i++) {
		uint32_t half = (uint32_t)(caps >> (32 * i));

		d[i] = (struct __user_cap_data_struct){ half, half, half };
	}
	if (syscall(SYS_capset, &h, d))
		return -errno;
	ambient = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (unsigned long cap = 0; !ambient && cap < 64; cap++) {
		if (has_cap(caps, cap))
			ambient = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
	}
	return ambient ? -errno : 0;
}

static int become_child(struct spawn *s)
{
	int err;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return -errno;
	if (getppid() != s->parent) /* it died before the line above */
		return -ESRCH;
	err = arrange_fds(s);
	if (err)
		return err;
	err = reset_signals();
	if (err)
		return err;
	err = limit_caps(s->program->caps, s->program->caps_if_held);
	if (err)
		return err;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	syscall(SYS_execveat, EXE_FD, "", s->argv, s->envp, AT_EMPTY_PATH);
	return -errno;
}

/* The child's end of the pipe closes at exec, or brings the reason why there was none. */
static int read_report(int fd)
{
	int err = 0;
	ssize_t n;

	do {
		n = read(fd, &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	return n == sizeof(err) && err < 0 ? err : 0;
}

static int fork_child(struct spawn *s, pid_t *ret_pid)
{
	sigset_t all, before;
	pid_t pid;
	int err;

	/* A handler of ours must not run in the child. */
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, &before))
		return -errno;
	pid = fork();
	err = pid < 0 ? -errno : 0;
	if (pid == 0) {
		err = become_child(s);
		(void)!write(s->report, &err, sizeof(err));
		_exit(127);
	}
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (!err)
		*ret_pid = pid;
	return err;
}

static void spawn_texts(struct spawn *s, char *stream_env, size_t size)
{
	const char *stream = getenv("JOURNAL_STREAM"); /* so that its log lines get priorities */
	size_t n = 0;

	s->argv[n++] = (char *)(uintptr_t)s->program->name;
	s->argv[n++] = (char *)(uintptr_t)s->program->arg;
	n = 0;
	s->envp[n++] = (char *)(uintptr_t) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	s->envp[n++] = (char *)(uintptr_t) "LANG=C";
	if (stream && (size_t)snprintf(stream_env, size, "JOURNAL_STREAM=%s", stream) < size)
		s->envp[n++] = stream_env;
}

static void spawn_fini(struct spawn *s)
{
	closep(&s->sock);
	closep(&s->null);
	closep(&s->report);
	s->sock = s->null = s->report = -1;
}

static void spawn_child_fini(struct ipc_child *c)
{
	(void)ipc_child_kill(c, NSEC_PER_SEC);
}

static int open_channels(struct spawn *s, int *ret_sock, int *ret_report)
{
	CLEANUP_FD int sock = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	sock = pair[0];
	s->sock = pair[1];
	if (fcntl(sock, F_SETFL, O_NONBLOCK)) /* this end only */
		return -errno;
	s->null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (s->null < 0)
		return -errno;
	if (pipe2(pair, O_CLOEXEC))
		return -errno;
	s->report = pair[1];
	*ret_report = pair[0];
	*ret_sock = TAKE_FD(sock);
	return 0;
}

int ipc_spawn(struct ipc_child *ret, const struct ipc_program *program)
{
	CLEANUP(spawn_child_fini) struct ipc_child c = IPC_CHILD_INIT;
	CLEANUP(spawn_fini) struct spawn s = {
		.program = program, .parent = getpid(), .sock = -1, .null = -1, .report = -1,
	};
	CLEANUP_FD int report = -1;
	char stream_env[128];
	int err;

	spawn_texts(&s, stream_env, sizeof(stream_env));
	err = open_channels(&s, &c.sock, &report);
	if (err)
		return err;
	err = fork_child(&s, &c.pid);
	if (err)
		return err;
	c.pidfd = (int)syscall(SYS_pidfd_open, c.pid, 0); /* Linux 5.3; close-on-exec */
	if (c.pidfd < 0)
		return -errno;
	spawn_fini(&s); /* the child's copies are now the only ones: their end is its end */
	err = read_report(report);
	if (err)
		return err;
	*ret = c;
	c = (struct ipc_child)IPC_CHILD_INIT;
	return 0;
}

/* 0 when reaped, -ETIMEDOUT when it is still alive then. */
static int reap(const struct ipc_child *c, uint64_t timeout_ns)
{
	uint64_t now = clock_mono_ns(), until = now + timeout_ns;
	struct pollfd p = { .fd = c->pidfd, .events = POLLIN };

	if (until < now)
		until = UINT64_MAX;
	for (;;) {
		pid_t pid = waitpid(c->pid, NULL, WNOHANG);

		if (pid == c->pid || (pid < 0 && errno == ECHILD))
			return 0;
		now = clock_mono_ns();
		if (now >= until)
			return -ETIMEDOUT;
		/* Bounded, so that a child without a pidfd is looked at again too. */
		(void)poll(&p, 1, (int)MIN((until - now) / NSEC_PER_MSEC + 1, (uint64_t)100));
	}
}

int ipc_child_kill(struct ipc_child *c, uint64_t timeout_ns)
{
	int err = 0;

	closep(&c->sock);
	if (c->pid > 0) {
		/* Not reaped yet, so the number cannot belong to another process. */
		(void)kill(c->pid, SIGKILL);
		err = reap(c, timeout_ns);
	}
	closep(&c->pidfd);
	*c = (struct ipc_child)IPC_CHILD_INIT;
	return err;
}
