#include "agent/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"

#define LOOK_AGAIN_NS (30 * NSEC_PER_SEC)
enum { ENDPOINTS_MAX = CONFIG_SINKS_MAX - 1, FILES_MAX = ENDPOINTS_MAX * 5 + 1, HOST_NAME_SIZE = 256 };

/* A file that the settings can name; its place in the array is that of its role and endpoint. */
struct named_file {
	struct settings *owner;
	enum export_role role;
	uint32_t index;
	char *path;		/* NULL: not named now */
	int fd, error;
	struct reader_opened seen;	/* what fd is a copy of */
	bool is_asked;		/* the reader is at it */
	bool is_stale;		/* what it brings is not wanted any more */
	bool is_known;		/* fd or error */
	bool is_told;
	bool was_warned;
};

struct settings {
	struct config *config;
	char *path;
	bool path_is_default;
	bool has_file;		/* what is in force was read from it */
	const char *version, *token;
	int control_fd, output_fd;
	char hash[33], hostname[HOST_NAME_SIZE];
	struct engine *engine;
	struct expclient *exporter;
	struct named_file files[FILES_MAX];
	uint32_t generation;	/* settings that this exporter has been told */
	bool config_told;
	bool is_briefed;	/* there was an exporter to tell */
	bool is_reloading, reload_again, reload_ok;
	settings_reloaded_fn *reloaded;
	void *reloaded_arg;
	uint64_t wall_ns, looked_ns;
};

static const struct {
	const char *text, *key;
	bool is_secret;
} roles[EXPORT_ROLE_COUNT] = {
	[EXPORT_ROLE_PASSWORD] = { "password", "basic_auth.password_file", true },
	[EXPORT_ROLE_BEARER_TOKEN] = { "bearer token", "bearer_token_file", true },
	[EXPORT_ROLE_CA] = { "CA", "tls.ca_file", false },
	[EXPORT_ROLE_CERT] = { "certificate", "tls.cert_file", false },
	[EXPORT_ROLE_KEY] = { "key", "tls.key_file", true },
	[EXPORT_ROLE_PAGE_PASSWORD] = { "page's password", "page.basic_auth.password_file", true },
};

/* ---- telling the exporter ---- */

/* What could not be told now is told in the next turn, or to the next exporter. */
static int put_off(int err, bool *ret_told)
{
	*ret_told = !err;
	return err == -EAGAIN || err == -EPIPE ? 0 : err;
}

static int tell_config(struct settings *s)
{
	CLEANUP(bufw_fini) struct bufw settings = { 0 };
	CLEANUP(bufw_fini) struct bufw out = { 0 };
	struct export_config c = { .hostname = s->hostname, .hash = s->hash, .version = s->version };
	int err;

	config_encode(&settings, s->config);
	err = bufw_end(&settings);
	if (err)
		return err;
	c.settings = settings.data;
	c.settings_len = settings.len;
	c.token = config_page_address(s->config) ? s->token : "";
	export_config_encode(&out, &c);
	err = bufw_end(&out);
	if (!err)
		err = expclient_tell(s->exporter, EXPORT_CONFIG, out.data, out.len, -1);
	err = put_off(err, &s->config_told);
	/* The exporter counts what it was told; a file belongs to the last of them. */
	if (!err && s->config_told)
		s->generation++;
	return err;
}

static int tell_descriptor(struct settings *s, const struct export_file *f, int fd)
{
	CLEANUP(bufw_fini) struct bufw out = { 0 };
	int err;

	export_file_encode(&out, f);
	err = bufw_end(&out);
	return err ? err : expclient_tell(s->exporter, EXPORT_FILE, out.data, out.len, fd);
}

static int tell_file(struct named_file *f)
{
	struct settings *s = f->owner;
	struct export_file file = { .role = f->role, .index = f->index, .error = (uint32_t)f->error,
				    .generation = s->generation };

	if (!f->path || !f->is_known || !s->config_told)
		return 0;
	return put_off(tell_descriptor(s, &file, f->fd), &f->is_told);
}

int settings_brief(struct settings *s)
{
	struct export_file output = { .role = EXPORT_ROLE_OUTPUT_DIRECTORY, .generation = 1 };
	struct export_file control = { .role = EXPORT_ROLE_CONTROL, .generation = 1 };
	int err;

	s->generation = 0;
	s->is_briefed = true;
	err = tell_config(s);
	if (!err && s->output_fd >= 0)
		err = tell_descriptor(s, &output, s->output_fd);
	if (!err && s->control_fd >= 0)
		err = tell_descriptor(s, &control, s->control_fd);
	for (size_t i = 0; i < FILES_MAX && !err; i++)
		err = tell_file(&s->files[i]);
	return err;
}

