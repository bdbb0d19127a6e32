/*
 * vfork_loop [SECONDS] - vfork() in a loop, from a function whose CFA is based on rbp.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, spawn, vfork: also inside the
 * system call, while the return address is in a register. The children, which run _exit(), have the
 * same roots.
 */
#include <alloca.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

static NOINLINE void spawn(size_t n)
{
	char *p = alloca(n);
	pid_t child;

	memset(p, 1, n);
	child = vfork();
	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, NULL, 0) != child)
		_exit(3);
	keep((uint64_t)p[n / 2]);
}

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);

	do
		spawn(64);
	while (cpu_ns() < end);
	return 0;
}
