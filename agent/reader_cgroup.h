/*
 * reader_cgroup - which control groups a process is in, also when it is gone.
 *
 * Part of the reader process. Where the hierarchies are mounted is found once, at start: a host does
 * not change that while it runs.
 *
 * May touch: /proc, mounts of cgroup and cgroup2. Never: a file in a control group.
 */
#ifndef AGENT_READER_CGROUP_H
#define AGENT_READER_CGROUP_H

#include "agent/reader.h"
#include "bpf/abi.h"

struct reader_cgroup;

/* mountinfo: /proc/self/mountinfo. When that cannot be read a warning says so, and ids lead to nothing. */
MUST_USE int reader_cgroup_new(struct reader_cgroup **ret, const char *mountinfo);
struct reader_cgroup *reader_cgroup_free(struct reader_cgroup *c);
DEFINE_CLEANUP(struct reader_cgroup *, reader_cgroup_free);

/* ret->text stays until the next call. Needs CAP_DAC_READ_SEARCH for a process that is gone. */
void reader_cgroup_read(struct reader_cgroup *c, const struct reader_cgroups *asked, struct reader_text *ret);

/* Where a hierarchy is mounted, and which directory of it that is; NULL unknown. For tests. */
const char *reader_cgroup_mount(const struct reader_cgroup *c, enum abi_cgroup_hierarchy h, const char **ret_root);

#endif
