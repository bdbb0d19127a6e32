"""Processes that are over before anyone could look into /proc: their only sample counts."""

import math
import os
import re

import harness
from harness import check_rate, need_program, once, shell_workload, total, with_user_stack

COUNT = 1000
CLANGS = 30


class Run:
    """Below `record -- COMMAND`, which is all that is recorded."""

    def __init__(self):
        empty = harness.scratch_file(".c")
        with open(empty, "w", encoding="ascii"):
            pass
        script = f"{shell_workload('spawner')} {COUNT} {shell_workload('short5')}"
        if os.access("/usr/bin/clang", os.X_OK):
            script += (
                f" && {shell_workload('spawner')} {CLANGS} /usr/bin/clang -O2 -c -o {empty}.o {empty}"
            )
        stolen_ns = harness.stolen_ns()
        self.result = harness.record(command=["/bin/sh", "-c", script])
        self.stolen_ns = harness.stolen_ns() - stolen_ns
        assert self.result.returncode == 0, self.result.stderr
        lines = [int(line.split()[1]) for line in self.result.stdout.splitlines()]
        assert lines[0] == COUNT, f"{lines[0]} of {COUNT} ended well"
        self.short_ns = lines[1]


@once
def run():
    return Run()


def check_short(name, executable):
    stacks = with_user_stack(run().result.of(comm=name))
    check_rate(
        f"{name}: complete and in its file",
        stacks,
        lambda s: s.complete and s.service == executable,
        rate=0.95,
    )


def test_processes_of_5_ms_are_complete():
    check_short("short5", harness.service_of(os.path.join(harness.WORKLOADS, "short5")))


def test_processes_of_5_ms_have_their_own_code():
    stacks = [s for s in run().result.of(comm="short5") if ";main;" in s.folded]
    check_rate(
        "short5: chain",
        stacks,
        lambda s: re.search(harness.START + "a;spin(;|$)", s.folded),
        rate=0.98,
    )
    assert total(stacks) > 0.5 * total(
        run().result.of(comm="short5")
    ), "most of the time is spent in main"


def test_processes_of_5_ms_are_each_a_process():
    pids = {s.pid for s in run().result.of(comm="short5")}
    assert len(pids) > 200, f"samples of {len(pids)} processes"


def test_processes_of_5_ms_have_their_cpu_time():
    # Before exec they bear the spawner's name.
    sampled = [s for s in run().result.stacks if s.comm in ("short5", "spawner")]
    expected = run().short_ns / 1e9 * harness.HZ
    tolerance = 0.1 * expected + 4 * math.sqrt(expected)
    stolen = run().stolen_ns / 1e9 * harness.HZ
    assert (
        expected - tolerance < total(sampled) < expected + tolerance + stolen
    ), f"{total(sampled)} samples of {expected:.0f} expected, time of {stolen:.0f} was stolen"


def test_compilers_of_50_ms_are_complete():
    need_program("/usr/bin/clang")
    check_short("clang", os.path.basename(os.path.realpath("/usr/bin/clang")))


def test_nothing_was_lost():
    harness.check_no_loss(run().result)
