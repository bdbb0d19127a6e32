/*
 * The unwinder on this very process, with rows that the symbolizer's own code makes from the files
 * that are mapped: registers and stack are taken in the middle of libc's qsort(), in threads, deep
 * recursion, signal handlers on their own stack and coroutines. The oracle is libgcc's unwinder
 * (backtrace(3)), address by address.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#include "agent/files.h"
#include "agent/unwind.h"
#include "symbolizer/answer.h"

enum { BACKTRACE_MAX = 1024, WINDOW_MAX = 64 * 1024 };

struct shot {
	struct unwind_input in;
	uint8_t stack[2][WINDOW_MAX];
	int nframes;
	void *frames[BACKTRACE_MAX];
};

static struct shot shot;
static struct unwind_result result;
static struct {
	uint64_t low, high;
} alternate;

/* The top of the mapping that holds the address: as far as may be copied. */
static uint64_t mapping_end(uint64_t address)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4096];
	uint64_t end = 0;

	assert_non_null(f);
	while (!end && fgets(line, sizeof(line), f)) {
		uint64_t from, to;

		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && address >= from && address < to)
			end = to;
	}
	(void)fclose(f);
	return end;
}

static void add_window(uint64_t from, uint64_t end)
{
	uint32_t i = shot.in.nwindows++;
	uint64_t len = MIN(end - from, (uint64_t)WINDOW_MAX);

	memcpy(shot.stack[i], (const void *)from, len);
	shot.in.windows[i] = (struct unwind_window){ from, shot.stack[i], (uint32_t)len, 0 };
}

/* Takes this thread as it is in the function that calls getcontext(), which is this one. */
static __attribute__((noinline)) void take_shot(uint64_t interrupted_sp)
{
	static const int dwarf_order[] = {
		REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
		REG_R9,	 REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
	};
	ucontext_t uc;
	volatile uint64_t end,
		interrupted_end = 0; /* getcontext() returns like setjmp(), says gcc */
	uint64_t sp;

	memset(&shot.in, 0, sizeof(shot.in));
	shot.nframes = backtrace(shot.frames, BACKTRACE_MAX);
	end = mapping_end((uint64_t)__builtin_frame_address(0));
	if (interrupted_sp)
		interrupted_end = mapping_end(interrupted_sp);
	if (getcontext(&uc))
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(dwarf_order); i++)
		shot.in.regs[i] = (uint64_t)uc.uc_mcontext.gregs[dwarf_order[i]];
	shot.in.nregs = ABI_X86_NREGS;
	sp = shot.in.regs[ABI_X86_RSP];
	add_window(sp - ABI_RED_ZONE, end);
	if (interrupted_sp)
		add_window(interrupted_sp - ABI_RED_ZONE, interrupted_end);
	__asm__ volatile("" ::: "memory"); /* no tail call: our frame must stay */
}

struct host {
	struct files *files;
	struct maps *maps;
	struct handles handles;
};

static void add_mapping(struct host *h, const char *line)
{
	struct file_key key = { 0 };
	struct file *file;
	struct map map = { .kind = MAP_ANON };
	char perms[8], path[4096] = "";
	int fd;

	if (sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %4095[^\n]", &map.start, &map.end, perms,
		   &map.offset, &key.dev_major, &key.dev_minor, &key.inode, path) < 7 ||
	    perms[2] != 'x')
		return;
	if (path[0] == '/') {
		assert_int_equal(files_get(h->files, &key, path, &file), 0);
		map.file = file;
		map.kind = MAP_FILE;
		if (file->state == FILE_NEW) {
			fd = open(path, O_RDONLY | O_CLOEXEC);
			assert_true(fd >= 0);
			files_opened(h->files, file,
				     &(struct file_identity){ key.dev_minor, key.inode, 0, 0 }, fd);
			assert_int_equal(rows_new(&file->rows), 0);
		}
	}
	assert_int_equal(maps_add(&h->maps, &map), 0);
}

