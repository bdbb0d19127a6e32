/*
 * vmlinux - the kernel's types, trimmed by hand to the fields that our BPF programs read.
 *
 * libbpf relocates each access to the running kernel's layout (CO-RE), so order and offsets here
 * mean nothing, names and types do. This list is what we depend on; a field that only some kernels
 * from 5.10 on have is read behind bpf_core_field_exists(). It needs no BTF on the build host.
 */
#ifndef BPF_VMLINUX_H
#define BPF_VMLINUX_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

/* Values of the kernel's user interface (linux/bpf.h): they never change. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};
enum { BPF_RB_AVAIL_DATA = 0 };
enum { BPF_F_USER_STACK = 1 << 8 };

/* Only its names count: bpf_core_enum_value_exists() asks for them. */
enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158, /* 5.11 */
	BPF_FUNC_task_pt_regs = 175,	     /* 5.15 */
};

/* The values are the running kernel's: bpf_core_enum_value(). */
enum cgroup_subsys_id {
	cpu_cgrp_id,
	memory_cgrp_id,
	pids_cgrp_id,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[16];
};

struct mm_struct {
	unsigned long start_stack;
	unsigned long stack_vm;
};

struct thread_struct {
	unsigned long fsbase; /* x86-64 */
};

struct task_struct {
	void *stack;
	unsigned int flags;
	struct mm_struct *mm;
	unsigned int in_execve : 1;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	struct css_set *cgroups;
	struct thread_struct thread;
};

#pragma clang attribute pop

#endif
