/* What decodes, encodes to the same bytes. The first byte says which message the rest is. */
#include <stdio.h>
#include <string.h>

#include "symbolizer/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_same(const struct bufw *w, const uint8_t *data, size_t size)
{
	if (bufw_end(w) == 0 && w->len == size && (!size || memcmp(w->data, data, size) == 0))
		return;
	fprintf(stderr, "broken: a decoded message encodes to its bytes\n");
	abort();
}

static void check_request(struct bufr *r, struct bufw *w, const uint8_t *data, size_t size)
{
	static struct msg_request m;

	if (msg_request_decode(r, &m) < 0)
		return;
	msg_request_encode(w, &m);
	require_same(w, data, size);
}

static void check_rows(struct bufr *r, struct bufw *w, const uint8_t *data, size_t size)
{
	CLEANUP(msg_rows_fini) struct msg_rows m = { 0 };

	if (msg_rows_decode(r, &m) < 0)
		return;
	msg_rows_encode(w, &m);
	require_same(w, data, size);
}

static void check_names(struct bufr *r, struct bufw *w, const uint8_t *data, size_t size)
{
	CLEANUP(msg_names_fini) struct msg_names m = { 0 };

	if (msg_names_decode(r, &m) < 0)
		return;
	msg_names_encode(w, &m);
	require_same(w, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(bufw_fini) struct bufw w = { 0 };
	struct bufr r;

	if (!size)
		return 0;
	bufr_init(&r, data + 1, size - 1);
	if (data[0] == 0)
		check_request(&r, &w, data + 1, size - 1);
	else if (data[0] == 1)
		check_rows(&r, &w, data + 1, size - 1);
	else
		check_names(&r, &w, data + 1, size - 1);
	return 0;
}
