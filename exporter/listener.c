#include "exporter/listener.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/log.h"

enum { BACKLOG = 1024, ACCEPTED_MAX = 16 /* in a turn */, REQUEST_MAX = 16 * 1024 };
#define RETRY_NS (60 * NSEC_PER_SEC)
#define PAUSE_NS (500 * NSEC_PER_MSEC)

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un local;
};

struct listener {
	struct loop *loop;
	const char *name;
	const struct listener_ops *ops;
	void *arg;
	char *wanted; /* NULL: none, or a socket that was taken */
	bool is_taken, is_loopback;
	int listen_fd; /* -1 none */
	struct MHD_Daemon *daemon;
	struct connections connections;
	struct connection *joining; /* on its way to the server */
	uint64_t paused_until_ns;   /* nobody is accepted; 0 no */
	struct loop_source *accepting, *ready, *timeout, *retry;
	char address[sizeof(struct sockaddr_un)];
	char error[128];
};

/* ---- the server in our loop ----------------------------------------------------------------- */

/* When libmicrohttpd, a connection's time or a pause wants the next look. */
static int arm_timeout(struct listener *l)
{
	uint64_t now = clock_mono_ns(), next = connections_sweep(&l->connections, now);
	MHD_UNSIGNED_LONG_LONG ms;

	if (MHD_get_timeout(l->daemon, &ms) == MHD_YES)
		next = MIN(next, now + ms * NSEC_PER_MSEC);
	if (l->paused_until_ns)
		next = MIN(next, l->paused_until_ns);
	return loop_timer_at(l->timeout, next == UINT64_MAX ? 0 : next);
}

static void disarm(struct loop_source *timer)
{
	int err = loop_timer_at(timer, 0);

	assert(!err);
}

static int run(struct listener *l)
{
	static struct log_limit limit = LOG_LIMIT_INIT;

	if (MHD_run(l->daemon) == MHD_NO)
		log_limited(&limit, LOG_ERROR, "the HTTP server cannot go on listener=%s", l->name);
	return arm_timeout(l);
}

static int on_ready(void *arg, unsigned int events)
{
	(void)events;
	return run(arg);
}

static int on_timeout(void *arg)
{
	struct listener *l = arg;

	if (l->paused_until_ns && clock_mono_ns() >= l->paused_until_ns) {
		int err = loop_modify(l->accepting, LOOP_IN);

		if (err)
			return err;
		l->paused_until_ns = 0;
	}
	(void)connections_sweep(&l->connections, clock_mono_ns()); /* it sees their ends in this run */
	return run(l);
}

/* ---- connections ---------------------------------------------------------------------------- */

static struct connection *connection_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void on_connection(void *arg, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct listener *l = arg;

	(void)c;
	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = l->joining;
		l->joining = NULL;
	} else if (*context) {
		connections_del(*context);
		*context = NULL;
	}
}

/* Takes fd. */
static void join(struct listener *l, int fd, const struct sockaddr_storage *from, socklen_t len)
{
	l->joining = connections_add(&l->connections, fd, from, clock_mono_ns());
	if (!l->joining) {
		close(fd);
		return;
	}
	(void)MHD_add_connection(l->daemon, fd, (const struct sockaddr *)from, len);
	if (l->joining) /* it was refused, and is closed */
		connections_del(l->joining);
	l->joining = NULL;
}

static int pause_accepting(struct listener *l, uint64_t until_ns)
{
	l->paused_until_ns = until_ns;
	return loop_modify(l->accepting, 0);
}

/* Of accept(): short of descriptors or memory, or what happened to a connection that is gone. */
static int cannot_accept(struct listener *l, int err)
{
	static struct log_limit limit = LOG_LIMIT_INIT;

	if (err != EMFILE && err != ENFILE && err != ENOBUFS && err != ENOMEM)
		return 0;
	log_limited(&limit, LOG_WARNING,
		    "no connection can be accepted for now listener=%s error='%s'", l->name,
		    strerror(err));
	return pause_accepting(l, clock_mono_ns() + PAUSE_NS);
}

/* 1: there is nothing to accept. */
static int accept_one(struct listener *l)
{
	struct sockaddr_storage from = {};
	socklen_t len = sizeof(from);
	uint64_t when_ns;
	int fd;

	if (!connections_make_room(&l->connections, clock_mono_ns(), &when_ns))
		return pause_accepting(l, when_ns);
	fd = accept4(l->listen_fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return errno == EAGAIN ? 1 : cannot_accept(l, errno);
	join(l, fd, &from, len);
	return 0;
}

static int on_connect(void *arg, unsigned int events)
{
	struct listener *l = arg;
	int err = 0;

	(void)events;
	for (int i = 0; i < ACCEPTED_MAX && !err && !l->paused_until_ns; i++)
		err = accept_one(l);
	/* Who asked at once is answered before the next ones are let in. */
	return err < 0 ? err : run(l);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path,
				  const char *method, const char *version, const char *body,
				  size_t *body_len, void **state)
{
	struct connection *connection = connection_of(c);
	const union MHD_ConnectionInfo *info;
	struct listener *l = arg;
	enum MHD_Result result;

	(void)version;
	(void)body;
	*body_len = 0; /* nobody wants any */
	connection_enter(connection, CONNECTION_ANSWERING, clock_mono_ns());
	result = l->ops->request(l->arg, l, c, method, path, state);
	info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_SUSPENDED);
	if (info && info->suspended)
		connection_enter(connection, CONNECTION_WAITING, clock_mono_ns());
	return result;
}

