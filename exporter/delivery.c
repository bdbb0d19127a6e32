#include "exporter/delivery.h"

#include "base/clock.h"
#include "base/log.h"
#include "exporter/directory.h"
#include "exporter/push.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Parts of one batch: a series is at least one sample, so this is no limit but against nonsense. */
enum { PARTS_MAX = 1024 * 1024 };

/* A batch whose parts do not all have their fates. */
struct batch {
	struct batch *next;
	uint64_t id;
	uint64_t nsamples, bytes;
	size_t npending;
	bool is_open; /* parts are still given to sinks */
};

struct parts {
	struct profile **v;
	size_t n, cap;
};

struct delivery {
	struct loop *loop;
	struct http *http;
	const struct delivery_ops *ops;
	void *arg;

	const struct config *config; /* borrowed, as the next */
	const struct export_config *more;
	struct push *endpoints[CONFIG_SINKS_MAX];
	size_t nendpoints;
	struct directory *directory;

	struct batch *batches;
};

/* ---- fates ----------------------------------------------------------------------------------- */

static struct batch **batch_at(struct delivery *d, uint64_t id)
{
	struct batch **at = &d->batches;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static void close_if_over(struct delivery *d, struct batch **at)
{
	struct batch *b = *at;
	struct export_done done = {
		.id = b->id, .result = EXPORT_WRITTEN, .nsamples = b->nsamples, .bytes = b->bytes
	};

	if (b->is_open || b->npending)
		return;
	*at = b->next;
	free(b);
	d->ops->done(d->arg, &done);
}

static void on_fate(void *arg, const char *sink, const struct profile *p,
		    enum export_fate_kind kind)
{
	struct delivery *d = arg;
	struct batch **at = batch_at(d, p->batch);
	struct export_fate fate = {
		.batch = p->batch,
		.part = profile_part_at(p, sink),
		.kind = kind,
		.nsamples = p->nsamples,
		.sink = sink,
	};

	assert(*at);
	d->ops->fate(d->arg, &fate);
	if (!export_fate_is_final(kind))
		return;
	assert((*at)->npending);
	(*at)->npending--;
	close_if_over(d, at);
}

/* ---- a batch --------------------------------------------------------------------------------- */

static void parts_fini(struct parts *p)
{
	for (size_t i = 0; i < p->n; i++)
		profile_unref(p->v[i]);
	free(p->v);
}

static int keep_part(void *arg, struct profile *p)
{
	struct parts *parts = arg;

	if (parts->n == parts->cap) {
		size_t cap = MAX(parts->cap * 2, (size_t)32);
		struct profile **v =
			parts->n < PARTS_MAX ? reallocarray(parts->v, cap, sizeof(*v)) : NULL;

		if (!v)
			return -ENOMEM;
		parts->v = v;
		parts->cap = cap;
	}
	parts->v[parts->n++] = profile_ref(p);
	return 0;
}

static int split(const struct delivery *d, const struct export_batch *b, bool sample_labels,
		 struct parts *ret)
{
	const struct profiles_conf conf = {
		.config = d->config,
		.hostname = d->more->hostname,
		.sample_labels = sample_labels,
	};

