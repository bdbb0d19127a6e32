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

static const void *field(const struct schema_key *k, const void *base)
{
	return (const char *)base + k->off;
}

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
	if (k->is_secret && *s)
		s = "(hidden)";
	fputc('"', out);
	for (; *s; s++) { /* no control characters: schema_set() has seen to that */
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputc('"', out);
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

static void print_help(FILE *out, const struct schema_key *k, const struct at *at)
{
	if (k->help)
		fprintf(out, "%*s# %s\n", at->indent, "", k->help);
	if (k->type == SCHEMA_SECTION || k->type == SCHEMA_SECTIONS)
		return;
	fprintf(out, "%*s# ", at->indent, "");
	print_domain(out, k);
	fprintf(out, "default %s", k->def && *k->def ? k->def : "empty");
	if (*at->env) {
		fprintf(out, ", %s", at->env);
		for (const char *p = k->name; *p; p++)
			fputc(toupper((unsigned char)*p), out);
	}
	fputc('\n', out);
}

static void print_list(FILE *out, const struct schema_key *k, const void *base, int indent)
{
	const struct value_strings *s = field(k, base);
	const struct value_map *m = field(k, base);

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

static void print_items(FILE *out, const struct schema_key *k, const void *base,
			const struct at *at)
{
	const struct value_items *items = field(k, base);

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
		b = field(k, base);
		fprintf(out, " %s\n", *b ? "true" : "false");
		break;
	case SCHEMA_STRING:
		s = field(k, base);
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
		fprintf(out, "%*s%s:", at->indent, "", k->name);
		print_value(out, k, base, at);
	}
}

void schema_print(FILE *out, const struct schema_key *keys, const void *base)
{
	const struct at top = { .env = "FLAMED_" };

	print_keys(out, keys, base, &top);
}
