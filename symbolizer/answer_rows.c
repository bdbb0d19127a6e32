#include "symbolizer/answer.h"

#include <string.h>

#include "symbolizer/code.h"
#include "symbolizer/golang.h"
#include "symbolizer/mem.h"
#include "symbolizer/plt.h"
#include "symbolizer/rowset.h"

enum {
	ENTRY_LEN = 64,		/* code from the entry point that is _start */
	/*
	 * Bytes of CFI programs that one request may run. 512 functions of real files have some 100 KB;
	 * it bounds what a hostile file with one giant FDE can cost.
	 */
	PROGRAM_BYTES_MAX = 2 << 20,
};

/* A function whose rows are in the set already. */
struct done {
	uint64_t start, end;
	uint32_t first_row, nrows;
	bool all_rows;		/* what is not among them has no row */
};

struct rows_job {
	struct handle *handle;
	const struct elffile *elf;
	const struct symtab *symtab;
	struct gopclntab *go;	/* NULL: not Go's */
	struct rowset rows;
	struct done done[MSG_ADDRS_MAX];
	uint32_t ndone;
	uint64_t program_bytes;
	/* The address at hand. */
	const struct msg_segment *segment;
	uint64_t pc;
	uint8_t flags;		/* of the function's rows */
	bool eager;		/* rows that do not cover pc are wanted too */
	uint32_t before;	/* the row that the next one may be joined with */
	uint32_t found;
};

static uint64_t offset_of(const struct rows_job *job, uint64_t vaddr)
{
	return vaddr - job->segment->vaddr + job->segment->offset;
}

/* A row from the CFI; what lies outside of the segment has no file offset and is cut. */
static bool on_row(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct rows_job *job = arg;
	uint64_t low = job->segment->vaddr, high = low + job->segment->file_bytes;
	bool covers = job->pc >= start && job->pc < end;

	start = MAX(start, low);
	end = MIN(end, high);
	if (start >= end || (!covers && !job->eager))
		return job->pc >= start;
	job->before = rowset_add(&job->rows, offset_of(job, start), offset_of(job, end), job->flags, state,
				 job->before);
	if (covers)
		job->found = job->before;
	if (job->rows.msg.nrows >= ROWSET_EAGER_MAX)
		job->eager = false;
	return true;
}

struct limited {
	struct rows_job *job;
	uint32_t nrows;
};

static bool on_limited_row(void *arg, uint64_t start, uint64_t end, const struct cfi_state *state)
{
	struct limited *l = arg;

	if (++l->nrows > ANSWER_FDE_ROWS_MAX)
		l->job->eager = false;
	return on_row(l->job, start, end, state);
}

static struct bytes name_at(const struct rows_job *job, uint64_t vaddr)
{
	struct symtab_strings strings = symtab_strings(job->symtab, job->elf, NULL);
	struct symbol symbol;

	if (!symtab_find(job->symtab, vaddr, &symbol))
		return (struct bytes){ NULL, 0 };
	return symtab_name(&strings, symbol.name);
}

/* Whether pc's function was done; *ret_row is UINT32_MAX where it has no row at pc. */
static bool find_done(const struct rows_job *job, uint32_t *ret_row)
{
	uint64_t offset = offset_of(job, job->pc);
	bool all_rows = false;

	for (uint32_t i = 0; i < job->ndone; i++) {
		const struct done *d = &job->done[i];

		if (job->pc < d->start || job->pc >= d->end)
			continue;
		for (uint32_t k = d->first_row; k < d->first_row + d->nrows; k++) {
			if (offset < job->rows.msg.rows[k].start || offset >= job->rows.msg.rows[k].end)
				continue;
			*ret_row = k;
			return true;
		}
		all_rows |= d->all_rows;
	}
	*ret_row = UINT32_MAX;
	return all_rows;
}

/* All rows from `first` on are this function's. */
static void add_done(struct rows_job *job, uint64_t start, uint64_t end, uint32_t first)
{
	if (job->ndone == ARRAY_SIZE(job->done))
		return;
	job->done[job->ndone++] = (struct done){
		.start = start,
		.end = end,
		.first_row = first,
		.nrows = job->rows.msg.nrows - first,
		.all_rows = job->eager,
	};
}

