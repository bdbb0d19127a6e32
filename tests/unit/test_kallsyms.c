#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/kallsyms.h"
#include "base/clock.h"
#include "base/log.h"

#define BASE 0xffffffff81000000ull

/* ---- the kernel that runs, against the simplest possible reading ------------------------------ */

struct symbol {
	uint64_t address;
	char type;
	char name[512];
};

static struct symbol *symbols;
static size_t nsymbols;
static uint64_t text, stext, end;

static void read_naively(void)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[1024];
	size_t cap = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		struct symbol s = { 0 };
		char module[64] = "";
		unsigned long long address;

		if (sscanf(line, "%llx %c %511s %63s", &address, &s.type, s.name, module) < 3 || module[0])
			continue;
		s.address = address;
		if (strcmp(s.name, "_text") == 0)
			text = address;
		if (strcmp(s.name, "_stext") == 0)
			stext = address;
		if (strcmp(s.name, "_etext") == 0)
			end = address;
		if (nsymbols == cap) {
			cap = cap ? cap * 2 : 65536;
			symbols = realloc(symbols, cap * sizeof(*symbols));
			assert_non_null(symbols);
		}
		symbols[nsymbols++] = s;
	}
	fclose(f);
}

static const char *naive_name(uint64_t address)
{
	const struct symbol *best = NULL;

	for (size_t i = 0; i < nsymbols; i++) {
		const struct symbol *s = &symbols[i];

		if (strchr("tTwWi", s->type) && s->address <= address && (!best || s->address > best->address))
			best = s;
	}
	return best ? best->name : "";
}

static int set_up(void **state UNUSED)
{
	read_naively();
	return 0;
}

static int tear_down(void **state UNUSED)
{
	free(symbols);
	return 0;
}

static uint64_t next_random(void)
{
	static uint64_t x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

static void expect_right(const struct event_kernel_symbol *s, uint64_t address)
{
	assert_int_equal(s->address, address);
	assert_string_equal(s->module, "[kernel]");
	assert_int_equal(s->relative, address - text);
	assert_string_equal(s->name, naive_name(address));
}

static void every_address_has_the_name_of_the_symbol_below_it(void **state UNUSED)
{
	struct kallsyms *k = NULL;
	uint64_t addresses[200];
	struct event_kernel_symbol got[200];

	if (!text || !stext || !end)
		skip();
	assert_int_equal(kallsyms_new(&k), 0);
	for (uint32_t round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
			const struct symbol *s = &symbols[next_random() % nsymbols];
			bool inside = s->address >= stext && s->address < end;

			/* Exact starts, places in the middle, anywhere; some twice. */
			addresses[i] = inside ? s->address + (i % 2 ? next_random() % 64 : 0) :
						stext + next_random() % (end - stext);
			if (i % 10 == 9)
				addresses[i] = addresses[i - 5];
			if (addresses[i] >= end)
				addresses[i] = stext;
		}
		assert_int_equal(kallsyms_resolve(k, addresses, ARRAY_SIZE(addresses), got), 0);
		for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
			expect_right(&got[i], addresses[i]);
	}
	kallsyms_free(k);
}

static void more_addresses_than_are_kept_are_answered_too(void **state UNUSED)
{
	enum { N = 70000 };
	uint64_t *addresses = calloc(N, sizeof(*addresses));
	struct event_kernel_symbol *got = calloc(N, sizeof(*got));
	struct kallsyms *k = NULL;

	if (!text || !stext || !end)
		skip();
	assert_true(addresses && got);
	assert_int_equal(kallsyms_new(&k), 0);
	for (uint32_t i = 0; i < N; i++)
		addresses[i] = stext + i * 13;
	for (uint32_t n = 40000; n <= N; n += 15000) { /* the second forgets the first */
		assert_int_equal(kallsyms_resolve(k, addresses, n, got), 0);
		for (uint32_t i = 0; i < n; i += 2999)
			expect_right(&got[i], addresses[i]);
	}
	kallsyms_free(k);
	free(addresses);
	free(got);
}

static void what_is_known_is_not_read_again(void **state UNUSED)
{
	uint64_t address = stext + 100, start;
	struct event_kernel_symbol got;
	struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new(&k), 0);
	assert_int_equal(kallsyms_resolve(k, &address, 1, &got), 0);
	start = clock_cpu_ns();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(kallsyms_resolve(k, &address, 1, &got), 0);
	assert_true(clock_cpu_ns() - start < 50 * NSEC_PER_MSEC);
	kallsyms_free(k);
}

