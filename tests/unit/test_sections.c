/* Compressed sections: what comes out, and what a lie costs. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "symbolizer/sections.h"
#include "tests/unit/elf_fixture.h"

enum {
	MAX_BYTES = 24 << 20,
	FEW_BYTES = 1 << 20,	/* what a lie may cost */
	BOMB_BYTES = 64 << 20,
	NSECTIONS_MAX = 4,
	ZSTD_TYPE = 2,		/* ELFCOMPRESS_ZSTD */
};

/* ---- what the code under test allocates for its output ---- */

static size_t largest;

void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	largest = MAX(largest, n * size);
	return __real_reallocarray(p, n, size);
}

/* ---- files of a few sections ---- */

struct image {
	const char *name;
	uint64_t flags;
	uint8_t *data;
	size_t len;
};

static struct elffile *open_image(const struct image *sections, size_t n)
{
	Elf64_Shdr headers[NSECTIONS_MAX + 2] = { 0 };
	Elf64_Ehdr eh = { .e_ident = ELFMAG, .e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT };
	Elf64_Phdr load = { .p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = sizeof(eh), .p_memsz = sizeof(eh) };
	char names[256] = "\0.shstrtab";
	size_t at_name = sizeof("\0.shstrtab"), off = sizeof(eh) + sizeof(load);
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct elffile *f = NULL;
	int fd;

	assert_true(n <= NSECTIONS_MAX);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	eh.e_ident[EI_VERSION] = EV_CURRENT;
	eh.e_ehsize = sizeof(eh);
	eh.e_phoff = sizeof(eh);
	eh.e_phentsize = sizeof(load);
	eh.e_phnum = 1;
	eh.e_shentsize = sizeof(headers[0]);
	eh.e_shnum = (Elf64_Half)(n + 2);
	eh.e_shstrndx = 1;
	for (size_t i = 0; i < n; i++) {
		headers[i + 2] = (Elf64_Shdr){ .sh_name = (Elf64_Word)at_name, .sh_type = SHT_PROGBITS,
					       .sh_flags = sections[i].flags, .sh_offset = off,
					       .sh_size = sections[i].len, .sh_addralign = 1 };
		at_name += (size_t)snprintf(names + at_name, sizeof(names) - at_name, "%s", sections[i].name) + 1;
		off += sections[i].len;
	}
	headers[1] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = off, .sh_size = sizeof(names),
				   .sh_addralign = 1 };
	eh.e_shoff = off + sizeof(names);
	bufw_bytes(&w, &eh, sizeof(eh));
	bufw_bytes(&w, &load, sizeof(load));
	for (size_t i = 0; i < n; i++)
		bufw_bytes(&w, sections[i].data, sections[i].len);
	bufw_bytes(&w, names, sizeof(names));
	bufw_bytes(&w, headers, (n + 2) * sizeof(headers[0]));
	assert_int_equal(bufw_end(&w), 0);
	fd = fixture_memfd(w.data, w.len);
	assert_int_equal(elffile_open(&f, fd), 0);
	close(fd);
	return f;
}

enum packing { ZLIB, ZLIB_GNU, ZSTD_FRAME, NPACKINGS };

/* The compressed bytes without a header. */
static uint8_t *pack(enum packing how, struct bytes plain, size_t *ret_len)
{
	size_t cap = how == ZSTD_FRAME ? ZSTD_compressBound(plain.len) : compressBound(plain.len);
	uint8_t *packed = malloc(cap);
	uLongf zlen = cap;

	assert_non_null(packed);
	if (how == ZSTD_FRAME) {
		*ret_len = ZSTD_compress(packed, cap, plain.p, plain.len, 1);
		assert_false(ZSTD_isError(*ret_len));
	} else {
		assert_int_equal(compress2(packed, &zlen, plain.p, plain.len, 6), Z_OK);
		*ret_len = zlen;
	}
	return packed;
}

/* With the header that its kind has, and a size in it. */
static struct image section_of(enum packing how, const uint8_t *packed, size_t len, uint64_t claimed)
{
	struct image s = { .name = how == ZLIB_GNU ? ".zdebug_info" : ".debug_info",
			   .flags = how == ZLIB_GNU ? 0 : SHF_COMPRESSED };
	Elf64_Chdr ch = { .ch_type = how == ZLIB ? ELFCOMPRESS_ZLIB : ZSTD_TYPE, .ch_size = claimed, .ch_addralign = 1 };
	uint64_t big_endian = __builtin_bswap64(claimed);
	size_t header = how == ZLIB_GNU ? 12 : sizeof(ch);

