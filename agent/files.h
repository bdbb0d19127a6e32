/*
 * files - every file that some process maps executable, each once.
 *
 * A file is first known by what a mapping says of it (device, inode, generation, path: its "key").
 * When the reader has opened it, its identity is what fstat says (device, inode, ctime, size); a
 * second key that turns out to be the same file becomes an alias of the first, so that rows and
 * names are shared by all processes and mount namespaces.
 *
 * The table owns its files and forgets those that nobody refers to: who keeps one takes a reference,
 * and gives it back before files_free().
 *
 * Ids count from 1 in order of appearance and are never reused: the same events give the same ids.
 *
 * May touch: descriptors that it was given (closes them). Never: opens or reads one.
 */
#ifndef AGENT_FILES_H
#define AGENT_FILES_H

#include "symbolizer/msg.h"

struct rows;

struct file_key {
	uint32_t dev_major, dev_minor;
	uint64_t inode;
	uint64_t generation;
	bool generation_known;	/* side-band records know it, /proc/PID/maps does not */
};

struct file_identity {
	uint64_t dev, inode, ctime_ns, size;
};

enum file_state {
	FILE_NEW,	/* nobody asked for it */
	FILE_OPENING,	/* the reader was asked */
	FILE_OPEN,	/* identity is known; fd is set, other than in a replay or after file_close() */
	FILE_ALIAS,	/* `canonical` is the same file */
	FILE_FAILED,	/* no candidate agreed; frames are module+offset */
};

struct file {
	uint32_t refs;
	enum file_state state;
	uint64_t id;
	struct file_key key;
	char *path;		/* as mapped; the workload's string */
	struct file_identity identity;
	int fd;			/* -1: none */
	struct file *canonical;	/* a reference, when FILE_ALIAS */
	struct rows *rows;	/* made on first use */
	struct msg_go go;	/* of its first rows */
	bool go_known;
	uint64_t unused_since_ns;	/* 0 while mapped */
	uint64_t retry_at_ns;	/* FILE_FAILED: not asked for again before this */
	uint32_t nfailures;
	struct file *hash_next;
	struct file *identity_next;
};

enum { FILES_BYTES_MAX = 16 * 1024 * 1024 };	/* of entries and paths, without rows */

struct files;

MUST_USE int files_new(struct files **ret);
/* Its ids count from first_id, so that two tables have none in common. */
MUST_USE int files_new_from(struct files **ret, uint64_t first_id);
struct files *files_free(struct files *f);
DEFINE_CLEANUP(struct files *, files_free);

/*
 * The file of this key and path: known, or new. Borrowed: take file_ref() to keep it. -E2BIG when the
 * table is full: a workload can make any number of files.
 */
MUST_USE int files_get(struct files *f, const struct file_key *key, const char *path, struct file **ret);
struct file *files_find(struct files *f, uint64_t id);
/*
 * The reader's answer. fd (may be -1) becomes the file's; for an alias it is closed, and so it is
 * when a file that was open before turns out to be another one now.
 */
void files_opened(struct files *f, struct file *file, const struct file_identity *identity, int fd);
void files_failed(struct files *f, struct file *file);
/* Follows aliases; never NULL for a file. */
struct file *file_resolve(struct file *file);

/* Closes the descriptor; what is known of the file stays. */
void file_close(struct file *file);

struct file *file_ref(struct file *file);
void file_unref(struct file *file);

/*
 * Closes descriptors and forgets files that nothing has referred to for `keep_ns`, as of now_ns.
 * May be called at any time; costs O(files).
 */
void files_sweep(struct files *f, uint64_t now_ns, uint64_t keep_ns);
/* Calls fn for each file, oldest first. */
void files_each(struct files *f, void (*fn)(void *arg, struct file *file), void *arg);
/*
 * Forgets rows until all together need at most max_bytes: the largest first, and of those of about
 * one size the oldest files'. Returns how many files lost theirs.
 */
size_t files_limit_rows(struct files *f, size_t max_bytes);
/* Whether one more may be opened: where `max` are, those that nothing refers to are forgotten first. */
bool files_room(struct files *f, uint64_t max);
size_t files_count(const struct files *f);
size_t files_bytes(const struct files *f); /* without rows */
size_t files_rows_bytes(const struct files *f);

#endif
