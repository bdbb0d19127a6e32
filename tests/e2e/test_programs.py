"""Programs of a distribution, none of which was built for us: native stacks are complete."""

import os
import re

import harness
from harness import (
    SOURCES,
    check_complete,
    check_cpu,
    check_rate,
    need_program,
    once,
    total,
    workload,
)

SECONDS = "3"


def large_c_file():
    """More than a second of work for gcc -O2, always the same."""
    path = harness.scratch_file(".c")
    with open(path, "w", encoding="ascii") as f:
        f.write("extern int printf(const char *, ...);\n")
        for i in range(120):
            f.write(
                f"int f{i}(int *v, int n)\n{{\n\tint s = {i};\n\tfor (int i = 0; i < n; i++) {{\n"
                f"\t\tif (v[i] % {i + 2})\n\t\t\ts += v[i] * {i + 3};\n\t\telse\n"
                f'\t\t\ts ^= printf("%d", v[i] / {i + 1});\n\t}}\n\treturn s;\n}}\n'
            )
    return path


class Run:
    def __init__(self):
        source = large_c_file()
        gcc = " ".join(f"/usr/bin/gcc -O2 -c -o {source}{i}.o {source};" for i in (1, 2, 3))
        commands = {
            "python": ["/usr/bin/python3", os.path.join(SOURCES, "recurse.py"), SECONDS],
            "gcc": ["/bin/sh", "-c", gcc],
            "node": ["/usr/bin/node", os.path.join(SOURCES, "spin.js"), SECONDS],
            "openssl": ["/usr/bin/openssl", "speed", "-seconds", "2", "rsa2048"],
            "dd": [
                "/bin/dd",
                "if=/dev/zero",
                "of=/dev/null",
                "bs=64k",
                "count=1500000",
                "status=none",
            ],
            "go": [workload("go_spin"), SECONDS],
        }
        commands = {k: v for k, v in commands.items() if os.access(v[0], os.X_OK)}
        recording = harness.Recording()
        self.ran = harness.run_each(commands)
        self.result = recording.finish()
        failed = {name: ran.returncode for name, ran in self.ran.items() if ran.returncode}
        assert not failed, f"programs failed: {failed}"


@once
def run():
    return Run()


def stacks_of(name, path, comm):
    need_program(path)
    return run().result.of(run().ran[name].pid, comm)


def test_python_is_complete_and_shows_its_interpreter():
    stacks = stacks_of("python", "/usr/bin/python3", "python3")
    check_complete("python3", stacks)
    check_rate(
        "the interpreter's loop", stacks, lambda s: "_PyEval_EvalFrameDefault" in s.folded, rate=0.9
    )


def test_gcc_is_complete():
    need_program("/usr/bin/gcc")
    check_complete("cc1", run().result.of(comm="cc1"), rate=0.99, at_least=100)


def test_node_is_complete_through_compiled_javascript():
    # V8's own frames are frame pointers; what it emits without is rare.
    check_complete("node", [s for s in stacks_of("node", "/usr/bin/node", "node")], rate=0.98)


def test_openssl_is_complete():
    stacks = stacks_of("openssl", "/usr/bin/openssl", "openssl")
    check_complete("openssl", stacks)
    check_rate(
        "bignum arithmetic in libcrypto",
        stacks,
        lambda s: any("libcrypto" in m for m in s.modules),
        rate=0.9,
    )


def test_dd_is_in_the_kernel_below_read_and_write():
    stacks = stacks_of("dd", "/bin/dd", "dd")
    check_complete("dd", stacks)
    inside = [s for s in stacks if harness.is_kernel(s.modules[-1])]
    assert total(inside) > 0.5 * total(
        stacks
    ), f"{total(inside)} of {total(stacks)} samples in the kernel"
    check_rate(
        "a stub of libc below the kernel",
        inside,
        lambda s: re.search(r";(__GI_)?(__libc_|__)?(read|write)(;|$)", s.folded),
        rate=0.9,
    )


def test_go_is_complete():
    check_complete("go_spin", run().result.of(run().ran["go"].pid, "go_spin"))


def test_each_program_has_its_cpu_time():
    for name in run().ran:
        if name != "gcc":  # its work is its children's
            ran = run().ran[name]
            check_cpu(name, harness.cpu_ns(run().result.of(ran.pid)), ran)


def test_files_that_are_gone_when_the_window_ends_still_have_names():
    """gcc's processes have all exited before the profile is made."""
    stacks = [s for s in run().result.of(comm="cc1") if s.complete]
    check_rate("cc1's file", stacks, lambda s: any(m.endswith("/cc1") for m in s.modules))


def test_nothing_was_lost():
    harness.check_no_loss(run().result)
