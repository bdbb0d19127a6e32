/*
 * answer - from a request and a descriptor to the bytes of the answer.
 *
 * Whatever the file is, there is an answer. After each request the file's pages leave our resident
 * set. Addresses without a row get a result without MSG_RES_ROW: no NO_CFI rows are sent.
 *
 * May touch: the descriptor (never closes it; -1 is none), the heap.
 */
#ifndef SYMBOLIZER_ANSWER_H
#define SYMBOLIZER_ANSWER_H

#include "symbolizer/handles.h"

enum {
	ANSWER_FDE_ROWS_MAX = 4096,	/* rows of one function that are sent unasked */
	ANSWER_FEW_ADDRS = 32,
};

/* Each appends the encoded answer. */
void answer_rows(struct handles *h, const struct msg_request *req, int fd, struct bufw *out);
void answer_names(struct handles *h, const struct msg_request *req, int fd, struct bufw *out);
void answer_link(struct handles *h, const struct msg_request *req, int fd, struct bufw *out);
void answer_debug(struct handles *h, const struct msg_debug *d, int fd, struct bufw *out);
void answer_jit(struct handles *h, const struct msg_request *req, int fd, struct bufw *out); /* MSG_REQUEST_JIT */

/* What both tell of a file that handles_open() did not open. */
static inline UNUSED enum msg_file_result answer_file_result(int err)
{
	return err > 0 ? (enum msg_file_result)err : MSG_FILE_UNREADABLE;
}

/* Of a few addresses it is cheaper to keep the pages until the batch is over than to fault them in again. */
static inline UNUSED void answer_drop_pages(const struct msg_request *req, const struct elffile *elf)
{
	if (req->naddrs > ANSWER_FEW_ADDRS)
		elffile_drop_pages(elf);
}

#endif
