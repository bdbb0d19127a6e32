/*
 * consignment - one batch on its way: its bytes, and what became of its samples at each sink.
 *
 * A part of it, at one sink, has an id and gets one final fate; what was being sent when the exporter
 * died is known by the SENDING that came before. Samples of a sink that have no fate yet are `left`.
 *
 * May touch: the heap.
 */
#ifndef AGENT_CONSIGNMENT_H
#define AGENT_CONSIGNMENT_H

#include "exporter/msg.h"

enum { CONSIGNMENT_SINKS_MAX = 64 };

enum consignment_state {
	CONSIGNMENT_WAITING,	/* to be sent, again perhaps */
	CONSIGNMENT_ASKED,	/* handed over, not answered */
	CONSIGNMENT_TAKEN,
};

struct consignment_part {
	uint64_t id;		/* 0: a free slot */
	uint64_t nsamples;
	uint8_t sink;
	bool is_settled;	/* it has its fate */
	bool is_sending;
};

struct consignment {
	uint64_t id, tap;
	uint64_t nsamples;
	enum consignment_state state;
	bool is_let_go;		/* its bytes are gone */
	struct bufw wire;	/* the batch, without what is settled */
	uint32_t strikes, nkills;
	uint64_t sinks;		/* bit per sink that has to account for it */
	uint64_t left[CONSIGNMENT_SINKS_MAX];
	struct consignment_part *parts;	/* open addressing */
	uint32_t nparts, nslots;
};

/* -ENOMEM. */
MUST_USE int consignment_new(struct consignment **ret, const struct export_batch *b);
struct consignment *consignment_free(struct consignment *s);
DEFINE_CLEANUP(struct consignment *, consignment_free);

void consignment_let_go(struct consignment *s); /* frees the bytes */
/* The part, new when unknown. -ENOMEM; -EBADMSG: more than EXPORT_TABLE_MAX. */
MUST_USE int consignment_part(struct consignment *s, uint64_t id, struct consignment_part **ret, bool *ret_is_new);
/* The message: the batch and what is settled; borrowed until the next call. */
MUST_USE int consignment_message(struct consignment *s, size_t *ret_len, const uint8_t **ret);

#endif
