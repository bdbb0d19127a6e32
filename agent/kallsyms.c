#include "agent/kallsyms.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { PROGRAMS_MAX = 4096, KNOWN_MAX = 65536, NAME_BYTES = 512, MODULES_MAX = 4096, TABLE_MAX_BYTES = 8 << 20 };

/* Source: CONFIG_PHYSICAL_ALIGN; the image moves by multiples of it. */
#define LAYOUT_ALIGN (2ull << 20)
/* BPF programs and trampolines have no other bound than the next symbol. */
#define LOOSE_MAX_BYTES (64ull << 10)

struct known {
	uint64_t address, relative;
	char *name;	/* "" unknown */
	char *module;
};

struct module {
	uint64_t start, end;
	char name[64];
};

/* Where the kernel's own code is; 0 unknown. */
struct image {
	uint64_t text, stext, etext;
	uint64_t nsymbols;		/* with an address */
};

/*
 * The symbols of code as they were read last: having the kernel print them all again costs a tenth of
 * a second, and there are new addresses in every window.
 */
struct table {
	char *bytes;			/* a struct entry, a name and a module, both with their 0, again and again */
	size_t len, cap;
	struct image image;
	struct module *modules;		/* of then */
	uint32_t nmodules;
};

struct entry {
	uint64_t address;
	uint32_t name_bytes, module_bytes;
};

/* What one reading of the files has found for the addresses that are new. */
struct search {
	const uint64_t *addresses;	/* sorted */
	uint32_t n;
	struct candidate {
		uint64_t symbol;
		char *name, *module;	/* one allocation, of `room` bytes */
		size_t room;
		const char *entry; /* in the table, its name */
	} *best;
	struct module *modules;
	uint32_t nmodules;
	struct image image;
};

/* A BPF program that was loaded since we listen. */
struct program {
	uint64_t address;
	uint32_t bytes;
	char *name;
};

struct kallsyms {
	struct program *programs;	/* by age; they do not overlap */
	uint32_t nprograms, cap_programs;
	struct known *known;	/* sorted by address */
	uint32_t nknown;
	struct table table;
	bool warned;
};

int kallsyms_new(struct kallsyms **ret)
{
	struct kallsyms *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	*ret = k;
	return 0;
}

static void forget(struct kallsyms *k)
{
	for (uint32_t i = 0; i < k->nknown; i++) {
		free(k->known[i].name);
		free(k->known[i].module);
	}
	free(TAKE(k->known));
	k->nknown = 0;
}

static void table_drop(struct table *t)
{
	free(t->bytes);
	free(t->modules);
	*t = (struct table){ 0 };
}

/* ---- code that comes and goes ---- */

static void drop_program(struct kallsyms *k, uint32_t i)
{
	free(k->programs[i].name);
	k->nprograms--;
	memmove(&k->programs[i], &k->programs[i + 1], (k->nprograms - i) * sizeof(*k->programs));
}

static const struct program *find_program(const struct kallsyms *k, uint64_t address)
{
	for (uint32_t i = 0; i < k->nprograms; i++) {
		if (address - k->programs[i].address < k->programs[i].bytes)
			return &k->programs[i];
	}
	return NULL;
}

/* What was known of this place is of code that is not there any more. */
static void clear_place(struct kallsyms *k, uint64_t start, uint64_t bytes)
{
	uint32_t kept = 0;

	for (uint32_t i = k->nprograms; i--;) {
		const struct program *p = &k->programs[i];

		if (p->address - start < bytes || start - p->address < p->bytes)
			drop_program(k, i);
	}
	for (uint32_t i = 0; i < k->nknown; i++) {
		if (k->known[i].address - start >= bytes) {
			k->known[kept++] = k->known[i];
			continue;
		}
		free(k->known[i].name);
		free(k->known[i].module);
	}
	k->nknown = kept;
}

