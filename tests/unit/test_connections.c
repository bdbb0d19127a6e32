/* Who stays connected, and for how long: with a clock of our own. */
#include "exporter/connections.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define T0 (1000 * NSEC_PER_SEC)

static struct connections cs;
static int ours[CONNECTIONS_SLOTS + 8], theirs[CONNECTIONS_SLOTS + 8];
static int npairs;
static uint64_t when_ns; /* to ask again */

static int setup(void **state)
{
	(void)state;
	cs = (struct connections){};
	npairs = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < npairs; i++) {
		close(ours[i]);
		close(theirs[i]);
	}
	return 0;
}

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage a = {};
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a;
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a;

	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
		a.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
		a.ss_family = AF_INET6;
	else
		a.ss_family = AF_UNIX;
	return a;
}

static struct connection *add(const char *from, uint64_t now_ns)
{
	struct sockaddr_storage a = address(from);
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	ours[npairs] = pair[0];
	theirs[npairs++] = pair[1];
	if (!connections_make_room(&cs, now_ns, &when_ns))
		return NULL;
	return connections_add(&cs, pair[0], &a, now_ns);
}

/* What the client of the nth connection sees. */
static bool is_ended(int nth)
{
	char byte;
	ssize_t n = recv(theirs[nth], &byte, 1, MSG_DONTWAIT);

	assert_true(n == 0 || (n < 0 && errno == EAGAIN));
	return n == 0;
}

static void a_request_that_does_not_come_is_ended_after_its_time(void **state)
{
	(void)state;
	assert_int_equal(connections_sweep(&cs, T0), UINT64_MAX);
	assert_non_null(add("unix", T0));
	assert_int_equal(connections_sweep(&cs, T0 + 1), T0 + CONNECTION_REQUEST_NS);
	assert_false(is_ended(0));
	assert_int_equal(connections_sweep(&cs, T0 + CONNECTION_REQUEST_NS), UINT64_MAX);
	assert_true(is_ended(0));
	assert_int_equal(cs.nended[CONNECTION_END_SLOW_REQUEST], 1);
}

static void each_phase_has_its_own_time(void **state)
{
	struct connection *waiting = add("unix", T0), *answering = add("unix", T0);

	(void)state;
	connection_enter(waiting, CONNECTION_WAITING, T0 + 1);
	connection_enter(answering, CONNECTION_ANSWERING, T0 + 2);
	assert_int_equal(connections_sweep(&cs, T0 + 3), T0 + 2 + CONNECTION_ANSWER_NS);
	assert_int_equal(connections_sweep(&cs, T0 + 2 + CONNECTION_ANSWER_NS), UINT64_MAX);
	assert_false(is_ended(0));
	assert_true(is_ended(1));
	assert_int_equal(cs.nended[CONNECTION_END_SLOW_REQUEST], 0);
	assert_int_equal(cs.nended[CONNECTION_END_SLOW_READER], 1);
	assert_int_equal(cs.nended[CONNECTION_END_CROWDED], 0);
}

static void who_has_waited_longest_without_a_request_makes_room(void **state)
{
	struct connection *first;

	(void)state;
	first = add("unix", T0);
	connection_enter(first, CONNECTION_ANSWERING, T0);
	for (uint64_t i = 1; i < CONNECTIONS_MAX; i++)
		assert_non_null(add("unix", T0 + i));
	for (int i = 1; i < 5; i++) {
		assert_false(is_ended(i));
		assert_non_null(add("unix", T0 + NSEC_PER_SEC));
		assert_true(is_ended(i));
	}
	assert_false(is_ended(0));
	assert_int_equal(cs.nended[CONNECTION_END_CROWDED], 4);
}

/* It has only just come: its request may be on its way. */
static void nobody_has_to_go_at_once(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < CONNECTIONS_MAX; i++)
		assert_non_null(add("unix", T0 + i));
	assert_null(add("unix", T0 + 1000));
	assert_int_equal(when_ns, T0 + CONNECTION_GRACE_NS);
	assert_false(is_ended(0));
	assert_non_null(add("unix", T0 + CONNECTION_GRACE_NS));
	assert_true(is_ended(0));
	assert_null(add("unix", T0 + CONNECTION_GRACE_NS));
	assert_int_equal(when_ns, T0 + 1 + CONNECTION_GRACE_NS);
}

