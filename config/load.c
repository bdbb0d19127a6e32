#include "config/load.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <yaml.h>

enum { PATH_MAX_BYTES = 256 };

struct loader {
	yaml_parser_t parser;
	const char *file;
	size_t line; /* of the last event, from 1 */
	char **ret_why;
};

/* The way from the top to a key, for messages. */
struct place {
	const struct place *up;
	const char *name; /* NULL: item `index` of a list */
	size_t index;
};

/* "endpoints[0].url: ", or nothing at the top. */
static size_t format_place(const struct place *at, char *ret, size_t size)
{
	size_t used = 0;

	if (!at)
		return 0;
	used = format_place(at->up, ret, size);
	if (used < size && at->name)
		used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? "." : "", at->name);
	else if (used < size)
		used += (size_t)snprintf(ret + used, size - used, "[%zu]", at->index);
	return used;
}

static PRINTF(3, 4) int complain(struct loader *l, const struct place *at, const char *fmt, ...)
{
	char where[PATH_MAX_BYTES] = "";
	CLEANUP_FREE char *what = NULL;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vasprintf(&what, fmt, args);
	va_end(args);
	if (n < 0) {
		what = NULL;
		return -ENOMEM;
	}
	format_place(at, where, sizeof(where));
	return schema_refuse(l->ret_why, "%s:%zu: %s%s%s", l->file, l->line, where, at ? ": " : "",
			     what);
}

static int complain_unknown(struct loader *l, const struct place *at, const struct schema_key *keys,
			    const char *name)
{
	char better[512];

	schema_suggest(keys, name, better, sizeof(better));
	return complain(l, at, "unknown key %s: %s", LOG_STR(name), better);
}

/* What schema_*() said, with file and line in front. */
static int passed_on(struct loader *l, const struct place *at, int err, const char *why)
{
	return err == -EINVAL ? complain(l, at, "%s", why) : err;
}

static int next_event(struct loader *l, yaml_event_t *ret)
{
	const yaml_parser_t *p = &l->parser;

	if (yaml_parser_parse(&l->parser, ret)) {
		l->line = ret->start_mark.line + 1;
		return 0;
	}
	if (p->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	/* The reader, who finds bad UTF-8, knows no line: where the scanner is, is close. */
	l->line = (p->error == YAML_READER_ERROR ? p->mark.line : p->problem_mark.line) + 1;
	return complain(l, NULL, "is no YAML: %s%s", p->problem ? p->problem : "it cannot be read",
			p->error == YAML_READER_ERROR ? "" :
							" (blanks indent, tabs do not; a text with `: ` or ` #` in "
							"it, or that begins with a special character, is quoted)");
}

static bool is_null(const yaml_event_t *e)
{
	const char *v = (const char *)e->data.scalar.value;

	return e->type == YAML_SCALAR_EVENT && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*v || strcmp(v, "~") == 0 || strcmp(v, "null") == 0);
}

/* The event that a value begins with: nothing that stands for something elsewhere. */
static int next_value(struct loader *l, const struct place *at, yaml_event_t *ret)
{
	const void *anchor = NULL, *tag = NULL;
	int err = next_event(l, ret);

	if (err)
		return err;
	switch (ret->type) {
	case YAML_ALIAS_EVENT:
		anchor = ret->data.alias.anchor;
		break;
	case YAML_SCALAR_EVENT:
		anchor = ret->data.scalar.anchor;
		tag = ret->data.scalar.tag;
		if (strlen((const char *)ret->data.scalar.value) != ret->data.scalar.length)
			return complain(l, at, "has a NUL byte");
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = ret->data.sequence_start.anchor;
		tag = ret->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = ret->data.mapping_start.anchor;
		tag = ret->data.mapping_start.tag;
		break;
	default:
		break;
	}
	if (anchor)
		return complain(l, at, "anchors and aliases are not supported");
	if (tag)
		return complain(l, at, "tags are not supported");
	return 0;
}

/* The text of a scalar that must be there; what it points to belongs to the event. */
static int scalar_text(struct loader *l, const struct place *at, const yaml_event_t *e,
		       const char **ret)
{
	if (e->type != YAML_SCALAR_EVENT)
		return complain(l, at, "must be one value, not a list or section");
	if (is_null(e))
		return complain(l, at, "has no value");
	*ret = (const char *)e->data.scalar.value;
	return 0;
}

