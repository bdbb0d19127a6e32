/*
 * timeline - when a window ends, and what time of day it had.
 *
 * Fed with the three clocks in every turn. Windows are measured on CLOCK_BOOTTIME and end where the
 * wall clock is a multiple of their length plus an offset that is hashed from the machine id, so that
 * a fleet does not push in step. A step of the wall clock (it moved 200 ms or more against BOOTTIME
 * between two turns) and a suspend (BOOTTIME moved 200 ms or more against MONOTONIC) end the window at
 * once; the next one ends at the next regular time, less than a quarter of a window later than that
 * if it would be that short. The time of day of a window's start is fixed at its end, by the
 * clock of then.
 *
 * May touch: nothing but its arguments; a pure function of them.
 */
#ifndef AGENT_TIMELINE_H
#define AGENT_TIMELINE_H

#include "base/def.h"

struct timeline_clocks {
	uint64_t boot_ns, mono_ns, wall_ns;
};
void timeline_read_clocks(struct timeline_clocks *ret);

#define TIMELINE_ENDS(X)		\
	X(NONE, "none")			\
	X(REGULAR, "regular")		\
	X(CLOCK_STEP, "clock_step")	\
	X(SUSPEND, "suspend")		\
	X(SHUTDOWN, "shutdown")

enum timeline_end {
#define X(id, text) TIMELINE_##id,
	TIMELINE_ENDS(X)
#undef X
	TIMELINE_END_COUNT,
};
const char *timeline_end_text(enum timeline_end e);

struct timeline {
	uint64_t window_ns, offset_ns;
	struct timeline_clocks start, last;	/* of the window; of the last turn */
	uint64_t end_boot_ns;
};

/* machine_id: of /etc/machine-id, any text. The first window begins. */
void timeline_init(struct timeline *t, uint64_t window_ns, const char *machine_id,
		   const struct timeline_clocks *now);

struct timeline_window {
	uint64_t wall_start_ns;
	uint64_t duration_ns;	/* on CLOCK_MONOTONIC: time in which the host was awake */
};
/* Whether the window ends now; then *ret is it, and the next one has begun. */
enum timeline_end timeline_turn(struct timeline *t, const struct timeline_clocks *now, struct timeline_window *ret);
/* Ends it now. */
void timeline_stop(struct timeline *t, const struct timeline_clocks *now, struct timeline_window *ret);

#endif
