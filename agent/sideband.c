#include "agent/sideband.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>

#include "agent/cpulist.h"
#include "agent/perfring.h"
#include "agent/refusal.h"
#include "base/clock.h"
#include "base/log.h"

enum {
	RING_BYTES = 128 * 1024,
	CPUS_MAX = 8192,	/* the largest NR_CPUS that a kernel is built with */
	SAMPLE_ID = 24,		/* u32 pid, tid; u64 time; u32 cpu, reserved: ends each record */
	SAMPLE_ID_TIME = 16,	/* the time's distance from the record's end */
};

struct cpu {
	struct perfring ring;
	struct perfring wake;	/* closed without wake_on_exec */
	uint64_t time_ns;	/* of the next record; UINT64_MAX: none in this drain */
	uint16_t size;		/* and its length */
	uint64_t birth;		/* cpulist_birth() before its events were opened */
	bool is_online;
};

struct sideband {
	event_fn *fn;
	int (*code)(void *arg, const struct event_code *code);
	void *arg;
	size_t ring_bytes;
	int epoll_fd;
	int wake_fd;		/* -1: not wanted */
	bool wake_armed;
	uint64_t wake_rests_since_ns;
	bool is_running;	/* from the first sideband_check_cpus() on */
	struct log_limit open_limit;
	struct cpu *cpus;	/* by number */
	size_t ncpus;
	uint8_t bounce[PERFRING_RECORD_MAX];
};

/* ---- records --------------------------------------------------------------------------------- */

void sideband_attr(struct perf_event_attr *attr)
{
	attr->type = PERF_TYPE_SOFTWARE;
	attr->config = PERF_COUNT_SW_DUMMY;
	attr->size = sizeof(*attr);
	attr->sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
	attr->sample_id_all = 1;
	attr->use_clockid = 1;
	attr->clockid = CLOCK_MONOTONIC;
	attr->mmap = 1;
	attr->mmap2 = 1;
	attr->comm = 1;
	attr->comm_exec = 1;
	attr->task = 1;
	attr->watermark = 1;
}

static const char *take_str(struct bufr *in)
{
	size_t len = bufr_left(in);
	const char *p = bufr_bytes(in, len);

	if (!p || !len || !memchr(p, 0, len)) {
		bufr_fail(in);
		return NULL;
	}
	return p;
}

static void decode_map(struct bufr *in, struct event_map *ret)
{
	uint64_t len;

	ret->pid = bufr_u32(in);
	ret->tid = bufr_u32(in);
	ret->start = bufr_u64(in);
	len = bufr_u64(in);
	ret->offset = bufr_u64(in);
	/*
	 * Never a build ID in their place, whatever PERF_RECORD_MISC_MMAP_BUILD_ID says: we do not
	 * ask for it, and the bit is left over from the event of somebody who does.
	 */
	ret->key.dev_major = bufr_u32(in);
	ret->key.dev_minor = bufr_u32(in);
	ret->key.inode = bufr_u64(in);
	ret->key.generation = bufr_u64(in);
	ret->key.generation_known = true;
	(void)bufr_u32(in);	/* protection */
	(void)bufr_u32(in);	/* flags */
	ret->path = take_str(in);
	if (!len || __builtin_add_overflow(ret->start, len, &ret->end))
		bufr_fail(in);
}

static void decode_task(struct bufr *in, uint32_t *ret_pid, uint32_t *ret_ppid, uint32_t *ret_tid,
			uint32_t *ret_ptid)
{
	*ret_pid = bufr_u32(in);
	*ret_ppid = bufr_u32(in);
	*ret_tid = bufr_u32(in);
	*ret_ptid = bufr_u32(in);
}

/* 0 is a task outside our pid namespace, or idle; -1 one that is already gone. */
static bool is_pid(uint32_t pid)
{
	return pid > 0 && pid <= INT_MAX;
}

/* The part between header and sample id. */
static bool decode_body(const struct perf_event_header *h, struct bufr *in, struct event *e)
{
	uint32_t unused;

	switch (h->type) {
	case PERF_RECORD_MMAP2:
		e->type = EVENT_MAP;
		decode_map(in, &e->map);
		return is_pid(e->map.pid);
	case PERF_RECORD_COMM:
		e->type = EVENT_COMM;
		e->comm.pid = bufr_u32(in);
		e->comm.tid = bufr_u32(in);
		e->comm.exec = h->misc & PERF_RECORD_MISC_COMM_EXEC;
		e->comm.comm = take_str(in);
		return is_pid(e->comm.pid);
	case PERF_RECORD_FORK:
		e->type = EVENT_FORK;
		decode_task(in, &e->fork.pid, &e->fork.ppid, &e->fork.tid, &e->fork.ptid);
		return is_pid(e->fork.pid);
	case PERF_RECORD_EXIT:
		e->type = EVENT_EXIT;
		decode_task(in, &e->exit.pid, &unused, &e->exit.tid, &unused);
		return is_pid(e->exit.pid);
	case PERF_RECORD_LOST:
		e->type = EVENT_LOST;
		(void)bufr_u64(in);	/* the event's id */
		e->lost.count = bufr_u64(in);
		return true;
	default:
		return false;
	}
}

