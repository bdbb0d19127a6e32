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
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "exporter/shelf.h"

static char path[64];
static int dir_fd;
static struct loop *loop;
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
	assert_int_equal(loop_new(&loop), 0);
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	loop_free(loop);
	close(dir_fd);
	snprintf(command, sizeof(command), "rm -rf %s", path);
	return system(command);
}

static struct directory *open_directory(uint64_t max_bytes)
{
	struct directory *d;

	assert_int_equal(directory_new(&d, loop, dup(dir_fd), path, max_bytes, on_fate, NULL), 0);
	return d;
}

static void add_unsynced(struct directory *d, uint64_t part, const char *service,
			 uint64_t start_s, size_t len)
{
	static uint8_t data[65536];
	static struct profile p;

	p = (struct profile){
		.refs = 1000, /* never freed */
		.part = part,
		.service_name = service,
		.wall_start_ns = start_s * 1000000000,
		.data = data,
		.len = len,
	};

	directory_add(d, profile_ref(&p));
}

static void add(struct directory *d, uint64_t part, const char *service, uint64_t start_s,
		size_t len)
{
	add_unsynced(d, part, service, start_s, len);
	directory_sync(d);
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

/* A file of this part, by `svc`. */
static bool has_young(uint64_t part)
{
	struct profile p = { .part = part };
	char suffix[32];
	DIR *d = opendir(path);
	const struct dirent *e;
	bool found = false;

	assert_non_null(d);
	snprintf(suffix, sizeof(suffix), "-svc-%016" PRIx64, profile_part_at(&p, "directory"));
	while ((e = readdir(d)))
		found |= strstr(e->d_name, suffix) != NULL;
	closedir(d);
	return found;
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
	d = open_directory(10 * 4096);
	for (unsigned int i = 0; i < 30; i++)
		add(d, i + 1, "svc", 1800000000 + i, 1000);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 30);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_true(has(others[i]));
	assert_int_equal(count_files(), ARRAY_SIZE(others) + 1 + 10);
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
	d = open_directory(5 * 4096);
	add(d, 99, "svc", 1800000099, 4000);
	assert_int_equal(count_files(), 5);
	assert_true(has_young(99));
	directory_free(d);
}

static void what_can_never_fit_is_not_written_and_nothing_is_deleted_for_it(void **state)
{
	struct directory *d = open_directory(8192);

	(void)state;
	add(d, 1, "svc", 1800000000, 1000);
	add(d, 2, "svc", 1800000001, 8193);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 1);
	assert_int_equal(fates[EXPORT_FATE_WRITE_FAILED], 1);
	assert_int_equal(count_files(), 1);
	directory_free(d);
}

static void what_a_crash_left_behind_is_replaced(void **state)
{
	struct directory *d = open_directory(1 << 20);

	(void)state;
	touch(".flamed-tmp-0");
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
	assert_int_equal(symlinkat("victim", dir_fd, ".flamed-tmp-0"), 0);
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
	assert_int_equal(directory_new(&none, loop, -1, path, 1 << 20, on_fate, NULL), 0);
	add(none, 1, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_WRITE_FAILED], 2);
	directory_stats(none, &s);
	assert_string_equal(s.last_error, "it is not open");
	directory_free(none);
}

static void a_file_has_its_name_and_its_fate_when_the_disk_has_it(void **state)
{
	struct directory *d = open_directory(1 << 20);

	(void)state;
	for (unsigned int i = 0; i < DIRECTORY_GROUP - 1; i++)
		add_unsynced(d, i + 1, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 0);
	assert_false(has_young(1));
	add_unsynced(d, 99, "svc", 1800000000, 1000);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], DIRECTORY_GROUP);
	add_unsynced(d, 100, "svc", 1800000000, 1000);
	directory_sync(d);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], DIRECTORY_GROUP + 1);
	assert_int_equal(count_files(), DIRECTORY_GROUP + 1);
	add_unsynced(d, 101, "svc", 1800000000, 1000);
	directory_free(d); /* half of a group leaves nothing */
	assert_int_equal(count_files(), DIRECTORY_GROUP + 1);
}

