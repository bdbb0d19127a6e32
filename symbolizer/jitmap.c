#include "symbolizer/jitmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbolizer/mem.h"

/* Source: tools/perf/util/jitdump.h. In the writer's byte order. */
enum {
	DUMP_MAGIC = 0x4A695444,
	DUMP_MAGIC_SWAPPED = 0x4454694A,
	DUMP_HEADER = 40,
	DUMP_RECORD = 16,	/* u32 id, u32 size, u64 time */
	DUMP_LOAD = 56,		/* u32 pid, tid, u64 vma, address, size, index; name, code */
	DUMP_MOVE = 64,		/* u32 pid, tid, u64 vma, old address, new address, size, index */
	DUMP_DEBUG = 32,	/* u64 address, number of lines; lines */
	DUMP_LINE = 16,		/* u64 address, u32 line, discriminator; name */
	RECORD_LOAD = 0,
	RECORD_MOVE = 1,
	RECORD_DEBUG = 2,
	RECORD_CLOSE = 3,
};
enum {
	CHUNK = 64 * 1024,
	DEBUG_MAX = 256 * 1024,		/* bytes of the lines of one piece of code */
	MOVE_LOOKS_MAX = 4 << 20,	/* entries looked at for moved code, in one call */
};

/* Offsets fit, as JITMAP_BYTES_MAX is looked at. */
struct entry {
	uint64_t start;
	uint64_t delta;		/* how far it was moved since its lines were written */
	uint64_t index;		/* of a jitdump's code */
	uint32_t size;
	uint32_t name_off, name_len;
	uint32_t debug_off, debug_len;	/* 0: no lines */
};

struct jitmap {
	bool is_dump, is_known, is_over, is_skipping;
	uint64_t dev, inode, at;
	uint64_t debug_start;	/* lines that came before their code */
	uint32_t debug_off, debug_len;
	struct entry *v;
	uint32_t n, cap;
	uint32_t move_looks;
	bool told;
	uint8_t chunk[CHUNK];
};

struct jitmap *jitmap_new(void)
{
	return mem_calloc(1, sizeof(struct jitmap));
}

struct jitmap *jitmap_free(struct jitmap *m)
{
	if (m)
		free(m->v);
	free(m);
	return NULL;
}

bool jitmap_is_over(const struct jitmap *m)
{
	return m->is_over;
}

size_t jitmap_bytes(const struct jitmap *m)
{
	return sizeof(*m) + m->cap * sizeof(*m->v);
}

static void forget(struct jitmap *m)
{
	m->n = 0;
	m->at = 0;
	m->debug_len = 0;
	m->is_known = m->is_over = m->is_skipping = false;
}

static void end(struct jitmap *m)
{
	m->is_over = true;
	if (!m->told)
		log_warning("a JIT's map is larger than what is read of it, its later code has no names entries=%u", m->n);
	m->told = true;
}

static void add(struct jitmap *m, const struct entry *e)
{
	if (!e->size || e->start > UINT64_MAX - e->size)
		return;
	if (m->n == JITMAP_ENTRIES_MAX) {
		end(m);
		return;
	}
	m->v = mem_grow(m->v, &m->cap, m->n + 1, sizeof(*m->v));
	m->v[m->n++] = *e;
}

/* ---- perf map ---- */

