#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/pipeline_fixture.h"

/* Random lives of a host: what must hold whatever comes, in whatever order. */

#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC
#define T0 (100 * SEC)
#define A 0x10000000ull
#define B 0x20000000ull

static struct world world;

/* With labels, without, and with a wait that is shorter than windows are. */
static void start(struct world *w, uint64_t seed)
{
	static const uint64_t waits_ns[] = { 0, 15 * SEC, 200 * MS };

	world_start_labels(w, T0, waits_ns[seed % ARRAY_SIZE(waits_ns)]);
}

static void start_world(const struct pipeline_conf *conf, uint64_t seed)
{
	world_init(&world, conf);
	start(&world, seed);
}

static const struct pipeline_stats *stats(void)
{
	return pipeline_stats(world.p);
}

static uint64_t drops(void)
{
	uint64_t n = 0;

	for (int d = 0; d < PIPELINE_DROP_COUNT; d++)
		n += stats()->dropped[d];
	return n;
}

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}

enum { TAPS = 10 };

/* A random life of a host; the same seed is the same life. */
static void live(struct world *w, uint64_t seed, uint32_t nevents)
{
	static const char *const paths[] = { "/bin/a", "/c/bin/a", "/bin/b", "/lib/fail.so", "//anon", "[vdso]",
					     "/lib/c", "/d/lib/c" };
	uint64_t now = T0;

	for (uint32_t i = 0; i < nevents; i++) {
		uint32_t pid = 1 + next_random(&seed) % 20, other = 1 + next_random(&seed) % 20;
		uint64_t at = now - MIN(now, next_random(&seed) % (20 * MS)), pcs[4];
		const char *path = paths[next_random(&seed) % ARRAY_SIZE(paths)];
		uint8_t garbage[64];

		now += next_random(&seed) % MS;
		for (uint32_t k = 0; k < 4; k++)
			pcs[k] = (next_random(&seed) % 2 ? A : B) + next_random(&seed) % 0x2000;
		for (uint32_t k = 0; k < sizeof(garbage); k++)
			garbage[k] = (uint8_t)next_random(&seed);
		switch (next_random(&seed) % 28) {
		case 0:
			world_exec(w, at, pid);
			break;
		case 1:
			if (pid != other)
				world_fork(w, at, pid, other);
			break;
		case 2:
			world_exit(w, at, pid);
			break;
		case 3:
		case 4:
		case 5:
			world_map(w, at, pid, next_random(&seed) % 2 ? A : B, path);
			break;
		case 6:
			world_scanned(w, now, pid, other, A, path);
			break;
		case 7:
			if (next_random(&seed) % 50 == 0)
				world_lost(w, at);
			world_scanned(w, now, 0, 0, 0, NULL);
			break;
		case 8:
		case 9:
			world_turn(w, now);
			break;
		case 10:
			world_open_all(w, now);
			break;
		case 11:
			if (next_random(&seed) % 8 == 0)
				(void)world_answer_one(w, now, next_random(&seed) % 4, garbage,
						       next_random(&seed) % sizeof(garbage));
			break;
		case 12:
		case 13:
			(void)world_answer_one(w, now, next_random(&seed) % 4, NULL, 0);
			break;
		case 14:
			if (w->nbatches < WORLD_BATCHES_MAX - TAPS - 6 && next_random(&seed) % 20 == 0)
				world_window(w, now, false);
			break;
		case 15:
			now += next_random(&seed) % SEC;
			break;
		case 16:
		case 17:
			(void)world_label_one(w, now, next_random(&seed) % 4);
			break;
		case 18:
			if (next_random(&seed) % 20 == 0)
				world_relabel(w, now);
			w->announce_err = next_random(&seed) % 3 ? 0 : -ENOBUFS;
			break;
		case 19:
			if (pipeline_stats(w->p)->taps < TAPS && next_random(&seed) % 5 == 0)
				world_tap(w, now, i + 1, next_random(&seed) % (2 * SEC));
			break;
		case 20:
			world_kernel_sample(w, at, pid, pcs, 3);
			break;
		default:
			world_sample(w, at, pid, pcs, 1 + next_random(&seed) % 4);
		}
	}
	world_window(w, now + SEC, true);
	world_settle(w, now + SEC);
	world_turn(w, now + 3 * SEC);	/* labels are not waited for any longer */
}

