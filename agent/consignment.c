#include "agent/consignment.h"

#include <errno.h>
#include <string.h>

enum { SLOTS_MIN = 64, SETTLED_ROOM = 256 };

static uint64_t count_samples(const struct export_batch *b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < b->nsamples; i++)
		sum += b->samples[i].count;
	return sum;
}

int consignment_new(struct consignment **ret, const struct export_batch *b)
{
	CLEANUP(consignment_freep) struct consignment *s = calloc(1, sizeof(*s));
	uint8_t *fitted;
	int err;

	if (!s)
		return -ENOMEM;
	s->id = b->id;
	s->tap = b->tap;
	s->nsamples = count_samples(b);
	export_batch_encode(&s->wire, b);
	err = bufw_end(&s->wire);
	if (err)
		return err;
	/* It may be kept for long: no more than it needs. */
	fitted = realloc(s->wire.data, s->wire.len + SETTLED_ROOM);
	if (fitted) {
		s->wire.data = fitted;
		s->wire.cap = s->wire.len + SETTLED_ROOM;
	}
	*ret = TAKE(s);
	return 0;
}

struct consignment *consignment_free(struct consignment *s)
{
	if (!s)
		return NULL;
	bufw_fini(&s->wire);
	free(s->parts);
	free(s);
	return NULL;
}

void consignment_let_go(struct consignment *s)
{
	bufw_fini(&s->wire);
	s->wire = (struct bufw){ 0 };
	s->is_let_go = true;
}

/* Ids are hashes already; nslots is a power of two. */
static struct consignment_part *slot(struct consignment_part *parts, uint32_t nslots, uint64_t id)
{
	uint32_t i = (uint32_t)(id * 0x9e3779b97f4a7c15ull >> 32) & (nslots - 1);

	while (parts[i].id && parts[i].id != id)
		i = (i + 1) & (nslots - 1);
	return &parts[i];
}

static int grow(struct consignment *s)
{
	uint32_t nslots = s->nslots ? s->nslots * 2 : SLOTS_MIN;
	struct consignment_part *parts = calloc(nslots, sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->nslots; i++) {
		if (s->parts[i].id)
			*slot(parts, nslots, s->parts[i].id) = s->parts[i];
	}
	free(s->parts);
	s->parts = parts;
	s->nslots = nslots;
	return 0;
}

int consignment_part(struct consignment *s, uint64_t id, struct consignment_part **ret, bool *ret_is_new)
{
	struct consignment_part *p;
	int err;

	if (!id)
		return -EBADMSG;
	if (s->nparts >= s->nslots / 2) {
		err = s->nparts < EXPORT_TABLE_MAX ? grow(s) : -EBADMSG;
		if (err)
			return err;
	}
	p = slot(s->parts, s->nslots, id);
	*ret_is_new = !p->id;
	if (!p->id) {
		p->id = id;
		s->nparts++;
	}
	*ret = p;
	return 0;
}

int consignment_message(struct consignment *s, size_t *ret_len, const uint8_t **ret)
{
	CLEANUP_FREE uint64_t *ids = calloc(s->nparts + 1u, sizeof(*ids));
	struct export_settled settled = { .ids = ids };
	size_t len = s->wire.len;
	int err;

	if (!ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->nslots; i++) {
		if (s->parts[i].id && s->parts[i].is_settled)
			ids[settled.n++] = s->parts[i].id;
	}
	export_settled_encode(&s->wire, &settled);
	err = bufw_end(&s->wire);
	*ret_len = s->wire.len;
	*ret = s->wire.data;
	s->wire.len = len; /* the next one begins here again */
	s->wire.err = 0;
	return err;
}
