#include "agent/learn.h"

#include <errno.h>
#include <string.h>

#include "agent/unwind_arch.h"

enum {
	BUCKETS = 256,
	PAGE_BYTES = 4096,
	LOOK_GAP_MAX = 64,		/* samples between two looks */
	STACK_SLACK = 16 * 1024,	/* a stack is taken to reach so far below the lowest sp seen */
	STACK_EXCESS_MIN = 8 * 1024,	/* copied for nothing, before its top is learned */
	STACK_WRONG_MAX = 1 << 20,	/* what is missed so far above a top shows that it is none */
	FRAME_COMMON_MAX = 16 * 1024,	/* larger ones are few, and keep their places */
};

struct page {
	uint64_t address;
	uint32_t idle;	/* times that it came for nothing, since it was of use */
};

struct stack {
	uint64_t low, high;
	uint32_t idle;	/* samples on other stacks since */
};

struct thread {
	struct thread *next;
	uint32_t pid, tid;
	uint64_t seen_ns;
	uint32_t wait, gap;	/* samples before the next look, and after it */
	uint32_t npages, nstacks;
	bool cut;		/* its stack was */
	bool deep;		/* it needs many pages: more than one record brings */
	bool follow;		/* what was learned did not suffice */
	bool told;		/* BPF knows something of it */
	struct page pages[ABI_LEARNED_PAGES];
	struct stack stacks[ABI_LEARNED_STACKS];
};

struct learn {
	learn_tell_fn *tell;
	void *arg;
	uint32_t n;
	struct thread *buckets[BUCKETS];
};

int learn_new(struct learn **ret, learn_tell_fn *tell, void *arg)
{
	struct learn *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->tell = tell;
	l->arg = arg;
	*ret = l;
	return 0;
}

struct learn *learn_free(struct learn *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct thread *t = l->buckets[i], *next; t; t = next) {
			next = t->next;
			free(t);
		}
	}
	free(l);
	return NULL;
}

/* ---- threads ---- */

static struct thread **find(struct learn *l, uint32_t tid)
{
	struct thread **at = &l->buckets[tid % BUCKETS];

	while (*at && (*at)->tid != tid)
		at = &(*at)->next;
	return at;
}

static void tell(struct learn *l, struct thread *t)
{
	struct abi_learned all = { .npages = t->npages, .nstacks = t->nstacks };
	bool any = t->npages || t->nstacks || t->cut;

	all.flags = (t->deep ? ABI_LEARNED_DEEP : 0) | (t->follow ? ABI_LEARNED_FOLLOW : 0);
	for (uint32_t i = 0; i < t->npages; i++)
		all.pages[i] = t->pages[i].address;
	for (uint32_t i = 0; i < t->nstacks; i++)
		all.stacks[i] = (struct abi_range){ t->stacks[i].low, t->stacks[i].high };
	if (any && !t->npages && !t->nstacks)
		all.nstacks = 1;
	if (any || t->told)
		l->tell(l->arg, t->tid, &all);
	t->told = any;
}

static void forget_at(struct learn *l, struct thread **at)
{
	struct thread *t = *at;

	t->npages = t->nstacks = 0;
	t->cut = t->deep = t->follow = false;
	tell(l, t);
	*at = t->next;
	free(t);
	l->n--;
}

void learn_forget(struct learn *l, uint32_t tid)
{
	struct thread **at = find(l, tid);

	if (*at)
		forget_at(l, at);
}

void learn_forget_idle(struct learn *l, uint64_t since_ns)
{
	for (size_t i = 0; i < BUCKETS && l->n; i++) {
		for (struct thread **at = &l->buckets[i]; *at;) {
			if ((*at)->seen_ns < since_ns)
				forget_at(l, at);
			else
				at = &(*at)->next;
		}
	}
}

static void forget_oldest(struct learn *l)
{
	const struct thread *oldest = NULL;

	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct thread *t = l->buckets[i]; t; t = t->next)
			if (!oldest || t->seen_ns < oldest->seen_ns)
				oldest = t;
	if (oldest)
		learn_forget(l, oldest->tid);
}

/* NULL: no memory. */
static struct thread *get(struct learn *l, uint32_t pid, uint32_t tid, uint64_t now_ns)
{
	struct thread *t = *find(l, tid);

	if (t)
		return t;
	if (l->n == ABI_LEARNED_THREADS)
		forget_oldest(l);
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->pid = pid;
	t->tid = tid;
	t->seen_ns = now_ns;
	t->gap = 1;
	t->next = l->buckets[tid % BUCKETS];
	l->buckets[tid % BUCKETS] = t;
	l->n++;
	return t;
}

/* ---- pages ---- */

