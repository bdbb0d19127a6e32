/* Rates, losses, CPUs and rights of the sampler; what a record holds is in test_sample.c. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <bpf/bpf.h>
#include <cap-ng.h>
#include <cmocka.h>

#include "agent/cpulist.h"
#include "base/clock.h"
#include "tests/unit/cpu_fixture.h"
#include "tests/unit/sampler_fixture.h"

#define MS NSEC_PER_MSEC

static void nap(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	nanosleep(&ts, NULL);
}

static struct sampler *sampler_of(const struct sampler_conf *conf, sampler_fn *fn, void *arg)
{
	struct sampler *s = NULL;
	const char *why = "";
	int err = sampler_new(&s, conf, fn, arg, &why);

	if (err)
		fail_msg("%s (%s)", why, strerror(-err));
	return s;
}

static int count_records(void *arg, const struct abi_record *r, size_t len)
{
	uint64_t *n = arg;

	record_check(r, len);
	*n += r->part == 0;
	return 0;
}

/* ---- rates ---- */

/* One target per CPU that never sleeps, so that no tick finds the CPU idle. */
static void spin_on_cpu_0(struct facts *f)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	target_spin(f);
}

static void spin_on_cpu_1(struct facts *f)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		target_ready(f); /* a host with one CPU */
		for (;;)
			pause();
	}
	target_spin(f);
}

struct rates {
	uint64_t n[CPULIST_MAX], period_ns[CPULIST_MAX], seq[CPULIST_MAX];
};

static int count_by_cpu(void *arg, const struct abi_record *r, size_t len)
{
	struct rates *rates = arg;

	record_check(r, len);
	if (r->part)
		return 0;
	assert_true(r->cpu < CPULIST_MAX);
	rates->n[r->cpu]++;
	assert_true(!rates->period_ns[r->cpu] || rates->period_ns[r->cpu] == r->period_ns);
	rates->period_ns[r->cpu] = r->period_ns;
	assert_true(r->seq > rates->seq[r->cpu]);
	rates->seq[r->cpu] = r->seq;
	return 0;
}

static void busy_cpus_are_sampled_at_their_own_periods(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 100, .stack_max_bytes = 64 * 1024, .cpus = "" };
	struct target t0 = target_start(spin_on_cpu_0), t1 = target_start(spin_on_cpu_1);
	struct rates *rates = calloc(1, sizeof(*rates));
	struct sampler *s = sampler_of(&conf, count_by_cpu, rates);
	uint64_t start, elapsed, ncpus = sampler_ncpus(s);
	const char *why;

	assert_non_null(rates);
	nap(100 * MS);
	assert_int_equal(sampler_dispatch(s), 0);
	for (uint32_t cpu = 0; cpu < CPULIST_MAX; cpu++)
		assert_int_equal(rates->n[cpu], 0); /* not before it is started */
	start = clock_mono_ns();
	assert_int_equal(sampler_start(s, &why), 0);
	for (int i = 0; i < 60; i++) {
		nap(100 * MS);
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	elapsed = clock_mono_ns() - start;
	assert_int_equal(sampler_dispatch(s), 0);
	for (uint32_t cpu = 0; cpu < MIN(ncpus, 2u); cpu++) {
		double d = (double)rates->period_ns[cpu] / 1e7 - 1;
		double expected = (double)elapsed / (double)rates->period_ns[cpu];

		print_message("CPU %u: period %+.2f %%, %llu samples of %.1f\n", cpu, d * 100,
			      (unsigned long long)rates->n[cpu], expected);
		assert_true(fabs(d) >= 0.005 && fabs(d) <= 0.012);
		assert_true(fabs((double)rates->n[cpu] - expected) <= expected * 0.01 + 4);
	}
	if (ncpus >= 2)
		assert_true(rates->period_ns[0] > 10000000 && rates->period_ns[1] < 10000000);
	free(rates);
	sampler_free(s);
	target_stop(&t0);
	target_stop(&t1);
}

