#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/debugfiles.h"
#include "base/clock.h"

/* ---- what stands for the reader and the symbolizer ---- */

static struct {
	uint32_t pid;
	char path[256];
	readerclient_file_fn *fn;
	void *arg;
	bool waits;
} asked;
static uint32_t nasked, nlinks, nshown;
static struct msg_debug shown;
static int shown_fd;
static symclient_link_fn *link_fn;
static symclient_debugged_fn *debugged_fn;
static void *debug_arg;

int readerclient_debug(struct readerclient *c UNUSED, uint32_t pid, const char *path, readerclient_file_fn *fn, void *arg)
{
	assert_false(asked.waits);
	asked.pid = pid;
	snprintf(asked.path, sizeof(asked.path), "%s", path);
	asked.fn = fn;
	asked.arg = arg;
	asked.waits = true;
	nasked++;
	return 0;
}

/* What is asked for by others. */
static size_t others;

size_t readerclient_pending(const struct readerclient *c UNUSED)
{
	return others + asked.waits;
}

void symclient_on_debug(struct symclient *c UNUSED, symclient_link_fn *link, symclient_debugged_fn *debugged, void *arg)
{
	link_fn = link;
	debugged_fn = debugged;
	debug_arg = arg;
}

int symclient_link(struct symclient *c UNUSED, uint64_t file_id UNUSED, int fd UNUSED)
{
	nlinks++;
	return 0;
}

int symclient_debug(struct symclient *c UNUSED, const struct msg_debug *d, int fd)
{
	shown = *d;
	shown_fd = fd;
	nshown++;
	return 0;
}

static struct debugfiles *new_files(uint64_t nopen)
{
	struct debugfiles *d;

	asked.waits = false;
	nasked = nlinks = nshown = 0;
	assert_int_equal(debugfiles_new(&d, NULL, NULL, nopen), 0);
	return d;
}

static void meet(struct debugfiles *d, uint64_t id, uint64_t now_ns)
{
	debugfiles_opening(d, &(struct reader_open){ .file_id = id, .npids = 1, .pids = { 77 }, .path = "/opt/dir/program" });
	assert_int_equal(debugfiles_met(d, id, 5, now_ns), 0);
}

static void tell_link(uint64_t id, bool wanted, const char *name)
{
	struct msg_link l = { .file_id = id, .is_wanted = wanted, .build_id = { 0xab, 0xcd, 0xef }, .build_id_len = 3, .crc = 9 };

	strcpy(l.name, name);
	assert_int_equal(link_fn(debug_arg, &l), 0);
}

static void answer_open(int error)
{
	struct reader_opened o = { .error = error };

	assert_true(asked.waits);
	asked.waits = false;
	others++; /* as long as it is being answered */
	assert_int_equal(asked.fn(asked.arg, &o, error ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC)), 0);
	others--;
}

static void tell_taken(uint64_t id, bool taken)
{
	assert_int_equal(debugged_fn(debug_arg, &(struct msg_debugged){ .file_id = id, .is_taken = taken }), 0);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* ---- tests ---- */

static void each_candidate_is_looked_for_in_both_roots(void **state UNUSED)
{
	static const char *const paths[] = {
		"/usr/lib/debug/.build-id/ab/cdef.debug", "/opt/dir/program.dbg", "/opt/dir/.debug/program.dbg",
		"/usr/lib/debug/opt/dir/program.dbg",
	};
	struct debugfiles *d = new_files(8);

	meet(d, 1, 0);
	assert_int_equal(nlinks, 1);
	tell_link(1, true, "program.dbg");
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		for (int host = 0; host < 2; host++) {
			assert_string_equal(asked.path, paths[i]);
			assert_int_equal(asked.pid, host ? 0 : 77);
			if (i == 2) { /* there, and not the one */
				answer_open(0);
				assert_true(shown.by_crc && shown.crc == 9 && shown.file_id == 1);
				tell_taken(1, false);
				assert_false(is_open(shown_fd));
			} else {
				answer_open(ENOENT);
			}
		}
	}
	assert_int_equal(nasked, 8);
	assert_false(asked.waits);
	/* Not again before its time. */
	assert_int_equal(debugfiles_met(d, 1, 5, clock_mono_ns() + DEBUGFILES_AGAIN_NS / 2), 0);
	assert_false(asked.waits);
	assert_int_equal(debugfiles_met(d, 1, 5, clock_mono_ns() + DEBUGFILES_AGAIN_NS + NSEC_PER_SEC), 0);
	assert_int_equal(debugfiles_turn(d, 0), 0);
	assert_string_equal(asked.path, paths[0]);
	assert_int_equal(nlinks, 1);
	debugfiles_free(d);
}

