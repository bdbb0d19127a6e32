#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/window.h"
#include "base/clock.h"
#include "base/ipc.h"

enum { REQUESTS_MAX = 512 };

static struct files *files;
static struct procs *procs;
static struct aggregate *agg;
static struct window *window;
static struct msg_request *requests;
static uint32_t nrequests;
static uint64_t kernel[1000];
static uint32_t nkernel;
static uint64_t next_request;

static int on_names(void *arg UNUSED, const struct msg_request *r, int fd UNUSED)
{
	assert_true(nrequests < REQUESTS_MAX);
	requests[nrequests++] = *r;
	return 0;
}

static int on_kernel(void *arg UNUSED, const uint64_t *addresses, uint32_t n)
{
	assert_true(n <= ARRAY_SIZE(kernel));
	memcpy(kernel, addresses, n * sizeof(*addresses));
	nkernel = n;
	return 0;
}

static const struct pipeline_ops ops = { .names = on_names, .kernel = on_kernel };

static int set_up(void **state UNUSED)
{
	requests = calloc(REQUESTS_MAX, sizeof(*requests));
	nrequests = nkernel = 0;
	next_request = 100;
	if (!requests || files_new(&files) || procs_new(&procs) || aggregate_new(&agg, 256u << 20))
		return -1;
	return 0;
}

static int tear_down(void **state UNUSED)
{
	free(requests);
	window = window_free(window);
	agg = aggregate_free(agg);
	procs = procs_free(procs);
	files = files_free(files);
	return 0;
}

static struct file *new_file(const char *path, bool is_open)
{
	struct file_identity identity = { .size = 0x100000 };
	struct file_key key = { .inode = 1 };
	struct file *file;

	assert_int_equal(files_get(files, &key, path, &file), 0);
	identity.inode = file->id;
	if (is_open)
		files_opened(files, file, &identity, -1);
	else
		files_failed(files, file);
	return file;
}

static struct subject *subject_of(uint32_t pid)
{
	struct proc *p;

	assert_int_equal(procs_get(procs, pid, 1, &p), 0);
	return p->subject;
}

static void add(uint32_t pid, struct file *file, const uint64_t *offsets, uint32_t n)
{
	struct unwind_frame frames[64];
	struct aggregate_sample s = { .subject = subject_of(pid), .tid = pid, .comm = "c", .period_ns = 10,
				      .user = frames, .nuser = n, .outcome = UNWIND_COMPLETE };

	for (uint32_t i = 0; i < n; i++)
		frames[i] = (struct unwind_frame){ .file = file, .offset = offsets[i] };
	assert_int_equal(aggregate_add(agg, &s), 0);
}

static void close_and_ask(void)
{
	struct window_head head = { .wall_start_ns = 5, .duration_ns = 6, .period_ns = 7, .id = 8 };

	assert_int_equal(window_new(&window, &agg, &head), 0);
	assert_int_equal(window_ask(window, &ops, NULL, &next_request), 0);
}

/* Builds, and has the exporter's side read it. */
static struct export_batch build(struct bufw *w)
{
	const struct export_batch *batch;
	struct export_batch got;
	struct bufr in;

	assert_true(window_named(window));
	assert_int_equal(window_build(window, &batch), 0);
	export_batch_encode(w, batch);
	assert_int_equal(bufw_end(w), 0);
	assert_true(w->len <= IPC_PAYLOAD_MAX);
	bufr_init(&in, w->data, w->len);
	assert_int_equal(export_batch_decode(&in, &got), 0);
	assert_int_equal(got.id, 8);
	assert_int_equal(got.wall_start_ns, 5);
	assert_int_equal(got.duration_ns, 6);
	assert_int_equal(got.period_ns, 7);
	return got;
}

static const char *text_of(const struct export_batch *b, uint32_t string)
{
	static char text[4][5000];
	static unsigned int i;

	i = (i + 1) % 4;
	snprintf(text[i], sizeof(text[i]), "%.*s", (int)b->strings[string].len, b->strings[string].text);
	return text[i];
}

static const struct export_location *location_of(const struct export_batch *b, uint32_t sample, uint32_t frame)
{
	return &b->locations[b->frames[b->samples[sample].first_frame + frame]];
}

static const char *name_of(const struct export_batch *b, uint32_t sample, uint32_t frame)
{
	return text_of(b, b->functions[b->lines[location_of(b, sample, frame)->first_line].function].name);
}

/* An answer that names each address "f"; its one segment is the caller's. */
static struct msg_names names_of(const struct msg_request *r, struct msg_segment segment)
{
	static struct msg_named named[MSG_ADDRS_MAX];
	static struct msg_function f;
	static struct msg_line line;
	static char name[] = "f", empty[] = "";

