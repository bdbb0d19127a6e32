/* Rows against readelf --debug-dump=frames-interp (GNU binutils), and expressions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "symbolizer/cfi.h"
#include "symbolizer/expr.h"
#include "symbolizer/rowset.h"
#include "tests/unit/elf_fixture.h"

/* ---- the oracle ---- */

enum { COLUMNS_MAX = 24 };

struct oracle {
	struct fdes *fdes;
	int columns[COLUMNS_MAX];	/* DWARF register, -1 for one that we do not have */
	int ncolumns;
	uint64_t start, end;	/* of the FDE that the lines are about; 0: a CIE's */
	unsigned int nrows, nwrong, every;
};

static const char *const names[] = {
	"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
	"r9",  "r10", "r11", "r12", "r13", "r14", "r15", "ra",
};

static int reg_number(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return -1;
}

struct wanted {
	uint64_t pc;
	bool found;
	struct cfi_state state;
};

static bool pick_row(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct wanted *w = arg;

	if (w->pc < start || w->pc >= end)
		return true;
	w->found = true;
	w->state = *state;
	return false;
}

/* As readelf prints it; after a register's number it gives the name, as a word of its own. */
static void format_rule(char *to, size_t size, const struct cfi_rule *r, bool is_cfa)
{
	switch (r->kind) {
	case CFI_UNSPECIFIED:
	case CFI_UNDEFINED:
		snprintf(to, size, "u");
		break;
	case CFI_SAME:
		snprintf(to, size, "s");
		break;
	case CFI_OFFSET:
		snprintf(to, size, "c%+ld", r->off);
		break;
	case CFI_VAL_OFFSET:
		snprintf(to, size, "v%+ld", r->off);
		break;
	case CFI_REGISTER:
		if (is_cfa)
			snprintf(to, size, "%s%+ld", names[r->reg], r->off);
		else
			snprintf(to, size, "r%u", r->reg);
		break;
	case CFI_EXPRESSION:
		snprintf(to, size, "exp");
		break;
	case CFI_VAL_EXPRESSION:
		snprintf(to, size, is_cfa ? "exp" : "vexp");
		break;
	}
}

static void check_value(struct oracle *o, const char *line, const char *want, const struct cfi_rule *rule,
			bool is_cfa)
{
	char got[64];

	format_rule(got, sizeof(got), rule, is_cfa);
	if (strcmp(got, want) == 0)
		return;
	if (o->nwrong++ < 5)
		print_error("fde %lx: got %s want %s in: %s\n", o->start, got, want, line);
}

static char *next_value(char **save)
{
	char *word;

	do {
		word = strtok_r(NULL, " ", save);
	} while (word && word[0] == '(');
	return word;
}

static void check_row(struct oracle *o, char *line)
{
	char *save = NULL, *copy = strdup(line), *word = strtok_r(copy, " ", &save);
	struct wanted w = { .pc = strtoull(word, NULL, 16) };
	struct fde fde;

	/* A row may begin at the end of its FDE: it describes no code. */
	if (o->nrows++ % o->every == 0 && w.pc >= o->start && w.pc < o->end) {
		if (!fdes_find(o->fdes, w.pc, &fde) || fde.start != o->start || fde.end != o->end) {
			if (o->nwrong++ < 5)
				print_error("fde %lx not found for %lx\n", o->start, w.pc);
		} else {
			(void)!cfi_run(&fde, pick_row, &w);
			assert_true(w.found);
			word = strtok_r(NULL, " ", &save);
			check_value(o, line, word, &w.state.cfa, true);
			for (int i = 0; i < o->ncolumns && (word = next_value(&save)); i++)
				if (o->columns[i] >= 0)
					check_value(o, line, word, &w.state.regs[o->columns[i]], false);
		}
	}
	free(copy);
}

