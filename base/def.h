/* def - the few macros that every file may use. */
#ifndef BASE_DEF_H
#define BASE_DEF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define UNUSED __attribute__((unused))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b)                                      \
	({                                             \
		__typeof__(a) min_a_ = (a);            \
		__typeof__(b) min_b_ = (b);            \
		min_a_ < min_b_ ? min_a_ : min_b_;     \
	})
#define MAX(a, b)                                      \
	({                                             \
		__typeof__(a) max_a_ = (a);            \
		__typeof__(b) max_b_ = (b);            \
		max_a_ > max_b_ ? max_a_ : max_b_;     \
	})

/* Runs fn(&variable) when the variable leaves its scope. */
#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* Hands a pointer over: the variable is NULL afterwards, so its cleanup does nothing. */
#define TAKE(p)                                \
	({                                     \
		__typeof__(p) take_p_ = (p);   \
		(p) = NULL;                    \
		take_p_;                       \
	})

/* The same for descriptors. */
#define TAKE_FD(fd)               \
	({                        \
		int take_fd_ = (fd); \
		(fd) = -1;        \
		take_fd_;         \
	})

/* For a destructor `type func(type)` that accepts NULL, makes `funcp` for CLEANUP(). */
#define DEFINE_CLEANUP(type, func)                 \
	static inline UNUSED void func##p(type *p) \
	{                                          \
		if (*p)                            \
			func(*p);                  \
	}                                          \
	struct cleanup_##func##_needs_a_semicolon

static inline UNUSED void freep(void *p)
{
	free(*(void **)p);
}

static inline UNUSED void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define CLEANUP_FREE CLEANUP(freep)
#define CLEANUP_FD CLEANUP(closep)

#endif