/* Anything at all, of bounded depth. */
static int skip_value(struct loader *l, const struct place *at)
{
	size_t depth = 0;

	do {
		CLEANUP(yaml_event_delete) yaml_event_t e = {};
		int err = next_event(l, &e);

		if (err)
			return err;
		if (e.type == YAML_MAPPING_START_EVENT || e.type == YAML_SEQUENCE_START_EVENT)
			depth++;
		if (e.type == YAML_MAPPING_END_EVENT || e.type == YAML_SEQUENCE_END_EVENT)
			depth--;
		if (depth > LOAD_DEPTH_MAX)
			return complain(l, at, "is nested more than %d deep", LOAD_DEPTH_MAX);
	} while (depth);
	return 0;
}

static int load_section(struct loader *l, const struct place *at, const struct schema_key *keys,
			void *base);

static int load_strings(struct loader *l, const struct place *at, const struct schema_key *k,
			void *base)
{
	struct place item = { .up = at };

	for (;; item.index++) {
		CLEANUP(yaml_event_delete) yaml_event_t e = {};
		CLEANUP_FREE char *why = NULL;
		const char *text = NULL;
		int err = next_value(l, &item, &e);

		if (err || e.type == YAML_SEQUENCE_END_EVENT)
			return err;
		err = scalar_text(l, &item, &e, &text);
		if (err)
			return err;
		err = schema_add_string(k, base, text, &why);
		if (err)
			return passed_on(l, &item, err, why);
	}
}

static int load_map(struct loader *l, const struct place *at, const struct schema_key *k,
		    void *base)
{
	for (;;) {
		CLEANUP(yaml_event_delete) yaml_event_t ename = {}, evalue = {};
		CLEANUP_FREE char *why = NULL;
		const char *name = NULL, *value = NULL;
		int err = next_value(l, at, &ename);

		if (err || ename.type == YAML_MAPPING_END_EVENT)
			return err;
		err = scalar_text(l, at, &ename, &name);
		if (err)
			return err;
		err = next_value(l, at, &evalue);
		if (err)
			return err;
		err = scalar_text(l, at, &evalue, &value);
		if (err)
			return err;
		err = schema_add_pair(k, base, name, value, &why);
		if (err)
			return passed_on(l, at, err, why);
	}
}

static int load_items(struct loader *l, const struct place *at, const struct schema_key *k,
		      void *base)
{
	struct place item = { .up = at };

	for (;; item.index++) {
		CLEANUP(yaml_event_delete) yaml_event_t e = {};
		CLEANUP_FREE char *why = NULL;
		void *to;
		int err = next_value(l, &item, &e);

		if (err || e.type == YAML_SEQUENCE_END_EVENT)
			return err;
		if (e.type != YAML_MAPPING_START_EVENT)
			return complain(l, &item, "must be a section: lines of `key: value`");
		err = schema_add_item(k, base, &to, &why);
		if (err)
			return passed_on(l, at, err, why);
		schema_keep_line(to, k->item_line_off, l->line);
		err = load_section(l, &item, k->keys, to);
		if (err)
			return err;
	}
}

static int load_scalar(struct loader *l, const struct place *at, const struct schema_key *k,
		       void *base, const yaml_event_t *e)
{
	CLEANUP_FREE char *why = NULL;
	const char *text = NULL;
	int err = scalar_text(l, at, e, &text);

	if (err)
		return err;
	err = schema_set(k, base, text, &why);
	return passed_on(l, at, err, why);
}

static int load_value(struct loader *l, const struct place *at, const struct schema_key *k,
		      void *base)
{
	CLEANUP(yaml_event_delete) yaml_event_t e = {};
	int err = next_value(l, at, &e);

	if (err)
		return err;
	switch (k->type) {
	case SCHEMA_SECTION:
	case SCHEMA_MAP:
		if (is_null(&e)) /* everything in it is commented out */
			return 0;
		if (e.type != YAML_MAPPING_START_EVENT)
			return complain(l, at, "must be a section: lines of `key: value`");
		return k->type == SCHEMA_MAP ? load_map(l, at, k, base) :
					       load_section(l, at, k->keys, base);
	case SCHEMA_STRINGS:
	case SCHEMA_SECTIONS:
		if (is_null(&e))
			return 0;
		if (e.type != YAML_SEQUENCE_START_EVENT)
			return complain(l, at, "must be a list: each entry begins with `- `");
		return k->type == SCHEMA_STRINGS ? load_strings(l, at, k, base) :
						   load_items(l, at, k, base);
	default:
		return load_scalar(l, at, k, base, &e);
	}
}

