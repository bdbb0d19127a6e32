#include "agent/cpulist.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

uint32_t cpulist_count(const struct cpulist *l)
{
	int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(l->bits); i++)
		n += __builtin_popcountll(l->bits[i]);
	return (uint32_t)n;
}

static int parse_number(const char **at, uint32_t *ret)
{
	const char *p = *at;
	uint32_t n = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++) {
		n = n * 10 + (uint32_t)(*p - '0');
		if (n >= CPULIST_MAX)
			return -ERANGE;
	}
	*at = p;
	*ret = n;
	return 0;
}

int cpulist_parse(const char *text, struct cpulist *ret)
{
	struct cpulist l = {};
	uint32_t first, last;
	int err;

	while (*text) {
		err = parse_number(&text, &first);
		if (err)
			return err;
		last = first;
		if (*text == '-') {
			text++;
			err = parse_number(&text, &last);
			if (err)
				return err;
		}
		if (last < first)
			return -EINVAL;
		for (uint32_t cpu = first; cpu <= last; cpu++)
			l.bits[cpu / 64] |= 1ull << (cpu % 64);
		if (*text == ',') {
			if (!*++text)
				return -EINVAL;
		} else if (*text) {
			return -EINVAL;
		}
	}
	*ret = l;
	return 0;
}

int cpulist_read(const char *name, struct cpulist *ret)
{
	char path[64], text[16384]; /* "0,2,4,..." of CPULIST_MAX CPUs is about 20 KB: not seen */
	CLEANUP_FD int fd = -1;
	ssize_t n;

	if (snprintf(path, sizeof(path), "/sys/devices/system/cpu/%s", name) >= (int)sizeof(path))
		return -EINVAL;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		n = 0;
	else if (fd < 0)
		return -errno;
	else if ((n = read(fd, text, sizeof(text))) < 0)
		return -errno;
	if ((size_t)n == sizeof(text))
		return -E2BIG;
	text[n] = '\0';
	text[strcspn(text, " \n(")] = '\0';
	return cpulist_parse(text, ret);
}

uint64_t cpulist_birth(uint32_t cpu)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/topology", cpu);
	return stat(path, &st) ? 0 : st.st_ino;
}
