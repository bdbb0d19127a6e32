/* What samples teach of their threads: agent/learn.h. */
#include "agent/learn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/unwind_arch.h"

#define KIB 1024ull
#define SP 0x7f0000100000ull
#define FAR 0x7f0001000000ull
enum { PID = 40, TID = 41 };

struct told {
	uint32_t n, tid;
	struct abi_learned last;
};

static void on_tell(void *arg, uint32_t tid, const struct abi_learned *l)
{
	struct told *t = arg;

	t->n++;
	t->tid = tid;
	t->last = *l;
}

static struct unwind_input in;
static struct unwind_result out;
static uint64_t now_ns;

/* A sample with its leaf window of so many bytes; then windows and the result can be changed. */
static void begin(uint64_t sp, uint32_t bytes, enum unwind_outcome outcome)
{
	memset(&in, 0, sizeof(in));
	in.nregs = UNWIND_NREGS;
	in.regs[UNWIND_SP] = sp;
	in.nwindows = 1;
	in.windows[0] = (struct unwind_window){ .address = sp - ABI_RED_ZONE, .len = bytes };
	out.outcome = outcome;
	out.root_cfa = out.missing = 0;
	out.used = 1;
}

static void add_window(uint64_t address, bool used)
{
	out.used |= (uint64_t)used << in.nwindows;
	in.windows[in.nwindows++] = (struct unwind_window){ .address = address, .len = 4096 };
}

static bool show(struct learn *l, uint32_t tid)
{
	return learn_sample(l, &(struct learn_sample){ PID, tid, now_ns += 1000, &in, &out });
}

static bool miss(struct learn *l, uint32_t tid, uint64_t address)
{
	begin(SP, 4096, UNWIND_TRUNCATED);
	out.missing = address;
	return show(l, tid);
}

/* Complete, with all learned pages as windows, of which these (bits) were used. */
static void bring(struct learn *l, const struct told *t, uint32_t used)
{
	begin(SP, 4096, UNWIND_COMPLETE);
	for (uint32_t i = 0; i < t->last.npages; i++)
		add_window(t->last.pages[i], used >> i & 1);
	assert_false(show(l, t->tid));
}

/* Complete, on a stack that ends there. */
static void complete(struct learn *l, uint64_t sp, uint32_t bytes, uint64_t root)
{
	begin(sp, bytes, UNWIND_COMPLETE);
	out.root_cfa = root;
	assert_false(show(l, TID));
}

static void assert_stack(const struct told *t, uint64_t low, uint64_t high)
{
	for (uint32_t i = 0; i < t->last.nstacks; i++)
		if (t->last.stacks[i].low == low && t->last.stacks[i].high == high)
			return;
	fail_msg("no stack %#llx to %#llx", (unsigned long long)low, (unsigned long long)high);
}

#define LEARN(l, t)                     \
	CLEANUP(learn_freep) struct learn *l = NULL; \
	struct told t = { 0 };          \
	assert_int_equal(learn_new(&l, on_tell, &t), 0)

static void a_page_that_was_missed_is_told_once(void **state UNUSED)
{
	LEARN(l, t);

	assert_true(miss(l, TID, FAR + 4095));
	assert_int_equal(t.n, 1);
	assert_true(t.tid == TID && t.last.npages == 1 && t.last.pages[0] == FAR && !t.last.nstacks);
	assert_false(miss(l, TID, FAR));
	assert_int_equal(t.n, 1);
	assert_true(miss(l, TID, FAR + 4096));
	assert_int_equal(t.last.npages, 2);
	assert_true(miss(l, TID + 1, FAR));
	assert_true(t.tid == TID + 1 && t.last.npages == 1);
}

static void what_a_lost_part_held_is_not_learned(void **state UNUSED)
{
	LEARN(l, t);

	begin(SP, 4096, UNWIND_TRUNCATED);
	out.missing = FAR;
	in.flags = ABI_F_PART_LOST;
	assert_false(show(l, TID));
	assert_int_equal(t.n, 0);
}

static void a_page_that_comes_for_nothing_gives_way_in_time(void **state UNUSED)
{
	LEARN(l, t);

	miss(l, TID, FAR);
	miss(l, TID, FAR + 8 * KIB);
	for (int i = 0; i < 3 * LEARN_IDLE_MAX; i++)
		bring(l, &t, i % (LEARN_IDLE_MAX - 1) ? 2 : 3);
	assert_int_equal(t.n, 2);
	for (int i = 0; i < LEARN_IDLE_MAX; i++)
		bring(l, &t, t.last.npages == 2 ? 2 : 1);
	assert_true(t.n == 3 && t.last.npages == 1 && t.last.pages[0] == FAR + 8 * KIB);
}

