/* Lies in ELF files: no crash, no time, no memory; and a file that shrinks costs only itself. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "symbolizer/answer.h"
#include "tests/unit/elf_fixture.h"

#define CHILD_BYTES_MAX (50u << 20)
/* 100 ms is the aim; CPU time on a machine whose caches others use is up to twice that. */
#define CHILD_CPU_NS_MAX 250000000u

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

struct image {
	uint8_t *data;
	size_t len;
};

static struct image load(const char *suffix, const char *source, const char *flags)
{
	char *path = fixture_compile_to(suffix, source, flags);
	struct image im;

	im.data = fixture_read(path, &im.len);
	fixture_forget(path);
	return im;
}

/* Asks for rows and names of addresses all over the file, and decodes the answers as the agent does. */
static void ask_everything(int fd, size_t file_bytes)
{
	static struct msg_request req;
	struct handles h = { 0 };
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct msg_rows rows;
	struct msg_names names;
	struct bufr r;

	req.naddrs = MSG_ADDRS_MAX;
	for (uint32_t i = 0; i < req.naddrs; i++)
		req.addrs[i] = (struct msg_addr){ .offset = file_bytes * i / req.naddrs, .flags = i & 1 };
	answer_rows(&h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	if (msg_rows_decode(&r, &rows) != 0)
		abort();
	msg_rows_fini(&rows);
	bufw_reset(&w);
	answer_names(&h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	if (msg_names_decode(&r, &names) != 0)
		abort();
	msg_names_fini(&names);
	handles_fini(&h);
}

/* In a child: it may end with 0 only. */
static void survives(const struct image *im, const char *what, size_t index)
{
	struct rlimit cpu = { 5, 5 };
	struct rusage usage;
	int status, fd = fixture_memfd(im->data, im->len);
	uint64_t start;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CPU, &cpu);
		elffile_guard_init();
		start = clock_cpu_ns();
		ask_everything(fd, im->len);
		_exit(clock_cpu_ns() - start > CHILD_CPU_NS_MAX * (IS_SANITIZED ? 10 : 1) ? 3 : 0);
	}
	close(fd);
	assert_int_equal(wait4(pid, &status, 0, &usage), pid);
	if (status == 3 << 8)
		fail_msg("%s %zu: takes %lu ms", what, index, (unsigned long)usage.ru_utime.tv_usec / 1000);
	if (status != 0)
		fail_msg("%s %zu: wait status %x", what, index, status);
	if (!IS_SANITIZED && (size_t)usage.ru_maxrss * 1024 > CHILD_BYTES_MAX + im->len)
		fail_msg("%s %zu: %ld KiB", what, index, usage.ru_maxrss);
}

/* The values that break arithmetic. */
static const uint64_t evil[] = { 0,	     1,		 7,	     0x7f,	     0xff,
				 0xffff,     0x10000,	 0x7fffffff, 0x80000000,     0xffffffff,
				 1ull << 40, INT64_MAX, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 4095 };

/* Every field of `size` bytes at `off` with each evil value, in turn. */
static void change_fields(struct image *im, size_t off, const size_t *sizes, size_t nsizes, const char *what)
{
	for (size_t i = 0; i < nsizes; off += sizes[i++]) {
		uint8_t saved[8];

		memcpy(saved, im->data + off, sizes[i]);
		for (size_t k = 0; k < ARRAY_SIZE(evil); k++) {
			memcpy(im->data + off, &evil[k], sizes[i]);
			survives(im, what, i * 100 + k);
		}
		memcpy(im->data + off, saved, sizes[i]);
	}
}

static void lies_in_the_elf_header_are_survived(void **state UNUSED)
{
	/* From e_type. */
	static const size_t sizes[] = { 2, 2, 4, 8, 8, 8, 4, 2, 2, 2, 2, 2, 2 };
	struct image im = load("c", fixture_c, "-O2 -g");

	change_fields(&im, EI_NIDENT, sizes, ARRAY_SIZE(sizes), "ehdr");
	free(im.data);
}

static void lies_in_program_headers_are_survived(void **state UNUSED)
{
	static const size_t sizes[] = { 4, 4, 8, 8, 8, 8, 8, 8 };
	struct image im = load("c", fixture_c, "-O2");
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	memcpy(&eh, im.data, sizeof(eh));
	for (size_t i = 0; i < eh.e_phnum; i++) {
		size_t off = eh.e_phoff + i * sizeof(ph);

		memcpy(&ph, im.data + off, sizeof(ph));
		if (ph.p_type == PT_NOTE || ph.p_type == PT_GNU_EH_FRAME || (ph.p_type == PT_LOAD && (ph.p_flags & PF_X)))
			change_fields(&im, off, sizes, ARRAY_SIZE(sizes), "phdr");
	}
	free(im.data);
}

