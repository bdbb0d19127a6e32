#!/usr/bin/env python3
"""mix.py WORKLOADS - the mixed load of the benchmarks, on two CPUs, until it is killed.

C++ with exceptions, four C threads, deep Python recursion, JavaScript, Go, and a compiler started
over and over: nine or so busy threads of six programs. It does the same whenever it runs.
"""

import os
import signal
import subprocess
import sys
import tempfile

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workloads")
FOR_EVER = "900000"  # CPU seconds


def compiled_text():
    """Half a second of gcc -O2."""
    return "".join(
        f"int f{i}(int *a, int n)\n{{\n\tint s = {i};\n\n"
        f"\tfor (int i = 0; i < n; i++)\n\t\tfor (int k = i; k < n; k += {1 + i % 7})\n"
        f"\t\t\ts += a[i] * a[k] ^ (s >> {1 + i % 5});\n"
        f"\treturn s + {f'f{i - 1}(a, n - 1)' if i else 'n'};\n}}\n\n"
        for i in range(150)
    )


def main():
    workloads = sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # not without removing the scratch files
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    commands = [
        [os.path.join(workloads, "chain_cpp"), FOR_EVER],
        [os.path.join(workloads, "threads4"), FOR_EVER],
        ["/usr/bin/python3", os.path.join(SOURCES, "recurse.py"), FOR_EVER],
        ["/usr/bin/node", os.path.join(SOURCES, "spin.js"), FOR_EVER],
        [os.path.join(workloads, "go_spin"), FOR_EVER],
    ]
    running = [subprocess.Popen(command) for command in commands]
    try:
        compile_while(running)
    finally:
        for process in running:
            process.kill()
            process.wait()
    sys.exit("mix.py: a workload ended")


def compile_while(running):
    """Compiles over and over until one of the others ends."""
    with tempfile.TemporaryDirectory(prefix="flamed-bench-") as scratch:
        source = os.path.join(scratch, "compiled.c")
        with open(source, "w", encoding="ascii") as f:
            f.write(compiled_text())
        compile_it = ["/usr/bin/gcc", "-O2", "-c", source, "-o", os.path.join(scratch, "out.o")]
        while all(process.poll() is None for process in running):
            if subprocess.call(compile_it) > 0:
                sys.exit("mix.py: gcc failed")


main()
