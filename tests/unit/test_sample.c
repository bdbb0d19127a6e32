/* What the BPF program writes of real targets. */
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <asm/prctl.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/sampler_fixture.h"

#define MS NSEC_PER_MSEC
#define KIB 1024ull

/* A ring for half a second of the largest samples, however late we drain it. */
static const struct sampler_conf conf = { .hz = 297, .stack_max_bytes = 64 * 1024, .cpus = "",
					  .ring_bytes = 16 << 20 };

/* At least `nleast` records of part 0 of the target; fails the test otherwise. */
static void harvest_of(struct harvest *h, const struct target *t, size_t nleast)
{
	*h = (struct harvest){ .pid = t->pid };
	for (int i = 0; i < 10 && h->nrecords < nleast; i++)
		harvest_run(h, &conf, 300 * MS);
	assert_true(h->nrecords >= nleast);
}

/* ---- registers ---- */

enum { MAGIC = 0x1100 };

static TARGET void spin_with_known_registers(struct facts *f)
{
	target_ready(f);
	__asm__ volatile("mov $0x1100, %%rax\n mov $0x1101, %%rdx\n mov $0x1102, %%rcx\n"
			 "mov $0x1103, %%rbx\n mov $0x1104, %%rsi\n mov $0x1105, %%rdi\n"
			 "mov $0x1106, %%rbp\n mov $0x1108, %%r8\n mov $0x1109, %%r9\n"
			 "mov $0x110a, %%r10\n mov $0x110b, %%r11\n mov $0x110c, %%r12\n"
			 "mov $0x110d, %%r13\n mov $0x110e, %%r14\n mov $0x110f, %%r15\n"
			 "1: jmp 1b\n" ::
				 : "memory");
}

static void registers_stand_in_dwarf_order(void **state UNUSED)
{
	struct target t = target_start(spin_with_known_registers);
	size_t nuser = 0, nkernel = 0;
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];

		if (record_reg(r, ABI_X86_RAX) != MAGIC)
			continue; /* not yet in the loop */
		for (uint32_t reg = 0; reg < ABI_X86_RIP; reg++)
			if (reg != ABI_X86_RSP)
				assert_int_equal(record_reg(r, reg), MAGIC + reg);
		if (r->flags & ABI_F_KERNEL_MODE)
			nkernel++;
		else
			nuser++;
	}
	assert_true(nuser > 40);
	harvest_reset(&h);
	target_stop(&t);
}

/* ---- stacks of main threads ---- */

/* `gone`: the pages between are as if never touched. */
static TARGET void spin_above(struct facts *f, uint64_t bytes, bool gone)
{
	volatile uint64_t *p = alloca(bytes);
	uint64_t first = ((uint64_t)p | 4095) + 1, last = (uint64_t)(p + bytes / 8 - 1) & ~4095ull;

	p[0] = 0x0107;
	p[bytes / 8 - 1] = 0x4169;
	for (uint64_t page = first; page < last; page += 4096)
		*(volatile uint64_t *)page = page;
	if (gone)
		madvise((void *)first, last - first, MADV_DONTNEED);
	f->low = (uint64_t)p;
	f->high = (uint64_t)p + bytes - 8;
	target_spin(f);
}

static void use_20_kib(struct facts *f)
{
	spin_above(f, 20 * KIB, false);
}

static void use_80_kib(struct facts *f)
{
	spin_above(f, 80 * KIB, false);
}

static void use_300_kib(struct facts *f)
{
	spin_above(f, 300 * KIB, false);
}

static void leave_48_kib_untouched(struct facts *f)
{
	spin_above(f, 48 * KIB, true);
}

static uint64_t word_at(const struct abi_section *s, uint64_t address)
{
	uint64_t v;

	assert_true(section_covers(s, address, 8));
	memcpy(&v, (const uint8_t *)section_data(s) + (address - s->address), 8);
	return v;
}

