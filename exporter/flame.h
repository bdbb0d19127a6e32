/*
 * flame - the stacks of some windows as one tree of frames, and its functions by cost.
 *
 * A frame is a function name and the file that it is from; inlined functions are frames of their
 * own; a sample without a stack is in `[no stack]`. All values are nanoseconds. Node 0 is the root.
 * Memory is bounded. At FLAME_NODES_MAX nodes the lighter half becomes `(other)` of its parents, a
 * few times; then, and past FLAME_NAMES_BYTES of names, what is new does. So sums hold.
 *
 * May touch: the heap, getrandom(2).
 */
#ifndef EXPORTER_FLAME_H
#define EXPORTER_FLAME_H

#include "exporter/msg.h"

struct flame;

enum {
	FLAME_NODES_MAX = 128 * 1024,
	FLAME_THINNINGS_MAX = 8,	/* each takes some 50 ms */
	FLAME_NAMES_BYTES = 6 * 1024 * 1024,	/* with what is kept about them */
	FLAME_NAME_MAX = 4096,	/* bytes of one name; the rest is cut */
	FLAME_NONE = UINT32_MAX,	/* the root's parent and frame */
};

MUST_USE int flame_new(struct flame **ret);
struct flame *flame_free(struct flame *f);
DEFINE_CLEANUP(struct flame *, flame_free);

/*
 * Adds the samples of a batch whose subject is wanted (by subject index; NULL: all of them).
 * -ENOMEM: the flame is of no use any more.
 */
MUST_USE int flame_add(struct flame *f, const struct export_batch *b, const bool *is_wanted);

uint64_t flame_nsamples(const struct flame *f);
uint64_t flame_nanoseconds(const struct flame *f);
uint32_t flame_nframes(const struct flame *f);
/* Texts of a frame: UTF-8, borrowed. Numbers of texts may be used to tell equal ones. */
void flame_frame(const struct flame *f, uint32_t frame, uint32_t *ret_name, uint32_t *ret_module);
const char *flame_text(const struct flame *f, uint32_t text, size_t *ret_len);
uint32_t flame_ntexts(const struct flame *f);

struct flame_node {
	uint32_t parent, frame;
	uint64_t self, total;
};

/* In preorder, siblings by name: stable from one look to the next. */
struct flame_tree {
	uint32_t n;
	struct flame_node *nodes;	/* heap */
	uint64_t npruned;
	uint64_t other_self;	/* what is in `(other)`, wherever */
};

/* At most max_nodes (at least 2), the heaviest; what is left out is in a child `(other)` of its parent. */
MUST_USE int flame_prune(struct flame *f, uint32_t max_nodes, struct flame_tree *ret);

struct flame_entry {
	uint32_t frame;
	uint64_t self, total;	/* a recursive function counts once in total */
};

/* At most max: half of them those with most self, the others those with most total; by self. Heap. */
MUST_USE int flame_top(struct flame *f, uint32_t max, struct flame_entry **ret, uint32_t *ret_n);

#endif
