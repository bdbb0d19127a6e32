#include "agent/timeline.h"

#include <string.h>
#include <xxhash.h>

#include "base/clock.h"

/* A clock is read a moment after another, and slewed at most 500 us a second (adjtime(3)). */
#define JUMP_NS ((int64_t)(200 * NSEC_PER_MSEC))

void timeline_read_clocks(struct timeline_clocks *ret)
{
	*ret = (struct timeline_clocks){ .boot_ns = clock_boot_ns(), .mono_ns = clock_mono_ns(),
					 .wall_ns = clock_wall_ns() };
}

const char *timeline_end_text(enum timeline_end e)
{
	static const char *const texts[] = {
#define X(id, text) [TIMELINE_##id] = text,
		TIMELINE_ENDS(X)
#undef X
	};

	return e >= 0 && e < TIMELINE_END_COUNT ? texts[e] : "?";
}

/* The next regular end; the one after it where the window would be shorter than a quarter. */
static void begin(struct timeline *t, const struct timeline_clocks *now)
{
	uint64_t w = t->window_ns;
	uint64_t since_ns = (now->wall_ns % w + w - t->offset_ns) % w;
	uint64_t left_ns = w - since_ns;

	if (left_ns < w / 4)
		left_ns += w;
	t->start = *now;
	t->end_boot_ns = now->boot_ns + left_ns;
}

void timeline_init(struct timeline *t, uint64_t window_ns, const char *machine_id, const struct timeline_clocks *now)
{
	*t = (struct timeline){ .window_ns = window_ns, .last = *now };
	t->offset_ns = XXH64(machine_id, strlen(machine_id), 0) % window_ns;
	begin(t, now);
}

static int64_t moved(uint64_t from, uint64_t to)
{
	return (int64_t)(to - from);
}

static enum timeline_end judge(const struct timeline *t, const struct timeline_clocks *now)
{
	int64_t boot_ns = moved(t->last.boot_ns, now->boot_ns);
	int64_t mono_ns = moved(t->last.mono_ns, now->mono_ns);
	int64_t step_ns = moved(t->last.wall_ns, now->wall_ns) - boot_ns;

	if (boot_ns - mono_ns >= JUMP_NS)
		return TIMELINE_SUSPEND;
	if (step_ns >= JUMP_NS || step_ns <= -JUMP_NS)
		return TIMELINE_CLOCK_STEP;
	return now->boot_ns >= t->end_boot_ns ? TIMELINE_REGULAR : TIMELINE_NONE;
}

void timeline_stop(struct timeline *t, const struct timeline_clocks *now, struct timeline_window *ret)
{
	*ret = (struct timeline_window){
		.wall_start_ns = now->wall_ns - (now->boot_ns - t->start.boot_ns),
		.duration_ns = now->mono_ns - t->start.mono_ns,
	};
	t->last = *now;
	begin(t, now);
}

enum timeline_end timeline_turn(struct timeline *t, const struct timeline_clocks *now, struct timeline_window *ret)
{
	enum timeline_end end = judge(t, now);

	if (end == TIMELINE_NONE)
		t->last = *now;
	else
		timeline_stop(t, now, ret);
	return end;
}
