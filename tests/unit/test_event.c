#include "agent/event.h"

#include "agent/reader.h"
#include "exporter/msg.h"
#include "tests/unit/alloc_fail.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* ---- one event of every type ----------------------------------------------------------------- */

static const struct event_map maps[] = {
	{ .pid = 42, .tid = 42, .start = 0x1000, .end = 0x2000, .offset = 0x3000,
	  .key = { 254, 1, 77, 0, false }, .path = "/usr/bin/x\n\x01 y" },
	{ .pid = 42, .tid = 42, .start = 0x7fff00000000, .end = UINT64_MAX, .path = "" },
};
static const struct event_kernel_symbol symbols[] = {
	{ 0xffffffff81000000, 0, "_stext", "[kernel]" },
	{ 0xffffffffc0000010, 0x10, "", "[ext4]" },
};
static const uint8_t pages[2][EVENT_PAGE_BYTES] = { { 0 }, { 1, [EVENT_PAGE_BYTES - 1] = 9 } };
static const struct event_label labels[] = {
	{ "service_name", "nginx" }, { "empty", "" }, { "odd\n", "\x01\xff" },
};
static const uint64_t counters[] = { 1, 2, UINT64_MAX };
static struct msg_request request = {
	.id = 9, .file_id = 3, .naddrs = 2, .addrs = { { 0x1234, MSG_ADDR_RETURN }, { 0x10, 0 } },
};
static const union {
	struct abi_record r;
	uint8_t bytes[sizeof(struct abi_record) + 24];
} sample = { .r = { .size = sizeof(sample), .seq = 7, .pid = 42, .comm = "x" } };

static struct event example(enum event_type type)
{
	struct event e = { .type = type, .time_ns = 1000000007ull * type };

	switch (type) {
	case EVENT_START:
		e.start = (struct event_start){ .wall_ns = 5, .hz = 100, .ncpus = 2, .ntargets = 2,
						.targets = { 42, 43 }, .after_exec = true, .files_max = 8192,
						.labels_wait_ns = 15000000000ull };
		break;
	case EVENT_PROCESS:
		e.process = (struct event_process){ 42, 1, false, "comm ) x", "/usr/bin/x", 2, maps };
		break;
	case EVENT_MAP:
		e.map = maps[0];
		e.map.tid = 44;
		e.map.key.generation = 99;
		e.map.key.generation_known = true;
		break;
	case EVENT_COMM:
		e.comm = (struct event_comm){ 42, 44, true, "sh" };
		break;
	case EVENT_FORK:
		e.fork = (struct event_fork){ 42, 44, 1, 2 };
		break;
	case EVENT_EXIT:
		e.exit = (struct event_exit){ 42, 44 };
		break;
	case EVENT_LOST:
		e.lost = (struct event_lost){ 1, 1ull << 40 };
		break;
	case EVENT_SAMPLE:
		e.sample = (struct event_sample){ &sample.r, sizeof(sample) };
		break;
	case EVENT_OPENED:
		e.opened = (struct event_opened){ 3, true, { 1, 2, 3, 4 }, -1 };
		break;
	case EVENT_ROWS:
	case EVENT_NAMES:
		e.answer = (struct event_answer){ &request, (const uint8_t *)"answer", 6 };
		break;
	case EVENT_KERNEL:
		e.kernel = (struct event_kernel){ 2, symbols };
		break;
	case EVENT_COUNTERS:
		e.counters = (struct event_counters){ 3, counters };
		break;
	case EVENT_WINDOW:
		e.window = (struct event_window){ 1, 15000000000ull, true };
		break;
	case EVENT_LABELS:
		e.labels = (struct event_labels){ 1ull << 40, 7, 3, labels };
		break;
	case EVENT_TAP:
		e.tap = (struct event_tap){ UINT64_MAX, 2, 30000000000ull };
		break;
	case EVENT_MEMORY:
		e.memory = (struct event_memory){ 5, true, 2, 2, pages[0] };
		break;
	case EVENT_RELABEL:
	case EVENT_TURN:
	case EVENT_TYPE_COUNT:
		break;
	}
	return e;
}

