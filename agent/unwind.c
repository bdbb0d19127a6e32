#include "agent/unwind.h"

#include <assert.h>
#include <string.h>

#include "agent/files.h"
#include "agent/unwind_arch.h"

static const struct {
	const char *text;
	const char *root;
} outcomes[] = {
#define X(id, text, root) { text, root },
	UNWIND_OUTCOMES(X)
#undef X
};

const char *unwind_outcome_text(enum unwind_outcome o)
{
	assert(o < UNWIND_OUTCOME_COUNT);
	return outcomes[o].text;
}

const char *unwind_outcome_root(enum unwind_outcome o)
{
	assert(o < UNWIND_OUTCOME_COUNT);
	return outcomes[o].root;
}

bool unwind_outcome_counts(enum unwind_outcome o)
{
	return o != UNWIND_KERNEL_THREAD && o != UNWIND_IN_EXEC && o != UNWIND_NEW_THREAD &&
	       o != UNWIND_EXITING;
}

/*
 * No two live frames have the same stack pointer, so a step that goes down to where an earlier one
 * went is a circle. A step that goes up needs no watching: it cannot be repeated for ever.
 */
enum { LANDINGS_MAX = 64 };
struct landing {
	uint64_t sp;
	uint32_t nframes; /* when it happened */
};

/* A mapping as frames need it. */
struct area {
	uint64_t start, len;		/* len 0: none */
	uint64_t to_offset;		/* from an address to what a frame says, modulo 2^64 */
	struct file *file;		/* resolved, or NULL */
	const struct rows_table *table; /* where the file has rows */
	uint8_t map_kind;
};

struct walk {
	struct unwind_cursor c;
	const struct maps *maps;
	struct area area; /* of the last frame, nearly always the next one's too */
	bool settle;
	bool guessed; /* the pc came from a frame pointer in code without rows */
	uint32_t nlandings;
	struct landing landings[LANDINGS_MAX];
	struct unwind_result *ret;
};

/* What is known of the frame's pc. */
struct site {
	uint64_t offset; /* of the pc, as in struct unwind_frame */
	uint32_t known;	 /* MSG_RES_* */
	struct row row;	 /* its flags are MSG_ROW_NO_CFI when there is none */
};

enum { WALK_ON = UNWIND_WANT + 1 };

static int finish(struct walk *w, enum unwind_outcome outcome)
{
	w->ret->outcome = outcome;
	return UNWIND_DONE;
}

static bool area_find(const struct maps *maps, uint64_t address, struct area *ret)
{
	const struct map *map = maps_find(maps, address);

	*ret = (struct area){ 0 };
	if (!map)
		return false;
	ret->start = map->start;
	ret->len = map->end - map->start;
	ret->map_kind = map->kind == MAP_FILE ? MAP_ANON : (uint8_t)map->kind;
	/* Past what an off_t can say there is no file; rows are not asked of such offsets. */
	if (!map->file || map->offset >= INT64_MAX - ret->len)
		return true;
	ret->map_kind = (uint8_t)map->kind;
	ret->file = file_resolve(map->file);
	ret->to_offset = map->offset - map->start;
	if (ret->file->rows)
		ret->table = rows_table(ret->file->rows);
	return true;
}

static int emit(struct walk *w, uint64_t offset)
{
	if (w->ret->nframes == UNWIND_FRAMES_MAX)
		return finish(w, UNWIND_TOO_DEEP);
	w->ret->frames[w->ret->nframes++] =
		(struct unwind_frame){ w->area.file, offset, w->area.map_kind };
	return WALK_ON;
}

