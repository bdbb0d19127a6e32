#include "symbolizer/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "symbolizer/answer.h"
#include "symbolizer/demangle.h"
#include "symbolizer/mem.h"
#include "symbolizer/rowset.h"

static const char *const reg_names[] = {
	"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
	"r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip",
};

static const char *reg_name(uint32_t reg)
{
	if (reg == MSG_REG_GOROUTINE_PC)
		return "goroutine_pc";
	if (reg == MSG_REG_GOROUTINE_SP)
		return "goroutine_sp";
	return reg < ARRAY_SIZE(reg_names) ? reg_names[reg] : "?";
}

static void print_steps(const struct msg_rows *m, const struct msg_rule *r)
{
	static const char *const names[] = {
		"const", "reg", "cfa", "deref", "add_const", "add", "sub", "mul", "div", "mod", "and", "or",
		"xor",	 "shl", "shr", "shra",	"neg",	     "not", "abs", "eq",  "ne",	 "lt",	"le",  "gt",
		"ge",	 "dup", "drop", "over", "swap",	     "rot", "pick", "skip", "branch",
	};

	_Static_assert(ARRAY_SIZE(names) == MSG_OP_COUNT, "one name for each operation");
	for (uint32_t i = 0; i < r->n; i++) {
		const struct msg_op *op = &m->ops[(uint32_t)r->off + i];

		printf("%s%s", i ? "; " : "", names[op->code]);
		if (op->code == MSG_OP_REG)
			printf(" %s%+" PRId64, reg_name(op->reg), op->n);
		else if (op->code == MSG_OP_DEREF)
			printf(" %u", op->reg);
		else if (op->n)
			printf(" %" PRId64, op->n);
	}
}

static void print_rule(const struct msg_rows *m, const char *target, const struct msg_rule *r)
{
	printf(" %s=", target);
	switch ((enum msg_rule_kind)r->kind) {
	case MSG_RULE_UNDEFINED:
		printf("undefined");
		break;
	case MSG_RULE_SAME:
		printf("same");
		break;
	case MSG_RULE_CFA_MEM:
		printf("[cfa%+d]", r->off);
		break;
	case MSG_RULE_CFA_VAL:
		printf("cfa%+d", r->off);
		break;
	case MSG_RULE_REG_MEM:
		printf("[%s%+d]", reg_name(r->reg), r->off);
		break;
	case MSG_RULE_REG_VAL:
		printf("%s%+d", reg_name(r->reg), r->off);
		break;
	case MSG_RULE_EXPR_MEM:
	case MSG_RULE_EXPR_VAL:
		printf(r->kind == MSG_RULE_EXPR_MEM ? "[expr(" : "expr(");
		print_steps(m, r);
		printf(r->kind == MSG_RULE_EXPR_MEM ? ")]" : ")");
		break;
	case MSG_RULE_KIND_COUNT:
	default:
		break;
	}
}

static void print_row(const struct msg_rows *m, uint32_t i)
{
	const struct msg_row *row = &m->rows[i];

	printf("%08" PRIx64 "-%08" PRIx64, row->start, row->end);
	print_rule(m, "cfa", &row->cfa);
	print_rule(m, "ra", &row->ra);
	for (uint32_t k = 0; k < row->nrules; k++) {
		const struct msg_rule *r = &m->rules[row->first_rule + k];

		print_rule(m, reg_name(r->target), r);
	}
	if (row->flags & MSG_ROW_SIGNAL)
		printf(" signal");
	if (row->flags & MSG_ROW_CLONE)
		printf(" clone");
	if (row->flags & MSG_ROW_END)
		printf(" end");
	printf("\n");
}

struct dump {
	const struct elffile *elf;
	struct rowset rows;
	const struct fde *fde;
};

static bool on_row(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct dump *d = arg;
	const struct msg_segment *s = elffile_segment_of_vaddr(d->elf, start);
	uint8_t flags = d->fde->cie.is_signal ? MSG_ROW_SIGNAL : 0;

	if (s)
		rowset_add(&d->rows, start - s->vaddr + s->offset, end - s->vaddr + s->offset, flags, state,
			   d->rows.msg.nrows - 1);
	return true;
}

static bool on_fde(void *arg, const struct fde *fde)
{
	struct dump *d = arg;

	d->fde = fde;
	if (!cfi_run(fde, on_row, d))
		printf("# malformed fde start=%" PRIx64 " end=%" PRIx64 "\n", fde->start, fde->end);
	for (uint32_t i = 0; i < d->rows.msg.nrows; i++)
		print_row(&d->rows.msg, i);
	d->rows.msg.nrows = d->rows.msg.nrules = d->rows.msg.nops = 0;
	return true;
}

int dump_rows(int fd)
{
	CLEANUP(elffile_closep) struct elffile *f = NULL;
	CLEANUP(fdes_freep) struct fdes *fdes = NULL;
	struct dump d = { 0 };
	int err;

	err = elffile_open(&f, fd);
	if (err)
		return err;
	fdes = fdes_new(f);
	d.elf = f;
	fdes_each(fdes, on_fde, &d);
	rowset_fini(&d.rows);
	/* The table refers to the file. */
	fdes = fdes_free(fdes);
	return 0;
}