static void lies_in_section_headers_are_survived(void **state UNUSED)
{
	static const size_t sizes[] = { 4, 4, 8, 8, 8, 8, 4, 4, 8, 8 };
	static const char *const names[] = { ".symtab", ".strtab", ".shstrtab", ".text", ".debug_frame" };
	struct image im = load("c", fixture_c, "-O2 -g -fno-asynchronous-unwind-tables -gz=zlib");
	Elf64_Ehdr eh;
	Elf64_Shdr sh, strings;

	memcpy(&eh, im.data, sizeof(eh));
	memcpy(&strings, im.data + eh.e_shoff + eh.e_shstrndx * sizeof(sh), sizeof(sh));
	for (size_t i = 0; i < eh.e_shnum; i++) {
		size_t off = eh.e_shoff + i * sizeof(sh);

		memcpy(&sh, im.data + off, sizeof(sh));
		for (size_t k = 0; k < ARRAY_SIZE(names); k++)
			if (strcmp((char *)im.data + strings.sh_offset + sh.sh_name, names[k]) == 0)
				change_fields(&im, off, sizes, ARRAY_SIZE(sizes), names[k]);
	}
	free(im.data);
}

/* Deterministic noise in what the file's tables contain. */
static void noise_in_every_table_is_survived(void **state UNUSED)
{
	static const char *const flags[] = { "-O2 -g", "-O2 -g -Wl,--no-eh-frame-hdr",
					     "-O2 -g -fno-asynchronous-unwind-tables" };
	uint64_t seed = 88172645463325252u;

	for (size_t k = 0; k < ARRAY_SIZE(flags); k++) {
		struct image im = load("c", fixture_c, flags[k]);
		uint8_t *good = malloc(im.len);

		assert_non_null(good);
		memcpy(good, im.data, im.len);
		for (size_t round = 0; round < 150; round++) {
			for (int n = 0; n < 60; n++) {
				seed ^= seed << 13;
				seed ^= seed >> 7;
				seed ^= seed << 17;
				im.data[64 + seed % (im.len - 64)] = (uint8_t)(seed >> 32);
			}
			survives(&im, flags[k], round);
			if (round % 5 == 4)
				memcpy(im.data, good, im.len);
		}
		free(good);
		free(im.data);
	}
}

static void every_length_of_a_small_file_is_survived(void **state UNUSED)
{
	struct image im = load("c", "int main(void) { return 0; }", "-O2 -s");
	size_t len = im.len;

	for (im.len = 0; im.len < len; im.len += im.len < 1024 ? 8 : 97)
		survives(&im, "length", im.len);
	free(im.data);
}

/* ---- hostile on purpose ---- */

/* A file with one code segment, .text, and the section given; its content comes after the headers. */
static struct image craft(const char *name, uint32_t type, uint64_t flags, const void *content, size_t len)
{
	enum { NSECTIONS = 4, CONTENT = 0x1000 };
	struct image im = { calloc(1, CONTENT + len), CONTENT + len };
	Elf64_Ehdr *eh = (Elf64_Ehdr *)im.data;
	Elf64_Phdr *ph = (Elf64_Phdr *)(im.data + 64);
	Elf64_Shdr *sh = (Elf64_Shdr *)(im.data + 128);
	char *strings = (char *)im.data + 128 + NSECTIONS * sizeof(*sh);

	assert_non_null(im.data);
	memcpy(eh->e_ident, "\x7f""ELF\2\1\1", 7);
	*eh = (Elf64_Ehdr){ .e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = 1, .e_phoff = 64, .e_shoff = 128,
			    .e_ehsize = 64, .e_phentsize = 56, .e_phnum = 1, .e_shentsize = 64,
			    .e_shnum = NSECTIONS, .e_shstrndx = 3 };
	memcpy(eh->e_ident, "\x7f""ELF\2\1\1", 7);
	*ph = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = im.len, .p_memsz = im.len };
	sh[1] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			      .sh_addr = 0x400, .sh_offset = 0x400, .sh_size = 0x100 };
	sh[2] = (Elf64_Shdr){ .sh_name = 7, .sh_type = type, .sh_flags = flags, .sh_offset = CONTENT, .sh_size = len,
			      .sh_link = 3, .sh_entsize = 24 };
	sh[3] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = (uint64_t)(strings - (char *)im.data),
			      .sh_size = 64 };
	memcpy(strings + 1, ".text", 6);
	strcpy(strings + 7, name);
	memcpy(im.data + CONTENT, content, len);
	return im;
}