bool sideband_decode(const void *record, size_t len, struct event *ret)
{
	struct perf_event_header h;
	struct event e = {};
	struct bufr body, id;
	const uint8_t *p = record;
	bool used;

	if (len < sizeof(h))
		return false;
	memcpy(&h, p, sizeof(h));
	if (h.size > len || h.size < sizeof(h) + SAMPLE_ID)
		return false;
	bufr_init(&body, p + sizeof(h), h.size - sizeof(h) - SAMPLE_ID);
	bufr_init(&id, p + h.size - SAMPLE_ID, SAMPLE_ID);
	(void)bufr_u64(&id);	/* who wrote it */
	e.time_ns = bufr_u64(&id);
	used = decode_body(&h, &body, &e);
	if (!used || bufr_err(&body))
		return false;
	if (e.type == EVENT_LOST)
		e.lost.cpu = bufr_u32(&id);
	*ret = e;
	return true;
}

bool sideband_decode_code(const void *record, size_t len, struct event_code *ret)
{
	struct perf_event_header h;
	struct event_code code;
	struct bufr body;
	uint16_t flags;

	if (len < sizeof(h))
		return false;
	memcpy(&h, record, sizeof(h));
	if (h.type != PERF_RECORD_KSYMBOL || h.size > len || h.size < sizeof(h) + SAMPLE_ID)
		return false;
	bufr_init(&body, (const uint8_t *)record + sizeof(h), h.size - sizeof(h) - SAMPLE_ID);
	code.address = bufr_u64(&body);
	code.bytes = bufr_u32(&body);
	code.is_bpf = bufr_u16(&body) == PERF_RECORD_KSYMBOL_TYPE_BPF;
	flags = bufr_u16(&body);
	code.gone = flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER;
	code.name = take_str(&body);
	if (bufr_err(&body) || !code.bytes || code.address > UINT64_MAX - code.bytes)
		return false;
	*ret = code;
	return true;
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

static int open_wake(struct sideband *s, struct cpu *c, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(attr),
		.comm = 1,
		.comm_exec = 1,
		.watermark = 1,
		.wakeup_watermark = 1,	/* each record */
	};
	struct epoll_event ev = { .events = EPOLLIN };
	int err = perfring_open(&c->wake, &attr, -1, cpu, (size_t)sysconf(_SC_PAGESIZE));

	if (err)
		return err;
	if (!s->wake_armed && ioctl(c->wake.fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1)) /* Linux 4.7 */
		return -errno;
	return epoll_ctl(s->wake_fd, EPOLL_CTL_ADD, c->wake.fd, &ev) ? -errno : 0;
}

/* Closing the descriptors takes them out of the epoll sets. */
static void close_cpu(struct cpu *c)
{
	perfring_close(&c->ring);
	perfring_close(&c->wake);
}

static int open_cpu(struct sideband *s, int cpu)
{
	struct perf_event_attr attr = {};
	struct epoll_event ev = { .events = EPOLLIN };
	struct cpu *c = &s->cpus[cpu];
	int err;

	c->birth = cpulist_birth((uint32_t)cpu);
	sideband_attr(&attr);
	attr.ksymbol = s->code != NULL;
	attr.wakeup_watermark = (uint32_t)(s->ring_bytes / 4);
	err = perfring_open(&c->ring, &attr, -1, cpu, s->ring_bytes);
	if (!err && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->ring.fd, &ev))
		err = -errno;
	if (!err && s->wake_fd >= 0)
		err = open_wake(s, c, cpu);
	if (err)
		close_cpu(c);
	return err == -ENODEV ? 0 : err; /* it went offline since we read the list */
}

