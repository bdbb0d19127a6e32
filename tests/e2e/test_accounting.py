"""CPU time as sampled is CPU time as the kernel accounts it, also in step with a timer."""

import os

import harness
from harness import check_cpu, cpu_ns, once, workload

PERIODS_MS = (4, 10, 20, 50, 100, 250)


def record_each(commands, cpus):
    recording = harness.Recording()
    ran = harness.run_each(commands, at_a_time=len(commands), cpus=cpus)
    return recording.finish(), ran


@once
def run_duties():
    """The always busy one has a CPU for itself, where there are two."""
    last = max(os.sched_getaffinity(0))
    first = min(os.sched_getaffinity(0))
    return record_each(
        {
            100: [workload("duty"), "100", "10"],
            50: [workload("duty"), "50", "5"],
            10: [workload("duty"), "10", "1.2"],
        },
        {100: first, 50: last, 10: last},
    )


def check_duty(percent):
    result, ran = run_duties()
    process = ran[percent]
    says = process.values()
    assert process.returncode == 0
    assert (
        abs(says["rusage_ns"] - says["clock_ns"]) < 2e7
    ), f"the workload contradicts itself: {says}"
    check_cpu(f"duty {percent}", cpu_ns(result.of(process.pid)), process)


def test_a_program_that_is_always_busy_has_its_cpu_time():
    check_duty(100)


def test_a_program_that_is_busy_half_of_the_time_has_its_cpu_time():
    check_duty(50)


def test_a_program_that_is_busy_a_tenth_of_the_time_has_its_cpu_time():
    check_duty(10)


def test_the_whole_has_the_cpu_time_of_its_parts():
    result, ran = run_duties()
    stacks = [s for p in ran.values() for s in result.of(p.pid)]
    longest = max(ran.values(), key=lambda p: p.stolen_ns)
    check_cpu("all duties", cpu_ns(stacks), longest, sum(p.cpu_ns for p in ran.values()))


@once
def run_timers():
    """20 s of a tenth of a CPU each: 30 % of each of two CPUs, so that they meet rarely."""
    cpus = sorted(os.sched_getaffinity(0))
    return record_each(
        {ms: [workload("timer_duty"), str(ms), "2"] for ms in PERIODS_MS},
        {ms: cpus[i % len(cpus)] for i, ms in enumerate(PERIODS_MS)},
    )


def check_timer(ms):
    result, ran = run_timers()
    own_ns = ran[ms].values()["clock_ns"]
    sampled_ns = cpu_ns(result.of(ran[ms].pid))
    check_cpu(f"a timer of {ms} ms", sampled_ns, ran[ms], own_ns, tolerance=0.2)


def test_a_program_in_step_with_a_timer_of_4_ms_has_its_cpu_time():
    check_timer(4)


def test_a_program_in_step_with_a_timer_of_10_ms_has_its_cpu_time():
    check_timer(10)


def test_a_program_in_step_with_a_timer_of_20_ms_has_its_cpu_time():
    check_timer(20)


def test_a_program_in_step_with_a_timer_of_50_ms_has_its_cpu_time():
    check_timer(50)


def test_a_program_in_step_with_a_timer_of_100_ms_has_its_cpu_time():
    check_timer(100)


def test_a_program_in_step_with_a_timer_of_250_ms_has_its_cpu_time():
    check_timer(250)
