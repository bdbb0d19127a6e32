#include "exporter/push_settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- an endpoint's settings ------------------------------------------------------------------ */

static char *copy(const char *s)
{
	return strdup(s ? s : "");
}

static void secret_clear(struct push_secret *s)
{
	if (s->data)
		explicit_bzero(s->data, s->len);
	free(s->data);
	s->data = NULL;
	s->len = 0;
}

struct push_settings *push_settings_free(struct push_settings *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(s->secrets); i++) {
		secret_clear(&s->secrets[i]);
		free(s->secrets[i].file);
	}
	value_map_fini(&s->headers);
	free(s->url);
	free(s->base);
	free(s->query);
	free(s->username);
	free(s->tenant);
	free(s->user_agent);
	free(s);
	return NULL;
}

static void strip_slashes(char *s)
{
	size_t len = strlen(s);

	while (len && s[len - 1] == '/')
		s[--len] = '\0';
}

static int split_url(struct push_settings *s)
{
	const char *query = strchr(s->url, '?');

	s->query = copy(query);
	s->base = query ? strndup(s->url, (size_t)(query - s->url)) : copy(s->url);
	if (!s->base || !s->query)
		return -ENOMEM;
	strip_slashes(s->base);
	return 0;
}

static bool is_set(const char *s)
{
	return s && *s;
}

static int set_secret(struct push_secret *s, const void *data, size_t len)
{
	char *p = malloc(len + 1);

	if (!p)
		return -ENOMEM;
	if (len)
		memcpy(p, data, len);
	p[len] = '\0';
	secret_clear(s);
	s->data = p;
	s->len = len;
	s->state = PUSH_SECRET_GIVEN;
	return 0;
}

/* From the settings, or from a file that is still to come. */
static int init_secret(struct push_settings *s, enum export_role role, const char *value,
		       const char *file)
{
	struct push_secret *secret = &s->secrets[role];

	secret->file = copy(file);
	if (!secret->file)
		return -ENOMEM;
	if (is_set(value))
		return set_secret(secret, value, strlen(value));
	if (*secret->file)
		secret->state = PUSH_SECRET_AWAITED;
	return 0;
}

static int init_secrets(struct push_settings *s, const struct config_endpoint *e)
{
	int err = init_secret(s, EXPORT_ROLE_PASSWORD, e->basic_auth.password,
			      e->basic_auth.password_file);

	if (!err)
		err = init_secret(s, EXPORT_ROLE_BEARER_TOKEN, e->bearer_token,
				  e->bearer_token_file);
	if (!err)
		err = init_secret(s, EXPORT_ROLE_CA, NULL, e->tls.ca_file);
	if (!err)
		err = init_secret(s, EXPORT_ROLE_CERT, NULL, e->tls.cert_file);
	if (!err)
		err = init_secret(s, EXPORT_ROLE_KEY, NULL, e->tls.key_file);
	return err;
}

int push_settings_new(struct push_settings **ret, const struct config_endpoint *e,
		      const char *version)
{
	CLEANUP(push_settings_freep) struct push_settings *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->url = copy(e->url);
	s->username = copy(e->basic_auth.username);
	s->tenant = copy(e->tenant_id);
	if (!s->url || !s->username || !s->tenant ||
	    asprintf(&s->user_agent, "flamed/%s", version) < 0)
		return -ENOMEM;
	s->protocol = e->protocol;
	s->timeout_ns = e->timeout_ns;
	s->insecure = e->tls.insecure_skip_verify;
	s->has_basic = *s->username || is_set(e->basic_auth.password) ||
		       is_set(e->basic_auth.password_file);
	s->has_bearer = is_set(e->bearer_token) || is_set(e->bearer_token_file);
	err = split_url(s);
	if (!err)
		err = init_secrets(s, e);
	for (size_t i = 0; !err && i < e->headers.n; i++)
		err = value_map_add(&s->headers, e->headers.v[i].name, e->headers.v[i].value);
	if (err)
		return err;
	*ret = TAKE(s);
	return 0;
}

int push_settings_secret(struct push_settings *s, enum export_role role, const void *data,
			 size_t len)
{
	struct push_secret *secret;

	/* What the settings do not name is nothing to wait for, and nothing to use. */
	if ((int)role >= PUSH_NROLES || !*s->secrets[role].file)
		return 0;
	secret = &s->secrets[role];
	if (data)
		return set_secret(secret, data, len);
	secret_clear(secret);
	secret->state = PUSH_SECRET_UNREADABLE;
	return 0;
}

