"""Programs of known call chains: one recording of the whole host while all of them run."""

import os
import re
import subprocess

import harness
from harness import START, check_chain, check_complete, check_cpu, check_rate, once, total, workload

SECONDS = "2"
CHAIN = START + "a;b;c;spin(;|$)"
PROGRAMS = {
    "chain_c": [SECONDS],
    "chain_pie": [SECONDS],
    "chain_nopie": [SECONDS],
    "chain_static": [SECONDS],
    "chain_stripped": [SECONDS],
    "chain_lld": [SECONDS],
    "chain_cpp": [SECONDS],
    "threads4": [SECONDS],
    "recurse 100": [SECONDS],
    "recurse 400": [SECONDS],
    "recurse 2000": [SECONDS],
    "stack_kib 48": [SECONDS],
    "syscall_loop": [SECONDS],
    "clock_loop": [SECONDS],
    "go_spin": [SECONDS],
}


class Run:
    def __init__(self):
        recording = harness.Recording()
        commands = {}
        for name, args in PROGRAMS.items():
            program, *first = name.split()
            commands[name] = [workload(program), *first, *args]
        self.ran = harness.run_each(commands)
        self.result = recording.finish()
        failed = {name: ran.returncode for name, ran in self.ran.items() if ran.returncode}
        assert not failed, f"workloads failed: {failed}"

    def of(self, name):
        """The stacks of one workload, after its exec."""
        return self.result.of(self.ran[name].pid, name.split()[0])


@once
def run():
    return Run()


def check(name, pattern):
    check_chain(name, run().of(name), pattern)


def test_a_default_build_has_its_chain():
    check("chain_c", CHAIN)


def test_a_pie_has_its_chain():
    check("chain_pie", CHAIN)


def test_a_program_at_a_fixed_address_has_its_chain():
    check("chain_nopie", CHAIN)


def test_a_static_program_has_its_chain():
    check("chain_static", CHAIN)