static void a_page_that_another_window_holds_stays(void **state UNUSED)
{
	LEARN(l, t);

	miss(l, TID, FAR);
	for (int i = 0; i < 3 * LEARN_IDLE_MAX; i++) {
		begin(SP, 4096, UNWIND_COMPLETE);
		show(l, TID);
	}
	assert_true(t.n == 1 && t.last.npages == 1);
}

static void pages_that_are_needed_do_not_give_way_to_others(void **state UNUSED)
{
	LEARN(l, t);

	for (uint64_t i = 0; i < ABI_LEARNED_PAGES; i++)
		miss(l, TID, FAR + i * 64 * KIB);
	assert_int_equal(t.last.npages, ABI_LEARNED_PAGES);
	bring(l, &t, UINT32_MAX);
	miss(l, TID, FAR - 4096);
	assert_int_equal(t.n, ABI_LEARNED_PAGES);
	bring(l, &t, ~4u);
	assert_true(miss(l, TID, FAR - 4096));
	assert_int_equal(t.last.npages, ABI_LEARNED_PAGES);
	assert_true(t.last.pages[2] == FAR - 4096 && t.last.pages[3] == FAR + 192 * KIB);
}

static void a_stack_of_which_too_much_was_copied_is_learned(void **state UNUSED)
{
	LEARN(l, t);

	complete(l, SP, 32 * KIB, SP + 27 * KIB); /* 5 KiB too much are not worth it */
	assert_int_equal(t.n, 0);
	complete(l, SP, 32 * KIB, SP + 3 * KIB + 4);
	assert_int_equal(t.last.nstacks, 1);
	assert_stack(&t, SP - 16 * KIB, SP + 3 * KIB + 8);
	/* As it is copied now, there is nothing more to learn. */
	complete(l, SP, 3 * KIB + 8 + ABI_RED_ZONE, SP + 3 * KIB + 4);
	assert_int_equal(t.n, 1);
	/* Farther down in the same one. */
	complete(l, SP - 20 * KIB, 32 * KIB, SP + 3 * KIB + 4);
	assert_int_equal(t.last.nstacks, 1);
	assert_stack(&t, SP - 36 * KIB, SP + 3 * KIB + 8);
}

static void what_is_no_stack_of_its_own_is_not_learned(void **state UNUSED)
{
	const uint32_t flags[] = { ABI_F_ON_ALTSTACK, ABI_F_ON_G0, ABI_F_ON_GOROUTINE, ABI_F_PART_LOST };
	LEARN(l, t);

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		begin(SP, 32 * KIB, UNWIND_COMPLETE);
		out.root_cfa = SP + KIB;
		in.flags = flags[i];
		show(l, TID);
	}
	complete(l, SP, 32 * KIB, SP - 1);
	complete(l, SP, 32 * KIB, SP + LEARN_STACK_MAX + 8);
	complete(l, SP, 32 * KIB, UINT64_MAX - 2);
	complete(l, UINT64_MAX - 64, 32 * KIB, SP);
	complete(l, 0, 32 * KIB, SP);
	assert_int_equal(t.n, 0);
}

static void stacks_do_not_overlap(void **state UNUSED)
{
	LEARN(l, t);

	complete(l, SP, 32 * KIB, SP + 4 * KIB);
	/* One just below, which was taken for a part of it. */
	complete(l, SP - 12 * KIB, 32 * KIB, SP - 8 * KIB);
	assert_int_equal(t.last.nstacks, 2);
	assert_stack(&t, SP - 8 * KIB, SP + 4 * KIB);
	assert_stack(&t, SP - 28 * KIB, SP - 8 * KIB);
	/* One just above. */
	complete(l, SP + 8 * KIB, 32 * KIB, SP + 12 * KIB);
	assert_int_equal(t.last.nstacks, 3);
	assert_stack(&t, SP + 4 * KIB, SP + 12 * KIB);
	/* A larger one, in their place. */
	complete(l, SP - 14 * KIB, 60 * KIB, SP + 13 * KIB);
	assert_int_equal(t.last.nstacks, 1);
	assert_stack(&t, SP - 30 * KIB, SP + 13 * KIB);
}

