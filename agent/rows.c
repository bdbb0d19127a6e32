#include "agent/rows.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#include "bpf/abi.h"

/* One row. Its msg_row's first_rule counts in struct rows' rules. */
struct stored {
	struct msg_row row;
	struct row_plain plain; /* nslots is 0 when it is not plain */
};

struct rows {
	struct rows_table table; /* at least half of its slots are free */
	size_t nused;
	struct stored *stored;
	size_t nstored, stored_cap;
	struct msg_rule *rules;
	size_t nrules, rules_cap;
	struct msg_op *ops;
	size_t nops, ops_cap;
	uint32_t *ranges; /* rows by address, disjoint: what answers for an interrupted pc */
	size_t nranges, ranges_cap;
};

enum { SLOTS_MIN = 64 };
#define ROW_NONE UINT32_MAX
static_assert(sizeof(struct rows_slot) == 24, "a hot frame touches one or two cache lines");

int rows_new(struct rows **ret)
{
	const void *random = (const void *)getauxval(AT_RANDOM);
	struct rows *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	/* Sampled programs choose the addresses: they must not be able to choose the slots. */
	r->table.multiplier = 0x9e3779b97f4a7c15ull;
	if (random)
		memcpy(&r->table.multiplier, random, sizeof(r->table.multiplier));
	r->table.multiplier |= 1;
	*ret = r;
	return 0;
}

static void rows_reset(struct rows *r)
{
	uint64_t multiplier = r->table.multiplier;

	free(r->table.slots);
	free(r->stored);
	free(r->rules);
	free(r->ops);
	free(r->ranges);
	*r = (struct rows){ .table.multiplier = multiplier };
}

struct rows *rows_free(struct rows *r)
{
	if (!r)
		return NULL;
	rows_reset(r);
	free(r);
	return NULL;
}

const struct rows_table *rows_table(const struct rows *r)
{
	return &r->table;
}

static size_t table_size(const struct rows_table *t)
{
	return t->slots ? t->mask + 1 : 0;
}

static void borrow(const struct rows *r, const struct stored *s, const struct row_plain *plain,
		   struct row *ret)
{
	const struct msg_rule *rules = s->row.nrules > 0 ? r->rules + s->row.first_rule : NULL;

	*ret = (struct row){ plain->nslots > 0 ? plain : NULL, s->row.flags, &s->row, rules, r->ops };
}

void rows_whole(const struct rows *r, const struct row_plain *plain, struct row *ret)
{
	borrow(r, &r->stored[plain->index], plain, ret);
}