/* The rows of an FDE that covers pc. */
static uint32_t rows_of_fde(struct rows_job *job, const struct fde *fde)
{
	struct golang_rows go = { .file = job->elf, .start = fde->start };
	struct limited limited = { .job = job };
	uint32_t first = job->rows.msg.nrows;

	job->program_bytes += fde->program.len + fde->cie.program.len;
	if (job->program_bytes > PROGRAM_BYTES_MAX)
		return UINT32_MAX;
	job->flags = fde->cie.is_signal ? MSG_ROW_SIGNAL : 0;
	job->eager = first < ROWSET_EAGER_MAX;
	job->before = job->found = UINT32_MAX;
	if (job->elf->is_go && fde->is_debug_frame) {
		go.kind = golang_kind(name_at(job, fde->start), elffile_at(job->elf, fde->start));
		go.fn = on_limited_row;
		go.arg = &limited;
		if (go.kind == GOLANG_NO_RULE)
			return UINT32_MAX;
		if (go.kind == GOLANG_END)
			job->flags |= MSG_ROW_END;
		else if (go.kind == GOLANG_ASYNC)
			job->flags |= MSG_ROW_SIGNAL;
		if (go.kind == GOLANG_CGO)
			golang_cgo_rows(&go);
		else
			(void)!cfi_run(fde, golang_row, &go);
	} else {
		(void)!cfi_run(fde, on_limited_row, &limited);
	}
	add_done(job, fde->start, fde->end, first);
	return job->found;
}

static bool find_go(const struct rows_job *job, uint64_t vaddr, struct gofunc *ret)
{
	return job->go && gopclntab_find(job->go, vaddr, ret);
}

/* The rows of a Go function that covers pc, by the table that its program carries. */
static uint32_t rows_of_go(struct rows_job *job, const struct gofunc *fn)
{
	uint64_t low = job->segment->vaddr, high = low + job->segment->file_bytes;
	struct limited limited = { .job = job };
	struct golang_rows go = { .file = job->elf, .start = fn->start, .fn = on_limited_row, .arg = &limited };
	uint32_t first = job->rows.msg.nrows;

	go.kind = golang_kind(fn->name, elffile_at(job->elf, fn->start));
	if (go.kind == GOLANG_END)
		return rowset_add_end(&job->rows, offset_of(job, MAX(fn->start, low)), offset_of(job, MIN(fn->end, high)));
	job->flags = go.kind == GOLANG_ASYNC ? MSG_ROW_SIGNAL : 0;
	job->eager = first < ROWSET_EAGER_MAX;
	job->before = job->found = UINT32_MAX;
	golang_run(&go, job->go, fn);
	if (job->rows.msg.nrows > first)
		add_done(job, fn->start, fn->end, first);
	return job->found;
}

/* Go code without CFI (linked with -w) and without a table that we can read: what a function's name tells. */
static uint32_t row_by_go_name(struct rows_job *job)
{
	struct cfi_state state;
	enum golang_kind kind;
	struct symbol symbol;
	struct bytes name;
	uint64_t start, end;

	if (!job->elf->is_go || !symtab_find(job->symtab, job->pc, &symbol))
		return UINT32_MAX;
	name = name_at(job, job->pc);
	kind = golang_kind(name, elffile_at(job->elf, symbol.vaddr));
	start = symbol.vaddr;
	end = MIN(symbol.vaddr + symbol.size, job->segment->vaddr + job->segment->file_bytes);
	if (start < job->segment->vaddr || job->pc >= end)
		return UINT32_MAX;
	if (kind == GOLANG_END)
		return rowset_add_end(&job->rows, offset_of(job, start), offset_of(job, end));
	if (kind != GOLANG_SWITCH)
		return UINT32_MAX;
	start += golang_switched(kind, elffile_at(job->elf, start)).from;
	/* Behind pop %rbp, which the byte before tells, the frame is gone. */
	if (job->pc < start || code_ends_with_pop_rbp(elffile_before(job->elf, job->pc, 1)))
		return UINT32_MAX;
	golang_switch_state(&state);
	return rowset_add(&job->rows, offset_of(job, job->pc), offset_of(job, job->pc) + 1, 0, &state, UINT32_MAX);
}