/* Asks the cache. A file that could not be opened, and what is no file, has no rows. */
static int site_rows(struct walk *w, struct site *s)
{
	struct file *file = w->area.file;

	s->known = 0;
	s->row.plain = NULL;
	s->row.flags = MSG_ROW_NO_CFI;
	if (!file || file->state == FILE_FAILED)
		return WALK_ON;
	if (file->rows &&
	    rows_find(file->rows, s->offset, w->c.is_return, &s->row, &s->known) == ROWS_KNOWN)
		return WALK_ON;
	if (w->settle)
		return finish(w, UNWIND_ROWS_LATE);
	w->ret->want = (struct unwind_want){ file, s->offset, w->c.is_return };
	return UNWIND_WANT;
}

/*
 * Whether the address can be one that a call left. Signal trampolines are entered by the kernel,
 * and ends by whoever made the stack (Go puts goexit + 1 there).
 */
static int check_return(struct walk *w, const struct site *s)
{
	if (!(s->known & MSG_RES_CODE) || s->known & MSG_RES_AFTER_CALL ||
	    s->row.flags & (MSG_ROW_SIGNAL | MSG_ROW_END))
		return WALK_ON;
	if (w->guessed)
		return finish(w, UNWIND_NO_CFI);
	if (!(s->known & MSG_RES_FUNCTION_START))
		return finish(w, UNWIND_BAD_FRAME);
	w->ret->root_cfa = w->c.regs[UNWIND_SP];
	return finish(w, UNWIND_COMPLETE);
}

/* Finds, checks and reports the frame that the cursor stands in. */
static int visit(struct walk *w, struct site *s)
{
	bool is_return = w->c.is_return;
	uint64_t pc = w->c.regs[UNWIND_PC];
	int r;

	if (pc - is_return - w->area.start >= w->area.len &&
	    !area_find(w->maps, pc - is_return, &w->area))
		return finish(w, w->guessed ? UNWIND_NO_CFI : UNWIND_NO_MAPPING);
	s->offset = pc + w->area.to_offset;
	/* An interrupted pc is true whatever its rows will say. */
	if (!is_return) {
		r = emit(w, s->offset);
		if (r != WALK_ON)
			return r;
	}
	r = site_rows(w, s);
	if (r != WALK_ON || !is_return)
		return r;
	r = check_return(w, s);
	if (r != WALK_ON)
		return r;
	return emit(w, s->row.flags & MSG_ROW_SIGNAL ? s->offset : s->offset - 1);
}

/*
 * visit() where all is as usual: a return address behind a call, with a plain row that is known, and
 * room for the frame. NULL, and nothing done, where it is not.
 */
static inline const struct row_plain *visit_plain(struct walk *w, uint64_t pc, struct unwind_frame **next,
						  const struct unwind_frame *end)
{
	const struct row_plain *p;
	uint64_t offset;

	if (pc - 1 - w->area.start >= w->area.len && !area_find(w->maps, pc - 1, &w->area))
		return NULL;
	if (!w->area.table)
		return NULL;
	offset = pc + w->area.to_offset;
	p = rows_find_plain(w->area.table, offset);
	if (!p || *next == end)
		return NULL;
	*(*next)++ = (struct unwind_frame){ w->area.file, offset - 1, w->area.map_kind };
	return p;
}

static int check_circle(struct walk *w)
{
	uint64_t sp = w->c.regs[UNWIND_SP];

	for (uint32_t i = 0; i < w->nlandings; i++) {
		if (w->landings[i].sp == sp) {
			/* All since then was the circle's first round, or is it again. */
			w->ret->nframes = w->landings[i].nframes;
			return finish(w, UNWIND_BAD_FRAME);
		}
	}
	if (w->nlandings == LANDINGS_MAX)
		return finish(w, UNWIND_BAD_FRAME);
	w->landings[w->nlandings++] = (struct landing){ sp, w->ret->nframes };
	return WALK_ON;
}

