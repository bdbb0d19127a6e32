/*
 * bench_cold SYMBOLIZER FILE... - what an address costs at first sight.
 *
 * Asks the real symbolizer, in its sandbox, for rows and names of return addresses spread over each
 * file's code: rows one address at a time, as a deep stack of an unknown program asks, and 64 at a
 * time; names 64 at a time, as the end of a window asks. What is printed is the CPU time of both
 * sides, without the start of the symbolizer:
 *
 *   FILE first_us=... row_us=... row_batched_us=... name_us=... addresses=N
 *
 * first_us is the first row of the file, which opens it.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/symclient.h"
#include "base/clock.h"

enum { ADDRESSES = 512, ALONE = 128, BATCH = 64, WAIT_S = 20 };

struct bench {
	struct loop *loop;
	struct symclient *symbolizer;
	struct msg_request request;
	uint64_t answered; /* request id */
	uint64_t file_id;
	uint32_t nnamed, nrows; /* answers got: a bench of failures would be fast */
};

static _Noreturn void die(const char *what, int err)
{
	fprintf(stderr, "bench_cold: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

/* ---- addresses ---- */

/* Whether `at` follows a call to code of the same segment: nearly always a real return address. */
static bool after_call(const uint8_t *text, uint64_t size, uint64_t at)
{
#if defined(__x86_64__)
	int32_t relative;

	if (at < 5 || text[at - 5] != 0xe8)
		return false;
	memcpy(&relative, text + at - 4, 4);
	return (uint64_t)((int64_t)at + relative) < size;
#else
	uint32_t insn;

	(void)size;
	if (at < 4 || at % 4)
		return false;
	memcpy(&insn, text + at - 4, 4);
	return insn >> 26 == 0x25; /* bl */
#endif
}

/* Evenly over the largest executable segment of a file of the distribution. */
static uint32_t choose(const uint8_t *image, size_t bytes, struct msg_addr ret[ADDRESSES])
{
	const Elf64_Ehdr *ehdr = (const Elf64_Ehdr *)image;
	const Elf64_Phdr *phdr, *text = NULL;
	uint32_t n = 0;

	if (bytes < sizeof(*ehdr) || memcmp(ehdr->e_ident, ELFMAG, SELFMAG) ||
	    ehdr->e_phoff + (uint64_t)ehdr->e_phnum * sizeof(*phdr) > bytes)
		return 0;
	phdr = (const Elf64_Phdr *)(image + ehdr->e_phoff);
	for (unsigned int i = 0; i < ehdr->e_phnum; i++)
		if (phdr[i].p_type == PT_LOAD && (phdr[i].p_flags & PF_X) &&
		    (!text || phdr[i].p_filesz > text->p_filesz))
			text = &phdr[i];
	if (!text || text->p_offset > bytes || text->p_filesz > bytes - text->p_offset)
		return 0;
	for (uint64_t at, step = text->p_filesz / ADDRESSES; n < ADDRESSES; n++) {
		uint64_t end = (n + 1) * step;

		for (at = n * step;
		     at < end && !after_call(image + text->p_offset, text->p_filesz, at);)
			at++;
		ret[n] = (struct msg_addr){ .offset = text->p_offset + at,
					    .flags = MSG_ADDR_RETURN };
	}
	return n;
}

/* ---- asking ---- */

static int on_answer(void *arg, const struct event *e)
{
	struct bench *b = arg;
	struct bufr in;
	int err;

	bufr_init(&in, e->answer.data, e->answer.len);
	if (e->type == EVENT_ROWS) {
		struct msg_rows rows;

		err = msg_rows_decode(&in, &rows);
		if (err || rows.result != MSG_FILE_OK)
			die("rows", err ? err : EIO);
		b->nrows += rows.nresults;
		msg_rows_fini(&rows);
	} else {
		struct msg_names names;

		err = msg_names_decode(&in, &names);
		if (err || names.result != MSG_FILE_OK)
			die("names", err ? err : EIO);
		b->nnamed += names.nnamed;
		msg_names_fini(&names);
	}
	b->answered = e->answer.request->id;
	return 0;
}

static void ask(struct bench *b, enum msg_type type, const struct msg_addr *addrs, uint32_t n,
		int fd)
{
	uint64_t end = clock_mono_ns() + WAIT_S * NSEC_PER_SEC;
	int err;

	b->request.id++;
	b->request.file_id = b->file_id;
	b->request.naddrs = n;
	memcpy(b->request.addrs, addrs, n * sizeof(*addrs));
	err = symclient_ask(b->symbolizer, type, &b->request, fd);
	while (!err && b->answered != b->request.id && clock_mono_ns() < end)
		err = loop_once(b->loop, NSEC_PER_SEC);
	if (err || b->answered != b->request.id)
		die("the symbolizer does not answer", err ? err : ETIMEDOUT);
	if (symclient_restarts(b->symbolizer))
		die("the symbolizer was restarted", EIO);
}

/* The one child's CPU time and ours. Source: proc(5), schedstat: ns on the CPU first. */
static uint64_t cpu_both_ns(void)
{
	char path[64];
	uint64_t ns;
	int pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "re");
	if (!f || fscanf(f, "%d", &pid) != 1)
		die("no symbolizer runs", ESRCH);
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%" SCNu64, &ns) != 1)
		die("schedstat", ENOENT);
	fclose(f);
	return ns + clock_cpu_ns();
}

/* CPU time of asking for n addresses, `batch` at a time. */
static uint64_t ask_all(struct bench *b, enum msg_type type, const struct msg_addr *addrs,
			uint32_t n, uint32_t batch, int fd)
{
	uint64_t before = cpu_both_ns();

	for (uint32_t i = 0; i < n; i += batch)
		ask(b, type, addrs + i, MIN(batch, n - i), fd);
	return cpu_both_ns() - before;
}

/* ---- a file ---- */

static double us_each(uint64_t ns, uint32_t n)
{
	return (double)ns / 1000 / n;
}

static void bench_file(struct bench *b, const char *path)
{
	struct msg_addr all[ADDRESSES], mixed[ADDRESSES];
	uint64_t first, alone, batched, named;
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint32_t n;
	void *image;

	if (fd < 0 || fstat(fd, &st))
		die(path, errno);
	image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED)
		die(path, errno);
	n = choose(image, (size_t)st.st_size, all);
	munmap(image, (size_t)st.st_size);
	if (n != ADDRESSES)
		die("no code in the file", ENOEXEC);
	/* Neighbours do not follow each other, and each part is spread over the whole file. */
	for (uint32_t i = 0; i < n; i++)
		mixed[i] = all[i * 211 % n];
	b->file_id++;
	b->nrows = b->nnamed = 0;
	first = ask_all(b, MSG_ROWS, mixed, 1, 1, fd);
	alone = ask_all(b, MSG_ROWS, mixed + 1, ALONE, 1, fd);
	batched = ask_all(b, MSG_ROWS, mixed + 1 + ALONE, n - 1 - ALONE, BATCH, fd);
	named = ask_all(b, MSG_NAMES, mixed, n, BATCH, fd);
	if (b->nrows != n || b->nnamed != n)
		die("addresses without an answer", EIO);
	printf("%s first_us=%.0f row_us=%.1f row_batched_us=%.1f name_us=%.1f addresses=%u\n", path,
	       us_each(first, 1), us_each(alone, ALONE), us_each(batched, n - 1 - ALONE),
	       us_each(named, n), n);
}

int main(int argc, char **argv)
{
	struct ipc_program program = { .name = "flamed-symbolizer" };
	static struct bench b;
	struct msg_addr any = { .offset = 4096, .flags = MSG_ADDR_RETURN };
	CLEANUP_FD int self = -1;
	int err;

	if (argc < 3) {
		fprintf(stderr, "usage: bench_cold SYMBOLIZER FILE...\n");
		return 2;
	}
	program.exe_fd = open(argv[1], O_PATH | O_CLOEXEC);
	self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (program.exe_fd < 0 || self < 0)
		die(argv[1], errno);
	if ((err = loop_new(&b.loop)) ||
	    (err = symclient_new(&b.symbolizer, b.loop, &program, on_answer, &b)))
		die("starting the symbolizer", err);
	b.file_id = 1;
	ask(&b, MSG_ROWS, &any, 1, self); /* it has started now */
	for (int i = 2; i < argc; i++)
		bench_file(&b, argv[i]);
	symclient_free(b.symbolizer);
	loop_free(b.loop);
	return 0;
}
