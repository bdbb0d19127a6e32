#include "exporter/labels.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "exporter/cgroup.h"
#include "exporter/utf8.h"

enum { LABELS_MAX = 4, SOURCE_MAX = 512 };

/* ---- texts ---------------------------------------------------------------------------------- */

static bool has_prefix(const char *s, size_t len, const char *prefix)
{
	size_t n = strlen(prefix);

	return len >= n && !memcmp(s, prefix, n);
}

/* Names there are random, or whatever the program liked: each would be a series of its own. */
static bool is_temporary(const char *path, size_t len)
{
	static const char *const places[] = { "/tmp/", "/var/tmp/", "/dev/shm/", "/memfd:" };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (has_prefix(path, len, places[i]))
			return true;
	}
	return false;
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

void labels_sanitize(const char *text, size_t len, char *ret, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n < size - 1; i++) {
		/* The lead byte of a UTF-8 character stands for all of it. */
		if (((unsigned char)text[i] & 0xc0) == 0x80)
			continue;
		ret[n++] = is_allowed(text[i]) ? text[i] : '_';
	}
	ret[n] = 0;
}

/* ---- service_name --------------------------------------------------------------------------- */

/* What a service is named after; texts are no C strings. */
struct origin {
	const char *unit; /* "" none */
	bool is_users_unit;
	const char *executable, *comm;
	size_t executable_len, comm_len;
	bool is_kernel;
};

struct service {
	char name[LABELS_NAME_MAX + 1];
	const char *source; /* a kind of source, for people */
	const char *detail; /* and which one */
	size_t detail_len;
};

static struct service fixed(const char *name, const char *source)
{
	struct service s = { .source = source, .detail = "" };

	snprintf(s.name, sizeof(s.name), "%s", name);
	return s;
}

static bool name_by_unit(const struct origin *o, struct service *ret)
{
	/* What a user calls theirs is not the system's of that name: no name of a unit has a `/` of its own. */
	static const char users[] = "user/";
	size_t n = o->is_users_unit ? sizeof(users) - 1 : 0;
	char name[CGROUP_UNIT_MAX];

	cgroup_unit_name(o->unit, name, sizeof(name));
	memcpy(ret->name, users, n);
	labels_sanitize(name, strlen(name), ret->name + n, sizeof(ret->name) - n);
	ret->source = "from unit ";
	ret->detail = o->unit;
	ret->detail_len = strlen(o->unit);
	return ret->name[n];
}

static bool name_by_executable(const struct origin *o, struct service *ret)
{
	size_t len = without_deleted(o->executable, o->executable_len);
	const char *slash = memrchr(o->executable, '/', len);
	const char *base = slash ? slash + 1 : o->executable;

	if (is_temporary(o->executable, len))
		*ret = fixed("other", "");
	else
		labels_sanitize(base, len - (size_t)(base - o->executable), ret->name,
				sizeof(ret->name));
	ret->source = "from the executable ";
	ret->detail = o->executable;
	ret->detail_len = o->executable_len;
	return ret->name[0];
}

static struct service name_service(const struct origin *o)
{
	struct service s = {};

	if (o->is_kernel)
		return fixed("kernel", "kernel thread");
	if (o->unit[0] && name_by_unit(o, &s))
		return s;
	if (o->executable_len && name_by_executable(o, &s))
		return s;
	labels_sanitize(o->comm, o->comm_len, s.name, sizeof(s.name));
	s.source = "from the thread's name ";
	s.detail = o->comm;
	s.detail_len = o->comm_len;
	return s.name[0] ? s : fixed("unknown", "nothing is known of it");
}

/* ---- the labels of a subject ---------------------------------------------------------------- */

/* Everything that a set of labels points to. */
struct made {
	struct export_label labels[LABELS_MAX];
	struct cgroup_facts cgroup;
	char service_name[LABELS_NAME_MAX + 1];
	char container_source[SOURCE_MAX], pod_source[SOURCE_MAX];
	char service_source[SOURCE_MAX], unit_source[SOURCE_MAX];
};

/* "from unit nginx.service": the detail is a stranger's text. */
static void describe(char *ret, const char *source, const char *detail, size_t len)
{
	size_t n = (size_t)snprintf(ret, SOURCE_MAX, "%s", source);

	assert(n < SOURCE_MAX);
	utf8_clean(detail, len, ret + n, SOURCE_MAX - n);
}

/* In the order of their names; an empty value is no label. */
static void add_label(struct made *m, uint32_t *n, const char *name, const char *value,
		      const char *source)
{
	if (value[0])
		m->labels[(*n)++] = (struct export_label){ name, value, source };
}

static uint32_t add_labels(struct made *m, const struct service *s)
{
	static const char from[] = "from the control group ";
	const struct cgroup_facts *c = &m->cgroup;
	uint32_t n = 0;

	memcpy(m->service_name, s->name, sizeof(s->name));
	describe(m->service_source, s->source, s->detail, s->detail_len);
	describe(m->container_source, from, c->container_path, c->container_path_len);
	describe(m->pod_source, from, c->pod_path, c->pod_path_len);
	describe(m->unit_source, from, c->unit_path, c->unit_path_len);
	add_label(m, &n, "container_id", c->container_id, m->container_source);
	add_label(m, &n, "pod_uid", c->pod_uid, m->pod_source);
	add_label(m, &n, "service_name", m->service_name, m->service_source);
	add_label(m, &n, "unit", c->service_unit, m->unit_source);
	return n;
}