static void on_line(void *arg, char *line)
{
	struct oracle *o = arg;
	char *save = NULL, *word, *pc;

	if ((pc = strstr(line, " FDE ")) && (pc = strstr(line, "pc="))) {
		assert_int_equal(sscanf(pc, "pc=%lx..%lx", &o->start, &o->end), 2);
	} else if (strstr(line, " CIE ")) {
		o->start = o->end = 0;
	} else if (strncmp(line, "   LOC", 6) == 0) {
		o->ncolumns = 0;
		strtok_r(line, " ", &save);
		strtok_r(NULL, " ", &save);
		while ((word = strtok_r(NULL, " ", &save)) && o->ncolumns < COLUMNS_MAX)
			o->columns[o->ncolumns++] = reg_number(word);
	} else if (line[0] == '0' && strlen(line) > 17 && line[16] == ' ' && o->end) {
		check_row(o, line);
	}
}

/* Rows compared; 0 disagreements asserted. */
static unsigned int compare_with_readelf(const char *path, unsigned int every)
{
	struct elffile *f = fixture_open(path);
	struct oracle o = { .fdes = fdes_new(f), .every = every };
	char command[256];

	snprintf(command, sizeof(command), "readelf -W --debug-dump=frames-interp %s 2>/dev/null; true", path);
	fixture_each_line(command, on_line, &o);
	fdes_free(o.fdes);
	elffile_close(f);
	print_message("%s: %u rows, %u disagreements\n", path, o.nrows / every, o.nwrong);
	assert_int_equal(o.nwrong, 0);
	return o.nrows / every;
}

static void rows_of_libc_agree_with_readelf(void **state UNUSED)
{
	assert_true(compare_with_readelf("/lib/x86_64-linux-gnu/libc.so.6", 3) > 5000);
}