static void assert_same_map(const struct event_map *a, const struct event_map *b)
{
	assert_int_equal(a->pid, b->pid);
	assert_int_equal(a->tid, b->tid);
	assert_true(a->start == b->start && a->end == b->end && a->offset == b->offset);
	assert_int_equal(a->key.dev_major, b->key.dev_major);
	assert_int_equal(a->key.dev_minor, b->key.dev_minor);
	assert_true(a->key.inode == b->key.inode && a->key.generation == b->key.generation);
	assert_int_equal(a->key.generation_known, b->key.generation_known);
	assert_string_equal(a->path, b->path);
}

static void assert_same_process(const struct event_process *a, const struct event_process *b)
{
	assert_int_equal(a->pid, b->pid);
	assert_int_equal(a->ppid, b->ppid);
	assert_int_equal(a->kernel_thread, b->kernel_thread);
	assert_string_equal(a->comm, b->comm);
	assert_string_equal(a->executable, b->executable);
	assert_int_equal(a->nmaps, b->nmaps);
	for (uint32_t i = 0; i < a->nmaps; i++)
		assert_same_map(&a->maps[i], &b->maps[i]);
}

static void assert_same_answer(const struct event_answer *a, const struct event_answer *b)
{
	assert_true(a->request->id == b->request->id && a->request->file_id == b->request->file_id);
	assert_int_equal(a->request->naddrs, b->request->naddrs);
	for (uint32_t i = 0; i < a->request->naddrs; i++) {
		assert_true(a->request->addrs[i].offset == b->request->addrs[i].offset);
		assert_int_equal(a->request->addrs[i].flags, b->request->addrs[i].flags);
	}
	assert_int_equal(a->len, b->len);
	assert_memory_equal(a->data, b->data, a->len);
}

static void assert_same_kernel(const struct event_kernel *a, const struct event_kernel *b)
{
	assert_int_equal(a->nsymbols, b->nsymbols);
	for (uint32_t i = 0; i < a->nsymbols; i++) {
		assert_true(a->symbols[i].address == b->symbols[i].address);
		assert_true(a->symbols[i].relative == b->symbols[i].relative);
		assert_string_equal(a->symbols[i].name, b->symbols[i].name);
		assert_string_equal(a->symbols[i].module, b->symbols[i].module);
	}
}

static void assert_same_labels(const struct event_labels *a, const struct event_labels *b)
{
	assert_true(a->subject_id == b->subject_id);
	assert_int_equal(a->keep_one_in, b->keep_one_in);
	assert_int_equal(a->nlabels, b->nlabels);
	for (uint32_t i = 0; i < a->nlabels; i++) {
		assert_string_equal(a->labels[i].name, b->labels[i].name);
		assert_string_equal(a->labels[i].value, b->labels[i].value);
	}
}

