#include "symbolizer/msg.h"

#include <errno.h>
#include <string.h>

enum {
	ADDR_WIRE = 12,
	RULE_WIRE = 8,
	OP_WIRE = 10,
	ROW_WIRE = 8 + 8 + 4 + 3 + 2 * RULE_WIRE + 4,
	RESULT_WIRE = 8,
	SEGMENT_WIRE = 36,
	FUNCTION_WIRE = 16,
	LINE_WIRE = 8,
	NAMED_WIRE = 20,

	ROW_FLAGS = MSG_ROW_SIGNAL | MSG_ROW_END | MSG_ROW_INTERPRETER | MSG_ROW_NO_CFI |
		    MSG_ROW_CLONE,
	RES_FLAGS = MSG_RES_ROW | MSG_RES_AFTER_CALL | MSG_RES_FUNCTION_START | MSG_RES_CODE,
	RULES_TOTAL_MAX = MSG_ROWS_MAX * MSG_RULES_MAX,
	LINES_TOTAL_MAX = MSG_ADDRS_MAX * MSG_LINES_MAX,
};

const char *msg_file_result_text(enum msg_file_result r)
{
	static const char *const texts[] = {
#define X(id, text) text,
		MSG_FILE_RESULTS(X)
#undef X
	};

	return (unsigned int)r < ARRAY_SIZE(texts) ? texts[r] : "unknown";
}

