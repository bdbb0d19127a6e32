/*
 * kallsyms - names of kernel addresses.
 *
 * Reads /proc/kallsyms when it meets the first address, and again when modules changed or an address is
 * in code that comes and goes; the symbols of code are kept, in at most 8 MiB. Where the kernel hides its addresses (kptr_restrict,
 * no CAP_SYSLOG) there are no names: [kernel]+0x offset within 2 MiB, the alignment that address
 * layout randomisation keeps, and one warning.
 *
 * May touch: /proc/kallsyms, /proc/modules (the kernel wrote them). Never: let a run-time address out.
 */
#ifndef AGENT_KALLSYMS_H
#define AGENT_KALLSYMS_H

#include "agent/event.h"

struct kallsyms;

MUST_USE int kallsyms_new(struct kallsyms **ret);
struct kallsyms *kallsyms_free(struct kallsyms *k);
DEFINE_CLEANUP(struct kallsyms *, kallsyms_free);

/* Code came or went, as the side-band tells in the order of time. What went keeps its name until other code comes there. */
MUST_USE int kallsyms_code(struct kallsyms *k, const struct event_code *code);
/* Some of that was not told: all that can come and go is looked up anew. */
void kallsyms_doubt(struct kallsyms *k);
/* Fills ret[n]; texts are valid until the next call. */
MUST_USE int kallsyms_resolve(struct kallsyms *k, const uint64_t *addresses, uint32_t n,
			      struct event_kernel_symbol *ret);

#endif
