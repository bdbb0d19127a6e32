#include "tests/unit/web_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/unit/export_fixture.h"

enum { DEADLINE_S = 10, REPLY_MAX = 1 << 20 };

static int on_tap(void *arg, const struct export_tap *tap)
{
	struct web_fixture *f = arg;

	if (f->tap_error)
		return f->tap_error;
	assert_true(f->ntaps < (int)ARRAY_SIZE(f->taps));
	f->taps[f->ntaps++] = *tap;
	return 0;
}

static size_t on_sinks(void *arg, struct sink_stats *ret, size_t max)
{
	struct web_fixture *f = arg;

	assert_true(max >= 1);
	ret[0] = f->sink;
	return 1;
}

static const struct web_ops ops = { .tap = on_tap, .sinks = on_sinks };

static int control_socket(struct web_fixture *f)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(a.sun_path, f->control);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

static void init_settings(struct web_fixture *f)
{
	static char listen[] = "127.0.0.1:0", metrics[] = "127.0.0.1:0";
	static char user[] = "reader", password[] = "s3cret-word";

	f->config.runtime_directory = f->dir;
	f->config.page.listen = listen;
	f->config.page.max_bytes = 8 << 20;
	f->config.page.basic_auth.username = user;
	f->config.page.basic_auth.password = password;
	f->config.metrics.listen = metrics;
	f->more = (struct export_config){
		.hostname = "test-host",
		.hash = "00112233445566778899aabbccddeeff",
		.version = "1.2.3",
		.token = WEB_FIXTURE_TOKEN,
	};
	f->sink = (struct sink_stats){
		.name = "https://example.com",
		.kind = "push",
		.state = "failing",
		.last_error = "401 \"no\"",
		.last_ok_wall_ns = 1700000000500000000ull,
		.nqueued = 3,
		.queued_bytes = 4096,
		.queue_max_bytes = 1 << 24,
		.nsent = 17,
		.nretries = 2,
		.bytes_sent = 99,
	};
}

int web_fixture_init(void **state)
{
	struct web_fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	signal(SIGPIPE, SIG_IGN);
	strcpy(f->dir, "/tmp/flamed-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->control, sizeof(f->control), "%s/control.sock", f->dir);
	init_settings(f);
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(web_new(&f->web, f->loop, &ops, f), 0);
	assert_int_equal(web_control(f->web, control_socket(f)), 0);
	web_fixture_configure(f);
	*state = f;
	return 0;
}

int web_fixture_fini(void **state)
{
	struct web_fixture *f = *state;

	web_free(f->web);
	loop_free(f->loop);
	unlink(f->control);
	rmdir(f->dir);
	free(f);
	return 0;
}

void web_fixture_configure(struct web_fixture *f)
{
	json_t *status, *l;
	size_t i;

	assert_int_equal(web_configure(f->web, &f->config, &f->more), 0);
	f->page_port = f->metrics_port = 0;
	status = web_fixture_api(f, "/api/v1/status", 200);
	json_array_foreach(json_object_get(status, "listeners"), i, l)
	{
		const char *name = json_string_value(json_object_get(l, "name"));
		const char *address = json_string_value(json_object_get(l, "address"));
		int port = 0;

		if (json_is_true(json_object_get(l, "up")) && strrchr(address, ':'))
			port = atoi(strrchr(address, ':') + 1);
		if (!strcmp(name, "page"))
			f->page_port = port;
		else if (!strcmp(name, "metrics"))
			f->metrics_port = port;
	}
	json_decref(status);
}

static int connect_to(const struct web_fixture *f, int port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	bool is_local = port == WEB_FIXTURE_CONTROL;
	int fd = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	strcpy(local.sun_path, f->control);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, is_local ? (struct sockaddr *)&local : (struct sockaddr *)&v4,
				 is_local ? sizeof(local) : sizeof(v4)),
			 0);
	return fd;
}

int web_fixture_send(struct web_fixture *f, int port, const char *method, const char *path,
		     const char *headers)
{
	char text[8192];
	int fd = connect_to(f, port);
	int len = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\n%s%sConnection: close\r\n\r\n",
			   method, path, strstr(headers, "Host:") ? "" : "Host: localhost\r\n",
			   headers);

	assert_true(len > 0 && len < (int)sizeof(text));
	assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
	return fd;
}

struct web_reply web_fixture_receive(struct web_fixture *f, int fd)
{
	uint64_t deadline = clock_mono_ns() + DEADLINE_S * NSEC_PER_SEC;
	char *text = malloc(REPLY_MAX + 1), *end;
	struct web_reply r = {};
	size_t len = 0;

