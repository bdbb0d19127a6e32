#include "agent/pipeline_state.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

/* Maps that are held open at a time: a descriptor each. */
enum { MAPS_OPEN_MAX = 128 };
/* A JIT may write its map long after its first code ran; an agent loaded into it does. */
#define RETRY_NS NSEC_PER_SEC

/* As perf has it, a file that is mapped and called jit-PID.dump. */
static bool is_jitdump(const char *path)
{
	const char *name = strrchr(path, '/'), *digits;

	if (!name || strncmp(name, "/jit-", 5) != 0)
		return false;
	for (digits = name += 5; isdigit((unsigned char)*name);)
		name++;
	return name > digits && strcmp(name, ".dump") == 0;
}

static struct file *find_jitdump(const struct maps *maps)
{
	for (size_t i = 0; i < maps_count(maps); i++) {
		const struct map *map = maps_at(maps, i);

		if (map->kind == MAP_FILE && is_jitdump(map->file->path))
			return map->file;
	}
	return NULL;
}

static bool has_jit_frame(const struct unwind_result *r)
{
	for (uint32_t i = 0; i < r->nframes; i++) {
		if (!r->frames[i].file)
			return true;
	}
	return false;
}

static void put(struct subject *s, struct file *file)
{
	if (s->jit)
		file_unref(s->jit);
	s->jit = file_ref(file);
}

/* Again and again as long as it is not there, but not for each sample. */
static int ask_perf_map(struct pipeline *p, struct subject *s)
{
	struct reader_open r = { .pids = { s->pid, s->image_pid }, .npids = s->image_pid ? 2 : 1,
				 .path = READER_PERF_MAP };
	struct file_key key = { .inode = s->id };
	uint64_t max = p->start.files_max ? MIN(p->start.files_max / 2, (uint64_t)MAPS_OPEN_MAX) : MAPS_OPEN_MAX;
	struct file *file;
	int err = files_get(p->jits, &key, READER_PERF_MAP, &file);

	if (err)
		return err == -E2BIG ? 0 : err;
	put(s, file);
	file->retry_at_ns = p->now_ns + RETRY_NS;
	if (!files_room(p->jits, max)) {
		p->stats.files_refused++;
		file->state = FILE_FAILED;
		return 0;
	}
	file->state = FILE_OPENING;
	r.file_id = file->id;
	return p->conf.ops->open(p->conf.arg, &r);
}

int pipeline_note_jit(struct pipeline *p, struct subject *s, const struct maps *maps)
{
	const struct file *have = s->jit ? file_resolve(s->jit) : NULL;
	struct file *dump;

	if (!has_jit_frame(p->unwound) || (have && have->state != FILE_FAILED && have->state != FILE_NEW) ||
	    (have && p->now_ns < have->retry_at_ns))
		return 0;
	dump = find_jitdump(maps);
	if (!dump)
		return ask_perf_map(p, s);
	put(s, dump);
	return dump->state == FILE_NEW ? pipeline_open_wanted(p, maps, s->pid, dump) : 0;
}

void pipeline_take_jit(struct pipeline *p, struct file *file, const struct event_opened *o, int fd)
{
	if (file->state != FILE_OPENING) {
		closep(&fd);
		return;
	}
	if (o->ok)
		files_opened(p->jits, file, &o->identity, fd);
	else
		files_failed(p->jits, file);
}