int kallsyms_code(struct kallsyms *k, const struct event_code *code)
{
	struct program p = { .address = code->address, .bytes = code->bytes };

	/* Stacks of this window may still be in it. */
	if (code->gone)
		return 0;
	clear_place(k, code->address, code->bytes);
	if (!code->is_bpf)
		return 0;
	if (k->nprograms == PROGRAMS_MAX)
		drop_program(k, 0);
	if (k->nprograms == k->cap_programs) {
		uint32_t cap = k->cap_programs ? k->cap_programs * 2 : 16;
		struct program *bigger = reallocarray(k->programs, cap, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		k->programs = bigger;
		k->cap_programs = cap;
	}
	p.name = strdup(code->name);
	if (!p.name)
		return -ENOMEM;
	k->programs[k->nprograms++] = p;
	return 0;
}

void kallsyms_doubt(struct kallsyms *k)
{
	while (k->nprograms)
		drop_program(k, k->nprograms - 1);
	forget(k);
}

struct kallsyms *kallsyms_free(struct kallsyms *k)
{
	if (!k)
		return NULL;
	kallsyms_doubt(k);
	free(k->programs);
	table_drop(&k->table);
	free(k);
	return NULL;
}

static void search_fini(struct search *s)
{
	for (uint32_t i = 0; s->best && i < s->n; i++)
		free(s->best[i].name);
	free(s->best);
	free(s->modules);
}

static uint32_t first_at_or_after(const struct search *s, uint64_t address)
{
	uint32_t lo = 0, hi = s->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->addresses[mid] < address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Called for most symbols below an address, one after the other: memory is used again. */
static int set_candidate(struct candidate *c, uint64_t symbol, const char *name, const char *module)
{
	size_t name_bytes = strlen(name) + 1, module_bytes = strlen(module) + 1;

	if (name_bytes + module_bytes > c->room) {
		size_t room = MAX(name_bytes + module_bytes, (size_t)64);

		free(c->name);
		c->room = 0;
		c->name = malloc(room);
		if (!c->name)
			return -ENOMEM;
		c->room = room;
	}
	memcpy(c->name, name, name_bytes);
	c->module = memcpy(c->name + name_bytes, module, module_bytes);
	c->symbol = symbol;
	return 0;
}

/* Keeps it for the next time. A table that would be too large is dropped: the files are read again then. */
static void table_add(struct table *t, uint64_t address, const char *name, const char *module)
{
	const struct entry e = {
		.address = address, .name_bytes = (uint32_t)strlen(name) + 1, .module_bytes = (uint32_t)strlen(module) + 1,
	};
	size_t need = sizeof(e) + e.name_bytes + e.module_bytes;

	if (!t->bytes)
		return;
	if (need > t->cap - t->len) {
		char *bigger = t->cap < TABLE_MAX_BYTES ? realloc(t->bytes, t->cap * 2) : NULL;

		if (!bigger) {
			table_drop(t);
			return;
		}
		t->bytes = bigger;
		t->cap *= 2;
	}
	memcpy(t->bytes + t->len, &e, sizeof(e));
	memcpy(t->bytes + t->len + sizeof(e), name, e.name_bytes);
	memcpy(t->bytes + t->len + sizeof(e) + e.name_bytes, module, e.module_bytes);
	t->len += need;
}

static int take_symbol(struct search *s, struct table *t, uint64_t address, char type, const char *name,
		       const char *module)
{
	uint32_t i;

	if (!address)
		return 0;
	s->image.nsymbols++;
	if (!module[0]) {
		if (strcmp(name, "_text") == 0)
			s->image.text = address;
		else if (strcmp(name, "_stext") == 0)
			s->image.stext = address;
		else if (strcmp(name, "_etext") == 0)
			s->image.etext = address;
	}
	if (!strchr("tTwWi", type))
		return 0;
	table_add(t, address, name, module);
	i = first_at_or_after(s, address);
	if (i == s->n || s->best[i].symbol >= address)
		return 0;
	return set_candidate(&s->best[i], address, name, module);
}

/* "ffffffff81000000 T _text", and behind it a tab and "[module]". sscanf(3) would cost five times as much. */
static int take_line(struct search *s, struct table *t, char *line)
{
	const char *module = "";
	char *name, *text, *p;
	uint64_t address = strtoull(line, &p, 16);
	char type;

	if (p == line || p[0] != ' ' || !p[1] || p[2] != ' ')
		return 0;
	type = p[1];
	name = p + 3;
	p = name + strcspn(name, " \t\n");
	if (*p && *p != '\n' && p[1] == '[') {
		text = p + 2;
		text[strcspn(text, "]\n")] = 0;
		module = text;
	}
	*p = 0;
	return *name ? take_symbol(s, t, address, type, name, module) : 0;
}

static int read_symbols(struct search *s, struct table *t)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[NAME_BYTES + 128];
	int err = 0;

	if (!f)
		return 0; /* no names; said by the caller */
	while (!err && fgets(line, sizeof(line), f))
		err = take_line(s, t, line);
	fclose(f);
	return err;
}

static int read_modules(struct search *s)
{
	FILE *f = fopen("/proc/modules", "re");
	char line[4096];
	uint32_t cap = 0;

	if (!f)
		return 0;
	while (s->nmodules < MODULES_MAX && fgets(line, sizeof(line), f)) {
		unsigned long long size, start;
		struct module m = { 0 };

		if (sscanf(line, "%63s %llu %*s %*s %*s %llx", m.name, &size, &start) != 3 || !start)
			continue;
		m.start = start;
		m.end = start + size;
		if (s->nmodules == cap) {
			struct module *bigger;

			cap = cap ? cap * 2 : 64;
			bigger = reallocarray(s->modules, cap, sizeof(*bigger));
			if (!bigger) {
				fclose(f);
				return -ENOMEM;
			}
			s->modules = bigger;
		}
		s->modules[s->nmodules++] = m;
	}
	fclose(f);
	return 0;
}

/*
 * The one that begins last: since Linux 6.4 the size counts all memory of a module, while only its text
 * is where it begins, so that ranges overlap.
 */
static const struct module *module_of(const struct search *s, uint64_t address)
{
	const struct module *best = NULL;

	for (uint32_t i = 0; i < s->nmodules; i++) {
		const struct module *m = &s->modules[i];

		if (address >= m->start && address < m->end && (!best || m->start > best->start))
			best = m;
	}
	return best;
}

/* The kernel's own code never changes, that of a module lives as long as the module; other code comes and goes. */
static bool table_covers(const struct table *t, const struct search *s)
{
	if (!t->len || t->nmodules != s->nmodules ||
	    (s->nmodules && memcmp(t->modules, s->modules, s->nmodules * sizeof(*s->modules)) != 0))
		return false;
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t address = s->addresses[i];

		if ((address < t->image.stext || address >= t->image.etext) && !module_of(s, address))
			return false;
	}
	return true;
}

