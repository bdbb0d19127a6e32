#include "symbolizer/answer.h"

#include <string.h>

#include "symbolizer/demangle.h"
#include "symbolizer/mem.h"
#include "symbolizer/plt.h"

enum { NAMES_BYTES_MAX = 8 << 20 }; /* of one answer; real ones have some 100 KB */

/* What makes a function another one: where its name and its file stand in the mapping. */
struct key {
	const uint8_t *name, *file;
};

struct names_job {
	enum demangle_style style;
	const struct elffile *elf;
	const struct symtab *symtab;
	struct plt *plt;
	struct gopclntab *go;	/* NULL: not Go's */
	struct dwarf *dwarf;	/* NULL: no debug information */
	const struct sections *sections;	/* for it */
	struct symtab_strings strings;
	struct msg_names msg;
	uint32_t cap_functions, cap_lines, cap_keys;
	size_t text_bytes;	/* of msg.functions */
	struct key *keys;	/* of msg.functions */
};

static char *copy_text(struct bytes text)
{
	struct demangled d;

	demangle(text, true, DEMANGLE_NONE, &d);
	return mem_check(strdup(d.name));
}

/* To one of struct demangled's names, where there is room. */
static void append(char *name, const char *text)
{
	if (strlen(name) + strlen(text) <= MSG_NAME_MAX)
		strcat(name, text);
}

static uint32_t add_function(struct names_job *job, const struct srcline *line, bool is_go)
{
	static const uint8_t plt[] = "@plt";
	struct key key = { line->name.p, line->is_plt ? plt : line->file.p };
	struct msg_names *m = &job->msg;
	struct demangled d;

	if (!line->name.len)
		return UINT32_MAX;
	for (uint32_t i = 0; i < m->nfunctions; i++)
		if (job->keys[i].name == key.name && job->keys[i].file == key.file)
			return i;
	if (job->text_bytes > NAMES_BYTES_MAX)
		return UINT32_MAX;
	m->functions = mem_grow(m->functions, &job->cap_functions, m->nfunctions + 1, sizeof(*m->functions));
	job->keys = mem_grow(job->keys, &job->cap_keys, m->nfunctions + 1, sizeof(*job->keys));
	demangle(line->name, is_go, job->style, &d);
	if (line->is_plt) {
		append(d.name, (const char *)plt);
		append(d.system_name, (const char *)plt);
	}
	m->functions[m->nfunctions] = (struct msg_function){
		.name = mem_check(strdup(d.name)),
		.system_name = mem_check(strdup(d.system_name)),
		.file = copy_text(line->file),
		.start_line = line->start_line,
	};
	job->text_bytes += strlen(d.name) + strlen(d.system_name) + strlen(m->functions[m->nfunctions].file);
	job->keys[m->nfunctions] = key;
	return m->nfunctions++;
}

static void add_line(struct names_job *job, const struct srcline *line, bool is_go, struct msg_named *named)
{
	uint32_t function = add_function(job, line, is_go);
	struct msg_names *m = &job->msg;

	if (function == UINT32_MAX)
		return;
	m->lines = mem_grow(m->lines, &job->cap_lines, m->nlines + 1, sizeof(*m->lines));
	m->lines[m->nlines++] = (struct msg_line){ .function = function, .line = line->line };
	named->nlines++;
}

/* What the symbol table has at an address; empty where it has nothing. */
static struct bytes symbol_at(const struct names_job *job, uint64_t pc)
{
	struct symbol symbol;

	if (!symtab_find(job->symtab, pc, &symbol))
		return (struct bytes){ NULL, 0 };
	return symtab_name(&job->strings, symbol.name);
}

static bool is_mangled(struct bytes name)
{
	return name.len > 2 && name.p[0] == '_' && (name.p[1] == 'Z' || name.p[1] == 'R');
}

static bool is_lambda(struct bytes name)
{
	static const char call[] = "operator()";

	return name.len == sizeof(call) - 1 && memcmp(name.p, call, name.len) == 0;
}

static void add_dwarf_lines(struct names_job *job, uint64_t pc, struct msg_named *named)
{
	struct srcline lines[DWARF_LINES_MAX];
	uint32_t n = dwarf_lines(job->dwarf, job->sections, job->elf, pc, lines);
	struct bytes symbol = symbol_at(job, pc);

	/* Assembly has its names in the symbol table alone, and lambdas those that tell them apart. */
	if (n && symbol.len && (!lines[n - 1].name.len || (is_mangled(symbol) && is_lambda(lines[n - 1].name))))
		lines[n - 1].name = symbol;
	for (uint32_t i = 0; i < n; i++)
		add_line(job, &lines[i], false, named);
}

