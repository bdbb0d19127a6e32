#include "exporter/api.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exporter/flame.h"
#include "exporter/jsontext.h"
#include "exporter/services.h"

enum { OK = 200, BAD_REQUEST = 400, NOT_FOUND = 404, OUT_OF_MEMORY = 500 };

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NSEC_PER_SEC;
}

/* ---- parameters ----------------------------------------------------------------------------- */

struct range {
	uint64_t from_ns, to_ns;
};

/* Unix seconds, or negative: seconds before now. */
static bool parse_time(const char *text, uint64_t now_ns, uint64_t *ret)
{
	static const double max = 9e9; /* the year 2255 */
	char *end;
	double value;

	if (!*text || strlen(text) > 24 || text[strspn(text, "-.0123456789")])
		return false;
	value = strtod(text, &end);
	if (*end || !isfinite(value) || value > max || value < -max)
		return false;
	if (*text == '-') {
		uint64_t back = (uint64_t)(-value * (double)NSEC_PER_SEC);

		*ret = back < now_ns ? now_ns - back : 0;
	} else {
		*ret = (uint64_t)(value * (double)NSEC_PER_SEC);
	}
	return true;
}

static const char *parse_range(const struct api_params *p, struct range *ret)
{
	uint64_t now = clock_wall_ns();
	struct range r = { now - API_DEFAULT_S * NSEC_PER_SEC, now };

	if (p->from && !parse_time(p->from, now, &r.from_ns))
		return "from is unix seconds, or negative: seconds before now";
	if (p->to && !parse_time(p->to, now, &r.to_ns))
		return "to is unix seconds, or negative: seconds before now";
	if (r.from_ns > r.to_ns)
		return "from is after to";
	*ret = r;
	return NULL;
}

static const char *parse_nodes(const char *text, uint32_t *ret)
{
	static const char wrong[] = "nodes is a number from 2 to 131072";
	uint32_t n = 0;

	*ret = API_NODES_DEFAULT;
	if (!text)
		return NULL;
	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '9' || c - text > 5)
			return wrong;
		n = n * 10 + (uint32_t)(*c - '0');
	}
	if (n < 2 || n > API_NODES_MAX)
		return wrong;
	*ret = n;
	return NULL;
}

static unsigned int refuse(unsigned int status, const char *why, json_t **ret)
{
	*ret = json_pack("{s:s}", "error", why);
	return *ret ? status : OUT_OF_MEMORY;
}

/* ---- services ------------------------------------------------------------------------------- */

static int add_services(void *arg, const struct recent_window *w, const struct export_batch *b)
{
	(void)w;
	return services_add(arg, b);
}

static json_t *services_of(const struct api_view *v, const struct range *r)
{
	CLEANUP(services_freep) struct services *s = NULL;

	if (services_new(&s) || recent_each(v->recent, r->from_ns, r->to_ns, add_services, s))
		return NULL;
	return json_pack("{s:f, s:f, s:I, s:f, s:o}", "from", seconds(r->from_ns), "to",
			 seconds(r->to_ns), "samples", (json_int_t)services_nsamples(s),
			 "cpu_seconds", seconds(services_nanoseconds(s)), "services",
			 services_json(s));
}

/* ---- query ---------------------------------------------------------------------------------- */

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

/* The numbers that frames and texts have in the answer: in the order in which it needs them. */
struct numbering {
	const struct flame *flame;
	uint32_t *frame, *name, *module; /* number + 1; 0 is none yet */
	json_t *frames, *names, *modules;
};

static void numbering_fini(struct numbering *n)
{
	free(n->frame);
	free(n->name);
	free(n->module);
	json_decref(n->frames);
	json_decref(n->names);
	json_decref(n->modules);
}

static int numbering_init(struct numbering *n)
{
	n->frame = calloc(flame_nframes(n->flame), sizeof(*n->frame));
	n->name = calloc(flame_ntexts(n->flame), sizeof(*n->name));
	n->module = calloc(flame_ntexts(n->flame), sizeof(*n->module));
	n->frames = json_array();
	n->names = json_array();
	n->modules = json_array();
	return n->frame && n->name && n->module && n->frames && n->names && n->modules ? 0 :
											 -ENOMEM;
}

static int number_text(const struct numbering *n, uint32_t text, uint32_t *numbers, json_t *list)
{
	size_t len;
	const char *s = flame_text(n->flame, text, &len);

	if (numbers[text])
		return 0;
	if (json_array_append_new(list, json_stringn_nocheck(s, len)))
		return -ENOMEM;
	numbers[text] = (uint32_t)json_array_size(list);
	return 0;
}