static int search_table(struct search *s, const struct table *t)
{
	struct entry e;
	int err = 0;

	s->image = t->image;
	for (size_t at = 0; at < t->len; at += sizeof(e) + e.name_bytes + e.module_bytes) {
		uint32_t i;

		memcpy(&e, t->bytes + at, sizeof(e));
		i = first_at_or_after(s, e.address);
		if (i == s->n || s->best[i].symbol >= e.address)
			continue;
		s->best[i].symbol = e.address;
		s->best[i].entry = t->bytes + at + sizeof(e);
	}
	for (uint32_t i = 0; !err && i < s->n; i++) {
		struct candidate *c = &s->best[i];

		if (c->entry)
			err = set_candidate(c, c->symbol, c->entry, c->entry + strlen(c->entry) + 1);
	}
	return err;
}

static int search_files(struct search *s, struct table *t)
{
	int err;

	table_drop(t);
	t->cap = TABLE_MAX_BYTES / 64;
	t->bytes = malloc(t->cap);
	err = read_symbols(s, t);
	if (err || !t->bytes || !s->image.nsymbols) {
		table_drop(t);
		return err;
	}
	t->image = s->image;
	t->nmodules = s->nmodules;
	t->modules = calloc(s->nmodules + 1, sizeof(*t->modules));
	if (!t->modules)
		table_drop(t);
	else if (s->nmodules)
		memcpy(t->modules, s->modules, s->nmodules * sizeof(*s->modules));
	return 0;
}

static char *bracketed(const char *name)
{
	char *text;

	return asprintf(&text, "[%s]", name) < 0 ? NULL : text;
}

