/*
 * push_reply - what a server's answer means for the profile, and for the one who reads the log.
 *
 * A pure function of the answer; the rules of docs/pyroscope.md as tables. Part of push.
 *
 * May touch: nothing but its arguments.
 */
#ifndef EXPORTER_PUSH_REPLY_H
#define EXPORTER_PUSH_REPLY_H

#include "exporter/http.h"

enum push_transport { PUSH_CONNECT, PUSH_INGEST };

enum push_verdict {
	PUSH_PASSED,  /* stored */
	PUSH_RETRY,   /* may pass on another try */
	PUSH_REFUSED, /* never passes */
	PUSH_HOLD,    /* the settings are wrong, not the profile: it waits */
	PUSH_ABSENT,  /* there is no Push at this address */
};

enum { PUSH_MESSAGE_MAX = 400 };

struct push_reply {
	enum push_verdict verdict;
	/* The server has it in no case: it said so, or no byte of the request left. Else it may have it. */
	bool did_not_arrive;
	int kind;	   /* answers of the same kind are the same failure: status, or -CURLcode */
	const char *state; /* for people: "ok", "failing", "unauthorized", ... */
	char message[PUSH_MESSAGE_MAX]; /* the server's, or libcurl's; "" none */
	const char *hint;		/* what to do; never NULL */
};

/*
 * PUSH_PASSED takes an acknowledgement: of Push status 200, the content type of Connect, and a body that is a message
 * of it; of /ingest any 2xx with an empty body, `ok`, or an object of JSON that speaks of no error. Whatever else says
 * 200 (a page to log in, another service at a wrong path) has taken nothing that we know of.
 */

/* What is known of the endpoint that the hint can use. */
struct push_asked {
	enum push_transport transport;
	bool is_probe; /* an empty Push message, which is to be refused */
	const char *url, *username;
	bool has_auth, has_tenant;
};

void push_reply_read(const struct push_asked *asked, const struct http_result *r,
		     struct push_reply *ret);

#endif
