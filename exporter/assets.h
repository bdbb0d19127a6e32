/*
 * assets - the page's files, which are part of the program: exporter/page/, listed in the Makefile.
 *
 * May touch: nothing.
 */
#ifndef EXPORTER_ASSETS_H
#define EXPORTER_ASSETS_H

#include "base/def.h"

struct asset {
	const char *name; /* index.html */
	const char *type; /* Content-Type */
	const char *data;
	size_t len;
};

/* NULL: there is none of this name. "" is index.html. */
const struct asset *asset_find(const char *name);

#endif
