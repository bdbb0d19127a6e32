/*
 * settings - what the daemon is configured with: the values, and the files that they name.
 *
 * The files are opened by the reader, since the user that the agent became may not be able to: at
 * start, after a reload, and every 30 s, because secrets are rotated. Descriptors are kept, so that
 * a new exporter gets them at once. A reload that fails leaves everything as it was.
 *
 * May touch: the output directory (before the agent leaves root), the environment. Never: what is in a
 * file that the settings name, but for the configuration itself.
 */
#ifndef AGENT_SETTINGS_H
#define AGENT_SETTINGS_H

#include "agent/engine.h"
#include "agent/expclient.h"
#include "config/config.h"

#define SETTINGS_DEFAULT_PATH "/etc/flamed/flamed.yaml"

/* path NULL: the default one where there is such a file. The status of a process that cannot go on is the caller's. */
MUST_USE int settings_load(struct config **ret, const char *path, char **ret_why);
/* The same for a command that does without: of a default file that may not be read it warns. */
MUST_USE int settings_load_if_allowed(struct config **ret, const char *path, char **ret_why);

struct settings_conf {
	struct config *config;	/* taken */
	const char *path;	/* NULL: the default one */
	const char *version;
	const char *token;	/* of the page; borrowed */
	int control_fd;		/* borrowed */
};

struct settings;

MUST_USE int settings_new(struct settings **ret, const struct settings_conf *conf);
struct settings *settings_free(struct settings *s);
DEFINE_CLEANUP(struct settings *, settings_free);

/* The output directory, where one is configured; made when missing, for this user. Says its errors. */
MUST_USE int settings_open_output(struct settings *s, uid_t uid, gid_t gid);
/* As who the agent became: says where profiles are written, or why they cannot be. */
void settings_say_output(const struct settings *s);
/* From here on files are opened. Both are borrowed. */
MUST_USE int settings_attach(struct settings *s, struct engine *engine, struct expclient *exporter);

/* An exporter is up: tells it all there is. */
MUST_USE int settings_brief(struct settings *s);
/* Once a second. */
MUST_USE int settings_turn(struct settings *s);
/* SIGHUP. fn is called when the new settings are in force, or were refused (which is logged). */
typedef void settings_reloaded_fn(void *arg, bool ok);
MUST_USE int settings_reload(struct settings *s, settings_reloaded_fn *fn, void *arg);

const struct config *settings_config(const struct settings *s); /* until the next reload */
const char *settings_path(const struct settings *s);		/* "" no file */
bool settings_reload_ok(const struct settings *s);
uint64_t settings_wall_ns(const struct settings *s);		/* when what is in force was read */

#endif