/* A hexadecimal number and the blanks behind it; false: there is none, or it needs more than 64 bits. */
static bool take_hex(const uint8_t **p, const uint8_t *last, uint64_t *ret)
{
	const uint8_t *at = *p, *first;
	uint64_t value = 0;

	if (last - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
		at += 2;
	for (first = at; at < last; at++) {
		uint8_t lower = *at | 0x20, digit;

		if (*at >= '0' && *at <= '9')
			digit = *at - '0';
		else if (lower >= 'a' && lower <= 'f')
			digit = (uint8_t)(lower - 'a' + 10);
		else
			break;
		if (value >> 60)
			return false;
		value = value << 4 | digit;
	}
	if (at == first || at == last || (*at != ' ' && *at != '\t'))
		return false;
	while (at < last && (*at == ' ' || *at == '\t'))
		at++;
	*p = at;
	*ret = value;
	return true;
}

static void take_line(struct jitmap *m, const uint8_t *line, const uint8_t *last)
{
	struct entry e = { 0 };
	const uint8_t *p = line;
	uint64_t size;

	while (p < last && (*p == ' ' || *p == '\t'))
		p++;
	while (last > p && (last[-1] == '\r' || last[-1] == ' '))
		last--;
	if (!take_hex(&p, last, &e.start) || !take_hex(&p, last, &size) || p == last || size > UINT32_MAX)
		return;
	e.size = (uint32_t)size;
	e.name_off = (uint32_t)(m->at + (uint64_t)(p - m->chunk));
	e.name_len = (uint32_t)MIN((size_t)(last - p), (size_t)MSG_NAME_MAX);
	add(m, &e);
}

/* Whole lines of m->chunk; returns how many bytes they are. A line that fills it is passed over. */
static size_t take_lines(struct jitmap *m, size_t len)
{
	const uint8_t *p = m->chunk, *last = m->chunk + len, *newline;

	while (!m->is_over && (newline = memchr(p, '\n', (size_t)(last - p)))) {
		if (!m->is_skipping)
			take_line(m, p, newline);
		m->is_skipping = false;
		p = newline + 1;
	}
	if (p == m->chunk && len == CHUNK) {
		m->is_skipping = true;
		return len;
	}
	return (size_t)(p - m->chunk);
}

static void read_text(struct jitmap *m, int fd)
{
	uint64_t stop = MIN(m->at + JITMAP_STEP_BYTES, (uint64_t)JITMAP_BYTES_MAX);

	while (!m->is_over && m->at < stop) {
		ssize_t n = pread(fd, m->chunk, CHUNK, (off_t)m->at);
		size_t used = n > 0 ? take_lines(m, (size_t)n) : 0;

		if (!used)
			return;
		m->at += used;
	}
	if (m->at >= JITMAP_BYTES_MAX && !m->is_over)
		end(m);
}

/* ---- jitdump ---- */

static uint32_t u32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t u64_at(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void take_load(struct jitmap *m, const uint8_t *r, uint32_t size)
{
	uint64_t code_size = u64_at(r + 40);
	struct entry e = { .start = u64_at(r + 32), .index = u64_at(r + 48) };

	if (size < DUMP_LOAD || code_size > size - DUMP_LOAD)
		return;
	e.size = (uint32_t)code_size;
	e.name_off = (uint32_t)m->at + DUMP_LOAD;
	e.name_len = MIN(size - DUMP_LOAD - e.size, (uint32_t)MSG_NAME_MAX);
	if (m->debug_len && m->debug_start == e.start) {
		e.debug_off = m->debug_off;
		e.debug_len = m->debug_len;
	}
	m->debug_len = 0;
	add(m, &e);
}

static void take_move(struct jitmap *m, const uint8_t *r, uint32_t size)
{
	uint64_t from = u64_at(r + 32), index = u64_at(r + 56);

	if (size < DUMP_MOVE)
		return;
	for (uint32_t i = m->n; i-- && m->move_looks < MOVE_LOOKS_MAX; m->move_looks++) {
		if (m->v[i].index == index && m->v[i].start == from) {
			struct entry e = m->v[i];

			e.start = u64_at(r + 40);
			e.delta += e.start - from;
			add(m, &e);
			return;
		}
	}
}

static void take_record(struct jitmap *m, const uint8_t *r, uint32_t id, uint32_t size)
{
	switch (id) {
	case RECORD_LOAD:
		take_load(m, r, size);
		break;
	case RECORD_MOVE:
		take_move(m, r, size);
		break;
	case RECORD_DEBUG:
		if (size < DUMP_DEBUG)
			break;
		m->debug_start = u64_at(r + 16);
		m->debug_off = (uint32_t)m->at + DUMP_DEBUG;
		m->debug_len = MIN(size - DUMP_DEBUG, (uint32_t)DEBUG_MAX);
		break;
	case RECORD_CLOSE:
		m->is_over = true;
		break;
	default:
		break;
	}
}

static void read_dump(struct jitmap *m, int fd, uint64_t file_size)
{
	m->move_looks = 0;
	for (uint32_t i = 0; i < JITMAP_STEP_RECORDS && !m->is_over; i++) {
		uint8_t r[DUMP_MOVE] = { 0 };
		uint32_t size;

		if (pread(fd, r, sizeof(r), (off_t)m->at) < DUMP_RECORD)
			return;
		size = u32_at(r + 4);
		/* A size that is not there yet is 0. */
		if (size < DUMP_RECORD || size > file_size - MIN(file_size, m->at))
			return;
		if (m->at > JITMAP_BYTES_MAX - MIN(size, (uint32_t)JITMAP_BYTES_MAX)) {
			end(m);
			return;
		}
		take_record(m, r, u32_at(r), size);
		m->at += size;
	}
}

static int begin(struct jitmap *m, int fd)
{
	uint8_t head[DUMP_HEADER];
	ssize_t n = pread(fd, head, sizeof(head), 0);
	uint32_t size;

	if (n < 4)
		return 0;
	if (u32_at(head) == DUMP_MAGIC_SWAPPED)
		return MSG_FILE_UNSUPPORTED;
	m->is_dump = u32_at(head) == DUMP_MAGIC;
	if (m->is_dump && n < DUMP_HEADER)
		return 0;
	size = m->is_dump ? u32_at(head + 8) : 0;
	if (m->is_dump && (size < DUMP_HEADER || size > CHUNK))
		return MSG_FILE_UNSUPPORTED;
	m->at = size;
	m->is_known = true;
	return 0;
}

/* ---- both ---- */

int jitmap_read(struct jitmap *m, int fd)
{
	struct stat st;
	int err;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return MSG_FILE_UNREADABLE;
	if (st.st_dev != m->dev || st.st_ino != m->inode || (uint64_t)st.st_size < m->at)
		forget(m);
	m->dev = st.st_dev;
	m->inode = st.st_ino;
	if (!m->is_known && (err = begin(m, fd)))
		return err;
	if (m->is_known && m->is_dump)
		read_dump(m, fd, (uint64_t)st.st_size);
	else if (m->is_known)
		read_text(m, fd);
	return 0;
}

struct wanted {
	uint64_t address;
	uint32_t place;		/* in the question */
	uint32_t next;		/* the first at or after it that has no entry yet, or a step towards it */
};

static int by_address(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static uint32_t next_open(struct wanted *w, uint32_t i)
{
	while (w[i].next != i) {
		w[i].next = w[w[i].next].next;
		i = w[i].next;
	}
	return i;
}

static uint32_t lower_bound(const struct wanted *w, uint32_t n, uint64_t address)
{
	uint32_t low = 0, high = n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (w[mid].address < address)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void jitmap_find(const struct jitmap *m, const uint64_t *addresses, uint32_t n, uint32_t *ret)
{
	CLEANUP_FREE struct wanted *w = mem_calloc((size_t)n + 1, sizeof(*w));
	uint32_t nleft = n;

	for (uint32_t i = 0; i < n; i++) {
		w[i] = (struct wanted){ .address = addresses[i], .place = i };
		ret[i] = UINT32_MAX;
	}
	qsort(w, n, sizeof(*w), by_address);
	for (uint32_t i = 0; i <= n; i++)
		w[i].next = i;
	for (uint32_t k = m->n; k-- && nleft;) {
		const struct entry *e = &m->v[k];
		uint32_t i = next_open(w, lower_bound(w, n, e->start));

		for (; i < n && w[i].address - e->start < e->size; i = next_open(w, i)) {
			ret[w[i].place] = k;
			w[i].next = i + 1;
			nleft--;
		}
	}
}

static void read_string(int fd, uint32_t off, uint32_t len, char *ret)
{
	ssize_t n = pread(fd, ret, MIN(len, (uint32_t)MSG_NAME_MAX), (off_t)off);

	ret[MAX(n, (ssize_t)0)] = 0;
}

/* The last line that begins at or before the address; one without a name has that of the line before. */
static void find_line(int fd, const struct entry *e, uint64_t address, struct jitmap_found *ret)
{
	CLEANUP_FREE uint8_t *text = mem_calloc(1, (size_t)e->debug_len + 1);
	ssize_t n = pread(fd, text, e->debug_len, (off_t)e->debug_off);
	const char *file = "", *found = "";
	uint64_t best = 0;
	size_t left = n > 0 ? (size_t)n : 0;

	for (const uint8_t *p = text; left > DUMP_LINE;) {
		const char *name = (const char *)p + DUMP_LINE;
		size_t len = strnlen(name, left - DUMP_LINE);
		uint64_t start = u64_at(p);

		if (len == left - DUMP_LINE)
			break;
		if (strcmp(name, "\xff") != 0)
			file = name;
		if (start <= address && start >= best && start >= e->start - e->delta) {
			best = start;
			found = file;
			ret->line = u32_at(p + 8);
		}
		p += DUMP_LINE + len + 1;
		left -= DUMP_LINE + len + 1;
	}
	if (ret->line > INT32_MAX)
		ret->line = 0;
	snprintf(ret->file, sizeof(ret->file), "%s", found);
}

void jitmap_name(const struct jitmap *m, int fd, uint32_t entry, uint64_t address, struct jitmap_found *ret)
{
	const struct entry *e = &m->v[entry];

	ret->entry = entry;
	ret->line = 0;
	ret->file[0] = 0;
	read_string(fd, e->name_off, e->name_len, ret->name);
	if (e->debug_len)
		find_line(fd, e, address - e->delta, ret);
}