static void when_all_stacks_are_taken_the_one_not_used_for_longest_gives_way(void **state UNUSED)
{
	LEARN(l, t);

	for (uint64_t i = 0; i <= ABI_LEARNED_STACKS; i++) {
		complete(l, SP + i * 64 * KIB, 32 * KIB, SP + i * 64 * KIB + KIB);
		complete(l, SP, KIB + ABI_RED_ZONE, SP + KIB);
	}
	assert_int_equal(t.last.nstacks, ABI_LEARNED_STACKS);
	assert_stack(&t, SP - 16 * KIB, SP + KIB);
	for (uint64_t i = 2; i <= ABI_LEARNED_STACKS; i++)
		assert_stack(&t, SP + (i * 64 - 16) * KIB, SP + (i * 64 + 1) * KIB);
}

static void a_stack_that_ends_elsewhere_is_forgotten(void **state UNUSED)
{
	LEARN(l, t);

	complete(l, SP, 32 * KIB, SP + 4 * KIB);
	miss(l, TID, SP - 64 * KIB); /* says nothing of the top */
	assert_int_equal(t.last.nstacks, 1);
	miss(l, TID, SP + 4 * KIB);
	assert_int_equal(t.last.nstacks, 0);
	complete(l, SP, 32 * KIB, SP + 4 * KIB);
	begin(SP, 4 * KIB, UNWIND_NO_CFI);
	show(l, TID);
	assert_int_equal(t.last.nstacks, 0);
}

static void a_cut_stack_is_known_even_where_there_is_nothing_to_say_of_it(void **state UNUSED)
{
	LEARN(l, t);

	for (int i = 0; i < 3; i++) {
		begin(SP, 4 * KIB, UNWIND_COMPLETE);
		in.flags = ABI_F_CUT;
		show(l, TID);
	}
	assert_true(t.n == 1 && t.last.npages == 0 && t.last.nstacks == 1);
	assert_true(t.last.stacks[0].low == 0 && t.last.stacks[0].high == 0);
	miss(l, TID, FAR);
	assert_true(t.last.npages == 1 && t.last.nstacks == 0);
	learn_forget(l, TID);
	assert_true(t.n == 3 && t.last.npages == 0 && t.last.nstacks == 0);
}

static void who_needs_many_pages_has_a_deep_stack(void **state UNUSED)
{
	LEARN(l, t);

	for (uint64_t i = 0; i < ABI_RECORD_PAGES; i++) {
		assert_true(miss(l, TID, FAR + i * 8192));
		assert_false(t.last.flags & ABI_LEARNED_DEEP);
	}
	assert_true(miss(l, TID, FAR + ABI_RECORD_PAGES * 8192ull));
	assert_true(t.last.flags & ABI_LEARNED_DEEP);
	bring(l, &t, 0);
	assert_true(t.last.flags & ABI_LEARNED_DEEP);
}

/* Cut where ordinary frames are: the next sample's copy ends at others. */
static void cut(struct learn *l, uint64_t missing)
{
	begin(SP, 60 * KIB, UNWIND_TRUNCATED);
	add_window(SP - ABI_RED_ZONE + 60 * KIB, true);
	add_window(FAR, false);
	in.flags = ABI_F_CUT;
	out.missing = missing;
	show(l, TID);
}

static void who_is_cut_amid_common_frames_has_a_deep_stack(void **state UNUSED)
{
	uint64_t end = SP - ABI_RED_ZONE + 64 * KIB;

	for (uint64_t off = 0; off < 16 * KIB; off += 8) {
		LEARN(l, t);
		cut(l, end + off);
		assert_true(t.n == 1 && t.last.npages == 1 && t.last.flags == ABI_LEARNED_DEEP);
	}
}

static void who_is_cut_inside_a_giant_frame_needs_its_pages(void **state UNUSED)
{
	uint64_t end = SP - ABI_RED_ZONE + 64 * KIB;

	for (uint64_t far = 16 * KIB; far < 4096 * KIB; far *= 2) {
		LEARN(l, t);
		cut(l, end + far);
		assert_true(t.n == 1 && t.last.npages == 1 && !t.last.flags);
	}
}

static void who_is_cut_again_and_again_gets_the_kernels_walk(void **state UNUSED)
{
	LEARN(l, t);

	for (uint64_t i = 0; i < 3; i++) {
		begin(SP, 4096, UNWIND_TRUNCATED);
		in.flags = ABI_F_CUT;
		out.missing = FAR + i * 8192;
		assert_true(show(l, TID));
		assert_int_equal(!!(t.last.flags & ABI_LEARNED_FOLLOW), i > 0);
	}
	learn_forget(l, TID);
	assert_int_equal(t.last.flags, 0);
}

