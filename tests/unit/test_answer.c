/* From a request and a descriptor to the answer, decoded as the agent does it. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "symbolizer/answer.h"
#include "symbolizer/code.h"
#include "symbolizer/golang.h"
#include "tests/unit/elf_fixture.h"

static struct msg_request req;

static void request(uint64_t file_id, uint64_t offset, uint32_t flags)
{
	req = (struct msg_request){ .id = 77, .file_id = file_id, .naddrs = 1 };
	req.addrs[0] = (struct msg_addr){ offset, flags };
}

static struct msg_rows ask_rows(struct handles *h, int fd)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct msg_rows m;
	struct bufr r;

	answer_rows(h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(msg_rows_decode(&r, &m), 0);
	assert_int_equal(m.id, req.id);
	assert_int_equal(m.file_id, req.file_id);
	assert_int_equal(m.nresults, req.naddrs);
	return m;
}

static struct msg_names ask_names(struct handles *h, int fd)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct msg_names m;
	struct bufr r;

	answer_names(h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(msg_names_decode(&r, &m), 0);
	assert_int_equal(m.id, req.id);
	assert_int_equal(m.nnamed, req.naddrs);
	return m;
}

/* ---- files made of assembly, whose every byte is known ---- */

static const char assembly[] =
	".text\n"
	".globl _start\n.type _start, @function\n"
	"_start: .cfi_startproc\n.cfi_undefined rip\n xor %ebp, %ebp\n call work\n hlt\n .cfi_endproc\n.size _start, .-_start\n"
	".globl work\n.type work, @function\n"
	"work: .cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset rbp, -16\n mov %rsp, %rbp\n"
	" .cfi_def_cfa_register rbp\n call *8(%rax)\n pop %rbp\n .cfi_def_cfa rsp, 8\n ret\n .cfi_endproc\n.size work, .-work\n"
	".globl bare\n.type bare, @function\n"
	"bare: nop\n nop\n call work\n nop\n ret\n.size bare, .-bare\n"
	".globl restore\n.type restore, @function\n"
	"restore: mov $15, %rax\n syscall\n.size restore, .-restore\n"
	".globl vforkish\n.type vforkish, @function\n"
	"vforkish: .cfi_startproc\n pop %rdi\n .cfi_def_cfa_offset 0\n .cfi_register rip, rdi\n nop\n .cfi_endproc\n.size vforkish, .-vforkish\n"
	".globl below\n.type below, @function\n"
	"below: .cfi_startproc\n .cfi_escape 0x0f, 0x05, 0x77, 0x78, 0x06, 0x23, 0x08\n nop\n .cfi_endproc\n.size below, .-below\n";

struct program {
	char *path;
	int fd;
	struct elffile *elf;
	struct symtab *symtab;
	struct symtab_strings strings;
	struct handles handles;
};

static struct program program_new(const char *source, const char *flags)
{
	struct program p = { .path = fixture_compile_to("S", source, flags) };

	p.fd = open(p.path, O_RDONLY | O_CLOEXEC);
	p.elf = fixture_open(p.path);
	p.symtab = symtab_new(p.elf, NULL);
	p.strings = symtab_strings(p.symtab, p.elf, NULL);
	return p;
}

static void program_fini(struct program *p)
{
	handles_fini(&p->handles);
	symtab_free(p->symtab);
	elffile_close(p->elf);
	close(p->fd);
	fixture_forget(p->path);
}

/* The file offset of a symbol, as a process with the mapping would know it. */
static uint64_t offset_of(const struct program *p, const char *name)
{
	for (uint32_t i = 0; i < symtab_count(p->symtab); i++) {
		struct symbol s = symtab_at(p->symtab, i);
		struct bytes n = symtab_name(&p->strings, s.name);
		const struct msg_segment *seg = elffile_segment_of_vaddr(p->elf, s.vaddr);

		if (n.len == strlen(name) && memcmp(n.p, name, n.len) == 0)
			return s.vaddr - seg->vaddr + seg->offset;
	}
	fail_msg("no symbol %s", name);
	return 0;
}

/* The answer to one address: its row in *row, flags as the result. */
static uint32_t ask_row(struct program *p, uint64_t offset, uint32_t flags, struct msg_row *row, struct msg_rows *m)
{
	uint32_t result;

	request(1, offset, flags);
	*m = ask_rows(&p->handles, p->fd);
	assert_int_equal(m->result, MSG_FILE_OK);
	result = m->results[0].flags;
	if (result & MSG_RES_ROW)
		*row = m->rows[m->results[0].row];
	return result;
}

#define LLD "-nostdlib -static -fuse-ld=lld"
#define BFD "-nostdlib -static"

