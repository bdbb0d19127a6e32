/*
 * cgroup - what the path of a control group says of the container, pod and unit that a process is in.
 *
 * Formats of Docker, containerd, CRI-O, podman, kubelet (cgroupfs and systemd), ECS, Fargate, Garden,
 * LXC and kind; tests/unit/cgroup_vectors.tsv has a line for each. Of several ids the deepest wins;
 * the monitor of a container (conmon) is in none.
 *
 * May touch: nothing but its arguments.
 */
#ifndef EXPORTER_CGROUP_H
#define EXPORTER_CGROUP_H

#include "base/def.h"

enum { CGROUP_ID_MAX = 128, CGROUP_UNIT_MAX = 256 };

struct cgroup_facts {
	char container_id[CGROUP_ID_MAX];	/* "" none */
	char pod_uid[CGROUP_ID_MAX];		/* with dashes, or 32 hex digits of a static pod */
	/* The deepest systemd .service but user@N.service, as it is named, escapes and instance included. */
	char service_unit[CGROUP_UNIT_MAX];
	bool is_users_unit;			/* somebody's own: below user@N.service, N not 0 */
	/* The paths that say so, borrowed from the lines and as they are there; NULL none. */
	const char *container_path, *pod_path, *unit_path;
	size_t container_path_len, pod_path_len, unit_path_len;
};

/*
 * Lines of /proc/PID/cgroup. Units with names that are made up each time (run-uN.service and the like)
 * are no services.
 */
void cgroup_parse(const char *lines, struct cgroup_facts *ret);

/* "my-app@blue\x2dgreen.service" -> "my-app": without suffix and instance, unescaped. May give "". */
void cgroup_unit_name(const char *unit, char *ret, size_t size);

#endif
