#include "symbolizer/answer.h"

#include <string.h>

#include "symbolizer/demangle.h"
#include "symbolizer/jitmap.h"
#include "symbolizer/mem.h"

static struct cached_jitmap *find_map(struct handles *h, uint64_t id)
{
	struct cached_jitmap *slot = &h->jitmaps[0];

	for (size_t i = 0; i < HANDLES_JITMAPS_MAX; i++) {
		struct cached_jitmap *c = &h->jitmaps[i];

		if (c->map && c->id == id) {
			c->used = ++h->clock;
			return c;
		}
		if (c->used < slot->used)
			slot = c;
	}
	jitmap_free(slot->map);
	*slot = (struct cached_jitmap){ .id = id, .used = ++h->clock, .map = jitmap_new() };
	return slot;
}

/* Least recently used first, until the limit holds. */
static void trim_maps(struct handles *h, const struct cached_jitmap *keep)
{
	for (;;) {
		struct cached_jitmap *oldest = NULL;
		size_t bytes = 0;

		for (size_t i = 0; i < HANDLES_JITMAPS_MAX; i++) {
			struct cached_jitmap *c = &h->jitmaps[i];

			if (!c->map)
				continue;
			bytes += jitmap_bytes(c->map);
			if (c != keep && (!oldest || c->used < oldest->used))
				oldest = c;
		}
		if (bytes <= HANDLES_JITMAP_BYTES_MAX || !oldest)
			return;
		jitmap_free(oldest->map);
		*oldest = (struct cached_jitmap){ 0 };
	}
}

static char *copy_text(const char *text)
{
	struct demangled d;

	demangle((struct bytes){ (const uint8_t *)text, strlen(text) }, true, DEMANGLE_SHORT, &d);
	return mem_check(strdup(d.name));
}

/* Of a function: the piece of code that it was made for. */
struct known {
	uint32_t entry;
};

/* The function of a piece of code in a source file; inlined code of one piece can be of several. */
static uint32_t function_of(struct msg_names *m, struct known *known, const struct jitmap_found *found)
{
	CLEANUP_FREE char *file = copy_text(found->file);

	for (uint32_t i = 0; i < m->nfunctions; i++) {
		if (known[i].entry == found->entry && strcmp(m->functions[i].file, file) == 0)
			return i;
	}
	known[m->nfunctions].entry = found->entry;
	m->functions[m->nfunctions] = (struct msg_function){
		.name = copy_text(found->name), .system_name = copy_text(found->name), .file = TAKE(file),
	};
	return m->nfunctions++;
}

static void name_all(const struct jitmap *map, int fd, const struct msg_request *req, struct msg_names *m)
{
	CLEANUP_FREE struct jitmap_found *found = mem_calloc(1, sizeof(*found));
	CLEANUP_FREE struct known *known = mem_calloc(req->naddrs, sizeof(*known));
	uint64_t addresses[MSG_ADDRS_MAX];
	uint32_t entries[MSG_ADDRS_MAX];

	m->functions = mem_calloc(req->naddrs, sizeof(*m->functions));
	m->lines = mem_calloc(req->naddrs, sizeof(*m->lines));
	for (uint32_t i = 0; i < req->naddrs; i++)
		addresses[i] = req->addrs[i].offset;
	jitmap_find(map, addresses, req->naddrs, entries);
	for (uint32_t i = 0; i < req->naddrs; i++) {
		if (entries[i] == UINT32_MAX) {
			m->ncut += jitmap_is_over(map);
			continue;
		}
		jitmap_name(map, fd, entries[i], addresses[i], found);
		if (!found->name[0])
			continue;
		m->named[i].first_line = m->nlines;
		m->named[i].nlines = 1;
		m->lines[m->nlines++] = (struct msg_line){ function_of(m, known, found), found->line };
	}
}

void answer_jit(struct handles *h, const struct msg_request *req, int fd, struct bufw *out)
{
	struct cached_jitmap *c = find_map(h, req->file_id);
	CLEANUP(msg_names_fini) struct msg_names m = { .id = req->id, .file_id = req->file_id,
						       .nnamed = req->naddrs };

	m.result = (enum msg_file_result)jitmap_read(c->map, fd);
	m.named = mem_calloc(req->naddrs, sizeof(*m.named));
	for (uint32_t i = 0; i < req->naddrs; i++)
		m.named[i] = (struct msg_named){ .vaddr = req->addrs[i].offset, .segment = UINT32_MAX };
	if (m.result == MSG_FILE_OK)
		name_all(c->map, fd, req, &m);
	trim_maps(h, c);
	msg_names_encode(out, &m);
	if (bufw_end(out) < 0)
		mem_check(NULL);
}
