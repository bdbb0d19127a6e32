"""perf works beside flamed: an event of ours must not change what perf's events get."""

import os
import subprocess

import harness
from harness import need_program, once, workload


class Run:
    def __init__(self):
        self.perf = need_program("/usr/bin/perf")
        self.data = harness.scratch_file(".data")
        environment = {**os.environ, "HOME": harness.scratch()}  # for perf's ~/.debug
        recording = harness.Recording()
        self.done = subprocess.run(
            [
                self.perf,
                "record",
                "-g",
                "-e",
                "cpu-clock",
                "-o",
                self.data,
                "--",
                workload("chain_c"),
                "1",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        self.second = subprocess.run(
            [
                self.perf,
                "record",
                "-g",
                "-a",
                "-e",
                "cpu-clock",
                "-o",
                harness.scratch_file(".data"),
                "--",
                "/bin/sh",
                "-c",
                "/bin/ls / >/dev/null",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        self.result = recording.finish()


@once
def run():
    return Run()


def test_perf_record_works_while_flamed_runs():
    assert run().done.returncode == 0, run().done.stderr
    assert run().second.returncode == 0, run().second.stderr
    assert os.path.getsize(run().data) > 10000


def test_perf_reads_what_it_recorded_while_flamed_ran():
    script = subprocess.run(
        [run().perf, "script", "-i", run().data], capture_output=True, text=True, timeout=60
    )
    assert script.returncode == 0, script.stderr
    assert script.stdout.count("spin") > 100, script.stdout[:2000]


def test_flamed_samples_what_perf_records():
    stacks = run().result.of(comm="chain_c")
    harness.check_chain("chain_c", stacks, harness.START + "a;b;c;spin(;|$)")
