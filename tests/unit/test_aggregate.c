#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/aggregate.h"
#include "base/clock.h"
#include "base/ipc.h"
#include "exporter/msg.h"
#include "tests/unit/alloc_fail.h"

static struct files *files;
static struct procs *procs;
static struct file *file;
static struct subject *subject;
static struct aggregate *agg;

static int set_up(void **state UNUSED)
{
	struct file_key key = { .inode = 1 };
	struct proc *p;

	if (files_new(&files) || procs_new(&procs) || files_get(files, &key, "/bin/a", &file) ||
	    procs_get(procs, 1, 1, &p) || aggregate_new(&agg, 1u << 20))
		return -1;
	subject = p->subject;
	return 0;
}

static int tear_down(void **state UNUSED)
{
	agg = aggregate_free(agg);
	assert_int_equal(file->refs, 0);
	assert_int_equal(subject->refs, 1);
	procs = procs_free(procs);
	files = files_free(files);
	return 0;
}

/* A sample with `n` user frames from `offset` on. */
static struct aggregate_sample sample(struct unwind_frame *frames, uint32_t n, uint64_t offset)
{
	for (uint32_t i = 0; i < n; i++)
		frames[i] = (struct unwind_frame){ .file = file, .offset = offset + i };
	return (struct aggregate_sample){ .subject = subject, .tid = 7, .comm = "comm\0\0\0\0\0\0\0\0\0\0\0",
					  .period_ns = 100, .user = frames, .nuser = n,
					  .outcome = UNWIND_COMPLETE };
}

static void the_same_stack_is_counted_not_stored_again(void **state UNUSED)
{
	struct unwind_frame f[3];
	struct aggregate_sample s = sample(f, 3, 10);

	for (int i = 0; i < 5; i++) {
		s.period_ns = 100 + (uint64_t)i;
		assert_int_equal(aggregate_add(agg, &s), 0);
	}
	assert_int_equal(aggregate_nstacks(agg), 1);
	assert_int_equal(aggregate_nframes(agg), 3);
	assert_int_equal(aggregate_stack(agg, 0)->count, 5);
	assert_int_equal(aggregate_stack(agg, 0)->nanoseconds, 510);
	assert_int_equal(aggregate_samples(agg), 5);
}

static void what_differs_in_anything_is_another_stack(void **state UNUSED)
{
	struct unwind_frame f[3], g[3];
	struct aggregate_sample s = sample(f, 3, 10), t;
	struct proc *other;

	assert_int_equal(aggregate_add(agg, &s), 0);
	t = s;
	t.tid = 8;
	assert_int_equal(aggregate_add(agg, &t), 0);
	t = s;
	t.comm = "commx\0\0\0\0\0\0\0\0\0\0";
	assert_int_equal(aggregate_add(agg, &t), 0);
	t = s;
	t.nuser = 2;
	assert_int_equal(aggregate_add(agg, &t), 0);
	t = sample(g, 3, 11);
	assert_int_equal(aggregate_add(agg, &t), 0);
	t = s;
	t.outcome = UNWIND_TRUNCATED;
	assert_int_equal(aggregate_add(agg, &t), 0);
	assert_int_equal(procs_get(procs, 2, 1, &other), 0);
	t = s;
	t.subject = other->subject;
	assert_int_equal(aggregate_add(agg, &t), 0);
	assert_int_equal(aggregate_nstacks(agg), 7);
	assert_int_equal(aggregate_samples(agg), 7);
}

static void a_stack_reads_kernel_then_user_then_why_it_ended(void **state UNUSED)
{
	static const uint64_t kernel[] = { 0xffffffff81000010, 0xffffffff81000020 };
	struct unwind_frame f[2];
	struct aggregate_sample s = sample(f, 2, 10);
	const uint32_t *index;
	const struct frame *got;

	f[1] = (struct unwind_frame){ .file = NULL, .offset = 0x7f0000001234, .map_kind = MAP_ANON };
	s.kernel = kernel;
	s.nkernel = 2;
	s.outcome = UNWIND_NO_CFI;
	assert_int_equal(aggregate_add(agg, &s), 0);
	assert_int_equal(aggregate_stack(agg, 0)->nframes, 5);
	index = aggregate_frame_index(agg, aggregate_stack(agg, 0));
	got = aggregate_frame(agg, index[0]);
	assert_int_equal(got->kind, FRAME_KERNEL);
	assert_int_equal(got->value, kernel[0]);
	/* A caller stands for its call, which may be the last instruction of its function. */
	assert_int_equal(aggregate_frame(agg, index[1])->value, kernel[1] - 1);
	assert_int_equal(aggregate_frame(agg, index[2])->kind, FRAME_FILE);
	assert_ptr_equal(aggregate_frame(agg, index[2])->file, file);
	/* No run-time address of code without a file. */
	assert_int_equal(aggregate_frame(agg, index[3])->kind, FRAME_JIT);
	assert_int_equal(aggregate_frame(agg, index[3])->value, 0x234);
	assert_int_equal(aggregate_frame(agg, index[4])->kind, FRAME_OUTCOME);
	assert_int_equal(aggregate_frame(agg, index[4])->value, UNWIND_NO_CFI);
}

