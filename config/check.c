/* What a text has to look like. */
#include "config/keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { LABEL_NAME_MAX = 255, LABEL_VALUE_MAX = 1024, ENDPOINT_NAME_MAX = 63, PORT_MAX = 65535 };

static const char digits[] = "0123456789";
static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

static bool has_only(const char *text, size_t len, const char *set, const char *more)
{
	for (size_t i = 0; i < len; i++) {
		if (!text[i] || (!strchr(set, text[i]) && !strchr(more, text[i])))
			return false;
	}
	return true;
}

const char *check_cpus(const char *text)
{
	static const char why[] = "is no list of CPUs (such as 0-3,8)";
	char *end;

	while (*text) {
		unsigned long first, last;

		if (*text < '0' || *text > '9')
			return why;
		first = last = strtoul(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtoul(end + 1, &end, 10);
		if (first > last || last >= 65536)
			return why;
		if (*end == ',' && end[1])
			end++;
		else if (*end)
			return why;
		text = end;
	}
	return NULL;
}

const char *check_path(const char *text)
{
	return *text && *text != '/' ? "is no absolute path" : NULL;
}

const char *check_directory(const char *text)
{
	return *text == '/' ? NULL : "is no absolute path";
}

static bool is_port(const char *text)
{
	size_t len = strlen(text);
	unsigned long port;

	if (!len || len > 5 || strspn(text, digits) != len)
		return false;
	port = strtoul(text, NULL, 10);
	return port > 0 && port <= PORT_MAX;
}

/* A name, an IPv4 address, or an IPv6 address in brackets. */
static bool is_host(const char *host, size_t len)
{
	char address[64];
	struct in6_addr v6;

	if (len > 2 && host[0] == '[' && host[len - 1] == ']' && len - 2 < sizeof(address)) {
		memcpy(address, host + 1, len - 2);
		address[len - 2] = 0;
		return inet_pton(AF_INET6, address, &v6) == 1;
	}
	return len && len <= 253 && has_only(host, len, alnum, "-._");
}

static bool is_host_and_port(const char *text, size_t len)
{
	char copy[512];
	char *colon;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = 0;
	if (is_host(copy, len))
		return true;
	colon = strrchr(copy, ':');
	return colon && is_host(copy, (size_t)(colon - copy)) && is_port(colon + 1);
}

static bool ends_in(const char *text, size_t len, const char *tail)
{
	size_t n = strlen(tail);

	return len >= n && memcmp(text + len - n, tail, n) == 0;
}

/* Userinfo would be a second, half-secret way to say basic_auth. */
const char *check_url(const char *text)
{
	const char *authority, *path;
	size_t len;

	if (!*text)
		return NULL;
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			return "has a blank or a character that is not ASCII";
	}
	if (strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0)
		return "is no http:// or https:// URL";
	authority = strstr(text, "://") + 3;
	path = authority + strcspn(authority, "/?#");
	if (memchr(authority, '@', (size_t)(path - authority)))
		return "has a user name or password in it: use basic_auth for them";
	if (strchr(path, '#'))
		return "has a fragment (#...): leave it out";
	if (!is_host_and_port(authority, (size_t)(path - authority)))
		return "has no valid HOST or HOST:PORT after ://";
	for (len = strcspn(path, "?"); len && path[len - 1] == '/'; len--)
		;
	if (ends_in(path, len, "/ingest"))
		return "ends in /ingest, which flamed appends: leave that out "
		       "(`protocol: ingest` uses nothing else)";
	if (ends_in(path, len, "/push.v1.PusherService/Push") ||
	    ends_in(path, len, "/push.v1.PusherService"))
		return "ends in the path of Push, which flamed appends: "
		       "leave /push.v1.PusherService/Push out";
	return NULL;
}

const char *check_listen(const char *text)
{
	static const char why[] = "is no ADDRESS:PORT (such as 127.0.0.1:4041 or [::1]:4041), nor off";
	const char *colon = strrchr(text, ':');
	char address[64];
	struct in_addr v4;
	size_t len;

	if (strcmp(text, "off") == 0)
		return NULL;
	if (!colon || !is_port(colon + 1))
		return why;
	len = (size_t)(colon - text);
	if (*text == '[')
		return is_host(text, len) ? NULL : why;
	if (len >= sizeof(address))
		return why;
	memcpy(address, text, len);
	address[len] = 0;
	return inet_pton(AF_INET, address, &v4) == 1 ? NULL : why;
}

const char *check_page_listen(const char *text)
{
	return *text ? check_listen(text) : NULL;
}

/* More is allowed by servers, and then not found by their clients. */
const char *check_label_name(const char *text)
{
	size_t len = strlen(text);

	if (!len || strchr(digits, *text) || !has_only(text, len, alnum, "_"))
		return "is no label name: letters, digits and _, not beginning with a digit";
	if (strncmp(text, "__", 2) == 0)
		return "begins with __, which is for the servers' own labels";
	return len > LABEL_NAME_MAX ? "is longer than 255 bytes" : NULL;
}

const char *check_static_name(const char *text)
{
	static const char *const own[] = { "service_name", "hostname",	   "container_id",
					   "pod_uid",	   "unit",	   "pyroscope_spy" };

	if (strcmp(text, "hostname") == 0)
		return "is set by labels.hostname";
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (strcmp(text, own[i]) == 0)
			return "is a label with a meaning of its own";
	}
	return check_label_name(text);
}

/* What exporter/labels.h makes besides those that every profile has. */
const char *check_included(const char *text)
{
	static const char *const known[] = { "container_id", "pod_uid", "unit" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strcmp(text, known[i]) == 0)
			return NULL;
	}
	return "is none of container_id, pod_uid, unit";
}

/* /ingest has no way to quote the two. */
const char *check_label_value(const char *text)
{
	if (strlen(text) > LABEL_VALUE_MAX)
		return "is longer than 1024 bytes";
	return strpbrk(text, ",}") ? "has a , or }, which /ingest cannot carry" : NULL;
}

const char *check_static_value(const char *text)
{
	return *text ? check_label_value(text) : "is empty: leave the label out";
}

const char *check_pattern(const char *text)
{
	size_t len = strlen(text);

	return len && len <= LABEL_VALUE_MAX && has_only(text, len, alnum, "_./-*?[]!\\") ?
		       NULL :
		       "is no pattern of service names: letters, digits and _ . / - with * ? [...]";
}

const char *check_one_in(const char *text)
{
	uint64_t n;

	return value_parse_int(text, &n) || n < 2 || n > 1000 ? "is not in 2..1000" : NULL;
}

const char *check_endpoint_name(const char *text)
{
	if (strcmp(text, "directory") == 0)
		return "is what the output directory is called";
	return strlen(text) > ENDPOINT_NAME_MAX ? "is longer than 63 bytes" : NULL;
}

/* RFC 7617, section 2. */
const char *check_username(const char *text)
{
	return strchr(text, ':') ? "has a colon, which Basic authentication cannot carry" : NULL;
}

/* RFC 9110, section 5.6.2: token. */
const char *check_header_name(const char *text)
{
	static const char *const own[] = { "Content-Type",	"Content-Length", "Content-Encoding",
					   "Transfer-Encoding", "Connection",	  "Expect" };

	if (!has_only(text, strlen(text), alnum, "!#$%&'*+-.^_`|~"))
		return "is no name of an HTTP header";
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (strcasecmp(text, own[i]) == 0)
			return "is a header that flamed sets itself";
	}
	return NULL;
}
