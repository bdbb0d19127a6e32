#include "tests/unit/cpu_fixture.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

static const char online[] = "/sys/devices/system/cpu/online";

static void must(bool ok)
{
	if (!ok)
		_exit(10);
}

/* Of its own, in a namespace that nobody else sees; open, so that it can be written without root. */
static int own_file(void)
{
	static const char path[] = "/tmp/online";
	static int fd = -1;

	if (fd >= 0)
		return fd;
	must(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	must(mount("none", "/tmp", "tmpfs", 0, NULL) == 0);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	must(fd >= 0 && mount(path, online, NULL, MS_BIND, NULL) == 0);
	return fd;
}

void cpu_fixture_online(const char *list)
{
	int fd = own_file();

	must(ftruncate(fd, 0) == 0 && pwrite(fd, list, strlen(list), 0) == (ssize_t)strlen(list));
}

void cpu_fixture_reborn(uint32_t cpu)
{
	char path[64];

	(void)own_file();
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/topology", cpu);
	must(mount("none", path, "tmpfs", 0, NULL) == 0);
}

size_t cpu_fixture_events(uint64_t *ret, size_t max)
{
	size_t n = 0;

	for (int fd = 0; fd < 1024 && n < max; fd++) {
		char path[32], name[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strcmp(name, "anon_inode:[perf_event]") == 0 &&
		    ioctl(fd, PERF_EVENT_IOC_ID, &ret[n]) == 0)
			n++;
	}
	return n;
}
