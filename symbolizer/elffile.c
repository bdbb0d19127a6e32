#include "symbolizer/elffile.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "symbolizer/mem.h"

#define FILE_BYTES_MAX (16ull << 30)

enum {
	PHDRS_MAX = 1024,
	MAPPINGS_MAX = 32,
	DYNAMIC_MAX = 4096,	/* entries of PT_DYNAMIC that are looked at */
	NOTES_MAX = 64,
};

/* ---- files that shrink ---- */

/* What the SIGBUS handler may repair. A slot is free while `start` is 0. */
static struct mapping {
	volatile uintptr_t start;
	volatile size_t len;
	volatile sig_atomic_t damaged;
} mappings[MAPPINGS_MAX];
static uintptr_t page_mask;

static void on_sigbus(int signo, siginfo_t *info, void *context UNUSED)
{
	uintptr_t at = (uintptr_t)info->si_addr & page_mask;

	for (size_t i = 0; i < MAPPINGS_MAX; i++) {
		uintptr_t start = mappings[i].start, end = start + mappings[i].len;

		if (!start || at < start || at >= end)
			continue;
		if (mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		    MAP_FAILED)
			break;
		mappings[i].damaged = 1;
		return;
	}
	signal(signo, SIG_DFL); /* not ours: die of it when the instruction runs again */
}

void elffile_guard_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	sigaction(SIGBUS, &sa, NULL);
}

static struct mapping *find_mapping(const void *p)
{
	for (size_t i = 0; i < MAPPINGS_MAX; i++)
		if (mappings[i].start == (uintptr_t)p)
			return &mappings[i];
	return NULL;
}

bool elffile_damaged(const struct elffile *f)
{
	const struct mapping *m = find_mapping(f->file.p);

	return m && m->damaged;
}

void elffile_drop_pages(const struct elffile *f)
{
	if (!elffile_damaged(f))
		madvise((void *)(uintptr_t)f->file.p, f->file.len, MADV_DONTNEED);
}

static int map_file(struct elffile *f, int fd)
{
	struct mapping *m = find_mapping(NULL);
	struct stat st;
	void *p;

	if (!m)
		return -ENFILE;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return MSG_FILE_UNREADABLE;
	if (st.st_size < (off_t)sizeof(Elf64_Ehdr))
		return MSG_FILE_NOT_ELF;
	if ((uint64_t)st.st_size > FILE_BYTES_MAX)
		return MSG_FILE_TOO_BIG;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return MSG_FILE_UNREADABLE;
	f->file = (struct bytes){ p, (size_t)st.st_size };
	m->damaged = 0;
	m->len = f->file.len;
	m->start = (uintptr_t)p;
	return 0;
}

/* ---- headers ---- */

static struct bytes slice(const struct elffile *f, uint64_t off, uint64_t len)
{
	if (off > f->file.len || len > f->file.len - off)
		return (struct bytes){ NULL, 0 };
	return (struct bytes){ f->file.p + off, (size_t)len };
}

/*
 * libelf allocates about 200 bytes for each section that the header claims, so the claim is looked
 * at first.
 */
static int check_header(const struct elffile *f, bool runs, Elf64_Ehdr *ret)
{
	Elf64_Ehdr eh;
	Elf64_Shdr first;

	memcpy(&eh, f->file.p, sizeof(eh));
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0)
		return MSG_FILE_NOT_ELF;
	if (eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_ident[EI_DATA] != ELFDATA2LSB ||
	    eh.e_machine != EM_X86_64 || (eh.e_type != ET_EXEC && eh.e_type != ET_DYN && (runs || eh.e_type != ET_REL)))
		return MSG_FILE_UNSUPPORTED;
	if (eh.e_phnum ? !slice(f, eh.e_phoff, (uint64_t)eh.e_phnum * sizeof(Elf64_Phdr)).p : runs)
		return MSG_FILE_TRUNCATED;
	if (eh.e_phnum > PHDRS_MAX || eh.e_shnum > ELFFILE_SECTIONS_MAX)
		return MSG_FILE_TOO_BIG;
	if (eh.e_shoff && !eh.e_shnum && slice(f, eh.e_shoff, sizeof(first)).p) {
		memcpy(&first, f->file.p + eh.e_shoff, sizeof(first));
		if (first.sh_size > ELFFILE_SECTIONS_MAX)
			return MSG_FILE_TOO_BIG;
	}
	*ret = eh;
	return 0;
}

static void add_segment(struct elffile *f, const GElf_Phdr *ph)
{
	struct msg_segment *s = &f->segments[f->nsegments];
	uint64_t end;

	if (f->nsegments == MSG_SEGMENTS_MAX || ph->p_offset >= f->file.len ||
	    __builtin_add_overflow(ph->p_vaddr, MAX(ph->p_memsz, ph->p_filesz), &end))
		return;
	s->vaddr = ph->p_vaddr;
	s->mem_bytes = ph->p_memsz;
	s->offset = ph->p_offset;
	s->file_bytes = MIN(ph->p_filesz, f->file.len - ph->p_offset);
	s->flags = ph->p_flags;
	f->nsegments++;
}

