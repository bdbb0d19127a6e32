#include "agent/event.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/reader.h"
#include "base/ipc.h"
#include "exporter/msg.h"

enum {
	WIRE_MAP_MIN = 3 * 8 + 2 * 4 + 2 * 8 + 1 + 4,	/* a mapping with an empty path */
	WIRE_SYMBOL_MIN = 2 * 8 + 2 * 4,
	WIRE_LABEL_MIN = 2 * 4,
};

/* ---- what decoded events point to ------------------------------------------------------------ */

/*
 * One allocation for all strings and one array of an event. Strings are blobs of a u32 length on
 * the wire, so all of them with their NULs need no more room than the payload has bytes.
 */
struct memory {
	char *block;
	char *next, *end;
};

static int memory_init(struct memory *m, size_t array_bytes, size_t payload_bytes)
{
	m->block = malloc(array_bytes + payload_bytes + 1);
	if (!m->block)
		return -ENOMEM;
	m->next = m->block + array_bytes;
	m->end = m->next + payload_bytes + 1;
	return 0;
}

static void memory_fini(struct memory *m)
{
	free(m->block);
}

static const char *take_str(struct memory *m, struct bufr *in, size_t max)
{
	size_t len = 0;
	const char *p = bufr_blob(in, max, &len);
	char *s = m->next;

	if (!p)
		return "";
	if (len && memchr(p, 0, len)) {
		bufr_fail(in);
		return "";
	}
	assert(len < (size_t)(m->end - m->next));
	memcpy(s, p, len);
	s[len] = 0;
	m->next += len + 1;
	return s;
}

static bool take_bool(struct bufr *in)
{
	uint8_t v = bufr_u8(in);

	if (v > 1)
		bufr_fail(in);
	return v == 1;
}

/* ---- mappings -------------------------------------------------------------------------------- */

static void put_key(struct bufw *w, const struct file_key *k)
{
	bufw_u32(w, k->dev_major);
	bufw_u32(w, k->dev_minor);
	bufw_u64(w, k->inode);
	bufw_u64(w, k->generation);
	bufw_u8(w, k->generation_known);
}

static void take_key(struct bufr *in, struct file_key *ret)
{
	ret->dev_major = bufr_u32(in);
	ret->dev_minor = bufr_u32(in);
	ret->inode = bufr_u64(in);
	ret->generation = bufr_u64(in);
	ret->generation_known = take_bool(in);
}

/* Without pid and tid, which a process says once. */
static void put_map(struct bufw *w, const struct event_map *m)
{
	bufw_u64(w, m->start);
	bufw_u64(w, m->end);
	bufw_u64(w, m->offset);
	put_key(w, &m->key);
	bufw_str(w, m->path);
}

static void take_map(struct memory *mem, struct bufr *in, struct event_map *ret)
{
	ret->start = bufr_u64(in);
	ret->end = bufr_u64(in);
	ret->offset = bufr_u64(in);
	take_key(in, &ret->key);
	ret->path = take_str(mem, in, EVENT_PATH_MAX);
	if (ret->start >= ret->end)
		bufr_fail(in);
}

/* ---- processes ------------------------------------------------------------------------------- */

void event_process_encode(struct bufw *w, const struct event_process *p)
{
	bufw_u32(w, p->pid);
	bufw_u32(w, p->ppid);
	bufw_u8(w, p->kernel_thread);
	bufw_u32(w, p->nmaps);
	bufw_str(w, p->comm);
	bufw_str(w, p->executable);
	for (uint32_t i = 0; i < p->nmaps; i++)
		put_map(w, &p->maps[i]);
}

int event_process_decode(struct bufr *in, struct event_process *ret, void **ret_mem)
{
	CLEANUP(memory_fini) struct memory mem = {};
	struct event_process p = {};
	struct event_map *maps;
	int err;

	p.pid = bufr_u32(in);
	p.ppid = bufr_u32(in);
	p.kernel_thread = take_bool(in);
	p.nmaps = bufr_count(in, EVENT_MAPS_MAX, WIRE_MAP_MIN);
	err = memory_init(&mem, p.nmaps * sizeof(*maps), bufr_left(in));
	if (err)
		return err;
	maps = (void *)mem.block;
	p.maps = maps;
	p.comm = take_str(&mem, in, EVENT_COMM_MAX);
	p.executable = take_str(&mem, in, EVENT_PATH_MAX);
	for (uint32_t i = 0; i < p.nmaps && !bufr_err(in); i++) {
		maps[i] = (struct event_map){ .pid = p.pid, .tid = p.pid };
		take_map(&mem, in, &maps[i]);
	}
	err = bufr_end(in);
	if (err)
		return err;
	*ret = p;
	*ret_mem = TAKE(mem.block);
	return 0;
}

