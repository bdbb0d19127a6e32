#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/files.h"
#include "tests/unit/alloc_fail.h"

static const struct file_key key1 = { .dev_major = 8,
				      .dev_minor = 1,
				      .inode = 100,
				      .generation = 5,
				      .generation_known = true };

static struct file *get(struct files *f, const struct file_key *key, const char *path)
{
	struct file *file = NULL;

	assert_int_equal(files_get(f, key, path, &file), 0);
	assert_non_null(file);
	return file;
}

static int some_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void the_same_key_and_path_are_the_same_file(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file_key other = key1;
	struct file *a;

	assert_int_equal(files_new(&f), 0);
	a = get(f, &key1, "/bin/a");
	assert_int_equal(a->id, 1);
	assert_int_equal(a->state, FILE_NEW);
	assert_int_equal(a->fd, -1);
	assert_ptr_equal(get(f, &key1, "/bin/a"), a);
	assert_ptr_not_equal(get(f, &key1, "/bin/b"), a);
	other.generation = 6;
	assert_ptr_not_equal(get(f, &other, "/bin/a"), a);
	other = key1;
	other.generation_known = false;
	assert_ptr_not_equal(get(f, &other, "/bin/a"), a);
	other = key1;
	other.dev_minor = 2;
	assert_ptr_not_equal(get(f, &other, "/bin/a"), a);
	assert_int_equal(files_count(f), 5);
	assert_ptr_equal(files_find(f, 1), a);
	assert_null(files_find(f, 0));
	assert_null(files_find(f, 6));
}

static void a_second_key_of_an_opened_file_becomes_its_alias(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file_identity identity = { 1, 2, 3, 4 };
	int fd1 = some_fd(), fd2 = some_fd();
	struct file *a, *b;

	assert_int_equal(files_new(&f), 0);
	a = get(f, &key1, "/lower/a");
	b = get(f, &key1, "/merged/a");
	files_opened(f, a, &identity, fd1);
	assert_int_equal(a->state, FILE_OPEN);
	assert_int_equal(a->fd, fd1);
	files_opened(f, b, &identity, fd2);
	assert_int_equal(b->state, FILE_ALIAS);
	assert_ptr_equal(file_resolve(b), a);
	assert_ptr_equal(file_resolve(a), a);
	assert_int_equal(a->refs, 1);
	assert_false(is_open(fd2));
	assert_true(is_open(fd1));
	file_close(a);
	assert_false(is_open(fd1));
	assert_int_equal(a->state, FILE_OPEN);
}

static void another_ctime_is_another_file(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file_identity old = { 1, 2, 3, 4 }, new = { 1, 2, 30, 4 };
	struct file *a, *b;

	assert_int_equal(files_new(&f), 0);
	a = get(f, &key1, "/a");
	b = get(f, &key1, "/b");
	files_opened(f, a, &old, -1);
	files_opened(f, b, &new, -1);
	assert_int_equal(b->state, FILE_OPEN);
	assert_ptr_equal(file_resolve(b), b);
}

static void a_reopened_file_must_be_the_same_one(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file_identity identity = { 1, 2, 3, 4 }, other = { 1, 2, 3, 5 };
	int fd1 = some_fd(), fd2 = some_fd();
	struct file *a;

	assert_int_equal(files_new(&f), 0);
	a = get(f, &key1, "/a");
	files_opened(f, a, &identity, -1);
	files_opened(f, a, &other, fd1);
	assert_false(is_open(fd1));
	assert_int_equal(a->fd, -1);
	files_opened(f, a, &identity, fd2);
	assert_int_equal(a->fd, fd2);
}

static void a_failed_file_is_its_own(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file *a;

	assert_int_equal(files_new(&f), 0);
	a = get(f, &key1, "/a");
	files_failed(f, a);
	assert_int_equal(a->state, FILE_FAILED);
	assert_ptr_equal(file_resolve(a), a);
	/* A later try may succeed. */
	files_opened(f, a, &(struct file_identity){ 1, 2, 3, 4 }, -1);
	assert_int_equal(a->state, FILE_OPEN);
	files_failed(f, a);
	assert_int_equal(a->state, FILE_OPEN);
}

static void unused_files_go_after_their_time_and_ids_never_return(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	int fd = some_fd();
	struct file *a, *b;

	assert_int_equal(files_new(&f), 0);
	a = file_ref(get(f, &key1, "/a"));
	b = get(f, &key1, "/b");
	files_opened(f, b, &(struct file_identity){ 1, 2, 3, 4 }, fd);
	files_sweep(f, 1000, 100);
	assert_int_equal(files_count(f), 2);
	files_sweep(f, 1099, 100);
	assert_int_equal(files_count(f), 2);
	/* A use in between starts the time anew. */
	file_ref(b);
	file_unref(b);
	files_sweep(f, 1100, 100);
	assert_int_equal(files_count(f), 2);
	files_sweep(f, 1200, 100);
	assert_int_equal(files_count(f), 1);
	assert_false(is_open(fd));
	assert_null(files_find(f, 2));
	assert_ptr_equal(files_find(f, 1), a);
	assert_int_equal(get(f, &key1, "/b")->id, 3);
	/* A clock that goes back forgets nothing. */
	files_sweep(f, 1300, 100);
	files_sweep(f, 10, 100);
	assert_int_equal(files_count(f), 2);
	file_unref(a);
}

