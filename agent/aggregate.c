#include "agent/aggregate.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

enum { SLOTS_MIN = 1024, ARRAY_MIN = 256 };

/* Open addressing over indexes + 1, so that 0 is an empty slot. */
struct table {
	uint32_t *slots;
	size_t nslots;	/* a power of two, at most half full */
};

struct aggregate {
	size_t max_bytes;
	uint64_t seed;		/* sampled programs choose frames: they must not be able to choose slots */
	struct frame *frames;
	size_t nframes, frames_cap;
	struct table frame_table;
	struct stack *stacks;
	size_t nstacks, stacks_cap;
	struct table stack_table;
	uint32_t *index;	/* frame indexes of all stacks */
	size_t nindex, index_cap;
	uint32_t *scratch;	/* of the stack being added */
	uint64_t nsamples;
};

enum { SCRATCH = UNWIND_FRAMES_MAX + ABI_KSTACK_MAX + 2 };

/* Whether `more` bytes fit. */
static bool has_room(const struct aggregate *a, size_t more)
{
	return aggregate_bytes(a) + more <= a->max_bytes;
}

/* Room for `add` elements more, at least, if the window has it. */
static int grow_array(const struct aggregate *a, void *array, size_t n, size_t *cap, size_t add, size_t elem)
{
	void **p = array;
	size_t need = MAX(n + add, (size_t)ARRAY_MIN), want = MAX(*cap + *cap / 2, need);
	void *bigger;

	if (n + add <= *cap)
		return 0;
	if (!has_room(a, (want - *cap) * elem))
		want = need + *cap / 32;
	if (!has_room(a, (want - *cap) * elem))
		return -ENOSPC;
	bigger = reallocarray(*p, want, elem);
	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	*cap = want;
	return 0;
}

static uint64_t frame_hash(const struct aggregate *a, const struct frame *f)
{
	uint64_t key[3] = { (uint64_t)f->kind, f->value, f->file ? f->file->id : 0 };

	return XXH3_64bits_withSeed(key, sizeof(key), a->seed);
}

static int table_grow(struct table *t, size_t count, uint64_t (*hash)(const struct aggregate *a, size_t i),
		      const struct aggregate *a)
{
	size_t nslots = t->nslots ? t->nslots * 2 : SLOTS_MIN;
	uint32_t *slots;

	if ((count + 1) * 2 <= t->nslots)
		return 0;
	if (!has_room(a, (nslots - t->nslots) * sizeof(*slots)))
		return -ENOSPC;
	slots = calloc(nslots, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		size_t at = hash(a, i) & (nslots - 1);

		while (slots[at])
			at = (at + 1) & (nslots - 1);
		slots[at] = (uint32_t)i + 1;
	}
	free(t->slots);
	t->slots = slots;
	t->nslots = nslots;
	return 0;
}

static uint64_t nth_frame_hash(const struct aggregate *a, size_t i)
{
	return frame_hash(a, &a->frames[i]);
}

static uint64_t nth_stack_hash(const struct aggregate *a, size_t i)
{
	return a->stacks[i].hash;
}

int aggregate_new(struct aggregate **ret, size_t max_bytes)
{
	CLEANUP(aggregate_freep) struct aggregate *a = calloc(1, sizeof(*a));
	const void *random = (const void *)getauxval(AT_RANDOM);

	if (!a)
		return -ENOMEM;
	a->max_bytes = max_bytes;
	if (random)
		memcpy(&a->seed, random, sizeof(a->seed));
	a->scratch = calloc(SCRATCH, sizeof(*a->scratch));
	if (!a->scratch)
		return -ENOMEM;
	*ret = TAKE(a);
	return 0;
}

struct aggregate *aggregate_free(struct aggregate *a)
{
	if (!a)
		return NULL;
	for (size_t i = 0; i < a->nframes; i++) {
		if (a->frames[i].file)
			file_unref(a->frames[i].file);
	}
	for (size_t i = 0; i < a->nstacks; i++)
		subject_unref(a->stacks[i].subject);
	free(a->frames);
	free(a->frame_table.slots);
	free(a->stacks);
	free(a->stack_table.slots);
	free(a->index);
	free(a->scratch);
	free(a);
	return NULL;
}

static int add_frame(struct aggregate *a, const struct frame *f, size_t at)
{
	int err;

	if (a->nframes >= AGGREGATE_FRAMES_MAX)
		return -ENOSPC;
	err = grow_array(a, &a->frames, a->nframes, &a->frames_cap, 1, sizeof(*a->frames));
	if (err)
		return err;
	a->frames[a->nframes] = *f;
	if (f->file)
		file_ref(f->file);
	a->frame_table.slots[at] = (uint32_t)++a->nframes;
	return 0;
}

static int intern(struct aggregate *a, const struct frame *f, uint32_t *ret)
{
	size_t at;
	int err;

	err = table_grow(&a->frame_table, a->nframes, nth_frame_hash, a);
	/* A table that cannot grow still finds what is in it. */
	if (err && !a->frame_table.nslots)
		return err;
	at = frame_hash(a, f) & (a->frame_table.nslots - 1);
	for (; a->frame_table.slots[at]; at = (at + 1) & (a->frame_table.nslots - 1)) {
		const struct frame *have = &a->frames[a->frame_table.slots[at] - 1];

		if (have->kind == f->kind && have->value == f->value && have->file == f->file) {
			*ret = a->frame_table.slots[at] - 1;
			return 0;
		}
	}
	if (!err)
		err = add_frame(a, f, at);
	if (err)
		return err;
	*ret = (uint32_t)a->nframes - 1;
	return 0;
}

