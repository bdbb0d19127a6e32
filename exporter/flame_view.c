#include "exporter/flame_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Children come after their parents, so one pass from the end does. */
static void sum_up(struct flame *f)
{
	for (uint32_t i = 0; i < f->nnodes; i++)
		f->nodes[i].total = f->nodes[i].self;
	for (uint32_t i = f->nnodes; --i > 0;) {
		struct flame_node *parent = &f->nodes[f->nodes[i].parent];

		parent->total = flame_add_saturated(parent->total, f->nodes[i].total);
	}
}

/* ---- pruning -------------------------------------------------------------------------------- */

struct pruning {
	const struct flame *f;
	uint32_t *order; /* nodes, the heaviest first */
	uint32_t *nleft; /* by node: children that are not kept */
	bool *is_kept;
	uint32_t *rank;		 /* by frame: its place among the names */
	struct flame_node *kept; /* with f's numbers, then one for each `(other)` */
	uint32_t *first, *next;	 /* kept children, as a list; indexes of kept */
	uint32_t *index;	 /* by node: its index in kept */
	uint32_t nkept, nothers;
};

static void pruning_fini(struct pruning *p)
{
	free(p->order);
	free(p->nleft);
	free(p->is_kept);
	free(p->rank);
	free(p->kept);
	free(p->first);
	free(p->next);
	free(p->index);
}

/* A parent is never lighter than its child and has the lower number: it comes first. */
static int by_weight(const void *a, const void *b, void *arg)
{
	const struct flame *f = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint64_t wx = f->nodes[x].total, wy = f->nodes[y].total;

	return wx != wy ? (wx < wy ? 1 : -1) : (x > y) - (x < y);
}

static int pruning_init(struct pruning *p)
{
	size_t n = p->f->nnodes;

	p->order = reallocarray(NULL, n, sizeof(*p->order));
	p->nleft = calloc(n, sizeof(*p->nleft));
	p->is_kept = calloc(n, sizeof(*p->is_kept));
	p->index = calloc(n, sizeof(*p->index));
	p->rank = calloc(p->f->frame_set.n, sizeof(*p->rank));
	if (!p->order || !p->nleft || !p->is_kept || !p->index || !p->rank)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		p->order[i] = i;
	for (uint32_t i = 1; i < n; i++)
		p->nleft[p->f->nodes[i].parent]++;
	qsort_r(p->order, n, sizeof(*p->order), by_weight, (void *)p->f);
	return 0;
}

/*
 * Keeps nodes while they and the `(other)` nodes that they leave are not too many. An `(other)` that is
 * there already becomes part of the new one.
 */
static void choose(struct pruning *p, uint32_t max_nodes)
{
	for (uint32_t i = 0; i < p->f->nnodes; i++) {
		uint32_t node = p->order[i], parent = p->f->nodes[node].parent;
		uint32_t nothers = p->nothers + (p->nleft[node] > 0);

		if (p->f->nodes[node].frame == p->f->other ||
		    (parent != FLAME_NONE && !p->is_kept[parent]))
			continue;
		if (parent != FLAME_NONE && p->nleft[parent] == 1)
			nothers--;
		if (p->nkept + 1 + nothers > max_nodes)
			return;
		p->is_kept[node] = true;
		p->nkept++;
		p->nothers = nothers;
		if (parent != FLAME_NONE)
			p->nleft[parent]--;
	}
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct flame *f = arg;
	const struct flame_frame *x = &f->frames[*(const uint32_t *)a],
				 *y = &f->frames[*(const uint32_t *)b];
	const struct flame_string *s = &f->texts[x->name], *t = &f->texts[y->name];
	int cmp;

	if (x->name == y->name) {
		s = &f->texts[x->module];
		t = &f->texts[y->module];
	}
	cmp = memcmp(s->p, t->p, MIN(s->len, t->len));
	return cmp ? cmp : (s->len > t->len) - (s->len < t->len);
}