static void an_alias_keeps_its_canonical_file(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file_identity identity = { 1, 2, 3, 4 };
	struct file *a, *b;

	assert_int_equal(files_new(&f), 0);
	a = get(f, &key1, "/a");
	b = file_ref(get(f, &key1, "/b"));
	files_opened(f, a, &identity, -1);
	files_opened(f, b, &identity, -1);
	files_sweep(f, 1, 0);
	files_sweep(f, 1000, 0);
	assert_int_equal(files_count(f), 2);
	file_unref(b);
	files_sweep(f, 1001, 0);
	files_sweep(f, 1002, 0);
	assert_int_equal(files_count(f), 0);
	/* A forgotten canonical file cannot be found by its identity. */
	b = get(f, &key1, "/b");
	files_opened(f, b, &identity, -1);
	assert_int_equal(b->state, FILE_OPEN);
}

static void room_is_made_of_what_nobody_maps(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	struct file_identity id = { .inode = 1 };
	struct file *used, *unused;
	int fd = some_fd();

	assert_int_equal(files_new(&f), 0);
	used = file_ref(get(f, &key1, "/used"));
	used->state = FILE_OPENING;
	files_opened(f, used, &id, some_fd());
	assert_true(files_room(f, 2));
	unused = get(f, &key1, "/unused");
	unused->state = FILE_OPENING;
	id.inode = 2;
	files_opened(f, unused, &id, fd);
	assert_true(files_room(f, 3));
	assert_true(is_open(fd));
	assert_true(files_room(f, 2)); /* the unused one gave way */
	assert_false(is_open(fd));
	assert_int_equal(files_count(f), 1);
	assert_false(files_room(f, 1));
	assert_true(is_open(used->fd));
	file_unref(used);
}

static void thousands_of_files_are_found_again(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	enum { N = 5000 };
	char path[64];

	assert_int_equal(files_new(&f), 0);
	for (int round = 0; round < 2; round++)
		for (uint64_t i = 0; i < N; i++) {
			struct file_key key = { .inode = i / 2 };
			struct file *file;

			(void)snprintf(path, sizeof(path), "/dir/%d", (int)(i % 7));
			file = get(f, &key, path);
			if (round == 0)
				files_opened(f, file, &(struct file_identity){ .inode = file->id },
					     -1);
			assert_ptr_equal(files_find(f, file->id), file);
		}
	assert_true(files_count(f) <= N);
	assert_true(files_bytes(f) > files_count(f) * sizeof(struct file));
	files_sweep(f, 1, 0);
	assert_int_equal(files_count(f), 0);
}

static void a_workload_cannot_fill_the_memory_with_paths(void **state UNUSED)
{
	CLEANUP(files_freep) struct files *f = NULL;
	char path[PATH_MAX + 100];
	struct file *file;
	int err = 0;

	assert_int_equal(files_new(&f), 0);
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	for (uint64_t i = 0; i < 100000 && !err; i++)
		err = files_get(f, &(struct file_key){ .inode = i }, path, &file);
	assert_int_equal(err, -E2BIG);
	assert_true(files_bytes(f) < FILES_BYTES_MAX + (1 << 20));
	/* What is known is still found. */
	assert_int_equal(files_get(f, &(struct file_key){ .inode = 0 }, path, &file), 0);
	assert_int_equal(file->id, 1);
}

static void a_failed_allocation_adds_nothing(void **state UNUSED)
{
	int err = -ENOMEM;

	for (long nth = 1; err; nth++) {
		CLEANUP(files_freep) struct files *f = NULL;
		struct file *file = NULL;

		alloc_fail_nth(nth);
		err = files_new(&f);
		if (!err)
			err = files_get(f, &key1, "/a", &file);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		if (f)
			assert_int_equal(files_count(f), err ? 0 : 1);
		assert_true(nth < 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_key_and_path_are_the_same_file),
		cmocka_unit_test(a_second_key_of_an_opened_file_becomes_its_alias),
		cmocka_unit_test(another_ctime_is_another_file),
		cmocka_unit_test(a_reopened_file_must_be_the_same_one),
		cmocka_unit_test(a_failed_file_is_its_own),
		cmocka_unit_test(unused_files_go_after_their_time_and_ids_never_return),
		cmocka_unit_test(an_alias_keeps_its_canonical_file),
		cmocka_unit_test(room_is_made_of_what_nobody_maps),
		cmocka_unit_test(thousands_of_files_are_found_again),
		cmocka_unit_test(a_workload_cannot_fill_the_memory_with_paths),
		cmocka_unit_test(a_failed_allocation_adds_nothing),
	};

	return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
