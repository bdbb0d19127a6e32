#include "exporter/cgroup.h"

#include <ctype.h>
#include <string.h>

enum {
	HEX_ID = 64,	  /* Docker, containerd, CRI-O, podman, ECS */
	UUID_LEN = 36,	  /* 8-4-4-4-12 */
	GARDEN_LEN = 28,  /* 8-4-4-4-4 */
	STATIC_UID = 32,  /* hex digits of a task on Fargate, or of a pod that a file defines */
	TASK_DIGITS_MIN = 8,
	TASK_DIGITS_MAX = 10,
};

struct span {
	const char *p;
	size_t len;
};

/* An id that a path names, and how deep: how many components are above it. */
struct found {
	struct span text;
	size_t depth;
};

struct path_facts {
	struct found container, outer; /* the deepest, and the one before it */
	struct found pod;
	struct span unit;
	bool is_below_user;
};

/* ---- texts ---------------------------------------------------------------------------------- */

static struct span span(const char *p, size_t len)
{
	return (struct span){ p, len };
}

static bool is(struct span s, const char *text)
{
	return s.len == strlen(text) && !memcmp(s.p, text, s.len);
}

static bool has_prefix(struct span s, const char *prefix)
{
	size_t n = strlen(prefix);

	return s.len >= n && !memcmp(s.p, prefix, n);
}

static bool has_suffix(struct span s, const char *suffix)
{
	size_t n = strlen(suffix);

	return s.len >= n && !memcmp(s.p + s.len - n, suffix, n);
}

static bool has(struct span s, const char *text)
{
	return memmem(s.p, s.len, text, strlen(text));
}

static bool are_equal(struct span a, struct span b)
{
	return a.len == b.len && !memcmp(a.p, b.p, a.len);
}

static struct span without_suffix(struct span s, const char *suffix)
{
	return has_suffix(s, suffix) ? span(s.p, s.len - strlen(suffix)) : s;
}

static bool are_digits(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
	}
	return s.len;
}

static bool is_hex_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool are_hex(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (!is_hex_digit(s.p[i]))
			return false;
	}
	return s.len;
}

/* Groups of 8, 4, 4, 4 and what is left of hex digits, with the same separator between them. */
static bool is_uuid(struct span s, size_t len, const char *separators)
{
	if (s.len != len || !strchr(separators, s.p[8]))
		return false;
	for (size_t i = 0; i < len; i++) {
		bool is_between = i == 8 || i == 13 || i == 18 || i == 23;

		if (is_between ? s.p[i] != s.p[8] : !is_hex_digit(s.p[i]))
			return false;
	}
	return true;
}

static void copy(struct span s, char *ret, size_t size)
{
	size_t len = MIN(s.len, size - 1);

	if (len) /* else there may be no text */
		memcpy(ret, s.p, len);
	ret[len] = 0;
}

/* The next part up to any separator; what is left of *s begins after it. False at the end. */
static bool next_part(struct span *s, char separator, struct span *ret)
{
	const char *end;

	if (!s->p)
		return false;
	end = memchr(s->p, separator, s->len);
	*ret = span(s->p, end ? (size_t)(end - s->p) : s->len);
	*s = end ? span(end + 1, s->len - ret->len - 1) : span(NULL, 0);
	return true;
}

/* ---- what a component of a path names ------------------------------------------------------- */

/* A name that people chose; it becomes a label. */
static bool is_plain_name(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (!isalnum((unsigned char)s.p[i]) && !strchr("_.-", s.p[i]))
			return false;
	}
	return s.len && s.len < CGROUP_ID_MAX && s.p[0] != '.';
}

static bool is_task_id(struct span s)
{
	if (s.len < STATIC_UID + 1 + TASK_DIGITS_MIN || s.len > STATIC_UID + 1 + TASK_DIGITS_MAX)
		return false;
	return are_hex(span(s.p, STATIC_UID)) && s.p[STATIC_UID] == '-' &&
	       are_digits(span(s.p + STATIC_UID + 1, s.len - STATIC_UID - 1));
}

static bool is_pod(struct span s, struct span *ret_uid);

