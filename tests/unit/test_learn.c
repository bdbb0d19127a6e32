/* What the BPF program does with what userspace knows of a thread. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <asm/prctl.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/sampler_fixture.h"

#define KIB 1024ull
#define MAPPING (1024 * KIB)

static const struct sampler_conf conf = { .hz = 497, .stack_max_bytes = 64 * 1024, .cpus = "",
					  .ring_bytes = 8 << 20 };

/* ---- targets: a mapping, in the middle of which they have their stack ---- */

static struct facts *coroutine_facts;

static TARGET void coroutine(void)
{
	target_spin(coroutine_facts);
}

static TARGET uint64_t *map_numbered_pages(struct facts *f)
{
	uint64_t *p = mmap(NULL, MAPPING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (uint64_t i = 0; i < MAPPING / 8; i++)
		p[i] = (uint64_t)p + i * 8; /* each word is its address */
	f->low = (uint64_t)p;
	f->high = (uint64_t)p + MAPPING;
	coroutine_facts = f;
	return p;
}

static TARGET _Noreturn void run_on(uint64_t sp, uint64_t tp)
{
	syscall(SYS_arch_prctl, ARCH_SET_FS, tp);
	__asm__ volatile("mov %0, %%rsp\n call *%1\n" ::"r"(sp), "r"(coroutine) : "memory");
	__builtin_unreachable();
}

/* The thread pointer is far above: a wrong idea of the stack's top. */
static TARGET void run_coroutine(struct facts *f)
{
	uint64_t *p = map_numbered_pages(f);

	run_on((uint64_t)p + 512 * KIB, (uint64_t)p + MAPPING - 64);
}

/* g lies 24 bytes below the thread pointer; its stack is [256 KiB, 640 KiB). */
static TARGET void run_like_go_in_a_library(struct facts *f)
{
	uint64_t *p = map_numbered_pages(f), *g = p + 64;

	g[0] = (uint64_t)p + 256 * KIB;
	g[1] = (uint64_t)p + 640 * KIB;
	p[256 - 3] = (uint64_t)g;
	run_on((uint64_t)p + 632 * KIB, (uint64_t)(p + 256));
}

enum { G = 512, G0 = 1024, M = 1536 }; /* where in the mapping */

/* A goroutine on [256 KiB, 640 KiB) that C called, on [700 KiB, 900 KiB); g is in its register alone. */
static TARGET void run_like_go_that_c_called(struct facts *f)
{
	uint64_t *p = map_numbered_pages(f), *g = p + G / 8, *g0 = p + G0 / 8;

	g[0] = (uint64_t)p + 256 * KIB;
	g[1] = (uint64_t)p + 640 * KIB;
	g0[0] = (uint64_t)p + 700 * KIB;
	g0[1] = (uint64_t)p + 900 * KIB;
	g0[7] = (uint64_t)p + 800 * KIB;
	g[6] = g0[6] = (uint64_t)p + M;
	p[M / 8] = (uint64_t)g0;
	p[256 - 3] = (uint64_t)g; /* where userspace will look for it */
	syscall(SYS_arch_prctl, ARCH_SET_FS, p + 256);
	__asm__ volatile("mov %0, %%rsp\n mov %1, %%r14\n call *%2\n" ::"r"((uint64_t)p + 632 * KIB), "r"(g), "r"(coroutine)
			 : "memory", "r14");
	__builtin_unreachable();
}

/* ---- samples after a lesson ---- */

static struct sampler *sampler_for(struct harvest *h, const struct target *t)
{
	struct sampler *s = NULL;
	const char *why = "";
	int err = sampler_new(&s, &conf, harvest_add, h, &why);

	if (err)
		fail_msg("%s (%s)", why, strerror(-err));
	*h = (struct harvest){ .pid = t->pid };
	return s;
}

/* At least `nleast` samples of the target, all begun after the call. */
static void harvest_more(struct harvest *h, struct sampler *s, size_t nleast)
{
	const struct timespec nap = { .tv_nsec = 20 * 1000000 };
	uint64_t end = clock_mono_ns() + 30 * NSEC_PER_SEC;
	pid_t pid = h->pid;
	const char *why;

	harvest_reset(h);
	h->pid = pid;
	assert_int_equal(sampler_start(s, &why), 0);
	while (h->nrecords < nleast && clock_mono_ns() < end) {
		nanosleep(&nap, NULL);
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
	assert_true(h->nrecords >= nleast);
}

static uint64_t word_of(const struct abi_section *s, uint64_t address)
{
	uint64_t v;

	assert_true(section_covers(s, address, 8));
	memcpy(&v, (const uint8_t *)section_data(s) + (address - s->address), 8);
	return v;
}

/* The nth section of a record. */
static const struct abi_section *nth_section(const struct abi_record *r, uint32_t n)
{
	const struct abi_section *s = (const void *)(r + 1);

	assert_true(n < r->nsections);
	while (n--)
		s = (const void *)((const uint8_t *)(s + 1) + s->len);
	return s;
}

/* Those two pages, the first of which is not there, are all of the last part. */
static void check_pages(const struct abi_record *r, uint64_t gone, uint64_t there)
{
	const struct abi_section *first = nth_section(r, 0), *second = nth_section(r, 1);

	assert_int_equal(r->nsections, 2);
	assert_true(r->flags & ABI_F_LAST);
	assert_true(first->id == ABI_WIN_LEARNED && second->id == ABI_WIN_LEARNED);
	assert_true(first->address == gone && first->len == 4096 && first->holes == 1);
	assert_true(second->address == there && second->len == 4096 && second->holes == 0);
	assert_int_equal(word_of(second, there), there);
	assert_int_equal(word_of(second, there + 4088), there + 4088);
}

static void learned_pages_come_with_the_next_samples_until_they_are_forgotten(void **state UNUSED)
{
	struct target t = target_start(run_coroutine);
	uint64_t there = t.facts->low + 64 * KIB, beside_sp = (t.facts->low + 512 * KIB);
	const struct abi_learned l = { .npages = 3, .pages = { 4096, beside_sp, there } };
	const struct abi_learned nothing = {};
	size_t nlearned = 0, nfirst = 0;
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	assert_int_equal(sampler_learn(s, (uint32_t)t.pid + 1, &l), 0); /* is nobody of ours */
	harvest_more(&h, s, 20);
	for (size_t i = 0; i < h.nrecords; i++)
		assert_true(!h.records[i]->part && h.records[i]->flags & ABI_F_LAST);

	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &l), 0);
	harvest_more(&h, s, 40);
	for (size_t i = 0; i < h.nrecords; i++) {
		nfirst += !h.records[i]->part;
		nlearned += !!h.records[i]->part;
		assert_int_equal(!(h.records[i]->flags & ABI_F_LAST), !h.records[i]->part);
		/* The page in the leaf window does not come twice. */
		if (h.records[i]->part)
			check_pages(h.records[i], 4096, there);
	}
	assert_int_equal(nfirst, nlearned);

	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &nothing), 0);
	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &nothing), 0);
	harvest_more(&h, s, 20);
	for (size_t i = 0; i < h.nrecords; i++)
		assert_int_equal(h.records[i]->part, 0);
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