/* What a step means for the walk. */
static int after_step(struct walk *w, enum unwind_step result)
{
	switch (result) {
	case UNWIND_STEP_OK:
		return w->c.backward ? check_circle(w) : WALK_ON;
	case UNWIND_STEP_END:
		w->ret->root_cfa = w->c.floor;
		return finish(w, UNWIND_COMPLETE);
	case UNWIND_STEP_TRUNCATED:
		w->ret->missing = w->c.missing;
		return finish(w, UNWIND_TRUNCATED);
	case UNWIND_STEP_NO_CFI:
		return finish(w, unwind_arch_new_thread(&w->c) ? UNWIND_NEW_THREAD : UNWIND_NO_CFI);
	case UNWIND_STEP_BAD:
		break;
	}
	return finish(w, UNWIND_BAD_FRAME);
}

/* The inner loop: through plain rows as far as all is as usual. */
static int walk_plain(struct walk *w, const struct row_plain *p)
{
	struct unwind_frame *next = w->ret->frames + w->ret->nframes;
	const struct unwind_frame *end = w->ret->frames + UNWIND_FRAMES_MAX;
	struct unwind_hot h = unwind_hot_begin(&w->c);
	struct row row;

	while (p && unwind_hot_step(&h, p))
		p = visit_plain(w, h.pc, &next, end);
	unwind_hot_end(&h, &w->c);
	w->ret->nframes = (uint32_t)(next - w->ret->frames);
	if (!p)
		return WALK_ON;
	rows_whole(w->area.file->rows, p, &row);
	return after_step(w, unwind_rules_step(&w->c, &row));
}

/* From the frame at `s` to its caller. */
static int step(struct walk *w, const struct site *s)
{
	if (s->row.flags & MSG_ROW_END) {
		w->ret->root_cfa = w->c.regs[UNWIND_SP];
		return finish(w, UNWIND_COMPLETE);
	}
	if (s->row.flags & MSG_ROW_CLONE && unwind_arch_is_child(&w->c))
		return finish(w, UNWIND_NEW_THREAD);
	w->guessed = s->row.flags & MSG_ROW_NO_CFI;
	if (w->guessed)
		return after_step(w, unwind_arch_frame_pointer(&w->c));
	if (s->row.plain)
		return walk_plain(w, s->row.plain);
	return after_step(w, unwind_rules_step(&w->c, &s->row));
}

/*
 * A thread in rt_sigreturn(2) is in the trampoline, though its pc is behind it: at another function, or nothing.
 * While the kernel puts the registers back, the pc may be where the signal came already, or the stack pointer alone.
 */
static int enter_trampoline(struct walk *w)
{
	uint64_t pc = w->c.regs[UNWIND_PC] - UNWIND_SYSCALL_LEN;
	struct site s;
	int r;

	if (!area_find(w->maps, pc, &w->area))
		return WALK_ON;
	s.offset = pc + w->area.to_offset;
	r = site_rows(w, &s);
	if (r != WALK_ON || !(s.row.flags & MSG_ROW_SIGNAL))
		return r == UNWIND_WANT ? r : WALK_ON;
	w->c.regs[UNWIND_PC] = pc;
	if (unwind_arch_on_signal_frame(&w->c))
		return WALK_ON;
	(void)emit(w, s.offset);
	return finish(w, UNWIND_BAD_FRAME);
}

static int walk(struct walk *w)
{
	int r = w->c.in->flags & ABI_F_SIGRETURN ? enter_trampoline(w) : WALK_ON;
	struct site s;

	if (r != WALK_ON)
		return r;
	do {
		r = visit(w, &s);
		if (r == WALK_ON)
			r = step(w, &s);
	} while (r == WALK_ON);
	return r;
}

static bool is_frame(const struct walk *w, uint64_t address, const struct unwind_frame *f)
{
	struct area area;

	return area_find(w->maps, address - 1, &area) && area.file == f->file &&
	       address - 1 + area.to_offset == f->offset;
}

/*
 * Up to which of the addresses that the kernel followed they and the frames are the same; 0: they are not.
 * The leaf's caller may be missing: a leaf without a frame leaves its caller's frame pointer.
 */
