/*
 * status - `flamed status`: asks the daemon of this host for its state, and prints it for people.
 *
 * May touch: the control socket, stdout, stderr. Never: anything of a daemon's own process.
 */
#ifndef EXPORTER_STATUS_H
#define EXPORTER_STATUS_H

#include <stdio.h>
#include <jansson.h>

#include "base/def.h"

/* An exit status: 0, or 1 with one line on stderr. is_json: as the API gave it, indented. */
MUST_USE int status_run(const char *socket, bool is_json);

/* What /api/v1/status said. Texts in it may be a stranger's. */
void status_print(FILE *out, const json_t *status);

#endif
