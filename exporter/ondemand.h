/*
 * ondemand - profiles of the next seconds, for whoever asks at /debug/pprof/profile.
 *
 * A request's connection is suspended until the agent's batch has come, or its refusal. At most
 * EXPORT_TAPS_MAX are taken at once. One whose client went away keeps its place, since the agent takes it
 * to its end all the same: until its batch, its refusal or its deadline.
 *
 * May touch: the connections of its requests. Never: who may ask.
 */
#ifndef EXPORTER_ONDEMAND_H
#define EXPORTER_ONDEMAND_H

#include <microhttpd.h>

#include "base/loop.h"
#include "exporter/msg.h"

enum { ONDEMAND_DEFAULT_S = 30, ONDEMAND_MAX_S = 120 };

struct ondemand;
struct listener;

typedef int ondemand_tap_fn(void *arg, const struct export_tap *tap);

MUST_USE int ondemand_new(struct ondemand **ret, struct loop *loop, ondemand_tap_fn *fn, void *arg);
struct ondemand *ondemand_free(struct ondemand *o); /* after its listeners */
DEFINE_CLEANUP(struct ondemand *, ondemand_free);

/* As listener.h's ops; seconds and service are in the query. */
enum MHD_Result ondemand_request(struct ondemand *o, struct listener *l, struct MHD_Connection *c,
				 void **state);
void ondemand_done(struct ondemand *o, void *state);
void ondemand_closing(struct ondemand *o, struct listener *l);

void ondemand_refused(struct ondemand *o, const struct export_tap_refused *r);
/* The batch of a tap; of one that nobody waits for any more it is ignored. */
void ondemand_take(struct ondemand *o, const struct export_batch *b);

#endif
