#include "agent/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)LEDGER_SINKS_MAX == (int)CONSIGNMENT_SINKS_MAX, "a batch has room for every sink");
_Static_assert(LEDGER_SINKS_MAX <= 64, "sinks are bits");

void ledger_fini(struct ledger *l)
{
	for (size_t i = 0; i < l->nbatches; i++)
		consignment_free(l->batches[i]);
	free(l->batches);
	*l = (struct ledger){ 0 };
}

/* ---- sinks ---- */

int ledger_find_sink(const struct ledger *l, const char *name)
{
	for (size_t i = 0; i < l->nsinks; i++) {
		if (strcmp(l->names[i], name) == 0)
			return (int)i;
	}
	return -ENOENT;
}

bool ledger_is_current(const struct ledger *l, size_t sink)
{
	return l->current >> sink & 1;
}

static bool is_owed(const struct ledger *l, size_t sink)
{
	for (size_t i = 0; i < l->nbatches; i++) {
		if (l->batches[i]->sinks & 1ull << sink)
			return true;
	}
	return false;
}

/* A new account, in the place of a removed sink's when there are too many. */
static int new_sink(struct ledger *l, const char *name)
{
	size_t i = 0;

	if (l->nsinks < LEDGER_SINKS_MAX)
		i = l->nsinks++;
	else
		while (i < l->nsinks && (ledger_is_current(l, i) || is_owed(l, i)))
			i++;
	if (i == LEDGER_SINKS_MAX)
		return -ENOBUFS;
	snprintf(l->names[i], sizeof(l->names[i]), "%s", name);
	l->sinks[i] = (struct ledger_sink){ .name = l->names[i] };
	return (int)i;
}

int ledger_set_sinks(struct ledger *l, const char *const *names, size_t n)
{
	l->current = 0;
	for (size_t i = 0; i < n; i++) {
		int sink = ledger_find_sink(l, names[i]);

		if (sink < 0)
			sink = new_sink(l, names[i]);
		if (sink < 0)
			return sink;
		l->current |= 1ull << sink;
	}
	return 0;
}

/* ---- accounts ---- */

void ledger_owe(struct ledger *l, struct consignment *b, size_t sink)
{
	b->sinks |= 1ull << sink;
	b->left[sink] = b->nsamples;
	l->sinks[sink].pending += b->nsamples;
}

void ledger_owe_current(struct ledger *l, struct consignment *b)
{
	for (size_t i = 0; i < l->nsinks && !b->tap; i++) {
		if (ledger_is_current(l, i))
			ledger_owe(l, b, i);
	}
}

void ledger_account(struct ledger *l, struct consignment *b, size_t sink, enum export_fate_kind kind, uint64_t n)
{
	struct ledger_sink *a = &l->sinks[sink];
	uint64_t fits = MIN(n, b->left[sink]);

	b->left[sink] -= fits;
	a->pending -= fits;
	a->samples[kind] += fits;
	a->overdone += n - fits;
}

uint64_t ledger_account_rest(struct ledger *l, struct consignment *b, enum export_fate_kind kind)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < l->nsinks; i++) {
		sum += b->left[i];
		ledger_account(l, b, i, kind, b->left[i]);
	}
	return sum;
}

void ledger_account_sending(struct ledger *l, struct consignment *b)
{
	for (uint32_t i = 0; i < b->nslots; i++) {
		struct consignment_part *p = &b->parts[i];

		if (!p->id || p->is_settled || !p->is_sending)
			continue;
		p->is_settled = true;
		ledger_account(l, b, p->sink, EXPORT_FATE_IN_DOUBT, p->nsamples);
	}
}

void ledger_account_loose(struct ledger *l, enum export_fate_kind kind, uint64_t n)
{
	for (size_t i = 0; i < l->nsinks; i++) {
		if (ledger_is_current(l, i))
			l->sinks[i].samples[kind] += n;
	}
}

/* ---- batches ---- */

struct consignment *ledger_find(const struct ledger *l, uint64_t id)
{
	size_t low = 0, high = l->nbatches;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (l->batches[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < l->nbatches && l->batches[low]->id == id ? l->batches[low] : NULL;
}

int ledger_add(struct ledger *l, struct consignment *b)
{
	size_t cap = l->batches_cap ? l->batches_cap * 2 : 16, at;
	struct consignment **more;

	if (ledger_find(l, b->id))
		return -EEXIST;
	if (l->nbatches == LEDGER_BATCHES_MAX)
		return -ENOBUFS;
	if (l->nbatches == l->batches_cap) {
		more = reallocarray(l->batches, cap, sizeof(more[0]));
		if (!more)
			return -ENOMEM;
		l->batches = more;
		l->batches_cap = cap;
	}
	/* A tap can overtake a window that waits for names. */
	for (at = l->nbatches++; at > 0 && l->batches[at - 1]->id > b->id; at--)
		l->batches[at] = l->batches[at - 1];
	l->batches[at] = b;
	return 0;
}

void ledger_del(struct ledger *l, struct consignment *b)
{
	size_t i = 0;

	while (l->batches[i] != b)
		i++;
	memmove(l->batches + i, l->batches + i + 1, (--l->nbatches - i) * sizeof(l->batches[0]));
	consignment_free(b);
}

struct consignment *ledger_first_in(const struct ledger *l, enum consignment_state state)
{
	for (size_t i = 0; i < l->nbatches; i++) {
		if (l->batches[i]->state == state)
			return l->batches[i];
	}
	return NULL;
}

struct consignment *ledger_find_victim(const struct ledger *l)
{
	for (size_t i = 0; i < l->nbatches; i++) {
		if (l->batches[i]->state == CONSIGNMENT_TAKEN && !l->batches[i]->is_let_go)
			return l->batches[i];
	}
	for (size_t i = 0; i + 1 < l->nbatches; i++) {
		if (l->batches[i]->state == CONSIGNMENT_WAITING && !l->batches[i]->tap)
			return l->batches[i];
	}
	return NULL;
}

size_t ledger_held(const struct ledger *l, size_t *ret_bytes)
{
	size_t n = 0, bytes = 0;

	for (size_t i = 0; i < l->nbatches; i++) {
		const struct consignment *b = l->batches[i];

		n += !b->is_let_go && !b->tap;
		bytes += b->tap ? 0 : b->wire.cap;
	}
	*ret_bytes = bytes;
	return n;
}
