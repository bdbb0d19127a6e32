#include "agent/queue.h"

#include <errno.h>
#include <string.h>

/* An event with its strings, in order of arrival where times are equal. */
struct waiting {
	struct event event;
	uint64_t order;
	char *text;
};

struct queue {
	struct waiting *events;
	size_t nevents, events_cap;
	struct sample **samples;
	size_t nsamples, samples_cap;
	size_t bytes;
	uint64_t order;
	bool events_sorted;
};

void sample_free(struct sample *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->nparts; i++)
		free(s->parts[i]);
	free(s);
}

int queue_new(struct queue **ret)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	*ret = q;
	return 0;
}

struct queue *queue_free(struct queue *q)
{
	if (!q)
		return NULL;
	for (size_t i = 0; i < q->nevents; i++)
		free(q->events[i].text);
	for (size_t i = 0; i < q->nsamples; i++)
		sample_free(q->samples[i]);
	free(q->events);
	free(q->samples);
	free(q);
	return NULL;
}

int queue_add_event(struct queue *q, const struct event *e)
{
	const char *text = e->type == EVENT_MAP ? e->map.path : e->type == EVENT_COMM ? e->comm.comm : NULL;
	CLEANUP_FREE char *copy = NULL;
	struct waiting *w;

	if (text) {
		copy = strdup(text);
		if (!copy)
			return -ENOMEM;
	}
	if (q->nevents == q->events_cap) {
		size_t cap = q->events_cap ? q->events_cap * 2 : 256;
		struct waiting *bigger = reallocarray(q->events, cap, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		q->events = bigger;
		q->events_cap = cap;
	}
	w = &q->events[q->nevents++];
	*w = (struct waiting){ .event = *e, .order = q->order++, .text = TAKE(copy) };
	if (e->type == EVENT_MAP)
		w->event.map.path = w->text;
	else if (e->type == EVENT_COMM)
		w->event.comm.comm = w->text;
	q->bytes += sizeof(*w) + (w->text ? strlen(w->text) + 1 : 0);
	q->events_sorted = false;
	return 0;
}

static struct sample *find_unfinished(struct queue *q, const struct abi_record *r)
{
	/* Parts follow each other closely: look from the newest. */
	for (size_t i = q->nsamples; i-- > 0;) {
		struct sample *s = q->samples[i];

		if (s->cpu == r->cpu && s->seq == r->seq)
			return s;
	}
	return NULL;
}

static int add_part(struct queue *q, struct sample *s, const struct abi_record *r)
{
	struct abi_record *copy;

	if (s->nparts == ABI_PARTS_MAX)
		return 1;
	copy = malloc(r->size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, r, r->size);
	s->parts[s->nparts++] = copy;
	s->bytes += r->size;
	q->bytes += r->size;
	return 0;
}

int queue_add_record(struct queue *q, const struct abi_record *r, size_t len)
{
	CLEANUP(sample_freep) struct sample *s = NULL;
	int err;

	if (len < sizeof(*r) || r->size < sizeof(*r) || r->size > len || r->kind != ABI_KIND_CPU)
		return 1;
	if (r->part > 0) {
		struct sample *first = find_unfinished(q, r);

		return first ? add_part(q, first, r) : 1;
	}
	if (q->nsamples == q->samples_cap) {
		size_t cap = q->samples_cap ? q->samples_cap * 2 : 64;
		struct sample **bigger = reallocarray(q->samples, cap, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		q->samples = bigger;
		q->samples_cap = cap;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->time_ns = r->time_ns;
	s->cpu = r->cpu;
	s->seq = r->seq;
	s->bytes = sizeof(*s);
	err = add_part(q, s, r);
	if (err)
		return err;
	q->bytes += sizeof(*s);
	q->samples[q->nsamples++] = TAKE(s);
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct waiting *x = a, *y = b;

	if (x->event.time_ns != y->event.time_ns)
		return x->event.time_ns < y->event.time_ns ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

static int samples_by_time(const void *a, const void *b)
{
	const struct sample *x = *(struct sample *const *)a, *y = *(struct sample *const *)b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	if (x->cpu != y->cpu)
		return x->cpu < y->cpu ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static bool whole(const struct sample *s)
{
	return s->parts[s->nparts - 1]->flags & ABI_F_LAST;
}

static int run_events(struct queue *q, size_t *at, uint64_t until_ns, const struct queue_ops *ops, void *arg)
{
	while (*at < q->nevents && q->events[*at].event.time_ns <= until_ns) {
		struct waiting *w = &q->events[(*at)++];
		int err = ops->event(arg, &w->event);

		q->bytes -= sizeof(*w) + (w->text ? strlen(w->text) + 1 : 0);
		free(TAKE(w->text));
		if (err)
			return err;
	}
	return 0;
}

int queue_run(struct queue *q, uint64_t until_ns, const struct queue_ops *ops, void *arg)
{
	size_t event = 0, kept = 0;
	int err = 0;

	if (!q->events_sorted && q->nevents)
		qsort(q->events, q->nevents, sizeof(*q->events), by_time);
	q->events_sorted = true;
	if (q->nsamples)
		qsort(q->samples, q->nsamples, sizeof(struct sample *), samples_by_time);
	for (size_t i = 0; i < q->nsamples; i++) {
		struct sample *s = q->samples[i];
		bool due = s->time_ns <= until_ns &&
			   (whole(s) || until_ns == UINT64_MAX || until_ns - s->time_ns > QUEUE_PART_WAIT_NS);

		if (due && !err)
			err = run_events(q, &event, s->time_ns, ops, arg);
		if (err || !due) {
			q->samples[kept++] = s;
			continue;
		}
		q->bytes -= s->bytes;
		err = ops->sample(arg, s);
	}
	q->nsamples = kept;
	if (!err)
		err = run_events(q, &event, until_ns, ops, arg);
	if (event) {
		memmove(q->events, q->events + event, (q->nevents - event) * sizeof(*q->events));
		q->nevents -= event;
	}
	return err;
}

uint64_t queue_oldest_ns(const struct queue *q)
{
	uint64_t oldest = UINT64_MAX;

	for (size_t i = 0; i < q->nsamples; i++)
		oldest = MIN(oldest, q->samples[i]->time_ns);
	return oldest;
}

size_t queue_bytes(const struct queue *q)
{
	return q->bytes;
}