/* ---- files ---- */

/* What the reader said of a file that the settings name, or of their own (agent/reader.h). */
static const char *error_text(int error)
{
	switch (error) {
	case EINVAL:
		return "it is no regular file";
	case EFBIG:
		return "it is larger than 1 MiB";
	case ETIMEDOUT:
		return "its file system does not answer";
	default:
		return strerror(error);
	}
}

static const char *error_hint(int error)
{
	return error == EACCES || error == EPERM ?
		       "flamed reads it with CAP_DAC_READ_SEARCH, else as the user that it runs as" :
		       "correct the file or the key; it is looked for every 30 s";
}

static void say_unreadable(const struct named_file *f)
{
	char name[CONFIG_SINK_NAME_MAX];

	if (f->role == EXPORT_ROLE_PAGE_PASSWORD) {
		log_error("cannot read the page's password file, only the token lets in file=%s error='%s' hint='%s'",
			  LOG_STR(f->path), error_text(f->error), error_hint(f->error));
		return;
	}
	config_endpoint_name(config_endpoint(f->owner->config, f->index), name, sizeof(name));
	log_error("cannot read the %s file, nothing is sent without it endpoint=%s key=%s file=%s error='%s' hint='%s'",
		  roles[f->role].text, LOG_STR(name), roles[f->role].key, LOG_STR(f->path), error_text(f->error),
		  error_hint(f->error));
}

static void warn_of_mode(struct named_file *f)
{
	if (!roles[f->role].is_secret || !(f->seen.mode & 0004) || f->was_warned)
		return;
	f->was_warned = true;
	log_warning("everybody can read the %s file: chmod 600 file=%s", roles[f->role].text, LOG_STR(f->path));
}

static bool is_same(const struct file_identity *a, const struct file_identity *b)
{
	return a->dev == b->dev && a->inode == b->inode && a->size == b->size && a->ctime_ns == b->ctime_ns;
}

/* Whether it is other than before. */
static bool take_file(struct named_file *f, const struct reader_opened *o, int fd)
{
	CLEANUP_FD int opened = fd;

	if (o->error) {
		/* The file's disk is slow; what we have is no worse for that. */
		if (f->is_known && (f->error == o->error || o->error == ETIMEDOUT))
			return false;
		closep(&f->fd);
		f->fd = -1;
		f->error = o->error;
		say_unreadable(f);
		return true;
	}
	if (f->is_known && !f->error && is_same(&f->seen.identity, &o->identity))
		return false;
	closep(&f->fd);
	f->fd = TAKE_FD(opened);
	f->error = 0;
	f->seen = *o;
	warn_of_mode(f);
	return true;
}

static int ask_for(struct named_file *f);

static int on_file(void *arg, const struct reader_opened *o, int fd)
{
	struct named_file *f = arg;
	bool is_other;

	f->is_asked = false;
	if (f->is_stale) {
		closep(&fd);
		f->is_stale = false;
		return f->path ? ask_for(f) : 0;
	}
	is_other = take_file(f, o, fd);
	f->is_known = true;
	return is_other ? tell_file(f) : 0;
}

static int ask_for(struct named_file *f)
{
	int err;

	if (!f->path || f->is_asked)
		return 0;
	err = engine_open_config(f->owner->engine, f->path, on_file, f);
	f->is_asked = !err;
	return err == -ENOBUFS ? 0 : err; /* in 30 s again */
}

static int ask_for_all(struct settings *s)
{
	int err = 0;

	s->looked_ns = clock_mono_ns();
	for (size_t i = 0; i < FILES_MAX && !err; i++)
		err = ask_for(&s->files[i]);
	return err;
}

static int name_file(struct named_file *f, const char *path)
{
	if (f->path && path[0] && strcmp(f->path, path) == 0) {
		f->is_told = false; /* of another generation */
		return 0;
	}
	free(TAKE(f->path));
	closep(&f->fd);
	f->fd = -1;
	f->error = 0;
	f->is_stale = f->is_asked;
	f->is_known = f->is_told = f->was_warned = false;
	if (!path[0])
		return 0;
	f->path = strdup(path);
	return f->path ? 0 : -ENOMEM;
}

static int name_files(struct settings *s)
{
	int err = name_file(&s->files[FILES_MAX - 1], s->config->page.basic_auth.password_file);

	for (size_t i = 0; i < ENDPOINTS_MAX && !err; i++) {
		const struct config_endpoint *e = i < s->config->endpoints.n ? config_endpoint(s->config, i) : NULL;
		const char *paths[] = {
			e ? e->basic_auth.password_file : "", e ? e->bearer_token_file : "",
			e ? e->tls.ca_file : "", e ? e->tls.cert_file : "", e ? e->tls.key_file : "",
		};

		for (size_t k = 0; k < ARRAY_SIZE(paths) && !err; k++)
			err = name_file(&s->files[i * ARRAY_SIZE(paths) + k], paths[k]);
	}
	return err;
}

