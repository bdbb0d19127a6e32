#include "exporter/push_state.h"

#include "base/clock.h"
#include "exporter/http.h"

enum { ITEM_BYTES = 1024 }; /* what a profile costs beside its bytes: labels, struct */

static uint64_t item_bytes(const struct push_item *i)
{
	return i->profile->len + ITEM_BYTES;
}

void push_append(struct push *p, struct push_item *i)
{
	i->at = p->last;
	*p->last = i;
	p->last = &i->next;
	p->nitems++;
	p->nbytes += item_bytes(i);
}

void push_stop_sending(struct push_item *i)
{
	struct push *p = i->push;

	if (!i->is_sending)
		return;
	http_cancel(p->http, i->request.easy);
	push_request_fini(&i->request);
	i->is_sending = false;
	p->nsending--;
}

void push_item_free(struct push_item *i)
{
	struct push *p = i->push;

	push_stop_sending(i);
	*i->at = i->next;
	if (i->next)
		i->next->at = i->at;
	else
		p->last = i->at;
	p->nitems--;
	p->nbytes -= item_bytes(i);
	profile_unref(i->profile);
	free(i);
}

void push_settle(struct push_item *i, enum export_fate_kind kind)
{
	struct push *p = i->push;
	struct profile *profile = profile_ref(i->profile);

	push_item_free(i);
	p->fn(p->arg, p->name, profile, kind);
	profile_unref(profile);
}

void push_make_room(struct push *p)
{
	struct push_item *i = p->first, *next;

	for (; i && p->nbytes > p->queue_max_bytes; i = next) {
		next = i->next;
		if (!i->is_sending)
			push_settle(i, EXPORT_FATE_QUEUE_FULL);
	}
}

static bool is_too_old(const struct push *p, const struct push_item *i, uint64_t wall_ns)
{
	return wall_ns > i->profile->wall_start_ns &&
	       wall_ns - i->profile->wall_start_ns > p->age_max_ns;
}

void push_drop_old(struct push *p)
{
	uint64_t wall_ns = clock_wall_ns();
	struct push_item *i = p->first, *next;

	for (; i; i = next) {
		next = i->next;
		if (!i->is_sending && is_too_old(p, i, wall_ns))
			push_settle(i, EXPORT_FATE_TOO_OLD);
	}
}
