/* export_fixture - a small batch with one of everything, to be changed by tests. The second subject has no labels. */
#ifndef TESTS_UNIT_EXPORT_FIXTURE_H
#define TESTS_UNIT_EXPORT_FIXTURE_H

#include "exporter/msg.h"

enum { EXPORT_FIXTURE_STRINGS = 48 };

struct export_fixture {
	struct export_batch batch; /* points into the arrays below: never export_batch_fini() it */
	struct export_string strings[EXPORT_FIXTURE_STRINGS];
	struct export_mapping mappings[4];
	struct export_function functions[6];
	struct export_line lines[8];
	struct export_location locations[6];
	struct export_pair pairs[8];
	struct export_subject subjects[4];
	struct export_sample samples[8];
	uint32_t frames[16];
};

void export_fixture_init(struct export_fixture *f);
/* Index of a new string; the text is borrowed. */
uint32_t export_fixture_string(struct export_fixture *f, const char *text);

#endif
