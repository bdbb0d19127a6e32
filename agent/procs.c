#include "agent/procs.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/files.h"

enum { BUCKETS_MIN = 256, ANCESTORS_MAX = 64 };

/* How long a process that is older than we are may go on without its leader. */
#define LEADERLESS_KEEP_NS 60000000000ull
#define EXITED_KEEP_NS 1000000000ull

struct procs {
	struct proc **buckets;
	size_t nbuckets;	/* a power of two */
	size_t count;
	uint64_t next_subject;
	void (*on_end)(void *arg, struct proc *p);
	void *on_end_arg;
};

static struct subject *subject_new(struct procs *ps, uint32_t pid, const char *executable)
{
	struct subject *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->executable = strdup(executable);
	if (!s->executable) {
		free(s);
		return NULL;
	}
	s->refs = 1;
	s->pid = pid;
	s->keep_one_in = 1;
	s->id = ++ps->next_subject;
	return s;
}

struct subject *subject_ref(struct subject *s)
{
	s->refs++;
	return s;
}

void subject_unref(struct subject *s)
{
	if (!s)
		return;
	assert(s->refs > 0);
	if (--s->refs)
		return;
	if (s->jit)
		file_unref(s->jit);
	free(s->executable);
	free(s->labels);
	free(s);
}

int subject_set_labels(struct subject *s, uint32_t nlabels, const char *text, size_t len)
{
	char *copy = malloc(len + 1);

	if (!copy)
		return -ENOMEM;
	if (len)
		memcpy(copy, text, len);
	free(s->labels);
	s->labels = copy;
	s->labels_len = len;
	s->nlabels = nlabels;
	return 0;
}

struct proc *proc_ref(struct proc *p)
{
	p->refs++;
	return p;
}

void proc_unref(struct proc *p)
{
	if (!p)
		return;
	assert(p->refs > 0);
	if (--p->refs)
		return;
	maps_unref(p->maps);
	subject_unref(p->subject);
	free(p);
}
DEFINE_CLEANUP(struct proc *, proc_unref);

static size_t bucket_of(const struct procs *ps, uint32_t pid)
{
	return (size_t)(pid * 2654435761u) & (ps->nbuckets - 1);
}

static int grow(struct procs *ps)
{
	size_t nbuckets = ps->nbuckets * 2;
	struct proc **old = ps->buckets;
	size_t nold = ps->nbuckets;
	struct proc **buckets = calloc(nbuckets, sizeof(*buckets));

	if (!buckets)
		return -ENOMEM;
	ps->buckets = buckets;
	ps->nbuckets = nbuckets;
	for (size_t i = 0; i < nold; i++) {
		for (struct proc *p = old[i], *next; p; p = next) {
			size_t b = bucket_of(ps, p->pid);

			next = p->next;
			p->next = buckets[b];
			buckets[b] = p;
		}
	}
	free(old);
	return 0;
}

int procs_new(struct procs **ret)
{
	struct procs *ps = calloc(1, sizeof(*ps));

	if (!ps)
		return -ENOMEM;
	ps->nbuckets = BUCKETS_MIN;
	ps->buckets = calloc(ps->nbuckets, sizeof(struct proc *));
	if (!ps->buckets) {
		free(ps);
		return -ENOMEM;
	}
	*ret = ps;
	return 0;
}

struct procs *procs_free(struct procs *ps)
{
	if (!ps)
		return NULL;
	for (size_t i = 0; i < ps->nbuckets; i++) {
		for (struct proc *p = ps->buckets[i], *next; p; p = next) {
			next = p->next;
			proc_unref(p);
		}
	}
	free(ps->buckets);
	free(ps);
	return NULL;
}

struct proc *procs_find(const struct procs *ps, uint32_t pid)
{
	struct proc *p = ps->buckets[bucket_of(ps, pid)];

	while (p && p->pid != pid)
		p = p->next;
	return p;
}

static int add(struct procs *ps, uint32_t pid, uint32_t ppid, const char *executable, struct maps *maps,
	       uint64_t now_ns, struct proc **ret)
{
	CLEANUP(proc_unrefp) struct proc *p = calloc(1, sizeof(*p));
	size_t b;
	int err;

	if (!p)
		return -ENOMEM;
	p->refs = 1;
	p->pid = pid;
	p->ppid = ppid;
	p->since_ns = now_ns;
	p->filter = 1;
	p->subject = subject_new(ps, pid, executable);
	if (!p->subject)
		return -ENOMEM;
	if (maps) {
		p->maps = maps_ref(maps);
	} else {
		err = maps_new(&p->maps);
		if (err)
			return err;
	}
	if (ps->count >= ps->nbuckets && (err = grow(ps)))
		return err;
	b = bucket_of(ps, pid);
	p->next = ps->buckets[b];
	ps->buckets[b] = p;
	ps->count++;
	*ret = TAKE(p);
	return 0;
}

int procs_get(struct procs *ps, uint32_t pid, uint64_t now_ns, struct proc **ret)
{
	struct proc *p = procs_find(ps, pid);

	if (!p)
		return add(ps, pid, 0, "", NULL, now_ns, ret);
	*ret = p;
	return 0;
}