static uint32_t agreed(const struct walk *w)
{
	const struct unwind_input *in = w->c.in;
	uint32_t k = 0;

	if (!in->nfollowed || in->followed[0] != in->regs[UNWIND_PC])
		return 0;
	for (uint32_t i = 1; i < w->ret->nframes; i++) {
		if (k + 1 < in->nfollowed && is_frame(w, in->followed[k + 1], &w->ret->frames[i]))
			k++;
		else if (i > 1)
			return 0;
	}
	return k;
}

/*
 * Where the copy of the stack ends, the kernel's walk may go on. It leaves out frames that have no pointer, and
 * so proves no end: the stack stays truncated.
 */
static int splice(struct walk *w)
{
	const struct unwind_input *in = w->c.in;
	uint32_t k = agreed(w);
	struct site s;
	int r = WALK_ON;

	if (!k)
		return UNWIND_DONE;
	w->c.is_return = true;
	w->guessed = false;
	for (k++; k < in->nfollowed && r == WALK_ON; k++) {
		w->c.regs[UNWIND_PC] = in->followed[k];
		r = visit(w, &s);
		if (r == WALK_ON && s.row.flags & MSG_ROW_END)
			break;
	}
	return r == UNWIND_WANT ? r : finish(w, UNWIND_TRUNCATED);
}

static void walk_init(struct walk *w, const struct unwind_input *in, const struct maps *maps,
		      bool settle, struct unwind_result *ret)
{
	uint32_t nregs = MIN(in->nregs, (uint32_t)UNWIND_NREGS);
	uint64_t sp = in->regs[UNWIND_SP];

	w->maps = maps;
	w->area = (struct area){ 0 };
	w->settle = settle;
	w->guessed = false;
	w->nlandings = 0;
	w->ret = ret;
	ret->nframes = 0;
	ret->want = (struct unwind_want){ 0 };
	ret->root_cfa = ret->missing = ret->used = 0;
	memset(&w->c, 0, sizeof(w->c));
	memcpy(w->c.regs, in->regs, nregs * sizeof(*in->regs));
	w->c.in = in;
	w->c.window = in->windows;
	w->c.used = 1;
	w->c.valid = UNWIND_BIT(nregs) - 1;
	w->c.floor = w->c.base = sp - MIN(sp, (uint64_t)ABI_RED_ZONE);
}

/* The leaf alone, for stacks that cannot be walked. */
static int leaf_only(struct walk *w, uint64_t pc, enum unwind_outcome outcome)
{
	if (area_find(w->maps, pc, &w->area))
		(void)emit(w, pc + w->area.to_offset);
	return finish(w, outcome);
}

static bool has_bytes(const struct unwind_input *in)
{
	for (uint32_t i = 0; i < in->nwindows; i++)
		if (in->windows[i].len > 0)
			return true;
	return false;
}

static enum unwind_outcome without_stack(const struct unwind_input *in)
{
	if (in->flags & ABI_F_IN_EXEC)
		return UNWIND_IN_EXEC;
	return in->flags & ABI_F_EXITING ? UNWIND_EXITING : UNWIND_NO_STACK;
}

int unwind_run(const struct unwind_input *in, const struct maps *maps, bool settle,
	       struct unwind_result *ret)
{
	bool has_regs = in->nregs > UNWIND_PC;
	struct walk w;
	int r;

