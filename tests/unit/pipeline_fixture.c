#include "tests/unit/pipeline_fixture.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/unit/rows_fixture.h"

#define CODE_BYTES (1ull << 20)
#define VADDR 0x400000ull
enum { CHAIN_MAX = 64 };

static void must(int err)
{
	assert(err == 0);
}

/* ---- what the pipeline asks ---------------------------------------------------------------------- */

/* Lists keep the order of the questions. */
#define APPEND(list, item)                                  \
	do {                                                \
		__typeof__(list) *end_ = &(list);           \
		while (*end_)                               \
			end_ = &(*end_)->next;              \
		*end_ = (item);                             \
	} while (0)

static int on_open(void *arg, const struct reader_open *r)
{
	struct world_open *o = calloc(1, sizeof(*o));
	struct world *w = arg;

	if (strcmp(r->path, READER_PERF_MAP) == 0) {
		free(o);
		w->nperf_maps++;
		w->perf_map = *r;
		return 0;
	}
	assert(o && r->file_id < WORLD_FILES_MAX);
	o->file_id = r->file_id;
	free(w->paths[r->file_id]);
	w->paths[r->file_id] = strdup(r->path);
	w->nopens++;
	APPEND(w->opens, o);
	return 0;
}

static int on_request(struct world *w, const struct msg_request *r, bool is_names)
{
	struct world_request *q = calloc(1, sizeof(*q));

	assert(q);
	q->request = *r;
	q->is_names = is_names;
	w->naddrs_asked += r->naddrs;
	APPEND(w->requests, q);
	return 0;
}

static int on_rows(void *arg, const struct msg_request *r, int fd UNUSED)
{
	struct world *w = arg;

	w->nrows_asked++;
	return on_request(w, r, false);
}

static int on_names(void *arg, const struct msg_request *r, int fd UNUSED)
{
	struct world *w = arg;

	w->nnames_asked++;
	return on_request(w, r, true);
}

static int on_kernel(void *arg, const uint64_t *addresses, uint32_t n)
{
	struct world_kernel *k = calloc(1, sizeof(*k) + n * sizeof(*addresses));
	struct world *w = arg;

	assert(k && n);
	k->n = n;
	memcpy(k->addresses, addresses, n * sizeof(*addresses));
	APPEND(w->kernels, k);
	return 0;
}

static int on_rescan(void *arg)
{
	struct world *w = arg;

	w->nrescans++;
	return 0;
}

static int on_batch(void *arg, const struct export_batch *b)
{
	struct world *w = arg;
	struct bufw *out = &w->batches[w->nbatches++];
	struct export_batch check;
	struct bufr in;

	assert(w->nbatches <= WORLD_BATCHES_MAX);
	for (uint32_t i = 0; i < b->nsamples && !b->tap; i++)
		w->nbatch_samples += b->samples[i].count;
	export_batch_encode(out, b);
	must(bufw_end(out));
	/* Whatever happened, the exporter must take it. */
	bufr_init(&in, out->data, out->len);
	must(export_batch_decode(&in, &check));
	export_batch_fini(&check);
	return 0;
}

static void on_refused(void *arg, const struct export_tap_refused *r)
{
	struct world *w = arg;

	w->last_refused = r->id;
	w->nrefused[r->why]++;
}

static int on_announce(void *arg, const struct pipeline_subject *s)
{
	struct world_announced *a = calloc(1, sizeof(*a));
	struct world *w = arg;

	assert(a);
	if (w->announce_err) {
		free(a);
		return w->announce_err;
	}
	a->id = s->id;
	a->cgroup_id = s->cgroup_id;
	a->pid = s->pid;
	a->kernel_thread = s->kernel_thread;
	snprintf(a->executable, sizeof(a->executable), "%.63s", s->executable);
	snprintf(a->comm, sizeof(a->comm), "%.31s", s->comm);
	w->nannounced++;
	APPEND(w->announced, a);
	return 0;
}

static bool on_filter(void *arg, uint32_t pid, uint32_t keep_one_in)
{
	struct world *w = arg;
	size_t len = strlen(w->filters);

	if (w->filters_full && keep_one_in != 1)
		return false;

	snprintf(w->filters + len, sizeof(w->filters) - len, "%u:%u ", pid, keep_one_in);
	return true;
}