static bool has_page(const struct thread *t, uint64_t address)
{
	for (uint32_t i = 0; i < t->npages; i++)
		if (t->pages[i].address == address)
			return true;
	return false;
}

/* False: it is there, or all that are there are needed. */
static bool add_page(struct thread *t, uint64_t address)
{
	uint32_t worst = 0;

	if (has_page(t, address))
		return false;
	if (t->npages < ABI_LEARNED_PAGES) {
		t->pages[t->npages++] = (struct page){ .address = address };
		t->deep |= t->npages > ABI_RECORD_PAGES;
		return true;
	}
	for (uint32_t i = 1; i < t->npages; i++)
		if (t->pages[i].idle > t->pages[worst].idle)
			worst = i;
	if (!t->pages[worst].idle)
		return false;
	t->pages[worst] = (struct page){ .address = address };
	return true;
}

/* Whether the sample had this page as a window of its own, and used it. */
static bool page_came(const struct learn_sample *s, uint64_t address, bool *ret_used)
{
	for (uint32_t i = 0; i < s->in->nwindows; i++) {
		const struct unwind_window *w = &s->in->windows[i];

		if (w->address != address || w->len != PAGE_BYTES)
			continue;
		*ret_used = s->out->used >> i & 1;
		return true;
	}
	return false;
}

/* What other windows held is not there for nothing. True: some give way. */
static bool age_pages(struct thread *t, const struct learn_sample *s)
{
	uint32_t n = 0;
	bool used;

	for (uint32_t i = 0; i < t->npages; i++) {
		struct page page = t->pages[i];

		if (page_came(s, page.address, &used))
			page.idle = used ? 0 : page.idle + 1;
		if (page.idle < LEARN_IDLE_MAX)
			t->pages[n++] = page;
	}
	used = n != t->npages;
	t->npages = n;
	return used;
}

/* ---- stacks ---- */

static struct stack *stack_of(struct thread *t, uint64_t sp)
{
	for (uint32_t i = 0; i < t->nstacks; i++)
		if (sp - t->stacks[i].low < t->stacks[i].high - t->stacks[i].low)
			return &t->stacks[i];
	return NULL;
}

static void drop_stack(struct thread *t, struct stack *s)
{
	*s = t->stacks[--t->nstacks];
}

static void age_stacks(struct thread *t, uint64_t sp)
{
	struct stack *at = stack_of(t, sp);

	for (uint32_t i = 0; i < t->nstacks; i++)
		t->stacks[i].idle++;
	if (at)
		at->idle = 0;
}

/* Bytes of the sample, pages apart, that are not of the stack from its sp to this end. */
static uint64_t excess(const struct learn_sample *s, uint64_t sp, uint64_t high)
{
	uint64_t low = sp - ABI_RED_ZONE, bytes = 0;

	for (uint32_t i = 0; i < s->in->nwindows; i++) {
		const struct unwind_window *w = &s->in->windows[i];
		uint64_t from = MAX(w->address, low), to = MIN(w->address + w->len, high);

		if (w->len != PAGE_BYTES)
			bytes += w->len - (to > from ? to - from : 0);
	}
	return bytes;
}

/* A stack's end, from one that was unwound to its root; 0 when there is nothing to be learned of it. */
static uint64_t end_of_stack(const struct learn_sample *s, uint64_t sp)
{
	uint64_t high = (s->out->root_cfa + 7) & ~7ull;

	if (s->out->outcome != UNWIND_COMPLETE || !unwind_is_user(s->out->root_cfa) || !unwind_is_user(sp) ||
	    s->in->flags & (ABI_F_ON_ALTSTACK | ABI_F_ON_G0 | ABI_F_ON_GOROUTINE | ABI_F_PART_LOST))
		return 0;
	if (sp >= high || high - sp > LEARN_STACK_MAX || excess(s, sp, high) < STACK_EXCESS_MIN)
		return 0;
	return high;
}

/*
 * Stacks never overlap: what is believed to lie below this one's end, and is not of it, ends there,
 * and one that was believed to end below it was wrong.
 */
static void add_stack(struct thread *t, uint64_t sp, uint64_t high)
{
	uint64_t low = sp - MIN(sp, (uint64_t)STACK_SLACK);
	uint32_t worst = 0;
	struct stack *at;

	for (uint32_t i = 0; i < t->nstacks;) {
		struct stack *s = &t->stacks[i];

		if (s->high == high) {
			low = MIN(low, s->low);
			drop_stack(t, s);
		} else if (s->high > sp && s->high < high) {
			drop_stack(t, s);
		} else {
			if (s->high > high && s->low < high)
				s->low = high;
			i++;
		}
	}
	for (uint32_t i = 0; i < t->nstacks; i++) {
		if (t->stacks[i].high <= sp)
			low = MAX(low, t->stacks[i].high);
		if (t->stacks[i].idle > t->stacks[worst].idle)
			worst = i;
	}
	at = t->nstacks < ABI_LEARNED_STACKS ? &t->stacks[t->nstacks++] : &t->stacks[worst];
	*at = (struct stack){ .low = low, .high = high };
}