/* Behind the start of a mapping, up to and with its end. */
static int load_section(struct loader *l, const struct place *at, const struct schema_key *keys,
			void *base)
{
	size_t lines[SCHEMA_KEYS_MAX] = {}; /* where each key was seen */

	for (;;) {
		CLEANUP(yaml_event_delete) yaml_event_t e = {};
		const struct schema_key *k;
		struct place here = { .up = at };
		int err = next_value(l, at, &e);

		if (err || e.type == YAML_MAPPING_END_EVENT)
			return err;
		if (e.type != YAML_SCALAR_EVENT)
			return complain(l, at, "a key must be a name");
		here.name = (const char *)e.data.scalar.value;
		k = schema_find(keys, here.name);
		if (!k && strncmp(here.name, "x-", 2) != 0)
			return complain_unknown(l, at, keys, here.name);
		if (k && lines[k - keys])
			return complain(l, &here, "is there twice, first in line %zu",
					lines[k - keys]);
		if (k) {
			lines[k - keys] = l->line;
			schema_keep_line(base, k->line_off, l->line);
		}
		err = k ? load_value(l, &here, k, base) : skip_value(l, at);
		if (err)
			return err;
	}
}

static int load_stream(struct loader *l, const struct schema_key *keys, void *base)
{
	yaml_event_type_t type;
	bool has_document = false;

	do {
		CLEANUP(yaml_event_delete) yaml_event_t e = {};
		int err = next_value(l, NULL, &e);

		if (err)
			return err;
		type = e.type;
		if (type == YAML_DOCUMENT_START_EVENT && has_document)
			return complain(l, NULL, "has a second document");
		if (type == YAML_DOCUMENT_START_EVENT)
			has_document = true;
		else if (type == YAML_MAPPING_START_EVENT)
			err = load_section(l, NULL, keys, base);
		else if (type == YAML_SEQUENCE_START_EVENT ||
			 (type == YAML_SCALAR_EVENT && !is_null(&e)))
			return complain(l, NULL, "must be a section: lines of `key: value`");
		if (err)
			return err;
	} while (type != YAML_STREAM_END_EVENT);
	return 0;
}

int load_bytes(const char *name, const void *data, size_t len, const struct schema_key *keys,
	       void *base, char **ret_why)
{
	struct loader l = { .file = name, .line = 1, .ret_why = ret_why };
	int err;

	if (len > LOAD_FILE_MAX)
		return schema_refuse(ret_why, "%s: is larger than %d bytes", name, LOAD_FILE_MAX);
	if (!yaml_parser_initialize(&l.parser))
		return -ENOMEM;
	/* Not what a byte order mark says: UTF-16 would double what is to be tested. */
	yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&l.parser, data, len);
	err = load_stream(&l, keys, base);
	yaml_parser_delete(&l.parser);
	return err;
}

/* The file cannot be read: err itself, with its text. */
static int cannot_read(const char *name, int err, char **ret_why)
{
	if (schema_refuse(ret_why, "%s: %s", name, strerror(-err)) == -ENOMEM)
		return -ENOMEM;
	return err;
}

/* All of it, or one byte more than is allowed. Who shares the descriptor may have moved its offset. */
static int read_file(int fd, uint8_t *ret, size_t *ret_len)
{
	bool is_seekable = true;
	size_t len = 0;
	ssize_t n;

	do {
		n = is_seekable ? pread(fd, ret + len, LOAD_FILE_MAX + 1 - len, (off_t)len) :
				  read(fd, ret + len, LOAD_FILE_MAX + 1 - len);
		if (n < 0 && errno == ESPIPE && is_seekable) {
			is_seekable = false;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		len += (size_t)n;
	} while (n != 0 && len <= LOAD_FILE_MAX);
	*ret_len = len;
	return 0;
}

int load_fd(int fd, const char *name, const struct schema_key *keys, void *base, char **ret_why)
{
	CLEANUP_FREE uint8_t *data = malloc(LOAD_FILE_MAX + 1);
	size_t len = 0;
	int err;

	if (!data)
		return -ENOMEM;
	err = read_file(fd, data, &len);
	return err ? cannot_read(name, err, ret_why) :
		     load_bytes(name, data, len, keys, base, ret_why);
}

int load_file(const char *path, const struct schema_key *keys, void *base, char **ret_why)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	return fd < 0 ? cannot_read(path, -errno, ret_why) :
			load_fd(fd, path, keys, base, ret_why);
}
