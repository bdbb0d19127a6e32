/*
 * shelf - the files of a directory that are ours: how many bytes they take, and which are the oldest.
 *
 * Ours are the regular files YYYYMMDDTHHMMSSZ-SERVICE-0123456789abcdef.pb.gz. A directory may hold any
 * number of them and of others: it is read a piece at a time, and of what is found the SHELF_OLDEST_MAX
 * oldest are remembered; when these are deleted it is read again. Part of directory.
 *
 * Bytes are those of the blocks that a file takes, at least SHELF_BLOCK. What is added or deleted while the
 * directory is read may be counted too much until the next time, never too little.
 *
 * May touch: the directory that it was given. Never: another; a file that is not ours.
 */
#ifndef EXPORTER_SHELF_H
#define EXPORTER_SHELF_H

#include <sys/stat.h>

#include "base/def.h"

enum { SHELF_OLDEST_MAX = 2048, SHELF_BLOCK = 512 };

struct shelf;

MUST_USE int shelf_new(struct shelf **ret, int dir_fd); /* borrowed */
struct shelf *shelf_free(struct shelf *s);
DEFINE_CLEANUP(struct shelf *, shelf_free);

/* Goes on reading the directory until then (CLOCK_MONOTONIC), at least a piece of it. 1: it is read; 0: not to its end; -errno. */
MUST_USE int shelf_look(struct shelf *s, uint64_t until_ns);
bool shelf_is_known(const struct shelf *s); /* it was read to its end once */
/* It is worth the time: it was never read to its end, or few of many files are remembered. */
bool shelf_wants_look(const struct shelf *s);
/* Of what is there; until it was read for the first time, of what was found and added. */
uint64_t shelf_bytes(const struct shelf *s);

uint64_t shelf_bytes_of(const struct stat *st);
void shelf_added(struct shelf *s, uint64_t nbytes);
/* Deletes the oldest file that is remembered. 1: done; 0: none is; -errno: it is there still. */
MUST_USE int shelf_delete(struct shelf *s);

#endif