static void a_main_threads_window_goes_from_the_red_zone_to_argc(void **state UNUSED)
{
	struct target t = target_start(use_20_kib);
	uint64_t top = target_start_stack(&t);
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF);

		assert_non_null(w);
		assert_int_equal(w->address, (record_reg(r, ABI_X86_RSP) - ABI_RED_ZONE) & ~7ull);
		assert_int_equal(w->address + w->len, top + 64);
		assert_int_equal(w->holes, 0);
		assert_int_equal(word_at(w, top), 1); /* argc */
		assert_int_equal(word_at(w, t.facts->low), 0x0107);
		assert_int_equal(word_at(w, t.facts->high), 0x4169);
		assert_int_equal(r->flags & ~(uint32_t)ABI_F_KERNEL_MODE,
				 ABI_F_TOP_KNOWN | ABI_F_LAST);
		assert_int_equal(r->part, 0);
		assert_int_equal(r->pid, t.pid);
		assert_int_equal(r->tid, t.pid);
		assert_string_equal(r->comm, "test_sample");
	}
	harvest_reset(&h);
	target_stop(&t);
}

/* Checks pairs of parts; returns their number. */
static size_t check_two_parts(const struct harvest *h, uint64_t top, bool cut)
{
	size_t npairs = 0;

	for (size_t i = 0; i + 1 < h->nrecords; i++) {
		const struct abi_record *r = h->records[i], *next = h->records[i + 1];
		const struct abi_section *leaf, *root;

		if (r->part)
			continue;
		assert_false(r->flags & (ABI_F_LAST | ABI_F_PART_LOST));
		assert_true(r->flags & ABI_F_TOP_KNOWN);
		assert_int_equal(!!(r->flags & ABI_F_CUT), cut);
		assert_int_equal(next->part, 1);
		assert_true(next->seq == r->seq && next->cpu == r->cpu && next->time_ns == r->time_ns);
		assert_true(next->flags & ABI_F_LAST);
		leaf = record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF);
		root = record_find(next, ABI_SEC_STACK, ABI_WIN_ROOT);
		assert_true(leaf && root);
		assert_int_equal(root->address + root->len, top);
		if (cut)
			assert_true(leaf->address + leaf->len < root->address);
		else
			assert_int_equal(leaf->address + leaf->len, root->address);
		npairs++;
	}
	return npairs;
}

static void a_stack_of_80_kib_comes_whole_in_two_parts(void **state UNUSED)
{
	struct target t = target_start(use_80_kib);
	uint64_t top = target_start_stack(&t);
	struct harvest h;

	harvest_of(&h, &t, 50);
	assert_true(check_two_parts(&h, top + 64, false) >= 20);
	for (size_t i = 0; i < h.nrecords; i++)
		if (h.records[i]->part)
			assert_int_equal(word_at(record_find(h.records[i], ABI_SEC_STACK, ABI_WIN_ROOT), top), 1);
	harvest_reset(&h);
	target_stop(&t);
}

static void a_stack_of_300_kib_comes_with_both_ends_and_says_that_it_is_cut(void **state UNUSED)
{
	struct target t = target_start(use_300_kib);
	uint64_t top = target_start_stack(&t);
	struct harvest h;

	harvest_of(&h, &t, 50);
	assert_true(check_two_parts(&h, top + 64, true) >= 20);
	harvest_reset(&h);
	target_stop(&t);
}

static void pages_never_touched_are_holes_and_the_others_are_there(void **state UNUSED)
{
	struct target t = target_start(leave_48_kib_untouched);
	uint64_t top = target_start_stack(&t);
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_section *w =
			record_find(h.records[i], ABI_SEC_STACK, ABI_WIN_LEAF);
		int nholes = 0;

		assert_non_null(w);
		assert_int_equal(w->address + w->len, top + 64);
		assert_int_equal(word_at(w, top), 1);
		assert_int_equal(word_at(w, t.facts->low), 0x0107);
		assert_int_equal(word_at(w, t.facts->high), 0x4169);
		for (uint64_t page = (t.facts->low | 4095) + 1; page < (t.facts->high & ~4095ull);
		     page += 4096)
			nholes += section_has_hole_at(w, page);
		assert_in_range(nholes, 10, 11);
		assert_false(section_has_hole_at(w, t.facts->low));
		assert_false(section_has_hole_at(w, t.facts->high));
		/* The kernel may have taken back pages elsewhere. */
		assert_true(__builtin_popcountll(w->holes) >= nholes);
	}
	harvest_reset(&h);
	target_stop(&t);
}

/* ---- other stacks ---- */

static uint64_t thread_pointer(void)
{
	uint64_t tp;

	__asm__("mov %%fs:0, %0" : "=r"(tp));
	return tp;
}