static void rows_of_openssl_agree_with_readelf(void **state UNUSED)
{
	if (access("/usr/bin/openssl", R_OK) == 0)
		assert_true(compare_with_readelf("/usr/bin/openssl", 1) > 1000);
	if (access("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", R_OK) == 0)
		assert_true(compare_with_readelf("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 11) > 1000);
}

static void rows_of_ld_so_agree_with_readelf(void **state UNUSED)
{
	assert_true(compare_with_readelf("/lib64/ld-linux-x86-64.so.2", 1) > 500);
}

static void rows_of_an_optimized_cpp_program_agree_with_readelf(void **state UNUSED)
{
	char *path = fixture_compile_to("cc", fixture_cpp, "-O2");

	assert_true(compare_with_readelf(path, 1) > 100);
	fixture_forget(path);
}

/* readelf prints .debug_frame of a file that has both; here only main's part has no .eh_frame. */
static void rows_of_debug_frame_agree_with_readelf(void **state UNUSED)
{
	static const char *const flags[] = {
		"-O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables",
		"-O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables -gz=zlib",
		"-O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables -gdwarf64",
		"-O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables -no-pie -static",
	};

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		char *path = fixture_compile_to("c", fixture_c, flags[i]);
		struct elffile *f = fixture_open(path);
		struct elf_section s;

		assert_int_equal(elffile_section(f, ".debug_frame", &s), 0);
		assert_int_equal(s.flags >> 11 & 1, i == 1);
		elffile_close(f);
		assert_true(compare_with_readelf(path, 1) > 10);
		fixture_forget(path);
	}
}

/* Without the linker's table our own index must find the same. */
static void rows_without_eh_frame_hdr_agree_with_readelf(void **state UNUSED)
{
	char *path = fixture_compile_to("cc", fixture_cpp, "-O2 -Wl,--no-eh-frame-hdr");
	struct elffile *f = fixture_open(path);

	assert_int_equal(f->eh_frame_hdr, 0);
	elffile_close(f);
	assert_true(compare_with_readelf(path, 1) > 100);
	fixture_forget(path);
}

static void an_address_without_fde_has_none(void **state UNUSED)
{
	struct elffile *f = fixture_open("/lib/x86_64-linux-gnu/libc.so.6");
	struct fdes *t = fdes_new(f);
	struct fde fde;

	assert_false(fdes_find(t, 0, &fde));
	assert_false(fdes_find(t, UINT64_MAX, &fde));
	assert_false(fdes_find(t, (uint64_t)1 << 63, &fde));
	fdes_free(t);
	elffile_close(f);
}

/* ---- programs made by hand ---- */

struct got {
	unsigned int n;
	uint64_t start[8], end[8];
	struct cfi_state state[8];
};

static bool keep_row(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct got *g = arg;

	if (g->n < ARRAY_SIZE(g->start)) {
		g->start[g->n] = start;
		g->end[g->n] = end;
		g->state[g->n] = *state;
	}
	g->n++;
	return true;
}

/* CIE: CFA = rsp + 8, RA at CFA - 8. */
static const uint8_t cie_program[] = { 0x0c, 7, 8, 0x90, 1 };

static struct fde make_fde(const uint8_t *program, size_t len)
{
	return (struct fde){
		.start = 0x1000,
		.end = 0x1100,
		.cie = { .program = { cie_program, sizeof(cie_program) }, .code_align = 1, .data_align = -8,
			 .ra_reg = 16, .address_size = 8 },
		.program = { program, len },
	};
}

static void every_instruction_moves_the_state_as_dwarf_says(void **state UNUSED)
{
	static const uint8_t program[] = {
		0x41, 0x0e, 16, 0x86, 2,	/* +1: def_cfa_offset 16; rbp at c-16 */
		0x0a,				/* remember */
		0x43, 0x0d, 6,			/* +3: def_cfa_register rbp */
		0x05, 12, 3,			/* offset_extended r12 at c-24 */
		0x11, 13, 0x7e,			/* offset_extended_sf r13, -2 * -8 = c+16 */
		0x14, 7, 2,			/* val_offset rsp = c-16 */
		0x09, 14, 1,			/* register r14 in rdx */
		0x07, 3,			/* undefined rbx */
		0x08, 15,			/* same_value r15 */
		0x07, 60,			/* a register that we do not have */
		0x02, 0x20,			/* +32 */
		0x0b,				/* restore state */
		0xc6,				/* restore rbp: unspecified */
		0x2e, 0x10,			/* GNU_args_size */
		0x03, 0x00, 0x10,		/* past the end */
		0x0e, 99,			/* no code any more */
	};
	struct fde fde = make_fde(program, sizeof(program));
	struct got g = { 0 };

	assert_true(cfi_run(&fde, keep_row, &g));
	assert_int_equal(g.n, 4);
	assert_int_equal(g.start[0], 0x1000);
	assert_int_equal(g.end[0], 0x1001);
	assert_int_equal(g.state[0].cfa.off, 8);
	assert_int_equal(g.state[1].cfa.off, 16);
	assert_int_equal(g.state[1].regs[CFI_RBP].off, -16);
	assert_int_equal(g.end[1], 0x1004);
	assert_int_equal(g.state[2].cfa.reg, CFI_RBP);
	assert_int_equal(g.state[2].cfa.off, 16);
	assert_int_equal(g.state[2].regs[12].off, -24);
	assert_int_equal(g.state[2].regs[13].off, 16);
	assert_int_equal(g.state[2].regs[7].kind, CFI_VAL_OFFSET);
	assert_int_equal(g.state[2].regs[7].off, -16);
	assert_int_equal(g.state[2].regs[14].kind, CFI_REGISTER);
	assert_int_equal(g.state[2].regs[14].reg, 1);
	assert_int_equal(g.state[2].regs[3].kind, CFI_UNDEFINED);
	assert_int_equal(g.state[2].regs[15].kind, CFI_SAME);
	assert_int_equal(g.state[3].cfa.reg, CFI_RSP);
	assert_int_equal(g.state[3].cfa.off, 16);
	assert_int_equal(g.state[3].regs[CFI_RBP].kind, CFI_UNSPECIFIED);
	assert_int_equal(g.state[3].regs[12].kind, CFI_UNSPECIFIED);
	assert_int_equal(g.start[3], 0x1024);
	assert_int_equal(g.end[3], 0x1100);
}

static void a_malformed_program_ends_where_it_breaks(void **state UNUSED)
{
	static const struct {
		uint8_t bytes[6];
		size_t len;
	} programs[] = {
		{ { 0x41, 0x0b }, 2 },			/* restore without remember */
		{ { 0x41, 0x0e }, 2 },			/* short operand */
		{ { 0x41, 0x0f, 0x20, 0x70 }, 4 },	/* block past the end */
		{ { 0x41, 0x3f }, 2 },			/* unknown */
		{ { 0x41, 0x0d, 60 }, 3 },		/* CFA by a register that we do not have */
		{ { 0x41, 0x04, 1, 0 }, 4 },		/* short location */
	};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		struct fde fde = make_fde(programs[i].bytes, programs[i].len);
		struct got g = { 0 };

		assert_false(cfi_run(&fde, keep_row, &g));
		assert_int_equal(g.n, 1);
	}
}

