"""names - what it costs to name addresses by debug information, beside other tools, each a process of its own."""

import os
import random
import re
import resource
import subprocess

BIN = os.environ.get("BENCH_BIN", os.path.join(os.path.dirname(__file__), "../../bin"))

#: Arguments for a program; {tool: (with inlined callers, without)}. flamed always tells them.
TOOLS = {
    "flamed": (lambda p: [os.path.join(BIN, "flamed-symbolizer"), "--file", p, "--dump", "symbols", "--at", "-"],),
    "eu-addr2line": (
        lambda p: ["/usr/bin/eu-addr2line", "-f", "-i", "-e", p],
        lambda p: ["/usr/bin/eu-addr2line", "-f", "-e", p],
    ),
    "llvm-symbolizer": (
        lambda p: ["/usr/bin/llvm-symbolizer", "--functions=linkage", "--inlining", "-e", p],
        lambda p: ["/usr/bin/llvm-symbolizer", "--functions=linkage", "--no-inlines", "-e", p],
    ),
}


def cpu_of(argv, numbers):
    """(CPU seconds of a process that gets the numbers on stdin, its output)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = "".join(f"{n:#x}\n" for n in numbers)
    done = subprocess.run(
        argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=600
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed: {done.stderr[-1000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


class Addresses:
    """Of a program's own code, at random but the same in each run."""

    def __init__(self, program, n):
        text = subprocess.run(
            ["/usr/bin/readelf", "-SW", program], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        start, off, size = (int(x, 16) for x in re.search(r" \.text +PROGBITS +(\w+) (\w+) (\w+)", text).groups())
        chosen = random.Random(1).sample(range(size), n)
        self.vaddrs, self.offsets = [start + x for x in chosen], [off + x for x in chosen]

    def of(self, tool):
        return self.offsets if tool == "flamed" else self.vaddrs


def ask(tool, program, addresses, inlined=True):
    """CPU seconds of a fresh process for all of them."""
    argv = TOOLS[tool][0 if inlined or tool == "flamed" else 1](program)
    cpu_s, told = cpu_of(argv, addresses.of(tool))
    # A tool that finds nothing is fast.
    known = len(re.findall(r"(?:unit\.cc|/include/c\+\+/[\w./]*):[1-9]", told))
    if known < 0.9 * len(addresses.vaddrs):
        raise RuntimeError(f"{tool} knows {known} lines of {len(addresses.vaddrs)} addresses")
    return cpu_s