static void assert_same(const struct event *a, const struct event *b)
{
	assert_int_equal(a->type, b->type);
	assert_true(a->time_ns == b->time_ns);
	switch (a->type) {
	case EVENT_START:
		assert_memory_equal(&a->start, &b->start, sizeof(a->start));
		break;
	case EVENT_PROCESS:
		assert_same_process(&a->process, &b->process);
		break;
	case EVENT_MAP:
		assert_same_map(&a->map, &b->map);
		break;
	case EVENT_COMM:
		assert_int_equal(a->comm.pid, b->comm.pid);
		assert_int_equal(a->comm.tid, b->comm.tid);
		assert_int_equal(a->comm.exec, b->comm.exec);
		assert_string_equal(a->comm.comm, b->comm.comm);
		break;
	case EVENT_FORK:
		assert_memory_equal(&a->fork, &b->fork, sizeof(a->fork));
		break;
	case EVENT_EXIT:
		assert_memory_equal(&a->exit, &b->exit, sizeof(a->exit));
		break;
	case EVENT_LOST:
		assert_int_equal(a->lost.cpu, b->lost.cpu);
		assert_true(a->lost.count == b->lost.count);
		break;
	case EVENT_SAMPLE:
		assert_int_equal((uintptr_t)b->sample.record % 8, 0);
		assert_int_equal(a->sample.len, b->sample.len);
		assert_memory_equal(a->sample.record, b->sample.record, a->sample.len);
		break;
	case EVENT_OPENED:
		assert_int_equal(b->opened.fd, -1);
		assert_true(a->opened.file_id == b->opened.file_id && a->opened.ok == b->opened.ok);
		assert_memory_equal(&a->opened.identity, &b->opened.identity, sizeof(a->opened.identity));
		break;
	case EVENT_ROWS:
	case EVENT_NAMES:
		assert_same_answer(&a->answer, &b->answer);
		break;
	case EVENT_KERNEL:
		assert_same_kernel(&a->kernel, &b->kernel);
		break;
	case EVENT_COUNTERS:
		assert_int_equal(a->counters.n, b->counters.n);
		assert_memory_equal(a->counters.values, b->counters.values, a->counters.n * sizeof(uint64_t));
		break;
	case EVENT_WINDOW:
		assert_true(a->window.wall_start_ns == b->window.wall_start_ns &&
			    a->window.duration_ns == b->window.duration_ns && a->window.last == b->window.last);
		break;
	case EVENT_LABELS:
		assert_same_labels(&a->labels, &b->labels);
		break;
	case EVENT_TAP:
		assert_memory_equal(&a->tap, &b->tap, sizeof(a->tap));
		break;
	case EVENT_MEMORY:
		assert_true(a->memory.id == b->memory.id && a->memory.late == b->memory.late &&
			    a->memory.npages == b->memory.npages && a->memory.present == b->memory.present);
		assert_memory_equal(a->memory.pages, b->memory.pages, a->memory.npages * EVENT_PAGE_BYTES);
		break;
	case EVENT_RELABEL:
	case EVENT_TURN:
	case EVENT_TYPE_COUNT:
		break;
	}
}

/* A copy of exactly `len` bytes, so that ASan sees a read past it. */
static void *exact(const void *p, size_t len)
{
	void *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, p, len);
	return copy;
}

/* ---- payloads -------------------------------------------------------------------------------- */

static void every_type_survives_encoding_and_decoding(void **state UNUSED)
{
	for (int type = EVENT_START; type < EVENT_TYPE_COUNT; type++) {
		struct event in = example((enum event_type)type), out;
		CLEANUP(bufw_fini) struct bufw w = {};
		CLEANUP_FREE void *mem = NULL;

		event_encode(&w, &in);
		assert_int_equal(bufw_end(&w), 0);
		assert_int_equal(event_decode(in.type, in.time_ns, w.data, w.len, &out, &mem), 0);
		assert_same(&in, &out);
	}
}

static void every_shortened_payload_is_refused(void **state UNUSED)
{
	for (int type = EVENT_START; type < EVENT_TYPE_COUNT; type++) {
		struct event in = example((enum event_type)type), out;
		CLEANUP(bufw_fini) struct bufw w = {};

		event_encode(&w, &in);
		for (size_t len = 0; len < w.len; len++) {
			CLEANUP_FREE void *copy = exact(w.data, len);
			void *mem = NULL;

			assert_int_equal(event_decode(in.type, 0, copy, len, &out, &mem), -EBADMSG);
			assert_null(mem);
		}
	}
}

static void a_payload_with_bytes_left_over_is_refused(void **state UNUSED)
{
	for (int type = EVENT_START; type < EVENT_TYPE_COUNT; type++) {
		struct event in = example((enum event_type)type), out;
		CLEANUP(bufw_fini) struct bufw w = {};
		void *mem = NULL;

		event_encode(&w, &in);
		bufw_u8(&w, 0);
		assert_int_equal(event_decode(in.type, 0, w.data, w.len, &out, &mem), -EBADMSG);
	}
}

static void a_flag_that_is_neither_true_nor_false_is_refused(void **state UNUSED)
{
	struct event in = example(EVENT_WINDOW), out;
	CLEANUP(bufw_fini) struct bufw w = {};
	void *mem = NULL;

	event_encode(&w, &in);
	w.data[w.len - 1] = 2;
	assert_int_equal(event_decode(EVENT_WINDOW, 0, w.data, w.len, &out, &mem), -EBADMSG);
}

