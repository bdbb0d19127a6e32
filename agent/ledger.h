/*
 * ledger - the batches that are on their way, and each sink's account of them.
 *
 * For each sink: samples of the batches it had to account for = sum of its final fates + pending.
 *
 * May touch: consignments. Never: the exporter.
 */
#ifndef AGENT_LEDGER_H
#define AGENT_LEDGER_H

#include "agent/consignment.h"

enum {
	LEDGER_SINKS_MAX = 64,
	LEDGER_BATCHES_MAX = 8192,
};

struct ledger_sink {
	const char *name;
	uint64_t samples[EXPORT_FATE_COUNT];	/* by final fate */
	uint64_t pending;
	uint64_t overdone;	/* fates for more samples than were handed over; must be 0 */
};

/* For reading. */
struct ledger {
	struct ledger_sink sinks[LEDGER_SINKS_MAX];
	char names[LEDGER_SINKS_MAX][EXPORT_SINK_MAX];
	uint64_t current;		/* bit per sink that batches from now on go to */
	size_t nsinks;			/* those of before a reload included */
	struct consignment **batches;	/* sorted by id */
	size_t nbatches, batches_cap;
};

void ledger_fini(struct ledger *l);

/* Those that batches from now on have to account to. Names are copied. -ENOBUFS: too many are owed something. */
MUST_USE int ledger_set_sinks(struct ledger *l, const char *const *names, size_t n);
/* Its index in `sinks`, or -ENOENT. */
MUST_USE int ledger_find_sink(const struct ledger *l, const char *name);
bool ledger_is_current(const struct ledger *l, size_t sink);

/* This sink has to account for the batch, or every current one has to. */
void ledger_owe(struct ledger *l, struct consignment *b, size_t sink);
void ledger_owe_current(struct ledger *l, struct consignment *b);
/* n samples of the batch have this fate; what is more than it still owes is overdone. */
void ledger_account(struct ledger *l, struct consignment *b, size_t sink, enum export_fate_kind kind, uint64_t n);
/* All that it owes; how many samples, of all sinks. */
uint64_t ledger_account_rest(struct ledger *l, struct consignment *b, enum export_fate_kind kind);
/* What the exporter was sending when it died may have arrived: IN_DOUBT. */
void ledger_account_sending(struct ledger *l, struct consignment *b);
/* So many samples that no batch has or will have, at each current sink. */
void ledger_account_loose(struct ledger *l, enum export_fate_kind kind, uint64_t n);

/* The batch is the ledger's, but after an error. -EEXIST; -ENOBUFS: LEDGER_BATCHES_MAX; -ENOMEM. */
MUST_USE int ledger_add(struct ledger *l, struct consignment *b);
void ledger_del(struct ledger *l, struct consignment *b); /* and frees it */
struct consignment *ledger_find(const struct ledger *l, uint64_t id);
struct consignment *ledger_first_in(const struct ledger *l, enum consignment_state state);
/* The oldest that can be let go: one that the exporter has, else one that it did not get to. NULL: none. */
struct consignment *ledger_find_victim(const struct ledger *l);
/* What is kept of windows. Taps are few (EXPORT_TAPS_MAX), small, and none of them outlives its exporter. */
size_t ledger_held(const struct ledger *l, size_t *ret_bytes);

#endif
