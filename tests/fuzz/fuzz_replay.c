/*
 * Whatever events a log has, in whatever order: the pipeline takes them or says that it cannot, every batch that
 * it hands on is one that the exporter takes, and all is given back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/event.h"
#include "agent/pipeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_open(void *arg UNUSED, const struct reader_open *r UNUSED)
{
	return 0;
}

static int on_request(void *arg UNUSED, const struct msg_request *r UNUSED, int fd UNUSED)
{
	return 0;
}

static int on_kernel(void *arg UNUSED, const uint64_t *addresses UNUSED, uint32_t n UNUSED)
{
	return 0;
}

static int on_rescan(void *arg UNUSED)
{
	return 0;
}

static int on_batch(void *arg UNUSED, const struct export_batch *b)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct export_batch again;
	struct bufr in;

	export_batch_encode(&w, b);
	bufr_init(&in, w.data, w.len);
	if (bufw_end(&w) < 0 || export_batch_decode(&in, &again) < 0) {
		fprintf(stderr, "broken: the exporter takes a batch\n");
		abort();
	}
	export_batch_fini(&again);
	return 0;
}

static int on_peek(void *arg UNUSED, const struct reader_peek *r UNUSED)
{
	return 0;
}

static const struct pipeline_ops ops = { .open = on_open, .rows = on_request, .names = on_request,
					 .kernel = on_kernel, .rescan = on_rescan, .batch = on_batch,
					 .peek = on_peek };

static int feed(void *arg, const struct event *e)
{
	return pipeline_event(arg, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pipeline_conf conf = { .ops = &ops, .parked_max_bytes = 1 << 20, .aggregate_max_bytes = 1 << 20,
				      .rows_max_bytes = 1 << 20, .queue_max_bytes = 1 << 20 };
	CLEANUP(pipeline_freep) struct pipeline *p = NULL;
	static FILE *file;
	int fd;

	if (!file)
		file = tmpfile(); /* sys/mman.h and agent/maps.h do not go together */
	fd = file ? fileno(file) : -1;
	if (fd < 0 || pipeline_new(&p, &conf) < 0)
		abort();
	if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
		return 0;
	(void)!event_log_read(fd, feed, p);
	return 0;
}