static void each_address_has_its_row_and_its_facts(void **state UNUSED)
{
	/* lld puts code at addresses that are not its offsets. */
	static const char *const linkers[] = { BFD, LLD };

	for (size_t i = 0; i < ARRAY_SIZE(linkers); i++) {
		struct program p = program_new(assembly, linkers[i]);
		uint64_t start = offset_of(&p, "_start"), work = offset_of(&p, "work"), bare = offset_of(&p, "bare");
		struct msg_row row;
		struct msg_rows m;

		/* _start: the end of the stack. */
		assert_int_equal(ask_row(&p, start + 7, MSG_ADDR_RETURN, &row, &m),
				 MSG_RES_ROW | MSG_RES_AFTER_CALL | MSG_RES_CODE);
		assert_true(row.flags & MSG_ROW_END);
		assert_int_equal(row.start, start);
		msg_rows_fini(&m);
		/* work: every row of the function comes, the one asked for is the second. */
		assert_int_equal(ask_row(&p, work + 1, 0, &row, &m), MSG_RES_ROW | MSG_RES_CODE);
		assert_int_equal(m.nrows, 4);
		assert_int_equal(row.start, work + 1);
		assert_int_equal(row.end, work + 4);
		assert_int_equal(row.cfa.off, 16);
		assert_int_equal(row.ra.kind, MSG_RULE_CFA_MEM);
		assert_int_equal(row.ra.off, -8);
		assert_int_equal(row.nrules, 1);
		assert_int_equal(m.rules[row.first_rule].target, 6);
		assert_int_equal(m.rules[row.first_rule].off, -16);
		msg_rows_fini(&m);
		/* After call *8(%rax), which is 3 bytes: as a return address the row is the call's. */
		assert_int_equal(ask_row(&p, work + 7, MSG_ADDR_RETURN, &row, &m),
				 MSG_RES_ROW | MSG_RES_AFTER_CALL | MSG_RES_CODE);
		assert_int_equal(row.cfa.reg, 6);
		msg_rows_fini(&m);
		/* The first byte of a function as a return address: how coroutines and threads begin. */
		assert_int_equal(ask_row(&p, work, MSG_ADDR_RETURN, &row, &m) & ~(uint32_t)MSG_RES_ROW,
				 MSG_RES_FUNCTION_START | MSG_RES_CODE);
		msg_rows_fini(&m);
		/* Without CFI. */
		assert_int_equal(ask_row(&p, bare, 0, &row, &m), MSG_RES_FUNCTION_START | MSG_RES_CODE);
		msg_rows_fini(&m);
		assert_int_equal(ask_row(&p, bare + 7, MSG_ADDR_RETURN, &row, &m), MSG_RES_AFTER_CALL | MSG_RES_CODE);
		msg_rows_fini(&m);
		/* Not code, not in the file. */
		assert_int_equal(ask_row(&p, 0, 0, &row, &m) & ~(uint32_t)(MSG_RES_CODE), 0);
		msg_rows_fini(&m);
		assert_int_equal(ask_row(&p, UINT64_MAX, MSG_ADDR_RETURN, &row, &m), 0);
		msg_rows_fini(&m);
		program_fini(&p);
	}
}

