/*
 * labels - what a sample is filed under.
 *
 * May touch: nothing but its arguments.
 */
#ifndef EXPORTER_LABELS_H
#define EXPORTER_LABELS_H

#include "base/def.h"

enum { LABELS_NAME_MAX = 255 };

struct labels_subject {
	const char *executable; /* path as mapped; need not be valid UTF-8 */
	size_t executable_len;	/* 0 unknown */
	const char *comm;
	size_t comm_len;
	bool is_kernel; /* a kernel thread */
};

struct labels_name {
	char text[LABELS_NAME_MAX + 1];
};

/*
 * service_name: never empty, only [A-Za-z0-9_./-], of which Pyroscope allows all in the name that
 * /ingest is given (a character of any other kind becomes one `_`). The base name of the
 * executable without " (deleted)"; `other` for what lies in a directory for temporary files, whose
 * names are random; `kernel` for kernel threads; the comm when there is no executable; `unknown`.
 */
struct labels_name labels_service_name(const struct labels_subject *s);

#endif