static void on_learn(void *arg, uint32_t tid, const struct abi_learned *l)
{
	struct world *w = arg;

	w->nlearned++;
	w->learned_tid = tid;
	w->learned = *l;
}

static void on_go(void *arg, uint32_t pid, const struct abi_go *go)
{
	struct world *w = arg;
	size_t len = strlen(w->gos);

	if (go)
		snprintf(w->gos + len, sizeof(w->gos) - len, "%u:%llx:%u ", pid, (unsigned long long)go->place,
			 (uint32_t)go->flags);
	else
		snprintf(w->gos + len, sizeof(w->gos) - len, "%u: ", pid);
}

static int on_peek(void *arg, const struct reader_peek *r)
{
	struct world *w = arg;

	w->npeeks++;
	w->peek = *r;
	return 0;
}

static const struct pipeline_ops ops = { .open = on_open, .rows = on_rows, .names = on_names,
					 .kernel = on_kernel, .rescan = on_rescan, .batch = on_batch,
					 .announce = on_announce, .filter = on_filter, .refused = on_refused,
					     .learn = on_learn, .go = on_go, .peek = on_peek };

void world_init(struct world *w, const struct pipeline_conf *conf)
{
	struct pipeline_conf c = conf ? *conf : (struct pipeline_conf){ 0 };

	*w = (struct world){ 0 };
	c.ops = &ops;
	c.arg = w;
	must(pipeline_new(&w->p, &c));
	w->log_fd = memfd_create("events", MFD_CLOEXEC);
	assert(w->log_fd >= 0);
	must(event_log_new(&w->log, dup(w->log_fd)));
}

void world_fini(struct world *w)
{
	pipeline_free(w->p);
	event_log_free(w->log);
	close(w->log_fd);
	for (struct world_open *o = w->opens, *next; o; o = next) {
		next = o->next;
		free(o);
	}
	for (struct world_request *q = w->requests, *next; q; q = next) {
		next = q->next;
		free(q);
	}
	for (struct world_kernel *k = w->kernels, *next; k; k = next) {
		next = k->next;
		free(k);
	}
	for (struct world_announced *a = w->announced, *next; a; a = next) {
		next = a->next;
		free(a);
	}
	for (uint32_t i = 0; i < WORLD_FILES_MAX; i++)
		free(w->paths[i]);
	for (uint32_t i = 0; i < WORLD_BATCHES_MAX; i++)
		bufw_fini(&w->batches[i]);
}

/* ---- events -------------------------------------------------------------------------------------- */

void world_event(struct world *w, const struct event *e)
{
	/* -EINVAL: one that no log may hold; the pipeline has to bear it all the same. */
	int err = w->log ? event_log_write(w->log, e) : 0;

	assert(err == 0 || err == -EINVAL);
	must(pipeline_event(w->p, e));
}

void world_start(struct world *w, uint64_t time_ns, const uint32_t *targets, uint32_t ntargets, bool after_exec)
{
	struct event e = { .type = EVENT_START, .time_ns = time_ns,
			   .start = { .wall_ns = 1, .hz = 100, .ncpus = 4, .ntargets = ntargets,
				      .after_exec = after_exec } };

	if (ntargets)
		memcpy(e.start.targets, targets, ntargets * sizeof(*targets));
	world_event(w, &e);
}

