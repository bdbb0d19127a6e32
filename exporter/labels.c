#include "exporter/labels.h"

#include <stdio.h>
#include <string.h>

static bool has_prefix(const char *s, size_t len, const char *prefix)
{
	size_t n = strlen(prefix);

	return len >= n && !memcmp(s, prefix, n);
}

static bool is_temporary(const char *path, size_t len)
{
	return has_prefix(path, len, "/tmp/") || has_prefix(path, len, "/var/tmp/") ||
	       has_prefix(path, len, "/dev/shm/");
}

/* The kernel's mark on the path of a file that has no name any more. */
static size_t without_deleted(const char *path, size_t len)
{
	static const char mark[] = " (deleted)";
	size_t n = sizeof(mark) - 1;

	return len > n && !memcmp(path + len - n, mark, n) ? len - n : len;
}

static bool is_allowed(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '/' || c == '-';
}

static struct labels_name sanitize(const char *s, size_t len)
{
	struct labels_name name = {};
	size_t n = 0;

	for (size_t i = 0; i < len && n < LABELS_NAME_MAX; i++) {
		/* The lead byte of a UTF-8 character stands for all of it. */
		if (((unsigned char)s[i] & 0xc0) == 0x80)
			continue;
		name.text[n++] = is_allowed(s[i]) ? s[i] : '_';
	}
	return name;
}

static struct labels_name fixed(const char *text)
{
	struct labels_name name;

	snprintf(name.text, sizeof(name.text), "%s", text);
	return name;
}

struct labels_name labels_service_name(const struct labels_subject *s)
{
	struct labels_name name;
	const char *base, *slash;
	size_t len;

	if (s->is_kernel)
		return fixed("kernel");
	if (s->executable_len) {
		len = without_deleted(s->executable, s->executable_len);
		if (is_temporary(s->executable, len))
			return fixed("other");
		slash = memrchr(s->executable, '/', len);
		base = slash ? slash + 1 : s->executable;
		name = sanitize(base, len - (size_t)(base - s->executable));
		if (name.text[0])
			return name;
	}
	name = sanitize(s->comm, s->comm_len);
	return name.text[0] ? name : fixed("unknown");
}
