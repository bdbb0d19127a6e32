/*
 * own_sigreturn CASE [SECONDS] [signals] - a handler whose trampoline is our own: without CFI (musl), with CFI
 * that does not say that it is a signal's (Go), or glibc's. With `signals`, as many as fit into the time.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, interrupted, the trampoline,
 * handler, spin; with `signals`: ..., main, signals, and in the system calls of some the trampoline.
 */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

void no_cfi_restorer(void);
void wrong_cfi_restorer(void);

/* clang-format off */
__asm__(
	".text\n.p2align 4\n.type no_cfi_restorer,@function\nno_cfi_restorer:\n"
	"mov $15, %rax\nsyscall\n.size no_cfi_restorer, . - no_cfi_restorer\n"
	".p2align 4\n.type wrong_cfi_restorer,@function\nwrong_cfi_restorer:\n.cfi_startproc\n"
	"mov $15, %rax\nsyscall\nint3\n.cfi_endproc\n.size wrong_cfi_restorer, . - wrong_cfi_restorer\n");
/* clang-format on */

struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static uint64_t budget_ns;
static volatile uint64_t done;

static NOINLINE void spin(void)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static bool storm;

static NOINLINE void handler(int signo)
{
	if (!storm)
		spin();
	done = 1;
	keep((uint64_t)signo);
}

static NOINLINE void interrupted(void)
{
	while (!done)
		keep(1);
	keep(2);
}

static NOINLINE void signals(void)
{
	uint64_t end = cpu_ns() + budget_ns;

	while (cpu_ns() < end)
		for (int i = 0; i < 1000; i++)
			syscall(SYS_tgkill, getpid(), getpid(), SIGALRM);
	keep(3);
}

int main(int argc, char **argv)
{
	struct kernel_sigaction sa = { .handler = handler, .flags = 0x04000000 /* SA_RESTORER */ };
	const char *name = argc > 1 ? argv[1] : "";

	budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);
	if (strcmp(name, "glibc") == 0)
		signal(SIGALRM, handler);
	else
		sa.restorer = strcmp(name, "no_cfi") == 0 ? no_cfi_restorer : wrong_cfi_restorer;
	if (sa.restorer && syscall(SYS_rt_sigaction, SIGALRM, &sa, NULL, sizeof(sa.mask)) < 0)
		return 3;
	storm = argc > 3;
	if (storm) {
		signals();
		return 0;
	}
	if (ualarm(1000, 0) != 0)
		return 3;
	interrupted();
	return 0;
}
