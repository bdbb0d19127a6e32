"""Names come from the file that is mapped, whatever its path leads to by now."""

import os
import shutil
import sys

import harness
from harness import check_chain, once, reap, start, workload

CHAIN = r"main;a;b;c;spin(;|$)"
KINDS = ["deleted", "replaced", "memfd"]
#: A program that never had a path.
FROM_MEMFD = (
    "import os, sys; fd = os.memfd_create('code', 0); os.write(fd, open(sys.argv[1], 'rb').read());"
    "os.execv(f'/proc/self/fd/{fd}', ['from_memfd', sys.argv[2]])"
)
SECONDS = "4"


def begin(kind):
    program = workload("chain_c")
    if kind == "memfd":
        return start([sys.executable, "-c", FROM_MEMFD, program, SECONDS])
    copy = os.path.join(harness.scratch(), f"{kind}_chain")
    shutil.copy(program, copy)
    process = start([copy, SECONDS])
    # It runs by now: Popen returns after exec.
    if kind == "deleted":
        os.remove(copy)
    else:
        # Another program, in which the same offsets are other functions.
        shutil.copy(workload("deep"), copy + ".new")
        os.rename(copy + ".new", copy)
    return process


@once
def recorded():
    """They run and their paths have changed before anything of them is opened."""
    processes = {kind: begin(kind) for kind in KINDS}
    recording = harness.Recording()
    for kind, process in processes.items():
        assert reap(process).returncode == 0, kind
    return recording.finish(), {kind: process.pid for kind, process in processes.items()}


def check(kind):
    result, pids = recorded()
    stacks = [s for s in result.of(pid=pids[kind]) if "spin" in s.names or "main" in s.names]
    check_chain(kind, stacks, CHAIN, at_least=30)


def test_a_deleted_program_has_names():
    check("deleted")


def test_a_replaced_program_has_the_names_of_the_file_that_runs():
    check("replaced")


def test_a_memfd_has_names():
    check("memfd")