	f = (struct msg_function){ .name = name, .system_name = name, .file = empty };
	for (uint32_t i = 0; i < r->naddrs; i++)
		named[i] = (struct msg_named){ .vaddr = segment.vaddr + r->addrs[i].offset, .nlines = 1 };
	return (struct msg_names){ .id = r->id, .file_id = r->file_id, .nsegments = 1, .segments = { segment },
				   .build_id = { 0xab, 0x01 }, .build_id_len = 2, .nfunctions = 1, .nlines = 1,
				   .nnamed = r->naddrs, .functions = &f, .lines = &line, .named = named };
}

static void an_empty_window_is_a_batch_too(void **state UNUSED)
{
	struct export_batch b;
	struct bufw w = { 0 };

	close_and_ask();
	assert_int_equal(nrequests, 0);
	b = build(&w);
	assert_int_equal(b.nsamples, 0);
	export_batch_fini(&b);
	bufw_fini(&w);
}

static void addresses_are_asked_by_file_in_order_and_once(void **state UNUSED)
{
	struct file *a = new_file("/bin/a", true), *b = new_file("/bin/b", true);
	uint64_t offsets[64];

	for (uint64_t i = 0; i < 40; i++) {
		for (uint64_t k = 0; k < 64; k++)
			offsets[k] = 5000 - i * 64 - k;
		add(1, i % 2 ? a : b, offsets, 64);
	}
	add(2, a, offsets, 64);
	close_and_ask();
	assert_int_equal(nrequests, 6);	/* 1280 and 1344 addresses, 512 at a time */
	for (uint32_t i = 0; i < nrequests; i++) {
		const struct msg_request *r = &requests[i];

		assert_int_equal(r->id, 100 + i);
		assert_int_equal(r->file_id, i < 3 ? a->id : b->id);
		for (uint32_t k = 1; k < r->naddrs; k++)
			assert_true(r->addrs[k - 1].offset < r->addrs[k].offset);
		if (i % 3)
			assert_true(requests[i - 1].addrs[511].offset < r->addrs[0].offset);
	}
}

static void answers_may_come_in_any_order_and_only_once(void **state UNUSED)
{
	struct msg_segment segment = { .vaddr = 0x400000, .mem_bytes = 0x100000 };
	struct file *a = new_file("/bin/a", true), *b = new_file("/bin/b (deleted)", true);
	struct export_batch got;
	struct msg_names names;
	struct bufw w = { 0 };

	add(1, a, (uint64_t[]){ 0x10 }, 1);
	add(1, b, (uint64_t[]){ 0x20 }, 1);
	close_and_ask();
	assert_int_equal(nrequests, 2);
	names = names_of(&requests[1], segment);
	assert_int_equal(window_names(window, &requests[1], &names), 1);
	assert_int_equal(window_names(window, &requests[1], &names), 0);
	assert_false(window_named(window));
	requests[0].id += 1000; /* another window's */
	assert_int_equal(window_names(window, &requests[0], &names), 0);
	requests[0].id -= 1000;
	names = names_of(&requests[0], segment);
	assert_int_equal(window_names(window, &requests[0], &names), 1);
	got = build(&w);
	assert_string_equal(name_of(&got, 0, 0), "f");
	assert_int_equal(location_of(&got, 0, 0)->address, 0x400010);
	assert_string_equal(text_of(&got, got.mappings[location_of(&got, 1, 0)->mapping].filename), "/bin/b");
	assert_string_equal(text_of(&got, got.mappings[location_of(&got, 1, 0)->mapping].build_id), "ab01");
	export_batch_fini(&got);
	bufw_fini(&w);
}

