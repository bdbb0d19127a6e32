#include "agent/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

/* How long a child may take to die before it is left behind (it hangs in the kernel). */
#define KILL_WAIT_NS (200 * NSEC_PER_MSEC)
/* A child that has not said its name by then hangs. */
#define GREETING_NS (10 * NSEC_PER_SEC)
#define BACKOFF_MIN_NS (20 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS (5 * NSEC_PER_SEC)
/* What could not be sent for want of memory or descriptors is tried again after so long. */
#define SEND_AGAIN_NS (100 * NSEC_PER_MSEC)
/* A child that lived this long starts the backoff anew. */
#define HEALTHY_NS (2 * NSEC_PER_SEC)

struct request {
	struct request *next, *prev;
	void *tag;
	uint32_t type;
	int fd;
	size_t len;
	uint8_t data[];
};

struct child {
	struct loop *loop;
	struct child_conf conf;
	struct ipc_child proc;
	struct ipc_in in;
	struct loop_source *source;
	struct loop_source *deadline;
	struct loop_source *respawn;
	struct loop_source *send_again;
	struct request *oldest, *newest;
	struct request *unsent;		/* first that this child has not been sent; NULL: all were */
	size_t nqueued, nsent;
	uint64_t started_ns;
	uint64_t backoff_ns;
	uint64_t oldest_since_ns, oldest_cpu_ns;	/* by our clock; by the child's CPU time */
	uint64_t delay_ns;		/* waited for a CPU by when its present deadline began */
	uint32_t patience;		/* deadlines of the oldest that have passed */
	uint64_t nrestarts, nlate;
	bool greeted;
	bool ours;			/* we end this one, whatever it looks like */
	struct log_limit ended_limit, patience_limit, scarce_limit;
};

static int child_event(void *arg, unsigned int events);
static int child_deadline(void *arg);
static int child_respawn(void *arg);

/* The host is short of something, which no request can help. */
static bool is_scarcity(int err)
{
	return err == -ENOMEM || err == -EMFILE || err == -ENFILE || err == -ENOSPC || err == -ENOBUFS;
}

static void say_scarce(struct child *c, const char *what, int err)
{
	log_limited(&c->scarce_limit, LOG_WARNING, "%s child=%s error='%s' (the host, or the unit or container of flamed, "
		    "is short of it)", what, c->conf.program.name, strerror(-err));
}

static void request_free(struct request *r)
{
	closep(&r->fd);
	free(r);
}