static void read_build_id(struct elffile *f, struct bytes notes)
{
	struct bufr r;

	bufr_init(&r, notes.p, notes.len);
	for (int i = 0; i < NOTES_MAX && !f->build_id_len && bufr_left(&r) >= 12; i++) {
		uint32_t namesz = bufr_u32(&r);
		uint32_t descsz = bufr_u32(&r);
		uint32_t type = bufr_u32(&r);
		const uint8_t *name = bufr_bytes(&r, ((size_t)namesz + 3) & ~(size_t)3);
		const uint8_t *desc = bufr_bytes(&r, descsz);

		bufr_bytes(&r, MIN(-(size_t)descsz & 3, bufr_left(&r)));
		if (!name || !desc || type != NT_GNU_BUILD_ID || namesz != 4 || memcmp(name, "GNU", 4) != 0 ||
		    !descsz)
			continue;
		f->build_id_len = MIN(descsz, (uint32_t)MSG_BUILD_ID_MAX);
		memcpy(f->build_id, desc, f->build_id_len);
	}
}

static bool says_pie(struct bytes dynamic)
{
	size_t n = MIN(dynamic.len / sizeof(Elf64_Dyn), (size_t)DYNAMIC_MAX);
	Elf64_Dyn d;

	for (size_t i = 0; i < n; i++) {
		memcpy(&d, dynamic.p + i * sizeof(d), sizeof(d));
		if (d.d_tag == DT_NULL)
			return false;
		if (d.d_tag == DT_FLAGS_1)
			return d.d_un.d_val & DF_1_PIE;
	}
	return false;
}

/*
 * The linker gives a shared library without an entry point the start of .text as e_entry (older
 * ones) or 0. ld.so, which is one too, has a real one, in the middle of its .text.
 */
static bool is_program(const struct elffile *f, const Elf64_Ehdr *eh, bool has_interp)
{
	struct elf_section text;

	if (!eh->e_entry || !elffile_is_code(f, eh->e_entry))
		return false;
	if (eh->e_type == ET_EXEC || has_interp || says_pie(f->dynamic))
		return true;
	return elffile_section(f, ".text", &text) == 0 && text.vaddr != eh->e_entry;
}

static int read_headers(struct elffile *f, const Elf64_Ehdr *eh)
{
	struct elf_section ignored, note;
	bool has_interp = false;
	GElf_Phdr ph;

	for (int i = 0; i < eh->e_phnum; i++) {
		if (!gelf_getphdr(f->elf, i, &ph))
			return MSG_FILE_TRUNCATED;
		if (ph.p_type == PT_LOAD)
			add_segment(f, &ph);
		else if (ph.p_type == PT_NOTE)
			read_build_id(f, slice(f, ph.p_offset, ph.p_filesz));
		else if (ph.p_type == PT_GNU_EH_FRAME)
			f->eh_frame_hdr = ph.p_vaddr;
		else if (ph.p_type == PT_INTERP)
			has_interp = true;
		else if (ph.p_type == PT_DYNAMIC)
			f->dynamic = slice(f, ph.p_offset, ph.p_filesz);
	}
	/* A file that is not for running has no program headers. */
	if (!f->build_id_len && elffile_section(f, ".note.gnu.build-id", &note) == 0)
		read_build_id(f, note.data);
	f->entry = eh->e_entry;
	f->entry_is_root = is_program(f, eh, has_interp);
	f->is_go = elffile_section(f, ".gopclntab", &ignored) == 0 ||
		   elffile_section(f, ".data.rel.ro.gopclntab", &ignored) == 0 ||
		   elffile_section(f, ".note.go.buildid", &ignored) == 0;
	return 0;
}

static int open_mapped(struct elffile *f, bool runs)
{
	Elf64_Ehdr eh;
	int err;

	err = check_header(f, runs, &eh);
	if (err)
		return err;
	elf_version(EV_CURRENT);
	/* libelf reads through the pointer; it writes only into what it copied. */
	f->elf = elf_memory((char *)(uintptr_t)f->file.p, f->file.len);
	if (!f->elf)
		return MSG_FILE_NOT_ELF;
	return read_headers(f, &eh);
}

static int open_fd(struct elffile **ret, int fd, bool runs)
{
	CLEANUP(elffile_closep) struct elffile *f = mem_calloc(1, sizeof(*f));
	int err;

	err = map_file(f, fd);
	if (!err)
		err = open_mapped(f, runs);
	if (err)
		return err;
	*ret = TAKE(f);
	return 0;
}

