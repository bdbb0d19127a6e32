#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { LOG_LINE_MAX = 2048 };

/* The one piece of process-wide state: where every line of this process goes. */
static struct {
	const char *name;
	enum log_level level;
	bool journal;
	bool never_waits;
	uint64_t nunwritten;
} log_state = { .name = "flamed", .level = LOG_INFO };

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARNING] = "warning",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

/* sd-daemon(3): systemd names the stream that it connected stderr to, so that a redirected stderr
 * does not get prefixes. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t dev, ino;
	struct stat st;
	char *end;

	if (!stream || fstat(STDERR_FILENO, &st))
		return false;
	dev = strtoumax(stream, &end, 10);
	if (*end != ':')
		return false;
	ino = strtoumax(end + 1, &end, 10);
	return !*end && st.st_dev == dev && st.st_ino == ino;
}

void log_init(const char *name, enum log_level level)
{
	log_state.name = name;
	log_state.level = level;
	log_state.journal = stderr_is_journal();
}

void log_set_level(enum log_level level)
{
	log_state.level = level;
}

void log_never_wait(void)
{
	log_state.never_waits = true;
}

int log_level_parse(const char *text, enum log_level *ret_level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* Strings are escaped where they enter; this is the net below, for the one that was forgotten. */
static void blank_control_characters(char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			s[i] = '?';
	}
}

static size_t append(char *line, size_t used, const char *fmt, va_list args)
{
	int n = vsnprintf(line + used, LOG_LINE_MAX - used, fmt, args);

	return n < 0 ? used : MIN(used + (size_t)n, (size_t)LOG_LINE_MAX - 1);
}

static PRINTF(3, 4) size_t appendf(char *line, size_t used, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	used = append(line, used, fmt, args);
	va_end(args);
	return used;
}

/* A pipe that is ready has room for PIPE_BUF bytes, more than a line has (pipe(7)). */
static bool has_room(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return !log_state.never_waits || poll(&p, 1, 0) != 0;
}

static void write_line(enum log_level level, uint64_t nsuppressed, const char *fmt, va_list args)
{
	/* syslog(3): LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG. */
	static const int priority[] = { 3, 4, 6, 7 };
	int saved_errno = errno;
	char line[LOG_LINE_MAX + 1];
	size_t len = 0, left;
	const char *p = line;

	if (log_state.journal)
		len = appendf(line, len, "<%d>", priority[level]);
	len = appendf(line, len, "%s: ", log_state.name);
	len = append(line, len, fmt, args);
	if (nsuppressed)
		len = appendf(line, len, " suppressed=%" PRIu64, nsuppressed);
	if (log_state.nunwritten)
		len = appendf(line, len, " unwritten=%" PRIu64, log_state.nunwritten);
	blank_control_characters(line, len);
	line[len++] = '\n';
	if (!has_room()) {
		log_state.nunwritten++;
		errno = saved_errno;
		return;
	}
	log_state.nunwritten = 0;

	for (left = len; left > 0;) {
		ssize_t n = write(STDERR_FILENO, p, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break; /* nowhere to complain to */
		p += n;
		left -= (size_t)n;
	}
	errno = saved_errno;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list args;

	if (level > log_state.level)
		return;
	va_start(args, fmt);
	write_line(level, 0, fmt, args);
	va_end(args);
}

void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...)
{
	uint64_t now = clock_mono_ns();
	va_list args;

	if (level > log_state.level)
		return;
	if (!limit->start_ns || now - limit->start_ns >= limit->interval_ns) {
		limit->start_ns = now;
		limit->nwritten = 0;
	}
	if (limit->nwritten >= limit->burst) {
		limit->nsuppressed++;
		return;
	}
	limit->nwritten++;
	va_start(args, fmt);
	write_line(level, limit->nsuppressed, fmt, args);
	va_end(args);
	limit->nsuppressed = 0;
}

/* Writes the escaped form of c to `to` (4 bytes at most) and returns its length. */
static size_t escape(unsigned char c, char *to)
{
	static const char hex[] = "0123456789abcdef";

	if (c == '\'' || c == '\\') {
		to[0] = '\\';
		to[1] = (char)c;
		return 2;
	}
	/* Bytes over 0x7f could be C1 control characters or half of a UTF-8 sequence. */
	if (c < 0x20 || c >= 0x7f) {
		to[0] = '\\';
		to[1] = 'x';
		to[2] = hex[c >> 4];
		to[3] = hex[c & 15];
		return 4;
	}
	to[0] = (char)c;
	return 1;
}

struct log_str log_str(const char *s, size_t len)
{
	static const char cut[] = "'...";
	struct log_str r;
	size_t used = 0, n;
	char one[4];

	r.text[used++] = '\'';
	for (size_t i = 0; i < len; i++) {
		n = escape((unsigned char)s[i], one);
		if (used + n + sizeof(cut) > sizeof(r.text)) {
			memcpy(r.text + used, cut, sizeof(cut));
			return r;
		}
		memcpy(r.text + used, one, n);
		used += n;
	}
	r.text[used++] = '\'';
	r.text[used] = 0;
	return r;
}
