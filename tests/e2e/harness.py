"""harness - what the end-to-end tests share: start flamed and workloads, read what flamed says.

Every run that ends through Recording.finish() is held to the laws of every run: what BPF saw is
what was aggregated plus the drops by reason, the profile holds exactly what was aggregated, and the
independent validator (pprof.py) finds nothing. Tests wait for conditions, not for a time to pass,
and every process that a test started is gone when the test is over.
"""

import atexit
import collections
import contextlib
import ctypes
import functools
import itertools
import math
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import pprof

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("E2E_BIN", os.path.join(ROOT, "bin"))
FLAMED = os.path.join(BIN, "flamed")
WORKLOADS = os.environ.get("E2E_WORKLOADS", os.path.join(ROOT, "build/release/workloads"))
SOURCES = os.path.join(ROOT, "tests/workloads")
NCPUS = len(os.sched_getaffinity(0))
HZ = 100



def service_of(path):
    """The service_name that a program has by its path: docs/pprof.md."""
    temporary = ("/tmp/", "/var/tmp/", "/dev/shm/")
    path = os.path.realpath(path)
    return "other" if path.startswith(temporary) else os.path.basename(path)


#: Root of a C program's main thread; the names of main's callers in libc differ between builds.
START = r"^_start;__libc_start_main[^;]*;[^;]+;main;"
MARKER = re.compile(r"\[(truncated|no user stack|unwind: [^]]*)\]")
KERNEL_MODULE = re.compile(r"\[.*\]")

Skip = unittest.SkipTest
_processes = []


def once(function):
    """A run that several tests look at: made by the first of them; a failure is everyone's."""
    results = {}

    @functools.wraps(function)
    def wrapper():
        if "error" in results:
            raise AssertionError(f"the shared run failed before: {results['error']}")
        if "value" not in results:
            try:
                results["value"] = function()
            except BaseException as error:
                results["error"] = error
                raise
        return results["value"]

    return wrapper