static void *thread_uses_8_kib(void *arg)
{
	struct facts *f = arg;

	f->tid = (int32_t)gettid();
	f->tp = thread_pointer();
	spin_above(f, 8 * KIB, false);
	return NULL;
}

static void *thread_uses_300_kib(void *arg)
{
	struct facts *f = arg;

	f->tid = (int32_t)gettid();
	f->tp = thread_pointer();
	spin_above(f, 300 * KIB, false);
	return NULL;
}

static void run_thread(struct facts *f, void *(*fn)(void *))
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, fn, f))
		pthread_join(thread, NULL);
}

static void start_small_thread(struct facts *f)
{
	run_thread(f, thread_uses_8_kib);
}

static void start_deep_thread(struct facts *f)
{
	run_thread(f, thread_uses_300_kib);
}

static void a_threads_window_ends_at_its_thread_pointer(void **state UNUSED)
{
	struct target t = target_start(start_small_thread);
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_section *w =
			record_find(h.records[i], ABI_SEC_STACK, ABI_WIN_LEAF);

		assert_int_equal(h.records[i]->tid, t.facts->tid);
		assert_non_null(w);
		assert_int_equal(w->address + w->len, t.facts->tp);
		assert_int_equal(word_at(w, t.facts->high), 0x4169);
		assert_true(h.records[i]->flags & ABI_F_TOP_KNOWN);
		assert_false(h.records[i]->flags & ABI_F_CUT);
	}
	harvest_reset(&h);
	target_stop(&t);
}

static void a_deep_thread_brings_32_kib_of_leaf_and_the_root_side(void **state UNUSED)
{
	struct target t = target_start(start_deep_thread);
	struct harvest h;

	harvest_of(&h, &t, 50);
	assert_true(check_two_parts(&h, t.facts->tp, true) >= 20);
	for (size_t i = 0; i < h.nrecords; i++)
		if (!h.records[i]->part)
			assert_int_equal(record_find(h.records[i], ABI_SEC_STACK, ABI_WIN_LEAF)->len,
					 32 * KIB);
	harvest_reset(&h);
	target_stop(&t);
}

/* On a stack in the middle of an anonymous mapping, where no hint is right. */
static struct facts *coroutine_facts;

static TARGET void coroutine(void)
{
	target_spin(coroutine_facts);
}

static TARGET void run_coroutine(struct facts *f)
{
	uint64_t len = 1 << 20;
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	coroutine_facts = f;
	f->low = (uint64_t)p;
	f->high = (uint64_t)p + len;
	/* The main thread's thread pointer must not serve as a hint either. */
	syscall(SYS_arch_prctl, ARCH_SET_FS, p);
	__asm__ volatile("mov %0, %%rsp\n call *%1\n" ::"r"(p + len - 2 * 4096), "r"(coroutine)
			 : "memory");
}

static void a_stack_without_known_top_brings_16_kib_and_no_more_than_its_mapping(void **state UNUSED)
{
	struct target t = target_start(run_coroutine);
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_section *w =
			record_find(h.records[i], ABI_SEC_STACK, ABI_WIN_LEAF);

		assert_non_null(w);
		assert_false(h.records[i]->flags & (ABI_F_TOP_KNOWN | ABI_F_CUT));
		assert_true(h.records[i]->flags & ABI_F_LAST);
		assert_in_range(w->len, 4096, 16 * KIB);
	}
	harvest_reset(&h);
	target_stop(&t);
}

static struct facts *handler_facts;

static void spin_in_handler(int signo UNUSED)
{
	target_spin(handler_facts);
}

