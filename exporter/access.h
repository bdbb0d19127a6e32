/*
 * access - who may see profile data on the page's listener, and for which host names it answers.
 *
 * The token, or the user name and password of the settings; the token is also taken as a password
 * of any user. Secrets are compared in constant time.
 *
 * May touch: the request it is given. Never: log a secret.
 */
#ifndef EXPORTER_ACCESS_H
#define EXPORTER_ACCESS_H

#include <microhttpd.h>

#include "base/def.h"

struct access {
	const char *token;		/* "" none */
	const char *username, *password;	/* "" none */
};

/* By `token=`, bearer token or Basic authorization. */
bool access_is_granted(const struct access *a, struct MHD_Connection *c);
/* By the first part of the path: then *ret_rest is what follows it, "" when nothing does. */
bool access_path(const struct access *a, const char *path, const char **ret_rest);

/*
 * Whether a Host header names a listener on a loopback address: `localhost`, a loopback address, with
 * any port (it may be forwarded). Everything else is a page of a stranger that had its name resolve
 * to us (DNS rebinding). NULL, no header: no browser.
 */
bool access_is_loopback_host(const char *host);

#endif