	return profiles_make(b, &conf, keep_part, ret);
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool is_settled(const struct export_settled *s, const struct profile *p, const char *sink)
{
	uint64_t id = profile_part_at(p, sink);

	return s->n && bsearch(&id, s->ids, s->n, sizeof(*s->ids), by_id);
}

static size_t count_settled(const struct export_settled *s, const struct parts *parts,
			    const char *sink)
{
	size_t n = 0;

	for (size_t i = 0; i < parts->n; i++)
		n += is_settled(s, parts->v[i], sink);
	return n;
}

/*
 * Else its samples are in other parts than before (settings of labels that were changed, or another
 * choice of names), and some would be sent twice.
 */
static bool is_split_as_before(const struct delivery *d, const struct parts *pushed,
			       const struct parts *saved, const struct export_settled *s)
{
	size_t n = d->directory ? count_settled(s, saved, directory_name(d->directory)) : 0;

	for (size_t i = 0; i < d->nendpoints; i++)
		n += count_settled(s, pushed, push_name(d->endpoints[i]));
	return n == s->n;
}

static void add_to_endpoint(struct delivery *d, struct push *to, struct batch *b,
			    const struct parts *parts, const struct export_settled *s)
{
	for (size_t i = 0; i < parts->n; i++) {
		if (is_settled(s, parts->v[i], push_name(to)))
			continue;
		b->npending++;
		b->bytes += parts->v[i]->len;
		/* Without memory for its place in the queue. */
		if (push_add(to, parts->v[i]))
			on_fate(d, push_name(to), parts->v[i], EXPORT_FATE_QUEUE_FULL);
	}
}

static void add_to_directory(struct directory *to, struct batch *b, const struct parts *parts,
			     const struct export_settled *s)
{
	for (size_t i = 0; i < parts->n; i++) {
		if (is_settled(s, parts->v[i], directory_name(to)))
			continue;
		b->npending++;
		b->bytes += parts->v[i]->len;
		directory_add(to, parts->v[i]);
	}
	directory_sync(to);
}

/*
 * One that is named but could not be opened has to account for its samples too: it fails to write
 * them. One that is named no more accounts for nothing.
 */
static int agree_on_directory(struct delivery *d)
{
	if (!*d->config->output.directory)
		d->directory = directory_free(d->directory);
	else if (!d->directory)
		return delivery_directory(d, -1);
	return 0;
}

static void give_to_sinks(struct delivery *d, struct batch *b, const struct parts *pushed,
			  const struct parts *saved, const struct export_settled *s)
{
	if (!is_split_as_before(d, pushed, saved, s)) {
		log_warning("a window that was sent in part is not sent on: its labels or sinks have changed "
			    "since batch=%llu", (unsigned long long)b->id);
		return;
	}
	for (size_t i = 0; i < d->nendpoints; i++)
		add_to_endpoint(d, d->endpoints[i], b, pushed, s);
	if (d->directory)
		add_to_directory(d->directory, b, saved, s);
}

int delivery_batch(struct delivery *d, const struct export_batch *b, const struct export_settled *s)
{
	CLEANUP(parts_fini) struct parts pushed = {}, saved = {};
	struct batch *batch;
	int err;

	if (*batch_at(d, b->id))
		return -EBADMSG;
	err = agree_on_directory(d);
	if (!err && d->nendpoints)
		err = split(d, b, false, &pushed);
	if (!err && d->directory)
		err = split(d, b, true, &saved);
	if (err)
		return err;
	batch = calloc(1, sizeof(*batch));
	if (!batch)
		return -ENOMEM;
	*batch = (struct batch){
		.next = d->batches, .id = b->id, .nsamples = export_batch_count(b), .is_open = true
	};
	d->batches = batch;
	if (s->n)
		qsort(s->ids, s->n, sizeof(*s->ids), by_id);
	d->ops->taken(d->arg, &(struct export_taken){ .id = b->id, .nsamples = batch->nsamples });
	give_to_sinks(d, batch, &pushed, &saved, s);
	batch->is_open = false;
	close_if_over(d, batch_at(d, b->id));
	return 0;
}

void delivery_flush(struct delivery *d)
{
	for (size_t i = 0; i < d->nendpoints; i++)
		push_flush(d->endpoints[i]);
}

/* ---- sinks ----------------------------------------------------------------------------------- */

static struct push *take_endpoint(struct push **from, size_t n, const char *name, const char *url)
{
	for (size_t i = 0; i < n; i++) {
		if (from[i] && !strcmp(push_name(from[i]), name) && !strcmp(push_url(from[i]), url))
			return TAKE(from[i]);
	}
	return NULL;
}

static int configure_endpoint(struct delivery *d, struct push **old, size_t nold, const char *name,
			      size_t index)
{
	const struct config_endpoint *e = config_endpoint(d->config, index);
	const struct push_conf conf = {
		.name = name,
		.endpoint = e,
		.queue_max_bytes = d->config->queue_max_bytes,
		/* So that one window is gone before the next one comes. */
		.spread_ns = d->config->window_ns - d->config->window_ns / 8,
		.version = d->more->version,
	};
	struct push *p = take_endpoint(old, nold, name, e->url);

	d->endpoints[index] = p;
	if (p)
		return push_configure(p, &conf);
	return push_new(&d->endpoints[index], d->loop, d->http, &conf, on_fate, d);
}

int delivery_configure(struct delivery *d, const struct config *c, const struct export_config *more)
{
	char names[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX];
	struct push *old[CONFIG_SINKS_MAX];
	size_t nold = d->nendpoints;
	int err = 0;

	if (c->endpoints.n > ARRAY_SIZE(d->endpoints))
		return -EBADMSG;
	memcpy(old, d->endpoints, sizeof(old));
	memset(d->endpoints, 0, sizeof(d->endpoints));
	d->nendpoints = c->endpoints.n;
	d->config = c;
	d->more = more;
	(void)config_sink_names(c, names);
	for (size_t i = 0; i < d->nendpoints && !err; i++)
		err = configure_endpoint(d, old, nold, names[i], i);
	for (size_t i = 0; i < nold; i++) {
		if (old[i])
			push_abandon(old[i], EXPORT_FATE_ENDPOINT_REMOVED);
		push_free(old[i]);
	}
	if (d->directory)
		directory_limit(d->directory, c->output.max_bytes);
	return err;
}

int delivery_secret(struct delivery *d, const struct export_file *f, const void *data, size_t len)
{
	if (f->index >= d->nendpoints)
		return -EBADMSG;
	return push_secret(d->endpoints[f->index], f->role, data, len);
}

int delivery_directory(struct delivery *d, int dir_fd)
{
	if (!d->config || d->directory || !*d->config->output.directory) {
		closep(&dir_fd);
		return d->directory ? -EBADMSG : 0;
	}
	return directory_new(&d->directory, d->loop, dir_fd, d->config->output.directory,
			     d->config->output.max_bytes, on_fate, d);
}

size_t delivery_nbatches(const struct delivery *d)
{
	size_t n = 0;

	for (const struct batch *b = d->batches; b; b = b->next)
		n++;
	return n;
}

bool delivery_is_unresolved(const struct delivery *d)
{
	for (size_t i = 0; i < d->nendpoints; i++) {
		if (push_is_unresolved(d->endpoints[i]))
			return true;
	}
	return false;
}

size_t delivery_sinks(const struct delivery *d, struct sink_stats *ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < d->nendpoints && n < max; i++)
		push_stats(d->endpoints[i], &ret[n++]);
	if (d->directory && n < max)
		directory_stats(d->directory, &ret[n++]);
	return n;
}

/* ---- life ------------------------------------------------------------------------------------ */

int delivery_new(struct delivery **ret, struct loop *loop, struct http *http,
		 const struct delivery_ops *ops, void *arg)
{
	struct delivery *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	*d = (struct delivery){ .loop = loop, .http = http, .ops = ops, .arg = arg };
	*ret = d;
	return 0;
}

struct delivery *delivery_free(struct delivery *d)
{
	struct batch *b;

	if (!d)
		return NULL;
	for (size_t i = 0; i < d->nendpoints; i++)
		push_free(d->endpoints[i]);
	directory_free(d->directory);
	while ((b = d->batches)) {
		d->batches = b->next;
		free(b);
	}
	free(d);
	return NULL;
}
