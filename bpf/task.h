/*
 * task - a task's fields. Included by BPF programs only.
 *
 * Where the kernel hands out its task with a type (5.11), a field is a load that the kernel guards;
 * before, a helper call. The verifier never sees the way that the running kernel does not take.
 */
#ifndef BPF_TASK_H
#define BPF_TASK_H

#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010 /* 5.12; unused before */
#define PF_KTHREAD 0x00200000

#define TASK_IS_TYPED bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)

/*
 * One field of a task, or of what a field of it points to. The pointer is evaluated apart, or the way to
 * it would be taken for one through the kernel's types.
 */
#define FIELD(p, field)                                                 \
	({                                                              \
		typeof(p) p_ = (p);                                     \
		TASK_IS_TYPED ? p_->field : BPF_CORE_READ(p_, field);   \
	})

static __always_inline struct task_struct *task_current(void)
{
	if (TASK_IS_TYPED)
		return bpf_get_current_task_btf();
	return (void *)bpf_get_current_task();
}

static __always_inline bool task_in_execve(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->in_execve))
		return false;
	return BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
}

#endif
