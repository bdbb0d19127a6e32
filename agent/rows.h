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

enum { ROW_SAVED_MAX = 6 }; /* what the x86-64 psABI lets a function save */

/*
 * A plain row, as nearly all are: the CFA is a register and an offset; return address and saved
 * registers lie in memory below the CFA, aligned; it has no flags. Of the `nslots` words below the
 * CFA each has the slot that is said here. It stands in the table itself, so that a hot frame costs
 * half a cache line.
 */
struct row_plain {
	uint32_t saved; /* bit per register that is in `reg` */
	int32_t cfa_off;
	uint8_t cfa_reg;
	uint8_t nslots;		     /* not 0 */
	uint8_t ra_slot;	     /* 0 is the lowest one */
	uint8_t known;		     /* MSG_RES_* of the address */
	uint8_t reg[ROW_SAVED_MAX];  /* unused ones: ABI_REGS_MAX, a place nobody reads, */
	uint8_t slot[ROW_SAVED_MAX]; /* and ra_slot, which is there to be read */
};

/*
 * A row as the unwinder reads it: plain, or by its rules; the other pointers are not set then. They
 * are the cache's, valid until the next rows_put().
 */
struct row {
	const struct row_plain *plain; /* or NULL */
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
	struct row_plain plain; /* where nslots is 0, `saved` is the row's index, or nothing */
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

/* rows_find() for the unwinder's inner loop: a return address' plain row, or NULL. */
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