/* A small file takes a block, which is what the disk has less. */
static void what_counts_are_blocks(void **state)
{
	struct directory *d = open_directory(64 * 1024);

	(void)state;
	for (unsigned int i = 0; i < 100; i++)
		add(d, i + 1, "svc", 1800000000 + i, 600);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 100);
	assert_int_equal(count_files(), 16);
	directory_free(d);
}

static void make_files(const char *format, unsigned int n)
{
	char name[128];

	for (unsigned int i = 0; i < n; i++) {
		CLEANUP_FD int fd = -1;

		snprintf(name, sizeof(name), format, i / 3600, i / 60 % 60, i % 60, i);
		fd = openat(dir_fd, name, O_WRONLY | O_CREAT, 0600);
		assert_true(fd >= 0);
		assert_int_equal(write(fd, "x", 1), 1);
	}
}

#define OURS "20260101T%02u%02u%02uZ-x-%016x.pb.gz"

static void of_very_many_files_the_oldest_are_deleted_first(void **state)
{
	enum { N = SHELF_OLDEST_MAX + 1000 };
	CLEANUP(shelf_freep) struct shelf *s = NULL;
	char name[128];
	int err = 0;

	(void)state;
	make_files("foreign-%u-%u-%u-%u.pb.gz", 1000);
	make_files(OURS, N);
	assert_int_equal(shelf_new(&s, dir_fd), 0);
	for (unsigned int pieces = 0; !err; pieces++)
		err = shelf_look(s, 0); /* a piece each time */
	assert_int_equal(err, 1);
	assert_int_equal(shelf_bytes(s), N * 4096);
	for (unsigned int i = 0; i < SHELF_OLDEST_MAX; i++) {
		snprintf(name, sizeof(name), OURS, i / 3600, i / 60 % 60, i % 60, i);
		assert_true(has(name));
		assert_int_equal(shelf_delete(s), 1);
		assert_false(has(name));
	}
	assert_int_equal(shelf_delete(s), 0);
	assert_true(shelf_wants_look(s));
	while (!(err = shelf_look(s, 0)))
		;
	assert_int_equal(err, 1);
	assert_int_equal(shelf_bytes(s), (N - SHELF_OLDEST_MAX) * 4096);
	assert_false(shelf_wants_look(s));
	assert_int_equal(count_files(), 1000 + N - SHELF_OLDEST_MAX);
}

static void a_huge_directory_costs_a_profile_little_time(void **state)
{
	struct directory *d;
	struct sink_stats s;
	unsigned int n = 0;

	(void)state;
	make_files(OURS, 3 * SHELF_OLDEST_MAX);
	d = open_directory(1 << 20); /* 256 of these: the others have to go */
	while (count_files() > 256 && n < 1000) {
		uint64_t begin = clock_mono_ns();

		add(d, ++n, "svc", 1800000000, 1000);
		assert_int_equal(loop_once(loop, 60 * NSEC_PER_MSEC), 0);
		directory_stats(d, &s);
		assert_true(!strcmp(s.state, "ok") || !strcmp(s.last_error, "it is over output.max_bytes"));
		assert_true(clock_mono_ns() - begin < 2 * NSEC_PER_SEC);
	}
	assert_int_equal(count_files(), 256);
	directory_free(d);
}

static void a_full_file_system_gives_up_the_oldest(void **state)
{
	struct directory *d;
	struct sink_stats s;

	(void)state;
	if (geteuid() || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", path, "tmpfs", 0, "size=256k"))
		skip();
	close(dir_fd);
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = open_directory(1 << 20);
	for (unsigned int i = 0; i < 200; i++)
		add(d, i + 1, "svc", 1800000000 + i, 8000);
	directory_stats(d, &s);
	assert_int_equal(fates[EXPORT_FATE_DELIVERED], 200);
	assert_true(has_young(200));
	assert_true(count_files() > 16);
	directory_free(d);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
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
		IN_DIRECTORY(a_file_has_its_name_and_its_fate_when_the_disk_has_it),
		IN_DIRECTORY(what_counts_are_blocks),
		IN_DIRECTORY(of_very_many_files_the_oldest_are_deleted_first),
		IN_DIRECTORY(a_huge_directory_costs_a_profile_little_time),
		IN_DIRECTORY(a_full_file_system_gives_up_the_oldest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