	assert(in->nwindows <= UNWIND_WINDOWS_MAX && in->nregs <= ABI_REGS_MAX);
	walk_init(&w, in, maps, settle, ret);
	if (in->flags & ABI_F_KERNEL_THREAD)
		return finish(&w, UNWIND_KERNEL_THREAD);
	if (has_regs && in->flags & ABI_F_COMPAT32)
		return leaf_only(&w, in->regs[UNWIND_PC] & UINT32_MAX, UNWIND_COMPAT32);
	if (!has_regs || !has_bytes(in)) {
		enum unwind_outcome why = without_stack(in);

		if (has_regs && why == UNWIND_NO_STACK)
			return leaf_only(&w, in->regs[UNWIND_PC], why);
		return finish(&w, why);
	}
	r = walk(&w);
	/* A row far up asks for a register that frames below it saved: slower, and seldom. */
	if (w.c.wants_skipped) {
		walk_init(&w, in, maps, settle, ret);
		w.c.skips_none = true;
		r = walk(&w);
	}
	if (r == UNWIND_DONE && ret->outcome == UNWIND_TRUNCATED)
		r = splice(&w);
	ret->used = w.c.used;
	/* Half of an old image's stack, or of the new one's, is no stack. */
	if (r == UNWIND_DONE && ret->outcome != UNWIND_COMPLETE && in->flags & ABI_F_IN_EXEC) {
		ret->nframes = 0;
		ret->outcome = UNWIND_IN_EXEC;
	}
	return r;
}

/* ---- guesses ---- */

enum { GUESS_MAX = 512, GUESS_SLOTS = 1024, GUESS_WORDS_MAX = 16384 };

struct guess {
	const struct maps *maps;
	uint64_t low, high; /* all mappings lie in here */
	uint32_t nwords;    /* still to be looked at */
	uint32_t n, max;
	struct unwind_want *out;
	uint16_t slots[GUESS_SLOTS]; /* index + 1 into out, open addressing */
};

static void guess_add(struct guess *g, struct file *file, uint64_t offset)
{
	size_t i = (size_t)((offset ^ file->id << 40) * 0x9e3779b97f4a7c15ull >> 54);

	for (; g->slots[i]; i = (i + 1) % GUESS_SLOTS) {
		const struct unwind_want *old = &g->out[g->slots[i] - 1];

		if (old->file == file && old->offset == offset)
			return;
	}
	g->out[g->n++] = (struct unwind_want){ file, offset, true };
	g->slots[i] = (uint16_t)g->n;
}

static void guess_word(struct guess *g, uint64_t word)
{
	struct area area;
	struct row row;
	uint32_t known;

	if (word - 1 < g->low || word - 1 >= g->high || !area_find(g->maps, word - 1, &area) ||
	    !area.file || area.file->state == FILE_FAILED)
		return;
	word += area.to_offset;
	if (!area.file->rows ||
	    rows_find(area.file->rows, word, true, &row, &known) == ROWS_UNKNOWN)
		guess_add(g, area.file, word);
}

/* Words of one window from `skip` bytes on. */
static void guess_window(struct guess *g, const struct unwind_window *w, uint64_t skip)
{
	uint64_t off = skip + (0 - (w->address + skip)) % 8, word;

	for (; off + 8 <= w->len && g->n < g->max && g->nwords > 0; off += 8, g->nwords--) {
		memcpy(&word, w->data + off, sizeof(word));
		guess_word(g, word);
	}
}

uint32_t unwind_guess(const struct unwind_input *in, const struct maps *maps,
		      struct unwind_want *ret, uint32_t max)
{
	struct guess g = { .maps = maps, .nwords = GUESS_WORDS_MAX, .out = ret };
	size_t nmaps = maps_count(maps);
	uint64_t sp = in->regs[UNWIND_SP];
	uint32_t leaf;

	g.max = MIN(max, (uint32_t)GUESS_MAX);
	if (in->nregs <= UNWIND_PC || in->flags & ABI_F_COMPAT32 || nmaps == 0)
		return 0;
	g.low = maps_at(maps, 0)->start;
	g.high = maps_at(maps, nmaps - 1)->end;
	/* Nearest to sp first: from sp up in its window, then what the others hold. */
	for (leaf = 0; leaf < in->nwindows; leaf++)
		if (sp - in->windows[leaf].address < in->windows[leaf].len)
			break;
	if (leaf < in->nwindows)
		guess_window(&g, &in->windows[leaf], sp - in->windows[leaf].address);
	for (uint32_t i = 0; i < in->nwindows; i++)
		if (i != leaf)
			guess_window(&g, &in->windows[i], 0);
	return g.n;
}