static void as_many_learned_pages_as_fit_come_in_two_parts(void **state UNUSED)
{
	struct target t = target_start(run_coroutine);
	struct abi_learned l = { .npages = ABI_LEARNED_PAGES };
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	for (uint64_t i = 0; i < ABI_LEARNED_PAGES; i++)
		l.pages[i] = t.facts->low + i * 8 * KIB;
	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &l), 0);
	harvest_more(&h, s, 40);
	for (size_t i = 0; i < h.nrecords; i++) {
		const uint64_t *pages = l.pages + (h.records[i]->part == 2) * ABI_RECORD_PAGES;

		assert_int_equal(!(h.records[i]->flags & ABI_F_LAST), h.records[i]->part < 2);
		if (!h.records[i]->part)
			continue;
		assert_int_equal(h.records[i]->nsections, ABI_RECORD_PAGES);
		for (uint32_t n = 0; n < ABI_RECORD_PAGES; n++)
			assert_int_equal(word_of(nth_section(h.records[i], n), pages[n]), pages[n]);
	}
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

static void of_a_deep_stack_more_is_copied_from_the_leaf_on(void **state UNUSED)
{
	struct target t = target_start(run_coroutine);
	uint64_t low = t.facts->low, top = low + MAPPING, end = 0;
	size_t nwhole = 0;
	struct abi_learned l = { .flags = ABI_LEARNED_DEEP, .nstacks = 1, .stacks = { { low + 256 * KIB, top } } };
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &l), 0);
	harvest_more(&h, s, 140);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		uint32_t id;

		if (r->flags & ABI_F_PART_LOST) /* the ring is half full */
			continue;
		nwhole++;
		id = !r->part ? ABI_WIN_LEAF : r->part <= ABI_MORE_WINDOWS ? ABI_WIN_MORE : ABI_WIN_ROOT;
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, (uint16_t)id);

		assert_non_null(w);
		assert_int_equal(w->len, ABI_WINDOW_MAX);
		assert_int_equal(!(r->flags & ABI_F_LAST), id != ABI_WIN_ROOT);
		assert_true(r->flags & ABI_F_CUT);
		if (id == ABI_WIN_MORE)
			assert_int_equal(w->address, end);
		else if (id == ABI_WIN_ROOT)
			assert_int_equal(w->address + w->len, top);
		end = w->address + w->len;
	}
	assert_true(nwhole >= ABI_MORE_WINDOWS + 2);
	/* Where it all fits, there is no gap. */
	l.stacks[0].high = low + 768 * KIB;
	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &l), 0);
	harvest_more(&h, s, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, r->part ? ABI_WIN_MORE : ABI_WIN_LEAF);

		if (r->flags & ABI_F_PART_LOST)
			continue;
		assert_non_null(w);
		assert_false(r->flags & ABI_F_CUT);
		if (r->flags & ABI_F_LAST)
			assert_int_equal(w->address + w->len, low + 768 * KIB);
	}
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void a_cut_stack_of_a_thread_that_is_not_known_wakes_the_agent(void **state UNUSED)
{
	const struct timespec nap = { .tv_nsec = 10 * 1000000 };
	const struct abi_learned nothing_to_say = { .nstacks = 1 };
	struct target t = target_start(run_coroutine);
	uint32_t nlooks = 0, nwoken = 0;
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);
	const char *why;

	assert_int_equal(sampler_start(s, &why), 0);
	while (!is_readable(sampler_fd(s))) /* far from full */
		nanosleep(&nap, NULL);
	assert_int_equal(sampler_dispatch(s), 0);
	assert_true(h.nrecords < 20);
	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &nothing_to_say), 0);
	assert_int_equal(sampler_dispatch(s), 0);
	for (size_t n = h.nrecords; h.nrecords < n + 40; nlooks++) {
		nanosleep(&nap, NULL);
		nwoken += is_readable(sampler_fd(s)); /* others have cut stacks too */
		assert_int_equal(sampler_dispatch(s), 0);
	}
	assert_true(nwoken < nlooks / 2 + 2);
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