static void other_addresses_do_not_read_the_files_again(void **state UNUSED)
{
	uint64_t address = stext + 100, start;
	struct event_kernel_symbol got;
	struct kallsyms *k = NULL;

	if (!text || !stext || !end)
		skip();
	assert_int_equal(kallsyms_new(&k), 0);
	start = clock_cpu_ns();
	assert_int_equal(kallsyms_resolve(k, &address, 1, &got), 0);
	uint64_t read_ns = clock_cpu_ns() - start;

	start = clock_cpu_ns();
	for (uint32_t i = 0; i < 20; i++) {
		address += 16;
		assert_int_equal(kallsyms_resolve(k, &address, 1, &got), 0);
		expect_right(&got, address);
	}
	assert_true(clock_cpu_ns() - start < 10 * read_ns);
	kallsyms_free(k);
}

/* ---- programs that the side-band tells of ------------------------------------------------------ */

/* Where no symbol is, in the kernel that runs. */
#define NOWHERE 0xffffffffffe00000ull

static void tell(struct kallsyms *k, uint64_t address, uint32_t bytes, const char *name, bool is_bpf, bool gone)
{
	struct event_code code = { .address = address, .bytes = bytes, .name = name, .is_bpf = is_bpf, .gone = gone };

	assert_int_equal(kallsyms_code(k, &code), 0);
}

static void expect_at(struct kallsyms *k, uint64_t address, const char *name, uint64_t relative)
{
	struct event_kernel_symbol got;

	assert_int_equal(kallsyms_resolve(k, &address, 1, &got), 0);
	assert_string_equal(got.name, name);
	assert_string_equal(got.module, name[0] ? "[bpf]" : "[kernel]");
	if (name[0])
		assert_int_equal(got.relative, relative);
}

static void a_program_that_was_loaded_has_its_name_also_when_it_is_gone(void **state UNUSED)
{
	CLEANUP(kallsyms_freep) struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new(&k), 0);
	expect_at(k, NOWHERE + 0x10, "", 0); /* and that is kept */
	tell(k, NOWHERE, 0x40, "bpf_prog_1_a", true, false);
	tell(k, NOWHERE + 0x40, 0x40, "bpf_prog_2_b", true, false);
	expect_at(k, NOWHERE - 1, "", 0);
	expect_at(k, NOWHERE, "bpf_prog_1_a", 0);
	expect_at(k, NOWHERE + 0x10, "bpf_prog_1_a", 0x10);
	expect_at(k, NOWHERE + 0x3f, "bpf_prog_1_a", 0x3f);
	expect_at(k, NOWHERE + 0x40, "bpf_prog_2_b", 0);
	expect_at(k, NOWHERE + 0x80, "", 0);
	tell(k, NOWHERE, 0x40, "bpf_prog_1_a", true, true);
	expect_at(k, NOWHERE + 0x10, "bpf_prog_1_a", 0x10);
}

static void other_code_at_a_programs_place_ends_its_name(void **state UNUSED)
{
	CLEANUP(kallsyms_freep) struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new(&k), 0);
	tell(k, NOWHERE, 0x40, "bpf_prog_1_a", true, false);
	tell(k, NOWHERE + 0x40, 0x40, "bpf_prog_2_b", true, false);
	tell(k, NOWHERE + 0x20, 0x10, "bpf_prog_3_c", true, false);
	expect_at(k, NOWHERE, "", 0);
	expect_at(k, NOWHERE + 0x28, "bpf_prog_3_c", 8);
	expect_at(k, NOWHERE + 0x30, "", 0);
	expect_at(k, NOWHERE + 0x48, "bpf_prog_2_b", 8);
	/* No program: kallsyms knows what it is called. */
	tell(k, NOWHERE + 0x20, 0x10, "trampoline", false, false);
	expect_at(k, NOWHERE + 0x28, "", 0);
	/* What was lost may have been another program's. */
	kallsyms_doubt(k);
	expect_at(k, NOWHERE + 0x48, "", 0);
}

static void programs_are_bounded(void **state UNUSED)
{
	CLEANUP(kallsyms_freep) struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new(&k), 0);
	for (uint32_t i = 0; i < 5000; i++)
		tell(k, NOWHERE + i * 16, 16, "bpf_prog_n", true, false);
	expect_at(k, NOWHERE + 4999 * 16, "bpf_prog_n", 0);
	expect_at(k, NOWHERE, "", 0);
}