static int grow_cpus(struct sideband *s, size_t ncpus)
{
	struct cpu *p;

	if (ncpus <= s->ncpus)
		return 0;
	p = reallocarray(s->cpus, ncpus, sizeof(*p));
	if (!p)
		return -ENOMEM;
	s->cpus = p;
	for (; s->ncpus < ncpus; s->ncpus++)
		p[s->ncpus] = (struct cpu){ .ring = PERFRING_INIT, .wake = PERFRING_INIT };
	return 0;
}

/* Marks the CPUs of a list such as "0-3,8". */
static int mark_online(struct sideband *s, const char *list)
{
	for (size_t i = 0; i < s->ncpus; i++)
		s->cpus[i].is_online = false;
	while (*list) {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;
		int err;

		if (end == list)
			return -EBADMSG;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (first > last || last >= CPUS_MAX)
			return -EBADMSG;
		err = grow_cpus(s, last + 1);
		if (err)
			return err;
		for (; first <= last; first++)
			s->cpus[first].is_online = true;
		if (*end && *end != ',' && *end != '\n')
			return -EBADMSG;
		list = *end == ',' ? end + 1 : end + strspn(end, "\n");
	}
	return 0;
}

static int read_online(struct sideband *s)
{
	CLEANUP_FD int fd = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
	char list[4096];
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, list, sizeof(list) - 1);
	if (n < 0)
		return -errno;
	list[n] = 0;
	return mark_online(s, list);
}

/* Its events are dead even when the CPU is back; its last records are not. */
static int leave_cpu(struct sideband *s, struct cpu *c)
{
	int err = sideband_drain(s);

	close_cpu(c);
	return err;
}

/*
 * What happened on it before is lost, as many records as nobody knows: one is told, so that /proc is
 * read again. A CPU that cannot be had is no reason to end: the others go on.
 */
static int join_cpu(struct sideband *s, int cpu)
{
	struct event lost = { .type = EVENT_LOST, .time_ns = clock_mono_ns(), .lost = { .cpu = (uint32_t)cpu, .count = 1 } };
	int err = open_cpu(s, cpu);

	if (!s->is_running || err == -ENOMEM)
		return err;
	if (err) {
		log_limited(&s->open_limit, LOG_WARNING, "CPU came online but what starts there is not seen, a restart may help "
			    "cpu=%d why='%s'", cpu, refusal_perf(err, cpu));
		return 0;
	}
	return s->cpus[cpu].ring.fd < 0 ? 0 : s->fn(s->arg, &lost);
}

int sideband_check_cpus(struct sideband *s)
{
	int err = read_online(s);

	for (size_t i = 0; i < s->ncpus && !err; i++) {
		struct cpu *c = &s->cpus[i];

		if (c->ring.fd >= 0 && (!c->is_online || cpulist_birth((uint32_t)i) != c->birth))
			err = leave_cpu(s, c);
		if (!err && c->ring.fd < 0 && c->is_online)
			err = join_cpu(s, (int)i);
	}
	s->is_running = !err;
	return err;
}

/* ---- draining -------------------------------------------------------------------------------- */

/* Looks at the ring's next record. A ring that makes no sense is emptied and counted as a loss. */
static int look_ahead(struct sideband *s, struct cpu *c)
{
	struct perf_event_header h;
	struct event lost = { .type = EVENT_LOST, .time_ns = clock_mono_ns() };
	int r = perfring_peek(&c->ring, &h);

	if (r < 0) {
		log_error("side-band ring makes no sense cpu=%zu", (size_t)(c - s->cpus));
		perfring_discard(&c->ring);
		lost.lost.cpu = (uint32_t)(c - s->cpus);
		lost.lost.count = 1;
	}
	if (r <= 0) {
		c->time_ns = UINT64_MAX;
		return r ? s->fn(s->arg, &lost) : 0;
	}
	c->size = h.size;
	/* One without a time is not ours; it passes with the one before it. */
	if (h.size >= sizeof(h) + SAMPLE_ID) {
		uint64_t t = perfring_u64(&c->ring, (size_t)(h.size - SAMPLE_ID_TIME));

		/* A LOST record is stamped after the record that it was written in front of. */
		c->time_ns = MAX(t, c->time_ns);
	}
	return 0;
}

static int look_at_all(struct sideband *s)
{
	for (size_t i = 0; i < s->ncpus; i++) {
		struct cpu *c = &s->cpus[i];
		int err;

		c->time_ns = 0;
		if (c->ring.fd < 0 || !perfring_look(&c->ring)) {
			c->time_ns = UINT64_MAX;
			continue;
		}
		err = look_ahead(s, c);
		if (err)
			return err;
	}
	return 0;
}

static struct cpu *earliest(struct sideband *s)
{
	struct cpu *first = NULL;

