/*
 * tables - the first pass over a batch: what a profile of it will hold, numbered.
 *
 * Every different string, mapping, function, location and sample that a sample needs gets a number
 * in the order of first use. All texts end as valid UTF-8.
 *
 * May touch: the heap, getrandom(2).
 */
#ifndef EXPORTER_TABLES_H
#define EXPORTER_TABLES_H

#include "exporter/intern.h"
#include "exporter/msg.h"

enum { TABLES_NONE = UINT32_MAX }; /* not in the profile */

/* Strings that no batch has to bring. */
/* clang-format off */
#define TABLES_LITERALS(X)			\
	X(EMPTY, "")				\
	X(SAMPLES, "samples")			\
	X(COUNT, "count")			\
	X(CPU, "cpu")				\
	X(NANOSECONDS, "nanoseconds")		\
	X(PID, "pid")				\
	X(TID, "tid")				\
	X(COMM, "comm")				\
	X(SERVICE_NAME, "service_name")		\
	X(FLAMED, "[flamed]")			\
	X(NO_STACK, "[no stack]")

enum tables_literal {
#define X(id, text) TABLES_##id,
	TABLES_LITERALS(X)
#undef X
	TABLES_NLITERALS,
};
/* clang-format on */

/* Texts by index: first the batch's strings, then the literals, then a service name per subject. */
struct tables_text {
	const char *text;
	char *owned; /* NULL: borrowed */
	uint32_t len;
	uint32_t string; /* its number */
};

/* What some location of a mapping has. */
enum { TABLES_HAS_FILENAMES = 1, TABLES_HAS_LINES = 2, TABLES_HAS_INLINES = 4 };

struct tables_value {
	uint64_t count;
	uint64_t nanoseconds;
};

struct tables {
	const struct export_batch *b;
	uint64_t seed; /* of hashes: a workload chooses strings, and could choose collisions */
	struct tables_text *texts;
	uint32_t *subject_comm; /* by subject: a string index */
	uint32_t *mapping_of;	/* by the batch's index: the number */
	uint32_t *function_of;
	uint32_t *location_of;
	uint8_t *mapping_flags;	     /* by number */
	struct tables_value *values; /* by number of the sample; sums saturate at INT64_MAX */
	bool has_empty_stack;	     /* some sample has no frame; its literals are numbered too */
	struct intern strings, mappings, functions, locations, samples; /* things: batch indexes */
	uint64_t *location_ids; /* scratch for one stack: EXPORT_FRAMES_MAX */
};

/* The batch is borrowed until tables_fini(), which accepts what a failed init left behind. */
MUST_USE int tables_init(struct tables *t, const struct export_batch *b);
void tables_fini(struct tables *t);

/* Indexes into texts. */
uint32_t tables_literal_text(const struct tables *t, enum tables_literal l);
uint32_t tables_service_text(const struct tables *t, uint32_t subject);
/* The number of a text that the profile holds. */
int64_t tables_string(const struct tables *t, uint32_t text);
int64_t tables_literal(const struct tables *t, enum tables_literal l);
uint64_t tables_add_saturated(uint64_t a, uint64_t b);

#endif
