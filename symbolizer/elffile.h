/*
 * elffile - one ELF file of a stranger, mapped: headers, segments, sections, build ID.
 *
 * Every header field can lie, and the file can change or shrink while we read. Each range is
 * checked against the file's size; nothing is trusted to be the same when it is read again. A file
 * that shrinks under us raises SIGBUS: elffile_guard_init() puts zeroes where it ended, and
 * elffile_damaged() tells it, so a truncation costs an answer about that file and no more. All bytes
 * handed out are the mapping's, valid until elffile_close().
 *
 * May touch: the descriptor (until elffile_open() returns), its mapping. Never: a path.
 */
#ifndef SYMBOLIZER_ELFFILE_H
#define SYMBOLIZER_ELFFILE_H

#include <libelf.h>

#include "symbolizer/msg.h"

enum { ELFFILE_SECTIONS_MAX = 16384 };

struct bytes {
	const uint8_t *p;
	size_t len;
};

struct elf_section {
	struct bytes data;	/* as in the file; empty for SHT_NOBITS and for sections past its end */
	uint64_t vaddr, size, flags, entsize;
	uint32_t type, link;
};

struct elffile {
	struct bytes file;
	bool is_memory;		/* elffile_open_bytes(): not ours to unmap */
	Elf *elf;
	uint64_t entry;
	bool entry_is_root;	/* the entry point starts a program, not a shared library's .text */
	bool is_go;
	struct bytes dynamic;	/* PT_DYNAMIC */
	uint64_t eh_frame_hdr;	/* vaddr of PT_GNU_EH_FRAME, 0 none */
	uint32_t nsegments;
	struct msg_segment segments[MSG_SEGMENTS_MAX];	/* PT_LOAD, file_bytes cut at the file's end */
	uint8_t build_id[MSG_BUILD_ID_MAX];
	uint32_t build_id_len;
};

/* Once per process, before the sandbox. */
void elffile_guard_init(void);

/* 0; a positive enum msg_file_result; or -errno. */
MUST_USE int elffile_open(struct elffile **ret, int fd);
/* The same of what dwz makes: a relocatable file without segments. */
MUST_USE int elffile_open_shared_debug(struct elffile **ret, int fd);
/* The same of bytes in memory, which outlive it. */
MUST_USE int elffile_open_bytes(struct elffile **ret, struct bytes file);
struct elffile *elffile_close(struct elffile *f);
DEFINE_CLEANUP(struct elffile *, elffile_close);

bool elffile_damaged(const struct elffile *f);
void elffile_drop_pages(const struct elffile *f); /* resident pages of the mapping; data stays readable */

MUST_USE int elffile_section(const struct elffile *f, const char *name, struct elf_section *ret); /* 0 or -ENOENT */
MUST_USE int elffile_section_at(const struct elffile *f, uint32_t index, struct elf_section *ret);

/*
 * The segment of a file offset (executable ones first) or of a virtual address that the file backs;
 * NULL for none.
 */
const struct msg_segment *elffile_segment_of_offset(const struct elffile *f, uint64_t offset);
const struct msg_segment *elffile_segment_of_vaddr(const struct elffile *f, uint64_t vaddr);
bool elffile_is_code(const struct elffile *f, uint64_t vaddr);

/* The bytes at a virtual address, up to the end of what the file has of its segment. */
struct bytes elffile_at(const struct elffile *f, uint64_t vaddr);
/* At most `max` bytes that end at a virtual address, all of its segment. */
struct bytes elffile_before(const struct elffile *f, uint64_t vaddr, size_t max);

#endif
