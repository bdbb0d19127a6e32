/* What machine code itself tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbolizer/code.h"
#include "tests/unit/elf_fixture.h"

static void a_call_is_known_by_the_bytes_before(void **state UNUSED)
{
	static const struct {
		const char *bytes;
		size_t len;
		bool is_call;
	} cases[] = {
		{ "\xe8\x01\x02\x03\x04", 5, true },
		{ "\x67\xe8\x01\x02\x03\x04", 6, true },
		{ "\xff\xd0", 2, true },			 /* call *%rax */
		{ "\x41\xff\xd7", 3, true },			 /* call *%r15 */
		{ "\x3e\xff\xd0", 3, true },			 /* notrack */
		{ "\xff\x10", 2, true },			 /* call *(%rax) */
		{ "\xff\x14\xc8", 3, true },			 /* call *(%rax,%rcx,8) */
		{ "\xff\x14\x24", 3, true },			 /* call *(%rsp) */
		{ "\xff\x50\x08", 3, true },			 /* call *8(%rax) */
		{ "\xff\x54\x24\x08", 4, true },		 /* call *8(%rsp) */
		{ "\xff\x15\1\2\3\4", 6, true },		 /* call *x(%rip) */
		{ "\xff\x90\1\2\3\4", 6, true },		 /* call *x(%rax) */
		{ "\x41\xff\x94\x24\1\2\3\4", 8, true },	 /* call *x(%r12) */
		{ "\xff\x14\x25\1\2\3\4", 7, true },		 /* call *x */
		{ "\x0f\x05", 2, false },			 /* syscall */
		{ "\xff\xe0", 2, false },			 /* jmp *%rax */
		{ "\xff\x60\x08", 3, false },			 /* jmp *8(%rax) */
		{ "\xff\x50", 2, false },			 /* its displacement is missing */
		{ "\xe8\x01\x02\x03", 4, false },
		{ "\xe9\x01\x02\x03\x04", 5, false },
		{ "\x90\x90\x90\x90\x90\x90\x90", 7, false },
		{ "", 0, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct bytes b = { (const uint8_t *)cases[i].bytes, cases[i].len };

		if (code_ends_with_call(b) != cases[i].is_call)
			fail_msg("case %zu", i);
	}
}

/* Every call instruction that objdump finds in libc. */
struct calls {
	const struct elffile *elf;
	unsigned int ncalls, nmissed;
	bool after_call;
};

static void on_instruction(void *arg, char *line)
{
	struct calls *c = arg;
	char *colon = strchr(line, ':');

	if (!colon || line[0] != ' ')
		return;
	if (c->after_call) {
		c->ncalls++;
		c->nmissed += !code_ends_with_call(elffile_before(c->elf, strtoull(line, NULL, 16), CODE_CALL_MAX));
	}
	c->after_call = strstr(line, "call ") != NULL;
}

static void every_call_of_libc_is_seen(void **state UNUSED)
{
	struct calls c = { .elf = fixture_open("/lib/x86_64-linux-gnu/libc.so.6") };

	fixture_each_line("objdump -d --no-show-raw-insn -j .text /lib/x86_64-linux-gnu/libc.so.6", on_instruction, &c);
	print_message("%u calls\n", c.ncalls);
	assert_true(c.ncalls > 5000);
	assert_int_equal(c.nmissed, 0);
	elffile_close((struct elffile *)(uintptr_t)c.elf);
}

/* The code before and after a pc in the middle of `text`. */
static struct bytes before_of(const char *text, size_t at)
{
	size_t n = MIN(at, (size_t)CODE_CLONE_LEN);

	return (struct bytes){ (const uint8_t *)text + at - n, n };
}

static struct bytes at_of(const char *text, size_t len, size_t at)
{
	return (struct bytes){ (const uint8_t *)text + at, len - at };
}