int elffile_open(struct elffile **ret, int fd)
{
	return open_fd(ret, fd, true);
}

int elffile_open_shared_debug(struct elffile **ret, int fd)
{
	return open_fd(ret, fd, false);
}

int elffile_open_bytes(struct elffile **ret, struct bytes file)
{
	CLEANUP(elffile_closep) struct elffile *f = mem_calloc(1, sizeof(*f));
	int err;

	if (file.len < sizeof(Elf64_Ehdr))
		return MSG_FILE_NOT_ELF;
	f->file = file;
	f->is_memory = true;
	err = open_mapped(f, true);
	if (err)
		return err;
	*ret = TAKE(f);
	return 0;
}

struct elffile *elffile_close(struct elffile *f)
{
	struct mapping *m;

	if (!f)
		return NULL;
	elf_end(f->elf);
	if (f->file.p && !f->is_memory) {
		m = find_mapping(f->file.p);
		assert(m);
		m->start = 0;
		munmap((void *)(uintptr_t)f->file.p, f->file.len);
	}
	free(f);
	return NULL;
}

/* ---- sections ---- */

static int section_of(const struct elffile *f, Elf_Scn *scn, GElf_Shdr *ret_sh, struct elf_section *ret)
{
	GElf_Shdr sh;

	if (!scn || !gelf_getshdr(scn, &sh))
		return -ENOENT;
	*ret = (struct elf_section){
		.vaddr = sh.sh_addr,
		.size = sh.sh_size,
		.flags = sh.sh_flags,
		.entsize = sh.sh_entsize,
		.type = sh.sh_type,
		.link = sh.sh_link,
	};
	if (sh.sh_type != SHT_NOBITS)
		ret->data = slice(f, sh.sh_offset, sh.sh_size);
	*ret_sh = sh;
	return 0;
}

int elffile_section_at(const struct elffile *f, uint32_t index, struct elf_section *ret)
{
	GElf_Shdr sh;

	return section_of(f, elf_getscn(f->elf, index), &sh, ret);
}

int elffile_section(const struct elffile *f, const char *name, struct elf_section *ret)
{
	size_t len = strlen(name) + 1, shstrndx;
	struct elf_section names, section;
	Elf_Scn *scn = NULL;
	GElf_Shdr sh;

	if (elf_getshdrstrndx(f->elf, &shstrndx) < 0 || shstrndx > ELFFILE_SECTIONS_MAX ||
	    elffile_section_at(f, (uint32_t)shstrndx, &names) < 0)
		return -ENOENT;
	while ((scn = elf_nextscn(f->elf, scn)) != NULL) {
		if (section_of(f, scn, &sh, &section) < 0)
			continue;
		if (sh.sh_name > names.data.len || len > names.data.len - sh.sh_name ||
		    memcmp(names.data.p + sh.sh_name, name, len) != 0)
			continue;
		*ret = section;
		return 0;
	}
	return -ENOENT;
}

/* ---- addresses ---- */

const struct msg_segment *elffile_segment_of_offset(const struct elffile *f, uint64_t offset)
{
	const struct msg_segment *found = NULL;

	for (uint32_t i = 0; i < f->nsegments; i++) {
		const struct msg_segment *s = &f->segments[i];

		if (offset < s->offset || offset - s->offset >= s->file_bytes)
			continue;
		if (s->flags & PF_X)
			return s;
		if (!found)
			found = s;
	}
	return found;
}

const struct msg_segment *elffile_segment_of_vaddr(const struct elffile *f, uint64_t vaddr)
{
	for (uint32_t i = 0; i < f->nsegments; i++)
		if (vaddr >= f->segments[i].vaddr && vaddr - f->segments[i].vaddr < f->segments[i].file_bytes)
			return &f->segments[i];
	return NULL;
}

bool elffile_is_code(const struct elffile *f, uint64_t vaddr)
{
	const struct msg_segment *s = elffile_segment_of_vaddr(f, vaddr);

	return s && (s->flags & PF_X);
}

struct bytes elffile_at(const struct elffile *f, uint64_t vaddr)
{
	const struct msg_segment *s = elffile_segment_of_vaddr(f, vaddr);
	uint64_t in;

	if (!s)
		return (struct bytes){ NULL, 0 };
	in = vaddr - s->vaddr;
	return slice(f, s->offset + in, s->file_bytes - in);
}

struct bytes elffile_before(const struct elffile *f, uint64_t vaddr, size_t max)
{
	const struct msg_segment *s = vaddr ? elffile_segment_of_vaddr(f, vaddr - 1) : NULL;
	uint64_t n;

	if (!s)
		return (struct bytes){ NULL, 0 };
	n = MIN(vaddr - s->vaddr, (uint64_t)max);
	return slice(f, s->offset + (vaddr - s->vaddr) - n, n);
}
