/*
 * pieces CASE [SECONDS] - stacks that one window does not hold, or not from one place.
 *
 * Expected, leaf first: spin, entered, then what each case says, and main; in threads thread_main. On
 * coroutines: turn, coroutine.
 */
#include <alloca.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "workload.h"

enum { KIB = 1024, PAGE = 4096 };

static uint64_t budget_ns;

static NOINLINE void spin(void)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void entered(void)
{
	spin();
	keep(1);
}

static void *map(size_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		exit(3);
	return p;
}

/* ---- frames larger than windows: hold_N `levels` times ---- */

#define FRAME(kib)                                                           \
	static NOINLINE void hold_##kib(unsigned int levels, void (*f)(void)) \
	{                                                                    \
		volatile char locals[(kib)*KIB];                             \
                                                                             \
		locals[0] = locals[sizeof(locals) - 1] = (char)levels;       \
		if (levels > 1)                                              \
			hold_##kib(levels - 1, f);                           \
		else                                                         \
			f();                                                 \
		keep((uint64_t)locals[levels]);                              \
	}
FRAME(4)
FRAME(31)
FRAME(63)
FRAME(100)
FRAME(300)
FRAME(540)

static void frame_4(void) { hold_4(1, entered); }
static void frame_31(void) { hold_31(1, entered); }
static void frame_63(void) { hold_63(1, entered); }
static void frame_100(void) { hold_100(1, entered); }
static void frame_300(void) { hold_300(1, entered); }
static void frame_540(void) { hold_540(1, entered); }
static void recursion_31(void) { hold_31(10, entered); }
static void recursion_100(void) { hold_100(6, entered); }
static void recursion_540(void) { hold_540(8, entered); }
static void recursion_far(void) { hold_100(48, entered); } /* more pages than can be learned */

/* Two that differ below one that does: the pages are at no regular distance. */
static NOINLINE void inner_frames(void)
{
	hold_300(2, entered);
	keep(1);
}

static void frames_of_all_sizes(void)
{
	hold_540(2, inner_frames);
}

/* ---- pages that are not there ---- */

static void never_touched(void)
{
	hold_100(3, entered); /* all but the ends of locals */
}

static NOINLINE void hold_dropped(void)
{
	static char *from;
	volatile char locals[100 * KIB];

	for (size_t i = 0; i < sizeof(locals); i += PAGE)
		locals[i] = 1;
	from = (char *)(((uintptr_t)locals + PAGE) & ~(uintptr_t)(PAGE - 1));
	if (madvise(from, 80 * KIB, MADV_DONTNEED))
		exit(3);
	entered();
	keep((uint64_t)locals[0]);
}

static void dropped(void)
{
	hold_dropped();
}

/* ---- threads ---- */

static void (*in_thread)(void);

static void *thread_main(void *arg)
{
	in_thread();
	keep((uintptr_t)arg);
	return NULL;
}

static void run_thread(void (*f)(void), void *stack, size_t bytes)
{
	pthread_attr_t attr;
	pthread_t thread;

	in_thread = f;
	if (pthread_attr_init(&attr) || (stack ? pthread_attr_setstack(&attr, stack, bytes) : 0) ||
	    pthread_create(&thread, &attr, thread_main, NULL) || pthread_join(thread, NULL))
		exit(3);
}

/* rustc's: between the stack's top and the thread pointer. */
static __thread volatile char tls[28 * KIB];

static NOINLINE void use_tls(void)
{
	tls[sizeof(tls) / 2] = 1;
	hold_540(1, entered);
	keep((uint64_t)tls[0]);
}

static void thread_tls(void)
{
	run_thread(use_tls, NULL, 0);
}

/* Ruby's: the frame is of the thread's first function. */
static NOINLINE void allocate_1024(void)
{
	volatile char *p = alloca(1024 * KIB);

	p[0] = p[1024 * KIB - 1] = 1;
	entered();
	keep((uint64_t)p[0]);
}

static void thread_alloca(void)
{
	run_thread(allocate_1024, NULL, 0);
}

static void thread_recursion(void)
{
	run_thread(recursion_540, NULL, 0);
}

/* The stack ends where its mapping does, and nothing is mapped above. */
static void thread_at_the_end(void)
{
	char *p = map(65 * PAGE, PROT_READ | PROT_WRITE);

	if (munmap(p + 64 * PAGE, PAGE))
		exit(3);
	run_thread(entered, p, 64 * PAGE);
}

/* With the parent's thread pointer, and a stack of which little is above its first frame. */
static int clone_main(void *arg)
{
	in_thread();
	keep((uintptr_t)arg);
	return 0;
}

