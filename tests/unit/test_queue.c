#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/queue.h"
#include "base/clock.h"
#include "tests/unit/alloc_fail.h"

enum { SEEN_MAX = 4096 };

/* What the queue handed out, in order. */
struct seen {
	bool is_sample;
	uint64_t time_ns;
	uint32_t id;		/* pid of an event; cpu of a sample */
	uint32_t nparts;
};

static struct queue *queue;
static struct seen seen[SEEN_MAX];
static size_t nseen;
static int fail_at = -1, failure;

static int set_up(void **state UNUSED)
{
	nseen = 0;
	fail_at = -1;
	return queue_new(&queue);
}

static int tear_down(void **state UNUSED)
{
	queue = queue_free(queue);
	return 0;
}

static int on_event(void *arg UNUSED, const struct event *e)
{
	if ((int)nseen == fail_at)
		return failure;
	if (e->type == EVENT_MAP)
		assert_string_equal(e->map.path, "/lib/x");
	seen[nseen++] = (struct seen){ false, e->time_ns, e->type == EVENT_MAP ? e->map.pid : e->comm.pid, 0 };
	return 0;
}

static int on_sample(void *arg UNUSED, struct sample *s)
{
	if ((int)nseen == fail_at) {
		sample_free(s);
		return failure;
	}
	seen[nseen++] = (struct seen){ true, s->time_ns, s->cpu, s->nparts };
	sample_free(s);
	return 0;
}

static const struct queue_ops ops = { .event = on_event, .sample = on_sample };

static int run(uint64_t until_ns)
{
	return queue_run(queue, until_ns, &ops, NULL);
}

static void add_map(uint64_t time_ns, uint32_t pid)
{
	char path[] = "/lib/x";
	struct event e = { .type = EVENT_MAP, .time_ns = time_ns, .map = { .pid = pid, .path = path } };

	assert_int_equal(queue_add_event(queue, &e), 0);
	memset(path, 'y', sizeof(path) - 1); /* it was borrowed */
}

static void add_comm(uint64_t time_ns, uint32_t pid)
{
	struct event e = { .type = EVENT_COMM, .time_ns = time_ns, .comm = { .pid = pid, .comm = "c" } };

	assert_int_equal(queue_add_event(queue, &e), 0);
}

static struct abi_record record(uint64_t time_ns, uint32_t cpu, uint64_t seq, uint8_t part, bool last)
{
	return (struct abi_record){ .size = sizeof(struct abi_record), .kind = ABI_KIND_CPU, .time_ns = time_ns,
				    .cpu = cpu, .seq = seq, .part = part, .flags = last ? ABI_F_LAST : 0 };
}

static int add_part(uint64_t time_ns, uint32_t cpu, uint64_t seq, uint8_t part, bool last)
{
	struct abi_record r = record(time_ns, cpu, seq, part, last);

	return queue_add_record(queue, &r, sizeof(r));
}

static void add_sample(uint64_t time_ns, uint32_t cpu)
{
	assert_int_equal(add_part(time_ns, cpu, time_ns, 0, true), 0);
}

static void all_is_handed_out_in_the_order_of_time(void **state UNUSED)
{
	add_sample(30, 1);
	add_map(40, 100);
	add_map(10, 101);
	add_sample(20, 2);
	add_comm(20, 102);
	add_sample(50, 3);
	assert_int_equal(run(45), 0);
	assert_int_equal(nseen, 5);
	for (size_t i = 1; i < nseen; i++)
		assert_true(seen[i - 1].time_ns <= seen[i].time_ns);
	/* What happened at a sample's time happened before it. */
	assert_int_equal(seen[1].id, 102);
	assert_true(seen[2].is_sample);
	assert_int_equal(run(50), 0);
	assert_int_equal(nseen, 6);
	assert_int_equal(queue_bytes(queue), 0);
}

static void what_is_due_later_waits(void **state UNUSED)
{
	assert_true(queue_oldest_ns(queue) == UINT64_MAX);
	add_sample(12, 1);
	add_sample(11, 1);
	add_map(8, 1); /* no sample */
	assert_int_equal(run(10), 0);
	assert_int_equal(nseen, 1);
	assert_int_equal(queue_oldest_ns(queue), 11);
	add_map(9, 2); /* a late comer */
	assert_int_equal(run(11), 0);
	assert_int_equal(nseen, 3);
	assert_int_equal(seen[1].id, 2);
	assert_true(seen[2].is_sample);
	assert_int_equal(queue_oldest_ns(queue), 12);
}

static void events_of_one_time_keep_their_order(void **state UNUSED)
{
	for (uint32_t pid = 1; pid <= 1000; pid++)
		add_comm(5, pid);
	assert_int_equal(run(5), 0);
	assert_int_equal(nseen, 1000);
	for (uint32_t i = 0; i < nseen; i++)
		assert_int_equal(seen[i].id, i + 1);
}

static void parts_of_a_sample_come_together(void **state UNUSED)
{
	assert_int_equal(add_part(10, 1, 5, 0, false), 0);
	assert_int_equal(add_part(11, 2, 5, 0, false), 0); /* another CPU's */
	assert_int_equal(add_part(10, 1, 5, 1, true), 0);
	assert_int_equal(run(20), 0);
	assert_int_equal(nseen, 1);
	assert_int_equal(seen[0].id, 1);
	assert_int_equal(seen[0].nparts, 2);
	assert_int_equal(add_part(11, 2, 5, 1, true), 0);
	assert_int_equal(run(20), 0);
	assert_int_equal(nseen, 2);
}