static void who_has_the_row_gets_the_facts_alone(void **state UNUSED)
{
	struct program p = program_new(assembly, BFD);
	uint64_t work = offset_of(&p, "work"), restore = offset_of(&p, "restore");
	const uint32_t flags = MSG_ADDR_RETURN | MSG_ADDR_HAVE_ROW;
	struct msg_row row;
	struct msg_rows m;

	assert_int_equal(ask_row(&p, work + 7, flags, &row, &m), MSG_RES_AFTER_CALL | MSG_RES_CODE);
	assert_int_equal(m.nrows, 0);
	msg_rows_fini(&m);
	/* The row that the asker has is that of the byte before: not a trampoline's. */
	assert_true(ask_row(&p, restore, flags, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.flags, MSG_ROW_SIGNAL);
	msg_rows_fini(&m);
	program_fini(&p);
}

static void a_trampoline_without_cfi_is_a_signal_frame(void **state UNUSED)
{
	struct program p = program_new(assembly, BFD);
	uint64_t at = offset_of(&p, "restore");
	struct msg_row row;
	struct msg_rows m;

	/* The handler returns to its first byte; an interrupted pc can be there too, and no other. */
	for (uint32_t flags = 0; flags <= MSG_ADDR_RETURN; flags++) {
		assert_true(ask_row(&p, at, flags, &row, &m) & MSG_RES_ROW);
		assert_int_equal(row.flags, MSG_ROW_SIGNAL);
		assert_int_equal(row.start, at);
		assert_int_equal(row.end, at + CODE_SIGRETURN_LEN);
		assert_int_equal(row.cfa.kind, MSG_RULE_EXPR_VAL);
		assert_int_equal(m.ops[row.cfa.off].n, 160);
		assert_int_equal(row.ra.kind, MSG_RULE_REG_MEM);
		assert_int_equal(row.ra.off, 168);
		assert_int_equal(row.nrules, 15);
		msg_rows_fini(&m);
	}
	/* At its system call all is as at its begin; there is no other instruction. */
	assert_true(ask_row(&p, at + CODE_SIGRETURN_CALL, 0, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.start, at);
	assert_int_equal(row.end, at + CODE_SIGRETURN_LEN);
	msg_rows_fini(&m);
	for (uint64_t i = 1; i < CODE_SIGRETURN_LEN; i++) {
		if (i == CODE_SIGRETURN_CALL)
			continue;
		assert_false(ask_row(&p, at + i, 0, &row, &m) & MSG_RES_ROW);
		msg_rows_fini(&m);
	}
	program_fini(&p);
}

static void glibcs_trampoline_has_the_same_row(void **state UNUSED)
{
	CLEANUP_FREE uint8_t *libc = NULL;
	size_t len;
	int fd = open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC);
	struct handles h = { 0 };
	struct msg_rows m;
	uint8_t *at;

	libc = fixture_read("/lib/x86_64-linux-gnu/libc.so.6", &len);
	at = memmem(libc, len, "\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 9);
	assert_non_null(at);
	request(1, (uint64_t)(at - libc), MSG_ADDR_RETURN);
	m = ask_rows(&h, fd);
	assert_true(m.results[0].flags & MSG_RES_ROW);
	assert_true(m.rows[m.results[0].row].flags & MSG_ROW_SIGNAL);
	assert_int_equal(m.rows[m.results[0].row].ra.off, 168);
	msg_rows_fini(&m);
	handles_fini(&h);
	close(fd);
}

static void unusual_rules_are_told(void **state UNUSED)
{
	struct program p = program_new(assembly, BFD);
	struct msg_row row;
	struct msg_rows m;

	assert_true(ask_row(&p, offset_of(&p, "vforkish") + 1, 0, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.ra.kind, MSG_RULE_REG_VAL);
	assert_int_equal(row.ra.reg, 5);
	msg_rows_fini(&m);
	/* OpenSSL's CFA = *(rsp - 8) + 8. */
	assert_true(ask_row(&p, offset_of(&p, "below"), 0, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.cfa.kind, MSG_RULE_EXPR_VAL);
	assert_int_equal(row.cfa.n, 3);
	assert_int_equal(m.ops[row.cfa.off].code, MSG_OP_REG);
	assert_int_equal(m.ops[row.cfa.off].n, -8);
	assert_int_equal(m.ops[row.cfa.off + 1].code, MSG_OP_DEREF);
	assert_int_equal(m.ops[row.cfa.off + 2].n, 8);
	msg_rows_fini(&m);
	program_fini(&p);
}

static void the_entry_point_without_cfi_is_the_end(void **state UNUSED)
{
	static const char source[] = ".text\n.globl _start\n_start: xor %ebp, %ebp\n call *%rax\n hlt\n.zero 100\n";
	struct program p = program_new(source, BFD);
	struct program lib = program_new(source, "-nostdlib -shared -Wl,-e,_start");
	struct msg_row row;
	struct msg_rows m;
	const struct msg_segment *s = elffile_segment_of_vaddr(p.elf, p.elf->entry);
	uint64_t at = p.elf->entry - s->vaddr + s->offset;

	assert_true(ask_row(&p, at + 7, MSG_ADDR_RETURN, &row, &m) & MSG_RES_ROW);
	assert_true(row.flags & MSG_ROW_END);
	msg_rows_fini(&m);
	assert_false(ask_row(&p, at + 70, MSG_ADDR_RETURN, &row, &m) & MSG_RES_ROW);
	msg_rows_fini(&m);
	/* A shared library whose entry point is only the start of its .text. */
	s = elffile_segment_of_vaddr(lib.elf, lib.elf->entry);
	assert_false(ask_row(&lib, lib.elf->entry - s->vaddr + s->offset + 7, MSG_ADDR_RETURN, &row, &m) & MSG_RES_ROW);
	msg_rows_fini(&m);
	program_fini(&lib);
	program_fini(&p);
}

static void the_entry_point_ends_where_another_function_begins(void **state UNUSED)
{
	struct program p = program_new(".text\n.globl _start\n_start: call a\n hlt\n"
				       "a: .cfi_startproc\n nop\n ret\n .cfi_endproc\n",
				       BFD);
	uint64_t at = offset_of(&p, "_start");
	struct msg_row row;
	struct msg_rows m;

	assert_true(ask_row(&p, at + 5, MSG_ADDR_RETURN, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.flags, MSG_ROW_END);
	assert_true(row.start == at && row.end == at + 6);
	msg_rows_fini(&m);
	program_fini(&p);
}

static const char stubs[] =
	".text\n.globl _start\n.type _start, @function\n_start: .cfi_startproc\n call f@PLT\n ret\n .cfi_endproc\n"
	".size _start, .-_start\n"
	".globl clone\n.type clone, @function\nclone: .cfi_startproc\n mov $435, %eax\n .cfi_endproc\n"
	"syscall\n.globl behind\nbehind: test %rax, %rax\n jl 1f\n je 2f\n ret\n2: .cfi_startproc\n .cfi_undefined rip\n"
	" nop\n .cfi_endproc\n1: ret\n.size clone, .-clone\n"
	/* as Boost.Context: `finish` is a place to return to that nobody calls */
	".globl make\n.type make, @function\nmake: push %rbp\n jmp *%rbx\nfinish: hlt\n.size make, .-make\n"
	/* a switch statement: CFI says that it is the middle of a function */
	".globl chooses\n.type chooses, @function\nchooses: .cfi_startproc\n nop\n jmp *%rax\ncase: nop\n .cfi_endproc\n"
	".size chooses, .-chooses\n";

static void a_stub_without_cfi_has_the_row_that_its_bytes_tell(void **state UNUSED)
{
	struct program p = program_new(stubs, "-nostdlib -shared -fuse-ld=lld");
	struct elf_section plt;
	struct msg_row row;
	struct msg_rows m;
	uint64_t at;

	assert_int_equal(elffile_section(p.elf, ".plt", &plt), 0);
	at = (uint64_t)(plt.data.p - p.elf->file.p) + 16 + 11; /* the second entry's jump back to the first */
	assert_true(ask_row(&p, at, 0, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.flags, 0);
	assert_int_equal(row.cfa.reg, CFI_RSP);
	assert_int_equal(row.cfa.off, 16);
	assert_int_equal(row.ra.off, -8);
	assert_true(row.start == at && row.end == at + 1);
	msg_rows_fini(&m);
	at = offset_of(&p, "behind");
	assert_true(ask_row(&p, at, 0, &row, &m) & MSG_RES_ROW);
	assert_int_equal(row.flags, MSG_ROW_CLONE);
	assert_int_equal(row.cfa.off, 8);
	msg_rows_fini(&m);
	program_fini(&p);
}

static void what_stands_behind_a_jump_of_code_without_cfi_begins_a_stack(void **state UNUSED)
{
	struct program p = program_new(stubs, "-nostdlib -shared -fuse-ld=lld");
	struct msg_row row;
	struct msg_rows m;

	assert_true(ask_row(&p, offset_of(&p, "make") + 3, MSG_ADDR_RETURN, &row, &m) & MSG_RES_FUNCTION_START);
	msg_rows_fini(&m);
	assert_false(ask_row(&p, offset_of(&p, "chooses") + 3, MSG_ADDR_RETURN, &row, &m) & MSG_RES_FUNCTION_START);
	msg_rows_fini(&m);
	program_fini(&p);
}

static void many_addresses_of_one_function_share_its_rows(void **state UNUSED)
{
	struct program p = program_new(assembly, BFD);
	uint64_t work = offset_of(&p, "work");
	struct msg_rows m;

	request(1, 0, 0);
	req.naddrs = MSG_ADDRS_MAX;
	for (uint32_t i = 0; i < req.naddrs; i++)
		req.addrs[i] = (struct msg_addr){ work + i % 8, 0 };
	m = ask_rows(&p.handles, p.fd);
	assert_int_equal(m.nrows, 4);
	for (uint32_t i = 0; i < m.nresults; i++) {
		const struct msg_row *row = &m.rows[m.results[i].row];

		assert_true(m.results[i].flags & MSG_RES_ROW);
		assert_true(req.addrs[i].offset >= row->start && req.addrs[i].offset < row->end);
	}
	msg_rows_fini(&m);
	program_fini(&p);
}

/* ---- Go ---- */

static const char go_assembly[] =
	".section .gopclntab, \"a\"\n.long 1\n"
	".text\n.cfi_sections .debug_frame\n"
	".globl _start\n.type _start, @function\n_start: nop\n.size _start, .-_start\n"
	/* Go 1.21 and later */
	".globl \"main.new\"\n.type \"main.new\", @function\n"
	"\"main.new\": .cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n mov %rsp, %rbp\n sub $32, %rsp\n"
	" .cfi_def_cfa_offset 48\n call *%rax\n add $32, %rsp\n .cfi_def_cfa_offset 16\n pop %rbp\n .cfi_def_cfa_offset 8\n ret\n"
	" .cfi_endproc\n.size \"main.new\", .-\"main.new\"\n"
	/* before */
	".globl \"main.old\"\n.type \"main.old\", @function\n"
	"\"main.old\": .cfi_startproc\n sub $0x40, %rsp\n .cfi_def_cfa_offset 72\n mov %rbp, 0x38(%rsp)\n lea 0x38(%rsp), %rbp\n"
	" call *%rax\n ret\n .cfi_endproc\n.size \"main.old\", .-\"main.old\"\n"
	/* a frame without rbp */
	".globl \"main.none\"\n.type \"main.none\", @function\n"
	"\"main.none\": .cfi_startproc\n sub $0x40, %rsp\n .cfi_def_cfa_offset 72\n call *%rax\n ret\n .cfi_endproc\n.size \"main.none\", .-\"main.none\"\n"
	".globl \"runtime.asmcgocall.abi0\"\n.type \"runtime.asmcgocall.abi0\", @function\n"
	"\"runtime.asmcgocall.abi0\": .cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n mov %rsp, %rbp\n mov (%rax), %rsp\n call *%rax\n"
	" pop %rbp\n .cfi_def_cfa_offset 8\n ret\n .cfi_endproc\n.size \"runtime.asmcgocall.abi0\", .-\"runtime.asmcgocall.abi0\"\n"
	".globl \"runtime.goexit\"\n.type \"runtime.goexit\", @function\n"
	"\"runtime.goexit\": .cfi_startproc\n nop\n call *%rax\n nop\n .cfi_endproc\n.size \"runtime.goexit\", .-\"runtime.goexit\"\n"
	".globl \"runtime.mcall\"\n.type \"runtime.mcall\", @function\n\"runtime.mcall\": nop\n nop\n.size \"runtime.mcall\", .-\"runtime.mcall\"\n";

/* The saved rbp's rule of a row, UNDEFINED for none. */
static enum msg_rule_kind rbp_rule(const struct msg_rows *m, const struct msg_row *row)
{
	for (uint32_t i = 0; i < row->nrules; i++)
		if (m->rules[row->first_rule + i].target == 6 && m->rules[row->first_rule + i].off == -16)
			return (enum msg_rule_kind)m->rules[row->first_rule + i].kind;
	return MSG_RULE_UNDEFINED;
}

static void go_functions_get_what_their_cfi_leaves_out(void **state UNUSED)
{
	struct program p = program_new(go_assembly, BFD);
	static const struct {
		const char *name;
		uint64_t at;
		enum msg_rule_kind rbp;
		int cfa_reg, cfa_off;
	} cases[] = {
		{ "main.new", 0, MSG_RULE_UNDEFINED, 7, 8 },   { "main.new", 1, MSG_RULE_CFA_MEM, 7, 16 },
		{ "main.new", 8, MSG_RULE_CFA_MEM, 7, 48 },    { "main.new", 15, MSG_RULE_UNDEFINED, 7, 8 },
		{ "main.old", 4, MSG_RULE_UNDEFINED, 7, 72 },  { "main.old", 9, MSG_RULE_CFA_MEM, 7, 72 },
		{ "main.none", 4, MSG_RULE_UNDEFINED, 7, 72 }, { "runtime.asmcgocall.abi0", 1, MSG_RULE_CFA_MEM, 7, 16 },
		{ "runtime.asmcgocall.abi0", 4, MSG_RULE_CFA_MEM, 6, 16 },
		{ "runtime.asmcgocall.abi0", 9, MSG_RULE_CFA_MEM, 6, 16 },
		{ "runtime.asmcgocall.abi0", 10, MSG_RULE_UNDEFINED, 7, 8 },
	};
	struct msg_row row;
	struct msg_rows m;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_true(ask_row(&p, offset_of(&p, cases[i].name) + cases[i].at, 0, &row, &m) & MSG_RES_ROW);
		if (rbp_rule(&m, &row) != cases[i].rbp || row.cfa.reg != cases[i].cfa_reg || row.cfa.off != cases[i].cfa_off)
			fail_msg("%s+%lu: rbp %d cfa %d%+d", cases[i].name, cases[i].at, rbp_rule(&m, &row), row.cfa.reg,
				 row.cfa.off);
		assert_false(row.flags & MSG_ROW_END);
		msg_rows_fini(&m);
	}
	/* The ends: with CFI, and without. */
	assert_true(ask_row(&p, offset_of(&p, "runtime.goexit") + 1, MSG_ADDR_RETURN, &row, &m) & MSG_RES_ROW);
	assert_true(row.flags & MSG_ROW_END);
	msg_rows_fini(&m);
	assert_true(ask_row(&p, offset_of(&p, "runtime.mcall") + 1, 0, &row, &m) & MSG_RES_ROW);
	assert_true(row.flags & MSG_ROW_END);
	msg_rows_fini(&m);
	program_fini(&p);
}

static enum golang_kind kind(const char *name, const char *code)
{
	return golang_kind((struct bytes){ (const uint8_t *)name, strlen(name) },
			   (struct bytes){ (const uint8_t *)code, strlen(code) });
}

static void go_roots_are_known_by_exact_names(void **state UNUSED)
{
	static const char setup[] = "\x55\x48\x89\xe5";

	assert_int_equal(kind("runtime.goexit.abi0", ""), GOLANG_END);
	assert_int_equal(kind("runtime.goexit1", ""), GOLANG_PLAIN);
	assert_int_equal(kind("runtime.mstart", ""), GOLANG_END);
	assert_int_equal(kind("runtime.rt0_go.abi0", ""), GOLANG_END);
	assert_int_equal(kind("runtime.morestack", "\x90\x48\x8b\x63\x38\xe8"), GOLANG_MORESTACK);
	assert_int_equal(kind("runtime.morestack", "\x90"), GOLANG_NO_RULE);
	assert_int_equal(kind("runtime.morestack_noctxt", ""), GOLANG_PLAIN);
	assert_int_equal(kind("runtime.asyncPreempt.abi0", ""), GOLANG_ASYNC);
	assert_int_equal(kind("runtime.systemstack", setup), GOLANG_SWITCH);
	assert_int_equal(kind("runtime.systemstack", "\x90"), GOLANG_NO_RULE);
	assert_int_equal(kind("runtime.asmcgocall.abi0", setup), GOLANG_SWITCH);
	assert_int_equal(kind("runtime.asmcgocall", "\x90"), GOLANG_NO_RULE);
	assert_int_equal(kind(".abi0", ""), GOLANG_PLAIN);
	assert_int_equal(kind("", ""), GOLANG_PLAIN);
}

static struct msg_go place(const char *code, size_t len, size_t at)
{
	uint8_t padded[128] = { 0x90 };
	struct elffile f = { .file = { padded, sizeof(padded) }, .nsegments = 1,
			     .segments = { { .vaddr = 0x1000, .mem_bytes = 128, .file_bytes = 128, .flags = PF_R | PF_X } } };
	struct gofunc fn = { .start = 0x1000, .end = 0x1080 };

	memset(padded, 0x90, sizeof(padded));
	memcpy(padded + at, code, len);
	return golang_place(&f, &fn);
}

#define PLACE_AT(code, at) place(code, sizeof(code) - 1, at)
#define PLACE(code) PLACE_AT(code, 9)

/* An executable of Go's linker, a PIE, and a shared library; C's thread-local variables may stand in between. */
static void the_place_of_g_is_read_from_code(void **state UNUSED)
{
	struct msg_go go = PLACE("\x64\x48\x8b\x04\x25\xf8\xff\xff\xff");

	assert_int_equal(go.kind, MSG_GO_FIXED);
	assert_int_equal(go.off, -8);
	/* Go 1.20 and before look for it at once, or behind mov 0x8(%rsp), %rdi. */
	for (size_t at = 0; at < 7; at++) {
		go = PLACE_AT("\x64\x48\x8b\x04\x25\xf8\xff\xff\xff", at);
		assert_int_equal(go.kind, MSG_GO_FIXED);
		assert_int_equal(go.off, -8);
		assert_int_equal(PLACE_AT("\x64\x48\x8b\x01", at).kind, MSG_GO_NONE); /* no room for where %rcx is from */
	}
	go = PLACE("\x48\xc7\xc1\xe0\xff\xff\xff\x64\x48\x8b\x01");
	assert_int_equal(go.kind, MSG_GO_FIXED);
	assert_int_equal(go.off, -32);
	go = PLACE("\x48\x8b\x0d\xd8\x19\x0b\x00\x64\x48\x8b\x01");
	assert_int_equal(go.kind, MSG_GO_SLOT);
	assert_int_equal(go.off, 0x1000 + 9 + 7 + 0xb19d8);
	/* Of another register, and nothing at all. */
	assert_int_equal(PLACE("\x48\xc7\xc2\xe0\xff\xff\xff\x64\x48\x8b\x01").kind, MSG_GO_NONE);
	assert_int_equal(PLACE("\xc3").kind, MSG_GO_NONE);
}

/* As the newest and Debian's Go have them; nop between what is looked for. */
static void go_code_on_another_stack_is_known_by_its_moves(void **state UNUSED)
{
	static const char systemstack[] = "\x90\x48\x89\xdc\xff\xd7\x48\x8b\x60\x38\xc3";
	static const char callback[] = "\x55\x48\x89\xfc\xff\xd0\x48\x8b\x66\x38\xc3";
	static const char clock[] = "\x90\x49\x89\xe4\xff\xd0\x4c\x89\xe4\xc3";
	static const char cgo[] = "\x90\x48\x89\xe2\x48\x8b\x66\x38\x48\x89\x7c\x24\x30\x48\x89\x7c\x24\x28\xff\xd0"
				  "\x48\x89\xf4\xc3\x48\x83\xec\x40\x48\x89\x54\x24\x28\xff\xd0\x48\x89\xf4\xc3";
	static const char wrapper[] = "\x48\x83\xec\x20\x48\x89\x6c\x24\x18";
	struct golang_span span = golang_switched(GOLANG_SYSTEM, (struct bytes){ (const uint8_t *)systemstack, 10 });

	assert_int_equal(kind("runtime.systemstack.abi0", systemstack), GOLANG_SYSTEM);
	assert_int_equal(span.from, 4);
	assert_int_equal(span.to, 10); /* the instruction with which it leaves is still on the other stack */
	assert_int_equal(kind("runtime.cgocallback", callback), GOLANG_CALLBACK);
	assert_int_equal(kind("runtime.cgocallback", clock), GOLANG_NO_RULE);
	assert_int_equal(kind("time.now", clock), GOLANG_VDSO);
	assert_int_equal(kind("time.now", callback), GOLANG_PLAIN);
	assert_int_equal(kind("time.Now", clock), GOLANG_PLAIN);
	assert_int_equal(kind("runtime.asmcgocall", cgo), GOLANG_CGO);
	assert_int_equal(kind("runtime.asmcgocall", cgo + 2), GOLANG_NO_RULE);
	assert_int_equal(kind("runtime.asmcgocall", wrapper), GOLANG_PLAIN);
}

/* ---- names ---- */

static void names_have_segments_and_the_vaddr_of_the_file(void **state UNUSED)
{
	struct program p = program_new(assembly, LLD);
	struct msg_names m;
	uint64_t work = offset_of(&p, "work");

	request(1, work + 2, 0);
	req.naddrs = 4;
	req.addrs[1].offset = work + 3;
	req.addrs[2].offset = 1ull << 40;
	req.addrs[3] = (struct msg_addr){ offset_of(&p, "bare"), MSG_ADDR_RETURN };
	m = ask_names(&p.handles, p.fd);
	assert_int_equal(m.result, MSG_FILE_OK);
	assert_int_equal(m.nsegments, p.elf->nsegments);
	assert_int_equal(m.nfunctions, 1);
	assert_string_equal(m.functions[0].name, "work");
	assert_int_equal(m.named[0].nlines, 1);
	assert_true(m.segments[m.named[0].segment].flags & PF_X);
	assert_int_not_equal(m.named[0].vaddr, work + 2);
	assert_int_equal(m.named[1].vaddr, m.named[0].vaddr + 1);
	assert_int_equal(m.named[2].vaddr, 1ull << 40);
	assert_int_equal(m.named[2].segment, UINT32_MAX);
	assert_int_equal(m.named[2].nlines, 0);
	assert_int_equal(m.named[3].nlines, 1); /* the byte before belongs to work */
	msg_names_fini(&m);
	program_fini(&p);
}

static void the_vdso_is_a_file_like_any_other(void **state UNUSED)
{
	const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	struct handles h = { 0 };
	struct msg_names names;
	struct msg_rows rows;
	bool has_name = false, has_row = false;
	Elf64_Ehdr eh;
	int fd;

	assert_non_null(vdso);
	memcpy(&eh, vdso, sizeof(eh));
	fd = fixture_memfd(vdso, eh.e_shoff + eh.e_shnum * sizeof(Elf64_Shdr));
	request(1, 0, 0);
	req.naddrs = MSG_ADDRS_MAX;
	for (uint32_t i = 0; i < req.naddrs; i++)
		req.addrs[i].offset = 0x400 + i * 6;
	names = ask_names(&h, fd);
	rows = ask_rows(&h, fd);
	for (uint32_t i = 0; i < req.naddrs; i++) {
		has_name |= names.named[i].nlines && strstr(names.functions[names.lines[names.named[i].first_line].function].name, "gettimeofday");
		has_row |= rows.results[i].flags & MSG_RES_ROW;
	}
	msg_names_fini(&names);
	msg_rows_fini(&rows);
	handles_fini(&h);
	close(fd);
	assert_true(has_name);
	assert_true(has_row);
}

/* ---- files and handles ---- */

static void a_file_that_cannot_be_read_is_answered_too(void **state UNUSED)
{
	struct handles h = { 0 };
	int passwd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	struct msg_names names;
	struct msg_rows rows;

	request(1, 100, 0);
	rows = ask_rows(&h, passwd);
	assert_int_equal(rows.result, MSG_FILE_NOT_ELF);
	assert_int_equal(rows.results[0].flags, 0);
	msg_rows_fini(&rows);
	rows = ask_rows(&h, -1);
	assert_int_equal(rows.result, MSG_FILE_UNREADABLE);
	msg_rows_fini(&rows);
	names = ask_names(&h, passwd);
	assert_int_equal(names.result, MSG_FILE_NOT_ELF);
	assert_int_equal(names.named[0].segment, UINT32_MAX);
	msg_names_fini(&names);
	assert_false(handles_any_open(&h));
	close(passwd);
	handles_fini(&h);
}

static void files_stay_open_for_a_batch_and_indexes_longer(void **state UNUSED)
{
	struct program p = program_new(assembly, BFD);
	struct handles h = { 0 };
	struct handle *a, *b;
	const struct symtab *t;

	assert_int_equal(handles_open(&h, 5, p.fd, &a), 0);
	t = handles_symtab(&h, a, true);
	/* No descriptor is needed while it is open. */
	assert_int_equal(handles_open(&h, 5, -1, &b), 0);
	assert_ptr_equal(a, b);
	assert_true(handles_any_open(&h));
	for (uint64_t id = 6; id < 6 + HANDLES_MAX; id++)
		assert_int_equal(handles_open(&h, id, p.fd, &b), 0);
	assert_int_equal(handles_open(&h, 5, -1, &b), MSG_FILE_UNREADABLE); /* the oldest went */
	handles_trim(&h);
	assert_false(handles_any_open(&h));
	assert_int_equal(handles_open(&h, 5, p.fd, &a), 0);
	assert_ptr_equal(handles_symtab(&h, a, true), t);
	handles_forget(&h, a);
	assert_false(handles_any_open(&h));
	handles_fini(&h);
	program_fini(&p);
}

static void symbol_indexes_are_dropped_oldest_first(void **state UNUSED)
{
	struct program p = program_new(assembly, BFD);
	struct handles h = { 0 };
	struct handle *a;

	for (uint64_t id = 1; id <= 3 * HANDLES_SYMTABS_MAX; id++) {
		assert_int_equal(handles_open(&h, id, p.fd, &a), 0);
		assert_int_equal(symtab_count(handles_symtab(&h, a, true)), symtab_count(p.symtab));
	}
	for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++)
		assert_true(h.symtabs[i].id > 2 * HANDLES_SYMTABS_MAX);
	handles_fini(&h);
	program_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_address_has_its_row_and_its_facts),
		cmocka_unit_test(who_has_the_row_gets_the_facts_alone),
		cmocka_unit_test(a_trampoline_without_cfi_is_a_signal_frame),
		cmocka_unit_test(glibcs_trampoline_has_the_same_row),
		cmocka_unit_test(unusual_rules_are_told),
		cmocka_unit_test(the_entry_point_without_cfi_is_the_end),
		cmocka_unit_test(the_entry_point_ends_where_another_function_begins),
		cmocka_unit_test(a_stub_without_cfi_has_the_row_that_its_bytes_tell),
		cmocka_unit_test(what_stands_behind_a_jump_of_code_without_cfi_begins_a_stack),
		cmocka_unit_test(many_addresses_of_one_function_share_its_rows),
		cmocka_unit_test(go_functions_get_what_their_cfi_leaves_out),
		cmocka_unit_test(go_roots_are_known_by_exact_names),
		cmocka_unit_test(the_place_of_g_is_read_from_code),
		cmocka_unit_test(go_code_on_another_stack_is_known_by_its_moves),
		cmocka_unit_test(names_have_segments_and_the_vaddr_of_the_file),
		cmocka_unit_test(the_vdso_is_a_file_like_any_other),
		cmocka_unit_test(a_file_that_cannot_be_read_is_answered_too),
		cmocka_unit_test(files_stay_open_for_a_batch_and_indexes_longer),
		cmocka_unit_test(symbol_indexes_are_dropped_oldest_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