static void states_are_remembered_up_to_a_bound(void **state UNUSED)
{
	uint8_t program[CFI_STATES_MAX + 2];
	struct fde fde = make_fde(program, CFI_STATES_MAX);
	struct got g = { 0 };

	memset(program, 0x0a, sizeof(program));
	assert_true(cfi_run(&fde, keep_row, &g));
	fde = make_fde(program, CFI_STATES_MAX + 1);
	assert_false(cfi_run(&fde, keep_row, &g));
}

/* ---- expressions ---- */

static uint32_t compile(const uint8_t *expr, size_t len, unsigned int depth, struct msg_op *ops)
{
	return expr_compile((struct bytes){ expr, len }, depth, ops);
}

static void the_plt_expression_compiles(void **state UNUSED)
{
	/* breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus: what GNU ld writes for .plt */
	static const uint8_t expr[] = { 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22 };
	static const struct msg_op want[] = {
		{ MSG_OP_REG, 7, 8 },	 { MSG_OP_REG, 16, 0 }, { MSG_OP_CONST, 0, 15 },
		{ MSG_OP_AND, 0, 0 },	 { MSG_OP_CONST, 0, 11 }, { MSG_OP_GE, 0, 0 },
		{ MSG_OP_CONST, 0, 3 }, { MSG_OP_SHL, 0, 0 },	 { MSG_OP_ADD, 0, 0 },
	};
	struct msg_op ops[MSG_EXPR_MAX];

	assert_int_equal(compile(expr, sizeof(expr), 0, ops), ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_int_equal(ops[i].code, want[i].code);
		assert_int_equal(ops[i].reg, want[i].reg);
		assert_int_equal(ops[i].n, want[i].n);
	}
}

static void constants_have_their_widths_and_signs(void **state UNUSED)
{
	static const struct {
		uint8_t bytes[12];
		size_t len;
		int64_t want;
	} cases[] = {
		{ { 0x08, 0xff }, 2, 255 },
		{ { 0x09, 0xff }, 2, -1 },
		{ { 0x0a, 0xff, 0xff }, 3, 65535 },
		{ { 0x0b, 0xfe, 0xff }, 3, -2 },
		{ { 0x0c, 0xff, 0xff, 0xff, 0xff }, 5, UINT32_MAX },
		{ { 0x0d, 0, 0, 0, 0x80 }, 5, INT32_MIN },
		{ { 0x0f, 0, 0, 0, 0, 0, 0, 0, 0x80 }, 9, INT64_MIN },
		{ { 0x10, 0x80, 0x01 }, 3, 128 },
		{ { 0x11, 0x7f }, 2, -1 },
	};
	struct msg_op ops[MSG_EXPR_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(compile(cases[i].bytes, cases[i].len, 0, ops), 1);
		assert_int_equal(ops[0].code, MSG_OP_CONST);
		assert_int_equal(ops[0].n, cases[i].want);
	}
}

static void jumps_count_steps_and_go_forward_only(void **state UNUSED)
{
	/* lit1; bra +4 (over lit2, skip); lit2; skip +1 (over lit3); lit3; nop; */
	static const uint8_t branch[] = { 0x31, 0x28, 4, 0, 0x32, 0x2f, 1, 0, 0x33, 0x96 };
	static const uint8_t back[] = { 0x31, 0x2f, 0xfc, 0xff };
	static const uint8_t uneven[] = { 0x31, 0x28, 1, 0, 0x32, 0x33 };
	static const uint8_t past[] = { 0x31, 0x2f, 9, 0 };
	struct msg_op ops[MSG_EXPR_MAX];

	assert_int_equal(compile(branch, sizeof(branch), 0, ops), 5);
	assert_int_equal(ops[1].code, MSG_OP_BRANCH);
	assert_int_equal(ops[1].n, 3);
	assert_int_equal(ops[3].code, MSG_OP_SKIP);
	assert_int_equal(ops[3].n, 2);
	assert_int_equal(compile(back, sizeof(back), 0, ops), 0);
	assert_int_equal(compile(uneven, sizeof(uneven), 0, ops), 0);
	assert_int_equal(compile(past, sizeof(past), 0, ops), 0);
}

