#include "agent/window.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/batch.h"

#define NO_LOCATION UINT32_MAX
/* Of mappings whose size we do not know: any address in them is below. */
#define ANY_LIMIT (1ull << 47)

static const char jit_module[] = "[jit]";
enum { JIT_PAGE_BYTES = 0x1000 };

/* One NAMES request: frames order[from..to) of one file. */
struct slice {
	uint64_t request;
	uint32_t from, to;
	bool answered;
};

struct window {
	struct aggregate *stacks;
	struct window_head head;
	struct batch *batch;
	uint32_t *locations;	/* by frame */
	uint32_t *order;	/* frames with a file, sorted by file and offset */
	uint32_t norder;
	struct slice *slices;
	uint32_t nslices, nanswered;
	bool kernel_asked, kernel_answered;
	size_t nlabelled;	/* subjects of stacks[0..nlabelled) have labels, and keep them */
	uint32_t nunlabelled;
	uint64_t nexcluded;
	bool built;
};

int window_new(struct window **ret, struct aggregate **stacks, const struct window_head *head)
{
	CLEANUP(window_freep) struct window *w = calloc(1, sizeof(*w));
	size_t nframes = aggregate_nframes(*stacks);
	int err;

	if (!w)
		return -ENOMEM;
	w->head = *head;
	w->locations = malloc((nframes + 1) * sizeof(*w->locations));
	w->order = malloc((nframes + 1) * sizeof(*w->order));
	if (!w->locations || !w->order)
		return -ENOMEM;
	memset(w->locations, 0xff, (nframes + 1) * sizeof(*w->locations));
	err = batch_new(&w->batch);
	if (err)
		return err;
	w->stacks = TAKE(*stacks);
	*ret = TAKE(w);
	return 0;
}

struct window *window_free(struct window *w)
{
	if (!w)
		return NULL;
	aggregate_free(w->stacks);
	batch_free(w->batch);
	free(w->locations);
	free(w->order);
	free(w->slices);
	free(w);
	return NULL;
}

/* ---- from frames to locations ---- */

/* The path without the kernel's " (deleted)". */
static size_t path_length(const char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), suffix = sizeof(deleted) - 1;

	return len > suffix && strcmp(path + len - suffix, deleted) == 0 ? len - suffix : len;
}

static int unnamed(struct window *w, const char *path, uint64_t address, struct export_line *ret)
{
	size_t len = path_length(path), base = len;
	struct export_function f = { 0 };
	char text[PATH_MAX + 32];
	int err, n;

	while (base > 0 && path[base - 1] != '/')
		base--;
	n = snprintf(text, sizeof(text), "%.*s+0x%llx", (int)MIN(len - base, (size_t)PATH_MAX), path + base,
		     (unsigned long long)address);
	if ((err = batch_string(w->batch, text, (size_t)n, &f.name)))
		return err;
	f.system_name = f.name;
	*ret = (struct export_line){ 0 };
	return batch_function(w->batch, &f, &ret->function);
}

static int locate(struct window *w, uint32_t frame, const struct export_mapping *m, uint64_t address,
		  const struct export_line *lines, uint32_t nlines)
{
	struct export_location loc = { .address = address, .nlines = nlines };
	int err = batch_mapping(w->batch, m, &loc.mapping);

	return err ? err : batch_location(w->batch, &loc, lines, &w->locations[frame]);
}

/* What is over the limits of a batch keeps its place in the stacks. */
static int locate_nameless(struct window *w, uint32_t frame)
{
	static const char module[] = "[flamed]", name[] = "[too many names]";
	struct export_mapping m = { .limit = UNWIND_OUTCOME_COUNT };
	struct export_function f = { 0 };
	struct export_line line = { 0 };
	int err;

	if ((err = batch_string(w->batch, module, strlen(module), &m.filename)) ||
	    (err = batch_string(w->batch, name, strlen(name), &f.name)))
		return err;
	f.system_name = f.name;
	err = batch_function(w->batch, &f, &line.function);
	return err ? err : locate(w, frame, &m, 0, &line, 1);
}

