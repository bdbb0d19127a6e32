#include "base/loop.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

enum source_kind { SOURCE_FD, SOURCE_TIMER, SOURCE_SIGNAL };

struct loop_source {
	struct loop *loop;
	struct loop_source *next;
	enum source_kind kind;
	bool is_deleted; /* in the middle of a turn: freed at its end */

	int fd;              /* SOURCE_FD: borrowed; SOURCE_SIGNAL: ours */
	unsigned int events; /* watched */
	unsigned int ready;  /* in this turn */

	uint64_t interval_ns;
	uint64_t when_ns; /* 0 = disarmed */

	union {
		loop_fd_fn *on_fd;
		loop_timer_fn *on_timer;
		loop_signal_fn *on_signal;
	};
	void *arg;
};

struct loop {
	int epoll_fd;
	bool in_turn;
	bool has_deleted;
	struct loop_source *first, **last; /* in the order of loop_add() */
	struct epoll_event *ready;         /* room for every source: one wait sees them all */
	size_t nsources, ready_cap;
};

int loop_new(struct loop **ret)
{
	CLEANUP(loop_freep) struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->last = &l->first;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0)
		return -errno;
	*ret = TAKE(l);
	return 0;
}

static void source_free(struct loop_source *s)
{
	if (s->kind == SOURCE_SIGNAL)
		closep(&s->fd);
	free(s);
}

struct loop *loop_free(struct loop *l)
{
	struct loop_source *s, *next;

	if (!l)
		return NULL;
	assert(!l->in_turn);
	for (s = l->first; s; s = next) {
		next = s->next;
		source_free(s);
	}
	closep(&l->epoll_fd);
	free(l->ready);
	free(l);
	return NULL;
}

