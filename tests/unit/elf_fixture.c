#include "tests/unit/elf_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

const char fixture_cpp[] =
	"#include <algorithm>\n#include <map>\n#include <stdexcept>\n#include <string>\n#include <vector>\n"
	"#include <cstdio>\n"
	"template <class T> struct box { T v; virtual T get() { return v; } virtual ~box() {} };\n"
	"struct deep : box<std::string> { std::string get() override { if (v.empty()) throw std::runtime_error(\"e\");\n"
	"  return v + v; } };\n"
	"static __attribute__((noinline)) int big(int n) { volatile char a[70000]; a[n] = 1; return a[n] + n; }\n"
	"static __attribute__((noinline)) int vla(int n) { volatile char a[n]; a[n / 2] = 1; return a[n / 2]; }\n"
	"int main(int argc, char **argv) { std::map<std::string, std::vector<int>> m;\n"
	" for (int i = 0; i < argc * 10; i++) m[std::to_string(i)].push_back(big(i) + vla(i + 9));\n"
	" std::vector<int> all; for (auto &p : m) all.insert(all.end(), p.second.begin(), p.second.end());\n"
	" std::sort(all.begin(), all.end(), [](int a, int b) { return a > b; });\n"
	" deep d; d.v = argv[0]; try { printf(\"%s %d\\n\", d.get().c_str(), all[0]); }\n"
	" catch (const std::exception &e) { return 1; } return 0; }\n";

const char fixture_c[] =
	"#include <stdio.h>\n#include <stdlib.h>\n"
	"static __attribute__((noinline)) int leaf(int a) { return a * 7; }\n"
	"__attribute__((noinline)) int middle(int a, char **v) { volatile char b[300]; b[a & 255] = 1;\n"
	" return leaf(a) + b[a & 127] + atoi(v[0]); }\n"
	"static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\n"
	"int main(int argc, char **argv) { int t[64]; for (int i = 0; i < 64; i++) t[i] = middle(i + argc, argv);\n"
	" qsort(t, 64, sizeof(t[0]), compare); printf(\"%d\\n\", t[3]); return 0; }\n";

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	assert_int_equal(fclose(f), 0);
}

char *fixture_compile_to(const char *suffix, const char *source, const char *flags)
{
	char dir[] = "/tmp/flamed-test-XXXXXX";
	char in[64], command[512], *out;

	assert_non_null(mkdtemp(dir));
	snprintf(in, sizeof(in), "%s/in.%s", dir, suffix);
	assert_true(asprintf(&out, "%s/out", dir) > 0);
	write_file(in, source);
	snprintf(command, sizeof(command), "/usr/bin/%s %s -o %s %s", strcmp(suffix, "cc") == 0 ? "g++" : "gcc",
		 flags, out, in);
	assert_int_equal(system(command), 0);
	unlink(in);
	return out;
}

void fixture_forget(char *path)
{
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
	free(path);
}

int fixture_compile(const char *suffix, const char *source, const char *flags)
{
	char *path = fixture_compile_to(suffix, source, flags);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	fixture_forget(path);
	return fd;
}

uint8_t *fixture_read(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "r");
	uint8_t *data = malloc(64 << 20);

	assert_non_null(f);
	assert_non_null(data);
	*ret_len = fread(data, 1, 64 << 20, f);
	fclose(f);
	return data;
}

int fixture_memfd(const void *data, size_t len)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	return fd;
}

struct elffile *fixture_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elffile *f = NULL;

	assert_true(fd >= 0);
	assert_int_equal(elffile_open(&f, fd), 0);
	close(fd);
	return f;
}

void fixture_each_line(const char *command, void (*fn)(void *arg, char *line), void *arg)
{
	FILE *f = popen(command, "r");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	assert_non_null(f);
	while ((n = getline(&line, &cap, f)) > 0) {
		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		fn(arg, line);
	}
	free(line);
	assert_int_equal(pclose(f), 0);
}