static void a_sample_without_frames_still_has_one(void **state UNUSED)
{
	struct aggregate_sample s = sample(NULL, 0, 0);

	for (int o = 0; o < UNWIND_OUTCOME_COUNT; o++) {
		s.outcome = (enum unwind_outcome)o;
		assert_int_equal(aggregate_add(agg, &s), 0);
	}
	assert_int_equal(aggregate_samples(agg), UNWIND_OUTCOME_COUNT);
	for (size_t i = 0; i < aggregate_nstacks(agg); i++)
		assert_true(aggregate_stack(agg, i)->nframes >= 1);
}

static void a_comm_may_lack_its_end(void **state UNUSED)
{
	char comm[ABI_COMM_LEN];
	struct unwind_frame f[1];
	struct aggregate_sample s = sample(f, 1, 1);

	memset(comm, 'x', sizeof(comm));
	s.comm = comm;
	assert_int_equal(aggregate_add(agg, &s), 0);
	assert_memory_equal(aggregate_stack(agg, 0)->comm, comm, sizeof(comm));
	/* What stands behind the end is none of it. */
	memcpy(comm, "ab\0rest", 8);
	assert_int_equal(aggregate_add(agg, &s), 0);
	assert_int_equal(aggregate_stack(agg, 1)->comm[3], 0);
}

/* New stacks and frames for ever, as a hostile program can make them. */
static void the_limit_holds_whatever_comes(void **state UNUSED)
{
	struct unwind_frame f[200];
	uint64_t refused = 0, added = 0;
	struct aggregate_sample s;
	size_t nframes;

	for (uint64_t i = 0; i < 20000; i++) {
		int err;

		s = sample(f, 200, i * 200);
		err = aggregate_add(agg, &s);
		assert_true(err == 0 || err == -ENOSPC);
		refused += err != 0;
		added += err == 0;
		assert_true(aggregate_bytes(agg) <= 1u << 20);
	}
	assert_true(refused > 0 && added > 0);
	assert_int_equal(aggregate_samples(agg), added);
	nframes = aggregate_nframes(agg);
	/* What is known is counted on. */
	s = sample(f, 200, 0);
	assert_int_equal(aggregate_add(agg, &s), 0);
	assert_int_equal(aggregate_nframes(agg), nframes);
	assert_int_equal(aggregate_samples(agg), added + 1);
}

static void a_full_window_still_fits_into_a_message(void **state UNUSED)
{
	struct unwind_frame f[100];
	struct aggregate_sample s = sample(f, 100, 0);
	size_t nindex = 0;
	int err = 0;

	aggregate_free(agg);
	assert_int_equal(aggregate_new(&agg, 1u << 30), 0);
	for (uint32_t tid = 1; !err; tid++) {
		s.tid = tid;
		err = aggregate_add(agg, &s);
	}
	assert_int_equal(err, -ENOSPC);
	for (size_t i = 0; i < aggregate_nstacks(agg); i++)
		nindex += aggregate_stack(agg, i)->nframes;
	assert_true(aggregate_nstacks(agg) > 50000);
	assert_true(aggregate_nstacks(agg) <= EXPORT_TABLE_MAX);
	assert_true(nindex <= EXPORT_TOTAL_MAX);
	assert_true(aggregate_nstacks(agg) * AGGREGATE_STACK_WIRE + nindex * 4 <= IPC_PAYLOAD_MAX / 2);
}

static void a_hundred_thousand_stacks_cost_time_in_proportion(void **state UNUSED)
{
	struct unwind_frame f[40];
	struct aggregate_sample s = sample(f, 40, 0);
	uint64_t times[2];

	aggregate_free(agg);
	assert_int_equal(aggregate_new(&agg, 256u << 20), 0);
	for (uint32_t round = 0; round < 2; round++) {
		uint64_t start = clock_cpu_ns();

		for (uint32_t i = 0; i < 50000; i++) {
			f[0].offset = 100000 + round * 50000 + i;
			assert_int_equal(aggregate_add(agg, &s), 0);
		}
		times[round] = clock_cpu_ns() - start;
	}
	assert_int_equal(aggregate_nstacks(agg), 100000);
	print_message("50 000 new stacks: %.0f and %.0f ns each\n", (double)times[0] / 50000,
		      (double)times[1] / 50000);
	assert_true(times[1] < 10 * times[0]);
}

static void any_failed_allocation_loses_only_its_sample(void **state UNUSED)
{
	struct unwind_frame f[300];
	struct aggregate_sample s = sample(f, 300, 0);
	int err = -1;

	for (long nth = 1; err; nth++) {
		uint64_t before;

		aggregate_free(agg);
		agg = NULL;
		alloc_fail_nth(nth);
		err = aggregate_new(&agg, 1u << 20);
		if (!err)
			err = aggregate_add(agg, &s);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		if (!agg)
			continue;
		before = aggregate_samples(agg);
		assert_int_equal(aggregate_add(agg, &s), 0);
		assert_int_equal(aggregate_samples(agg), before + 1);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_same_stack_is_counted_not_stored_again),
		TEST(what_differs_in_anything_is_another_stack),
		TEST(a_stack_reads_kernel_then_user_then_why_it_ended),
		TEST(a_sample_without_frames_still_has_one),
		TEST(a_comm_may_lack_its_end),
		TEST(the_limit_holds_whatever_comes),
		TEST(a_full_window_still_fits_into_a_message),
		TEST(a_hundred_thousand_stacks_cost_time_in_proportion),
		TEST(any_failed_allocation_loses_only_its_sample),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