static int source_new(struct loop *l, enum source_kind kind, void *arg, struct loop_source **ret)
{
	struct loop_source *s;

	if (l->nsources == l->ready_cap) {
		size_t cap = MAX(l->ready_cap * 2, (size_t)16);
		struct epoll_event *p = reallocarray(l->ready, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		l->ready = p;
		l->ready_cap = cap;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->loop = l;
	s->kind = kind;
	s->fd = -1;
	s->arg = arg;
	*ret = s;
	return 0;
}

static struct loop_source *source_link(struct loop_source *s)
{
	struct loop *l = s->loop;

	*l->last = s;
	l->last = &s->next;
	l->nsources++;
	return s;
}

static int source_watch(struct loop_source *s, unsigned int events)
{
	struct epoll_event ev = {
		.events = (events & LOOP_IN ? EPOLLIN : 0u) | (events & LOOP_OUT ? EPOLLOUT : 0u),
		.data.ptr = s,
	};
	int op = EPOLL_CTL_MOD;

	/* A descriptor that is watched for nothing still reports a hang-up, for ever. */
	if (!events)
		op = EPOLL_CTL_DEL;
	else if (!s->events)
		op = EPOLL_CTL_ADD;
	if ((events || s->events) && epoll_ctl(s->loop->epoll_fd, op, s->fd, &ev))
		return -errno;
	s->events = events;
	return 0;
}

int loop_add(struct loop *l, struct loop_source **ret, int fd, unsigned int events, loop_fd_fn *fn,
	     void *arg)
{
	CLEANUP_FREE struct loop_source *s = NULL;
	int err = source_new(l, SOURCE_FD, arg, &s);

	if (err)
		return err;
	s->fd = fd;
	s->on_fd = fn;
	err = source_watch(s, events);
	if (err)
		return err;
	if (ret)
		*ret = s;
	source_link(TAKE(s));
	return 0;
}

int loop_modify(struct loop_source *s, unsigned int events)
{
	assert(s->kind == SOURCE_FD);
	if (events == s->events)
		return 0;
	s->ready &= events;
	return source_watch(s, events);
}

int loop_add_timer(struct loop *l, struct loop_source **ret, uint64_t interval_ns,
		   loop_timer_fn *fn, void *arg)
{
	struct loop_source *s;
	int err = source_new(l, SOURCE_TIMER, arg, &s);

	if (err)
		return err;
	s->on_timer = fn;
	s->interval_ns = interval_ns;
	s->when_ns = interval_ns ? clock_mono_ns() + interval_ns : 0;
	source_link(s);
	if (ret)
		*ret = s;
	return 0;
}

int loop_timer_at(struct loop_source *s, uint64_t when_ns)
{
	assert(s->kind == SOURCE_TIMER);
	s->interval_ns = 0;
	s->when_ns = when_ns;
	return 0;
}

int loop_add_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg)
{
	CLEANUP_FREE struct loop_source *s = NULL;
	CLEANUP_FD int fd = -1;
	sigset_t set;
	int err;

	if (sigemptyset(&set) || sigaddset(&set, signo))
		return -EINVAL;
	err = source_new(l, SOURCE_SIGNAL, arg, &s);
	if (err)
		return err;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	s->fd = fd;
	s->on_signal = fn;
	err = source_watch(s, LOOP_IN);
	if (err)
		return err;
	err = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (err)
		return -err;
	(void)TAKE_FD(fd);
	source_link(TAKE(s));
	return 0;
}

static void unlink_deleted(struct loop *l)
{
	struct loop_source **at = &l->first, *s;

	while ((s = *at)) {
		if (s->is_deleted) {
			*at = s->next;
			l->nsources--;
			source_free(s);
		} else {
			at = &s->next;
		}
	}
	l->last = at;
	l->has_deleted = false;
}

void loop_del(struct loop_source *s)
{
	struct loop *l;

	if (!s)
		return;
	l = s->loop;
	assert(!s->is_deleted);
	if (s->events)
		(void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	s->is_deleted = true;
	l->has_deleted = true;
	if (!l->in_turn)
		unlink_deleted(l);
}

/* Never wakes before a timer is due: rounded up, since epoll_wait() counts milliseconds (and
 * epoll_pwait2() needs Linux 5.11). */
static int wait_ms(const struct loop *l, uint64_t timeout_ns)
{
	uint64_t now = clock_mono_ns();
	uint64_t ms;

	for (const struct loop_source *s = l->first; s; s = s->next) {
		if (s->kind == SOURCE_TIMER && s->when_ns)
			timeout_ns = MIN(timeout_ns, s->when_ns > now ? s->when_ns - now : 0);
	}
	if (timeout_ns == UINT64_MAX)
		return -1;
	ms = timeout_ns / NSEC_PER_MSEC + (timeout_ns % NSEC_PER_MSEC != 0);
	return (int)MIN(ms, (uint64_t)INT_MAX);
}

static int dispatch_signal(struct loop_source *s)
{
	struct signalfd_siginfo info;
	ssize_t n = read(s->fd, &info, sizeof(info));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n != sizeof(info))
		return -EIO;
	return s->on_signal(s->arg, (int)info.ssi_signo);
}

static int dispatch_ready(struct loop *l)
{
	for (struct loop_source *s = l->first; s; s = s->next) {
		unsigned int ready = s->ready;
		int err;

		s->ready = 0;
		if (!ready || s->is_deleted)
			continue;
		err = s->kind == SOURCE_SIGNAL ? dispatch_signal(s) : s->on_fd(s->arg, ready);
		if (err)
			return err;
	}
	return 0;
}

static int dispatch_timers(struct loop *l)
{
	uint64_t now = clock_mono_ns();

	for (struct loop_source *s = l->first; s; s = s->next) {
		int err;

		if (s->kind != SOURCE_TIMER || s->is_deleted || !s->when_ns || s->when_ns > now)
			continue;
		if (!s->interval_ns)
			s->when_ns = 0;
		else if (now - s->when_ns < s->interval_ns)
			s->when_ns += s->interval_ns;
		else
			s->when_ns = now + s->interval_ns; /* late: no burst to catch up */
		err = s->on_timer(s->arg);
		if (err)
			return err;
	}
	return 0;
}

static int loop_turn(struct loop *l, uint64_t timeout_ns)
{
	int n = epoll_wait(l->epoll_fd, l->ready, (int)l->ready_cap,
			   wait_ms(l, timeout_ns));
	int err;

	if (n < 0 && errno != EINTR)
		return -errno;
	for (int i = 0; i < n; i++) {
		struct loop_source *s = l->ready[i].data.ptr;
		uint32_t got = l->ready[i].events;

		s->ready = (got & EPOLLIN ? LOOP_IN : 0u) | (got & EPOLLOUT ? LOOP_OUT : 0u);
		/* Whoever watches learns of the hang-up from the read or write. */
		if (got & (EPOLLERR | EPOLLHUP))
			s->ready = LOOP_IN | LOOP_OUT;
		s->ready &= s->events;
	}
	err = dispatch_ready(l);
	return err ? err : dispatch_timers(l);
}

int loop_once(struct loop *l, uint64_t timeout_ns)
{
	int err;

	assert(!l->in_turn);
	if (!l->ready) { /* nothing was ever added: epoll_wait() still wants a buffer */
		l->ready = calloc(1, sizeof(*l->ready));
		if (!l->ready)
			return -ENOMEM;
		l->ready_cap = 1;
	}
	l->in_turn = true;
	err = loop_turn(l, timeout_ns);
	/* What an ending turn leaves undone must not run in the next one. */
	for (struct loop_source *s = l->first; err && s; s = s->next)
		s->ready = 0;
	l->in_turn = false;
	if (l->has_deleted)
		unlink_deleted(l);
	return err;
}

int loop_run(struct loop *l)
{
	int err;

	do {
		err = loop_once(l, UINT64_MAX);
	} while (!err);
	return err == LOOP_STOP ? 0 : err;
}
