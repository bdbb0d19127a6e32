#include "exporter/flame_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "exporter/utf8.h"

enum { UNSET = UINT32_MAX, SLOTS_MIN = 1024 };
/* What a text and a frame take beside their bytes: themselves, their places in a set, malloc's share. */
enum { TEXT_COST = 96, FRAME_COST = 64 };

/* ---- texts and frames ----------------------------------------------------------------------- */

static bool texts_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct flame *f = arg;
	const struct flame_string *x = &f->texts[a], *y = &f->texts[b];

	return x->len == y->len && !memcmp(x->p, y->p, x->len);
}

static int put_text(struct flame *f, const char *s, size_t len, uint32_t *ret)
{
	CLEANUP_FREE char *copy = NULL;
	uint32_t n = f->text_set.n;
	size_t copy_len;
	int err;

	err = utf8_repair(s, MIN(len, (size_t)FLAME_NAME_MAX), &copy, &copy_len);
	if (!err)
		err = intern_reserve(&f->texts, n, &f->texts_cap, sizeof(*f->texts));
	if (err)
		return err;
	f->texts[n] = (struct flame_string){ copy, (uint32_t)copy_len };
	err = intern_put(&f->text_set, XXH3_64bits_withSeed(copy, copy_len, f->seed), n,
			 texts_equal, f, ret);
	if (err || *ret != n)
		return err;
	f->names_bytes += copy_len + TEXT_COST;
	(void)TAKE(copy);
	return 0;
}

static bool frames_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct flame *f = arg;

	return f->frames[a].name == f->frames[b].name && f->frames[a].module == f->frames[b].module;
}

static int put_frame(struct flame *f, uint32_t name, uint32_t module, uint32_t *ret)
{
	uint32_t n = f->frame_set.n;
	int err = intern_reserve(&f->frames, n, &f->frames_cap, sizeof(*f->frames));

	if (err)
		return err;
	f->frames[n] = (struct flame_frame){ name, module };
	err = intern_put(&f->frame_set,
			 XXH3_64bits_withSeed(&f->frames[n], sizeof(*f->frames), f->seed), n,
			 frames_equal, f, ret);
	if (!err && *ret == n)
		f->names_bytes += FRAME_COST;
	return err;
}

static int put_literal(struct flame *f, const char *name, const char *module, uint32_t *ret)
{
	uint32_t name_text, module_text;
	int err = put_text(f, name, strlen(name), &name_text);

	if (!err)
		err = put_text(f, module, strlen(module), &module_text);
	return err ? err : put_frame(f, name_text, module_text, ret);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static uint32_t slot_of(const struct flame *f, uint32_t parent, uint32_t frame)
{
	uint64_t key = ((uint64_t)parent << 32 | frame) ^ f->seed;

	key *= 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, of which the high bits are good */
	return (uint32_t)(key >> 32) & (f->nslots - 1);
}

static void link_node(struct flame *f, uint32_t node)
{
	uint32_t at = slot_of(f, f->nodes[node].parent, f->nodes[node].frame);

	while (f->slots[at])
		at = (at + 1) & (f->nslots - 1);
	f->slots[at] = node + 1;
}

static int grow_slots(struct flame *f)
{
	uint32_t n = f->nslots ? f->nslots * 2 : SLOTS_MIN;
	uint32_t *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(f->slots);
	f->slots = slots;
	f->nslots = n;
	for (uint32_t i = 1; i < f->nnodes; i++)
		link_node(f, i);
	return 0;
}

static int add_node(struct flame *f, uint32_t parent, uint32_t frame, uint32_t *ret)
{
	int err = intern_reserve(&f->nodes, f->nnodes, &f->nodes_cap, sizeof(*f->nodes));

	if (!err && f->nnodes >= f->nslots / 2)
		err = grow_slots(f);
	if (err)
		return err;
	f->nodes[f->nnodes] = (struct flame_node){ .parent = parent, .frame = frame };
	if (f->nnodes)
		link_node(f, f->nnodes);
	*ret = f->nnodes++;
	return 0;
}

static bool find_node(const struct flame *f, uint32_t parent, uint32_t frame, uint32_t *ret)
{
	for (uint32_t at = slot_of(f, parent, frame); f->slots[at];
	     at = (at + 1) & (f->nslots - 1)) {
		const struct flame_node *n = &f->nodes[f->slots[at] - 1];

		if (n->parent == parent && n->frame == frame) {
			*ret = f->slots[at] - 1;
			return true;
		}
	}
	return false;
}

/* *ret_is_full: the path ends here, in `(other)`, of which each node has one at most. */
static int descend(struct flame *f, uint32_t *node, uint32_t frame, bool *ret_is_full)
{
	if (find_node(f, *node, frame, node))
		return 0;
	if (f->nnodes >= FLAME_NODES_MAX && frame != f->other) {
		*ret_is_full = true;
		frame = f->other;
		if (find_node(f, *node, frame, node))
			return 0;
	}
	return add_node(f, *node, frame, node);
}

/* ---- life ----------------------------------------------------------------------------------- */

int flame_new(struct flame **ret)
{
	CLEANUP(flame_freep) struct flame *f = calloc(1, sizeof(*f));
	uint32_t root;
	int err;

	if (!f)
		return -ENOMEM;
	if (getrandom(&f->seed, sizeof(f->seed), GRND_NONBLOCK) != (ssize_t)sizeof(f->seed))
		f->seed = 0;
	err = put_literal(f, "(other)", "", &f->other);
	if (!err)
		err = put_literal(f, "[no stack]", "[flamed]", &f->no_stack);
	if (!err)
		err = add_node(f, FLAME_NONE, FLAME_NONE, &root);
	if (err)
		return err;
	*ret = TAKE(f);
	return 0;
}

struct flame *flame_free(struct flame *f)
{
	if (!f)
		return NULL;
	for (uint32_t i = 0; i < f->text_set.n; i++)
		free(f->texts[i].p);
	free(f->texts);
	free(f->frames);
	free(f->nodes);
	free(f->slots);
	intern_fini(&f->text_set);
	intern_fini(&f->frame_set);
	free(f);
	return NULL;
}

/* ---- adding --------------------------------------------------------------------------------- */

/* What the indexes of a batch are here, as far as it is known already. */
struct adding {
	struct flame *f;
	const struct export_batch *b;
	uint32_t *text_of; /* by string */
	struct {
		uint32_t mapping, frame;
	} * frame_of; /* by line: most lines belong to one location */
};

static void adding_fini(struct adding *a)
{
	free(a->text_of);
	free(a->frame_of);
}

static int adding_init(struct adding *a)
{
	a->text_of = reallocarray(NULL, MAX(a->b->nstrings, 1u), sizeof(*a->text_of));
	a->frame_of = reallocarray(NULL, MAX(a->b->nlines, 1u), sizeof(*a->frame_of));
	if (!a->text_of || !a->frame_of)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->b->nstrings; i++)
		a->text_of[i] = UNSET;
	for (uint32_t i = 0; i < a->b->nlines; i++)
		a->frame_of[i].frame = UNSET;
	return 0;
}

