#include "tests/unit/http_fixture.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "base/buf.h"

struct connection {
	struct connection *next;
	struct http_fixture *server;
	struct loop_source *source;
	int fd;
	struct bufw in, out;
	size_t sent;
};

struct http_fixture {
	struct loop *loop;
	struct loop_source *source;
	int fd, port;
	unsigned int nrequests, nconnections;
	http_fixture_fn *fn;
	void *arg;
	struct connection *connections;
};

const char *http_fixture_header(const struct http_fixture_request *r, const char *name)
{
	static char value[1024];
	size_t n = strlen(name);

	for (const char *line = r->head; (line = strstr(line, "\r\n")); line += 2) {
		if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':') {
			const char *v = line + 3 + n + strspn(line + 3 + n, " ");

			snprintf(value, sizeof(value), "%.*s", (int)strcspn(v, "\r"), v);
			return value;
		}
	}
	return "";
}

static void connection_end(struct connection *c)
{
	struct connection **at = &c->server->connections;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	loop_del(c->source);
	close(c->fd);
	bufw_fini(&c->in);
	bufw_fini(&c->out);
	free(c);
}

static void put_answer(struct connection *c, const struct http_fixture_answer *a)
{
	const char *body = a->body ? a->body : "";
	static char head[128 * 1024];
	int n;

	n = snprintf(head, sizeof(head),
		     "HTTP/1.1 %d X\r\nContent-Type: %s\r\n%sContent-Length: %zu\r\n\r\n",
		     a->status ? a->status : 200, a->type ? a->type : *body ? "application/json" : "application/proto",
		     a->headers ? a->headers : "", strlen(body) + a->padding);
	bufw_bytes(&c->out, head, (size_t)n);
	bufw_bytes(&c->out, body, strlen(body));
	for (size_t i = 0; i < a->padding; i++)
		bufw_u8(&c->out, ' ');
}

/* false: the connection is to end. */
static bool answer(struct connection *c)
{
	struct http_fixture_request r = { .nth = c->server->nrequests };
	struct http_fixture_answer a;
	char *end = memmem(c->in.data, c->in.len, "\r\n\r\n", 4);
	size_t head_len, body_len;

	if (!end)
		return true;
	head_len = (size_t)(end + 4 - (char *)c->in.data);
	end[3] = '\0'; /* over the last \n */
	r.head = (char *)c->in.data;
	body_len = strtoul(http_fixture_header(&r, "Content-Length"), NULL, 10);
	if (c->in.len < head_len + body_len) {
		end[3] = '\n';
		return true;
	}
	r.body = c->in.data + head_len;
	r.len = body_len;
	c->server->nrequests++;
	a = c->server->fn(c->server->arg, &r);
	c->in.len -= head_len + body_len;
	memmove(c->in.data, c->in.data + head_len + body_len, c->in.len);
	if (a.manner == HTTP_CLOSE)
		return false;
	if (a.manner == HTTP_ANSWER)
		put_answer(c, &a);
	return true;
}

static int on_connection(void *arg, unsigned int events)
{
	struct connection *c = arg;
	char buf[65536];
	ssize_t n;

	if (events & LOOP_IN) {
		n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			connection_end(c);
			return 0;
		}
		bufw_bytes(&c->in, buf, n > 0 ? (size_t)n : 0);
		if (!answer(c)) {
			connection_end(c);
			return 0;
		}
	}
	while (c->sent < c->out.len) {
		n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			connection_end(c);
			return 0;
		}
		c->sent += (size_t)n;
	}
	assert_int_equal(
		loop_modify(c->source, c->sent < c->out.len ? LOOP_IN | LOOP_OUT : LOOP_IN), 0);
	return 0;
}

static int on_accept(void *arg, unsigned int events)
{
	struct http_fixture *f = arg;
	struct connection *c = calloc(1, sizeof(*c));

	(void)events;
	assert_non_null(c);
	c->fd = accept(f->fd, NULL, NULL);
	assert_true(c->fd >= 0);
	c->server = f;
	c->next = f->connections;
	f->connections = c;
	f->nconnections++;
	assert_int_equal(loop_add(f->loop, &c->source, c->fd, LOOP_IN, on_connection, c), 0);
	return 0;
}

struct http_fixture *http_fixture_new(struct loop *loop, http_fixture_fn *fn, void *arg)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct http_fixture *f = calloc(1, sizeof(*f));
	socklen_t len = sizeof(a);

	assert_non_null(f);
	f->loop = loop;
	f->fn = fn;
	f->arg = arg;
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f->fd, 64), 0);
	assert_int_equal(getsockname(f->fd, (struct sockaddr *)&a, &len), 0);
	f->port = ntohs(a.sin_port);
	assert_int_equal(loop_add(loop, &f->source, f->fd, LOOP_IN, on_accept, f), 0);
	return f;
}

void http_fixture_free(struct http_fixture *f)
{
	while (f->connections)
		connection_end(f->connections);
	loop_del(f->source);
	close(f->fd);
	free(f);
}

int http_fixture_port(const struct http_fixture *f)
{
	return f->port;
}

unsigned int http_fixture_nrequests(const struct http_fixture *f)
{
	return f->nrequests;
}

unsigned int http_fixture_nconnections(const struct http_fixture *f)
{
	return f->nconnections;
}
