/*
 * names - which service names of this host are told apart.
 *
 * Each service_name is a series at a server, and whoever may run programs can make ever new ones. So
 * of names that are seen within an hour a host has at most NAMES_EXECUTABLES_MAX that are made of an
 * executable, and NAMES_UNITS_MAX of a systemd unit. The names of a window that are new come in the
 * order of their samples, most first; where no place is free the one that was seen longest ago
 * makes room, if that is an hour ago. Samples of a name without a place are filed under `other`.
 * `kernel`, `other` and `unknown` need no place.
 *
 * May touch: its arguments, the heap, getrandom(2), the log.
 */
#ifndef EXPORTER_NAMES_H
#define EXPORTER_NAMES_H

#include "exporter/msg.h"

#define NAMES_OTHER "other"

enum { NAMES_EXECUTABLES_MAX = 256, NAMES_UNITS_MAX = 1024 };

enum names_kind { NAMES_EXECUTABLE, NAMES_UNIT, NAMES_NKINDS };

struct names;

struct names_stats {
	uint32_t n[NAMES_NKINDS];	/* names that have a place */
	uint64_t nother;		/* samples whose name had none */
};

MUST_USE int names_new(struct names **ret);
struct names *names_free(struct names *n);
DEFINE_CLEANUP(struct names *, names_free);

/*
 * Gives the subjects of a window whose name has no place the label service_name=other. *ret_changed:
 * there were such. -ENOMEM: the batch is what it was.
 */
MUST_USE int names_bound(struct names *n, struct export_batch *b, uint64_t now_ns, bool *ret_changed);

void names_stats(const struct names *n, struct names_stats *ret);

#endif