static bool matches(const char *pattern, const char *service)
{
	return fnmatch(pattern, service, 0) == 0;
}

static uint32_t keep_one_in(const struct config *c, const char *service)
{
	uint64_t n;

	for (size_t i = 0; c && i < c->processes.exclude.n; i++) {
		if (matches(c->processes.exclude.v[i], service))
			return 0;
	}
	for (size_t i = 0; c && i < c->processes.thin.n; i++) {
		const struct value_pair *p = &c->processes.thin.v[i];

		if (matches(p->name, service))
			return value_parse_int(p->value, &n) || n == 0 || n > UINT32_MAX ?
				       1 :
				       (uint32_t)n;
	}
	return 1;
}

int labels_make(const struct export_facts *f, const struct config *conf, struct export_labels *ret,
		void **ret_mem)
{
	struct made *m = calloc(1, sizeof(*m));
	struct service s;
	uint32_t n;

	if (!m)
		return -ENOMEM;
	cgroup_parse(f->cgroups, &m->cgroup);
	s = name_service(&(struct origin){
		.unit = m->cgroup.service_unit,
		.is_users_unit = m->cgroup.is_users_unit,
		.executable = f->executable,
		.executable_len = strlen(f->executable),
		.comm = f->comm,
		.comm_len = strlen(f->comm),
		.is_kernel = f->flags & EXPORT_SUBJECT_KERNEL,
	});
	n = add_labels(m, &s);
	*ret = (struct export_labels){
		.id = f->id,
		.keep_one_in = keep_one_in(conf, m->service_name),
		.nlabels = n,
		.labels = m->labels,
	};
	*ret_mem = m;
	return 0;
}

/* ---- the services of a batch ---------------------------------------------------------------- */

/* By subject: the comm of its main thread, else of its first sample, else "". */
static uint32_t *find_comms(const struct export_batch *b)
{
	uint32_t *comms = calloc((size_t)b->nsubjects + 1, sizeof(*comms));

	for (uint32_t i = b->nsamples; comms && i-- > 0;)
		comms[b->samples[i].subject] = b->samples[i].comm;
	for (uint32_t i = b->nsamples; comms && i-- > 0;) {
		const struct export_sample *s = &b->samples[i];

		if (s->tid == b->subjects[s->subject].pid)
			comms[s->subject] = s->comm;
	}
	return comms;
}

static bool is_name(const struct export_string *s)
{
	for (uint32_t i = 0; i < s->len; i++) {
		if (!is_allowed(s->text[i]))
			return false;
	}
	return s->len && s->len <= LABELS_NAME_MAX;
}

static bool find_given(const struct export_batch *b, uint32_t subject, struct export_string *ret)
{
	static const char name[] = "service_name";
	const struct export_subject *s = &b->subjects[subject];

	for (uint32_t i = 0; i < s->npairs; i++) {
		const struct export_pair *p = &b->pairs[s->first_pair + i];
		const struct export_string *key = &b->strings[p->name];

		if (key->len == sizeof(name) - 1 && !memcmp(key->text, name, key->len) &&
		    is_name(&b->strings[p->value])) {
			*ret = b->strings[p->value];
			return true;
		}
	}
	return false;
}

static struct service name_subject(const struct export_batch *b, uint32_t subject, uint32_t comm)
{
	const struct export_subject *s = &b->subjects[subject];

	return name_service(&(struct origin){
		.unit = "",
		.executable = b->strings[s->executable].text,
		.executable_len = b->strings[s->executable].len,
		.comm = b->strings[comm].text,
		.comm_len = b->strings[comm].len,
		.is_kernel = s->flags & EXPORT_SUBJECT_KERNEL,
	});
}

int labels_services(const struct export_batch *b, struct export_string **ret, void **ret_mem)
{
	CLEANUP_FREE struct export_string *names = calloc((size_t)b->nsubjects + 1, sizeof(*names));
	CLEANUP_FREE uint32_t *comms = find_comms(b);
	CLEANUP(bufw_fini) struct bufw made = {};
	size_t at = 0;
	int err;

	if (!names || !comms)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->nsubjects; i++) {
		if (!find_given(b, i, &names[i])) {
			struct service s = name_subject(b, i, comms[i]);

			names[i].len = (uint32_t)strlen(s.name);
			bufw_bytes(&made, s.name, names[i].len);
		}
	}
	err = bufw_end(&made);
	if (err)
		return err;
	/* Only now do they stay where they are. */
	for (uint32_t i = 0; i < b->nsubjects; i++) {
		if (!names[i].text) {
			names[i].text = (const char *)made.data + at;
			at += names[i].len;
		}
	}
	*ret = TAKE(names);
	*ret_mem = TAKE(made.data);
	return 0;
}