static void one_cpu_alone_drifts_by_seven_per_mille(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 1000, .stack_max_bytes = 64 * 1024, .cpus = "0" };
	struct target t = target_start(spin_on_cpu_0);
	struct harvest h = {};

	harvest_run(&h, &conf, 200 * MS);
	assert_true(h.nrecords > 50);
	for (size_t i = 0; i < h.nrecords; i++) {
		assert_int_equal(h.records[i]->cpu, 0);
		assert_int_equal(h.records[i]->period_ns, 1007000);
	}
	harvest_reset(&h);
	target_stop(&t);
}

/* ---- losses ---- */

static void what_was_seen_was_delivered_or_dropped(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 2000, .stack_max_bytes = 64 * 1024, .cpus = "",
					   .ring_bytes = 256 * 1024 };
	struct target t0 = target_start(spin_on_cpu_0), t1 = target_start(spin_on_cpu_1);
	uint64_t delivered = 0, counters[ABI_CNT_COUNT];
	struct sampler *s = sampler_of(&conf, count_records, &delivered);
	const char *why;

	assert_int_equal(sampler_start(s, &why), 0);
	for (int i = 0; i < 4; i++) {
		nap(500 * MS); /* far too long for this ring */
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
	assert_int_equal(sampler_counters(s, counters), 0);
	print_message("seen %llu = delivered %llu + ring_full %llu\n",
		      (unsigned long long)counters[ABI_CNT_SEEN], (unsigned long long)delivered,
		      (unsigned long long)counters[ABI_CNT_DROPS + ABI_DROP_RING_FULL]);
	assert_true(delivered > 0 && counters[ABI_CNT_DROPS + ABI_DROP_RING_FULL] > 0);
	assert_int_equal(counters[ABI_CNT_SEEN],
			 delivered + counters[ABI_CNT_DROPS + ABI_DROP_RING_FULL]);
	assert_true(counters[ABI_CNT_STACK_BYTES] > 0);
	sampler_free(s);
	target_stop(&t0);
	target_stop(&t1);
}

static void use_200_kib_on_cpu_0(struct facts *f)
{
	volatile uint8_t deep[200 * 1024];

	for (size_t i = 0; i < sizeof(deep); i += 1024)
		deep[i] = 1;
	spin_on_cpu_0(f);
}

struct parts {
	uint64_t first, last, lost;
};

static int count_parts(void *arg, const struct abi_record *r, size_t len)
{
	struct parts *p = arg;

	record_check(r, len);
	p->first += r->part == 0;
	p->last += !!(r->flags & ABI_F_LAST);
	p->lost += !!(r->flags & ABI_F_PART_LOST);
	/* The second part is told to be lost in its own place. */
	if (r->flags & ABI_F_PART_LOST) {
		assert_true(r->part == 1 && r->flags & ABI_F_LAST);
		assert_int_equal(r->size, sizeof(*r));
	}
	return 0;
}

static void a_part_that_does_not_fit_is_told_in_its_place_and_counted(void **state UNUSED)
{
	/* 64 + 64 KiB a sample and 8 bytes each of the ring's own: 3 records fit, so the second lacks a part. */
	const struct sampler_conf conf = { .hz = 500, .stack_max_bytes = 64 * 1024, .cpus = "0",
					   .ring_bytes = 256 * 1024 };
	struct target t = target_start(use_200_kib_on_cpu_0);
	uint64_t counters[ABI_CNT_COUNT];
	struct parts parts = {};
	struct sampler *s = sampler_of(&conf, count_parts, &parts);
	const char *why;

	assert_int_equal(sampler_start(s, &why), 0);
	for (int i = 0; i < 10 && !parts.lost; i++) {
		nap(200 * MS);
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
	assert_int_equal(sampler_counters(s, counters), 0);
	assert_true(parts.lost > 0);
	assert_int_equal(counters[ABI_CNT_PART_LOST], parts.lost);
	assert_int_equal(parts.last, parts.first); /* nobody waits for a part */
	assert_int_equal(counters[ABI_CNT_SEEN],
			 parts.first + counters[ABI_CNT_DROPS + ABI_DROP_RING_FULL]);
	sampler_free(s);
	target_stop(&t);
}

/* From now on the kernel refuses the tail calls of this sampler to `program`. */
static void refuse_tail_calls(uint32_t program)
{
	int n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		struct bpf_map_info info = {};
		uint32_t len = sizeof(info);

		/* Of a program the answer has another meaning, and no such name. */
		if (bpf_obj_get_info_by_fd(fd, &info, &len) || info.type != BPF_MAP_TYPE_PROG_ARRAY ||
		    strcmp(info.name, "programs") != 0)
			continue;
		assert_int_equal(bpf_map_delete_elem(fd, &program), 0);
		n++;
	}
	assert_int_equal(n, 1);
}

