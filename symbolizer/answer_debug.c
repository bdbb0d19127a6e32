#include "symbolizer/answer.h"

#include <string.h>

#include "symbolizer/mem.h"

enum { CRC_ALIGN = 4 };

/* .gnu_debuglink: a file name with its NUL, up to three bytes of padding, the CRC. */
static void read_link(const struct elffile *f, struct msg_link *l)
{
	struct elf_section s;
	size_t len, crc;

	if (elffile_section(f, ".gnu_debuglink", &s) < 0)
		return;
	len = strnlen((const char *)s.data.p, s.data.len);
	crc = (len + CRC_ALIGN) & ~(size_t)(CRC_ALIGN - 1);
	if (!len || len > MSG_LINK_MAX || len == s.data.len || crc + sizeof(l->crc) > s.data.len ||
	    memchr(s.data.p, '/', len) || s.data.p[0] == '.')
		return;
	memcpy(l->name, s.data.p, len);
	memcpy(&l->crc, s.data.p + crc, sizeof(l->crc));
}

static bool has_debug_info(const struct elffile *f)
{
	struct elf_section s;

	return (elffile_section(f, ".debug_info", &s) == 0 && s.data.len) || elffile_section(f, ".zdebug_info", &s) == 0;
}

void answer_link(struct handles *h, const struct msg_request *req, int fd, struct bufw *out)
{
	struct msg_link l = { .id = req->id, .file_id = req->file_id };
	struct handle *handle;

	if (handles_open(h, req->file_id, fd, &handle) == 0 && !has_debug_info(handle->elf)) {
		memcpy(l.build_id, handle->elf->build_id, handle->elf->build_id_len);
		l.build_id_len = handle->elf->build_id_len;
		read_link(handle->elf, &l);
		l.is_wanted = (l.build_id_len || l.name[0]) && !elffile_damaged(handle->elf);
	}
	msg_link_encode(out, &l);
	if (bufw_end(out) < 0)
		mem_check(NULL);
}

/* .gnu_debugaltlink: a path with its NUL, and a build ID. */
static void read_alt_link(const struct elffile *f, struct msg_debugged *d)
{
	struct elf_section s;
	size_t len, id;

	if (elffile_section(f, ".gnu_debugaltlink", &s) < 0)
		return;
	len = strnlen((const char *)s.data.p, s.data.len);
	if (!len || len > MSG_ALT_MAX || len == s.data.len)
		return;
	id = s.data.len - len - 1;
	if (!id || id > MSG_BUILD_ID_MAX)
		return;
	memcpy(d->alt_path, s.data.p, len);
	memcpy(d->alt_build_id, s.data.p + len + 1, id);
	d->alt_build_id_len = (uint32_t)id;
}

void answer_debug(struct handles *h, const struct msg_debug *d, int fd, struct bufw *out)
{
	struct msg_debugged answer = { .id = d->id, .file_id = d->file_id, .is_alt = d->is_alt };

	answer.is_taken = handles_attach(h, d, fd);
	if (answer.is_taken && !d->is_alt)
		read_alt_link(handles_attached(h, d->file_id), &answer);
	msg_debugged_encode(out, &answer);
	if (bufw_end(out) < 0)
		mem_check(NULL);
}