static void run_on_sigaltstack(struct facts *f)
{
	stack_t ss = { .ss_size = 64 * KIB };
	struct sigaction sa = { .sa_handler = spin_in_handler, .sa_flags = SA_ONSTACK };

	ss.ss_sp = mmap(NULL, ss.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	handler_facts = f;
	f->low = (uint64_t)&ss;
	f->high = (uint64_t)ss.ss_sp + ss.ss_size;
	sigaltstack(&ss, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
}

static void a_handler_on_sigaltstack_brings_that_and_the_stack_that_it_interrupted(void **state UNUSED)
{
	struct target t = target_start(run_on_sigaltstack);
	uint64_t top = target_start_stack(&t);
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		const struct abi_section *w;

		assert_true(r->flags & ABI_F_ON_ALTSTACK);
		assert_int_equal(!(r->flags & ABI_F_LAST), !r->part);
		w = record_find(r, ABI_SEC_STACK, r->part ? ABI_WIN_INTERRUPTED : ABI_WIN_LEAF);
		assert_non_null(w);
		assert_int_equal(w->address + w->len, r->part ? top + 64 : t.facts->high);
		if (r->part) /* stack_t.ss_sp */
			assert_int_equal(word_at(w, t.facts->low), t.facts->high - 64 * KIB);
	}
	harvest_reset(&h);
	target_stop(&t);
}

/*
 * The shape of Go's runtime: g at -8 from the thread pointer, m, g0 and the goroutine that m runs. The
 * thread is on g0; the goroutine waits with a stack of its own.
 */
static TARGET void run_like_go_on_g0(struct facts *f)
{
	uint64_t len = 1 << 20, *p, *tls, *g0, *curg, *m;
	uint8_t *stack;

	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack = (uint8_t *)p + 4096;
	memset(p, 0x60, len); /* every page is there */
	tls = p + 64, g0 = p + 128, curg = p + 192, m = p + 256;
	tls[-1] = (uint64_t)g0;
	g0[0] = (uint64_t)p + len - 64 * KIB;
	g0[1] = (uint64_t)p + len - 8;
	g0[6] = curg[6] = (uint64_t)m;
	m[0] = (uint64_t)g0;
	m[0xb8 / 8] = 0;
	m[0xc0 / 8] = (uint64_t)curg;
	curg[0] = (uint64_t)stack;
	curg[1] = (uint64_t)stack + 16 * KIB;
	curg[7] = (uint64_t)stack + 10 * KIB;
	curg[8] = 0x1234;
	f->low = curg[7];
	f->high = curg[1];
	f->tp = g0[1];
	coroutine_facts = f;
	syscall(SYS_arch_prctl, ARCH_SET_FS, tls);
	__asm__ volatile("mov %0, %%rsp\n call *%1\n" ::"r"((uint8_t *)p + len - 8192), "r"(coroutine)
			 : "memory");
}

static void a_go_thread_on_g0_brings_the_stack_of_its_goroutine(void **state UNUSED)
{
	struct target t = target_start(run_like_go_on_g0);
	struct harvest h;
	uint64_t waiting[2];

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		const struct abi_section *w;

		assert_true(r->flags & ABI_F_ON_G0);
		if (r->part) {
			w = record_find(r, ABI_SEC_STACK, ABI_WIN_GOROUTINE);
			assert_non_null(w);
			assert_int_equal(w->address, t.facts->low);
			assert_int_equal(w->address + w->len, t.facts->high);
			assert_int_equal(word_at(w, t.facts->low), 0x6060606060606060);
		} else {
			w = record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF);
			assert_non_null(w);
			assert_int_equal(w->address + w->len, t.facts->tp);
			w = record_find(r, ABI_SEC_GOROUTINE, 0);
			assert_non_null(w);
			memcpy(waiting, w + 1, sizeof(waiting));
			assert_int_equal(waiting[0], t.facts->low);
			assert_int_equal(waiting[1], 0x1234);
			w = record_find(r, ABI_SEC_STACK, ABI_WIN_G);
			assert_non_null(w);
			assert_int_equal(w->len, 16);
			assert_int_equal(word_at(w, w->address + 8), t.facts->high);
		}
	}
	harvest_reset(&h);
	target_stop(&t);
}

/* ---- in the kernel ---- */

static TARGET void read_zeroes(struct facts *f)
{
	static char buf[1 << 20];
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	target_ready(f);
	for (;;) {
		long r;

		__asm__ volatile("1: syscall\n 2:"
				 : "=a"(r)
				 : "0"(SYS_read), "D"(fd), "S"(buf), "d"(sizeof(buf)),
				   "b"(0x2718)
				 : "rcx", "r11", "memory");
	}
}

