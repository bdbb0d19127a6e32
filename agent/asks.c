#include "agent/asks.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#include "agent/files.h"

enum {
	BUCKETS = 256,
	SLOTS_MIN = 32,
	WANTED_MAX = 8 * MSG_ADDRS_MAX,		/* of one file */
	WANTED_ALL_MAX = 64 * WANTED_MAX,	/* of all files; a workload can make any number of them */
};

/* What is wanted of one file: each address once, those of the request under way first. */
struct wish {
	struct wish *next;		/* by age */
	struct wish *bucket_next;
	struct file *file;
	uint32_t nasked;		/* 0: no request is under way */
	uint32_t n, cap;
	struct msg_addr *addrs;
	uint16_t *slots;		/* open addressing over indexes + 1 */
	uint32_t nslots;		/* a power of two, at most half full */
};

struct asks {
	struct wish *wishes, **wishes_end;	/* oldest first */
	struct wish *buckets[BUCKETS];		/* by file id */
	uint64_t multiplier;
	size_t naddrs;				/* of all wishes */
	struct parked *oldest, **end;
	size_t nparked, bytes, max_bytes;
};

void parked_free(struct parked *p)
{
	if (!p)
		return;
	sample_free(p->sample);
	maps_unref(p->maps);
	subject_unref(p->subject);
	if (p->file)
		file_unref(p->file);
	free(p);
}

int asks_new(struct asks **ret, size_t max_bytes)
{
	const void *random = (const void *)getauxval(AT_RANDOM);
	struct asks *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	/* Sampled programs choose the addresses: they must not be able to choose the slots. */
	a->multiplier = 0x9e3779b97f4a7c15ull;
	if (random)
		memcpy(&a->multiplier, random, sizeof(a->multiplier));
	a->multiplier |= 1;
	a->max_bytes = max_bytes;
	a->end = &a->oldest;
	a->wishes_end = &a->wishes;
	*ret = a;
	return 0;
}

static void wish_free(struct wish *w)
{
	file_unref(w->file);
	free(w->addrs);
	free(w->slots);
	free(w);
}

struct asks *asks_free(struct asks *a)
{
	if (!a)
		return NULL;
	for (struct wish *w = a->wishes, *next; w; w = next) {
		next = w->next;
		wish_free(w);
	}
	for (struct parked *p = a->oldest, *next; p; p = next) {
		next = p->next;
		parked_free(p);
	}
	free(a);
	return NULL;
}

/* ---- wishes ---- */

static struct wish *find_wish(const struct asks *a, const struct file *file)
{
	struct wish *w = a->buckets[file->id % BUCKETS];

	while (w && w->file != file)
		w = w->bucket_next;
	return w;
}

static struct wish *add_wish(struct asks *a, struct file *file)
{
	struct wish **bucket = &a->buckets[file->id % BUCKETS];
	struct wish *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->file = file_ref(file);
	w->bucket_next = *bucket;
	*bucket = w;
	*a->wishes_end = w;
	a->wishes_end = &w->next;
	return w;
}

static void del_wish(struct asks *a, struct wish *w)
{
	struct wish **at = &a->buckets[w->file->id % BUCKETS];

	while (*at != w)
		at = &(*at)->bucket_next;
	*at = w->bucket_next;
	for (at = &a->wishes; *at != w; at = &(*at)->next)
		;
	*at = w->next;
	if (a->wishes_end == &w->next)
		a->wishes_end = at;
	a->naddrs -= w->n;
	wish_free(w);
}

/* The slot of this address, or the free one where it belongs. */
static uint16_t *find_slot(const struct asks *a, const struct wish *w, const struct msg_addr *addr)
{
	size_t i = (size_t)(((addr->offset * 2 + addr->flags) * a->multiplier) >> 32);

	for (i &= w->nslots - 1; w->slots[i]; i = (i + 1) & (w->nslots - 1)) {
		const struct msg_addr *have = &w->addrs[w->slots[i] - 1];

		if (have->offset == addr->offset && have->flags == addr->flags)
			break;
	}
	return &w->slots[i];
}

static void fill_slots(const struct asks *a, struct wish *w)
{
	memset(w->slots, 0, w->nslots * sizeof(*w->slots));
	for (uint32_t i = 0; i < w->n; i++)
		*find_slot(a, w, &w->addrs[i]) = (uint16_t)(i + 1);
}