int procs_fork(struct procs *ps, uint32_t pid, uint32_t ppid, uint64_t now_ns)
{
	struct proc *parent = procs_find(ps, ppid);
	struct proc *child = procs_find(ps, pid);
	int err;

	/* The scan may have seen the child before its fork record was handled. */
	if (child && child->since_ns >= now_ns) {
		child->target |= parent && procs_target(ps, parent);
		return 0;
	}
	procs_exit(ps, pid);
	err = add(ps, pid, ppid, parent ? parent->subject->executable : "", parent ? parent->maps : NULL,
		  now_ns, &child);
	if (err)
		return err;
	child->nthreads = 1;
	child->threads_known = true;
	child->born = true;
	if (!parent)
		return 0;
	child->subject->image_pid = parent->subject->image_pid ? parent->subject->image_pid : ppid;
	child->known_whole = parent->known_whole;
	child->target = procs_target(ps, parent);
	return 0;
}

void procs_on_end(struct procs *ps, void (*fn)(void *arg, struct proc *p), void *arg)
{
	ps->on_end = fn;
	ps->on_end_arg = arg;
}

static void end(struct procs *ps, struct proc *p)
{
	if (ps->on_end)
		ps->on_end(ps->on_end_arg, p);
}

static void forget(struct procs *ps, struct proc **at)
{
	struct proc *p = *at;

	end(ps, p);
	*at = p->next;
	p->next = NULL;
	ps->count--;
	proc_unref(p);
}

int procs_exec_unseen(struct procs *ps, struct proc *p)
{
	struct subject *s = subject_new(ps, p->pid, "");

	if (!s)
		return -ENOMEM;
	end(ps, p);
	subject_unref(p->subject);
	p->subject = s;
	return 0;
}

int procs_exec(struct procs *ps, uint32_t pid, uint64_t now_ns)
{
	struct proc *p;
	int err;

	if ((err = procs_get(ps, pid, now_ns, &p)) || (err = procs_exec_unseen(ps, p)))
		return err;
	p->known_whole = true;
	p->nthreads = 1;
	p->threads_known = true;
	p->exited_ns = 0; /* a thread that calls exec ends the leader and takes its place */
	if (p->target_at_exec) {
		p->target_at_exec = false;
		p->target = true;
	}
	return maps_clear(&p->maps);
}

void procs_exit(struct procs *ps, uint32_t pid)
{
	struct proc **at = &ps->buckets[bucket_of(ps, pid)];

	while (*at && (*at)->pid != pid)
		at = &(*at)->next;
	if (*at)
		forget(ps, at);
}

void procs_thread_start(struct procs *ps, uint32_t pid)
{
	struct proc *p = procs_find(ps, pid);

	if (p && p->threads_known)
		p->nthreads++;
}

void procs_thread_exit(struct procs *ps, uint32_t pid, bool leader, uint64_t now_ns)
{
	struct proc *p = procs_find(ps, pid);

	if (!p)
		return;
	if (p->threads_known && p->nthreads > 1)
		p->nthreads--;
	else if (p->threads_known || leader)
		p->exited_ns = MAX(now_ns, (uint64_t)1);
}

void procs_doubt(struct proc *p)
{
	p->threads_known = false;
	p->exited_ns = 0;
}

static void sweep(struct procs *ps, bool (*gone)(const struct proc *p, uint64_t ns), uint64_t ns)
{
	for (size_t i = 0; i < ps->nbuckets; i++) {
		for (struct proc **at = &ps->buckets[i]; *at;) {
			if (gone(*at, ns))
				forget(ps, at);
			else
				at = &(*at)->next;
		}
	}
}

static bool gone_long(const struct proc *p, uint64_t now_ns)
{
	uint64_t keep_ns = p->threads_known ? EXITED_KEEP_NS : LEADERLESS_KEEP_NS;

	return p->exited_ns && now_ns > p->exited_ns && now_ns - p->exited_ns > keep_ns;
}

void procs_sweep_exited(struct procs *ps, uint64_t now_ns)
{
	sweep(ps, gone_long, now_ns);
}

static bool unscanned(const struct proc *p, uint64_t since_ns)
{
	return p->scan_ns < since_ns && p->since_ns < since_ns;
}

void procs_sweep_unscanned(struct procs *ps, uint64_t since_ns)
{
	sweep(ps, unscanned, since_ns);
}

int procs_set_executable(struct proc *p, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(p->subject->executable);
	p->subject->executable = copy;
	subject_relabel(p->subject);
	return 0;
}

void procs_set_kernel_thread(struct proc *p)
{
	p->subject->kernel_thread = true;
}

bool procs_target(const struct procs *ps, const struct proc *p)
{
	for (int i = 0; i < ANCESTORS_MAX && !p->target; i++) {
		const struct proc *parent = procs_find(ps, p->ppid);

		/* Of one whose birth we saw it was settled then. And a later process may have the
		 * pid of a parent that is gone. */
		if (p->born || !parent || (parent->born && parent->since_ns > p->since_ns))
			return false;
		p = parent;
	}
	return p->target;
}

int procs_each(struct procs *ps, int (*fn)(void *arg, struct proc *p), void *arg)
{
	int err = 0;

	for (size_t i = 0; i < ps->nbuckets && !err; i++) {
		for (struct proc *p = ps->buckets[i]; p && !err; p = p->next)
			err = fn(arg, p);
	}
	return err;
}

size_t procs_count(const struct procs *ps)
{
	return ps->count;
}

size_t procs_bytes(const struct procs *ps)
{
	size_t bytes = ps->nbuckets * sizeof(struct proc *);

	for (size_t i = 0; i < ps->nbuckets; i++) {
		for (const struct proc *p = ps->buckets[i]; p; p = p->next)
			bytes += sizeof(*p) + sizeof(*p->subject) + strlen(p->subject->executable) + 1 +
				 p->subject->labels_len + maps_bytes(p->maps);
	}
	return bytes;
}
