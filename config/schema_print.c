#include "config/schema.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* Where a section is: how far in, and what its variables begin with ("": it has none). */
struct at {
	int indent;
	char env[128];
};

static void print_keys(FILE *out, const struct schema_key *keys, const void *base,
		       const struct at *at);

static struct at inside(const struct at *at, int indent, const char *name, bool has_env)
{
	struct at r = { .indent = at->indent + indent };
	size_t len = strlen(at->env);

	if (!has_env || !len)
		return r;
	memcpy(r.env, at->env, len);
	for (; *name && len + 2 < sizeof(r.env); name++)
		r.env[len++] = (char)toupper((unsigned char)*name);
	r.env[len++] = '_';
	return r;
}

static void print_quoted(FILE *out, const struct schema_key *k, const char *s)
{
	bool has_query = false;

	if (k->is_secret && *s)
		s = "(hidden)";
	fputc('"', out);
	for (; *s && !has_query; s++) { /* no control characters: schema_set() has seen to that */
		has_query = k->is_url && *s == '?';
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputs(has_query && *s ? "(hidden)\"" : "\"", out);
}

/* "1..1000", or "one of error, warning, info, debug"; nothing for what is free. */
static void print_domain(FILE *out, const struct schema_key *k)
{
	switch (k->type) {
	case SCHEMA_INT:
	case SCHEMA_DURATION:
	case SCHEMA_SIZE:
		fprintf(out, "%s..", schema_format(k->type, k->min).text);
		fprintf(out, "%s, ", schema_format(k->type, k->max).text);
		break;
	case SCHEMA_CHOICE:
		for (size_t i = 0; k->choices[i]; i++)
			fprintf(out, "%s%s", i ? "|" : "", k->choices[i]);
		fputs(", ", out);
		break;
	case SCHEMA_BOOL:
		fputs("true|false, ", out);
		break;
	case SCHEMA_STRINGS:
	case SCHEMA_MAP:
		fprintf(out, "at most %" PRIu64 " entries, ", k->max);
		break;
	case SCHEMA_STRING:
	case SCHEMA_SECTION:
	case SCHEMA_SECTIONS:
		break;
	}
}

/* Each line of `text` as a comment. */
static void print_comment(FILE *out, const char *text, int indent)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		fprintf(out, "%*s# %.*s\n", indent, "", (int)len, text);
		text += len + (text[len] == '\n');
	}
}

static void print_help(FILE *out, const struct schema_key *k, const struct at *at)
{
	if (k->help)
		print_comment(out, k->help, at->indent);
	if (k->example)
		print_comment(out, k->example, at->indent);
	if (k->type == SCHEMA_SECTION || k->type == SCHEMA_SECTIONS)
		return;
	fprintf(out, "%*s# ", at->indent, "");
	print_domain(out, k);
	fprintf(out, "default %s", k->def && *k->def ? k->def : "empty");
	if (k->needs_restart)
		fputs(", needs a restart", out);
	if (*at->env) {
		fprintf(out, ", %s", at->env);
		for (const char *p = k->name; *p; p++)
			fputc(toupper((unsigned char)*p), out);
	}
	fputc('\n', out);
}

static void print_list(FILE *out, const struct schema_key *k, const void *base, int indent)
{
	const struct value_strings *s = schema_field(k, base);
	const struct value_map *m = schema_field(k, base);

	if (k->type == SCHEMA_STRINGS) {
		fputs(s->n ? "\n" : " []\n", out);
		for (size_t i = 0; i < s->n; i++) {
			fprintf(out, "%*s- ", indent + 2, "");
			print_quoted(out, k, s->v[i]);
			fputc('\n', out);
		}
		return;
	}
	fputs(m->n ? "\n" : " {}\n", out);
	for (size_t i = 0; i < m->n; i++) {
		static const struct schema_key plain;

		fprintf(out, "%*s", indent + 2, "");
		print_quoted(out, &plain, m->v[i].name);
		fputs(": ", out);
		print_quoted(out, k, m->v[i].value);
		fputc('\n', out);
	}
}

/* What an item of an empty list would be: its keys, as comments. */
static void print_template(FILE *out, const struct schema_key *k, const struct at *at)
{
	struct at in = inside(at, 4, k->item_env ? k->item_env : "", k->item_env);
	CLEANUP_FREE void *item = calloc(1, k->item_size);
	CLEANUP_FREE char *text = NULL;
	size_t len;
	FILE *lines = item && schema_init(k->keys, item) == 0 ? open_memstream(&text, &len) : NULL;

	if (lines) {
		fprintf(lines, "All that one can have:\n  -\n");
		print_keys(lines, k->keys, item, &in);
		fclose(lines);
	}
	if (item)
		schema_fini(k->keys, item);
	if (text)
		print_comment(out, text, at->indent);
}

static void print_items(FILE *out, const struct schema_key *k, const void *base,
			const struct at *at)
{
	const struct value_items *items = schema_field(k, base);

	fputs(items->n ? "\n" : " []\n", out);
	for (size_t i = 0; i < items->n; i++) {
		struct at in = inside(at, 4, k->item_env ? k->item_env : "", !i && k->item_env);

		fprintf(out, "%*s-\n", at->indent + 2, "");
		print_keys(out, k->keys, (const char *)items->v + i * k->item_size, &in);
	}
}

static void print_value(FILE *out, const struct schema_key *k, const void *base,
			const struct at *at)
{
	const char *const *s;
	const bool *b;
	struct at in;

	switch (k->type) {
	case SCHEMA_INT:
	case SCHEMA_DURATION:
	case SCHEMA_SIZE:
		fprintf(out, " %s\n", schema_format(k->type, schema_number(k, base)).text);
		break;
	case SCHEMA_CHOICE:
		fprintf(out, " %s\n", k->choices[schema_number(k, base)]);
		break;
	case SCHEMA_BOOL:
		b = schema_field(k, base);
		fprintf(out, " %s\n", *b ? "true" : "false");
		break;
	case SCHEMA_STRING:
		s = schema_field(k, base);
		fputc(' ', out);
		print_quoted(out, k, *s);
		fputc('\n', out);
		break;
	case SCHEMA_STRINGS:
	case SCHEMA_MAP:
		print_list(out, k, base, at->indent);
		break;
	case SCHEMA_SECTION:
		in = k->is_env_flat ? *at : inside(at, 0, k->name, true);
		in.indent = at->indent + 2;
		fputc('\n', out);
		print_keys(out, k->keys, base, &in);
		break;
	case SCHEMA_SECTIONS:
		print_items(out, k, base, at);
		break;
	}
}

static void print_keys(FILE *out, const struct schema_key *keys, const void *base,
		       const struct at *at)
{
	for (const struct schema_key *k = keys; k->name; k++) {
		if (!at->indent)
			fputc('\n', out);
		print_help(out, k, at);
		if (k->type == SCHEMA_SECTIONS && !((const struct value_items *)schema_field(k, base))->n)
			print_template(out, k, at);
		fprintf(out, "%*s%s:", at->indent, "", k->name);
		print_value(out, k, base, at);
	}
}

void schema_print(FILE *out, const struct schema_key *keys, const void *base)
{
	const struct at top = { .env = "FLAMED_" };

	print_keys(out, keys, base, &top);
}