static void add_go_lines(struct names_job *job, const struct gofunc *fn, uint64_t pc, struct msg_named *named)
{
	struct srcline lines[GOPCLNTAB_LINES_MAX];
	uint32_t n = gopclntab_lines(job->go, fn, pc, lines);
	struct symbol symbol;

	/* Where the linker's symbols are there too, they and DWARF agree. */
	if (symtab_find(job->symtab, fn->start, &symbol) && symbol.vaddr == fn->start)
		lines[n - 1].name = symtab_name(&job->strings, symbol.name);
	for (uint32_t i = 0; i < n; i++)
		add_line(job, &lines[i], true, named);
}

/* An entry of a linkage table is called as what it calls. */
static bool find_plt(const struct names_job *job, uint64_t pc, struct srcline *ret)
{
	struct plt_target target;

	if (!plt_find(job->plt, pc, &target))
		return false;
	*ret = (struct srcline){ .name = target.name, .is_plt = true };
	if (!ret->name.len)
		ret->name = symbol_at(job, target.resolver);
	return true;
}

/* The place for more sources of names: each adds its lines, innermost first, or none. */
static void add_lines(struct names_job *job, uint64_t pc, struct msg_named *named)
{
	struct srcline line = { 0 };
	struct gofunc fn;

	named->first_line = job->msg.nlines;
	if (job->go && gopclntab_find(job->go, pc, &fn))
		add_go_lines(job, &fn, pc, named);
	if (!named->nlines && job->dwarf)
		add_dwarf_lines(job, pc, named);
	if (named->nlines)
		return;
	line.name = symbol_at(job, pc);
	if (!line.name.len && !find_plt(job, pc, &line))
		return;
	/* What the table of a Go program leaves out is C. */
	add_line(job, &line, job->elf->is_go && !job->go, named);
}

static void name_address(struct names_job *job, const struct msg_addr *addr, struct msg_named *named)
{
	const struct msg_segment *s = elffile_segment_of_offset(job->elf, addr->offset);
	bool is_return = addr->flags & MSG_ADDR_RETURN;

	*named = (struct msg_named){ .vaddr = addr->offset, .segment = UINT32_MAX };
	if (!s)
		return;
	named->vaddr = addr->offset - s->offset + s->vaddr;
	named->segment = (uint32_t)(s - job->elf->segments);
	add_lines(job, is_return && addr->offset > s->offset ? named->vaddr - 1 : named->vaddr, named);
}

static void name_all(struct names_job *job, const struct msg_request *req)
{
	uint64_t before = job->dwarf ? dwarf_skipped(job->dwarf) : 0;
	struct msg_names *m = &job->msg;

	memcpy(m->build_id, job->elf->build_id, job->elf->build_id_len);
	m->build_id_len = job->elf->build_id_len;
	memcpy(m->segments, job->elf->segments, job->elf->nsegments * sizeof(m->segments[0]));
	m->nsegments = job->elf->nsegments;
	for (uint32_t i = 0; i < req->naddrs; i++)
		name_address(job, &req->addrs[i], &m->named[i]);
	if (job->dwarf)
		m->ncut = (uint32_t)MIN(dwarf_skipped(job->dwarf) - before, (uint64_t)req->naddrs);
	else if (job->sections && job->sections->is_too_big)
		m->ncut = req->naddrs;
}

/* As if the file were unreadable. */
static void unname_all(struct names_job *job, const struct msg_request *req, enum msg_file_result why)
{
	struct msg_names *m = &job->msg;

	msg_names_fini(m);
	*m = (struct msg_names){ .id = req->id, .file_id = req->file_id, .result = why, .nnamed = req->naddrs };
	m->named = mem_calloc(req->naddrs, sizeof(*m->named));
	for (uint32_t i = 0; i < req->naddrs; i++)
		m->named[i] = (struct msg_named){ .vaddr = req->addrs[i].offset, .segment = UINT32_MAX };
}

void answer_names(struct handles *h, const struct msg_request *req, int fd, struct bufw *out)
{
	CLEANUP_FREE struct names_job *job = mem_calloc(1, sizeof(*job));
	struct handle *handle;
	int err;

	job->style = h->style;
	unname_all(job, req, MSG_FILE_OK);
	err = handles_open(h, req->file_id, fd, &handle);
	if (err) {
		job->msg.result = answer_file_result(err);
	} else {
		job->elf = handle->elf;
		job->symtab = handles_symtab(h, handle, true);
		job->plt = handles_plt(handle);
		job->go = handles_go(handle);
		job->dwarf = handles_dwarf(h, handle);
		job->sections = handle->sections;
		job->strings = symtab_strings(job->symtab, job->elf, handle->debug);
		name_all(job, req);
		if (elffile_damaged(job->elf) || (handle->debug && elffile_damaged(handle->debug)) ||
		    (handle->alt && elffile_damaged(handle->alt))) {
			unname_all(job, req, MSG_FILE_UNREADABLE);
			handles_forget(h, handle);
		} else {
			answer_drop_pages(req, job->elf);
		}
	}
	msg_names_encode(out, &job->msg);
	if (bufw_end(out) < 0)
		mem_check(NULL);
	msg_names_fini(&job->msg);
	free(job->keys);
}