static uint64_t hash_of(const char *text)
{
	uint64_t h = 5381;

	while (*text)
		h = h * 33 + (unsigned char)*text++;
	return h;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static struct event_map map_of(uint32_t pid, uint64_t start, const char *path)
{
	struct event_map m = { .pid = pid, .tid = pid, .start = start, .end = start + CODE_BYTES, .path = path };

	if (path[0] == '/' && path[1] != '/')
		m.key = (struct file_key){ .dev_major = 8, .inode = hash_of(path) % 1000000 + 1,
					   .generation_known = true };
	return m;
}

void world_map(struct world *w, uint64_t time_ns, uint32_t pid, uint64_t start, const char *path)
{
	struct event e = { .type = EVENT_MAP, .time_ns = time_ns, .map = map_of(pid, start, path) };

	world_event(w, &e);
}

void world_exec(struct world *w, uint64_t time_ns, uint32_t pid)
{
	struct event e = { .type = EVENT_COMM, .time_ns = time_ns,
			   .comm = { .pid = pid, .tid = pid, .exec = true, .comm = "comm" } };

	world_event(w, &e);
}

void world_fork(struct world *w, uint64_t time_ns, uint32_t pid, uint32_t ppid)
{
	struct event e = { .type = EVENT_FORK, .time_ns = time_ns,
			   .fork = { .pid = pid, .tid = pid, .ppid = ppid, .ptid = ppid } };

	world_event(w, &e);
}

void world_exit(struct world *w, uint64_t time_ns, uint32_t pid)
{
	struct event e = { .type = EVENT_EXIT, .time_ns = time_ns, .exit = { .pid = pid, .tid = pid } };

	world_event(w, &e);
}

void world_lost(struct world *w, uint64_t time_ns)
{
	struct event e = { .type = EVENT_LOST, .time_ns = time_ns, .lost = { .count = 3 } };

	world_event(w, &e);
}

void world_scanned(struct world *w, uint64_t time_ns, uint32_t pid, uint32_t ppid, uint64_t start,
		   const char *path)
{
	struct event_map m = map_of(pid, start, path ? path : "");
	struct event e = { .type = EVENT_PROCESS, .time_ns = time_ns,
			   .process = { .pid = pid, .ppid = ppid, .comm = "comm", .executable = path ? path : "",
					.nmaps = path ? 1 : 0, .maps = &m } };

	world_event(w, &e);
}

/* ---- samples ------------------------------------------------------------------------------------- */

struct sample_bytes {
	struct abi_record r;
	uint8_t sections[4096];
};

static void init_sample(struct world *w, struct sample_bytes *s, uint64_t time_ns, uint32_t pid)
{
	memset(s, 0, sizeof(*s));
	s->r = (struct abi_record){ .size = sizeof(s->r), .flags = ABI_F_LAST, .seq = ++w->seq,
				    .time_ns = time_ns, .period_ns = 10000000, .cgroup_id = 1000 + pid + w->moved,
				    .pid = pid, .tid = pid, .kind = ABI_KIND_CPU, .comm = "comm" };
	w->nsent++;
}

static void add_section(struct sample_bytes *s, struct abi_section sec, const void *data, uint32_t len)
{
	uint8_t *at = (uint8_t *)s + s->r.size;

	sec.len = len;
	assert(s->r.size + sizeof(sec) + len + 8 <= sizeof(*s));
	memcpy(at, &sec, sizeof(sec));
	memcpy(at + sizeof(sec), data, len);
	s->r.size += (uint32_t)(sizeof(sec) + ((len + 7) & ~7u));
	s->r.nsections++;
}

static void send_sample(struct world *w, const struct sample_bytes *s)
{
	struct event e = { .type = EVENT_SAMPLE, .sample = { .record = &s->r, .len = s->r.size } };

	world_event(w, &e);
}

static void sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *pcs, uint32_t n, bool cut)
{
	uint64_t regs[ABI_X86_NREGS] = { 0 }, stack[ABI_RED_ZONE / 8 + CHAIN_MAX] = { 0 };
	struct sample_bytes s;

	assert(n >= 1 && n < CHAIN_MAX);
	init_sample(w, &s, time_ns, pid);
	regs[ABI_X86_RIP] = pcs[0];
	regs[ABI_X86_RSP] = WORLD_STACK;
	memcpy(stack + ABI_RED_ZONE / 8, pcs + 1, (n - 1) * sizeof(*pcs));
	add_section(&s, (struct abi_section){ .kind = ABI_SEC_REGS }, regs, sizeof(regs));
	add_section(&s, (struct abi_section){ .kind = ABI_SEC_STACK, .address = WORLD_STACK - ABI_RED_ZONE }, stack,
		    (uint32_t)(ABI_RED_ZONE + (n - cut) * 8));
	s.r.flags |= cut ? ABI_F_CUT : 0;
	send_sample(w, &s);
}

void world_sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *pcs, uint32_t n)
{
	sample(w, time_ns, pid, pcs, n, false);
}