static void then_who_has_been_reading_longest_and_never_who_waits_for_us(void **state)
{
	struct connection *all[CONNECTIONS_MAX];

	(void)state;
	for (uint64_t i = 0; i < CONNECTIONS_MAX; i++) {
		all[i] = add("unix", T0);
		connection_enter(all[i], i == 3 ? CONNECTION_ANSWERING : CONNECTION_WAITING, T0 + 9 - i % 8);
	}
	assert_non_null(add("unix", T0 + NSEC_PER_SEC));
	assert_true(is_ended(3));
	connection_enter(all[3], CONNECTION_ANSWERING, T0 + 11); /* it stays ended */
	assert_int_equal(all[3]->phase, CONNECTION_ENDED);
	connections_del(all[3]);
	assert_non_null(add("unix", T0 + 2 * NSEC_PER_SEC)); /* in place of the other one that has asked for nothing */
	assert_true(is_ended(CONNECTIONS_MAX));
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		assert_int_equal(is_ended(i), i == 3);
}

static void one_address_cannot_take_all_places(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < CONNECTIONS_ADDRESS_MAX; i++)
		assert_non_null(add(i % 2 ? "192.0.2.1" : "::ffff:192.0.2.1", T0 + i));
	assert_non_null(add("192.0.2.2", T0 + 100));
	assert_false(is_ended(0));
	assert_non_null(add("192.0.2.1", T0 + 101)); /* in place of its own first */
	assert_true(is_ended(0));
	assert_false(is_ended(CONNECTIONS_ADDRESS_MAX));
	assert_int_equal(cs.nended[CONNECTION_END_CROWDED], 1);
}

static void a_network_of_addresses_is_one_and_this_host_is_not_limited(void **state)
{
	static const char *const here[] = { "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "unix" };
	char text[64];

	(void)state;
	for (uint64_t i = 0; i < CONNECTIONS_ADDRESS_MAX; i++) {
		snprintf(text, sizeof(text), "2001:db8:0:7::%x", (unsigned int)i + 1);
		assert_non_null(add(text, T0 + i));
	}
	assert_non_null(add("2001:db8:0:8::1", T0 + 100));
	assert_false(is_ended(0));
	assert_non_null(add("2001:db8:0:7:ffff::1", T0 + 101));
	assert_true(is_ended(0));
	for (size_t i = 0; i < CONNECTIONS_MAX - CONNECTIONS_ADDRESS_MAX - 1; i++)
		assert_non_null(add(here[i % ARRAY_SIZE(here)], T0 + 200));
	assert_false(is_ended(1));
}

static void those_that_are_ended_and_not_closed_are_bounded(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < CONNECTIONS_SLOTS; i++)
		assert_non_null(add("unix", T0 + i * NSEC_PER_SEC));
	assert_null(add("unix", T0 + 1000 * NSEC_PER_SEC));
	assert_int_equal(when_ns, T0 + 1000 * NSEC_PER_SEC + CONNECTION_GRACE_NS);
	connections_del(&cs.slots[0]);
	assert_non_null(add("unix", T0 + 1000 * NSEC_PER_SEC));
}

static void answers_that_nobody_reads_are_bounded(void **state)
{
	struct connection *a = add("unix", T0), *b = add("unix", T0), *c = add("unix", T0);
	const size_t half = CONNECTIONS_ANSWER_BYTES / 2;

	(void)state;
	connection_enter(a, CONNECTION_ANSWERING, T0);
	assert_true(connections_hold(&cs, a, SIZE_MAX, T0)); /* one alone may be of any size */
	assert_true(connections_hold(&cs, a, half, T0));
	connection_enter(b, CONNECTION_ANSWERING, T0 + 1);
	assert_true(connections_hold(&cs, b, half, T0 + 1));
	connection_enter(c, CONNECTION_ANSWERING, T0 + 2);
	assert_false(connections_hold(&cs, c, 1, T0 + 2));
	assert_false(is_ended(0));
	/* Who has been reading for long has to go when somebody else wants something. */
	assert_true(connections_hold(&cs, c, 1, T0 + CONNECTION_REQUEST_NS + 1));
	assert_true(is_ended(0));
	assert_false(is_ended(1));
	assert_int_equal(cs.nended[CONNECTION_END_SLOW_READER], 1);
	connections_del(a);
	connections_del(b);
	assert_true(connections_hold(&cs, c, CONNECTIONS_ANSWER_BYTES, T0 + CONNECTION_REQUEST_NS + 1));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_request_that_does_not_come_is_ended_after_its_time),
		TEST(each_phase_has_its_own_time),
		TEST(who_has_waited_longest_without_a_request_makes_room),
		TEST(nobody_has_to_go_at_once),
		TEST(then_who_has_been_reading_longest_and_never_who_waits_for_us),
		TEST(one_address_cannot_take_all_places),
		TEST(a_network_of_addresses_is_one_and_this_host_is_not_limited),
		TEST(those_that_are_ended_and_not_closed_are_bounded),
		TEST(answers_that_nobody_reads_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
