/*
 * A main() for fuzz targets where there is no libFuzzer: each file of the corpus, and its prefixes,
 * once. Arguments are files or directories; none at all is an error, so that a lost corpus is seen.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PREFIXES_MAX = 256, INPUT_MAX = 16 << 20 };

/* A copy without a byte to spare, so that a sanitizer sees the first one past its end. */
static void run_one(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	(void)LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static int run_file(const char *path)
{
	FILE *f = fopen(path, "r");
	uint8_t *data = malloc(INPUT_MAX);
	size_t size, step;

	if (!f || !data) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(EXIT_FAILURE);
	}
	size = fread(data, 1, INPUT_MAX, f);
	fclose(f);
	step = size / PREFIXES_MAX + 1;
	for (size_t n = 0; n < size; n += step)
		run_one(data, n);
	run_one(data, size);
	free(data);
	return 1;
}

static int run_path(const char *path)
{
	struct dirent **names;
	struct stat st;
	int n, nfiles = 0;
	char *child;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return run_file(path);
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.' && asprintf(&child, "%s/%s", path, names[i]->d_name) > 0) {
			nfiles += run_path(child);
			free(child);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return nfiles;
}

int main(int argc, char **argv)
{
	int nfiles = 0;

	for (int i = 1; i < argc; i++)
		nfiles += run_path(argv[i]);
	printf("%s: %d inputs replayed\n", argv[0], nfiles);
	return nfiles ? EXIT_SUCCESS : EXIT_FAILURE;
}
