#include "exporter/channel.h"

#include "base/clock.h"
#include "base/ipc.h"
#include "base/log.h"
#include "exporter/delivery.h"
#include "exporter/http.h"
#include "exporter/labels.h"
#include "exporter/msg.h"
#include "exporter/names.h"
#include "exporter/output.h"
#include "exporter/pprof.h"
#include "exporter/web.h"

#include <errno.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1024 * 1024 }; /* a bundle of certificates; a password has less */

struct settings {
	struct config *config;
	struct export_config more;
	void *mem; /* of `more` */
};

struct channel {
	struct loop *loop;
	struct ipc_in in;
	bool is_started;

	int output_fd; /* `record` */

	struct settings settings; /* config NULL: `record` */
	uint32_t nsettings;	  /* how many have come */
	struct http *http;
	struct web *web;
	struct delivery *delivery;
	struct names *names;
	int output_dir_fd; /* the delivery's */
	bool has_control;
};

/* ---- telling the agent ----------------------------------------------------------------------- */

static void tell(enum export_type type, const struct bufw *w)
{
	int err = bufw_end(w);

	if (!err)
		err = ipc_send(IPC_FD, type, w->data, w->len, -1);
	if (!err)
		return;
	if (err == -EPIPE)
		exit(EXIT_SUCCESS);
	log_error("the exporter ends: a message cannot be sent: %s", strerror(-err));
	exit(EXIT_FAILURE);
}

static void tell_taken(void *arg, const struct export_taken *t)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)arg;
	export_taken_encode(&w, t);
	tell(EXPORT_TAKEN, &w);
}

static void tell_fate(void *arg, const struct export_fate *f)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)arg;
	export_fate_encode(&w, f);
	tell(EXPORT_FATE, &w);
}

static void tell_done(void *arg, const struct export_done *d)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)arg;
	export_done_encode(&w, d);
	tell(EXPORT_DONE, &w);
}

static const struct delivery_ops delivery_ops = { tell_taken, tell_fate, tell_done };

static int want_tap(void *arg, const struct export_tap *tap)
{
	CLEANUP(bufw_fini) struct bufw w = {};

	(void)arg;
	export_tap_encode(&w, tap);
	tell(EXPORT_TAP, &w);
	return 0;
}

static size_t list_sinks(void *arg, struct sink_stats *ret, size_t max)
{
	const struct channel *c = arg;

	return delivery_sinks(c->delivery, ret, max);
}

static void count_names(void *arg, struct names_stats *ret)
{
	const struct channel *c = arg;

	names_stats(c->names, ret);
}

static const struct web_ops web_ops = {
	.tap = want_tap, .sinks = list_sinks, .names = count_names
};

/* ---- what it works with ---------------------------------------------------------------------- */

static void settings_fini(struct settings *s)
{
	config_free(s->config);
	free(s->mem);
	*s = (struct settings){};
}

static int on_output(struct channel *c, struct bufr *r, int *fd)
{
	int err = bufr_end(r);

	if (err || *fd < 0)
		return -EBADMSG;
	closep(&c->output_fd);
	c->output_fd = TAKE_FD(*fd);
	return 0;
}

static int settings_decode(struct bufr *r, struct settings *ret)
{
	CLEANUP(settings_fini) struct settings s = {};
	struct bufr settings;
	int err = export_config_decode(r, &s.more, &s.mem);

	if (!err)
		err = bufr_end(r);
	if (err)
		return err;
	bufr_init(&settings, s.more.settings, s.more.settings_len);
	err = config_decode(&settings, &s.config);
	if (err)
		return err;
	s.more.settings = NULL; /* they were borrowed */
	s.more.settings_len = 0;
	*ret = s;
	s = (struct settings){};
	return 0;
}

/* With the first settings there is a network, whose libraries load what they need before the sandbox. */
static int open_network(struct channel *c)
{
	int err;

	if (c->delivery)
		return 0;
	if (c->is_started)
		return -EBADMSG;
	err = names_new(&c->names);
	if (!err)
		err = http_new(&c->http, c->loop);
	if (!err)
		err = web_new(&c->web, c->loop, &web_ops, c);
	if (!err)
		err = delivery_new(&c->delivery, c->loop, c->http, &delivery_ops, c);
	return err;
}

