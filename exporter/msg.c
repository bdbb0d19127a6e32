#include "exporter/msg.h"

#include <errno.h>
#include <string.h>

/* Bytes of an entry on the wire, at least. */
enum { WIRE_ID = 8, WIRE_LABEL = 12, WIRE_PROCESS = 30, WIRE_METRIC = 20 };

/* Bytes of texts that have no limit of their own in the header. */
enum { SHORT_MAX = 256, LABEL_NAME_MAX = 1024, SETTINGS_MAX = 16 * 1024 * 1024 };

const char *export_result_text(enum export_result r)
{
	static const char *const texts[] = {
#define X(id, text) [EXPORT_##id] = text,
		EXPORT_RESULTS(X)
#undef X
	};

	return (unsigned int)r < EXPORT_RESULT_COUNT ? texts[r] : "unknown";
}

const char *export_fate_text(enum export_fate_kind k)
{
	static const char *const texts[] = {
#define X(id, text) [EXPORT_FATE_##id] = text,
		EXPORT_FATES(X)
#undef X
	};

	return (unsigned int)k < EXPORT_FATE_COUNT ? texts[k] : "unknown";
}

const char *export_refusal_text(enum export_refusal r)
{
	static const char *const texts[] = {
#define X(id, text) [EXPORT_REFUSAL_##id] = text,
		EXPORT_REFUSALS(X)
#undef X
	};

	return (unsigned int)r < EXPORT_REFUSAL_COUNT ? texts[r] : "unknown";
}

/* ---- messages of numbers alone -------------------------------------------------------------- */

void export_settled_encode(struct bufw *w, const struct export_settled *s)
{
	bufw_u32(w, s->n);
	for (uint32_t i = 0; i < s->n; i++)
		bufw_u64(w, s->ids[i]);
}