	s.len = header + len;
	s.data = malloc(s.len);
	assert_non_null(s.data);
	if (how == ZLIB_GNU) {
		memcpy(s.data, "ZLIB", 4);
		memcpy(s.data + 4, &big_endian, sizeof(big_endian));
	} else {
		memcpy(s.data, &ch, sizeof(ch));
	}
	memcpy(s.data + header, packed, len);
	return s;
}

/* sections_one() of a file with that section; what came out is the caller's to free. */
static int read_packed(enum packing how, const uint8_t *packed, size_t len, uint64_t claimed, struct bytes *ret,
		       void **ret_heap)
{
	struct image s = section_of(how, packed, len, claimed);
	struct elffile *f = open_image(&s, 1);
	int err;

	*ret = (struct bytes){ NULL, 0 };
	largest = 0;
	err = sections_one(f, ".debug_info", MAX_BYTES, ret, ret_heap);
	assert_true(err ? !*ret_heap && !ret->p : *ret_heap == ret->p);
	elffile_close(f);
	free(s.data);
	return err;
}

/* Debug information of a real program. */
static uint8_t *plain_info(size_t *ret_len)
{
	char *path = fixture_compile_to("cc", fixture_cpp, "-O2 -g");
	struct elffile *f = fixture_open(path);
	struct bytes info;
	uint8_t *copy;
	void *heap;

	assert_int_equal(sections_one(f, ".debug_info", MAX_BYTES, &info, &heap), 0);
	assert_null(heap);
	assert_true(info.len > 4096);
	copy = malloc(info.len);
	assert_non_null(copy);
	memcpy(copy, info.p, info.len);
	*ret_len = info.len;
	elffile_close(f);
	fixture_forget(path);
	return copy;
}

static uint8_t *zeroes(size_t len)
{
	uint8_t *p = calloc(1, len);

	assert_non_null(p);
	return p;
}

/* ---- tests ---- */

static void what_was_compressed_comes_out_as_it_was(void **state UNUSED)
{
	struct bytes plain, got;
	uint8_t *info = plain_info(&plain.len);
	void *heap;

	plain.p = info;
	for (enum packing how = 0; how < NPACKINGS; how++) {
		size_t len;
		uint8_t *packed = pack(how, plain, &len);

		assert_int_equal(read_packed(how, packed, len, plain.len, &got, &heap), 0);
		assert_int_equal(got.len, plain.len);
		assert_memory_equal(got.p, plain.p, plain.len);
		free(heap);
		free(packed);
	}
	free(info);
}

/* Nothing waits for what stands behind the last byte that comes out: the end of a block, a checksum. */
static void a_truncated_stream_is_refused_or_was_complete(void **state UNUSED)
{
	enum { TAIL = 8 };
	struct bytes plain, got;
	uint8_t *info = plain_info(&plain.len);
	void *heap;

	plain.p = info;
	plain.len = 2000;
	for (enum packing how = 0; how < NPACKINGS; how++) {
		size_t len;
		uint8_t *packed = pack(how, plain, &len);

		for (size_t n = 0; n < len; n++) {
			int err = read_packed(how, packed, n, plain.len, &got, &heap);

			assert_true(err == -EBADMSG || (err == 0 && n + TAIL >= len));
			if (!err)
				assert_memory_equal(got.p, plain.p, plain.len);
			free(heap);
		}
		free(packed);
	}
	free(info);
}

static void a_size_over_the_limit_costs_nothing(void **state UNUSED)
{
	const uint64_t claims[] = { MAX_BYTES + 1ull, UINT32_MAX, 1ull << 32, 1ull << 40, UINT64_MAX };
	uint8_t *some = zeroes(1000);
	struct bytes got;
	void *heap;

	for (enum packing how = 0; how < NPACKINGS; how++) {
		size_t len;
		uint8_t *packed = pack(how, (struct bytes){ some, 1000 }, &len);

		for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
			assert_int_equal(read_packed(how, packed, len, claims[i], &got, &heap), -EFBIG);
			assert_int_equal(largest, 0);
		}
		free(packed);
	}
	free(some);
}

static void a_size_that_never_comes_costs_little(void **state UNUSED)
{
	uint8_t *some = zeroes(1000);
	struct bytes got;
	void *heap;

	for (enum packing how = 0; how < NPACKINGS; how++) {
		size_t len;
		uint8_t *packed = pack(how, (struct bytes){ some, 1000 }, &len);

		assert_int_equal(read_packed(how, packed, len, MAX_BYTES, &got, &heap), -EBADMSG);
		assert_in_range(largest, 1, FEW_BYTES);
		assert_int_equal(read_packed(how, packed, len, 1001, &got, &heap), -EBADMSG);
		assert_int_equal(read_packed(how, packed, len, 0, &got, &heap), -EBADMSG);
		free(packed);
	}
	free(some);
}

