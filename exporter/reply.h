/*
 * reply - answers of our HTTP listeners, each with the headers that keep a browser from doing more.
 *
 * May touch: the connection it is given.
 */
#ifndef EXPORTER_REPLY_H
#define EXPORTER_REPLY_H

#include <microhttpd.h>

#include "base/buf.h"

struct reply {
	unsigned int status;
	const char *type; /* Content-Type; NULL: text */
	const void *data;
	size_t len;
	bool is_static;		    /* data stays for ever; else it is copied, */
	bool is_given;		    /* or taken over: it is on the heap */
	const char *header, *value; /* one more header, or NULL */
};

enum MHD_Result reply_send(struct MHD_Connection *c, const struct reply *r);
/* A line for people. */
enum MHD_Result reply_text(struct MHD_Connection *c, unsigned int status, const char *text);
/* 503, and in how many seconds to try again. */
enum MHD_Result reply_busy(struct MHD_Connection *c, const char *seconds, const char *text);
/* Compresses a text where that is worth it and accepted. -ENOMEM: it is as it was. */
MUST_USE int reply_compress(struct MHD_Connection *c, struct bufw *text, bool *ret_is_gzip);

#endif