int export_settled_decode(struct bufr *in, struct export_settled *ret)
{
	CLEANUP_FREE uint64_t *ids = NULL;
	uint32_t n = bufr_count(in, EXPORT_TABLE_MAX, WIRE_ID);
	int err;

	if (bufr_err(in))
		return -EBADMSG;
	ids = calloc(n ? n : 1, sizeof(*ids));
	if (!ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = bufr_u64(in);
	err = bufr_end(in);
	if (err)
		return err;
	ret->n = n;
	ret->ids = TAKE(ids);
	return 0;
}

void export_file_encode(struct bufw *w, const struct export_file *f)
{
	bufw_u32(w, (uint32_t)f->role);
	bufw_u32(w, f->index);
	bufw_u32(w, f->error);
	bufw_u32(w, f->generation);
}

int export_file_decode(struct bufr *in, struct export_file *ret)
{
	uint32_t role = bufr_u32(in);
	struct export_file f = { .role = (enum export_role)role };
	int err;

	f.index = bufr_u32(in);
	f.error = bufr_u32(in);
	f.generation = bufr_u32(in);
	if (role >= EXPORT_ROLE_COUNT)
		bufr_fail(in);
	err = bufr_end(in);
	if (!err)
		*ret = f;
	return err;
}

void export_taken_encode(struct bufw *w, const struct export_taken *t)
{
	bufw_u64(w, t->id);
	bufw_u64(w, t->nsamples);
}

int export_taken_decode(struct bufr *in, struct export_taken *ret)
{
	struct export_taken t = {};
	int err;

	t.id = bufr_u64(in);
	t.nsamples = bufr_u64(in);
	err = bufr_end(in);
	if (!err)
		*ret = t;
	return err;
}

void export_tap_encode(struct bufw *w, const struct export_tap *t)
{
	bufw_u64(w, t->id);
	bufw_u64(w, t->duration_ns);
}

int export_tap_decode(struct bufr *in, struct export_tap *ret)
{
	struct export_tap t = {};
	int err;

	t.id = bufr_u64(in);
	t.duration_ns = bufr_u64(in);
	if (!t.id)
		bufr_fail(in);
	err = bufr_end(in);
	if (!err)
		*ret = t;
	return err;
}

void export_tap_refused_encode(struct bufw *w, const struct export_tap_refused *r)
{
	bufw_u64(w, r->id);
	bufw_u32(w, (uint32_t)r->why);
}

int export_tap_refused_decode(struct bufr *in, struct export_tap_refused *ret)
{
	uint64_t id = bufr_u64(in);
	uint32_t why = bufr_u32(in);
	int err;

	if (why >= EXPORT_REFUSAL_COUNT)
		bufr_fail(in);
	err = bufr_end(in);
	if (!err)
		*ret = (struct export_tap_refused){ id, (enum export_refusal)why };
	return err;
}

void export_done_encode(struct bufw *w, const struct export_done *d)
{
	bufw_u64(w, d->id);
	bufw_u32(w, (uint32_t)d->result);
	bufw_u32(w, d->error);
	bufw_u64(w, d->nsamples);
	bufw_u64(w, d->bytes);
}

int export_done_decode(struct bufr *in, struct export_done *ret)
{
	struct export_done d = {};
	uint32_t result;
	int err;

	d.id = bufr_u64(in);
	result = bufr_u32(in);
	d.error = bufr_u32(in);
	d.nsamples = bufr_u64(in);
	d.bytes = bufr_u64(in);
	if (result >= EXPORT_RESULT_COUNT)
		bufr_fail(in);
	err = bufr_end(in);
	if (err)
		return err;
	d.result = (enum export_result)result;
	*ret = d;
	return 0;
}

/* ---- messages with texts -------------------------------------------------------------------- */

/* NULL is "". What is longer than the decoder takes is cut here: a refused message would end a process. */
static void encode_text(struct bufw *w, const char *s, size_t max)
{
	bufw_blob(w, s, s ? strnlen(s, max) : 0);
}

/* Whole lines: half a path would name another control group. */
static void encode_lines(struct bufw *w, const char *s, size_t max)
{
	size_t len = s ? strnlen(s, max + 1) : 0;

	if (len > max) {
		const char *end = memrchr(s, '\n', max);

		len = end ? (size_t)(end - s) + 1 : 0;
	}
	bufw_blob(w, s, len);
}

/*
 * One block for a message: arrays first, then its texts, each with a NUL. A text takes at most the
 * bytes that it has on the wire, where four are its length.
 */
struct block {
	char *mem;
	char *next; /* text */
};

static int block_init(struct block *b, const struct bufr *in, size_t narray_bytes)
{
	if (bufr_err(in))
		return -EBADMSG;
	b->mem = calloc(1, narray_bytes + bufr_left(in) + 1);
	if (!b->mem)
		return -ENOMEM;
	b->next = b->mem + narray_bytes;
	return 0;
}

static const char *decode_text(struct bufr *in, struct block *b, size_t max)
{
	char *s = b->next;
	size_t len;
	const void *p = bufr_blob(in, max, &len);

	if (!p)
		return "";
	memcpy(s, p, len); /* the NUL is there */
	b->next += len + 1;
	return s;
}

static int block_end(struct block *b, const struct bufr *in, void **ret_mem)
{
	int err = bufr_end(in);

	if (err)
		free(b->mem);
	else
		*ret_mem = b->mem;
	return err;
}

void export_config_encode(struct bufw *w, const struct export_config *c)
{
	bufw_blob(w, c->settings, c->settings_len);
	encode_text(w, c->hostname, EXPORT_LABEL_MAX);
	encode_text(w, c->hash, SHORT_MAX);
	encode_text(w, c->version, SHORT_MAX);
	encode_text(w, c->token, SHORT_MAX);
}

int export_config_decode(struct bufr *in, struct export_config *ret, void **ret_mem)
{
	struct export_config c = {};
	struct block b;
	int err;

	c.settings = bufr_blob(in, SETTINGS_MAX, &c.settings_len);
	err = block_init(&b, in, 0);
	if (err)
		return err;
	c.hostname = decode_text(in, &b, EXPORT_LABEL_MAX);
	c.hash = decode_text(in, &b, SHORT_MAX);
	c.version = decode_text(in, &b, SHORT_MAX);
	c.token = decode_text(in, &b, SHORT_MAX);
	err = block_end(&b, in, ret_mem);
	if (!err)
		*ret = c;
	return err;
}

void export_facts_encode(struct bufw *w, const struct export_facts *f)
{
	bufw_u64(w, f->id);
	bufw_u64(w, f->cgroup_id);
	bufw_u32(w, f->pid);
	bufw_u32(w, f->flags);
	encode_text(w, f->executable, EXPORT_PATH_MAX);
	encode_text(w, f->comm, SHORT_MAX);
	encode_lines(w, f->cgroups, EXPORT_CGROUPS_MAX);
}

int export_facts_decode(struct bufr *in, struct export_facts *ret, void **ret_mem)
{
	struct export_facts f = {};
	struct block b;
	int err;

	f.id = bufr_u64(in);
	f.cgroup_id = bufr_u64(in);
	f.pid = bufr_u32(in);
	f.flags = bufr_u32(in);
	err = block_init(&b, in, 0);
	if (err)
		return err;
	f.executable = decode_text(in, &b, EXPORT_PATH_MAX);
	f.comm = decode_text(in, &b, SHORT_MAX);
	f.cgroups = decode_text(in, &b, EXPORT_CGROUPS_MAX);
	err = block_end(&b, in, ret_mem);
	if (!err)
		*ret = f;
	return err;
}

void export_labels_encode(struct bufw *w, const struct export_labels *l)
{
	bufw_u64(w, l->id);
	bufw_u32(w, l->keep_one_in);
	bufw_u32(w, l->nlabels);
	for (uint32_t i = 0; i < l->nlabels; i++) {
		encode_text(w, l->labels[i].name, LABEL_NAME_MAX);
		encode_text(w, l->labels[i].value, EXPORT_LABEL_MAX);
		encode_text(w, l->labels[i].source, EXPORT_PATH_MAX);
	}
}

/* Sorted, each name once, service_name among them. */
static bool labels_are_valid(const struct export_labels *l)
{
	bool has_service = false;

	for (uint32_t i = 0; i < l->nlabels; i++) {
		if (!*l->labels[i].name ||
		    (i && strcmp(l->labels[i - 1].name, l->labels[i].name) >= 0))
			return false;
		has_service |= !strcmp(l->labels[i].name, "service_name") && *l->labels[i].value;
	}
	return has_service;
}

int export_labels_decode(struct bufr *in, struct export_labels *ret, void **ret_mem)
{
	struct export_labels l = {};
	struct block b;
	int err;

	l.id = bufr_u64(in);
	l.keep_one_in = bufr_u32(in);
	l.nlabels = bufr_count(in, EXPORT_PAIRS_MAX, WIRE_LABEL);
	err = block_init(&b, in, l.nlabels * sizeof(*l.labels));
	if (err)
		return err;
	l.labels = (struct export_label *)b.mem;
	for (uint32_t i = 0; i < l.nlabels; i++) {
		l.labels[i].name = decode_text(in, &b, LABEL_NAME_MAX);
		l.labels[i].value = decode_text(in, &b, EXPORT_LABEL_MAX);
		l.labels[i].source = decode_text(in, &b, EXPORT_PATH_MAX);
	}
	if (!labels_are_valid(&l))
		bufr_fail(in);
	err = block_end(&b, in, ret_mem);
	if (!err)
		*ret = l;
	return err;
}

void export_fate_encode(struct bufw *w, const struct export_fate *f)
{
	bufw_u64(w, f->batch);
	bufw_u64(w, f->part);
	bufw_u32(w, (uint32_t)f->kind);
	bufw_u64(w, f->nsamples);
	encode_text(w, f->sink, EXPORT_SINK_MAX);
}

int export_fate_decode(struct bufr *in, struct export_fate *ret, void **ret_mem)
{
	struct export_fate f = {};
	uint32_t kind;
	struct block b;
	int err;

	f.batch = bufr_u64(in);
	f.part = bufr_u64(in);
	kind = bufr_u32(in);
	f.nsamples = bufr_u64(in);
	if (kind >= EXPORT_FATE_COUNT)
		bufr_fail(in);
	err = block_init(&b, in, 0);
	if (err)
		return err;
	f.kind = (enum export_fate_kind)kind;
	f.sink = decode_text(in, &b, EXPORT_SINK_MAX);
	err = block_end(&b, in, ret_mem);
	if (!err)
		*ret = f;
	return err;
}

void export_status_encode(struct bufw *w, const struct export_status *s)
{
	uint32_t nprocesses = MIN(s->nprocesses, (uint32_t)EXPORT_PROCESSES_MAX);
	uint32_t nmetrics = MIN(s->nmetrics, (uint32_t)EXPORT_METRICS_MAX);

	bufw_u64(w, s->start_wall_ns);
	bufw_u32(w, s->hz);
	bufw_u32(w, s->ncpus);
	bufw_u64(w, s->window_ns);
	bufw_u32(w, nprocesses);
	bufw_u32(w, nmetrics);
	encode_text(w, s->config_path, EXPORT_PATH_MAX);
	encode_text(w, s->missing_rights, EXPORT_PATH_MAX);
	for (uint32_t i = 0; i < nprocesses; i++) {
		const struct export_process *p = &s->processes[i];

		encode_text(w, p->name, SHORT_MAX);
		bufw_u32(w, p->pid);
		bufw_u32(w, p->uid);
		bufw_u64(w, p->caps_effective);
		bufw_u64(w, p->caps_permitted);
		bufw_u8(w, p->seccomp);
		bufw_u8(w, p->no_new_privs);
	}
	for (uint32_t i = 0; i < nmetrics; i++) {
		bufw_u32(w, (uint32_t)s->metrics[i].id);
		encode_text(w, s->metrics[i].endpoint, EXPORT_SINK_MAX);
		encode_text(w, s->metrics[i].label, SHORT_MAX);
		bufw_u64(w, s->metrics[i].value);
	}
}

static bool decode_bool(struct bufr *in)
{
	uint8_t v = bufr_u8(in);

	if (v > 1)
		bufr_fail(in);
	return v;
}

static void decode_processes(struct bufr *in, struct block *b, struct export_status *s)
{
	for (uint32_t i = 0; i < s->nprocesses; i++) {
		struct export_process *p = &s->processes[i];

		p->name = decode_text(in, b, SHORT_MAX);
		p->pid = bufr_u32(in);
		p->uid = bufr_u32(in);
		p->caps_effective = bufr_u64(in);
		p->caps_permitted = bufr_u64(in);
		p->seccomp = decode_bool(in);
		p->no_new_privs = decode_bool(in);
	}
}

static void decode_metrics(struct bufr *in, struct block *b, struct export_status *s)
{
	for (uint32_t i = 0; i < s->nmetrics; i++) {
		uint32_t id = bufr_u32(in);

		if (id >= EXPORT_METRIC_COUNT)
			bufr_fail(in);
		s->metrics[i].id = (enum export_metric_id)id;
		s->metrics[i].endpoint = decode_text(in, b, EXPORT_SINK_MAX);
		s->metrics[i].label = decode_text(in, b, SHORT_MAX);
		s->metrics[i].value = bufr_u64(in);
	}
}

int export_status_decode(struct bufr *in, struct export_status *ret, void **ret_mem)
{
	struct export_status s = {};
	struct block b;
	int err;

	s.start_wall_ns = bufr_u64(in);
	s.hz = bufr_u32(in);
	s.ncpus = bufr_u32(in);
	s.window_ns = bufr_u64(in);
	s.nprocesses = bufr_count(in, EXPORT_PROCESSES_MAX, WIRE_PROCESS);
	s.nmetrics = bufr_count(in, EXPORT_METRICS_MAX, WIRE_METRIC);
	err = block_init(&b, in,
			 s.nprocesses * sizeof(*s.processes) + s.nmetrics * sizeof(*s.metrics));
	if (err)
		return err;
	s.processes = (struct export_process *)b.mem;
	s.metrics = (struct export_metric *)(s.processes + s.nprocesses);
	s.config_path = decode_text(in, &b, EXPORT_PATH_MAX);
	s.missing_rights = decode_text(in, &b, EXPORT_PATH_MAX);
	decode_processes(in, &b, &s);
	decode_metrics(in, &b, &s);
	err = block_end(&b, in, ret_mem);
	if (!err)
		*ret = s;
	return err;
}
