#include "agent/features.h"

#include <bpf/btf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "agent/refusal.h"
#include "agent/sideband.h"

enum state { NO, YES, UNKNOWN };

/* ---- bpf(2) ---------------------------------------------------------------------------------- */

static enum state state_of(int fd)
{
	int err = errno;

	if (fd >= 0) {
		close(fd);
		return YES;
	}
	return err == EPERM || err == EACCES || err == ENOMEM ? UNKNOWN : NO;
}

static int new_map(uint32_t type, uint32_t value_size, uint32_t nentries)
{
	union bpf_attr attr = { .map_type = type, .value_size = value_size, .max_entries = nentries,
				.key_size = value_size ? sizeof(uint32_t) : 0 };

	return (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
}

static enum state has_bpf(void)
{
	return state_of(new_map(BPF_MAP_TYPE_ARRAY, 8, 1));
}

static enum state has_ring_buffer(void)
{
	return state_of(new_map(BPF_MAP_TYPE_RINGBUF, 0, (uint32_t)sysconf(_SC_PAGESIZE)));
}

static enum state has_perf_program(void)
{
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 }, { .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_PERF_EVENT, .insn_cnt = ARRAY_SIZE(insns),
				.insns = (uintptr_t)insns, .license = (uintptr_t)"GPL" };

	return state_of((int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr)));
}

/* Without a byte of locked memory left, a map can only be made where it does not count as that. */
static enum state has_memcg_accounting(void)
{
	struct rlimit was, none;
	enum state here = has_bpf();

	if (here != YES || getrlimit(RLIMIT_MEMLOCK, &was))
		return UNKNOWN;
	none = (struct rlimit){ 0, was.rlim_max };
	if (setrlimit(RLIMIT_MEMLOCK, &none))
		return UNKNOWN;
	here = has_bpf() == YES ? YES : NO;
	return setrlimit(RLIMIT_MEMLOCK, &was) ? UNKNOWN : here;
}

/* ---- perf events ----------------------------------------------------------------------------- */

static int open_on_self(struct perf_event_attr *attr)
{
	attr->disabled = 1;
	return (int)syscall(SYS_perf_event_open, attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static enum state has_cpu_clock(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .sample_period = 1000000000,
					.config = PERF_COUNT_SW_CPU_CLOCK };

	return state_of(open_on_self(&attr));
}

static enum state has_side_band(void)
{
	struct perf_event_attr attr = {};

	sideband_attr(&attr);
	return state_of(open_on_self(&attr));
}

static enum state has_pause_output(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_DUMMY };
	CLEANUP_FD int fd = open_on_self(&attr);

	if (fd < 0)
		return state_of(fd);
	/* It has no ring yet: -EINVAL. A kernel that does not know the request says -ENOTTY. */
	return ioctl(fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1) == 0 || errno == EINVAL ? YES : NO;
}

/* ---- capabilities, other calls --------------------------------------------------------------- */

static enum state knows_capability(unsigned int cap)
{
	return prctl(PR_CAPBSET_READ, cap) >= 0 ? YES : NO;
}

static enum state knows_cap_bpf(void)
{
	return knows_capability(CAP_BPF);
}

static enum state knows_cap_perfmon(void)
{
	return knows_capability(CAP_PERFMON);
}

static enum state knows_cap_checkpoint(void)
{
	return knows_capability(CAP_CHECKPOINT_RESTORE);
}

/* Its version, which is at least 1 (LANDLOCK_CREATE_RULESET_VERSION). */
static enum state has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0 ? YES : errno == EPERM ? UNKNOWN : NO;
}

/* ---- type information ------------------------------------------------------------------------ */

static bool enum_has(const struct btf *btf, const char *name, const char *value)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_ENUM);
	const struct btf_type *t = id < 0 ? NULL : btf__type_by_id(btf, (uint32_t)id);

	for (unsigned int i = 0; t && i < btf_vlen(t); i++) {
		if (strcmp(btf__name_by_offset(btf, btf_enum(t)[i].name_off), value) == 0)
			return true;
	}
	return false;
}

