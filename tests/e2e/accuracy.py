#!/usr/bin/python3
"""accuracy.py [--write FILE] [--keep DIRECTORY] [--list] [SUBSTRING...] - real programs, measured.

Runs programs that are too large or too special for `make check` under `flamed record`, one at a
time, then several at once on a whole host, and prints one table: how many stacks reached their
proven end, what stopped the others, frames that are wrong, and what a sample costs. Each row has its own rule; the last line is
`N passed, N failed, N skipped`, the exit status is 1 when one failed. --write makes
docs/accuracy.md: every figure on that page is one that this program printed.
"""

import argparse
import collections
import os
import re
import sys
import time

sys.dont_write_bytecode = True

import calls
import harness
import pprof
from accuracy_programs import EXACT, PROGRAMS

import accuracy_runtimes  # noqa: adds its programs

SAMPLES_MIN = 50
LOST_MAX = 0.05  # of all that was seen
SECONDS_MAX = 400  # a program that takes longer hangs
EXPLAINED = 99.5  # per cent; below, the row names what stops most of the others
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def allowed(n, floor):
    """So many of n samples may be incomplete: the rate, and two, which say nothing of a rate."""
    return n * (100 - floor) / 100 + 2


class Row:
    HEAD = [
        "program",
        "samples",
        "complete",
        "not complete",
        "frames",
        "what stops most of them",
        "wrong",
        "bytes",
        "BPF us",
        "rule",
        "result",
    ]

    def __init__(self, name, floor, later=""):
        self.name, self.floor, self.later = name, floor, later
        self.result, self.why = SKIPPED, ""
        self.samples = 0
        self.percent = None
        self.others = self.frames = self.cause = self.wrong = self.bytes = self.bpf_us = ""

    def measure(self, stacks):
        """Only what has a user stack by right counts."""
        stacks = harness.with_user_stack(stacks)
        incomplete = [s for s in stacks if not s.complete]
        self.samples = harness.total(stacks)
        missed = harness.total(incomplete)
        self.percent = 100 * (1 - missed / self.samples) if self.samples else 0
        self.others = outcomes(incomplete)
        self.frames = depths(stacks)
        if self.percent < EXPLAINED:
            self.cause = deepest(incomplete)
        if self.samples < SAMPLES_MIN:
            self.fail(f"only {self.samples} samples")
        elif missed > allowed(self.samples, self.floor):
            self.fail(f"{missed} of {self.samples} incomplete{harness.worst(incomplete)}")
        else:
            self.result = PASSED

    def judge(self, path, wanted=lambda labels: True):
        """Neighbours that cannot have called each other."""
        followed, wrong = calls.check(pprof.load(path), wanted)
        self.wrong = f"{sum(wrong.values())} of {followed}"
        if wrong:
            (file, callee, caller), n = wrong.most_common(1)[0]
            self.fail(f"{self.wrong} calls are wrong: {file} {caller:#x} does not call {callee:#x} ({n} times)")

    def cost(self, summary):
        self.bytes = f"{summary.copied}"
        if summary.bpf_ns is not None:
            self.bpf_us = f"{summary.bpf_ns / 1000:.1f}"

    def check_loss(self, summary):
        """A busy host may lose some; the law of conservation, which was checked, counts them."""
        if summary.lost():
            self.others = ", ".join(filter(None, [self.others, f"lost {summary.lost()}"]))
        if summary.lost() > LOST_MAX * summary.seen:
            self.fail(f"{summary.lost()} of {summary.seen} samples lost: {summary.drops}")

    def fail(self, why):
        self.result, self.why = FAILED, why

    def rule(self):
        return f">= {self.floor:g} %" + (f": {self.later}" if self.later else "")

    def cells(self):
        percent = "" if self.percent is None else f"{self.percent:.2f} %"
        count = str(self.samples or "")
        what = [self.others, self.frames, self.cause, self.wrong, self.bytes, self.bpf_us]
        return [self.name, count, percent, *what, self.rule(), self.result]