static void a_bomb_makes_no_more_than_it_claims(void **state UNUSED)
{
	uint8_t *plain = zeroes(BOMB_BYTES);
	struct bytes got;
	void *heap;

	for (enum packing how = 0; how < NPACKINGS; how++) {
		size_t len;
		uint8_t *packed = pack(how, (struct bytes){ plain, BOMB_BYTES }, &len);

		assert_true(len < BOMB_BYTES / 500);
		assert_int_equal(read_packed(how, packed, len, BOMB_BYTES, &got, &heap), -EFBIG);
		assert_int_equal(largest, 0);
		if (read_packed(how, packed, len, 10000, &got, &heap) == 0)
			assert_int_equal(got.len, 10000);
		assert_in_range(largest, 1, FEW_BYTES);
		free(heap);
		free(packed);
	}
	free(plain);
}

/* A frame's header alone makes a decoder allocate the window that it names. */
static void a_frame_with_a_huge_window_is_refused(void **state UNUSED)
{
	static const uint8_t frame[] = {
		0x28, 0xb5, 0x2f, 0xfd,	/* magic */
		0x00,			/* no size of the content, no checksum */
		16 << 3,		/* window: 2^(10 + 16) bytes, which libzstd would take */
		0x43, 0x1f, 0x00, 'x',	/* the last block: 'x' 1000 times */
	};
	uint8_t small[sizeof(frame)];
	struct bytes got;
	void *heap;

	assert_int_equal(read_packed(ZSTD_FRAME, frame, sizeof(frame), 1000, &got, &heap), -EBADMSG);
	memcpy(small, frame, sizeof(frame));
	small[5] = 1 << 3;
	assert_int_equal(read_packed(ZSTD_FRAME, small, sizeof(small), 1000, &got, &heap), 0);
	assert_int_equal(got.len, 1000);
	assert_int_equal(got.p[999], 'x');
	free(heap);
}

static void headers_that_are_cut_or_unknown_are_refused(void **state UNUSED)
{
	uint8_t some[1000] = { 0 }, *packed;
	size_t len;

	packed = pack(ZLIB, (struct bytes){ some, sizeof(some) }, &len);
	for (enum packing how = 0; how < NPACKINGS; how++) {
		struct image s = section_of(how, packed, len, sizeof(some));
		size_t header = how == ZLIB_GNU ? 12 : sizeof(Elf64_Chdr);
		struct elffile *f;
		struct bytes got;
		void *heap;

		for (s.len = 1; s.len < header; s.len++) {
			f = open_image(&s, 1);
			assert_int_equal(sections_one(f, ".debug_info", MAX_BYTES, &got, &heap), -EBADMSG);
			assert_null(heap);
			elffile_close(f);
		}
		s.len = header + len;
		s.data[0] = 0x77; /* a kind, or a magic number, that nobody has */
		f = open_image(&s, 1);
		assert_int_equal(sections_one(f, ".debug_info", MAX_BYTES, &got, &heap), -EBADMSG);
		assert_null(heap);
		elffile_close(f);
		free(s.data);
	}
	free(packed);
}

static void all_sections_of_a_file_share_the_limit(void **state UNUSED)
{
	const size_t half = SECTIONS_INFLATED_MAX / 2 + 1;
	uint8_t *plain = zeroes(half), *packed, lines[] = "lines";
	struct image images[3];
	struct elffile *f;
	struct sections s;
	size_t len;

	packed = pack(ZLIB, (struct bytes){ plain, half }, &len);
	images[0] = images[1] = section_of(ZLIB, packed, len, half);
	images[1].name = ".debug_abbrev";
	images[2] = (struct image){ ".debug_line", 0, lines, sizeof(lines) };
	f = open_image(images, ARRAY_SIZE(images));
	sections_read(&s, f);
	assert_int_equal(s.of[SECTION_INFO].len, half);
	assert_int_equal(s.of[SECTION_ABBREV].len, 0);
	assert_true(s.is_too_big);
	assert_int_equal(s.of[SECTION_LINE].len, sizeof(lines)); /* it stays in the file */
	sections_fini(&s);
	elffile_close(f);
	free(images[0].data);
	free(packed);
	free(plain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_compressed_comes_out_as_it_was),
		cmocka_unit_test(a_truncated_stream_is_refused_or_was_complete),
		cmocka_unit_test(a_size_over_the_limit_costs_nothing),
		cmocka_unit_test(a_size_that_never_comes_costs_little),
		cmocka_unit_test(a_bomb_makes_no_more_than_it_claims),
		cmocka_unit_test(a_frame_with_a_huge_window_is_refused),
		cmocka_unit_test(headers_that_are_cut_or_unknown_are_refused),
		cmocka_unit_test(all_sections_of_a_file_share_the_limit),
	};

	elffile_guard_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
