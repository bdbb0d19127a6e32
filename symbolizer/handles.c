#include "symbolizer/handles.h"

#include "symbolizer/mem.h"

static void close_file(struct handle *handle)
{
	gopclntab_free(handle->go);
	fdes_free(handle->fdes);
	if (handle->sections)
		sections_fini(handle->sections);
	free(handle->sections);
	elffile_close(handle->elf);
	*handle = (struct handle){ 0 };
}

static void drop_symtab(struct cached_symtab *c)
{
	symtab_free(c->symtab);
	*c = (struct cached_symtab){ 0 };
}

static void drop_dwarf(struct cached_dwarf *c)
{
	dwarf_free(c->dwarf);
	*c = (struct cached_dwarf){ 0 };
}

void handles_fini(struct handles *h)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		close_file(&h->open[i]);
	for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++)
		drop_symtab(&h->symtabs[i]);
	for (size_t i = 0; i < HANDLES_DWARFS_MAX; i++)
		drop_dwarf(&h->dwarfs[i]);
}

int handles_open(struct handles *h, uint64_t id, int fd, struct handle **ret)
{
	struct handle *handle = &h->open[0];
	int err;

	for (size_t i = 0; i < HANDLES_MAX; i++) {
		struct handle *o = &h->open[i];

		if (o->elf && o->id == id) {
			o->used = ++h->clock;
			*ret = o;
			return 0;
		}
		if (o->used < handle->used)
			handle = o;
	}
	close_file(handle);
	if (fd < 0)
		return MSG_FILE_UNREADABLE;
	err = elffile_open(&handle->elf, fd);
	if (err)
		return err;
	handle->id = id;
	handle->used = ++h->clock;
	*ret = handle;
	return 0;
}

struct fdes *handles_fdes(struct handle *handle)
{
	if (!handle->fdes)
		handle->fdes = fdes_new(handle->elf);
	return handle->fdes;
}

struct gopclntab *handles_go(struct handle *handle)
{
	if (!handle->go && !handle->has_no_go) {
		handle->go = gopclntab_new(handle->elf);
		handle->has_no_go = !handle->go;
	}
	if (handle->go)
		gopclntab_refill(handle->go);
	return handle->go;
}

/* Least recently used first, until the limit holds; `keep` is in use. */
static void trim_symtabs(struct handles *h, const struct cached_symtab *keep)
{
	for (;;) {
		struct cached_symtab *oldest = NULL;
		size_t bytes = 0;

		for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++) {
			struct cached_symtab *c = &h->symtabs[i];

			if (!c->symtab)
				continue;
			bytes += symtab_bytes(c->symtab);
			if (c != keep && (!oldest || c->used < oldest->used))
				oldest = c;
		}
		if (bytes <= HANDLES_SYMTAB_BYTES_MAX || !oldest)
			return;
		drop_symtab(oldest);
	}
}

const struct symtab *handles_symtab(struct handles *h, const struct handle *handle)
{
	struct cached_symtab *slot = &h->symtabs[0];

	for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++) {
		struct cached_symtab *c = &h->symtabs[i];

		if (c->symtab && c->id == handle->id) {
			c->used = ++h->clock;
			return c->symtab;
		}
		if (c->used < slot->used)
			slot = c;
	}
	drop_symtab(slot);
	slot->symtab = symtab_new(handle->elf);
	slot->id = handle->id;
	slot->used = ++h->clock;
	trim_symtabs(h, slot);
	return slot->symtab;
}

static void trim_dwarfs(struct handles *h, const struct cached_dwarf *keep)
{
	for (;;) {
		struct cached_dwarf *oldest = NULL;
		size_t bytes = 0;

		for (size_t i = 0; i < HANDLES_DWARFS_MAX; i++) {
			struct cached_dwarf *c = &h->dwarfs[i];

			if (!c->dwarf)
				continue;
			bytes += dwarf_bytes(c->dwarf);
			if (c != keep && (!oldest || c->used < oldest->used))
				oldest = c;
		}
		if (bytes <= HANDLES_DWARF_BYTES_MAX || !oldest)
			return;
		drop_dwarf(oldest);
	}
}

struct dwarf *handles_dwarf(struct handles *h, struct handle *handle)
{
	struct cached_dwarf *slot = &h->dwarfs[0], *c;

	if (!handle->sections) {
		handle->sections = mem_calloc(1, sizeof(*handle->sections));
		sections_read(handle->sections, handle->elf);
	}
	for (size_t i = 0; i < HANDLES_DWARFS_MAX; i++) {
		c = &h->dwarfs[i];
		if (c->dwarf && c->id == handle->id) {
			c->used = ++h->clock;
			dwarf_refill(c->dwarf);
			return c->dwarf;
		}
		if (c->used < slot->used)
			slot = c;
	}
	c = slot;
	if (!handle->sections->of[SECTION_INFO].len)
		return NULL;
	drop_dwarf(c);
	c->dwarf = dwarf_new(handle->sections, handle->elf);
	c->id = handle->id;
	c->used = ++h->clock;
	trim_dwarfs(h, c);
	return c->dwarf;
}

void handles_forget(struct handles *h, struct handle *handle)
{
	for (size_t i = 0; i < HANDLES_DWARFS_MAX; i++)
		if (h->dwarfs[i].dwarf && h->dwarfs[i].id == handle->id)
			drop_dwarf(&h->dwarfs[i]);
	for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++)
		if (h->symtabs[i].symtab && h->symtabs[i].id == handle->id)
			drop_symtab(&h->symtabs[i]);
	close_file(handle);
}

void handles_trim(struct handles *h)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		close_file(&h->open[i]);
	trim_symtabs(h, NULL);
	trim_dwarfs(h, NULL);
}

bool handles_any_open(const struct handles *h)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (h->open[i].elf)
			return true;
	return false;
}