def outcomes(stacks):
    counts = collections.Counter()
    for s in stacks:
        counts[s.outcome[1] if s.outcome else "no user frame"] += s.count
    return ", ".join(f"{text.removeprefix('unwind: ')} {n}" for text, n in counts.most_common())


def depths(stacks):
    """Median and maximum of the user frames."""
    ordered = sorted((len(s.user), s.count) for s in stacks)
    half, seen = harness.total(stacks) / 2, 0
    for depth, count in ordered:
        seen += count
        if seen >= half:
            return f"{depth}/{ordered[-1][0]}"
    return ""


def deepest(stacks):
    """The commonest module and function of the frame at which unwinding stopped."""
    counts = collections.Counter()
    for s in stacks:
        at = 1 if s.outcome else 0
        module = os.path.basename(s.modules[at]) if at < len(s.names) else "?"
        name = s.names[at] if at < len(s.names) else "?"
        counts[name if name.startswith(module) else f"{module}: {name}"] += s.count
    name, count = counts.most_common(1)[0]
    return f"{name if len(name) <= 60 else name[:57] + '...'} ({count})"


def kept(keep, name):
    """Arguments of a recording whose profile and event log are to stay."""
    if not keep:
        return [], None
    base = os.path.join(keep, re.sub(r"[^\w+-]+", "_", name))
    return ["--events", base + ".events"], base + ".pb.gz"


def run_program(program, keep):
    """The row of one program, recorded with its children alone."""
    row = Row(program.name, program.floor, program.later)
    try:
        command = program.prepare()
        events, output = kept(keep, program.name)
        result = harness.record(*events, command=command, output=output, seconds=SECONDS_MAX)
        if result.returncode:
            said = result.stderr[-1500:]
            raise AssertionError(f"the program failed with {result.returncode}: {said}")
        row.measure(result.stacks)
        row.check_loss(result.summary)
        row.judge(result.path)
        row.cost(result.summary)
    except harness.Skip as skip:
        row.why = str(skip)
    except AssertionError as error:
        row.fail(str(error))
    return row


MIX = {  # and what their processes are called that are not started here
    "python3": (),
    "perl": (),
    "node": (),
    "gcc -O2": ("gcc", "cc1", "as"),
    "go program": (),
    "openssl rsa2048": (),
    "bash, fork and exec": ("bash", "echo", "tr", "true"),
    "sort": ("sort",),
}


def run_host(keep):
    """Several programs at once, in a recording of everything on the host: (their row, all else)."""
    mine = Row(f"the whole host: {len(MIX)} of these at once", EXACT)
    rest = Row("all else on this host", 0)
    try:
        commands = {p.name: command for p in PROGRAMS if p.name in MIX and (command := prepared(p))}
        events, output = kept(keep, "host")
        recording = harness.Recording(*events, output=output)
        ran = harness.run_each(commands, at_a_time=len(commands))
        result = recording.finish()
        failed = {name: r.returncode for name, r in ran.items() if r.returncode}
        assert not failed, f"programs failed: {failed}"
        pids = {r.pid for r in ran.values()}
        comms = {comm for name in commands for comm in MIX[name]}
        ours, others = [], []
        for stack in result.stacks:
            (ours if stack.pid in pids or stack.comm in comms else others).append(stack)
        mine.measure(ours)
        rest.measure(others)
        mine.check_loss(result.summary)
        mine.judge(result.path)
        mine.cost(result.summary)
    except AssertionError as error:
        mine.fail(str(error))
    return mine, rest


def prepared(program):
    """The command, None where its program is not installed."""
    try:
        return program.prepare()
    except harness.Skip:
        return None


# ---- the table ----