/* A CIE and one FDE over .text whose program is one instruction, repeated. */
static size_t make_frame(uint8_t *to, const char *instruction, size_t instruction_len, size_t times)
{
	static const uint8_t cie[] = { 16, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0 };
	uint32_t len = (uint32_t)(4 + 16 + instruction_len * times), zero = 0;
	uint64_t start = 0x400, size = 0x100000;
	size_t n = 0;

	memcpy(to, cie, sizeof(cie));
	n = sizeof(cie);
	memcpy(to + n, &len, 4);
	memcpy(to + n + 4, &zero, 4);
	memcpy(to + n + 8, &start, 8);
	memcpy(to + n + 16, &size, 8);
	n += 24;
	for (size_t i = 0; i < times; i++, n += instruction_len)
		memcpy(to + n, instruction, instruction_len);
	return n;
}

static void giant_programs_are_bounded(void **state UNUSED)
{
	static const struct {
		const char *name, *bytes;
		size_t len;
	} programs[] = {
		{ "rows", "\x41", 1 },			  /* a row for each byte */
		{ "different rows", "\x41\x83\x01\x41\x83\x02", 6 },
		{ "remember", "\x0a", 1 },
		{ "remember and restore", "\x0a\x0b", 2 },
		{ "register 2^31", "\x05\xff\xff\xff\xff\x07\x01", 7 },
		{ "nops", "\x00", 1 },
		{ "offset", "\x0e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x41", 12 },
		{ "expression", "\x0f\x02\x30\x06\x41", 5 },
	};
	static const size_t sizes[] = { 1 << 20, 8 << 20 }; /* within and over what a request may run */
	uint8_t *frame = malloc(9 << 20);

	assert_non_null(frame);
	for (size_t i = 0; i < ARRAY_SIZE(programs) * ARRAY_SIZE(sizes); i++) {
		const char *bytes = programs[i / 2].bytes;
		size_t n = programs[i / 2].len, len = make_frame(frame, bytes, n, sizes[i % 2] / n);
		struct image im = craft(".debug_frame", SHT_PROGBITS, 0, frame, len);

		survives(&im, programs[i / 2].name, i % 2);
		free(im.data);
	}
	free(frame);
}

static void millions_of_entries_are_bounded(void **state UNUSED)
{
	size_t len = 16 << 20;
	uint8_t *table = calloc(1, len);
	Elf64_Sym sym = { .st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1 };
	struct image im;

	assert_non_null(table);
	for (size_t i = 0; i < len / sizeof(sym); i++) {
		sym.st_value = 0x400 + i * 2654435761u % 0x1000;
		sym.st_size = i;
		memcpy(table + i * sizeof(sym), &sym, sizeof(sym));
	}
	im = craft(".symtab", SHT_SYMTAB, 0, table, len);
	survives(&im, "symbols", 0);
	free(im.data);
	free(table);
}

/* A kilobyte that says it is a gigabyte, and one that is. */
static void compressed_sections_that_explode_are_bounded(void **state UNUSED)
{
	uint8_t section[64] = { 0 };
	Elf64_Chdr ch = { .ch_type = ELFCOMPRESS_ZLIB, .ch_addralign = 1 };
	static const uint64_t claims[] = { 0, 1, 1 << 20, FDE_INFLATED_MAX, (uint64_t)FDE_INFLATED_MAX + 1, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
		struct image im;

		ch.ch_size = claims[i];
		memcpy(section, &ch, sizeof(ch));
		memcpy(section + sizeof(ch), "\x78\x9c\x63\x60\x60", 5);
		im = craft(".debug_frame", SHT_PROGBITS, SHF_COMPRESSED, section, sizeof(section));
		survives(&im, "claim", i);
		free(im.data);
	}
}

/* ---- what is no ELF file of ours ---- */

static int open_result(int fd)
{
	struct elffile *f = NULL;
	int err = elffile_open(&f, fd);

	elffile_close(f);
	close(fd);
	return err;
}

