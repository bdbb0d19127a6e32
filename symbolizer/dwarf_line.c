#include "symbolizer/dwarf_line.h"

#include <string.h>

#include "symbolizer/mem.h"

#define NO_FILE UINT32_MAX

struct header {
	uint8_t offset_size;
	uint16_t version;
	uint8_t min_inst, max_ops, line_range, opcode_base;
	int8_t line_base;
	uint8_t lengths[256];	/* operands of the standard opcodes */
	struct cursor program;
};

/* ---- files ---- */

static void add_file(struct dwarf_lines *l, struct dwarf_ref name, uint32_t dir)
{
	l->files = mem_grow(l->files, &l->cap_files, l->nfiles + 1, sizeof(*l->files));
	l->files[l->nfiles++] = (struct dwarf_file){ name, dir, NULL };
}

static void add_dir(struct dwarf_lines *l, struct dwarf_ref name)
{
	l->dirs = mem_grow(l->dirs, &l->cap_dirs, l->ndirs + 1, sizeof(*l->dirs));
	l->dirs[l->ndirs++] = name;
}

/* A string in the table itself. */
static struct dwarf_ref take_text(const struct sections *s, struct cursor *c)
{
	const uint8_t *end = c->p ? memchr(c->p, 0, (size_t)(c->end - c->p)) : NULL;
	size_t off = end ? (size_t)(c->p - s->of[SECTION_LINE].p) : SIZE_MAX;

	c->p = end ? end + 1 : NULL;
	return off <= UINT32_MAX ? (struct dwarf_ref){ (uint32_t)off, SECTION_LINE } : (struct dwarf_ref){ 0, SECTION_COUNT };
}

static void read_old_files(struct dwarf_lines *l, const struct sections *s, const struct dwarf_unit *u, struct cursor *c)
{
	add_dir(l, u->comp_dir);
	add_file(l, (struct dwarf_ref){ 0, SECTION_COUNT }, NO_FILE);
	while (c->p && c->p < c->end && *c->p && l->ndirs < DWARF_FILES_MAX)
		add_dir(l, take_text(s, c));
	cursor_take(c, 1);
	while (c->p && c->p < c->end && *c->p && l->nfiles < DWARF_FILES_MAX) {
		struct dwarf_ref name = take_text(s, c);
		uint64_t dir = cursor_uleb(c);

		cursor_uleb(c);
		cursor_uleb(c);
		add_file(l, name, dir < l->ndirs ? (uint32_t)dir : NO_FILE);
	}
}

/* One of version 5's two tables, whose entries are described in front of them. */
static void read_table(struct dwarf_lines *l, const struct sections *s, const struct dwarf_unit *u, struct cursor *c,
		       bool is_files)
{
	struct dwarf_spec formats[8] = { 0 };
	uint32_t nformats = (uint32_t)cursor_uint(c, 1);
	uint64_t n;

	if (nformats > ARRAY_SIZE(formats)) {
		c->p = NULL;
		return;
	}
	for (uint32_t i = 0; i < nformats; i++) {
		formats[i].at = (uint16_t)cursor_uleb(c);
		formats[i].form = (uint16_t)cursor_uleb(c);
	}
	n = cursor_uleb(c);
	for (uint64_t k = 0; k < n && c->p && k < DWARF_FILES_MAX; k++) {
		struct dwarf_ref name = { 0, SECTION_COUNT };
		struct dwarf_value v;
		uint64_t dir = 0;

		for (uint32_t i = 0; i < nformats && c->p; i++) {
			if (formats[i].form == DW_FORM_string) {
				v.text = take_text(s, c);
				v.u = 0;
			} else {
				dwarf_value(s, u, &formats[i], c, &v);
			}
			if (formats[i].at == DW_LNCT_path)
				name = v.text;
			else if (formats[i].at == DW_LNCT_directory_index)
				dir = v.u;
		}
		if (!c->p)
			return;
		if (is_files)
			add_file(l, name, dir < l->ndirs ? (uint32_t)dir : NO_FILE);
		else
			add_dir(l, name);
	}
}

/* ---- the program ---- */

