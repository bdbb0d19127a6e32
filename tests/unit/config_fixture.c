#include "tests/unit/config_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

const char config_fixture_full[] =
	"sampling: {frequency_hz: 49, cpus: 0-1, stack_max_bytes: 32KiB}\n"
	"window: 10s\n"
	"processes:\n"
	"  exclude: [sshd, 'systemd-*']\n"
	"  thin: {'batch-*': 10, noisy: 1000}\n"
	"labels:\n"
	"  hostname: web-1\n"
	"  static: {env: prod, team: \"a b\"}\n"
	"  include: [container_id, pod_uid]\n"
	"endpoints:\n"
	"  - name: cloud\n"
	"    url: https://profiles.example/base/?key=planted-query\n"
	"    protocol: push\n"
	"    basic_auth: {username: \"123\", password: planted-password}\n"
	"    tenant_id: t1\n"
	"    headers: {X-Key: planted-header, X-More: m}\n"
	"    tls: {ca_file: /ca, cert_file: /cert, key_file: /key, insecure_skip_verify: true}\n"
	"    timeout: 3s\n"
	"  - url: http://127.0.0.1:4040\n"
	"    protocol: ingest\n"
	"    bearer_token: planted-token\n"
	"  - url: http://[::1]:4040/x?q=1\n"
	"    bearer_token_file: /token\n"
	"queue_max_bytes: 1MiB\n"
	"symbols: {demangle: full}\n"
	"output: {directory: /var/lib/flamed/profiles, max_bytes: 1MiB}\n"
	"page: {listen: '0.0.0.0:4041', max_bytes: 1MiB,\n"
	"       basic_auth: {username: u, password: planted-page}}\n"
	"metrics: {listen: '[::]:4042'}\n"
	"runtime_directory: /tmp/run\n"
	"log: {level: error}\n";

int config_fixture_file(const char *yaml)
{
	int fd = memfd_create("settings", MFD_CLOEXEC);
	size_t len = strlen(yaml);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, yaml, len), len); /* and leaves the offset at the end */
	return fd;
}

int config_fixture_load(const char *yaml, struct config **ret, char **ret_why)
{
	CLEANUP_FD int fd = config_fixture_file(yaml);

	return config_load_fd(ret, fd, "f.yaml", ret_why);
}

struct config *config_fixture(const char *yaml)
{
	CLEANUP_FREE char *why = NULL;
	struct config *c = NULL;
	int err = config_fixture_load(yaml, &c, &why);

	if (err)
		print_error("%s: %s\n", yaml, why ? why : "?");
	assert_int_equal(err, 0);
	return c;
}
int config_fixture_clear_env(void **state)
{
	(void)state;
	for (char **e = environ; *e;) {
		CLEANUP_FREE char *name = strndup(*e, strcspn(*e, "="));

		if (strncmp(name, "FLAMED_", 7) == 0) {
			unsetenv(name);
			e = environ;
		} else {
			e++;
		}
	}
	return 0;
}