/* Decides what an address belongs to, and whether the nearest symbol below it is in there too. */
static int conclude(const struct search *s, uint64_t address, const struct candidate *near, struct known *ret)
{
	const struct module *m = module_of(s, address);
	const char *region = "kernel", *name = "";
	uint64_t base = s->image.text ? s->image.text : address & ~(LAYOUT_ALIGN - 1);

	if (m) {
		region = m->name;
		base = m->start;
		if (near && near->symbol >= m->start && strcmp(near->module, m->name) == 0)
			name = near->name;
	} else if (s->image.stext && address >= s->image.stext && address < s->image.etext) {
		if (near && !near->module[0])
			name = near->name;
	} else if (near && near->module[0] && address - near->symbol < LOOSE_MAX_BYTES &&
		   !module_of(s, near->symbol)) {
		/* A kind of code that the kernel names as a module of its own: [bpf], [__builtin__ftrace]. */
		region = near->module;
		base = near->symbol;
		name = near->name;
	} else if (s->image.text) {
		base = address & ~(LAYOUT_ALIGN - 1);
	}
	*ret = (struct known){ .address = address, .relative = address - base };
	ret->name = strdup(name);
	ret->module = bracketed(region);
	return ret->name && ret->module ? 0 : -ENOMEM;
}

static int by_address(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static int add_known(struct kallsyms *k, struct search *s)
{
	struct known *bigger = reallocarray(k->known, k->nknown + s->n, sizeof(*bigger));
	const struct candidate *near = NULL;

	if (!bigger)
		return -ENOMEM;
	k->known = bigger;
	for (uint32_t i = 0; i < s->n; i++) {
		int err;

		if (s->best[i].symbol)
			near = &s->best[i];
		err = conclude(s, s->addresses[i], near, &k->known[k->nknown]);
		k->nknown++;
		if (err) {
			forget(k); /* it holds one that is half made, and is not sorted */
			return err;
		}
	}
	qsort(k->known, k->nknown, sizeof(*k->known), by_address);
	return 0;
}

static int learn(struct kallsyms *k, const uint64_t *addresses, uint32_t n)
{
	CLEANUP(search_fini) struct search s = { .addresses = addresses, .n = n };
	int err;

	if (k->nknown + n > KNOWN_MAX)
		forget(k);
	s.best = calloc(n, sizeof(*s.best));
	if (!s.best)
		return -ENOMEM;
	err = read_modules(&s);
	if (!err)
		err = table_covers(&k->table, &s) ? search_table(&s, &k->table) : search_files(&s, &k->table);
	if (err)
		return err;
	if (!s.image.nsymbols && !k->warned) {
		k->warned = true;
		log_warning("kernel symbols are hidden: kernel frames have no names; "
			    "needs kernel.kptr_restrict below 2 and CAP_SYSLOG");
	}
	return add_known(k, &s);
}

static int u64_order(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static const struct known *find(const struct kallsyms *k, uint64_t address)
{
	struct known key = { .address = address };

	return k->nknown ? bsearch(&key, k->known, k->nknown, sizeof(*k->known), by_address) : NULL;
}

int kallsyms_resolve(struct kallsyms *k, const uint64_t *addresses, uint32_t n, struct event_kernel_symbol *ret)
{
	CLEANUP_FREE uint64_t *unknown = calloc(n + 1, sizeof(*unknown));
	uint32_t nunknown = 0, kept = 0;

	if (!unknown)
		return -ENOMEM;
	/* Answers are borrowed from what is known, so it must not be forgotten between two addresses. */
	if (k->nknown + n > KNOWN_MAX)
		forget(k);
	for (uint32_t i = 0; i < n; i++) {
		if (!find_program(k, addresses[i]) && !find(k, addresses[i]))
			unknown[nunknown++] = addresses[i];
	}
	qsort(unknown, nunknown, sizeof(*unknown), u64_order);
	for (uint32_t i = 0; i < nunknown; i++) {
		if (!kept || unknown[kept - 1] != unknown[i])
			unknown[kept++] = unknown[i];
	}
	if (kept) {
		int err = learn(k, unknown, kept);

		if (err)
			return err;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct program *p = find_program(k, addresses[i]);
		const struct known *f = p ? NULL : find(k, addresses[i]);

		ret[i] = (struct event_kernel_symbol){ .address = addresses[i], .name = "", .module = "[kernel]" };
		if (f) {
			ret[i].relative = f->relative;
			ret[i].name = f->name;
			ret[i].module = f->module;
		}
		if (p) {
			ret[i].relative = addresses[i] - p->address;
			ret[i].name = p->name;
			ret[i].module = "[bpf]";
		}
	}
	return 0;
}