static void run_clone(void (*f)(void), size_t bytes)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		    CLONE_CHILD_CLEARTID;
	static pid_t alive = 1;
	char *p = map(bytes + PAGE, PROT_READ | PROT_WRITE);

	in_thread = f;
	if (munmap(p + bytes, PAGE) || clone(clone_main, p + bytes, flags, NULL, NULL, NULL, &alive) < 0)
		exit(3);
	while (__atomic_load_n(&alive, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &alive, 0 /* FUTEX_WAIT */, 1, NULL, NULL, 0);
}

static void clone_at_the_end(void)
{
	run_clone(entered, 64 * PAGE);
}

static void clone_recursion(void)
{
	run_clone(recursion_540, 5000 * KIB);
}

/* ---- a handler on a stack of its own ---- */

static void handler(int sig)
{
	entered();
	keep((uint64_t)sig);
}

static NOINLINE void interrupted(void)
{
	syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), SIGUSR1);
	keep(1);
}

static void install(void)
{
	const stack_t s = { .ss_sp = map(256 * KIB, PROT_READ | PROT_WRITE), .ss_size = 256 * KIB };
	const struct sigaction a = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	if (sigaltstack(&s, NULL) || sigaction(SIGUSR1, &a, NULL))
		exit(3);
}

static void altstack(void)
{
	install();
	interrupted();
}

static void altstack_deep(void)
{
	install();
	hold_300(4, interrupted);
}

/* ---- stacks that continue elsewhere (Rust's stacker) ---- */

void on_stack(void (*f)(unsigned int), unsigned int left, void *top);

/* clang-format off */
__asm__(
	".text\n.p2align 4\n.type on_stack,@function\non_stack:\n.cfi_startproc\n"
	"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\n"
	"mov %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"
	"mov %rdi, %rax\n mov %esi, %edi\n mov %rdx, %rsp\n call *%rax\n"
	"mov %rbp, %rsp\n pop %rbp\n.cfi_def_cfa %rsp, 8\n ret\n"
	".cfi_endproc\n.size on_stack, . - on_stack\n");
/* clang-format on */

static NOINLINE void segment(unsigned int left)
{
	volatile char locals[100 * KIB];

	locals[0] = (char)left;
	if (left > 1)
		on_stack(segment, left - 1, (char *)map(128 * KIB, PROT_READ | PROT_WRITE) + 128 * KIB);
	else
		entered();
	keep((uint64_t)locals[0]);
}

static void segments_4(void) { segment(5); }
static void segments_8(void) { segment(9); }

/* ---- coroutines: each has its turn of some milliseconds, on small stacks side by side ---- */

enum { COROUTINES = 6, COROUTINE_BYTES = 64 * KIB };

static ucontext_t scheduler, coroutines[COROUTINES];
static unsigned int current;

static NOINLINE void turn(void)
{
	for (int i = 0; i < 20; i++)
		work();
	keep(1);
}

static NOINLINE void coroutine(void)
{
	for (;;) {
		turn();
		if (swapcontext(&coroutines[current], &scheduler))
			exit(3);
	}
}

static void make_coroutine(ucontext_t *c, char *stack)
{
	if (getcontext(c))
		exit(3);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = COROUTINE_BYTES;
	makecontext(c, coroutine, 0);
}

static void take_turns(void)
{
	char *stacks = map((size_t)COROUTINES * COROUTINE_BYTES, PROT_READ | PROT_WRITE);
	uint64_t end = cpu_ns() + budget_ns;

	for (size_t i = 0; i < COROUTINES; i++)
		make_coroutine(&coroutines[i], stacks + i * COROUTINE_BYTES);
	for (current = 0; cpu_ns() < end; current = (current + 1) % COROUTINES)
		if (swapcontext(&scheduler, &coroutines[current]))
			exit(3);
}

static void coroutines_of_main(void) { take_turns(); }
static void coroutines_of_thread(void) { run_thread(take_turns, NULL, 0); }

/* ---- */

static const struct {
	const char *name;
	void (*f)(void);
} cases[] = {
#define CASE(f) { #f, f }
	CASE(frame_4), CASE(frame_31), CASE(frame_63), CASE(frame_100), CASE(frame_300), CASE(frame_540),
	CASE(recursion_31), CASE(recursion_100), CASE(recursion_540), CASE(recursion_far), CASE(frames_of_all_sizes),
	CASE(never_touched), CASE(dropped), CASE(thread_tls), CASE(thread_alloca), CASE(thread_recursion),
	CASE(thread_at_the_end), CASE(clone_at_the_end), CASE(clone_recursion), CASE(altstack),
	CASE(altstack_deep), CASE(segments_4), CASE(segments_8),
	CASE(coroutines_of_main), CASE(coroutines_of_thread),
};

int main(int argc, char **argv)
{
	budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
			cases[i].f();
			keep(0);
			return 0;
		}
	}
	fprintf(stderr, "usage: pieces CASE [SECONDS]\n");
	return 2;
}
