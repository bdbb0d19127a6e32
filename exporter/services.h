/*
 * services - whose the samples of some windows are: service by service, process by process.
 *
 * Bounded: past SERVICES_MAX services the others are `(other)`; past SERVICES_PROCESSES_MAX
 * processes, or SERVICES_ABOUT_BYTES of what is known about them, the others are counted, but not shown.
 *
 * May touch: the heap, getrandom(2).
 */
#ifndef EXPORTER_SERVICES_H
#define EXPORTER_SERVICES_H

#include "exporter/msg.h"

enum {
	SERVICES_MAX = 4096,
	SERVICES_PROCESSES_MAX = 16384,
	SERVICES_SHOWN_MAX = 50,
	SERVICES_ABOUT_BYTES = 6 * 1024 * 1024, /* of labels and paths */
};

/* The service_name of each subject of a batch: its label, else what labels_make() gives it. */
struct services_names {
	struct export_string *of;	/* by subject; valid as long as the batch */
	void *mem;
};

MUST_USE int services_names_init(struct services_names *n, const struct export_batch *b);
void services_names_fini(struct services_names *n);
bool services_names_are(const struct services_names *n, uint32_t subject, const char *name);

struct services;

MUST_USE int services_new(struct services **ret);
struct services *services_free(struct services *s);
DEFINE_CLEANUP(struct services *, services_free);

MUST_USE int services_add(struct services *s, const struct export_batch *b);
uint64_t services_nsamples(const struct services *s);
uint64_t services_nanoseconds(const struct services *s);
/* Appends the array of the API: the busiest first, with at most SERVICES_SHOWN_MAX processes each. -ENOMEM. */
MUST_USE int services_write(const struct services *s, struct bufw *w);

#endif
