#include "symbolizer/fde.h"

#include <dwarf.h>
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "symbolizer/leb.h"
#include "symbolizer/mem.h"
#include "symbolizer/sections.h"

enum {
	HDR_FIXED = 4,		/* version and three encodings */
	AUGMENTATION_MAX = 16,	/* characters */
};

struct entry {
	uint64_t start;
	uint32_t size;
	uint32_t off;
};

/* One of .eh_frame and .debug_frame. */
struct table {
	struct bytes data;
	uint64_t vaddr;		/* of data; 0 for .debug_frame, whose pointers are absolute */
	bool is_debug_frame;
	/* Either the linker's sorted table of (start, FDE), each an s32 relative to hdr_vaddr ... */
	struct bytes hdr;
	uint64_t hdr_vaddr;
	uint32_t nhdr;
	/* ... or our own. */
	bool is_indexed;
	struct entry *index;
	uint32_t nindex, cap_index;
	/* The last CIE: neighbours share it. */
	struct cie cie;
	uint64_t cie_off;
	bool has_cie;
};

struct fdes {
	const struct elffile *file;
	struct table eh, debug;
	void *inflated;
};

/* ---- entries ---- */

static bool read_pointer(struct bufr *r, const struct table *t, uint8_t encoding, uint8_t address_size,
			 uint64_t *ret)
{
	uint64_t at = t->vaddr + (uint64_t)(r->p - t->data.p), v;

	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
		v = address_size == 4 ? bufr_u32(r) : bufr_u64(r);
		break;
	case DW_EH_PE_uleb128:
		v = bufr_uleb(r);
		break;
	case DW_EH_PE_udata2:
		v = bufr_u16(r);
		break;
	case DW_EH_PE_udata4:
		v = bufr_u32(r);
		break;
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		v = bufr_u64(r);
		break;
	case DW_EH_PE_sleb128:
		v = (uint64_t)bufr_sleb(r);
		break;
	case DW_EH_PE_sdata2:
		v = (uint64_t)(int16_t)bufr_u16(r);
		break;
	case DW_EH_PE_sdata4:
		v = (uint64_t)(int32_t)bufr_u32(r);
		break;
	default:
		return false;
	}
	switch (encoding & 0x70) {
	case DW_EH_PE_absptr:
		break;
	case DW_EH_PE_pcrel:
		v += at;
		break;
	default:
		return false;
	}
	*ret = v;
	return !bufr_err(r);
}

/* The letters of an augmentation string and their data, up to the first unknown one. */
static bool read_augmentation(struct bufr *r, const struct table *t, const char *letters, struct cie *c)
{
	uint64_t len, ignored;
	const uint8_t *data;
	struct bufr aug;

	if (letters[0] != 'z')
		return letters[0] == '\0';
	c->has_augmentation_data = true;
	len = bufr_uleb(r);
	data = len <= bufr_left(r) ? bufr_bytes(r, (size_t)len) : NULL;
	if (!data)
		return false;
	bufr_init(&aug, data, (size_t)len);
	for (letters++; *letters; letters++) {
		uint8_t encoding;

		switch (*letters) {
		case 'R':
			c->pointer_encoding = bufr_u8(&aug);
			break;
		case 'P':
			encoding = bufr_u8(&aug);
			if ((encoding & 0x70) == DW_EH_PE_aligned ||
			    !read_pointer(&aug, t, encoding & 0x0f, 8, &ignored))
				return false;
			break;
		case 'L':
			bufr_u8(&aug);
			break;
		case 'S':
			c->is_signal = true;
			break;
		case 'B':
		case 'G':
			break;
		default:
			return false; /* it may change what the rest means */
		}
	}
	return !bufr_err(&aug);
}

static bool parse_cie(const struct table *t, struct bufr *r, struct cie *ret)
{
	struct cie c = { .address_size = 8, .pointer_encoding = DW_EH_PE_absptr };
	uint8_t version = bufr_u8(r);
	char letters[AUGMENTATION_MAX];
	size_t n;

	if (version != 1 && version != 3 && version != 4)
		return false;
	n = strnlen((const char *)r->p, MIN(bufr_left(r), sizeof(letters)));
	if (n == MIN(bufr_left(r), sizeof(letters)))
		return false;
	memcpy(letters, r->p, n + 1);
	bufr_bytes(r, n + 1);
	if (version == 4) {
		c.address_size = bufr_u8(r);
		if (bufr_u8(r) != 0 || (c.address_size != 8 && c.address_size != 4))
			return false; /* segment selectors */
	}
	c.code_align = bufr_uleb(r);
	c.data_align = bufr_sleb(r);
	if (version == 1) {
		c.ra_reg = bufr_u8(r);
	} else {
		uint64_t reg = bufr_uleb(r);

		c.ra_reg = reg < UINT32_MAX ? (uint32_t)reg : UINT32_MAX;
	}
	if (!read_augmentation(r, t, letters, &c) || bufr_err(r))
		return false;
	c.program = (struct bytes){ r->p, bufr_left(r) };
	*ret = c;
	return true;
}

