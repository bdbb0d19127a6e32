#include "agent/announce.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* A process may be moved, a control group renamed. */
#define CACHE_AGE_NS (60 * NSEC_PER_SEC)

/* A subject whose answer is under way, or that could not be told. */
struct pending {
	struct pending *next, *prev;
	struct announce *owner;
	uint64_t id, cgroup_id;
	uint32_t pid;
	char *cgroups;	/* NULL: the reader is asked */
	size_t bytes;
	const char *comm;	/* in `executable` */
	char executable[];
};

struct known {
	uint64_t cgroup_id, since_ns;
	char *text;
};

struct announce {
	announce_ask_fn *ask;
	struct readerclient *reader;
	announce_fn *fn;
	void *arg;
	struct pending *asked;
	struct pending *untold, *untold_last;	/* oldest first */
	size_t npending, pending_bytes;
	struct known known[ANNOUNCE_CACHE_MAX];	/* a ring */
	size_t oldest, nknown, known_bytes;
};

/* ---- what is known --------------------------------------------------------------------------- */

static void forget_oldest(struct announce *a)
{
	struct known *k = &a->known[a->oldest];

	a->known_bytes -= strlen(k->text) + 1;
	free(TAKE(k->text));
	a->oldest = (a->oldest + 1) % ANNOUNCE_CACHE_MAX;
	a->nknown--;
}

/* A newer entry stands behind an older one of the same control group. */
static const char *find_known(struct announce *a, uint64_t cgroup_id, uint64_t now_ns)
{
	while (a->nknown && now_ns > a->known[a->oldest].since_ns + CACHE_AGE_NS)
		forget_oldest(a);
	for (size_t i = a->nknown; i-- > 0;) {
		const struct known *k = &a->known[(a->oldest + i) % ANNOUNCE_CACHE_MAX];

		if (k->cgroup_id == cgroup_id)
			return k->text;
	}
	return NULL;
}

/* It is no harm when there is no memory for it. */
static void learn(struct announce *a, uint64_t cgroup_id, const char *text)
{
	uint64_t now_ns = clock_mono_ns();
	size_t bytes = strlen(text) + 1;
	char *copy;

	if (bytes > ANNOUNCE_CACHE_BYTES || find_known(a, cgroup_id, now_ns))
		return;
	copy = strdup(text);
	if (!copy)
		return;
	while (a->nknown == ANNOUNCE_CACHE_MAX || a->known_bytes + bytes > ANNOUNCE_CACHE_BYTES)
		forget_oldest(a);
	a->known[(a->oldest + a->nknown++) % ANNOUNCE_CACHE_MAX] =
		(struct known){ .cgroup_id = cgroup_id, .since_ns = now_ns, .text = copy };
	a->known_bytes += bytes;
}

/* ---- what is under way ----------------------------------------------------------------------- */

static struct pending *pending_new(struct announce *a, const struct pipeline_subject *s)
{
	size_t executable = strlen(s->executable) + 1, comm = strlen(s->comm) + 1;
	struct pending *p = malloc(sizeof(*p) + executable + comm);

	if (!p)
		return NULL;
	*p = (struct pending){ .owner = a, .id = s->id, .cgroup_id = s->cgroup_id, .pid = s->pid,
			       .bytes = sizeof(*p) + executable + comm, .next = a->asked };
	memcpy(p->executable, s->executable, executable);
	memcpy(p->executable + executable, s->comm, comm);
	p->comm = p->executable + executable;
	if (a->asked)
		a->asked->prev = p;
	a->asked = p;
	a->npending++;
	a->pending_bytes += p->bytes;
	return p;
}

static void take_out(struct announce *a, struct pending *p)
{
	if (p->next)
		p->next->prev = p->prev;
	else if (a->untold_last == p)
		a->untold_last = p->prev;
	if (p->prev)
		p->prev->next = p->next;
	else if (a->asked == p)
		a->asked = p->next;
	else
		a->untold = p->next;
	p->next = p->prev = NULL;
}

