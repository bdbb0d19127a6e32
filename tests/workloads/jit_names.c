/*
 * jit_names map|dump|none|fork|namespace|fifo|symlink|directory|foreign|sparse [SECONDS] - code without a file that
 * names itself as JITs do, in /tmp/perf-PID.map or as jitdump.
 *
 * With `dump` the file lies in the working directory. `fork`: a child without exec runs its parent's code,
 * and the parent waits. The others put something at the map's path that is not to be opened or has no end.
 * Under `unshare --pid --mount` it is its number in there that counts. Its thread is called as its kind.
 *
 * Expected, root first: main, run, "jit outer", called_back, "jit outer", spin; with `none` and the kinds
 * that must not be opened "[jit]+0x...".
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

typedef void fn(uint64_t);
typedef void jit_fn(fn *f, uint64_t arg);

static jit_fn *jit;
/* push %rbp; mov %rsp, %rbp; sub $64, %rsp; mov %rdi, %rax; mov %rsi, %rdi; call *%rax; leave; ret */
static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0x48, 0x89, 0xf8,
				0x48, 0x89, 0xf7, 0xff, 0xd0, 0xc9, 0xc3 };
enum { PLACE = 64 };	/* in its page */

static NOINLINE void spin(uint64_t budget_ns)
{
	uint64_t end = cpu_ns() + budget_ns;

	do
		work();
	while (cpu_ns() < end);
}

static NOINLINE void called_back(uint64_t budget_ns)
{
	jit(spin, budget_ns);
	keep(1);
}

static NOINLINE void run(uint64_t budget_ns)
{
	jit(called_back, budget_ns);
	keep(2);
}

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(3);
	}
}

static void write_map(const char *path, const uint8_t *at)
{
	FILE *f = fopen(path, "we");
	unsigned long long page = (uintptr_t)(at - PLACE), start = (uintptr_t)at;

	need(f != NULL, path);
	/* What was there before, junk, the code itself, code behind it, and a line that is not written to its end. */
	fprintf(f, "%llx 1000 before\n\nno line at all\nffffffffffffffff 10 wraps\n%llx 0 empty\n", page, start);
	fprintf(f, "0x%llx 0x%zx jit outer\n%llx 10 behind\n%llx 100 half", start, sizeof(code),
		start + sizeof(code), page);
	need(fflush(f) == 0, path);
}

static void put(FILE *f, const void *p, size_t n)
{
	need(fwrite(p, 1, n, f) == n, "fwrite");
}

static void put_record(FILE *f, uint32_t id, size_t rest)
{
	uint32_t head[2] = { id, (uint32_t)(16 + rest) };
	uint64_t time = 0;

	put(f, head, sizeof(head));
	put(f, &time, sizeof(time));
}

static void put_load(FILE *f, uint64_t start, uint64_t index, const char *name)
{
	uint32_t ids[2] = { (uint32_t)getpid(), (uint32_t)getpid() };
	uint64_t words[4] = { start, start, sizeof(code), index };

	put_record(f, 0, sizeof(ids) + sizeof(words) + strlen(name) + 1 + sizeof(code));
	put(f, ids, sizeof(ids));
	put(f, words, sizeof(words));
	put(f, name, strlen(name) + 1);
	put(f, code, sizeof(code));
}

static void put_line(FILE *f, uint64_t start, uint32_t line, const char *name)
{
	uint32_t numbers[2] = { line, 0 };

	put(f, &start, sizeof(start));
	put(f, numbers, sizeof(numbers));
	put(f, name, strlen(name) + 1);
}

/* Loaded elsewhere under an older name too, with lines, then moved to where it runs. */
static void write_dump(const uint8_t *at)
{
	uint32_t head[6] = { 0x4A695444, 1, 40, 62, 0, (uint32_t)getpid() };
	uint32_t ids[2] = { (uint32_t)getpid(), (uint32_t)getpid() };
	uint64_t start = (uintptr_t)at, from = start + 0x100000, zeros[2] = { 0, 0 };
	uint64_t lines[2] = { from, 3 }, moved[5] = { start, from, start, sizeof(code), 7 };
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "jit-%d.dump", (int)getpid());
	f = fopen(path, "w+e");
	need(f != NULL, path);
	put(f, head, sizeof(head));
	put(f, zeros, sizeof(zeros));
	put_load(f, start, 6, "before");
	put_record(f, 2, sizeof(lines) + 3 * 16 + sizeof("outer.jit") + 2 * sizeof("\xff"));
	put(f, lines, sizeof(lines));
	put_line(f, from, 10, "outer.jit");
	put_line(f, from + 14, 12, "\xff");	/* the call */
	put_line(f, from + 16, 13, "\xff");
	put_load(f, from, 7, "jit outer");
	put_record(f, 1, sizeof(ids) + sizeof(moved));
	put(f, ids, sizeof(ids));
	put(f, moved, sizeof(moved));
	put_record(f, 0, 100000);	/* not written to its end */
	need(fflush(f) == 0, path);
	need(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(f), 0) != MAP_FAILED, path);
}

static void write_odd(const char *kind, const char *path, const uint8_t *at)
{
	char real[PATH_MAX];

	snprintf(real, sizeof(real), "%s.real", path);
	if (strcmp(kind, "fifo") == 0) {
		need(mkfifo(path, 0600) == 0, path);
	} else if (strcmp(kind, "directory") == 0) {
		need(mkdir(path, 0700) == 0, path);
	} else if (strcmp(kind, "symlink") == 0) {
		write_map(real, at);
		need(symlink(real, path) == 0, path);
	} else if (strcmp(kind, "foreign") == 0) {
		write_map(path, at);
		need(chown(path, 1234, 1234) == 0, path);
	} else if (strcmp(kind, "sparse") == 0) {
		write_map(path, at);
		need(truncate(path, 100ll << 30) == 0, path);
	}
}

static void clean(const char *kind, const char *path)
{
	char real[PATH_MAX];

	snprintf(real, sizeof(real), "%s.real", path);
	remove(path);
	if (strcmp(kind, "symlink") == 0)
		remove(real);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "none";
	uint64_t budget_ns = (uint64_t)(number_arg(argc, argv, 2, 1) * 1e9);
	uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *at = page + PLACE;
	char path[64];

	need(page != MAP_FAILED, "mmap");
	need(prctl(PR_SET_NAME, kind) == 0, "prctl");
	memcpy(at, code, sizeof(code));
	need(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0, "mprotect");
	memcpy(&jit, &at, sizeof(jit));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	if (strcmp(kind, "map") == 0 || strcmp(kind, "namespace") == 0 || strcmp(kind, "fork") == 0)
		write_map(path, at);
	else if (strcmp(kind, "dump") == 0)
		write_dump(at);
	else
		write_odd(kind, path, at);
	if (strcmp(kind, "fork") == 0 && fork() > 0) {
		wait(NULL);
	} else {
		run(budget_ns);
		if (strcmp(kind, "fork") == 0)
			_exit(0);
	}
	clean(kind, path);
	keep(0);
	return 0;
}
