#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/place.h"

enum { USER = 4241, GROUP = 4242 };

static char dir[64], inside[128];

static int setup(void **state UNUSED)
{
	snprintf(dir, sizeof(dir), "/tmp/flamed-place-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(inside, sizeof(inside), "%s/run", dir);
	return 0;
}

static const char *in(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", inside, name);
	return path;
}

static int teardown(void **state UNUSED)
{
	unlink(in("flamed.lock"));
	unlink(in("flamed.sock"));
	unlink(in("page.token"));
	rmdir(inside);
	return rmdir(dir);
}

static void open_place(struct place *p)
{
	char *why = NULL;

	assert_int_equal(place_open(p, inside, USER, GROUP, &why), 0);
	assert_null(why);
}

static void the_directory_is_made_and_the_lock_says_who_has_it(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char text[32] = "";
	struct stat st;
	pid_t pid = -1;
	int fd;

	open_place(&p);
	assert_int_equal(stat(inside, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	assert_int_equal(place_lock(&p, &pid), 0);
	fd = open(in("flamed.lock"), O_RDONLY);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_int_equal(atoi(text), getpid());
	place_close(&p);
}

static void nobody_else_can_take_the_lock(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	struct stat st;

	/* As older versions made it. */
	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(close(open(in("flamed.lock"), O_CREAT | O_WRONLY, 0644)), 0);
	open_place(&p);
	assert_int_equal(stat(in("flamed.lock"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	place_close(&p);
}

static void a_lock_in_a_directory_that_was_removed_is_not_the_current_one(void **state UNUSED)
{
	struct place p = PLACE_INIT, other = PLACE_INIT;
	pid_t pid;

	open_place(&p);
	assert_int_equal(place_lock(&p, &pid), 0);
	assert_true(place_is_current(&p, inside));
	assert_int_equal(unlink(in("flamed.lock")), 0);
	assert_int_equal(rmdir(inside), 0);
	assert_false(place_is_current(&p, inside));
	open_place(&other);
	assert_false(place_is_current(&p, inside));
	assert_true(place_is_current(&other, inside));
	place_close(&p);
	place_close(&other);
}

static void a_directory_that_everybody_shares_is_refused(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char *why = NULL;

	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(chmod(inside, 01777), 0);
	assert_int_equal(place_open(&p, inside, USER, GROUP, &why), -EPERM);
	assert_non_null(strstr(why, "everybody can write to"));
	free(why);
	place_close(&p);
}

static void a_second_one_learns_the_pid_and_gets_the_lock_when_the_first_dies(void **state UNUSED)
{
	struct place mine = PLACE_INIT;
	int ready[2];
	pid_t child, holder = -1;
	char byte;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		struct place theirs = PLACE_INIT;
		char *why;
		pid_t pid;

		if (place_open(&theirs, inside, USER, GROUP, &why) || place_lock(&theirs, &pid))
			_exit(1);
		(void)!write(ready[1], "x", 1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	open_place(&mine);
	assert_int_equal(place_lock(&mine, &holder), -EWOULDBLOCK);
	assert_int_equal(holder, child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(place_lock(&mine, &holder), 0);
	place_close(&mine);
	close(ready[0]);
	close(ready[1]);
}

static void check_file(const char *name, mode_t mode)
{
	struct stat st;

	assert_int_equal(lstat(in(name), &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	if (geteuid() == 0)
		assert_int_equal(st.st_gid, GROUP);
}

static void socket_and_token_are_for_the_group(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char *why = NULL, text[64] = "";
	struct stat st;
	pid_t pid;
	int fd;

	umask(0077); /* whatever it is */
	open_place(&p);
	assert_int_equal(place_lock(&p, &pid), 0);
	assert_int_equal(place_settle(&p, GROUP, &why), 0);
	umask(0022);
	assert_int_equal(stat(inside, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	check_file("flamed.sock", 0660);
	check_file("page.token", 0640);
	assert_int_equal(strlen(p.token), PLACE_TOKEN_LEN);
	assert_int_equal(strspn(p.token, "0123456789abcdef"), PLACE_TOKEN_LEN);
	fd = open(in("page.token"), O_RDONLY);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_memory_equal(text, p.token, PLACE_TOKEN_LEN);
	place_close(&p);
	assert_int_equal(access(in("flamed.sock"), F_OK), -1);
	assert_int_equal(access(in("page.token"), F_OK), -1);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), r;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return r;
}

static void what_a_dead_daemon_left_is_replaced(void **state UNUSED)
{
	struct place first = PLACE_INIT, second = PLACE_INIT;
	char *why = NULL;
	pid_t pid;

	open_place(&first);
	assert_int_equal(place_lock(&first, &pid), 0);
	assert_int_equal(place_settle(&first, (gid_t)-1, &why), 0);
	assert_int_equal(connect_to(in("flamed.sock")), 0);
	/* It dies: nothing is removed. */
	close(first.control_fd);
	close(first.lock_fd);
	close(first.dir_fd);
	assert_int_equal(connect_to(in("flamed.sock")), -1);
	open_place(&second);
	assert_int_equal(place_lock(&second, &pid), 0);
	assert_int_equal(place_settle(&second, (gid_t)-1, &why), 0);
	assert_int_equal(connect_to(in("flamed.sock")), 0);
	assert_string_not_equal(first.token, second.token);
	place_close(&second);
}

static void no_link_is_followed(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char *why = NULL, victim[160];
	struct stat st;
	pid_t pid;
	int fd;

	snprintf(victim, sizeof(victim), "%s/victim", dir);
	fd = open(victim, O_CREAT | O_WRONLY, 0600);
	close(fd);
	/* The directory is itself a link. */
	assert_int_equal(symlink(dir, inside), 0);
	assert_int_equal(place_open(&p, inside, USER, GROUP, &why), -ENOTDIR);
	assert_non_null(strstr(why, "symbolic link"));
	free(why);
	place_close(&p);
	unlink(inside);
	/* The lock is one. */
	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(symlink(victim, in("flamed.lock")), 0);
	assert_int_equal(place_open(&p, inside, USER, GROUP, &why), -ELOOP);
	free(why);
	place_close(&p);
	unlink(in("flamed.lock"));
	/* Token and socket are: they are replaced, and what they point to is left alone. */
	assert_int_equal(symlink(victim, in("page.token")), 0);
	assert_int_equal(symlink(victim, in("flamed.sock")), 0);
	open_place(&p);
	assert_int_equal(place_lock(&p, &pid), 0);
	assert_int_equal(place_settle(&p, GROUP, &why), 0);
	assert_int_equal(stat(victim, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_not_equal(st.st_gid, GROUP);
	check_file("flamed.sock", 0660);
	place_close(&p);
	unlink(victim);
}

static void a_directory_that_a_stranger_lets_everybody_write_to_is_refused(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char *why = NULL;

	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(chown(inside, 4343, 0), 0);
	assert_int_equal(chmod(inside, 0777), 0);
	assert_int_equal(place_open(&p, inside, USER, GROUP, &why), -EPERM);
	assert_non_null(strstr(why, "runtime_directory"));
	free(why);
	place_close(&p);
}

static void check_directory(uid_t uid, gid_t gid, mode_t mode, int want, const char *text)
{
	struct place p = PLACE_INIT;
	char *why = NULL;

	assert_int_equal(chown(inside, uid, gid), 0);
	assert_int_equal(chmod(inside, mode), 0);
	assert_int_equal(place_open(&p, inside, USER, GROUP, &why), want);
	if (text)
		assert_non_null(strstr(why, text));
	free(why);
	place_close(&p);
}

static void the_directory_must_be_of_somebody_who_is_trusted(void **state UNUSED)
{
	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdir(inside, 0755), 0);
	check_directory(0, 0, 0755, 0, NULL);
	check_directory(USER, GROUP, 0755, 0, NULL);
	check_directory(USER, GROUP, 0775, 0, NULL);
	check_directory(0, 0, 0777, 0, NULL); /* an emptyDir */
	check_directory(4343, 0, 0755, -EPERM, "another user (uid 4343)");
	check_directory(0, 4343, 0775, -EPERM, "a group (gid 4343)");
	check_directory(0, 4343, 0755, 0, NULL);
	check_directory(USER, GROUP, 0757, -EPERM, "everybody can write");
}

/* Who can make links there, by a directory that was open once, must not have a file of root's written. */
static void a_lock_with_another_name_is_refused(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char *why = NULL, victim[160];
	struct stat st;

	snprintf(victim, sizeof(victim), "%s/victim", dir);
	assert_int_equal(close(open(victim, O_CREAT | O_WRONLY, 0644)), 0);
	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(link(victim, in("flamed.lock")), 0);
	assert_int_equal(place_open(&p, inside, USER, GROUP, &why), -EMLINK);
	assert_non_null(strstr(why, "remove it"));
	assert_int_equal(stat(victim, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	free(why);
	place_close(&p);
	unlink(victim);
}

static void fill(const char *path)
{
	static const char bytes[4096];
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	while (write(fd, bytes, sizeof(bytes)) > 0)
		;
	close(fd);
}

static void a_full_disk_is_said_to_be_full(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(mount("none", inside, "tmpfs", 0, "size=4k,mode=0755"), 0);
	open_place(&p);
	fill(in("full"));
	assert_int_equal(place_lock(&p, &pid), -ENOSPC);
	place_close(&p);
	assert_int_equal(umount(inside), 0);
}

static void a_directory_that_cannot_be_made_says_what_to_do(void **state UNUSED)
{
	struct place p = PLACE_INIT;
	char *why = NULL;

	assert_int_equal(place_open(&p, "/nonexistent/flamed", USER, GROUP, &why), -ENOENT);
	assert_non_null(strstr(why, "runtime_directory"));
	free(why);
	place_close(&p);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_directory_is_made_and_the_lock_says_who_has_it),
		TEST(nobody_else_can_take_the_lock),
		TEST(a_lock_in_a_directory_that_was_removed_is_not_the_current_one),
		TEST(a_directory_that_everybody_shares_is_refused),
		TEST(a_second_one_learns_the_pid_and_gets_the_lock_when_the_first_dies),
		TEST(socket_and_token_are_for_the_group),
		TEST(what_a_dead_daemon_left_is_replaced),
		TEST(no_link_is_followed),
		TEST(a_directory_that_a_stranger_lets_everybody_write_to_is_refused),
		TEST(the_directory_must_be_of_somebody_who_is_trusted),
		TEST(a_lock_with_another_name_is_refused),
		TEST(a_full_disk_is_said_to_be_full),
		TEST(a_directory_that_cannot_be_made_says_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
