#include "agent/perfring.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

int perfring_open(struct perfring *ret, const struct perf_event_attr *attr, pid_t pid, int cpu,
		  size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	CLEANUP_FD int fd = -1;
	void *map;

	assert(bytes >= page && !(bytes & (bytes - 1)));
	fd = (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Writable: only then does the kernel wait for data_tail instead of overwriting. */
	map = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret = (struct perfring){
		.fd = TAKE_FD(fd),
		.page = map,
		.data = (uint8_t *)map + page,
		.size = bytes,
	};
	return 0;
}

void perfring_close(struct perfring *r)
{
	if (r->page)
		munmap(r->page, perfring_bytes(r));
	closep(&r->fd);
	*r = (struct perfring)PERFRING_INIT;
}

bool perfring_look(struct perfring *r)
{
	/* Pairs with the barrier before the kernel's store to data_head (perf_output_put_handle()). */
	r->head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
	return r->head != r->tail;
}

static void copy_out(const struct perfring *r, uint64_t at, void *to, size_t len)
{
	uint64_t off = at & (r->size - 1);
	size_t first = MIN((uint64_t)len, r->size - off);

	memcpy(to, r->data + off, first);
	memcpy((uint8_t *)to + first, r->data, len - first);
}

int perfring_peek(const struct perfring *r, struct perf_event_header *ret)
{
	uint64_t left = r->head - r->tail;
	struct perf_event_header h;

	if (!left)
		return 0;
	if (left > r->size || left < sizeof(h))
		return -EBADMSG;
	copy_out(r, r->tail, &h, sizeof(h));
	if (h.size < sizeof(h) || h.size % 8 || h.size > left)
		return -EBADMSG;
	*ret = h;
	return 1;
}

uint64_t perfring_u64(const struct perfring *r, size_t off)
{
	uint64_t v;

	copy_out(r, r->tail + off, &v, sizeof(v));
	return v;
}

const void *perfring_record(const struct perfring *r, size_t size, uint8_t bounce[PERFRING_RECORD_MAX])
{
	uint64_t off = r->tail & (r->size - 1);

	if (size <= r->size - off)
		return r->data + off;
	copy_out(r, r->tail, bounce, size);
	return bounce;
}

void perfring_next(struct perfring *r, size_t size)
{
	r->tail += size;
	/* Our reads of the record come before the kernel may write there again. */
	__atomic_store_n(&r->page->data_tail, r->tail, __ATOMIC_RELEASE);
}

void perfring_discard(struct perfring *r)
{
	(void)perfring_look(r);
	perfring_next(r, (size_t)(r->head - r->tail));
}