/* Where the code of the entry point ends: at ENTRY_LEN, or where CFI or a symbol tells of another function. */
static uint64_t end_of_entry(const struct rows_job *job)
{
	uint64_t entry = job->elf->entry, at = entry, high = job->segment->vaddr + job->segment->file_bytes;
	struct symbol symbol;
	struct fde fde;

	while (at - entry < ENTRY_LEN && at < high && !fdes_find(handles_fdes(job->handle), at, &fde) &&
	       !(symtab_find(job->symtab, at, &symbol) && symbol.vaddr > entry))
		at++;
	return at;
}

/* ld.so's _start has no CFI, and those of older crt1.o neither. */
static uint32_t row_of_entry(struct rows_job *job)
{
	uint64_t entry = job->elf->entry, end;

	if (!job->elf->entry_is_root || job->pc < entry || job->pc - entry >= ENTRY_LEN ||
	    entry < job->segment->vaddr)
		return UINT32_MAX;
	end = end_of_entry(job);
	if (job->pc >= end)
		return UINT32_MAX;
	return rowset_add_end(&job->rows, offset_of(job, entry), offset_of(job, end));
}

/* Whether this is an instruction of a trampoline that ends a signal handler, which begins at *ret_start. */
static bool find_sigreturn(const struct rows_job *job, uint64_t vaddr, uint64_t *ret_start)
{
	uint32_t before;

	if (!code_is_sigreturn(elffile_before(job->elf, vaddr, CODE_SIGRETURN_LEN), elffile_at(job->elf, vaddr), &before))
		return false;
	*ret_start = vaddr - before;
	return true;
}

/*
 * A signal handler returns to the first byte of the trampoline, of which the byte before is another
 * function's; so this looks at the address itself. CFI may be wrong (Go) or missing (musl) there.
 */
static uint32_t row_of_sigreturn(struct rows_job *job, uint64_t vaddr)
{
	uint64_t start, end = job->segment->vaddr + job->segment->file_bytes;

	if (!find_sigreturn(job, vaddr, &start))
		return UINT32_MAX;
	return rowset_add_sigreturn(&job->rows, offset_of(job, start),
				    offset_of(job, MIN(start + CODE_SIGRETURN_LEN, end)));
}

/* Places without CFI whose few bytes tell all of their frame; a row for this pc alone. */
static uint32_t row_of_stub(struct rows_job *job)
{
	struct bytes before = elffile_before(job->elf, job->pc, CODE_CLONE_LEN), at = elffile_at(job->elf, job->pc);
	struct cfi_state state = { .regs[CFI_RIP] = { .kind = CFI_OFFSET, .off = -8 } };
	uint32_t cfa_off = 0;
	uint8_t flags = 0;

	if (code_is_clone(before, at)) {
		cfa_off = 8;
		flags = MSG_ROW_CLONE;
	} else if (plt_covers(handles_plt(job->handle), job->pc)) {
		cfa_off = code_plt_cfa(before, at);
	}
	if (!cfa_off)
		return UINT32_MAX;
	state.cfa = (struct cfi_rule){ .kind = CFI_REGISTER, .reg = CFI_RSP, .off = cfa_off };
	return rowset_add(&job->rows, offset_of(job, job->pc), offset_of(job, job->pc) + 1, flags, &state, UINT32_MAX);
}

static uint32_t find_row(struct rows_job *job, uint64_t vaddr)
{
	struct gofunc fn;
	bool has_fde;
	struct fde fde;
	uint64_t start;
	uint32_t row;

	if (find_done(job, &row))
		return row;
	if (find_go(job, job->pc, &fn) && !find_sigreturn(job, vaddr, &start)) {
		row = rows_of_go(job, &fn);
		/* Of C code that Go's linker put in, its table has nothing but names. */
		if (row != UINT32_MAX)
			return row;
	}
	has_fde = fdes_find(handles_fdes(job->handle), job->pc, &fde);
	if (!has_fde || !fde.cie.is_signal) {
		row = row_of_sigreturn(job, vaddr);
		if (row != UINT32_MAX)
			return row;
	}
	if (has_fde)
		return rows_of_fde(job, &fde);
	row = row_by_go_name(job);
	if (row == UINT32_MAX)
		row = row_of_entry(job);
	return row != UINT32_MAX ? row : row_of_stub(job);
}

