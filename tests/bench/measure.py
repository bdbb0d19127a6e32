"""measure - what the benchmarks read of processes: CPU time, memory, and numbers that repeat.

As a program: measure.py COMMAND... runs the command, waits for it and for every process that it
leaves behind, and prints the CPU seconds of them all as the last line of stdout, "cpu_s=1.234".
"""

import contextlib
import ctypes
import os
import re
import signal
import statistics
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def read(path):
    """A file of /proc, "" when its process is gone."""
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    return ""


def children(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def tree(pid):
    """pid and all its descendants."""
    pids = [pid]
    for p in pids:
        pids += children(p)
    return pids


def cpu_ns(pids):
    """CPU time of processes that run. Source: proc(5) schedstat of each thread."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{pid}/task"):
                total += int((read(f"/proc/{pid}/task/{tid}/schedstat").split() or [0])[0])
    return total


def name(pid):
    """agent, reader, symbolizer or exporter."""
    argv = read(f"/proc/{pid}/cmdline").split("\0")
    for role in ("symbolizer", "exporter", "reader"):
        if argv[0].endswith(role):
            return role
    return "agent"


# ---- memory ----


def kib(text, key):
    found = re.search(rf"^{key}:\s+(\d+)", text, re.M)
    return int(found[1]) if found else 0


def resident(pid):
    """KiB of a process by kind; shared pages are divided among those that share them."""
    rollup = read(f"/proc/{pid}/smaps_rollup")
    return {key: kib(rollup, f"Pss_{key.capitalize()}") for key in ("anon", "shmem", "file")}


def bpf_kib(pid):
    """Maps (with the ring) and programs that a process holds, as the kernel accounts for them."""
    total, seen = 0, set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fdinfo"):
            info = read(f"/proc/{pid}/fdinfo/{fd}")
            found = re.search(r"^(map|prog)_id:\s+(\d+)", info, re.M)
            if found and found.groups() not in seen:
                seen.add(found.groups())
                total += kib(info, "memlock") // 1024
    return total


def perf_ring_kib(pid):
    """Rings of perf events that a process has mapped."""
    total = 0
    for start, end in re.findall(
        r"^(\w+)-(\w+) .*\[perf_event\]$", read(f"/proc/{pid}/maps"), re.M
    ):
        total += (int(end, 16) - int(start, 16)) // 1024
    return total


def memory(pids):
    """{role: {anon, shmem, file, bpf, perf}} in KiB."""
    return {
        name(pid): {**resident(pid), "bpf": bpf_kib(pid), "perf": perf_ring_kib(pid)}
        for pid in pids
    }


def held_kib(processes):
    """What the goal limits: everything but file pages."""
    return sum(sum(v for k, v in p.items() if k != "file") for p in processes.values())


# ---- processes ----


class Counted:
    """A command whose CPU time, with that of all its descendants, is known when it has ended."""

    def __init__(self, argv, **kwargs):
        self.argv = argv
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-S", __file__, *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            **kwargs,
        )

    def pids(self):
        """Of the command and its descendants."""
        return tree(self.process.pid)[1:]

    def finish(self, seconds):
        """Returns (CPU seconds, stderr) once it has ended by itself."""
        try:
            stdout, stderr = self.process.communicate(timeout=seconds)
        except BaseException:
            self.kill()
            raise
        if self.process.returncode:
            raise RuntimeError(f"{' '.join(self.argv)} failed: {stderr[-1000:]}")
        return float(stdout.rsplit("cpu_s=", 1)[1]), stderr

    def kill(self):
        kill_group(self.process)


def kill_group(process, sig=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sig)
    process.wait()


@contextlib.contextmanager
def running(argv):
    """A load of its own process group, for as long as the block lasts."""
    process = subprocess.Popen(
        argv, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{' '.join(argv)} ended before its time")
    finally:
        kill_group(process, signal.SIGTERM)


def busy_cpus(seconds):
    """How many CPUs' worth of work the host does. Source: proc(5) stat, in clock ticks."""

    def ticks():
        fields = [int(v) for v in read("/proc/stat").split("\n", 1)[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4]  # without idle and iowait

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


# ---- numbers that repeat ----


class Repeated:
    """Runs of the same thing: their median, and half of their range as the noise floor."""

    def __init__(self, values):
        self.values = list(values)
        self.median = statistics.median(self.values)
        self.noise = (max(self.values) - min(self.values)) / 2


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("measure.py: prctl: " + os.strerror(ctypes.get_errno()))
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawnp(
        sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)]
    )
    status, total = 0, 0.0
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, code, usage = os.wait4(-1, 0)
            total += usage.ru_utime + usage.ru_stime  # with the descendants that it waited for
            if ended == pid:
                status = os.waitstatus_to_exitcode(code)
    print(f"cpu_s={total:.6f}")
    sys.exit(0 if status == 0 else 1)


if __name__ == "__main__":
    main()
