/*
 * Both names of any symbol are valid UTF-8 without control characters and of bounded length, and
 * demangling what is already readable text of Go changes nothing but such characters.
 */
#include <stdio.h>
#include <string.h>

#include "symbolizer/demangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static void check_clean(const char *s)
{
	size_t left = strlen(s), n;

	require(left <= MSG_NAME_MAX, "names are bounded");
	for (; left; s += n, left -= n) {
		n = msg_utf8_len(s, left);
		require(n, "names are UTF-8");
		require(n > 1 || ((uint8_t)*s >= 0x20 && *s != 0x7f), "names have no control characters");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct demangled d, again;

	size = strnlen((const char *)data, size);
	demangle((struct bytes){ data, size }, false, DEMANGLE_FULL, &d);
	check_clean(d.name);
	demangle((struct bytes){ data, size }, false, DEMANGLE_SHORT, &d);
	check_clean(d.name);
	check_clean(d.system_name);
	require(strlen(d.system_name) <= size, "the system name adds nothing");
	demangle((struct bytes){ data, size }, true, DEMANGLE_SHORT, &d);
	check_clean(d.name);
	require(strcmp(d.name, d.system_name) == 0, "Go names stay");
	demangle((struct bytes){ (const uint8_t *)d.name, strlen(d.name) }, true, DEMANGLE_SHORT, &again);
	require(strcmp(d.name, again.name) == 0, "clean names stay");
	return 0;
}
