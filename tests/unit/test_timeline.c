#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/timeline.h"
#include "base/clock.h"

#define WINDOW_NS (15 * NSEC_PER_SEC)
#define TURN_NS (100 * NSEC_PER_MSEC)
#define WALL_NS (1800000000 * NSEC_PER_SEC + 123456789)

/* All clocks move alike, by a turn. */
static void tick(struct timeline_clocks *c)
{
	c->boot_ns += TURN_NS;
	c->mono_ns += TURN_NS;
	c->wall_ns += TURN_NS;
}

static struct timeline_clocks clocks(void)
{
	return (struct timeline_clocks){ .boot_ns = 5000 * NSEC_PER_SEC, .mono_ns = 3000 * NSEC_PER_SEC,
					 .wall_ns = WALL_NS };
}

static enum timeline_end run(struct timeline *t, struct timeline_clocks *c, struct timeline_window *w)
{
	enum timeline_end end = TIMELINE_NONE;

	for (int i = 0; end == TIMELINE_NONE && i < 1000; i++) {
		tick(c);
		end = timeline_turn(t, c, w);
	}
	return end;
}

static void windows_end_at_multiples_of_their_length_plus_the_hosts_offset(void **state UNUSED)
{
	struct timeline_clocks c = clocks();
	struct timeline_window w;
	struct timeline t;

	timeline_init(&t, WINDOW_NS, "4c5e1f", &c);
	assert_true(t.offset_ns > 0 && t.offset_ns < WINDOW_NS);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(run(&t, &c, &w), TIMELINE_REGULAR);
		assert_true((c.wall_ns - t.offset_ns) % WINDOW_NS < TURN_NS);
	}
}

static void each_second_is_in_exactly_one_window(void **state UNUSED)
{
	struct timeline_clocks c = clocks();
	uint64_t first_mono = c.mono_ns, sum_ns = 0, next_wall = c.wall_ns;
	struct timeline_window w;
	struct timeline t;

	timeline_init(&t, WINDOW_NS, "", &c);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(run(&t, &c, &w), TIMELINE_REGULAR);
		assert_int_equal(w.wall_start_ns, next_wall);
		next_wall = w.wall_start_ns + w.duration_ns;
		sum_ns += w.duration_ns;
	}
	tick(&c);
	timeline_stop(&t, &c, &w);
	assert_int_equal(w.wall_start_ns, next_wall);
	assert_int_equal(sum_ns + w.duration_ns, c.mono_ns - first_mono);
}

static void hosts_do_not_push_in_step(void **state UNUSED)
{
	struct timeline_clocks c = clocks();
	uint64_t buckets[15] = { 0 };

	for (int i = 0; i < 1500; i++) {
		struct timeline t;
		char id[33];

		snprintf(id, sizeof(id), "%032x", i * 7919);
		timeline_init(&t, WINDOW_NS, id, &c);
		buckets[t.offset_ns / NSEC_PER_SEC]++;
	}
	for (int i = 0; i < 15; i++)
		assert_in_range(buckets[i], 50, 150); /* 100 +- 5 sigma */
}

static void no_window_is_shorter_than_a_quarter_or_longer_than_five(void **state UNUSED)
{
	for (uint64_t phase = 0; phase < WINDOW_NS; phase += 77 * NSEC_PER_MSEC) {
		struct timeline_clocks c = clocks();
		struct timeline_window w;
		struct timeline t;

		c.wall_ns += phase;
		timeline_init(&t, WINDOW_NS, "x", &c);
		assert_int_equal(run(&t, &c, &w), TIMELINE_REGULAR);
		assert_in_range(w.duration_ns, WINDOW_NS / 4, WINDOW_NS / 4 * 5 + TURN_NS);
	}
}

static void a_step_of_the_wall_clock_ends_the_window(void **state UNUSED)
{
	static const int64_t steps[] = { 250000000, -250000000, 3600000000000, -3600000000000 };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct timeline_clocks c = clocks();
		struct timeline_window w;
		struct timeline t;

		timeline_init(&t, WINDOW_NS, "x", &c);
		tick(&c);
		assert_int_equal(timeline_turn(&t, &c, &w), TIMELINE_NONE);
		tick(&c);
		c.wall_ns += (uint64_t)steps[i];
		assert_int_equal(timeline_turn(&t, &c, &w), TIMELINE_CLOCK_STEP);
		assert_int_equal(w.duration_ns, 2 * TURN_NS);
		assert_int_equal(w.wall_start_ns, c.wall_ns - 2 * TURN_NS); /* by the clock of now */
		/* Once; and the next one is in step with the new clock. */
		assert_int_equal(run(&t, &c, &w), TIMELINE_REGULAR);
		assert_true((c.wall_ns - t.offset_ns) % WINDOW_NS < TURN_NS);
	}
}

