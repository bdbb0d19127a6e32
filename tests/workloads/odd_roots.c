/*
 * odd_roots CASE [SECONDS] - stacks that do not begin at _start, or not only there.
 *
 * Expected, leaf first: spin, entered, then what each case says; and nothing of main, which made these
 * stacks and did not call what runs on them.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "workload.h"

enum { STACK_BYTES = 256 * 1024 };

static uint64_t budget_ns;
void *switch_fiber(void **from, void *to);
void *make_fiber(void *stack_end, void (*entry)(void));
void entered(void);

static NOINLINE void spin(void)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

NOINLINE void entered(void)
{
	spin();
	keep(1);
}

static void *new_stack(void)
{
	void *p = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		exit(3);
	return p;
}

/* ---- threads ---- */

static int clone_main(void *arg)
{
	entered();
	keep((uintptr_t)arg);
	return 0;
}

/* Ends at clone: the thread shares the parent's thread pointer, whose stack is another. */
static void raw_clone(void)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		    CLONE_CHILD_CLEARTID;
	static pid_t alive = 1;

	if (clone(clone_main, (char *)new_stack() + STACK_BYTES, flags, NULL, NULL, NULL, &alive) < 0)
		exit(3);
	while (__atomic_load_n(&alive, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &alive, 0 /* FUTEX_WAIT */, 1, NULL, NULL, 0);
}

static void *thread_main(void *arg)
{
	entered();
	keep((uintptr_t)arg);
	return NULL;
}

/* Ends at clone3 and start_thread. */
static void small_stack(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (pthread_attr_init(&attr) || pthread_attr_setstack(&attr, new_stack(), 16384) ||
	    pthread_create(&thread, &attr, thread_main, NULL) || pthread_join(thread, NULL))
		exit(3);
}

/* The leader is gone: the kernel shows an empty /proc/PID/maps. */
static void leader_exit(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, thread_main, NULL))
		exit(3);
	pthread_exit(NULL);
}

/* ---- coroutines ---- */

static ucontext_t main_context, context;

/* Ends at entered, whose return address is __start_context. */
static void ucontext(void)
{
	if (getcontext(&context))
		exit(3);
	context.uc_stack.ss_sp = new_stack();
	context.uc_stack.ss_size = STACK_BYTES;
	context.uc_link = &main_context;
	makecontext(&context, entered, 0);
	if (swapcontext(&main_context, &context))
		exit(3);
}

/* clang-format off */
__asm__(
	".text\n.p2align 4\n.type make_fiber,@function\nmake_fiber:\n"
	"and $-16, %rdi\n lea -0x40(%rdi), %rax\n"
	"mov %rsi, 0x28(%rax)\n"
	"lea 1f(%rip), %rcx\n mov %rcx, 0x38(%rax)\n"
	"lea 2f(%rip), %rcx\n mov %rcx, 0x30(%rax)\n ret\n"
	"1: push %rbp\n jmp *%rbx\n"
	"2: xor %edi, %edi\n call _exit@PLT\n hlt\n"
	".size make_fiber, . - make_fiber\n"
	".p2align 4\n.type switch_fiber,@function\nswitch_fiber:\n"
	"lea -0x38(%rsp), %rsp\n"
	"mov %r12, 0x08(%rsp)\n mov %r13, 0x10(%rsp)\n mov %r14, 0x18(%rsp)\n mov %r15, 0x20(%rsp)\n"
	"mov %rbx, 0x28(%rsp)\n mov %rbp, 0x30(%rsp)\n"
	"mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
	"mov 0x08(%rsp), %r12\n mov 0x10(%rsp), %r13\n mov 0x18(%rsp), %r14\n mov 0x20(%rsp), %r15\n"
	"mov 0x28(%rsp), %rbx\n mov 0x30(%rsp), %rbp\n mov 0x38(%rsp), %r8\n"
	"lea 0x40(%rsp), %rsp\n jmp *%r8\n"
	".size switch_fiber, . - switch_fiber\n");
/* clang-format on */

static void *fiber_main_sp, *fiber_sp;

static void fiber_entry(void)
{
	entered();
	(void)switch_fiber(&fiber_sp, fiber_main_sp);
}

/* As Boost.Context does it, without CFI: ends at fiber_entry, which returns into no function. */
static void fiber(void)
{
	(void)switch_fiber(&fiber_main_sp, make_fiber((char *)new_stack() + STACK_BYTES, fiber_entry));
}

static const struct {
	const char *name;
	void (*f)(void);
} cases[] = {
	{ "raw_clone", raw_clone }, { "small_stack", small_stack }, { "leader_exit", leader_exit },
	{ "ucontext", ucontext },   { "fiber", fiber },
};

int main(int argc, char **argv)
{
	budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
			cases[i].f();
			return 0;
		}
	}
	fprintf(stderr, "usage: odd_roots CASE [SECONDS]\n");
	return 2;
}
