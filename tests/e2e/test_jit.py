"""Code without a file is named by what its JIT wrote: perf maps and jitdumps, of the right process only."""

import contextlib
import os

import harness
import pprof
from harness import check_chain, once, run_each, workload

CHAIN = r"main;run;{0};called_back;{0};spin(;|$)"
NAMED = CHAIN.format("jit outer")
PLAIN = CHAIN.format(r"\[jit\]\+0x[0-9a-f]{1,3}")
SECONDS = "0.6"
#: What must not be opened, or is somebody else's.
REFUSED = ["none", "fifo", "symlink", "directory", "foreign"]
#: The kinds whose map stands at the usual place.
KINDS = ["map", "dump", "fork", "sparse", *REFUSED]
#: What the host has for process 1, which the one in a namespace is there.
DECOY = "/tmp/perf-1.map"
IN_NAMESPACE = 'mount -t tmpfs none /tmp && exec "$0" namespace "$1"'


def command(kind):
    program = workload("jit_names")
    if kind != "namespace":
        # A jitdump lies in the working directory.
        return ["/usr/bin/env", "-C", harness.scratch(), program, kind, SECONDS]
    return [
        *("/usr/bin/unshare", "--pid", "--fork", "--mount"),
        *("/bin/sh", "-c", IN_NAMESPACE, program, SECONDS),
    ]


@contextlib.contextmanager
def decoy():
    existed = os.path.lexists(DECOY)
    if not existed:
        with open(DECOY, "w", encoding="ascii") as f:
            f.write("1000 7ffffffff000 decoy\n")
    try:
        yield
    finally:
        if not existed:
            os.remove(DECOY)


@once
def recorded():
    recording = harness.Recording()
    with decoy():
        ran = run_each({kind: command(kind) for kind in [*KINDS, "namespace"]})
        result = recording.finish()
    for kind, process in ran.items():
        assert process.returncode == 0, (kind, process.stdout)
    return result


def check(kind, pattern):
    # A forked parent and a namespace's first process are called so, too, and have no code of their own.
    stacks = [s for s in recorded().of(comm=kind) if "spin" in s.names]
    check_chain(kind, stacks, pattern, at_least=30)


def test_a_perf_map_names_code_and_its_last_whole_entry_holds():
    check("map", NAMED)


def test_a_map_is_found_by_the_number_inside_its_namespace():
    check("namespace", NAMED)


def test_a_fork_without_exec_is_named_by_its_parents_map():
    check("fork", NAMED)


def test_a_map_of_100_gib_is_read_up_to_its_hole():
    check("sparse", NAMED)


def test_what_is_no_map_of_the_process_is_not_read():
    for kind in REFUSED:
        check(kind, PLAIN)


def test_a_jitdump_names_moved_code_with_its_lines():
    check("dump", NAMED)
    profile = pprof.load(recorded().path)
    functions = {f.id: f for f in profile.function}
    seen = set()
    for location in profile.location:
        for line in location.line:
            function = functions[line.function_id]
            if profile.string(function.name) == "jit outer":
                seen.add((profile.string(function.filename), line.line))
    # The call alone is ever on a stack.
    assert ("outer.jit", 12) in seen and seen <= {("outer.jit", 12), ("", 0)}, seen


def test_no_address_of_the_process_leaves():
    profile = pprof.load(recorded().path)
    mappings = {m.id: profile.string(m.filename) for m in profile.mapping}
    addresses = [x.address for x in profile.location if mappings.get(x.mapping_id) == "[jit]"]
    assert addresses and max(addresses) < 0x1000, addresses
