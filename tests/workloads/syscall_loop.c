/*
 * syscall_loop [SECONDS] - in and out of the kernel through libc's stubs, half of the time each:
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, then
 *	read_zero, read, kernel frames (most of the time is inside: it clears 64 KiB a call), and
 *	ask_parent, getppid, kernel frames (or none, when the tick hit in the stub).
 */
#include <err.h>
#include <fcntl.h>
#include <unistd.h>

#include "workload.h"

static char buffer[64 * 1024];

static NOINLINE void read_zero(int fd, uint64_t end)
{
	while (cpu_ns() < end) {
		for (int i = 0; i < 100; i++) {
			if (read(fd, buffer, sizeof(buffer)) < 0)
				err(1, "read");
		}
	}
}

static NOINLINE void ask_parent(uint64_t end)
{
	while (cpu_ns() < end) {
		for (int i = 0; i < 10000; i++)
			keep((uint64_t)getppid());
	}
}

int main(int argc, char **argv)
{
	uint64_t half_ns = (uint64_t)(number_arg(argc, argv, 1, 1) * 0.5e9);
	uint64_t start = cpu_ns();
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		err(1, "/dev/zero");
	read_zero(fd, start + half_ns);
	ask_parent(start + 2 * half_ns);
	close(fd);
	return 0;
}
