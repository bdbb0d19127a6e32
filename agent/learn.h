/*
 * learn - what samples show of the memory of their threads, for the next ones (sampler_learn()):
 *
 *  - pages: of memory that an unwinding needed and that was in no window of its sample. Those that
 *    come LEARN_IDLE_MAX times without being needed, and when all are taken the one that has come
 *    for nothing most often, give way. Where all are needed, further ones are left out. A thread that needs
 *    many, or one that lies where the copy of a cut stack ended, has a deep stack, of which more is copied from
 *    then on; one whose cut stacks end too early again gets
 *    the kernel's walk by frame pointers with them;
 *  - stacks: where the one that a complete sample was on ends, if much more was copied than that.
 *    One that turns out to end elsewhere is forgotten.
 *
 * A thread whose stack was cut, and of which there is nothing to say, is known by an empty stack: then
 * BPF does not wake the agent for it again.
 *
 * As many threads are known as BPF has room for; then the one that was not sampled for longest gives
 * way. Whoever ends a thread's life or memory tells it here.
 *
 * May touch: the heap. Never: the sampler; what it knows goes to `tell`.
 */
#ifndef AGENT_LEARN_H
#define AGENT_LEARN_H

#include "agent/unwind.h"

enum { LEARN_IDLE_MAX = 64 };
#define LEARN_STACK_MAX (64ull << 20)	/* a root farther above sp is not that of its stack */

/* In place of what was told of this thread before; without pages and stacks: nothing is known of it. */
typedef void learn_tell_fn(void *arg, uint32_t tid, const struct abi_learned *l);

struct learn;

MUST_USE int learn_new(struct learn **ret, learn_tell_fn *tell, void *arg);
struct learn *learn_free(struct learn *l);
DEFINE_CLEANUP(struct learn *, learn_free);

struct learn_sample {
	uint32_t pid, tid;
	uint64_t now_ns;
	const struct unwind_input *in;
	const struct unwind_result *out;	/* UNWIND_DONE */
};

/*
 * Takes in what a sample shows. True: its unwinding ended at a page that was not known of, which is
 * enough for one step; learn_may_look() and learn_pages() are for the steps after it.
 */
bool learn_sample(struct learn *l, const struct learn_sample *s);
/*
 * Whether it is time to look at a live thread of which learn_sample() was true; counts as one look.
 * Threads that need other pages each time are looked at more and more rarely.
 */
bool learn_may_look(struct learn *l, uint32_t tid);
void learn_pages(struct learn *l, uint32_t pid, uint32_t tid, const uint64_t *pages, uint32_t n);

void learn_forget(struct learn *l, uint32_t tid);
/* Threads that were not sampled since. */
void learn_forget_idle(struct learn *l, uint64_t since_ns);
size_t learn_bytes(const struct learn *l);

static inline uint64_t learn_page_of(uint64_t address)
{
	return address & ~4095ull;
}

#endif
