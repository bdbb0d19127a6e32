/*
 * reply - answers of our HTTP listeners, each with the headers that keep a browser from doing more.
 *
 * May touch: the connection it is given.
 */
#ifndef EXPORTER_REPLY_H
#define EXPORTER_REPLY_H

#include <jansson.h>
#include <microhttpd.h>

#include "base/def.h"

struct reply {
	unsigned int status;
	const char *type; /* Content-Type; NULL: text */
	const void *data;
	size_t len;
	bool is_static;		    /* data stays for ever; else it is copied */
	const char *header, *value; /* one more header, or NULL */
};

enum MHD_Result reply_send(struct MHD_Connection *c, const struct reply *r);
/* A line for people. */
enum MHD_Result reply_text(struct MHD_Connection *c, unsigned int status, const char *text);
/* Compressed where that is worth it and accepted. */
enum MHD_Result reply_json(struct MHD_Connection *c, unsigned int status, const json_t *j);

#endif