/* Also in its unnamed members; *ret_type is the member's. */
static bool struct_has(const struct btf *btf, uint32_t id, const char *member, uint32_t *ret_type)
{
	const struct btf_type *t = btf__type_by_id(btf, id);

	for (unsigned int i = 0; t && btf_is_composite(t) && i < btf_vlen(t); i++) {
		const struct btf_member *m = &btf_members(t)[i];
		const char *name = btf__name_by_offset(btf, m->name_off);

		if (strcmp(name, member) == 0) {
			*ret_type = m->type;
			return true;
		}
		if (!*name && struct_has(btf, m->type, member, ret_type))
			return true;
	}
	return false;
}

static bool field_exists(const struct btf *btf, const char *name, const char *member, uint32_t *ret_type)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT);

	return id >= 0 && struct_has(btf, (uint32_t)id, member, ret_type);
}

static bool type_begins(const struct btf *btf, uint32_t type, const char *with)
{
	int id = btf__resolve_type(btf, type);
	const struct btf_type *t = id < 0 ? NULL : btf__type_by_id(btf, (uint32_t)id);

	return t && strncmp(btf__name_by_offset(btf, t->name_off), with, strlen(with)) == 0;
}

/* With PREEMPT_RT a spinlock_t is made of an rt_mutex. A raw_spinlock_t or rqspinlock_t never is. */
bool features_ring_sleeps(const struct btf *btf)
{
	uint32_t type, inner;
	int id;

	if (!field_exists(btf, "bpf_ringbuf", "spinlock", &type))
		return false;
	id = btf__resolve_type(btf, type);
	return id >= 0 && struct_has(btf, (uint32_t)id, "lock", &inner) && type_begins(btf, inner, "rt_mutex");
}

static enum state ring_lock_is_raw(const struct btf *btf)
{
	return features_ring_sleeps(btf) ? NO : YES;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define REFUSES "flamed refuses to start"

static const struct feature {
	const char *name, *since, *without;
	enum state (*probe)(void);
	enum state (*probe_btf)(const struct btf *btf);
	const char *type, *value, *member; /* an enum's value, or a struct's member */
} features[] = {
	{ "bpf_syscall", "3.18", REFUSES, .probe = has_bpf },
	{ "bpf_perf_program", "4.9", REFUSES, .probe = has_perf_program },
	{ "bpf_ring_buffer", "5.8", REFUSES, .probe = has_ring_buffer },
	{ "perf_cpu_clock", "2.6.31", REFUSES, .probe = has_cpu_clock },
	{ "perf_side_band", "4.1", REFUSES, .probe = has_side_band },
	{ "perf_pause_output", "4.7", REFUSES, .probe = has_pause_output },
	{ "cap_bpf", "5.8", REFUSES, .probe = knows_cap_bpf },
	{ "cap_perfmon", "5.8", REFUSES, .probe = knows_cap_perfmon },
	{ "btf", "5.4", REFUSES },
	{ "bpf_ring_raw_lock", "6.12", REFUSES " on PREEMPT_RT", .probe_btf = ring_lock_is_raw },
	{ "bpf_memcg_accounting", "5.11", "BPF memory counts against RLIMIT_MEMLOCK", .probe = has_memcg_accounting },
	{ "bpf_task_pt_regs", "5.15", "registers are read from the top of the kernel stack", .type = "bpf_func_id",
	  .value = "BPF_FUNC_task_pt_regs" },
	{ "bpf_current_task_btf", "5.11", "the task's fields are copied out one by one", .type = "bpf_func_id",
	  .value = "BPF_FUNC_get_current_task_btf" },
	{ "task_in_execve", "2.6.30", "a tick in the middle of exec counts as a stack that cannot be read",
	  .type = "task_struct", .member = "in_execve" },
	{ "cgroup_v1_memory", "3.15", "in cgroup v1 a sample's container is that of pids or cpu",
	  .type = "cgroup_subsys_id", .value = "memory_cgrp_id" },
	{ "cgroup_v1_pids", "4.3", "in cgroup v1 a sample's container is that of memory or cpu",
	  .type = "cgroup_subsys_id", .value = "pids_cgrp_id" },
	{ "cgroup_v1_cpu", "3.15", "in cgroup v1 a sample's container is that of memory or pids",
	  .type = "cgroup_subsys_id", .value = "cpu_cgrp_id" },
	{ "cap_checkpoint_restore", "5.9", "mapped files are opened by path alone", .probe = knows_cap_checkpoint },
	{ "landlock", "5.13", "the exporter may read what its user may", .probe = has_landlock },
	{ "bpf_find_vma", "5.17", "not used: tops of stacks are known from the task",
	  .type = "bpf_func_id", .value = "BPF_FUNC_find_vma" },
	{ "bpf_loop", "5.17", "not used: loops have constant bounds", .type = "bpf_func_id", .value = "BPF_FUNC_loop" },
	{ "bpf_dynptr", "5.19", "not used: records have size classes",
	  .type = "bpf_func_id", .value = "BPF_FUNC_dynptr_from_mem" },
	{ "perf_ksymbol", "5.1", "not told of BPF programs that are loaded: their names are read from kallsyms",
	  .type = "perf_event_type", .value = "PERF_RECORD_KSYMBOL" },
	{ "perf_cgroup", "5.7", "not used: samples carry their cgroup",
	  .type = "perf_event_type", .value = "PERF_RECORD_CGROUP" },
};

static enum state look(const struct feature *f, const struct btf *btf)
{
	uint32_t unused;