/* ---- reload ---- */

/* What needs a restart stays as it is in force. */
static void keep_for_restart(struct config *new, struct config *old)
{
	char *cpus = new->sampling.cpus, *directory = new->output.directory, *runtime = new->runtime_directory;

	new->sampling = old->sampling;
	new->window_ns = old->window_ns;
	new->output = old->output;
	new->runtime_directory = old->runtime_directory;
	old->sampling.cpus = cpus;
	old->output.directory = directory;
	old->runtime_directory = runtime;
}

static void fill_in(struct settings *s)
{
	config_hash(s->config, s->hash);
	snprintf(s->hostname, sizeof(s->hostname), "%s", s->config->labels.hostname);
	if (!s->hostname[0] && gethostname(s->hostname, sizeof(s->hostname) - 1))
		s->hostname[0] = 0;
	s->wall_ns = clock_wall_ns();
}

static int tell_sinks(struct settings *s)
{
	char names[CONFIG_SINKS_MAX][CONFIG_SINK_NAME_MAX];
	const char *pointers[CONFIG_SINKS_MAX];
	size_t n = config_sink_names(s->config, names);

	for (size_t i = 0; i < n; i++)
		pointers[i] = names[i];
	return expclient_sinks(s->exporter, pointers, n);
}

static int apply(struct settings *s, struct config *new)
{
	const char *key = config_needs_restart(s->config, new);
	int err;

	if (key)
		log_warning("a setting needs a restart to take effect, the others are in force key=%s", key);
	keep_for_restart(new, s->config);
	config_free(s->config);
	s->config = new;
	log_set_level(new->log.level);
	fill_in(s);
	if ((err = name_files(s)) || (err = tell_sinks(s)) || (err = tell_config(s)) ||
	    (err = engine_relabel(s->engine)))
		return err;
	for (size_t i = 0; i < FILES_MAX && !err; i++)
		err = tell_file(&s->files[i]);
	return err ? err : ask_for_all(s);
}

static int finish_reload(struct settings *s, bool ok)
{
	s->is_reloading = false;
	s->reload_ok = ok;
	if (s->reload_again) {
		s->reload_again = false;
		return settings_reload(s, s->reloaded, s->reloaded_arg);
	}
	if (ok)
		log_info("the settings were reloaded file=%s hash=%s", s->has_file ? LOG_STR(s->path) : "none",
			 s->hash);
	s->reloaded(s->reloaded_arg, ok);
	return 0;
}

static int on_config(void *arg, const struct reader_opened *o, int fd)
{
	CLEANUP_FREE char *why = NULL;
	CLEANUP_FD int file = fd;
	struct settings *s = arg;
	struct config *new = NULL;
	int err, error = o->error;

	if (error && !(error == ENOENT && s->path_is_default)) {
		log_error("the settings cannot be read, the running ones stay file=%s error='%s'", LOG_STR(s->path),
			  error_text(error));
		return finish_reload(s, false);
	}
	err = error ? config_load(&new, NULL, &why) : config_load_fd(&new, file, s->path, &why);
	if (err) {
		log_error("the running settings stay: %s", why ? why : strerror(-err));
		return finish_reload(s, false);
	}
	s->has_file = !error;
	err = apply(s, new);
	return err ? err : finish_reload(s, true);
}

int settings_reload(struct settings *s, settings_reloaded_fn *fn, void *arg)
{
	int err;

	s->reloaded = fn;
	s->reloaded_arg = arg;
	if (s->is_reloading) {
		s->reload_again = true;
		return 0;
	}
	s->is_reloading = true;
	err = engine_open_config(s->engine, s->path, on_config, s);
	return err == -ENOBUFS ? on_config(s, &(struct reader_opened){ .error = EBUSY }, -1) : err;
}

/* ---- life ---- */