/* Whether the sample shows that the stack it is on does not end where it was believed to. */
static bool is_wrong(const struct stack *at, const struct unwind_result *out)
{
	if (out->outcome == UNWIND_NO_CFI || out->outcome == UNWIND_BAD_FRAME)
		return true;
	return out->outcome == UNWIND_TRUNCATED && out->missing - at->high < STACK_WRONG_MAX;
}

/* ---- samples ---- */

/* True: something has changed. */
static bool review(struct thread *t, const struct learn_sample *s, uint64_t sp)
{
	struct stack *at = stack_of(t, sp);
	bool changed = age_pages(t, s);

	if (at && is_wrong(at, s->out)) {
		drop_stack(t, at);
		changed = true;
	}
	age_stacks(t, sp);
	if (t->wait)
		t->wait--;
	else if (s->out->outcome == UNWIND_COMPLETE && t->gap > 1)
		t->gap--;
	return changed;
}

/* What a part that was lost held says nothing of what is copied. */
static bool misses_page(const struct learn_sample *s)
{
	return s->out->outcome == UNWIND_TRUNCATED && learn_page_of(s->out->missing) &&
	       !(s->in->flags & ABI_F_PART_LOST);
}

/* Where the copy that begins at sp ends: windows follow each other from the leaf's on. */
static uint64_t end_of_copy(const struct unwind_input *in, uint64_t sp)
{
	uint64_t end = sp;

	for (uint32_t i = 0; i < in->nwindows; i++)
		if (end - in->windows[i].address <= in->windows[i].len)
			end = MAX(end, in->windows[i].address + in->windows[i].len);
	return end;
}

/* Whether a cut stack has common frames where its copy ends: then that is at another one in each sample. */
static bool is_deep(const struct learn_sample *s, uint64_t sp)
{
	return s->in->flags & ABI_F_CUT && s->out->missing - end_of_copy(s->in, sp) < FRAME_COMMON_MAX;
}

bool learn_sample(struct learn *l, const struct learn_sample *s)
{
	uint64_t sp = s->in->nregs > UNWIND_SP ? s->in->regs[UNWIND_SP] : 0;
	uint64_t high = end_of_stack(s, sp), page = learn_page_of(s->out->missing);
	bool cut = s->in->flags & ABI_F_CUT, missed = misses_page(s);
	struct thread *t = *find(l, s->tid);
	bool changed, known;

	if (t && t->pid != s->pid) {
		learn_forget(l, s->tid);
		t = NULL;
	}
	if (!t && !high && !missed && !cut)
		return false;
	known = t;
	if (!t)
		t = get(l, s->pid, s->tid, s->now_ns);
	if (!t)
		return false;
	t->seen_ns = s->now_ns;
	changed = review(t, s, sp);
	missed = missed && !has_page(t, page);
	if (high)
		add_stack(t, sp, high);
	if (missed)
		changed |= add_page(t, page);
	if (missed && !t->deep && is_deep(s, sp))
		changed = t->deep = true;
	changed |= cut && !t->cut;
	t->cut |= cut;
	/* A second cut stack that ends too early: there may be more of them than pages can mend. */
	if (cut && known && s->out->outcome == UNWIND_TRUNCATED) {
		changed |= !t->follow;
		t->follow = true;
	}
	if (changed || high)
		tell(l, t);
	return missed;
}

bool learn_may_look(struct learn *l, uint32_t tid)
{
	struct thread *t = *find(l, tid);

	if (!t || t->wait)
		return false;
	t->wait = t->gap;
	t->gap = MIN(t->gap * 2, (uint32_t)LOOK_GAP_MAX);
	return true;
}

void learn_pages(struct learn *l, uint32_t pid, uint32_t tid, const uint64_t *pages, uint32_t n)
{
	struct thread *t = *find(l, tid);
	bool changed = false;

	/* It may have ended, or given way, since the sample. */
	if (!t || t->pid != pid || !n)
		return;
	for (uint32_t i = 0; i < n; i++)
		changed |= add_page(t, pages[i]);
	if (changed)
		tell(l, t);
}

size_t learn_bytes(const struct learn *l)
{
	return sizeof(*l) + l->n * sizeof(struct thread);
}
