#!/usr/bin/python3
"""bench.py [--quick] [--only GROUP] [--write FILE] - measures flamed, prints a table.

Needs what `make bench` builds, and root. Things that are compared run in turn, A B A B, and the
noise beside a figure is half of the range of its repeated runs. --write makes docs/benchmarks.md:
every figure on that page is one that this program printed.
"""

import argparse
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import daemons
import debug_program
import names
from measure import Counted, Repeated, busy_cpus, cpu_ns, held_kib, memory, name, read, running

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("BENCH_BIN", os.path.join(ROOT, "bin"))
BUILD = os.environ.get("BENCH_BUILD", os.path.join(ROOT, "build/release"))
NCPUS = len(os.sched_getaffinity(0))
HZ = 100
SYMBOLS = 200000
WARM_HZ = 1000
MIX_CPUS = min(2, NCPUS)  # mix.py
MIX = [os.path.join(HERE, "mix.py"), os.path.join(BUILD, "workloads")]

# As flamed names the programs of mix.py.
MIX_SERVICES = ["chain_cpp", "threads4", "python3*", "node*", "go_spin", "*gcc*", "cc1", "*as", "other"]

MET, NOT_MET, UNDECIDED = "met", "**not met**", "undecided: inside the noise"


class Row:
    def __init__(self, what, value, noise=None, unit="", goal=None, digits=1):
        self.what = what
        self.value = value if isinstance(value, str) else f"{value:.{digits}f} {unit}".strip()
        self.noise = "" if noise is None else f"± {noise:.{digits}f}"
        self.goal = "" if goal is None else f"≤ {goal:g} {unit}"
        self.verdict = "" if goal is None else verdict(value, noise or 0, goal)

    def cells(self):
        return [self.what, self.value, self.noise, self.goal, self.verdict]


def verdict(value, noise, goal):
    if abs(value - goal) <= noise:
        return UNDECIDED
    return MET if value < goal else NOT_MET


def of(what, values, **kwargs):
    r = Repeated(values)
    return Row(what, r.median, r.noise, **kwargs)


def program(path):
    return os.path.join(BUILD, "tests/bench", path)


def output(*argv):
    result = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed: {result.stderr[-1000:]}")
    return result.stdout