/* ---- kernels of our own making ----------------------------------------------------------------- */

struct expectation {
	uint64_t address;
	const char *name, *module;
	uint64_t relative;
};

static bool write_file(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	bool ok = fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* In a child process that sees another /proc. 0: all right; 77: not allowed to. */
static int check_there(const char *kallsyms, const char *modules, const struct expectation *want, size_t n)
{
	struct event_kernel_symbol got[32];
	uint64_t addresses[32];
	struct kallsyms *k;
	int bad = 0;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", 0, NULL))
		return 77;
	if ((kallsyms && !write_file("/proc/kallsyms", kallsyms)) || !write_file("/proc/modules", modules))
		return 78;
	log_init("test", LOG_ERROR);
	if (kallsyms_new(&k))
		return 78;
	for (size_t i = 0; i < n; i++)
		addresses[i] = want[i].address;
	for (int round = 0; round < 2; round++) {
		if (kallsyms_resolve(k, addresses, (uint32_t)n, got))
			return 78;
		for (size_t i = 0; i < n; i++) {
			if (strcmp(got[i].name, want[i].name) == 0 && got[i].relative == want[i].relative &&
			    strcmp(got[i].module, want[i].module) == 0)
				continue;
			bad++;
			fprintf(stderr, "%llx: %s %s+0x%llx\n", (unsigned long long)want[i].address,
				got[i].name, got[i].module, (unsigned long long)got[i].relative);
		}
	}
	kallsyms_free(k);
	return MIN(bad, 50);
}

/* Another module at the place of the old one, another BPF program at the place of the old one. */
static int check_what_comes_later(void)
{
	static const char kernel[] = "ffffffff81000000 T _text\nffffffff81000000 T _stext\n"
				     "ffffffff82000000 T _etext\n";
	char symbols_then[512], symbols_now[512];
	struct event_kernel_symbol got[2];
	struct kallsyms *k;

	snprintf(symbols_then, sizeof(symbols_then), "%s%s", kernel,
		 "ffffffffc0001000 t old_work\t[old]\nffffffffc0008000 t bpf_prog_1\t[bpf]\n");
	snprintf(symbols_now, sizeof(symbols_now), "%s%s", kernel,
		 "ffffffffc0001000 t new_work\t[new]\nffffffffc0008000 t bpf_prog_2\t[bpf]\n");
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", 0, NULL))
		return 77;
	if (!write_file("/proc/kallsyms", symbols_then) ||
	    !write_file("/proc/modules", "old 8192 0 - Live 0xffffffffc0001000\n") || kallsyms_new(&k) ||
	    kallsyms_resolve(k, (uint64_t[]){ 0xffffffffc0001004, 0xffffffffc0008004 }, 2, got) ||
	    strcmp(got[0].name, "old_work") != 0 || strcmp(got[1].name, "bpf_prog_1") != 0)
		return 78;
	if (!write_file("/proc/kallsyms", symbols_now) ||
	    kallsyms_resolve(k, (uint64_t[]){ 0xffffffffc0008008 }, 1, got) || strcmp(got[0].name, "bpf_prog_2") != 0)
		return 79;
	if (!write_file("/proc/kallsyms", symbols_then) ||
	    kallsyms_resolve(k, (uint64_t[]){ 0xffffffffc0008010 }, 1, got) || !write_file("/proc/kallsyms", symbols_now) ||
	    !write_file("/proc/modules", "new 8192 0 - Live 0xffffffffc0001000\n") ||
	    kallsyms_resolve(k, (uint64_t[]){ 0xffffffffc0001008 }, 1, got) || strcmp(got[0].name, "new_work") != 0 ||
	    strcmp(got[0].module, "[new]") != 0)
		return 80;
	kallsyms_free(k);
	return 0;
}

static void code_that_came_later_has_its_own_name(void **state UNUSED)
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(check_what_comes_later());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void expect_there(const char *kallsyms, const char *modules, const struct expectation *want, size_t n)
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(check_there(kallsyms, modules, want, n));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static const char some_kernel[] =
	"ffffffff81000000 T _text\n"
	"ffffffff81000000 T _stext\n"
	"ffffffff81000100 t first\n"
	"ffffffff81000100 t same_place\n"
	"ffffffff81000200 D data_is_no_code\n"
	"ffffffff81000300 W weak\n"
	"this is no symbol\n"
	"\n"
	"ffffffff81000380\n"
	"ffffffff82000000 T _etext\n"
	"ffffffffc0000000 t alpha_init\t[alpha]\n"
	"ffffffffc0001000 t beta_init\t[beta]\n"
	"ffffffffc0001010 t beta_work\t[beta]\n"
	"ffffffffc0008000 t bpf_prog_1234_filter\t[bpf]\n"
	"ffffffffc0009000 t ftrace_trampoline\t[__builtin__ftrace]\n";

/* alpha's size counts its data too, which lies elsewhere: its range covers beta's text. */
static const char some_modules[] =
	"alpha 65536 0 - Live 0xffffffffc0000000\n"
	"beta 8192 1 alpha, Live 0xffffffffc0001000\n";

static void addresses_belong_to_the_right_piece_of_the_kernel(void **state UNUSED)
{
	static const struct expectation want[] = {
		{ 0xffffffffc0001020, "beta_work", "[beta]", 0x20 },
		{ BASE + 0x50, "_text", "[kernel]", 0x50 },
		{ BASE + 0x100, "first", "[kernel]", 0x100 },
		{ BASE + 0x250, "first", "[kernel]", 0x250 },
		{ BASE + 0x3ff, "weak", "[kernel]", 0x3ff },
		{ 0xffffffffc0000010, "alpha_init", "[alpha]", 0x10 },
		{ 0xffffffffc0001008, "beta_init", "[beta]", 8 },
		/* Between what is known: no name rather than the neighbour's, and no run-time address. */
		{ BASE + 0x10123456, "", "[kernel]", 0x123456 },
	};

	expect_there(some_kernel, some_modules, want, ARRAY_SIZE(want));
}

static void code_that_is_no_module_has_a_name_of_its_own(void **state UNUSED)
{
	static const struct expectation want[] = {
		{ 0xffffffffc0008123, "bpf_prog_1234_filter", "[bpf]", 0x123 },
		{ 0xffffffffc0009001, "ftrace_trampoline", "[__builtin__ftrace]", 1 },
		{ 0xffffffffc0100000, "", "[kernel]", 0x100000 },
	};

	expect_there(some_kernel, "", want, ARRAY_SIZE(want));
}

static void hidden_addresses_give_no_names_and_tell_no_layout(void **state UNUSED)
{
	static const char hidden[] = "0000000000000000 T _text\n0000000000000000 T _stext\n"
				     "0000000000000000 t first\n0000000000000000 T _etext\n";
	static const struct expectation want[] = {
		{ 0xffffffffa7234567, "", "[kernel]", 0x34567 },
		{ 0xffffffffc0001008, "", "[kernel]", 0x1008 },
	};

	expect_there(hidden, "alpha 4096 0 - Live 0x0000000000000000\n", want, ARRAY_SIZE(want));
	expect_there("", "", want, ARRAY_SIZE(want));
	expect_there(NULL, "", want, ARRAY_SIZE(want));
}

static void very_long_names_are_whole(void **state UNUSED)
{
	static char text_of_file[2048], name[512];
	const struct expectation want[] = { { BASE + 0x1010, name, "[kernel]", 0x1010 },
					    { BASE + 0x2010, "next", "[kernel]", 0x2010 } };

	memset(name, 'n', 511);
	snprintf(text_of_file, sizeof(text_of_file),
		 "%llx T _text\n%llx T _stext\n%llx t %s\n%llx t next\n%llx T _etext\n", BASE, BASE, BASE + 0x1000,
		 name, BASE + 0x2000, BASE + 0x100000);
	expect_there(text_of_file, "", want, ARRAY_SIZE(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_that_was_loaded_has_its_name_also_when_it_is_gone),
		cmocka_unit_test(other_code_at_a_programs_place_ends_its_name),
		cmocka_unit_test(programs_are_bounded),
		cmocka_unit_test(every_address_has_the_name_of_the_symbol_below_it),
		cmocka_unit_test(more_addresses_than_are_kept_are_answered_too),
		cmocka_unit_test(what_is_known_is_not_read_again),
		cmocka_unit_test(other_addresses_do_not_read_the_files_again),
		cmocka_unit_test(code_that_came_later_has_its_own_name),
		cmocka_unit_test(addresses_belong_to_the_right_piece_of_the_kernel),
		cmocka_unit_test(code_that_is_no_module_has_a_name_of_its_own),
		cmocka_unit_test(hidden_addresses_give_no_names_and_tell_no_layout),
		cmocka_unit_test(very_long_names_are_whole),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