static int rank_frames(struct pruning *p)
{
	uint32_t n = p->f->frame_set.n;
	CLEANUP_FREE uint32_t *frames = reallocarray(NULL, n, sizeof(*frames));

	if (!frames)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		frames[i] = i;
	qsort_r(frames, n, sizeof(*frames), by_name, (void *)p->f);
	for (uint32_t i = 0; i < n; i++)
		p->rank[frames[i]] = i;
	p->rank[p->f->other] = n;
	return 0;
}

/* The kept nodes and their `(other)`s, by number; parents are indexes of kept. */
static int collect(struct pruning *p, struct flame_tree *ret)
{
	const struct flame *f = p->f;
	uint32_t n = 0, nall = p->nkept + p->nothers;

	p->kept = reallocarray(NULL, nall, sizeof(*p->kept));
	p->first = reallocarray(NULL, nall, sizeof(*p->first));
	p->next = reallocarray(NULL, nall, sizeof(*p->next));
	if (!p->kept || !p->first || !p->next)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->nnodes; i++) {
		if (!p->is_kept[i])
			continue;
		p->index[i] = n;
		p->kept[n] = f->nodes[i];
		if (i)
			p->kept[n].parent = p->index[f->nodes[i].parent];
		n++;
	}
	assert(n == p->nkept);
	for (uint32_t i = 0; i < p->nkept; i++)
		p->first[i] = FLAME_NONE;
	for (uint32_t i = 1; i < f->nnodes; i++) { /* first: of a parent's `(other)`, for now */
		uint32_t parent = f->nodes[i].parent;

		if (p->is_kept[i])
			continue;
		ret->npruned += f->nodes[i].frame != f->other;
		if (!p->is_kept[parent])
			continue;
		ret->other_self = flame_add_saturated(ret->other_self, f->nodes[i].total);
		parent = p->index[parent];
		if (p->first[parent] == FLAME_NONE) {
			p->first[parent] = n;
			p->kept[n++] = (struct flame_node){ .parent = parent, .frame = f->other };
		}
		p->kept[p->first[parent]].self =
			flame_add_saturated(p->kept[p->first[parent]].self, f->nodes[i].total);
	}
	assert(n == nall);
	for (uint32_t i = p->nkept; i < nall; i++)
		p->kept[i].total = p->kept[i].self;
	return 0;
}

static int by_rank(const void *a, const void *b, void *arg)
{
	const struct pruning *p = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint32_t rx = p->rank[p->kept[x].frame], ry = p->rank[p->kept[y].frame];

	return rx != ry ? (rx > ry) - (rx < ry) : (x > y) - (x < y);
}

/* Each node's children as a list by rank: whoever is put in front last is first. */
static int link_children(struct pruning *p)
{
	uint32_t n = p->nkept + p->nothers;
	CLEANUP_FREE uint32_t *ranked = reallocarray(NULL, n, sizeof(*ranked));

	if (!ranked)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		ranked[i] = i;
		p->first[i] = FLAME_NONE;
		p->next[i] = FLAME_NONE;
	}
	qsort_r(ranked + 1, n - 1, sizeof(*ranked), by_rank, p);
	for (uint32_t i = n; --i > 0;) {
		uint32_t parent = p->kept[ranked[i]].parent;

		p->next[ranked[i]] = p->first[parent];
		p->first[parent] = ranked[i];
	}
	return 0;
}

static void emit(const struct pruning *p, struct flame_node *out)
{
	uint32_t n = 0, at = 0,
		 *place = p->index; /* of a kept node in out; no longer needed as it was */

	for (;;) {
		out[n] = p->kept[at];
		if (n)
			out[n].parent = place[p->kept[at].parent];
		place[at] = n++;
		if (p->first[at] != FLAME_NONE) {
			at = p->first[at];
			continue;
		}
		while (at && p->next[at] == FLAME_NONE)
			at = p->kept[at].parent;
		if (!at)
			return;
		at = p->next[at];
	}
}

