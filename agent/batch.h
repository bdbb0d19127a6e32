/*
 * batch - builds the tables of one struct export_batch, each string, mapping, function and location once.
 *
 * May touch: the heap. Never: the files that names are about.
 */
#ifndef AGENT_BATCH_H
#define AGENT_BATCH_H

#include "exporter/msg.h"

struct batch;

MUST_USE int batch_new(struct batch **ret);
struct batch *batch_free(struct batch *b);
DEFINE_CLEANUP(struct batch *, batch_free);

/*
 * Each finds or adds; the index goes to *ret. Text is taken up to a NUL as it is; the exporter makes
 * it UTF-8. One that does not fit into EXPORT_STRINGS_MAX any more becomes "".
 */
MUST_USE int batch_string(struct batch *b, const char *text, size_t len, uint32_t *ret);
MUST_USE int batch_mapping(struct batch *b, const struct export_mapping *m, uint32_t *ret);
MUST_USE int batch_function(struct batch *b, const struct export_function *f, uint32_t *ret);
/* loc->first_line is ignored; its lines are copied. */
MUST_USE int batch_location(struct batch *b, const struct export_location *loc,
			    const struct export_line *lines, uint32_t *ret);
/*
 * A set of labels: nlabels times name NUL value NUL, together len bytes. Equal sets share their pairs.
 * *ret_npairs is 0 where the batch has no room for the set: then it has none of its labels.
 */
MUST_USE int batch_labels(struct batch *b, uint32_t nlabels, const char *text, size_t len,
			  uint32_t *ret_first_pair, uint32_t *ret_npairs);
/* No further location may be added: the exporter would refuse the batch, or a message not hold it. */
bool batch_full(const struct batch *b);
/* Appends. s->first_frame is ignored; its frames are copied. */
MUST_USE int batch_subject(struct batch *b, const struct export_subject *s, uint32_t *ret);
MUST_USE int batch_sample(struct batch *b, const struct export_sample *s, const uint32_t *frames);

size_t batch_bytes(const struct batch *b);
/* The tables so far, valid until the next call. Times and id are the caller's to fill in. */
struct export_batch *batch_tables(struct batch *b);

#endif