static void a_mapping_that_ends_before_it_starts_is_refused(void **state UNUSED)
{
	struct event in = example(EVENT_MAP), out;
	CLEANUP(bufw_fini) struct bufw w = {};
	void *mem = NULL;

	in.map.end = in.map.start;
	event_encode(&w, &in);
	assert_int_equal(event_decode(EVENT_MAP, 0, w.data, w.len, &out, &mem), -EBADMSG);
}

/* Profiles have signed ones. */
static void times_past_an_int64_are_refused(void **state UNUSED)
{
	static const enum event_type types[] = { EVENT_WINDOW, EVENT_WINDOW, EVENT_TAP, EVENT_TAP, EVENT_START };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		for (uint64_t past = 0; past <= 1; past++) {
			struct event in = example(types[i]), out;
			CLEANUP(bufw_fini) struct bufw w = {};
			uint64_t t = (uint64_t)INT64_MAX + past;
			void *mem = NULL;

			*(i == 0 ? &in.window.wall_start_ns : i == 1 ? &in.window.duration_ns :
			  i == 2 ? &in.tap.wall_start_ns : i == 3 ? &in.tap.duration_ns : &in.start.wall_ns) = t;
			event_encode(&w, &in);
			assert_int_equal(event_decode(types[i], 0, w.data, w.len, &out, &mem), past ? -EBADMSG : 0);
			free(mem);
		}
	}
}

static void a_name_with_a_nul_inside_is_refused(void **state UNUSED)
{
	struct event in = example(EVENT_COMM), out;
	CLEANUP(bufw_fini) struct bufw w = {};
	void *mem = NULL;

	event_encode(&w, &in);
	w.data[w.len - 1] = 0;
	assert_int_equal(event_decode(EVENT_COMM, 0, w.data, w.len, &out, &mem), -EBADMSG);
}

/* One more label, or one more byte, than the exporter may give. */
static void labels_over_a_limit_are_refused(void **state UNUSED)
{
	static char value[EXPORT_LABEL_MAX + 2];
	struct event_label label = { "name", value };
	struct event in = example(EVENT_LABELS), out;
	CLEANUP(bufw_fini) struct bufw w = {};
	void *mem = NULL;

	memset(value, 'x', EXPORT_LABEL_MAX);
	in.labels.nlabels = 1;
	in.labels.labels = &label;
	event_encode(&w, &in);
	assert_int_equal(event_decode(EVENT_LABELS, 0, w.data, w.len, &out, &mem), 0);
	assert_string_equal(out.labels.labels[0].value, value);
	free(TAKE(mem));
	bufw_reset(&w);
	value[EXPORT_LABEL_MAX] = 'x';
	event_encode(&w, &in);
	assert_int_equal(event_decode(EVENT_LABELS, 0, w.data, w.len, &out, &mem), -EBADMSG);
	bufw_reset(&w);
	in.labels.nlabels = 0;
	event_encode(&w, &in);
	bufw_patch_u32(&w, 12, EXPORT_PAIRS_MAX + 1);
	bufw_reserve(&w, (EXPORT_PAIRS_MAX + 1) * 8);	/* all of them empty */
	assert_int_equal(event_decode(EVENT_LABELS, 0, w.data, w.len, &out, &mem), -EBADMSG);
	bufw_patch_u32(&w, 12, EXPORT_PAIRS_MAX);
	w.len -= 8;
	assert_int_equal(event_decode(EVENT_LABELS, 0, w.data, w.len, &out, &mem), 0);
	assert_int_equal(out.labels.nlabels, EXPORT_PAIRS_MAX);
	free(mem);
}

static void pages_that_were_not_sent_are_not_present(void **state UNUSED)
{
	struct event in = example(EVENT_MEMORY), out;
	CLEANUP(bufw_fini) struct bufw w = {};
	void *mem = NULL;

	in.memory.present = 4;
	event_encode(&w, &in);
	assert_int_equal(event_decode(EVENT_MEMORY, 0, w.data, w.len, &out, &mem), -EBADMSG);
	bufw_reset(&w);
	in.memory = (struct event_memory){ .id = 5 };
	event_encode(&w, &in);
	assert_int_equal(event_decode(EVENT_MEMORY, 0, w.data, w.len, &out, &mem), 0);
	bufw_patch_u32(&w, 9, EVENT_PAGES_MAX + 1);
	bufw_reserve(&w, (EVENT_PAGES_MAX + 1) * (size_t)EVENT_PAGE_BYTES);
	assert_int_equal(event_decode(EVENT_MEMORY, 0, w.data, w.len, &out, &mem), -EBADMSG);
}

