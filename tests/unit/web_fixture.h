/* web_fixture - the web server in a loop of its own, and a client that speaks to it over real sockets. */
#ifndef TESTS_UNIT_WEB_FIXTURE_H
#define TESTS_UNIT_WEB_FIXTURE_H

#include <jansson.h>

#include "config/config.h"
#include "exporter/web.h"

#define WEB_FIXTURE_TOKEN "0123456789abcdef0123456789abcdef"

struct web_fixture {
	struct loop *loop;
	struct web *web;
	struct config config;
	struct export_config more;
	char dir[64], control[128];
	int page_port, metrics_port; /* 0: not up */
	/* What ops saw and do. */
	struct export_tap taps[32];
	int ntaps, tap_error;
	struct sink_stats sink;
};

int web_fixture_init(void **state); /* *state is the fixture; all listeners are up */
int web_fixture_fini(void **state);
/* web_configure() with what config and more hold; finds the ports. */
void web_fixture_configure(struct web_fixture *f);

struct web_reply {
	int status; /* 0: closed without an answer */
	char *head; /* the answer up to its body */
	char *body;
	size_t body_len;
};

/* Connects and sends "METHOD PATH HTTP/1.1", a Host header unless `headers` has one, and `headers`. */
int web_fixture_send(struct web_fixture *f, int port, const char *method, const char *path,
		     const char *headers);
/* Turns the loop until the answer is there. */
struct web_reply web_fixture_receive(struct web_fixture *f, int fd);
struct web_reply web_fixture_ask(struct web_fixture *f, int port, const char *method, const char *path,
				 const char *headers);
void web_reply_fini(struct web_reply *r);
/* The status alone. */
int web_fixture_status(struct web_fixture *f, int port, const char *method, const char *path,
		       const char *headers);
/* Of the control socket: the JSON, which has to come with this status. */
json_t *web_fixture_api(struct web_fixture *f, const char *path, int status);
/* Turns the loop for this long. */
void web_fixture_wait(struct web_fixture *f, unsigned int ms);

/*
 * The window of export_fixture.h: 7 samples of service `shop` (pid 100), one of a kernel thread, which
 * was not labelled in time.
 */
void web_fixture_window(struct web_fixture *f, uint64_t id, uint64_t wall_start_ns);
/* A status of the agent with one of everything. */
void web_fixture_tell(struct web_fixture *f);

enum { WEB_FIXTURE_CONTROL = -1 }; /* as a port */

#endif