/* ---- the other types ------------------------------------------------------------------------- */

static void put_start(struct bufw *w, const struct event_start *s)
{
	assert(s->ntargets <= EVENT_TARGETS_MAX);
	bufw_u64(w, s->wall_ns);
	bufw_u32(w, s->hz);
	bufw_u32(w, s->ncpus);
	bufw_u8(w, s->after_exec);
	bufw_u64(w, s->files_max);
	bufw_u64(w, s->labels_wait_ns);
	bufw_u32(w, s->ntargets);
	for (uint32_t i = 0; i < s->ntargets; i++)
		bufw_u32(w, s->targets[i]);
}

/* A time or a duration: profiles have signed ones. */
static uint64_t take_ns(struct bufr *in)
{
	uint64_t ns = bufr_u64(in);

	if (ns > INT64_MAX)
		bufr_fail(in);
	return ns;
}

static void take_start(struct bufr *in, struct event_start *ret)
{
	ret->wall_ns = take_ns(in);
	ret->hz = bufr_u32(in);
	ret->ncpus = bufr_u32(in);
	ret->after_exec = take_bool(in);
	ret->files_max = bufr_u64(in);
	ret->labels_wait_ns = bufr_u64(in);
	ret->ntargets = bufr_count(in, EVENT_TARGETS_MAX, sizeof(uint32_t));
	for (uint32_t i = 0; i < ret->ntargets; i++)
		ret->targets[i] = bufr_u32(in);
}

static void put_opened(struct bufw *w, const struct event_opened *o)
{
	bufw_u64(w, o->file_id);
	bufw_u8(w, o->ok);
	bufw_u64(w, o->identity.dev);
	bufw_u64(w, o->identity.inode);
	bufw_u64(w, o->identity.ctime_ns);
	bufw_u64(w, o->identity.size);
}

static void take_opened(struct bufr *in, struct event_opened *ret)
{
	ret->file_id = bufr_u64(in);
	ret->ok = take_bool(in);
	ret->identity.dev = bufr_u64(in);
	ret->identity.inode = bufr_u64(in);
	ret->identity.ctime_ns = bufr_u64(in);
	ret->identity.size = bufr_u64(in);
	ret->fd = -1;
}

void event_memory_encode(struct bufw *w, const struct event_memory *m)
{
	assert(m->npages <= EVENT_PAGES_MAX);
	bufw_u64(w, m->id);
	bufw_u8(w, m->late);
	bufw_u32(w, m->npages);
	bufw_u32(w, m->present);
	bufw_bytes(w, m->pages, (size_t)m->npages * EVENT_PAGE_BYTES);
}

int event_memory_decode(struct bufr *in, struct event_memory *ret)
{
	struct event_memory m;
	int err;

	m.id = bufr_u64(in);
	m.late = take_bool(in);
	m.npages = bufr_count(in, EVENT_PAGES_MAX, EVENT_PAGE_BYTES);
	m.present = bufr_u32(in);
	m.pages = bufr_bytes(in, (size_t)m.npages * EVENT_PAGE_BYTES);
	if (m.present >> m.npages)
		bufr_fail(in);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = m;
	return 0;
}

static void put_answer(struct bufw *w, const struct event_answer *a)
{
	size_t at = bufw_reserve(w, sizeof(uint32_t));
	size_t before = w->len;

	msg_request_encode(w, a->request);
	if (!bufw_end(w))
		bufw_patch_u32(w, at, (uint32_t)(w->len - before));
	bufw_blob(w, a->data, a->len);
}

static int take_answer(struct bufr *in, struct event_answer *ret, void **ret_mem)
{
	CLEANUP_FREE struct msg_request *request = malloc(sizeof(*request));
	size_t len = 0;
	const void *p = bufr_blob(in, EVENT_BYTES_MAX, &len);
	struct bufr nested;
	int err;

	if (!request)
		return -ENOMEM;
	if (!p)
		return bufr_err(in);
	bufr_init(&nested, p, len);
	err = msg_request_decode(&nested, request);
	if (err)
		return err;
	ret->data = bufr_blob(in, IPC_PAYLOAD_MAX, &ret->len);
	ret->request = request;
	*ret_mem = TAKE(request);
	return 0;
}

static void put_kernel(struct bufw *w, const struct event_kernel *k)
{
	bufw_u32(w, k->nsymbols);
	for (uint32_t i = 0; i < k->nsymbols; i++) {
		bufw_u64(w, k->symbols[i].address);
		bufw_u64(w, k->symbols[i].relative);
		bufw_str(w, k->symbols[i].name);
		bufw_str(w, k->symbols[i].module);
	}
}

