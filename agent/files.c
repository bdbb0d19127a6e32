#include "agent/files.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

#include "agent/rows.h"

struct files {
	struct file **v; /* by id, which is by age */
	size_t n, cap;
	struct file **by_key;	   /* chained through hash_next */
	struct file **by_identity; /* canonical open files, through identity_next */
	size_t nbuckets;	   /* of each table, a power of two */
	uint64_t last_id;
	uint64_t seed;
	size_t file_bytes; /* of entries and their paths */
};

enum { BUCKETS_MIN = 64 };

int files_new(struct files **ret)
{
	CLEANUP(files_freep) struct files *f = calloc(1, sizeof(*f));
	const void *random = (const void *)getauxval(AT_RANDOM);

	if (!f)
		return -ENOMEM;
	f->nbuckets = BUCKETS_MIN;
	f->by_key = calloc(f->nbuckets, sizeof(struct file *));
	f->by_identity = calloc(f->nbuckets, sizeof(struct file *));
	if (!f->by_key || !f->by_identity)
		return -ENOMEM;
	/* Paths are the workloads' choice: they must not be able to choose buckets. */
	if (random)
		memcpy(&f->seed, random, sizeof(f->seed));
	*ret = TAKE(f);
	return 0;
}

int files_new_from(struct files **ret, uint64_t first_id)
{
	int err = files_new(ret);

	if (!err)
		(*ret)->last_id = first_id - 1;
	return err;
}

static size_t file_size(const struct file *file)
{
	return sizeof(*file) + strlen(file->path) + 1;
}

static void file_free(struct file *file)
{
	file_close(file);
	if (file->canonical)
		file_unref(file->canonical);
	rows_free(file->rows);
	free(file->path);
	free(file);
}

struct files *files_free(struct files *f)
{
	if (!f)
		return NULL;
	/* All go at once: no alias may touch a canonical file that went before it. */
	for (size_t i = 0; i < f->n; i++)
		f->v[i]->canonical = NULL;
	for (size_t i = 0; i < f->n; i++)
		file_free(f->v[i]);
	free(f->v);
	free(f->by_key);
	free(f->by_identity);
	free(f);
	return NULL;
}

static struct file **key_bucket(const struct files *f, const struct file_key *key, const char *path,
				size_t len)
{
	uint64_t fields[] = { key->dev_major, key->dev_minor, key->inode,
			      key->generation_known ? key->generation : 0, key->generation_known };
	uint64_t h = XXH3_64bits_withSeed(path, len, f->seed);

	return &f->by_key[XXH3_64bits_withSeed(fields, sizeof(fields), h) & (f->nbuckets - 1)];
}

static struct file **identity_bucket(const struct files *f, const struct file_identity *id)
{
	uint64_t fields[] = { id->dev, id->inode, id->ctime_ns, id->size };

	return &f->by_identity[XXH3_64bits_withSeed(fields, sizeof(fields), f->seed) &
			       (f->nbuckets - 1)];
}

static bool key_equal(const struct file_key *a, const struct file_key *b)
{
	return a->dev_major == b->dev_major && a->dev_minor == b->dev_minor &&
	       a->inode == b->inode && a->generation_known == b->generation_known &&
	       (!a->generation_known || a->generation == b->generation);
}

static bool identity_equal(const struct file_identity *a, const struct file_identity *b)
{
	return a->dev == b->dev && a->inode == b->inode && a->ctime_ns == b->ctime_ns &&
	       a->size == b->size;
}

static void link_key(struct files *f, struct file *file)
{
	struct file **b = key_bucket(f, &file->key, file->path, strlen(file->path));

	file->hash_next = *b;
	*b = file;
}

static void link_identity(struct files *f, struct file *file)
{
	struct file **b = identity_bucket(f, &file->identity);

	file->identity_next = *b;
	*b = file;
}

/* Twice as many buckets. Without memory the chains just grow longer. */
static void files_rehash(struct files *f)
{
	struct file **by_key = calloc(f->nbuckets * 2, sizeof(struct file *));
	struct file **by_identity = calloc(f->nbuckets * 2, sizeof(struct file *));

	if (!by_key || !by_identity) {
		free(by_key);
		free(by_identity);
		return;
	}
	free(f->by_key);
	free(f->by_identity);
	f->by_key = by_key;
	f->by_identity = by_identity;
	f->nbuckets *= 2;
	for (size_t i = 0; i < f->n; i++) {
		link_key(f, f->v[i]);
		if (f->v[i]->state == FILE_OPEN)
			link_identity(f, f->v[i]);
	}
}

static int files_grow(struct files *f)
{
	size_t cap = f->cap ? f->cap * 2 : 64;
	struct file **v = realloc(f->v, cap * sizeof(struct file *));

	if (!v)
		return -ENOMEM;
	f->v = v;
	f->cap = cap;
	return 0;
}

static int files_add(struct files *f, const struct file_key *key, const char *path, size_t len,
		     struct file **ret)
{
	CLEANUP_FREE struct file *file = calloc(1, sizeof(*file));
	int err;

	if (!file)
		return -ENOMEM;
	if (f->n == f->cap) {
		err = files_grow(f);
		if (err)
			return err;
	}
	file->path = strndup(path, len);
	if (!file->path)
		return -ENOMEM;
	file->id = ++f->last_id;
	file->key = *key;
	file->fd = -1;
	f->file_bytes += file_size(file);
	link_key(f, file);
	f->v[f->n++] = file;
	if (f->n > f->nbuckets)
		files_rehash(f);
	*ret = TAKE(file);
	return 0;
}

