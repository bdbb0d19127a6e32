#include "exporter/push_state.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define BACKOFF_FIRST_NS   (500 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS	   (60 * NSEC_PER_SEC)
#define HOLD_NS		   (60 * NSEC_PER_SEC)
#define PUSH_AGAIN_NS	   (3600 * NSEC_PER_SEC) /* a server may have got it */
#define AGE_MAX_NS	   (59 * 60 * NSEC_PER_SEC) /* servers take an hour */

/* Of [0, below): splitmix64. What it is for is that a fleet does not act in step. */
uint64_t push_random_below(struct push *p, uint64_t below)
{
	uint64_t x = p->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return below ? x % below : 0;
}

/* ---- what is asked of it --------------------------------------------------------------------- */

int push_add(struct push *p, struct profile *profile)
{
	struct push_item *i = calloc(1, sizeof(*i));

	if (!i)
		return -ENOMEM;
	*i = (struct push_item){
		.push = p,
		.profile = profile_ref(profile),
		.due_ns = p->is_flushing ? 0 : clock_mono_ns() + push_random_below(p, p->spread_ns),
	};
	push_append(p, i);
	push_make_room(p);
	push_schedule(p);
	return 0;
}

void push_flush(struct push *p)
{
	p->is_flushing = true;
	p->not_before_ns = 0;
	for (struct push_item *i = p->first; i; i = i->next)
		i->due_ns = 0;
	push_schedule(p);
}

void push_abandon(struct push *p, enum export_fate_kind kind)
{
	struct push_item *i;

	while ((i = p->first))
		push_settle(i, kind);
}

/* ---- settings -------------------------------------------------------------------------------- */

int push_configure(struct push *p, const struct push_conf *conf)
{
	CLEANUP(push_settings_freep) struct push_settings *s = NULL;
	int err = push_settings_new(&s, conf->endpoint, conf->version);

	if (err)
		return err;
	if (p->settings)
		push_settings_inherit(s, p->settings);
	push_settings_free(p->settings);
	p->settings = TAKE(s);
	p->generation++;
	push_stop_sending(&p->probe);
	p->queue_max_bytes = conf->queue_max_bytes;
	p->spread_ns = conf->spread_ns;
	p->backoff_first_ns = conf->backoff_first_ns ? conf->backoff_first_ns : BACKOFF_FIRST_NS;
	p->backoff_max_ns = conf->backoff_max_ns ? conf->backoff_max_ns : BACKOFF_MAX_NS;
	p->hold_ns = conf->hold_ns ? conf->hold_ns : HOLD_NS;
	p->age_max_ns = conf->age_max_ns ? conf->age_max_ns : AGE_MAX_NS;
	p->push_again_ns = conf->push_again_ns ? conf->push_again_ns : PUSH_AGAIN_NS;
	p->transport = p->settings->protocol == CONFIG_INGEST ? PUSH_INGEST : PUSH_CONNECT;
	p->wants_probe = p->settings->protocol != CONFIG_INGEST;
	p->absent_ns = p->ask_push_ns = 0;
	p->not_before_ns = 0; /* whoever changed the settings wants to see what they do */
	p->is_missing_told = false;
	push_make_room(p);
	push_schedule(p);
	return 0;
}

static int on_timer(void *arg)
{
	push_schedule(arg);
	return 0;
}

int push_new(struct push **ret, struct loop *loop, struct http *http, const struct push_conf *conf,
	     sink_fate_fn *fn, void *arg)
{
	CLEANUP(push_freep) struct push *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct push){ .loop = loop, .http = http, .fn = fn, .arg = arg };
	p->last = &p->first;
	p->probe.push = p;
	p->stats.state = "waiting";
	/* Without entropy, as at boot, it is merely more in step. */
	if (getrandom(&p->random, sizeof(p->random), GRND_NONBLOCK) != (ssize_t)sizeof(p->random))
		p->random = clock_mono_ns();
	p->name = strdup(conf->name);
	if (!p->name)
		return -ENOMEM;
	err = loop_add_timer(loop, &p->timer, 0, on_timer, p);
	if (!err)
		err = push_configure(p, conf);
	if (err)
		return err;
	*ret = TAKE(p);
	return 0;
}

struct push *push_free(struct push *p)
{
	struct push_item *i;

	if (!p)
		return NULL;
	while ((i = p->first))
		push_item_free(i);
	push_stop_sending(&p->probe);
	loop_del(p->timer);
	push_settings_free(p->settings);
	free(p->name);
	free(p);
	return NULL;
}

int push_secret(struct push *p, enum export_role role, const void *data, size_t len)
{
	int err = push_settings_secret(p->settings, role, data, len);

	if (err)
		return err;
	/* A new one deserves a try at once. */
	p->generation++;
	p->not_before_ns = 0;
	p->is_missing_told = false;
	push_schedule(p);
	return 0;
}

const char *push_name(const struct push *p)
{
	return p->name;
}

const char *push_url(const struct push *p)
{
	return p->settings->url;
}

size_t push_nqueued(const struct push *p)
{
	return p->nitems;
}

bool push_is_unresolved(const struct push *p)
{
	return p->is_unresolved;
}

void push_stats(const struct push *p, struct sink_stats *ret)
{
	*ret = p->stats;
	ret->name = p->name;
	ret->kind = p->transport == PUSH_INGEST		 ? "ingest" :
		    p->settings->protocol == CONFIG_AUTO ? "auto" :
							   "push";
	ret->nqueued = p->nitems;
	ret->queued_bytes = p->nbytes;
	ret->queue_max_bytes = p->queue_max_bytes;
}