static int intern_all(struct aggregate *a, const struct aggregate_sample *s, uint32_t *ret_n)
{
	uint32_t n = 0;
	int err;

	for (uint32_t i = 0; i < s->nkernel && i < ABI_KSTACK_MAX; i++) {
		/* Callers by an address in their call: what follows it may be the next function. */
		struct frame f = { .kind = FRAME_KERNEL, .value = s->kernel[i] - (i > 0) };

		if ((err = intern(a, &f, &a->scratch[n++])))
			return err;
	}
	for (uint32_t i = 0; i < s->nuser && i < UNWIND_FRAMES_MAX; i++) {
		const struct unwind_frame *u = &s->user[i];
		struct frame f = { .kind = FRAME_FILE, .value = u->offset, .file = u->file };

		if (!u->file) {
			f.kind = FRAME_JIT;
			f.file = s->jit;
			f.value = s->jit ? u->offset : u->offset & 0xfff;
		}
		if ((err = intern(a, &f, &a->scratch[n++])))
			return err;
	}
	if (unwind_outcome_root(s->outcome)[0] || n == 0) {
		struct frame f = { .kind = FRAME_OUTCOME, .value = s->outcome };

		/* A sample without any frame still needs one. */
		if (!unwind_outcome_root(s->outcome)[0])
			f.value = UNWIND_NO_STACK;

		if ((err = intern(a, &f, &a->scratch[n++])))
			return err;
	}
	*ret_n = n;
	return 0;
}

static bool same_stack(const struct aggregate *a, const struct stack *have, const struct stack *want)
{
	return have->hash == want->hash && have->subject == want->subject && have->tid == want->tid &&
	       have->nframes == want->nframes && memcmp(have->comm, want->comm, ABI_COMM_LEN) == 0 &&
	       memcmp(a->index + have->first_frame, a->scratch, want->nframes * sizeof(uint32_t)) == 0;
}

static int add_stack(struct aggregate *a, const struct stack *want, size_t at)
{
	int err;

	if (a->nstacks * AGGREGATE_STACK_WIRE + (a->nindex + want->nframes) * sizeof(uint32_t) >
	    AGGREGATE_WIRE_MAX - AGGREGATE_STACK_WIRE)
		return -ENOSPC;
	if ((err = grow_array(a, &a->stacks, a->nstacks, &a->stacks_cap, 1, sizeof(*a->stacks))) ||
	    (err = grow_array(a, &a->index, a->nindex, &a->index_cap, want->nframes, sizeof(*a->index))))
		return err;
	memcpy(a->index + a->nindex, a->scratch, want->nframes * sizeof(uint32_t));
	a->stacks[a->nstacks] = *want;
	a->stacks[a->nstacks].first_frame = (uint32_t)a->nindex;
	subject_ref(want->subject);
	a->nindex += want->nframes;
	a->stack_table.slots[at] = (uint32_t)++a->nstacks;
	return 0;
}

int aggregate_add(struct aggregate *a, const struct aggregate_sample *s)
{
	struct stack want = { .subject = s->subject, .tid = s->tid, .count = 1, .nanoseconds = s->period_ns };
	uint64_t seed = a->seed ^ s->subject->id << 32 ^ s->tid;
	size_t at;
	int err;

	memcpy(want.comm, s->comm, strnlen(s->comm, ABI_COMM_LEN));
	err = intern_all(a, s, &want.nframes);
	if (err)
		return err;
	err = table_grow(&a->stack_table, a->nstacks, nth_stack_hash, a);
	if (err && !a->stack_table.nslots)
		return err;
	want.hash = XXH3_64bits_withSeed(a->scratch, want.nframes * sizeof(uint32_t), seed);
	at = want.hash & (a->stack_table.nslots - 1);
	for (; a->stack_table.slots[at]; at = (at + 1) & (a->stack_table.nslots - 1)) {
		struct stack *have = &a->stacks[a->stack_table.slots[at] - 1];

		if (same_stack(a, have, &want)) {
			have->count++;
			have->nanoseconds += s->period_ns;
			a->nsamples++;
			return 0;
		}
	}
	if (!err)
		err = add_stack(a, &want, at);
	if (err)
		return err;
	a->nsamples++;
	return 0;
}

size_t aggregate_nstacks(const struct aggregate *a)
{
	return a->nstacks;
}

const struct stack *aggregate_stack(const struct aggregate *a, size_t i)
{
	return &a->stacks[i];
}

size_t aggregate_nframes(const struct aggregate *a)
{
	return a->nframes;
}

const struct frame *aggregate_frame(const struct aggregate *a, size_t i)
{
	return &a->frames[i];
}

const uint32_t *aggregate_frame_index(const struct aggregate *a, const struct stack *s)
{
	return a->index + s->first_frame;
}

uint64_t aggregate_samples(const struct aggregate *a)
{
	return a->nsamples;
}

size_t aggregate_bytes(const struct aggregate *a)
{
	return a->frames_cap * sizeof(*a->frames) + a->stacks_cap * sizeof(*a->stacks) +
	       a->index_cap * sizeof(*a->index) + SCRATCH * sizeof(*a->scratch) +
	       (a->frame_table.nslots + a->stack_table.nslots) * sizeof(uint32_t);
}
