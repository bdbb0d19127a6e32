/*
 * rows - what the symbolizer has said about the code of one file: unwind rows by range, and what
 * precedes an address.
 *
 * Open-addressing table by (file offset, is-return), exact; a row that was sent for one address
 * also answers for each interrupted pc in its range. Rows, rules and steps are stored once.
 *
 * Bounded: past ROWS_BYTES_MAX everything is forgotten, and asked for again when it is needed.
 *
 * May touch: the heap. Never: ask for anything.
 */
#ifndef AGENT_ROWS_H
#define AGENT_ROWS_H

#include "symbolizer/msg.h"

#if defined(__x86_64__)
enum { ROW_SP = 7, ROW_FP = 6 }; /* DWARF numbers of the stack pointer and the frame pointer */
#else
#error "no rows for this architecture"
#endif

/*
 * A plain row, as nearly all are: the CFA is the stack or the frame pointer and an offset; return
 * address and saved registers lie in memory below the CFA, aligned; it has no flags. Of the `nslots`
 * words below the CFA the return address and the caller's frame pointer have the slots that are said
 * here, which is all that most of the next frames ask for; the whole row has the rest. It stands in
 * the table itself, so that a hot frame touches one or two cache lines.
 */
struct row_plain {
	int32_t cfa_off;
	uint32_t index; /* of the whole row */
	uint16_t saved; /* bit per register that the row has a rule for */
	bool cfa_is_fp; /* its register is the frame pointer */
	uint8_t nslots; /* not 0 */
	uint8_t ra_slot; /* 0 is the lowest one */
	uint8_t fp_slot; /* ra_slot, which is there to be read, when it is not saved */
	uint8_t known;	 /* MSG_RES_* of the address */
};

/* A row as the unwinder reads it. The pointers are the cache's, valid until the next rows_put(). */
struct row {
	const struct row_plain *plain; /* the same in short, or NULL */
	uint8_t flags;		       /* MSG_ROW_* */
	const struct msg_row *row;
	const struct msg_rule *rules; /* row->nrules of them */
	const struct msg_op *ops;     /* what the expressions' `off` counts from */
};

enum rows_answer {
	ROWS_UNKNOWN, /* not asked yet: park the sample */
	ROWS_KNOWN,   /* `flags` (MSG_RES_*) are valid; `ret_row` too when MSG_RES_ROW */
};

enum {
	ROWS_BYTES_MAX = 8 * 1024 * 1024
}; /* of one file; at most twice that is allocated */

struct rows;

/* The table's slots, for rows_find_plain() alone. */
struct rows_slot {
	uint64_t key;		/* offset * 2 + is_return + 1; 0: free */
	struct row_plain plain; /* where nslots is 0, only `index` and `known` mean something */
};

struct rows_table {
	struct rows_slot *slots;
	size_t mask; /* their number, a power of two, less one */
	uint64_t multiplier;
};

MUST_USE int rows_new(struct rows **ret);
struct rows *rows_free(struct rows *r);
DEFINE_CLEANUP(struct rows *, rows_free);

enum rows_answer rows_find(const struct rows *r, uint64_t offset, bool is_return,
			   struct row *ret_row, uint32_t *ret_flags);
/* The whole of a plain row that these rows gave. */
void rows_whole(const struct rows *r, const struct row_plain *plain, struct row *ret);
/* Whether a row covers this address: asked about it, the symbolizer need not send its function again. */
bool rows_cover(const struct rows *r, uint64_t offset, bool is_return);
/*
 * Stores an answer to these addresses. A failed file: every address is known, without a row.
 * -EBADMSG for an answer that is not one to these addresses; -ENOMEM. Nothing is stored then.
 */
MUST_USE int rows_put(struct rows *r, const struct msg_addr *addrs, uint32_t naddrs,
		      const struct msg_rows *answer);

/* Valid as long as the rows are. */
const struct rows_table *rows_table(const struct rows *r);

/* File offsets are below 2^63 (an off_t), so a key never wraps. */
static inline uint64_t rows_key(uint64_t offset, bool is_return)
{
	return offset * 2 + is_return + 1;
}

/* The slot of this key, or the free one where it belongs. Never of a table without slots. */
static inline struct rows_slot *rows_slot(const struct rows_table *t, uint64_t key)
{
	uint64_t h = key * t->multiplier;
	struct rows_slot *slot;
	size_t i;

	/* Twice: functions lie at regular distances, which one multiplication only stretches. */
	h = (h ^ h >> 32) * 0xbf58476d1ce4e5b9ull;
	i = (size_t)(h >> 32) & t->mask;
	slot = &t->slots[i];
	while (slot->key != key && slot->key != 0) {
		i = (i + 1) & t->mask;
		slot = &t->slots[i];
	}
	return slot;
}

/* rows_find() for the unwinder's inner loop: the plain row of a return address that follows a call, or NULL. */
static inline const struct row_plain *rows_find_plain(const struct rows_table *t, uint64_t offset)
{
	const struct rows_slot *slot;

	if (!t->slots)
		return NULL;
	slot = rows_slot(t, rows_key(offset, true));
	/* A free slot's row is not plain. */
	return slot->plain.nslots > 0 ? &slot->plain : NULL;
}

size_t rows_bytes(const struct rows *r);
size_t rows_count(const struct rows *r); /* distinct rows */

#endif