static bool is_container(struct span name, struct span parent, struct span *ret_id)
{
	struct span s = without_suffix(name, ".scope"), uid;

	if (s.len >= HEX_ID && are_hex(span(s.p + s.len - HEX_ID, HEX_ID))) {
		struct span runtime = span(s.p, s.len - HEX_ID);

		*ret_id = span(s.p + s.len - HEX_ID, HEX_ID);
		return !runtime.len || (has_suffix(runtime, "-") && !has(runtime, "conmon"));
	}
	*ret_id = s;
	if (is(parent, "lxc") || is(parent, "lxc.payload"))
		return is_plain_name(s);
	if (has_prefix(s, "lxc.payload.")) {
		*ret_id = span(s.p + strlen("lxc.payload."), s.len - strlen("lxc.payload."));
		return is_plain_name(*ret_id);
	}
	if (is_uuid(name, UUID_LEN, "-"))
		return is(parent, "garden") || is_pod(parent, &uid);
	return is_task_id(name) || is_uuid(name, GARDEN_LEN, "-");
}

/* "podUID", or "...kubepods...-podUID.slice", where systemd's names have `_` for `-`. */
static bool is_pod(struct span s, struct span *ret_uid)
{
	size_t at;

	s = without_suffix(s, ".slice");
	for (size_t len = UUID_LEN; len >= STATIC_UID; len -= UUID_LEN - STATIC_UID) {
		if (s.len < len + strlen("pod"))
			continue;
		at = s.len - len;
		*ret_uid = span(s.p + at, len);
		if (len == UUID_LEN ? !is_uuid(*ret_uid, len, "-_") : !are_hex(*ret_uid))
			continue;
		if (is(span(s.p, at), "pod"))
			return true;
		if (has_suffix(span(s.p, at), "-pod") && has(span(s.p, at), "kubepods"))
			return true;
	}
	return false;
}

/* Names that systemd-run and container health checks make up: each would be a service of its own. */
static bool is_transient(struct span unit)
{
	struct span s = without_suffix(unit, ".service"), first, rest;
	size_t nhex = 0;

	if (has_prefix(s, "run-")) {
		rest = span(s.p + 4, s.len - 4);
		if (rest.len > 1 && rest.p[0] == 'u')
			return are_digits(span(rest.p + 1, rest.len - 1));
		if (rest.len > 1 && rest.p[0] == 'r')
			return are_hex(span(rest.p + 1, rest.len - 1));
		/* run-pPID-iNUMBER, since systemd 256 */
		if (next_part(&rest, '-', &first) && first.len > 1 && first.p[0] == 'p' && rest.p &&
		    rest.len > 1 && rest.p[0] == 'i')
			return are_digits(span(first.p + 1, first.len - 1)) &&
			       are_digits(span(rest.p + 1, rest.len - 1));
		return false;
	}
	while (nhex < s.len && is_hex_digit(s.p[nhex]))
		nhex++;
	return nhex >= STATIC_UID && (nhex == s.len || s.p[nhex] == '-');
}

/* user@N.service: everything below it is named by that user. */
static bool is_user_manager(struct span s, struct span *ret_uid)
{
	struct span user = without_suffix(s, ".service");

	if (!has_suffix(s, ".service") || !has_prefix(user, "user@"))
		return false;
	*ret_uid = span(user.p + 5, user.len - 5);
	return are_digits(*ret_uid);
}

/* As systemd defines it; its slices and scopes are no services. */
static bool is_service(struct span s)
{
	struct span uid;

	if (!has_suffix(s, ".service") || s.len == strlen(".service") || s.len >= CGROUP_UNIT_MAX)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (!isalnum((unsigned char)s.p[i]) && !strchr(":-_.\\@", s.p[i]))
			return false;
	}
	return !is_user_manager(s, &uid) && !is_transient(s);
}

/* ---- a path --------------------------------------------------------------------------------- */

static void see_container(struct path_facts *f, struct span id, size_t depth)
{
	f->outer = f->container;
	f->container = (struct found){ id, depth };
}

static void see_component(struct path_facts *f, struct span name, struct span parent, size_t depth)
{
	struct span rest = name, part, id;

	/* The monitor of the container whose group this is. */
	if (is(name, "conmon") && f->container.text.p && f->container.depth + 1 == depth) {
		f->container = f->outer;
		return;
	}
	/* "SLICE:RUNTIME:ID" where runc was told to use systemd and did not. */
	while (next_part(&rest, ':', &part)) {
		if (is_pod(part, &id))
			f->pod = (struct found){ id, depth };
		else if (is_container(part, parent, &id))
			see_container(f, id, depth);
	}
	/* systemd puts a `_` before names that the kernel could use itself. */
	if (name.len && name.p[0] == '_')
		name = span(name.p + 1, name.len - 1);
	if (is_user_manager(name, &id) && !is(id, "0"))
		f->is_below_user = true;
	if (is_service(name))
		f->unit = name;
}