/* The first range that ends above `offset`. */
static size_t range_lower_of(const struct rows *r, size_t high, uint64_t offset)
{
	size_t low = 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (r->stored[r->ranges[mid]].row.end > offset)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static size_t range_lower(const struct rows *r, uint64_t offset)
{
	return range_lower_of(r, r->nranges, offset);
}

enum rows_answer rows_find(const struct rows *r, uint64_t offset, bool is_return,
			   struct row *ret_row, uint32_t *ret_flags)
{
	const struct rows_slot *slot;
	size_t i;

	if (!r->table.slots || offset >= INT64_MAX)
		return ROWS_UNKNOWN;
	slot = rows_slot(&r->table, rows_key(offset, is_return));
	if (slot->key != 0) {
		if (slot->plain.known & MSG_RES_ROW)
			borrow(r, &r->stored[slot->plain.index], &slot->plain, ret_row);
		*ret_flags = slot->plain.known;
		return ROWS_KNOWN;
	}
	/* A return address needs more than its row: whether a call comes before it. */
	if (is_return)
		return ROWS_UNKNOWN;
	i = range_lower(r, offset);
	if (i == r->nranges || r->stored[r->ranges[i]].row.start > offset)
		return ROWS_UNKNOWN;
	borrow(r, &r->stored[r->ranges[i]], &r->stored[r->ranges[i]].plain, ret_row);
	*ret_flags = MSG_RES_ROW | MSG_RES_CODE;
	return ROWS_KNOWN;
}

/* ---- storing ---- */

/* Room for `add` more elements of `size` bytes; `array` points to the pointer to the first. */
static int reserve(void *array, size_t n, size_t *cap, size_t add, size_t size)
{
	size_t want = MAX(n + add, *cap * 2);
	void *p;

	if (n + add <= *cap)
		return 0;
	memcpy(&p, array, sizeof(p));
	p = realloc(p, want * size);
	if (!p)
		return -ENOMEM;
	memcpy(array, &p, sizeof(p));
	*cap = want;
	return 0;
}

static int slots_reserve(struct rows *r, size_t add)
{
	size_t old = table_size(&r->table), size = MAX(old, (size_t)SLOTS_MIN);
	struct rows_table grown = r->table;

	if ((r->nused + add) * 2 <= old)
		return 0;
	while ((r->nused + add) * 2 > size)
		size *= 2;
	grown.slots = calloc(size, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	grown.mask = size - 1;
	for (size_t i = 0; i < old; i++)
		if (r->table.slots[i].key != 0)
			*rows_slot(&grown, r->table.slots[i].key) = r->table.slots[i];
	free(r->table.slots);
	r->table = grown;
	return 0;
}

static bool is_expression(const struct msg_rule *rule)
{
	return rule->kind == MSG_RULE_EXPR_MEM || rule->kind == MSG_RULE_EXPR_VAL;
}

static bool rule_ok(const struct msg_rows *answer, const struct msg_rule *rule)
{
	if (rule->kind >= MSG_RULE_KIND_COUNT || rule->reg >= ABI_REGS_MAX ||
	    rule->target >= ABI_REGS_MAX)
		return false;
	if (!is_expression(rule))
		return true;
	return rule->n > 0 && rule->n <= MSG_EXPR_MAX && rule->off >= 0 &&
	       (uint64_t)rule->off + rule->n <= answer->nops;
}

/*
 * msg_rows_decode() has checked all of this; the unwinder indexes by it in a privileged process, so
 * it is looked at twice.
 */
static bool answer_ok(const struct msg_rows *answer)
{
	for (uint32_t i = 0; i < answer->nresults; i++)
		if ((answer->results[i].flags & MSG_RES_ROW) &&
		    answer->results[i].row >= answer->nrows)
			return false;
	for (uint32_t i = 0; i < answer->nrows; i++) {
		const struct msg_row *row = &answer->rows[i];

		if (row->start >= row->end || row->nrules > MSG_RULES_MAX ||
		    (uint64_t)row->first_rule + row->nrules > answer->nrules)
			return false;
		if (!rule_ok(answer, &row->cfa) || !rule_ok(answer, &row->ra))
			return false;
		for (uint32_t k = 0; k < row->nrules; k++)
			if (!rule_ok(answer, &answer->rules[row->first_rule + k]))
				return false;
	}
	return true;
}

static size_t rule_nops(const struct msg_rule *rule)
{
	return is_expression(rule) ? rule->n : 0;
}

static size_t row_nops(const struct msg_rows *answer, const struct msg_row *row)
{
	size_t n = rule_nops(&row->cfa) + rule_nops(&row->ra);

	for (uint32_t i = 0; i < row->nrules; i++)
		n += rule_nops(&answer->rules[row->first_rule + i]);
	return n;
}

static size_t row_bytes(const struct msg_rows *answer, const struct msg_row *row)
{
	return sizeof(struct stored) + sizeof(uint32_t) + row->nrules * sizeof(struct msg_rule) +
	       row_nops(answer, row) * sizeof(struct msg_op);
}

static size_t used_bytes(const struct rows *r)
{
	return table_size(&r->table) * sizeof(struct rows_slot) + r->nstored * sizeof(*r->stored) +
	       r->nrules * sizeof(*r->rules) + r->nops * sizeof(*r->ops) +
	       r->nranges * sizeof(*r->ranges);
}

/* A rule with its steps, which are copied behind those that we have. */
static struct msg_rule rule_store(struct rows *r, const struct msg_rows *answer,
				  const struct msg_rule *rule)
{
	struct msg_rule own = *rule;

	if (is_expression(rule)) {
		own.off = (int32_t)r->nops;
		memcpy(&r->ops[r->nops], &answer->ops[rule->off], rule->n * sizeof(*r->ops));
		r->nops += rule->n;
	}
	return own;
}

/* Whether the rule is `at CFA - 8 * *ret_words`, as far as a byte reaches. */
static bool plain_rule(const struct msg_rule *rule, uint8_t *ret_words)
{
	if (rule->kind != MSG_RULE_CFA_MEM || rule->off >= 0 || rule->off < -8 * UINT8_MAX ||
	    rule->off % 8)
		return false;
	*ret_words = (uint8_t)(rule->off / -8);
	return true;
}

static struct row_plain make_plain(const struct msg_row *row, const struct msg_rule *rules)
{
	static const struct row_plain none;
	struct row_plain p = { .cfa_off = row->cfa.off, .cfa_is_fp = row->cfa.reg == ROW_FP };
	uint8_t ra, fp = 0, words;

	if (row->cfa.kind != MSG_RULE_REG_VAL || (row->cfa.reg != ROW_SP && row->cfa.reg != ROW_FP) ||
	    row->flags != 0 || row->generation != 0 || !plain_rule(&row->ra, &ra))
		return none;
	p.nslots = ra;
	for (uint32_t i = 0; i < row->nrules; i++) {
		if (rules[i].target >= 16 || rules[i].target == ROW_SP || !plain_rule(&rules[i], &words))
			return none;
		if (words > p.nslots)
			p.nslots = words;
		if (rules[i].target == ROW_FP)
			fp = words;
		p.saved |= (uint16_t)(1u << rules[i].target);
	}
	p.ra_slot = (uint8_t)(p.nslots - ra);
	p.fp_slot = fp ? (uint8_t)(p.nslots - fp) : p.ra_slot;
	return p;
}

static int row_store(struct rows *r, const struct msg_rows *answer, const struct msg_row *row,
		     uint32_t *ret_index)
{
	const struct msg_rule *rules = answer->rules + row->first_rule;
	struct stored *s;
	int err;

	err = reserve(&r->stored, r->nstored, &r->stored_cap, 1, sizeof(*r->stored));
	if (!err)
		err = reserve(&r->rules, r->nrules, &r->rules_cap, row->nrules, sizeof(*r->rules));
	if (!err)
		err = reserve(&r->ops, r->nops, &r->ops_cap, row_nops(answer, row),
			      sizeof(*r->ops));
	if (err)
		return err;
	s = &r->stored[r->nstored];
	*s = (struct stored){ .row = *row };
	s->row.first_rule = (uint32_t)r->nrules;
	s->row.cfa = rule_store(r, answer, &row->cfa);
	s->row.ra = rule_store(r, answer, &row->ra);
	for (uint32_t i = 0; i < row->nrules; i++)
		r->rules[r->nrules++] = rule_store(r, answer, &rules[i]);
	s->plain = make_plain(row, rules);
	s->plain.index = (uint32_t)r->nstored;
	*ret_index = (uint32_t)r->nstored++;
	return 0;
}

/* What a put works with: where each row of the answer went, and which rows are new. */
struct put {
	const struct msg_rows *answer;
	uint32_t *index; /* by the answer's row, or ROW_NONE */
	bool *asked;	 /* by the answer's row */
	uint32_t *fresh; /* rows for `ranges` */
	size_t nfresh;
};

static void put_fini(struct put *p)
{
	free(p->index);
	free(p->asked);
	free(p->fresh);
}

static int put_init(struct put *p, const struct msg_rows *answer)
{
	size_t n = MAX(answer->nrows, 1u);

	p->answer = answer;
	p->index = malloc(n * sizeof(*p->index));
	p->asked = calloc(n, sizeof(*p->asked));
	p->fresh = malloc(n * sizeof(*p->fresh));
	if (!p->index || !p->asked || !p->fresh)
		return -ENOMEM;
	for (uint32_t i = 0; i < answer->nresults; i++)
		if (answer->results[i].flags & MSG_RES_ROW)
			p->asked[answer->results[i].row] = true;
	return 0;
}

/* Forgets everything when what was asked for would not fit beside it. */
static void put_make_room(struct rows *r, const struct put *p)
{
	size_t bytes = used_bytes(r);

	for (uint32_t i = 0; i < p->answer->nrows; i++)
		if (p->asked[i])
			bytes += row_bytes(p->answer, &p->answer->rows[i]);
	if (bytes > ROWS_BYTES_MAX)
		rows_reset(r);
}

static bool same_rule(const struct rows *r, const struct msg_rule *own,
		      const struct msg_rows *answer, const struct msg_rule *rule)
{
	if (own->target != rule->target || own->kind != rule->kind || own->reg != rule->reg ||
	    own->n != rule->n)
		return false;
	if (!is_expression(rule))
		return own->off == rule->off;
	for (uint32_t i = 0; i < rule->n; i++) {
		const struct msg_op *a = &r->ops[own->off + (int32_t)i];
		const struct msg_op *b = &answer->ops[rule->off + (int32_t)i];

		if (a->code != b->code || a->reg != b->reg || a->n != b->n)
			return false;
	}
	return true;
}

static bool same_row(const struct rows *r, const struct stored *own, const struct msg_rows *answer,
		     const struct msg_row *row)
{
	if (own->row.start != row->start || own->row.end != row->end ||
	    own->row.generation != row->generation || own->row.flags != row->flags ||
	    own->row.language != row->language || own->row.nrules != row->nrules ||
	    !same_rule(r, &own->row.cfa, answer, &row->cfa) ||
	    !same_rule(r, &own->row.ra, answer, &row->ra))
		return false;
	for (uint32_t i = 0; i < row->nrules; i++)
		if (!same_rule(r, &r->rules[own->row.first_rule + i], answer,
			       &answer->rules[row->first_rule + i]))
			return false;
	return true;
}

/*
 * Stores one row of the answer, or finds it. One that contradicts an earlier row of its range
 * answers for the addresses it was asked for, not for the range.
 */
static int put_row(struct rows *r, struct put *p, uint32_t i)
{
	const struct msg_row *row = &p->answer->rows[i];
	size_t at = range_lower(r, row->start);
	bool overlaps = at < r->nranges && r->stored[r->ranges[at]].row.start < row->end;
	int err;

	p->index[i] = ROW_NONE;
	if (overlaps && same_row(r, &r->stored[r->ranges[at]], p->answer, row)) {
		p->index[i] = r->ranges[at];
		return 0;
	}
	/* A row that was asked for misses the limit only if a hostile file's rows are all expressions. */
	if ((!p->asked[i] && overlaps) ||
	    used_bytes(r) + row_bytes(p->answer, row) > ROWS_BYTES_MAX)
		return 0;
	err = row_store(r, p->answer, row, &p->index[i]);
	if (!err && !overlaps)
		p->fresh[p->nfresh++] = p->index[i];
	return err;
}

static int by_start(const void *a, const void *b, void *arg)
{
	const struct rows *r = arg;
	const struct stored *x = &r->stored[*(const uint32_t *)a],
			    *y = &r->stored[*(const uint32_t *)b];

	if (x->row.start != y->row.start)
		return x->row.start < y->row.start ? -1 : 1;
	return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/*
 * Merges the new rows into the ranges, from the end. Of rows of one answer that overlap the lower
 * one wins.
 */
static void put_ranges(struct rows *r, struct put *p)
{
	size_t n = 0, from, to;

	qsort_r(p->fresh, p->nfresh, sizeof(*p->fresh), by_start, r);
	for (size_t i = 0; i < p->nfresh; i++)
		if (n == 0 ||
		    r->stored[p->fresh[n - 1]].row.end <= r->stored[p->fresh[i]].row.start)
			p->fresh[n++] = p->fresh[i];
	from = r->nranges;
	to = r->nranges += n;
	while (n > 0) {
		size_t at = range_lower_of(r, from, r->stored[p->fresh[n - 1]].row.start);

		to -= from - at;
		memmove(&r->ranges[to], &r->ranges[at], (from - at) * sizeof(*r->ranges));
		from = at;
		r->ranges[--to] = p->fresh[--n];
	}
}

/* The row that covers a place, or ROW_NONE. */
static uint32_t range_find(const struct rows *r, uint64_t offset)
{
	size_t i = range_lower(r, offset);

	return i < r->nranges && r->stored[r->ranges[i]].row.start <= offset ? r->ranges[i] : ROW_NONE;
}

bool rows_cover(const struct rows *r, uint64_t offset, bool is_return)
{
	return offset >= is_return && range_find(r, offset - is_return) != ROW_NONE;
}

/* Of a return address; anything else takes the long way. */
enum { USUAL = MSG_RES_ROW | MSG_RES_CODE | MSG_RES_AFTER_CALL };

static void put_slots(struct rows *r, const struct put *p, const struct msg_addr *addrs,
		      uint32_t naddrs)
{
	for (uint32_t i = 0; i < naddrs; i++) {
		uint64_t key = rows_key(addrs[i].offset, addrs[i].flags & MSG_ADDR_RETURN);
		struct rows_slot slot = { .key = key };
		struct rows_slot *at = rows_slot(&r->table, key);
		uint32_t row = ROW_NONE, known = 0;

		if (p->answer->result == MSG_FILE_OK) {
			known = p->answer->results[i].flags;
			if (known & MSG_RES_ROW)
				row = p->index[p->answer->results[i].row];
			else if (addrs[i].flags & MSG_ADDR_HAVE_ROW && known & MSG_RES_CODE)
				row = range_find(r, addrs[i].offset - (addrs[i].flags & MSG_ADDR_RETURN));
			/* We had its row, and forgot it to make room: it is asked again. */
			if (row == ROW_NONE && addrs[i].flags & MSG_ADDR_HAVE_ROW)
				continue;
			if (row != ROW_NONE)
				known |= MSG_RES_ROW;
		}
		if (row == ROW_NONE)
			known &= ~(uint32_t)MSG_RES_ROW;
		else
			slot.plain = r->stored[row].plain;
		slot.plain.known = (uint8_t)known;
		if (addrs[i].flags & MSG_ADDR_RETURN && (known & USUAL) != USUAL)
			slot.plain.nslots = 0;
		if (at->key == 0)
			r->nused++;
		*at = slot;
	}
}

static int put_rows(struct rows *r, struct put *p)
{
	int err;

	for (uint32_t i = 0; i < p->answer->nrows; i++) {
		err = put_row(r, p, i);
		if (err)
			return err;
	}
	return reserve(&r->ranges, r->nranges, &r->ranges_cap, p->nfresh, sizeof(*r->ranges));
}

int rows_put(struct rows *r, const struct msg_addr *addrs, uint32_t naddrs,
	     const struct msg_rows *answer)
{
	static const struct msg_rows failed = { .result = MSG_FILE_UNREADABLE };
	CLEANUP(put_fini) struct put p = { 0 };
	size_t nstored, nrules, nops;
	int err;

	if (naddrs > MSG_ADDRS_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < naddrs; i++)
		if (addrs[i].offset >= INT64_MAX)
			return -EBADMSG;
	if (answer->result == MSG_FILE_OK && (answer->nresults != naddrs || !answer_ok(answer)))
		return -EBADMSG;
	err = put_init(&p, answer->result == MSG_FILE_OK ? answer : &failed);
	if (err)
		return err;
	put_make_room(r, &p);
	nstored = r->nstored;
	nrules = r->nrules;
	nops = r->nops;
	err = slots_reserve(r, naddrs);
	if (!err)
		err = put_rows(r, &p);
	if (err) {
		r->nstored = nstored;
		r->nrules = nrules;
		r->nops = nops;
		return err;
	}
	put_ranges(r, &p);
	put_slots(r, &p, addrs, naddrs);
	return 0;
}

size_t rows_bytes(const struct rows *r)
{
	return sizeof(*r) + table_size(&r->table) * sizeof(struct rows_slot) +
	       r->stored_cap * sizeof(*r->stored) + r->rules_cap * sizeof(*r->rules) +
	       r->ops_cap * sizeof(*r->ops) + r->ranges_cap * sizeof(*r->ranges);
}

size_t rows_count(const struct rows *r)
{
	return r->nstored;
}
