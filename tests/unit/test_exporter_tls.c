/* TLS from within the sandbox, against a server of OpenSSL's. */
#include "exporter/http.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/loop.h"
#include "exporter/sandbox.h"

enum { STATUS_NO_SANDBOX = 99 };

static const struct sandbox_conf network = { .has_network = true, .output_dir_fd = -1 };
static int landlock;

static char *certificate;
static int tls_port;

static void on_answer(void *arg, const struct http_result *r)
{
	*(long *)arg = r->code == CURLE_OK ? r->status : -(long)r->code;
}

static long get(struct loop *loop, struct http *http, const char *url, const char *ca)
{
	struct curl_blob blob = { .data = certificate,
				  .len = strlen(certificate),
				  .flags = CURL_BLOB_COPY };
	CURL *easy = curl_easy_init();
	long answer = 0;

	if (!easy || curl_easy_setopt(easy, CURLOPT_URL, url) ||
	    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 10000L))
		return -1000;
	if (ca && (curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob) ||
		   curl_easy_setopt(easy, CURLOPT_CAPATH, NULL)))
		return -1001;
	if (http_start(http, easy, on_answer, &answer))
		return -1002;
	while (!answer) {
		if (loop_once(loop, UINT64_MAX))
			return -1003;
	}
	curl_easy_cleanup(easy);
	return answer;
}

/* As the exporter does it: libraries first, then the sandbox, then the network. */
static int tls_child(void)
{
	struct loop *loop;
	struct http *http;
	char url[64];

	snprintf(url, sizeof(url), "https://localhost:%d/", tls_port);
	if (loop_new(&loop) || http_new(&http, loop) || sandbox_enter(&network, &landlock))
		return STATUS_NO_SANDBOX;
	if (get(loop, http, url, certificate) != 200)
		return 1;
	/* The host's own authorities do not know it. */
	if (get(loop, http, url, NULL) != -(long)CURLE_PEER_FAILED_VERIFICATION)
		return 2;
	if (get(loop, http, "http://flamed-test.invalid/", NULL) >= 0)
		return 3;
	http_free(http);
	loop_free(loop);
	return 0;
}

static char *slurp(const char *path)
{
	char *text = calloc(1, 65536);
	FILE *f = fopen(path, "r");

	assert_non_null(text);
	assert_non_null(f);
	assert_true(fread(text, 1, 65535, f) > 0);
	fclose(f);
	return text;
}

static int free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	return ntohs(a.sin_port);
}

static pid_t start_openssl(const char *dir)
{
	char port[16];
	pid_t pid = fork();

	snprintf(port, sizeof(port), "%d", tls_port);
	if (pid == 0) {
		if (chdir(dir) || !freopen("/dev/null", "w", stdout) ||
		    !freopen("/dev/null", "w", stderr))
			_exit(1);
		execlp("openssl", "openssl", "s_server", "-accept", port, "-cert", "cert.pem",
		       "-key", "key.pem", "-www", "-quiet", NULL);
		_exit(1);
	}
	return pid;
}

static bool is_listening(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)tls_port) };
	CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM, 0);

	return !connect(fd, (struct sockaddr *)&a, sizeof(a));
}

static void tls_works_and_is_verified(void **state)
{
	char dir[] = "/tmp/flamed-test-XXXXXX", command[512], path[64];
	int status;
	pid_t server, pid;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(command, sizeof(command),
		 "cd %s && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
		 "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem 2>/dev/null",
		 dir);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/cert.pem", dir);
	certificate = slurp(path);
	tls_port = free_port();
	server = start_openssl(dir);
	for (int i = 0; i < 500 && !is_listening(); i++)
		usleep(10000);
	pid = fork();
	if (pid == 0)
		_exit(tls_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	free(certificate);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tls_works_and_is_verified),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
