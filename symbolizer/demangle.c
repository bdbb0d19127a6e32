#include "symbolizer/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/*
 * libiberty writes through a callback that cannot refuse, so overflow leaves by longjmp. What it
 * skips is libiberty's stack, and for Rust names with punycode one small buffer.
 */
struct sink {
	jmp_buf overflow;
	size_t len;
	char text[MSG_NAME_MAX];
};

static void on_text(const char *p, size_t len, void *arg)
{
	struct sink *s = arg;

	if (len > sizeof(s->text) - s->len)
		longjmp(s->overflow, 1);
	if (len) /* libiberty gives NULL for nothing */
		memcpy(s->text + s->len, p, len);
	s->len += len;
}

typedef int demangler(const char *symbol, int options, demangle_callbackref fn, void *arg);

/* Apart from its caller, whose variables longjmp might spoil. */
static bool run_demangler(demangler *fn, const char *symbol, int options, struct sink *s)
{
	s->len = 0;
	if (setjmp(s->overflow))
		return false;
	return fn(symbol, options, on_text, s) && s->len;
}

static size_t count(const char *s, char c)
{
	size_t n = 0;

	for (; *s; s++)
		n += *s == c;
	return n;
}

/* The length without `(...)` and what stands behind it; the parameters of a template are no such. */
static size_t without_parameters(const char *s, size_t len)
{
	const char *close = memrchr(s, ')', len);
	size_t at = close ? (size_t)(close - s) : 0, depth = 0;

	for (; at; at--) {
		depth += s[at] == ')';
		depth -= s[at] == '(';
		if (!depth)
			return s[at - 1] == '!' ? len : at;
	}
	return len;
}

static bool try_d(const char *symbol, enum demangle_style style, struct sink *s)
{
	size_t len = strlen(symbol);
	char *text;

	if (strncmp(symbol, "_D", 2) != 0 || len > DEMANGLE_D_SYMBOL_MAX ||
	    count(symbol, 'Q') > DEMANGLE_D_REFERENCES_MAX)
		return false;
	text = dlang_demangle(symbol, DMGL_NO_OPTS);
	if (!text)
		return false;
	len = strlen(text);
	if (style == DEMANGLE_SHORT)
		len = without_parameters(text, len);
	s->len = len <= sizeof(s->text) ? len : 0;
	memcpy(s->text, text, s->len);
	free(text);
	return s->len;
}

static bool try_demangle(const char *symbol, enum demangle_style style, struct sink *s)
{
	int options = style == DEMANGLE_FULL ? DMGL_PARAMS | DMGL_ANSI : DMGL_NO_OPTS;
	bool is_cxx = strncmp(symbol, "_Z", 2) == 0 || strncmp(symbol, "_GLOBAL_", 8) == 0;

	if (!is_cxx && strncmp(symbol, "_R", 2) != 0)
		return try_d(symbol, style, s);
	/* Rust's legacy names are C++ names too; only theirs end with a hash. */
	return run_demangler(rust_demangle_callback, symbol, options, s) ||
	       (is_cxx && run_demangler(cplus_demangle_v3_callback, symbol, options, s));
}

/* Valid UTF-8 without control characters, cut at a character; `to` holds MSG_NAME_MAX + 1. */
static void copy_clean(char *to, const void *from, size_t len)
{
	const uint8_t *p = from;
	size_t n = 0, step;

	for (size_t i = 0; i < len; i += step) {
		step = msg_utf8_len(p + i, len - i);
		if (n + MAX(step, (size_t)1) > MSG_NAME_MAX)
			break;
		if (!step || (step == 1 && (p[i] < 0x20 || p[i] == 0x7f)) ||
		    (step == 2 && p[i] == 0xc2 && p[i + 1] < 0xa0)) {
			to[n++] = '?';
			step = MAX(step, (size_t)1);
			continue;
		}
		memcpy(to + n, p + i, step);
		n += step;
	}
	to[n] = '\0';
}

static size_t digits_before(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && s[len - 1 - n] >= '0' && s[len - 1 - n] <= '9')
		n++;
	return n;
}

/* The length without one such suffix, `len` itself when there is none. */
static size_t strip_one_clone(const char *s, size_t len)
{
	static const struct {
		const char *text;
		bool may_lack_number;
	} clones[] = {
		{ ".cold", true },	 { ".part", false }, { ".constprop", false }, { ".isra", false },
		{ ".lto_priv", false },	 { ".llvm", false }, { ".localalias", true },
	};
	size_t digits = digits_before(s, len);
	size_t head = digits && digits < len && s[len - digits - 1] == '.' ? len - digits - 1 : len;

	for (size_t i = 0; i < ARRAY_SIZE(clones); i++) {
		size_t n = strlen(clones[i].text);

		if (head == len && !clones[i].may_lack_number)
			continue;
		if (head > n && memcmp(s + head - n, clones[i].text, n) == 0)
			return head - n;
	}
	return len;
}

static size_t strip_clones(const char *s, size_t len)
{
	size_t shorter;

	while ((shorter = strip_one_clone(s, len)) < len)
		len = shorter;
	return len;
}

bool demangle_parse_style(const char *text, enum demangle_style *ret)
{
	static const char *const styles[] = { "short", "full", "none" };

	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		if (strcmp(text, styles[i]) == 0) {
			*ret = (enum demangle_style)i;
			return true;
		}
	}
	return false;
}

void demangle(struct bytes symbol, bool is_go, enum demangle_style style, struct demangled *ret)
{
	char base[DEMANGLE_SYMBOL_MAX + 1];
	struct sink sink;
	bool is_raw;
	const uint8_t *at = is_go || !symbol.len ? NULL : memchr(symbol.p, '@', symbol.len);
	size_t len = at && at != symbol.p ? (size_t)(at - symbol.p) : symbol.len;

	copy_clean(ret->system_name, symbol.p, len);
	is_raw = is_go || style == DEMANGLE_NONE;
	if (!is_raw)
		len = strip_clones((const char *)symbol.p, len);
	if (!is_raw && len <= DEMANGLE_SYMBOL_MAX) {
		memcpy(base, symbol.p, len);
		base[len] = '\0';
		if (try_demangle(base, style, &sink)) {
			copy_clean(ret->name, sink.text, sink.len);
			return;
		}
	}
	copy_clean(ret->name, symbol.p, len);
}