	for (;;) {
		ssize_t n = recv(fd, text + len, REPLY_MAX - len, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			break;
		if (n > 0)
			len += (size_t)n;
		assert_true(n > 0 || errno == EAGAIN);
		assert_true(clock_mono_ns() < deadline);
		assert_int_equal(loop_once(f->loop, 5 * NSEC_PER_MSEC), 0);
	}
	close(fd);
	text[len] = '\0';
	r.head = text;
	end = strstr(text, "\r\n\r\n");
	if (end) {
		assert_int_equal(sscanf(text, "HTTP/1.1 %d", &r.status), 1);
		*end = '\0';
		r.body = end + 4;
		r.body_len = len - (size_t)(r.body - text);
	}
	return r;
}

struct web_reply web_fixture_ask(struct web_fixture *f, int port, const char *method,
				 const char *path, const char *headers)
{
	return web_fixture_receive(f, web_fixture_send(f, port, method, path, headers));
}

void web_reply_fini(struct web_reply *r)
{
	free(r->head);
	*r = (struct web_reply){};
}

int web_fixture_status(struct web_fixture *f, int port, const char *method, const char *path,
		       const char *headers)
{
	struct web_reply r = web_fixture_ask(f, port, method, path, headers);
	int status = r.status;

	web_reply_fini(&r);
	return status;
}

json_t *web_fixture_api(struct web_fixture *f, const char *path, int status)
{
	struct web_reply r = web_fixture_ask(f, WEB_FIXTURE_CONTROL, "GET", path, "");
	json_t *j;

	assert_int_equal(r.status, status);
	assert_non_null(strstr(r.head, "Content-Type: application/json"));
	j = json_loadb(r.body, r.body_len, 0, NULL);
	assert_non_null(j);
	web_reply_fini(&r);
	return j;
}

void web_fixture_wait(struct web_fixture *f, unsigned int ms)
{
	uint64_t end = clock_mono_ns() + ms * NSEC_PER_MSEC;

	while (clock_mono_ns() < end)
		assert_int_equal(loop_once(f->loop, 5 * NSEC_PER_MSEC), 0);
}

void web_fixture_window(struct web_fixture *w, uint64_t id, uint64_t start_ns)
{
	CLEANUP(bufw_fini) struct bufw bytes = {};
	struct export_fixture f;
	struct export_pair labels[2];

	export_fixture_init(&f);
	f.batch.id = id;
	f.batch.wall_start_ns = start_ns;
	labels[0] = (struct export_pair){ export_fixture_string(&f, "container_id"),
					  export_fixture_string(&f, "abc\x01<b>\xff") };
	labels[1] = (struct export_pair){ export_fixture_string(&f, "service_name"),
					  export_fixture_string(&f, "shop") };
	f.batch.pairs = labels;
	f.batch.npairs = 2;
	f.subjects[0].first_pair = 0;
	f.subjects[0].npairs = 2;
	export_batch_encode(&bytes, &f.batch);
	assert_int_equal(bufw_end(&bytes), 0);
	assert_int_equal(web_window(w->web, &f.batch, bytes.data, bytes.len), 0);
}

void web_fixture_tell(struct web_fixture *w)
{
	struct export_metric metrics[] = {
		{ EXPORT_METRIC_SEEN, "", "", 1000 },
		{ EXPORT_METRIC_SAMPLES, "", "", 990 },
		{ EXPORT_METRIC_DROPPED, "", "ring_full", 10 },
		{ EXPORT_METRIC_OUTCOMES, "", "complete", 900 },
		{ EXPORT_METRIC_OUTCOMES, "", "no_cfi", 50 },
		{ EXPORT_METRIC_OUTCOMES, "", "kernel_thread", 40 },
		{ EXPORT_METRIC_SINK_SAMPLES, "https://example.com", "delivered", 700 },
		{ EXPORT_METRIC_SINK_SAMPLES, "a\"b\\c\nd", "rejected", 1 },
		{ EXPORT_METRIC_SINK_PENDING, "https://example.com", "", 290 },
		{ EXPORT_METRIC_WINDOWS, "", "full", 7 },
		{ EXPORT_METRIC_MEMORY, "", "agent", 1 << 20 },
		{ EXPORT_METRIC_MAPS, "", "", 4096 },
		{ EXPORT_METRIC_CPU, "", "agent", 2500000000 },
		{ EXPORT_METRIC_RELOAD_OK, "", "", 1 },
	};
	struct export_process processes[] = {
		{ "agent", 4242, 998, 1ull << 38 | 1ull << 39, 1ull << 19 | 1ull << 38 | 1ull << 39,
		  false, true },
		{ "exporter", 4243, 998, 0, 0, true, true },
	};
	struct export_status s = {
		.start_wall_ns = clock_wall_ns() - 60 * NSEC_PER_SEC,
		.hz = 100,
		.ncpus = 2,
		.window_ns = 15 * NSEC_PER_SEC,
		.config_path = "/etc/flamed/flamed.yaml",
		.missing_rights = "cap_x: a loss",
		.nprocesses = ARRAY_SIZE(processes),
		.nmetrics = ARRAY_SIZE(metrics),
		.processes = processes,
		.metrics = metrics,
	};

	assert_int_equal(web_status(w->web, &s), 0);
}
