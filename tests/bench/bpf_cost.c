/*
 * bpf_cost empty|sample KIB SECONDS HZ - what one sample costs the program that it interrupts.
 *
 * A process pinned to one CPU holds KIB KiB of stack and reads the clock without end: each pause of
 * more than a microsecond is kept. A sample's time lies in the pause that it made, so the pause is
 * what was stolen: timer interrupt, perf event and BPF program together. "empty" attaches, in
 * place of flamed's program, one that only notes the time. Whatever made a pause long (another
 * process, the host of a virtual machine) is no cost of ours: the median is printed.
 *
 * Prints: samples=N stolen_ns=MEDIAN bpf_ns=MEAN stack_bytes=MEAN. bpf_ns is the kernel's own
 * account of the program (BPF_ENABLE_STATS). Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/sampler.h"
#include "base/clock.h"

enum {
	FRAME_BYTES = 2048,
	PAUSES_MAX = 1 << 18,
	TIMES_MAX = 1 << 14, /* a power of two */
	PAUSE_LEAST_NS = 1000,
	PAUSE_MOST_NS = 200000, /* longer: somebody else ran */
	DRAIN_NS = 50000000,
};

struct pause {
	uint64_t start_ns, end_ns;
};

/* Shared with the interrupted process. */
struct shared {
	volatile uint32_t ready, stop;
	volatile uint64_t npauses;
	struct pause pauses[PAUSES_MAX];
};

/* Times of samples: written by the empty program, or by on_record(). */
struct times {
	uint64_t n;
	uint64_t ns[TIMES_MAX];
};

struct cost {
	uint64_t bpf_ns, bpf_runs;
	uint64_t stack_bytes, seen;
};

static _Noreturn void die(const char *what, int err)
{
	fprintf(stderr, "bpf_cost: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void pin(uint32_t cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity", errno);
}

/* ---- the interrupted process ---- */

static __attribute__((noinline)) void watch_the_clock(struct shared *s)
{
	uint64_t last = clock_mono_ns();

	s->ready = 1;
	while (!s->stop) {
		uint64_t now = clock_mono_ns();

		if (now - last >= PAUSE_LEAST_NS && s->npauses < PAUSES_MAX) {
			s->pauses[s->npauses] = (struct pause){ last, now };
			s->npauses++;
			now = clock_mono_ns();
		}
		last = now;
	}
}

/* As tests/workloads/stack_kib.c. */
static __attribute__((noinline)) void hold(unsigned int left, struct shared *s)
{
	volatile char frame[FRAME_BYTES - 64];

	for (size_t i = 0; i < sizeof(frame); i += 256)
		frame[i] = (char)left;
	if (left > 1)
		hold(left - 1, s);
	else
		watch_the_clock(s);
	frame[left % sizeof(frame)] = 0;
}

static pid_t start_interrupted(struct shared *s, unsigned int kib, uint32_t cpu)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork", errno);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(cpu);
	hold(MAX(kib * 1024 / FRAME_BYTES, 1u), s);
	_exit(0);
}

/* ---- the program to compare with ---- */

/* clang-format off */
#define INSN(c, d, s, o, i) { .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) }
/* clang-format on */

/* Notes the time in a mapped array, returns 0 as flamed's program does. */
static int load_empty(int map_fd)
{
	const struct bpf_insn insns[] = {
		INSN(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_6, BPF_PSEUDO_MAP_VALUE, 0, map_fd),
		INSN(0, 0, 0, 0, 0),
		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ktime_get_ns),
		INSN(BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_6, 0, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_1, 0, 0),
		INSN(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_2, 0, 0, TIMES_MAX - 1),
		INSN(BPF_ALU64 | BPF_LSH | BPF_K, BPF_REG_2, 0, 0, 3),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_3, BPF_REG_6, 0, 0),
		INSN(BPF_ALU64 | BPF_ADD | BPF_X, BPF_REG_3, BPF_REG_2, 0, 0),
		INSN(BPF_STX | BPF_MEM | BPF_DW, BPF_REG_3, BPF_REG_0, offsetof(struct times, ns),
		     0),
		INSN(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_1, 0, 0, 1),
		INSN(BPF_STX | BPF_MEM | BPF_DW, BPF_REG_6, BPF_REG_1, 0, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "bench_empty", "GPL", insns,
			       ARRAY_SIZE(insns), NULL);

	if (fd < 0)
		die("loading the empty program", errno);
	return fd;
}

static int open_tick(uint32_t cpu, uint32_t hz, int prog_fd)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		/* As agent/sampler.c does for one CPU. */
		.sample_period = NSEC_PER_SEC / hz + NSEC_PER_SEC / hz * 70 / 10000,
		.exclude_idle = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, prog_fd) < 0)
		die("perf_event_open", errno);
	return fd;
}

static void run_empty(uint32_t cpu, uint32_t hz, uint64_t duration_ns, struct times *t,
		      struct cost *cost)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);
	int map_fd, prog_fd, tick_fd;
	void *p;

	map_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "bench_times", 4, sizeof(*t), 1, &opts);
	if (map_fd < 0)
		die("making a map", errno);
	prog_fd = load_empty(map_fd);
	tick_fd = open_tick(cpu, hz, prog_fd);
	for (uint64_t end = clock_mono_ns() + duration_ns; clock_mono_ns() < end;)
		usleep(DRAIN_NS / 1000);
	close(tick_fd);
	p = mmap(NULL, sizeof(*t), PROT_READ, MAP_SHARED, map_fd, 0);
	if (p == MAP_FAILED)
		die("mapping a map", errno);
	memcpy(t, p, sizeof(*t));
	if (bpf_obj_get_info_by_fd(prog_fd, &info, &len) < 0)
		die("bpf_obj_get_info_by_fd", errno);
	*cost = (struct cost){ .bpf_ns = info.run_time_ns, .bpf_runs = info.run_cnt };
}