static void what_is_not_wanted_is_not_looked_for(void **state UNUSED)
{
	struct debugfiles *d = new_files(8);

	meet(d, 1, 0);
	tell_link(1, false, "");
	meet(d, 2, 0);
	tell_link(2, true, "");
	assert_int_equal(nasked, 1); /* the second by its build ID alone */
	answer_open(ENOENT);
	answer_open(ENOENT);
	assert_false(asked.waits);
	assert_int_equal(debugfiles_met(d, 1, 5, UINT64_MAX - 1), 0);
	assert_int_equal(debugfiles_met(d, 99, 5, 0), 0); /* never opened */
	assert_int_equal(nasked, 2);
	debugfiles_free(d);
}

static void a_found_file_is_shown_before_names_are_asked_for(void **state UNUSED)
{
	struct debugfiles *d = new_files(8);
	int fd;

	meet(d, 1, 0);
	tell_link(1, true, "");
	answer_open(0);
	assert_true(!shown.by_crc && shown.build_id_len == 3 && nshown == 1);
	fd = shown_fd;
	/* Before it is known to be the one, it is no answer. */
	assert_int_equal(debugfiles_naming(d, 1, 1), 0);
	assert_int_equal(nshown, 1);
	tell_taken(1, true);
	assert_int_equal(debugfiles_naming(d, 1, 2), 0);
	assert_int_equal(nshown, 2);
	assert_int_equal(shown_fd, fd);
	/* Not used for a while: closed, and looked for where it was when it is wanted again. */
	debugfiles_tidy(d, 2 + DEBUGFILES_IDLE_NS + 1);
	assert_false(is_open(fd));
	assert_int_equal(debugfiles_naming(d, 1, DEBUGFILES_IDLE_NS + 3), 0);
	assert_int_equal(nshown, 2);
	assert_int_equal(debugfiles_turn(d, 0), 0);
	assert_string_equal(asked.path, "/usr/lib/debug/.build-id/ab/cdef.debug");
	answer_open(0);
	assert_int_equal(nshown, 3);
	debugfiles_free(d);
	assert_false(is_open(shown_fd));
}

static void where_the_reader_hung_it_is_not_asked_again_at_once(void **state UNUSED)
{
	struct debugfiles *d = new_files(8);

	meet(d, 1, 0);
	tell_link(1, true, "program.dbg");
	answer_open(ETIMEDOUT);
	assert_false(asked.waits);
	assert_int_equal(nasked, 1);
	debugfiles_free(d);
}

static void files_that_are_sampled_come_first(void **state UNUSED)
{
	struct debugfiles *d = new_files(8);

	others = 1;
	meet(d, 1, 0);
	meet(d, 2, 0);
	tell_link(1, true, "");
	tell_link(2, true, "");
	assert_int_equal(debugfiles_turn(d, 0), 0);
	assert_int_equal(nasked, 0);
	others = 0;
	assert_int_equal(debugfiles_turn(d, 0), 0);
	assert_int_equal(debugfiles_turn(d, 0), 0);
	assert_int_equal(nasked, 1); /* one at a time */
	others = 1;
	answer_open(ENOENT);
	assert_int_equal(nasked, 1);
	others = 0;
	for (uint32_t i = 2; i <= 4; i++) {
		assert_int_equal(debugfiles_turn(d, 0), 0);
		assert_int_equal(nasked, i);
		answer_open(ENOENT);
	}
	assert_false(asked.waits);
	debugfiles_free(d);
}

