#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "exporter/api.h"
#include "exporter/flame.h"
#include "exporter/jsontext.h"
#include "exporter/services.h"

struct query {
	struct flame *flame;
	const char *service; /* "" all */
	uint64_t period_ns;
	uint64_t nwindows;
};

static void query_fini(struct query *q)
{
	flame_free(q->flame);
}

static int add_stacks(void *arg, const struct recent_window *w, const struct export_batch *b)
{
	CLEANUP(services_names_fini) struct services_names names = {};
	CLEANUP_FREE bool *is_wanted = NULL;
	struct query *q = arg;
	int err;

	q->nwindows++;
	q->period_ns = w->period_ns;
	if (!*q->service)
		return flame_add(q->flame, b, NULL);
	is_wanted = calloc(MAX(b->nsubjects, 1u), sizeof(*is_wanted));
	err = is_wanted ? services_names_init(&names, b) : -ENOMEM;
	if (err)
		return err;
	for (uint32_t i = 0; i < b->nsubjects; i++)
		is_wanted[i] = services_names_are(&names, i, q->service);
	return flame_add(q->flame, b, is_wanted);
}

/* ---- the answer as text: a tree of JSON values would take ten times its bytes ------------------- */

/* Things in the order in which the answer needs them first. */
struct numbered {
	uint32_t *number; /* + 1, by thing; 0: none yet */
	uint32_t *things; /* by number */
	uint32_t n;
};

static void numbered_fini(struct numbered *n)
{
	free(n->number);
	free(n->things);
}

static int numbered_init(struct numbered *n, uint32_t nthings)
{
	n->number = calloc(nthings, sizeof(*n->number));
	n->things = reallocarray(NULL, nthings, sizeof(*n->things));
	return n->number && n->things ? 0 : -ENOMEM;
}

static uint32_t number_of(struct numbered *n, uint32_t thing)
{
	if (!n->number[thing]) {
		n->things[n->n++] = thing;
		n->number[thing] = n->n;
	}
	return n->number[thing] - 1;
}

static void put_frame_number(struct bufw *w, struct numbered *frames, uint32_t frame)
{
	if (frame == FLAME_NONE)
		bufw_printf(w, "-1");
	else
		bufw_printf(w, "%" PRIu32, number_of(frames, frame));
}

static void put_nodes(struct bufw *w, const struct flame_tree *t, struct numbered *frames)
{
	static const char *const columns[] = { "parent", "frame", "self", "total" };

	for (size_t column = 0; column < ARRAY_SIZE(columns); column++) {
		bufw_printf(w, "%s\"%s\":[", column ? "," : ",\"nodes\":{", columns[column]);
		for (uint32_t i = 0; i < t->n; i++) {
			const struct flame_node *n = &t->nodes[i];

			if (i)
				bufw_printf(w, ",");
			if (column == 0)
				bufw_printf(w, "%" PRId64, n->parent == FLAME_NONE ? -1 : (int64_t)n->parent);
			else if (column == 1)
				put_frame_number(w, frames, n->frame);
			else
				bufw_printf(w, "%" PRIu64, column == 2 ? n->self : n->total);
		}
		bufw_printf(w, "]");
	}
	bufw_printf(w, "},\"pruned\":{\"nodes\":%" PRIu64 ",\"self\":%" PRIu64 "}", t->npruned, t->other_self);
}

static int put_tree(struct bufw *w, struct flame *f, uint32_t max_nodes, struct numbered *frames)
{
	struct flame_tree t;
	int err = flame_prune(f, max_nodes, &t);

	if (err)
		return err;
	put_nodes(w, &t, frames);
	free(t.nodes);
	return 0;
}

static int put_top(struct bufw *w, struct flame *f, struct numbered *frames)
{
	CLEANUP_FREE struct flame_entry *top = NULL;
	uint32_t ntop;
	int err = flame_top(f, API_TOP_MAX, &top, &ntop);

	if (err)
		return err;
	bufw_printf(w, ",\"top\":[");
	for (uint32_t i = 0; i < ntop; i++)
		bufw_printf(w, "%s[%" PRIu32 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
		     number_of(frames, top[i].frame), top[i].self, top[i].total);
	bufw_printf(w, "]");
	return 0;
}

static int put_texts(struct bufw *w, const char *key, const struct flame *f, const struct numbered *texts)
{
	int err = 0;

	bufw_printf(w, ",\"%s\":[", key);
	for (uint32_t i = 0; i < texts->n && !err; i++) {
		size_t len;
		const char *s = flame_text(f, texts->things[i], &len);

		if (i)
			bufw_printf(w, ",");
		err = jsontext_put(w, s, len);
	}
	bufw_printf(w, "]");
	return err;
}

static int put_frames(struct bufw *w, const struct flame *f, const struct numbered *frames)
{
	CLEANUP(numbered_fini) struct numbered names = {}, modules = {};
	int err = numbered_init(&names, flame_ntexts(f));

	if (!err)
		err = numbered_init(&modules, flame_ntexts(f));
	if (err)
		return err;
	bufw_printf(w, ",\"frames\":[");
	for (uint32_t i = 0; i < frames->n; i++) {
		uint32_t name, module;

		flame_frame(f, frames->things[i], &name, &module);
		bufw_printf(w, "%s[%" PRIu32 ",%" PRIu32 "]", i ? "," : "", number_of(&names, name),
		     number_of(&modules, module));
	}
	bufw_printf(w, "]");
	err = put_texts(w, "names", f, &names);
	return err ? err : put_texts(w, "modules", f, &modules);
}

static int put_query(struct bufw *w, const struct query *q, const struct api_range *r, uint32_t max_nodes)
{
	CLEANUP(numbered_fini) struct numbered frames = {};
	int err = numbered_init(&frames, flame_nframes(q->flame));

	bufw_printf(w, "{\"from\":%.3f,\"to\":%.3f,\"service\":", clock_seconds(r->from_ns), clock_seconds(r->to_ns));
	if (!err)
		err = jsontext_put(w, q->service, strlen(q->service));
	bufw_printf(w, ",\"samples\":%" PRIu64 ",\"cpu_seconds\":%.9f,\"period_ns\":%" PRIu64 ",\"windows\":%" PRIu64,
	     flame_nsamples(q->flame), clock_seconds(flame_nanoseconds(q->flame)), q->period_ns, q->nwindows);
	if (!err)
		err = put_tree(w, q->flame, max_nodes, &frames);
	if (!err)
		err = put_top(w, q->flame, &frames);
	if (!err)
		err = put_frames(w, q->flame, &frames);
	bufw_printf(w, "}");
	return err ? err : bufw_end(w);
}

int api_query(const struct api_view *v, const struct api_range *r, const char *service, uint32_t max_nodes,
	      struct bufw *ret)
{
	CLEANUP(query_fini) struct query q = { .service = service ? service : "" };
	int err = flame_new(&q.flame);

	if (v->status && v->status->hz)
		q.period_ns = NSEC_PER_SEC / v->status->hz;
	if (!err)
		err = recent_each(v->recent, r->from_ns, r->to_ns, add_stacks, &q);
	return err ? err : put_query(ret, &q, r, max_nodes);
}