def numbers(line):
    return {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", line)}


# ---- one sample, in the kernel ----


def cost(kind, size, seconds, hz):
    """(us taken from the interrupted program, us by the kernel's account of the BPF program)"""
    n = numbers(output(program("bpf_cost"), kind, str(size), str(seconds), str(hz)))
    return n["stolen_ns"] / 1000, n["bpf_ns"] / 1000


def bench_bpf(quick, _):
    rounds, seconds = (2, 1) if quick else (5, 2)
    kinds = [(HZ, 4), (HZ, 16), (HZ, 32), (HZ, 64), (WARM_HZ, 4), (WARM_HZ, 16)]
    empty, sampled = {HZ: [], WARM_HZ: []}, {kind: [] for kind in kinds}
    for _ in range(rounds):
        for hz in empty:
            empty[hz].append(cost("empty", 16, seconds, hz))
            for kind in kinds:
                if kind[0] == hz:
                    sampled[kind].append(cost("sample", kind[1], seconds, hz))
    rows = []
    for hz, runs in empty.items():
        how = "" if hz == HZ else f", caches warm ({hz} Hz)"
        rows.append(of(f"empty program{how}: taken", [e[0] for e in runs], unit="us"))
        for size in (size for h, size in kinds if h == hz):
            ours = sampled[(hz, size)]
            above = [s[0] - e[0] for s, e in zip(ours, runs)]
            goal = 3 if hz == HZ and size <= 16 else None  # typical stacks have 6 KiB
            what = f"{size} KiB of stack{how}"
            rows.append(of(f"{what}: taken, above the empty program", above, unit="us", goal=goal))
            rows.append(of(f"{what}: the program's own time", [s[1] for s in ours], unit="us"))
    return rows


#: Stacks of which more than their own bytes could be copied, and how many those are, about.
SELDOM = {
    "a plain chain": ["chain_c"],
    "coroutines of the main thread": ["pieces", "coroutines_of_main"],
    "coroutines of a thread": ["pieces", "coroutines_of_thread"],
    "makecontext": ["odd_roots", "ucontext"],
    "a fiber as Boost.Context makes it": ["odd_roots", "fiber"],
    "a raw clone": ["odd_roots", "raw_clone"],
    "Go in a C program (c-shared)": ["go_host"],
    "C called by Go": ["go_cgo", "in_c"],
    "8 frames of 540 KiB": ["pieces", "recursion_540"],
}
COPIED_MAX = 32 * 1024


def copied_and_cost(argv, scratch):
    """(bytes of user stack a sample, us of the BPF program a tick)"""
    out = os.path.join(scratch, "seldom.pb.gz")
    command = [os.path.join(BUILD, "workloads", argv[0]), *argv[1:]]
    flamed = [os.path.join(BIN, "flamed"), "record", "-o", out, "--", *command]
    with daemons.harness.bpf_stats():
        done = subprocess.run(flamed, capture_output=True, text=True, timeout=120, check=True)
    summary = daemons.harness.Summary(done.stderr)
    return summary.copied, summary.bpf_ns / 1000


def bench_seldom(quick, scratch):
    rounds, seconds = (2, "1") if quick else (5, "3")
    runs = {what: [] for what in SELDOM}
    for _ in range(rounds):
        for what, argv in SELDOM.items():
            runs[what].append(copied_and_cost([*argv, seconds], scratch))
    rows = []
    for what, measured in runs.items():
        goal = COPIED_MAX if "540" not in what else None
        rows.append(of(f"{what}: copied", [m[0] for m in measured], unit="bytes", goal=goal, digits=0))
        rows.append(of(f"{what}: the program's own time", [m[1] for m in measured], unit="us"))
    return rows


# ---- one frame, in user space ----


def instructions_per_frame(scratch):
    few, many, frames = 640, 6400, 40
    counts = []
    for stacks in (few, many):
        argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={scratch}/callgrind"]
        result = subprocess.run(
            [*argv, program("bench_unwind"), str(stacks)],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        counts.append(int(re.search(r"Collected : (\d+)", result.stderr)[1]))
    return (counts[1] - counts[0]) / ((many - few) * frames)


def many_symbols(scratch):
    """A program without debug information: SYMBOLS functions, each of which calls the first."""
    source, path = os.path.join(scratch, "symbols.s"), os.path.join(scratch, "symbols")
    with open(source, "w", encoding="ascii") as f:
        f.write('.section .note.GNU-stack, "", @progbits\n.text\n.globl _start\n_start:\n')
        for i in range(SYMBOLS):
            f.write(
                f".type generated_function_{i}, @function\ngenerated_function_{i}:\n.cfi_startproc\n"
                "call generated_function_0\nret\n.cfi_endproc\n"
                f".size generated_function_{i}, .-generated_function_{i}\n"
            )
    output("/usr/bin/gcc", "-nostdlib", "-static", "-o", path, source)
    return path


def cold_files(scratch):
    libc = re.search(r"=> (\S*libc\.so\S*)", output("/usr/bin/ldd", "/bin/sh"))[1]
    return {
        "libc": libc,
        "python3": os.path.realpath("/usr/bin/python3"),
        "cc1": output("/usr/bin/gcc", "-print-prog-name=cc1").strip(),
        "node": os.path.realpath("/usr/bin/node"),
        f"{SYMBOLS} symbols": many_symbols(scratch),
    }


def bench_frames(quick, scratch):
    hot, cold, files = [], [], cold_files(scratch)
    symbolizer = os.path.join(BIN, "flamed-symbolizer")
    for _ in range(2 if quick else 5):
        lines = output(program("bench_unwind"))
        hot.append(dict(re.findall(r"frame (\w+) best=[\d.]+ median=([\d.]+)", lines)))
        lines = output(program("bench_cold"), symbolizer, *files.values())
        cold.append([numbers(line) for line in lines.splitlines()])
    rows = [
        of("hot, two stacks over and over", [float(h["hot"]) for h in hot], unit="ns", goal=20),
        of("hot, 64 stacks in turn", [float(h["mixed"]) for h in hot], unit="ns", goal=20),
        of("hot : the loads of a chain of frame pointers, which needs no rows", [float(h["hot"]) / float(h["chain"]) for h in hot]),
    ]
    if shutil.which("valgrind"):
        count = instructions_per_frame(scratch)
        rows.append(Row("hot, 64 stacks in turn, callgrind", count, unit="instructions", digits=0))
    else:
        rows.append(Row("hot, instructions", "not measured: no valgrind"))
    for i, file in enumerate(files):
        for key, what in (
            ("first_us", "its first row, with the index of its symbols"),
            ("row_us", "its row, asked alone"),
            ("row_batched_us", "its row, 64 at a time"),
            ("name_us", "its name, 64 at a time"),
        ):
            rows.append(of(f"cold, {file}: {what}", [run[i][key] for run in cold], unit="us"))
    return rows


# ---- names by debug information ----


def bench_names(quick, scratch):
    program_path = os.path.join(scratch, "debug_program")
    mib = debug_program.make(program_path, 10 if quick else 100)
    counts = (1, 50) if quick else (1, 100, 3000)
    rows = [Row("debug information of the program", mib, unit="MiB", digits=0)]
    for n in counts:
        # eu-addr2line takes minutes for thousands.
        tools = [tool for tool in names.TOOLS if n <= 100 or tool != "eu-addr2line"]
        kinds = [(tool, inlined) for tool in tools for inlined in (True, False) if inlined or tool != "flamed"]
        addresses, runs = names.Addresses(program_path, n), {kind: [] for kind in kinds}
        for _ in range(2 if quick else 3):
            for kind in kinds:
                runs[kind].append(names.ask(kind[0], program_path, addresses, kind[1]))
        ours = runs["flamed", True]
        what = "1 address" if n == 1 else f"{n} addresses"
        rows.append(of(f"{what}: flamed", [1000 * s for s in ours], unit="ms"))
        for tool, inlined in kinds[1:]:
            ratio = [theirs / s for theirs, s in zip(runs[tool, inlined], ours)]
            how = "with inlined callers" if inlined else "without"
            rows.append(of(f"{what}: {tool}, {how} : flamed", ratio))
    return rows


# ---- whole recordings ----


def record(seconds, scratch):
    out = os.path.join(scratch, "flamed.pb.gz")
    return Counted([os.path.join(BIN, "flamed"), "record", "-d", str(seconds), "-o", out])


def middle_of(recording, seconds):
    """{role: share of a core} in the middle of a recording, per cent."""
    time.sleep(seconds * 0.4)
    pids = recording.pids()
    before, start = {pid: cpu_ns([pid]) for pid in pids}, time.monotonic_ns()
    time.sleep(seconds * 0.4)
    lasted = time.monotonic_ns() - start
    return {name(pid): 100 * (cpu_ns([pid]) - before[pid]) / lasted for pid in pids}


def record_flamed(seconds, scratch):
    start_cpu_s, _ = record(0.01, scratch).finish(60)
    recording = record(seconds, scratch)
    roles = middle_of(recording, seconds)
    cpu_s, stderr = recording.finish(seconds + 60)
    samples = int(re.search(r"^samples: (\d+)", stderr, re.M)[1])
    return {
        "start_ms": 1000 * start_cpu_s,
        "percent": 100 * (cpu_s - start_cpu_s) / seconds,
        "us": 1e6 * cpu_s / samples,
        "us_running": 1e6 * (cpu_s - start_cpu_s) / samples,
        "middle": sum(roles.values()),
        "roles": roles,
    }


def record_perf(seconds, scratch):
    data = os.path.join(scratch, "perf.data")
    sampling = ["-e", "cpu-clock", "--call-graph", "dwarf", "-F", str(HZ), "-a"]
    argv = ["/usr/bin/perf", "record", *sampling, "-o", data, "--", "sleep", str(seconds)]
    recorded, stderr = Counted(argv).finish(seconds + 60)
    # Names of inlined functions, which flamed does not look for, would take most of its time.
    scripted, _ = Counted(["/usr/bin/perf", "script", "--no-inline", "-i", data]).finish(240)
    samples = int(re.search(r"\((\d+) samples\)", stderr)[1])
    return {"record": 1e6 * recorded / samples, "us": 1e6 * (recorded + scripted) / samples}


def bench_cpu(quick, scratch):
    rounds, seconds = (2, 5) if quick else (3, 20)
    ours, theirs = [], []
    with running(MIX):
        time.sleep(3)
        for _ in range(rounds):
            ours.append(record_flamed(seconds, scratch))
            theirs.append(record_perf(seconds, scratch))
    core = "% of a core"
    rows = [
        of(
            "flamed without its start, naming and writing included",
            [o["percent"] for o in ours],
            unit=core,
            goal=0.3 + 0.1 * MIX_CPUS,
            digits=2,
        ),
        of("flamed in the middle", [o["middle"] for o in ours], unit=core, digits=2),
    ]
    for role in ("agent", "symbolizer", "reader"):
        shares = [o["roles"].get(role, 0) for o in ours]
        rows.append(of(f"flamed in the middle: {role}", shares, unit=core, digits=2))
    start = [o["start_ms"] for o in ours]
    recorded = [t["record"] for t in theirs]
    ratio = [t["us"] / o["us"] for o, t in zip(ours, theirs)]
    return rows + [
        of("flamed, start and an empty profile", start, unit="ms", digits=0),
        of("flamed without its start, per sample", [o["us_running"] for o in ours], unit="us"),
        of("flamed, the whole command, per sample", [o["us"] for o in ours], unit="us"),
        of("`perf record --call-graph dwarf`, per sample", recorded, unit="us"),
        of("the same and `perf script`, per sample", [t["us"] for t in theirs], unit="us"),
        of("perf : flamed, the whole commands", ratio),
    ]


# ---- the daemon ----


def daemon_rows(what, runs):
    core = "% of a core"
    rows = [
        of(f"{what}: all processes", [r["percent"] for r in runs], unit=core,
           goal=0.3 + 0.1 * MIX_CPUS, digits=2)
    ]  # fmt: skip
    for role in ("agent", "symbolizer", "exporter", "reader"):
        rows.append(of(f"{what}: {role}", [r["roles"][role] for r in runs], unit=core, digits=2))
    memory_mib = [r["mib"] for r in runs]
    return rows + [
        of(f"{what}: per sample", [r["us"] for r in runs], unit="us"),
        of(f"{what}: memory at the end, without file pages", memory_mib, unit="MiB", goal=48),
        of(f"{what}: BPF program, per tick", [r["bpf_us"] for r in runs], unit="us"),
    ]


def bench_daemon(quick, _):
    rounds, window_s, windows = (2, 3, 4) if quick else (3, 15, 2)
    pushing, keeping, skipping = [], [], []
    with running(MIX):
        time.sleep(3)
        for _ in range(rounds):
            pushing.append(daemons.pushing(window_s, windows))
            keeping.append(daemons.keeping(window_s, windows))
            skipping.append(daemons.skipping(MIX_SERVICES, window_s, windows))
    seen = [100 * r["filtered"] / r["seen"] for r in skipping]
    return [
        *daemon_rows("daemon, pushing", pushing),
        *daemon_rows("daemon, for the page only", keeping),
        of("daemon, the mix excluded: share of ticks skipped", seen, unit="%", digits=0),
        of("daemon, the mix excluded: all processes", [r["percent"] for r in skipping], unit="% of a core",
           digits=2),
        of("daemon, the mix excluded: BPF program, per tick", [r["bpf_us"] for r in skipping], unit="us",
           digits=2),
    ]  # fmt: skip


# ---- memory ----


def bench_memory(quick, scratch):
    seconds = 8 if quick else 60
    peak, at_end = 0, {}
    with running(MIX):
        time.sleep(3)
        recording = record(seconds, scratch)
        end = time.monotonic() + seconds
        while recording.process.poll() is None:
            now = memory(recording.pids())
            peak = max(peak, held_kib(now))
            if time.monotonic() < end and len(now) >= 4:
                at_end = now
            time.sleep(0.2)
        recording.finish(60)
    total = {k: sum(p[k] for p in at_end.values()) / 1024 for k in ("bpf", "perf", "file")}
    what = f"all processes after {seconds} s, without file pages"
    rows = [
        Row(what, held_kib(at_end) / 1024, unit="MiB", goal=48),
        Row("their peak, naming and writing included", peak / 1024, unit="MiB", goal=64),
    ]
    for role, kinds in sorted(at_end.items()):
        resident = (kinds["anon"] + kinds["shmem"]) / 1024
        rows.append(Row(f"{role}: anonymous + shared", resident, unit="MiB"))
    return rows + [
        Row("BPF programs and maps, the ring among them", total["bpf"], unit="MiB"),
        Row("rings of the side-band", total["perf"], unit="MiB"),
        Row("file pages (programs, libraries)", total["file"], unit="MiB"),
    ]


# ---- what the sampled program notices ----


def work(rounds):
    """The same work on every CPU; ns of CPU time per round."""
    argv = [program("bench_work"), str(rounds)]
    each = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(NCPUS)]
    return [int(process.communicate(timeout=120)[0]) for process in each]


def bench_slowdown(quick, scratch):
    rounds, runs, each, most_s = (3, 2, 1000, 60) if quick else (8, 4, 2500, 120)
    off, on, end = [], [], time.monotonic() + most_s
    while len(off) < 3 or (len(off) < rounds and time.monotonic() < end):
        off.append(statistics.median(v for _ in range(runs) for v in work(each)))
        recording = record(3600, scratch)
        try:
            time.sleep(2)
            on.append(statistics.median(v for _ in range(runs) for v in work(each)))
            if recording.process.poll() is not None:
                raise RuntimeError("flamed ended before its time")
        finally:
            recording.kill()
    percent = [100 * (b / a - 1) for a, b in zip(off, on)]
    mean, error = statistics.mean(percent), 2 * statistics.stdev(percent) / math.sqrt(len(off))
    base = Repeated(off)
    slower = Row("CPU time of the same work with flamed", mean, error, unit="% more", digits=2)
    if abs(mean) <= error:
        slower.verdict = "not resolvable here"
    noise = 100 * base.noise / base.median
    return [slower, Row("noise of the work itself", noise, unit="%", digits=2)]


# ---- the table ----

GROUPS = {
    "bpf": (
        f"One sample, in the kernel ({HZ} Hz)",
        bench_bpf,
        "`bpf_cost`: a process pinned to a CPU holds so much stack and reads the clock without end;"
        " the median of the pauses in which a sample's time lies is what was taken from it. The"
        " empty program only notes the time. The kernel's own account of the program"
        " (`BPF_ENABLE_STATS`) contains whatever else was sampled on that CPU. The goal is meant"
        " for typical stacks, which have 6 KiB.",
    ),
    "seldom": (
        f"Stacks that are seldom ({HZ} Hz)",
        bench_seldom,
        "`flamed record` of programs of `tests/workloads/`, in turn: bytes of user stack that a sample"
        " brought, first samples included, and the kernel's own account of the BPF program for a tick"
        " (`BPF_ENABLE_STATS`). Of a stack whose real top is known no more than 32 KiB should be copied.",
    ),
    "frames": (
        "One frame, in user space",
        bench_frames,
        "`bench_unwind`: stacks of 40 frames, rows known. `bench_cold`: CPU time of both sides for"
        " addresses spread over a file's code, asked of the sandboxed symbolizer at first sight.",
    ),
    "names": (
        "Names by debug information",
        bench_names,
        "`debug_program.py`: a C++ program of many units. CPU time of a process of its own that reads random"
        " addresses of the code and prints function, file and line of each; flamed-symbolizer in its sandbox, and"
        " always with inlined callers. Ratios of runs in turn: above 1 flamed takes less.",
    ),
    "cpu": (
        f"All processes on a mixed load ({HZ} Hz)",
        lambda quick, scratch: bench_cpu(quick, scratch) + bench_daemon(quick, scratch),
        f"`mix.py`: C++ with exceptions, threads, Python, JavaScript, Go and gcc on {MIX_CPUS}"
        " CPUs. CPU time of the command and all its children, in turn with perf, which copies 8 KiB"
        " of stack a sample. The goal is 0.3 % and 0.1 % for each busy CPU.\n\nThe daemon:"
        " `flamed --config FILE` with its default window of 15 s, over two windows from the end of the"
        " second on, in turn. *Pushing*: to the stand-in server of the tests, whose own CPU time is"
        " not counted. *For the page only*: no endpoint, recent windows kept, nobody looks."
        " *The mix excluded*: all of its services in `processes.exclude`, so that nearly every tick"
        " is one of a skipped process. CPU time and memory by `/proc`, which has to agree with"
        " `/metrics`; of the BPF program by the kernel's own account (`BPF_ENABLE_STATS`).",
    ),
    "memory": (
        "Memory on the same load",
        bench_memory,
        "Resident memory by `/proc/PID/smaps_rollup`, shared pages divided among those that share"
        " them; BPF memory as the kernel accounts for it (`/proc/PID/fdinfo`). The goals include"
        " BPF memory and rings.",
    ),
    "slowdown": (
        "A CPU-bound program on every CPU",
        bench_slowdown,
        "`bench_work`: fixed work, flamed off and on in turn; the noise is twice the standard error"
        " of the pairs.",
    ),
}


def machine():
    cpuinfo = read("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    model = model[1].strip() if model else os.uname().machine
    kernel = re.match(r"[\d.]+", os.uname().release)[0]
    guest = ", a virtual machine" if re.search(r"\bhypervisor\b", cpuinfo) else ""
    busy = busy_cpus(2)
    return (
        f"{NCPUS} CPUs ({model}{guest}), Linux {kernel}."
        f" Before it began other programs kept {busy:.1f} CPUs busy."
    )


class Stolen:
    """CPU time that the hypervisor took while it lives: what is measured then is uncertain."""

    def __init__(self):
        self.ns, self.at_ns = daemons.harness.stolen_ns(), time.monotonic_ns()

    def __str__(self):
        ns, lasted_ns = daemons.harness.stolen_ns() - self.ns, time.monotonic_ns() - self.at_ns
        return f"The hypervisor took {100 * ns / lasted_ns / NCPUS:.1f} % of the CPU time while it ran."


HEAD = ["what", "measured", "noise", "goal", ""]


def as_text(rows):
    cells = [[cell.replace("*", "").replace("`", "") for cell in row.cells()] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEAD))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells)
    return "\n".join("  " + line for line in lines)