	for (size_t i = 0; i < s->ncpus; i++) {
		struct cpu *c = &s->cpus[i];

		if (c->time_ns != UINT64_MAX && (!first || c->time_ns < first->time_ns))
			first = c;
	}
	return first;
}

static int hand_over(struct sideband *s, struct cpu *c)
{
	const void *record = perfring_record(&c->ring, c->size, s->bounce);
	struct event_code code;
	struct event e;
	int err = 0;

	if (s->code && sideband_decode_code(record, c->size, &code)) {
		err = s->code(s->arg, &code);
	} else if (sideband_decode(record, c->size, &e)) {
		e.time_ns = c->time_ns;
		err = s->fn(s->arg, &e);
	}
	perfring_next(&c->ring, c->size);
	return err ? err : look_ahead(s, c);
}

/* Pauses the wake-up events, or lets them go on; what they hold is of no interest. */
static int arm_wake(struct sideband *s, bool on)
{
	struct epoll_event ignored[16];
	int n;

	for (size_t i = 0; i < s->ncpus; i++) {
		struct perfring *r = &s->cpus[i].wake;

		if (r->fd < 0)
			continue;
		if (!on && ioctl(r->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1))
			return -errno;
		perfring_discard(r);
		if (on && ioctl(r->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 0))
			return -errno;
	}
	/* A perf event is ready for one poll; this one. */
	do {
		n = on ? 0 : epoll_wait(s->wake_fd, ignored, ARRAY_SIZE(ignored), 0);
	} while (n > 0);
	s->wake_armed = on;
	return 0;
}

static int rest_or_arm_wake(struct sideband *s, uint64_t now)
{
	bool fired = false;

	if (s->wake_fd < 0)
		return 0;
	if (!s->wake_armed)
		return now - s->wake_rests_since_ns < SIDEBAND_REST_NS ? 0 : arm_wake(s, true);
	for (size_t i = 0; i < s->ncpus && !fired; i++)
		fired = s->cpus[i].wake.fd >= 0 && perfring_look(&s->cpus[i].wake);
	if (!fired)
		return 0;
	s->wake_rests_since_ns = now;
	return arm_wake(s, false);
}

int sideband_drain(struct sideband *s)
{
	/*
	 * Rings are looked at one after the other. A record newer than this is left alone, so that
	 * none overtakes an older one that another CPU wrote after its turn.
	 */
	uint64_t until = clock_mono_ns();
	int err = look_at_all(s);
	struct cpu *c;

	while (!err && (c = earliest(s)) && c->time_ns <= until)
		err = hand_over(s, c);
	return err ? err : rest_or_arm_wake(s, until);
}

/* ---- life ------------------------------------------------------------------------------------ */

int sideband_new(struct sideband **ret, const struct sideband_conf *conf, event_fn *fn, void *arg,
		 const char **ret_why)
{
	CLEANUP(sideband_freep) struct sideband *s = calloc(1, sizeof(*s));
	int err = s ? 0 : -ENOMEM;

	if (s) {
		s->fn = fn;
		s->code = conf->code;
		s->arg = arg;
		s->ring_bytes = conf->ring_bytes ? conf->ring_bytes : RING_BYTES;
		s->open_limit = (struct log_limit){ .interval_ns = 3600 * NSEC_PER_SEC, .burst = 4 };
		s->wake_armed = true;
		s->wake_fd = -1;
		s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		if (conf->wake_on_exec)
			s->wake_fd = epoll_create1(EPOLL_CLOEXEC);
		if (s->epoll_fd < 0 || (conf->wake_on_exec && s->wake_fd < 0))
			err = -errno;
		else
			err = sideband_check_cpus(s);
	}
	if (err) {
		*ret_why = refusal_perf(err, -1);
		return err;
	}
	*ret = TAKE(s);
	return 0;
}

struct sideband *sideband_free(struct sideband *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->ncpus; i++)
		close_cpu(&s->cpus[i]);
	closep(&s->epoll_fd);
	closep(&s->wake_fd);
	free(s->cpus);
	free(s);
	return NULL;
}

int sideband_fd(const struct sideband *s)
{
	return s->epoll_fd;
}

int sideband_exec_fd(const struct sideband *s)
{
	return s->wake_fd;
}

size_t sideband_map_bytes(const struct sideband *s)
{
	size_t bytes = 0;

	for (size_t i = 0; i < s->ncpus; i++)
		bytes += perfring_bytes(&s->cpus[i].ring) + perfring_bytes(&s->cpus[i].wake);
	return bytes;
}