static int number_frame(struct numbering *n, uint32_t frame, json_int_t *ret)
{
	uint32_t name, module;
	int err;

	if (!n->frame[frame]) {
		flame_frame(n->flame, frame, &name, &module);
		err = number_text(n, name, n->name, n->names);
		if (!err)
			err = number_text(n, module, n->module, n->modules);
		if (err)
			return err;
		if (json_array_append_new(n->frames,
					  json_pack("[I, I]", (json_int_t)n->name[name] - 1,
						    (json_int_t)n->module[module] - 1)))
			return -ENOMEM;
		n->frame[frame] = (uint32_t)json_array_size(n->frames);
	}
	*ret = (json_int_t)n->frame[frame] - 1;
	return 0;
}

static int append_int(json_t *list, json_int_t value)
{
	return json_array_append_new(list, json_integer(value)) ? -ENOMEM : 0;
}

static json_t *nodes_json(struct numbering *n, const struct flame_tree *t)
{
	CLEANUP_JSON json_t *parent = json_array(), *frame = json_array();
	CLEANUP_JSON json_t *self = json_array(), *total = json_array();
	json_int_t number;

	for (uint32_t i = 0; i < t->n; i++) {
		const struct flame_node *node = &t->nodes[i];

		number = -1;
		if (node->frame != FLAME_NONE && number_frame(n, node->frame, &number))
			return NULL;
		if (append_int(parent,
			       node->parent == FLAME_NONE ? -1 : (json_int_t)node->parent) ||
		    append_int(frame, number) || append_int(self, (json_int_t)node->self) ||
		    append_int(total, (json_int_t)node->total))
			return NULL;
	}
	return json_pack("{s:O, s:O, s:O, s:O}", "parent", parent, "frame", frame, "self", self,
			 "total", total);
}

static json_t *top_json(struct numbering *n, struct flame *f)
{
	CLEANUP_FREE struct flame_entry *top = NULL;
	CLEANUP_JSON json_t *list = json_array();
	uint32_t ntop;

	if (!list || flame_top(f, API_TOP_MAX, &top, &ntop))
		return NULL;
	for (uint32_t i = 0; i < ntop; i++) {
		json_int_t frame;

		if (number_frame(n, top[i].frame, &frame) ||
		    json_array_append_new(list,
					  json_pack("[I, I, I]", frame, (json_int_t)top[i].self,
						    (json_int_t)top[i].total)))
			return NULL;
	}
	return TAKE(list);
}

static json_t *query_json(const struct query *q, const struct range *r, uint32_t max_nodes)
{
	CLEANUP(numbering_fini) struct numbering n = { .flame = q->flame };
	CLEANUP_JSON json_t *nodes = NULL, *top = NULL;
	struct flame_tree tree = {};

	if (numbering_init(&n) || flame_prune(q->flame, max_nodes, &tree))
		return NULL;
	nodes = nodes_json(&n, &tree);
	free(tree.nodes);
	top = nodes ? top_json(&n, q->flame) : NULL;
	if (!top)
		return NULL;
	return json_pack(
		"{s:f, s:f, s:o, s:I, s:f, s:I, s:I, s:O, s:O, s:O, s:O, s:{s:I, s:I}, s:O}", /**/
		"from", seconds(r->from_ns), "to", seconds(r->to_ns), "service",
		jsontext(q->service), "samples", (json_int_t)flame_nsamples(q->flame),
		"cpu_seconds", seconds(flame_nanoseconds(q->flame)), "period_ns",
		(json_int_t)q->period_ns, "windows", (json_int_t)q->nwindows, "names", n.names,
		"modules", n.modules, "frames", n.frames, "nodes", nodes, "pruned", "nodes",
		(json_int_t)tree.npruned, "self", (json_int_t)tree.pruned_self, "top", top);
}

static json_t *query_of(const struct api_view *v, const struct range *r, const char *service,
			uint32_t max_nodes)
{
	CLEANUP(query_fini) struct query q = { .service = service ? service : "" };

	if (v->status && v->status->hz)
		q.period_ns = NSEC_PER_SEC / v->status->hz;
	if (flame_new(&q.flame) || recent_each(v->recent, r->from_ns, r->to_ns, add_stacks, &q))
		return NULL;
	return query_json(&q, r, max_nodes);
}

/* ---- the three ------------------------------------------------------------------------------ */

unsigned int api_answer(const struct api_view *v, const char *name, const struct api_params *p,
			json_t **ret)
{
	struct range range;
	uint32_t max_nodes;
	const char *wrong;

	if (!strcmp(name, "status")) {
		*ret = api_status(v);
		return *ret ? OK : OUT_OF_MEMORY;
	}
	if (strcmp(name, "services") && strcmp(name, "query"))
		return refuse(NOT_FOUND, "there are status, services and query", ret);
	wrong = parse_range(p, &range);
	if (!wrong)
		wrong = parse_nodes(p->nodes, &max_nodes);
	if (wrong)
		return refuse(BAD_REQUEST, wrong, ret);
	*ret = *name == 's' ? services_of(v, &range) : query_of(v, &range, p->service, max_nodes);
	return *ret ? OK : OUT_OF_MEMORY;
}
