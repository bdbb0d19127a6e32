/*
 * bpf_facts programs | empty HZ - what the kernel knows of BPF programs on perf events.
 *
 * "programs" prints a line for each that is loaded, in the order of loading:
 *	program NAME loaded_ms N verified N run_ns N runs N
 * loaded_ms is when its verification began, since the boot; verified counts instructions, from 5.16 on (before: 0);
 * the last two want kernel.bpf_stats_enabled=1. "empty" runs a program that only reads the clock on HZ ticks a
 * second of each CPU until SIGINT, and prints its line. Needs root.
 */
#include <bpf/bpf.h>
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/def.h"

static void print_program(int fd)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &len) < 0)
		err(1, "bpf_obj_get_info_by_fd");
	if (info.type != BPF_PROG_TYPE_PERF_EVENT)
		return;
	printf("program %s loaded_ms %llu verified %u run_ns %llu runs %llu\n", info.name,
	       (unsigned long long)info.load_time / 1000000, info.verified_insns,
	       (unsigned long long)info.run_time_ns, (unsigned long long)info.run_cnt);
}

static void print_programs(void)
{
	for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd >= 0) {
			print_program(fd);
			close(fd);
		}
	}
}

static int load_empty(void)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_ktime_get_ns },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "empty", "GPL", insns, ARRAY_SIZE(insns), NULL);

	if (fd < 0)
		err(1, "loading the empty program");
	return fd;
}

static void attach(int prog_fd, int cpu, uint64_t hz)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = NSEC_PER_SEC / hz,
		.exclude_idle = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, prog_fd) < 0)
		err(1, "perf_event_open on CPU %d", cpu);
}

static void run_empty(uint64_t hz)
{
	int prog_fd, signo;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	prog_fd = load_empty();
	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		attach(prog_fd, cpu, hz);
	sigwait(&set, &signo);
	print_program(prog_fd);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "programs") == 0) {
		print_programs();
		return 0;
	}
	if (argc != 3 || strcmp(argv[1], "empty") != 0)
		errx(2, "usage: bpf_facts programs | empty HZ");
	run_empty((uint64_t)MAX(strtoul(argv[2], NULL, 10), 1ul));
	return 0;
}