static int take_kernel(struct bufr *in, struct event_kernel *ret, void **ret_mem)
{
	struct event_kernel_symbol *symbols;
	struct memory mem;
	int err;

	ret->nsymbols = bufr_count(in, EVENT_SYMBOLS_MAX, WIRE_SYMBOL_MIN);
	err = memory_init(&mem, ret->nsymbols * sizeof(*symbols), bufr_left(in));
	if (err)
		return err;
	symbols = (void *)mem.block;
	for (uint32_t i = 0; i < ret->nsymbols; i++) {
		symbols[i].address = bufr_u64(in);
		symbols[i].relative = bufr_u64(in);
		symbols[i].name = take_str(&mem, in, EVENT_NAME_MAX);
		symbols[i].module = take_str(&mem, in, EVENT_NAME_MAX);
	}
	ret->symbols = symbols;
	*ret_mem = mem.block;
	return 0;
}

static int take_counters(struct bufr *in, struct event_counters *ret, void **ret_mem)
{
	uint64_t *values;

	ret->n = bufr_count(in, EVENT_COUNTERS_MAX, sizeof(*values));
	values = malloc(MAX(ret->n, 1u) * sizeof(*values));
	if (!values)
		return -ENOMEM;
	for (uint32_t i = 0; i < ret->n; i++)
		values[i] = bufr_u64(in);
	ret->values = values;
	*ret_mem = values;
	return 0;
}

static void put_labels(struct bufw *w, const struct event_labels *l)
{
	assert(l->nlabels <= EXPORT_PAIRS_MAX);
	bufw_u64(w, l->subject_id);
	bufw_u32(w, l->keep_one_in);
	bufw_u32(w, l->nlabels);
	for (uint32_t i = 0; i < l->nlabels; i++) {
		bufw_str(w, l->labels[i].name);
		bufw_str(w, l->labels[i].value);
	}
}

static int take_labels(struct bufr *in, struct event_labels *ret, void **ret_mem)
{
	struct event_label *labels;
	struct memory mem;
	int err;

	ret->subject_id = bufr_u64(in);
	ret->keep_one_in = bufr_u32(in);
	ret->nlabels = bufr_count(in, EXPORT_PAIRS_MAX, WIRE_LABEL_MIN);
	err = memory_init(&mem, ret->nlabels * sizeof(*labels), bufr_left(in));
	if (err)
		return err;
	labels = (void *)mem.block;
	for (uint32_t i = 0; i < ret->nlabels; i++) {
		labels[i].name = take_str(&mem, in, EXPORT_LABEL_MAX);
		labels[i].value = take_str(&mem, in, EXPORT_LABEL_MAX);
	}
	ret->labels = labels;
	*ret_mem = mem.block;
	return 0;
}

/* Types with a string: the payload's rest is that string, so the memory is small. */
static int take_named(struct bufr *in, struct event *e, void **ret_mem)
{
	struct memory mem;
	int err = memory_init(&mem, 0, bufr_left(in));

	if (err)
		return err;
	if (e->type == EVENT_MAP) {
		e->map.pid = bufr_u32(in);
		e->map.tid = bufr_u32(in);
		take_map(&mem, in, &e->map);
	} else {
		e->comm.pid = bufr_u32(in);
		e->comm.tid = bufr_u32(in);
		e->comm.exec = take_bool(in);
		e->comm.comm = take_str(&mem, in, EVENT_COMM_MAX);
	}
	*ret_mem = mem.block;
	return 0;
}

static void take_sample(struct bufr *in, const void *data, size_t len, struct event_sample *ret)
{
	const struct abi_record *r = bufr_bytes(in, len);

	assert((uintptr_t)data % _Alignof(struct abi_record) == 0);
	if (len < sizeof(*r) || len > ABI_RECORD_MAX || r->size != len)
		bufr_fail(in);
	ret->record = r;
	ret->len = len;
}

