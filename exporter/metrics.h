/*
 * metrics - what we count, as Prometheus' text format 0.0.4. No profile data, no secret.
 *
 * May touch: the heap.
 */
#ifndef EXPORTER_METRICS_H
#define EXPORTER_METRICS_H

#include "base/buf.h"
#include "exporter/api.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends; bufw_end() tells a failure. */
void metrics_write(struct bufw *out, const struct api_view *v);

#endif
