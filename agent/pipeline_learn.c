/*
 * What samples teach of their threads (learn.h), and looks: a truncated sample shows one page that it
 * misses. Its unwinding goes on with that page as the live thread has it now, to find the others: what
 * is learned are addresses. Late bytes never become frames, and the sample stays truncated.
 */
#include "agent/pipeline_state.h"

#include <errno.h>
#include <string.h>

#include "agent/unwind_arch.h"

enum {
	LOOKS_MAX = 8,		/* at a time */
	LOOKS_PER_SECOND = 32,
	LOOK_ROUNDS_MAX = 8,
	LOOK_PAGES_MAX = 48,	/* some are guesses */
	LOOK_AHEAD = 3,		/* of what is guessed */
	LOOK_DENSE = 4 * EVENT_PAGE_BYTES,	/* steps so short leave no page out */
};

#define LOOK_MAX_NS (5 * NSEC_PER_SEC)	/* for all its rounds and rows */
#define LATE_PAUSE_NS (60 * NSEC_PER_SEC)	/* a reader hung: somebody's memory does not answer */
#define THREAD_IDLE_NS (60 * NSEC_PER_SEC)

struct look {
	struct look *next;
	uint64_t id, since_ns;
	uint32_t pid, tid;
	struct sample *sample;
	struct maps *maps;
	struct file *file;	/* whose rows it waits for; NULL: for memory */
	uint32_t nrounds;
	uint32_t npages, nasked;	/* the last nasked are under way */
	uint64_t present;	/* a bit each */
	uint64_t missing[LOOK_ROUNDS_MAX];	/* what each round was for */
	uint64_t addresses[LOOK_PAGES_MAX];
	uint8_t *pages;		/* npages */
};

static void look_free(struct look *k)
{
	if (k->file)
		file_unref(k->file);
	maps_unref(k->maps);
	sample_free(k->sample);
	free(k->pages);
	free(k);
}

void pipeline_looks_free(struct pipeline *p)
{
	for (struct look *k = p->looks, *next; k; k = next) {
		next = k->next;
		look_free(k);
	}
	p->looks = NULL;
}

size_t pipeline_looks_bytes(const struct pipeline *p)
{
	size_t bytes = learn_bytes(p->learn);

	for (const struct look *k = p->looks; k; k = k->next)
		bytes += sizeof(*k) + k->sample->bytes + (size_t)k->npages * EVENT_PAGE_BYTES;
	return bytes;
}

static void end_look(struct pipeline *p, struct look *k)
{
	struct look **at = &p->looks;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	p->nlooks--;
	look_free(k);
}

/* ---- one round ---- */

static bool has_asked(const struct look *k, uint64_t page)
{
	for (uint32_t i = 0; i < k->npages; i++)
		if (k->addresses[i] == page)
			return true;
	return false;
}

static void want_page(struct look *k, struct reader_peek *ask, uint64_t address)
{
	uint64_t page = learn_page_of(address);

	if (!unwind_is_user(address) || k->npages == LOOK_PAGES_MAX || ask->npages == EVENT_PAGES_MAX ||
	    has_asked(k, page))
		return;
	k->addresses[k->npages++] = page;
	ask->pages[ask->npages++] = page;
}

/*
 * Where the next ones are missing if it goes on like that: frames of one size, or segments with two
 * places each.
 */
static void want_next(struct look *k, struct reader_peek *ask, uint32_t period)
{
	const uint64_t *last = &k->missing[k->nrounds];
	uint64_t step;

	if (k->nrounds < period)
		return;
	step = last[0] - last[-(int)period];
	if (step <= LOOK_DENSE) /* leaves no page out */
		step = EVENT_PAGE_BYTES;
	for (uint32_t i = 1; i <= LOOK_AHEAD; i++)
		for (int j = (int)period - 1; j >= 0; j--)
			want_page(k, ask, last[-j] + i * step);
}

/* False: there is nothing that was not asked for. */
static bool choose_pages(struct look *k, struct reader_peek *ask, uint64_t missing)
{
	if (k->nrounds == LOOK_ROUNDS_MAX)
		return false;
	k->missing[k->nrounds] = missing;
	want_page(k, ask, missing);
	want_page(k, ask, missing + EVENT_PAGE_BYTES);
	want_next(k, ask, 1);
	want_next(k, ask, 2);
	k->nrounds++;
	k->nasked = ask->npages;
	return ask->npages > 0;
}

static int ask_memory(struct pipeline *p, struct look *k, uint64_t missing)
{
	struct reader_peek ask = { .id = k->id, .tid = k->tid };
	uint8_t *bigger;

	if (!choose_pages(k, &ask, missing)) {
		end_look(p, k);
		return 0;
	}
	bigger = realloc(k->pages, (size_t)k->npages * EVENT_PAGE_BYTES);
	if (!bigger) {
		end_look(p, k);
		return 0;
	}
	k->pages = bigger;
	return p->conf.ops->peek ? p->conf.ops->peek(p->conf.arg, &ask) : 0;
}

static int wait_for_rows(struct pipeline *p, struct look *k)
{
	uint32_t nguesses;
	int err;

	k->file = file_ref(p->unwound->want.file);
	err = pipeline_want_rows(p, k->maps, k->pid);
	nguesses = err ? 0 : unwind_guess(&p->view->user, k->maps, p->guesses, GUESSES_MAX);
	for (uint32_t i = 0; i < nguesses && !err; i++)
		err = asks_want(p->asks, &p->guesses[i]);
	return err;
}