static void decoding_survives_any_failed_allocation(void **state UNUSED)
{
	for (int type = EVENT_START; type < EVENT_TYPE_COUNT; type++) {
		struct event in = example((enum event_type)type), out;
		CLEANUP(bufw_fini) struct bufw w = {};
		CLEANUP_FREE void *mem = NULL;
		int err = -ENOMEM;

		event_encode(&w, &in);
		for (long nth = 1; err; nth++) {
			alloc_fail_nth(nth);
			err = event_decode(in.type, 0, w.data, w.len, &out, &mem);
			alloc_fail_nth(0);
			assert_true(err == 0 || err == -ENOMEM);
		}
	}
}

static void requests_to_the_reader_survive_the_way(void **state UNUSED)
{
	struct reader_open in = { 7, 0x1000, 0x2000, 0x3000, { 8, 1, 99, 5, true }, 3, { 10, 11, 12 }, "/x y" }, out;
	struct reader_scan scan_in = { 1234, true }, scan_out;
	struct reader_peek peek_in = { 5, 1234, 2, { 0x1000, 0x7ffff000 } }, peek_out;
	struct reader_opened opened_in = { 7, ESTALE, { 1, 2, 3, 4 }, 0100640 }, opened_out;
	CLEANUP(bufw_fini) struct bufw w = {};
	struct bufr r;

	reader_open_encode(&w, &in);
	for (size_t len = 0; len < w.len; len++) {
		bufr_init(&r, w.data, len);
		assert_int_equal(reader_open_decode(&r, &out), -EBADMSG);
	}
	bufr_init(&r, w.data, w.len);
	assert_int_equal(reader_open_decode(&r, &out), 0);
	assert_string_equal(out.path, in.path);
	free((void *)(uintptr_t)out.path);
	out.path = in.path;
	assert_true(out.file_id == 7 && out.start == 0x1000 && out.end == 0x2000 && out.offset == 0x3000);
	assert_true(out.key.dev_major == 8 && out.key.dev_minor == 1 && out.key.inode == 99);
	assert_true(out.key.generation == 5 && out.key.generation_known);
	assert_int_equal(out.npids, 3);
	assert_memory_equal(out.pids, in.pids, 3 * sizeof(uint32_t));

	bufw_reset(&w);
	reader_scan_encode(&w, &scan_in);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(reader_scan_decode(&r, &scan_out), 0);
	assert_true(scan_out.after_pid == 1234 && scan_out.careful);

	bufw_reset(&w);
	reader_peek_encode(&w, &peek_in);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(reader_peek_decode(&r, &peek_out), 0);
	assert_memory_equal(&peek_out, &peek_in, sizeof(peek_in));

	bufw_reset(&w);
	reader_opened_encode(&w, &opened_in);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(reader_opened_decode(&r, &opened_out), 0);
	assert_true(opened_out.file_id == 7 && opened_out.error == ESTALE);
	assert_memory_equal(&opened_out.identity, &opened_in.identity, sizeof(opened_in.identity));
	assert_int_equal(opened_out.mode, opened_in.mode);
}

/* ---- the log --------------------------------------------------------------------------------- */

enum { LOG_ROUNDS = 3 };