/* Room for one address more. */
static int grow(const struct asks *a, struct wish *w)
{
	if (w->n == w->cap) {
		uint32_t cap = w->cap ? w->cap * 2 : SLOTS_MIN / 2;
		struct msg_addr *bigger = reallocarray(w->addrs, cap, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		w->addrs = bigger;
		w->cap = cap;
	}
	if ((w->n + 1) * 2 > w->nslots) {
		uint32_t nslots = w->nslots ? w->nslots * 2 : SLOTS_MIN;
		uint16_t *slots = reallocarray(w->slots, nslots, sizeof(*slots));

		if (!slots)
			return -ENOMEM;
		w->slots = slots;
		w->nslots = nslots;
		fill_slots(a, w);
	}
	return 0;
}

int asks_want(struct asks *a, const struct unwind_want *want)
{
	struct msg_addr addr = { .offset = want->offset, .flags = want->is_return ? MSG_ADDR_RETURN : 0 };
	struct wish *w = find_wish(a, want->file);
	uint16_t *slot;
	int err;

	if (w && w->n && *find_slot(a, w, &addr))
		return 0;
	/* Its sample asks again when it is tried again. */
	if ((w && w->n == WANTED_MAX) || a->naddrs >= WANTED_ALL_MAX)
		return 0;
	if (!w)
		w = add_wish(a, want->file);
	if (!w)
		return -ENOMEM;
	err = grow(a, w);
	if (err)
		return err;
	slot = find_slot(a, w, &addr);
	w->addrs[w->n++] = addr;
	*slot = (uint16_t)w->n;
	a->naddrs++;
	return 0;
}

bool asks_next(struct asks *a, struct msg_request *ret, struct file **ret_file)
{
	for (struct wish *w = a->wishes; w; w = w->next) {
		if (w->nasked || !w->n || w->file->state == FILE_NEW || w->file->state == FILE_OPENING)
			continue;
		w->nasked = MIN(w->n, (uint32_t)MSG_ADDRS_MAX);
		ret->file_id = w->file->id;
		ret->naddrs = w->nasked;
		memcpy(ret->addrs, w->addrs, ret->naddrs * sizeof(*ret->addrs));
		*ret_file = w->file;
		return true;
	}
	return false;
}

void asks_answered(struct asks *a, const struct file *file)
{
	struct wish *w = find_wish(a, file);

	if (!w)
		return;
	if (w->nasked == w->n) {
		del_wish(a, w);
		return;
	}
	w->n -= w->nasked;
	a->naddrs -= w->nasked;
	memmove(w->addrs, w->addrs + w->nasked, w->n * sizeof(*w->addrs));
	w->nasked = 0;
	fill_slots(a, w);
}

void asks_forget(struct asks *a, const struct file *file)
{
	struct wish *w = find_wish(a, file);

	if (w)
		del_wish(a, w);
}

/* ---- parked samples ---- */

void asks_park(struct asks *a, struct parked *p)
{
	p->next = NULL;
	*a->end = p;
	a->end = &p->next;
	a->nparked++;
	a->bytes += p->sample->bytes + sizeof(*p);
}

static struct parked *unlink_at(struct asks *a, struct parked **at)
{
	struct parked *p = *at;

	*at = p->next;
	if (a->end == &p->next)
		a->end = at;
	p->next = NULL;
	a->nparked--;
	a->bytes -= p->sample->bytes + sizeof(*p);
	return p;
}

struct parked *asks_overdue(struct asks *a, uint64_t before_ns)
{
	if (!a->oldest || (a->bytes <= a->max_bytes && a->oldest->since_ns >= before_ns))
		return NULL;
	return unlink_at(a, &a->oldest);
}

struct parked *asks_take(struct asks *a, const struct file *file)
{
	struct parked *list = NULL, **end = &list;

	for (struct parked **at = &a->oldest; *at;) {
		if ((*at)->file != file) {
			at = &(*at)->next;
			continue;
		}
		*end = unlink_at(a, at);
		end = &(*end)->next;
	}
	return list;
}

uint64_t asks_oldest_ns(const struct asks *a)
{
	uint64_t oldest = UINT64_MAX;

	for (const struct parked *p = a->oldest; p; p = p->next)
		oldest = MIN(oldest, p->sample->time_ns);
	return oldest;
}

size_t asks_nparked(const struct asks *a)
{
	return a->nparked;
}

size_t asks_bytes(const struct asks *a)
{
	return a->bytes + a->naddrs * (sizeof(struct msg_addr) + 2 * sizeof(uint16_t));
}
