/*
 * The input is a perf map or a jitdump. Whatever it says: read in two steps it is what it is when read
 * at once, and names and files are texts that end.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbolizer/jitmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* With more, moved code could be looked for longer in one step than in two. */
enum { INPUT_MAX = 64 * 1024, NADDRS = 64 };

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static void write_all(int fd, const uint8_t *data, size_t size)
{
	require(write(fd, data, size) == (ssize_t)size, "write");
}

static void check_name(const struct jitmap *m, int fd, uint32_t entry, uint64_t address)
{
	static struct jitmap_found found;

	jitmap_name(m, fd, entry, address, &found);
	require(memchr(found.name, 0, sizeof(found.name)), "a name ends");
	require(memchr(found.file, 0, sizeof(found.file)), "a file ends");
	require(found.line <= INT32_MAX, "a line is a number of pprof's");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jitmap *whole = jitmap_new(), *parts = jitmap_new();
	uint32_t in_whole[NADDRS], in_parts[NADDRS];
	uint64_t addresses[NADDRS];
	size_t first = size ? data[size - 1] * size / 256 : 0;
	int fd = memfd_create("map", MFD_CLOEXEC), r;

	if (size > INPUT_MAX)
		size = first = 0;
	write_all(fd, data, first);
	r = jitmap_read(parts, fd);
	write_all(fd, data + first, size - first);
	r = jitmap_read(parts, fd);
	require(jitmap_read(whole, fd) == r, "both are read alike");
	for (uint32_t i = 0; i < NADDRS; i++) {
		addresses[i] = i * 0x123;
		/* Addresses that the input itself has. */
		if (size >= 8)
			memcpy(&addresses[i], data + i * (size - 8) / NADDRS, 8);
	}
	jitmap_find(whole, addresses, NADDRS, in_whole);
	jitmap_find(parts, addresses, NADDRS, in_parts);
	require(memcmp(in_whole, in_parts, sizeof(in_whole)) == 0, "both find the same");
	for (uint32_t i = 0; i < NADDRS; i++) {
		if (in_whole[i] != UINT32_MAX)
			check_name(whole, fd, in_whole[i], addresses[i]);
	}
	close(fd);
	jitmap_free(whole);
	jitmap_free(parts);
	return 0;
}