/* What stands at an offset of the section. */
struct raw {
	struct bufr body;	/* after the CIE pointer */
	uint64_t next;		/* offset of the next entry */
	uint64_t cie_off;	/* of an FDE */
	bool is_cie;
};

static bool parse_raw(const struct table *t, uint64_t off, struct raw *ret)
{
	struct raw raw = { 0 };
	uint64_t len, id, id_at, all_ones = UINT32_MAX;
	bool is_64bit = false;
	struct bufr r;

	if (off >= t->data.len)
		return false;
	bufr_init(&r, t->data.p + off, t->data.len - (size_t)off);
	len = bufr_u32(&r);
	if (len == UINT32_MAX) {
		is_64bit = true;
		all_ones = UINT64_MAX;
		len = bufr_u64(&r);
	}
	/* A length of 0 ends .eh_frame; crtend.o's may be followed by more, which nothing points to. */
	if (bufr_err(&r) || !len || len > bufr_left(&r))
		return false;
	id_at = (uint64_t)(r.p - t->data.p);
	raw.next = id_at + len;
	bufr_init(&raw.body, r.p, (size_t)len);
	id = is_64bit ? bufr_u64(&raw.body) : bufr_u32(&raw.body);
	if (bufr_err(&raw.body))
		return false;
	if (t->is_debug_frame) {
		raw.is_cie = id == all_ones;
		raw.cie_off = id;
	} else {
		raw.is_cie = id == 0;
		if (id > id_at)
			return false;
		raw.cie_off = id_at - id;
	}
	*ret = raw;
	return true;
}

static bool load_cie(struct table *t, uint64_t off)
{
	struct raw raw;

	if (t->has_cie && t->cie_off == off)
		return true;
	t->has_cie = parse_raw(t, off, &raw) && raw.is_cie && parse_cie(t, &raw.body, &t->cie);
	t->cie_off = off;
	return t->has_cie;
}

static bool parse_fde(struct table *t, struct raw *raw, struct fde *ret)
{
	struct bufr *r = &raw->body;
	struct fde fde = { .is_debug_frame = t->is_debug_frame };
	uint64_t size, len;

	if (raw->is_cie || !load_cie(t, raw->cie_off))
		return false;
	fde.cie = t->cie;
	if (!read_pointer(r, t, fde.cie.pointer_encoding, fde.cie.address_size, &fde.start) ||
	    !read_pointer(r, t, fde.cie.pointer_encoding & 0x0f, fde.cie.address_size, &size))
		return false;
	if (!size || __builtin_add_overflow(fde.start, size, &fde.end))
		return false;
	if (fde.cie.has_augmentation_data) {
		len = bufr_uleb(r);
		if (len > bufr_left(r))
			return false;
		bufr_bytes(r, (size_t)len);
	}
	if (bufr_err(r))
		return false;
	fde.program = (struct bytes){ r->p, bufr_left(r) };
	*ret = fde;
	return true;
}

static bool fde_at(struct table *t, uint64_t off, struct fde *ret)
{
	struct raw raw;

	return parse_raw(t, off, &raw) && parse_fde(t, &raw, ret);
}

/* ---- our own index ---- */

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/*
 * FDEs of functions that the linker dropped stay in .debug_frame, at address 0; so what is not code
 * of the file is left out.
 */
static void make_index(struct fdes *fdes, struct table *t)
{
	bool is_sorted = true;
	struct raw raw;
	struct fde fde;

	if (t->is_indexed)
		return;
	t->is_indexed = true;
	for (uint64_t off = 0; parse_raw(t, off, &raw) && t->nindex < FDE_INDEX_MAX; off = raw.next) {
		if (!parse_fde(t, &raw, &fde) || !elffile_is_code(fdes->file, fde.start) || off > UINT32_MAX)
			continue;
		t->index = mem_grow(t->index, &t->cap_index, t->nindex + 1, sizeof(*t->index));
		if (t->nindex && fde.start < t->index[t->nindex - 1].start)
			is_sorted = false;
		t->index[t->nindex++] = (struct entry){
			.start = fde.start,
			.size = (uint32_t)MIN(fde.end - fde.start, (uint64_t)UINT32_MAX),
			.off = (uint32_t)off,
		};
	}
	if (!is_sorted)
		qsort(t->index, t->nindex, sizeof(*t->index), compare_entries);
}

static bool find_in_index(struct table *t, uint64_t vaddr, struct fde *ret)
{
	uint32_t low = 0, high = t->nindex;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (t->index[mid].start <= vaddr)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low || vaddr - t->index[low - 1].start >= t->index[low - 1].size)
		return false;
	return fde_at(t, t->index[low - 1].off, ret) && vaddr >= ret->start && vaddr < ret->end;
}

/* ---- the linker's table ---- */