static void read_maps(struct host *h)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4096];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		add_mapping(h, line);
	(void)fclose(f);
}

/* Asks the symbolizer's code for what the unwinder wants, through the encoded message. */
static void ask(struct host *h, const struct unwind_want *wants, uint32_t n)
{
	static struct msg_request req;
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct file *file = wants[0].file;
	struct msg_rows rows;
	struct bufr in;

	req.id++;
	req.file_id = file->id;
	req.naddrs = 0;
	for (uint32_t i = 0; i < n; i++)
		if (wants[i].file == file && req.naddrs < MSG_ADDRS_MAX)
			req.addrs[req.naddrs++] =
				(struct msg_addr){ wants[i].offset,
						   wants[i].is_return ? MSG_ADDR_RETURN : 0 };
	answer_rows(&h->handles, &req, file->fd, &w);
	assert_int_equal(bufw_end(&w), 0);
	bufr_init(&in, w.data, w.len);
	assert_int_equal(msg_rows_decode(&in, &rows), 0);
	assert_int_equal(rows_put(file->rows, req.addrs, req.naddrs, &rows), 0);
	msg_rows_fini(&rows);
}

static uint64_t address_of(const struct host *h, const struct unwind_frame *f)
{
	for (size_t i = 0; f->file && i < maps_count(h->maps); i++) {
		const struct map *map = maps_at(h->maps, i);

		if (map->file == f->file && f->offset >= map->offset &&
		    f->offset - map->offset < map->end - map->start)
			return f->offset - map->offset + map->start;
	}
	return f->offset;
}

/* The frames must be those of backtrace(3): return addresses, or exact ones below a signal frame. */
static void expect_backtrace(const struct host *h)
{
	char text[256];

	/* Its first address is in take_shot(), as is our leaf, but not at the same instruction. */
	for (int i = 1; i < shot.nframes && i < (int)result.nframes; i++) {
		uint64_t ours = address_of(h, &result.frames[i]), theirs = (uint64_t)shot.frames[i];

		if (ours != theirs && ours != theirs - 1) {
			(void)snprintf(text, sizeof(text),
				       "frame %d of %d: %lx, backtrace(3) says %lx", i,
				       shot.nframes, ours, theirs);
			fail_msg("%s", text);
		}
	}
	if ((int)result.nframes != shot.nframes)
		fail_msg("%u frames (%s), backtrace(3) has %d", result.nframes,
			 unwind_outcome_text(result.outcome), shot.nframes);
	assert_string_equal(unwind_outcome_text(result.outcome), "complete");
}

static void unwind_shot(bool with_guesses)
{
	static struct unwind_want wants[256];
	struct host h = { 0 };
	int asks = 0;

	assert_int_equal(files_new(&h.files), 0);
	assert_int_equal(maps_new(&h.maps), 0);
	read_maps(&h);
	while (unwind_run(&shot.in, h.maps, false, &result) == UNWIND_WANT) {
		ask(&h, &result.want, 1);
		if (with_guesses && asks == 0) {
			uint32_t n = unwind_guess(&shot.in, h.maps, wants, ARRAY_SIZE(wants));

			if (n > 0)
				ask(&h, wants, n);
		}
		assert_true(++asks < 3000);
	}
	expect_backtrace(&h);
	handles_fini(&h.handles);
	maps_unref(h.maps);
	files_free(h.files);
}

static int compare_and_shoot(const void *a, const void *b)
{
	take_shot(0);
	return *(const int *)a - *(const int *)b;
}

static void qsort_s_callback_unwinds_as_libgcc_does(void **state UNUSED)
{
	int v[] = { 3, 1, 2 };

	qsort(v, ARRAY_SIZE(v), sizeof(*v), compare_and_shoot);
	assert_true(shot.nframes >= 5);
	unwind_shot(false);
}

