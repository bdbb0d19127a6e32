#include "symbolizer/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
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
static bool run_demangler(demangler *fn, const char *symbol, struct sink *s)
{
	s->len = 0;
	if (setjmp(s->overflow))
		return false;
	return fn(symbol, DMGL_NO_OPTS, on_text, s) && s->len;
}

static bool try_demangle(const char *symbol, struct sink *s)
{
	bool is_cxx = strncmp(symbol, "_Z", 2) == 0 || strncmp(symbol, "_GLOBAL_", 8) == 0;

	if (!is_cxx && strncmp(symbol, "_R", 2) != 0)
		return false;
	/* Rust's legacy names are C++ names too; only theirs end with a hash. */
	return run_demangler(rust_demangle_callback, symbol, s) ||
	       (is_cxx && run_demangler(cplus_demangle_v3_callback, symbol, s));
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

void demangle(struct bytes symbol, bool is_go, struct demangled *ret)
{
	char base[DEMANGLE_SYMBOL_MAX + 1];
	struct sink sink;
	const uint8_t *at = is_go || !symbol.len ? NULL : memchr(symbol.p, '@', symbol.len);
	size_t len = at && at != symbol.p ? (size_t)(at - symbol.p) : symbol.len;

	copy_clean(ret->system_name, symbol.p, len);
	if (!is_go)
		len = strip_clones((const char *)symbol.p, len);
	if (!is_go && len <= DEMANGLE_SYMBOL_MAX) {
		memcpy(base, symbol.p, len);
		base[len] = '\0';
		if (try_demangle(base, &sink)) {
			copy_clean(ret->name, sink.text, sink.len);
			return;
		}
	}
	copy_clean(ret->name, symbol.p, len);
}