void event_encode(struct bufw *w, const struct event *e)
{
	switch (e->type) {
	case EVENT_START:
		put_start(w, &e->start);
		break;
	case EVENT_PROCESS:
		event_process_encode(w, &e->process);
		break;
	case EVENT_MAP:
		bufw_u32(w, e->map.pid);
		bufw_u32(w, e->map.tid);
		put_map(w, &e->map);
		break;
	case EVENT_COMM:
		bufw_u32(w, e->comm.pid);
		bufw_u32(w, e->comm.tid);
		bufw_u8(w, e->comm.exec);
		bufw_str(w, e->comm.comm);
		break;
	case EVENT_FORK:
		bufw_u32(w, e->fork.pid);
		bufw_u32(w, e->fork.tid);
		bufw_u32(w, e->fork.ppid);
		bufw_u32(w, e->fork.ptid);
		break;
	case EVENT_EXIT:
		bufw_u32(w, e->exit.pid);
		bufw_u32(w, e->exit.tid);
		break;
	case EVENT_LOST:
		bufw_u32(w, e->lost.cpu);
		bufw_u64(w, e->lost.count);
		break;
	case EVENT_SAMPLE:
		bufw_bytes(w, e->sample.record, e->sample.len);
		break;
	case EVENT_TURN:
		break;
	case EVENT_OPENED:
		put_opened(w, &e->opened);
		break;
	case EVENT_ROWS:
	case EVENT_NAMES:
		put_answer(w, &e->answer);
		break;
	case EVENT_KERNEL:
		put_kernel(w, &e->kernel);
		break;
	case EVENT_COUNTERS:
		bufw_u32(w, e->counters.n);
		for (uint32_t i = 0; i < e->counters.n; i++)
			bufw_u64(w, e->counters.values[i]);
		break;
	case EVENT_WINDOW:
		bufw_u64(w, e->window.wall_start_ns);
		bufw_u64(w, e->window.duration_ns);
		bufw_u8(w, e->window.last);
		break;
	case EVENT_LABELS:
		put_labels(w, &e->labels);
		break;
	case EVENT_RELABEL:
		break;
	case EVENT_TAP:
		bufw_u64(w, e->tap.id);
		bufw_u64(w, e->tap.wall_start_ns);
		bufw_u64(w, e->tap.duration_ns);
		break;
	case EVENT_MEMORY:
		event_memory_encode(w, &e->memory);
		break;
	case EVENT_TYPE_COUNT:
		assert(false);
	}
}

static int take_payload(struct bufr *in, const void *data, size_t len, struct event *e, void **ret_mem)
{
	switch (e->type) {
	case EVENT_START:
		take_start(in, &e->start);
		return 0;
	case EVENT_PROCESS:
		return event_process_decode(in, &e->process, ret_mem);
	case EVENT_MAP:
	case EVENT_COMM:
		return take_named(in, e, ret_mem);
	case EVENT_FORK:
		e->fork.pid = bufr_u32(in);
		e->fork.tid = bufr_u32(in);
		e->fork.ppid = bufr_u32(in);
		e->fork.ptid = bufr_u32(in);
		return 0;
	case EVENT_EXIT:
		e->exit.pid = bufr_u32(in);
		e->exit.tid = bufr_u32(in);
		return 0;
	case EVENT_LOST:
		e->lost.cpu = bufr_u32(in);
		e->lost.count = bufr_u64(in);
		return 0;
	case EVENT_SAMPLE:
		take_sample(in, data, len, &e->sample);
		return 0;
	case EVENT_TURN:
		return 0;
	case EVENT_OPENED:
		take_opened(in, &e->opened);
		return 0;
	case EVENT_ROWS:
	case EVENT_NAMES:
		return take_answer(in, &e->answer, ret_mem);
	case EVENT_KERNEL:
		return take_kernel(in, &e->kernel, ret_mem);
	case EVENT_COUNTERS:
		return take_counters(in, &e->counters, ret_mem);
	case EVENT_WINDOW:
		e->window.wall_start_ns = take_ns(in);
		e->window.duration_ns = take_ns(in);
		e->window.last = take_bool(in);
		return 0;
	case EVENT_LABELS:
		return take_labels(in, &e->labels, ret_mem);
	case EVENT_RELABEL:
		return 0;
	case EVENT_TAP:
		e->tap.id = bufr_u64(in);
		e->tap.wall_start_ns = take_ns(in);
		e->tap.duration_ns = take_ns(in);
		return 0;
	case EVENT_MEMORY:
		return event_memory_decode(in, &e->memory);
	case EVENT_TYPE_COUNT:
		break;
	}
	return -EBADMSG;
}

int event_decode(enum event_type type, uint64_t time_ns, const void *data, size_t len,
		 struct event *ret, void **ret_mem)
{
	CLEANUP_FREE void *mem = NULL;
	struct event e = { .type = type, .time_ns = time_ns };
	struct bufr in;
	int err;

	bufr_init(&in, data, len);
	err = take_payload(&in, data, len, &e, &mem);
	if (!err)
		err = bufr_end(&in);
	if (err)
		return err;
	*ret = e;
	*ret_mem = TAKE(mem);
	return 0;
}