static void a_tail_call_that_is_refused_is_counted_and_nobody_waits_for_what_it_would_bring(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 500, .stack_max_bytes = 64 * 1024, .cpus = "0" };
	struct target t = target_start(spin_on_cpu_0);
	struct abi_learned page = { .npages = 1, .pages = { 4096 } };
	uint64_t before[ABI_CNT_COUNT], after[ABI_CNT_COUNT], n;
	struct parts parts = {};
	struct sampler *s = sampler_of(&conf, count_parts, &parts);
	const char *why;

	assert_int_equal(sampler_learn(s, (uint32_t)t.facts->tid, &page), 0);
	refuse_tail_calls(1); /* to the program that brings learned pages */
	assert_int_equal(sampler_start(s, &why), 0);
	for (int i = 0; i < 50 && !parts.lost; i++) {
		nap(100 * MS);
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
	assert_int_equal(sampler_counters(s, before), 0);
	assert_true(parts.lost > 0);
	assert_int_equal(parts.last, parts.first);
	assert_int_equal(before[ABI_CNT_PART_LOST], parts.lost);
	assert_int_equal(before[ABI_CNT_DROPS + ABI_DROP_TAIL_CALL], 0);
	assert_int_equal(before[ABI_CNT_SEEN], parts.first + before[ABI_CNT_DROPS + ABI_DROP_RING_FULL]);

	refuse_tail_calls(0); /* to the one that brings windows */
	assert_int_equal(sampler_start(s, &why), 0);
	memcpy(after, before, sizeof(after));
	for (int i = 0; i < 50 && after[ABI_CNT_SEEN] < before[ABI_CNT_SEEN] + 10; i++) {
		nap(100 * MS);
		assert_int_equal(sampler_counters(s, after), 0);
	}
	sampler_stop(s);
	n = parts.first;
	assert_int_equal(sampler_dispatch(s), 0);
	assert_int_equal(sampler_counters(s, after), 0);
	assert_true(after[ABI_CNT_SEEN] > before[ABI_CNT_SEEN]);
	assert_int_equal(parts.first, n);
	assert_int_equal(after[ABI_CNT_DROPS + ABI_DROP_TAIL_CALL], after[ABI_CNT_SEEN] - before[ABI_CNT_SEEN]);
	sampler_free(s);
	target_stop(&t);
}

static int fail_at_once(void *arg, const struct abi_record *r UNUSED, size_t len UNUSED)
{
	++*(uint64_t *)arg;
	return -ENOSPC;
}