static void what_a_debug_file_needs_is_looked_for_too(void **state UNUSED)
{
	struct msg_debugged found = { .file_id = 1, .is_taken = true, .alt_build_id = { 1, 2 }, .alt_build_id_len = 2,
				      .alt_path = "../.dwz/x" };
	struct debugfiles *d = new_files(8);
	int debug_fd;

	meet(d, 1, 0);
	tell_link(1, true, "program.dbg");
	answer_open(ENOENT);
	answer_open(ENOENT);
	answer_open(0); /* /opt/dir/program.dbg */
	debug_fd = shown_fd;
	assert_int_equal(debugged_fn(debug_arg, &found), 0);
	for (int host = 0; host < 2; host++) {
		assert_string_equal(asked.path, "/usr/lib/debug/.build-id/01/02.debug");
		answer_open(ENOENT);
	}
	assert_string_equal(asked.path, "/opt/dir/../.dwz/x");
	answer_open(0);
	assert_true(shown.is_alt && !shown.by_crc && shown.build_id_len == 2 && shown.build_id[1] == 2);
	found.is_alt = true;
	assert_int_equal(debugged_fn(debug_arg, &found), 0);
	nshown = 0;
	assert_int_equal(debugfiles_naming(d, 1, 5), 0);
	assert_int_equal(nshown, 2);
	assert_true(shown.is_alt && is_open(debug_fd));
	debugfiles_free(d);
	assert_false(is_open(debug_fd));
}

static void descriptors_are_bounded(void **state UNUSED)
{
	struct debugfiles *d = new_files(2);
	int fds[3];

	for (uint64_t id = 1; id <= 3; id++) {
		meet(d, id, id);
		tell_link(id, true, "");
		answer_open(0);
		fds[id - 1] = shown_fd;
		tell_taken(id, true);
		if (id == 2) /* the first was used last */
			assert_int_equal(debugfiles_naming(d, 1, clock_mono_ns() + NSEC_PER_SEC), 0);
		assert_true(is_open(fds[id - 1]));
	}
	/* The second gave way. */
	assert_true(is_open(fds[0]) && !is_open(fds[1]) && is_open(fds[2]));
	debugfiles_free(d);
	assert_false(is_open(fds[0]));
}

static void of_more_files_than_are_kept_the_oldest_are_forgotten(void **state UNUSED)
{
	struct debugfiles *d = new_files(8);

	for (uint64_t id = 1; id <= 3 * DEBUGFILES_MAX; id++)
		debugfiles_opening(d, &(struct reader_open){ .file_id = id, .path = "/a" });
	assert_int_equal(debugfiles_met(d, 1, 5, 0), 0);
	assert_int_equal(nlinks, 0);
	assert_int_equal(debugfiles_met(d, 3 * DEBUGFILES_MAX, 5, 0), 0);
	assert_int_equal(nlinks, 1);
	debugfiles_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_candidate_is_looked_for_in_both_roots),
		cmocka_unit_test(what_is_not_wanted_is_not_looked_for),
		cmocka_unit_test(a_found_file_is_shown_before_names_are_asked_for),
		cmocka_unit_test(where_the_reader_hung_it_is_not_asked_again_at_once),
		cmocka_unit_test(files_that_are_sampled_come_first),
		cmocka_unit_test(what_a_debug_file_needs_is_looked_for_too),
		cmocka_unit_test(descriptors_are_bounded),
		cmocka_unit_test(of_more_files_than_are_kept_the_oldest_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
