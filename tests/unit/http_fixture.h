/* http_fixture - an HTTP server in the test's own loop, that answers as the test says. */
#ifndef TESTS_UNIT_HTTP_FIXTURE_H
#define TESTS_UNIT_HTTP_FIXTURE_H

#include "base/loop.h"

struct http_fixture_request {
	const char *head; /* request line and headers */
	const uint8_t *body;
	size_t len;
	unsigned int nth; /* from 0 */
};

enum http_fixture_manner { HTTP_ANSWER, HTTP_HANG, HTTP_CLOSE };

struct http_fixture_answer {
	enum http_fixture_manner manner;
	int status;	     /* 200 when 0 */
	const char *type;    /* NULL: application/json, of an empty body application/proto */
	const char *headers; /* more of them, each with its \r\n */
	const char *body;
	size_t padding; /* bytes of blanks behind the body */
};

typedef struct http_fixture_answer http_fixture_fn(void *arg, const struct http_fixture_request *r);

struct http_fixture;

struct http_fixture *http_fixture_new(struct loop *loop, http_fixture_fn *fn, void *arg);
void http_fixture_free(struct http_fixture *f);
int http_fixture_port(const struct http_fixture *f);
unsigned int http_fixture_nrequests(const struct http_fixture *f);
unsigned int http_fixture_nconnections(const struct http_fixture *f);
/* The value of a header of the request, in a static buffer; "" there is none. */
const char *http_fixture_header(const struct http_fixture_request *r, const char *name);

#endif