/* A frame that belongs to no file we can ask about: `module` is its mapping's name. */
static int locate_plain(struct window *w, uint32_t frame, const char *module, uint64_t limit, uint64_t address,
			const char *name)
{
	struct export_mapping m = { .limit = limit };
	struct export_function f = { 0 };
	struct export_line line = { 0 };
	int err;

	if (batch_full(w->batch))
		return locate_nameless(w, frame);
	if ((err = batch_string(w->batch, module, path_length(module), &m.filename)))
		return err;
	if (!name[0]) {
		err = unnamed(w, module, address, &line);
	} else if (!(err = batch_string(w->batch, name, strlen(name), &f.name))) {
		f.system_name = f.name;
		err = batch_function(w->batch, &f, &line.function);
	}
	return err ? err : locate(w, frame, &m, address, &line, 1);
}

/* One for all frames of a file, so that it is one mapping. */
static uint64_t file_limit(const struct frame *f)
{
	uint64_t size = f->file->identity.size;

	return size > f->value ? size : MAX(f->value + 1, ANY_LIMIT);
}

/* Where JIT code lies tells of the process's memory: of its address only the place in its page leaves. */
static uint64_t place_in_page(const struct frame *f)
{
	return f->value & (JIT_PAGE_BYTES - 1);
}

static int locate_failed_file(struct window *w, uint32_t frame, const struct frame *f)
{
	if (f->kind == FRAME_JIT)
		return locate_plain(w, frame, jit_module, JIT_PAGE_BYTES, place_in_page(f), "");
	return locate_plain(w, frame, f->file->path, file_limit(f), f->value, "");
}

/* ---- asking ---- */

/* The file of a frame; what it was an alias of, by now. */
static struct file *file_of(const struct aggregate *stacks, uint32_t frame)
{
	return file_resolve(aggregate_frame(stacks, frame)->file);
}

static int by_file_and_offset(const void *a, const void *b, void *stacks)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	const struct frame *x = aggregate_frame(stacks, i), *y = aggregate_frame(stacks, k);
	uint64_t x_file = file_of(stacks, i)->id, y_file = file_of(stacks, k)->id;

	if (x_file != y_file)
		return x_file < y_file ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return i < k ? -1 : i > k;
}

static int ask_slice(struct window *w, uint32_t from, uint32_t to, const struct pipeline_ops *ops, void *arg,
		     uint64_t request)
{
	CLEANUP_FREE struct msg_request *r = calloc(1, sizeof(*r));
	struct file *file = file_of(w->stacks, w->order[from]);

	if (!r)
		return -ENOMEM;
	r->id = request;
	r->file_id = file->id;
	if (aggregate_frame(w->stacks, w->order[from])->kind == FRAME_JIT)
		r->flags = MSG_REQUEST_JIT;
	for (uint32_t i = from; i < to; i++)
		r->addrs[r->naddrs++].offset = aggregate_frame(w->stacks, w->order[i])->value;
	w->slices[w->nslices++] = (struct slice){ .request = request, .from = from, .to = to };
	return ops->names(arg, r, file->fd);
}

static int ask_files(struct window *w, const struct pipeline_ops *ops, void *arg, uint64_t *next_request)
{
	w->slices = calloc(w->norder + 1, sizeof(*w->slices));
	if (!w->slices)
		return -ENOMEM;
	for (uint32_t from = 0, to; from < w->norder; from = to) {
		const struct file *file = file_of(w->stacks, w->order[from]);
		enum frame_kind kind = aggregate_frame(w->stacks, w->order[from])->kind;
		int err;

		for (to = from + 1; to < w->norder && to - from < MSG_ADDRS_MAX; to++) {
			if (file_of(w->stacks, w->order[to]) != file ||
			    aggregate_frame(w->stacks, w->order[to])->kind != kind)
				break;
		}
		err = ask_slice(w, from, to, ops, arg, (*next_request)++);
		if (err)
			return err;
	}
	return 0;
}