static void on_done(void *arg, struct MHD_Connection *c, void **state,
		    enum MHD_RequestTerminationCode why)
{
	struct listener *l = arg;

	(void)c;
	(void)why;
	if (*state)
		l->ops->done(l->arg, *state);
	*state = NULL;
}

static PRINTF(2, 0) void on_log(void *arg, const char *fmt, va_list args)
{
	const struct listener *l = arg;
	char text[256];
	size_t len;

	vsnprintf(text, sizeof(text), fmt, args);
	len = strlen(text);
	if (len && text[len - 1] == '\n')
		text[--len] = '\0';
	log_debug("HTTP listener=%s message=%s", l->name, LOG_STR(text));
}

/* Takes fd also when it fails. Who is let in, and for how long, is ours to say: it does not listen. */
static int serve(struct listener *l, int fd)
{
	const union MHD_DaemonInfo *info;
	int err;

	l->listen_fd = fd;
	l->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
					     MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET,
				     0, NULL, NULL, on_request, l, MHD_OPTION_EXTERNAL_LOGGER,
				     on_log, l, MHD_OPTION_CONNECTION_LIMIT,
				     (unsigned int)CONNECTIONS_SLOTS,
				     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_MAX,
				     MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
				     on_connection, l, MHD_OPTION_NOTIFY_COMPLETED, on_done, l,
				     MHD_OPTION_END);
	if (!l->daemon)
		return errno ? -errno : -ENOMEM;
	info = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return -EINVAL;
	err = loop_add(l->loop, &l->ready, info->epoll_fd, LOOP_IN, on_ready, l);
	if (!err)
		err = loop_add(l->loop, &l->accepting, fd, LOOP_IN, on_connect, l);
	return err ? err : arm_timeout(l);
}

static void stop(struct listener *l)
{
	if (l->daemon)
		l->ops->closing(l->arg, l);
	loop_del(l->accepting);
	loop_del(l->ready);
	l->accepting = l->ready = NULL;
	l->paused_until_ns = 0;
	disarm(l->timeout);
	if (l->daemon)
		MHD_stop_daemon(l->daemon);
	l->daemon = NULL;
	closep(&l->listen_fd);
	l->listen_fd = -1;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static int parse_port(const char *text, in_port_t *ret)
{
	unsigned long port = 0;

	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '9' || c - text > 4)
			return -EINVAL;
		port = port * 10 + (unsigned long)(*c - '0');
	}
	if (!*text || port > UINT16_MAX)
		return -EINVAL;
	*ret = htons((uint16_t)port);
	return 0;
}

static int parse_address(const char *text, union address *ret, socklen_t *ret_len)
{
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2] = "";
	size_t len = colon ? (size_t)(colon - text) : sizeof(host);
	union address a = {};
	in_port_t port;

	if (len >= sizeof(host) || parse_port(colon + 1, &port))
		return -EINVAL;
	memcpy(host, text, len);
	if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
		memmove(host, host + 1, len - 2);
		host[len - 2] = '\0';
	} else if (!strcmp(host, "localhost")) {
		strcpy(host, "127.0.0.1");
	} else if (!len || !strcmp(host, "*")) {
		strcpy(host, "::");
	}
	if (inet_pton(AF_INET, host, &a.v4.sin_addr) == 1) {
		a.v4.sin_family = AF_INET;
		a.v4.sin_port = port;
		*ret_len = sizeof(a.v4);
	} else if (inet_pton(AF_INET6, host, &a.v6.sin6_addr) == 1) {
		a.v6.sin6_family = AF_INET6;
		a.v6.sin6_port = port;
		*ret_len = sizeof(a.v6);
	} else {
		return -EINVAL; /* a name would have to be asked for, and could block */
	}
	*ret = a;
	return 0;
}

static void format_address(const union address *a, char *ret, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "";

	if (a->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host));
		snprintf(ret, size, "%s:%u", host, ntohs(a->v4.sin_port));
	} else if (a->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host));
		snprintf(ret, size, "[%s]:%u", host, ntohs(a->v6.sin6_port));
	} else {
		snprintf(ret, size, "%.*s", (int)sizeof(a->local.sun_path), a->local.sun_path);
	}
}

