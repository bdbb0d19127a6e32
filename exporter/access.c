#include "exporter/access.h"

#include <arpa/inet.h>
#include <string.h>

/* Takes as long for a right guess as for a wrong one of the same length. */
static bool is_secret(const char *secret, const char *given, size_t len)
{
	size_t secret_len = strlen(secret);
	unsigned int diff = secret_len != len;

	for (size_t i = 0; i < len; i++)
		diff |= (unsigned char)given[i] ^
			(unsigned char)secret[secret_len ? i % secret_len : 0];
	return secret_len && !diff;
}

static bool is_basic(const struct access *a, struct MHD_Connection *c)
{
	char *password = NULL;
	char *user = MHD_basic_auth_get_username_password(c, &password);
	bool ok = false, is_user, is_password;

	if (user && password) {
		is_user = is_secret(a->username, user, strlen(user));
		is_password = is_secret(a->password, password, strlen(password));
		ok = is_secret(a->token, password, strlen(password)) || (is_user && is_password);
	}
	MHD_free(user);
	MHD_free(password);
	return ok;
}

bool access_is_granted(const struct access *a, struct MHD_Connection *c)
{
	static const char bearer[] = "Bearer ";
	const char *token = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token");
	const char *header = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");

	if (token && is_secret(a->token, token, strlen(token)))
		return true;
	if (header && !strncasecmp(header, bearer, sizeof(bearer) - 1)) {
		token = header + sizeof(bearer) - 1;
		token += strspn(token, " ");
		return is_secret(a->token, token, strlen(token));
	}
	return is_basic(a, c);
}

bool access_path(const struct access *a, const char *path, const char **ret_rest)
{
	size_t len;

	if (*path != '/')
		return false;
	len = strcspn(++path, "/");
	if (!is_secret(a->token, path, len))
		return false;
	*ret_rest = path + len;
	return true;
}

bool access_is_loopback_host(const char *host)
{
	char name[64];
	struct in6_addr v6;
	struct in_addr v4;
	const char *end;
	size_t len;

	if (!host)
		return true;
	if (*host == '[') {
		host++;
		len = strcspn(host, "]");
		end = host + len + (host[len] == ']');
	} else {
		len = strcspn(host, ":");
		end = host + len;
	}
	if (len >= sizeof(name) ||
	    (*end && (*end != ':' || end[1 + strspn(end + 1, "0123456789")])))
		return false;
	memcpy(name, host, len);
	name[len] = '\0';
	if (inet_pton(AF_INET6, name, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	if (inet_pton(AF_INET, name, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return !strcasecmp(name, "localhost");
}