static void a_tick_in_a_system_call_has_kernel_frames_and_the_callers_registers(void **state UNUSED)
{
	struct target t = target_start(read_zeroes);
	uint64_t top = target_start_stack(&t);
	size_t nkernel = 0;
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		const struct abi_section *k = record_find(r, ABI_SEC_KSTACK, 0);
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF);

		assert_int_equal(!!(r->flags & ABI_F_KERNEL_MODE), !!k);
		assert_non_null(w);
		assert_int_equal(w->address + w->len, top + 64);
		if (!k || record_reg(r, ABI_X86_RDX) != 1 << 20)
			continue;
		nkernel += k->len / 8 >= 3; /* not yet so many on the way in */
		assert_true(k->len % 8 == 0 && k->len / 8 <= ABI_KSTACK_MAX);
		for (uint32_t n = 0; n < k->len / 8; n++)
			assert_true(((const uint64_t *)section_data(k))[n] >> 47 == 0x1ffff);
		assert_int_equal(record_reg(r, ABI_X86_RBX), 0x2718);
		assert_in_range(record_reg(r, ABI_X86_RIP), (uint64_t)read_zeroes,
				(uint64_t)read_zeroes + 512);
	}
	assert_true(nkernel > 30);
	harvest_reset(&h);
	target_stop(&t);
}

/* Kernel threads and threads that the kernel made in a process: io_uring's poller spins. */
static void spin_io_uring_poller(struct facts *f)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 60000 };
	long fd = syscall(SYS_io_uring_setup, 8, &p);

	f->low = fd < 0;
	target_ready(f);
	for (;;) {
		/* It first goes to sleep, and is deaf until then. */
		syscall(SYS_io_uring_enter, fd, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
		usleep(10000);
	}
}

static void a_thread_of_the_kernel_in_a_process_has_no_user_side(void **state UNUSED)
{
	struct target t = target_start(spin_io_uring_poller);
	size_t nkernel = 0;
	struct harvest h;

	if (t.facts->low) {
		target_stop(&t);
		skip();
	}
	harvest_of(&h, &t, 20);
	for (size_t i = 0; i < h.nrecords; i++) {
		if (h.records[i]->tid == h.records[i]->pid)
			continue;
		nkernel++;
		assert_true(h.records[i]->flags & ABI_F_KERNEL_THREAD);
		assert_true(h.records[i]->flags & ABI_F_KERNEL_MODE);
		assert_null(record_find(h.records[i], ABI_SEC_REGS, 0));
		assert_null(record_find(h.records[i], ABI_SEC_STACK, ABI_WIN_LEAF));
		assert_non_null(record_find(h.records[i], ABI_SEC_KSTACK, 0));
	}
	assert_true(nkernel > 10);
	harvest_reset(&h);
	target_stop(&t);
}

/* A far return into code selector 0x23, to `jmp .` in memory that 32-bit code can reach. */
static TARGET void spin_in_32_bit_code(struct facts *f)
{
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	code[0] = 0xeb;
	code[1] = 0xfe;
	target_ready(f);
	__asm__ volatile("pushq $0x23\n pushq %0\n lretq\n" ::"r"((uint64_t)code) : "memory");
}

static void code_of_32_bit_is_marked_and_has_no_window(void **state UNUSED)
{
	struct target t = target_start(spin_in_32_bit_code);
	size_t n32 = 0;
	struct harvest h;

	harvest_of(&h, &t, 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];

		n32 += !!(r->flags & ABI_F_COMPAT32);
		assert_int_equal(!(r->flags & ABI_F_COMPAT32),
				 !!record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF));
	}
	assert_true(n32 > 40);
	harvest_reset(&h);
	target_stop(&t);
}

/* ---- short lives ---- */

static void spawn_for_ever(struct facts *f)
{
	char *argv[] = { (char *)"true", NULL };
	pid_t pid;

	target_ready(f);
	for (;;)
		if (!posix_spawn(&pid, "/bin/true", NULL, NULL, argv, NULL))
			waitpid(pid, NULL, 0);
}

