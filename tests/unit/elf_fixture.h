/* elf_fixture - real and freshly built ELF files for the symbolizer's tests. */
#ifndef TESTS_UNIT_ELF_FIXTURE_H
#define TESTS_UNIT_ELF_FIXTURE_H

#include "symbolizer/elffile.h"

/* Compiles `source` (its language by the suffix) with the flags given; a descriptor, the file gone. */
int fixture_compile(const char *suffix, const char *source, const char *flags);
/* The same, and its path, which fixture_forget() removes. */
char *fixture_compile_to(const char *suffix, const char *source, const char *flags);
void fixture_forget(char *path);

/* The whole file in memory. */
uint8_t *fixture_read(const char *path, size_t *ret_len);
int fixture_memfd(const void *data, size_t len);
/* Fails the test when it cannot be opened. */
struct elffile *fixture_open(const char *path);

/* Calls fn for each line of the command's output, without its newline. */
void fixture_each_line(const char *command, void (*fn)(void *arg, char *line), void *arg);

/* A program of C++ with classes, templates, exceptions, cold parts and large frames. */
extern const char fixture_cpp[];
extern const char fixture_c[];

#endif