/* Nobody empties the ring until it was too full for learned pages. Those of the target: whole and spared. */
static void fill_ring(struct sampler *s, struct harvest *h, uint32_t *ret_nwhole, uint32_t *ret_nspared)
{
	const struct timespec nap = { .tv_nsec = 10 * 1000000 };
	uint64_t counters[ABI_CNT_COUNT], enough;
	const char *why;

	assert_int_equal(sampler_counters(s, counters), 0);
	enough = counters[ABI_CNT_PART_LOST] + 4;
	assert_int_equal(sampler_start(s, &why), 0);
	while (counters[ABI_CNT_PART_LOST] < enough) {
		nanosleep(&nap, NULL);
		assert_int_equal(sampler_counters(s, counters), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
	for (size_t i = 0; i < h->nrecords; i++) {
		bool spared = h->records[i]->flags & ABI_F_PART_LOST && h->records[i]->flags & ABI_F_LAST;

		*ret_nspared += spared && !h->records[i]->part;
		*ret_nwhole += h->records[i]->part == 1 && h->records[i]->nsections;
	}
}

static void learned_pages_are_left_out_while_the_ring_is_half_full(void **state UNUSED)
{
	struct target t = target_start(run_coroutine);
	const struct abi_learned l = { .npages = 1, .pages = { t.facts->low } };
	uint32_t nwhole = 0, nspared = 0;
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &l), 0);
	/* Others may fill it before it is the target's turn. */
	for (int i = 0; i < 50 && (!nwhole || !nspared); i++) {
		harvest_reset(&h);
		h.pid = t.pid;
		fill_ring(s, &h, &nwhole, &nspared);
	}
	assert_true(nwhole && nspared);
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

/* Every record is a part 0 whose leaf window ends there. */
static void check_tops(const struct harvest *h, uint64_t top)
{
	for (size_t i = 0; i < h->nrecords; i++) {
		const struct abi_record *r = h->records[i];
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF);

		assert_non_null(w);
		assert_int_equal(w->address + w->len, top);
		assert_int_equal(r->flags & ~(uint32_t)(ABI_F_KERNEL_MODE | ABI_F_ON_GOROUTINE),
				 ABI_F_TOP_KNOWN | ABI_F_LAST);
	}
}