int files_get(struct files *f, const struct file_key *key, const char *path, struct file **ret)
{
	size_t len = strnlen(path, PATH_MAX);

	for (struct file *file = *key_bucket(f, key, path, len); file; file = file->hash_next) {
		if (key_equal(&file->key, key) && strncmp(file->path, path, len) == 0 &&
		    file->path[len] == '\0') {
			*ret = file;
			return 0;
		}
	}
	if (f->file_bytes > FILES_BYTES_MAX - sizeof(struct file) - PATH_MAX - 1)
		return -E2BIG;
	return files_add(f, key, path, len, ret);
}

struct file *files_find(struct files *f, uint64_t id)
{
	size_t low = 0, high = f->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (f->v[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < f->n && f->v[low]->id == id ? f->v[low] : NULL;
}

void file_close(struct file *file)
{
	closep(&file->fd);
	file->fd = -1;
}

/* A further descriptor of a file that was open before: only of the very same file. */
static void file_reopened(struct file *file, const struct file_identity *identity, int fd)
{
	if (file->state == FILE_OPEN && identity_equal(&file->identity, identity)) {
		file_close(file);
		file->fd = fd;
	} else {
		closep(&fd);
	}
}

void files_opened(struct files *f, struct file *file, const struct file_identity *identity, int fd)
{
	if (file->state == FILE_OPEN || file->state == FILE_ALIAS) {
		file_reopened(file, identity, fd);
		return;
	}
	for (struct file *other = *identity_bucket(f, identity); other;
	     other = other->identity_next) {
		if (identity_equal(&other->identity, identity)) {
			file->state = FILE_ALIAS;
			file->identity = *identity;
			file->canonical = file_ref(other);
			closep(&fd);
			return;
		}
	}
	file->state = FILE_OPEN;
	file->identity = *identity;
	file->fd = fd;
	link_identity(f, file);
}

void files_failed(struct files *f UNUSED, struct file *file)
{
	if (file->state == FILE_NEW || file->state == FILE_OPENING)
		file->state = FILE_FAILED;
}

struct file *file_resolve(struct file *file)
{
	/* An alias is only ever made of an open file, so there is one step at most. */
	return file->state == FILE_ALIAS ? file->canonical : file;
}

struct file *file_ref(struct file *file)
{
	assert(file->refs < UINT32_MAX);
	file->refs++;
	file->unused_since_ns = 0;
	return file;
}

void file_unref(struct file *file)
{
	/* The table frees it: files_sweep() once nothing has referred to it for a while. */
	assert(file->refs > 0);
	file->refs--;
}

static void unlink_key(struct files *f, struct file *file)
{
	struct file **p = key_bucket(f, &file->key, file->path, strlen(file->path));

	while (*p != file)
		p = &(*p)->hash_next;
	*p = file->hash_next;
}

static void unlink_identity(struct files *f, struct file *file)
{
	struct file **p = identity_bucket(f, &file->identity);

	while (*p != file)
		p = &(*p)->identity_next;
	*p = file->identity_next;
}

static void files_forget(struct files *f, struct file *file)
{
	unlink_key(f, file);
	if (file->state == FILE_OPEN)
		unlink_identity(f, file);
	f->file_bytes -= file_size(file);
	file_free(file);
}

void files_sweep(struct files *f, uint64_t now_ns, uint64_t keep_ns)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->n; i++) {
		struct file *file = f->v[i];

		if (file->refs == 0 && file->unused_since_ns == 0)
			file->unused_since_ns = MAX(now_ns, (uint64_t)1);
		if (file->refs == 0 && now_ns >= file->unused_since_ns &&
		    now_ns - file->unused_since_ns >= keep_ns)
			files_forget(f, file);
		else
			f->v[kept++] = file;
	}
	f->n = kept;
}

bool files_room(struct files *f, uint64_t max)
{
	size_t nopen = 0, kept = 0;

	for (size_t i = 0; i < f->n; i++)
		nopen += f->v[i]->state == FILE_OPEN || f->v[i]->state == FILE_OPENING;
	if (nopen < max)
		return true;
	for (size_t i = 0; i < f->n; i++) {
		struct file *file = f->v[i];

		if (file->state == FILE_OPEN && file->refs == 0) {
			files_forget(f, file);
			nopen--;
		} else {
			f->v[kept++] = file;
		}
	}
	f->n = kept;
	return nopen < max;
}

void files_each(struct files *f, void (*fn)(void *arg, struct file *file), void *arg)
{
	for (size_t i = 0; i < f->n; i++)
		fn(arg, f->v[i]);
}

static size_t file_rows_bytes(const struct file *file)
{
	return file->rows ? rows_bytes(file->rows) : 0;
}

/* Each round halves what counts as large, so there are few rounds however many files there are. */
size_t files_limit_rows(struct files *f, size_t max_bytes)
{
	size_t bytes = 0, largest = 0, nforgotten = 0;

	for (size_t i = 0; i < f->n; i++) {
		bytes += file_rows_bytes(f->v[i]);
		largest = MAX(largest, file_rows_bytes(f->v[i]));
	}
	for (; bytes > max_bytes && largest > 0; largest /= 2) {
		for (size_t i = 0; i < f->n && bytes > max_bytes; i++) {
			size_t its = file_rows_bytes(f->v[i]);

			if (!its || its < largest / 2)
				continue;
			f->v[i]->rows = rows_free(f->v[i]->rows);
			bytes -= its;
			nforgotten++;
		}
	}
	return nforgotten;
}

size_t files_count(const struct files *f)
{
	return f->n;
}

size_t files_bytes(const struct files *f)
{
	return sizeof(*f) + (f->cap + 2 * f->nbuckets) * sizeof(struct file *) + f->file_bytes;
}

size_t files_rows_bytes(const struct files *f)
{
	size_t bytes = 0;

	for (size_t i = 0; i < f->n; i++)
		bytes += file_rows_bytes(f->v[i]);
	return bytes;
}