static struct path_facts parse_path(struct span path)
{
	struct path_facts f = {};
	struct span name, parent = { "", 0 };

	for (size_t depth = 0; next_part(&path, '/', &name); depth++) {
		/* The last ones of a private namespace's relative path; and before the first `/`. */
		if (name.len && !is(name, "..")) {
			see_component(&f, name, parent, depth);
			parent = name;
		}
	}
	return f;
}

/* ---- the lines ------------------------------------------------------------------------------ */

struct line {
	struct span controllers, path;
};

/* False at the end. A line that is none has an empty path. */
static bool next_line(struct span *lines, struct line *ret)
{
	struct span line, number;

	if (!next_part(lines, '\n', &line))
		return false;
	*ret = (struct line){ .path = { "", 0 } };
	if (!next_part(&line, ':', &number) || !next_part(&line, ':', &ret->controllers) ||
	    !line.p || !line.len || line.p[0] != '/')
		return true;
	while (isspace((unsigned char)line.p[line.len - 1]))
		line.len--;
	ret->path = without_suffix(line, " (deleted)"); /* the kernel's mark on a group that is gone */
	return true;
}

/* Where systemd keeps its units, best first: on hybrid hosts in both. */
static int unit_rank(const struct line *l)
{
	if (!l->controllers.len)
		return 3;
	return is(l->controllers, "name=systemd") ? 2 : 1;
}

static bool is_deeper(const struct found *a, const struct found *b)
{
	return a->text.p && (!b->text.p || a->depth > b->depth);
}

/*
 * On hybrid hosts a container has its own group in the controllers' hierarchies and is left in that
 * of its runtime's service in the other. So where there is a container, only paths that lead to it
 * count.
 */
static void find_unit(struct span lines, const struct found *container, struct cgroup_facts *ret)
{
	struct line line;
	int best = 0;

	while (next_line(&lines, &line)) {
		struct path_facts f = parse_path(line.path);

		if (!f.unit.p || unit_rank(&line) <= best)
			continue;
		if (container->text.p &&
		    (!f.container.text.p || !are_equal(f.container.text, container->text)))
			continue;
		best = unit_rank(&line);
		copy(f.unit, ret->service_unit, sizeof(ret->service_unit));
		ret->is_users_unit = f.is_below_user;
		ret->unit_path = line.path.p;
		ret->unit_path_len = line.path.len;
	}
}

void cgroup_parse(const char *lines, struct cgroup_facts *ret)
{
	struct span all = span(lines, strlen(lines)), rest = all;
	struct found container = {}, pod = {};
	struct line line;

	*ret = (struct cgroup_facts){};
	while (next_line(&rest, &line)) {
		struct path_facts f = parse_path(line.path);

		if (is_deeper(&f.container, &container)) {
			container = f.container;
			ret->container_path = line.path.p;
			ret->container_path_len = line.path.len;
		}
		if (is_deeper(&f.pod, &pod)) {
			pod = f.pod;
			ret->pod_path = line.path.p;
			ret->pod_path_len = line.path.len;
		}
	}
	copy(container.text, ret->container_id, sizeof(ret->container_id));
	copy(pod.text, ret->pod_uid, sizeof(ret->pod_uid));
	for (char *c = ret->pod_uid; *c; c++)
		*c = *c == '_' ? '-' : *c;
	find_unit(all, &container, ret);
}

/* ---- names of units ------------------------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that `\xHH` stands for, 0 when it is none. */
static int escaped_byte(struct span s)
{
	int high, low;

	if (s.len < 4 || s.p[0] != '\\' || s.p[1] != 'x')
		return 0;
	high = hex_value(s.p[2]);
	low = hex_value(s.p[3]);
	return high < 0 || low < 0 ? 0 : high << 4 | low;
}

void cgroup_unit_name(const char *unit, char *ret, size_t size)
{
	struct span s = without_suffix(span(unit, strlen(unit)), ".service");
	const char *instance = memchr(s.p, '@', s.len);
	size_t n = 0;

	if (instance)
		s.len = (size_t)(instance - s.p);
	while (s.len && n < size - 1) {
		int byte = escaped_byte(s);
		size_t used = byte ? 4 : 1;

		ret[n++] = byte ? (char)byte : s.p[0];
		s = span(s.p + used, s.len - used);
	}
	ret[n] = 0;
}
