#include "symbolizer/handles.h"

#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/clock.h"
#include "symbolizer/mem.h"

static void close_file(struct handle *handle)
{
	plt_free(handle->plt);
	gopclntab_free(handle->go);
	fdes_free(handle->fdes);
	if (handle->sections)
		sections_fini(handle->sections);
	free(handle->sections);
	if (handle->alt_sections)
		sections_fini(handle->alt_sections);
	free(handle->alt_sections);
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
	for (size_t i = 0; i < HANDLES_MAX; i++) {
		close_file(&h->open[i]);
		elffile_close(h->attached[i].elf);
		elffile_close(h->attached[i].alt);
	}
	for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++)
		drop_symtab(&h->symtabs[i]);
	for (size_t i = 0; i < HANDLES_DWARFS_MAX; i++)
		drop_dwarf(&h->dwarfs[i]);
	for (size_t i = 0; i < HANDLES_JITMAPS_MAX; i++)
		jitmap_free(h->jitmaps[i].map);
}

static struct attached *find_attached(struct handles *h, uint64_t id);

int handles_open(struct handles *h, uint64_t id, int fd, struct handle **ret)
{
	struct handle *handle = &h->open[0];
	const struct attached *attached;
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
	attached = find_attached(h, id);
	if (attached) {
		handle->debug = attached->elf;
		handle->alt = attached->alt;
	}
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

struct plt *handles_plt(struct handle *handle)
{
	if (!handle->plt)
		handle->plt = plt_new(handle->elf);
	return handle->plt;
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

const struct symtab *handles_symtab(struct handles *h, const struct handle *handle, bool names)
{
	const struct elffile *debug = names ? handle->debug : NULL;
	struct cached_symtab *slot = &h->symtabs[0];

	for (size_t i = 0; i < HANDLES_SYMTABS_MAX; i++) {
		struct cached_symtab *c = &h->symtabs[i];

		if (c->symtab && c->id == handle->id) {
			c->used = ++h->clock;
			if (!names || c->has_debug == (debug != NULL))
				return c->symtab;
			slot = c;
			break;
		}
		if (c->used < slot->used)
			slot = c;
	}
	drop_symtab(slot);
	slot->symtab = symtab_new(handle->elf, debug);
	slot->has_debug = debug;
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
		if (!handle->sections->of[SECTION_INFO].len && handle->debug) {
			sections_fini(handle->sections);
			sections_read(handle->sections, handle->debug);
			handle->has_debug_sections = true;
		}
		if (handle->has_debug_sections && handle->alt) {
			handle->alt_sections = mem_calloc(1, sizeof(*handle->alt_sections));
			sections_read(handle->alt_sections, handle->alt);
			handle->sections->alt = handle->alt_sections;
		}
	}
	for (size_t i = 0; i < HANDLES_DWARFS_MAX; i++) {
		c = &h->dwarfs[i];
		if (c->dwarf && c->id == handle->id) {
			/* Of a file that is not attached now nothing can be read, and before it was names were missing. */
			if (c->is_of_debug != handle->has_debug_sections || c->has_alt != (handle->alt_sections != NULL)) {
				slot = c;
				break;
			}
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
	c->is_of_debug = handle->has_debug_sections;
	c->has_alt = handle->alt_sections;
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

/* ---- debug files ---- */

static void detach(struct attached *a)
{
	elffile_close(a->elf);
	elffile_close(a->alt);
	*a = (struct attached){ 0 };
}

/* The file of a handle is closed too: it may refer to the debug file. */
static void detach_from(struct handles *h, uint64_t id)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (h->open[i].elf && h->open[i].id == id)
			close_file(&h->open[i]);
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (h->attached[i].id == id)
			detach(&h->attached[i]);
}

static bool has_something(const struct elffile *f)
{
	struct elf_section s;

	return (elffile_section(f, ".symtab", &s) == 0 && s.data.len) ||
	       (elffile_section(f, ".debug_info", &s) == 0 && s.data.len) ||
	       (elffile_section(f, ".zdebug_info", &s) == 0 && s.data.len);
}

/* zlib's CRC of all bytes, computed once per file. */
static bool crc_of(struct handles *h, const struct elffile *f, int fd, uint32_t *ret)
{
	struct checked c;
	struct stat st;

	if (fstat(fd, &st) < 0 || f->file.len > HANDLES_CRC_MAX)
		return false;
	c = (struct checked){ st.st_dev, st.st_ino, (uint64_t)st.st_size,
			      (uint64_t)st.st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_mtim.tv_nsec, 0 };
	for (size_t i = 0; i < HANDLES_CHECKED_MAX; i++) {
		const struct checked *k = &h->checked[i];

		if (k->size && k->dev == c.dev && k->inode == c.inode && k->size == c.size && k->mtime_ns == c.mtime_ns) {
			*ret = k->crc;
			return true;
		}
	}
	c.crc = (uint32_t)crc32_z(0, f->file.p, f->file.len);
	elffile_drop_pages(f);
	if (elffile_damaged(f))
		return false;
	h->checked[h->nchecked++ % HANDLES_CHECKED_MAX] = c;
	*ret = c.crc;
	return true;
}

static bool is_the_one(struct handles *h, const struct msg_debug *d, const struct elffile *f, int fd)
{
	uint32_t crc;

	if (!has_something(f))
		return false;
	if (d->by_crc)
		return crc_of(h, f, fd, &crc) && crc == d->crc;
	return d->build_id_len > 0 && f->build_id_len == d->build_id_len &&
	       memcmp(f->build_id, d->build_id, d->build_id_len) == 0;
}

static struct attached *find_attached(struct handles *h, uint64_t id)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (id && h->attached[i].id == id)
			return &h->attached[i];
	return NULL;
}

/* To the debug file that is attached already. */
static bool attach_alt(struct handles *h, const struct msg_debug *d, int fd)
{
	CLEANUP(elffile_closep) struct elffile *f = NULL;
	struct attached *a = find_attached(h, d->file_id);

	if (!a || elffile_open_shared_debug(&f, fd) != 0 || !is_the_one(h, d, f, fd))
		return false;
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (h->open[i].elf && h->open[i].id == d->file_id)
			close_file(&h->open[i]);
	elffile_close(a->alt);
	a->alt = TAKE(f);
	return true;
}

bool handles_attach(struct handles *h, const struct msg_debug *d, int fd)
{
	CLEANUP(elffile_closep) struct elffile *f = NULL;
	struct attached *slot = &h->attached[0];

	if (!d->file_id || fd < 0)
		return false;
	if (d->is_alt)
		return attach_alt(h, d, fd);
	detach_from(h, d->file_id);
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (h->attached[i].used < slot->used)
			slot = &h->attached[i];
	if (slot->id)
		detach_from(h, slot->id);
	if (elffile_open(&f, fd) != 0 || !is_the_one(h, d, f, fd))
		return false;
	*slot = (struct attached){ d->file_id, ++h->clock, TAKE(f), NULL };
	return true;
}

const struct elffile *handles_attached(struct handles *h, uint64_t id)
{
	const struct attached *a = find_attached(h, id);

	return a ? a->elf : NULL;
}

void handles_trim(struct handles *h)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		close_file(&h->open[i]);
	for (size_t i = 0; i < HANDLES_MAX; i++)
		detach(&h->attached[i]);
	trim_symtabs(h, NULL);
	trim_dwarfs(h, NULL);
}

bool handles_any_open(const struct handles *h)
{
	for (size_t i = 0; i < HANDLES_MAX; i++)
		if (h->open[i].elf || h->attached[i].elf)
			return true;
	return false;
}