/* An ELF file may claim any segment; one that wraps must not cost the batch. */
static void segments_that_make_no_sense_are_left_out(void **state UNUSED)
{
	static const struct msg_segment odd[] = {
		{ .vaddr = UINT64_MAX - 10, .mem_bytes = 100 }, { .vaddr = 0, .mem_bytes = 0 },
		{ .vaddr = UINT64_MAX, .mem_bytes = UINT64_MAX }, { .vaddr = 1ull << 63, .mem_bytes = 1ull << 63 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		struct file *a = new_file("/bin/a", true);
		struct export_batch got;
		struct msg_names names;
		struct bufw w = { 0 };

		add(1, a, (uint64_t[]){ 0x10 }, 1);
		close_and_ask();
		names = names_of(&requests[0], odd[i]);
		assert_int_equal(window_names(window, &requests[0], &names), 1);
		got = build(&w);
		assert_string_equal(name_of(&got, 0, 0), "f");
		export_batch_fini(&got);
		bufw_fini(&w);
		tear_down(NULL);
		set_up(NULL);
	}
}

static void an_answer_of_another_length_names_nothing(void **state UNUSED)
{
	struct msg_segment segment = { .vaddr = 0x400000, .mem_bytes = 0x100000 };
	struct file *a = new_file("/bin/a", true);
	struct export_batch got;
	struct msg_names names;
	struct bufw w = { 0 };

	add(1, a, (uint64_t[]){ 0x10, 0x20 }, 2);
	close_and_ask();
	names = names_of(&requests[0], segment);
	names.nnamed = 1;
	assert_int_equal(window_names(window, &requests[0], &names), 1);
	got = build(&w);
	assert_string_equal(name_of(&got, 0, 0), "a+0x10");
	assert_string_equal(name_of(&got, 0, 1), "a+0x20");
	export_batch_fini(&got);
	bufw_fini(&w);
}

static void a_file_without_answer_is_one_mapping(void **state UNUSED)
{
	struct file *a = new_file("/bin/a", false);
	struct export_batch got;
	struct bufw w = { 0 };

	add(1, a, (uint64_t[]){ 0x10, 0x20, INT64_MAX - 1 }, 3);
	close_and_ask();
	assert_int_equal(nrequests, 0);
	got = build(&w);
	assert_int_equal(location_of(&got, 0, 0)->mapping, location_of(&got, 0, 1)->mapping);
	assert_string_equal(name_of(&got, 0, 2), "a+0x7ffffffffffffffe");
	export_batch_fini(&got);
	bufw_fini(&w);
}

static void kernel_answers_that_do_not_fit_name_nothing(void **state UNUSED)
{
	const uint64_t addresses[] = { 0xffffffff81000010, 0xffffffff81000020, 0xffffffff81000030 };
	struct aggregate_sample s = { .subject = subject_of(1), .comm = "c", .kernel = addresses, .nkernel = 3,
				      .outcome = UNWIND_KERNEL_THREAD };
	struct event_kernel_symbol symbols[2];
	struct event_kernel answer = { 2, symbols };
	struct export_batch got;
	struct bufw w = { 0 };

	assert_int_equal(aggregate_add(agg, &s), 0);
	close_and_ask();
	assert_int_equal(nkernel, 3);
	assert_false(window_named(window));
	symbols[0] = (struct event_kernel_symbol){ .address = kernel[0], .relative = 0x10, .name = "right",
						   .module = "[kernel]" };
	symbols[1] = (struct event_kernel_symbol){ .address = kernel[1] + 1, .relative = 0x20, .name = "wrong",
						   .module = "[kernel]" };
	assert_int_equal(window_kernel(window, &answer), 1);
	assert_int_equal(window_kernel(window, &answer), 0);
	got = build(&w);
	assert_string_equal(name_of(&got, 0, 0), "right");
	assert_string_equal(name_of(&got, 0, 1), "[kernel]");
	assert_string_equal(name_of(&got, 0, 2), "[kernel]");
	for (uint32_t i = 0; i < got.nlocations; i++)
		assert_true(got.locations[i].address < 1ull << 47);
	export_batch_fini(&got);
	bufw_fini(&w);
}

/* Ids grow for as long as the agent runs; memory must not grow with them. */
static void a_subject_stands_once_however_high_its_id(void **state UNUSED)
{
	struct file *a = new_file("/bin/a", false);
	struct export_batch got;
	struct bufw w = { 0 };

	subject_of(1)->id = 1ull << 40;
	subject_of(2)->id = UINT64_MAX;
	for (uint64_t i = 0; i < 10; i++)
		add(1 + (uint32_t)(i % 3), a, &i, 1);
	close_and_ask();
	got = build(&w);
	assert_int_equal(got.nsubjects, 3);
	for (uint32_t i = 0; i < got.nsamples; i++)
		assert_int_equal(got.subjects[got.samples[i].subject].pid, got.samples[i].tid);
	export_batch_fini(&got);
	bufw_fini(&w);
}

static void labels_are_those_of_the_moment_it_is_built(void **state UNUSED)
{
	struct file *a = new_file("/bin/a", false);
	struct export_batch got;
	struct bufw w = { 0 };

	for (uint64_t i = 0; i < 9; i++)
		add(1 + (uint32_t)(i % 3), a, &i, 1);
	subject_of(3)->labelled = 1;
	close_and_ask();
	assert_true(window_named(window));
	assert_false(window_labelled(window));
	assert_int_equal(subject_set_labels(subject_of(1), 1, "name\0one", 9), 0);
	subject_of(1)->labelled = 1;
	assert_false(window_labelled(window));
	got = build(&w);
	assert_int_equal(window_nunlabelled(window), 1);	/* once, with three stacks */
	assert_int_equal(got.subjects[0].npairs, 1);
	assert_int_equal(got.subjects[0].id, subject_of(1)->id);
	assert_string_equal(text_of(&got, got.pairs[got.subjects[0].first_pair].name), "name");
	assert_string_equal(text_of(&got, got.pairs[got.subjects[0].first_pair].value), "one");
	assert_int_equal(got.subjects[1].npairs, 0);
	assert_int_equal(got.subjects[2].npairs, 0);	/* it was given none */
	subject_of(2)->labelled = 1;
	assert_true(window_labelled(window));
	assert_true(window_bytes(window) > sizeof(uint32_t));
	export_batch_fini(&got);
	bufw_fini(&w);
}

/* Files whose functions have 64 inlined callers, each with a name of 4 KiB of its own. */
static void names_without_end_do_not_cost_the_batch(void **state UNUSED)
{
	enum { N = 100 };
	static struct msg_function functions[MSG_LINES_MAX];
	static struct msg_line lines[MSG_LINES_MAX];
	static char texts[MSG_LINES_MAX][MSG_NAME_MAX];
	struct msg_named named = { .segment = UINT32_MAX, .nlines = MSG_LINES_MAX };
	uint32_t nfull = 0;
	struct export_batch got;
	struct bufw w = { 0 };
	char path[32], empty[1] = "";

	for (uint32_t i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "/bin/%u", i);
		add(i + 1, new_file(path, true), (uint64_t[]){ 0x10 }, 1);
	}
	close_and_ask();
	assert_int_equal(nrequests, N);
	for (uint32_t q = 0; q < N; q++) {
		struct msg_names names = { .nfunctions = MSG_LINES_MAX, .functions = functions, .lines = lines,
					   .nlines = MSG_LINES_MAX, .named = &named, .nnamed = 1 };

		for (uint32_t i = 0; i < MSG_LINES_MAX; i++) {
			memset(texts[i], 'x', sizeof(texts[i]) - 1);
			snprintf(texts[i], 20, "%08u_%08u", q, i);
			texts[i][17] = 'x';
			functions[i] = (struct msg_function){ .name = texts[i], .system_name = texts[i],
							      .file = empty };
			lines[i] = (struct msg_line){ .function = i };
		}
		assert_int_equal(window_names(window, &requests[q], &names), 1);
	}
	got = build(&w);
	assert_int_equal(got.nsamples, N);
	for (uint32_t i = 0; i < N; i++)
		nfull += strcmp(name_of(&got, i, 0), "[too many names]") == 0;
	assert_in_range(nfull, 30, 60);	/* 15 MiB of 25 fit */
	export_batch_fini(&got);
	bufw_fini(&w);
}