static uint64_t cpu_time_ns(const struct child *c)
{
	struct timespec t;
	clockid_t clock;

	if (c->proc.pid < 0 || clock_getcpuclockid(c->proc.pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static bool read_proc(const struct child *c, const char *name, char *ret, size_t size)
{
	CLEANUP_FD int fd = -1;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)c->proc.pid, name);
	fd = c->proc.pid < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, size - 1);
	ret[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* Source: Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat: the second of three. 0 unknown. */
static uint64_t run_delay_ns(const struct child *c)
{
	uint64_t delay = 0;
	char text[128];

	if (!read_proc(c, "schedstat", text, sizeof(text)) || sscanf(text, "%*u %" SCNu64, &delay) != 1)
		return 0;
	return delay;
}

/* Source: proc_pid_stat(5), the field behind the name in parentheses. 0 unknown. */
static char run_state(const struct child *c)
{
	char text[512];
	const char *at;

	if (!read_proc(c, "stat", text, sizeof(text)))
		return 0;
	at = strrchr(text, ')');
	return at && at[1] == ' ' ? at[2] : 0;
}

static void begin_oldest(struct child *c)
{
	c->oldest_since_ns = clock_mono_ns();
	c->oldest_cpu_ns = c->conf.cpu_ns ? cpu_time_ns(c) : 0;
	c->delay_ns = c->conf.cpu_ns ? run_delay_ns(c) : 0;
	c->patience = 0;
}

/* It wants to run and hardly came to: it waits for a CPU now, or did so for most of the deadline. */
static bool is_starved(const struct child *c)
{
	char state = run_state(c);

	if (state == 'R')
		return true;
	return state != 'T' && state != 't' && run_delay_ns(c) - c->delay_ns >= c->conf.deadline_ns / 2;
}

static bool deserves_patience(const struct child *c)
{
	return c->greeted && c->conf.cpu_ns && c->patience + 1 < CHILD_PATIENCE &&
	       cpu_time_ns(c) - c->oldest_cpu_ns < c->conf.cpu_ns && is_starved(c);
}

/* When this child is late; 0: nothing is expected of it. */
static uint64_t deadline(const struct child *c)
{
	if (c->proc.pid < 0)
		return 0;
	if (!c->greeted)
		return c->started_ns + GREETING_NS;
	return c->nsent ? c->oldest_since_ns + (c->patience + 1) * c->conf.deadline_ns : 0;
}

static void arm_deadline(struct child *c)
{
	if (loop_timer_at(c->deadline, deadline(c)))
		log_error("cannot arm a deadline child=%s", c->conf.program.name);
}

static int watch(struct child *c)
{
	bool want_out = c->unsent && c->nsent < c->conf.window && c->greeted;

	return loop_modify(c->source, LOOP_IN | (want_out ? LOOP_OUT : 0u));
}

static void drop_request(struct child *c, struct request *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		c->oldest = r->next;
	if (r->next)
		r->next->prev = r->prev;
	else
		c->newest = r->prev;
	if (c->unsent == r)
		c->unsent = r->next;
	c->nqueued--;
	request_free(r);
}

/* Sends what the window and the socket take. */
static int send_some(struct child *c)
{
	int err = 0;

	if (c->proc.pid < 0 || !c->greeted)
		return 0;
	while (c->unsent && c->nsent < c->conf.window) {
		struct request *r = c->unsent;

		if (c->conf.ops->obsolete && c->conf.ops->obsolete(c->conf.arg, r->tag)) {
			drop_request(c, r);
			continue;
		}
		err = ipc_send(c->proc.sock, r->type, r->data, r->len, r->fd);
		if (err)
			break;
		if (c->nsent++ == 0)
			begin_oldest(c);
		c->unsent = r->next;
	}
	arm_deadline(c);
	if (is_scarcity(err)) {
		say_scarce(c, "a request cannot be sent and is tried again", err);
		return loop_timer_at(c->send_again, clock_mono_ns() + SEND_AGAIN_NS);
	}
	if (err && err != -EAGAIN && err != -EPIPE)
		return err;
	return watch(c); /* a broken pipe shows as end of file in the next turn */
}

static int child_send_again(void *arg)
{
	return send_some(arg);
}

static int spawn(struct child *c)
{
	int err = ipc_spawn(&c->proc, &c->conf.program);

	if (err)
		return err;
	c->started_ns = clock_mono_ns();
	c->greeted = c->ours = false;
	err = loop_add(c->loop, &c->source, c->proc.sock, LOOP_IN, child_event, c);
	if (err)
		(void)ipc_child_kill(&c->proc, KILL_WAIT_NS);
	else
		arm_deadline(c);
	return err;
}

/* Why a child is buried: its channel ended; it is alive, but late, stopped by somebody, mad, or we cannot hear it. */
enum cause { ENDED, LATE, STOPPED, MAD, UNHEARD };

/* The end of the channel can be seen a moment before the process can be reaped. */
static void wait_for_end(const struct child *c)
{
	for (int i = 0; i < 100; i++) {
		siginfo_t info = { 0 };

		if (waitid(P_PID, (id_t)c->proc.pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
			break;
		usleep(1000);
	}
}

static const char *advice(const siginfo_t *info)
{
	if (info->si_code == CLD_EXITED)
		return "";
	if (info->si_status == SIGKILL)
		return " (somebody's kill, or the kernel's OOM killer: its log says so; then give flamed's unit "
		       "or container more memory)";
	if (info->si_status == SIGSYS)
		return " (its sandbox forbids a system call: the kernel's log says which)";
	return "";
}

/* What ended it, before anything of ours did. */
static enum child_trouble look_at_end(struct child *c)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, (id_t)c->proc.pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid != c->proc.pid)
		return CHILD_CRASHED;
	if (!c->ours)
		log_limited(&c->ended_limit, LOG_WARNING, "child ended child=%s %s=%d%s", c->conf.program.name,
			    info.si_code == CLD_EXITED ? "status" : "signal", info.si_status, advice(&info));
	return info.si_code == CLD_KILLED && info.si_status == SIGKILL ? CHILD_KILLED : CHILD_CRASHED;
}

static enum child_trouble reap(struct child *c, enum cause cause)
{
	enum child_trouble why = CHILD_CRASHED;

	if (cause == ENDED || cause == MAD)
		why = look_at_end(c);
	if (ipc_child_kill(&c->proc, KILL_WAIT_NS))
		log_warning("child hangs in the kernel and was left behind child=%s", c->conf.program.name);
	if (cause == LATE)
		return CHILD_LATE;
	return cause == STOPPED || cause == UNHEARD ? CHILD_KILLED : why;
}

static int bury(struct child *c, enum cause cause)
{
	bool was_serving = c->nsent > 0;
	enum child_trouble why;
	uint64_t now;

	loop_del(TAKE(c->source));
	if (cause == ENDED)
		wait_for_end(c);
	why = reap(c, cause);
	c->nrestarts++;
	c->nlate += cause == LATE || cause == STOPPED;
	c->nsent = 0;
	c->unsent = c->oldest;
	c->greeted = false;
	if (c->conf.ops->ended)
		c->conf.ops->ended(c->conf.arg, why);
	if (was_serving && !c->conf.ops->trouble(c->conf.arg, c->oldest->tag, why)) {
		drop_request(c, c->oldest);
	}
	arm_deadline(c);
	now = clock_mono_ns();
	if (now - c->started_ns > HEALTHY_NS)
		c->backoff_ns = 0;
	if (!c->backoff_ns) {
		c->backoff_ns = BACKOFF_MIN_NS;
		return child_respawn(c);
	}
	c->backoff_ns = MIN(c->backoff_ns * 2, BACKOFF_MAX_NS);
	return loop_timer_at(c->respawn, now + c->backoff_ns);
}

static int child_respawn(void *arg)
{
	struct child *c = arg;
	int err = spawn(c);

	if (!err)
		return 0;
	log_error("cannot start a child child=%s error='%s'", c->conf.program.name, strerror(-err));
	c->backoff_ns = MIN(MAX(c->backoff_ns, BACKOFF_MIN_NS) * 2, BACKOFF_MAX_NS);
	return loop_timer_at(c->respawn, clock_mono_ns() + c->backoff_ns);
}

static int child_deadline(void *arg)
{
	struct child *c = arg;
	uint64_t when = deadline(c);

	if (!when || clock_mono_ns() < when) {
		arm_deadline(c);
		return 0;
	}
	if (deserves_patience(c)) {
		if (!c->patience++)
			log_limited(&c->patience_limit, LOG_WARNING, "child is slow, for want of a CPU: it is waited for "
				    "child=%s (the host is overloaded, or the CPU limit of flamed's unit or container "
				    "too low)", c->conf.program.name);
		c->delay_ns = run_delay_ns(c);
		arm_deadline(c);
		return 0;
	}
	if (run_state(c) == 'T' || run_state(c) == 't') {
		log_limited(&c->ended_limit, LOG_WARNING, "child was stopped from outside and is replaced child=%s",
			    c->conf.program.name);
		return bury(c, STOPPED);
	}
	log_limited(&c->ended_limit, LOG_WARNING, "child is late and is replaced child=%s", c->conf.program.name);
	return bury(c, LATE);
}

static int greet(struct child *c, const struct ipc_msg *msg)
{
	if (msg->type != IPC_HELLO || msg->len != strlen(ipc_build_id) ||
	    memcmp(msg->data, ipc_build_id, msg->len) != 0) {
		log_error("child is of another build: install all programs of one version child=%s",
			  c->conf.program.name);
		return -EPROTO;
	}
	c->greeted = true;
	if (c->conf.ops->started)
		c->conf.ops->started(c->conf.arg);
	return send_some(c);
}

static int take_message(struct child *c, struct ipc_msg *msg)
{
	int r;

	if (c->conf.unasked_from && msg->type >= c->conf.unasked_from)
		return c->conf.ops->unasked ? c->conf.ops->unasked(c->conf.arg, msg) : -EBADMSG;
	if (!c->nsent)
		return -EBADMSG;
	r = c->conf.ops->answer(c->conf.arg, c->oldest->tag, msg);
	if (r < 0)
		return r;
	if (r == CHILD_ANSWERED) {
		c->nsent--;
		drop_request(c, c->oldest);
	}
	begin_oldest(c);
	return 0;
}

/* Enough messages in one turn; the loop's other sources want to be heard too. */
enum { MESSAGES_PER_TURN = 64 };

static int child_event(void *arg, unsigned int events UNUSED)
{
	struct child *c = arg;

	for (int i = 0; i < MESSAGES_PER_TURN; i++) {
		struct ipc_msg msg;
		int r = ipc_recv(c->proc.sock, &c->in, &msg);
		CLEANUP_FD int fd = -1;

		if (r == -EAGAIN)
			break;
		if (is_scarcity(r)) {
			say_scarce(c, "an answer cannot be taken, the child is replaced and asked again", r);
			return bury(c, UNHEARD);
		}
		if (r < 0)
			log_limited(&c->ended_limit, LOG_WARNING, "child sent no message of ours and is replaced child=%s",
				    c->conf.program.name);
		if (r <= 0)
			return bury(c, r == 0 ? ENDED : MAD);
		if (!c->greeted) {
			r = greet(c, &msg);
			fd = msg.fd;
			if (r)
				return r;
			continue;
		}
		r = take_message(c, &msg);
		fd = msg.fd; /* -1 when the owner took it */
		if (r && r != -EBADMSG)
			return r; /* the owner's own trouble */
		if (r) {
			log_warning("child sent nonsense and is replaced child=%s", c->conf.program.name);
			return bury(c, MAD);
		}
	}
	return send_some(c);
}

int child_new(struct child **ret, struct loop *loop, const struct child_conf *conf)
{
	CLEANUP(child_freep) struct child *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->loop = loop;
	c->conf = *conf;
	c->proc = (struct ipc_child)IPC_CHILD_INIT;
	c->ended_limit = c->patience_limit = c->scarce_limit = (struct log_limit)LOG_LIMIT_INIT;
	if ((err = loop_add_timer(loop, &c->deadline, 0, child_deadline, c)) ||
	    (err = loop_add_timer(loop, &c->respawn, 0, child_respawn, c)) ||
	    (err = loop_add_timer(loop, &c->send_again, 0, child_send_again, c)) || (err = spawn(c)))
		return err;
	*ret = TAKE(c);
	return 0;
}

struct child *child_free(struct child *c)
{
	if (!c)
		return NULL;
	loop_del(c->source);
	loop_del(c->deadline);
	loop_del(c->respawn);
	loop_del(c->send_again);
	if (c->proc.pid >= 0)
		(void)ipc_child_kill(&c->proc, KILL_WAIT_NS);
	while (c->oldest) {
		if (c->conf.ops->free_tag)
			c->conf.ops->free_tag(c->oldest->tag);
		drop_request(c, c->oldest);
	}
	ipc_in_fini(&c->in);
	free(c);
	return NULL;
}

int child_ask(struct child *c, uint32_t type, const void *data, size_t len, int fd, void *tag)
{
	struct request *r = len <= IPC_PAYLOAD_MAX ? malloc(sizeof(*r) + len) : NULL;
	int err;

	if (len > IPC_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (!r)
		return -ENOMEM;
	*r = (struct request){ .tag = tag, .type = type, .fd = -1, .len = len };
	if (len)
		memcpy(r->data, data, len);
	if (fd >= 0) {
		r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (r->fd < 0) {
			err = -errno;
			free(r);
			return err;
		}
	}
	r->prev = c->newest;
	if (c->newest)
		c->newest->next = r;
	else
		c->oldest = r;
	c->newest = r;
	c->nqueued++;
	if (!c->unsent)
		c->unsent = r;
	err = send_some(c);
	if (!err || !c->unsent)
		return 0;
	/* Something could not be sent, so the newest was not either. */
	drop_request(c, c->newest);
	return err;
}

int child_tell(struct child *c, uint32_t type, const void *data, size_t len, int fd)
{
	int err;

	if (c->proc.pid < 0 || !c->greeted)
		return -EPIPE;
	err = ipc_send(c->proc.sock, type, data, len, fd);
	return is_scarcity(err) ? -EAGAIN : err;
}

void child_kill(struct child *c)
{
	if (c->proc.pid < 0)
		return;
	c->ours = true;
	(void)kill(c->proc.pid, SIGKILL);
}

size_t child_pending(const struct child *c)
{
	return c->nqueued;
}

pid_t child_pid(const struct child *c)
{
	return c->proc.pid;
}

uint64_t child_restarts(const struct child *c)
{
	return c->nrestarts;
}

uint64_t child_late(const struct child *c)
{
	return c->nlate;
}