static void dispatch_stops_at_the_first_error_and_goes_on_after_it(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 1000, .stack_max_bytes = 16 * 1024, .cpus = "0" };
	struct target t = target_start(spin_on_cpu_0);
	uint64_t n = 0;
	struct sampler *s = sampler_of(&conf, fail_at_once, &n);
	const char *why;

	assert_int_equal(sampler_start(s, &why), 0);
	nap(200 * MS);
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), -ENOSPC);
	assert_int_equal(sampler_dispatch(s), -ENOSPC);
	assert_int_equal(n, 2);
	sampler_free(s);
	target_stop(&t);
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void the_descriptor_is_readable_only_when_a_quarter_of_the_ring_is_full(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 100, .stack_max_bytes = 64 * 1024, .cpus = "0",
					   .ring_bytes = 1 << 20 };
	struct target t = target_start(use_200_kib_on_cpu_0);
	const struct abi_learned nothing_to_say = { .nstacks = 1 };
	uint64_t n = 0, polls = 0;
	struct sampler *s = sampler_of(&conf, count_records, &n);
	const char *why;

	assert_int_equal(sampler_learn(s, (uint32_t)t.pid, &nothing_to_say), 0);
	assert_int_equal(sampler_start(s, &why), 0);
	for (int i = 0; i < 30; i++) {
		nap(10 * MS);
		polls += is_readable(sampler_fd(s));
		assert_int_equal(sampler_dispatch(s), 0);
		assert_false(is_readable(sampler_fd(s)));
	}
	/* Up to three samples of 128 KiB at a time: seldom a quarter of 1 MiB. */
	assert_true(n > 10 && polls < 10);
	for (int i = 0; i < 100 && !is_readable(sampler_fd(s)); i++)
		nap(10 * MS);
	assert_true(is_readable(sampler_fd(s)));
	sampler_free(s);
	target_stop(&t);
}

/* ---- filters ---- */

/* Of one process, since the last reset. */
struct of_pid {
	uint32_t pid;
	uint64_t n, ns, nperiods; /* samples; the CPU time that they stand for, and the periods in it */
	uint64_t others;
};

static int count_of_pid(void *arg, const struct abi_record *r, size_t len)
{
	struct of_pid *p = arg;

	record_check(r, len);
	if (r->part)
		return 0;
	if (r->pid != p->pid) {
		p->others++;
		return 0;
	}
	p->n++;
	p->ns += r->period_ns;
	p->nperiods += (r->period_ns + 500000) / 1000000; /* at 1000 Hz */
	return 0;
}