static int text_of(struct adding *a, uint32_t string, uint32_t *ret)
{
	const struct export_string *s = &a->b->strings[string];
	int err = 0;

	if (a->text_of[string] == UNSET)
		err = put_text(a->f, s->text, s->len, &a->text_of[string]);
	*ret = a->text_of[string];
	return err;
}

static int frame_of(struct adding *a, uint32_t mapping, uint32_t line, uint32_t *ret)
{
	const struct export_batch *b = a->b;
	uint32_t name, module;
	int err;

	if (a->frame_of[line].frame != UNSET && a->frame_of[line].mapping == mapping) {
		*ret = a->frame_of[line].frame;
		return 0;
	}
	if (a->f->names_bytes > FLAME_NAMES_BYTES) {
		*ret = a->f->other;
		return 0;
	}
	err = text_of(a, b->functions[b->lines[line].function].name, &name);
	if (!err)
		err = text_of(a, b->mappings[mapping].filename, &module);
	if (!err)
		err = put_frame(a->f, name, module, ret);
	if (err)
		return err;
	a->frame_of[line].mapping = mapping;
	a->frame_of[line].frame = *ret;
	return 0;
}

/* Half of the nodes, the heavier ones, and an `(other)` where there were more. */
static int thin(struct flame *f)
{
	struct flame_tree t;
	int err = flame_prune(f, FLAME_NODES_MAX / 2, &t);

	if (err)
		return err;
	free(f->nodes);
	f->nodes = t.nodes;
	f->nnodes = f->nodes_cap = t.n;
	f->npruned = t.npruned;
	f->nthinnings++;
	memset(f->slots, 0, f->nslots * sizeof(*f->slots));
	for (uint32_t i = 1; i < f->nnodes; i++)
		link_node(f, i);
	return 0;
}

static int add_sample(struct adding *a, const struct export_sample *s)
{
	const struct export_batch *b = a->b;
	uint32_t node = 0, frame = a->f->other;
	bool is_full = false;
	int err = 0;

	if (a->f->nnodes >= FLAME_NODES_MAX && a->f->nthinnings < FLAME_THINNINGS_MAX)
		err = thin(a->f);
	if (!s->nframes && !err)
		err = descend(a->f, &node, a->f->no_stack, &is_full);
	for (uint32_t i = s->nframes; i-- && !err && !is_full;) {
		const struct export_location *l = &b->locations[b->frames[s->first_frame + i]];

		for (uint32_t j = l->nlines; j-- && !err && !is_full;) {
			err = frame_of(a, l->mapping, l->first_line + j, &frame);
			if (!err)
				err = descend(a->f, &node, frame, &is_full);
			is_full |= frame == a->f->other;
		}
	}
	if (err)
		return err;
	a->f->nodes[node].self = flame_add_saturated(a->f->nodes[node].self, s->nanoseconds);
	a->f->nanoseconds = flame_add_saturated(a->f->nanoseconds, s->nanoseconds);
	a->f->nsamples = flame_add_saturated(a->f->nsamples, s->count);
	return 0;
}

int flame_add(struct flame *f, const struct export_batch *b, const bool *is_wanted)
{
	CLEANUP(adding_fini) struct adding a = { .f = f, .b = b };
	int err = adding_init(&a);

	for (uint32_t i = 0; i < b->nsamples && !err; i++) {
		if (!is_wanted || is_wanted[b->samples[i].subject])
			err = add_sample(&a, &b->samples[i]);
	}
	return err;
}

/* ---- asking --------------------------------------------------------------------------------- */

uint64_t flame_nsamples(const struct flame *f)
{
	return f->nsamples;
}

uint64_t flame_nanoseconds(const struct flame *f)
{
	return f->nanoseconds;
}

uint32_t flame_nframes(const struct flame *f)
{
	return f->frame_set.n;
}

uint32_t flame_ntexts(const struct flame *f)
{
	return f->text_set.n;
}

void flame_frame(const struct flame *f, uint32_t frame, uint32_t *ret_name, uint32_t *ret_module)
{
	assert(frame < f->frame_set.n);
	*ret_name = f->frames[frame].name;
	*ret_module = f->frames[frame].module;
}

const char *flame_text(const struct flame *f, uint32_t text, size_t *ret_len)
{
	assert(text < f->text_set.n);
	*ret_len = f->texts[text].len;
	return f->texts[text].p;
}