def test_a_program_whose_code_is_not_at_its_file_offset_has_its_chain():
    headers = subprocess.run(
        ["/usr/bin/readelf", "-lW", workload("chain_lld")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    offset, address = re.search(r"LOAD +(0x\w+) (0x\w+) .* R E ", headers).groups()
    assert int(offset, 16) != int(address, 16), "the workload does not test what it is for"
    check("chain_lld", CHAIN)


def test_a_stripped_program_has_all_frames_as_module_and_offset():
    frame = r"chain_stripped\+0x[0-9a-f]+"
    check("chain_stripped", rf"^{frame};__libc_start_main[^;]*;[^;]+;({frame};){{4}}{frame}(;|$)")


def test_templates_and_exceptions_have_their_chain():
    layers = ";".join(f"layer<{n}>" for n in (3, 2, 1, 0))
    # Between two rounds, and while an exception is on its way out, main itself is the leaf.
    check_chain("chain_cpp", run().of("chain_cpp"), START[:-1] + f";{layers}(;|$)", rate=0.95)
    check_complete("chain_cpp", run().of("chain_cpp"))
    thrown = [s for s in run().of("chain_cpp") if "_Unwind_RaiseException" in s.folded]
    assert total(thrown) > 5, "no sample inside the unwinder"


def test_threads_have_their_chain_from_clone_on_and_their_own_tid():
    stacks = run().of("threads4")
    check("threads4", r"(^|;)thread_main;a;spin(;|$)")
    by_tid = {}
    for s in stacks:
        by_tid[s.tid] = by_tid.get(s.tid, 0) + s.count
    busy = [n for n in by_tid.values() if n > 0.1 * total(stacks)]
    assert len(busy) == 4, f"four threads were busy, seen: {by_tid}"


def check_recursion(depth):
    check(f"recurse {depth}", START + rf"(recurse;){{{depth}}}spin(;|$)")


def test_100_frames_of_recursion_are_all_there():
    check_recursion(100)


def test_400_frames_of_recursion_are_all_there():
    check_recursion(400)


def test_2000_frames_of_recursion_are_all_there():
    check_recursion(2000)


def test_48_kib_of_stack_are_followed_to_the_root():
    check("stack_kib 48", START + r"(hold;){24}spin(;|$)")


def test_system_calls_have_kernel_frames_above_the_stub_above_the_caller():
    stacks = run().of("syscall_loop")
    check("syscall_loop", START + "(read_zero|ask_parent)(;|$)")
    stub = r";main;read_zero;(__GI_)?(__libc_|__)?read;"
    reading = [s for s in stacks if ";read_zero;" in s.folded and harness.is_kernel(s.modules[-1])]
    check_rate("kernel frames above read", reading, lambda s: re.search(stub, s.folded), rate=0.98)
    check_rate(
        "the way to the file system",  # a tick can hit on the way in or out
        reading,
        lambda s: re.search(stub + r"(.*;)?(ksys_read|vfs_read)(;|$)", s.folded),
        rate=0.8,
    )
    asking = [s for s in stacks if ";ask_parent;" in s.folded]
    check_rate(
        "getppid: the stub above its caller",
        asking,
        lambda s: re.search(r";main;ask_parent;(.*;)?(__GI_|__)?getppid(;|$)", s.folded),
        rate=0.9,
    )
    for s in stacks:
        modules = [harness.is_kernel(m) for m in s.modules]
        assert modules == sorted(
            modules
        ), f"a user frame above a kernel frame: {s.folded} {s.modules}"


def test_the_vdso_has_names():
    stacks = run().of("clock_loop")
    check("clock_loop", START + "ask_clock(;|$)")
    check_rate(
        "frames of the vDSO",
        stacks,
        lambda s: re.search(r";ask_clock;(.*;)?(__vdso_)?clock_gettime(;|$)", s.folded),
        rate=0.8,
    )
    inside = [s for s in stacks if any("vdso" in m for m in s.modules)]
    check_rate(
        "their names",
        inside,
        lambda s: all(
            re.search("clock_gettime|vdso|clock_mode|vread", n)
            for n, m in zip(s.names, s.modules)
            if "vdso" in m and not n.startswith("[vdso]+")
        )
        and any("clock_gettime" in n for n, m in zip(s.names, s.modules) if "vdso" in m),
        rate=0.95,
    )


def test_go_functions_have_their_chain():
    stacks = [s for s in run().of("go_spin") if ".spin" in s.folded]
    chain = "main.a;main.b;main.c;main.spin(;|$)"
    check_chain(
        "go_spin",
        stacks,
        rf"^runtime\.goexit[^;]*;(runtime\.main;main\.main|(main\.main\.[^;]*;)?main\.worker);{chain}",
    )
    goroutine = [s for s in stacks if ";main.worker;" in s.folded]
    assert (
        0.3 < total(goroutine) / total(stacks) < 0.7
    ), f"half of it is a goroutine, seen {total(goroutine)}"


def test_all_chains_together_are_complete():
    check_complete("all workloads", [s for name in PROGRAMS for s in run().of(name)], rate=0.995)


def test_each_workload_has_its_cpu_time():
    for name, ran in run().ran.items():
        check_cpu(name, harness.cpu_ns(run().result.of(ran.pid)), ran)


def test_nothing_was_lost():
    harness.check_no_loss(run().result)


def test_labels_name_the_program():
    for name in PROGRAMS:
        services = {s.service for s in run().of(name)}
        program = os.path.join(harness.WORKLOADS, name.split()[0])
        assert services == {harness.service_of(program)}, f"{name}: {services}"


def test_go_tool_pprof_reads_the_profile():
    go = harness.need_program("/usr/bin/go")
    done = subprocess.run(
        [go, "tool", "pprof", "-top", "-sample_index=cpu", run().result.path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"Type: cpu", done.stdout), done.stdout[:500]
    assert re.search(r"\bspin\b", done.stdout), done.stdout[:2000]
