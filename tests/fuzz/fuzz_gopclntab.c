/*
 * The input is the table of a program whose code, moduledata and inline trees are in the same file.
 * Whatever it says: a function that is found covers its address, its last line is its own, what is
 * inlined does not go on for ever, depths follow each other inside the function, and every name lies in
 * the file.
 */
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "symbolizer/gopclntab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TABLE_OFF = 0x1000, TABLE_MAX = 1 << 20, NADDRS = 64 };
#define BASE 0x400000ull

struct image {
	Elf64_Ehdr eh;
	Elf64_Phdr load;
	Elf64_Shdr sections[3];	/* none, .gopclntab, .shstrtab */
	char names[32];
	uint64_t module[0x148 / 8];
	uint8_t pad[TABLE_OFF - sizeof(Elf64_Ehdr) - sizeof(Elf64_Phdr) - 3 * sizeof(Elf64_Shdr) - 32 - 0x148];
	uint8_t table[TABLE_MAX];
};

static struct image image;
static struct elffile *file;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static void make_image(const uint8_t *data, size_t size)
{
	static const char names[] = "\0.gopclntab\0.shstrtab";
	uint64_t table = BASE + TABLE_OFF, names_off = 0, old_names_off = 0;

	memset(&image, 0, TABLE_OFF);
	memcpy(image.eh.e_ident, ELFMAG, SELFMAG);
	image.eh.e_ident[EI_CLASS] = ELFCLASS64;
	image.eh.e_ident[EI_DATA] = ELFDATA2LSB;
	image.eh.e_ident[EI_VERSION] = EV_CURRENT;
	image.eh.e_type = ET_EXEC;
	image.eh.e_machine = EM_X86_64;
	image.eh.e_version = EV_CURRENT;
	image.eh.e_phoff = offsetof(struct image, load);
	image.eh.e_shoff = offsetof(struct image, sections);
	image.eh.e_ehsize = sizeof(image.eh);
	image.eh.e_phentsize = sizeof(image.load);
	image.eh.e_phnum = 1;
	image.eh.e_shentsize = sizeof(image.sections[0]);
	image.eh.e_shnum = 3;
	image.eh.e_shstrndx = 2;
	image.load = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_W | PF_X, .p_vaddr = BASE,
				   .p_filesz = TABLE_OFF + size, .p_memsz = TABLE_OFF + size, .p_align = 4096 };
	image.sections[1] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC,
					  .sh_addr = table, .sh_offset = TABLE_OFF, .sh_size = size };
	image.sections[2] = (Elf64_Shdr){ .sh_name = 12, .sh_type = SHT_STRTAB,
					  .sh_offset = offsetof(struct image, names), .sh_size = sizeof(names) };
	memcpy(image.names, names, sizeof(names));
	if (size >= 5 * 8) {
		memcpy(&old_names_off, data + 3 * 8, sizeof(old_names_off));
		memcpy(&names_off, data + 4 * 8, sizeof(names_off));
	}
	image.module[0] = table;
	image.module[1] = table + (size && data[0] == 0xfa ? old_names_off : names_off);
	image.module[0xb0 / 8] = BASE;
	image.module[0x130 / 8] = image.module[0x140 / 8] = table;
	memcpy(image.table, data, size);
}

static void check_text(struct bytes text)
{
	require(!text.len || (text.p >= file->file.p && text.len <= file->file.len &&
			      text.p - file->file.p <= (ptrdiff_t)(file->file.len - text.len)),
		"a name lies in the file");
}

struct depths {
	const struct gofunc *fn;
	uint64_t at;
};

static bool on_depth(void *arg, uint64_t start, uint64_t end, uint32_t depth)
{
	struct depths *d = arg;

	require(start == d->at && start < end && end <= d->fn->end, "depths follow each other inside the function");
	require(depth % 8 == 0, "a depth is whole words");
	d->at = end;
	return true;
}

static void check_address(struct gopclntab *t, uint64_t vaddr)
{
	struct srcline lines[GOPCLNTAB_LINES_MAX];
	struct depths d;
	struct gofunc fn;
	uint32_t n;

	if (!gopclntab_find(t, vaddr, &fn))
		return;
	require(fn.start <= vaddr && vaddr < fn.end, "a function covers its address");
	check_text(fn.name);
	gopclntab_refill(t);
	n = gopclntab_lines(t, &fn, vaddr, lines);
	require(n >= 1 && n <= GOPCLNTAB_LINES_MAX, "there are lines");
	require(lines[n - 1].name.p == fn.name.p, "the last line is the function's");
	for (uint32_t i = 0; i < n; i++) {
		check_text(lines[i].name);
		check_text(lines[i].file);
	}
	d = (struct depths){ &fn, fn.start };
	gopclntab_each_depth(t, &fn, on_depth, &d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_FD int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct gopclntab *t;

	if (size > TABLE_MAX)
		return 0;
	make_image(data, size);
	require(fd >= 0 && write(fd, &image, TABLE_OFF + size) == (ssize_t)(TABLE_OFF + size), "a memfd");
	require(elffile_open(&file, fd) == 0, "the image is an ELF file");
	t = gopclntab_new(file);
	for (uint64_t i = 0; t && i < NADDRS; i++)
		check_address(t, BASE + i * 16);
	gopclntab_free(t);
	file = elffile_close(file);
	return 0;
}
