#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/pipeline_fixture.h"

#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (100 * SEC)
#define A 0x10000000ull

static struct world world;

static int set_up(void **state UNUSED)
{
	world_init(&world, NULL);
	world_start(&world, T0, NULL, 0, false);
	return 0;
}

static int tear_down(void **state UNUSED)
{
	world_fini(&world);
	return 0;
}

static void run_code(uint64_t time_ns, uint32_t pid)
{
	world_exec(&world, time_ns, pid);
	world_map(&world, time_ns + 1, pid, A, "//anon");
}

static void sample_at(uint64_t time_ns, uint32_t pid, uint64_t offset)
{
	world_sample(&world, time_ns, pid, &(uint64_t){ A + offset }, 1);
	world_turn(&world, time_ns + 10 * MS);
}

/* Each map is a file of its own unless `inode` is the same. */
static void answer_map(uint64_t time_ns, bool ok, uint64_t inode)
{
	struct event e = { .type = EVENT_OPENED, .time_ns = time_ns,
			   .opened = { .file_id = world.perf_map.file_id, .ok = ok, .fd = -1,
				       .identity = { .dev = 1, .inode = inode, .size = 10 } } };

	world_event(&world, &e);
}

static const struct msg_request *asked(void)
{
	struct world_request *q = world.requests;

	while (q && !q->is_names)
		q = q->next;
	return q ? &q->request : NULL;
}

/* The symbolizer calls all that is asked `name`, on line 7. */
static void answer_names(uint64_t time_ns, char *name)
{
	struct msg_request r = *asked();
	struct msg_named named[8];
	struct msg_line lines[8];
	struct msg_function f = { .name = name, .system_name = name, .file = (char[]){ "x.js" } };
	struct msg_names n = { .id = r.id, .file_id = r.file_id, .nnamed = r.naddrs, .nlines = r.naddrs,
			       .nfunctions = 1, .named = named, .lines = lines, .functions = &f };
	struct event e = { .type = EVENT_NAMES, .time_ns = time_ns };
	struct bufw w = { 0 };

	for (uint32_t i = 0; i < r.naddrs; i++) {
		named[i] = (struct msg_named){ .vaddr = r.addrs[i].offset, .segment = UINT32_MAX, .first_line = i,
					       .nlines = 1 };
		lines[i] = (struct msg_line){ .function = 0, .line = 7 };
	}
	msg_names_encode(&w, &n);
	assert_int_equal(bufw_end(&w), 0);
	e.answer = (struct event_answer){ .request = &r, .data = w.data, .len = w.len };
	world_event(&world, &e);
	bufw_fini(&w);
}

static void expect_profile(const char *want)
{
	char *got = world_text(&world, 0);

	assert_int_equal(world.nbatches, 1);
	assert_string_equal(got, want);
	free(got);
}

static void code_without_a_file_is_named_by_its_map_and_leaves_no_address(void **state UNUSED)
{
	struct export_batch b;

	run_code(T0, 1);
	sample_at(T0 + 10 * MS, 1, 0x1234);
	sample_at(T0 + 30 * MS, 1, 0x5234);
	assert_int_equal(world.nperf_maps, 1);
	assert_int_equal(world.perf_map.npids, 1);
	assert_int_equal(world.perf_map.pids[0], 1);
	answer_map(T0 + 50 * MS, true, 1);
	world_window(&world, T0 + SEC, true);
	assert_non_null(asked());
	assert_int_equal(asked()->flags, MSG_REQUEST_JIT);
	assert_int_equal(asked()->file_id, world.perf_map.file_id);
	assert_int_equal(asked()->naddrs, 2);
	assert_int_equal(asked()->addrs[0].offset, A + 0x1234);
	assert_int_equal(asked()->addrs[1].offset, A + 0x5234);
	answer_names(T0 + SEC, (char[]){ "f" });
	/* One function at one place in its page, in two pages: one location, beside the root's. */
	b = world_batch(&world, 0);
	assert_int_equal(b.nlocations, 2);
	for (uint32_t i = 0; i < b.nlocations; i++)
		assert_true(b.locations[i].address < 0x1000);
	export_batch_fini(&b);
	expect_profile("1  1: f [unwind: no CFI]\n"
		       "1  1: f [unwind: no CFI]\n");
}