static void a_slewed_clock_is_no_step(void **state UNUSED)
{
	struct timeline_clocks c = clocks();
	struct timeline_window w;
	struct timeline t;

	timeline_init(&t, WINDOW_NS, "x", &c);
	for (int i = 0; i < 10000; i++) {
		enum timeline_end end;

		tick(&c);
		c.wall_ns += 50000; /* 500 us a second */
		end = timeline_turn(&t, &c, &w);
		assert_true(end == TIMELINE_NONE || end == TIMELINE_REGULAR);
	}
}

static void a_suspend_ends_the_window_and_is_no_time_of_it(void **state UNUSED)
{
	struct timeline_clocks c = clocks();
	uint64_t start_wall = c.wall_ns;
	struct timeline_window w;
	struct timeline t;

	timeline_init(&t, WINDOW_NS, "x", &c);
	tick(&c);
	assert_int_equal(timeline_turn(&t, &c, &w), TIMELINE_NONE);
	tick(&c);
	c.boot_ns += 600 * NSEC_PER_SEC;
	c.wall_ns += 600 * NSEC_PER_SEC;
	assert_int_equal(timeline_turn(&t, &c, &w), TIMELINE_SUSPEND);
	assert_int_equal(w.wall_start_ns, start_wall);
	assert_int_equal(w.duration_ns, 2 * TURN_NS);
	assert_int_equal(run(&t, &c, &w), TIMELINE_REGULAR);
}

static void a_late_turn_makes_one_longer_window(void **state UNUSED)
{
	struct timeline_clocks c = clocks();
	struct timeline_window w;
	struct timeline t;

	timeline_init(&t, WINDOW_NS, "x", &c);
	c.boot_ns += 3 * WINDOW_NS;
	c.mono_ns += 3 * WINDOW_NS;
	c.wall_ns += 3 * WINDOW_NS;
	assert_int_equal(timeline_turn(&t, &c, &w), TIMELINE_REGULAR);
	assert_int_equal(w.duration_ns, 3 * WINDOW_NS);
	tick(&c);
	assert_int_equal(timeline_turn(&t, &c, &w), TIMELINE_NONE);
}

static void a_wall_clock_near_zero_wraps_nothing(void **state UNUSED)
{
	struct timeline_clocks c = { .boot_ns = 10, .mono_ns = 10, .wall_ns = 0 };
	struct timeline_window w;
	struct timeline t;

	timeline_init(&t, WINDOW_NS, "x", &c);
	assert_in_range(t.end_boot_ns, 10 + WINDOW_NS / 4, 10 + WINDOW_NS / 4 * 5);
	assert_int_equal(run(&t, &c, &w), TIMELINE_REGULAR);
}

static void the_clocks_of_this_host_can_be_read(void **state UNUSED)
{
	struct timeline_clocks c;

	timeline_read_clocks(&c);
	assert_true(c.boot_ns && c.mono_ns && c.wall_ns > 1000000000 * NSEC_PER_SEC);
	assert_true(c.boot_ns + NSEC_PER_SEC > c.mono_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_end_at_multiples_of_their_length_plus_the_hosts_offset),
		cmocka_unit_test(each_second_is_in_exactly_one_window),
		cmocka_unit_test(hosts_do_not_push_in_step),
		cmocka_unit_test(no_window_is_shorter_than_a_quarter_or_longer_than_five),
		cmocka_unit_test(a_step_of_the_wall_clock_ends_the_window),
		cmocka_unit_test(a_slewed_clock_is_no_step),
		cmocka_unit_test(a_suspend_ends_the_window_and_is_no_time_of_it),
		cmocka_unit_test(a_late_turn_makes_one_longer_window),
		cmocka_unit_test(a_wall_clock_near_zero_wraps_nothing),
		cmocka_unit_test(the_clocks_of_this_host_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