@functools.cache
def scratch():
    """A directory of this test program, only for root, gone with it."""
    path = tempfile.mkdtemp(prefix="flamed-e2e-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


_names = itertools.count(1)


def scratch_file(suffix):
    return os.path.join(scratch(), f"{next(_names)}{suffix}")


def workload(name):
    path = os.path.join(WORKLOADS, name)
    if not os.path.exists(path):
        raise AssertionError(f"{path} is missing: make workloads")
    return path


def shell_workload(name):
    """The same for a shell script: the tree may lie under a path with blanks."""
    return shlex.quote(workload(name))


def need_program(path):
    """A program of the distribution, by its full path; the test is skipped without it."""
    if not os.access(path, os.X_OK):
        raise Skip(f"{path} is not installed")
    return path


def wait_for(condition, what, seconds=30):
    """Returns condition()'s first true value; the test fails when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.02)


BPF = 321  # x86_64's bpf(2)
BPF_ENABLE_STATS = 32


@contextlib.contextmanager
def bpf_stats():
    """The kernel accounts for the run time of BPF programs as long as the block lasts."""
    attr = (ctypes.c_uint32 * 32)()  # BPF_STATS_RUN_TIME is 0
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(BPF, BPF_ENABLE_STATS, ctypes.byref(attr), ctypes.sizeof(attr))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "BPF_ENABLE_STATS")
    try:
        yield
    finally:
        os.close(fd)


# ---- processes ----


def stolen_ns():
    """CPU time that a hypervisor has taken from this machine, all CPUs, since it booted."""
    with open("/proc/stat", encoding="ascii") as f:
        return int(f.readline().split()[8]) * 10**9 // os.sysconf("SC_CLK_TCK")


def start(argv, **kwargs):
    """A process that is stopped, with its group, when the test ends."""
    stolen = stolen_ns()
    process = subprocess.Popen(argv, start_new_session=True, **kwargs)
    process.stolen_before_ns = stolen
    _processes.append(process)
    return process


def stop_all():
    """Called by the runner after each test: whatever the test started and left."""
    while _processes:
        process = _processes.pop()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


class Ran:
    """A process that has ended: what it printed, and the CPU time that the kernel says it used.

    stolen_ns: while it ran, on all CPUs.
    """

    def __init__(self, process, stdout, rusage):
        self.pid = process.pid
        self.returncode = process.returncode
        self.stdout = stdout
        self.stolen_ns = stolen_ns() - process.stolen_before_ns
        self.cpu_ns = round((rusage.ru_utime + rusage.ru_stime) * 1e9)

    def values(self):
        """The `key: value` lines of a workload."""
        return {k: int(v) for k, v in re.findall(r"^(\w+): (\d+)$", self.stdout, re.M)}


def reap(process):
    """Waits for a process of start(stdout=PIPE or a file); returns Ran."""
    stdout = process.stdout.read() if process.stdout else ""
    _, status, rusage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ran(process, stdout, rusage)


def run_each(commands, at_a_time=NCPUS, cpus=None):
    """Runs {name: argv}, at most at_a_time together; returns {name: Ran}. Output must be short.

    cpus: {name: CPU to be pinned to}.
    """
    waiting = list(commands.items())
    running, done = {}, {}
    poll = select.poll()
    while waiting or running:
        while waiting and len(running) < at_a_time:
            name, argv = waiting.pop(0)
            pin = None
            if cpus and name in cpus:
                pin = functools.partial(os.sched_setaffinity, 0, {cpus[name]})
            process = start(
                argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=pin
            )
            fd = os.pidfd_open(process.pid)
            poll.register(fd, select.POLLIN)
            running[fd] = (name, process)
        for fd, _ in poll.poll():
            name, process = running.pop(fd)
            poll.unregister(fd)
            os.close(fd)
            done[name] = reap(process)
    return done


def children(pid):
    """{pid: command line} of the live children of a process."""
    found = {}
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as f:
                for child in f.read().split():
                    with contextlib.suppress(OSError):
                        with open(f"/proc/{child}/cmdline", "rb") as c:
                            found[int(child)] = (
                                c.read().replace(b"\0", b" ").decode(errors="replace").strip()
                            )
    return found


# ---- flamed ----


class Recording:
    """A running `flamed record`."""

    def __init__(self, *args, command=None, output=None, ready=True):
        self.output = output or scratch_file(".pb.gz")
        argv = [FLAMED, "record", "-o", self.output, *map(str, args)]
        if command:
            argv += ["--", *command]
        if not os.access(FLAMED, os.X_OK):
            raise AssertionError(f"{FLAMED} is missing: make")
        self.stdout_path, self.stderr_path = scratch_file(".out"), scratch_file(".err")
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.process = start(argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        self.pid = self.process.pid
        if ready and not command:
            self.wait_ready()

    def stderr(self):
        with open(self.stderr_path, "rb") as f:
            return f.read().decode(errors="backslashreplace")

    def ended(self):
        if self.process.returncode is None:
            self.process.poll()
        return self.process.returncode is not None

    def wait_ready(self):
        """Until it samples, which it says (record.c)."""

        def sampling():
            if self.ended():
                raise AssertionError(
                    f"flamed ended at start with {self.process.returncode}: {self.stderr()}"
                )
            return re.search(r"^flamed: profiling ", self.stderr(), re.M)

        wait_for(sampling, "flamed to begin to sample")

    def finish(self, sig=signal.SIGINT, seconds=60, laws=True):
        """Ends the recording (sig None: it ends by itself) and returns what came out."""
        if sig is not None and not self.ended():
            self.process.send_signal(sig)
        wait_for(
            self.ended,
            f"flamed to end after signal {sig}; it said: {self.stderr()[-2000:]}",
            seconds,
        )
        result = Result(self)
        if laws:
            result.check_laws()
        return result


def record(*args, command=None, **kwargs):
    """A recording that ends by itself: with `command`, or with `-d` among args."""
    laws = kwargs.pop("laws", True)
    seconds = kwargs.pop("seconds", 90)
    return Recording(*args, command=command, ready=False, **kwargs).finish(
        sig=None, seconds=seconds, laws=laws
    )


def flamed(*args, seconds=30, **kwargs):
    """Any other command of flamed, to its end."""
    process = start(
        [FLAMED, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        **kwargs,
    )
    stdout, stderr = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(
        process.args,
        process.returncode,
        stdout.decode(errors="backslashreplace"),
        stderr.decode(errors="backslashreplace"),
    )


NOBODY = 65534


def for_everyone(path):
    """A copy of a file, flamed's directory, and the path of an output, all for nobody's use."""
    base = tempfile.mkdtemp(prefix="flamed-e2e-nobody-")
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    os.chmod(base, 0o755)
    programs, own = os.path.join(base, "bin"), os.path.join(base, "own")
    shutil.copytree(BIN, programs)
    os.chmod(programs, 0o755)
    os.mkdir(own)
    copy = shutil.copy(path, own) if path else None
    for entry in (own, copy):
        if entry:
            os.chown(entry, NOBODY, NOBODY)
    return copy, programs, os.path.join(own, "output.pb.gz")


def as_nobody(argv, seconds=60):
    """Runs a command as a user without capabilities."""
    setpriv = need_program("/usr/bin/setpriv")
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    caps = ["--inh-caps=-all", "--bounding-set=-all"]
    return subprocess.run(
        [setpriv, *user, *caps, *argv], capture_output=True, text=True, timeout=seconds, cwd="/"
    )


def parse_counts(text):
    return {k: int(v) for k, v in re.findall(r"([a-z_0-9]+)=(\d+)", text)}


class Summary:
    """The machine-readable lines at the end of stderr."""

    def __init__(self, stderr):
        lines = dict(
            re.findall(r"^(samples|seen|stacks|complete|copied|bpf|drops|restarts): *(.*)$", stderr, re.M)
        )
        self.text = stderr
        missing = {"samples", "seen", "stacks", "complete"} - set(lines)
        assert not missing, f"the summary lacks {sorted(missing)}: {stderr[-2000:]}"
        self.samples = int(lines["samples"].split()[0])
        self.seen = int(lines["seen"].split()[0])
        self.stacks = parse_counts(lines["stacks"])
        self.drops = parse_counts(lines.get("drops", ""))
        self.restarts = parse_counts(lines.get("restarts", ""))
        self.complete_percent = lines["complete"]
        self.copied = int(lines.get("copied", "0").split()[0])  # bytes a sample
        self.bpf_ns = int(lines["bpf"].split()[0]) if "bpf" in lines else None  # a tick

    #: Outcomes of samples that have no user stack by right; they do not count in completeness.
    UNCOUNTED = ("kernel_thread", "in_exec", "new_thread", "exiting")

    def check_complete_percent(self):
        counted = sum(n for outcome, n in self.stacks.items() if outcome not in self.UNCOUNTED)
        if counted:
            percent = 100 * self.stacks.get("complete", 0) / counted
            shown = float(self.complete_percent.split()[0])
            assert (
                abs(shown - percent) <= 0.11
            ), f"complete: {shown} %, {percent:.2f} % by {self.stacks}"

    def lost(self):
        """What was meant to be in the profile and is not."""
        return sum(n for reason, n in self.drops.items() if reason not in ("filtered", "thinned"))


class Stack:
    """Identical samples of one thread: `folded` is root first, with `;` between the frames."""

    def __init__(self, names, modules, values, labels):
        self.names = [n.replace(";", ":") for n in reversed(names)]
        self.modules = list(reversed(modules))
        self.folded = ";".join(self.names)
        self.count = values["samples"]
        self.cpu_ns = values["cpu"]
        self.pid, self.tid = labels.get("pid"), labels.get("tid")
        self.comm, self.service = labels.get("comm"), labels.get("service_name")
        self.outcome = MARKER.fullmatch(self.names[0]) if self.names else None
        self.user = [
            n
            for n, m in zip(self.names, self.modules)
            if not is_kernel(m) and not MARKER.fullmatch(n)
        ]

    @property
    def complete(self):
        return bool(self.user) and not self.outcome


def is_kernel(module):
    return bool(KERNEL_MODULE.fullmatch(module)) and module != "[vdso]"


class Result:
    def __init__(self, recording):
        self.returncode = recording.process.returncode
        self.path = recording.output
        self.stderr = recording.stderr()
        with open(recording.stdout_path, "rb") as f:
            self.stdout = f.read().decode(errors="backslashreplace")

    @functools.cached_property
    def summary(self):
        return Summary(self.stderr)

    @functools.cached_property
    def stacks(self):
        return load_stacks(self.path)

    def of(self, pid=None, comm=None):
        """The stacks of one process under one name (before exec it had its parent's)."""
        return [
            s
            for s in self.stacks
            if (pid is None or s.pid == pid) and (comm is None or s.comm == comm)
        ]

    def check_laws(self):
        s = self.summary
        assert s.seen == s.samples + sum(
            s.drops.values()
        ), f"conservation: seen {s.seen} != samples {s.samples} + drops {s.drops}"
        assert (
            sum(s.stacks.values()) == s.samples
        ), f"outcomes {s.stacks} are not {s.samples} samples"
        s.check_complete_percent()
        if s.samples:
            in_profile = sum(x.count for x in self.stacks)
            assert in_profile == s.samples, f"the profile has {in_profile} of {s.samples} samples"
            marked = sum(x.count for x in self.stacks if x.outcome)
            expected = sum(n for k, n in s.stacks.items() if k not in ("complete", *s.UNCOUNTED))
            assert (
                marked == expected
            ), f"{marked} marked stacks, the summary says {expected}: {s.stacks}"
        violations = pprof.validate(self.path)
        assert not violations, f"the validator: {violations[:5]}"


def load_stacks(path):
    return [Stack(*stack) for stack in pprof.load(path).stacks()]


# ---- statistics ----


def total(stacks):
    return sum(s.count for s in stacks)


def cpu_ns(stacks):
    return sum(s.cpu_ns for s in stacks)


def squeeze(names):
    """One line of a stack, root first, repeated frames counted."""
    runs = [(name, len(list(group))) for name, group in itertools.groupby(names)]
    text = ";".join(name if n == 1 else f"{name} x{n}" for name, n in runs)
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-300:]}"