static void pending_free(struct announce *a, struct pending *p)
{
	take_out(a, p);
	a->npending--;
	a->pending_bytes -= p->bytes;
	free(p->cgroups);
	free(p);
}

static int tell(struct announce *a, const struct pending *p, const char *cgroups)
{
	return a->fn(a->arg, &(struct export_facts){ .id = p->id, .cgroup_id = p->cgroup_id, .pid = p->pid,
						     .executable = p->executable, .comm = p->comm,
						     .cgroups = cgroups });
}

static void keep_untold(struct announce *a, struct pending *p, const char *cgroups)
{
	size_t bytes = strlen(cgroups) + 1;

	if (a->pending_bytes + bytes <= ANNOUNCE_BYTES_MAX)
		p->cgroups = strdup(cgroups);
	if (!p->cgroups) {
		pending_free(a, p);
		return;
	}
	take_out(a, p);
	p->bytes += bytes;
	a->pending_bytes += bytes;
	p->prev = a->untold_last;
	if (a->untold_last)
		a->untold_last->next = p;
	else
		a->untold = p;
	a->untold_last = p;
}

static int on_text(void *arg, const char *text, bool is_of_cgroup)
{
	struct pending *p = arg;
	struct announce *a = p->owner;
	int err;

	if (is_of_cgroup && *text)
		learn(a, p->cgroup_id, text);
	err = tell(a, p, text);
	if (err != -ENOBUFS) {
		pending_free(a, p);
		return err;
	}
	keep_untold(a, p, text);
	return 0;
}

int announce_turn(struct announce *a)
{
	while (a->untold) {
		int err = tell(a, a->untold, a->untold->cgroups);

		if (err)
			return err == -ENOBUFS ? 0 : err;
		pending_free(a, a->untold);
	}
	return 0;
}

int announce_subject(struct announce *a, const struct pipeline_subject *s, uint64_t now_ns)
{
	const char *text = s->kernel_thread ? "" : find_known(a, s->cgroup_id, now_ns);
	struct reader_cgroups ask = { .pid = s->pid, .cgroup_id = s->cgroup_id };
	struct pending *p;
	int err;

	if (text)
		return a->fn(a->arg, &(struct export_facts){
				.id = s->id, .cgroup_id = s->cgroup_id, .pid = s->pid,
				.flags = s->kernel_thread ? EXPORT_SUBJECT_KERNEL : 0,
				.executable = s->executable, .comm = s->comm, .cgroups = text });
	if (a->npending >= ANNOUNCE_PENDING_MAX || a->pending_bytes >= ANNOUNCE_PENDING_BYTES)
		return -ENOBUFS;
	p = pending_new(a, s);
	if (!p)
		return -ENOMEM;
	err = a->ask(a->reader, &ask, on_text, p);
	if (err)
		pending_free(a, p);
	return err;
}

/* ---- life ------------------------------------------------------------------------------------ */

int announce_new(struct announce **ret, announce_ask_fn *ask, struct readerclient *reader, announce_fn *fn, void *arg)
{
	struct announce *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->ask = ask;
	a->reader = reader;
	a->fn = fn;
	a->arg = arg;
	*ret = a;
	return 0;
}

struct announce *announce_free(struct announce *a)
{
	if (!a)
		return NULL;
	while (a->asked)
		pending_free(a, a->asked);
	while (a->untold)
		pending_free(a, a->untold);
	while (a->nknown)
		forget_oldest(a);
	assert(a->npending == 0 && a->pending_bytes == 0 && a->known_bytes == 0);
	free(a);
	return NULL;
}

size_t announce_pending(const struct announce *a)
{
	return a->npending;
}

size_t announce_bytes(const struct announce *a)
{
	return sizeof(*a) + a->pending_bytes + a->known_bytes;
}