static int log_fd(void)
{
	int fd = memfd_create("log", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* A log of LOG_ROUNDS times every type; the descriptor is at its start. */
static int write_log(void)
{
	struct event_log *log = NULL;
	int fd = log_fd();

	assert_int_equal(event_log_new(&log, dup(fd)), 0);
	for (int i = 0; i < LOG_ROUNDS; i++) {
		for (int type = EVENT_START; type < EVENT_TYPE_COUNT; type++) {
			struct event e = example((enum event_type)type);

			assert_int_equal(event_log_write(log, &e), 0);
		}
	}
	assert_int_equal(event_log_close(&log), 0);
	assert_null(log);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static int check_event(void *arg, const struct event *e)
{
	unsigned int *n = arg;
	struct event want = example((enum event_type)(*n % (EVENT_TYPE_COUNT - 1) + 1));

	assert_same(&want, e);
	(*n)++;
	return 0;
}

static void a_log_gives_back_the_events_in_order(void **state UNUSED)
{
	CLEANUP_FD int fd = write_log();
	unsigned int n = 0;

	assert_int_equal(event_log_read(fd, check_event, &n), 0);
	assert_int_equal(n, LOG_ROUNDS * (EVENT_TYPE_COUNT - 1));
}

/* The first `len` bytes of the log as a file of its own. */
static int cut_log(const uint8_t *bytes, size_t len)
{
	int fd = log_fd();

	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static size_t read_log(int fd, uint8_t *buf, size_t size)
{
	ssize_t n = read(fd, buf, size);

	assert_true(n > 0 && (size_t)n < size);
	return (size_t)n;
}

static void a_cut_log_is_told_apart_and_gives_what_is_whole(void **state UNUSED)
{
	static uint8_t bytes[65536];
	CLEANUP_FD int whole = write_log();
	size_t size = read_log(whole, bytes, sizeof(bytes));
	unsigned int last = 0;

	for (size_t len = 0; len < size; len++) {
		CLEANUP_FD int fd = cut_log(bytes, len);
		unsigned int n = 0;
		int err = event_log_read(fd, check_event, &n);

		if (len < 12)
			assert_int_equal(err, -EBADMSG);
		else if (n != last || len == 12)
			assert_int_equal(err, 0); /* cut between two events */
		else
			assert_int_equal(err, EVENT_LOG_TRUNCATED);
		assert_true(n == last || n == last + 1);
		last = n;
	}
	assert_int_equal(last, LOG_ROUNDS * (EVENT_TYPE_COUNT - 1) - 1);
}

static int ignore_event(void *arg UNUSED, const struct event *e UNUSED)
{
	return 0;
}

static void a_damaged_log_is_refused(void **state UNUSED)
{
	static const struct { size_t at; uint8_t value; } damage[] = {
		{ 0, 'X' },		/* magic */
		{ 8, 1 },		/* version */
		{ 12, 1 },		/* a length below type and time */
		{ 12 + 3, 0xff },	/* over EVENT_BYTES_MAX */
		{ 12 + 4, 0 },		/* no type */
		{ 12 + 4, EVENT_TYPE_COUNT },
		{ 12 + 4, EVENT_EXIT },	/* a payload of another type */
	};
	uint8_t bytes[65536];

	for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
		CLEANUP_FD int whole = write_log();
		size_t size = read_log(whole, bytes, sizeof(bytes));
		CLEANUP_FD int fd = -1;

		bytes[damage[i].at] = damage[i].value;
		fd = cut_log(bytes, size);
		assert_int_equal(event_log_read(fd, ignore_event, NULL), -EBADMSG);
	}
}

static int stop_at_third(void *arg, const struct event *e UNUSED)
{
	unsigned int *n = arg;

	return ++*n == 3 ? 1 : 0;
}

static void reading_ends_with_what_the_callback_returned(void **state UNUSED)
{
	CLEANUP_FD int fd = write_log();
	unsigned int n = 0;

	assert_int_equal(event_log_read(fd, stop_at_third, &n), 1);
	assert_int_equal(n, 3);
}

struct big {
	const uint8_t *data;
	unsigned int n;
};

static int check_big(void *arg, const struct event *e)
{
	struct big *b = arg;
	size_t len = 1 + (size_t)b->n * 400009;

	assert_int_equal(e->type, EVENT_ROWS);
	assert_int_equal(e->answer.len, len);
	assert_memory_equal(e->answer.data, b->data, len);
	b->n++;
	return 0;
}

static void answers_larger_than_any_buffer_come_back_whole(void **state UNUSED)
{
	enum { NBIG = 12 };
	CLEANUP_FREE uint8_t *data = malloc(NBIG * 400009);
	struct event_log *log = NULL;
	CLEANUP_FD int fd = log_fd();
	struct big b = { data, 0 };

	assert_non_null(data);
	for (size_t i = 0; i < NBIG * 400009; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(event_log_new(&log, dup(fd)), 0);
	for (unsigned int i = 0; i < NBIG; i++) {
		struct event e = example(EVENT_ROWS);

		e.answer.data = data;
		e.answer.len = 1 + (size_t)i * 400009;
		assert_int_equal(event_log_write(log, &e), 0);
	}
	assert_int_equal(event_log_close(&log), 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(event_log_read(fd, check_big, &b), 0);
	assert_int_equal(b.n, NBIG);
}

static void an_event_that_no_reader_would_take_is_not_written(void **state UNUSED)
{
	CLEANUP_FREE uint8_t *data = calloc(1, EVENT_BYTES_MAX);
	struct event_log *log = NULL;
	struct event e = example(EVENT_ROWS), turn = example(EVENT_TURN);
	CLEANUP_FD int fd = log_fd();

	assert_non_null(data);
	e.answer.data = data;
	e.answer.len = EVENT_BYTES_MAX;
	assert_int_equal(event_log_new(&log, dup(fd)), 0);
	assert_int_equal(event_log_write(log, &e), -EINVAL);
	assert_int_equal(event_log_write(log, &turn), 0);
	assert_int_equal(event_log_close(&log), 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(event_log_read(fd, ignore_event, NULL), 0);
}

static void a_full_disk_is_told_at_the_latest_by_close(void **state UNUSED)
{
	struct event_log *log = NULL;
	struct event e = example(EVENT_TURN);
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_true(full >= 0);
	assert_int_equal(event_log_new(&log, full), 0);
	assert_int_equal(event_log_write(log, &e), 0);
	assert_int_equal(event_log_close(&log), -ENOSPC);
}

static void writing_and_reading_survive_any_failed_allocation(void **state UNUSED)
{
	CLEANUP_FD int fd = write_log();
	int err = -ENOMEM;

	for (long nth = 1; err; nth++) {
		lseek(fd, 0, SEEK_SET);
		alloc_fail_nth(nth);
		err = event_log_read(fd, ignore_event, NULL);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
	}
	err = -ENOMEM;
	for (long nth = 1; err; nth++) {
		struct event_log *log = NULL;
		struct event e = example(EVENT_PROCESS);

		alloc_fail_nth(nth);
		err = event_log_new(&log, dup(fd));
		if (!err)
			err = event_log_write(log, &e);
		if (log) {
			int closed = event_log_close(&log);

			err = err ? err : closed;
		}
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_survives_encoding_and_decoding),
		cmocka_unit_test(every_shortened_payload_is_refused),
		cmocka_unit_test(a_payload_with_bytes_left_over_is_refused),
		cmocka_unit_test(a_flag_that_is_neither_true_nor_false_is_refused),
		cmocka_unit_test(a_mapping_that_ends_before_it_starts_is_refused),
		cmocka_unit_test(a_name_with_a_nul_inside_is_refused),
		cmocka_unit_test(times_past_an_int64_are_refused),
		cmocka_unit_test(labels_over_a_limit_are_refused),
		cmocka_unit_test(pages_that_were_not_sent_are_not_present),
		cmocka_unit_test(decoding_survives_any_failed_allocation),
		cmocka_unit_test(requests_to_the_reader_survive_the_way),
		cmocka_unit_test(a_log_gives_back_the_events_in_order),
		cmocka_unit_test(a_cut_log_is_told_apart_and_gives_what_is_whole),
		cmocka_unit_test(a_damaged_log_is_refused),
		cmocka_unit_test(reading_ends_with_what_the_callback_returned),
		cmocka_unit_test(answers_larger_than_any_buffer_come_back_whole),
		cmocka_unit_test(an_event_that_no_reader_would_take_is_not_written),
		cmocka_unit_test(a_full_disk_is_told_at_the_latest_by_close),
		cmocka_unit_test(writing_and_reading_survive_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