static void expect_same_batches(const struct world *a, const struct world *b)
{
	assert_int_equal(a->nbatches, b->nbatches);
	for (uint32_t i = 0; i < a->nbatches; i++) {
		assert_int_equal(a->batches[i].len, b->batches[i].len);
		assert_memory_equal(a->batches[i].data, b->batches[i].data, a->batches[i].len);
	}
}

static void every_sample_is_aggregated_or_dropped_with_a_reason(void **state UNUSED)
{
	uint64_t ntaps = 0, nlate = 0, nfiltered = 0, nannounced = 0, nexcluded = 0, nunnamed = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		start_world(NULL, seed);
		live(&world, seed, 3000);
		assert_int_equal(stats()->samples + drops(), world.nsent);
		assert_int_equal(world.nbatch_samples + stats()->excluded, stats()->samples);
		assert_int_equal(stats()->malformed, 0);
		/* A tap that began with the last window has no time of its own. */
		assert_in_range(world.nbatches, stats()->windows, stats()->windows + stats()->taps);
		assert_true(pipeline_idle(world.p));
		ntaps += stats()->taps;
		nlate += stats()->labels_late;
		nfiltered += stats()->dropped[PIPELINE_DROP_FILTERED];
		nannounced += world.nannounced;
		nexcluded += stats()->excluded;
		nunnamed += stats()->names_late;
		world_fini(&world);
	}
	/* It was a life. */
	assert_true(ntaps > 40 && nlate > 40 && nfiltered > 40 && nannounced > 400 && nexcluded > 40 &&
		    nunnamed > 40);
}

static void with_little_memory_too(void **state UNUSED)
{
	struct pipeline_conf conf = { .parked_max_bytes = 5000, .aggregate_max_bytes = 60000,
				      .rows_max_bytes = 3000, .queue_max_bytes = 20000 };

	for (uint64_t seed = 1; seed <= 20; seed++) {
		start_world(&conf, seed);
		live(&world, seed, 3000);
		assert_int_equal(stats()->samples + drops(), world.nsent);
		assert_int_equal(world.nbatch_samples + stats()->excluded, stats()->samples);
		world_fini(&world);
	}
}

static void the_same_events_give_the_same_batches(void **state UNUSED)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		static struct world again;

		start_world(NULL, seed);
		live(&world, seed, 3000);
		world_init(&again, NULL);
		start(&again, seed);
		live(&again, seed, 3000);
		expect_same_batches(&world, &again);
		world_fini(&again);
		world_fini(&world);
	}
}

/* The log holds the questions' answers: replayed to a pipeline that nobody answers, it tells the same. */
static void a_replay_of_the_log_gives_the_same_batches(void **state UNUSED)
{
	struct pipeline_conf conf = { .parked_max_bytes = 20000, .rows_max_bytes = 20000 };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		static struct world replayed;

		start_world(&conf, seed);
		live(&world, seed, 3000);
		world_replay(&world, &replayed, &conf);
		expect_same_batches(&world, &replayed);
		assert_memory_equal(pipeline_stats(replayed.p), stats(), sizeof(*stats()));
		world_fini(&replayed);
		world_fini(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_sample_is_aggregated_or_dropped_with_a_reason),
		cmocka_unit_test(with_little_memory_too),
		cmocka_unit_test(the_same_events_give_the_same_batches),
		cmocka_unit_test(a_replay_of_the_log_gives_the_same_batches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
