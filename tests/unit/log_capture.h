/* log_capture - what the log says: standard error is a file meanwhile. Not for two at once. */
#ifndef TESTS_UNIT_LOG_CAPTURE_H
#define TESTS_UNIT_LOG_CAPTURE_H

#include "base/log.h"

void log_capture_begin(enum log_level level);
/* Ends it, at LOG_ERROR. */
void log_capture_end(char *ret, size_t size);

#endif