	if (f->probe)
		return f->probe();
	if (!f->type && !f->probe_btf)
		return btf ? YES : NO;
	if (!btf)
		return UNKNOWN;
	if (f->probe_btf)
		return f->probe_btf(btf);
	if (f->value)
		return enum_has(btf, f->type, f->value) ? YES : NO;
	return field_exists(btf, f->type, f->member, &unused) ? YES : NO;
}

static const char *why_lacking(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		const struct feature *f = &features[i];

		if (f->probe && strcmp(f->without, REFUSES) == 0 && look(f, NULL) == NO)
			return refusal("this kernel lacks %s, which came with Linux %s: flamed needs Linux 5.10 or newer "
				       "(`flamed features` lists all)", f->name, f->since);
	}
	return NULL;
}

int features_check(const char **ret_why)
{
	struct btf *btf;
	bool sleeps;
	int err;

	if (access("/sys/kernel/btf/vmlinux", R_OK) < 0) {
		err = -errno;
		*ret_why = access("/sys/kernel", X_OK) < 0 ?
			"there is no /sys: flamed needs it, read-only will do (mount -t sysfs sysfs /sys)" :
			"no type information of the kernel (/sys/kernel/btf/vmlinux): flamed needs Linux 5.10 or newer, "
			"built with CONFIG_DEBUG_INFO_BTF=y, and a whole /sys";
		return err;
	}
	btf = btf__load_vmlinux_btf();
	if (!btf) {
		err = -errno;
		*ret_why = refusal("the kernel's type information (/sys/kernel/btf/vmlinux) cannot be read: %s",
				   strerror(-err));
		return err;
	}
	sleeps = features_ring_sleeps(btf);
	btf__free(btf);
	if (sleeps) {
		*ret_why = "the BPF ring buffer of this PREEMPT_RT kernel takes a lock that sleeps, which a tick must not: "
			   "use Linux 6.12 or newer, or a kernel without PREEMPT_RT";
		return -EOPNOTSUPP;
	}
	return 0;
}

const char *features_why_not_loaded(int err, size_t map_bytes)
{
	const char *why = refusal_of_bpf();

	if (!why)
		why = refusal_of_lockdown();
	if (!why)
		why = why_lacking();
	return why ? why : refusal_bpf(err, has_memcg_accounting() == NO ? map_bytes : 0);
}

void features_print(FILE *f)
{
	static const char *const words[] = { [NO] = "no", [YES] = "yes", [UNKNOWN] = "?" };
	struct btf *btf = btf__load_vmlinux_btf();

	fprintf(f, "%-24s%-6s%-8s%s\n", "FEATURE", "HERE", "SINCE", "WITHOUT IT");
	for (size_t i = 0; i < ARRAY_SIZE(features); i++)
		fprintf(f, "%-24s%-6s%-8s%s\n", features[i].name, words[look(&features[i], btf)], features[i].since,
			features[i].without);
	btf__free(btf);
}