static void what_is_no_elf_file_is_told(void **state UNUSED)
{
	struct image im = load("c", "int main(void) { return 0; }", "-O2");
	int pipefd[2];

	assert_int_equal(open_result(open("/etc/passwd", O_RDONLY)), MSG_FILE_NOT_ELF);
	assert_int_equal(open_result(open("/dev/null", O_RDONLY)), MSG_FILE_UNREADABLE);
	assert_int_equal(open_result(open("/", O_RDONLY | O_DIRECTORY)), MSG_FILE_UNREADABLE);
	assert_int_equal(open_result(open("/bin/true", O_PATH)), MSG_FILE_UNREADABLE);
	assert_int_equal(open_result(fixture_memfd("", 0)), MSG_FILE_NOT_ELF);
	assert_int_equal(pipe(pipefd), 0);
	close(pipefd[1]);
	assert_int_equal(open_result(pipefd[0]), MSG_FILE_UNREADABLE);
	im.data[EI_CLASS] = ELFCLASS32;
	assert_int_equal(open_result(fixture_memfd(im.data, im.len)), MSG_FILE_UNSUPPORTED);
	im.data[EI_CLASS] = ELFCLASS64;
	im.data[EI_DATA] = ELFDATA2MSB;
	assert_int_equal(open_result(fixture_memfd(im.data, im.len)), MSG_FILE_UNSUPPORTED);
	im.data[EI_DATA] = ELFDATA2LSB;
	assert_int_equal(open_result(fixture_memfd(im.data, 100)), MSG_FILE_TRUNCATED);
	assert_int_equal(open_result(fixture_memfd(im.data, im.len)), 0);
	free(im.data);
}

static void the_build_id_is_readelfs(void **state UNUSED)
{
	char *path = fixture_compile_to("c", fixture_c, "-Wl,--build-id=0x0123456789abcdef");
	struct elffile *f = fixture_open(path);

	assert_int_equal(f->build_id_len, 8);
	assert_memory_equal(f->build_id, "\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
	elffile_close(f);
	fixture_forget(path);
}

/* ---- truncation while it is mapped ---- */

static void a_file_that_shrinks_costs_only_itself(void **state UNUSED)
{
	char *path = fixture_compile_to("c", fixture_c, "-O2 -static");
	int fd = open(path, O_RDWR), other = open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY);
	struct handles h = { 0 };
	static struct msg_request req;
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct handle *handle;
	struct msg_rows rows;
	struct msg_names names;
	struct bufr r;

	elffile_guard_init();
	assert_true(fd >= 0 && other >= 0);
	assert_int_equal(handles_open(&h, 1, fd, &handle), 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	req.naddrs = 1;
	req.file_id = 1;
	req.addrs[0].offset = 0x2000;
	answer_rows(&h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(msg_rows_decode(&r, &rows), 0);
	assert_int_equal(rows.result, MSG_FILE_UNREADABLE);
	assert_int_equal(rows.nresults, 1);
	msg_rows_fini(&rows);
	/* Next time it is seen as it is now. */
	bufw_reset(&w);
	answer_names(&h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(msg_names_decode(&r, &names), 0);
	assert_int_equal(names.nnamed, 1);
	msg_names_fini(&names);
	/* Another file is answered as ever. */
	bufw_reset(&w);
	req.file_id = 2;
	req.addrs[0].offset = 0x29100;
	answer_rows(&h, &req, other, &w);
	bufr_init(&r, w.data, w.len);
	assert_int_equal(msg_rows_decode(&r, &rows), 0);
	assert_int_equal(rows.result, MSG_FILE_OK);
	assert_true(rows.results[0].flags & MSG_RES_ROW);
	msg_rows_fini(&rows);
	handles_fini(&h);
	close(fd);
	close(other);
	fixture_forget(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_elf_file_is_told),
		cmocka_unit_test(the_build_id_is_readelfs),
		cmocka_unit_test(a_file_that_shrinks_costs_only_itself),
		cmocka_unit_test(giant_programs_are_bounded),
		cmocka_unit_test(millions_of_entries_are_bounded),
		cmocka_unit_test(compressed_sections_that_explode_are_bounded),
		cmocka_unit_test(every_length_of_a_small_file_is_survived),
		cmocka_unit_test(lies_in_the_elf_header_are_survived),
		cmocka_unit_test(lies_in_program_headers_are_survived),
		cmocka_unit_test(lies_in_section_headers_are_survived),
		cmocka_unit_test(noise_in_every_table_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
