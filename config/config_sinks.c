/* What follows from the settings on where profiles go. */
#include "config/config.h"

#include <stdio.h>
#include <string.h>

static const char page_default[] = "127.0.0.1:4041";

void config_endpoint_name(const struct config_endpoint *e, char *ret, size_t size)
{
	int len = (int)strcspn(e->url, "?");

	if (*e->name)
		snprintf(ret, size, "%s", e->name);
	else
		snprintf(ret, size, "%.*s", len, e->url);
}

static bool is_among(const char *name, const char names[][CONFIG_SINK_NAME_MAX], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(names[i], name) == 0)
			return true;
	}
	return false;
}

/* `#2` and so on, in place of the end where the name is too long for both. */
static void set_number(char name[CONFIG_SINK_NAME_MAX], size_t len, size_t number)
{
	char suffix[24];
	size_t n = (size_t)snprintf(suffix, sizeof(suffix), "#%zu", number);

	len = MIN(len, CONFIG_SINK_NAME_MAX - 1 - n);
	memcpy(name + len, suffix, n + 1);
}

size_t config_sink_names(const struct config *c, char ret[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX])
{
	size_t n = 0;

	for (; n < c->endpoints.n && n < CONFIG_SINKS_MAX - 1; n++) {
		size_t len;

		config_endpoint_name(config_endpoint(c, n), ret[n], CONFIG_SINK_NAME_MAX);
		len = strlen(ret[n]);
		for (size_t number = 2; is_among(ret[n], ret, n); number++)
			set_number(ret[n], len, number);
	}
	if (*c->output.directory) /* no endpoint can be called that: check_endpoint_name() */
		snprintf(ret[n++], CONFIG_SINK_NAME_MAX, "directory");
	return n;
}

const char *config_page_address(const struct config *c)
{
	if (strcmp(c->page.listen, "off") == 0)
		return NULL;
	if (*c->page.listen)
		return c->page.listen;
	return c->endpoints.n ? NULL : page_default;
}