static void without_a_map_it_is_its_place_in_its_page(void **state UNUSED)
{
	run_code(T0, 1);
	sample_at(T0 + 10 * MS, 1, 0x1234);
	answer_map(T0 + 20 * MS, false, 0);
	world_window(&world, T0 + SEC, true);
	assert_null(asked());
	expect_profile("1  1: [jit]+0x234 [unwind: no CFI]\n");
}

static void a_map_that_is_not_there_yet_is_asked_for_again_each_second(void **state UNUSED)
{
	run_code(T0, 1);
	sample_at(T0 + 10 * MS, 1, 0x1234);
	answer_map(T0 + 20 * MS, false, 0);
	sample_at(T0 + 500 * MS, 1, 0x1234);
	assert_int_equal(world.nperf_maps, 1);
	/* Nothing is asked for twice while the answer is on its way. */
	sample_at(T0 + 1500 * MS, 1, 0x1234);
	sample_at(T0 + 5 * SEC, 1, 0x1234);
	assert_int_equal(world.nperf_maps, 2);
	answer_map(T0 + 6 * SEC, true, 1);
	world_window(&world, T0 + 7 * SEC, true);
	/* It names what was sampled before it was there. */
	assert_int_equal(asked()->naddrs, 1);
	answer_names(T0 + 7 * SEC, (char[]){ "f" });
	expect_profile("1  4: f [unwind: no CFI]\n");
}

static void a_fork_without_exec_may_use_the_map_of_whose_code_it_runs(void **state UNUSED)
{
	run_code(T0, 1);
	world_fork(&world, T0 + 10 * MS, 2, 1);
	world_fork(&world, T0 + 20 * MS, 3, 2);
	sample_at(T0 + 30 * MS, 3, 0x1234);
	assert_int_equal(world.perf_map.npids, 2);
	assert_int_equal(world.perf_map.pids[0], 3);
	assert_int_equal(world.perf_map.pids[1], 1);
}

static void after_an_exec_only_its_own_map_counts(void **state UNUSED)
{
	run_code(T0, 1);
	sample_at(T0 + 5 * MS, 1, 0x1234);
	world_fork(&world, T0 + 20 * MS, 2, 1);
	run_code(T0 + 30 * MS, 2);
	sample_at(T0 + 40 * MS, 2, 0x1234);
	assert_int_equal(world.nperf_maps, 2);
	assert_int_equal(world.perf_map.npids, 1);
	assert_int_equal(world.perf_map.pids[0], 2);
}

static void what_has_ended_is_named_at_the_end_of_its_window(void **state UNUSED)
{
	run_code(T0, 1);
	sample_at(T0 + 10 * MS, 1, 0x1234);
	answer_map(T0 + 20 * MS, true, 1);
	world_exit(&world, T0 + 30 * MS, 1);
	world_turn(&world, T0 + 20 * SEC);
	world_window(&world, T0 + 30 * SEC, true);
	assert_int_equal(asked()->naddrs, 1);
	answer_names(T0 + 30 * SEC, (char[]){ "f" });
	expect_profile("1  1: f [unwind: no CFI]\n");
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(code_without_a_file_is_named_by_its_map_and_leaves_no_address),
		T(without_a_map_it_is_its_place_in_its_page),
		T(a_map_that_is_not_there_yet_is_asked_for_again_each_second),
		T(a_fork_without_exec_may_use_the_map_of_whose_code_it_runs),
		T(after_an_exec_only_its_own_map_counts),
		T(what_has_ended_is_named_at_the_end_of_its_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
