#include "agent/procmaps.h"

#include <string.h>

/* "start-end perms offset major:minor inode   path" */
struct cursor {
	const char *p, *end;
	bool bad;
};

static uint64_t number(struct cursor *c, unsigned int base)
{
	const char *start = c->p;
	uint64_t v = 0;

	for (; c->p < c->end; c->p++) {
		unsigned char ch = (unsigned char)*c->p;
		unsigned int digit;

		if (ch >= '0' && ch <= '9')
			digit = ch - '0';
		else if (ch >= 'a' && ch <= 'f')
			digit = ch - 'a' + 10u;
		else
			break;
		if (digit >= base)
			break;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
			c->bad = true;
	}
	if (c->p == start)
		c->bad = true;
	return v;
}

static void expect(struct cursor *c, char ch)
{
	if (c->p < c->end && *c->p == ch)
		c->p++;
	else
		c->bad = true;
}

/* The four letters; true when the third is x. */
static bool perms(struct cursor *c)
{
	bool executable;

	if (c->end - c->p < 4) {
		c->bad = true;
		return false;
	}
	executable = c->p[2] == 'x';
	c->p += 4;
	return executable;
}

static uint32_t number32(struct cursor *c, unsigned int base)
{
	uint64_t v = number(c, base);

	if (v > UINT32_MAX)
		c->bad = true;
	return (uint32_t)v;
}

/* A file whose name holds the four characters \012 reads the same as one with a newline. */
static bool unescape(const char *p, size_t len, char path[EVENT_PATH_MAX + 1])
{
	size_t n = 0;

	if (len > EVENT_PATH_MAX || (len && memchr(p, 0, len)))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (len - i >= 4 && memcmp(p + i, "\\012", 4) == 0) {
			path[n++] = '\n';
			i += 3;
		} else {
			path[n++] = p[i];
		}
	}
	path[n] = 0;
	return true;
}

bool procmaps_line(const char *line, size_t len, bool any, struct event_map *ret,
		   char path[EVENT_PATH_MAX + 1])
{
	struct cursor c = { .p = line, .end = line + len };
	struct event_map m = {};
	bool executable;

	m.start = number(&c, 16);
	expect(&c, '-');
	m.end = number(&c, 16);
	expect(&c, ' ');
	executable = perms(&c);
	expect(&c, ' ');
	m.offset = number(&c, 16);
	expect(&c, ' ');
	m.key.dev_major = number32(&c, 16);
	expect(&c, ':');
	m.key.dev_minor = number32(&c, 16);
	expect(&c, ' ');
	m.key.inode = number(&c, 10);
	if (c.bad || m.start >= m.end || (!executable && !any))
		return false;
	/* Padding to a column; a path that begins with a blank is none of the kernel's. */
	while (c.p < c.end && *c.p == ' ')
		c.p++;
	if (!unescape(c.p, (size_t)(c.end - c.p), path))
		return false;
	m.path = *path ? path : "//anon";
	*ret = m;
	return true;
}

/* Takes text up to the end of its first line; true when that line is whole. */
static bool take_line(struct procmaps *p, const char **text, size_t *len)
{
	const char *nl = memchr(*text, '\n', *len);
	size_t n = nl ? (size_t)(nl - *text) : *len;

	if (n > sizeof(p->line) - p->len)
		p->skip = true;
	if (!p->skip) {
		memcpy(p->line + p->len, *text, n);
		p->len += n;
	}
	*text += n + (nl ? 1 : 0);
	*len -= n + (nl ? 1 : 0);
	return nl;
}

int procmaps_feed(struct procmaps *p, const char *text, size_t len, bool any, procmaps_fn *fn, void *arg)
{
	while (len > 0) {
		struct event_map m;
		int err;

		if (!take_line(p, &text, &len))
			break;
		if (!p->skip && procmaps_line(p->line, p->len, any, &m, p->path)) {
			err = fn(arg, &m);
			if (err)
				return err;
		}
		p->len = 0;
		p->skip = false;
	}
	return 0;
}