static void a_stack_whose_end_is_learned_is_copied_to_there(void **state UNUSED)
{
	struct target t = target_start(run_coroutine);
	uint64_t top = t.facts->low + 514 * KIB;
	const struct abi_learned l = {
		.nstacks = 3,
		.stacks = { { t.facts->low, t.facts->low + 64 * KIB },
			    { top - 32 * KIB, top },
			    { top, top + 128 * KIB } },
	};
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	/* What the thread pointer says is far off, and so only the leaf side was copied. */
	harvest_more(&h, s, 20);
	for (size_t i = 0; i < h.nrecords; i++)
		assert_true(h.records[i]->flags & ABI_F_CUT);
	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &l), 0);
	harvest_more(&h, s, 20);
	check_tops(&h, top);
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

static void g_is_looked_for_where_userspace_says(void **state UNUSED)
{
	static const int64_t off = -24; /* a fork has it too */
	struct target t = target_start(run_like_go_in_a_library);
	const struct abi_go fixed = { .place = (uint64_t)off };
	const struct abi_go slot = { .place = (uint64_t)(uintptr_t)&off, .flags = ABI_GO_SLOT };
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	harvest_more(&h, s, 20);
	for (size_t i = 0; i < h.nrecords; i++)
		assert_false(h.records[i]->flags & ABI_F_TOP_KNOWN);
	assert_int_equal(sampler_go(s, (uint32_t)t.pid, &fixed), 0);
	harvest_more(&h, s, 20);
	check_tops(&h, t.facts->low + 640 * KIB);
	assert_int_equal(sampler_go(s, (uint32_t)t.pid, &slot), 0);
	harvest_more(&h, s, 20);
	check_tops(&h, t.facts->low + 640 * KIB);
	assert_int_equal(sampler_go(s, (uint32_t)t.pid, NULL), 0);
	harvest_more(&h, s, 20);
	for (size_t i = 0; i < h.nrecords; i++)
		assert_false(h.records[i]->flags & ABI_F_TOP_KNOWN);
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

/* Each sample: the goroutine's stack, and unless `alone` where it ends and the stack of C. */
static void check_goroutine(const struct harvest *h, const struct target *t, bool alone)
{
	uint64_t p = t->facts->low;

	for (size_t i = 0; i < h->nrecords; i++) {
		const struct abi_record *r = h->records[i];
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, r->part ? ABI_WIN_ROOT : ABI_WIN_LEAF);

		assert_non_null(w);
		assert_true(r->flags & ABI_F_ON_GOROUTINE);
		assert_int_equal(!(r->flags & ABI_F_LAST), !alone && !r->part);
		if (r->part) {
			assert_int_equal(w->address, p + 800 * KIB - ABI_RED_ZONE);
			assert_int_equal(w->len, 32 * KIB);
			continue;
		}
		assert_int_equal(w->address + w->len, p + 640 * KIB);
		w = record_find(r, ABI_SEC_STACK, ABI_WIN_G);
		assert_int_equal(!w, alone);
		if (w) {
			assert_int_equal(w->address, p + G);
			assert_int_equal(word_of(w, p + G), p + 256 * KIB);
			assert_int_equal(word_of(w, p + G + 8), p + 640 * KIB);
		}
	}
}