int flame_prune(struct flame *f, uint32_t max_nodes, struct flame_tree *ret)
{
	CLEANUP(pruning_fini) struct pruning p = { .f = f };
	CLEANUP_FREE struct flame_node *out = NULL;
	struct flame_tree t = { .npruned = f->npruned };
	int err;

	assert(max_nodes >= 2);
	sum_up(f);
	err = pruning_init(&p);
	if (err)
		return err;
	choose(&p, max_nodes);
	err = rank_frames(&p);
	if (!err)
		err = collect(&p, &t);
	if (!err)
		err = link_children(&p);
	if (err)
		return err;
	out = reallocarray(NULL, p.nkept + p.nothers, sizeof(*out));
	if (!out)
		return -ENOMEM;
	emit(&p, out);
	t.n = p.nkept + p.nothers;
	t.nodes = TAKE(out);
	*ret = t;
	return 0;
}

/* ---- the table of functions ----------------------------------------------------------------- */

static int by_self(const void *a, const void *b)
{
	const struct flame_entry *x = a, *y = b;

	if (x->self != y->self)
		return x->self < y->self ? 1 : -1;
	if (x->total != y->total)
		return x->total < y->total ? 1 : -1;
	return (x->frame > y->frame) - (x->frame < y->frame);
}

static int by_total(const void *a, const void *b)
{
	const struct flame_entry *x = a, *y = b;

	return x->total != y->total ? (x->total < y->total ? 1 : -1) : by_self(a, b);
}

/* Walks the tree, so that a function that is on the path already does not count again. */
static int sum_frames(const struct flame *f, struct flame_entry *entries)
{
	CLEANUP_FREE uint32_t *first = reallocarray(NULL, f->nnodes, sizeof(*first));
	CLEANUP_FREE uint32_t *next = reallocarray(NULL, f->nnodes, sizeof(*next));
	CLEANUP_FREE uint32_t *depth =
		calloc(f->frame_set.n, sizeof(*depth)); /* times on the path */
	uint32_t at = 0;

	if (!first || !next || !depth)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->nnodes; i++)
		first[i] = next[i] = FLAME_NONE;
	for (uint32_t i = f->nnodes; --i > 0;) {
		next[i] = first[f->nodes[i].parent];
		first[f->nodes[i].parent] = i;
	}
	for (;;) {
		if (at) {
			struct flame_entry *e = &entries[f->nodes[at].frame];

			e->self = flame_add_saturated(e->self, f->nodes[at].self);
			if (!depth[f->nodes[at].frame]++)
				e->total = flame_add_saturated(e->total, f->nodes[at].total);
		}
		if (first[at] != FLAME_NONE) {
			at = first[at];
			continue;
		}
		while (at && next[at] == FLAME_NONE) {
			depth[f->nodes[at].frame]--;
			at = f->nodes[at].parent;
		}
		if (!at)
			return 0;
		depth[f->nodes[at].frame]--;
		at = next[at];
	}
}

int flame_top(struct flame *f, uint32_t max, struct flame_entry **ret, uint32_t *ret_n)
{
	uint32_t n = f->frame_set.n, nused = 0;
	CLEANUP_FREE struct flame_entry *entries = calloc(n, sizeof(*entries));
	int err;

	if (!entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		entries[i].frame = i;
	sum_up(f);
	err = sum_frames(f, entries);
	if (err)
		return err;
	for (uint32_t i = 0; i < n; i++) {
		if (entries[i].total)
			entries[nused++] = entries[i];
	}
	qsort(entries, nused, sizeof(*entries), by_self);
	if (nused > max) {
		qsort(entries + max / 2, nused - max / 2, sizeof(*entries), by_total);
		nused = max;
		qsort(entries, nused, sizeof(*entries), by_self);
	}
	*ret = TAKE(entries);
	*ret_n = nused;
	return 0;
}
