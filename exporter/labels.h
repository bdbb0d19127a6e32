/*
 * labels - what a process is filed under, and whether it is sampled at all.
 *
 * A pure function of what the agent told (exporter/msg.h) and of the settings. Metadata of container
 * runtimes and of Kubernetes will be joined here.
 *
 * May touch: nothing but its arguments and the heap.
 */
#ifndef EXPORTER_LABELS_H
#define EXPORTER_LABELS_H

#include "config/config.h"
#include "exporter/msg.h"

enum { LABELS_NAME_MAX = 255 };

/*
 * The labels of a subject, sorted by name, each with its source:
 *   service_name  the deepest systemd .service that the process is in, other than user@N.service,
 *                 unescaped, without suffix and template instance; else the base name of the
 *                 executable without " (deleted)"; `other` for what lies in a directory for temporary
 *                 files, whose names are random; `kernel` for kernel threads; the comm when there is
 *                 no executable; `unknown`. Never empty, only [A-Za-z0-9_./-] (a character of any
 *                 other kind becomes one `_`).
 *   container_id, pod_uid    exporter/cgroup.h, where there is one
 *   unit          the systemd unit as it is named, where there is one
 * keep_one_in is what `processes` of the settings says of the service_name; conf may be NULL.
 * Texts and the array live in *ret_mem: free it. -ENOMEM.
 */
MUST_USE int labels_make(const struct export_facts *f, const struct config *conf, struct export_labels *ret,
			 void **ret_mem);

/*
 * The service_name of each subject of a batch: the one that it was given, else what labels_make()
 * says of what the batch knows (its own comm is that of the main thread, else of its first sample).
 * Texts live in the batch or in *ret_mem; free both. -ENOMEM.
 */
MUST_USE int labels_services(const struct export_batch *b, struct export_string **ret, void **ret_mem);

/* [A-Za-z0-9_./-]: what is not becomes `_`; NUL-terminated, cut at size - 1. */
void labels_sanitize(const char *text, size_t len, char *ret, size_t size);

#endif
