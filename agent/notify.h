/*
 * notify - tells the service manager how we are: sd_notify(3) without its library.
 *
 * May touch: the socket that $NOTIFY_SOCKET names. Never: fail.
 */
#ifndef AGENT_NOTIFY_H
#define AGENT_NOTIFY_H

#include "base/def.h"

/* Lines of `NAME=value`; nothing where nobody asked. */
void notify_send(const char *state);
void notify_reloading(void);	/* RELOADING=1, with the time that Type=notify-reload wants */

#endif
