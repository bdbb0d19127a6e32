/*
 * reader_fixture - the real reader as in production: nobody with its capabilities and its filter.
 */
#ifndef TESTS_UNIT_READER_FIXTURE_H
#define TESTS_UNIT_READER_FIXTURE_H

#include "base/ipc.h"

/* A program, this test, that is to call reader_fixture_main() when its first argument is `mode`. */
struct ipc_program reader_fixture_program(const char *mode, int exe_fd);
/* In the spawned process: from root down to what the reader has in production; its exit status. */
int reader_fixture_main(void);

#endif
