/*
 * tables - the first pass over samples of a batch: what a profile of them will hold, numbered.
 *
 * Every different string, mapping, function, location and sample that a sample needs gets a number
 * in the order of first use. All texts end as valid UTF-8. One struct numbers one selection of
 * samples after another; each costs what it touches, however large the batch is.
 *
 * May touch: the heap, getrandom(2).
 */
#ifndef EXPORTER_TABLES_H
#define EXPORTER_TABLES_H

#include "exporter/intern.h"
#include "exporter/msg.h"

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
	X(NO_STACK, "[no stack]")		\
	X(TRUNCATED, "[truncated]")

enum tables_literal {
#define X(id, text) TABLES_##id,
	TABLES_LITERALS(X)
#undef X
	TABLES_NLITERALS,
};
/* clang-format on */

/* A number that counts in this selection alone. */
struct tables_number {
	uint32_t selection;
	uint32_t number;
};

/* Texts by index: first the batch's strings, then the literals, then a service name per subject. */
struct tables_text {
	const char *text;
	uint32_t len;
	bool is_ready; /* valid UTF-8, not too long */
	bool is_owned;
	struct tables_number string;
};

/* What some location of a mapping has. */
enum { TABLES_HAS_FILENAMES = 1, TABLES_HAS_LINES = 2, TABLES_HAS_INLINES = 4 };

struct tables_value {
	uint64_t count;
	uint64_t nanoseconds;
};

/* A label of a sample: indexes into texts. */
struct tables_label {
	uint32_t name, value;
};
enum { TABLES_LABELS_MAX = EXPORT_PAIRS_MAX + 1 };

/* Frames that no batch has to bring; their indexes follow those of the batch's tables. */
enum { TABLES_OWN_FRAMES = 2 };
struct tables_own {
	struct export_mapping mapping;
	struct export_function functions[TABLES_OWN_FRAMES];
	struct export_line lines[TABLES_OWN_FRAMES];
	struct export_location locations[TABLES_OWN_FRAMES];
	uint32_t no_stack, truncated; /* locations: the batch's, where it has them */
};

struct tables {
	const struct export_batch *b;
	bool has_labels;   /* samples of different threads or labels stay apart */
	uint32_t text_max; /* bytes; longer texts end in an ellipsis */
	uint64_t seed;	   /* of hashes: a workload chooses strings, and could choose collisions */
	struct tables_own own;
	struct export_string *services; /* by subject */
	void *services_mem;
	uint32_t selection; /* of the numbers that count */
	uint32_t frames_max;
	struct tables_text *texts;
	struct tables_number *mapping_of; /* by the batch's index */
	struct tables_number *function_of;
	struct tables_number *location_of;
	struct tables_number *labels_of;	      /* by subject */
	uint8_t *mapping_flags;			      /* by number */
	struct tables_value *values;		      /* by number of the sample; sums saturate at INT64_MAX */
	struct intern strings, mappings, functions, locations, labels, samples; /* things: batch indexes */
	uint64_t *location_ids; /* scratch for one stack: EXPORT_FRAMES_MAX */
};

/* text_max 0: any length. The batch is borrowed until tables_fini(), which accepts what a failed init left behind. */
MUST_USE int tables_init(struct tables *t, const struct export_batch *b, bool has_labels, uint32_t text_max);
void tables_fini(struct tables *t);

/*
 * Numbers what these samples need (indexes, NULL: all of the batch). A stack of more than frames_max
 * frames, at least 2, keeps its leaf-most frames_max - 1 and has [truncated] at the root. -ENOMEM.
 */
MUST_USE int tables_select(struct tables *t, const uint32_t *samples, uint32_t n, uint32_t frames_max);

/* By the batch's index, or that of an own one. */
const struct export_mapping *tables_mapping(const struct tables *t, uint32_t i);
const struct export_function *tables_function(const struct tables *t, uint32_t i);
const struct export_line *tables_line(const struct tables *t, uint32_t i);
const struct export_location *tables_location(const struct tables *t, uint32_t i);
/* The stack of a sample as the profile has it: locations, leaf first. */
uint32_t tables_nframes(const struct tables *t, const struct export_sample *s);
uint32_t tables_frame(const struct tables *t, const struct export_sample *s, uint32_t i);
/* The labels of a subject but pid, tid and comm: service_name first, each name once. */
uint32_t tables_labels(const struct tables *t, uint32_t subject, struct tables_label ret[TABLES_LABELS_MAX]);

/* The number of a text, by its index, that the profile holds. */
int64_t tables_string(const struct tables *t, uint32_t text);
int64_t tables_literal(const struct tables *t, enum tables_literal l);
uint64_t tables_add_saturated(uint64_t a, uint64_t b);

#endif