static int on_config(struct channel *c, struct bufr *r, int *fd)
{
	CLEANUP(settings_fini) struct settings old = {};
	struct settings s = {};
	int err = settings_decode(r, &s);

	(void)fd;
	if (err)
		return err;
	/* The old ones are borrowed until the new ones are known everywhere. */
	old = c->settings;
	c->settings = s;
	c->nsettings++;
	log_set_level(s.config->log.level);
	err = open_network(c);
	if (!err)
		err = web_configure(c->web, c->settings.config, &c->settings.more);
	if (!err)
		err = delivery_configure(c->delivery, c->settings.config, &c->settings.more);
	return err;
}

/* The descriptor's position is shared with whoever holds it. */
static int read_file(int fd, char *buf, size_t size, size_t *ret_len)
{
	size_t len = 0;

	while (len < size) {
		ssize_t n = pread(fd, buf + len, size - len, (off_t)len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			*ret_len = len;
			return 0;
		}
		len += (size_t)n;
	}
	return -EFBIG;
}

static const char *const role_texts[EXPORT_ROLE_COUNT] = {
	[EXPORT_ROLE_PASSWORD] = "password_file",
	[EXPORT_ROLE_BEARER_TOKEN] = "bearer_token_file",
	[EXPORT_ROLE_CA] = "ca_file",
	[EXPORT_ROLE_CERT] = "cert_file",
	[EXPORT_ROLE_KEY] = "key_file",
	[EXPORT_ROLE_PAGE_PASSWORD] = "page.basic_auth.password_file",
	[EXPORT_ROLE_OUTPUT_DIRECTORY] = "output.directory",
	[EXPORT_ROLE_CONTROL] = "runtime_directory",
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The line end that an editor puts behind a password is none of it; everything else is. */
static size_t without_line_end(const struct export_file *f, const char *data, size_t len)
{
	if (len && data[len - 1] == '\n')
		len -= len > 1 && data[len - 2] == '\r' ? 2 : 1;
	if (len && (is_blank(data[0]) || is_blank(data[len - 1])))
		log_warning("a password or token begins or ends with a blank, which is taken as part of it key=%s "
			    "endpoint=%u hint='take it out of the file if it does not belong there'",
			    role_texts[f->role], f->index);
	return len;
}

static int give_secret(struct channel *c, const struct export_file *f, const char *data, size_t len)
{
	switch (f->role) {
	case EXPORT_ROLE_PAGE_PASSWORD:
		return web_page_password(c->web, data, without_line_end(f, data, len));
	case EXPORT_ROLE_PASSWORD:
	case EXPORT_ROLE_BEARER_TOKEN:
		return delivery_secret(c->delivery, f, data, without_line_end(f, data, len));
	default:
		return delivery_secret(c->delivery, f, data, len);
	}
}

static int on_secret_file(struct channel *c, const struct export_file *f, int fd)
{
	CLEANUP_FREE char *buf = NULL;
	size_t len = 0;
	int err;

	if (f->error)
		return give_secret(c, f, NULL, 0);
	buf = malloc(FILE_BYTES_MAX);
	if (!buf)
		return -ENOMEM;
	err = read_file(fd, buf, FILE_BYTES_MAX, &len);
	if (err) {
		log_error("cannot read what the settings name key=%s endpoint=%u error='%s'",
			  role_texts[f->role], f->index, strerror(-err));
		return give_secret(c, f, NULL, 0);
	}
	err = give_secret(c, f, buf, len);
	explicit_bzero(buf, len);
	return err;
}

static int on_file(struct channel *c, struct bufr *r, int *fd)
{
	struct export_file f;
	int err = export_file_decode(r, &f);

	if (!err)
		err = bufr_end(r);
	if (err)
		return err;
	if (!c->delivery || (!f.error && *fd < 0))
		return -EBADMSG;
	if (f.generation != c->nsettings) /* of settings that are no more */
		return 0;
	switch (f.role) {
	case EXPORT_ROLE_OUTPUT_DIRECTORY:
		/* The sandbox is built around the first. */
		if (f.error || c->is_started || c->output_dir_fd >= 0)
			return 0;
		c->output_dir_fd = *fd;
		return delivery_directory(c->delivery, TAKE_FD(*fd));
	case EXPORT_ROLE_CONTROL:
		if (f.error || c->has_control)
			return 0;
		c->has_control = true;
		return web_control(c->web, TAKE_FD(*fd));
	default:
		return on_secret_file(c, &f, *fd);
	}
}

static int on_start(struct channel *c, struct bufr *r, int *fd)
{
	(void)fd;
	c->is_started = true;
	return bufr_end(r);
}

static int on_status(struct channel *c, struct bufr *r, int *fd)
{
	CLEANUP_FREE void *mem = NULL;
	struct export_status s;
	int err = export_status_decode(r, &s, &mem);

	(void)fd;
	if (!err)
		err = bufr_end(r);
	if (err || !c->web)
		return err;
	return web_status(c->web, &s);
}

static int on_tap_refused(struct channel *c, struct bufr *r, int *fd)
{
	struct export_tap_refused refused;
	int err = export_tap_refused_decode(r, &refused);

	(void)fd;
	if (!err && c->web)
		web_tap_refused(c->web, &refused);
	return err;
}

static int on_flush(struct channel *c, struct bufr *r, int *fd)
{
	(void)fd;
	if (c->delivery)
		delivery_flush(c->delivery);
	return bufr_end(r);
}

/* ---- what it is asked ------------------------------------------------------------------------ */

static int on_subject(struct channel *c, struct bufr *r, int *fd)
{
	CLEANUP_FREE void *mem = NULL, *labels_mem = NULL;
	CLEANUP(bufw_fini) struct bufw w = {};
	struct export_labels labels;
	struct export_facts facts;
	int err = export_facts_decode(r, &facts, &mem);

	(void)fd;
	if (!err)
		err = bufr_end(r);
	if (!err)
		err = labels_make(&facts, c->settings.config, &labels, &labels_mem);
	if (err)
		return err;
	export_labels_encode(&w, &labels);
	tell(EXPORT_LABELS, &w);
	return 0;
}

static void write_to_output(const struct channel *c, const struct export_batch *b,
			    struct export_done *done)
{
	CLEANUP(bufw_fini) struct bufw profile = {};
	struct pprof_totals totals;
	int err;

	err = pprof_encode(&profile, b, &totals);
	if (!err)
		err = output_write(c->output_fd, profile.data, profile.len);
	if (err) {
		done->result = EXPORT_WRITE_FAILED;
		done->error = (uint32_t)-err;
		return;
	}
	done->result = EXPORT_WRITTEN;
	done->nsamples = totals.nsamples;
	done->bytes = profile.len;
}

/* Taken, and over: by its id alone when it is refused. */
static void answer_at_once(struct channel *c, uint64_t nsamples, const struct export_done *done)
{
	tell_taken(c, &(struct export_taken){ .id = done->id, .nsamples = nsamples });
	tell_done(c, done);
}

/* The page gets what the sinks get. */
static int on_window(struct channel *c, struct export_batch *b,
		     const struct export_settled *settled, const void *wire, size_t len)
{
	static struct log_limit limit = LOG_LIMIT_INIT;
	CLEANUP(bufw_fini) struct bufw bounded = {};
	bool is_changed;
	int err = names_bound(c->names, b, clock_boot_ns(), &is_changed);

	/* What is over the limits of a message could not be read again. */
	if (!err && is_changed && MAX(b->nstrings, b->npairs) <= EXPORT_TABLE_MAX) {
		export_batch_encode(&bounded, b);
		err = bufw_end(&bounded);
		wire = bounded.data;
		len = bounded.len;
	}
	if (err)
		return err;
	err = web_window(c->web, b, wire, len);
	if (err) /* the page lacks it; those who are to get it do not */
		log_limited(&limit, LOG_WARNING, "a window is not kept for the page error='%s'",
			    strerror(-err));
	return delivery_batch(c->delivery, b, settled);
}

static int on_tap(struct channel *c, const struct export_batch *b)
{
	struct export_done done = { .id = b->id,
				    .result = EXPORT_WRITTEN,
				    .nsamples = export_batch_count(b) };

	web_take_tap(c->web, b);
	answer_at_once(c, done.nsamples, &done);
	return 0;
}

static int on_decoded(struct channel *c, struct export_batch *b,
		      const struct export_settled *settled, const void *wire, size_t len)
{
	struct export_done done = { .id = b->id };

	if (c->delivery)
		return b->tap ? on_tap(c, b) : on_window(c, b, settled, wire, len);
	write_to_output(c, b, &done);
	answer_at_once(c, export_batch_count(b), &done);
	return 0;
}

static void free_settled(struct export_settled *s)
{
	free(s->ids);
}

/* A batch over a limit or out of order is refused, by its id. */
static int on_batch(struct channel *c, struct bufr *r, int *fd)
{
	CLEANUP(export_batch_fini) struct export_batch b = {};
	CLEANUP(free_settled) struct export_settled settled = {};
	struct export_done refused = { .result = EXPORT_REFUSED };
	const size_t all = bufr_left(r);
	const uint8_t *wire = r->p;
	size_t len = 0;
	struct bufr id;
	int err;

	(void)fd;
	bufr_init(&id, wire, all);
	refused.id = bufr_u64(&id);
	if (bufr_err(&id))
		return -EBADMSG;
	err = export_batch_decode(r, &b);
	if (!err) {
		len = all - bufr_left(r);
		err = export_settled_decode(r, &settled);
	}
	if (!err)
		err = bufr_end(r);
	if (err == -ENOMEM)
		return err;
	if (!err)
		return on_decoded(c, &b, &settled, wire, len);
	log_error("a batch is malformed or too large id=%llu bytes=%zu",
		  (unsigned long long)refused.id, all);
	answer_at_once(c, 0, &refused);
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

enum { BEFORE_START = 1, AFTER_START = 2, ALWAYS = BEFORE_START | AFTER_START };

static const struct {
	enum export_type type;
	unsigned int when;
	int (*fn)(struct channel *c, struct bufr *r, int *fd);
} requests[] = {
	{ EXPORT_OUTPUT, BEFORE_START, on_output },
	{ EXPORT_CONFIG, ALWAYS, on_config },
	{ EXPORT_FILE, ALWAYS, on_file },
	{ EXPORT_START, BEFORE_START, on_start },
	{ EXPORT_STATUS, AFTER_START, on_status },
	{ EXPORT_FLUSH, AFTER_START, on_flush },
	{ EXPORT_TAP_REFUSED, AFTER_START, on_tap_refused },
	{ EXPORT_SUBJECT, AFTER_START, on_subject },
	{ EXPORT_BATCH, AFTER_START, on_batch },
};

static int dispatch(struct channel *c, const struct ipc_msg *m)
{
	CLEANUP_FD int fd = m->fd;
	const unsigned int now = c->is_started ? AFTER_START : BEFORE_START;
	struct bufr r;

	bufr_init(&r, m->data, m->len);
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		if ((uint32_t)requests[i].type == m->type && requests[i].when & now)
			return requests[i].fn(c, &r, &fd);
	}
	return -EBADMSG;
}

int channel_receive(struct channel *c)
{
	struct ipc_msg m;
	int err = ipc_recv(IPC_FD, &c->in, &m);

	if (err == 0 || err == -EPIPE)
		return LOOP_STOP;
	return err < 0 ? err : dispatch(c, &m);
}

/* ---- life ------------------------------------------------------------------------------------ */

int channel_new(struct channel **ret, struct loop *loop)
{
	struct channel *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct channel){ .loop = loop, .output_fd = -1, .output_dir_fd = -1 };
	*ret = c;
	return 0;
}

struct channel *channel_free(struct channel *c)
{
	if (!c)
		return NULL;
	web_free(c->web);
	delivery_free(c->delivery);
	http_free(c->http);
	names_free(c->names);
	settings_fini(&c->settings);
	closep(&c->output_fd);
	ipc_in_fini(&c->in);
	free(c);
	return NULL;
}

bool channel_is_started(const struct channel *c)
{
	return c->is_started;
}

bool channel_has_network(const struct channel *c)
{
	return c->delivery != NULL;
}

int channel_output_dir(const struct channel *c)
{
	return c->output_dir_fd;
}

void channel_set_landlock(struct channel *c, int version)
{
	if (c->web)
		web_set_landlock(c->web, version);
}

bool channel_may_restart(const struct channel *c)
{
	if (!c->settings.config || !c->settings.config->endpoints.n)
		return false;
	return !delivery_nbatches(c->delivery) || delivery_is_unresolved(c->delivery);
}