/* Samples for a while; what BPF counted meanwhile. */
static void run_filtered(struct sampler *s, struct of_pid *p, uint64_t ns, uint64_t ret_diff[ABI_CNT_COUNT])
{
	uint64_t before[ABI_CNT_COUNT], after[ABI_CNT_COUNT], end = clock_mono_ns() + ns;
	const char *why;

	p->n = p->ns = p->nperiods = p->others = 0;
	assert_int_equal(sampler_counters(s, before), 0);
	assert_int_equal(sampler_start(s, &why), 0);
	while (clock_mono_ns() < end) {
		nap(50 * MS);
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
	assert_int_equal(sampler_counters(s, after), 0);
	for (int i = 0; i < ABI_CNT_COUNT; i++)
		ret_diff[i] = after[i] - before[i];
	/* Law 1: whatever the filter did. */
	assert_int_equal(ret_diff[ABI_CNT_SEEN], p->n + p->others + ret_diff[ABI_CNT_DROPS + ABI_DROP_RING_FULL] +
						 ret_diff[ABI_CNT_DROPS + ABI_DROP_FILTERED] +
						 ret_diff[ABI_CNT_DROPS + ABI_DROP_THINNED]);
	print_message("seen %llu: %llu of it, %llu filtered, %llu thinned\n",
		      (unsigned long long)ret_diff[ABI_CNT_SEEN], (unsigned long long)p->n,
		      (unsigned long long)ret_diff[ABI_CNT_DROPS + ABI_DROP_FILTERED],
		      (unsigned long long)ret_diff[ABI_CNT_DROPS + ABI_DROP_THINNED]);
}

static void a_process_is_skipped_or_thinned_and_what_is_kept_stands_for_the_rest(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 1000, .stack_max_bytes = 16 * 1024, .cpus = "0" };
	struct target t = target_start(spin_on_cpu_0);
	struct of_pid p = { .pid = (uint32_t)t.pid };
	uint64_t d[ABI_CNT_COUNT], full, whole;
	struct sampler *s = sampler_of(&conf, count_of_pid, &p);
	double expected, sigma;

	run_filtered(s, &p, 1000 * MS, d);
	full = p.n;
	assert_true(full > 100);
	assert_int_equal(d[ABI_CNT_DROPS + ABI_DROP_FILTERED] + d[ABI_CNT_DROPS + ABI_DROP_THINNED], 0);

	assert_int_equal(sampler_filter(s, p.pid, 0), 0);
	run_filtered(s, &p, 1000 * MS, d);
	assert_int_equal(p.n, 0);
	assert_true(d[ABI_CNT_DROPS + ABI_DROP_FILTERED] > 100);
	assert_int_equal(d[ABI_CNT_DROPS + ABI_DROP_THINNED], 0);

	assert_int_equal(sampler_filter(s, p.pid, 4), 0);
	run_filtered(s, &p, 3000 * MS, d);
	whole = p.n + d[ABI_CNT_DROPS + ABI_DROP_THINNED];
	expected = (double)whole / 4;
	sigma = sqrt((double)whole * 0.25 * 0.75);
	assert_true(whole > 300 && d[ABI_CNT_DROPS + ABI_DROP_FILTERED] == 0);
	assert_true(fabs((double)p.n - expected) <= expected * 0.01 + 4 * sigma);
	assert_int_equal(p.nperiods, p.n * 4);
	assert_int_equal(p.ns, p.n * 4 * 1007000);

	/* Again everything; others were never concerned. */
	assert_int_equal(sampler_filter(s, p.pid, 1), 0);
	assert_int_equal(sampler_filter(s, p.pid, 1), 0);
	assert_int_equal(sampler_filter(s, p.pid + 1, 0), 0);
	run_filtered(s, &p, 500 * MS, d);
	assert_true(p.n > 50);
	assert_int_equal(p.ns, p.n * 1007000);
	assert_int_equal(d[ABI_CNT_DROPS + ABI_DROP_THINNED], 0);
	sampler_free(s);
	target_stop(&t);
}

static void more_filters_than_fit_are_refused_until_one_is_removed(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 100, .stack_max_bytes = 16 * 1024, .cpus = "" };
	struct of_pid p = {};
	struct sampler *s = sampler_of(&conf, count_of_pid, &p);
	uint32_t n = 0;
	int err = 0;

	while (!err && n < 100000) {
		err = sampler_filter(s, 1000000 + n, n % 2 ? 0 : 7);
		n += !err;
	}
	print_message("%u filters\n", n);
	assert_int_equal(err, -E2BIG);
	assert_in_range(n, 4096, 4096 + CPULIST_MAX);
	/* One that is there can be changed all the same. */
	assert_int_equal(sampler_filter(s, 1000000, 3), 0);
	assert_int_equal(sampler_filter(s, 1000000, 1), 0);
	assert_int_equal(sampler_filter(s, 999, 0), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(sampler_filter(s, 1000000 + i, 1), 0);
	for (uint32_t i = 0; i < 4000; i++)
		assert_int_equal(sampler_filter(s, 2000000 + i, 0), 0);
	sampler_free(s);
}

/* ---- CPUs that come and go ---- */