/* Whatever a thread is doing: it has a leaf window that holds its stack pointer, or says why not. */
static void every_sample_has_a_stack_or_says_why_not(void **state UNUSED)
{
	const uint32_t excuses = ABI_F_KERNEL_THREAD | ABI_F_IN_EXEC | ABI_F_EXITING | ABI_F_COMPAT32;
	struct sampler_conf fast = conf;
	struct target t = target_start(spawn_for_ever);
	size_t nexec = 0, nexiting = 0, nwithout = 0, nkernel = 0;
	struct harvest h = {};

	fast.hz = 4999;
	harvest_run(&h, &fast, 3000 * MS);
	for (size_t i = 0; i < h.nrecords; i++) {
		const struct abi_record *r = h.records[i];
		const struct abi_section *w = record_find(r, ABI_SEC_STACK, ABI_WIN_LEAF);

		if (r->part)
			continue;
		nexec += !!(r->flags & ABI_F_IN_EXEC);
		nexiting += !!(r->flags & ABI_F_EXITING);
		nkernel += !!(r->flags & ABI_F_KERNEL_THREAD);
		if (r->flags & excuses)
			continue;
		if (!section_covers(w, record_reg(r, ABI_X86_RSP), 8))
			nwithout++;
	}
	print_message("%zu samples: %zu in exec, %zu exiting, %zu of the kernel, %zu without stack or reason\n",
		      h.nseen, nexec, nexiting, nkernel, nwithout);
	assert_true(nexec > 0 && nexiting > 0);
	/* A stack page may be swapped out, or a program may have no stack at all. */
	assert_true(nwithout * 1000 <= h.nseen);
	harvest_reset(&h);
	target_stop(&t);
}

static void the_cgroup_is_that_of_v2_or_else_of_the_memory_controller(void **state UNUSED)
{
	static const struct { const char *prefix, *root; uint64_t hierarchy; } hierarchies[] = {
		{ "0::/", "/sys/fs/cgroup", ABI_CGROUP_V2 },
		{ "0::/", "/sys/fs/cgroup/unified", ABI_CGROUP_V2 },
		{ ":memory:/", "/sys/fs/cgroup/memory", ABI_CGROUP_MEMORY },
		{ ":pids:/", "/sys/fs/cgroup/pids", ABI_CGROUP_PIDS },
		{ ":cpu", "/sys/fs/cgroup/cpu", ABI_CGROUP_CPU },
	};
	struct target t = target_start(use_20_kib);
	char text[8192], path[4096];
	uint64_t expected = 1;
	struct harvest h;
	FILE *f;
	size_t n;

	f = fopen("/proc/self/cgroup", "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(hierarchies) && expected == 1; i++) {
		const char *at = strstr(text, hierarchies[i].prefix);
		struct stat st;

		if (!at || !(at = strchr(at, '/')) || at[1] == '\n' || at[1] == '\0')
			continue;
		snprintf(path, sizeof(path), "%s%.*s", hierarchies[i].root, (int)strcspn(at, "\n"), at);
		if (!stat(path, &st))
			expected = st.st_ino | hierarchies[i].hierarchy << ABI_CGROUP_SHIFT;
	}
	harvest_of(&h, &t, 20);
	for (size_t i = 0; i < h.nrecords; i++)
		assert_int_equal(h.records[i]->cgroup_id, expected);
	print_message("cgroup id %llu\n", (unsigned long long)expected);
	harvest_reset(&h);
	target_stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_stand_in_dwarf_order),
		cmocka_unit_test(a_main_threads_window_goes_from_the_red_zone_to_argc),
		cmocka_unit_test(a_stack_of_80_kib_comes_whole_in_two_parts),
		cmocka_unit_test(a_stack_of_300_kib_comes_with_both_ends_and_says_that_it_is_cut),
		cmocka_unit_test(pages_never_touched_are_holes_and_the_others_are_there),
		cmocka_unit_test(a_threads_window_ends_at_its_thread_pointer),
		cmocka_unit_test(a_deep_thread_brings_32_kib_of_leaf_and_the_root_side),
		cmocka_unit_test(a_stack_without_known_top_brings_16_kib_and_no_more_than_its_mapping),
		cmocka_unit_test(a_handler_on_sigaltstack_brings_that_and_the_stack_that_it_interrupted),
		cmocka_unit_test(a_go_thread_on_g0_brings_the_stack_of_its_goroutine),
		cmocka_unit_test(a_tick_in_a_system_call_has_kernel_frames_and_the_callers_registers),
		cmocka_unit_test(a_thread_of_the_kernel_in_a_process_has_no_user_side),
		cmocka_unit_test(code_of_32_bit_is_marked_and_has_no_window),
		cmocka_unit_test(every_sample_has_a_stack_or_says_why_not),
		cmocka_unit_test(the_cgroup_is_that_of_v2_or_else_of_the_memory_controller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