static bool is_loopback(const union address *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
	return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static int bind_socket(const union address *a, socklen_t len, int *ret_fd)
{
	CLEANUP_FD int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1, off = 0;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
		return -errno;
	if (a->any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr) &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)))
		return -errno;
	if (bind(fd, &a->any, len) || listen(fd, BACKLOG))
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* The address as it was given by the kernel. */
static int serve_at_its_address(struct listener *l, int fd)
{
	union address a = {};
	socklen_t len = sizeof(a);

	if (getsockname(fd, &a.any, &len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	l->is_loopback = is_loopback(&a);
	format_address(&a, l->address, sizeof(l->address));
	return serve(l, fd);
}

static int open_wanted(struct listener *l)
{
	union address a;
	socklen_t len;
	int fd, err;

	err = parse_address(l->wanted, &a, &len);
	/* Without IPv6, "all" is all of IPv4. */
	if (!err)
		err = bind_socket(&a, len, &fd);
	if (err == -EAFNOSUPPORT && IN6_IS_ADDR_UNSPECIFIED(&a.v6.sin6_addr)) {
		a = (union address){ .v4 = { .sin_family = AF_INET, .sin_port = a.v6.sin6_port } };
		err = bind_socket(&a, sizeof(a.v4), &fd);
	}
	return err ? err : serve_at_its_address(l, fd);
}

/* ---- life ----------------------------------------------------------------------------------- */

static int try_to_open(struct listener *l)
{
	bool failed_before = l->error[0];
	const char *why;
	int err;

	disarm(l->retry);
	err = open_wanted(l);
	if (!err) {
		l->error[0] = '\0';
		if (failed_before)
			log_info("listening at last listener=%s address=%s", l->name, l->address);
		l->ops->opened(l->arg, l);
		return 0;
	}
	stop(l);
	snprintf(l->address, sizeof(l->address), "%s", l->wanted);
	why = err == -EINVAL ? "not an address and port" : strerror(-err);
	if (strcmp(l->error, why))
		log_error(
			"cannot listen on %s: %s; it is tried again every minute, and all else goes on: free "
			"that address, or set %s.listen to another",
			l->wanted, why, l->name);
	snprintf(l->error, sizeof(l->error), "%s", why);
	return loop_timer_at(l->retry, clock_mono_ns() + RETRY_NS);
}

static int on_retry(void *arg)
{
	return try_to_open(arg);
}

int listener_new(struct listener **ret, struct loop *loop, const char *name,
		 const struct listener_ops *ops, void *arg)
{
	CLEANUP(listener_freep) struct listener *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	l->loop = loop;
	l->listen_fd = -1;
	l->name = name;
	l->ops = ops;
	l->arg = arg;
	err = loop_add_timer(loop, &l->timeout, 0, on_timeout, l);
	if (!err)
		err = loop_add_timer(loop, &l->retry, 0, on_retry, l);
	if (err)
		return err;
	*ret = TAKE(l);
	return 0;
}

struct listener *listener_free(struct listener *l)
{
	if (!l)
		return NULL;
	stop(l);
	loop_del(l->timeout);
	loop_del(l->retry);
	free(l->wanted);
	free(l);
	return NULL;
}

int listener_move(struct listener *l, const char *address)
{
	char *copy = NULL;

	if (address && l->wanted && !strcmp(address, l->wanted))
		return 0;
	if (address) {
		copy = strdup(address);
		if (!copy)
			return -ENOMEM;
	}
	stop(l);
	free(l->wanted);
	l->wanted = copy;
	l->is_taken = false;
	l->address[0] = l->error[0] = '\0';
	return copy ? try_to_open(l) : loop_timer_at(l->retry, 0);
}

int listener_take(struct listener *l, int fd)
{
	int err;

	stop(l);
	free(l->wanted);
	l->wanted = NULL;
	if (fcntl(fd, F_SETFL, O_NONBLOCK)) {
		err = -errno;
		close(fd);
		return err;
	}
	err = serve_at_its_address(l, fd);
	l->is_taken = !err;
	if (err)
		stop(l);
	return err;
}

/* In external mode nothing of libmicrohttpd becomes readable for it. */
void listener_wake(struct listener *l)
{
	int err = loop_timer_at(l->timeout, clock_mono_ns());

	assert(!err);
}

bool listener_hold(struct listener *l, struct MHD_Connection *c, size_t bytes)
{
	return connections_hold(&l->connections, connection_of(c), bytes, clock_mono_ns());
}

/* ---- asking --------------------------------------------------------------------------------- */

const char *listener_name(const struct listener *l)
{
	return l->name;
}

bool listener_is_wanted(const struct listener *l)
{
	return l->wanted || l->is_taken;
}

bool listener_is_up(const struct listener *l)
{
	return l->daemon;
}

bool listener_is_loopback(const struct listener *l)
{
	return l->is_loopback;
}

const char *listener_address(const struct listener *l)
{
	return l->address;
}

const char *listener_error(const struct listener *l)
{
	return l->error;
}

uint64_t listener_nended(const struct listener *l, enum connection_end why)
{
	return l->connections.nended[why];
}
