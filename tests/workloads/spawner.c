/*
 * spawner COUNT PROGRAM [ARGS...] - runs PROGRAM, COUNT times, one after the other.
 *
 * Prints at its end `children: N` (those that exited with 0) and `children_ns: N`, their CPU time.
 */
#include <err.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

static int run(char **argv)
{
	int status, e;
	pid_t pid;

	e = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
	if (e)
		errx(1, "%s: %s", argv[0], strerror(e));
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			err(1, "waitpid");
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_usec * 1000u;
}

int main(int argc, char **argv)
{
	unsigned long count = (unsigned long)number_arg(argc, argv, 1, 1), good = 0;
	struct rusage used;

	if (argc < 3)
		errx(2, "usage: spawner COUNT PROGRAM [ARGS...]");
	for (unsigned long i = 0; i < count; i++)
		good += (unsigned long)run(argv + 2);
	getrusage(RUSAGE_CHILDREN, &used);
	printf("children: %lu\nchildren_ns: %llu\n", good,
	       (unsigned long long)(timeval_ns(used.ru_utime) + timeval_ns(used.ru_stime)));
	return 0;
}