static bool read_header(struct header *h, struct dwarf_lines *l, const struct sections *s, const struct dwarf_unit *u)
{
	struct cursor c = cursor_at(s->of[SECTION_LINE], u->line_off);
	uint64_t length = cursor_uint(&c, 4), rest;
	struct dwarf_unit format = *u;

	*h = (struct header){ .offset_size = length == UINT32_MAX ? 8 : 4, .max_ops = 1 };
	if (length == UINT32_MAX)
		length = cursor_uint(&c, 8);
	if (!c.p || length > (uint64_t)(c.end - c.p) || !dwarf_spend(u, length))
		return false;
	c.end = c.p + length;
	h->version = (uint16_t)cursor_uint(&c, 2);
	if (h->version < 2 || h->version > 5)
		return false;
	if (h->version >= 5 && cursor_uint(&c, 2) != 8) /* of addresses 8 bytes, of segments none */
		return false;
	rest = cursor_uint(&c, h->offset_size);
	if (!c.p || rest > (uint64_t)(c.end - c.p))
		return false;
	h->program = (struct cursor){ c.p + rest, c.end };
	c.end = c.p + rest;
	h->min_inst = (uint8_t)cursor_uint(&c, 1);
	if (h->version >= 4)
		h->max_ops = (uint8_t)cursor_uint(&c, 1);
	cursor_uint(&c, 1);
	h->line_base = (int8_t)cursor_uint(&c, 1);
	h->line_range = (uint8_t)cursor_uint(&c, 1);
	h->opcode_base = (uint8_t)cursor_uint(&c, 1);
	for (uint32_t i = 1; i < h->opcode_base; i++)
		h->lengths[i] = (uint8_t)cursor_uint(&c, 1);
	if (!c.p || !h->line_range || !h->opcode_base || h->max_ops != 1)
		return false;
	format.offset_size = h->offset_size;
	if (h->version >= 5) {
		read_table(l, s, &format, &c, false);
		read_table(l, s, &format, &c, true);
	} else {
		read_old_files(l, s, u, &c);
	}
	return c.p != NULL;
}

struct wide_row {
	uint64_t address;
	uint32_t line, file;
};

/* Rows [first, first + n) of `rows`, and where they end. */
struct sequence {
	uint64_t start, end;
	uint32_t first, n;
};

struct run {
	const struct elffile *code;
	struct wide_row *rows;
	struct sequence *sequences;
	uint32_t nrows, nsequences, cap_rows, cap_sequences;
	uint32_t first;		/* of the sequence at hand */
	/* The machine's registers. */
	uint64_t address;
	uint32_t line, file;
};

static void add_row(struct run *r)
{
	struct wide_row row = { r->address, r->line, r->file };
	struct wide_row *last = r->nrows > r->first ? &r->rows[r->nrows - 1] : NULL;

	if (last && last->address > row.address)
		return;
	/* Of several at one address the last one counts. */
	if (last && last->address == row.address) {
		*last = row;
		return;
	}
	if (last && last->line == row.line && last->file == row.file)
		return;
	if (r->nrows == DWARF_ROWS_MAX)
		return;
	r->rows = mem_grow(r->rows, &r->cap_rows, r->nrows + 1, sizeof(*r->rows));
	r->rows[r->nrows++] = row;
}

static void begin_sequence(struct run *r)
{
	r->first = r->nrows;
	r->address = 0;
	r->line = r->file = 1;
}

static void end_sequence(struct run *r)
{
	uint32_t n = r->nrows - r->first;
	uint64_t start = n ? r->rows[r->first].address : 0;

	if (n && r->address > start && elffile_is_code(r->code, start)) {
		r->sequences = mem_grow(r->sequences, &r->cap_sequences, r->nsequences + 1, sizeof(*r->sequences));
		r->sequences[r->nsequences++] = (struct sequence){ start, r->address, r->first, n };
	} else {
		r->nrows = r->first;
	}
	begin_sequence(r);
}

static void extended(struct run *r, struct cursor *c)
{
	uint64_t len = cursor_uleb(c);
	struct cursor in = *c;

	if (!cursor_take(c, len) || !len)
		return;
	in.end = in.p + len;
	switch (cursor_uint(&in, 1)) {
	case DW_LNE_end_sequence:
		end_sequence(r);
		break;
	case DW_LNE_set_address:
		r->address = cursor_uint(&in, (uint32_t)MIN(len - 1, (uint64_t)8));
		break;
	default: /* a discriminator, or nothing that we know */
		break;
	}
}

static void standard(struct run *r, const struct header *h, uint8_t op, struct cursor *c)
{
	switch (op) {
	case DW_LNS_copy:
		add_row(r);
		break;
	case DW_LNS_advance_pc:
		r->address += cursor_uleb(c) * h->min_inst;
		break;
	case DW_LNS_advance_line:
		r->line += (uint32_t)cursor_sleb(c);
		break;
	case DW_LNS_set_file: {
		uint64_t file = cursor_uleb(c);

		r->file = file < NO_FILE ? (uint32_t)file : 0;
		break;
	}
	case DW_LNS_const_add_pc:
		r->address += (uint64_t)((255 - h->opcode_base) / h->line_range) * h->min_inst;
		break;
	case DW_LNS_fixed_advance_pc:
		r->address += cursor_uint(c, 2);
		break;
	default:
		for (uint32_t i = 0; i < h->lengths[op]; i++)
			cursor_uleb(c);
		break;
	}
}

static void run_program(struct run *r, const struct header *h)
{
	struct cursor c = h->program;

	begin_sequence(r);
	while (c.p && c.p < c.end) {
		uint8_t op = *c.p++;

		if (op >= h->opcode_base) {
			uint8_t adjusted = (uint8_t)(op - h->opcode_base);

			r->address += (uint64_t)(adjusted / h->line_range) * h->min_inst;
			r->line += (uint32_t)(h->line_base + adjusted % h->line_range);
			add_row(r);
		} else if (op == 0) {
			extended(r, &c);
		} else {
			standard(r, h, op, &c);
		}
	}
	/* What no end was told of reaches nobody knows where. */
	r->nrows = r->first;
}