static void what_has_ended_is_forgotten(void **state UNUSED)
{
	LEARN(l, t);

	learn_forget(l, TID);
	assert_int_equal(t.n, 0);
	miss(l, TID, FAR);
	learn_forget(l, TID);
	assert_true(t.n == 2 && t.tid == TID && t.last.npages == 0);
	learn_pages(l, PID, TID, &(uint64_t){ FAR }, 1);
	assert_int_equal(t.n, 2);
	/* Another process has its number now. */
	miss(l, TID, FAR);
	begin(SP, 4096, UNWIND_TRUNCATED);
	out.missing = FAR + 8192;
	assert_true(learn_sample(l, &(struct learn_sample){ PID + 1, TID, now_ns, &in, &out }));
	assert_true(t.last.npages == 1 && t.last.pages[0] == FAR + 8192);
	learn_pages(l, PID, TID, &(uint64_t){ FAR }, 1);
	assert_int_equal(t.last.npages, 1);
	learn_pages(l, PID + 1, TID, &(uint64_t){ FAR }, 1);
	assert_int_equal(t.last.npages, 2);
}

static void of_more_threads_than_fit_the_one_not_sampled_for_longest_gives_way(void **state UNUSED)
{
	size_t bytes;
	LEARN(l, t);

	for (uint32_t i = 0; i < ABI_LEARNED_THREADS; i++)
		assert_true(miss(l, 1000 + i, FAR));
	assert_false(miss(l, 1000, FAR));
	bytes = learn_bytes(l);
	assert_true(miss(l, 1, FAR));
	assert_int_equal(learn_bytes(l), bytes);
	assert_false(miss(l, 1000, FAR));
	assert_true(miss(l, 1001, FAR));
	learn_forget_idle(l, now_ns);
	assert_true(learn_bytes(l) < bytes / 100);
	assert_false(miss(l, 1001, FAR));
}

static void who_needs_other_pages_each_time_is_looked_at_more_and_more_rarely(void **state UNUSED)
{
	uint32_t nlooks = 0;
	LEARN(l, t);

	assert_false(learn_may_look(l, TID));
	for (uint64_t i = 0; i < 1000; i++) {
		assert_true(miss(l, TID, FAR + i * 64 * KIB) || i >= ABI_LEARNED_PAGES);
		nlooks += learn_may_look(l, TID);
	}
	assert_in_range(nlooks, 15, 30);
	for (int i = 0; i < 200; i++)
		bring(l, &t, UINT32_MAX);
	assert_true(learn_may_look(l, TID));
	miss(l, TID, FAR - 4096);
	miss(l, TID, FAR - 8192);
	assert_true(learn_may_look(l, TID));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_that_was_missed_is_told_once),
		cmocka_unit_test(what_a_lost_part_held_is_not_learned),
		cmocka_unit_test(a_page_that_comes_for_nothing_gives_way_in_time),
		cmocka_unit_test(a_page_that_another_window_holds_stays),
		cmocka_unit_test(pages_that_are_needed_do_not_give_way_to_others),
		cmocka_unit_test(a_stack_of_which_too_much_was_copied_is_learned),
		cmocka_unit_test(what_is_no_stack_of_its_own_is_not_learned),
		cmocka_unit_test(stacks_do_not_overlap),
		cmocka_unit_test(when_all_stacks_are_taken_the_one_not_used_for_longest_gives_way),
		cmocka_unit_test(a_stack_that_ends_elsewhere_is_forgotten),
		cmocka_unit_test(a_cut_stack_is_known_even_where_there_is_nothing_to_say_of_it),
		cmocka_unit_test(who_needs_many_pages_has_a_deep_stack),
		cmocka_unit_test(who_is_cut_amid_common_frames_has_a_deep_stack),
		cmocka_unit_test(who_is_cut_inside_a_giant_frame_needs_its_pages),
		cmocka_unit_test(who_is_cut_again_and_again_gets_the_kernels_walk),
		cmocka_unit_test(what_has_ended_is_forgotten),
		cmocka_unit_test(of_more_threads_than_fit_the_one_not_sampled_for_longest_gives_way),
		cmocka_unit_test(who_needs_other_pages_each_time_is_looked_at_more_and_more_rarely),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