def as_text(rows):
    cells = [Row.HEAD, *(row.cells() for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(Row.HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells)


def as_markdown(rows):
    lines = [Row.HEAD, ["---"] * len(Row.HEAD)]
    lines += [[c.replace("|", "\\|") for c in row.cells()] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PAGE = """# Accuracy

Written by `make accuracy`, which prints the same table: do not edit. The programs and what they do
are in `tests/e2e/accuracy_programs.py`.

{machine}

Each program ran alone under `flamed record -- COMMAND` at {hz} Hz. *Complete* is the share of the
samples whose stack reached its proven end, of all samples that have a user stack by right; every
other one says at its root why not ([the list](../agent/unwind.h)). *Frames* are the user frames of
a stack, median and maximum. *Wrong* are frames whose caller's machine code calls another function
than theirs, of those whose caller names one (`tests/e2e/calls.py`). *Bytes* are what was copied of
user stacks for a sample; *BPF us* is what the BPF program took for a tick by the kernel's account
(`BPF_ENABLE_STATS`), ticks of the rest of the host included. Each row has its rule: {exact:g} %, or what was measured, less a
margin, where later work is to bring it there; a run that breaks a rule fails. *Lost* are samples
of the whole host that found no room.

{table}

{rest}
{tally}.
"""


def machine():
    release = re.match(r"[\d.]+", os.uname().release)[0]
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    model = model[1].strip() if model else os.uname().machine
    load = f"{os.getloadavg()[0]:.1f}"
    return f"{harness.NCPUS} CPUs ({model}), Linux {release}. Load average when it began: {load}."


def counted(rows):
    counts = collections.Counter(row.result for row in rows)
    return ", ".join(f"{counts[result]} {result}" for result in (PASSED, FAILED, SKIPPED))


def told(row, seconds):
    """A row as soon as it is known."""
    percent = "" if row.percent is None else f"{row.percent:.2f} % of {row.samples}"
    print(f"{row.result:<7} {seconds:6.1f} s  {row.name}: {percent} {row.why}", flush=True)


def run(substrings, keep):
    rows, rest = [], None
    for program in PROGRAMS:
        if not substrings or any(s in program.name for s in substrings):
            began = time.monotonic()
            rows.append(run_program(program, keep))
            harness.stop_all()
            told(rows[-1], time.monotonic() - began)
    if not substrings or any(s in "the whole host" for s in substrings):
        began = time.monotonic()
        mine, rest = run_host(keep)
        harness.stop_all()
        rows.append(mine)
        told(mine, time.monotonic() - began)
    return rows, rest


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].split(" - ")[0])
    parser.add_argument("substrings", nargs="*", metavar="SUBSTRING")
    parser.add_argument("--write", metavar="FILE", help="the page; only of whole runs")
    parser.add_argument("--keep", metavar="DIRECTORY", help="leave profiles and event logs there")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(program.name for program in PROGRAMS))
        return 0
    if os.geteuid() != 0:
        sys.exit("accuracy.py: run it as root")
    if options.write and options.substrings:
        sys.exit("accuracy.py: a page is written only of a whole run")
    if options.keep:
        os.makedirs(options.keep, mode=0o700, exist_ok=True)
    host = machine()
    with harness.bpf_stats():
        rows, rest = run(options.substrings, options.keep)
    about_rest = ""
    if rest and rest.samples:
        about_rest = (
            f"All else on this host in the last row's recording: {rest.samples} samples,"
            f" {rest.percent:.2f} % complete ({rest.others or 'all'}).\n"
        )
    print(f"\n{as_text(rows)}\n\n{about_rest}", flush=True)
    if options.write:
        page = PAGE.format(
            machine=host,
            hz=harness.HZ,
            exact=EXACT,
            table=as_markdown(rows),
            rest=about_rest,
            tally=counted(rows),
        )
        with open(options.write, "w", encoding="utf-8") as f:
            f.write(page)
        print(f"wrote {options.write}")
    print(counted(rows))
    return 1 if any(row.result == FAILED for row in rows) or not rows else 0


sys.exit(main())