int window_ask(struct window *w, const struct pipeline_ops *ops, void *arg, uint64_t *next_request)
{
	uint32_t nframes = (uint32_t)aggregate_nframes(w->stacks), nkernel = 0;
	CLEANUP_FREE uint64_t *kernel = calloc(nframes + 1, sizeof(*kernel));
	int err = 0;

	if (!kernel)
		return -ENOMEM;
	for (uint32_t i = 0; i < nframes && !err; i++) {
		const struct frame *f = aggregate_frame(w->stacks, i);

		switch (f->kind) {
		case FRAME_FILE:
			if (file_of(w->stacks, i)->state == FILE_OPEN)
				w->order[w->norder++] = i;
			else
				err = locate_failed_file(w, i, f);
			break;
		case FRAME_KERNEL:
			kernel[nkernel++] = f->value;
			break;
		case FRAME_JIT:
			if (f->file && file_of(w->stacks, i)->state == FILE_OPEN)
				w->order[w->norder++] = i;
			else
				err = locate_failed_file(w, i, f);
			break;
		case FRAME_OUTCOME:
			err = locate_plain(w, i, "[flamed]", UNWIND_OUTCOME_COUNT, f->value,
					   unwind_outcome_root((enum unwind_outcome)f->value));
			break;
		}
	}
	if (err)
		return err;
	qsort_r(w->order, w->norder, sizeof(*w->order), by_file_and_offset, w->stacks);
	w->kernel_asked = nkernel > 0;
	err = ask_files(w, ops, arg, next_request);
	if (!err && nkernel)
		err = ops->kernel(arg, kernel, nkernel);
	return err;
}

/* ---- answers ---- */

static int build_id_text(struct window *w, const struct msg_names *n, uint32_t *ret)
{
	char text[MSG_BUILD_ID_MAX * 2 + 1] = "";

	for (uint32_t i = 0; i < n->build_id_len; i++)
		snprintf(text + 2 * i, 3, "%02x", n->build_id[i]);
	return batch_string(w->batch, text, strlen(text), ret);
}

static int name_lines(struct window *w, const struct msg_names *n, const struct msg_named *named,
		      struct export_line *lines)
{
	for (uint32_t i = 0; i < named->nlines; i++) {
		const struct msg_line *from = &n->lines[named->first_line + i];
		const struct msg_function *fn = &n->functions[from->function];
		struct export_function f = { .start_line = fn->start_line };
		int err;

		if ((err = batch_string(w->batch, fn->name, strlen(fn->name), &f.name)) ||
		    (err = batch_string(w->batch, fn->system_name, strlen(fn->system_name), &f.system_name)) ||
		    (err = batch_string(w->batch, fn->file, strlen(fn->file), &f.filename)) ||
		    (err = batch_function(w->batch, &f, &lines[i].function)))
			return err;
		lines[i].line = from->line;
	}
	return 0;
}

/* Whether an ELF file's word for where the address lies makes sense: the exporter refuses what wraps. */
static bool holds(const struct msg_segment *s, uint64_t address)
{
	return s->mem_bytes <= UINT64_MAX - s->vaddr && address >= s->vaddr && address - s->vaddr < s->mem_bytes;
}

static int name_jit_frame(struct window *w, uint32_t frame, const struct msg_names *n,
			  const struct msg_named *named)
{
	struct export_mapping m = { .limit = JIT_PAGE_BYTES };
	const struct frame *f = aggregate_frame(w->stacks, frame);
	struct export_line lines[MSG_LINES_MAX];
	int err;

	if (batch_full(w->batch))
		return locate_nameless(w, frame);
	if (!named->nlines)
		return locate_failed_file(w, frame, f);
	if ((err = batch_string(w->batch, jit_module, strlen(jit_module), &m.filename)) ||
	    (err = name_lines(w, n, named, lines)))
		return err;
	return locate(w, frame, &m, place_in_page(f), lines, named->nlines);
}

