/*
 * Whatever the file is: there is an answer that the agent's decoder accepts; a row that is the
 * answer to an address covers it; the vaddr of a named address lies in its segment.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "symbolizer/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct msg_request req = { .flags = MSG_REQUEST_GO };

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static void check_rows(struct handles *h, int fd)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	CLEANUP(msg_rows_fini) struct msg_rows m = { 0 };
	struct bufr r;

	answer_rows(h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	require(msg_rows_decode(&r, &m) == 0, "the answer decodes");
	require(m.nresults == req.naddrs, "every address has a result");
	for (uint32_t i = 0; i < m.nresults; i++) {
		uint64_t at = req.addrs[i].offset, before = at - (req.addrs[i].flags & MSG_ADDR_RETURN);
		const struct msg_row *row;

		if (!(m.results[i].flags & MSG_RES_ROW))
			continue;
		row = &m.rows[m.results[i].row];
		require(m.results[i].flags & MSG_RES_CODE, "what has a row is code");
		require((at >= row->start && at < row->end) || (before >= row->start && before < row->end),
			"a row covers its address");
	}
}

static void check_names(struct handles *h, int fd)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	CLEANUP(msg_names_fini) struct msg_names m = { 0 };
	struct bufr r;

	answer_names(h, &req, fd, &w);
	bufr_init(&r, w.data, w.len);
	require(msg_names_decode(&r, &m) == 0, "the answer decodes");
	require(m.nnamed == req.naddrs, "every address has a result");
	for (uint32_t i = 0; i < m.nnamed; i++) {
		const struct msg_named *n = &m.named[i];

		if (n->segment != UINT32_MAX)
			require(n->vaddr - m.segments[n->segment].vaddr < m.segments[n->segment].file_bytes,
				"an address lies in its segment");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(handles_fini) struct handles h = { 0 };
	CLEANUP_FD int fd = memfd_create("fuzz", MFD_CLOEXEC);

	require(fd >= 0 && write(fd, data, size) == (ssize_t)size, "a memfd");
	req.naddrs = 64;
	for (uint32_t i = 0; i < req.naddrs; i++)
		req.addrs[i] = (struct msg_addr){ size * i / req.naddrs, i & 1 };
	check_rows(&h, fd);
	check_names(&h, fd);
	return 0;
}
