/* Profiles as files, in a real directory. */
#include "exporter/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];
static int dir_fd;
static unsigned int fates[EXPORT_FATE_COUNT];

static void on_fate(void *arg, const char *sink, const struct profile *p,
		    enum export_fate_kind kind)
{
	(void)arg;
	(void)p;
	assert_string_equal(sink, "directory");
	fates[kind]++;
}

static int setup(void **state)
{
	(void)state;
	memset(fates, 0, sizeof(fates));
	snprintf(path, sizeof(path), "/tmp/flamed-test-XXXXXX");
	assert_non_null(mkdtemp(path));
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir_fd >= 0);
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", path);
	return system(command);
}

static struct directory *open_directory(uint64_t max_bytes)
{
	struct directory *d;

	assert_int_equal(directory_new(&d, dup(dir_fd), path, max_bytes, on_fate, NULL), 0);
	return d;
}

static void add(struct directory *d, uint64_t part, const char *service, uint64_t start_s,
		size_t len)
{
	static uint8_t data[65536];
	struct profile p = {
		.refs = 1,
		.part = part,
		.service_name = service,
		.wall_start_ns = start_s * 1000000000,
		.data = data,
		.len = len,
	};

	directory_add(d, &p);
}

static unsigned int count_files(void)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2; /* . and .. */
}

static bool has(const char *name)
{
	return faccessat(dir_fd, name, F_OK, 0) == 0;
}

static void touch(const char *name)
{
	CLEANUP_FD int fd = openat(dir_fd, name, O_WRONLY | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 5000), 0);
}

static void a_file_says_when_who_and_which(void **state)
{
	struct directory *d = open_directory(1 << 20);
	struct profile p = { .part = 0x1234, .service_name = "" };
	char name[128];
	struct stat st;

	(void)state;
	add(d, 0x1234, "a/b.c", 1800000000, 1000);
	add(d, 0x1234, "a/b.c", 1800000000, 1000); /* the same, again */
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 2);
	assert_int_equal(count_files(), 1);
	snprintf(name, sizeof(name), "20270115T080000Z-a_b.c-%016" PRIx64 ".pb.gz",
		 profile_part_at(&p, "directory"));
	assert_int_equal(fstatat(dir_fd, name, &st, 0), 0);
	assert_int_equal(st.st_size, 1000);
	assert_int_equal(st.st_mode & 0137u, 0);
	directory_free(d);
}

static void a_long_service_still_has_a_name(void **state)
{
	struct directory *d = open_directory(1 << 20);
	char service[256];

	(void)state;
	memset(service, 'x', 255);
	service[255] = '\0';
	add(d, 1, service, 1800000000, 10);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 1);
	assert_int_equal(count_files(), 1);
	directory_free(d);
}

static void the_oldest_go_and_nothing_that_is_not_ours(void **state)
{
	static const char *const others[] = {
		"important.pb.gz",
		"20200101T000000Z-x-123.pb.gz",
		"x20200101T000000Z-x-0123456789abcdef.pb.gz",
		"20200101T000000Z-x-0123456789ABCDEF.pb.gz",
		"20200101T000000Z--0123456789abcdef.pb.gz",
	};
	struct directory *d;
	struct sink_stats s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		touch(others[i]);
	assert_int_equal(mkdirat(dir_fd, "20190101T000000Z-x-0123456789abcdef.pb.gz", 0700), 0);
	d = open_directory(10000);
	for (unsigned int i = 0; i < 30; i++)
		add(d, i + 1, "svc", 1800000000 + i, 1000);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 30);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_true(has(others[i]));
	assert_true(count_files() <= ARRAY_SIZE(others) + 1 + 10);
	assert_true(count_files() >= ARRAY_SIZE(others) + 1 + 8);
	directory_stats(d, &s);
	assert_int_equal(s.nsent, 30);
	assert_int_equal(s.bytes_sent, 30000);
	assert_string_equal(s.state, "ok");
	directory_free(d);
}

static void what_is_there_at_the_start_counts(void **state)
{
	struct directory *d = open_directory(1 << 20);

	(void)state;
	for (unsigned int i = 0; i < 10; i++)
		add(d, i + 1, "svc", 1800000000 + i, 1000);
	directory_free(d);
	d = open_directory(5000);
	assert_true(count_files() <= 5);
	add(d, 99, "svc", 1800000099, 4000);
	assert_true(count_files() <= 2);
	directory_free(d);
}

static void what_can_never_fit_is_not_written_and_nothing_is_deleted_for_it(void **state)
{
	struct directory *d = open_directory(5000);

	(void)state;
	add(d, 1, "svc", 1800000000, 1000);
	add(d, 2, "svc", 1800000001, 5001);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 1);
	assert_int_equal(fates[EXPORT_FATE_WRITE_FAILED], 1);
	assert_int_equal(count_files(), 1);
	directory_free(d);
}

static void what_a_crash_left_behind_is_replaced(void **state)
{
	struct directory *d = open_directory(1 << 20);

	(void)state;
	touch(".flamed-tmp");
	add(d, 1, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 1);
	assert_int_equal(count_files(), 1);
	directory_free(d);
}

/* Somebody who may write there does not make us write elsewhere. */
static void a_link_in_our_way_is_not_followed(void **state)
{
	struct directory *d = open_directory(1 << 20);
	struct stat st;

	(void)state;
	touch("victim");
	assert_int_equal(symlinkat("victim", dir_fd, ".flamed-tmp"), 0);
	add(d, 1, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 1);
	assert_int_equal(fstatat(dir_fd, "victim", &st, 0), 0);
	assert_int_equal(st.st_size, 5000);
	directory_free(d);
}

static void a_directory_that_is_gone_fails_to_be_written_to(void **state)
{
	struct directory *d = open_directory(1 << 20), *none;
	struct sink_stats s;

	(void)state;
	assert_int_equal(rmdir(path), 0);
	add(d, 1, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_WRITE_FAILED], 1);
	directory_stats(d, &s);
	assert_string_equal(s.state, "failing");
	assert_string_equal(s.last_error, strerror(ENOENT));
	directory_free(d);
	assert_int_equal(directory_new(&none, -1, path, 1 << 20, on_fate, NULL), 0);
	add(none, 1, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_WRITE_FAILED], 2);
	directory_free(none);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIRECTORY(a_file_says_when_who_and_which),
		IN_DIRECTORY(a_long_service_still_has_a_name),
		IN_DIRECTORY(the_oldest_go_and_nothing_that_is_not_ours),
		IN_DIRECTORY(what_is_there_at_the_start_counts),
		IN_DIRECTORY(what_can_never_fit_is_not_written_and_nothing_is_deleted_for_it),
		IN_DIRECTORY(what_a_crash_left_behind_is_replaced),
		IN_DIRECTORY(a_link_in_our_way_is_not_followed),
		IN_DIRECTORY(a_directory_that_is_gone_fails_to_be_written_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
