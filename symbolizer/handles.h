/*
 * handles - the answerer's open files and symbol indexes, by the agent's file id.
 *
 * May touch: descriptors that it is given (never closes them), the heap.
 */
#ifndef SYMBOLIZER_HANDLES_H
#define SYMBOLIZER_HANDLES_H

#include "symbolizer/dwarf.h"
#include "symbolizer/demangle.h"
#include "symbolizer/fde.h"
#include "symbolizer/gopclntab.h"
#include "symbolizer/plt.h"
#include "symbolizer/jitmap.h"
#include "symbolizer/symtab.h"

enum {
	HANDLES_MAX = 12,
	HANDLES_SYMTABS_MAX = 64,
	HANDLES_SYMTAB_BYTES_MAX = 8 << 20,
	HANDLES_DWARFS_MAX = 32,
	HANDLES_CHECKED_MAX = 64,
	HANDLES_CRC_MAX = 1 << 30,	/* bytes of a file whose CRC is computed */
	HANDLES_JITMAPS_MAX = 64,
	HANDLES_JITMAP_BYTES_MAX = 16 << 20,
	HANDLES_DWARF_BYTES_MAX = 16 << 20,
};

struct handle {
	uint64_t id;
	uint64_t used;		/* the larger the later */
	struct elffile *elf;
	struct fdes *fdes;	/* made on first use: handles_fdes() */
	struct gopclntab *go;	/* the same: handles_go() */
	bool has_no_go;
	struct plt *plt;	/* the same: handles_plt() */
	struct sections *sections;	/* the same: handles_dwarf() */
	bool has_debug_sections;	/* they are of: */
	const struct elffile *debug;	/* its separate debug file, where one is attached */
	const struct elffile *alt;	/* and that one's */
	struct sections *alt_sections;
};

struct cached_symtab {
	uint64_t id;
	uint64_t used;
	bool has_debug;		/* a debug file was there when it was made */
	struct symtab *symtab;
};

struct cached_dwarf {
	uint64_t id;
	uint64_t used;
	bool is_of_debug, has_alt;
	struct dwarf *dwarf;
};

/* A debug file that is attached to a file, until handles_trim(). */
struct attached {
	uint64_t id;		/* of the file that it belongs to; 0: free */
	uint64_t used;
	struct elffile *elf;
	struct elffile *alt;	/* what dwz moved parts of it to; NULL: not attached */
};

/* A file whose CRC was computed: that costs more than all else. */
struct checked {
	uint64_t dev, inode, size, mtime_ns;
	uint32_t crc;
};

struct cached_jitmap {
	uint64_t id;
	uint64_t used;
	struct jitmap *map;	/* answer_jit.c's */
};

struct handles {
	enum demangle_style style;	/* of the names in answers */
	struct handle open[HANDLES_MAX];
	struct cached_symtab symtabs[HANDLES_SYMTABS_MAX];
	struct cached_dwarf dwarfs[HANDLES_DWARFS_MAX];
	struct attached attached[HANDLES_MAX];
	struct checked checked[HANDLES_CHECKED_MAX];
	uint32_t nchecked;
	struct cached_jitmap jitmaps[HANDLES_JITMAPS_MAX];
	uint64_t clock;
};

void handles_fini(struct handles *h);

/* The file of this id: open already, or opened from fd. 0, a positive enum msg_file_result, -errno. */
MUST_USE int handles_open(struct handles *h, uint64_t id, int fd, struct handle **ret);
struct fdes *handles_fdes(struct handle *handle);
/* Refilled, once a request; NULL: the file is not Go's. */
struct gopclntab *handles_go(struct handle *handle);
struct plt *handles_plt(struct handle *handle);
/*
 * Valid until the next call for another file. For `names` it is of the debug file where one is attached; otherwise
 * whichever there is, of which the names may not be readable.
 */
const struct symtab *handles_symtab(struct handles *h, const struct handle *handle, bool names);

/* Takes the file of this descriptor for the debug file that it is said to be, if it is. */
bool handles_attach(struct handles *h, const struct msg_debug *d, int fd);
const struct elffile *handles_attached(struct handles *h, uint64_t id); /* the debug file; NULL: none */
/* Refilled, once a request, with its handle's sections open; NULL: the file has no debug information. */
struct dwarf *handles_dwarf(struct handles *h, struct handle *handle);
/* Closes the file and forgets its index: what was read of it is not to be trusted. */
void handles_forget(struct handles *h, struct handle *handle);
/* Closes all files, and drops the indexes used longest ago that are over the limit. */
void handles_trim(struct handles *h);
bool handles_any_open(const struct handles *h);

#endif
