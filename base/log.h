/*
 * log - one line on stderr per event worth an operator's time.
 *
 * Form: `text key=value key='string'`; a journald priority prefix `<N>` when stderr is the journal.
 * Strings that come from a workload go through LOG_STR(), which quotes and escapes them, so that no
 * control character reaches a terminal.
 *
 * May touch: stderr. Never: allocate, fail.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <string.h>

#include "base/def.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* `name` stands before each line ("flamed", "flamed-symbolizer"); it is borrowed for ever. */
void log_init(const char *name, enum log_level level);
void log_set_level(enum log_level level);
/*
 * From now on a line that standard error has no room for is left out, and the next one says how many were
 * (`unwritten=N`): for who must not hang because nobody reads the log.
 */
void log_never_wait(void);
/* "error", "warning", "info", "debug" -> level; -EINVAL otherwise. */
MUST_USE int log_level_parse(const char *text, enum log_level *ret_level);

void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/*
 * A warning that can repeat: at most `burst` lines in `interval_ns`; the next line that is let
 * through says how many were suppressed (`suppressed=N`).
 */
struct log_limit {
	uint64_t interval_ns;
	uint32_t burst;
	uint32_t nwritten;
	uint64_t nsuppressed;
	uint64_t start_ns;
};
#define LOG_LIMIT_INIT { .interval_ns = 60000000000ull, .burst = 5 }
void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...) PRINTF(3, 4);

/* A quoted, escaped, length-bounded copy of a string that a workload chose. */
struct log_str {
	char text[256];
};
struct log_str log_str(const char *s, size_t len);
#define LOG_STR(s) (log_str((s), strlen(s)).text)

#endif