static int by_start(const void *a, const void *b)
{
	const struct sequence *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static void give_row(struct dwarf_lines *l, uint64_t address, uint32_t line, uint32_t file)
{
	uint32_t off = (uint32_t)(address - l->base);

	if (l->nrows && l->rows[l->nrows - 1].off == off)
		l->nrows--;
	l->rows = mem_grow(l->rows, &l->cap_rows, l->nrows + 1, sizeof(*l->rows));
	l->rows[l->nrows++] = (struct dwarf_row){ off, line, file };
}

/* The sequences in the order of addresses; one that overlaps those before it is a copy of them. */
static void give_rows(struct dwarf_lines *l, const struct run *r)
{
	uint64_t done = 0;

	if (!r->nsequences)
		return;
	qsort(r->sequences, r->nsequences, sizeof(*r->sequences), by_start);
	l->base = r->sequences[0].start;
	for (uint32_t i = 0; i < r->nsequences; i++) {
		const struct sequence *q = &r->sequences[i];

		if (q->start < done || q->end - l->base > UINT32_MAX)
			continue;
		for (uint32_t k = 0; k < q->n; k++)
			give_row(l, r->rows[q->first + k].address, r->rows[q->first + k].line, r->rows[q->first + k].file);
		give_row(l, q->end, 0, NO_FILE);
		done = q->end;
	}
}

void dwarf_lines_read(struct dwarf_lines *ret, const struct sections *s, const struct dwarf_unit *u,
		      const struct elffile *code)
{
	struct run r = { .code = code };
	struct header h;

	*ret = (struct dwarf_lines){ 0 };
	if (u->line_off == DWARF_NONE)
		return;
	if (read_header(&h, ret, s, u)) {
		run_program(&r, &h);
		give_rows(ret, &r);
	} else {
		dwarf_lines_fini(ret);
	}
	free(r.rows);
	free(r.sequences);
	if (ret->nrows) {
		ret->cap_rows = ret->nrows;
		ret->rows = mem_check(reallocarray(ret->rows, ret->nrows, sizeof(*ret->rows)));
	}
}

void dwarf_lines_fini(struct dwarf_lines *l)
{
	for (uint32_t i = 0; i < l->nfiles; i++)
		free(l->files[i].path);
	free(l->files);
	free(l->dirs);
	free(l->rows);
	*l = (struct dwarf_lines){ 0 };
}

bool dwarf_lines_find(const struct dwarf_lines *l, uint64_t vaddr, uint32_t *ret_file, uint32_t *ret_line)
{
	uint32_t low = 0, high = l->nrows;
	uint64_t off = vaddr - l->base;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (l->rows[mid].off > off)
			high = mid;
		else
			low = mid + 1;
	}
	if (vaddr < l->base || !low || l->rows[low - 1].file == NO_FILE)
		return false;
	*ret_file = l->rows[low - 1].file;
	*ret_line = l->rows[low - 1].line;
	return true;
}

static bool append(char *path, size_t *len, struct bytes text)
{
	if (text.len + 2 > DWARF_PATH_MAX - *len)
		return false;
	if (*len > 0 && path[*len - 1] != '/')
		path[(*len)++] = '/';
	memcpy(path + *len, text.p, text.len);
	*len += text.len;
	path[*len] = '\0';
	return true;
}

static bool is_absolute(struct bytes path)
{
	return path.len > 0 && path.p[0] == '/';
}

struct bytes dwarf_lines_path(struct dwarf_lines *l, const struct sections *s, const struct dwarf_unit *u, uint32_t file)
{
	struct bytes none = { NULL, 0 }, name, dir, home;
	char path[DWARF_PATH_MAX + 1];
	struct dwarf_file *f;
	size_t len = 0;
	bool ok = true;

	if (file >= l->nfiles)
		return none;
	f = &l->files[file];
	if (f->path)
		return (struct bytes){ (const uint8_t *)f->path, strlen(f->path) };
	name = dwarf_text(s, f->name);
	dir = f->dir < l->ndirs ? dwarf_text(s, l->dirs[f->dir]) : none;
	home = dwarf_text(s, u->comp_dir);
	if (!name.len)
		return none;
	if (!is_absolute(name)) {
		if (!is_absolute(dir) && home.len && (home.len != dir.len || memcmp(home.p, dir.p, dir.len) != 0))
			ok = append(path, &len, home);
		if (dir.len)
			ok = ok && append(path, &len, dir);
	}
	if (!ok || !append(path, &len, name))
		return none;
	f->path = mem_check(strdup(path));
	l->path_bytes += len + 1;
	return (struct bytes){ (const uint8_t *)f->path, len };
}

size_t dwarf_lines_bytes(const struct dwarf_lines *l)
{
	return l->cap_rows * sizeof(*l->rows) + l->cap_files * sizeof(*l->files) + l->cap_dirs * sizeof(*l->dirs) +
	       l->path_bytes;
}