void push_settings_inherit(struct push_settings *s, struct push_settings *old)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->secrets); i++) {
		struct push_secret *to = &s->secrets[i], *from = &old->secrets[i];

		if (to->state != PUSH_SECRET_AWAITED || strcmp(to->file, from->file) != 0)
			continue;
		to->state = from->state;
		to->data = TAKE(from->data);
		to->len = from->len;
	}
}

/* ---- secrets --------------------------------------------------------------------------------- */

static bool has_control(const struct push_secret *s)
{
	for (size_t i = 0; i < s->len; i++) {
		if ((unsigned char)s->data[i] < 0x20 || s->data[i] == 0x7f)
			return true;
	}
	return false;
}

const char *push_settings_missing(const struct push_settings *s, bool *ret_is_news)
{
	const struct push_secret *password = &s->secrets[EXPORT_ROLE_PASSWORD];
	const struct push_secret *token = &s->secrets[EXPORT_ROLE_BEARER_TOKEN];

	*ret_is_news = false;
	for (size_t i = 0; i < ARRAY_SIZE(s->secrets); i++) {
		if (s->secrets[i].state == PUSH_SECRET_UNREADABLE)
			return "a file that it needs cannot be read";
		if (s->secrets[i].state == PUSH_SECRET_AWAITED)
			return "a file that it needs has not come yet";
	}
	*ret_is_news = true;
	/* Servers answer a mere 401, and others' clients say nothing at all. */
	if (s->has_basic && !*s->username)
		return "basic_auth.username is empty";
	if (s->has_basic && !password->len)
		return *password->file ? "basic_auth.password_file is empty" :
					 "basic_auth.password is empty";
	if (s->has_basic && has_control(password))
		return "basic_auth.password has more than one line, or control characters";
	if (s->has_bearer && !token->len)
		return *token->file ? "bearer_token_file is empty" : "bearer_token is empty";
	if (s->has_bearer && has_control(token))
		return "bearer_token has more than one line, or control characters";
	return NULL;
}

/* Also the beginning of a secret that the text's end cut off. */
static void redact(char *text, const char *secret, size_t min)
{
	static const char stars[] = "***";
	size_t n = strlen(secret), len = strlen(text);
	char *at = text;

	if (n < min)
		return;
	while ((at = strstr(at, secret))) {
		size_t put = MIN(n, sizeof(stars) - 1);

		memcpy(at, stars, put);
		memmove(at + put, at + n, strlen(at + n) + 1);
		at += put;
	}
	len = strlen(text);
	for (size_t k = MIN(n, len); k >= 4; k--) {
		if (!memcmp(text + len - k, secret, k)) {
			text[len - k] = '\0';
			break;
		}
	}
}

char *push_settings_basic(const struct push_settings *s)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	CLEANUP_FREE char *plain = NULL;
	size_t len, n = 0;
	char *out;

	if (asprintf(&plain, "%s:%s", s->username, s->secrets[EXPORT_ROLE_PASSWORD].data) < 0)
		return NULL;
	len = strlen(plain);
	out = malloc((len + 2) / 3 * 4 + 1);
	for (size_t i = 0; out && i < len; i += 3) {
		uint32_t v = (uint32_t)(uint8_t)plain[i] << 16;

		v |= i + 1 < len ? (uint32_t)(uint8_t)plain[i + 1] << 8 : 0;
		v |= i + 2 < len ? (uint32_t)(uint8_t)plain[i + 2] : 0;
		out[n++] = digits[v >> 18];
		out[n++] = digits[v >> 12 & 63];
		out[n++] = i + 1 < len ? digits[v >> 6 & 63] : '=';
		out[n++] = i + 2 < len ? digits[v & 63] : '=';
	}
	if (out)
		out[n] = '\0';
	explicit_bzero(plain, len);
	return out;
}

void push_settings_redact(const struct push_settings *s, char *text)
{
	const struct push_secret *password = &s->secrets[EXPORT_ROLE_PASSWORD];
	const struct push_secret *token = &s->secrets[EXPORT_ROLE_BEARER_TOKEN];

	if (password->len) {
		CLEANUP_FREE char *pair = push_settings_basic(s);

		if (pair)
			redact(text, pair, 1);
		redact(text, password->data, 1);
	}
	if (token->len)
		redact(text, token->data, 1);
	for (size_t i = 0; i < s->headers.n; i++)
		redact(text, s->headers.v[i].value, 4);
	if (strlen(s->query) > 1)
		redact(text, s->query + 1, 4);
}
