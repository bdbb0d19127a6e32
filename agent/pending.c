#include "agent/pending.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { BUCKETS = 1024 };

struct pending {
	struct announcement *buckets[BUCKETS];	/* by subject id, which count up */
	struct announcement *queue, **queue_end;
	size_t count, bytes;
};

int pending_new(struct pending **ret)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->queue_end = &p->queue;
	*ret = p;
	return 0;
}

void announcement_free(struct announcement *a)
{
	if (!a)
		return;
	subject_unref(a->subject);
	free(a);
}

struct pending *pending_free(struct pending *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct announcement *a = p->buckets[i], *next; a; a = next) {
			next = a->bucket_next;
			announcement_free(a);
		}
	}
	free(p);
	return NULL;
}

int pending_add(struct pending *p, struct subject *s, uint32_t number, const char *comm, uint64_t now_ns)
{
	struct announcement **bucket = &p->buckets[s->id % BUCKETS], *a;
	size_t bytes = sizeof(*a) + sizeof(*s) + strlen(s->executable) + 1 + s->labels_len;

	if (p->count == PENDING_MAX || bytes > PENDING_BYTES_MAX - p->bytes)
		return -ENOSPC;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->subject = subject_ref(s);
	a->number = number;
	a->since_ns = now_ns;
	a->bytes = bytes;
	memcpy(a->comm, comm, strnlen(comm, ABI_COMM_LEN));
	a->bucket_next = *bucket;
	*bucket = a;
	*p->queue_end = a;
	p->queue_end = &a->queue_next;
	p->count++;
	p->bytes += bytes;
	return 0;
}

/* No longer among those that are not made yet; at is where it hangs. */
static void dequeue(struct pending *p, struct announcement **at)
{
	struct announcement *a = *at;

	*at = a->queue_next;
	if (p->queue_end == &a->queue_next)
		p->queue_end = at;
	a->queue_next = NULL;
}

int pending_make(struct pending *p, int (*fn)(void *arg, const struct announcement *a), void *arg)
{
	for (struct announcement **at = &p->queue; *at;) {
		struct announcement *a = *at;
		int r = fn(arg, a);

		if (r < 0)
			return r;
		if (r == PENDING_LATER) {
			at = &a->queue_next;
			continue;
		}
		a->made = true;
		dequeue(p, at);
	}
	return 0;
}

/* Out of the table; at is where it hangs in its bucket. */
static struct announcement *unlink_at(struct pending *p, struct announcement **at)
{
	struct announcement *a = *at, **queued = &p->queue;

	*at = a->bucket_next;
	a->bucket_next = NULL;
	if (!a->made) {
		while (*queued != a)
			queued = &(*queued)->queue_next;
		dequeue(p, queued);
	}
	assert(p->count > 0);
	p->count--;
	p->bytes -= a->bytes;
	return a;
}

struct announcement *pending_take(struct pending *p, uint64_t subject_id)
{
	struct announcement **oldest = NULL;

	for (struct announcement **at = &p->buckets[subject_id % BUCKETS]; *at; at = &(*at)->bucket_next) {
		if ((*at)->subject->id == subject_id)
			oldest = at;
	}
	return oldest ? unlink_at(p, oldest) : NULL;
}

uint64_t pending_give_up(struct pending *p, uint64_t before_ns)
{
	uint64_t n = 0;

	/* In the order of the queue, so that taking each out of it is no search. */
	while (p->queue && p->queue->since_ns < before_ns) {
		p->queue->made = true;
		dequeue(p, &p->queue);
	}
	for (size_t i = 0; i < BUCKETS && p->count; i++) {
		for (struct announcement **at = &p->buckets[i]; *at;) {
			struct announcement *a = *at;

			if (a->since_ns >= before_ns) {
				at = &a->bucket_next;
				continue;
			}
			if (a->subject->announced == a->number)
				a->subject->announced = 0;
			announcement_free(unlink_at(p, at));
			n++;
		}
	}
	return n;
}

size_t pending_count(const struct pending *p)
{
	return p->count;
}

size_t pending_bytes(const struct pending *p)
{
	return sizeof(*p) + p->bytes;
}