static void bsearch_s_callback_unwinds_as_libgcc_does(void **state UNUSED)
{
	int v[] = { 1, 2, 3 }, key = 2;

	assert_ptr_equal(bsearch(&key, v, ARRAY_SIZE(v), sizeof(*v), compare_and_shoot), &v[1]);
	unwind_shot(true);
}

static __attribute__((noinline)) int recurse(int depth)
{
	volatile char pad[40];

	pad[depth % 40] = 1;
	if (depth == 0) {
		take_shot(0);
		return pad[0];
	}
	return recurse(depth - 1) + pad[depth % 40];
}

static void deep_recursion_unwinds_as_libgcc_does(void **state UNUSED)
{
	assert_true(recurse(400) > 0);
	assert_true(shot.nframes > 400);
	unwind_shot(true);
}

static void *shoot_in_thread(void *arg)
{
	compare_and_shoot(arg, arg);
	return NULL;
}

static void a_thread_unwinds_to_its_start(void **state UNUSED)
{
	pthread_t thread;
	int v = 0;

	assert_int_equal(pthread_create(&thread, NULL, shoot_in_thread, &v), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	unwind_shot(false);
}

static void shoot_in_handler(int signo UNUSED, siginfo_t *info UNUSED, void *context)
{
	uint64_t sp = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];

	take_shot(sp >= alternate.low && sp < alternate.high ? 0 : sp);
}

static int compare_and_raise(const void *a, const void *b)
{
	assert_int_equal(raise(SIGUSR1), 0);
	return *(const int *)a - *(const int *)b;
}

static void a_handler_on_its_own_stack_unwinds_into_what_it_interrupted(void **state UNUSED)
{
	static uint8_t stack[WINDOW_MAX];
	stack_t on = { .ss_sp = stack, .ss_size = sizeof(stack) }, off = { .ss_flags = SS_DISABLE };
	struct sigaction sa = { .sa_sigaction = shoot_in_handler,
				.sa_flags = SA_SIGINFO | SA_ONSTACK };
	int v[] = { 3, 1, 2 };

	alternate.low = (uint64_t)stack;
	alternate.high = alternate.low + sizeof(stack);
	assert_int_equal(sigaltstack(&on, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	qsort(v, ARRAY_SIZE(v), sizeof(*v), compare_and_raise);
	assert_int_equal(sigaltstack(&off, NULL), 0);
	assert_int_equal(shot.in.nwindows, 2);
	unwind_shot(false);
}

static ucontext_t main_context, coroutine_context;

static void coroutine(void)
{
	take_shot(0);
	(void)swapcontext(&coroutine_context, &main_context);
}

/* libgcc goes one address further, to __start_context, which nobody called. */
static void a_coroutine_s_root_is_its_first_function(void **state UNUSED)
{
	static uint8_t stack[WINDOW_MAX];

	assert_int_equal(getcontext(&coroutine_context), 0);
	coroutine_context.uc_stack.ss_sp = stack;
	coroutine_context.uc_stack.ss_size = sizeof(stack);
	coroutine_context.uc_link = &main_context;
	makecontext(&coroutine_context, coroutine, 0);
	assert_int_equal(swapcontext(&main_context, &coroutine_context), 0);
	shot.nframes = 2;
	unwind_shot(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qsort_s_callback_unwinds_as_libgcc_does),
		cmocka_unit_test(bsearch_s_callback_unwinds_as_libgcc_does),
		cmocka_unit_test(deep_recursion_unwinds_as_libgcc_does),
		cmocka_unit_test(a_thread_unwinds_to_its_start),
		cmocka_unit_test(a_handler_on_its_own_stack_unwinds_into_what_it_interrupted),
		cmocka_unit_test(a_coroutine_s_root_is_its_first_function),
	};
	void *warm[1];

	(void)backtrace(warm, 1); /* it loads libgcc the first time */
	return cmocka_run_group_tests_name("selfunwind", tests, NULL, NULL);
}
