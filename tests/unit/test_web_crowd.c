/* Hundreds of slow clients on real sockets, and one that only wants its answer. */
#include "exporter/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "base/clock.h"
#include "exporter/connections.h"
#include "tests/unit/web_fixture.h"

#define TOKEN WEB_FIXTURE_TOKEN

enum { NCROWD = 300 };

static struct web_fixture *w;
static int crowd[NCROWD];

static int setup(void **state)
{
	int err = web_fixture_init(state);

	w = *state;
	memset(crowd, -1, sizeof(crowd));
	return err;
}

static int teardown(void **state)
{
	for (int i = 0; i < NCROWD; i++)
		closep(&crowd[i]);
	return web_fixture_fini(state);
}

static int connect_to(int port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_port = htons((in_port_t)port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	bool is_local = port == WEB_FIXTURE_CONTROL;
	int fd = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	strcpy(local.sun_path, w->control);
	while (connect(fd, is_local ? (struct sockaddr *)&local : (struct sockaddr *)&v4,
		       is_local ? sizeof(local) : sizeof(v4))) {
		if (errno == EINPROGRESS)
			break;
		assert_int_equal(errno, EAGAIN); /* a unix socket whose backlog is full */
		web_fixture_wait(w, 1);
	}
	return fd;
}

/* A byte more of a request that never ends; who was closed comes again. */
static void crawl(int port, size_t nth)
{
	static const char request[] = "GET /healthz HTTP/1.1\r\nX-Slow: ";

	for (int i = 0; i < NCROWD; i++) {
		char byte = nth < sizeof(request) - 1 ? request[nth] : 'x';

		if (crowd[i] < 0)
			crowd[i] = connect_to(port);
		if (send(crowd[i], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) {
			close(crowd[i]);
			crowd[i] = connect_to(port);
		}
	}
}

/* Asks while the crowd crawls; how long it took. */
static uint64_t ask_in_crowd(int port, const char *path)
{
	uint64_t start = clock_mono_ns();
	struct web_reply r = web_fixture_ask(w, port, "GET", path, "");

	assert_int_equal(r.status, 200);
	web_reply_fini(&r);
	return clock_mono_ns() - start;
}

static void a_crowd_of_slow_clients_keeps_nobody_from_an_answer(void **state)
{
	const struct {
		int port;
		const char *path;
	} doors[] = {
		{ w->metrics_port, "/healthz" },
		{ w->metrics_port, "/metrics" },
		{ w->page_port, "/" TOKEN "/" },
		{ WEB_FIXTURE_CONTROL, "/api/v1/status" },
	};

	(void)state;
	for (size_t d = 0; d < ARRAY_SIZE(doors); d++) {
		for (size_t nth = 0; nth < 6; nth++) {
			crawl(doors[d].port, nth);
			web_fixture_wait(w, nth % 2 ? 20 : 0);
			assert_true(ask_in_crowd(doors[d].port, doors[d].path) < NSEC_PER_SEC);
		}
		for (int i = 0; i < NCROWD; i++) {
			closep(&crowd[i]);
			crowd[i] = -1;
		}
	}
}

/* Each byte comes in time, and still the request has to end. */
static void a_request_that_never_ends_is_closed(void **state)
{
	uint64_t start = clock_mono_ns();
	int fd = connect_to(w->metrics_port);
	struct web_reply r;
	ssize_t n = 0;
	char byte;

	(void)state;
	do {
		if (send(fd, n ? "x" : "G", 1, MSG_NOSIGNAL) < 0)
			break;
		web_fixture_wait(w, 50);
		assert_true(clock_mono_ns() - start < 4 * CONNECTION_REQUEST_NS);
		n = recv(fd, &byte, 1, MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN);
	assert_true(clock_mono_ns() - start > CONNECTION_REQUEST_NS / 2);
	close(fd);
	r = web_fixture_ask(w, w->metrics_port, "GET", "/metrics", "");
	assert_non_null(strstr(r.body, "flamed_listener_connections_ended_total{listener=\"metrics\","
				       "reason=\"slow_request\"} 1\n"));
	web_reply_fini(&r);
}

/* Nobody waits for a body, nor for another request. */
static void a_connection_brings_one_request(void **state)
{
	static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n%s\r\n";
	static const char *const more[] = { "", "Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		int fd = connect_to(w->metrics_port), len;
		struct web_reply r;
		char text[256];

		web_fixture_wait(w, 5);
		len = snprintf(text, sizeof(text), request, more[i]);
		assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
		r = web_fixture_receive(w, fd); /* up to its end */
		assert_int_equal(r.status, 200);
		assert_non_null(strstr(r.head, "Connection: close"));
		web_reply_fini(&r);
	}
}

/* Requests that end, answers that nobody reads: 64 of them are too many as well. */
static void clients_that_do_not_read_make_room(void **state)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

	(void)state;
	web_fixture_tell(w);
	for (int i = 0; i < NCROWD; i++) {
		crowd[i] = connect_to(w->metrics_port);
		for (int n = 0; n < 200; n++)
			(void)!send(crowd[i], request, sizeof(request) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	assert_true(ask_in_crowd(w->metrics_port, "/healthz") < 2 * NSEC_PER_SEC);
}

#define WITH_WEB(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WEB(a_crowd_of_slow_clients_keeps_nobody_from_an_answer),
		WITH_WEB(a_request_that_never_ends_is_closed),
		WITH_WEB(a_connection_brings_one_request),
		WITH_WEB(clients_that_do_not_read_make_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
