/*
 * push_settings - an endpoint as it is configured: address, protocol, headers, secrets and the files
 * that they are in. Part of push.
 *
 * May touch: the heap. Never: the network, files.
 */
#ifndef EXPORTER_PUSH_SETTINGS_H
#define EXPORTER_PUSH_SETTINGS_H

#include "exporter/push.h"

#define PUSH_PATH_CONNECT "/push.v1.PusherService/Push"
#define PUSH_PATH_INGEST  "/ingest"

enum { PUSH_NROLES = EXPORT_ROLE_KEY + 1 };

enum push_secret_state {
	PUSH_SECRET_UNUSED,
	PUSH_SECRET_GIVEN,
	PUSH_SECRET_AWAITED,	/* a file that the agent has not sent yet */
	PUSH_SECRET_UNREADABLE, /* a file that the agent could not open, and has said so */
};

struct push_secret {
	enum push_secret_state state;
	char *file; /* "" the value is in the settings */
	char *data; /* NUL-terminated */
	size_t len;
};

/* An endpoint's settings, and what its files hold. */
struct push_settings {
	char *url;   /* as configured */
	char *base;  /* without slashes at its end */
	char *query; /* "?..." or "" */
	enum config_protocol protocol;
	char *username, *tenant, *user_agent;
	bool has_basic, has_bearer, insecure;
	struct value_map headers;
	uint64_t timeout_ns;
	struct push_secret secrets[PUSH_NROLES]; /* by enum export_role */
};

MUST_USE int push_settings_new(struct push_settings **ret, const struct config_endpoint *e,
			       const char *version);
struct push_settings *push_settings_free(struct push_settings *s);
DEFINE_CLEANUP(struct push_settings *, push_settings_free);

/* As push_secret(). */
MUST_USE int push_settings_secret(struct push_settings *s, enum export_role role, const void *data,
				  size_t len);
/* Takes over from `old` what comes from the same files. */
void push_settings_inherit(struct push_settings *s, struct push_settings *old);
/*
 * NULL: all is there. Else why nothing can be sent; *ret_is_news: that it is this module that has to
 * say so, not the agent, and not somebody who has only just begun.
 */
const char *push_settings_missing(const struct push_settings *s, bool *ret_is_news);
/* base64 of user and password, new; NULL: no memory. */
char *push_settings_basic(const struct push_settings *s);
/* No secret of the endpoint is left in this text, whoever wrote it. */
void push_settings_redact(const struct push_settings *s, char *text);

#endif