static void a_goroutine_that_c_called_is_whole_before_anything_is_known(void **state UNUSED)
{
	struct target t = target_start(run_like_go_that_c_called);
	/* Stacks of goroutines come and go: one that ended there has said nothing of the next. */
	const struct abi_learned earlier = {
		.nstacks = 1,
		.stacks = { { t.facts->low + 600 * KIB, t.facts->low + 636 * KIB } },
	};
	const struct abi_go without_c = { .place = (uint64_t)-24ll };
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);

	harvest_more(&h, s, 20);
	check_goroutine(&h, &t, false);
	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &earlier), 0);
	harvest_more(&h, s, 20);
	check_goroutine(&h, &t, false);
	/* Where no C is, there is no other stack. */
	assert_int_equal(sampler_go(s, (uint32_t)t.pid, &without_c), 0);
	harvest_more(&h, s, 20);
	check_goroutine(&h, &t, true);
	harvest_reset(&h);
	sampler_free(s);
	target_stop(&t);
}

static void more_threads_than_fit_are_refused_until_one_is_forgotten(void **state UNUSED)
{
	const struct abi_learned l = { .npages = 1, .pages = { 4096 } }, nothing = {};
	struct target t = target_start(run_coroutine);
	struct harvest h;
	struct sampler *s = sampler_for(&h, &t);
	uint32_t n = 0;
	int err = 0;

	while (!err && n < 100000) {
		err = sampler_learn(s, 1000000 + n, &l);
		n += !err;
	}
	assert_int_equal(err, -E2BIG);
	assert_true(n >= 1024);
	assert_int_equal(sampler_learn(s, 1000000, &l), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(sampler_learn(s, 1000000 + i, &nothing), 0);
	assert_int_equal(sampler_learn(s, 2000000, &l), 0);
	sampler_free(s);
	target_stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(learned_pages_come_with_the_next_samples_until_they_are_forgotten),
		cmocka_unit_test(as_many_learned_pages_as_fit_come_in_two_parts),
		cmocka_unit_test(a_cut_stack_of_a_thread_that_is_not_known_wakes_the_agent),
		cmocka_unit_test(learned_pages_are_left_out_while_the_ring_is_half_full),
		cmocka_unit_test(a_stack_whose_end_is_learned_is_copied_to_there),
		cmocka_unit_test(of_a_deep_stack_more_is_copied_from_the_leaf_on),
		cmocka_unit_test(g_is_looked_for_where_userspace_says),
		cmocka_unit_test(a_goroutine_that_c_called_is_whole_before_anything_is_known),
		cmocka_unit_test(more_threads_than_fit_are_refused_until_one_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