static void many_files_are_named_in_little_time(void **state UNUSED)
{
	enum { N = 500 };
	struct msg_segment segment = { .vaddr = 0x400000, .mem_bytes = 0x100000 };
	uint64_t start = clock_cpu_ns();
	struct export_batch got;
	struct bufw w = { 0 };
	char path[32];

	for (uint32_t i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "/bin/%u", i);
		add(i + 1, new_file(path, true), (uint64_t[]){ 0x10, 0x20, 0x30 }, 3);
	}
	close_and_ask();
	assert_int_equal(nrequests, N);
	for (uint32_t q = 0; q < nrequests; q++) {
		struct msg_names names = names_of(&requests[q], segment);

		assert_int_equal(window_names(window, &requests[q], &names), 1);
	}
	got = build(&w);
	assert_int_equal(got.nlocations, 3 * N);
	assert_true(clock_cpu_ns() - start < NSEC_PER_SEC);
	export_batch_fini(&got);
	bufw_fini(&w);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_window_is_a_batch_too),
		TEST(addresses_are_asked_by_file_in_order_and_once),
		TEST(answers_may_come_in_any_order_and_only_once),
		TEST(segments_that_make_no_sense_are_left_out),
		TEST(an_answer_of_another_length_names_nothing),
		TEST(a_file_without_answer_is_one_mapping),
		TEST(kernel_answers_that_do_not_fit_name_nothing),
		TEST(a_subject_stands_once_however_high_its_id),
		TEST(labels_are_those_of_the_moment_it_is_built),
		TEST(names_without_end_do_not_cost_the_batch),
		TEST(many_files_are_named_in_little_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