static int name_frame(struct window *w, uint32_t frame, const struct msg_names *n,
		      const struct msg_named *named, uint32_t build_id)
{
	const struct frame *f = aggregate_frame(w->stacks, frame);
	struct export_line lines[MSG_LINES_MAX];
	struct export_mapping m = { .limit = file_limit(f), .build_id = build_id };
	uint64_t address = f->value;
	uint32_t nlines = named->nlines;
	int err;

	if (f->kind == FRAME_JIT)
		return name_jit_frame(w, frame, n, named);
	if (batch_full(w->batch))
		return locate_nameless(w, frame);
	if (named->segment != UINT32_MAX && holds(&n->segments[named->segment], named->vaddr)) {
		const struct msg_segment *s = &n->segments[named->segment];

		m.start = s->vaddr;
		m.limit = s->vaddr + s->mem_bytes;
		m.offset = s->offset;
		address = named->vaddr;
	}
	if ((err = batch_string(w->batch, f->file->path, path_length(f->file->path), &m.filename)))
		return err;
	if (nlines) {
		err = name_lines(w, n, named, lines);
	} else {
		nlines = 1;
		err = unnamed(w, f->file->path, address, lines);
	}
	return err ? err : locate(w, frame, &m, address, lines, nlines);
}

/* Request ids ascend. */
static struct slice *find_slice(const struct window *w, uint64_t request)
{
	uint32_t lo = 0, hi = w->nslices;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (w->slices[mid].request < request)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < w->nslices && w->slices[lo].request == request ? &w->slices[lo] : NULL;
}

int window_names(struct window *w, const struct msg_request *r, const struct msg_names *n)
{
	struct slice *s = find_slice(w, r->id);
	uint32_t build_id;
	int err;

	if (!s || s->answered)
		return 0;
	if ((err = build_id_text(w, n, &build_id)))
		return err;
	for (uint32_t i = s->from; i < s->to; i++) {
		uint32_t frame = w->order[i];

		err = n->nnamed == s->to - s->from ?
			      name_frame(w, frame, n, &n->named[i - s->from], build_id) :
			      locate_failed_file(w, frame, aggregate_frame(w->stacks, frame));
		if (err)
			return err;
	}
	s->answered = true;
	w->nanswered++;
	return 1;
}

int window_kernel(struct window *w, const struct event_kernel *k)
{
	uint32_t nframes = (uint32_t)aggregate_nframes(w->stacks), at = 0;

	if (!w->kernel_asked || w->kernel_answered)
		return 0;
	for (uint32_t i = 0; i < nframes; i++) {
		const struct frame *f = aggregate_frame(w->stacks, i);
		const struct event_kernel_symbol *s = at < k->nsymbols ? &k->symbols[at] : NULL;
		int err;

		if (f->kind != FRAME_KERNEL)
			continue;
		at++;
		/* Answers stand in the order of the question; anything else has no name. */
		if (!s || s->address != f->value)
			err = locate_plain(w, i, "[kernel]", ANY_LIMIT, 0, "[kernel]");
		else
			err = locate_plain(w, i, s->module, ANY_LIMIT, s->relative, s->name);
		if (err)
			return err;
	}
	w->kernel_answered = true;
	return 1;
}

int window_give_up_names(struct window *w, uint32_t *ret_n)
{
	uint32_t n = 0;
	int r;

	for (uint32_t i = 0; i < w->nslices; i++) {
		struct slice *s = &w->slices[i];
		int err = 0;

		for (uint32_t k = s->from; k < s->to && !s->answered && !err; k++)
			err = locate_failed_file(w, w->order[k], aggregate_frame(w->stacks, w->order[k]));
		if (err)
			return err;
		n += s->answered ? 0 : s->to - s->from;
		w->nanswered += !s->answered;
		s->answered = true;
	}
	r = window_kernel(w, &(struct event_kernel){ .nsymbols = 0 });
	if (r < 0)
		return r;
	*ret_n = n;
	return 0;
}