/* One that we may not look for is one that is there. */
static bool has_default_file(void)
{
	return access(SETTINGS_DEFAULT_PATH, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

int settings_load(struct config **ret, const char *path, char **ret_why)
{
	return config_load(ret, !path && has_default_file() ? SETTINGS_DEFAULT_PATH : path, ret_why);
}

int settings_load_if_allowed(struct config **ret, const char *path, char **ret_why)
{
	int err = settings_load(ret, path, ret_why);

	if (path || (err != -EACCES && err != -EPERM))
		return err;
	log_warning("only root and the group flamed may read the settings, the defaults are used file="
		    SETTINGS_DEFAULT_PATH);
	free(TAKE(*ret_why));
	return config_load(ret, NULL, ret_why);
}

/* The reader has its own place: a path is one from the root. */
static char *absolute(const char *path)
{
	char cwd[PATH_MAX], *ret;

	if (path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		return strdup(path);
	return asprintf(&ret, "%s/%s", cwd, path) < 0 ? NULL : ret;
}

static void init_files(struct settings *s)
{
	static const enum export_role of_endpoint[] = { EXPORT_ROLE_PASSWORD, EXPORT_ROLE_BEARER_TOKEN, EXPORT_ROLE_CA,
							EXPORT_ROLE_CERT, EXPORT_ROLE_KEY };

	for (size_t i = 0; i < FILES_MAX; i++)
		s->files[i] = (struct named_file){ .owner = s, .fd = -1,
						   .role = of_endpoint[i % ARRAY_SIZE(of_endpoint)],
						   .index = (uint32_t)(i / ARRAY_SIZE(of_endpoint)) };
	s->files[FILES_MAX - 1].role = EXPORT_ROLE_PAGE_PASSWORD;
	s->files[FILES_MAX - 1].index = 0;
}

int settings_new(struct settings **ret, const struct settings_conf *conf)
{
	CLEANUP(settings_freep) struct settings *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->path_is_default = !conf->path;
	s->has_file = conf->path || has_default_file();
	s->path = absolute(conf->path ? conf->path : SETTINGS_DEFAULT_PATH);
	if (!s->path)
		return -ENOMEM;
	s->version = conf->version;
	s->token = conf->token;
	s->control_fd = conf->control_fd;
	s->output_fd = -1;
	s->reload_ok = true;
	init_files(s);
	s->config = conf->config;
	fill_in(s);
	*ret = TAKE(s);
	return 0;
}

struct settings *settings_free(struct settings *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < FILES_MAX; i++) {
		free(s->files[i].path);
		closep(&s->files[i].fd);
	}
	closep(&s->output_fd);
	config_free(s->config);
	free(s->path);
	free(s);
	return NULL;
}

static const char *output_hint(int error)
{
	switch (error) {
	case ENOENT:
		return "make the directory above it";
	case ENOTDIR:
		return "name a directory in output.directory";
	case EROFS:
		return "the service may write below /var/lib/flamed only: ReadWritePaths= in a drop-in (docs/install.md)";
	default:
		return "it has to belong to the user that flamed runs as";
	}
}

static void say_output_error(const struct settings *s, const char *what, int error)
{
	log_error("cannot %s the output directory directory=%s error='%s' hint='%s'", what,
		  LOG_STR(s->config->output.directory), strerror(error), output_hint(error));
}

int settings_open_output(struct settings *s, uid_t uid, gid_t gid)
{
	const char *path = s->config->output.directory;
	const char *what = "make";
	bool is_new;

	if (!path[0])
		return 0;
	is_new = mkdir(path, 0750) == 0;
	if (is_new || errno == EEXIST) {
		what = "open";
		s->output_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (s->output_fd < 0 || (is_new && fchown(s->output_fd, uid, gid) && geteuid() == 0)) {
		say_output_error(s, what, errno);
		return -EIO;
	}
	return 0;
}

void settings_say_output(const struct settings *s)
{
	if (s->output_fd < 0)
		return;
	if (faccessat(s->output_fd, ".", W_OK | X_OK, AT_EACCESS))
		say_output_error(s, "write to", errno);
	else
		log_info("profiles are written directory=%s", LOG_STR(s->config->output.directory));
}

int settings_attach(struct settings *s, struct engine *engine, struct expclient *exporter)
{
	int err;

	s->engine = engine;
	s->exporter = exporter;
	if ((err = tell_sinks(s)) || (err = name_files(s)))
		return err;
	return ask_for_all(s);
}

int settings_turn(struct settings *s)
{
	int err = 0;

	if (!s->config_told && s->is_briefed)
		err = tell_config(s);
	for (size_t i = 0; i < FILES_MAX && !err; i++) {
		if (!s->files[i].is_told)
			err = tell_file(&s->files[i]);
	}
	if (!err && clock_mono_ns() - s->looked_ns >= LOOK_AGAIN_NS)
		err = ask_for_all(s);
	return err;
}

const struct config *settings_config(const struct settings *s)
{
	return s->config;
}

const char *settings_path(const struct settings *s)
{
	return s->has_file ? s->path : "";
}

bool settings_reload_ok(const struct settings *s)
{
	return s->reload_ok;
}

uint64_t settings_wall_ns(const struct settings *s)
{
	return s->wall_ns;
}