def as_markdown(rows):
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PAGE = """# Benchmarks

Written by `make bench`, which prints the same figures: do not edit. The programs are in
`tests/bench/`.

{machine}{stolen}

Compared things run in turn. The noise is half of the range of repeated runs of the same thing; a
figure within its noise of a goal is undecided. Goals are those that this project has set itself.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="short runs: to see that it works")
    parser.add_argument("--only", choices=GROUPS, action="append", help="these groups of rows")
    parser.add_argument("--write", metavar="FILE", help="the page; only of whole runs")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench.py: run it as root")
    if options.write and (options.quick or options.only):
        sys.exit("bench.py: a page is written only of a whole run")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without ending what runs
    host = machine()
    print(host, flush=True)
    stolen = Stolen()
    page = ""
    with tempfile.TemporaryDirectory(prefix="flamed-bench-") as scratch:
        for key in options.only or GROUPS:
            title, bench, how = GROUPS[key]
            start = time.monotonic()
            rows = bench(options.quick, scratch)
            print(f"\n{title}  [{time.monotonic() - start:.0f} s]\n{as_text(rows)}", flush=True)
            page += f"\n## {title}\n\n{how}\n\n{as_markdown(rows)}\n"
    print(f"\n{stolen}")
    if options.write:
        with open(options.write, "w", encoding="utf-8") as f:
            f.write(PAGE.format(machine=host, stolen=f" {stolen}") + page)
        print(f"\nwrote {options.write}")


main()