static int child_status(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int watch_cpus_go_and_come(void)
{
	const struct sampler_conf conf = { .hz = 1000, .stack_max_bytes = 1024, .cpus = "" };
	struct rates *rates = calloc(1, sizeof(*rates));
	struct sampler *s = NULL;
	const char *why;
	uint64_t before;

	if (!rates)
		return 12;
	cpu_fixture_online("1");
	if (sampler_new(&s, &conf, count_by_cpu, rates, &why) || sampler_ncpus(s) != 1 ||
	    sampler_start(s, &why))
		return 1;
	cpu_fixture_online("0-1");
	if (sampler_check_cpus(s) || sampler_ncpus(s) != 2)
		return 2;
	nap(300 * MS);
	if (sampler_dispatch(s) || !rates->n[0] || !rates->n[1])
		return 3; /* the new one is sampled at once */
	cpu_fixture_online("1");
	if (sampler_check_cpus(s) || sampler_ncpus(s) != 1 || sampler_dispatch(s))
		return 4;
	before = rates->n[0];
	nap(300 * MS);
	if (sampler_dispatch(s) || rates->n[0] != before)
		return 5;
	cpu_fixture_online("0-1,4095");
	if (sampler_check_cpus(s) || sampler_ncpus(s) != 2)
		return 6;
	nap(300 * MS);
	if (sampler_dispatch(s) || rates->n[0] == before)
		return 7;
	sampler_free(s);
	free(rates);
	return 0;
}

static void cpus_that_come_are_sampled_and_those_that_go_are_not(void **state UNUSED)
{
	struct target t0 = target_start(spin_on_cpu_0), t1 = target_start(spin_on_cpu_1);
	pid_t pid;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || geteuid()) {
		target_stop(&t0);
		target_stop(&t1);
		skip();
	}
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(watch_cpus_go_and_come());
	assert_int_equal(child_status(pid), 0);
	target_stop(&t0);
	target_stop(&t1);
}

/* The kernel leaves the event of a CPU that went dead, and nothing but its age tells. */
static int watch_a_cpu_come_back(void)
{
	const struct sampler_conf conf = { .hz = 1000, .stack_max_bytes = 1024, .cpus = "0" };
	struct rates *rates = calloc(1, sizeof(*rates));
	uint64_t first = 0, second = 0, third = 0, before;
	struct sampler *s = NULL;
	const char *why;

	cpu_fixture_online("0-1");
	if (!rates || sampler_new(&s, &conf, count_by_cpu, rates, &why) || sampler_start(s, &why))
		return 1;
	if (sampler_check_cpus(s) || cpu_fixture_events(&first, 1) != 1)
		return 2;
	cpu_fixture_reborn(0);
	if (sampler_check_cpus(s) || sampler_ncpus(s) != 1 || cpu_fixture_events(&second, 1) != 1 || second == first)
		return 3;
	if (sampler_check_cpus(s) || cpu_fixture_events(&third, 1) != 1 || third != second)
		return 4; /* once is enough */
	if (sampler_dispatch(s))
		return 5;
	before = rates->n[0];
	for (int i = 0; i < 3000 && rates->n[0] < before + 10; i++) {
		nap(10 * MS);
		if (sampler_dispatch(s))
			return 6;
	}
	return rates->n[0] < before + 10 ? 7 : 0;
}

static void a_cpu_that_went_and_came_back_between_two_looks_is_sampled_again(void **state UNUSED)
{
	struct target t0 = target_start(spin_on_cpu_0);
	pid_t pid = geteuid() ? -1 : fork();

	if (!pid)
		_exit(watch_a_cpu_come_back());
	if (pid > 0)
		assert_int_equal(child_status(pid), 0);
	target_stop(&t0);
	if (pid < 0)
		skip();
}

/* ---- refusals ---- */

