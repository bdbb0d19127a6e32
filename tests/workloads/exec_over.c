/*
 * exec_over [ROUNDS] - two programs at the same fixed addresses that execute each other in turn.
 *
 * Expected, root first: _start, ..., main, begin, and in exec_over_two middle, spin.
 */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

static NOINLINE void spin(void)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 20000000;

	do
		work();
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end);
}

#ifdef EXEC_OVER_TWO
#define OTHER "exec_over_one"
static NOINLINE void middle(volatile char *p)
{
	volatile char local[512];

	local[3] = p[3];
	spin();
	keep((uint64_t)local[3]);
}

static NOINLINE void begin(void)
{
	volatile char local[2048];

	local[3] = 1;
	middle(local);
	keep((uint64_t)local[3]);
}
#else
#define OTHER "exec_over_two"
static NOINLINE void begin(void)
{
	spin();
	keep(1);
}
#endif

int main(int argc, char **argv)
{
	char self[PATH_MAX] = "", rounds[16], *slash;
	int left = (int)number_arg(argc, argv, 1, 50) - 1;

	begin();
	if (left <= 0)
		return 0;
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 3;
	slash = strrchr(self, '/');
	if (!slash || (size_t)(self + sizeof(self) - slash) <= sizeof(OTHER) + 1)
		return 3;
	memcpy(slash + 1, OTHER, sizeof(OTHER));
	(void)snprintf(rounds, sizeof(rounds), "%d", left);
	execl(self, OTHER, rounds, (char *)NULL);
	return 3;
}