static void a_missing_part_is_waited_for_only_so_long(void **state UNUSED)
{
	assert_int_equal(add_part(10, 1, 5, 0, false), 0);
	assert_int_equal(run(10 + QUEUE_PART_WAIT_NS), 0);
	assert_int_equal(nseen, 0);
	assert_int_equal(run(11 + QUEUE_PART_WAIT_NS), 0);
	assert_int_equal(nseen, 1);
	/* At the end nothing is waited for. */
	assert_int_equal(add_part(100, 1, 6, 0, false), 0);
	assert_int_equal(run(UINT64_MAX), 0);
	assert_int_equal(nseen, 2);
	assert_int_equal(queue_bytes(queue), 0);
}

static void records_that_belong_to_no_sample_are_refused(void **state UNUSED)
{
	struct abi_record r = record(10, 1, 5, 0, true);

	assert_int_equal(queue_add_record(queue, &r, sizeof(r) - 1), 1);
	r.size = sizeof(r) + 8;
	assert_int_equal(queue_add_record(queue, &r, sizeof(r)), 1);
	r.size = 8;
	assert_int_equal(queue_add_record(queue, &r, sizeof(r)), 1);
	r = record(10, 1, 5, 0, true);
	r.kind = 99;
	assert_int_equal(queue_add_record(queue, &r, sizeof(r)), 1);
	assert_int_equal(add_part(10, 1, 5, 1, true), 1);	/* its first part was lost */
	assert_int_equal(add_part(10, 1, 5, 0, false), 0);
	for (uint8_t part = 1; part < ABI_PARTS_MAX; part++)
		assert_int_equal(add_part(10, 1, 5, part, false), 0);
	assert_int_equal(add_part(10, 1, 5, ABI_PARTS_MAX, true), 1);
	assert_int_equal(run(UINT64_MAX), 0);
	assert_int_equal(nseen, 1);
}

static void an_error_ends_the_run_and_the_rest_waits(void **state UNUSED)
{
	for (fail_at = 0; fail_at < 6; fail_at++) {
		failure = -EIO;
		nseen = 0;
		for (uint32_t i = 0; i < 3; i++) {
			add_map(10 * i, i);
			add_sample(10 * i + 5, i);
		}
		assert_int_equal(run(100), -EIO);
		assert_int_equal(nseen, fail_at);
		failure = 0;
		fail_at = -fail_at - 1;
		assert_int_equal(run(100), 0);
		fail_at = -fail_at - 1;
		assert_int_equal(nseen, 5); /* all but the one that failed */
		assert_int_equal(queue_bytes(queue), 0);
	}
}

static void bytes_are_what_waits(void **state UNUSED)
{
	add_map(10, 1);
	assert_true(queue_bytes(queue) > sizeof(struct event));
	add_sample(20, 1);
	assert_true(queue_bytes(queue) > sizeof(struct event) + sizeof(struct abi_record));
	assert_int_equal(run(10), 0);
	assert_true(queue_bytes(queue) < sizeof(struct abi_record) + sizeof(struct sample) + 64);
	assert_int_equal(run(20), 0);
	assert_int_equal(queue_bytes(queue), 0);
}

/* One turn of a host with 64 CPUs at 100 Hz and 500 processes a second costs no time that counts. */
static void a_busy_turn_is_fast(void **state UNUSED)
{
	uint64_t start;

	for (uint32_t i = 0; i < 640; i++)
		add_sample(1000 + i * 7 % 640, i % 64);
	for (uint32_t i = 0; i < 2500; i++)
		add_map(1000 + i * 11 % 640, i);
	start = clock_cpu_ns();
	assert_int_equal(run(5000), 0);
	assert_true(clock_cpu_ns() - start < 100 * NSEC_PER_MSEC);
	assert_int_equal(nseen, 3140);
}

static void any_failed_allocation_leaves_the_queue_whole(void **state UNUSED)
{
	struct abi_record r = record(10, 1, 5, 0, true);
	struct event e = { .type = EVENT_COMM, .time_ns = 9, .comm = { .pid = 1, .comm = "name" } };
	int err = -1;

	for (long nth = 1; err; nth++) {
		alloc_fail_nth(nth);
		err = queue_add_event(queue, &e);
		if (!err)
			err = queue_add_record(queue, &r, sizeof(r));
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_int_equal(run(100), 0);
		assert_int_equal(queue_bytes(queue), 0);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_is_handed_out_in_the_order_of_time),
		TEST(what_is_due_later_waits),
		TEST(events_of_one_time_keep_their_order),
		TEST(parts_of_a_sample_come_together),
		TEST(a_missing_part_is_waited_for_only_so_long),
		TEST(records_that_belong_to_no_sample_are_refused),
		TEST(an_error_ends_the_run_and_the_rest_waits),
		TEST(bytes_are_what_waits),
		TEST(a_busy_turn_is_fast),
		TEST(any_failed_allocation_leaves_the_queue_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