static void an_impossible_configuration_is_refused_with_a_reason(void **state UNUSED)
{
	static const struct { struct sampler_conf conf; int err; const char *word; } cases[] = {
		{ { .hz = 0, .cpus = "" }, -EINVAL, "frequency" },
		{ { .hz = 1000000, .cpus = "" }, -EINVAL, "frequency" },
		{ { .hz = 100, .cpus = "none" }, -EINVAL, "sampling.cpus" },
		{ { .hz = 100, .cpus = "8000" }, -ENODEV, "sampling.cpus" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sampler *s = NULL;
		const char *why = NULL;

		assert_int_equal(sampler_new(&s, &cases[i].conf, count_records, NULL, &why), cases[i].err);
		assert_null(s);
		assert_non_null(strstr(why, cases[i].word));
		assert_null(strchr(why, '\n'));
	}
}

/* As uid 65534 with these capabilities and no others: 0, or what failed. */
static int sample_unprivileged(const int *caps, size_t ncaps)
{
	const struct sampler_conf conf = { .hz = 500, .stack_max_bytes = 64 * 1024, .cpus = "" };
	struct sampler *s = NULL;
	const char *why = "";
	uint64_t n = 0;
	int err;

	capng_clear(CAPNG_SELECT_BOTH);
	for (size_t i = 0; i < ncaps; i++)
		capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, (unsigned int)caps[i]);
	if (capng_change_id(65534, 65534, CAPNG_DROP_SUPP_GRP | CAPNG_CLEAR_BOUNDING))
		return 20;
	err = sampler_new(&s, &conf, count_records, &n, &why);
	if (err) {
		fprintf(stderr, "with %zu capabilities: %s\n", ncaps, why);
		return err == -EPERM || err == -EACCES ? 1 : 21;
	}
	if (sampler_start(s, &why))
		return 22;
	nap(500 * MS);
	if (sampler_dispatch(s) || n < 20)
		return 23;
	sampler_free(s);
	return 0;
}

static int run_unprivileged(const int *caps, size_t ncaps)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(sample_unprivileged(caps, ncaps));
	return child_status(pid);
}

static void another_user_needs_cap_bpf_and_cap_perfmon_and_nothing_else(void **state UNUSED)
{
	static const int both[] = { CAP_BPF, CAP_PERFMON }, one[] = { CAP_BPF }, other[] = { CAP_PERFMON };
	struct target t0 = target_start(spin_on_cpu_0);

	if (geteuid()) {
		target_stop(&t0);
		skip();
	}
	assert_int_equal(run_unprivileged(both, 2), 0);
	assert_int_equal(run_unprivileged(one, 1), 1);
	assert_int_equal(run_unprivileged(other, 1), 1);
	assert_int_equal(run_unprivileged(NULL, 0), 1);
	target_stop(&t0);
}

static void the_cost_is_known_when_the_kernel_counts_it(void **state UNUSED)
{
	const struct sampler_conf conf = { .hz = 100, .stack_max_bytes = 64 * 1024, .cpus = "" };
	uint64_t n = 0, ns = 1, runs = 1;
	struct sampler *s = sampler_of(&conf, count_records, &n);

	assert_int_equal(sampler_cost(s, &ns, &runs), 0);
	assert_int_equal(runs, 0);
	assert_in_range(sampler_map_bytes(s), 2 << 20, 40 << 20);
	sampler_free(s);
	assert_null(sampler_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_cpus_are_sampled_at_their_own_periods),
		cmocka_unit_test(one_cpu_alone_drifts_by_seven_per_mille),
		cmocka_unit_test(what_was_seen_was_delivered_or_dropped),
		cmocka_unit_test(a_part_that_does_not_fit_is_told_in_its_place_and_counted),
		cmocka_unit_test(a_tail_call_that_is_refused_is_counted_and_nobody_waits_for_what_it_would_bring),
		cmocka_unit_test(dispatch_stops_at_the_first_error_and_goes_on_after_it),
		cmocka_unit_test(the_descriptor_is_readable_only_when_a_quarter_of_the_ring_is_full),
		cmocka_unit_test(a_process_is_skipped_or_thinned_and_what_is_kept_stands_for_the_rest),
		cmocka_unit_test(more_filters_than_fit_are_refused_until_one_is_removed),
		cmocka_unit_test(cpus_that_come_are_sampled_and_those_that_go_are_not),
		cmocka_unit_test(a_cpu_that_went_and_came_back_between_two_looks_is_sampled_again),
		cmocka_unit_test(an_impossible_configuration_is_refused_with_a_reason),
		cmocka_unit_test(another_user_needs_cap_bpf_and_cap_perfmon_and_nothing_else),
		cmocka_unit_test(the_cost_is_known_when_the_kernel_counts_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