bool window_named(const struct window *w)
{
	return w->nanswered == w->nslices && w->kernel_asked == w->kernel_answered;
}

bool window_labelled(struct window *w)
{
	size_t n = aggregate_nstacks(w->stacks);

	while (w->nlabelled < n && aggregate_stack(w->stacks, w->nlabelled)->subject->labelled)
		w->nlabelled++;
	return w->nlabelled == n;
}

uint32_t window_nunlabelled(const struct window *w)
{
	return w->nunlabelled;
}

uint64_t window_nexcluded(const struct window *w)
{
	return w->nexcluded;
}

size_t window_bytes(const struct window *w)
{
	size_t nframes = aggregate_nframes(w->stacks);

	return sizeof(*w) + aggregate_bytes(w->stacks) + batch_bytes(w->batch) +
	       (nframes + 1) * (sizeof(*w->locations) + sizeof(*w->order)) +
	       (w->slices ? (w->norder + 1) * sizeof(*w->slices) : 0);
}

/* ---- the batch ---- */

static int build_subject(struct window *w, const struct subject *s, uint32_t *ret)
{
	struct export_subject out = { .id = s->id, .pid = s->pid, .cgroup_id = s->cgroup_id };
	int err;

	if ((err = batch_string(w->batch, s->executable, strlen(s->executable), &out.executable)) ||
	    (err = batch_labels(w->batch, s->nlabels, s->labels, s->labels_len, &out.first_pair, &out.npairs)))
		return err;
	w->nunlabelled += !s->labelled;
	if (s->kernel_thread)
		out.flags |= EXPORT_SUBJECT_KERNEL;
	return batch_subject(w->batch, &out, ret);
}

static int subject_index(struct window *w, struct subject *s, uint32_t *ret)
{
	if (s->batch_id != w->head.id) {
		int err = build_subject(w, s, &s->batch_index);

		if (err)
			return err;
		s->batch_id = w->head.id;
	}
	*ret = s->batch_index;
	return 0;
}

static int build_samples(struct window *w)
{
	CLEANUP_FREE uint32_t *frames = malloc((UNWIND_FRAMES_MAX + ABI_KSTACK_MAX + 2) * sizeof(*frames));

	if (!frames)
		return -ENOMEM;
	for (size_t i = 0; i < aggregate_nstacks(w->stacks); i++) {
		const struct stack *s = aggregate_stack(w->stacks, i);
		const uint32_t *index = aggregate_frame_index(w->stacks, s);
		struct export_sample out = { .tid = s->tid, .nframes = s->nframes, .count = s->count,
					     .nanoseconds = s->nanoseconds };
		int err;

		/* It was sampled before that was known. Of a thinned one each sample stands for its own time. */
		if (!s->subject->keep_one_in) {
			w->nexcluded += s->count;
			continue;
		}
		for (uint32_t k = 0; k < s->nframes; k++) {
			frames[k] = w->locations[index[k]];
			assert(frames[k] != NO_LOCATION);
		}
		if ((err = subject_index(w, s->subject, &out.subject)) ||
		    (err = batch_string(w->batch, s->comm, strnlen(s->comm, ABI_COMM_LEN), &out.comm)) ||
		    (err = batch_sample(w->batch, &out, frames)))
			return err;
	}
	return 0;
}

int window_build(struct window *w, const struct export_batch **ret)
{
	struct export_batch *t;
	int err;

	if (!w->built && (err = build_samples(w)))
		return err;
	w->built = true;
	t = batch_tables(w->batch);
	t->id = w->head.id;
	t->tap = w->head.tap;
	t->wall_start_ns = w->head.wall_start_ns;
	t->duration_ns = w->head.duration_ns;
	t->period_ns = w->head.period_ns;
	*ret = t;
	return 0;
}