size_t msg_utf8_len(const void *p, size_t left)
{
	const uint8_t *s = p;
	uint32_t c;
	size_t n;

	if (!left)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (left < n)
		return 0;
	c = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

static bool is_utf8(const char *s)
{
	size_t left = strlen(s), n;

	for (; left; s += n, left -= n) {
		n = msg_utf8_len(s, left);
		if (!n)
			return false;
	}
	return true;
}

/* ---- requests ---- */

void msg_request_encode(struct bufw *w, const struct msg_request *r)
{
	bufw_u64(w, r->id);
	bufw_u64(w, r->file_id);
	bufw_u32(w, r->flags);
	bufw_u32(w, r->naddrs);
	for (uint32_t i = 0; i < r->naddrs; i++) {
		bufw_u64(w, r->addrs[i].offset);
		bufw_u32(w, r->addrs[i].flags);
	}
}

int msg_request_decode(struct bufr *in, struct msg_request *ret)
{
	struct bufr body = *in;
	uint64_t id = bufr_u64(&body);
	uint64_t file_id = bufr_u64(&body);
	uint32_t flags = bufr_u32(&body);
	uint32_t naddrs = bufr_count(&body, MSG_ADDRS_MAX, ADDR_WIRE);
	struct bufr check = body;
	int err;

	if (flags & ~(uint32_t)(MSG_REQUEST_GO | MSG_REQUEST_JIT))
		bufr_fail(&check);
	/* Twice over the bytes, so that *ret is written only when all of them are good. */
	for (uint32_t i = 0; i < naddrs; i++) {
		bufr_u64(&check);
		if (bufr_u32(&check) & ~(uint32_t)(MSG_ADDR_RETURN | MSG_ADDR_HAVE_ROW))
			bufr_fail(&check);
	}
	err = bufr_end(&check);
	if (err)
		return err;
	ret->id = id;
	ret->file_id = file_id;
	ret->flags = flags;
	ret->naddrs = naddrs;
	for (uint32_t i = 0; i < naddrs; i++) {
		ret->addrs[i].offset = bufr_u64(&body);
		ret->addrs[i].flags = bufr_u32(&body);
	}
	*in = check;
	return 0;
}

/* ---- expressions ---- */

/* What a step needs on the stack, and what it leaves more (or less). */
static bool op_effect(const struct msg_op *op, int *ret_needs, int *ret_adds)
{
	int needs = 0, adds = 0;

	switch ((enum msg_op_code)op->code) {
	case MSG_OP_REG:
		if (op->reg >= MSG_REGS_MAX)
			return false;
		adds = 1;
		break;
	case MSG_OP_CONST:
	case MSG_OP_CFA:
		adds = 1;
		break;
	case MSG_OP_DEREF:
		if (op->reg != 1 && op->reg != 2 && op->reg != 4 && op->reg != 8)
			return false;
		needs = 1;
		break;
	case MSG_OP_ADD_CONST:
	case MSG_OP_NEG:
	case MSG_OP_NOT:
	case MSG_OP_ABS:
		needs = 1;
		break;
	case MSG_OP_ADD ... MSG_OP_SHRA:
	case MSG_OP_EQ ... MSG_OP_GE:
		needs = 2;
		adds = -1;
		break;
	case MSG_OP_DUP:
		needs = 1;
		adds = 1;
		break;
	case MSG_OP_DROP:
	case MSG_OP_BRANCH:
		needs = 1;
		adds = -1;
		break;
	case MSG_OP_OVER:
		needs = 2;
		adds = 1;
		break;
	case MSG_OP_SWAP:
		needs = 2;
		break;
	case MSG_OP_ROT:
		needs = 3;
		break;
	case MSG_OP_PICK:
		if (op->n < 0 || op->n >= MSG_EXPR_DEPTH)
			return false;
		needs = (int)op->n + 1;
		adds = 1;
		break;
	case MSG_OP_SKIP:
		break;
	case MSG_OP_COUNT:
	default:
		return false;
	}
	*ret_needs = needs;
	*ret_adds = adds;
	return true;
}

/* Notes that step `to` is reached with this depth; false when another way reaches it with another. */
static bool reach(int *depths, uint32_t to, int depth)
{
	if (depths[to] >= 0 && depths[to] != depth)
		return false;
	depths[to] = depth;
	return true;
}

bool msg_expr_valid(const struct msg_op *ops, uint32_t nops, unsigned int depth)
{
	int depths[MSG_EXPR_MAX + 1];

	if (!nops || nops > MSG_EXPR_MAX || depth > MSG_EXPR_DEPTH)
		return false;
	for (uint32_t i = 0; i <= nops; i++)
		depths[i] = -1;
	depths[0] = (int)depth;
	for (uint32_t i = 0; i < nops; i++) {
		const struct msg_op *op = &ops[i];
		int needs, adds, after;

		if (!op_effect(op, &needs, &adds))
			return false;
		if (depths[i] < 0)
			continue; /* no way leads here */
		after = depths[i] + adds;
		if (depths[i] < needs || after > MSG_EXPR_DEPTH)
			return false;
		if (op->code == MSG_OP_SKIP || op->code == MSG_OP_BRANCH) {
			if (op->n < 1 || op->n > (int64_t)(nops - i) ||
			    !reach(depths, i + (uint32_t)op->n, after))
				return false;
		}
		if (op->code != MSG_OP_SKIP && !reach(depths, i + 1, after))
			return false;
	}
	return depths[nops] >= 1;
}

/* ---- rows ---- */

void msg_rows_fini(struct msg_rows *r)
{
	free(r->rows);
	free(r->rules);
	free(r->ops);
	free(r->results);
	*r = (struct msg_rows){ 0 };
}

static void encode_rule(struct bufw *w, const struct msg_rule *r)
{
	bufw_u8(w, r->target);
	bufw_u8(w, r->kind);
	bufw_u8(w, r->reg);
	bufw_u8(w, r->n);
	bufw_u32(w, (uint32_t)r->off);
}

void msg_rows_encode(struct bufw *w, const struct msg_rows *r)
{
	bufw_u64(w, r->id);
	bufw_u64(w, r->file_id);
	bufw_u32(w, r->result);
	bufw_u8(w, r->go.kind);
	bufw_u8(w, r->go.cgo);
	bufw_i64(w, r->go.off);
	bufw_u64(w, r->go.code);
	bufw_u32(w, r->nrows);
	for (uint32_t i = 0; i < r->nrows; i++) {
		const struct msg_row *row = &r->rows[i];

		bufw_u64(w, row->start);
		bufw_u64(w, row->end);
		bufw_u32(w, row->generation);
		bufw_u8(w, row->flags);
		bufw_u8(w, row->language);
		bufw_u8(w, row->nrules);
		encode_rule(w, &row->cfa);
		encode_rule(w, &row->ra);
		bufw_u32(w, row->first_rule);
	}
	bufw_u32(w, r->nrules);
	for (uint32_t i = 0; i < r->nrules; i++)
		encode_rule(w, &r->rules[i]);
	bufw_u32(w, r->nops);
	for (uint32_t i = 0; i < r->nops; i++) {
		bufw_u8(w, r->ops[i].code);
		bufw_u8(w, r->ops[i].reg);
		bufw_i64(w, r->ops[i].n);
	}
	bufw_u32(w, r->nresults);
	for (uint32_t i = 0; i < r->nresults; i++) {
		bufw_u32(w, r->results[i].row);
		bufw_u32(w, r->results[i].flags);
	}
}

static void decode_rule(struct bufr *in, struct msg_rule *ret)
{
	ret->target = bufr_u8(in);
	ret->kind = bufr_u8(in);
	ret->reg = bufr_u8(in);
	ret->n = bufr_u8(in);
	ret->off = (int32_t)bufr_u32(in);
	if (ret->target >= MSG_REGS_MAX || ret->kind >= MSG_RULE_KIND_COUNT || ret->reg >= MSG_REGS_MAX)
		bufr_fail(in);
}

/* An array of `n` elements; NULL when n is 0 or memory is short (then the reader has failed). */
static void *new_array(struct bufr *in, uint32_t n, size_t size)
{
	void *p;

	if (!n || bufr_err(in))
		return NULL;
	p = calloc(n, size);
	if (!p)
		in->err = -ENOMEM;
	return p;
}

static void decode_go(struct bufr *in, struct msg_go *ret)
{
	uint8_t cgo;

	ret->kind = bufr_u8(in);
	cgo = bufr_u8(in);
	ret->cgo = cgo;
	ret->off = bufr_i64(in);
	ret->code = bufr_u64(in);
	if (ret->kind >= MSG_GO_KIND_COUNT || cgo > 1)
		bufr_fail(in);
}

static void decode_row_array(struct bufr *in, struct msg_rows *r)
{
	r->nrows = bufr_count(in, MSG_ROWS_MAX, ROW_WIRE);
	r->rows = new_array(in, r->nrows, sizeof(*r->rows));
	for (uint32_t i = 0; r->rows && i < r->nrows; i++) {
		struct msg_row *row = &r->rows[i];

		row->start = bufr_u64(in);
		row->end = bufr_u64(in);
		row->generation = bufr_u32(in);
		row->flags = bufr_u8(in);
		row->language = bufr_u8(in);
		row->nrules = bufr_u8(in);
		decode_rule(in, &row->cfa);
		decode_rule(in, &row->ra);
		row->first_rule = bufr_u32(in);
		if (row->start >= row->end || (row->flags & ~ROW_FLAGS) || row->nrules > MSG_RULES_MAX)
			bufr_fail(in);
	}
}

static void decode_other_arrays(struct bufr *in, struct msg_rows *r)
{
	r->nrules = bufr_count(in, RULES_TOTAL_MAX, RULE_WIRE);
	r->rules = new_array(in, r->nrules, sizeof(*r->rules));
	for (uint32_t i = 0; r->rules && i < r->nrules; i++)
		decode_rule(in, &r->rules[i]);
	r->nops = bufr_count(in, MSG_OPS_MAX, OP_WIRE);
	r->ops = new_array(in, r->nops, sizeof(*r->ops));
	for (uint32_t i = 0; r->ops && i < r->nops; i++) {
		r->ops[i].code = bufr_u8(in);
		r->ops[i].reg = bufr_u8(in);
		r->ops[i].n = bufr_i64(in);
	}
	r->nresults = bufr_count(in, MSG_ADDRS_MAX, RESULT_WIRE);
	r->results = new_array(in, r->nresults, sizeof(*r->results));
	for (uint32_t i = 0; r->results && i < r->nresults; i++) {
		r->results[i].row = bufr_u32(in);
		r->results[i].flags = bufr_u32(in);
	}
}

/*
 * No two rules of our encoder share steps, so a budget of MSG_OPS_MAX for all expressions together
 * refuses no good answer, and bounds what a hostile one can cost.
 */
static bool rule_valid(const struct msg_rows *r, const struct msg_rule *rule, unsigned int depth,
		       uint32_t *budget)
{
	uint32_t first = (uint32_t)rule->off;

	if (rule->kind != MSG_RULE_EXPR_MEM && rule->kind != MSG_RULE_EXPR_VAL)
		return true;
	if (rule->off < 0 || !rule->n || first > r->nops || rule->n > r->nops - first || rule->n > *budget)
		return false;
	*budget -= rule->n;
	return msg_expr_valid(&r->ops[first], rule->n, depth);
}

static bool row_valid(const struct msg_rows *r, const struct msg_row *row, uint32_t *budget)
{
	bool may_lack = row->flags & (MSG_ROW_END | MSG_ROW_NO_CFI);

	if (row->first_rule > r->nrules || row->nrules > r->nrules - row->first_rule)
		return false;
	switch (row->cfa.kind) {
	case MSG_RULE_UNDEFINED:
		if (!may_lack)
			return false;
		break;
	case MSG_RULE_SAME:
	case MSG_RULE_CFA_MEM:
	case MSG_RULE_CFA_VAL:
		return false;
	default:
		break;
	}
	if (row->ra.kind == MSG_RULE_SAME || (row->ra.kind == MSG_RULE_UNDEFINED && !may_lack))
		return false;
	/* The CFA's expression must not ask for the CFA. */
	if (row->cfa.kind == MSG_RULE_EXPR_MEM || row->cfa.kind == MSG_RULE_EXPR_VAL) {
		if (!rule_valid(r, &row->cfa, 0, budget))
			return false;
		for (uint32_t i = 0; i < row->cfa.n; i++)
			if (r->ops[(uint32_t)row->cfa.off + i].code == MSG_OP_CFA)
				return false;
	}
	return rule_valid(r, &row->ra, 0, budget);
}

static bool rows_valid(const struct msg_rows *r)
{
	uint32_t budget = MSG_OPS_MAX;

	if ((unsigned int)r->result >= MSG_FILE_RESULT_COUNT)
		return false;
	for (uint32_t i = 0; i < r->nrules; i++)
		if (!rule_valid(r, &r->rules[i], 1, &budget))
			return false;
	for (uint32_t i = 0; i < r->nrows; i++)
		if (!row_valid(r, &r->rows[i], &budget))
			return false;
	for (uint32_t i = 0; i < r->nresults; i++) {
		const struct msg_result *res = &r->results[i];

		if ((res->flags & ~(uint32_t)RES_FLAGS) ||
		    ((res->flags & MSG_RES_ROW) && res->row >= r->nrows))
			return false;
	}
	return true;
}

int msg_rows_decode(struct bufr *in, struct msg_rows *ret)
{
	CLEANUP(msg_rows_fini) struct msg_rows r = { 0 };
	int err;

	r.id = bufr_u64(in);
	r.file_id = bufr_u64(in);
	r.result = (enum msg_file_result)bufr_u32(in);
	decode_go(in, &r.go);
	decode_row_array(in, &r);
	decode_other_arrays(in, &r);
	err = bufr_end(in);
	if (err)
		return err;
	if (!rows_valid(&r))
		return -EBADMSG;
	*ret = r;
	r = (struct msg_rows){ 0 };
	return 0;
}

/* ---- names ---- */

void msg_names_fini(struct msg_names *n)
{
	for (uint32_t i = 0; n->functions && i < n->nfunctions; i++) {
		free(n->functions[i].name);
		free(n->functions[i].system_name);
		free(n->functions[i].file);
	}
	free(n->functions);
	free(n->lines);
	free(n->named);
	*n = (struct msg_names){ 0 };
}

void msg_names_encode(struct bufw *w, const struct msg_names *n)
{
	bufw_u64(w, n->id);
	bufw_u64(w, n->file_id);
	bufw_u32(w, n->result);
	bufw_blob(w, n->build_id, n->build_id_len);
	bufw_u32(w, n->nsegments);
	for (uint32_t i = 0; i < n->nsegments; i++) {
		bufw_u64(w, n->segments[i].vaddr);
		bufw_u64(w, n->segments[i].mem_bytes);
		bufw_u64(w, n->segments[i].offset);
		bufw_u64(w, n->segments[i].file_bytes);
		bufw_u32(w, n->segments[i].flags);
	}
	bufw_u32(w, n->nfunctions);
	for (uint32_t i = 0; i < n->nfunctions; i++) {
		bufw_str(w, n->functions[i].name);
		bufw_str(w, n->functions[i].system_name);
		bufw_str(w, n->functions[i].file);
		bufw_u32(w, n->functions[i].start_line);
	}
	bufw_u32(w, n->nlines);
	for (uint32_t i = 0; i < n->nlines; i++) {
		bufw_u32(w, n->lines[i].function);
		bufw_u32(w, n->lines[i].line);
	}
	bufw_u32(w, n->nnamed);
	for (uint32_t i = 0; i < n->nnamed; i++) {
		bufw_u64(w, n->named[i].vaddr);
		bufw_u32(w, n->named[i].segment);
		bufw_u32(w, n->named[i].first_line);
		bufw_u32(w, n->named[i].nlines);
	}
	if (n->ncut)
		bufw_u32(w, n->ncut);
}

static char *decode_text(struct bufr *in)
{
	char *s = bufr_strdup(in, MSG_NAME_MAX);

	if (s && !is_utf8(s))
		bufr_fail(in);
	return s;
}

static void decode_file_facts(struct bufr *in, struct msg_names *n)
{
	const void *build_id;
	size_t len = 0;

	build_id = bufr_blob(in, MSG_BUILD_ID_MAX, &len);
	if (build_id && len)
		memcpy(n->build_id, build_id, len);
	n->build_id_len = build_id ? (uint32_t)len : 0;
	n->nsegments = bufr_count(in, MSG_SEGMENTS_MAX, SEGMENT_WIRE);
	for (uint32_t i = 0; i < n->nsegments; i++) {
		n->segments[i].vaddr = bufr_u64(in);
		n->segments[i].mem_bytes = bufr_u64(in);
		n->segments[i].offset = bufr_u64(in);
		n->segments[i].file_bytes = bufr_u64(in);
		n->segments[i].flags = bufr_u32(in);
	}
}

static void decode_name_arrays(struct bufr *in, struct msg_names *n)
{
	n->nfunctions = bufr_count(in, LINES_TOTAL_MAX, FUNCTION_WIRE);
	n->functions = new_array(in, n->nfunctions, sizeof(*n->functions));
	for (uint32_t i = 0; n->functions && !bufr_err(in) && i < n->nfunctions; i++) {
		n->functions[i].name = decode_text(in);
		n->functions[i].system_name = decode_text(in);
		n->functions[i].file = decode_text(in);
		n->functions[i].start_line = bufr_u32(in);
	}
	n->nlines = bufr_count(in, LINES_TOTAL_MAX, LINE_WIRE);
	n->lines = new_array(in, n->nlines, sizeof(*n->lines));
	for (uint32_t i = 0; n->lines && i < n->nlines; i++) {
		n->lines[i].function = bufr_u32(in);
		n->lines[i].line = bufr_u32(in);
		if (n->lines[i].function >= n->nfunctions)
			bufr_fail(in);
	}
	n->nnamed = bufr_count(in, MSG_ADDRS_MAX, NAMED_WIRE);
	n->named = new_array(in, n->nnamed, sizeof(*n->named));
	for (uint32_t i = 0; n->named && i < n->nnamed; i++) {
		struct msg_named *a = &n->named[i];

		a->vaddr = bufr_u64(in);
		a->segment = bufr_u32(in);
		a->first_line = bufr_u32(in);
		a->nlines = bufr_u32(in);
		if ((a->segment >= n->nsegments && a->segment != UINT32_MAX) || a->nlines > MSG_LINES_MAX ||
		    a->first_line > n->nlines || a->nlines > n->nlines - a->first_line)
			bufr_fail(in);
	}
}

int msg_names_decode(struct bufr *in, struct msg_names *ret)
{
	CLEANUP(msg_names_fini) struct msg_names n = { 0 };
	int err;

	n.id = bufr_u64(in);
	n.file_id = bufr_u64(in);
	n.result = (enum msg_file_result)bufr_u32(in);
	decode_file_facts(in, &n);
	decode_name_arrays(in, &n);
	if (bufr_left(in) > 0) {
		n.ncut = bufr_u32(in);
		if (!n.ncut || n.ncut > n.nnamed)
			bufr_fail(in);
	}
	if ((unsigned int)n.result >= MSG_FILE_RESULT_COUNT)
		bufr_fail(in);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = n;
	n = (struct msg_names){ 0 };
	return 0;
}

/* ---- separate debug files ---- */

static bool take_flag(struct bufr *in)
{
	uint8_t v = bufr_u8(in);

	if (v > 1)
		bufr_fail(in);
	return v == 1;
}

static void take_build_id(struct bufr *in, uint8_t build_id[MSG_BUILD_ID_MAX], uint32_t *ret_len)
{
	size_t len = 0;
	const void *p = bufr_blob(in, MSG_BUILD_ID_MAX, &len);

	if (p)
		memcpy(build_id, p, len);
	*ret_len = p ? (uint32_t)len : 0;
}

void msg_link_encode(struct bufw *w, const struct msg_link *l)
{
	bufw_u64(w, l->id);
	bufw_u64(w, l->file_id);
	bufw_u8(w, l->is_wanted);
	bufw_blob(w, l->build_id, l->build_id_len);
	bufw_str(w, l->name);
	bufw_u32(w, l->crc);
}

int msg_link_decode(struct bufr *in, struct msg_link *ret)
{
	struct msg_link l = { .id = bufr_u64(in), .file_id = bufr_u64(in), .is_wanted = take_flag(in) };
	CLEANUP_FREE char *name = NULL;
	int err;

	take_build_id(in, l.build_id, &l.build_id_len);
	name = bufr_strdup(in, MSG_LINK_MAX);
	l.crc = bufr_u32(in);
	if (name && (strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0))
		bufr_fail(in);
	err = bufr_end(in);
	if (err)
		return err;
	memcpy(l.name, name, strlen(name) + 1);
	*ret = l;
	return 0;
}

void msg_debug_encode(struct bufw *w, const struct msg_debug *d)
{
	bufw_u64(w, d->id);
	bufw_u64(w, d->file_id);
	bufw_u8(w, d->is_alt);
	bufw_u8(w, d->by_crc);
	bufw_blob(w, d->build_id, d->build_id_len);
	bufw_u32(w, d->crc);
}

int msg_debug_decode(struct bufr *in, struct msg_debug *ret)
{
	struct msg_debug d = { .id = bufr_u64(in), .file_id = bufr_u64(in), .is_alt = take_flag(in),
			       .by_crc = take_flag(in) };
	int err;

	take_build_id(in, d.build_id, &d.build_id_len);
	d.crc = bufr_u32(in);
	err = bufr_end(in);
	if (err)
		return err;
	*ret = d;
	return 0;
}

void msg_debugged_encode(struct bufw *w, const struct msg_debugged *d)
{
	bufw_u64(w, d->id);
	bufw_u64(w, d->file_id);
	bufw_u8(w, d->is_alt);
	bufw_u8(w, d->is_taken);
	bufw_blob(w, d->alt_build_id, d->alt_build_id_len);
	bufw_str(w, d->alt_path);
}

int msg_debugged_decode(struct bufr *in, struct msg_debugged *ret)
{
	struct msg_debugged d = { .id = bufr_u64(in), .file_id = bufr_u64(in), .is_alt = take_flag(in),
				  .is_taken = take_flag(in) };
	CLEANUP_FREE char *path = NULL;
	int err;

	take_build_id(in, d.alt_build_id, &d.alt_build_id_len);
	path = bufr_strdup(in, MSG_ALT_MAX);
	err = bufr_end(in);
	if (err)
		return err;
	memcpy(d.alt_path, path, strlen(path) + 1);
	*ret = d;
	return 0;
}