static void each_instruction_of_a_linkage_table_knows_its_cfa(void **state UNUSED)
{
	/* The pcs of each entry, and the CFA there as an offset from rsp. */
	static const struct {
		const char *text;
		size_t len;
		struct {
			uint8_t pc, cfa;
		} at[4];
	} entries[] = {
		/* lld and GNU ld without IBT: the first entry, then the others */
		{ "\xff\x35\1\2\3\4\xff\x25\1\2\3\4\x0f\x1f\x40", 15, { { 0, 16 }, { 6, 24 } } },
		{ "\xff\x25\1\2\3\4\x68\0\0\0\0\xe9\1\2\3\4", 16, { { 0, 8 }, { 6, 8 }, { 11, 16 } } },
		/* with IBT: .plt and .plt.sec */
		{ "\xf3\x0f\x1e\xfa\x68\0\0\0\0\xe9\1\2\3\4\x66\x90", 16, { { 0, 8 }, { 4, 8 }, { 9, 16 } } },
		{ "\xf3\x0f\x1e\xfa\xff\x25\1\2\3\4\x66\x0f\x1f", 13, { { 0, 8 }, { 4, 8 } } },
		/* with bnd prefixes: the first entry, .plt, .plt.sec */
		{ "\xff\x35\1\2\3\4\xf2\xff\x25\1\2\3\4\x0f\x1f", 15, { { 0, 16 }, { 6, 24 } } },
		{ "\xf3\x0f\x1e\xfa\x68\0\0\0\0\xf2\xe9\1\2\3\4\x90", 16, { { 0, 8 }, { 4, 8 }, { 9, 16 } } },
		{ "\xf3\x0f\x1e\xfa\xf2\xff\x25\1\2\3\4\x0f\x1f", 13, { { 0, 8 }, { 4, 8 } } },
		/* mold */
		{ "\xf3\x0f\x1e\xfa\x41\x53\xff\x35\1\2\3\4\xff\x25\1\2\3\4", 18,
		  { { 0, 8 }, { 4, 8 }, { 6, 16 }, { 12, 24 } } },
		{ "\xf3\x0f\x1e\xfa\x41\xbb\1\0\0\0\xff\x25\1\2\3\4", 16, { { 0, 8 }, { 4, 8 }, { 10, 8 } } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(entries[i].at) && entries[i].at[k].cfa; k++) {
			size_t pc = entries[i].at[k].pc;
			uint32_t cfa = code_plt_cfa(before_of(entries[i].text, pc),
						    at_of(entries[i].text, entries[i].len, pc));

			if (cfa != entries[i].at[k].cfa)
				fail_msg("entry %zu, pc %zu: %u", i, pc, cfa);
		}
	}
}

static void other_code_of_a_linkage_table_has_no_cfa(void **state UNUSED)
{
	static const char *const others[] = {
		"\x90\x90\x90\x90\x90\x90\x90\x90",
		"\xff\x25\1\2",				/* cut */
		"\x68\0\0\0\0\xff\x25\1\2\3\4\x90",	/* an index, and then no way to the first entry */
		"\x68\0\0\0\0\x68\0\0\0\0\xe9\1\2\3\4", /* two of them */
		"\xc3",
	};
	static const uint8_t lens[] = { 8, 4, 12, 15, 1 };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_int_equal(code_plt_cfa(before_of(others[i], 0), at_of(others[i], lens[i], 0)), 0);
	assert_int_equal(code_plt_cfa((struct bytes){ NULL, 0 }, (struct bytes){ NULL, 0 }), 0);
}

static void a_clone_is_known_from_its_system_call_to_its_return(void **state UNUSED)
{
	/* clone3 of glibc 2.36, from mov $435, %eax on */
	static const char text[] = "\xb8\xb3\x01\0\0\x0f\x05\x48\x85\xc0\x7c\x18\x74\x01\xc3\x31\xed";
	static const char jumps_elsewhere[] = "\x0f\x05\x48\x85\xc0\x7c\x18\x74\x02\xc3\x31\xed";
	static const uint8_t inside[] = { 5, 7, 10, 12, 14 };

	for (size_t pc = 0; pc < sizeof(text) - 1; pc++) {
		bool is = memchr(inside, (int)pc, sizeof(inside)) != NULL;

		if (code_is_clone(before_of(text, pc), at_of(text, sizeof(text) - 1, pc)) != is)
			fail_msg("pc %zu", pc);
	}
	assert_false(code_is_clone(before_of(jumps_elsewhere, 2), at_of(jumps_elsewhere, 12, 2)));
	/* The end of what can be read. */
	assert_false(code_is_clone(before_of(text, 7), at_of(text, 14, 7)));
	assert_false(code_is_clone((struct bytes){ NULL, 0 }, (struct bytes){ NULL, 0 }));
}

static void a_jump_through_a_register_is_known_by_its_end(void **state UNUSED)
{
	static const struct {
		const char *bytes;
		bool is;
	} cases[] = {
		{ "\xff\xe3", true },	  /* jmp *%rbx */
		{ "\x41\xff\xe7", true }, /* jmp *%r15 */
		{ "\xff\xd3", false },	  /* call *%rbx */
		{ "\xff\x23", false },	  /* jmp *(%rbx) */
		{ "\xc3", false },
		{ "", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct bytes b = { (const uint8_t *)cases[i].bytes, strlen(cases[i].bytes) };

		assert_int_equal(code_ends_with_register_jump(b), cases[i].is);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_is_known_by_the_bytes_before),
		cmocka_unit_test(every_call_of_libc_is_seen),
		cmocka_unit_test(each_instruction_of_a_linkage_table_knows_its_cfa),
		cmocka_unit_test(other_code_of_a_linkage_table_has_no_cfa),
		cmocka_unit_test(a_clone_is_known_from_its_system_call_to_its_return),
		cmocka_unit_test(a_jump_through_a_register_is_known_by_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
