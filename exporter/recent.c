#include "exporter/recent.h"

#include <errno.h>
#include <zlib.h>

enum { LEVEL = 1 /* a third of level 6's time for a tenth more bytes */ };

struct window {
	struct window *next; /* newer */
	uint64_t id;
	struct recent_window facts;
	uint8_t *data;
};

struct recent {
	struct window *first, **last;
	size_t max_windows, max_bytes;
	struct recent_totals totals;
};

int recent_new(struct recent **ret)
{
	struct recent *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->last = &r->first;
	r->max_windows = 1;
	r->max_bytes = SIZE_MAX;
	*ret = r;
	return 0;
}

static struct window *window_free(struct window *w)
{
	if (w)
		free(w->data);
	free(w);
	return NULL;
}
DEFINE_CLEANUP(struct window *, window_free);

struct recent *recent_free(struct recent *r)
{
	struct window *next;

	if (!r)
		return NULL;
	for (struct window *w = r->first; w; w = next) {
		next = w->next;
		window_free(w);
	}
	free(r);
	return NULL;
}

static size_t cost(const struct window *w)
{
	return sizeof(*w) + w->facts.len;
}

static void drop(struct recent *r, struct window **at)
{
	struct window *w = *at;

	*at = w->next;
	if (!*at)
		r->last = at;
	r->totals.nwindows--;
	r->totals.bytes -= cost(w);
	window_free(w);
}

static void shrink(struct recent *r)
{
	while (r->totals.nwindows > r->max_windows || r->totals.bytes > r->max_bytes) {
		drop(r, &r->first);
		r->totals.nevicted++;
	}
}

void recent_limit(struct recent *r, size_t max_windows, size_t max_bytes)
{
	r->max_windows = max_windows;
	r->max_bytes = max_bytes;
	shrink(r);
}

static int compress_into(struct window *w, const void *wire, size_t len)
{
	uLongf out_len = compressBound(len);
	uint8_t *fit;

	w->data = malloc(out_len);
	if (!w->data)
		return -ENOMEM;
	if (compress2(w->data, &out_len, wire, len, LEVEL) != Z_OK)
		return -ENOMEM;
	w->facts.len = out_len;
	w->facts.raw_len = len;
	fit = realloc(w->data, MAX(out_len, (uLongf)1));
	if (fit)
		w->data = fit;
	return 0;
}

static void drop_id(struct recent *r, uint64_t id)
{
	for (struct window **at = &r->first; *at; at = &(*at)->next) {
		if ((*at)->id == id) {
			drop(r, at);
			return;
		}
	}
}

int recent_add(struct recent *r, const struct export_batch *b, const void *wire, size_t len)
{
	CLEANUP(window_freep) struct window *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->id = b->id;
	w->facts.wall_start_ns = b->wall_start_ns;
	w->facts.duration_ns = b->duration_ns;
	w->facts.period_ns = b->period_ns;
	w->facts.nsamples = export_batch_count(b);
	err = compress_into(w, wire, len);
	if (err)
		return err;
	drop_id(r, b->id);
	if (cost(w) > r->max_bytes || !r->max_windows) {
		r->totals.nrefused++;
		return 0;
	}
	r->totals.nwindows++;
	r->totals.bytes += cost(w);
	*r->last = w;
	r->last = &w->next;
	(void)TAKE(w);
	shrink(r);
	return 0;
}

static uint64_t end_of(const struct recent_window *w)
{
	uint64_t end;

	return __builtin_add_overflow(w->wall_start_ns, w->duration_ns, &end) ? UINT64_MAX : end;
}

static int decode(const struct window *w, recent_fn *fn, void *arg)
{
	CLEANUP(export_batch_fini) struct export_batch b = {};
	CLEANUP_FREE uint8_t *raw = malloc(MAX(w->facts.raw_len, (size_t)1));
	uLongf raw_len = w->facts.raw_len;
	struct bufr in;
	int err;

	if (!raw)
		return -ENOMEM;
	if (uncompress(raw, &raw_len, w->data, w->facts.len) != Z_OK || raw_len != w->facts.raw_len)
		return -ENOMEM; /* our own bytes: only memory can be short */
	bufr_init(&in, raw, raw_len);
	err = export_batch_decode(&in, &b);
	return err ? err : fn(arg, &w->facts, &b);
}

int recent_each(const struct recent *r, uint64_t from_ns, uint64_t to_ns, recent_fn *fn, void *arg)
{
	int err = 0;

	for (const struct window *w = r->first; w && !err; w = w->next) {
		uint64_t end = end_of(&w->facts);
		uint64_t middle = w->facts.wall_start_ns + (end - w->facts.wall_start_ns) / 2;

		if (middle >= from_ns && middle < to_ns)
			err = decode(w, fn, arg);
	}
	return err;
}

void recent_totals(const struct recent *r, struct recent_totals *ret)
{
	*ret = r->totals;
	ret->from_ns = r->first ? r->first->facts.wall_start_ns : 0;
	ret->to_ns = 0;
	for (const struct window *w = r->first; w; w = w->next)
		ret->to_ns = MAX(ret->to_ns, end_of(&w->facts));
}
