/*
 * store PORT DIRECTORY - a server that stores what it is sent, byte for byte, and answers 200 to everything.
 *
 * DIRECTORY/N.head is a request's head, DIRECTORY/N.body its body; the host judges them. Only what flamed's
 * client does is understood: Content-Length, kept connections. Ends on SIGTERM, when all is written.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "base/def.h"

enum {
	HEAD_MAX = 16 * 1024,
	BODY_MAX = 64 * 1024 * 1024,
	CONNECTIONS_MAX = 16,
	FIRST_CONNECTION = 2, /* in the poll set, behind the signals and the listener */
};

static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nContent-Length: 0\r\n\r\n";

static unsigned int nrequests;

/* One byte at a time: nothing of the body may be taken with the head. False: the connection ended. */
static bool read_head(int fd, char *head, size_t *ret_len)
{
	size_t len = 0;

	while (len < 4 || memcmp(head + len - 4, "\r\n\r\n", 4) != 0) {
		if (len == HEAD_MAX - 1)
			errx(1, "a request's head of more than %d bytes", HEAD_MAX);
		if (read(fd, head + len, 1) != 1)
			return false;
		len++;
	}
	head[len] = '\0';
	*ret_len = len;
	return true;
}

static size_t content_length(const char *head)
{
	static const char name[] = "content-length:";

	for (const char *line = head; (line = strchr(line, '\n')); ) {
		line++;
		if (strncasecmp(line, name, sizeof(name) - 1) == 0) {
			unsigned long v = strtoul(line + sizeof(name) - 1, NULL, 10);

			if (v > BODY_MAX)
				errx(1, "a body of %lu bytes", v);
			return v;
		}
	}
	return 0;
}

static void write_file(const char *suffix, const char *data, size_t len)
{
	char name[32];
	FILE *f;

	snprintf(name, sizeof(name), "%u.%s", nrequests, suffix);
	f = fopen(name, "w");
	if (!f || fwrite(data, 1, len, f) != len || fclose(f))
		err(1, "%s", name);
}

/* One request. False: the connection is over. */
static bool serve(int fd)
{
	CLEANUP(freep) char *body = NULL;
	char head[HEAD_MAX];
	size_t head_len, len, have = 0;
	ssize_t n;

	if (!read_head(fd, head, &head_len))
		return false;
	len = content_length(head);
	body = malloc(len + 1);
	if (!body)
		err(1, "malloc");
	while (have < len) {
		n = read(fd, body + have, len - have);
		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	write_file("head", head, head_len);
	write_file("body", body, len);
	nrequests++;
	return write(fd, reply, sizeof(reply) - 1) == (ssize_t)(sizeof(reply) - 1);
}

static int listen_on(unsigned long port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, CONNECTIONS_MAX))
		err(1, "port %lu", port);
	return fd;
}

static int end_of_service(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void take_connection(struct pollfd *polled, nfds_t *n)
{
	int fd = accept(polled[1].fd, NULL, NULL);

	if (fd < 0)
		err(1, "accept");
	if (*n == FIRST_CONNECTION + CONNECTIONS_MAX)
		errx(1, "more than %d connections", CONNECTIONS_MAX);
	polled[(*n)++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

int main(int argc, char **argv)
{
	struct pollfd polled[FIRST_CONNECTION + CONNECTIONS_MAX];
	nfds_t n = FIRST_CONNECTION;

	if (argc != 3)
		errx(2, "usage: store PORT DIRECTORY");
	polled[1] = (struct pollfd){ .fd = listen_on(strtoul(argv[1], NULL, 10)), .events = POLLIN };
	if (chdir(argv[2]))
		err(1, "%s", argv[2]);
	polled[0] = (struct pollfd){ .fd = end_of_service(), .events = POLLIN };
	for (;;) {
		if (poll(polled, n, -1) < 0)
			err(1, "poll");
		if (polled[0].revents)
			return 0;
		for (nfds_t i = n; i-- > FIRST_CONNECTION;) {
			if (polled[i].revents && !serve(polled[i].fd)) {
				close(polled[i].fd);
				polled[i] = polled[--n];
			}
		}
		if (polled[1].revents)
			take_connection(polled, &n);
	}
}
