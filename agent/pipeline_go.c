/*
 * Where the threads of a Go program have g, from which BPF finds their stacks: its code tells, each binary
 * its own way.
 */
#include "agent/pipeline_state.h"

#include <string.h>

void pipeline_note_go(struct pipeline *p, struct file *file, const struct msg_rows *rows)
{
	file->go_known = true;
	file->go = rows->go;
	p->ngo_files += file->go.kind != MSG_GO_NONE;
}

/* Where the file's code is mapped that the slot's distance is from; 0: nowhere. */
static uint64_t code_of(const struct maps *maps, const struct file *file)
{
	for (size_t i = 0; i < maps_count(maps); i++) {
		const struct map *m = maps_at(maps, i);

		if (m->file && file_resolve(m->file) == file && file->go.code - m->offset < m->end - m->start)
			return m->start + (file->go.code - m->offset);
	}
	return 0;
}

static bool place_of(const struct maps *maps, const struct file *file, struct abi_go *ret)
{
	uint64_t code;

	*ret = (struct abi_go){ .place = (uint64_t)file->go.off, .flags = file->go.cgo ? ABI_GO_CGO : 0 };
	if (file->go.kind == MSG_GO_FIXED)
		return true;
	code = code_of(maps, file);
	ret->place += code;
	ret->flags |= ABI_GO_SLOT;
	return code != 0;
}

void pipeline_tell_go(struct pipeline *p, uint32_t pid, const struct maps *maps)
{
	struct proc *proc = procs_find(p->procs, pid);
	struct abi_go go;

	if (!proc || proc->go_told || proc->exited_ns || !p->conf.ops->go)
		return;
	for (uint32_t i = 0; i < p->unwound->nframes; i++) {
		const struct file *file = p->unwound->frames[i].file;

		if (!file || file->go.kind == MSG_GO_NONE || !place_of(maps, file, &go))
			continue;
		p->conf.ops->go(p->conf.arg, pid, &go);
		proc->go_told = true;
		return;
	}
}

void pipeline_forget_go(struct pipeline *p, struct proc *proc)
{
	if (proc->go_told && p->conf.ops->go)
		p->conf.ops->go(p->conf.arg, proc->pid, NULL);
	proc->go_told = false;
}