/* ---- flamed's program ---- */

static int on_record(void *arg, const struct abi_record *r, size_t len UNUSED)
{
	struct times *t = arg;

	if (r->part == 0)
		t->ns[t->n++ % TIMES_MAX] = r->time_ns;
	return 0;
}

static void run_sample(uint32_t cpu, uint32_t hz, uint64_t duration_ns, struct times *t,
		       struct cost *cost)
{
	struct sampler_conf conf = { .hz = hz, .stack_max_bytes = 64 * 1024 };
	uint64_t counters[ABI_CNT_COUNT];
	struct sampler *s = NULL;
	const char *why = NULL;
	char list[16];
	int err;

	snprintf(list, sizeof(list), "%u", cpu);
	conf.cpus = list;
	err = sampler_new(&s, &conf, on_record, t, &why);
	if (!err)
		err = sampler_start(s, &why);
	if (err)
		die(why ? why : "sampler", err);
	for (uint64_t end = clock_mono_ns() + duration_ns; !err && clock_mono_ns() < end;) {
		usleep(DRAIN_NS / 1000);
		err = sampler_dispatch(s);
	}
	sampler_stop(s);
	if (err || (err = sampler_dispatch(s)) || (err = sampler_counters(s, counters)) ||
	    (err = sampler_cost(s, &cost->bpf_ns, &cost->bpf_runs)))
		die("reading samples", err);
	cost->stack_bytes = counters[ABI_CNT_STACK_BYTES];
	cost->seen = counters[ABI_CNT_SEEN];
	sampler_free(s);
}

/* ---- the result ---- */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The pauses that hold a sample's time; both lists are in order of time. Their number. */
static size_t match(struct times *t, const struct shared *s, uint64_t *lengths)
{
	size_t ntimes = MIN(t->n, (uint64_t)TIMES_MAX), n = 0, p = 0;

	qsort(t->ns, ntimes, sizeof(*t->ns), compare);
	for (size_t i = 0; i < ntimes; i++) {
		while (p < s->npauses && s->pauses[p].end_ns < t->ns[i])
			p++;
		if (p == s->npauses)
			break;
		if (s->pauses[p].start_ns <= t->ns[i] &&
		    s->pauses[p].end_ns - s->pauses[p].start_ns <= PAUSE_MOST_NS)
			lengths[n++] = s->pauses[p].end_ns - s->pauses[p].start_ns;
	}
	return n;
}

static void report(struct times *t, const struct shared *s, const struct cost *cost)
{
	static uint64_t lengths[TIMES_MAX];
	size_t n = match(t, s, lengths);

	if (!n || !cost->bpf_runs)
		die("no sample hit the process", ENODATA);
	qsort(lengths, n, sizeof(*lengths), compare);
	printf("samples=%zu stolen_ns=%" PRIu64 " bpf_ns=%" PRIu64 " stack_bytes=%" PRIu64 "\n", n,
	       lengths[n / 2], cost->bpf_ns / cost->bpf_runs,
	       cost->seen ? cost->stack_bytes / cost->seen : 0);
}

static unsigned int number(const char *text, unsigned int most)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (end == text || *end || !v || v > most) {
		fprintf(stderr, "bpf_cost: not a number from 1 to %u: %s\n", most, text);
		exit(2);
	}
	return (unsigned int)v;
}

/* The last CPU that we may use for the interrupted process, the first for us. */
static void choose_cpus(uint32_t *ret_ours, uint32_t *ret_theirs)
{
	uint32_t first = CPU_SETSIZE, last = 0;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		die("sched_getaffinity", errno);
	for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &set)) {
			first = MIN(first, cpu);
			last = cpu;
		}
	}
	*ret_ours = first;
	*ret_theirs = last;
}

int main(int argc, char **argv)
{
	static struct times times;
	struct cost cost = {};
	struct shared *shared;
	uint64_t duration_ns;
	uint32_t hz, ours, theirs;
	pid_t pid;

	if (argc != 5 || (strcmp(argv[1], "empty") && strcmp(argv[1], "sample"))) {
		fprintf(stderr, "usage: bpf_cost empty|sample KIB SECONDS HZ\n");
		return 2;
	}
	duration_ns = number(argv[3], 60) * NSEC_PER_SEC;
	hz = number(argv[4], 10000);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		die("mmap", errno);
	if (bpf_enable_stats(BPF_STATS_RUN_TIME) < 0)
		die("BPF_ENABLE_STATS", errno);
	choose_cpus(&ours, &theirs);
	pid = start_interrupted(shared, number(argv[2], 4096), theirs);
	pin(ours);
	while (!shared->ready && !waitpid(pid, NULL, WNOHANG))
		usleep(1000);
	if (argv[1][0] == 'e')
		run_empty(theirs, hz, duration_ns, &times, &cost);
	else
		run_sample(theirs, hz, duration_ns, &times, &cost);
	shared->stop = 1;
	waitpid(pid, NULL, 0);
	report(&times, shared, &cost);
	return 0;
}