static void expressions_that_leave_their_stack_are_refused(void **state UNUSED)
{
	static const uint8_t plus[] = { 0x22 }, reg_plus[] = { 0x77, 0, 0x22 }, empty[] = { 0x31, 0x13 };
	static const uint8_t addr[] = { 0x03, 0, 0, 0, 0, 0, 0, 0, 0 }, deref3[] = { 0x31, 0x94, 3 };
	static const uint8_t bregx[] = { 0x92, 33, 0 }, pick[] = { 0x31, 0x15, 1 };
	uint8_t deep[MSG_EXPR_DEPTH + 1], many[MSG_EXPR_MAX + 1];
	struct msg_op ops[MSG_EXPR_MAX];

	memset(deep, 0x31, sizeof(deep));
	memset(many, 0x1f, sizeof(many));
	many[0] = 0x31;
	assert_int_equal(compile(plus, sizeof(plus), 0, ops), 0);
	assert_int_equal(compile(plus, sizeof(plus), 1, ops), 0);
	assert_int_equal(compile(reg_plus, sizeof(reg_plus), 0, ops), 0);
	assert_int_equal(compile(reg_plus, sizeof(reg_plus), 1, ops), 2);
	assert_int_equal(compile(empty, sizeof(empty), 0, ops), 0);
	assert_int_equal(compile(addr, sizeof(addr), 0, ops), 0);
	assert_int_equal(compile(deref3, sizeof(deref3), 0, ops), 0);
	assert_int_equal(compile(bregx, sizeof(bregx), 0, ops), 0);
	assert_int_equal(compile(pick, sizeof(pick), 0, ops), 0);
	assert_int_equal(compile(deep, sizeof(deep), 0, ops), 0);
	assert_int_equal(compile(deep, sizeof(deep) - 1, 0, ops), MSG_EXPR_DEPTH);
	assert_int_equal(compile(many, sizeof(many), 0, ops), 0);
	assert_int_equal(compile(many, sizeof(many) - 1, 0, ops), MSG_EXPR_MAX);
	assert_int_equal(compile(NULL, 0, 0, ops), 0);
}

/* ---- rows of a message ---- */

static struct cfi_state plain_state(int64_t cfa_off)
{
	return (struct cfi_state){
		.cfa = { .kind = CFI_REGISTER, .reg = CFI_RSP, .off = cfa_off },
		.regs[CFI_RIP] = { .kind = CFI_OFFSET, .off = -8 },
	};
}

static void equal_neighbours_become_one_row(void **state UNUSED)
{
	CLEANUP(rowset_fini) struct rowset s = { 0 };
	struct cfi_state a = plain_state(8), b = plain_state(16);

	assert_int_equal(rowset_add(&s, 0, 4, 0, &a, UINT32_MAX), 0);
	assert_int_equal(rowset_add(&s, 4, 9, 0, &a, 0), 0);
	assert_int_equal(rowset_add(&s, 9, 12, 0, &b, 0), 1);
	assert_int_equal(rowset_add(&s, 13, 14, 0, &b, 1), 2);
	assert_int_equal(s.msg.nrows, 3);
	assert_int_equal(s.msg.rows[0].end, 9);
}

static void offsets_over_16_bits_are_kept_and_over_32_refused(void **state UNUSED)
{
	CLEANUP(rowset_fini) struct rowset s = { 0 };
	struct cfi_state a = plain_state(612168), b = plain_state((int64_t)1 << 33);

	a.regs[CFI_RBX] = (struct cfi_rule){ .kind = CFI_OFFSET, .off = -540080 };
	a.regs[CFI_RBP] = (struct cfi_rule){ .kind = CFI_OFFSET, .off = -((int64_t)1 << 33) };
	assert_int_equal(rowset_add(&s, 0, 4, 0, &a, UINT32_MAX), 0);
	assert_int_equal(s.msg.rows[0].cfa.off, 612168);
	assert_int_equal(s.msg.rules[0].off, -540080);
	assert_int_equal(s.msg.rules[1].kind, MSG_RULE_UNDEFINED);
	assert_int_equal(rowset_add(&s, 4, 8, 0, &b, 0), UINT32_MAX);
}

