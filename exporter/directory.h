/*
 * directory - profiles as files, `output.directory`: at most max_bytes, the oldest deleted first.
 *
 * A file is written under a temporary name and renamed, so that half a profile is never seen:
 * YYYYMMDDTHHMMSSZ-SERVICE-PART.pb.gz (the start of its window in UTC; `/` of a service becomes `_`;
 * PART is the id of the part in hex, so that what is written again is the same file). Only files of
 * that form are counted and deleted (exporter/shelf.h). A profile is DELIVERED when the disk has it:
 * files are flushed in groups of DIRECTORY_GROUP, with the directory.
 *
 * Time is bounded whatever the directory holds: it is read a piece a turn of the loop, and a profile
 * that needs room waits for that no longer than 20 ms. A file system that is full gives
 * up the oldest files too.
 *
 * May touch: the directory that it was given, by *at(2) calls. Never: another.
 */
#ifndef EXPORTER_DIRECTORY_H
#define EXPORTER_DIRECTORY_H

#include "base/loop.h"
#include "exporter/sink.h"

#define DIRECTORY_SINK "directory" /* as config_sink_names() */

enum { DIRECTORY_GROUP = 16 };

struct directory;

/* Takes dir_fd; -1: it could not be opened, and nothing can be written. */
MUST_USE int directory_new(struct directory **ret, struct loop *loop, int dir_fd, const char *path,
			   uint64_t max_bytes, sink_fate_fn *fn, void *arg);
struct directory *directory_free(struct directory *d); /* after directory_sync() */
DEFINE_CLEANUP(struct directory *, directory_free);

const char *directory_name(const struct directory *d); /* the sink's: "directory" */
/* The profile gets its fate through fn: at once, with others, or by directory_sync(). */
void directory_add(struct directory *d, struct profile *profile);
void directory_sync(struct directory *d); /* what has no fate gets it */
void directory_limit(struct directory *d, uint64_t max_bytes); /* from the next profile on */
void directory_stats(const struct directory *d, struct sink_stats *ret);

#endif
