#include "agent/sample.h"

#include <string.h>

static void take_section(const struct abi_section *sec, const uint8_t *data, struct sample_view *v)
{
	struct unwind_input *u = &v->user;

	switch (sec->kind) {
	case ABI_SEC_REGS:
		u->nregs = MIN(sec->len / 8, (uint32_t)ABI_REGS_MAX);
		memcpy(u->regs, data, u->nregs * sizeof(u->regs[0]));
		break;
	case ABI_SEC_KSTACK:
		v->nkernel = MIN(sec->len / 8, (uint32_t)ABI_KSTACK_MAX);
		v->kernel = (const uint64_t *)(const void *)data; /* sections are padded to 8 */
		break;
	case ABI_SEC_USTACK:
		u->nfollowed = MIN(sec->len / 8, (uint32_t)ABI_USTACK_MAX);
		u->followed = (const uint64_t *)(const void *)data;
		break;
	case ABI_SEC_GOROUTINE:
		if (sec->len < 16)
			break;
		memcpy(&u->goroutine_sp, data, 8);
		memcpy(&u->goroutine_pc, data + 8, 8);
		break;
	case ABI_SEC_STACK:
		if (u->nwindows < UNWIND_WINDOWS_MAX && sec->len)
			u->windows[u->nwindows++] = (struct unwind_window){
				.address = sec->address, .data = data, .len = sec->len, .holes = sec->holes,
			};
		break;
	default: /* a kind of a later version */
		break;
	}
}

void sample_view(const struct sample *s, struct sample_view *ret)
{
	memset(ret, 0, offsetof(struct sample_view, user));
	ret->user.nregs = 0;
	ret->user.nwindows = 0;
	ret->user.nfollowed = 0;
	ret->user.goroutine_sp = ret->user.goroutine_pc = 0;
	for (uint32_t i = 0; i < s->nparts; i++) {
		const struct abi_record *r = s->parts[i];
		const uint8_t *at = (const uint8_t *)(r + 1), *end = (const uint8_t *)r + r->size;

		ret->flags |= r->flags;
		for (uint32_t k = 0; k < r->nsections; k++) {
			const struct abi_section *sec = (const struct abi_section *)(const void *)at;
			size_t padded;

			if ((size_t)(end - at) < sizeof(*sec))
				break;
			padded = ((size_t)sec->len + 7) & ~(size_t)7;
			if ((size_t)(end - at) - sizeof(*sec) < padded)
				break;
			take_section(sec, at + sizeof(*sec), ret);
			at += sizeof(*sec) + padded;
		}
	}
	/* Where the last part is missing, what was copied is still true, but not all. */
	if (!(s->parts[s->nparts - 1]->flags & ABI_F_LAST))
		ret->flags |= ABI_F_PART_LOST;
	ret->user.flags = ret->flags;
	ret->pid = s->parts[0]->pid;
	ret->tid = s->parts[0]->tid;
	ret->period_ns = s->parts[0]->period_ns;
	ret->cgroup_id = s->parts[0]->cgroup_id;
	ret->comm = s->parts[0]->comm;
}
