/*
 * cgroup - which cgroup a task is in, as one id. Included by BPF programs only.
 *
 * Normally the v2 id. On hybrid and v1 hosts the task is in the root of v2 (id 1); then the id of its
 * cgroup in the first of the hierarchies memory, pids, cpu in which it is not in the root, marked with
 * the hierarchy, since the same number is another cgroup in another hierarchy. The
 * hierarchy name=systemd has no controller, so a task's way to it is a list walk that costs more than
 * the rest of a sample; systemd puts its units into pids as well.
 */
#ifndef BPF_CGROUP_H
#define BPF_CGROUP_H

#define CGROUP_ROOT_ID 1 /* kernfs numbers from 1 in each hierarchy */

static __always_inline __u64 cgroup_v1_id(struct css_set *set, __u32 subsys)
{
	struct cgroup_subsys_state *css = NULL;
	struct cgroup *cgroup;

	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + bpf_core_field_offset(set->subsys) +
				      subsys * sizeof(void *));
	cgroup = BPF_CORE_READ(css, cgroup);
	if (!cgroup || BPF_CORE_READ(cgroup, level) <= 0)
		return 0;
	return BPF_CORE_READ(cgroup, kn, id);
}

/* A controller may be missing from the kernel; on v2 its css leads to the v2 root again. */
#define CGROUP_TRY(set, name, hierarchy)                                               \
	do {                                                                           \
		__u64 try_id_ = 0;                                                     \
                                                                                       \
		if (bpf_core_enum_value_exists(enum cgroup_subsys_id, name))           \
			try_id_ = cgroup_v1_id(                                        \
				set, bpf_core_enum_value(enum cgroup_subsys_id, name)); \
		if (try_id_)                                                           \
			return try_id_ | (__u64)(hierarchy) << ABI_CGROUP_SHIFT;       \
	} while (0)

static __always_inline __u64 cgroup_id(struct task_struct *task)
{
	__u64 id = bpf_get_current_cgroup_id();
	struct css_set *set;

	if (id > CGROUP_ROOT_ID)
		return id;
	set = FIELD(task, cgroups);
	if (!set)
		return id;
	CGROUP_TRY(set, memory_cgrp_id, ABI_CGROUP_MEMORY);
	CGROUP_TRY(set, pids_cgrp_id, ABI_CGROUP_PIDS);
	CGROUP_TRY(set, cpu_cgrp_id, ABI_CGROUP_CPU);
	return id;
}

#endif