/* The sample, and behind its own windows what came since; *ret_which tells of each what page it is. */
static uint32_t view_with_pages(struct pipeline *p, const struct look *k,
				uint32_t ret_which[LOOK_PAGES_MAX])
{
	struct unwind_input *u = &p->view->user;
	uint32_t n = 0;

	sample_view(k->sample, p->view);
	for (uint32_t i = 0; i < k->npages && u->nwindows < UNWIND_WINDOWS_MAX; i++) {
		if (!(k->present >> i & 1))
			continue;
		u->windows[u->nwindows++] = (struct unwind_window){
			.address = k->addresses[i], .data = k->pages + (size_t)i * EVENT_PAGE_BYTES,
			.len = EVENT_PAGE_BYTES,
		};
		ret_which[n++] = i;
	}
	return n;
}

static bool makes_sense(enum unwind_outcome o)
{
	return o == UNWIND_COMPLETE || o == UNWIND_TRUNCATED || o == UNWIND_NO_CFI;
}

/* Without memory it is shed: its time runs out. */
static int shed(int err)
{
	return err == -ENOMEM ? 0 : err;
}

static int look_on(struct pipeline *p, struct look *k)
{
	uint64_t used[LOOK_PAGES_MAX], bits;
	uint32_t which[LOOK_PAGES_MAX], nlate = view_with_pages(p, k, which), n = 0;
	uint32_t nown = p->view->user.nwindows - nlate;
	const struct unwind_result *u = p->unwound;

	if (unwind_run(&p->view->user, k->maps, false, p->unwound) == UNWIND_WANT)
		return shed(wait_for_rows(p, k));
	bits = nown < 64 ? u->used >> nown : 0;
	for (uint32_t i = 0; i < nlate; i++)
		if (bits >> i & 1)
			used[n++] = k->addresses[which[i]];
	/* The memory has changed since the sample, where it does not. */
	if (makes_sense(u->outcome))
		learn_pages(p->learn, k->pid, k->tid, used, n);
	if (u->outcome == UNWIND_TRUNCATED && u->missing)
		return shed(ask_memory(p, k, u->missing));
	end_look(p, k);
	return 0;
}

/* ---- what begins a look, and what brings it on ---- */

static bool may_begin(struct pipeline *p)
{
	if (p->now_ns < p->looks_paused_ns || p->nlooks == LOOKS_MAX)
		return false;
	if (p->now_ns - p->looks_second_ns >= NSEC_PER_SEC) {
		p->looks_second_ns = p->now_ns;
		p->nlooks_second = 0;
	}
	return p->nlooks_second < LOOKS_PER_SECOND;
}

static int begin_look(struct pipeline *p, struct sample **s, struct maps *maps)
{
	struct look *k = calloc(1, sizeof(*k));

	if (!k)
		return 0;
	k->id = ++p->last_look;
	k->since_ns = p->now_ns;
	k->pid = p->view->pid;
	k->tid = p->view->tid;
	k->sample = TAKE(*s);
	k->maps = maps_ref(maps);
	k->next = p->looks;
	p->looks = k;
	p->nlooks++;
	p->nlooks_second++;
	return shed(ask_memory(p, k, p->unwound->missing));
}

int pipeline_learn(struct pipeline *p, struct sample **s, struct maps *maps)
{
	const struct learn_sample seen = { .pid = p->view->pid, .tid = p->view->tid, .now_ns = p->now_ns,
					   .in = &p->view->user, .out = p->unwound };

	if (!learn_sample(p->learn, &seen) || !may_begin(p) || !learn_may_look(p->learn, seen.tid))
		return 0;
	return begin_look(p, s, maps);
}

int pipeline_take_memory(struct pipeline *p, const struct event_memory *m)
{
	struct look *k = p->looks;

	while (k && k->id != m->id)
		k = k->next;
	if (m->late)
		p->looks_paused_ns = p->now_ns + LATE_PAUSE_NS;
	if (!k || k->file)
		return 0;
	if (!m->present || m->npages != k->nasked) {
		end_look(p, k);
		return 0;
	}
	memcpy(k->pages + (size_t)(k->npages - k->nasked) * EVENT_PAGE_BYTES, m->pages,
	       (size_t)m->npages * EVENT_PAGE_BYTES);
	k->present |= (uint64_t)m->present << (k->npages - k->nasked);
	k->nasked = 0;
	return look_on(p, k);
}

int pipeline_retry_looks(struct pipeline *p, const struct file *file)
{
	int err = 0;

	for (struct look *k = p->looks, *next; k && !err; k = next) {
		next = k->next;
		if (k->file != file)
			continue;
		file_unref(k->file);
		k->file = NULL;
		err = look_on(p, k);
	}
	return err;
}

void pipeline_sweep_learned(struct pipeline *p)
{
	for (struct look *k = p->looks, *next; k; k = next) {
		next = k->next;
		if (p->now_ns - MIN(p->now_ns, k->since_ns) > LOOK_MAX_NS)
			end_look(p, k);
	}
	learn_forget_idle(p->learn, p->now_ns - MIN(p->now_ns, (uint64_t)THREAD_IDLE_NS));
}