static void an_undefined_return_address_is_the_end(void **state UNUSED)
{
	CLEANUP(rowset_fini) struct rowset s = { 0 };
	struct cfi_state a = plain_state(8);

	a.regs[CFI_RIP].kind = CFI_UNDEFINED;
	assert_int_equal(rowset_add(&s, 0, 4, 0, &a, UINT32_MAX), 0);
	assert_int_equal(s.msg.rows[0].flags, MSG_ROW_END);
	a.regs[CFI_RIP].kind = CFI_UNSPECIFIED;
	assert_int_equal(rowset_add(&s, 4, 8, 0, &a, UINT32_MAX), UINT32_MAX);
	/* vfork keeps it in a register. */
	a.regs[CFI_RIP] = (struct cfi_rule){ .kind = CFI_REGISTER, .reg = 5 };
	assert_int_equal(rowset_add(&s, 4, 8, 0, &a, UINT32_MAX), 1);
	assert_int_equal(s.msg.rows[1].ra.kind, MSG_RULE_REG_VAL);
	assert_int_equal(s.msg.rows[1].ra.reg, 5);
}

static void only_registers_that_need_a_rule_are_sent(void **state UNUSED)
{
	CLEANUP(rowset_fini) struct rowset s = { 0 };
	struct cfi_state a = plain_state(8);
	static const uint8_t near_cfa[] = { 0x23, 0x10 }, from_rsp[] = { 0x77, 0x28 };

	a.regs[CFI_RBX].kind = CFI_SAME;	/* callee-saved: what it is anyway */
	a.regs[CFI_RAX].kind = CFI_SAME;	/* caller-saved: would be lost */
	a.regs[CFI_RBP] = (struct cfi_rule){ .kind = CFI_EXPRESSION, .expr = { near_cfa, 2 } };
	a.regs[CFI_RSP] = (struct cfi_rule){ .kind = CFI_VAL_EXPRESSION, .expr = { from_rsp, 2 } };
	a.regs[15] = (struct cfi_rule){ .kind = CFI_EXPRESSION, .expr = { from_rsp, 2 } };
	assert_int_equal(rowset_add(&s, 0, 4, 0, &a, UINT32_MAX), 0);
	assert_int_equal(s.msg.rows[0].nrules, 4);
	assert_int_equal(s.msg.rules[0].kind, MSG_RULE_SAME);
	assert_int_equal(s.msg.rules[1].kind, MSG_RULE_EXPR_MEM); /* the CFA is on its stack */
	assert_int_equal(s.msg.ops[0].code, MSG_OP_ADD_CONST);
	assert_int_equal(s.msg.rules[2].kind, MSG_RULE_REG_VAL);
	assert_int_equal(s.msg.rules[3].kind, MSG_RULE_REG_MEM);
	assert_int_equal(s.msg.rules[3].off, 0x28);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_libc_agree_with_readelf),
		cmocka_unit_test(rows_of_openssl_agree_with_readelf),
		cmocka_unit_test(rows_of_ld_so_agree_with_readelf),
		cmocka_unit_test(rows_of_an_optimized_cpp_program_agree_with_readelf),
		cmocka_unit_test(rows_of_debug_frame_agree_with_readelf),
		cmocka_unit_test(rows_without_eh_frame_hdr_agree_with_readelf),
		cmocka_unit_test(an_address_without_fde_has_none),
		cmocka_unit_test(every_instruction_moves_the_state_as_dwarf_says),
		cmocka_unit_test(a_malformed_program_ends_where_it_breaks),
		cmocka_unit_test(states_are_remembered_up_to_a_bound),
		cmocka_unit_test(the_plt_expression_compiles),
		cmocka_unit_test(constants_have_their_widths_and_signs),
		cmocka_unit_test(jumps_count_steps_and_go_forward_only),
		cmocka_unit_test(expressions_that_leave_their_stack_are_refused),
		cmocka_unit_test(equal_neighbours_become_one_row),
		cmocka_unit_test(offsets_over_16_bits_are_kept_and_over_32_refused),
		cmocka_unit_test(an_undefined_return_address_is_the_end),
		cmocka_unit_test(only_registers_that_need_a_rule_are_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