def worst(stacks, n=5):
    """The commonest of these stacks, for a failed assertion."""
    counts = collections.Counter()
    for s in stacks:
        counts[squeeze(s.names)] += s.count
    return "".join(f"\n  {count} x {text}" for text, count in counts.most_common(n))


def check_rate(what, stacks, good, rate=0.99, at_least=50):
    """At least `rate` of the samples are good, but for four standard deviations of such a count."""
    n = total(stacks)
    assert n >= at_least, f"{what}: only {n} samples"
    hits = total(s for s in stacks if good(s))
    floor = rate - 4 * math.sqrt(rate * (1 - rate) / n)
    assert hits >= floor * n, (
        f"{what}: {hits} of {n} ({100 * hits / n:.1f} %), at least {100 * floor:.1f} % "
        f"expected; the others:{worst([s for s in stacks if not good(s)])}"
    )


def with_user_stack(stacks):
    """Without samples that have none by right (in exec, exiting); `[no user stack]` is not."""
    return [s for s in stacks if s.user or s.outcome]


def check_complete(what, stacks, rate=0.99, at_least=50):
    check_rate(what + ": complete", with_user_stack(stacks), lambda s: s.complete, rate, at_least)


def check_chain(what, stacks, pattern, rate=0.99, at_least=50):
    """The stacks are complete and their folded form, root first, contains the pattern."""
    chain = re.compile(pattern)
    check_rate(
        what + ": chain",
        with_user_stack(stacks),
        lambda s: s.complete and chain.search(s.folded),
        rate,
        at_least,
    )


def check_cpu(what, sampled_ns, ran, cpu_ns=None, tolerance=None):
    """CPU time as sampled against CPU time as the kernel accounts it.

    The kernel's (or cpu_ns, a process's own) has none of the time in which the hypervisor ran
    something else; a tick that fell into that time comes right after it, so samples can have it.
    """
    cpu_ns = cpu_ns or ran.cpu_ns
    tolerance = tolerance or 0.01 + 4 / math.sqrt(cpu_ns / 1e9 * HZ)
    low, high = cpu_ns * (1 - tolerance), cpu_ns * (1 + tolerance) + ran.stolen_ns
    assert low <= sampled_ns <= high, (
        f"{what}: sampled {sampled_ns / 1e9:.3f} s of {cpu_ns / 1e9:.3f} s, off by "
        f"{100 * (sampled_ns / cpu_ns - 1):.1f} %, tolerance {100 * tolerance:.1f} % and "
        f"{ran.stolen_ns / 1e9:.3f} s that were stolen"
    )


def check_no_loss(result, share=0.005):
    lost, seen = result.summary.lost(), result.summary.seen
    assert lost <= share * seen, f"{lost} of {seen} samples lost: {result.summary.drops}"