void world_cut_sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *pcs, uint32_t n)
{
	sample(w, time_ns, pid, pcs, n, true);
}

void world_kernel_sample(struct world *w, uint64_t time_ns, uint32_t pid, const uint64_t *addresses, uint32_t n)
{
	struct sample_bytes s;

	init_sample(w, &s, time_ns, pid);
	s.r.flags |= ABI_F_KERNEL_MODE | ABI_F_KERNEL_THREAD;
	add_section(&s, (struct abi_section){ .kind = ABI_SEC_KSTACK }, addresses, n * 8);
	send_sample(w, &s);
}

void world_turn(struct world *w, uint64_t time_ns)
{
	struct event e = { .type = EVENT_TURN, .time_ns = time_ns };

	world_event(w, &e);
}

void world_window(struct world *w, uint64_t time_ns, bool last)
{
	struct event e = { .type = EVENT_WINDOW, .time_ns = time_ns,
			   .window = { .wall_start_ns = time_ns, .duration_ns = 1000, .last = last } };

	world_event(w, &e);
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void answer_open(struct world *w, uint64_t time_ns, struct world_open *o)
{
	const char *name = base_name(w->paths[o->file_id]);
	struct event e = { .type = EVENT_OPENED, .time_ns = time_ns,
			   .opened = { .file_id = o->file_id, .fd = -1 } };

	e.opened.ok = strncmp(name, "fail", 4) != 0;
	e.opened.identity = (struct file_identity){ .dev = 1, .inode = hash_of(name), .size = 4 * CODE_BYTES };
	if (!e.opened.ok)
		e.opened.identity = (struct file_identity){ 0 };
	free(o);
	world_event(w, &e);
}

void world_open_all(struct world *w, uint64_t time_ns)
{
	while (w->opens) {
		struct world_open *o = w->opens;

		w->opens = o->next;
		answer_open(w, time_ns, o);
	}
}

/* Files whose name begins with go are Go's: goslot keeps the distance 0x500 above its code at 0x20. */
static void rows_of(const struct world *w, const struct msg_request *r, struct bufw *out)
{
	static struct rows_fixture f;
	const char *name;
	int row;

	fixture_init(&f);
	row = fixture_row(&f, 0, 8 * CODE_BYTES, ABI_X86_RSP, 8);
	for (uint32_t i = 0; i < r->naddrs; i++)
		fixture_addr(&f, r->addrs[i].offset, r->addrs[i].flags & MSG_ADDR_RETURN, row,
			     MSG_RES_CODE | MSG_RES_AFTER_CALL);
	f.answer.id = r->id;
	f.answer.file_id = r->file_id;
	name = base_name(w->paths[r->file_id]);
	if (r->flags & MSG_REQUEST_GO && strcmp(name, "goslot") == 0)
		f.answer.go = (struct msg_go){ .kind = MSG_GO_SLOT, .cgo = true, .off = 0x500, .code = 0x20 };
	else if (r->flags & MSG_REQUEST_GO && strncmp(name, "go", 2) == 0)
		f.answer.go = (struct msg_go){ .kind = MSG_GO_FIXED, .off = -32 };
	msg_rows_encode(out, &f.answer);
}

static void names_of(const struct world *w, const struct msg_request *r, struct bufw *out)
{
	static struct msg_function functions[MSG_ADDRS_MAX];
	static struct msg_line lines[MSG_ADDRS_MAX];
	static struct msg_named named[MSG_ADDRS_MAX];
	static char texts[MSG_ADDRS_MAX][64], empty[1];
	struct msg_names n = { .id = r->id, .file_id = r->file_id, .nsegments = 1, .nfunctions = r->naddrs,
			       .nlines = r->naddrs, .nnamed = r->naddrs, .functions = functions,
			       .lines = lines, .named = named };

	n.segments[0] = (struct msg_segment){ .vaddr = VADDR, .mem_bytes = 8 * CODE_BYTES };
	for (uint32_t i = 0; i < r->naddrs; i++) {
		snprintf(texts[i], sizeof(texts[i]), "%.40s:%llx", base_name(w->paths[r->file_id]),
			 (unsigned long long)r->addrs[i].offset);
		functions[i] = (struct msg_function){ .name = texts[i], .system_name = texts[i], .file = empty };
		lines[i] = (struct msg_line){ .function = i, .line = i };
		named[i] = (struct msg_named){ .vaddr = VADDR + r->addrs[i].offset, .first_line = i, .nlines = 1 };
	}
	msg_names_encode(out, &n);
}

static void answer_request(struct world *w, uint64_t time_ns, struct world_request *q, const void *garbage,
			   size_t len)
{
	struct event e = { .type = q->is_names ? EVENT_NAMES : EVENT_ROWS, .time_ns = time_ns };
	CLEANUP(bufw_fini) struct bufw out = { 0 };

	if (garbage)
		bufw_bytes(&out, garbage, len);
	else if (q->is_names)
		names_of(w, &q->request, &out);
	else
		rows_of(w, &q->request, &out);
	must(bufw_end(&out));
	e.answer = (struct event_answer){ .request = &q->request, .data = out.data, .len = out.len };
	world_event(w, &e);
	free(q);
}

static struct world_request *take_request(struct world *w, bool is_names)
{
	struct world_request **at = &w->requests, *q;

	while (*at && (*at)->is_names != is_names)
		at = &(*at)->next;
	q = *at;
	if (q)
		*at = q->next;
	return q;
}

void world_answer_rows(struct world *w, uint64_t time_ns)
{
	struct world_request *q;

	while ((q = take_request(w, false)))
		answer_request(w, time_ns, q, NULL, 0);
}

static void answer_kernel(struct world *w, uint64_t time_ns, struct world_kernel *k)
{
	struct event_kernel_symbol *symbols = calloc(k->n, sizeof(*symbols));
	struct event e = { .type = EVENT_KERNEL, .time_ns = time_ns, .kernel = { k->n, symbols } };

	assert(symbols);
	for (uint32_t i = 0; i < k->n; i++)
		symbols[i] = (struct event_kernel_symbol){ .address = k->addresses[i],
							   .relative = k->addresses[i] & 0xfffff,
							   .name = k->addresses[i] % 2 ? "odd" : "even",
							   .module = "[kernel]" };
	world_event(w, &e);
	free(symbols);
	free(k);
}

void world_answer_names(struct world *w, uint64_t time_ns)
{
	struct world_request *q;

	while ((q = take_request(w, true)))
		answer_request(w, time_ns, q, NULL, 0);
	while (w->kernels) {
		struct world_kernel *k = w->kernels;

		w->kernels = k->next;
		answer_kernel(w, time_ns, k);
	}
}

bool world_answer_one(struct world *w, uint64_t time_ns, uint32_t which, const void *garbage, size_t len)
{
	struct world_request **at = &w->requests, *q;

	for (uint32_t i = 0; *at && i < which && (*at)->next; i++)
		at = &(*at)->next;
	q = *at;
	if (!q)
		return false;
	*at = q->next;
	answer_request(w, time_ns, q, garbage, len);
	return true;
}

/* ---- labels and taps ----------------------------------------------------------------------------- */

void world_start_labels(struct world *w, uint64_t time_ns, uint64_t labels_wait_ns)
{
	struct event e = { .type = EVENT_START, .time_ns = time_ns,
			   .start = { .wall_ns = 1, .hz = 100, .ncpus = 4, .labels_wait_ns = labels_wait_ns } };

	world_event(w, &e);
}

void world_labels(struct world *w, uint64_t time_ns, uint64_t id, uint32_t keep_one_in,
		  const struct event_label *labels, uint32_t n)
{
	struct event e = { .type = EVENT_LABELS, .time_ns = time_ns,
			   .labels = { .subject_id = id, .keep_one_in = keep_one_in, .nlabels = n,
				       .labels = labels } };

	world_event(w, &e);
}

bool world_label_one(struct world *w, uint64_t time_ns, uint32_t keep_one_in)
{
	struct world_announced *a = w->announced;
	char pid[32];

	if (!a)
		return false;
	w->announced = a->next;
	snprintf(pid, sizeof(pid), "%u", a->pid);
	world_labels(w, time_ns, a->id, keep_one_in,
		     (struct event_label[]){ { "exe_pid", pid }, { "service_name", base_name(a->executable) } }, 2);
	free(a);
	return true;
}

void world_label_all(struct world *w, uint64_t time_ns, uint32_t keep_one_in)
{
	while (world_label_one(w, time_ns, keep_one_in))
		;
}

void world_relabel(struct world *w, uint64_t time_ns)
{
	world_event(w, &(struct event){ .type = EVENT_RELABEL, .time_ns = time_ns });
}

void world_tap(struct world *w, uint64_t time_ns, uint64_t id, uint64_t duration_ns)
{
	struct event e = { .type = EVENT_TAP, .time_ns = time_ns,
			   .tap = { .id = id, .wall_start_ns = time_ns + 7, .duration_ns = duration_ns } };

	world_event(w, &e);
}

void world_memory(struct world *w, uint64_t time_ns, const uint64_t *const *pages, bool late)
{
	struct event e = { .type = EVENT_MEMORY, .time_ns = time_ns,
			   .memory = { .id = w->peek.id, .late = late, .npages = late ? 0 : w->peek.npages } };
	uint8_t bytes[EVENT_PAGES_MAX * EVENT_PAGE_BYTES] = { 0 };

	for (uint32_t i = 0; i < e.memory.npages; i++) {
		if (!pages[i])
			continue;
		memcpy(bytes + i * EVENT_PAGE_BYTES, pages[i], EVENT_PAGE_BYTES);
		e.memory.present |= 1u << i;
	}
	e.memory.pages = bytes;
	world_event(w, &e);
}

void world_settle(struct world *w, uint64_t time_ns)
{
	while (w->opens || w->requests || w->kernels) {
		world_open_all(w, time_ns);
		world_answer_rows(w, time_ns);
		world_answer_names(w, time_ns);
	}
}

/* ---- looking at what came out -------------------------------------------------------------------- */

static int feed(void *arg, const struct event *e)
{
	struct world *w = arg;

	return pipeline_event(w->p, e);
}

void world_replay(struct world *w, struct world *ret, const struct pipeline_conf *conf)
{
	world_init(ret, conf);
	must(event_log_close(&w->log));
	must((int)lseek(w->log_fd, 0, SEEK_SET));
	must(event_log_read(w->log_fd, feed, ret));
}

static void print_string(FILE *out, const struct export_batch *b, uint32_t i)
{
	fprintf(out, "%.*s", (int)b->strings[i].len, b->strings[i].text);
}

struct export_batch world_batch(const struct world *w, uint32_t batch)
{
	struct export_batch b;
	struct bufr in;

	assert(batch < w->nbatches);
	bufr_init(&in, w->batches[batch].data, w->batches[batch].len);
	must(export_batch_decode(&in, &b));
	return b;
}

char *world_subjects(const struct world *w, uint32_t batch)
{
	struct export_batch b = world_batch(w, batch);
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert(out);
	for (uint32_t i = 0; i < b.nsubjects; i++) {
		const struct export_subject *s = &b.subjects[i];

		fprintf(out, "%u", s->pid);
		for (uint32_t k = 0; k < s->npairs; k++) {
			fputc(' ', out);
			print_string(out, &b, b.pairs[s->first_pair + k].name);
			fputc('=', out);
			print_string(out, &b, b.pairs[s->first_pair + k].value);
		}
		fputc('\n', out);
	}
	fclose(out);
	export_batch_fini(&b);
	return text;
}

char *world_text(const struct world *w, uint32_t batch)
{
	struct export_batch b = world_batch(w, batch);
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert(out);
	for (uint32_t i = 0; i < b.nsamples; i++) {
		const struct export_sample *s = &b.samples[i];

		fprintf(out, "%u ", b.subjects[s->subject].pid);
		print_string(out, &b, b.subjects[s->subject].executable);
		fprintf(out, " %llu:", (unsigned long long)s->count);
		for (uint32_t f = 0; f < s->nframes; f++) {
			const struct export_location *l = &b.locations[b.frames[s->first_frame + f]];

			fputc(' ', out);
			print_string(out, &b, b.functions[b.lines[l->first_line].function].name);
		}
		fputc('\n', out);
	}
	fclose(out);
	export_batch_fini(&b);
	return text;
}