static uint64_t hdr_value(const struct table *t, uint32_t i, size_t field)
{
	int32_t v;

	memcpy(&v, t->hdr.p + (size_t)i * 8 + field, sizeof(v));
	return t->hdr_vaddr + (uint64_t)(int64_t)v;
}

/* The offset in the section of the i-th entry's FDE. */
static bool hdr_fde(struct table *t, uint32_t i, struct fde *ret)
{
	uint64_t vaddr = hdr_value(t, i, 4);

	return vaddr >= t->vaddr && fde_at(t, vaddr - t->vaddr, ret);
}

static bool find_in_hdr(struct table *t, uint64_t vaddr, struct fde *ret)
{
	uint32_t low = 0, high = t->nhdr;

	/* Signed relative to the header, as it is sorted. */
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if ((int64_t)(hdr_value(t, mid, 0) - t->hdr_vaddr) <= (int64_t)(vaddr - t->hdr_vaddr))
			low = mid + 1;
		else
			high = mid;
	}
	return low && hdr_fde(t, low - 1, ret) && vaddr >= ret->start && vaddr < ret->end;
}

/*
 * PT_GNU_EH_FRAME also leads to .eh_frame in files without section headers. Its table is used in
 * the one form that linkers write.
 */
static void open_eh_frame_hdr(const struct elffile *f, struct table *t)
{
	struct bytes hdr = f->eh_frame_hdr ? elffile_at(f, f->eh_frame_hdr) : (struct bytes){ NULL, 0 };
	struct table at_hdr = { .data = hdr, .vaddr = f->eh_frame_hdr };
	uint8_t version, eh_frame_enc, count_enc, table_enc;
	uint64_t eh_frame, count;
	struct bytes data;
	struct bufr r;

	bufr_init(&r, hdr.p, hdr.len);
	version = bufr_u8(&r);
	eh_frame_enc = bufr_u8(&r);
	count_enc = bufr_u8(&r);
	table_enc = bufr_u8(&r);
	if (bufr_err(&r) || version != 1 || !read_pointer(&r, &at_hdr, eh_frame_enc, 8, &eh_frame))
		return;
	data = elffile_at(f, eh_frame);
	if (!data.p)
		return;
	t->data = data;
	t->vaddr = eh_frame;
	if (table_enc != (DW_EH_PE_datarel | DW_EH_PE_sdata4) ||
	    !read_pointer(&r, &at_hdr, count_enc, 8, &count) || !count || count > bufr_left(&r) / 8 ||
	    count > UINT32_MAX)
		return;
	t->hdr = (struct bytes){ r.p, (size_t)count * 8 };
	t->hdr_vaddr = f->eh_frame_hdr;
	t->nhdr = (uint32_t)count;
}

/* ---- .debug_frame ---- */

static void open_debug_frame(struct fdes *fdes)
{
	if (!fdes->debug.is_indexed)
		(void)!sections_one(fdes->file, ".debug_frame", FDE_INFLATED_MAX, &fdes->debug.data, &fdes->inflated);
}

/* ---- both ---- */

struct fdes *fdes_new(const struct elffile *f)
{
	struct fdes *t = mem_calloc(1, sizeof(*t));
	struct elf_section s;

	t->file = f;
	open_eh_frame_hdr(f, &t->eh);
	if (!t->eh.nhdr && elffile_section(f, ".eh_frame", &s) == 0 && s.data.p) {
		t->eh.data = s.data;
		t->eh.vaddr = s.vaddr;
	}
	t->debug.is_debug_frame = true;
	return t;
}

struct fdes *fdes_free(struct fdes *t)
{
	if (!t)
		return NULL;
	free(t->eh.index);
	free(t->debug.index);
	free(t->inflated);
	free(t);
	return NULL;
}

bool fdes_find(struct fdes *t, uint64_t vaddr, struct fde *ret)
{
	struct fde fde;
	bool found;

	if (t->eh.nhdr) {
		found = find_in_hdr(&t->eh, vaddr, &fde);
	} else {
		make_index(t, &t->eh);
		found = find_in_index(&t->eh, vaddr, &fde);
	}
	if (!found) {
		open_debug_frame(t); /* late: most files never need it */
		make_index(t, &t->debug);
		found = find_in_index(&t->debug, vaddr, &fde);
	}
	if (found)
		*ret = fde;
	return found;
}

void fdes_each(struct fdes *t, bool (*fn)(void *arg, const struct fde *fde), void *arg)
{
	struct table *const tables[] = { &t->eh, &t->debug };
	struct fde fde;

	open_debug_frame(t);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		struct table *table = tables[i];

		if (!table->nhdr)
			make_index(t, table);
		for (uint32_t k = 0; k < table->nhdr; k++)
			if (hdr_fde(table, k, &fde) && !fn(arg, &fde))
				return;
		for (uint32_t k = 0; k < table->nindex; k++)
			if (fde_at(table, table->index[k].off, &fde) && !fn(arg, &fde))
				return;
	}
}