static bool is_function_start(struct rows_job *job, uint64_t vaddr)
{
	struct gofunc fn;
	struct fde fde;

	if (symtab_is_function_start(job->symtab, vaddr))
		return true;
	if (find_go(job, vaddr, &fn))
		return fn.start == vaddr;
	if (fdes_find(handles_fdes(job->handle), vaddr, &fde))
		return fde.start == vaddr;
	return code_ends_with_register_jump(elffile_before(job->elf, vaddr, CODE_CALL_MAX)) &&
	       !fdes_find(handles_fdes(job->handle), vaddr - 1, &fde);
}

static struct msg_result answer_address(struct rows_job *job, const struct msg_addr *addr)
{
	const struct msg_segment *s = elffile_segment_of_offset(job->elf, addr->offset);
	bool is_return = addr->flags & MSG_ADDR_RETURN;
	struct msg_result result = { 0 };
	uint64_t vaddr, start;
	uint32_t row;

	if (!s || !(s->flags & PF_X))
		return result;
	vaddr = addr->offset - s->offset + s->vaddr;
	result.flags = MSG_RES_CODE;
	if (code_ends_with_call(elffile_before(job->elf, vaddr, CODE_CALL_MAX)))
		result.flags |= MSG_RES_AFTER_CALL;
	if (is_function_start(job, vaddr))
		result.flags |= MSG_RES_FUNCTION_START;
	if (addr->flags & MSG_ADDR_HAVE_ROW && !find_sigreturn(job, vaddr, &start))
		return result;
	job->segment = s;
	job->pc = is_return && addr->offset > s->offset ? vaddr - 1 : vaddr;
	row = find_row(job, vaddr);
	if (row != UINT32_MAX) {
		result.flags |= MSG_RES_ROW;
		result.row = row;
	}
	return result;
}

static void encode_rows(const struct msg_rows *m, struct bufw *out)
{
	msg_rows_encode(out, m);
	if (bufw_end(out) < 0)
		mem_check(NULL);
}

/* Nothing that was read of a file that shrank meanwhile is told. */
static void rows_of_failed(const struct msg_request *req, enum msg_file_result why, struct bufw *out)
{
	CLEANUP(msg_rows_fini) struct msg_rows m = {
		.id = req->id,
		.file_id = req->file_id,
		.result = why,
		.nresults = req->naddrs,
	};

	m.results = mem_calloc(req->naddrs, sizeof(*m.results));
	encode_rows(&m, out);
}

/* Where the file's code has g: known by its runtime. */
static struct msg_go place_of_go(const struct rows_job *job)
{
	struct msg_go place = { .kind = MSG_GO_NONE };
	const struct msg_segment *s;
	struct gofunc fn;

	if (!job->go || !gopclntab_named(job->go, "runtime.systemstack", &fn))
		return place;
	s = elffile_segment_of_vaddr(job->elf, fn.start);
	if (!s || !(s->flags & PF_X))
		return place;
	place = golang_place(job->elf, &fn);
	place.code = fn.start - s->vaddr + s->offset;
	if (place.kind == MSG_GO_SLOT)
		place.off -= (int64_t)fn.start;
	place.cgo = gopclntab_named(job->go, "crosscall2", &fn);
	return place;
}

void answer_rows(struct handles *h, const struct msg_request *req, int fd, struct bufw *out)
{
	CLEANUP_FREE struct rows_job *job = mem_calloc(1, sizeof(*job));
	struct msg_rows *m = &job->rows.msg;
	int err;

	err = handles_open(h, req->file_id, fd, &job->handle);
	if (err) {
		rows_of_failed(req, answer_file_result(err), out);
		return;
	}
	job->elf = job->handle->elf;
	job->symtab = handles_symtab(h, job->handle, false);
	job->go = handles_go(job->handle);
	m->id = req->id;
	m->file_id = req->file_id;
	if (req->flags & MSG_REQUEST_GO)
		m->go = place_of_go(job);
	m->results = mem_calloc(req->naddrs, sizeof(*m->results));
	m->nresults = req->naddrs;
	for (uint32_t i = 0; i < req->naddrs; i++)
		m->results[i] = answer_address(job, &req->addrs[i]);
	if (elffile_damaged(job->elf)) {
		rows_of_failed(req, MSG_FILE_UNREADABLE, out);
		handles_forget(h, job->handle);
	} else {
		encode_rows(m, out);
		answer_drop_pages(req, job->elf);
	}
	rowset_fini(&job->rows);
}
