"""Children killed at random, an agent that stands still: nothing counted is lost or hidden."""

import contextlib
import os
import random
import signal
import subprocess
import time

import harness
from harness import (
    Recording,
    check_chain,
    check_complete,
    check_cpu,
    once,
    start,
    total,
    wait_for,
    workload,
)

CHAIN = harness.START + "a;b;c;spin(;|$)"
ROLES = ("symbolizer", "exporter", "reader")


def role_of(command):
    """By the words that flamed starts its children with; they may follow the program's path."""
    words = command.split()
    for role in ROLES:
        if words and (words[0].endswith(role) or words[1:2] == [role]):
            return role
    return None


def helpers(pid):
    """{role: pid} of the living children."""
    return {
        role_of(command): child
        for child, command in harness.children(pid).items()
        if role_of(command)
    }


def all_helpers(recording):
    found = helpers(recording.pid)
    return found if len(found) == len(ROLES) else None


class KillRun:
    """Some 10 s of work while a random child dies every half second or so."""

    def __init__(self):
        seed = random.randrange(1 << 32)
        print(f"        kills with seed {seed}")
        dice = random.Random(seed)
        recording = Recording()
        wait_for(
            lambda: all_helpers(recording),
            f"three children, found {harness.children(recording.pid)}",
        )
        argv = {n: [workload(n), "6"] for n in ("chain_c", "chain_cpp", "threads4")}
        processes = {n: start(a, stdout=subprocess.PIPE, text=True) for n, a in argv.items()}
        self.kills = dict.fromkeys(ROLES, 0)
        while any(is_alive(p) for p in processes.values()):
            time.sleep(dice.uniform(0.1, 0.8))
            role = dice.choice(ROLES)
            pid = helpers(recording.pid).get(role)
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills[role] += 1
        self.ran = {n: harness.reap(p) for n, p in processes.items()}
        wait_for(lambda: all_helpers(recording), "all children to be there again")
        self.result = recording.finish()


def is_alive(process):
    """Without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@once
def kill_run():
    return KillRun()


def test_killed_children_are_restarted_and_counted():
    run = kill_run()
    assert all(n >= 2 for n in run.kills.values()), f"too few kills to test anything: {run.kills}"
    for role, n in run.kills.items():
        restarts = run.result.summary.restarts.get(role, 0)
        # A kill can hit a child that was being replaced.
        assert 1 <= restarts <= n, f"{role}: {n} kills, {restarts} restarts"


def test_killed_children_cost_no_sample():
    run = kill_run()
    harness.check_no_loss(run.result)
    for name, ran in run.ran.items():
        check_cpu(name, harness.cpu_ns(run.result.of(ran.pid)), ran)


def test_killed_children_cost_no_stack_and_no_name():
    run = kill_run()
    check_chain("chain_c", run.result.of(run.ran["chain_c"].pid, "chain_c"), CHAIN)
    check_complete("chain_cpp", run.result.of(run.ran["chain_cpp"].pid, "chain_cpp"))
    check_chain(
        "threads4",
        run.result.of(run.ran["threads4"].pid, "threads4"),
        "(^|;)thread_main;a;spin(;|$)",
    )


def test_children_killed_while_the_profile_is_made_cost_nothing():
    """The last window is named, encoded and written with symbolizer and exporter dying."""
    recording = Recording()
    helper = wait_for(lambda: all_helpers(recording), "three children")
    ran = harness.run_each({"chain_c": [workload("chain_c"), "1"]})["chain_c"]
    os.kill(helper["exporter"], signal.SIGSTOP)  # so that its death falls into the delivery
    recording.process.send_signal(signal.SIGINT)
    with contextlib.suppress(ProcessLookupError):
        os.kill(helper["symbolizer"], signal.SIGKILL)
    time.sleep(0.3)
    with contextlib.suppress(ProcessLookupError):
        os.kill(helper["exporter"], signal.SIGKILL)
    result = recording.finish(sig=None)
    assert result.returncode == 0, result.stderr
    check_chain("chain_c", result.of(ran.pid, "chain_c"), CHAIN)


@once
def stopped_run():
    """20 s of large stacks on each CPU while the agent stands still, then 2 s more."""
    recording = Recording()
    wait_for(lambda: all_helpers(recording), "three children")
    load = [start([workload("stack_kib"), "60", "1000"]) for _ in range(harness.NCPUS)]
    time.sleep(1)
    recording.process.send_signal(signal.SIGSTOP)
    time.sleep(20)
    recording.process.send_signal(signal.SIGCONT)
    time.sleep(2)
    for process in load:
        process.kill()
    ran = [harness.reap(process) for process in load]
    return recording.finish(), ran


def test_an_agent_that_stood_still_reports_what_it_lost():
    result, ran = stopped_run()  # conservation is checked in finish()
    assert (
        result.summary.drops.get("ring_full", 0) > 500
    ), f"20 s of 60 KiB stacks must overflow the ring: {result.summary.drops}"
    expected = sum(r.cpu_ns for r in ran) / 1e9 * harness.HZ
    delivered = sum(total(result.of(r.pid)) for r in ran)
    missing = expected - delivered
    lost = result.summary.lost()
    # Other programs of the host lose samples too, and period and count differ by a percent.
    assert missing <= 1.05 * lost + 40, f"{missing:.0f} samples are missing, {lost} are reported"


def test_an_agent_that_stood_still_goes_on_afterwards():
    result, ran = stopped_run()
    stacks = [s for r in ran for s in result.of(r.pid, "stack_kib")]
    # About 3 of 23 s were sampled, and what the ring held.
    check_complete("stack_kib", stacks)