int dump_rows_at(int fd, uint64_t offset)
{
	CLEANUP(handles_fini) struct handles h = { 0 };
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	CLEANUP(msg_rows_fini) struct msg_rows m = { 0 };
	CLEANUP_FREE struct msg_request *req = calloc(1, sizeof(*req));
	struct bufr r;
	int err;

	if (!req)
		return -ENOMEM;
	req->naddrs = 1;
	req->addrs[0].offset = offset;
	answer_rows(&h, req, fd, &w);
	bufr_init(&r, w.data, w.len);
	err = msg_rows_decode(&r, &m);
	if (err || m.result)
		return err ? err : (int)m.result;
	for (uint32_t i = 0; i < m.nrows; i++)
		print_row(&m, i);
	printf("offset=%" PRIx64, offset);
	if (m.results[0].flags & MSG_RES_ROW)
		printf(" row=%08" PRIx64, m.rows[m.results[0].row].start);
	printf("%s%s%s\n", m.results[0].flags & MSG_RES_CODE ? " code" : "",
	       m.results[0].flags & MSG_RES_AFTER_CALL ? " after_call" : "",
	       m.results[0].flags & MSG_RES_FUNCTION_START ? " function_start" : "");
	return 0;
}

int dump_symbols(int fd, enum demangle_style style)
{
	CLEANUP(elffile_closep) struct elffile *f = NULL;
	CLEANUP(symtab_freep) struct symtab *t = NULL;
	struct demangled d;
	struct symtab_strings strings;
	int err;

	err = elffile_open(&f, fd);
	if (err)
		return err;
	t = symtab_new(f, NULL);
	strings = symtab_strings(t, f, NULL);
	for (uint32_t i = 0; i < symtab_count(t); i++) {
		struct symbol s = symtab_at(t, i);

		demangle(symtab_name(&strings, s.name), f->is_go, style, &d);
		printf("%016" PRIx64 " %8" PRIx64 " %s\n", s.vaddr, s.size, d.name);
	}
	return 0;
}

static void print_named(FILE *to, const struct msg_names *m, const struct msg_named *named)
{
	fprintf(to, "build_id=");
	for (uint32_t i = 0; i < m->build_id_len; i++)
		fprintf(to, "%02x", m->build_id[i]);
	fprintf(to, " vaddr=%" PRIx64 "\n", named->vaddr);
	for (uint32_t i = 0; i < named->nlines; i++) {
		const struct msg_line *line = &m->lines[named->first_line + i];
		const struct msg_function *f = &m->functions[line->function];

		fprintf(to, "%s (%s)", f->name, f->system_name);
		if (f->file[0])
			fprintf(to, " %s:%u", f->file, line->line);
		if (f->start_line)
			fprintf(to, " start_line=%u", f->start_line);
		fprintf(to, "\n");
	}
}

/* An offset, and what is to be printed of it. */
struct asked {
	uint64_t offset;
	char *text;
};

static int by_offset(const void *a, const void *b)
{
	const struct asked *x = *(struct asked *const *)a, *y = *(struct asked *const *)b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The answer to one request about all of these. */
static int ask_names(struct handles *h, int fd, struct asked **asked, size_t n)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	CLEANUP(msg_names_fini) struct msg_names m = { 0 };
	CLEANUP_FREE struct msg_request *req = mem_calloc(1, sizeof(*req));
	struct bufr r;
	int err;

	req->naddrs = (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		req->addrs[i].offset = asked[i]->offset;
	answer_names(h, req, fd, &w);
	bufr_init(&r, w.data, w.len);
	err = msg_names_decode(&r, &m);
	if (err || m.result)
		return err ? err : (int)m.result;
	for (size_t i = 0; i < n; i++) {
		size_t len;
		FILE *to = mem_check(open_memstream(&asked[i]->text, &len));

		print_named(to, &m, &m.named[i]);
		if (fclose(to) != 0)
			return -ENOMEM;
	}
	return 0;
}

/* Asked in the order of addresses, as the agent does. */
int dump_symbols_at(int fd, enum demangle_style style, const uint64_t *offsets, size_t n)
{
	CLEANUP(handles_fini) struct handles h = { .style = style };
	CLEANUP_FREE struct asked *asked = mem_calloc(n, sizeof(*asked));
	CLEANUP_FREE struct asked **order = mem_calloc(n, sizeof(struct asked *));
	int err = 0;

	for (size_t i = 0; i < n; i++) {
		asked[i].offset = offsets[i];
		order[i] = &asked[i];
	}
	qsort(order, n, sizeof(struct asked *), by_offset);
	for (size_t i = 0; i < n && !err; i += MSG_ADDRS_MAX)
		err = ask_names(&h, fd, order + i, MIN(n - i, (size_t)MSG_ADDRS_MAX));
	for (size_t i = 0; i < n; i++) {
		if (!err)
			fputs(asked[i].text, stdout);
		free(asked[i].text);
	}
	return err;
}
